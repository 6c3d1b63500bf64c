"""`kseg compact`: what compaction would leave of logs, segment by segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kseg import CompactionPlan, CompactionReport, PartitionSettings, RetentionPlan
from kseg.cli import changing, output
from kseg.cli.changing import Change
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain, one_line
from kseg.cli.options import (
    Selection,
    Setting,
    broker_options,
    clock_of,
    config_options,
    json_option,
    selection_options,
)
from kseg.cli.paths import Partition, known_path
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.retain import actions_of, files_of
from kseg.cli.settings import known_settings
from kseg.errors import (
    CorruptIndexError,
    FormatError,
    KsegError,
    LimitExceededError,
    OffsetsOutOfOrderError,
)
from kseg.files.names import PathKind, list_partition
from kseg.log import data_directory
from kseg.log.compact import MAP_BYTES, RULES, apply_compaction, plan_compaction
from kseg.log.log import Log
from kseg.log.recovery import Action, Backup
from kseg.log.retain import apply_retention, plan_retention
from kseg.log.sub_directories import EntryKind, entry_of
from kseg.log.topic_policy import RetentionRules

if TYPE_CHECKING:
    from kseg.log.reader import HighWatermark

#: What is wrong with one partition, while the others go on.
_DAMAGE = (FormatError, CorruptIndexError, LimitExceededError, OffsetsOutOfOrderError)


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=str))
@selection_options
@changing.output_option
@click.option(
    "--backup-dir",
    metavar="DIR",
    type=click.Path(path_type=str),
    help="Keep the old segments here; else nothing of them is kept.",
)
@changing.apply_option
@config_options
@broker_options
@click.option("--all", "from_start", is_flag=True, help="From the log's start, clean or not.")
@click.option("--force", is_flag=True, help="Also what is not dirty enough, or too young.")
@click.option(
    "--rules",
    type=click.Choice(RULES),
    default=RULES[-1],
    show_default=True,
    help="3.9 leaves magic 0 and 1 as they are; since 4.0 they become magic 2.",
)
@click.option(
    "--map-bytes",
    type=click.IntRange(min=64),
    default=MAP_BYTES,
    show_default=True,
    help="Memory for keys, 24 bytes each; where it is too little there are several passes.",
)
@click.option(
    "--high-watermark",
    type=click.Choice(["end"]),
    help="This is the only copy: what lies above a broker's high watermark is compacted, too.",
)
@json_option
def compact(
    directory: str,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    settings: tuple[Setting, ...],
    now_ms: int | None,
    broker_config: str | None,
    metadata_dir: str | None,
    high_watermark: Literal["end"] | None,
    apply: bool,
    output_dir: str | None,
    backup_dir: str | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Say what compaction would leave of DIR: of each key the last record.

    DIR is a partition directory, or a data directory with all its partitions. Compacted are topics
    whose cleanup.policy has compact: Kafka's internal ones, those in cleaner-offset-checkpoint, and
    those of which --config, the metadata log or --broker-config says so, as for kseg retain. A run
    does what Kafka's cleaner would: from where the checkpoint says, where enough is dirty, and
    nothing of the active segment, above the high watermark or of transactions that are not decided.
    With compact,delete old segments go, too.

    Changes nothing without --apply. What goes is not kept, unless you give --backup-dir: a disk
    that is full would stay so.
    """
    change = Change(apply, output_dir, backup_dir, backup_dir is not None)
    found = list(partitions_of((directory,), Selection(topics, partitions), strict=True))
    known = known_settings(found, settings, broker_config=broker_config, metadata_dir=metadata_dir)
    chosen = [each for each in found if _has_segments(each.path)] if len(found) > 1 else found
    run = _Run(
        change=change,
        clock=clock_of(now_ms),
        high_watermark=high_watermark,
        how=how,
        of_one_log=known_path(directory).kind is PathKind.PARTITION,
    )
    for each in chosen:
        run.look(each, known.of(each.path))
    if not change.is_plan:
        run.change_all()
    return run.report(directory, as_json=as_json)


def _has_segments(path: Path) -> bool:
    return entry_of(path).kind is EntryKind.LOG and bool(list_partition(path).segments)


