"""Kinds of paths, by name and, for a directory, by the names inside.

It opens no file and lists a directory once. The grammar of the names is in `grammar`, whose public
names are offered here too.

Source: Kafka `LogManager.loadLogs`, `LogLoader`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from kseg.constants import StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import NotALogError, os_reason
from kseg.files.grammar import (
    OF_DATA_DIRECTORIES,
    OF_SEGMENTS,
    OFFSET_MAX,
    FileKind,
    FileName,
    PartitionName,
    file_name,
    is_url,
    offset_from_file_name,
    parse_name,
    parse_partition_dir,
    segment_name,
)

#: The topic of KRaft's own log.
CLUSTER_METADATA: Final = "__cluster_metadata"

__all__ = [
    "CLUSTER_METADATA",
    "OFFSET_MAX",
    "DataDirectory",
    "FileKind",
    "FileName",
    "KnownPath",
    "LeftOut",
    "NamedFile",
    "Partition",
    "PartitionFiles",
    "PartitionName",
    "PathKind",
    "SegmentFiles",
    "classify_path",
    "file_name",
    "is_url",
    "list_data_directory",
    "list_partition",
    "log_bytes",
    "log_sizes",
    "offset_from_file_name",
    "parse_name",
    "parse_partition_dir",
    "partition_name",
    "path_order",
    "segment_name",
    "sort_partition",
]


_DIGITS = re.compile(r"([0-9]+)")


def _path_of(slot: str) -> Any:
    """An attribute that becomes a `Path` at its first use.

    Most paths of a listing are never used, and a text is made faster.

    Args:
        slot: the name of the attribute that has the path, or its text.
    """

    def get(self: Any) -> Path | None:
        path: Path | str | None = getattr(self, slot)
        if type(path) is str:
            path = Path(path)
            setattr(self, slot, path)
        return path  # type: ignore[return-value]

    return property(get)


class SegmentFiles:
    """The files of one segment; all but the log may be absent.

    Attributes:
        base_offset: the base offset in their names.
        log, index, time_index, txn_index: the files.
        raw_path: the path of the log: a `Path`, or its text.
        kafka07: whether the log is of Kafka 0.7.
    """

    __slots__ = ("_index", "_time_index", "_txn_index", "base_offset", "kafka07", "raw_path")
    log: Path = _path_of("raw_path")
    index: Path | None = _path_of("_index")
    time_index: Path | None = _path_of("_time_index")
    txn_index: Path | None = _path_of("_txn_index")

    def __init__(
        self,
        base_offset: int,
        log: Path | str,
        index: Path | str | None = None,
        time_index: Path | str | None = None,
        txn_index: Path | str | None = None,
        kafka07: bool = False,
    ) -> None:
        """Take paths, or their text."""
        self.base_offset = base_offset
        self.kafka07 = kafka07
        self.raw_path = log
        self._index = index
        self._time_index = time_index
        self._txn_index = txn_index

    def _values(self) -> tuple[Any, ...]:
        """The arguments of the constructor, in order."""
        paths = self.log, self.index, self.time_index, self.txn_index
        return (self.base_offset, *paths, self.kafka07)

    def __eq__(self, other: object) -> bool:
        """Whether all attributes are equal."""
        return self._values() == other._values() if isinstance(other, SegmentFiles) else False

    def __hash__(self) -> int:
        """The hash of the log's path."""
        return hash(self.log)

    def __repr__(self) -> str:
        """The expression that makes the value."""
        return f"SegmentFiles{self._values()!r}"


class NamedFile:
    """A file and its parsed name.

    Attributes:
        name: the parsed name.
        path: the path of the file.
        raw_path: that path, as a `Path` or as text.
    """

    __slots__ = ("name", "raw_path")
    path: Path = _path_of("raw_path")

    def __init__(self, name: FileName, path: Path | str) -> None:
        """Take a path, or its text."""
        self.name = name
        self.raw_path = path

    def __eq__(self, other: object) -> bool:
        """Whether both attributes are equal."""
        if not isinstance(other, NamedFile):
            return False
        return self.name == other.name and self.path == other.path

    def __hash__(self) -> int:
        """The hash of the path."""
        return hash(self.path)

    def __repr__(self) -> str:
        """The expression that makes the value."""
        return f"NamedFile({self.name!r}, {self.path!r})"


