"""Units of work: the files to examine under some paths, found by names alone.

A unit is one file with its indexes, or a directory's small files. Units pickle, may be examined
anywhere and in any order, and none needs another's result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from os import PathLike
from pathlib import Path

from kseg.files.names import (
    DataDirectory,
    FileKind,
    NamedFile,
    PartitionFiles,
    SegmentFiles,
    Unreadable,
    classify_path,
    list_partition,
    readable_partitions,
)
from kseg.log.data_directory import CLUSTER_METADATA, DirectoryFiles, partition_of, told_in

_Listing = Callable[[Path], PartitionFiles]
_Said = Callable[[str], DirectoryFiles]
#: What directories hold, by their paths as units have them.
Listings = dict[str, PartitionFiles | DataDirectory]


class UnitKind(Enum):
    """What a unit is made of."""

    SEGMENT = "a log file and its indexes"
    BATCHES = "a file of batches that is no segment: a KRaft snapshot, a leftover"
    PARTITION = "what else lies in a partition directory"
    FILE = "a small file by itself"
    DATA_DIRECTORY = "what else lies in a data directory"


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of work.

    Attributes:
        kind: what to do with it.
        path: the file or directory.
        partition: the partition directory that a segment was found in; None for a lone file.
        base_offset: of a segment.
        is_last: no segment of the partition follows.
        index, time_index, txn_index: the segment's indexes that exist.
        believed: a start of a broker takes the segment's indexes as they lie.
        file: what the name of a lone file says.
    """

    kind: UnitKind
    path: str
    partition: str | None = None
    base_offset: int | None = None
    is_last: bool = False
    following: int | None = None
    index: str | None = None
    time_index: str | None = None
    txn_index: str | None = None
    believed: bool = False
    file: FileKind | None = None

    @property
    def cost(self) -> int:
        """Bytes to read, roughly; 0 if not known."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0


def plan(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    skipped: list[Unreadable] | None = None,
    listings: Listings | None = None,
) -> list[Unit]:
    """The units under some paths: files, partition directories, data directories.

    Args:
        paths: one path or several; a file under two of them is one unit.
        skipped: takes partitions of data directories that cannot be read; None to raise the fault.
        listings: takes what the directories hold, for those who examine them at once.

    Raises:
        NotALogError: a path is nothing of Kafka's.
        OSError: a path is missing or cannot be listed.
    """
    units: dict[tuple[UnitKind, str], Unit] = {}
    real = cache(os.path.realpath)
    list_once = cache(list_partition)  # `*.log` names thousands of files of one directory
    said = cache(told_in)
    for path in [paths] if isinstance(paths, (str, PathLike)) else paths:
        kept = {} if listings is None else listings
        for unit in _units_of(path, list_once, said, skipped, kept):
            place = os.path.join(real(os.path.dirname(unit.path)), os.path.basename(unit.path))
            if unit.kind in (UnitKind.DATA_DIRECTORY, UnitKind.PARTITION):
                place = real(unit.path)
            units.setdefault((unit.kind, place), unit)
    return list(units.values())


def _units_of(
    path: str | PathLike[str],
    listing: _Listing,
    said: _Said,
    skipped: list[Unreadable] | None,
    listings: Listings,
) -> Iterator[Unit]:
    known = classify_path(path, whole=True)
    if known.data_directory is not None:
        yield from _of_data_directory(known.data_directory, said, skipped, listings)
    elif known.partition_files is not None:
        yield from _of_partition(known.partition_files, said, listings)
    else:
        assert known.file is not None
        yield from _of_file(NamedFile(known.file, known.path), listing, said)


def _of_data_directory(
    listing: DataDirectory, said: _Said, skipped: list[Unreadable] | None, listings: Listings
) -> Iterator[Unit]:
    listings[str(listing.path)] = listing._replace(partitions=())
    yield Unit(UnitKind.DATA_DIRECTORY, str(listing.path))
    for partition in readable_partitions((*listing.partitions, *listing.lost), skipped):
        yield from _of_partition(partition.files or list_partition(partition.path), said, listings)
    for entry in listing.files:
        if entry.name.kind.holds_batches and entry.name.suffix is None:
            yield Unit(UnitKind.BATCHES, str(entry.path), is_last=True)


def _of_partition(files: PartitionFiles, said: _Said, listings: Listings) -> Iterator[Unit]:
    listings[str(files.path)] = files
    yield Unit(UnitKind.PARTITION, str(files.path))
    for segment, following in _with_following(files.segments):
        yield _of_segment(segment, files.path, following, said)
    for entry in files.kraft_snapshots:
        yield Unit(UnitKind.BATCHES, str(entry.path), is_last=True)


def _with_following(
    segments: Sequence[SegmentFiles],
) -> Iterator[tuple[SegmentFiles, int | None]]:
    """Each segment, and where the one behind it begins."""
    bases = [segment.base_offset for segment in segments[1:]]
    return zip(segments, [*bases, None], strict=False)


def _is_believed(log: Path, following: int | None, said: _Said) -> bool:
    """Whether a start takes a segment's indexes as they lie: under the mark, or when flushed.

    Without any recovery point, closed segments count as flushed. The log of KRaft is recovered in
    any case.
    """
    partition = os.path.realpath(log.parent)
    if os.path.basename(partition).startswith(CLUSTER_METADATA):
        return False
    files = said(os.path.dirname(partition))
    if files.mark is not None or following is None:
        return files.mark is not None
    known = bool(files.offsets[FileKind.RECOVERY_POINT])
    return not known or following <= files.of(partition_of(partition)).recovery_point


def _of_segment(
    segment: SegmentFiles, partition: Path | None, following: int | None, said: _Said
) -> Unit:
    def text(path: Path | None) -> str | None:
        return None if path is None else str(path)

    return Unit(
        UnitKind.SEGMENT,
        str(segment.log),
        partition=text(partition),
        base_offset=segment.base_offset,
        is_last=following is None,
        following=following,
        index=text(segment.index),
        time_index=text(segment.time_index),
        txn_index=text(segment.txn_index),
        believed=_is_believed(segment.log, following, said),
    )


def _of_file(entry: NamedFile, listing: _Listing, said: _Said) -> Iterator[Unit]:
    """A file by itself; an index is examined with its log, if that lies beside it."""
    kind, offset = entry.name.kind, entry.name.base_offset
    if entry.name.suffix is None and offset is not None and kind in _OF_SEGMENTS:
        segments = listing(entry.path.absolute().parent).segments
        for segment, following in _with_following(segments):
            if segment.base_offset == offset:
                beside = _beside(segment, entry.path)
                yield _of_segment(beside, None, following, said)
                return
    if kind.holds_batches:
        yield Unit(UnitKind.BATCHES, str(entry.path), base_offset=offset, is_last=True)
    else:
        yield Unit(UnitKind.FILE, str(entry.path), base_offset=offset, is_last=True, file=kind)


def _beside(segment: SegmentFiles, path: Path) -> SegmentFiles:
    """The files of a segment, spelled as the user spelled one of them."""

    def spelled(file: Path | None) -> Path | None:
        return None if file is None else path.with_name(file.name)

    return SegmentFiles(
        base_offset=segment.base_offset,
        log=path.with_name(segment.log.name),
        index=spelled(segment.index),
        time_index=spelled(segment.time_index),
        txn_index=spelled(segment.txn_index),
        kafka07=segment.kafka07,
    )


_OF_SEGMENTS = frozenset(
    (FileKind.LOG, FileKind.KAFKA07, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)
)