@dataclass(slots=True)
class _One:
    """A partition in this run.

    Attributes:
        rules: what compaction goes by.
        old: what retention goes by then; None where segments do not get too old.
        place: where it is changed: as it was given, or its copy.
        plan, deletion, done, finding: what came of it.
    """

    partition: Partition
    rules: RetentionRules
    old: RetentionRules | None
    place: Path
    plan: CompactionPlan | None = None
    deletion: RetentionPlan | None = None
    done: CompactionReport | None = None
    finding: KsegError | None = None

    @property
    def is_noop(self) -> bool:
        """Whether nothing changes."""
        if self.finding is not None or self.plan is None:
            return True
        deletes = self.deletion is not None and not self.deletion.is_noop
        return self.plan.is_noop and not self.plan.advances and not deletes


class _Run:
    """One run, partition by partition."""

    def __init__(
        self,
        *,
        change: Change,
        clock: Callable[[], int],
        high_watermark: Literal["end"] | None,
        how: dict[str, Any],
        of_one_log: bool,
    ) -> None:
        self.change, self.clock, self.how = change, clock, how
        self.high_watermark, self.of_one_log = high_watermark, of_one_log
        self.now_ms = clock()
        self.ones: list[_One] = []
        self.kept: dict[Path, Backup | None] = {}
        self.freed_bytes = 0

    def look(self, partition: Partition, settings: PartitionSettings) -> None:
        """Plan, and change nothing."""
        rules = settings.compaction_rules()
        old = None
        if rules.skipped is None and rules.config.deletes:
            old = settings.retention_rules(of_one_log=self.of_one_log)
        one = _One(partition, rules, old, partition.path)
        self.ones.append(one)
        with Log.open(partition.path) as log:
            self._guarded(one, lambda: self._plan(one, log, self.high_watermark))

    def _guarded(self, one: _One, act: Callable[[], None]) -> None:
        """Let damage stop one partition alone."""
        try:
            act()
        except _DAMAGE as error:
            one.finding = error

    def _plan(self, one: _One, log: Log, high_watermark: HighWatermark | None) -> None:
        when: dict[str, Any] = {"now_ms": self.now_ms, "high_watermark": high_watermark}
        one.plan = plan_compaction(log, config=one.rules, **when, **self.how)
        if one.old is not None:
            one.deletion = plan_retention(log, config=one.old, **when)

    def change_all(self) -> None:
        """Change partitions where something goes, under the lock of the data directory."""
        going = [one for one in self.ones if not one.is_noop]
        self.change.check_owners(one.place for one in going)
        with ExitStack() as stack:
            if self.change.apply:
                for home in sorted({one.place.resolve().parent for one in going}):
                    stack.callback(data_directory.enter(home).leave)
            changing.in_turn(going, self._change, in_place=self.change.apply)

    def _change(self, one: _One) -> None:
        assert one.plan is not None
        high_watermark: HighWatermark | None = self.high_watermark
        place = self.change.place_of(one.partition.path)
        if high_watermark is None and place != one.partition.path:
            high_watermark = one.plan.high_watermark  # a copy lies in no data directory
        one.place = place
        with Log.open(
            place,
            mode="append",
            config=one.rules.config,
            now_ms=self.clock,
            high_watermark=high_watermark,
        ) as log:
            self._guarded(one, lambda: self._do(one, log))

    def _do(self, one: _One, log: Log) -> None:
        self._plan(one, log, None)
        assert one.plan is not None
        backup = self._backup(log.path.parent)
        one.done = apply_compaction(log, one.plan, backup=backup)
        self.freed_bytes += one.done.freed_bytes if self.change.apply else 0
        if one.old is not None:
            one.deletion = plan_retention(log, config=one.old, now_ms=self.now_ms)
            if backup is not None:
                for path in files_of(one.deletion):
                    backup.keep_file(path)
            done = apply_retention(log, one.deletion)
            self.freed_bytes += done.freed_bytes if self.change.apply else 0

    def _backup(self, home: Path) -> Backup | None:
        if home not in self.kept:
            self.kept[home] = self.change.backup_of(home, self.now_ms)
        return self.kept[home]

    # ---- telling ---------------------------------------------------------------------------------

    def report(self, directory: str, *, as_json: bool) -> Exit:
        """Print it; answers the exit code."""
        if not as_json:
            self._say_what_stays()
        findings = [one.finding for one in self.ones if one.finding is not None]
        for finding in findings:
            complain(f"kseg: not compacted: {one_line(finding)}")
        plans = [one.plan for one in self.ones if one.plan is not None]
        code = changing.report(
            "compact",
            directory,
            self.change,
            [action for one in self.ones for action in _actions(one)],
            changing.all_kept(self.kept.values()),
            freed_bytes=self.freed_bytes,
            as_json=as_json,
            saved_bytes=sum(plan.saved_bytes or 0 for plan in plans),
            room_bytes=max((plan.room_bytes for plan in plans), default=0),
            partitions=[_document(one) for one in self.ones],
            findings=[_finding(finding) for finding in findings],
        )
        return Exit.FOUND if findings else code

    def _say_what_stays(self) -> None:
        """What is left alone, topic by topic; then each segment that stays, and why."""
        left = Counter(
            (one.partition.topic or one.partition.path.name, one.plan.why)
            for one in self.ones
            if one.plan is not None and one.plan.skipped is not None
        )
        for (topic, why), count in left.items():
            partitions = output.counted(count, "partition")
            output.write_line(f"left alone: {printable(topic)} ({partitions}): {why}")
        for one in self.ones:
            for segment in () if one.plan is None else one.plan.staying:
                path = printable(str(one.place / segment.path.name))
                output.write_line(f"stays: {path} ({segment.bytes} bytes): {segment.why}")
            if one.plan is not None and one.plan.groups:
                room = output.counted(one.plan.room_bytes, "byte")
                output.write_line(f"{printable(str(one.place))}: {room} of free room are needed")


