"""A split: a segment with offsets that have no 32-bit form becomes several without such offsets.

Compaction before Kafka 1.1 could join segments so that their indexes cannot be made. The batches
are copied as they lie, into segments that each begin at the base offset of their first batch. What
lies behind the last batch that is sound, and in order, goes into the last segment as it is.
Recovery decides what becomes of it.

The new files come in through `.cleaned` and `.swap`. At every moment a loader finds the old segment
whole or all of the new ones, whichever of the names have reached the disk. Two things differ from
Kafka's way, which loses them: the transaction index is made anew too, and the old segment's files
are deleted where the first new one has another name.

Source: Kafka `LocalLog.splitOverflowedSegment`, `LocalLog.replaceSegments`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from kseg.constants import INT64_MAX
from kseg.errors import (
    KsegError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    StalePlanError,
    at_path,
)
from kseg.files import io
from kseg.files.grammar import offset_from_file_name
from kseg.files.names import FileKind, list_partition, segment_name
from kseg.format.header import stop_error
from kseg.log.recovery.load_context import INDEX, LOG, SNAPSHOT, TIMEINDEX, TXNINDEX, file_of
from kseg.log.recovery.raw_lookups import RAISED
from kseg.log.recovery.sweep import DerivedEntries, Swept, sweep_segment, write_indexes
from kseg.log.segment.reader import Segment
from kseg.log.validate.batches import out_of_order
from kseg.log.validate.rules import LAST_OFFSET_MAX

if TYPE_CHECKING:
    from kseg.format.header import BatchTable
    from kseg.log.config import LogConfig
    from kseg.log.producers.state import ProducerState
    from kseg.log.recovery.load_context import LoadContext

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
_INT32_MAX: Final = 2**31 - 1
#: What Kafka raises where it requires an overflow, or room in an index; and behind the last batch.
_REQUIRED: Final = "IllegalArgumentException"
_NO_ELEMENT: Final = "NoSuchElementException"
_WINDOW_BYTES: Final = 2**20
#: The files of a segment, in the order in which Kafka renames them.
_KINDS: Final = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)


@dataclass(frozen=True, slots=True)
class SplitPiece:
    """One of the new segments: its base offset, and which bytes of the old log it gets."""

    base_offset: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """How a segment is to be split.

    Attributes:
        path: the log file.
        base_offset: of the segment.
        pieces: the new ones, by rising base offsets; together they have every byte of the old log.
        modified_ns, inode: of the log file when it was looked at.
    """

    path: Path
    base_offset: int
    pieces: tuple[SplitPiece, ...]
    modified_ns: int
    inode: int

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        return max(piece.end for piece in self.pieces)

    def __str__(self) -> str:
        """One line."""
        bases = ", ".join(str(piece.base_offset) for piece in self.pieces)
        return f"split {self.path} ({self.size} bytes) into segments at {bases}"


def plan_split(path: str | os.PathLike[str]) -> SplitPlan:
    """Say where a segment would be cut; changes nothing.

    Args:
        path: the log file.

    Raises:
        ValueError: no offset of it overflows, so that a split would change nothing.
        OffsetOverflowError: another segment of the directory begins inside of what this one holds,
            or one batch alone overflows.
        NotALogError: the name is not that of a log file.
        OSError: it is missing or cannot be read.

    Source: Kafka LogSegment.hasOverflow, LocalLog.splitOverflowedSegment.
    """
    plan, last_offset = _plan(Path(path))
    _check_free(plan, last_offset)
    return plan


def _plan(path: Path, size: int | None = None) -> tuple[SplitPlan, int]:
    """Where the first `size` bytes of a log would be cut, and its last offset."""
    before = os.stat(path)
    size = before.st_size if size is None else size
    with Segment.open(path, mapping="never", size=size, is_last=True) as segment:
        base_offset, truncations = segment.base_offset, _Cuts(segment)
        for tile in segment.walk(on_bad_crc="stop"):
            if not truncations.feed(tile.table):
                break
        if truncations.last_offset - base_offset <= _INT32_MAX:
            raise ValueError(f"no offset of {segment.path} overflows")
        pieces = tuple(
            SplitPiece(_first_offset(segment, start), start, end)
            for start, end in pairwise([*truncations.starts, size])
        )
    plan = SplitPlan(path, base_offset, pieces, before.st_mtime_ns, before.st_ino)
    return plan, truncations.last_offset


class _Cuts:
    """Where new segments begin, batch after batch."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._base_offset = 0
        self.starts: list[int] = []
        self.last_offset = -1

    def feed(self, table: BatchTable) -> bool:
        """Take in the next batches; returns whether all of them are in order."""
        last = table.last_offset
        wrong = out_of_order(table, self.last_offset)
        count = int(wrong.argmax()) if wrong.any() else len(table)
        row = 0
        while row < count:
            if self.starts:
                # In order as they are, those that do not fit are at the end.
                row += int(
                    np.searchsorted(last[row:count], self._base_offset + _INT32_MAX, "right")
                )
                if row == count:
                    break
                if row + 1 < len(table) and last[row + 1] <= last[row]:
                    count = row  # not far, but wrong: the next one does not follow
                    break
            self._begin(int(table.position[row]), int(last[row]))
            row += 1
        if count:
            self.last_offset = int(last[count - 1])
        return count == len(table)

    def _begin(self, position: int, last_offset: int) -> None:
        """A new segment begins with the batch at a position."""
        self._base_offset = _first_offset(self._segment, position)
        if last_offset - self._base_offset > _INT32_MAX:
            raise OffsetOverflowError(
                f"one batch alone reaches too far from its first offset, {self._base_offset}",
                path=self._segment.path,
                position=position,
                offset=last_offset,
            )
        self.starts.append(position)