class PartitionFiles(NamedTuple):
    """A partition directory as one listing showed it; every tuple ascends.

    Attributes:
        path: the directory.
        name: the parsed name; None for a copy under a name that Kafka would not accept.
        segments: sorted by base offset.
        snapshots: producer snapshots, sorted by offset.
        kraft_snapshots: KRaft snapshots, sorted by end offset and epoch.
        leader_epochs: the epoch checkpoint, if there is one.
        metadata: `partition.metadata`, if there is one.
        orphans: indexes without a log.
        temporary_files: files of interrupted work: cleaned, swap, deleted, tmp, part.
        foreign: names that are not Kafka's, those of sub-directories too.
    """

    path: Path
    name: PartitionName | None
    segments: tuple[SegmentFiles, ...] = ()
    snapshots: tuple[NamedFile, ...] = ()
    kraft_snapshots: tuple[NamedFile, ...] = ()
    leader_epochs: Path | None = None
    metadata: Path | None = None
    orphans: tuple[NamedFile, ...] = ()
    temporary_files: tuple[NamedFile, ...] = ()
    foreign: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Partition:
    """A partition directory, or a file of one that is named by itself.

    Attributes:
        path: the directory or the file; with a tier it need not exist.
        name: the parsed name of the directory; None for a copy under another name.
        listing: its files, if they were listed already.
        file: the parsed name of a file; None for a directory.
        tier: the `kseg.log.tier.Tier` that holds further segments of the partition.
    """

    path: Path
    name: PartitionName | None
    listing: PartitionFiles | None = field(default=None, compare=False, repr=False)
    file: FileName | None = None
    tier: Any = None

    @property
    def topic(self) -> str | None:
        """From the name of the directory."""
        return self.name and self.name.topic

    @property
    def partition(self) -> int | None:
        """From the name of the directory."""
        return self.name and self.name.partition

    @property
    def kind(self) -> str | None:
        """The word of the name's suffix: delete, future or stray; None if it has no suffix."""
        return self.name and self.name.suffix

    @property
    def is_file(self) -> bool:
        """Whether it is a file that the caller has named itself."""
        return self.file is not None

    @property
    def directory(self) -> Path:
        """The partition directory."""
        return self.path.absolute().parent if self.is_file else self.path

    @cached_property
    def files(self) -> PartitionFiles:
        """The files of the directory; they are listed once.

        Raises:
            OSError: the directory cannot be listed.
        """
        return self.listing or list_partition(self.directory)


class DataDirectory(NamedTuple):
    """A data directory as one listing showed it.

    Attributes:
        path: the directory.
        partitions: sub-directories that are partitions, sorted by path: those whose name Kafka uses
            and that hold nothing or files of a partition (deleted, future and stray ones too), and
            copies under other names that hold segments.
        files: its checkpoints, `meta.properties`, `.lock` and the like.
        foreign: everything else.
        lost: names in `foreign` that are links under a partition's name and have no target.
    """

    path: Path
    partitions: tuple[Partition, ...] = ()
    files: tuple[NamedFile, ...] = ()
    foreign: tuple[Path, ...] = ()
    lost: tuple[Partition, ...] = ()


class LeftOut(NamedTuple):
    """A path that is not read.

    Attributes:
        path: the file or directory.
        reason: a phrase, without the path.
        error: the error of the file system, for a path that cannot be read; else None.
    """

    path: Path
    reason: str
    error: OSError | None = None

    @classmethod
    def of(cls, path: Path, error: OSError) -> LeftOut:
        """A path that cannot be read."""
        return cls(path, os_reason(error), error)

    def __str__(self) -> str:
        """The path and the reason."""
        return f"{self.path}: {self.reason}"


class PathKind(Enum):
    """The three things that kseg can read."""

    FILE = "file"
    PARTITION = "partition directory"
    DATA_DIRECTORY = "data directory"