def _actions(one: _One) -> Iterator[Action]:
    plan = one.plan
    if plan is None or one.finding is not None:
        return
    for group in plan.groups:
        for segment in group.segments:
            why = f"{segment.kept_bytes} of its {segment.bytes} bytes stay"
            if len(group.segments) > 1:
                why += f", in one segment at {group.base_offset}"
            path = str(one.place / segment.path.name)
            yield Action("compact", path, segment.saved_bytes or 0, why)
    if plan.advances:
        why = f"clean up to {plan.end_offset} then, not to {plan.first_dirty_offset}"
        if not plan.is_complete:
            why += ", and further with the next pass: the map is full"
        yield Action("checkpoint", str(one.place), 0, why)
    if one.deletion is not None:
        yield from actions_of(one.deletion, one.place)


def _document(one: _One) -> dict[str, Any]:
    """A partition as it stands in JSON."""
    plan, partition = one.plan, one.partition
    where = {
        "path": str(partition.path),
        "topic": partition.topic,
        "partition": partition.partition,
    }
    if plan is None:
        return where
    return {
        **where,
        "log_start_offset": plan.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "high_watermark": plan.high_watermark,
        "last_stable_offset": plan.last_stable_offset,
        "first_dirty_offset": plan.first_dirty_offset,
        "first_uncleanable_offset": plan.first_uncleanable_offset,
        "end_offset": plan.end_offset,
        "clean_bytes": plan.clean_bytes,
        "cleanable_bytes": plan.cleanable_bytes,
        "dirty_ratio": plan.dirty_ratio,
        "bytes": plan.bytes,
        "kept_bytes": plan.kept_bytes,
        "saved_bytes": plan.saved_bytes,
        "room_bytes": plan.room_bytes,
        "complete": plan.is_complete,
        "skipped": plan.skipped,
        "why": plan.why or None,
        "segments": [
            {
                "base_offset": segment.base_offset,
                "bytes": segment.bytes,
                "kept_bytes": segment.kept_bytes,
                "saved_bytes": segment.saved_bytes,
                "into": group.base_offset,
            }
            for group in plan.groups
            for segment in group.segments
        ],
        "staying": [
            {"base_offset": each.base_offset, "bytes": each.bytes, "why": each.why}
            for each in plan.staying
        ],
        "report": None if one.done is None else asdict(one.done),
    }


def _finding(error: KsegError) -> dict[str, Any]:
    return {
        "path": None if error.path is None else str(error.path),
        "position": error.position,
        "offset": error.offset,
        "message": str(error),
    }
