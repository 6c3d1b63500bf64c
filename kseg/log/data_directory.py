"""The lease of a data directory: its lock, its checkpoints and its mark of a clean shutdown.

All logs that this process writes to in one directory share one lease of it. It begins with the
first `enter` and ends with the last `leave`:

    enter   take `.lock`; read the mark and the checkpoints; remove the mark durably
            claim a partition's directory, load it, `mark_loaded`
            ... append, flush, `note` what is flushed, `write_checkpoints` ...
    leave   the last one writes the checkpoints, then the mark, and releases the lock

So a process that dies in between leaves no mark, and the next one recovers the logs. The mark comes
back if it was there before, or once every partition in the directory was loaded and closed cleanly
in this lease. It never comes back after one was closed with an error, or where a partition has
indexes in which a broker would believe unused entries (`index_rules`). The checkpoints may hold
entries of other partitions, of a broker for example: those stay as they are, in their order.

The mark that is written back has the epoch of the broker that left it. It loses the epoch
(`forget_broker_epoch`) if records were cut from the end of a log in this lease, or if a log was
repaired. From an equal epoch a controller concludes that the broker still has all its records
(KIP-966), and lets its replicas stay in sync. Records that retention deletes do not count:
each broker deletes that in its own time.

A directory without the mark was not shut down cleanly, unless there is no partition in it at all.

Source: Kafka `LogManager.loadLogs`, `LogManager.shutdown`, `LogManager.checkpointLogsInDir`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from os import fspath
from pathlib import Path
from typing import Final

from kseg.commands import command_line
from kseg.constants import INT64_MAX, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, LogLockedError, NotALogError
from kseg.files import checkpoints, io, lock, metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.metadata import CleanShutdown
from kseg.files.names import (
    CLUSTER_METADATA,
    FileKind,
    list_data_directory,
    list_partition,
    parse_partition_dir,
)
from kseg.log import index_rules
from kseg.stores.path import path_at

#: The checkpoints that a lease notes and writes, in the order of writing.
_CHECKPOINTS: Final = (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION)

_WHITE_SPACE: Final = re.compile(r"\s")


def has_tiers(home: StrPath) -> bool:
    """Whether a data directory has a partition of `__remote_log_metadata`.

    Raises:
        OSError: it cannot be listed.
    """
    return _has_tiers(fspath(home), os.stat(home).st_mtime_ns)


@lru_cache(64)
def _has_tiers(home: str, _modified_ns: int) -> bool:
    """As `has_tiers`; the answer is cached until the directory changes."""
    return any(name.startswith("__remote_log_metadata-") for name in os.listdir(home))


@frozen_dataclass
class PartitionOffsets:
    """The offsets of one partition in the checkpoints of a data directory.

    Attributes:
        recovery_point: everything before it is flushed; 0 if there is no entry.
        log_start_offset: the first offset to be read; 0 if there is no entry.
        high_watermark: None if there is no entry.
        clean: whether the partition was closed cleanly.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int | None = None
    clean: bool = False


@dataclass(slots=True)
class DirectoryFiles:
    """The contents of the small files of a data directory.

    Attributes:
        mark: the mark of a clean shutdown; None if there is none.
        offsets: the offsets in the checkpoints, keyed by the kind of file.
        findings: checkpoints that cannot be parsed; each counts as empty.
    """

    mark: CleanShutdown | None
    offsets: dict[FileKind, dict[TopicPartition, int]]
    findings: tuple[KsegError, ...]

    @classmethod
    def read(cls, path: StrPath, *, locked: bool = True) -> DirectoryFiles:
        """Read the files.

        Args:
            path: the data directory.
            locked: whether this process holds the directory. Without the lock a file that cannot be
                read counts as missing.

        Raises:
            OSError: a file is there and cannot be read.
        """
        passed_over = nullcontext() if locked else suppress(OSError)
        mark, findings = None, list[KsegError]()
        offsets: dict[FileKind, dict[TopicPartition, int]] = {kind: {} for kind in _CHECKPOINTS}
        with passed_over:
            mark = metadata.read_clean_shutdown(path)
        for kind in _CHECKPOINTS:
            with passed_over:
                offsets[kind] = _read(path, kind, findings)
        return cls(mark, offsets, tuple(findings))

    def of(self, partition: TopicPartition | None, *, clean: bool = False) -> PartitionOffsets:
        """The offsets of one partition; defaults for None."""
        if partition is None:
            return PartitionOffsets(clean=clean)
        points, starts, high_watermarks = (
            self.offsets[kind].get(partition) for kind in _CHECKPOINTS
        )
        # A file may hold a negative offset; it must not let a log start before 0.
        return PartitionOffsets(max(points or 0, 0), max(starts or 0, 0), high_watermarks, clean)


