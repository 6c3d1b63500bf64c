"""Units of work: the files to examine under some paths, found by their names; and running them.

A unit is one file with its indexes, or a directory's small files. Units pickle, may be examined
anywhere and in any order, and none needs another's result. Threads share them, or a runner does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kseg.catalog import Catalog, OnError
from kseg.constants import Progress
from kseg.documents import frozen_dataclass
from kseg.files import io
from kseg.files.grammar import OF_SEGMENTS
from kseg.files.names import (
    DataDirectory,
    FileKind,
    FileName,
    LeftOut,
    PartitionFiles,
    SegmentFiles,
    list_partition,
    log_bytes,
)
from kseg.files.selection import Selection, StrPaths
from kseg.log.data_directory import DirectoryFiles, EntryKind, entry_of, partition_of
from kseg.stores.path import name_of
from kseg.workers import At, Put, at_file, in_order

_CheckpointsOf = Callable[[str], DirectoryFiles]
#: The contents of directories, keyed by the paths in units.
Listings = dict[str, PartitionFiles | DataDirectory]


class UnitKind(Enum):
    """The kinds of units."""

    SEGMENT = "a log file and its indexes"
    BATCHES = "a file of batches that is not a segment: a KRaft snapshot, a leftover"
    PARTITION = "the other files of a partition directory"
    FILE = "a small file by itself"
    DATA_DIRECTORY = "the other files of a data directory"


@frozen_dataclass
class Unit:
    """One unit of work.

    Attributes:
        kind: the work to do.
        path: the file or directory.
        partition: the partition directory that a segment is in; None for a single named file.
        base_offset: the base offset of a segment.
        is_last: whether no segment of the partition follows.
        following: the base offset of the segment that follows.
        index, time_index, txn_index: the segment's indexes that exist.
        believed: whether a starting broker trusts the segment's indexes without a check.
        file: the kind of a small file.
        walked: whether the headers of a partition are walked in their order as well.
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
    walked: bool = False

    @property
    def cost(self) -> int:
        """Bytes to read, roughly; 0 if not known."""
        size_of = log_bytes if self.walked else io.size_at
        try:
            return size_of(self.path)
        except OSError:
            return 0


def all_files(
    paths: StrPaths,
    topics: str | Iterable[str] | None,
    partitions: int | Iterable[int] | None,
    on_error: OnError,
) -> tuple[Catalog, list[LeftOut] | None]:
    """The files of all kinds under paths; and a list that receives what cannot be read.

    Args:
        paths, topics, partitions: as for `verify`.
        on_error: "raise", for which the list is None; or "skip".

    Raises:
        NotALogError, OSError, ValueError, TypeError: as for `verify`.
    """
    selection = Selection.of(topics, partitions)
    catalog = Catalog.of(paths, selection, replicas="all", on_error=on_error, files="all")
    return catalog, list(catalog.skipped) if on_error == "skip" else None


def plan(catalog: Catalog, listings: Listings | None = None) -> list[Unit]:
    """The units of work, each once: files, partition directories, data directories.

    Args:
        catalog: the files of all kinds; with a selection, only the chosen partitions.
        listings: receives the contents of the directories, for callers that examine them at once.

    Raises:
        OSError: a directory cannot be listed.
    """
    units: dict[tuple[UnitKind, str], Unit] = {}
    real = cache(os.path.realpath)
    for unit in _units_of(catalog, {} if listings is None else listings):
        is_directory = unit.kind in (UnitKind.DATA_DIRECTORY, UnitKind.PARTITION)
        directory = unit.path if is_directory else os.path.dirname(unit.path)
        name = "" if is_directory else os.path.basename(unit.path)
        units.setdefault((unit.kind, os.path.join(real(directory), name)), unit)
    return list(units.values())


