"""Choose rows to write: by key, the first N, the last N."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kseg.cli.row_writer import RowWriter

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.cli.row_writer import Batches
    from kseg.cli.rows import Template
    from kseg.format.values import BinaryColumn

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
        write: Callable[[memoryview], object],
        *,
        limit: int | None = None,
        last: int | None = None,
    ) -> None:
        """Start with nothing taken.

        Args:
            write: where text goes; done with the bytes when it returns.
            limit: stop after so many rows.
            last: hold rows back until `finish`, and write the last so many.
        """
        self._write = write
        self._left = limit
        self._last = last
        self._held: deque[tuple[bytes, int]] = deque()
        self._held_count = 0
        self._fresh = bytearray()
        self._writer = RowWriter(write if last is None else self._fresh.extend)

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
        if self._left is not None and wanted > self._left:
            count, wanted = _end_of(count, mask, self._left), self._left
        self._writer.rows(template, count, mask=mask)
        if self._left is not None:
            self._left -= wanted
        if self._last is not None:
            self._hold(wanted, self._last)

    def take_stored(self, template: Template, batches: Batches, start: int, stop: int) -> int:
        """Write the records of usual batches, all of them; see `RowWriter.records`."""
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


def _end_of(count: int, mask: Mask | None, wanted: int) -> int:
    """The row behind the first `wanted` rows that count."""
    if mask is None:
        return min(count, wanted)
    return int(np.flatnonzero(mask)[wanted - 1]) + 1 if wanted else 0
