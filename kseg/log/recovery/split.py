"""A split: a segment with offsets that have no 32-bit form becomes several without such offsets.

Compaction before Kafka 1.1 could join segments so that their indexes cannot be made. The batches
are copied unchanged into segments that each begin at the base offset of their first batch. The
bytes behind the last sound batch in order go into the last segment, and recovery decides about
them.

The new files come in through `.cleaned` and `.swap`. At every moment a loader finds the old segment
whole or all of the new ones, whichever of the names have reached the disk. Kafka leaves the files
of the old segment where the first new one has another name; here they are deleted.

Source: Kafka `LocalLog.splitOverflowedSegment`, `LocalLog.replaceSegments`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from kseg.constants import INT32_MAX, INT64_MAX
from kseg.errors import KsegError, OffsetOverflowError, OffsetsOutOfOrderError, at_path
from kseg.files import io
from kseg.files.atomic import replace_file
from kseg.files.grammar import offset_from_file_name
from kseg.format.header import BatchTable, stop_error
from kseg.log.config import LogConfig
from kseg.log.recovery.backup import copy_bytes
from kseg.log.recovery.load_context import (
    INDEX,
    LOG,
    SNAPSHOT,
    TIMEINDEX,
    TXNINDEX,
    LoadContext,
    file_of,
)
from kseg.log.recovery.raw_lookups import RAISED
from kseg.log.recovery.sweep import DerivedEntries, Swept, sweep_segment
from kseg.log.segment.reader import Segment
from kseg.log.validate.batches import out_of_order
from kseg.log.validate.rules import LAST_OFFSET_MAX

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
#: Kafka's exception if it requires an overflow, or room in an index; and that behind the last
#: batch.
_REQUIRED: Final = "IllegalArgumentException"
_NO_ELEMENT: Final = "NoSuchElementException"
#: The files of a new segment, in the order in which Kafka renames them.
_KINDS: Final = (LOG, INDEX, TIMEINDEX)


@dataclass(frozen=True, slots=True)
class SplitPiece:
    """One of the new segments: its base offset, and which bytes of the old log it gets."""

    base_offset: int
    start: int
    end: int


def plan_split(
    path: Path, config: LogConfig, *, careful: bool = True, size: int | None = None
) -> tuple[SplitPiece, ...]:
    """Find where a log would be cut; changes nothing.

    Args:
        path: the log file.
        config: of the log; Kafka fails where an index is full.
        careful: cut only in front of batches that are sound and in order. Otherwise cut where Kafka
            would, and fail where it fails; `kafka_exception` names its exception if that is known.
        size: the bytes of the file that count; all of them if None.

    Returns:
        The new segments, by base offset; together they have every byte. Empty if a careful plan
        finds no offset that overflows.

    Raises:
        OffsetOverflowError: one batch alone overflows.
        KsegError: Kafka fails.
        OSError: the file is missing or cannot be read.

    Source: Kafka `LocalLog.splitOverflowedSegment`, `LogSegment.hasOverflow`.
    """
    size = os.stat(path).st_size if size is None else size
    with Segment.open(path, mapping="never", size=size, is_last=True) as segment:
        cuts = _Cuts(segment, config, careful=careful)
        for table in _tables(segment, careful=careful):
            if not cuts.feed(table):
                break
        overflows = cuts.last_offset > segment.base_offset + INT32_MAX
    if careful:
        return cuts.pieces(size) if overflows else ()
    if table.stop in RAISED:
        raise at_path(stop_error(table), path)
    if not overflows:
        raise _failing(path, 0, "it is to be split, and its end does not overflow", _REQUIRED)
    if cuts.error is not None:
        raise cuts.error
    if table.end_position < size:
        raise _failing(path, table.end_position, "a split ends at a torn end", _NO_ELEMENT)
    if len(set(cuts.bases)) < len(cuts.bases):
        raise KsegError("a split gives two segments one name", path=path)
    return cuts.pieces(size)


def _tables(segment: Segment, *, careful: bool) -> Iterable[BatchTable]:
    """The batches to be cut: sound ones, or all that Kafka would walk over."""
    if careful:
        return (tile.table for tile in segment.walk(on_bad_crc="stop"))
    return segment.headers(policy="file")


class _Cuts:
    """Where new segments begin, batch after batch.

    Attributes:
        starts, bases: of the segments, in the order of their bytes.
        last_offset: of the last batch.
        error: the first with which Kafka fails.
    """

    def __init__(self, segment: Segment, config: LogConfig, *, careful: bool) -> None:
        self._segment, self._config, self._careful = segment, config, careful
        self._entries = DerivedEntries(0, config, careful=False)
        self.starts: list[int] = []
        self.bases: list[int] = []
        self.last_offset = -1
        self.error: KsegError | None = None

    def pieces(self, size: int) -> tuple[SplitPiece, ...]:
        """The new segments of a log with so many bytes, by base offset."""
        found = map(SplitPiece, self.bases, self.starts, [*self.starts[1:], size])
        return tuple(sorted(found, key=lambda piece: piece.base_offset))

    def feed(self, table: BatchTable) -> bool:
        """Take the next batches; returns whether to go on."""
        if not self._careful:
            self._take(table)
            self.last_offset = int(table.last_offset[-1]) if len(table) else self.last_offset
            return True
        wrong = np.flatnonzero(out_of_order(table, self.last_offset))
        if not len(wrong):
            return self._take(table)
        count, last = int(wrong[0]), table.last_offset
        # An offset that the next batch does not follow is wrong rather than far.
        self._take(table.take(slice(count)), astray=count > 0 and last[count] <= last[count - 1])
        return False

    def _take(self, table: BatchTable, *, astray: bool = False) -> bool:
        """Take batches; the last one, if it is `astray`, only if it begins no segment."""
        while len(table) and self.error is None:
            count = self._fitting(table)
            if count:
                self._append(table.take(slice(count)))
                table = table.take(slice(count, None))
            elif self.bases and astray and len(table) == 1:
                break
            else:
                self._begin(int(table.position[0]), int(table.last_offset[0]))
        return True

    def _fitting(self, table: BatchTable) -> int:
        """How many batches the segment takes: those with offsets of 32 bits from its base on."""
        if not self.bases:
            return 0
        wrong = table.last_offset > min(self.bases[-1] + INT32_MAX, INT64_MAX)
        if not self._careful:
            wrong |= table.last_offset < self.bases[-1]
        return int(wrong.argmax()) if wrong.any() else len(table)

    def _begin(self, position: int, last: int) -> None:
        """A segment begins with the batch at a position, which it takes next."""
        base, path = _first_offset(self._segment, position), self._segment.path
        self.starts.append(position)
        self.bases.append(base)
        self._entries = DerivedEntries(base, self._config, careful=False)
        if self._careful and last > base + INT32_MAX:
            why = f"one batch alone reaches too far from its first offset, {base}"
            raise OffsetOverflowError(why, path=path, position=position, offset=last)
        if not self._careful and not base <= last <= base + INT32_MAX:
            why = f"its first offset is {base}: no segment of its own can hold it"
            self.error = _failing(path, position, why, "IllegalStateException")

    def _append(self, table: BatchTable) -> None:
        """Source: Kafka `LogSegment.append`."""
        if self._careful:
            self.last_offset = int(table.last_offset[-1])
            return
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


# ---- on the disk ---------------------------------------------------------------------------------


def split_log(
    path: Path, config: LogConfig, *, careful: bool = True, stays: bool = False
) -> tuple[Swept, ...]:
    """Replace a segment that overflows by new ones; all durable when this returns.

    If it is killed, the next load removes its leftovers (`load.clear`), and a new split gives the
    same bytes. The caller holds the lock of the directory. The transaction index is lost, as in
    Kafka, so the new segments must be recovered.

    Args:
        path: the log file.
        config: of the log.
        careful: see `plan_split`.
        stays: leave the old segment beside the new ones.

    Returns:
        The walk over each new segment, by base offset.

    Raises:
        KsegError: see `plan_split`; nothing was done.
        OSError: the disk refuses.
    """
    pieces, directory = plan_split(path, config, careful=careful), path.parent
    swept = tuple(_write(path, piece, config) for piece in pieces)
    io.flush_directory(directory)
    # As long as the first one is `.cleaned`, a loader throws all of them away.
    for some in (pieces[:0:-1], pieces[:1]):
        _rename(directory, some, CLEANED, SWAP)
    if not stays:
        _delete_old(path, [piece.base_offset for piece in pieces])
        io.flush_directory(directory)
    _rename(directory, pieces, SWAP, "")
    return swept


def _write(path: Path, piece: SplitPiece, config: LogConfig) -> Swept:
    """Make the `.cleaned` files of a new segment."""
    names = [path.parent / (file_of(piece.base_offset, kind) + CLEANED) for kind in _KINDS]
    for name in names:
        io.unlink(name, missing_ok=True)
    with io.WriteFile.open(names[0], exclusive=True) as target:
        with io.opened(path) as fd:
            found = os.fstat(fd)
            copy_bytes(path, fd, (piece.start, piece.end), target)
        target.flush()
    with Segment.open(names[0], mapping="never", is_last=True) as segment:
        swept = sweep_segment(segment, config=config)
    for name, entries in zip(names[1:], (swept.offset_entries, swept.time_entries), strict=True):
        replace_file(name, entries, flush_directory=False)
    for name in names:
        io.dress_like(name, found)
        io.set_modified(name, found.st_mtime_ns)
    return swept


def _rename(directory: Path, pieces: Iterable[SplitPiece], old: str, new: str) -> None:
    for piece in pieces:
        for kind in _KINDS:
            name = file_of(piece.base_offset, kind)
            io.rename(directory / (name + old), directory / (name + new))
    io.flush_directory(directory)


def _delete_old(path: Path, bases: list[int]) -> None:
    """Remove the old segment's files, except those that new ones replace by their names.

    If no new segment has its name, the segment's snapshot is of no use either.
    """
    stem = path.name.partition(".")[0]
    kinds = [TXNINDEX, TIMEINDEX, INDEX, LOG]
    if offset_from_file_name(path.name) not in bases:
        kinds.append(SNAPSHOT)
    for kind in kinds:
        old = path.with_name(f"{stem}.{kind}")
        if not old.with_name(old.name + SWAP).exists():
            io.unlink(old, missing_ok=True)


# ---- while a log is loaded -----------------------------------------------------------------------
# A step of loading that meets a segment whose offsets overflow begins again once it is split.
# Source: Kafka `LogLoader.retryOnOffsetOverflow`.

_T = TypeVar("_T")
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
    """Split the segment of an error, in the overlay."""
    base = offset_from_file_name(str(error.path).rpartition("/")[2])
    file = context.overlay.files.get(file_of(base, LOG))
    if file is None or not file.is_on_disk:
        raise error
    if error.offset == LAST_OFFSET_MAX + 1:  # no split makes room behind the last offset of all
        raise error
    if context.careful and not overflows(context, base):
        raise error
    config, careful = context.inputs.config, context.careful
    try:
        pieces = plan_split(Path(file.source), config, careful=careful, size=file.size)
    except ValueError as refused:  # no index entry has a negative base
        raise (refused if isinstance(refused, KsegError) else error) from None
    bases = [piece.base_offset for piece in pieces]
    if bases in ([], [base]):
        raise error
    known = base in context.bases
    context.bases = [kept for kept in context.bases if kept != base]
    context.outcomes.pop(base, None)
    # Kafka deletes a segment that it has split only if it has found all segments already.
    stays = not careful and not known and base not in bases
    _replace(context, base, pieces, stays=stays)
    for piece in bases if known else ():
        context.add(piece)


def _replace(
    context: LoadContext, base: int, pieces: tuple[SplitPiece, ...], *, stays: bool
) -> None:
    """Put the pieces into the segment's place; nothing else makes or removes their files.

    If `stays`, they come beside the segment, whose offset index is empty from then on.
    """
    context.known_snapshots = None
    overlay, config, careful = context.overlay, context.inputs.config, context.careful
    name, bases = file_of(base, LOG), [piece.base_offset for piece in pieces]
    for piece in pieces:
        if piece.base_offset != base:
            context.replace_log(piece.base_offset, overlay.files[name].source, piece.start)
    gone = [INDEX, TIMEINDEX, TXNINDEX, *([] if base in bases else [SNAPSHOT])]
    others = dict.fromkeys((file_of(base, kind) for kind in gone if not stays), False)
    others |= dict.fromkeys((file_of(p, kind) for p in bases for kind in (INDEX, TIMEINDEX)), True)

    def split_on_disk(directory: Path) -> None:
        """Plan again: the log may have another name since, and may have been cut."""
        split_log(directory / name, config, careful=careful, stays=stays)

    parts = {file_of(p.base_offset, LOG): (p.start, p.end) for p in pieces}
    overlay.split(name, parts, others, "offsets overflow", split_on_disk, stays=stays)
    if stays:
        overlay.put(file_of(base, INDEX), b"", "emptied before the split")


def overflows(context: LoadContext, base: int) -> bool:
    """Whether a segment's last batch has no 32-bit offset, as a split is to mend it.

    A batch of this kind in the middle of others with 32-bit offsets, or one that reaches into the
    segments behind, is damage and not an overflow. Kafka splits there too.

    Source: Kafka `LogSegment.hasOverflow`.
    """
    last = base
    with context.open(base) as segment:
        for table in segment.headers(policy="file"):
            if len(table):
                last = int(table.last_offset[-1])
    if last <= base + INT32_MAX:
        return False
    return not any(base < other <= last for other in context.bases)
