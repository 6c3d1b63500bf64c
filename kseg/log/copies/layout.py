"""The segments of a merged log: where each begins, and which bytes of which copy it takes.

A segment begins where one begins in the copy that goes first, or in the copy that the batch is
taken from. So what was whole has the segments it had, and one that the first copy has lost comes
back under its name. None is larger than the largest of the copies, or than Kafka's default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.log.copies.table import COUNT, FILE, FIRST, LAST, POSITION, SIZE
from kseg.log.copies.values import MergedSegment
from kseg.log.salvage.values import ProvableRun

if TYPE_CHECKING:
    from kseg.log.copies.source import Copy
    from kseg.log.copies.table import Offsets, Rows

#: Kafka's `segment.bytes`, where nothing else is said.
_SEGMENT_BYTES: Final = 1 << 30
_INT32_MAX: Final = 2**31 - 1


class Layout:
    """Segments under way."""

    def __init__(self, copies: Sequence[Copy], paths: Sequence[str]) -> None:
        """Start without any.

        Args:
            copies: the one that goes first first.
            paths: the files of all of them; rows name them by their numbers.
        """
        self._paths: Final = paths
        self._bases: Final = [copy.base_offsets for copy in copies]
        sizes = (segment.size for copy in copies for segment in copy.provable.segments)
        self._bytes_max: Final = max([_SEGMENT_BYTES, *sizes])
        self._segments: list[tuple[int, list[ProvableRun]]] = []
        self._bytes = self._end = 0

    def add(self, rows: Rows, owners: Offsets, behind: Offsets) -> None:
        """Place batches behind those before.

        Args:
            rows: by offset, their files numbered through all copies.
            owners: the number of each batch's copy, int64[n].
            behind: the offset behind the batch in front of each one, int64[n].
        """
        bases = self._begins(rows, owners, behind)
        begins = np.flatnonzero(bases >= 0)
        for at, end in pairwise(dict.fromkeys((0, *begins.tolist(), len(rows)))):
            if bases[at] >= 0 or not self._segments:
                self.begin(int(bases[at] if bases[at] >= 0 else behind[at]))
            self._place(rows[at:end])

    def begin(self, base_offset: int) -> None:
        """Begin a segment."""
        self._segments.append((base_offset, []))
        self._bytes = 0

    @property
    def log_start_offset(self) -> int | None:
        """The base offset of the first segment; None without any."""
        return self._segments[0][0] if self._segments else None

    def value(self) -> tuple[MergedSegment, ...]:
        """What was placed."""
        return tuple(MergedSegment(base, tuple(runs)) for base, runs in self._segments)

    def _begins(self, rows: Rows, owners: Offsets, behind: Offsets) -> Offsets:
        """The base offset of the segment that begins with each batch, int64[n]; -1 for none."""
        since = behind if self._segments else np.concatenate(([0], behind[1:]))
        found = _bases_within(self._bases[0], since, rows[:, FIRST])
        for number, bases in enumerate(self._bases[1:], 1):
            own = _bases_within(bases, since, rows[:, FIRST])
            np.maximum(found, own, out=found, where=owners == number)
        return found

    def _place(self, rows: Rows) -> None:
        """Place batches in the segment that has begun; in further ones where they have no room."""
        while len(rows):
            base = self._segments[-1][0]
            room = np.searchsorted(np.cumsum(rows[:, SIZE]), self._bytes_max - self._bytes, "right")
            fits = int(min(room, np.searchsorted(rows[:, LAST], base + _INT32_MAX, "right")))
            if not fits and self._bytes:
                self.begin(self._end)
                continue
            taken, rows = rows[: max(fits, 1)], rows[max(fits, 1) :]
            self._bytes += int(taken[:, SIZE].sum())
            self._end = int(taken[-1, LAST]) + 1
            for run in self._runs(taken):
                _append(self._segments[-1][1], run)

    def _runs(self, rows: Rows) -> Iterator[ProvableRun]:
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


def _bases_within(bases: Offsets, since: Offsets, until: Offsets) -> Offsets:
    """The last of some ascending offsets in each range, ends included, int64[n]; -1 for none."""
    if not len(bases):
        return np.full(len(since), -1, np.int64)
    found = bases[np.maximum(np.searchsorted(bases, until, "right") - 1, 0)]
    within: Offsets = np.where((found >= since) & (found <= until), found, -1)
    return within


def _append(runs: list[ProvableRun], run: ProvableRun) -> None:
    """Add a run, as one with that before it if it follows it in its file."""
    before = runs[-1] if runs else None
    if before is None or before.path != run.path or before.end != run.position:
        runs.append(run)
        return
    known = before.records is not None and run.records is not None
    runs[-1] = replace(
        before,
        size=before.size + run.size,
        last_offset=run.last_offset,
        batches=before.batches + run.batches,
        records=(before.records or 0) + (run.records or 0) if known else None,
    )


__all__ = ["Layout"]