def partition_of(directory: StrPath) -> TopicPartition | None:
    """The name of a partition in checkpoints, by its directory; None for another name."""
    try:
        name = parse_partition_dir(os.path.basename(os.path.realpath(directory)))
    except NotALogError:
        return None
    return TopicPartition(name.topic, name.partition)


def offsets_beside(directory: StrPath) -> PartitionOffsets:
    """Read the files beside a partition without a lock; unreadable ones are ignored."""
    files = DirectoryFiles.read(path_at(directory).resolve().parent, locked=False)
    return files.of(partition_of(directory), clean=files.mark is not None)


def starts_in_tier(directory: StrPath) -> bool:
    """Whether the checkpoint lets a log start before its first segment.

    A broker keeps such a line for a log with a tier.
    """
    home = path_at(directory).resolve().parent
    starts = DirectoryFiles.read(home, locked=False).offsets[FileKind.LOG_START]
    segments, partition = list_partition(directory).segments, partition_of(directory)
    start = INT64_MAX if partition is None else starts.get(partition, INT64_MAX)
    return bool(segments) and start < segments[0].base_offset


def lower_start(directory: StrPath, start: int, base: int) -> str:
    """The command that lets a log start at `base`, and not at the `start` of its checkpoint."""
    real = os.path.realpath(directory)
    partition = partition_of(real)
    assert partition is not None
    topic, number = partition
    pattern = topic.replace(".", r"\.")
    line = f"s/^{pattern} {number} {start}$/{topic} {number} {base}/"
    beside = os.path.dirname(directory) or os.path.dirname(real)
    return command_line("sed", "-i", line, os.path.join(beside, FileKind.LOG_START.value))


@dataclass(slots=True)
class _SharedLease:
    """The state that all leases of one directory share, from the first to the last of them.

    Attributes:
        path: the data directory.
        key: its device and inode.
        process: the id of the process that began it; a child after a fork has no part in it.
        lock: the lock of the directory.
        said: its small files as they were found, with all that was noted since.
        was_clean: whether the mark was there, or no partition was.
        holders: the number of leases.
        unclean: a lease without a partition of its own has ended without order.
        claimed: the directories that have a writer now.
        loaded: the directories that were loaded: whether each is as a clean shutdown leaves it.
        changed: the checkpoints that have to be written.
        writing: held while checkpoints are written, without `_guard`. No thread takes both the
            other way round.
    """

    path: str
    key: tuple[int, int]
    process: int
    lock: lock.DirectoryLock
    said: DirectoryFiles
    was_clean: bool
    holders: int = 0
    unclean: bool = False
    claimed: set[str] = field(default_factory=set)
    loaded: dict[str, bool] = field(default_factory=dict)
    changed: set[FileKind] = field(default_factory=set)
    writing: threading.Lock = field(default_factory=threading.Lock)


#: The leases of this process, by the inode of the data directory.
_leases: dict[tuple[int, int], _SharedLease] = {}

#: Guards the memory of all leases, and is held while a lease begins or ends.
_guard: Final = threading.RLock()


