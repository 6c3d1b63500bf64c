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

from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.analysis.diff.ranges import RangeList
from kseg.analysis.diff.records import compare_records
from kseg.analysis.diff.values import BatchSeen, Compared, CopySeen, Difference
from kseg.format.header import FIELDS, BatchHeader
from kseg.log.copies import EPOCH, FILE, FIRST, LAST, overlapping, touches, twins, without

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.log.copies import Copy

    Offsets = npt.NDArray[np.int64]
    Rows = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Sides = tuple[Rows, Rows]


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


__all__ = ["Pair"]
