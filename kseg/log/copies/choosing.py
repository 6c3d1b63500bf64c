"""Which batches of several copies a merged log takes, a window of offsets at a time.

The copies come in their order: that of the latest leader first. Each gives what lies in front of
its cut and what no copy before it has. So at one offset the higher leader epoch wins, and not the
majority. Batches of one epoch and one offset that differ are a conflict, which only `prefer`
decides. `gaps` says which of the offsets that none of them has are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.format.header import FIELDS, BatchHeader
from kseg.log.copies.gaps import Gaps
from kseg.log.copies.runs import Runs
from kseg.log.copies.side_by_side import windows
from kseg.log.copies.table import (
    EPOCH,
    FILE,
    FIRST,
    LAST,
    NOTHING,
    SIZE,
    overlapping,
    twins,
    without,
)
from kseg.log.copies.values import BatchSeen, Conflict, LeftOut

if TYPE_CHECKING:
    from kseg.log.copies.lineage import Lineage
    from kseg.log.copies.source import Copy
    from kseg.log.copies.table import Mask, Offsets, Rows

#: So many conflicts are listed.
CONFLICTS_MAX: Final = 100
_NO_EPOCH: Final = -(2**63)
_EVERY_EPOCH: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """A copy in its place.

    Attributes:
        copy: it.
        cut: what it has from this offset on is left out.
        history: the epochs of the copies before it; None for the first.
        is_preferred: whether its batches win where those of one epoch differ.
    """

    copy: Copy
    cut: int
    history: Lineage | None = None
    is_preferred: bool = False


class Choosing:
    """A choice under way.

    Attributes:
        start: where the merged log begins.
        runs: what the merged log takes.
        gaps: the offsets that no copy has.
        conflicts: the first `CONFLICTS_MAX`.
        undecided: how many conflicts nothing decides.
        expected: the offset behind what was taken.
        taken: of each copy, how many batches and how many bytes.
    """

    def __init__(self, ranked: Sequence[Ranked], start: int) -> None:
        """Start in front of all.

        Args:
            ranked: the copies, the one that goes first first.
            start: where the merged log begins.
        """
        self._ranked: Final = ranked
        self.start: Final = start
        self._files: Final = tuple(path for one in ranked for path in one.copy.files)
        self._bounds: Final = np.cumsum([0, *(len(one.copy.files) for one in ranked)])
        self._preferred: Final = next((n for n, one in enumerate(ranked) if one.is_preferred), -1)
        self._epochs: Final = [_epochs_of(one.history) for one in ranked]
        self._left: dict[tuple[str, str], LeftOut] = {}
        self.runs: Final = Runs([one.copy for one in ranked])
        self.gaps: Final = Gaps([(one.copy, one.cut) for one in ranked])
        self.conflicts: list[Conflict] = []
        self.undecided = 0
        self.expected = start
        self.taken = np.zeros((len(ranked), 2), np.int64)

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
        rows = self._leave(at, rows, rows[:, LAST] < self.start, "deleted")
        rows = self._leave(at, rows, rows[:, LAST] >= self._ranked[at].cut, "diverged")
        # A window that has no common end is cut, so a batch taken before may reach into this one.
        reached = self.expected if self.taken.any() else 0
        return self._leave(at, rows, rows[:, FIRST] < reached, "overlap")

    def _with(self, chosen: Rows, at: int, rows: Rows) -> Rows:
        """What was chosen, and what a copy adds."""
        rows = without(rows, twins(chosen, rows)[1])
        clashes = overlapping(rows, chosen)
        if clashes.any():
            self._judge(chosen, at, rows[clashes])
        rows = rows[~clashes]
        rows = self._leave(at, rows, self._is_out_of_order(at, rows), "epoch-order")
        both = np.concatenate((chosen, rows))
        return both[np.argsort(both[:, LAST], kind="stable")]

    def _judge(self, chosen: Rows, at: int, rows: Rows) -> None:
        """Batches with offsets of chosen ones: of a lower epoch they are left out."""
        against = chosen[np.searchsorted(chosen[:, LAST], rows[:, FIRST])]
        lower = rows[:, EPOCH] < against[:, EPOCH]
        against = against[~lower]
        rows = self._leave(at, rows, lower, "lower-epoch")
        wins = self._owners(against) == self._preferred
        self.undecided += int((~wins).sum())
        left = CONFLICTS_MAX - len(self.conflicts)
        for one, other, decided in zip(
            against[:left], rows[:left], wins[:left].tolist(), strict=True
        ):
            self.conflicts.append(Conflict((self._seen(one), self._seen(other)), decided))
        self._leave(at, rows, wins, "not-preferred")

    def _is_out_of_order(self, at: int, rows: Rows) -> Mask:
        """bool[n]: which batches would let epochs fall, by the epochs of the copies before."""
        starts, epochs = self._epochs[at]
        place = np.searchsorted(starts, rows[:, FIRST], side="right")
        wrong: Mask = rows[:, EPOCH] < epochs[place]
        return wrong | (rows[:, EPOCH] > epochs[place + 1])

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
        behind = np.concatenate(([self.expected], rows[:-1, LAST] + 1))
        self.gaps.add(rows, behind)
        self.runs.add(rows)
        self.expected = int(rows[-1, LAST]) + 1

    def _owners(self, rows: Rows) -> Offsets:
        """The number of each batch's copy."""
        return np.searchsorted(self._bounds, rows[:, FILE], side="right") - 1

    def _seen(self, row: Rows) -> BatchSeen:
        fields = row.tolist()
        return BatchSeen(self._files[fields[FILE]], BatchHeader(*fields[: len(FIELDS)]))


def _epochs_of(history: Lineage | None) -> tuple[Offsets, Offsets]:
    """Where epochs begin, int64[n]; and the epochs around these offsets, int64[n + 2]."""
    begins = () if history is None else history.begins
    starts = np.array([one.start for one in begins], np.int64)
    epochs = np.array([_NO_EPOCH, *(one.epoch for one in begins), _EVERY_EPOCH], np.int64)
    return starts, epochs


__all__ = ["CONFLICTS_MAX", "Choosing", "Ranked"]