def _units_of(catalog: Catalog, listings: Listings) -> Iterator[Unit]:
    """The units of a catalog, some of them twice; `listings` receives the directories."""
    checkpoints_of = cache(partial(DirectoryFiles.read, locked=False))
    list_once = cache(list_partition)  # `*.log` names thousands of files of one directory
    for directory in () if catalog.selection else catalog.data_directories:
        listings[name_of(directory.path)] = directory._replace(partitions=())
        yield Unit(UnitKind.DATA_DIRECTORY, name_of(directory.path))
        for entry in directory.files:
            if entry.name.kind.holds_batches and entry.name.suffix is None:
                yield Unit(UnitKind.BATCHES, name_of(entry.path), is_last=True)
    for partition in catalog:
        if partition.file is not None:
            yield from _of_file(partition.path, partition.file, list_once, checkpoints_of)
            continue
        listings[name_of(partition.path)] = partition.files
        yield Unit(UnitKind.PARTITION, name_of(partition.path))
        for segment, following in _with_following(partition.files.segments):
            yield _of_segment(segment, following, checkpoints_of, partition=partition.path)
        for entry in partition.files.kraft_snapshots:
            yield Unit(UnitKind.BATCHES, name_of(entry.path), is_last=True)


def _with_following(
    segments: Sequence[SegmentFiles],
) -> Iterator[tuple[SegmentFiles, int | None]]:
    """Each segment, with the base offset of the next one."""
    bases = [segment.base_offset for segment in segments[1:]]
    return zip(segments, [*bases, None], strict=False)


#: Directories whose indexes no start trusts: it recovers them, or does not load them.
_UNBELIEVED = frozenset({EntryKind.CLUSTER_METADATA, EntryKind.DELETE, EntryKind.STRAY})


def _is_believed(log: Path, following: int | None, checkpoints_of: _CheckpointsOf) -> bool:
    """Whether a starting broker trusts a segment's indexes without a check.

    It does after a clean stop; otherwise only for segments that end at or below the recovery point.
    If the data directory has no recovery points, all segments but the last count as flushed. The
    log of KRaft is recovered in any case.

    Args:
        log: the log file.
        following: the base offset of the next segment; None for the last one.
        checkpoints_of: reads the files of a data directory.
    """
    if io.is_elsewhere(log):
        return False
    partition = os.path.realpath(log.parent)
    if entry_of(Path(partition)).kind in _UNBELIEVED:
        return False
    files = checkpoints_of(os.path.dirname(partition))
    if files.mark is not None:
        return True
    if following is None:
        return False
    has_recovery_points = bool(files.offsets[FileKind.RECOVERY_POINT])
    return not has_recovery_points or following <= files.of(partition_of(partition)).recovery_point


def _of_segment(
    segment: SegmentFiles,
    following: int | None,
    checkpoints_of: _CheckpointsOf,
    *,
    partition: Path | None = None,
    beside: Path | None = None,
) -> Unit:
    """The unit of a segment.

    Args:
        segment: the files of the segment.
        following: the base offset of the next segment; None for the last one.
        checkpoints_of: reads the files of a data directory.
        partition: the directory; None if the user named a file.
        beside: the file as the user spelled it; the unit's paths are spelled likewise.
    """

    def text(path: Path | None) -> str | None:
        spelled = path if path is None or beside is None else beside.with_name(path.name)
        return None if spelled is None else name_of(spelled)

    return Unit(
        UnitKind.SEGMENT,
        text(segment.log) or "",
        partition=None if partition is None else name_of(partition),
        base_offset=segment.base_offset,
        is_last=following is None,
        following=following,
        index=text(segment.index),
        time_index=text(segment.time_index),
        txn_index=text(segment.txn_index),
        believed=_is_believed(segment.log, following, checkpoints_of),
    )


def _of_file(
    path: Path,
    name: FileName,
    listing: Callable[[Path], PartitionFiles],
    checkpoints_of: _CheckpointsOf,
) -> Iterator[Unit]:
    """The unit of a single named file; of an index, that of its segment if the log is beside it.

    Args:
        path, name: the file, and its parsed name.
        listing: lists a partition directory.
        checkpoints_of: reads the files of a data directory.
    """
    kind = name.kind
    offset = name.base_offset
    if name.suffix is None and offset is not None and kind in OF_SEGMENTS:
        segments = listing(path.absolute().parent).segments
        for segment, following in _with_following(segments):
            if segment.base_offset == offset:
                yield _of_segment(segment, following, checkpoints_of, beside=path)
                return
    is_log = kind.holds_batches
    yield Unit(
        UnitKind.BATCHES if is_log else UnitKind.FILE,
        name_of(path),
        base_offset=offset,
        is_last=True,
        file=None if is_log else kind,
    )


