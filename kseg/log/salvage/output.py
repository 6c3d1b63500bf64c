"""A new data directory of batches that are copied from other files.

    OUT/<topic>-<partition>/    the logs; indexes, epochs and snapshots rebuilt
    OUT.kseg-salvage/           everything else, never inside OUT
        out/                    OUT under its first name, until it is whole
        quarantine/             bytes that are not in OUT
        report.json             the report, written last
        put-back.sh             the steps that put many logs back, by the command line

Bytes are copied, then each log is recovered as after a crash: `kseg.log.recovery` sweeps all of it,
compares each checksum and writes the indexes, so changes of a source are noticed. The last step is
one rename. A run that is killed leaves no OUT; the next run begins again.

Where root writes, each directory and log gets the owner, group and permissions of its source, so
that a broker can use OUT. The directory beside OUT can be read by this user alone.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from kseg.constants import INT32_MAX, Progress, StopReason, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, StalePlanError
from kseg.files import io, metadata, ownership
from kseg.files.checkpoints import EpochEntry, TopicPartition, joined_epochs, write_leader_epochs
from kseg.files.log_file import LogFile
from kseg.files.names import (
    FileKind,
    segment_name,
)
from kseg.files.whole_file import (
    claimed,
    refuse_in_data_directory,
)
from kseg.log import data_directory
from kseg.log.recovery.backup import windows
from kseg.log.recovery.recover import recover
from kseg.log.salvage.values import Span, add_span, provable_tables, span_of
from kseg.stores.path import local_path_at

SUFFIX: Final = ".kseg-salvage"
_MAKING: Final = "out"
QUARANTINE: Final = "quarantine"
REPORT: Final = "report.json"
PUT_BACK: Final = "put-back.sh"
#: Copies an extent to a position of a new file.
_Copy = Callable[[Span, io.WriteFile, int], None]
#: Names that an interrupted or an earlier run may have left.
_OURS: Final = frozenset((_MAKING, QUARANTINE, REPORT, REPORT + ".tmp", PUT_BACK))


@frozen_dataclass
class TargetSegment:
    """A segment to be written.

    Attributes:
        base_offset: the offset in its name; no batch has a lower one.
        extents: whole batches, in the order of their offsets.
        tail: batches that come after the extents, made by the caller.
    """

    base_offset: int
    extents: tuple[Span, ...]
    tail: bytes = b""


@frozen_dataclass
class TargetPartition:
    """A partition to be written.

    Attributes:
        partition: its name in checkpoints, and its directory.
        segments: sorted by base offset; a segment without a batch is where an empty log begins.
        log_end_offset: the offset after the last batch.
        topic_id: the id for `partition.metadata`; None to write no such file.
        log_start_offset: the first offset to be read.
        high_watermark: None notes none.
        epochs: the leader epochs of the log, except those that its batches contradict.
        files: other files, which are copied as they are.
        is_derived: whether indexes, epochs, snapshots and checkpoints are made; for the log of
            KRaft, Kafka itself makes them.
    """

    partition: TopicPartition
    segments: tuple[TargetSegment, ...]
    log_end_offset: int
    topic_id: UUID | None = None
    log_start_offset: int = 0
    high_watermark: int | None = None
    epochs: tuple[EpochEntry, ...] = ()
    files: tuple[Path, ...] = ()
    is_derived: bool = True

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"{self.partition.topic}-{self.partition.partition}"

    @property
    def segment_count(self) -> int:
        """The number of its segments."""
        return len(self.segments)

    @property
    def bytes(self) -> int:
        """The size of its logs, in bytes."""
        return sum(
            len(segment.tail) + sum(extent.size for extent in segment.extents)
            for segment in self.segments
        )


def beside(out: StrPath) -> Path:
    """The directory beside OUT, for the report and the quarantine."""
    target = Path(os.path.abspath(out))
    return target.with_name(target.name + SUFFIX)


def check_output(out: StrPath, sources: Iterable[StrPath]) -> None:
    """Refuse an OUT that is not new or empty, or that is in a source or around one.

    Raises:
        FileExistsError: there is something in it, or beside it something that no run has left.
        NotADirectoryError: it is a file.
        PermissionError: another user could change files there.
        KsegError: it is a source, is in one, or one is in it.
        ValueError: it, or a source, is the URL of something in a store; or it is in a data
            directory.
    """
    target, beside_target = Path(os.path.abspath(local_path_at(out))), beside(out)
    refuse_in_data_directory(target, is_data=True)
    for source in sources:
        origin = local_path_at(source).resolve()
        for directory in (target.resolve(), beside_target.resolve()):
            if directory == origin or origin in directory.parents or directory in origin.parents:
                raise KsegError(f"OUT must not lie in a source, or around one: {origin}", path=out)
    _refuse_others(target, frozenset(), "is not empty: name a new directory")
    _refuse_others(beside_target, _OURS, "holds files of other programs: move them")


def _refuse_others(path: Path, accepted_names: frozenset[str], why: str) -> None:
    ownership.check_safe(path)
    if path.exists() and not accepted_names.issuperset(os.listdir(path)):
        raise FileExistsError(errno.EEXIST, why, os.fspath(path))


def write_output(
    out: StrPath,
    partitions: Sequence[TargetPartition],
    *,
    sources: Iterable[StrPath],
    finish: Callable[[Path], None] | None = None,
    finish_bytes: int = 0,
    progress: Progress | None = None,
) -> None:
    """Write a data directory: whole, or not at all.

    Args:
        out: new or empty.
        partitions: each at most once.
        sources: directories that are read; OUT is outside of them.
        finish: writes the files beside OUT, before OUT has its name.
        finish_bytes: their size, roughly.
        progress: called as bytes are copied.

    Raises:
        FileExistsError, NotADirectoryError, PermissionError, KsegError, ValueError: as
            `check_output`, or another run writes there; nothing was done.
        StalePlanError: a source is not as it was when the plan was made.
        OSError: the disk refuses, or has no room. OUT does not exist then.
    """
    sources = list(sources)
    check_output(out, sources)
    target, beside_target = Path(os.path.abspath(out)), beside(out)
    io.make_directories(target.parent)
    total = sum(partition.bytes for partition in partitions)
    if not io.has_room(target.parent, total + finish_bytes):
        why = f"no room for {total + finish_bytes} bytes; nothing was written"
        raise OSError(errno.ENOSPC, why, os.fspath(target.parent))
    with ownership.private():
        io.make_directories(beside_target)
    with claimed(beside_target):
        check_output(out, sources)  # another run may have ended just now
        making, copy = _begin(beside_target, sources[0]), _copier(total, progress)
        for partition in partitions:
            _write_logs(making, partition, _source_of(partition, sources), copy)
        _derive(making, partitions)
        if finish is not None:
            with ownership.private():
                finish(beside_target)
        io.flush_directory(beside_target)
        if target.is_dir():
            io.remove_directory(target)
        io.rename(making, target)
        io.flush_directory(beside_target)
        io.flush_directory(target.parent)


def _begin(beside_target: Path, source: StrPath) -> Path:
    """Remove the files of an interrupted run; returns an empty directory to write in."""
    for name in sorted(_OURS):
        old_path = beside_target / name
        if old_path.is_dir() and not old_path.is_symlink():
            io.remove_tree(old_path)
        else:
            io.unlink(old_path, missing_ok=True)
    making = beside_target / _MAKING
    io.make_directory(making, like=ownership.of_copied_directory(source))
    return making


def _copier(total: int, progress: Progress | None) -> _Copy:
    """A function that copies a span to a position of a new file, and reports its progress."""
    copied = 0

    def copy(extent: Span, file: io.WriteFile, position: int) -> None:
        """Copy a run of batches to a position of the new file."""
        nonlocal copied
        end = position + extent.size
        with io.opened(extent.path) as fd:
            for data in windows(extent.path, fd, (extent.position, extent.end)):
                file.write_at(position, data)
                position += len(data)
        if position < end:
            raise StalePlanError("the file is shorter than it was", path=extent.path)
        copied += extent.size
        if progress is not None:
            progress(copied, total)

    return copy


def _source_of(partition: TargetPartition, sources: Sequence[StrPath]) -> StrPath:
    """A directory that the partition comes from."""
    for segment in partition.segments:
        for extent in segment.extents:
            return os.path.dirname(extent.path)
    named = (Path(source, partition.name) for source in sources)
    return next((directory for directory in named if directory.is_dir()), sources[0])


def _write_logs(making: Path, partition: TargetPartition, source: StrPath, copy: _Copy) -> None:
    """Write the log files of a partition and its other files, with its topic's id; lasting."""
    directory = making / partition.name
    io.make_directory(directory, like=ownership.of_copied_directory(source))
    for segment in partition.segments:
        path = directory / segment_name(segment.base_offset, FileKind.LOG)
        origin = segment.extents[0].path if segment.extents else source
        look = ownership.of_copied_file(origin)
        with io.WriteFile.open(path, exclusive=True, like=look) as file:
            position = 0
            for extent in segment.extents:
                copy(extent, file, position)
                position += extent.size
            if segment.tail:
                file.write_at(position, segment.tail)
            file.flush()
        if partition.is_derived and not (segment.extents or segment.tail):
            # Without an index Kafka recovers the empty segment, and removes all snapshots after it.
            index = directory / segment_name(segment.base_offset, FileKind.INDEX)
            with io.WriteFile.open(index, exclusive=True, like=look) as file:
                file.flush()
    if partition.epochs:  # without a checkpoint the recovery would ask a tier for them
        write_leader_epochs(directory / FileKind.LEADER_EPOCHS.value, ())
    for other in partition.files:
        look = ownership.of_copied_file(other)
        with io.WriteFile.open(directory / other.name, exclusive=True, like=look) as file:
            copy(Span(str(other), 0, other.stat().st_size), file, 0)
            file.flush()
    if partition.topic_id is not None:
        path = directory / FileKind.PARTITION_METADATA.value
        metadata.write_partition_metadata(path, partition.topic_id)
    io.flush_directory(directory)


