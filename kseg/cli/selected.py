"""Which of the records that come by are written: by key, the first N, the last N."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kseg.cli.row_writer import RowWriter
from kseg.cli.rows import RECORD_FIELDS, Field, Style, record_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.columns import BinaryColumn, RecordColumns

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


@dataclass(frozen=True, slots=True)
class _Held:
    columns: RecordColumns
    style: Style
    mask: Mask | None
    count: int


class RecordSink:
    """Takes pieces of records and writes the rows that are wanted. Not for several threads."""

    def __init__(
        self,
        writer: RowWriter,
        *,
        key: bytes | None = None,
        limit: int | None = None,
        last: int | None = None,
        fields: tuple[Field, ...] = RECORD_FIELDS,
    ) -> None:
        """Start with nothing taken.

        Args:
            writer: where rows go.
            key: only records with exactly this key.
            limit: stop after so many rows.
            last: hold back rows until `finish`, and write the last so many.
            fields: the columns of a row.
        """
        self._writer = writer
        self._key = key
        self._left = limit
        self._last = last
        self._fields = fields
        self._held: deque[_Held] = deque()
        self._held_count = 0
        self.written = 0

    @property
    def full(self) -> bool:
        """Whether no further row will be written."""
        return self._left == 0

    def take(self, columns: RecordColumns, style: Style) -> None:
        """Write the wanted rows of a piece, or hold them back."""
        mask = None if self._key is None else equal_to(columns["key"], self._key)
        count = len(columns) if mask is None else int(np.count_nonzero(mask))
        if not count:
            return
        piece = _Held(columns, style, mask, count)
        if self._last is not None:
            self._hold(piece, self._last)
            return
        if self._left is not None:
            piece = _first_of(piece, self._left)
            self._left -= piece.count
        self._write(piece)

    def finish(self) -> None:
        """Write what was held back; the next piece begins another partition."""
        surplus = self._held_count - (self._last or 0)
        for number, piece in enumerate(self._held):
            self._write(_without_first(piece, surplus) if number == 0 and surplus > 0 else piece)
        self._held.clear()
        self._held_count = 0

    def _hold(self, piece: _Held, last: int) -> None:
        self._held.append(piece)
        self._held_count += piece.count
        while self._held and self._held_count - self._held[0].count >= last:
            self._held_count -= self._held.popleft().count

    def _write(self, piece: _Held) -> None:
        template = record_rows(piece.columns, piece.style, self._fields)
        self._writer.rows(template, len(piece.columns), mask=piece.mask)
        self.written += piece.count


def _mask_of(piece: _Held) -> Mask:
    if piece.mask is not None:
        return piece.mask.copy()
    return np.ones(len(piece.columns), np.bool_)


def _first_of(piece: _Held, count: int) -> _Held:
    if piece.count <= count:
        return piece
    mask = _mask_of(piece)
    mask[np.flatnonzero(mask)[count:]] = False
    return _Held(piece.columns, piece.style, mask, count)


def _without_first(piece: _Held, count: int) -> _Held:
    mask = _mask_of(piece)
    mask[np.flatnonzero(mask)[:count]] = False
    return _Held(piece.columns, piece.style, mask, piece.count - count)