class Costed(Protocol):
    """A unit of work: its subject, and the rough number of bytes to read."""

    @property
    def path(self) -> str:
        """The file or directory."""

    @property
    def cost(self) -> int:
        """Bytes to read, roughly; 0 if not known."""


_Unit = TypeVar("_Unit", bound=Costed)
_Answer = TypeVar("_Answer")


class Runner(Protocol):
    """Examines units elsewhere, as Spark's workers do."""

    def run(
        self,
        units: Sequence[Any],
        work: Callable[[Any], Any],
        merge: Callable[[Iterable[Any]], Any] | None,
        progress: Progress | None,
    ) -> Iterable[Any]:
        """The answers to units, in any order; a `LeftOut` for each unit that cannot be read.

        Args:
            units: the units, which pickle.
            work: examines one unit; it pickles, too.
            merge: joins answers into one; None to keep them apart.
            progress: called now and then.
        """


#: The workers: a number of threads, or a runner.
Threads = int | Runner


def run_units(
    units: Sequence[_Unit],
    work: Callable[[_Unit], _Answer],
    *,
    threads: Threads = 1,
    progress: Progress | None = None,
    skipped: list[LeftOut] | None = None,
    merge: Callable[[Iterable[_Answer]], _Answer] | None = None,
) -> Iterator[_Answer]:
    """Do some work on each unit; the answers come in any order, the same one for any `threads` > 1.

    Args:
        units: the units, as `plan` returns them, or others that pickle.
        work: examines one unit; several threads call it if `threads` is above 1.
        threads: the number of threads that share the work; 1 does all of it in this thread. Or a
            runner.
        progress: called after each unit with bytes done and bytes in all.
        skipped: receives units whose files cannot be read; None to raise the error.
        merge: joins answers, which a runner may do where it examines the units.

    Raises:
        ValueError: `threads` is below 1.
        LimitExceededError: a unit ran out of memory; it names the file.
    """
    if not isinstance(threads, int):
        for answer in threads.run(units, work, merge, progress):
            yield from _answer_or_skip(answer, skipped)
        return
    if threads < 1:
        raise ValueError(f"threads is {threads}, not 1 or more")
    total = sum(unit.cost for unit in units)
    done = 0
    for unit, answer in _answers(units, partial(_attempt, work=work), threads):
        done += unit.cost
        if progress is not None:
            progress(min(done, total), total)
        yield from _answer_or_skip(answer, skipped)


def _answer_or_skip(answer: _Answer | LeftOut, skipped: list[LeftOut] | None) -> Iterator[_Answer]:
    """The answer, or nothing: an unreadable path raises its error, or is noted in `skipped`."""
    if not isinstance(answer, LeftOut):
        yield answer
    elif skipped is None:
        assert answer.error is not None
        raise answer.error
    else:
        skipped.append(answer)


def _attempt(unit: _Unit, *, work: Callable[[_Unit], _Answer]) -> _Answer | LeftOut:
    """The answer of `work`, or the file system's error, which may be skipped."""
    try:
        with at_file(unit.path):
            return work(unit)
    except OSError as error:
        return LeftOut.of(Path(unit.path), error)


def _answers(
    units: Sequence[_Unit], work: Callable[[_Unit], _Answer], threads: int
) -> Iterator[tuple[_Unit, _Answer]]:
    """Each unit with its answer, in the order in which the units are begun."""
    if threads == 1 or len(units) < 2:
        yield from zip(units, map(work, units), strict=True)
        return
    # The largest first, so that no thread is busy with a large unit at the end. Answers are small.
    ordered = sorted(units, key=lambda unit: unit.cost, reverse=True)
    pieces = (At(unit.path, partial(_put_answer, unit, work)) for unit in ordered)
    most = min(threads, len(units))
    with closing(in_order(pieces, threads=most, window=len(units))) as answers:
        yield from zip(ordered, answers, strict=True)


def _put_answer(unit: _Unit, work: Callable[[_Unit], _Answer], put: Put) -> None:
    put(work(unit))
