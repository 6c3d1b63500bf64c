"""What a merged log takes, as runs: batches that follow each other in a file of one copy.

A segment begins where one begins in the copy that goes first, or in the copy that the batch is
taken from. So what was whole has the segments it had, and one that the first copy has lost comes
back under its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.log.copies.table import COUNT, FILE, FIRST, LAST, POSITION, SIZE
from kseg.log.salvage.values import ProvableRun

if TYPE_CHECKING:
    from kseg.log.copies.source import Copy
    from kseg.log.copies.table import Rows


class Runs:
    """Runs under way.

    Attributes:
        taken: by offset.
    """

    def __init__(self, copies: Sequence[Copy]) -> None:
        """Start without any.

        Args:
            copies: the one that goes first first; rows name their files by numbers through all.
        """
        seen = [segment for copy in copies for segment in copy.provable.segments]
        self._paths: Final = tuple(segment.path for segment in seen)
        self._bases: Final = {segment.path: segment.base_offset for segment in seen}
        self._begins = {segment.base_offset for segment in copies[0].provable.segments}
        self.taken: list[ProvableRun] = []

    def add(self, rows: Rows) -> None:
        """Take batches that lie behind those before."""
        for run in self._of(rows):
            before = self.taken[-1] if self.taken else None
            if before is not None and (before.path, before.end) == (run.path, run.position):
                self.taken[-1] = before.and_then(run)
                continue
            base = self._bases[run.path]
            if before is None or base > before.last_offset:
                self._begins.add(base)
            self.taken.append(run)

    def bases(self, begins: Sequence[int], end: int) -> list[int]:
        """Where segments begin, one or more, ascending.

        Args:
            begins: where the last segments of the copies begin.
            end: the offset behind what was taken.
        """
        found = self._begins.union(begin for begin in begins if begin >= end)
        return sorted(found) or [end]

    def _of(self, rows: Rows) -> Iterator[ProvableRun]:
        ends = rows[:, POSITION] + rows[:, SIZE]
        breaks = (rows[1:, FILE] != rows[:-1, FILE]) | (rows[1:, POSITION] != ends[:-1])
        begins = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(rows)])).tolist()
        for begin, end in pairwise(begins):
            position, counts = int(rows[begin, POSITION]), rows[begin:end, COUNT]
            yield ProvableRun(
                self._paths[int(rows[begin, FILE])],
                position,
                int(ends[end - 1]) - position,
                int(rows[begin, FIRST]),
                int(rows[end - 1, LAST]),
                end - begin,
                int(counts.sum()) if (counts >= 0).all() else None,
            )


__all__ = ["Runs"]
