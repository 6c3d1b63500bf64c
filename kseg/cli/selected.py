"""Choose rows to write: by key, the first N, the last N; say if there are none."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kseg.cli.failures import complain
from kseg.cli.parsing import ALL, Range
from kseg.cli.row_writer import RowWriter
from kseg.format.times import iso_text
from kseg.workers import Kept

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.cli.row_writer import Batches, Write
    from kseg.cli.rows import Template
    from kseg.format.values import BinaryColumn
    from kseg.workers import Put

    Mask = npt.NDArray[np.bool_]

#: Bytes compared at a time, so that a key's mask takes little memory whatever the piece.
_COMPARED_BYTES = 1 << 20


def equal_to(column: BinaryColumn, key: bytes) -> Mask:
    """bool[n]: the values that are exactly these bytes; null never is."""
    mask: Mask = column.sizes() == len(key)
    wanted = np.frombuffer(key, np.uint8)
    rows = np.flatnonzero(mask)
    step = max(1, _COMPARED_BYTES // max(1, len(key)))
    for first in range(0, len(rows) if len(key) else 0, step):
        some = rows[first : first + step]
        at = column.offsets[some].astype(np.int64)[:, None] + np.arange(len(key))
        mask[some] = (column.data[at] == wanted).all(axis=1)
    return mask


class RowSink:
    """Writes rows up to a limit, or holds back the last ones. Not for several threads.

    It holds back text, whose size is that of the answer; columns would keep whole pieces of a log
    for a few rows.
    """

    def __init__(
        self,
        write: Write,
        *,
        limit: int | None = None,
        last: int | None = None,
        writer: RowWriter | None = None,
    ) -> None:
        """Start with nothing taken.

        Args:
            write: where text goes; done with the bytes when it returns.
            writer: has the memory for rows; None for one of its own.
            limit: stop after so many rows.
            last: hold rows back until `finish`, and write the last so many.
        """
        self._write = write
        self._left = limit
        self._last = last
        self._held: deque[tuple[bytes, int]] = deque()
        self._held_count = 0
        self._fresh = bytearray()
        self.is_empty = True  #: whether no row was taken
        self._writer = (writer or RowWriter()).to(write if last is None else self._fresh.extend)

    @property
    def replaced(self) -> int:
        """How many values of CSV, written or held back, differ from the log's bytes."""
        return self._writer.replaced

    @property
    def left(self) -> int | None:
        """How many rows will still be taken; None for any number."""
        return self._left

    @property
    def full(self) -> bool:
        """Whether no further row will be written."""
        return self._left == 0

    def take(self, template: Template, count: int, mask: Mask | None = None) -> None:
        """Write the rows of a piece, or hold them back; `mask` leaves some out."""
        wanted = count if mask is None else int(np.count_nonzero(mask))
        if not wanted:
            return
        self.is_empty = False
        if self._left is not None and wanted > self._left:
            count, wanted = _end_of(count, mask, self._left), self._left
        self._writer.rows(template, count, mask=mask)
        if self._left is not None:
            self._left -= wanted
        if self._last is not None:
            self._hold(wanted, self._last)

    def take_stored(self, template: Template, batches: Batches, start: int, stop: int) -> int:
        """Write the records of usual batches, all of them; see `RowWriter.records`."""
        self.is_empty = False
        return self._writer.records(template, batches, start, stop)

    def finish(self) -> None:
        """Write what was held back; the next rows belong to another partition."""
        surplus = self._held_count - (self._last or 0)
        for text, _count in self._held:
            # A row is a line, and its contents have no line ends that are not escaped.
            kept = text.split(b"\n", surplus)[-1] if surplus > 0 else text
            self._write(memoryview(kept))
            surplus = 0
        self._held.clear()
        self._held_count = 0

    def _hold(self, count: int, last: int) -> None:
        self._held.append((bytes(self._fresh), count))
        self._fresh.clear()
        self._held_count += count
        while self._held and self._held_count - self._held[0][1] >= last:
            self._held_count -= self._held.popleft()[1]


class RowSinks:
    """The sinks of one run: one for all rows where they are counted, else one a piece of work.

    All rows go through one sink with a limit, or where the last are wanted. The pieces of work then
    come one after another, since there is little to share where rows end soon.
    """

    def __init__(self, write: Write, *, limit: int | None, last: int | None) -> None:
        """Start with nothing taken; the arguments are those of `RowSink`."""
        counted = limit is not None or last is not None
        self._one = RowSink(write, limit=limit, last=last) if counted else None
        self._writers = Kept(RowWriter)
        self._replaced = 0
        self._is_empty = True

    @property
    def counted(self) -> bool:
        """Whether rows are counted, so that one thread writes them."""
        return self._one is not None

    @property
    def full(self) -> bool:
        """Whether no further row is wanted."""
        return self._one is not None and self._one.full

    @property
    def is_empty(self) -> bool:
        """Whether no sink took a row."""
        return self._is_empty and (self._one is None or self._one.is_empty)

    @property
    def replaced(self) -> int:
        """How many values of CSV differ from the log's bytes, in all sinks."""
        return self._replaced + (0 if self._one is None else self._one.replaced)

    @contextmanager
    def sink(self, put: Put) -> Iterator[RowSink]:
        """The sink of a piece of work, which puts its text, and behind it what adds to the sums."""
        if self._one is not None:
            yield self._one
            return
        with self._writers.one() as writer:
            sink = RowSink(put, writer=writer)
            yield sink
        put(partial(self.add, sink.replaced, sink.is_empty))

    def add(self, replaced: int, is_empty: bool) -> None:
        """Add what another sink counted to the sums."""
        self._replaced += replaced
        self._is_empty = self._is_empty and is_empty

    def finish(self) -> None:
        """Write what was held back; the next rows belong to another partition."""
        if self._one is not None:
            self._one.finish()

    def tell_nothing(self, noun: str, offsets: Range, times: Range) -> None:
        """Report that ranges of the command line have nothing, if they do.

        Args:
            noun: what rows are: record or batch.
            offsets: as the user gave them.
            times: likewise, in milliseconds.
        """
        if not self.is_empty or self.full or offsets == times == ALL:
            return
        ranges = [
            f"{option} {text(bounds[0])}..{text(bounds[1])}"
            for option, bounds, text in (("--offset", offsets, _plain), ("--time", times, _iso))
            if bounds != ALL
        ]
        complain(f"kseg: nothing is there: no {noun} asked for lies in {' '.join(ranges)}")


def _plain(bound: int | None) -> str:
    return "" if bound is None else str(bound)


def _iso(bound: int | None) -> str:
    return iso_text(bound) or _plain(bound)


def _end_of(count: int, mask: Mask | None, wanted: int) -> int:
    """The row behind the first `wanted` rows that count."""
    if mask is None:
        return min(count, wanted)
    return int(np.flatnonzero(mask)[wanted - 1]) + 1 if wanted else 0