@frozen_dataclass
class KnownPath:
    """A path and its kind.

    Attributes:
        path: the path.
        kind: the kind of the path.
        file: the parsed name of a file; None for a directory.
        partition: the parsed name of a partition directory, if it is Kafka's.
        listing: the listing of a directory, read to classify it, so that it is listed only once.
    """

    path: Path
    kind: PathKind
    file: FileName | None = None
    partition: PartitionName | None = None
    listing: PartitionFiles | DataDirectory | None = field(default=None, compare=False, repr=False)

    @property
    def partition_files(self) -> PartitionFiles | None:
        """The files of a partition directory; None for other paths."""
        return self.listing if isinstance(self.listing, PartitionFiles) else None

    @property
    def data_directory(self) -> DataDirectory | None:
        """The entries of a data directory; None for other paths."""
        return self.listing if isinstance(self.listing, DataDirectory) else None


@runtime_checkable
class ClassifiesItself(Protocol):
    """The path of a directory that is not on this machine."""

    def classify_elsewhere(self) -> KnownPath:
        """As `classify_path`; lists the files of a partition, or of each in a data directory."""


def list_partition(path: StrPath) -> PartitionFiles:
    """List a partition directory once, and sort its files.

    Of two files with the same base offset, the one with 20 digits in its name counts, and a `.log`
    before a `.kafka`; the other is foreign.

    Args:
        path: the directory; its name need not be one of a partition.

    Raises:
        OSError: the directory cannot be listed.
    """
    if isinstance(path, ClassifiesItself):
        with suppress(FileNotFoundError):  # a web server, for example, lists nothing
            return path.classify_elsewhere().partition_files or PartitionFiles(Path(path), None)
        return PartitionFiles(Path(path), None)
    directory = Path(path)
    return sort_partition(directory, *_list_files(directory))


def sort_partition(
    directory: Path, files: Iterable[NamedFile], foreign: Iterable[Path]
) -> PartitionFiles:
    """Sort the listing of a partition directory, as `list_partition` does.

    Args:
        directory: the partition directory, whose name has topic and partition.
        files: files with names of Kafka's, in any order.
        foreign: all other files and directories.
    """
    files = list(files)
    temporary = [entry for entry in files if entry.name.suffix is not None]
    current = [entry for entry in files if entry.name.suffix is None]
    by_kind = {entry.name.kind: entry for entry in current}  # right for kinds with one file
    epochs, metadata = (
        by_kind.get(kind) for kind in (FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA)
    )
    segments, orphans, doubles = _group_segments(current)
    misplaced = [entry.path for entry in current if entry.name.kind in OF_DATA_DIRECTORIES]
    return PartitionFiles(
        path=directory,
        name=partition_name(directory),
        segments=tuple(segments),
        snapshots=_files_of_kind(current, FileKind.SNAPSHOT),
        kraft_snapshots=_files_of_kind(current, FileKind.CHECKPOINT_KRAFT),
        leader_epochs=None if epochs is None else epochs.path,
        metadata=None if metadata is None else metadata.path,
        orphans=tuple(orphans),
        temporary_files=tuple(temporary),
        foreign=tuple(sorted([*foreign, *doubles, *misplaced])),
    )


def list_data_directory(path: StrPath) -> DataDirectory:
    """List a data directory.

    Each sub-directory is read once, up to the first file that decides whether it is a partition.

    Args:
        path: the directory.

    Raises:
        OSError: the directory cannot be listed.
    """
    if isinstance(path, ClassifiesItself):
        return path.classify_elsewhere().data_directory or DataDirectory(Path(path))
    directory = Path(path)
    return _sort_data_directory(directory, *_list_files(directory), whole=False)


def path_order(path: StrPath) -> list[str | int]:
    """A key to sort paths as people count: numbers in them by their value.

    >>> sorted(["t-10/1.log", "t-2/2.log"], key=path_order)
    ['t-2/2.log', 't-10/1.log']
    """
    parts = _DIGITS.split(os.fspath(path))
    return [int(part) if at % 2 else part for at, part in enumerate(parts)]


def log_bytes(path: StrPath) -> int:
    """The sum of `log_sizes`.

    Args:
        path: a directory.

    Raises:
        OSError: as for `log_sizes`.
    """
    return sum(log_sizes(path))


