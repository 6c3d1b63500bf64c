"""Which of the offsets that no copy has are missing.

Where each copy has a record for each offset, all of them are. Where compaction has left holes, a
gap that all copies have is no loss, unless damage of one of them hides what was there. That damage
is made good where other copies give as many bytes for those offsets as are damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.log.copies.table import FIRST, LAST, OFFSETS_END, SIZE, touches
from kseg.log.copies.values import Missing

if TYPE_CHECKING:
    from kseg.log.copies.source import Copy
    from kseg.log.copies.table import Mask, Offsets, Rows

#: So many ranges are told apart; the last one reaches over all that follow.
MISSING_MAX: Final = 10_000


@dataclass(slots=True, eq=False)
class _Hidden:
    """What damage of a copy hides: ranges of offsets, damaged bytes, bytes that others gave."""

    ranges: Rows
    damaged: Offsets
    given: Offsets

    @classmethod
    def of(cls, copy: Copy, cut: int) -> _Hidden:
        """In front of the offset where the copy is cut."""
        damaged = np.array([lost.bytes for lost in copy.unknown], np.int64)
        before = copy.unknown_ranges[:, 0] < cut
        ranges = np.minimum(copy.unknown_ranges[before], cut - 1 if cut < OFFSETS_END else cut)
        return cls(ranges, damaged[before], np.zeros(len(ranges), np.int64))

    def give(self, rows: Rows) -> None:
        """Note batches that are taken."""
        # By the last offset: the first one of a compressed message may be a guess.
        at = np.searchsorted(self.ranges[:, 1], rows[:, LAST])
        inside = np.flatnonzero(at < len(self.ranges))
        inside = inside[self.ranges[at[inside], 0] <= rows[inside, LAST]]
        np.add.at(self.given, at[inside], rows[inside, SIZE])

    @property
    def left(self) -> Rows:
        """The ranges that are not made good."""
        return self.ranges[self.given < self.damaged]


class Gaps:
    """Offsets that no copy has, as they are found.

    Attributes:
        is_dense: whether each copy has a record for each offset, but for damage.
    """

    def __init__(self, copies: Sequence[tuple[Copy, int]]) -> None:
        """Start without any.

        Args:
            copies: each with the offset where it is cut.
        """
        self._hidden: Final = [_Hidden.of(copy, cut) for copy, cut in copies]
        self._found: list[tuple[int, int]] = []
        self._is_cut_short = False
        self.is_dense: Final = all(run.is_dense for copy, _ in copies for run in copy.provable.runs)

    def add(self, rows: Rows, behind: Offsets) -> None:
        """Note batches that are taken, and the gaps between them.

        Args:
            rows: by offset.
            behind: the offset behind the batch in front of each one, int64[n].
        """
        for each in self._hidden:
            each.give(rows)
        at = np.flatnonzero(rows[:, FIRST] > behind)
        self.note(behind[at], rows[at, FIRST] - 1)

    def note(self, first: Offsets, last: Offsets) -> None:
        """Note gaps behind those before, int64[n]."""
        gaps = np.stack((first, last), axis=1)
        if not self.is_dense:
            gaps = gaps[_are_hidden(gaps, [each.ranges for each in self._hidden])]
        room = MISSING_MAX - len(self._found)
        self._found += map(tuple, gaps[:room].tolist())
        if len(gaps) > room:
            self._found[-1] = (self._found[-1][0], int(gaps[-1, 1]))
            self._is_cut_short = True

    def missing(self, end: int) -> tuple[Missing, ...]:
        """What is missing of a log that ends at an offset, once all was noted."""
        left = [each.left for each in self._hidden]
        gaps = np.array(self._found, np.int64).reshape(-1, 2)
        if not self.is_dense:
            gaps = gaps[_are_hidden(gaps, left)]
        found = [Missing(first, last, not self.is_dense) for first, last in gaps.tolist()]
        if self._is_cut_short and found:
            found[-1] = Missing(found[-1].first_offset, found[-1].last_offset, True)
        if any(len(ranges) and ranges[-1, 1] == OFFSETS_END for ranges in left):
            found.append(Missing(end, None, not self.is_dense))
        return tuple(found)


def _are_hidden(gaps: Rows, ranges: Sequence[Rows]) -> Mask:
    """bool[n]: which gaps touch what is hidden of any copy."""
    hidden = np.zeros(len(gaps), np.bool_)
    for each in ranges:
        hidden |= touches(gaps[:, 0], gaps[:, 1], each)
    return hidden


__all__ = ["MISSING_MAX", "Gaps"]