def _first_offset(segment: Segment, position: int) -> int:
    """The base offset of the batch at a position; of compressed messages, the first one's."""
    for table in segment.headers(start=position, limit=position + 1, policy="file"):
        header = table[0]
        if header.base_offset >= 0:
            return header.base_offset
    where = {"start_position": position, "end_position": position + 1}
    for columns in segment.read(**where, columns=("offset",), control=True):  # type: ignore[arg-type]
        return int(columns["offset"][0])
    return header.last_offset


def _check_free(plan: SplitPlan, last_offset: int) -> None:
    """Refuse a split into what is there already, unless it is what an interrupted one left."""
    sought = {piece.base_offset: piece for piece in plan.pieces}
    for files in list_partition(plan.path.parent).segments:
        other = files.base_offset
        if other == plan.base_offset or not min(sought) <= other <= last_offset:
            continue
        if other not in sought or not _has_bytes(files.log, plan.path, sought[other]):
            raise OffsetOverflowError(
                f"the segment reaches to {last_offset}, and another one begins at {other}",
                path=plan.path,
                offset=other,
            )


def _has_bytes(other: Path, path: Path, piece: SplitPiece) -> bool:
    """Whether a file has just the bytes of a piece."""
    with ExitStack() as opened:
        descriptors = []
        for each in (other, path):
            descriptors.append(io.open_read(each))
            opened.callback(os.close, descriptors[-1])
        first, second = descriptors
        if io.file_size(first) != piece.end - piece.start:
            return False
        for start in range(piece.start, piece.end, _WINDOW_BYTES):
            size = min(_WINDOW_BYTES, piece.end - start)
            theirs = io.read_at(first, start - piece.start, size, other)
            if theirs != io.read_at(second, start, size, path):
                return False
    return True


# ---- doing it ------------------------------------------------------------------------------------


