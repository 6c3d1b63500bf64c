"""Which batches of several copies a merged log takes, a window of offsets at a time.

The copies come in their order: that of the latest leader first. Each gives what lies in front of
its cut and what no copy before it has. So at one offset the higher leader epoch wins, and nobody is
outvoted. Batches of one epoch and one offset that differ are a conflict, which only `prefer`
decides. Where a log was compacted, a gap between sound batches is no damage: nothing fills it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.format.header import FIELDS, BatchHeader
from kseg.log.copies.side_by_side import windows
from kseg.log.copies.table import (
    EPOCH,
    FILE,
    FIRST,
    LAST,
    NOTHING,
    POSITION,
    SIZE,
    overlapping,
    touches,
    twins,
    without,
)
from kseg.log.copies.values import BatchSeen, Conflict, Extent, LeftOut, Missing

if TYPE_CHECKING:
    from kseg.log.copies.source import Copy
    from kseg.log.copies.table import Mask, Rows

#: So many conflicts are listed.
CONFLICTS_MAX: Final = 100


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """A copy in its place.

    Attributes:
        copy: it.
        cut: what it has from this offset on is left out.
        is_preferred: whether its batches win where those of one epoch differ.
    """

    copy: Copy
    cut: int
    is_preferred: bool = False


class Choosing:
    """A choice under way.

    Attributes:
        extents: what the merged log takes, by offset.
        missing: offsets that no copy has.
        conflicts: the first `CONFLICTS_MAX`.
        undecided: how many conflicts nothing decides.
        expected: the offset behind what was taken.
        taken: of each copy, how many batches and how many bytes.
        behind: of each copy, how many bytes were taken that lie behind its last sound batch.
    """

    def __init__(self, ranked: Sequence[Ranked], start: int, *, compacted: bool) -> None:
        """Start in front of all.

        Args:
            ranked: the copies, the one that goes first first.
            start: where the merged log begins.
            compacted: whether gaps between sound batches are no damage.
        """
        self._ranked: Final = ranked
        self._start: Final = start
        self._compacted: Final = compacted
        self._files: Final = tuple(path for one in ranked for path in one.copy.files)
        self._bounds: Final = np.cumsum([0, *(len(one.copy.files) for one in ranked)])
        self._left: dict[tuple[str, str], LeftOut] = {}
        self.extents: list[Extent] = []
        self.missing: list[Missing] = []
        self.conflicts: list[Conflict] = []
        self.undecided = 0
        self.expected = start
        self.taken = np.zeros((len(ranked), 2), np.int64)
        self.behind = np.zeros(len(ranked), np.int64)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Sound batches that are not taken, by copy and reason."""
        return tuple(self._left.values())

    def run(self) -> None:
        """Choose.

        Raises:
            KsegError, OSError: a file has changed, or is gone.
        """
        order = sorted(range(len(self._ranked)), key=lambda at: not self._ranked[at].is_preferred)
        for window in windows([one.copy for one in self._ranked]):
            chosen = NOTHING
            for at in order:
                chosen = self._with(chosen, at, self._offered(at, window.sides[at]))
            self._take(chosen)

    # ---- one copy in a window --------------------------------------------------------------------

    def _offered(self, at: int, rows: Rows) -> Rows:
        """The batches of a copy that it may give; their files are numbered through all copies."""
        rows = rows.copy()
        rows[:, FILE] += self._bounds[at]
        rows = self._leave(at, rows, rows[:, LAST] < self._start, "deleted")
        return self._leave(at, rows, rows[:, LAST] >= self._ranked[at].cut, "diverged")

    def _with(self, chosen: Rows, at: int, rows: Rows) -> Rows:
        """What was chosen, and what a copy adds."""
        rows = without(rows, twins(chosen, rows)[1])
        clashes = overlapping(rows, chosen)
        if clashes.any():
            self._judge(chosen, at, rows[clashes])
        rows = rows[~clashes]
        if self._compacted:
            rows = self._leave(at, rows, self._is_compacted(at, rows), "compacted")
        both = np.concatenate((chosen, rows))
        return both[np.argsort(both[:, LAST], kind="stable")]

    def _judge(self, chosen: Rows, at: int, rows: Rows) -> None:
        """Batches with offsets of chosen ones: of a lower epoch they are left out."""
        against = chosen[np.searchsorted(chosen[:, LAST], rows[:, FIRST])]
        lower = rows[:, EPOCH] < against[:, EPOCH]
        against = against[~lower]
        rows = self._leave(at, rows, lower, "lower-epoch")
        wins = self._owners(against) == next(
            (n for n, one in enumerate(self._ranked) if one.is_preferred), -1
        )
        self.undecided += int((~wins).sum())
        left = CONFLICTS_MAX - len(self.conflicts)
        for one, other, decided in zip(
            against[:left], rows[:left], wins[:left].tolist(), strict=True
        ):
            self.conflicts.append(Conflict((self._seen(one), self._seen(other)), decided))
        self._leave(at, rows, wins, "not-preferred")

    def _is_compacted(self, at: int, rows: Rows) -> Mask:
        """bool[n]: which batches lie where a copy before this one is sound and has none."""
        gone = np.zeros(len(rows), np.bool_)
        for one in self._ranked[:at]:
            first, last = rows[:, FIRST], rows[:, LAST]
            within = (first < min(one.cut, one.copy.end_offset)) & (last >= one.copy.start_offset)
            gone |= within & ~touches(first, last, one.copy.unknown_ranges)
        return gone

    def _leave(self, at: int, rows: Rows, mask: Mask, why: str) -> Rows:
        """Note batches that are not taken; answers the others."""
        gone = rows[mask]
        if len(gone):
            path = self._ranked[at].copy.path
            first, last = int(gone[0, FIRST]), int(gone[-1, LAST])
            known = self._left.get((path, why), LeftOut(path, why, first, last, 0, 0))
            self._left[path, why] = replace(
                known,
                last_offset=last,
                batches=known.batches + len(gone),
                bytes=known.bytes + int(gone[:, SIZE].sum()),
            )
        return rows[~mask]

    # ---- what was chosen -------------------------------------------------------------------------

    def _take(self, rows: Rows) -> None:
        if not len(rows):
            return
        owners = self._owners(rows)
        np.add.at(self.taken[:, 0], owners, 1)
        np.add.at(self.taken[:, 1], owners, rows[:, SIZE])
        for at, one in enumerate(self._ranked):
            self.behind[at] += rows[rows[:, FIRST] >= one.copy.end_offset, SIZE].sum()
        behind = np.concatenate(([self.expected], rows[:-1, LAST] + 1))
        for at in np.flatnonzero(rows[:, FIRST] > behind).tolist():
            self._miss(int(behind[at]), int(rows[at, FIRST]) - 1)
        for extent in self._extents(rows):
            self._append(extent)
        self.expected = int(rows[-1, LAST]) + 1

    def _miss(self, first: int, last: int) -> None:
        """Note a gap, but for one that compaction has left."""
        if not self._compacted or all(one.copy.hides(first, last) for one in self._ranked):
            self.missing.append(Missing(first, last, self._compacted))

    def _extents(self, rows: Rows) -> Iterator[Extent]:
        ends = rows[:, POSITION] + rows[:, SIZE]
        breaks = (rows[1:, FILE] != rows[:-1, FILE]) | (rows[1:, POSITION] != ends[:-1])
        begins = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(rows)])).tolist()
        for begin, end in pairwise(begins):
            position = int(rows[begin, POSITION])
            yield Extent(
                self._files[int(rows[begin, FILE])],
                position,
                int(ends[end - 1]) - position,
                int(rows[begin, FIRST]),
                int(rows[end - 1, LAST]),
                end - begin,
            )

    def _append(self, extent: Extent) -> None:
        """Take an extent, as one with that before it if it follows it in its file."""
        before = self.extents[-1] if self.extents else None
        if (
            before is not None
            and before.path == extent.path
            and before.position + before.size == extent.position
        ):
            self.extents[-1] = replace(
                before,
                size=before.size + extent.size,
                last_offset=extent.last_offset,
                batches=before.batches + extent.batches,
            )
        else:
            self.extents.append(extent)

    def _owners(self, rows: Rows) -> Rows:
        """The number of each batch's copy."""
        return np.searchsorted(self._bounds, rows[:, FILE], side="right") - 1

    def _seen(self, row: Rows) -> BatchSeen:
        fields = row.tolist()
        return BatchSeen(self._files[fields[FILE]], BatchHeader(*fields[: len(FIELDS)]))


__all__ = ["CONFLICTS_MAX", "Choosing", "Ranked"]
