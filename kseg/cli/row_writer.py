"""From templates to bytes written, through one buffer however large a row is.

A row that may not fit the buffer is written piece by piece, its values in parts; that is the only
case in which Python runs per row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from kseg.cli.failures import complain
from kseg.format import text as _text
from kseg.format.request import Request
from kseg.format.times import iso_text
from kseg.format.workspace import Workspace
from kseg.records.query import ALL
from kseg.workers import Buffer, PerThread, Put

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
        return self

    def rows(self, template: Template, count: int, start: int = 0) -> None:
        """Write rows `start` to `count`."""
        row, replacing = start, inexact(template)
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
                found = _text.count_not_utf8(piece[4], piece[5], start, stop)
            else:
                found = _count_in_headers(piece, start, stop)
            self.replaced += found

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
            self._large_names(lead, style, sources[:2], first, end)
            return
        around = b'"' if style & _text.CSV else b""
        self._write(memoryview(lead + around + b"["))
        self.rows(_header_rows(b"[", style, *sources), min(first + 1, end), first)
        self.rows(_header_rows(b",[", style, *sources), end, first + 1)
        self._write(memoryview(b"]" + around))

    def _large_names(self, lead: bytes, style: int, names: list[Any], first: int, end: int) -> None:
        self._write(memoryview(lead + b"["))
        for comma, start, stop in ((b"", first, min(first + 1, end)), (b",", first + 1, end)):
            self.rows(((_text.BYTES, comma, None, style, *names, None),), stop, start)
        self._write(memoryview(b"]"))


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


def _count_in_headers(piece: Piece, start: int, stop: int) -> int:
    offsets, values, data = piece[4], piece[7], piece[8]
    return _text.count_not_utf8(values, data, int(offsets[start]), int(offsets[stop]))


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


# ---- the chosen rows -----------------------------------------------------------------------------


class RowSink:
    """Writes rows up to a limit, or holds back the last ones. Not for several threads.

    It holds back text, which is as large as the answer; columns would keep whole pieces of a log
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
        """The number of values of CSV, written or held back, that differ from the log's bytes."""
        return self._writer.replaced

    @property
    def left(self) -> int | None:
        """The number of rows that the sink will still take; None for any number."""
        return self._left

    @property
    def full(self) -> bool:
        """Whether no further row will be written."""
        return self._left == 0

    def take(self, template: Template, count: int) -> None:
        """Write the rows of a piece, or hold them back."""
        if not count:
            return
        self.is_empty = False
        if self._left is not None:
            count = min(count, self._left)
            self._left -= count
        self._writer.rows(template, count)
        if self._last is not None:
            self._hold(count, self._last)

    def finish(self) -> None:
        """Write the pending rows; the next rows belong to another partition."""
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
        self._writers = PerThread(RowWriter)
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
        """The number of values of CSV that differ from the log's bytes, in all sinks."""
        return self._replaced + (0 if self._one is None else self._one.replaced)

    @contextmanager
    def sink(self, put: Put) -> Iterator[RowSink]:
        """The sink of a piece of work: it puts its text, and then a function that adds its sums."""
        if self._one is not None:
            yield self._one
            return
        with self._writers.one() as writer:
            sink = RowSink(put, writer=writer)
            yield sink
        put(partial(self.add, sink.replaced, sink.is_empty))

    def add(self, replaced: int, is_empty: bool) -> None:
        """Add the counts of another sink to the sums."""
        self._replaced += replaced
        self._is_empty = self._is_empty and is_empty

    def finish(self) -> None:
        """Write the pending rows; the next rows belong to another partition."""
        if self._one is not None:
            self._one.finish()

    def tell_nothing(self, noun: str, request: Request) -> None:
        """Report that the ranges of a request have nothing, if they do.

        Args:
            noun: for one row: record or batch.
            request: with the ranges.
        """
        if not self.is_empty or self.full:
            return
        asked: Any = (("--offset", request.offset, _plain), ("--time", request.time, _iso))
        ranges = [
            f"{option} {text(bounds[0])}..{text(bounds[1])}"
            for option, bounds, text in asked
            if bounds != ALL
        ]
        if ranges:
            complain(f"kseg: no {noun} found in {' '.join(ranges)}")


def _plain(bound: Any) -> str:
    return "" if bound is None else str(bound)


def _iso(bound: Any) -> str:
    return iso_text(bound) or _plain(bound)