def apply_split(
    plan: SplitPlan,
    *,
    config: LogConfig,
    producers: ProducerState | None = None,
    stays: bool = False,
) -> tuple[Swept, ...]:
    """Put the new segments in the place of the old one; all lasting when this returns.

    If it is killed on the way, the next load clears up what it leaves (`temporary_files`), and a
    new plan comes to the same bytes. The caller holds the lock of the directory.

    Args:
        plan: from `plan_split`.
        config: of the log.
        producers: what is known at the old base offset; taken further in place. Without it the old
            transaction index is lost, as in Kafka, and the new segments are to be recovered.
        stays: leave the old segment beside the new ones.

    Returns:
        What each new segment says, rising.

    Raises:
        StalePlanError: the log file has changed; nothing was done.
        OSError: the disk refuses.
    """
    found = os.stat(plan.path)
    if (found.st_size, found.st_mtime_ns, found.st_ino) != (
        plan.size,
        plan.modified_ns,
        plan.inode,
    ):
        raise StalePlanError("the segment is not as it was when the plan was made", path=plan.path)
    swept = tuple(_write(plan, piece, found, config, producers) for piece in plan.pieces)
    directory = plan.path.parent
    io.flush_directory(directory)
    first, *others = plan.pieces
    # As long as the first one is `.cleaned`, a loader throws all of them away.
    for piece in reversed(others):
        _rename(directory, piece, CLEANED, SWAP)
    if others:
        io.flush_directory(directory)
    _rename(directory, first, CLEANED, SWAP)
    io.flush_directory(directory)
    if not stays:
        _delete_old(plan)
    io.flush_directory(directory)
    for piece in plan.pieces:
        _rename(directory, piece, SWAP, "")
    io.flush_directory(directory)
    return swept


def _write(
    plan: SplitPlan,
    piece: SplitPiece,
    found: os.stat_result,
    config: LogConfig,
    producers: ProducerState | None,
) -> Swept:
    """Make the `.cleaned` files of a new segment."""
    directory = plan.path.parent
    for name in _names(directory, piece.base_offset, CLEANED):
        io.unlink(name, missing_ok=True)
    log = next(_names(directory, piece.base_offset, CLEANED))
    with io.WriteFile.open(log, exclusive=True) as target:
        fd = io.open_read(plan.path)
        try:
            for start in range(piece.start, piece.end, _WINDOW_BYTES):
                size = min(_WINDOW_BYTES, piece.end - start)
                target.write_at(start - piece.start, io.read_at(fd, start, size, plan.path))
        finally:
            os.close(fd)
        target.flush()
    with Segment.open(log, mapping="never", is_last=True) as segment:
        if segment.size != piece.end - piece.start:
            raise StalePlanError("the segment was cut while it was copied", path=plan.path)
        swept = sweep_segment(segment, config=config, producers=producers)
    write_indexes(directory, piece.base_offset, swept, config=config, active=False, suffix=CLEANED)
    for name in _names(directory, piece.base_offset, CLEANED):
        with suppress(FileNotFoundError):
            io.dress_like(name, found)
            io.set_modified(name, found.st_mtime_ns)
    return swept


def _names(directory: Path, base_offset: int, suffix: str) -> Iterator[Path]:
    for kind in _KINDS:
        yield directory / (segment_name(base_offset, kind) + suffix)


def _rename(directory: Path, piece: SplitPiece, old: str, new: str) -> None:
    pairs = zip(
        _names(directory, piece.base_offset, old),
        _names(directory, piece.base_offset, new),
        strict=True,
    )
    for source, target in pairs:
        with suppress(FileNotFoundError):
            io.rename(source, target)


def _delete_old(plan: SplitPlan) -> None:
    """Take the old segment's files away, but for those that new ones replace by their names.

    If there are none such, the segment's snapshot is of no use either.
    """
    stem = plan.path.name.partition(".")[0]
    kinds = [".txnindex", ".timeindex", ".index", ".log"]
    if plan.pieces[0].base_offset != plan.base_offset:
        kinds.append(".snapshot")
    for kind in kinds:
        old = plan.path.with_name(stem + kind)
        if not old.with_name(old.name + SWAP).exists():
            io.unlink(old, missing_ok=True)


# ---- while a log is loaded -----------------------------------------------------------------------
# A step of loading that meets a segment whose offsets overflow begins again once it is split.
# Source: Kafka `LogLoader.retryOnOffsetOverflow`.

_T = TypeVar("_T")
#: Plans a split of a log, of its first bytes if a size is given.
_Planner = Callable[..., SplitPlan]
#: Each split leaves one segment less that overflows, unless something is very wrong.
_SPLITS_MAX: Final = 10_000