class DataDirectoryLease:
    """One holder's part in a lease, from `enter` to `leave`; the holder is a log, or a directory.

    It may be used from several threads.
    """

    __slots__ = ("_loaded", "_name", "_present", "_shared")

    def __init__(self, shared: _SharedLease) -> None:
        """Take over one holder's part; use `enter` instead."""
        self._shared: Final = shared
        self._name: str | None = None
        self._loaded = False
        self._present = True

    # ---- the state that was found ----------------------------------------------------------------

    @property
    def path(self) -> str:
        """The data directory."""
        return self._shared.path

    @property
    def was_clean(self) -> bool:
        """Whether the mark was there when this lease began, or no partition was."""
        return self._shared.was_clean

    @property
    def findings(self) -> tuple[KsegError, ...]:
        """Checkpoints that cannot be parsed; each counts as empty."""
        return self._shared.said.findings

    def offsets_of(self, partition: TopicPartition | None) -> PartitionOffsets:
        """The offsets of a partition in checkpoints and this lease's notes; defaults for None."""
        with _guard:
            return self._shared.said.of(partition)

    def is_clean(self, name: str) -> bool:
        """Whether a partition's directory is as a clean shutdown leaves it.

        That is: closed cleanly in this lease, or not loaded in it and the directory `was_clean`.

        Args:
            name: the name of the directory, as `orders-0`.
        """
        with _guard:
            return self._shared.loaded.get(name, self._shared.was_clean)

    # ---- one writer ------------------------------------------------------------------------------

    def claim(self, name: str) -> None:
        """Become the only writer of a partition's directory, until `leave`.

        Args:
            name: the name of the directory, as `orders-0`.

        Raises:
            LogLockedError: another log of this process writes there.
        """
        with _guard:
            if name in self._shared.claimed:
                raise LogLockedError(
                    "another log of this process has the directory open for appending",
                    path=os.path.join(self._shared.path, name),
                )
            self._shared.claimed.add(name)
            self._name = name

    def settle_offsets(self) -> None:
        """Store `offsets_of` the claimed directory durably, before files are deleted by it.

        A log of this lease may have noted offsets and failed before they were written.

        Raises:
            OSError: a checkpoint could not be written.
        """
        with _guard:
            # An earlier log has loaded it in this lease, and not closed it well.
            may_lack = self._name is not None and self._shared.loaded.get(self._name) is False
        if may_lack:
            self.write_checkpoints()

    def mark_loaded(self) -> None:
        """Note that the claimed directory is loaded now; it is clean again only after `leave`."""
        with _guard:
            if self._name is not None:
                self._loaded = True
                self._shared.loaded[self._name] = False

    # ---- checkpoints -----------------------------------------------------------------------------

    def note(
        self,
        partition: TopicPartition | None,
        *,
        recovery_point: int | None = None,
        log_start_offset: int | None = None,
        first_offset: int | None = None,
        high_watermark: int | None = None,
    ) -> None:
        """Note new values for the checkpoints; nothing is written yet.

        Args:
            partition: nothing is noted for None, or for a name that no checkpoint can hold.
            recovery_point: if it increases, the records before it must be flushed already.
            log_start_offset: the first offset to be read.
            first_offset: base offset of the first segment, lasting; if given, a start that is not
                beyond it needs no entry, as Kafka has it. An entry before it stays, and one of
                a broker with tiers: the log may start in the tier.
            high_watermark: the new high watermark.
        """
        if partition is None:
            return
        # A line of a checkpoint cannot hold the name: white space would end the field.
        if _WHITE_SPACE.search(partition.topic) or not partition.topic.isprintable():
            return
        with _guard:
            self._set(FileKind.RECOVERY_POINT, partition, recovery_point)
            self._set(FileKind.REPLICATION, partition, high_watermark)
            if log_start_offset is None:
                return
            stored_start = self._shared.said.offsets[FileKind.LOG_START].get(partition, INT64_MAX)
            if first_offset is None or log_start_offset > first_offset:
                self._set(FileKind.LOG_START, partition, log_start_offset)
            elif stored_start >= first_offset and not has_tiers(self._shared.path):
                self._drop(FileKind.LOG_START, partition)

    def forget(self, partition: TopicPartition) -> None:
        """Remove a partition that is deleted, or moved away, from the checkpoints.

        It counts no longer for the mark, however it was closed.
        """
        with _guard:
            self._shared.loaded.pop(f"{partition.topic}-{partition.partition}", None)
            for kind in _CHECKPOINTS:
                self._drop(kind, partition)

    def forget_broker_epoch(self) -> None:
        """Write no broker epoch into the mark: records that the broker had are gone."""
        with _guard:
            if self._shared.said.mark is not None:
                self._shared.said.mark = CleanShutdown(None)

    def write_checkpoints(self) -> None:
        """Write the checkpoints that have changed, lasting when this returns.

        Others may go on noting meanwhile.

        Raises:
            KsegError: this holder has left, or is of the process before a fork.
            OSError: one of them has not been written; a later call tries again.
        """
        if not self._present or self._shared.process != os.getpid():
            raise KsegError("the lease of the data directory has ended", path=self._shared.path)
        with self._shared.writing:
            for kind in _CHECKPOINTS:
                _write(self._shared, kind)

    def take_back(self, partition: TopicPartition, recovery_point: int) -> None:
        """Lower the recovery point on the disk to this, if it is higher; lasting when this returns.

        On a disk too full for that, the checkpoint is deleted first, for all logs. Without it no
        log counts as flushed, which costs time and no record. Its room is free for the new one.

        Raises:
            KsegError, OSError: as for `write_checkpoints`; a full disk raises nothing.
        """
        if self.offsets_of(partition).recovery_point <= recovery_point:
            return
        self.note(partition, recovery_point=recovery_point)
        try:
            self.write_checkpoints()
        except OSError as error:
            if not io.is_full(error):
                raise
            io.unlink(self.path_of(FileKind.RECOVERY_POINT), missing_ok=True)
            io.flush_directory(self._shared.path)
            with suppress(OSError):
                self.write_checkpoints()

    def path_of(self, kind: FileKind) -> str:
        """A checkpoint."""
        return os.path.join(self._shared.path, kind.value)

    def _set(self, kind: FileKind, partition: TopicPartition, offset: int | None) -> None:
        """Note an offset for a checkpoint; None leaves it as it is."""
        if offset is not None and self._shared.said.offsets[kind].get(partition) != offset:
            self._shared.said.offsets[kind][partition] = offset
            self._shared.changed.add(kind)

    def _drop(self, kind: FileKind, partition: TopicPartition) -> None:
        """Let a checkpoint have no line for a partition."""
        if self._shared.said.offsets[kind].pop(partition, None) is not None:
            self._shared.changed.add(kind)

    # ---- the end ---------------------------------------------------------------------------------

    def leave(self, *, clean: bool = True) -> None:
        """Leave the lease; the last holder writes the checkpoints and, where it may, the mark.

        A second call does nothing, nor does one in a child after a fork.

        Args:
            clean: everything in the claimed directory is flushed and sound; or it was never loaded,
                and nothing in it was changed.

        Raises:
            OSError: a checkpoint or the mark could not be written. The mark is missing then, and
                the lock is free.
        """
        with _guard:
            if not self._present or self._shared.process != os.getpid():
                return
            self._present = False
            shared = self._shared
            if self._name is not None:
                shared.claimed.discard(self._name)
                # A holder that was refused before it loaded the log cannot say that the log is
                # clean.
                if self._loaded or not clean:
                    shared.loaded[self._name] = clean
            elif not clean:
                shared.unclean = True
            shared.holders -= 1
            if shared.holders:
                return
            del _leases[shared.key]
            try:
                for kind in _CHECKPOINTS:
                    _write(shared, kind)
                if _ends_clean(shared):
                    mark = shared.said.mark
                    epoch = None if mark is None else mark.broker_epoch
                    metadata.write_clean_shutdown(
                        shared.path, metadata.BROKER_EPOCH_UNKNOWN if epoch is None else epoch
                    )
                    with suppress(OSError):  # the mark says more than they do
                        metadata.remove_recovery_notes(shared.path)
            finally:
                shared.lock.release()


