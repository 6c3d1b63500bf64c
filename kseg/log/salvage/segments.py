"""Batches by offset, as the segments of a new log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kseg.log.salvage.output import Extent, TargetSegment
from kseg.log.salvage.tables import provable_tables, row_of

if TYPE_CHECKING:
    from kseg.log.salvage.values import ProvableRun

#: Offsets of a segment are 32-bit numbers from its base offset; so are positions.
_INT32_MAX: Final = 2**31 - 1


def target_segments(
    runs: Sequence[ProvableRun],
    bases: Sequence[int],
) -> tuple[TargetSegment, ...]:
    """The segments of a log, each batch in the one that its offset belongs to.

    The last segment stays where it holds no batch: the log goes on there, behind offsets that were
    given once.

    Args:
        runs: by offset; each lies behind the one before.
        bases: base offsets of the segments that the log had, ascending; one or more.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    segments = _Segments(bases)
    for run in runs:
        segments.add(run)
    return segments.done()


class _Segments:
    """Segments in the making, one after the other."""

    def __init__(self, bases: Sequence[int]) -> None:
        self._bases = bases
        self._made: list[TargetSegment] = []
        self._base = self._last = -1
        self._extents: list[Extent] = []
        self._bytes = 0

    def add(self, run: ProvableRun) -> None:
        """Take in what lies behind all before."""
        if self._is_of_one(run):
            self._place(run)
            return
        for one in _each(run):
            self._place(one)

    def done(self) -> tuple[TargetSegment, ...]:
        """All of them."""
        self._close()
        if self._bases[-1] > self._last:
            self._made.append(TargetSegment(self._bases[-1], ()))
        return tuple(self._made)

    def _is_of_one(self, run: ProvableRun) -> bool:
        """Whether no segment begins within a run, and one can hold it."""
        base = self._nominal(run)
        within = bisect_right(self._bases, run.last_offset) - bisect_right(
            self._bases, run.first_offset
        )
        fits = run.last_offset - base <= _INT32_MAX and self._bytes + run.size <= _INT32_MAX
        return not within and fits

    def _nominal(self, run: ProvableRun) -> int:
        """The base offset of the segment that a run begins in."""
        at = bisect_right(self._bases, run.first_offset) - 1
        return max(self._bases[at], self._last + 1) if at >= 0 else run.first_offset

    def _place(self, run: ProvableRun) -> None:
        begins = bisect_left(self._bases, self._base + 1)
        goes_on = bool(self._extents) and not (
            begins < len(self._bases) and run.first_offset >= self._bases[begins]
        )
        fits = run.last_offset - self._base <= _INT32_MAX and self._bytes + run.size <= _INT32_MAX
        if not (goes_on and fits):
            self._close()
            base = self._nominal(run)
            self._base = base if run.last_offset - base <= _INT32_MAX else run.first_offset
        self._take(run)
        self._bytes += run.size
        self._last = run.last_offset

    def _take(self, run: ProvableRun) -> None:
        before = self._extents[-1] if self._extents else None
        if before is not None and (before.path, before.end) == (run.path, run.position):
            self._extents[-1] = Extent(run.path, before.position, before.size + run.size)
        else:
            self._extents.append(Extent(run.path, run.position, run.size))

    def _close(self) -> None:
        if self._extents:
            self._made.append(TargetSegment(self._base, tuple(self._extents)))
        self._extents, self._bytes = [], 0


def _each(run: ProvableRun) -> Iterator[ProvableRun]:
    for _, table in provable_tables([run]):
        yield from (row_of(run, table, row) for row in range(len(table)))


__all__ = ["target_segments"]