def retried(context: LoadContext, step: Callable[[], _T]) -> _T:
    """Take a step, splitting each segment that it finds overflowed.

    Raises:
        OffsetOverflowError: a segment overflows that cannot be split.
    """
    for _ in range(_SPLITS_MAX):
        try:
            return step()
        except OffsetOverflowError as error:
            _split(context, error)
    raise OffsetOverflowError("splits do not come to an end", path=context.overlay.directory)


def _split(context: LoadContext, error: OffsetOverflowError) -> None:
    name = str(error.path).rpartition("/")[2]
    base = offset_from_file_name(name)
    overlay = context.overlay
    file = overlay.files.get(file_of(base, LOG))
    if file is None or file.part or file.data is not None:
        raise error
    if error.offset == LAST_OFFSET_MAX + 1:  # no split makes room behind the last offset of all
        raise error
    if context.careful:
        if not overflows(context, base):
            raise error
        plan_it = _plan_careful
    else:
        plan_it = _plan_as_broker
    try:
        plan = plan_it(Path(file.source), context.inputs.config, file.size)
    except ValueError as refused:
        raise (refused if isinstance(refused, KsegError) else error) from None
    bases = [piece.base_offset for piece in plan.pieces]
    if bases == [base]:
        raise error
    known = base in context.bases
    context.bases = [kept for kept in context.bases if kept != base]
    context.outcomes.pop(base, None)
    # Kafka deletes a segment that it has split only if it has found all segments already.
    stays = not context.careful and not known and base not in bases
    _replace(context, plan, base, bases, plan_it, stays=stays)
    for piece in bases if known else ():
        context.add(piece)


def _replace(
    context: LoadContext,
    plan: SplitPlan,
    base: int,
    bases: list[int],
    plan_it: _Planner,
    *,
    stays: bool,
) -> None:
    """Put the pieces into the segment's place; nothing else makes or removes their files.

    If `stays`, they come beside the segment, whose offset index is empty from then on.
    """
    context.known_snapshots = None
    name = file_of(base, LOG)
    for piece in plan.pieces:
        if piece.base_offset != base:
            context.replace_log(piece.base_offset, context.overlay.files[name].source, piece.start)
    gone = [INDEX, TIMEINDEX, TXNINDEX, *([] if base in bases else [SNAPSHOT])]
    others = dict.fromkeys((file_of(base, kind) for kind in gone if not stays), False)
    others |= dict.fromkeys((file_of(p, kind) for p in bases for kind in (INDEX, TIMEINDEX)), True)
    context.overlay.split(
        name,
        {file_of(p.base_offset, LOG): (p.start, p.end) for p in plan.pieces},
        others,
        "offsets overflow",
        partial(
            _split_on_disk,
            name=name,
            config=context.inputs.config,
            plan_it=plan_it,
            stays=stays,
        ),
        stays=stays,
    )
    if stays:
        context.overlay.put(file_of(base, INDEX), b"", "emptied before the split")


def _split_on_disk(
    directory: Path, *, name: str, config: LogConfig, plan_it: _Planner, stays: bool
) -> None:
    """Apply the plan to the log, which may have another name since, and may have been cut."""
    apply_split(plan_it(directory / name, config), config=config, stays=stays)


def _plan_careful(path: Path, config: LogConfig, size: int | None = None) -> SplitPlan:
    del config
    return _plan(path, size)[0]


def overflows(context: LoadContext, base: int) -> bool:
    """Whether a segment's last batch has no 32-bit offset, as a split is to mend it.

    Such a batch in the middle of others with 32-bit offsets, or one that reaches into the segments
    behind, is damage and no overflow. Kafka splits there too.

    Source: Kafka `LogSegment.hasOverflow`.
    """
    last = base
    with context.open(base) as segment:
        for table in segment.headers(policy="file"):
            if len(table):
                last = int(table.last_offset[-1])
    if last <= base + _INT32_MAX:
        return False
    return not any(base < other <= last for other in context.bases)


# ---- exactly as Kafka splits ---------------------------------------------------------------------