def enter(data_directory: StrPath) -> DataDirectoryLease:
    """Begin the lease of a directory, or join this process's lease of it.

    When this returns the mark of a clean shutdown is gone from the disk. Load no log before that.

    Raises:
        LogLockedError: another process holds the directory.
        OSError: it is missing, or its lock, mark or checkpoints cannot be read or changed.
    """
    path = fspath(data_directory)
    status = os.stat(path)
    key = (status.st_dev, status.st_ino)
    with _guard:
        shared = _leases.get(key)
        if shared is None or shared.process != os.getpid():
            shared = _begin(path, key)
            _leases[key] = shared
        shared.holders += 1
        return DataDirectoryLease(shared)


def _begin(path: str, key: tuple[int, int]) -> _SharedLease:
    """Lock a directory, read its small files, and remove its mark."""
    held = lock.acquire(path)
    try:
        said = DirectoryFiles.read(path)
        was_clean = said.mark is not None or not marked_for(path)
        metadata.remove_clean_shutdown(path)
        if not was_clean:
            # A process that died may not have flushed the checkpoints, and files are deleted by
            # them.
            io.flush_directory(path)
    except BaseException:
        held.release()
        raise
    return _SharedLease(path, key, os.getpid(), held, said, was_clean)


def _read(home: StrPath, kind: FileKind, findings: list[KsegError]) -> dict[TopicPartition, int]:
    """The entries of one checkpoint; empty if it is missing, or malformed, which is noted."""
    try:
        return checkpoints.read_offset_checkpoint(path_at(home) / kind.value)
    except FileNotFoundError:
        return {}
    except KsegError as error:
        findings.append(error)
        return {}


