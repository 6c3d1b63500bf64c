"""Logs of another place brought into the empty topics of a stopped broker, which then serves them.

    plan_adoption    reads the logs, and says what comes in, and what an operator types
    AdoptionPlan     its `apply` makes the logs beside the data directories, and puts them in place

Batches keep their bytes and offsets but for the leader epoch, which is outside of their checksum:
it becomes that of the target, since a broker drops batches of later epochs than its own and
followers find by epochs where they diverge. No state of producers comes along: ids of another
cluster mean others here. The log ends in an empty segment with an empty snapshot, so that neither a
clean load nor a recovery finds one. Without that state an open transaction would be served as
committed, so each one is ended by a marker of its own.

Source: Kafka `UnifiedLog.rebuildProducerState`, `LocalLog`, `LogLoader`, `LeaderEpochFileCache`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from kseg.catalog import Catalog, take_replicas
from kseg.change import swap
from kseg.change.adopted_log import (
    AdoptedSegment,
    AdoptedTransaction,
    PartitionAdoption,
    Walk,
    decide,
    stage,
    tiles_of,
)
from kseg.commands import command_line
from kseg.constants import INT64_MAX, TAILS, InternalTopic, Progress, StrPath
from kseg.documents import VerbReport, fields_of, frozen_dataclass
from kseg.errors import (
    FormatError,
    KsegError,
    OffsetsOutOfOrderError,
    StalePlanError,
    UnsupportedFormatError,
)
from kseg.files import io, lock
from kseg.files.grammar import is_topic_name
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import Partition, SegmentFiles
from kseg.files.selection import Selection, StrPaths
from kseg.format.header import BatchTable
from kseg.format.times import DAY_MS, Time, bound_ms
from kseg.frames import Table, TableRows, counted
from kseg.log.clock import now_of
from kseg.log.config import FROM_TOPIC, LogConfig
from kseg.log.copies.merge import LEFT_OUT, PartitionMerge, merge_of
from kseg.log.data_directory import lower_start
from kseg.log.reader.find import Cut, cut_at
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.view import LogView, age_of
from kseg.log.recovery.plan import FileSeen, look_at
from kseg.log.settings.cluster import Assigned
from kseg.log.settings.joined import Settings
from kseg.log.settings.targets import (
    StoppedBroker,
    assigned_partitions,
    partition_paths,
    stopped_brokers,
    usual_rules,
)
from kseg.log.tier.tier import Tier
from kseg.log.topic_policy import UNTOUCHED, is_internal
from kseg.log.writer.retention import SIZE, TIME, LogBounds, choose
from kseg.stores.path import is_remote, local_path_at
from kseg.workers import sum_progress

#: What expires within so short a time counts as expired.
_SOON_MS: Final = DAY_MS
#: The replicas that a partition usually has.
_REPLICAS: Final = 3
#: What a first pass of a broker removes -> the setting that keeps it.
_KEEPING: Final = {
    TIME: ("retention.ms", "-1"),
    SIZE: ("retention.bytes", "-1"),
    "compact": ("cleanup.policy", "delete"),
}


@frozen_dataclass(repr=False)
class AdoptionPlan(Table, VerbReport):
    """The plan of an adoption.

    Attributes:
        homes: the data directories.
        partitions: sorted by topic and number.
        refused: sentences why nothing can be adopted, each with the command that helps.
        before, after: what an operator types before the adoption, and after it.
        left_out: partitions of the sources that do not come in, and why.
        unfinished: an interrupted run had made all logs, and `apply` puts them in place.
        config: the settings of the logs, keyed by partition.
        seen: the files that the plan was made for, keyed by directory.
        now_ms: the time of the plan.
        group_homes: the data directories among the sources with the commits of groups.
        groups_command: the line of `after` that writes the file of these commits; "" if none does.
    """

    COLUMNS = "topic partition source log_start_offset log_end_offset segments records bytes"
    DOCUMENT = "into=homes partitions bytes room refused before after left_out unfinished"

    homes: tuple[Path, ...]
    partitions: tuple[PartitionAdoption, ...]
    refused: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    left_out: tuple[str, ...]
    unfinished: tuple[Path, ...]
    config: Mapping[str, LogConfig]
    seen: Mapping[Path, tuple[FileSeen, ...]]
    now_ms: int
    group_homes: tuple[Path, ...] = ()
    groups_command: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of log, once for each log."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    def room(self) -> dict[str, int]:
        """The free room that is needed, by data directory."""
        bytes_by_home = dict.fromkeys(map(str, self.homes), 0)
        for partition in self.partitions:
            for target in partition.targets:
                bytes_by_home[str(target.parent)] += partition.bytes
        return bytes_by_home

    @property
    def title(self) -> str:
        """The number of partitions, of records and of bytes."""
        records = sum(partition.records for partition in self.partitions)
        why = f", refused: {self.refused[0]}" if self.refused else ""
        return f"{len(self.partitions)} partitions, {records} records, {self.bytes} bytes{why}"

    def to_json(self) -> dict[str, Any]:
        """The document of `kseg adopt --json`."""
        return self.to_dict()

    def table_rows(self) -> TableRows:
        """The partitions."""
        return [counted(fields_of(partition, self.COLUMNS)) for partition in self.partitions]

    def apply(self, *, progress: Progress | None = None) -> tuple[Path, ...]:
        """Make the logs, and put them in place: all partitions are empty until all logs are made.

        If the process is killed, each partition is empty or whole, and another run goes on.

        Args:
            progress: called with the bytes of log that are made, and all.

        Returns:
            The directories of the partitions.

        Raises:
            KsegError: the plan is refused; nothing was done.
            LogLockedError, UncleanShutdownError: a broker runs, or was not stopped in good order.
            StalePlanError: files have changed since the plan was made; nothing was done.
            FormatError: a batch is damaged; nothing was changed.
            PermissionError: this process cannot make files with the owner of the others there.
            OSError: the disk refuses, or has no room.
        """
        if self.refused:
            raise KsegError(self.refused[0])
        with swap.held(self.homes):
            logs = swap.unfinished(self.homes)
            if not logs:
                self._check()
                logs = self._stage(progress)
                swap.ready(logs)
            swap.finish(logs)
        return tuple(made.path for made in logs)

    def _check(self) -> None:
        """Refuse a stale plan, directories where new files get another owner, and full disks."""
        for path, files in self.seen.items():
            if _seen_files(path) != files:
                raise StalePlanError("files have changed since the plan was made", path=path)
        for partition in self.partitions:
            for target in partition.targets:
                io.check_new_files(target)
        for home, size in self.room.items():
            if not io.has_room(home, size):
                why = f"no room on the disk for {size} bytes; nothing was changed"
                raise OSError(errno.ENOSPC, why, home)

    def _stage(self, progress: Progress | None) -> tuple[swap.Made, ...]:
        """Make all logs beside the data directories, once for each replica; on a fault none."""
        logs, note = list[swap.Made](), sum_progress(progress, sum(self.room.values()))
        directories = {path.parent for partition in self.partitions for path in partition.targets}
        swap.begin(directories)
        try:
            for partition in self.partitions:
                start, end = partition.log_start_offset, partition.log_end_offset
                bases = [segment.base_offset for segment in partition.segments]
                first = min(bases, default=start)
                for target in partition.targets:
                    try:
                        stage(partition, target, self.config[partition.name], self.now_ms, note)
                    except (FormatError, OffsetsOutOfOrderError) as error:
                        error.reason += f"; nothing was changed; {_salvage(partition.source)}"
                        raise
                    logs.append(swap.Made(target, start, first, end))
        except BaseException:
            with suppress(OSError):
                swap.discard(directories)
            raise
        return tuple(logs)


def plan_adoption(
    sources: StrPaths,
    *,
    into: StrPaths,
    topics: Mapping[str, str] | None = None,
    partitions: int | Sequence[int] | None = None,
    at: Time | None = None,
    cut: Cut = "first",
    undecided: Literal["stop", "abort", "commit"] = "stop",
    let_retention_delete: bool = False,
    compare_checksums: bool = True,
    metadata_directory: StrPath | None = None,
    broker_config: StrPath | None = None,
    tier: Tier | None = None,
    now: Time | None = None,
    progress: Progress | None = None,
) -> AdoptionPlan:
    """Plan to bring logs into the empty topics of a stopped broker; changes nothing.

    Args:
        sources: partition directories, data directories, or URLs of them. Several copies of one
            partition are joined as `plan_merge` does. Directories that a broker has put aside are
            named.
        into: the data directories of the broker, or of all brokers with replicas of the topics.
        topics: the topics, each with its name in the target; None for all but Kafka's own.
        partitions: adopt only these: a number, or several.
        at: the logs as they were at this time; None for all that they have.
        cut: where each ends then: "first", before the first batch with a later time; or
            "last", after the last batch that began no later. If records have later times than
            their transactions, "last" may take the end of a producer's transaction for that of its
            next one, unless its epoch rises with each (KIP-890).
        undecided: the end of open transactions of which nothing tells how they ended: "abort",
            "commit", or "stop" to refuse.
        let_retention_delete: adopt also what the first passes of retention and of the cleaner take.
        compare_checksums: whether to read all bytes; false for only headers, if a plan is applied
            at once: `apply` compares each checksum in any case.
        metadata_directory: the directory with `__cluster_metadata-0`, if it is elsewhere.
        broker_config: the broker's `server.properties`.
        tier: the tier with further segments of the sources.
        now: the time that counts for retention; the machine's if None.
        progress: called with the bytes of log that were read, and all.

    Raises:
        ValueError: an argument is refused.
        NotALogError: a path is not Kafka's, or not a broker's data directory.
        KsegError, OSError: a source or a data directory cannot be read.

    Example:
        >>> plan_adoption("backup/orders-0", into="/var/lib/kafka")  # doctest: +SKIP
        AdoptionPlan(1 partitions, 1200 records, 65536 bytes)
    """
    if cut not in ("first", "last") or undecided not in ("stop", "abort", "commit"):
        raise ValueError(f"not a cut, or an end: {cut!r}, {undecided!r}")
    if topics is not None and len(set(topics.values())) < len(topics):
        raise ValueError("two topics have one name in the target")
    paths = (into,) if isinstance(into, str | os.PathLike) else into
    directories = tuple(local_path_at(path).resolve() for path in paths)
    brokers = stopped_brokers(directories, metadata_directory, broker_config)
    at_ms = None if at is None else bound_ms(at)
    plan = _Planning(directories, brokers, now_of(now), compare_checksums)
    plan.check_homes()
    unfinished = swap.unfinished(directories)
    if unfinished:
        others = {made.path.parent for made in unfinished}.difference(directories)
        plan.refused += [f"{home}: an interrupted run goes on there: name it" for home in others]
        return plan.result((), tuple(made.path for made in unfinished))
    catalog = Catalog.of(sources, replicas="all", files="refuse", tier=tier)
    chosen = plan.chosen(catalog, topics, Selection.of(None, partitions))
    note = sum_progress(progress, sum(info.size for walk in chosen for info in walk.view.segments))
    walks = [walk for walk in chosen if plan.walk(walk, at_ms, cut, note)]
    transactions = [transaction for walk in walks for transaction in walk.transactions]
    logs, names = [(walk.view, walk.end) for walk in walks], {walk.entry.name for walk in walks}
    if transactions:
        newest = take_replicas(list(catalog), age_of)
        logs += [(LogView.at(entry), 0) for entry in newest if entry.name not in names]
    decided = decide(transactions, logs, at_ms, undecided)
    plan.refused += [
        transaction.question for transaction in decided.values() if transaction.commits is None
    ]
    adoptions = [_adoption(walk, decided) for walk in walks]
    for adoption in () if let_retention_delete else adoptions:
        plan.check_clocks(adoption)
    plan.note_groups(catalog, at)
    plan.note_replicas(adoptions)
    return plan.result(adoptions, ())


# ---- the plan ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Planning:
    """A plan in the making; its attributes are those of `AdoptionPlan`."""

    homes: tuple[Path, ...]
    brokers: Sequence[StoppedBroker]
    now_ms: int
    compare_checksums: bool
    refused: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    group_homes: tuple[Path, ...] = ()
    groups_command: str = ""

    def check_homes(self) -> None:
        """Refuse data directories that are in use, or were not left in good order."""
        for home in self.homes:
            holder = lock.holder(home)
            if holder is not None:
                self.refused.append(f"{home}: {lock.who_holds(holder)}: stop the broker first")
            elif read_clean_shutdown(home) is None:
                command = command_line("kseg", "recover", str(home), "--apply")
                self.refused.append(
                    f"{home}: the broker was not stopped in good order: type {command}"
                )
            place = swap.place_of(home)
            if os.stat(place.parent).st_dev != os.stat(home).st_dev:
                self.refused.append(
                    f"{home} is the top of a file system, and the logs are made beside a data "
                    "directory: let log.dirs name a directory below it"
                )

    def chosen(
        self, catalog: Catalog, topics: Mapping[str, str] | None, selection: Selection
    ) -> list[Walk]:
        """The sources with their targets; notes what is left out or refused."""
        by_topic: dict[str, dict[int, list[Partition]]] = {}
        for entry in catalog:
            topic, number = entry.topic, entry.partition
            if topic is None or number is None:
                lines = self.refused if entry.path in catalog.named else self.left_out
                lines.append(f"{entry.path}: not the name of a partition, such as orders-0")
            elif is_internal(topic) and topic not in (topics or ()):
                self.left_out.append(f"{entry.path}: a topic of Kafka's own")
            elif topics is None or topic in topics:
                by_topic.setdefault(topic, {}).setdefault(number, []).append(entry)
        for topic in set(topics or ()).difference(by_topic):
            self.refused.append(f"no partition of {topic} is among the sources")
        walks = list[Walk]()
        for topic, copies in sorted(by_topic.items()):
            target = (topics or {}).get(topic, topic)
            try:
                walks += self._walks_of(target, copies, selection)
            except KsegError as error:
                self.refused.append(str(error))
        if not (walks or self.refused):
            self.refused.append("no partition to adopt is among the sources")
        return walks

    def _walks_of(
        self, topic: str, copies: Mapping[int, Sequence[Partition]], selection: Selection
    ) -> Iterator[Walk]:
        """The sources of one topic, each with its targets.

        Args:
            topic: its name in the target.
            copies: the directories of each partition number.
            selection: selects partitions; if None, sources and target must have the same numbers.

        Raises:
            KsegError: a partition cannot be adopted, so that none of the topic is.
        """
        if not is_topic_name(topic) or is_internal(topic):
            raise KsegError(f"{topic!r} is not a topic that producers write to")
        count = max(copies) + 1
        assigned = [
            assigned_partitions(broker.settings.cluster, topic, broker.directories[0], count=count)
            for broker in self.brokers
        ]
        numbers = [number for number in copies if selection.takes(topic, number)]
        if not selection and len(assigned[0]) != count:
            raise KsegError(
                f"{topic} has {len(assigned[0])} partitions in the metadata log, and {count} in "
                f"the sources: producers would put keys in others; make it with {count}, or name "
                "the partitions to adopt"
            )
        for number in sorted({*numbers, *(() if selection else assigned[0])}):
            name = f"{topic}-{number}"
            if number not in assigned[0]:
                raise KsegError(f"the metadata log has no partition {name}")
            if number not in copies:
                raise KsegError(f"{name} is not among the sources: name the partitions to adopt")
            targets = self._targets(topic, number, [assignment[number] for assignment in assigned])
            epoch = max(assignment[number].leader_epoch for assignment in assigned)
            entry, *others = copies[number]
            merge = _merge_copies(number, copies[number]) if others else None
            view = LogView.at(entry) if merge is None else merge.view
            # From a single directory set aside by Kafka (`-delete`, `-stray`) all records come,
            # not only those from the log's start on.
            is_set_aside = entry.kind and not others
            start = view.first_offset if is_set_aside else view.log_start_offset
            walk = Walk(
                entry, view, topic, targets, leader_epoch=epoch, start=start, end=view.first_offset
            )
            if merge is not None:
                walk.copies = tuple(copy.path for copy in copies[number])
                for copy in merge.copies:
                    walk.notes.append(f"{copy.batches} batches from {copy.path}")
                    if copy.error is not None:
                        walk.left_out.append(f"{copy.path}: {copy.error}")
                walk.left_out += [
                    f"{out.batches} batches of {out.path}, offsets {out.first_offset} to "
                    f"{out.last_offset}: {LEFT_OUT[out.why]}"
                    for out in merge.left_out
                ]
                if merge.missing:
                    walk.left_out.append("an unfinished write at the end of a copy")
            yield walk

    def _targets(self, topic: str, number: int, assigned: Sequence[Assigned]) -> tuple[Path, ...]:
        """The directories of all replicas; each must be empty.

        Raises:
            KsegError: a directory is not here, or not empty.
        """
        name, paths = f"{topic}-{number}", list[Path]()
        missing = set(assigned[0].replicas).difference(holder.node_id for holder in self.brokers)
        if missing:
            nodes = " and ".join(map(str, sorted(missing)))
            raise KsegError(
                f"{name} has a replica on broker {nodes}, which could lead without records: stop "
                "it, too, and name its data directories, or make the topic with one replica"
            )
        for broker, at in zip(self.brokers, assigned, strict=True):
            for place in broker.directories:
                if (place / name).is_symlink():
                    raise KsegError("the partition is a link", path=place / name)
            if broker.node_id in at.replicas:
                paths += partition_paths(broker, topic, {number: at})
        for path in paths:
            if swap.last_base(path) != 0:
                why = "the partition has or had records: adopt into one that is new"
                raise KsegError(why, path=path)
            of_partition = self._settings_at(path).of(path)
            if of_partition.skipped in UNTOUCHED:
                raise KsegError(f"{of_partition.why}: adopt into another topic", path=path)
        return tuple(paths)

    def _settings_at(self, path: Path) -> Settings:
        """The settings of the broker that has a partition directory."""
        return next(broker.settings for broker in self.brokers if path.parent in broker.directories)

    def walk(self, walk: Walk, at_ms: int | None, cut: Cut, note: Callable[[int], None]) -> bool:
        """Walk over a source; return whether it can be adopted."""
        view, path, end = walk.view, os.fspath(walk.entry.path), INT64_MAX
        lacking = _why_incomplete(walk.entry, view, view.first_offset)
        if lacking is not None:
            self.refused.append(lacking)
            return False
        try:
            if any(info.files.kafka07 for info in view.segments):
                raise UnsupportedFormatError("a log of Kafka 0.7: 'kseg convert' first", path=path)
            if at_ms is not None:
                end, walk.behind = cut_at(view, walk.start, at_ms, cut)
            table: BatchTable | None = None
            tiles = tiles_of(view, walk.start, end, compare_checksums=self.compare_checksums)
            for info, tile in tiles:
                table = tile.table
                walk.feed(info, table)
                note(int(table.size.sum()))
            if end == INT64_MAX:
                walk.end = max(walk.end, walk.start, view.segments[-1].base_offset)
                if table is not None and table.stop in TAILS:
                    size = view.segments[-1].size - table.end_position
                    walk.left_out.append(f"{size} bytes after the last whole batch")
            walk.settle()
            walk.note_transactions()
        except (FormatError, OffsetsOutOfOrderError) as error:
            self.refused.append(f"{error}; {_salvage(walk.entry.path)}")
            return False
        faults = list(walk.faults())
        self.refused += faults
        return not faults

    def check_clocks(self, adoption: PartitionAdoption) -> None:
        """Refuse what a first pass of retention or of the cleaner would remove.

        For each setting that removes records, a command beforehand keeps them, and one
        afterwards puts the setting back.
        """
        target, end = adoption.targets[0], adoption.log_end_offset
        broker_settings = self._settings_at(target)
        config = usual_rules(broker_settings, target).config
        latest = {  # without times, that of the new file counts
            segment.base_offset: segment.max_timestamp
            if segment.max_timestamp >= 0
            else self.now_ms
            for segment in adoption.segments
        }
        sizes = {segment.base_offset: segment.bytes for segment in adoption.segments} | {end: 0}
        infos = [
            SegmentInfo(SegmentFiles(base, target), size, is_last=base == end)
            for base, size in sizes.items()
        ]
        going = choose(
            infos,
            LogBounds(adoption.log_start_offset, end, end),
            config=config,
            now_ms=self.now_ms + _SOON_MS,
            largest_timestamp=lambda info: latest[info.base_offset],
        )
        rules = dict.fromkeys(segment.why for segment in going)  # once each, in order
        if config.compacted and adoption.bytes:
            rules["compact"] = None
        if rules:
            names = " and ".join(_KEEPING[why][0] for why in rules)
            self.refused.append(
                f"{adoption.name}: a first pass of the broker takes records of it, by {names}: "
                "type the lines for before, or let it with --let-retention-delete"
            )
        topic = ("--entity-type", "topics", "--entity-name", adoption.topic)
        alter = ("kafka-configs.sh", "--bootstrap-server", "localhost:9092", "--alter", *topic)
        for why in rules:
            name, remedy = _KEEPING[why]
            value = broker_settings.of(target).values.get(name)
            again = f"--delete-config={name}"
            if value is not None and value.source == FROM_TOPIC:
                again = f"--add-config={name}={value.value}"
            for lines, word in (
                (self.before, f"--add-config={name}={remedy}"),
                (self.after, again),
            ):
                line = command_line(*alter, *word.split("=", 1))
                if line not in lines:
                    lines.append(line)

    def note_groups(self, catalog: Catalog, at: Time | None) -> None:
        """Note the command that shows how groups continue from their committed offsets."""
        self.group_homes = tuple(
            dict.fromkeys(
                entry.path.parent for entry in catalog if entry.topic == InternalTopic.OFFSETS
            )
        )
        moment = () if at is None else ("--at", str(at))
        words = (*map(str, self.group_homes), *moment, "--reset-commands", "offsets.csv")
        if self.group_homes:
            self.groups_command = command_line("kseg", "groups", *words)
            self.after.append(self.groups_command)

    def note_replicas(self, adoptions: Sequence[PartitionAdoption]) -> None:
        """Note the commands that add replicas, if the cluster has brokers without a replica."""
        cluster, own = self.brokers[0].settings.cluster, self.brokers[0].node_id
        brokers = () if cluster is None else cluster.facts["brokers"]
        others = sorted(node for (node,) in brokers if node != own)[: _REPLICAS - 1]
        if len(self.brokers) > 1 or not (others and adoptions):
            return
        rows = [
            {"topic": adoption.topic, "partition": adoption.partition, "replicas": [own, *others]}
            for adoption in adoptions
        ]
        text = json.dumps({"version": 1, "partitions": rows})
        tool = ("kafka-reassign-partitions.sh", "--bootstrap-server", "localhost:9092")
        words = (*tool, "--reassignment-json-file", "replicas.json", "--execute")
        self.after += [f"{command_line('echo', text)} >replicas.json", command_line(*words)]

    def result(
        self, adoptions: Sequence[PartitionAdoption], unfinished: tuple[Path, ...]
    ) -> AdoptionPlan:
        """The plan."""
        # The rules are those of a topic, so one replica has them for all.
        first_targets = [(adoption.name, adoption.targets[0]) for adoption in adoptions]
        seen = {
            path
            for adoption in adoptions
            for path in (adoption.source, *adoption.copies, *adoption.targets)
            if not is_remote(str(path))
        }
        if adoptions:
            seen |= set(self.homes)
        return AdoptionPlan(
            self.homes,
            tuple(adoptions),
            tuple(self.refused),
            tuple(self.before),
            tuple(self.after),
            tuple(self.left_out),
            unfinished,
            {name: self._settings_at(path).of(path).log_config for name, path in first_targets},
            {path: _seen_files(path) for path in sorted(seen)},
            self.now_ms,
            self.group_homes,
            self.groups_command,
        )


def _adoption(
    walk: Walk, ended: Mapping[AdoptedTransaction, AdoptedTransaction]
) -> PartitionAdoption:
    """A source as the plan describes it, with the ends that were decided for its transactions."""
    if walk.magics & 3:
        walk.notes.append(
            "it has batches of magic 0 or 1: brokers and clients of Kafka up to 4.4 read them, and "
            "older clients only those of their own time"
        )
    assert walk.entry.partition is not None
    sizes = [AdoptedSegment(base, *facts) for base, facts in sorted(walk.sizes.items())]
    return PartitionAdoption(
        walk.topic,
        walk.entry.partition,
        walk.view.path,
        walk.targets,
        walk.leader_epoch,
        walk.start,
        walk.end,
        tuple(sizes),
        walk.records,
        walk.first_ms,
        max((segment.max_timestamp for segment in sizes), default=-1),
        tuple(ended[transaction] for transaction in walk.transactions),
        walk.behind,
        tuple(walk.left_out),
        tuple(walk.notes),
        walk.copies,
        walk.view,
    )


def _merge_copies(number: int, copies: Sequence[Partition]) -> PartitionMerge:
    """Join several copies of one partition in one log.

    Raises:
        KsegError: they cannot be joined, or lack offsets.
    """
    paths = [entry.path for entry in copies]
    command = command_line("kseg", "merge", *map(str, paths), "-o", "OUT")
    name = f"{copies[0].topic}-{number}"
    if any(entry.tier is not None for entry in copies):
        raise KsegError(f"{name} has several copies, and a tier: join the copies first: {command}")
    merge = merge_of(str(copies[0].topic), number, paths)
    for entry in copies:
        lacking = _why_incomplete(entry, LogView.at(entry), merge.log_start_offset)
        if lacking is not None:
            raise KsegError(lacking)
    if merge.undecided:
        raise KsegError(
            f"{name}: {merge.undecided} batches of the copies contradict each other from offset "
            f"{merge.conflicts[0].offset} on: let one copy win: {command} --prefer {paths[0]}"
        )
    for lost in merge.missing:
        if lost.last_offset is not None or any(copy.ends_damaged for copy in merge.copies):
            last = "the end" if lost.last_offset is None else lost.last_offset
            raise KsegError(
                f"{name}: offsets {lost.first_offset} to {last} are in no copy: name a copy that "
                f"has them, or go without: {command}"
            )
    return merge


def _why_incomplete(entry: Partition, view: LogView, first: int) -> str | None:
    """Says why a source lacks segments that only its tier has; None if it lacks none.

    Args:
        entry: the source.
        view: the view of its log.
        first: the first offset that is here, in this copy or in all copies together.
    """
    start = view.remote_start_offset
    if start is None or start >= first or view.remote is not None or entry.kind:
        return None
    command = lower_start(entry.path, start, view.first_offset)
    return f"{entry.path}: {view.remote_warning}: name the tier, or type {command}"


def _salvage(path: Path) -> str:
    """The advice for a damaged source, with the command."""
    return "first make a sound copy: " + command_line("kseg", "salvage", str(path), "-o", "OUT")


def _seen_files(path: Path) -> tuple[FileSeen, ...]:
    """The files of a directory, without those that kseg makes and removes itself."""
    return tuple(seen for seen in look_at(path) if seen.name not in (lock.LOCK_NAME, io.ROOM_NAME))