def _plan_as_broker(path: Path, config: LogConfig, size: int | None = None) -> SplitPlan:
    """Where Kafka would cut, be the offsets in order or not; with its exceptions.

    Raises:
        KsegError: Kafka fails; `kafka_exception` says with what, None where that is not known.

    Source: Kafka `LocalLog.splitOverflowedSegment`, `LogSegment.hasOverflow`.
    """
    before = os.stat(path)
    size = before.st_size if size is None else size
    with Segment.open(path, mapping="never", size=size, is_last=True) as segment:
        base, last = segment.base_offset, -1
        cuts = _BrokerCuts(segment, config)
        for table in segment.headers(policy="file"):
            if len(table):
                last = int(table.last_offset[-1])
                cuts.feed(table)
        if table.stop in RAISED:
            raise at_path(stop_error(table), path)
    if last <= base + _INT32_MAX:
        raise _failing(path, 0, "it is to be split, and its end does not overflow", _REQUIRED)
    if cuts.error is not None:
        raise cuts.error
    if table.end_position < size:
        raise _failing(path, table.end_position, "a split comes to a torn end", _NO_ELEMENT)
    if len(set(cuts.bases)) < len(cuts.bases):
        raise KsegError("a split gives two segments one name", path=path)
    ends = [*cuts.starts[1:], size]
    pieces = map(SplitPiece, cuts.bases, cuts.starts, ends)
    rising = sorted(pieces, key=lambda piece: piece.base_offset)
    return SplitPlan(path, base, tuple(rising), before.st_mtime_ns, before.st_ino)


class _BrokerCuts:
    """Where Kafka begins new segments, batch after batch.

    Attributes:
        starts, bases: of the segments, in the order of their bytes.
        error: the first with which Kafka fails.
    """

    def __init__(self, segment: Segment, config: LogConfig) -> None:
        self._segment, self._config = segment, config
        self._entries = DerivedEntries(0, config, careful=False)
        self.starts: list[int] = []
        self.bases: list[int] = []
        self.error: KsegError | None = None

    def feed(self, table: BatchTable) -> None:
        """Take in the next batches."""
        while len(table) and self.error is None:
            count = self._fitting(table)
            if not count:
                self._begin(int(table.position[0]), int(table.last_offset[0]))
                continue
            self._append(table.take(slice(count)))
            table = table.take(slice(count, None))

    def _fitting(self, table: BatchTable) -> int:
        """How many batches the segment takes: those with offsets of 32 bits from its base on."""
        if not self.bases:
            return 0
        base = self.bases[-1]
        most = min(base + _INT32_MAX, INT64_MAX)
        wrong = np.flatnonzero((table.last_offset < base) | (table.last_offset > most))
        return int(wrong[0]) if len(wrong) else len(table)

    def _begin(self, position: int, last: int) -> None:
        """A segment begins with the batch at a position, which it takes next."""
        base = _first_offset(self._segment, position)
        self.starts.append(position)
        self.bases.append(base)
        self._entries = DerivedEntries(base, self._config, careful=False)
        if not base <= last <= base + _INT32_MAX:
            why = f"its first offset is {base}: no segment of its own can hold it"
            self.error = _failing(self._segment.path, position, why, "IllegalStateException")

    def _append(self, table: BatchTable) -> None:
        """Source: Kafka `LogSegment.append`."""
        position = int(table.position[0])
        if ((table.magic < 0) | (table.magic > 2)).any():
            why = "a magic byte that no batch has"
            self.error = _failing(self._segment.path, position, why, "CorruptRecordException")
            return
        refusal = self._entries.add(table)[1]
        if refusal is not None:
            full = not isinstance(refusal, OffsetsOutOfOrderError)
            exception = _REQUIRED if full else "InvalidOffsetException"
            self.error = _failing(self._segment.path, position, refusal.reason, exception)


def _failing(path: Path, position: int, reason: str, exception: str) -> OffsetOverflowError:
    error = OffsetOverflowError(reason, path=path, position=position)
    return error.as_kafka(exception)


__all__ = [
    "SplitPiece",
    "SplitPlan",
    "apply_split",
    "overflows",
    "plan_split",
    "retried",
]
