"""What the sub-directories of a data directory are, by their names alone; none is opened.

    <topic>-<number>                    a log
    <topic>-<number>.<uuid>-delete      a log that was deleted; its files go later
    <topic>-<number>.<uuid>-future      a copy in the making, of a log in another data directory
    <topic>-<number>.<uuid>-stray       a log that its broker was told to have no longer
    __cluster_metadata-0                the log of KRaft, which is a controller's
    remote-log-index-cache              indexes of segments in a remote store

A broker does not start with any other one, and kseg appends to no log beside one either.

Source: Kafka `LogManager.loadLogs`, `LocalLog.parseTopicPartitionName`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from kseg.errors import NotALogError
from kseg.files.checkpoints import TopicPartition
from kseg.files.names import parse_partition_dir
from kseg.log.data_directory import CLUSTER_METADATA

_CACHE: Final = "remote-log-index-cache"


class EntryKind(Enum):
    """What a sub-directory of a data directory is."""

    LOG = "log"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"
    CLUSTER_METADATA = "cluster metadata"
    CACHE = "remote log index cache"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A sub-directory of a data directory.

    Attributes:
        path: the sub-directory.
        kind: what it is, by its name.
        partition: whose it is, or was; the topic of a deleted or stray one may be cut short. None
            where the name does not say.
    """

    path: Path
    kind: EntryKind
    partition: TopicPartition | None = None


def list_entries(path: str | os.PathLike[str]) -> tuple[DirectoryEntry, ...]:
    """The sub-directories of a data directory, by name; none is opened.

    Raises:
        OSError: it cannot be listed.
    """
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    return tuple(entry_of(Path(path) / name) for name in names)


def entry_of(path: Path) -> DirectoryEntry:
    """What a sub-directory of a data directory is, by its name."""
    if path.name == _CACHE:
        return DirectoryEntry(path, EntryKind.CACHE)
    try:
        name = parse_partition_dir(path.name)
    except NotALogError:
        return DirectoryEntry(path, EntryKind.UNKNOWN)
    partition = TopicPartition(name.topic, name.partition)
    if name.suffix is not None:
        return DirectoryEntry(path, EntryKind(name.suffix), partition)
    kind = EntryKind.CLUSTER_METADATA if name.topic == CLUSTER_METADATA else EntryKind.LOG
    return DirectoryEntry(path, kind, partition)


def refuse_cluster_metadata(path: Path) -> None:
    """Refuse to change the log of KRaft, whose records a quorum of controllers has agreed on.

    Raises:
        NotALogError: the directory is that log's, by its name.
    """
    if entry_of(path.resolve()).kind is EntryKind.CLUSTER_METADATA:
        raise NotALogError(
            "the log of KRaft is left alone: only its controllers may change it", path=path
        )


def check_entries(entries: Iterable[DirectoryEntry]) -> None:
    """Refuse sub-directories with which a broker does not start.

    Raises:
        NotALogError: one is none of Kafka's, or two are of one partition.
    """
    seen: dict[TopicPartition, Path] = {}
    for entry in entries:
        if entry.kind is EntryKind.UNKNOWN:
            raise NotALogError(
                "not a partition directory, and with such a folder in its data directory no broker "
                "starts: move it away",
                path=entry.path,
            )
        if entry.kind is EntryKind.LOG and entry.partition is not None:
            other = seen.setdefault(entry.partition, entry.path)
            if other != entry.path:
                raise NotALogError(f"the same partition as {other.name}", path=entry.path)