def _derive(making: Path, partitions: Sequence[TargetPartition]) -> None:
    """Make indexes, epochs, snapshots and checkpoints by a recovery of each partition.

    Also checks that the copies are what the plan says. Leaves the mark of a clean shutdown.
    """
    lease = data_directory.enter(making)
    clean = False
    try:
        for partition in partitions:
            if not partition.is_derived:
                for path in sorted((making / partition.name).glob(f"*.{FileKind.LOG.value}")):
                    with LogFile.open(path, "never") as log:
                        for tile in log.walk(on_bad_crc="stop"):
                            stop = tile.table.stop
                    if stop is not StopReason.END:
                        raise StalePlanError(
                            "the copy is not sound: a source has changed", path=path
                        )
                continue
            report = recover(
                making / partition.name,
                clean=False,
                recovery_point=0,
                log_start_offset=partition.log_start_offset,
                keep_cut=False,
            )
            plan = report.plan
            if plan.truncated_bytes or plan.log_end_offset != partition.log_end_offset:
                raise StalePlanError(
                    f"the copy ends at offset {plan.log_end_offset}, not at "
                    f"{partition.log_end_offset}: a source has changed since the plan was made",
                    path=making / partition.name,
                )
            epochs = joined_epochs(partition.epochs, plan.epochs)
            if epochs != plan.epochs:
                write_leader_epochs(making / partition.name / FileKind.LEADER_EPOCHS.value, epochs)
            first = min((segment.base_offset for segment in partition.segments), default=0)
            start = partition.log_start_offset
            lease.note(
                partition.partition,
                log_start_offset=start or first,
                first_offset=None if 0 < start < first else first,  # such a log starts in a tier
                high_watermark=partition.high_watermark,
            )
        clean = True
    finally:
        lease.leave(clean=clean)


