"""Sound batches after damage: found by their bytes, where no length leads to them.

A batch is sound if every field of its header is plausible, its offsets lie within the given bounds,
and its checksum is right. Batches that follow each other without a gap, with growing offsets, are
one `SoundRun`. If the offsets of two runs contradict each other, the one with more bytes stays; a
batch that lies as data in a damaged record can cause that.

The time is linear in the bytes, whatever they are, and memory stays flat. That has a price: the
search passes over batches larger than 4 MiB whose checksums would take more than four times the
bytes searched, and it compares a run with the 64 before it only. It cannot recognise a batch that
lies as data in a record, with offsets that fit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg._kernels import search as _search
from kseg.constants import INT64_MAX
from kseg.documents import frozen_dataclass
from kseg.format.header import HEAD_BYTES, checksum_rule, refused_batch

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Read = Callable[[int, int], memoryview | bytes]


#: Columns of the runs that the kernel writes, in order.
FIELDS: Final = (
    "position",
    "end",
    "first_offset",
    "order",
    "last_offset",
    "batches",
    "records",
)
#: The state of a search, which the kernel moves on: the next position to look at; up to where bytes
#: are decided on; the size of a batch beyond the window, or 0; how many runs it has written. The
#: sums that it has made in the window follow.
_STATE_FIELDS: Final = 6
_POSITION, _FRONTIER, _LARGE, _COUNT = range(4)
#: Bytes between two sums from which the kernel computes any checksum in a window.
_SUM_BYTES: Final = 512
#: Bytes that are looked at together; a batch of half of that is surely whole in one of them.
WINDOW_BYTES: Final = 8 << 20
#: Runs that one call of the kernel writes; runs that are held for later ones to contradict; bytes
#: of a large batch that are read at a time.
_RUNS_MAX: Final = 4096
_HELD_MAX: Final = 64
_SUMMED_BYTES: Final = 512 << 10
#: Checksums of larger batches take no more than so many times the bytes searched.
_LARGE_SHARE: Final = 4


@frozen_dataclass
class SoundRun:
    """Consecutive sound batches.

    Attributes:
        position, end: the bytes in the file, half open.
        first_offset: the offset of the first record; None if the body must be inflated to know.
        order: the lowest known offset: the first one, or the last of the first batch.
        last_offset: the offset of the last record.
        batches: the number of batches.
        records: their number according to the headers; None if the body must be inflated to know.
    """

    position: int
    end: int
    first_offset: int | None
    order: int
    last_offset: int
    batches: int
    records: int | None

    @property
    def bytes(self) -> int:
        """The size of the run, in bytes."""
        return self.end - self.position

    def and_then(self, following: SoundRun) -> SoundRun:
        """Both runs as one; the second follows the first."""
        are_counted = self.records is not None and following.records is not None
        return SoundRun(
            self.position,
            following.end,
            self.first_offset,
            self.order,
            following.last_offset,
            self.batches + following.batches,
            (self.records or 0) + (following.records or 0) if are_counted else None,
        )


def find_sound_batches(
    read: Read | Buffer,
    start: int = 0,
    stop: int | None = None,
    *,
    first_offset: int = 0,
    last_offset: int = INT64_MAX,
    every: bool = False,
) -> Iterator[SoundRun]:
    """The sound batches of magic 0, 1 and 2 in `[start, stop)`, as runs in file order.

    Where a damaged batch begins at `start`, or right after a run, its length is believed if a
    sound batch with a larger offset begins where it ends: the bytes inside then belong to it.

    Args:
        read: returns bytes by position and size; or all bytes, which begin at position 0.
        start: the position to begin at.
        stop: the end of the file; needed unless the bytes themselves are given.
        first_offset: no batch has a lower one: the offset after the sound batches before
        `start`.
        last_offset: no batch has a higher one.
        every: yield each run as it is found, also inside of a damaged batch and with contradicting
            offsets; the caller decides which of them count.

    Yields:
        Runs; each has larger offsets than the one before, except with `every`. A run is given once
        later bytes can no longer contradict it.

    Raises:
        ValueError: bounds that cannot be, or no `stop`.
        Exception: the errors of `read`.
    """
    if not callable(read):
        view = memoryview(read)
        stop = len(view) if stop is None else min(stop, len(view))
        read = _slices(view)
    if stop is None or start < 0:
        raise ValueError("a start at or after 0 and a stop are needed")
    first_offset = max(first_offset, 0)
    if start >= stop or first_offset > last_offset:
        return
    search = _Search(read, start, stop, first_offset, last_offset, believes=not every)
    runs = _join_pieces(search.runs())
    yield from runs if every else _consistent_runs(runs)


def _slices(view: memoryview) -> Read:
    return lambda position, size: view[position : position + size]


class _Search:
    """One search: window by window, each overlapping the window before.

    With `believes` the length of a damaged batch counts if a sound batch confirms it.
    """

    def __init__(
        self, read: Read, start: int, stop: int, first: int, last: int, *, believes: bool
    ) -> None:
        """Begin at `start`; arguments are those of `find_sound_batches`."""
        self._read, self._stop, self._believes = read, stop, believes
        self._bounds = {"first_offset": first, "last_offset": last, "file_end": stop}
        blocks = min(WINDOW_BYTES, stop - start) // _SUM_BYTES
        self._sums = np.empty((2, blocks + 1), np.uint32)
        self._rows = np.empty((_RUNS_MAX, len(FIELDS)), np.int64)
        self._state = np.zeros(_STATE_FIELDS, np.int64)
        self._state[_POSITION] = self._state[_FRONTIER] = start
        self._budget = _LARGE_SHARE * (stop - start)

    def runs(self) -> Iterator[SoundRun]:
        """The runs in pieces, which may have to be joined."""
        position, end = int(self._state[_POSITION]), -1
        while end < self._stop:
            size = min(WINDOW_BYTES, self._stop - position)
            data, end = self._read(position, size), position + size
            yield from self._in_window(data, position, end)
            position = int(self._state[_POSITION])
            if position >= self._stop:
                return

    def _limit(self, start: int, end: int) -> int:
        """Where the search in a window ends; the next window begins there, or before it."""
        if end == self._stop:
            return end
        if self._believes or self._budget <= 0:
            # A batch that begins later may not be whole in the window, or the batch after it is
            # not, which has to confirm a length.
            return start + (end - start) // 2
        return end - HEAD_BYTES

    def _in_window(self, data: Buffer, base: int, end: int) -> Iterator[SoundRun]:
        """The runs in bytes `[base, end)` of the file, up to the limit of the window."""
        state = self._state
        state[_COUNT + 1 :] = 0
        while state[_POSITION] < (limit := self._limit(base, end)):
            before = int(state[_POSITION])
            _search.search_batches(
                data,
                base=base,
                limit=limit,
                tells_large=self._budget > 0,
                believes=self._believes,
                sums=self._sums,
                runs=self._rows,
                state=state,
                **self._bounds,
            )
            yield from map(_run_of, self._rows[: int(state[_COUNT])].tolist())
            if state[_LARGE]:
                position, size = int(state[_POSITION]), int(state[_LARGE])
                # The next window begins there, if it can hold the batch. It begins half a window
                # later at least, so that no byte is read often.
                if max(size, WINDOW_BYTES - (position - base)) <= WINDOW_BYTES // 2:
                    return
                yield from self._check_large_batch(position, size)
            elif int(state[_POSITION]) == before and not state[_COUNT]:
                state[_POSITION] = limit  # too few bytes for a batch are left

    def _check_large_batch(self, position: int, size: int) -> Iterator[SoundRun]:
        """Check a batch that is larger than the window; continue after it, if it is sound.

        `_budget` bounds the bytes that are read for such batches, most of which are not batches.
        """
        self._budget -= size
        head = bytes(self._read(position, min(HEAD_BYTES, size)))
        rule = checksum_rule(head)
        checksum, end = 0, position + size
        for at in range(position + rule.covered_at, end, _SUMMED_BYTES):
            checksum = rule.function(self._read(at, min(_SUMMED_BYTES, end - at)), checksum)
        if checksum != rule.stored(head):
            self._state[_POSITION] = position + 1
            return
        self._state[_POSITION] = self._state[_FRONTIER] = end
        header = refused_batch(head, position=position, size=size)[0]
        first = None if header.base_offset < 0 else header.base_offset
        order = header.last_offset if first is None else first
        records = None if header.record_count < 0 else header.record_count
        yield SoundRun(position, end, first, order, header.last_offset, 1, records)


def _run_of(row: list[int]) -> SoundRun:
    """A run from the kernel's row, in which -1 means an unknown number."""
    position, end, first, order, last, batches, records = row
    return SoundRun(
        position,
        end,
        None if first < 0 else first,
        order,
        last,
        batches,
        None if records < 0 else records,
    )


def _join_pieces(runs: Iterable[SoundRun]) -> Iterator[SoundRun]:
    """Join consecutive runs that are pieces of one run."""
    joined: SoundRun | None = None
    for run in runs:
        if joined is not None and run.position == joined.end and run.order > joined.last_offset:
            joined = joined.and_then(run)
            continue
        if joined is not None:
            yield joined
        joined = run
    if joined is not None:
        yield joined


def _consistent_runs(runs: Iterable[SoundRun]) -> Iterator[SoundRun]:
    """The runs whose offsets increase; if runs contradict each other, the longer ones."""
    pending: deque[SoundRun] = deque()
    last_yielded = -1
    for run in runs:
        if run.order <= last_yielded:
            continue
        against = list(takewhile(partial(_contradicts, run), reversed(pending)))
        if against and sum(other.bytes for other in against) >= run.bytes:
            continue
        for _ in against:
            pending.pop()
        pending.append(run)
        if len(pending) > _HELD_MAX:
            last_yielded = pending[0].last_offset
            yield pending.popleft()
    yield from pending


def _contradicts(run: SoundRun, before: SoundRun) -> bool:
    return before.last_offset >= run.order