def log_sizes(path: StrPath) -> list[int]:
    """Bytes of each `.log` file in a directory, in any order; only the names are checked.

    Args:
        path: the directory.

    Raises:
        OSError: the directory cannot be listed, or a file is gone meanwhile.
    """
    suffix = f".{FileKind.LOG.value}"
    with os.scandir(path) as entries:
        return [entry.stat().st_size for entry in entries if entry.name.endswith(suffix)]


def _sort_data_directory(
    directory: Path, named_files: Sequence[NamedFile], foreign_paths: Sequence[Path], *, whole: bool
) -> DataDirectory:
    """Classify the entries of a data directory; see `classify_path` for `whole`."""
    files = [entry for entry in named_files if entry.name.kind in OF_DATA_DIRECTORIES]
    foreign = [entry.path for entry in named_files if entry.name.kind not in OF_DATA_DIRECTORIES]
    partitions, lost = [], []
    for other in foreign_paths:
        partition = _partition_at(other, whole=whole) if other.is_dir() else None
        if partition is not None:
            partitions.append(partition)
            continue
        foreign.append(other)
        name = partition_name(other)
        if name is not None and _leads_nowhere(other):
            lost.append(Partition(other, name))
    partitions.sort(key=_sort_key)
    return DataDirectory(
        directory, tuple(partitions), tuple(files), tuple(sorted(foreign)), tuple(lost)
    )


def _sort_key(partition: Partition) -> tuple[str, int, str]:
    """The key to sort partitions by: topic and number; else the directory's name."""
    name = partition.name
    if name is None:
        return partition.path.name, -1, ""
    return name.topic, name.partition, partition.path.name


def _leads_nowhere(path: Path) -> bool:
    """Whether it is a link whose target is missing, is the link itself, or may not be read."""
    if not path.is_symlink():
        return False
    try:
        path.stat()
    except OSError:
        return True
    return False


def classify_path(path: StrPath, *, whole: bool = False) -> KnownPath:
    """Whether a path is a file of Kafka's, a partition directory or a data directory.

    A directory that holds segments is a partition, whatever its name; one that holds partitions is
    a data directory. A directory with a partition's name that holds neither is a partition, too. A
    file with one of Kafka's extensions has that kind even without an offset in its name: kseg reads
    copies made by hand.

    Args:
        path: the path of a file or directory.
        whole: list the files of each partition of a data directory.

    Raises:
        NotALogError: neither of the three; the message says what was found instead.
        OSError: there is nothing there, or it cannot be listed.
    """
    if isinstance(path, ClassifiesItself):
        return path.classify_elsewhere()
    file_or_directory = Path(path)
    if not file_or_directory.is_dir():
        file_or_directory.stat()  # a missing path is an OSError, and says so best itself
        return KnownPath(file_or_directory, PathKind.FILE, file=file_name(file_or_directory))
    files, foreign = _list_files(file_or_directory)
    if all(entry.name.kind in OF_DATA_DIRECTORIES for entry in files):
        listing = _sort_data_directory(file_or_directory, files, foreign, whole=whole)
        if listing.partitions or listing.files or listing.lost:
            return KnownPath(file_or_directory, PathKind.DATA_DIRECTORY, listing=listing)
        if partition_name(file_or_directory) is None:
            raise NotALogError(_nothing_here(listing), path=file_or_directory)
    partition = sort_partition(file_or_directory, files, foreign)
    return KnownPath(
        file_or_directory, PathKind.PARTITION, partition=partition.name, listing=partition
    )


