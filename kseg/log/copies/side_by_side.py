"""Several copies side by side: windows of offsets, each with the batches of every copy in it.

Every copy is walked once, in step with the others. A window ends where no batch of any copy reaches
over its end, so two batches that hold the same offset lie in the same window. Memory stays flat: of
each copy a table of its batches is held, and a few more where batches of two copies overlap again
and again without a common end. Past `HELD_MAX` batches such a window is cut anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.log.copies.table import FIRST, LAST, NOTHING, OFFSETS_END

if TYPE_CHECKING:
    from kseg.log.copies.source import Copy
    from kseg.log.copies.table import Rows

#: Batches of one copy that wait for the end of a window at the most.
HELD_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A window of offsets, half open, and the batches of each copy in it, int64[n, COLUMNS]."""

    start: int
    end: int
    sides: tuple[Rows, ...]


def windows(copies: Sequence[Copy]) -> Iterator[Window]:
    """Walk copies side by side.

    Args:
        copies: one or more.

    Yields:
        Windows that follow each other, to `OFFSETS_END`.

    Raises:
        KsegError, OSError: as `Copy.tables`.
    """
    cursors = [_Cursor(copy) for copy in copies]
    start = 0
    while start < OFFSETS_END:
        least = min(cursor.known for cursor in cursors)
        for cursor in cursors:
            if cursor.known == least:
                cursor.load()
        reached = min(cursor.known for cursor in cursors)
        end = _clean_end(cursors, reached)
        if end <= start:
            if max(len(cursor.rows) for cursor in cursors) <= HELD_MAX:
                continue
            end = reached
        yield Window(start, end, tuple(cursor.take(end) for cursor in cursors))
        start = end


def _clean_end(cursors: Sequence[_Cursor], end: int) -> int:
    """The last offset up to `end` that no batch reaches over."""
    if not any(cursor.reaches_over(end) for cursor in cursors):
        return end
    # It begins the last group of batches that overlap, one and then the next.
    rows = np.concatenate([cursor.before(end) for cursor in cursors])
    rows = rows[np.argsort(rows[:, FIRST], kind="stable")]
    reached = np.maximum.accumulate(rows[:, LAST])
    begins = np.flatnonzero(rows[1:, FIRST] > reached[:-1])
    return int(rows[begins[-1] + 1 if len(begins) else 0, FIRST])


class _Cursor:
    """One copy: what was read and is not in a window yet.

    Attributes:
        rows: those batches.
        known: all that the copy has in front of this offset was read; -1 for nothing yet.
    """

    __slots__ = ("_tables", "known", "rows")

    def __init__(self, copy: Copy) -> None:
        self._tables = copy.tables()
        self.rows: Rows = NOTHING
        self.known = -1

    def load(self) -> None:
        """Read the next batches."""
        rows = next(self._tables, None)
        if rows is None:
            self.known = OFFSETS_END
            return
        self.rows = np.concatenate((self.rows, rows)) if len(self.rows) else rows
        self.known = int(rows[-1, LAST]) + 1

    def reaches_over(self, end: int) -> bool:
        """Whether a batch has offsets in front of an offset, and that one, too."""
        at = int(np.searchsorted(self.rows[:, LAST], end))
        return at < len(self.rows) and bool(self.rows[at, FIRST] < end)

    def before(self, end: int) -> Rows:
        """The batches that begin in front of an offset."""
        return self.rows[: int(np.searchsorted(self.rows[:, FIRST], end))]

    def take(self, end: int) -> Rows:
        """Give what lies in front of an offset, up to which it is known."""
        taken = self.before(end)
        self.rows = self.rows[len(taken) :]
        return taken


__all__ = ["HELD_MAX", "Window", "windows"]
