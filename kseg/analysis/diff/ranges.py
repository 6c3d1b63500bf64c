"""Ranges of offsets as they are found: joined where they touch, counted, the first ones listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kseg.analysis.diff.values import LISTED_MAX, OffsetRange, Ranges

if TYPE_CHECKING:
    import numpy.typing as npt

    Offsets = npt.NDArray[np.int64]


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


__all__ = ["RangeList", "joined"]
