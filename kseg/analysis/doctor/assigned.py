"""The partitions that the metadata log gives to this node, beside those in its directories.

A start puts aside what is not this node's, and makes an empty log for each partition that is, and
that no directory has. So records go out of service that lie under a wrong topic id, or on a disk
that is not mounted.

Source: Kafka `LogManager.isStrayKraftReplica`, `Partition.createLogInAssignedDirectoryId`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from kseg.analysis.doctor.broker import BrokerFile
from kseg.analysis.doctor.homes import Home
from kseg.analysis.doctor.quorum import Quorum
from kseg.analysis.doctor.values import Noticed, Outcome, PartitionOutlook
from kseg.commands import command_line
from kseg.errors import KsegError
from kseg.files import metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.names import FileKind
from kseg.format.times import iso_text
from kseg.internal.ids import id_text
from kseg.log.settings import Assigned, Cluster
from kseg.log.sub_directories import DirectoryEntry, EntryKind

_METADATA: Final = FileKind.PARTITION_METADATA.value
_NO_ID: Final = "there is no partition.metadata, so nobody knows its topic's id"
_NAMES_MAX: Final = 3


class _Given(NamedTuple):
    """A partition that the metadata log gives to this node."""

    topic_id: UUID
    assigned: Assigned


@dataclass(frozen=True, slots=True)
class Node:
    """This node's partitions.

    Attributes:
        homes: the data directories.
        told: what `server.properties` says.
        quorum: the metadata log.
        node_id: None where it is not known.
        logs: those in the directories, by partition.
        given: what the metadata log gives to this node, by partition.
    """

    homes: tuple[Home, ...]
    told: BrokerFile
    quorum: Quorum
    node_id: int | None
    logs: Mapping[TopicPartition, DirectoryEntry]
    given: Mapping[TopicPartition, _Given]

    @classmethod
    def of(cls, homes: tuple[Home, ...], told: BrokerFile, quorum: Quorum) -> Node:
        """Compare the metadata log with the directories."""
        ids = [home.meta.node_id for home in homes if home.meta is not None]
        known = [each for each in (told.node_id, *ids) if each is not None]
        logs = {
            entry.partition: entry
            for home in homes
            for entry in home.entries
            if entry.kind is EntryKind.LOG and entry.partition is not None
        }
        node_id = known[0] if known else None
        given = dict(_all_given(_understood(quorum.cluster), node_id))
        return cls(homes, told, quorum, node_id, logs, given)

    def paths(self) -> Iterator[tuple[TopicPartition, str]]:
        """The logs in the directories, by partition."""
        return ((partition, str(entry.path)) for partition, entry in self.logs.items())

    # ---- partitions that are here ----------------------------------------------------------------

    def with_finding(self, one: PartitionOutlook, entry: DirectoryEntry) -> PartitionOutlook:
        """Add whether a start puts a partition aside, and makes an empty one in its place."""
        cluster = _understood(self.quorum.cluster)
        if entry.kind is not EntryKind.LOG or entry.partition is None or cluster is None:
            return one
        topic_id, given = _topic_id(entry.path), self.given.get(entry.partition)
        is_there = os.path.lexists(entry.path / _METADATA)
        if topic_id is None and not is_there and one.outcome is Outcome.OFFLINE:
            return one  # perhaps not even its files can be listed
        if topic_id is None and is_there:  # its load says so
            return one if given is None else _with_mend(one, self._id_file(entry.path, given))
        why = _NO_ID
        if topic_id is not None:
            why = cluster.stray_reason(entry.partition, topic_id, self.node_id)
            if not why or self.is_forgotten(entry.partition):
                return one
            why = f"stray: {why}"
        if given is None:
            message = f"{why}; a start renames it to -stray, keeps it and does not serve it"
            found = Noticed("stray", one.path, message)
        else:
            message = f"{why}; a start renames it to -stray and makes an empty one in its place"
            mend = self._id_file(entry.path, given)
            records = max(one.log_end_offset - one.log_start_offset, 0)
            found = self._lost(given, one.path, message, mend, records)
        return replace(one, noticed=(*one.noticed, found))

    def is_forgotten(self, partition: TopicPartition) -> bool:
        """Whether a start puts it aside because the metadata log is cut."""
        cluster = self.quorum.cluster
        if cluster is None or cluster is self.quorum.before:
            return False
        return _topic_id(self.logs[partition].path) not in cluster.topics

    def _id_file(self, path: Path, given: _Given) -> str:
        """What writes the topic's id."""
        place = path / _METADATA
        text = f"version: 0\\ntopic_id: {id_text(given.topic_id)}\\n"
        write = f"{command_line('printf', text)} > {command_line(place)}"
        if not place.exists():
            write += f" && {command_line('chown', f'--reference={path}', place)}"
        unless = "Unless the topic was deleted and made again"
        return f"{unless}, write the id that the cluster has:\n{write}"

    # ---- partitions that are not -----------------------------------------------------------------

    def missing(self) -> Iterator[Noticed]:
        """Partitions of this node that none of the directories has."""
        for partition, given in self.given.items():
            home = self._home_of(given)
            if home is None or partition in self.logs:
                continue
            name = f"{partition.topic}-{partition.partition}"
            if os.path.lexists(home.path / name):  # `in_the_way` says what follows
                continue
            records = _known_records(self.homes, partition)
            message = "this node has it, says the metadata log, and it is not here"
            message += "; a start makes an empty one"
            mend = "Restore it from a backup before you start the broker."
            yield self._lost(given, str(home.path / name), message, mend, records)
        for directory_id, names in self.strangers().items():
            if all(home.meta is not None for home in self.homes):
                message = f"it was not given: {_in_words(names)} of this node in it"
                yield Noticed("partition-elsewhere", f"directory.id {directory_id}", message)

    def in_the_way(self, home: Home) -> Iterator[Noticed]:
        """What lies in a data directory where a start makes a partition, or renames one.

        Source: Kafka `LogManager.createLogDirectory`, `LogManager.recoverAbandonedFutureLogs`.
        """
        futures = {entry.partition: entry.path for entry in home.entries if _is_future(entry)}
        for partition, given in self.given.items():
            path = home.path / f"{partition.topic}-{partition.partition}"
            if self._home_of(given) is not home or not os.path.lexists(path):
                continue
            future, own = futures.get(partition), self.logs.get(partition)
            if own is None:
                message = "no directory, but a partition of this node belongs here: a start cannot "
                message += "make it, and does without this data directory"
                mend = f"Move it away:\n{_away(path)}"
                error = "KafkaStorageException"
                yield Noticed("unreadable", str(path), message, Outcome.OFFLINE, error, mend)
            elif future is not None and own.path == path and _topic_id(future) == given.topic_id:
                message = f"a start renames it to {path.name}, which lies beside it, and stops"
                mend = f"Move it away, if {path.name} has all its records:\n{_away(future)}"
                error = "KafkaStorageException"
                yield Noticed(
                    "duplicate-partition", str(future), message, Outcome.FAILS, error, mend
                )

    def strangers(self) -> dict[str, list[str]]:
        """Partitions of this node that are not here, by the id of the directory they lie in."""
        found: dict[str, list[str]] = {}
        for partition, given in self.given.items():
            directory_id = given.assigned.directory_of(self.node_id or 0)
            if directory_id is not None and self._home_of(given) is None:
                name = f"{partition.topic}-{partition.partition}"
                found.setdefault(id_text(directory_id), []).append(name)
        return found

    def _home_of(self, given: _Given) -> Home | None:
        """The data directory in which a partition lies, or would be made; None for another one."""
        place = given.assigned.directory_of(self.node_id or 0)
        by_id = {home.meta.directory_id: home for home in self.homes if home.meta is not None}
        paths = {home.path.resolve() for home in self.homes}
        are_all = (
            self.told.directories and {each.resolve() for each in self.told.directories} <= paths
        )
        found = None if place is None else by_id.get(id_text(place))
        is_replaced = are_all and len(by_id) == len(paths)
        return self.homes[0] if found is None and (place is None or is_replaced) else found

    def _lost(
        self, given: _Given, path: str, message: str, mend: str, records: int | None
    ) -> Noticed:
        """What it means that a start begins a partition of this node without records."""
        assigned = given.assigned
        others = [each for each in assigned.isr if each != self.node_id]
        nodes = ", ".join(map(str, others))
        message += self._as_of()
        if self.node_id in assigned.adding:
            message += f"; it was still being copied from {nodes}"
            return Noticed("partition-elsewhere", path, message)
        if others and assigned.leader != self.node_id:
            message += f"; the replicas on {nodes} have its records"
            return Noticed("partition-behind", path, message)
        if others:
            message += f"; it leads, so that the replicas on {nodes} may drop the records, too"
        return Noticed("partition-lost", path, message, mend=mend, records=records)

    def _as_of(self) -> str:
        """Up to where the metadata log goes, which may be old on a node that is no controller."""
        cluster = self.quorum.cluster
        if cluster is None or self.quorum.is_controller:
            return ""
        time = iso_text(cluster.time_ms) or "no known time"
        return f" (the metadata log goes up to offset {cluster.end_offset}, {time})"

    # ---- directories without their ids -----------------------------------------------------------

    def of_formatting(self) -> Iterator[Noticed]:
        """Directories without meta.properties: disks that are not mounted, or new ones."""
        for home in self.homes:
            place = home.path / FileKind.META_PROPERTIES.value
            malformed = any(one.code in ("meta-properties", "unreadable") for one in home.noticed)
            if home.meta is None and not malformed:
                message, mend = self._unformatted(home, place)
                message = f"no meta.properties, without which no broker starts; {message}"
                yield Noticed(
                    "not-formatted", str(place), message, Outcome.FAILS, "RuntimeException", mend
                )

    def _unformatted(self, home: Home, place: Path) -> tuple[str, str]:
        """What a directory without ids was, and what to do."""
        here = [name for name, entry in self.logs.items() if entry.path.parent == home.path]
        found = (self.given[each].assigned for each in here if each in self.given)
        ids = Counter(each.directory_of(self.node_id or 0) for each in found)
        own = next((id_text(each) for each, _ in ids.most_common() if each is not None), None)
        meta = next((each.meta for each in self.homes if each.meta is not None), None)
        cluster_id = meta.cluster_id or "" if meta is not None else ""
        if here and cluster_id:
            lines = ["version=1", f"cluster.id={cluster_id}", f"node.id={self.node_id}"]
            lines += [f"directory.id={own}"] if own is not None else []
            content = "\\n".join([*lines, ""])
            write = f"{command_line('printf', content)} > {command_line(place)}"
            return f"{len(here)} partitions are in it", f"Write what it said:\n{write}"
        strangers = self.strangers()
        if strangers and not here:
            lost = "; ".join(f"{_in_words(names)} to {one}" for one, names in strangers.items())
            return (
                f"the metadata log says that directories which are not here have partitions of "
                f"this node ({lost}): is the disk mounted?",
                "Mount it. Do not format this directory: the broker would make empty partitions.",
            )
        words = (
            "kafka-storage.sh",
            "format",
            "--ignore-formatted",
            "-t",
            cluster_id or "CLUSTER_ID",
        )
        return "it is new, or its file is lost", command_line(*words, "-c", "server.properties")