def _write(shared: _SharedLease, kind: FileKind) -> None:
    """Write one checkpoint, if it has changed: old entries keep their order, new ones follow."""
    with _guard:
        if kind not in shared.changed:
            return
        offsets = dict(shared.said.offsets[kind])
        shared.changed.discard(kind)
    there = [partition for partition in _read(shared.path, kind, []) if partition in offsets]
    offsets = {
        partition: offsets[partition]
        for partition in (*there, *sorted(offsets.keys() - set(there)))
    }
    try:
        checkpoints.write_offset_checkpoint(os.path.join(shared.path, kind.value), offsets)
    except BaseException:
        with _guard:
            shared.changed.add(kind)
        raise


def _ends_clean(shared: _SharedLease) -> bool:
    """Whether the mark of a clean stop may be written at the end of a lease.

    All that was loaded is closed well. With the mark as it began, the indexes of other partitions
    have to be as after a close; without it, there are no others.
    """
    if shared.unclean or not all(shared.loaded.values()):
        return False
    others = [name for name in marked_for(shared.path) if name not in shared.loaded]
    if shared.said.mark is None:
        return not others
    return all(index_rules.is_as_closed(os.path.join(shared.path, name)) for name in others)


def marked_for(path: StrPath) -> list[str]:
    """The partitions whose clean state the mark vouches for, by the names of their directories.

    Deleted ones are never recovered; the log of KRaft always is, so neither is among them.

    Raises:
        OSError: the data directory cannot be listed.
    """
    return [
        entry.path.name
        for entry in list_data_directory(path).partitions
        if entry.name is None
        or not (entry.name.suffix == "delete" or entry.name.topic == CLUSTER_METADATA)
    ]


# ---- the sub-directories of a data directory -----------------------------------------------------
# They are classified by name, and never opened.
#
#     <topic>-<number>                    a log
#     <topic>-<number>.<uuid>-delete      a log that was deleted; its files go later
#     <topic>-<number>.<uuid>-future      a copy in the making, of a log in another data directory
#     <topic>-<number>.<uuid>-stray       a log that its broker has lost
#     __cluster_metadata-0                the log of KRaft, which is a controller's
#     remote-log-index-cache              indexes of segments in a remote store
#
# A broker does not start with any other one, and kseg appends to no log beside one either.


_CACHE: Final = "remote-log-index-cache"


class EntryKind(Enum):
    """The kinds of sub-directories of a data directory."""

    LOG = "log"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"
    CLUSTER_METADATA = "cluster metadata"
    #: Also a mark of a clean stop that is a folder.
    CACHE = "remote log index cache"
    UNKNOWN = "unknown"


@frozen_dataclass
class DirectoryEntry:
    """A sub-directory of a data directory.

    Attributes:
        path: the sub-directory.
        kind: the kind, from its name.
        partition: the partition that it is, or was; a deleted or stray topic may be cut short. None
            where the name does not say.
    """

    path: Path
    kind: EntryKind
    partition: TopicPartition | None = None


def list_entries(path: StrPath) -> tuple[DirectoryEntry, ...]:
    """The sub-directories of a data directory, sorted by name; they are not opened.

    Raises:
        OSError: the data directory cannot be listed.
    """
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    return tuple(entry_of(Path(path) / name) for name in names)


def entry_of(path: Path) -> DirectoryEntry:
    """Classify a sub-directory of a data directory by its name."""
    if path.name in (_CACHE, FileKind.CLEAN_SHUTDOWN.value):  # a start removes an empty folder
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
    """Refuse to change the log of KRaft, on whose records a quorum of controllers has agreed.

    Raises:
        NotALogError: the directory is that log's, according to its name.
    """
    if entry_of(path.resolve()).kind is EntryKind.CLUSTER_METADATA:
        raise NotALogError(
            "the log of KRaft is left alone: only its controllers may change it", path=path
        )


def check_entries(entries: Iterable[DirectoryEntry]) -> None:
    """Refuse sub-directories with which a broker does not start.

    Raises:
        NotALogError: a directory is not Kafka's, or two are of one partition.
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
