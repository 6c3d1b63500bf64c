"""Two copies against each other, a window of offsets at a time, without a loop over batches.

A batch is the same in both if all fields of its headers but the leader epoch are, its checksum
among them: so no record is looked at. What is left over on one side is

    differing   the other copy has other batches with offsets of it
    ahead       it lies behind the end of the other copy
    unknown     it lies where the other copy is damaged
    lacking     none of these: the other copy lacks it

With `--records`, the records of what differs or lacks are compared by their offsets. What lies in
front of the later log start of both is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.analysis.diff.values import (
    LISTED_MAX,
    BatchSeen,
    Compared,
    CopySeen,
    Difference,
    OffsetRange,
    Ranges,
)
from kseg.format.header import FIELDS, BatchHeader
from kseg.format.take import take_binary, take_headers, take_rows
from kseg.log.copies import (
    EPOCH,
    FILE,
    FIRST,
    LAST,
    OFFSETS_END,
    POSITION,
    SIZE,
    overlapping,
    touches,
    twins,
    without,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns
    from kseg.log.copies import Copy

    Offsets = npt.NDArray[np.int64]
    Rows = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Sides = tuple[Rows, Rows]


def joined(first: Offsets, last: Offsets) -> tuple[Offsets, Offsets]:
    """Ranges with those joined that touch or overlap.

    Args:
        first, last: of each range, int64[n], in any order.

    Returns:
        The same offsets as ranges that ascend.
    """
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    begins = np.ones(len(first), np.bool_)
    begins[1:] = first[1:] > last[:-1] + 1
    ends = np.append(begins[1:], True)[: len(first)]
    return first[begins], last[ends]


class RangeList:
    """Ranges as they are found, by offset; it stays small, whatever their number.

    Attributes:
        listed: first and last offset of the first `LISTED_MAX`.
        count: of all.
        batches: that lie in them.
    """

    __slots__ = ("_last", "batches", "count", "listed")

    def __init__(self) -> None:
        """Start without any."""
        self.listed: list[tuple[int, int]] = []
        self.count = self.batches = 0
        self._last: int | None = None

    def add(self, first: Offsets, last: Offsets, batches: int) -> None:
        """Note ranges behind those before."""
        if not len(first):
            return
        first, last = joined(first, last)
        self.batches += batches
        goes_on = self._last is not None and int(first[0]) <= self._last + 1
        if goes_on and self.count == len(self.listed):
            self.listed[-1] = (self.listed[-1][0], int(last[0]))
        self.count += len(first) - goes_on
        at = int(goes_on)
        left = LISTED_MAX - len(self.listed)
        self.listed += zip(
            first[at : at + left].tolist(), last[at : at + left].tolist(), strict=True
        )
        self._last = int(last[-1])

    def value(self) -> Ranges:
        """What was noted."""
        listed = tuple(OffsetRange(*each) for each in self.listed)
        return Ranges(listed, self.count, self.batches)


# ---- records -------------------------------------------------------------------------------------

_FIELDS: Final = ("offset", "leader_epoch", "timestamp", "key", "value", "headers")
_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RecordsFound:
    """What some records of both came to, as offsets, int64[n], ascending.

    Attributes:
        differing: both have a record there, and these differ.
        epochs: the same record under another leader epoch.
        lacks: by copy, what it has and the other one lacks.
        compacted: the same, where compaction has taken it from the other one.
    """

    differing: Offsets
    epochs: Offsets
    lacks: tuple[Offsets, Offsets]
    compacted: tuple[Offsets, Offsets]


def compare_records(copies: tuple[Copy, Copy], sides: tuple[Rows, Rows]) -> Iterator[RecordsFound]:
    """Compare the records of some batches of two copies.

    Args:
        copies: both.
        sides: the batches of each, by offset.

    Raises:
        KsegError, OSError: a file has changed, or a batch cannot be decoded.
    """
    pieces = (_pieces(copies[0], sides[0]), _pieces(copies[1], sides[1]))
    for one, other in _aligned(*pieces):
        yield _compared(copies, sides, (one, other))


def _pieces(copy: Copy, rows: Rows) -> Iterator[RecordColumns]:
    """The records of batches as columns, a bounded piece at a time."""
    if not len(rows):
        return
    ends = rows[:, POSITION] + rows[:, SIZE]
    breaks = (rows[1:, POSITION] != ends[:-1]) | (rows[1:, FILE] != rows[:-1, FILE])
    begins = np.flatnonzero(np.concatenate(([True], breaks)))
    lasts = np.append(begins[1:], len(rows)) - 1
    for begin, last in zip(begins.tolist(), lasts.tolist(), strict=True):
        with copy.open_segment(int(rows[begin, FILE])) as segment:
            yield from segment.read(
                start_position=int(rows[begin, POSITION]),
                end_position=int(ends[last]),
                fields=_FIELDS,
                control=True,
                verify_crc=False,
            )


def _aligned(
    one: Iterator[RecordColumns], other: Iterator[RecordColumns]
) -> Iterator[tuple[RecordColumns | None, RecordColumns | None]]:
    """Pieces of both with all records up to the same offset."""
    held = [next(one, None), next(other, None)]
    sources = (one, other)
    while held[0] is not None or held[1] is not None:
        until = min(OFFSETS_END if piece is None else int(piece.offset[-1]) for piece in held)
        taken: list[RecordColumns | None] = []
        for side, piece in enumerate(held):
            count = 0 if piece is None else int(np.searchsorted(piece.offset, until, side="right"))
            if piece is None or count == len(piece):
                taken.append(piece)
                held[side] = None if piece is None else next(sources[side], None)
                continue
            taken.append(take_rows(piece, np.arange(count)) if count else None)
            held[side] = take_rows(piece, np.arange(count, len(piece)))
        yield taken[0], taken[1]


def _compared(
    copies: tuple[Copy, Copy],
    sides: tuple[Rows, Rows],
    pieces: tuple[RecordColumns | None, RecordColumns | None],
) -> RecordsFound:
    offsets = [_NONE if piece is None else piece.offset for piece in pieces]
    common, mine, theirs = np.intersect1d(offsets[0], offsets[1], return_indices=True)
    differing = epochs = _NONE
    if pieces[0] is not None and pieces[1] is not None and len(common):
        one, other = take_rows(pieces[0], mine), take_rows(pieces[1], theirs)
        differs = _differing(one, other)
        differing = common[differs]
        epochs = common[~differs & (one.leader_epoch != other.leader_epoch)]
    lacks, compacted = [], []
    for side in (0, 1):
        alone = np.setdiff1d(offsets[side], common, assume_unique=True)
        gone = _is_compacted(alone, copies[1 - side], sides[1 - side])
        lacks.append(alone[~gone])
        compacted.append(alone[gone])
    return RecordsFound(differing, epochs, (lacks[0], lacks[1]), (compacted[0], compacted[1]))


def _is_compacted(offsets: Offsets, other: Copy, rows: Rows) -> Mask:
    """bool[n]: what the other copy lacks because it was compacted.

    That is what lies in front of its clean offset, or inside one of its batches: Kafka writes no
    batch with a gap, but the cleaner keeps the first and the last offset of one that it thins out.
    """
    at = np.searchsorted(rows[:, LAST], offsets)
    inside = np.zeros(len(offsets), np.bool_)
    known = at < len(rows)
    inside[known] = rows[at[known], FIRST] <= offsets[known]
    return inside | (offsets < other.clean_offset)


# ---- columns -------------------------------------------------------------------------------------


def _differing(one: RecordColumns, other: RecordColumns) -> Mask:
    """bool[n]: which of the records of two pieces of one length differ."""
    differs: Mask = one.timestamp != other.timestamp
    differs |= _differing_binary(one.key, other.key)
    differs |= _differing_binary(one.value, other.value)
    differs |= _differing_headers(one.headers, other.headers)
    return differs


def _differing_binary(one: BinaryColumn, other: BinaryColumn) -> Mask:
    sizes = one.sizes()
    differs: Mask = sizes != other.sizes()
    if not differs.any() and np.array_equal(one.data, other.data):
        return differs
    alike = np.flatnonzero(~differs)
    mine, theirs = take_binary(one, alike), take_binary(other, alike)
    at = np.flatnonzero(mine.data != theirs.data)
    rows = np.searchsorted(mine.offsets, at, side="right") - 1
    differs[alike[rows]] = True
    return differs


def _differing_headers(one: HeadersColumn, other: HeadersColumn) -> Mask:
    counts = np.diff(one.offsets)
    differs: Mask = counts != np.diff(other.offsets)
    alike = np.flatnonzero(~differs)
    mine, theirs = take_headers(one, alike), take_headers(other, alike)
    inner = _differing_binary(mine.keys, theirs.keys)
    inner |= _differing_binary(mine.values, theirs.values)
    owners = np.repeat(alike, counts[alike])
    differs[owners[inner]] = True
    return differs


# ---- compare -------------------------------------------------------------------------------------


class Pair:
    """A copy and the first one of its partition, as far as they were compared."""

    def __init__(self, first: Copy, other: Copy, *, records: bool) -> None:
        """Start in front of both."""
        self._copies: Final = (first, other)
        self._start: Final = max(first.start_offset, other.start_offset)
        self._unknown: Final = (first.unknown_ranges, other.unknown_ranges)
        self._by_records: Final = records
        self._same = 0
        self._epochs = RangeList()
        self._lacks = (RangeList(), RangeList())
        self._compacted = (RangeList(), RangeList())
        self._ahead = [0, 0]
        self._differing = RangeList()
        self._batches: list[tuple[BatchSeen, BatchSeen]] = []

    def feed(self, one: Rows, other: Rows) -> None:
        """Compare the batches of a window, of the first copy and of the other one."""
        mine, theirs = twins(one, other)
        self._same += len(mine)
        self._note_epochs(one[mine], other[theirs])
        if len(mine) == len(one) == len(other):
            return
        left = (self._compared(without(one, mine)), self._compared(without(other, theirs)))
        differs = (overlapping(left[0], left[1]), overlapping(left[1], left[0]))
        lacking = (
            self._lacking(0, left[0][~differs[0]]),
            self._lacking(1, left[1][~differs[1]]),
        )
        differing = (left[0][differs[0]], left[1][differs[1]])
        if self._by_records:
            self._feed_records(differing, lacking)
            return
        self._note_differing(differing, *_offsets_of(np.concatenate(differing)))
        for side in (0, 1):
            self._lacks[side].add(*_offsets_of(lacking[side]))

    def _compared(self, rows: Rows) -> Rows:
        return rows[rows[:, LAST] >= self._start]

    def _note_epochs(self, one: Rows, other: Rows) -> None:
        differ = one[:, EPOCH] != other[:, EPOCH]
        if differ.any():
            rows = self._compared(one[differ])
            self._epochs.add(*_offsets_of(rows))

    def _lacking(self, side: int, rows: Rows) -> Rows:
        """What the other copy lacks, out of batches that no batch of it overlaps."""
        return rows[self._known_to(1 - side, rows[:, FIRST], rows[:, LAST])]

    def _known_to(self, side: int, first: Offsets, last: Offsets) -> Mask:
        """bool[n]: of which ranges a copy knows that it has them or not; counts those behind it."""
        behind = first >= self._copies[side].end_offset
        self._ahead[1 - side] += int(behind.sum())
        return ~behind & ~touches(first, last, self._unknown[side])

    def _note_differing(self, sides: Sides, first: Offsets, last: Offsets, count: int) -> None:
        """Note ranges of offsets, with the first batch of each side in those that are listed."""
        self._differing.add(first, last, count)
        for begins, _ in self._differing.listed[len(self._batches) :]:
            one, other = (
                _batch_from(copy, rows, begins)
                for copy, rows in zip(self._copies, sides, strict=True)
            )
            self._batches.append((one, other))

    def _feed_records(self, differing: Sides, lacking: Sides) -> None:
        """The same by records: those of batches that differ, and of those that one side lacks."""
        sides = (_merged(differing[0], lacking[0]), _merged(differing[1], lacking[1]))
        for found in compare_records(self._copies, sides):
            self._note_differing(differing, found.differing, found.differing, len(found.differing))
            self._epochs.add(found.epochs, found.epochs, len(found.epochs))
            for side in (0, 1):
                for ranges, offsets in (
                    (self._lacks[side], found.lacks[side]),
                    (self._compacted[side], found.compacted[side]),
                ):
                    known = self._known_to(1 - side, offsets, offsets)
                    offsets = offsets[known & (offsets >= self._start)]
                    ranges.add(offsets, offsets, len(offsets))

    def value(self, other: CopySeen) -> Compared:
        """What was found."""
        listed = zip(self._differing.listed, self._batches, strict=True)
        return Compared(
            other,
            self._relation(),
            self._same,
            tuple(Difference(*offsets, batches) for offsets, batches in listed),
            self._differing.count,
            self._epochs.value(),
            (self._lacks[0].value(), self._lacks[1].value()),
            (self._ahead[0], self._ahead[1]),
            (self._compacted[0].value(), self._compacted[1].value()),
        )

    def _relation(self) -> str:
        if self._differing.count:
            return "diverged"
        if self._epochs.count:
            return "epochs"
        if self._lacks[0].count or self._lacks[1].count:
            return "holes"
        if any(copy.unknown for copy in self._copies):
            return "unknown"
        return "prefix" if any(self._ahead) else "same"


def _offsets_of(rows: Rows) -> tuple[Offsets, Offsets, int]:
    return rows[:, FIRST], rows[:, LAST], len(rows)


def _merged(one: Rows, other: Rows) -> Rows:
    """Rows of one copy in their order again."""
    rows = np.concatenate((one, other))
    return rows[np.argsort(rows[:, LAST], kind="stable")]


def _batch_from(copy: Copy, rows: Rows, offset: int) -> BatchSeen:
    """The first batch that ends at an offset or later."""
    at = min(int(np.searchsorted(rows[:, LAST], offset)), len(rows) - 1)
    row = rows[at].tolist()
    return BatchSeen(copy.files[row[FILE]], BatchHeader(*row[: len(FIELDS)]))


__all__ = ["Pair", "RangeList", "RecordsFound", "compare_records", "joined"]
