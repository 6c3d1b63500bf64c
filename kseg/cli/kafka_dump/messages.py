"""Messages of magic 0 and 1 as Kafka's tool sees each, those inside compressed messages too.

The tool prints the checksum and the lengths that a message stores. It reads a key and a value only
where it prints them, so a value whose length lies does no harm before that: `without_lies` has
such messages, which `kseg.format.columns.decode` refuses, with null for the value.

Source: Kafka `LegacyRecord`, `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kseg.constants import LOG_OVERHEAD, StopReason
from kseg.errors import KsegError
from kseg.format.bodies import wrapper_value
from kseg.format.codec import Arena, decompress_into
from kseg.format.columns import decode
from kseg.format.compress import compress
from kseg.format.header import scan
from kseg.format.request import INFLATED_BYTES_MAX
from kseg.format.take import take_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.header import BatchHeader, BatchTable
    from kseg.format.request import Request
    from kseg.format.values import RecordColumns

    Numbers = npt.NDArray[np.int64]

#: Where the length of a key lies, from the start of an entry of magic 0 and of magic 1.
_KEY_AT = np.array([18, 26])
_LENGTH_BYTES = 4
_NULL = b"\xff\xff\xff\xff"


class Messages(NamedTuple):
    """What each of some messages says of itself.

    Attributes:
        crc: the checksum stored, int64[n].
        valid: whether it is right, bool[n].
        key_size: the length of the key as stored, int64[n]; negative for none.
        value_size: likewise of the value.
        left: bytes behind the length of the value, int64[n]: no value has more.
        value_at: where that length lies in the bytes around the message, int64[n].
    """

    crc: Numbers
    valid: npt.NDArray[np.bool_]
    key_size: Numbers
    value_size: Numbers
    left: Numbers
    value_at: Numbers

    def unread(self) -> dict[int, str]:
        """The messages whose values cannot be read, with Java's words for why."""
        rows = np.flatnonzero(self.value_size > self.left).tolist()
        return {
            row: f"newLimit > capacity: ({self.value_size[row]} > {self.left[row]})" for row in rows
        }

    def of(self, start: int, end: int) -> Messages:
        """Some of them."""
        columns: list[Any] = [column[start:end] for column in self]
        return Messages(*columns)


class MessageReader:
    """Messages, a decoded piece at a time; a compressed one may reach over pieces."""

    def __init__(self) -> None:
        """Start in front of the first piece."""
        self._position = -1
        self._taken = 0
        self._inner: Messages | None = None

    def of(
        self, data: memoryview, base: int, table: BatchTable, rows: npt.NDArray[np.int64]
    ) -> Messages:
        """The messages of one piece.

        Args:
            data: bytes of the file from `base` on.
            base: position of `data[0]`.
            table: outermost messages in `data`.
            rows: int64[n], the outermost message of each decoded one, in order.
        """
        found = _messages(data, table.position[rows] - base, table.take(rows))
        for row in np.unique(rows[table.is_wrapper[rows]]).tolist():
            first, end = np.searchsorted(rows, [row, row + 1]).tolist()
            inner = self._take(_entry(data, base, table[row]), table[row], end - first)
            for column, values in zip(found, inner, strict=True):
                column[first : first + len(values)] = values
        return found

    def behind_a_lie(
        self, data: memoryview, base: int, header: BatchHeader, request: Request
    ) -> Iterator[RecordColumns]:
        """The messages of one entry that have not been asked for; see `without_lies`."""
        done = self._taken if header.position == self._position else 0
        yield from without_lies(data, base, header, request, skip=done)

    def _take(self, entry: memoryview, header: BatchHeader, count: int) -> Messages:
        if header.position != self._position or self._inner is None:
            self._position, self._taken = header.position, 0
            self._inner = _inside(_inflated(entry, header))
        start = self._taken
        self._taken += count
        return self._inner.of(start, self._taken)