def _understood(cluster: Cluster | None) -> Cluster | None:
    """The cluster, if what bears on partitions was understood up to the log's end, or to a cut."""
    if cluster is None or not (cluster.trusted or cluster.cut_at is not None):
        return None
    return cluster


def _all_given(
    cluster: Cluster | None, node_id: int | None
) -> Iterator[tuple[TopicPartition, _Given]]:
    if cluster is None or not cluster.knows_replicas:
        return
    for topic_id, of_topic in cluster.partitions.items():
        topic = cluster.topics.get(topic_id)
        for number, assigned in of_topic.items():
            if topic is not None and node_id in assigned.replicas:
                yield TopicPartition(topic, number), _Given(topic_id, assigned)


def _is_future(entry: DirectoryEntry) -> bool:
    return entry.kind is EntryKind.FUTURE


def _away(path: Path) -> str:
    """What moves a file or directory out of its data directory."""
    home = path.parent.absolute()
    return command_line("mv", path, home.with_name(f"{home.name}.{path.name}"))


def _topic_id(path: Path) -> UUID | None:
    with suppress(KsegError, OSError):
        return metadata.read_partition_metadata(path / _METADATA).uuid
    return None


def _with_mend(one: PartitionOutlook, mend: str) -> PartitionOutlook:
    """The outlook with what mends its partition.metadata."""
    noticed = (
        replace(each, mend=mend) if os.path.basename(each.path) == _METADATA else each
        for each in one.noticed
    )
    return replace(one, noticed=tuple(noticed))


def _known_records(homes: Sequence[Home], partition: TopicPartition) -> int | None:
    """How many offsets the checkpoints say that a partition had; None where they do not."""
    for kind in (FileKind.REPLICATION, FileKind.RECOVERY_POINT):
        for home in homes:
            if (end := home.offsets.get(kind, {}).get(partition)) is not None:
                return max(end - home.told_of(partition).log_start_offset, 0)
    return None


def _in_words(names: Sequence[str]) -> str:
    """How many partitions, and the names of the first ones.

    >>> _in_words(["a-0"]), _in_words(["a-0", "a-1", "a-2", "a-3"])
    ('1 partition (a-0)', '4 partitions (a-0, a-1, a-2 and 1 more)')
    """
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    many = "partition" if len(names) == 1 else "partitions"
    return f"{len(names)} {many} ({', '.join(names[:_NAMES_MAX])}{more})"


__all__ = ["Node"]
