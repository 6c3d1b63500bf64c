"""From templates to bytes written, through one buffer however large a row is.

A row that may not fit the buffer is written piece by piece, its values in parts; that is the only
case in which Python runs per row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kseg.format import text as _text
from kseg.format.workspace import Workspace
from kseg.workers import Buffer

if TYPE_CHECKING:
    pass


Piece = tuple[Any, ...]
#: The pieces of a row, with the columns that fill them.
Template = tuple[Piece, ...]

#: Small enough for the cache, large enough to make system calls rare.
BUFFER_BYTES = 1 << 19
#: Bytes of bodies in a piece of records.
_PIECE_BYTES = 2 << 20
#: The bits of a style that are its encoding.
_ENCODING = 3
_TEXTS = (_text.UTF8, _text.RAW)
#: Takes a view of bytes.
Write = Callable[[memoryview], object]


class RowWriter:
    """Writes rows through a buffer of its own. Not for several threads at once."""

    def __init__(self, write: Write | None = None, buffer_bytes: int | None = None) -> None:
        """Write through `write`; None where `to` says so later."""
        self._buffer = memoryview(Buffer(buffer_bytes or BUFFER_BYTES))
        self.to(write or _nowhere)

    def to(self, write: Write) -> RowWriter:
        """Write through `write` from now on; the same writer.

        It is done with the bytes when it returns, or keeps them. Then it answers another buffer,
        see `kseg.workers.Put`.
        """
        self._write = write
        self.replaced = 0  #: values of CSV that differ from the log's bytes
        self.is_empty = True  #: whether no row was written
        return self

    def rows(self, template: Template, count: int, start: int = 0) -> None:
        """Write rows `start` to `count`."""
        row, replacing = start, inexact(template)
        self.is_empty = self.is_empty and row >= count
        while row < count:
            end = _text.write_rows(template, row, count, self._buffer)
            if end.written:
                self._send(end.written)
                self._count_replaced(replacing, row, end.next_row)
            elif end.next_row < count:
                self._large_row(template, end.next_row)
                row = end.next_row + 1
                continue
            row = end.next_row

    def _send(self, size: int) -> None:
        """Write the first bytes of the buffer."""
        other = self._write(self._buffer[:size])
        if isinstance(other, Buffer):
            self._buffer = memoryview(other)

    def _count_replaced(self, template: Template, start: int, stop: int) -> None:
        """Count the values of inexact pieces that are not UTF-8."""
        for piece in template:
            if piece[0] == _text.BYTES:
                count = _text.count_not_utf8(piece[4], piece[5], start, stop)
            else:
                offsets, values, data = piece[4], piece[7], piece[8]
                count = _text.count_not_utf8(values, data, int(offsets[start]), int(offsets[stop]))
            self.replaced += count

    def _large_row(self, template: Template, row: int) -> None:
        for piece in template:
            end = _text.write_rows((piece,), row, row + 1, self._buffer)
            if end.next_row > row:
                self._send(end.written)
                self._count_replaced(inexact((piece,)), row, row + 1)
            elif piece[0] == _text.BYTES:
                self._large_value(piece, row)
                self._count_replaced(inexact((piece,)), row, row + 1)
            elif piece[0] == _text.HEADERS:
                self._large_headers(piece, row)
            else:
                raise AssertionError("a constant longer than the buffer")

    def _large_value(self, piece: Piece, row: int) -> None:
        _kind, lead, _null, style, offsets, data, _validity = piece
        quote = b'""' if style & _text.NESTED else b'"'
        if style & _text.BARE:
            quote = b""
        left = memoryview(data)[offsets[row] : offsets[row + 1]]
        close = b""
        if style & _text.EXACT and _text.count_not_utf8(offsets, data, row, row + 1):
            style, lead = _text.BASE64, lead + b"{" + quote + b"base64" + quote + b":"
            close = b"}"
        self._write(memoryview(lead + quote))
        while left:
            end = _text.encode_bytes(left, style, True, self._buffer)
            self._send(end.written)
            left = left[end.used :]
        self._write(memoryview(quote + close))

    def _large_headers(self, piece: Piece, row: int) -> None:
        """The headers of one row as rows of their own, a comma before all but one."""
        _kind, lead, _null, style, offsets, *sources = piece
        first, end = int(offsets[row]), int(offsets[row + 1])
        if style & _text.BARE:
            self._write(memoryview(lead + b"["))
            for comma, start, stop in ((b"", first, min(first + 1, end)), (b",", first + 1, end)):
                self.rows(((_text.BYTES, comma, None, style, *sources[:2], None),), stop, start)
            self._write(memoryview(b"]"))
            return
        around = b'"' if style & _text.CSV else b""
        self._write(memoryview(lead + around + b"["))
        self.rows(_header_rows(b"[", style, *sources), min(first + 1, end), first)
        self.rows(_header_rows(b",[", style, *sources), end, first + 1)
        self._write(memoryview(b"]" + around))


def _nowhere(_text: memoryview) -> None:
    raise AssertionError("rows without a place to go")


def dump_workspace() -> Workspace:
    """Memory for a piece whose rows are written at once.

    Python's work for a piece costs more than columns of a piece this large, which exceed the
    second-level cache.
    """
    return Workspace(piece_bytes=_PIECE_BYTES)


def inexact(template: Template) -> Template:
    """The pieces that are written as text of CSV, also where they are not UTF-8."""
    return tuple(
        piece
        for piece in template
        if piece[0] in (_text.BYTES, _text.HEADERS) and _may_replace(piece[3])
    )


def _may_replace(style: int) -> bool:
    return style & (_text.CSV | _text.EXACT) == _text.CSV and style & _ENCODING in _TEXTS


def _header_rows(
    lead: bytes,
    style: int,
    key_offsets: Any,
    key_data: Any,
    value_offsets: Any,
    value_data: Any,
    validity: Any,
) -> Template:
    nested = style | _text.NESTED if style & _text.CSV else style
    key_style = _text.UTF8 | _text.EXACT | (nested & (_text.CSV | _text.NESTED))
    name = (_text.BYTES, lead, b"", key_style, key_offsets, key_data, None)
    value = (_text.BYTES, b",", b"null", nested, value_offsets, value_data, validity)
    return (name, value, (_text.TEXT, b"]"))