def without_lies(
    data: memoryview, base: int, header: BatchHeader, request: Request, *, skip: int
) -> Iterator[RecordColumns]:
    """The messages of one entry behind the first `skip`, with null for values whose length lies.

    Yields:
        Nothing where no such length lies, or the messages cannot be told apart.

    Raises:
        KsegError: at a message that cannot be read even so.
    """
    try:
        mended = _mended(_entry(data, base, header), header)
    except KsegError:
        return
    if mended is None:
        return
    table = scan(mended, base=header.position, on_bad_crc="note")
    for columns in decode(mended, table, request, base=header.position):
        dropped = min(skip, len(columns))
        skip -= dropped
        if dropped < len(columns):
            yield take_rows(columns, np.arange(dropped, len(columns)))


def _mended(entry: memoryview, header: BatchHeader) -> memoryview | None:
    """An entry with null for each value whose length lies; None if none does."""
    if not header.codec:
        outer = _messages(entry, np.zeros(1, np.int64), scan(entry, on_bad_crc="note"))
        return _with_nulls(entry, outer)
    value = wrapper_value(entry, header.codec)
    inner = _inflated(entry, header)
    inner_mended = _with_nulls(inner, _inside(inner))
    if inner_mended is None:
        return None
    packed = compress(header.codec, inner_mended, magic=header.magic)
    value_at = len(entry) - len(value)
    head = bytearray(entry[: value_at - _LENGTH_BYTES])
    size = len(head) + _LENGTH_BYTES + len(packed) - LOG_OVERHEAD
    head[8:LOG_OVERHEAD] = size.to_bytes(_LENGTH_BYTES, "big")
    return memoryview(bytes(head) + len(packed).to_bytes(_LENGTH_BYTES, "big") + packed)


def _with_nulls(data: memoryview, messages: Messages) -> memoryview | None:
    lying = messages.unread()
    if not lying:
        return None
    mended = bytearray(data)
    for row in lying:
        at = int(messages.value_at[row])
        mended[at : at + _LENGTH_BYTES] = _NULL
    return memoryview(mended)


def _entry(data: memoryview, base: int, header: BatchHeader) -> memoryview:
    return data[header.position - base :][: header.size]


def _inflated(entry: memoryview, header: BatchHeader) -> memoryview:
    arena = Arena()
    body = wrapper_value(entry, header.codec)
    decompress_into(header.codec, body, arena, magic=header.magic, limit=INFLATED_BYTES_MAX)
    return arena.view()[: arena.used]


def _inside(inflated: memoryview) -> Messages:
    """The messages of an inflated set."""
    tables = [scan(inflated, on_bad_crc="note")]
    while tables[-1].stop is StopReason.LIMIT:
        tables.append(scan(inflated, start=tables[-1].end_position, on_bad_crc="note"))
    parts = [_messages(inflated, table.position, table) for table in tables]
    columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Messages(*columns)


def _messages(data: memoryview, starts: Numbers, table: BatchTable) -> Messages:
    """The messages that begin at `starts` in `data`, with the headers of `table`."""
    key_at = starts + _KEY_AT[np.clip(table.magic, 0, 1)]
    key_size = _int32(data, key_at)
    value_at = key_at + _LENGTH_BYTES + np.maximum(key_size, 0)
    left = starts + table.size - value_at - _LENGTH_BYTES
    # Where a key leaves no room for this length, the message is refused, and nothing asks for it.
    value_size = np.where(left < 0, left, _int32(data, value_at))
    return Messages(table.crc.copy(), table.crc_ok != 0, key_size, value_size, left, value_at)


def _int32(data: memoryview, at: Numbers) -> Numbers:
    """Signed big-endian numbers of 32 bits; those behind the end are anything."""
    held = np.frombuffer(data, np.uint8)
    places = np.minimum(at, len(held) - _LENGTH_BYTES)[:, None] + np.arange(_LENGTH_BYTES)
    numbers: Numbers = held[places].view(">i4")[:, 0].astype(np.int64)
    return numbers