def target_segments(runs: Sequence[Span], bases: Sequence[int]) -> tuple[TargetSegment, ...]:
    """The segments of a log, each batch in the segment of its offset.

    An empty last segment stays: the log goes on there, after offsets that were given once. So does
    an empty first one, which compaction leaves: the log starts there.

    Args:
        runs: sorted by offset; each is after the run before it.
        bases: base offsets of the segments that the log had, ascending; one or more.

    Raises:
        CorruptRecordError, UnreadableError: a file has changed since it was read.
    """
    distribution = _Segments(bases)
    for run in runs:
        distribution.add(run)
    distribution.close()
    segments = distribution.segments
    if bases[-1] > distribution.last:
        segments.append(TargetSegment(bases[-1], ()))
    if bases[0] < segments[0].base_offset:
        segments.insert(0, TargetSegment(bases[0], ()))
    return tuple(segments)


class _Segments:
    """Distributes batches over new segments.

    A segment begins at each base offset that the log had, and where the present one is full: at
    2 GiB, or at an offset that has no 32-bit form relative to its base.

    Attributes:
        segments: the complete ones.
        last: the last offset so far; -1 before the first batch.
    """

    def __init__(self, bases: Sequence[int]) -> None:
        """Begin without segments; `bases` are the base offsets that the log had, ascending."""
        self._bases = bases
        self.segments: list[TargetSegment] = []
        self.last = self._base = -1
        self._extents: list[Span] = []
        self._bytes = 0

    def add(self, run: Span) -> None:
        """Add batches that come after all others; a run too long for a segment is split."""
        bases_before = bisect_right(self._bases, run.first_offset)
        # The base of a segment that begins here: the log's own, if none of its offsets are used.
        new_base = run.first_offset
        if bases_before:
            new_base = max(self._bases[bases_before - 1], self.last + 1)
        if run.batches > 1 and (
            bisect_right(self._bases, run.last_offset) > bases_before
            or not self._fits(run, new_base)
        ):
            for _, table in provable_tables([run]):
                for row in range(len(table)):
                    self.add(span_of(run.path, table.take(slice(row, row + 1))))
            return
        next_base = bisect_right(self._bases, self._base)
        is_next = next_base < len(self._bases) and run.first_offset >= self._bases[next_base]
        if not self._extents or is_next or not self._fits(run, self._base):
            self.close()
            fits = run.last_offset - new_base <= INT32_MAX
            self._base = new_base if fits else run.first_offset
        add_span(self._extents, run)
        self._bytes += run.size
        self.last = run.last_offset

    def close(self) -> None:
        """Finish the segment that is being collected."""
        if self._extents:
            self.segments.append(TargetSegment(self._base, tuple(self._extents)))
        self._extents, self._bytes = [], 0

    def _fits(self, run: Span, base: int) -> bool:
        """Whether the present segment has room for a run, with 32-bit offsets from a base."""
        return max(run.last_offset - base, self._bytes + run.size) <= INT32_MAX