def _list_files(directory: Path) -> tuple[list[NamedFile], list[Path]]:
    """The known files of a directory and everything else, both sorted by name; one scandir."""
    named_files, foreign = [], []
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = _parse_leniently(entry.name) if _is_file(entry) else None
            if name is None:
                foreign.append(directory / entry.name)
            else:
                named_files.append(NamedFile(name, entry.path))
    return named_files, foreign


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file, or a link to one; false for links in a circle."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _group_segments(
    files: Iterable[NamedFile],
) -> tuple[list[SegmentFiles], list[NamedFile], list[Path]]:
    """Group logs with their indexes.

    Returns:
        The segments; indexes without a log; further names of a file that has the same offset.
    """
    by_offset: dict[int, dict[FileKind, NamedFile]] = {}
    doubles = []
    for entry in files:
        offset = entry.name.base_offset
        if offset is None or entry.name.kind not in OF_SEGMENTS:
            continue
        group = by_offset.setdefault(offset, {})
        first = group.setdefault(entry.name.kind, entry)
        if first is not entry:
            canonical = entry.path.name == f"{offset:020d}.{entry.name.kind.value}"
            doubles.append(first.path if canonical else entry.path)
            group[entry.name.kind] = entry if canonical else first
    segments: list[SegmentFiles] = []
    orphans: list[NamedFile] = []
    for offset, group in sorted(by_offset.items()):
        log = group.pop(FileKind.LOG, None)
        old_log = group.pop(FileKind.KAFKA07, None)
        if log is not None and old_log is not None:
            doubles.append(old_log.path)
        if log is None and old_log is None:
            orphans += group.values()
        else:
            paths = {kind: entry.raw_path for kind, entry in group.items()}
            chosen = log or old_log
            assert chosen is not None
            segments.append(
                SegmentFiles(
                    base_offset=offset,
                    log=chosen.raw_path,
                    index=paths.get(FileKind.INDEX),
                    time_index=paths.get(FileKind.TIMEINDEX),
                    txn_index=paths.get(FileKind.TXNINDEX),
                    kafka07=log is None,
                )
            )
    return segments, orphans, doubles


def _files_of_kind(files: Iterable[NamedFile], kind: FileKind) -> tuple[NamedFile, ...]:
    """The files of a kind, sorted by offset and epoch."""
    chosen = [entry for entry in files if entry.name.kind is kind]
    return tuple(sorted(chosen, key=lambda e: (e.name.base_offset or 0, e.name.epoch or 0)))


def _partition_at(directory: Path, *, whole: bool) -> Partition | None:
    """The partition at a sub-directory of a data directory, with its files if `whole`.

    None if it is not a partition. The directory is listed once.
    """
    name, files = partition_name(directory), None
    try:
        if whole:
            named_files, foreign = _list_files(directory)
            files = sort_partition(directory, named_files, foreign)
            names = [path.name for path in (*(entry.path for entry in named_files), *foreign)]
            is_partition = _holds_partition(names, named=name is not None)
        else:
            with os.scandir(directory) as entries:
                entry_names = (entry.name for entry in entries)
                is_partition = _holds_partition(entry_names, named=name is not None)
    except PermissionError:  # `lost+found`, for example, if the root of a disk is a data directory
        is_partition = name is not None
    return Partition(directory, name, files) if is_partition else None


def _holds_partition(names: Iterable[str], *, named: bool) -> bool:
    """Whether a directory is a partition, according to its contents.

    Under the name of a partition (`named`) it is if it is empty, or has any file of a partition;
    else only with a segment.
    """
    is_empty = True
    for name in names:
        is_empty = False
        file = _parse_leniently(name)
        if file is None:
            continue
        is_of_partition = file.kind not in OF_DATA_DIRECTORIES
        if is_of_partition if named else file.kind in (FileKind.LOG, FileKind.KAFKA07):
            return True
    return named and is_empty


def _parse_leniently(name: str) -> FileName | None:
    """The parsed name of a file; None if it is not Kafka's, or Kafka's own loading would fail."""
    try:
        return parse_name(name)
    except NotALogError:
        return None


def partition_name(directory: Path) -> PartitionName | None:
    """The parsed name of a directory; None if it is not a partition's."""
    try:
        return parse_partition_dir(directory.name or directory.resolve().name)
    except NotALogError:
        return None


def _nothing_here(listing: DataDirectory) -> str:
    """Says in one line why a directory is neither a partition nor a data directory."""
    if not listing.foreign:
        return "an empty directory: no segment files and no partition directories"
    examples = ", ".join(path.name for path in listing.foreign[:3])
    more = len(listing.foreign) - 3
    return f"no segment files and no partition directories here, only {examples}" + (
        f" and {more} more" if more > 0 else ""
    )
