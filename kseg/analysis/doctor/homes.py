"""What lies beside the partitions of a data directory: ids, mark, checkpoints, rights, room."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kseg.analysis.doctor.values import Noticed, Outcome
from kseg.commands import command_line
from kseg.errors import CorruptIndexError, KsegError, os_reason
from kseg.files import checkpoints, lock, metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.metadata import MetaProperties
from kseg.files.names import FileKind
from kseg.log.data_directory import PartitionOffsets
from kseg.log.sub_directories import DirectoryEntry, EntryKind, list_entries

_CHECKPOINTS: Final = (
    FileKind.RECOVERY_POINT,
    FileKind.LOG_START,
    FileKind.REPLICATION,
    FileKind.CLEANER,
)
#: What a broker does without one of these that is not a malformed line, but a bad number.
_RESET: Final = {
    FileKind.RECOVERY_POINT: "Kafka takes 0 for every recovery point, and reads all logs again",
    FileKind.LOG_START: "Kafka lets every log start at its first segment",
}
#: Names of the checkpoints that are read before the logs of a directory are loaded.
READ_FIRST: Final = tuple(kind.value for kind in _RESET)
_MOVE: Final = "move it out of the data directory"


@dataclass(slots=True)
class Home:
    """A data directory as it was found.

    Attributes:
        path: as it was given.
        entries: its sub-directories.
        clean: whether the mark of a clean stop is there.
        meta: its ids; None where they are not known.
        offsets: of the checkpoints, by kind; none of one that was not understood.
        noticed: what was noticed.
        logs: log files in it.
        largest: bytes of log by the name of a partition's directory.
    """

    path: Path
    entries: tuple[DirectoryEntry, ...] = ()
    clean: bool = False
    meta: MetaProperties | None = None
    offsets: dict[FileKind, dict[TopicPartition, int]] = field(default_factory=dict)
    noticed: list[Noticed] = field(default_factory=list)
    logs: int = 0
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        """Whether it could be listed."""
        return bool(self.entries) or self.path.is_dir()

    def told_of(self, partition: TopicPartition | None) -> PartitionOffsets:
        """What the checkpoints say of a partition."""
        if partition is None:
            return PartitionOffsets(clean=self.clean)
        point, start = (
            max(self.offsets.get(kind, {}).get(partition, 0), 0)
            for kind in (FileKind.RECOVERY_POINT, FileKind.LOG_START)
        )
        return PartitionOffsets(point, start, clean=self.clean)


def look_at_home(path: Path, *, loads_logs: bool = True) -> Home:
    """Look at a data directory; what cannot be read is noticed.

    Args:
        path: the directory.
        loads_logs: whether the node does; one that only is a controller has the metadata log alone,
            and passes over all partitions and checkpoints.
    """
    home = Home(path)
    try:
        home.entries = list_entries(path)
    except FileNotFoundError:
        message = "there is no such directory: a broker makes it, and none of its logs is there"
        home.noticed.append(Noticed("missing", str(path), message, mend="mount the disk"))
        return home
    except OSError as error:
        home.noticed.append(_unreadable(error, path))
        return home
    home.noticed.extend(_of_file_system(path))
    home.noticed.extend(_of_lock(path))
    _read_meta(home)
    if not loads_logs:
        kraft = EntryKind.CLUSTER_METADATA
        home.entries = tuple(entry for entry in home.entries if entry.kind is kraft)
    for kind in _CHECKPOINTS if loads_logs else ():
        _read_checkpoint(home, kind)
    _read_mark(home)
    home.noticed.extend(_of_entries(home))
    _look_at_files(home)
    return home


def _unreadable(error: OSError, path: Path) -> Noticed:
    where = str(error.filename or path)
    reason = os_reason(error)
    return Noticed("unreadable", where, reason, Outcome.OFFLINE, "IOException")


def _of_file_system(path: Path) -> Iterator[Noticed]:
    found = os.statvfs(path)
    if found.f_flag & os.ST_RDONLY:
        message = "the file system can only be read: a broker cannot even take its lock"
        yield Noticed("read-only", str(path), message, Outcome.OFFLINE, "IOException", "remount it")
    if found.f_files and not found.f_favail:
        message = "the file system takes no more files: loading makes snapshots and indexes"
        yield Noticed("inodes", str(path), message, Outcome.OFFLINE, "IOException", "free inodes")


def _of_lock(path: Path) -> Iterator[Noticed]:
    try:
        holder = lock.holder(path)
    except OSError as error:
        yield _unreadable(error, path)
        return
    if holder is not None:
        message = f"{lock.who_holds(holder)}; a second start fails, and what is here may change"
        yield Noticed("in-use", str(path), message, Outcome.UNKNOWN, "KafkaException")


def _read_mark(home: Home) -> None:
    try:
        home.clean = metadata.read_clean_shutdown(home.path) is not None
    except OSError as error:
        home.noticed.append(_unreadable(error, home.path))
        return
    if not home.clean and any(entry.kind is EntryKind.LOG for entry in home.entries):
        message = "no mark of a clean stop: what was not flushed is read again"
        mend = command_line("kseg", "recover", home.path, "--apply")
        home.noticed.append(Noticed("unclean", str(home.path), message, mend=mend))


def _read_meta(home: Home) -> None:
    path = home.path / FileKind.META_PROPERTIES.value
    try:
        home.meta = metadata.read_meta_properties(path)
    except FileNotFoundError:
        pass  # `ensemble` says what follows: it depends on the other directories
    except (KsegError, OSError) as error:
        reason = error.reason if isinstance(error, KsegError) else os_reason(error)
        home.noticed.append(
            Noticed(
                "meta-properties",
                str(path),
                reason,
                Outcome.OFFLINE,
                "IOException",
                "write it anew with the ids of the other directories",
            )
        )


def _read_checkpoint(home: Home, kind: FileKind) -> None:
    path = home.path / kind.value
    try:
        home.offsets[kind] = dict(checkpoints.read_offset_checkpoint(path).offsets)
    except FileNotFoundError:
        return
    except CorruptIndexError as error:
        home.noticed.append(_of_checkpoint(error, path, kind))
        return
    except (KsegError, OSError) as error:
        reason = error.reason if isinstance(error, KsegError) else os_reason(error)
        found = Noticed("checkpoint-format", str(path), reason, Outcome.UNKNOWN)
        home.noticed.append(found)
        return
    here = {entry.partition for entry in home.entries}
    gone = [f"{one.topic}-{one.partition}" for one in home.offsets[kind] if one not in here]
    if gone:
        more = f" and {len(gone) - 2} more" if len(gone) > 2 else ""
        message = f"it names what is not here: {', '.join(sorted(gone)[:2])}{more}"
        home.noticed.append(Noticed("checkpoint-entry", str(path), message))


def _of_checkpoint(error: CorruptIndexError, path: Path, kind: FileKind) -> Noticed:
    """A malformed line takes the directory offline; a bad number may only be a warning."""
    where = "" if error.position is None else f"@ {error.position}: "
    message, outcome = f"{where}{error.reason}", Outcome.OFFLINE
    if error.kafka_exception != CorruptIndexError.kafka_exception:
        outcome = Outcome.STARTS if kind in _RESET else Outcome.UNKNOWN
        message += f"; {_RESET[kind]}" if kind in _RESET else ""
    mend = "delete the file: " + _RESET.get(kind, "a broker makes it anew")
    return Noticed("checkpoint-format", str(path), message, outcome, error.kafka_exception, mend)


def _of_entries(home: Home) -> Iterator[Noticed]:
    """Sub-directories that a broker refuses, or loads in a way of its own."""
    for entry in home.entries:
        path = str(entry.path)
        if entry.kind is EntryKind.UNKNOWN:
            message = "no name of a partition: no broker starts with such a folder beside its logs"
            yield Noticed(
                "foreign-directory", path, message, Outcome.FAILS, "KafkaException", _MOVE
            )
        elif entry.kind is EntryKind.DELETE:
            yield Noticed("set-aside", path, "waits for its deletion, which a start takes up again")
        elif entry.kind is EntryKind.STRAY:
            message = "astray since an earlier start: kept, not served, never deleted by itself"
            yield Noticed("set-aside", path, message, mend="delete it once nobody misses it")
        elif entry.kind is EntryKind.FUTURE:
            message = "a copy in the making, from another data directory: goes on after a start"
            yield Noticed("set-aside", path, message)


def _look_at_files(home: Home) -> None:
    """Count files, and ask of each whether the directory's owner may read and write it."""
    owner = os.stat(home.path)
    for place in (home.path, *(entry.path for entry in home.entries)):
        try:
            refused = _look_at_directory(home, place, owner)
        except OSError as error:
            home.noticed.append(_unreadable(error, place))
            continue
        if refused:
            more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            message = (
                f"{os.path.basename(refused[0])}{more}: the owner of the data directory, user "
                f"{owner.st_uid}, may not read and write it"
            )
            mend = command_line("chown", "-R", f"--reference={home.path}", place)
            found = Noticed("rights", str(place), message, Outcome.OFFLINE, "IOException", mend)
            home.noticed.append(found)


def _look_at_directory(home: Home, place: Path, owner: os.stat_result) -> list[str]:
    """Count a partition's logs; what the owner may not read and write: the directory, or files."""
    if not _may(os.stat(place), owner, 7):
        return [str(place)]
    refused, size = [], 0
    with os.scandir(place) as entries:
        for entry in entries:
            if not entry.is_file():  # a link without a target, too: Kafka passes over it
                continue
            if place != home.path and entry.name.endswith(".log"):
                home.logs += 1
                size += entry.stat().st_size  # which the entry keeps for the next question
            if not _may(entry.stat(), owner, 6):
                refused.append(entry.path)
    if place != home.path:
        home.sizes[place.name] = size
    return refused


def _may(found: os.stat_result, owner: os.stat_result, bits: int) -> bool:
    """Whether a user has rights; root has all. Groups are those of the data directory alone."""
    if owner.st_uid == 0:
        return True
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == owner.st_uid:
        return mode >> 6 & bits == bits
    if found.st_gid == owner.st_gid:
        return mode >> 3 & bits == bits
    return mode & bits == bits


__all__ = ["READ_FIRST", "Home", "look_at_home"]
