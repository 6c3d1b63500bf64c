"""Older releases of Kafka's tool, and messages of magic 0 and 1 as the tool sees each.

Lines of older releases:

    0.8 .. 0.10.0   a line for each message, without a time
    0.10            a line for each message
    0.11 .. 1.1     a line for each batch, or with deep iteration for each record
    2.8             a line for each batch; behind it, with deep iteration, a line for each record,
                    which repeats the fields of the batch

Of each message, inside compressed messages too, the tool prints the stored checksum and lengths. It
reads a key and a value only to print them. So a wrong length of a value does no harm before that:
`without_lies` has such messages, which `kseg.format.columns.decode` refuses, with null for the
value.

Source: Kafka 0.8.2, 0.10.2, 1.1 and 2.8 `kafka.tools.DumpLogSegments`; `LegacyRecord`,
`AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kseg.cli.kafka_dump.lines import CURRENT, Lines, Messages
from kseg.constants import LOG_OVERHEAD, Int64s, StopReason
from kseg.errors import KsegError
from kseg.format.bodies import wrapper_value
from kseg.format.codec import Arena, decompress_into
from kseg.format.columns import decode
from kseg.format.compress import compress
from kseg.format.header import BatchHeader, BatchTable, scan
from kseg.format.request import INFLATED_BYTES_MAX, Request
from kseg.format.take import take_rows
from kseg.format.values import RecordColumns

#: The line of a batch of magic 2 up to its position; only 2.8 has `count` and `isControl`.
_HEAD: Final = (
    "baseOffset: {base_offset} lastOffset: {last_offset} baseSequence: {base_sequence} "
    "lastSequence: {last_sequence} producerId: {producer_id} producerEpoch: {producer_epoch} "
    "partitionLeaderEpoch: {leader_epoch} isTransactional: {is_transactional}"
)
_OLD_MESSAGE: Final = (
    "offset: {offset} position: {position} isvalid: {valid} payloadsize: {value_size} "
    "magic: {magic} compresscodec: NoCompressionCodec crc: {crc} keysize: {key_size?}"
)
_RECORD: Final = (
    "offset: {offset} position: {position} {timestamp_type}: {timestamp} isvalid: VALID "
    "keysize: {key_size} valuesize: {value_size} magic: {magic} compresscodec: {batch.CODEC}"
)
_NESTED_BATCH: Final = (
    "baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
    "baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
    "producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
    "batchSize: {batch.size} magic: {magic} compressType: {batch.CODEC} position: {position}"
)
_NESTED: Final = (
    "| offset: {offset} isValid: VALID crc: CRC keySize: {key_size} valueSize: {value_size} "
    f"{{timestamp_type}}: {{timestamp}} {_NESTED_BATCH}"
)
_MESSAGES: Final = Lines(
    _HEAD,
    "",
    None,
    _OLD_MESSAGE,
    nested=False,
    keyed=False,
    lenient=True,
    gaps="Non-secutive offsets in :",
    title="Starting",
    deep_only=True,
)
_BATCHES: Final = Lines(
    _HEAD,
    " position: {position} {timestamp_type}: {max_timestamp} isvalid: {crc_ok} size: {size} "
    "magic: {magic} compresscodec: {CODEC} crc: {crc}\n",
    _RECORD.replace("VALID", "true")
    + " producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
    " sequence: {sequence} isTransactional: {batch.is_transactional}",
    _RECORD.replace("VALID", "{valid}") + " crc: {crc}",
    nested=False,
    keyed=False,
    gaps="Non-consecutive offsets in :",
    title="Starting",
)
#: By release; releases without a fixture are left out.
VERSIONS: Final = {
    "0.8": _MESSAGES._replace(null_payload=b"null", keyed=True),
    "0.9": _MESSAGES,
    "0.10.0": _MESSAGES,
    "0.10": _MESSAGES._replace(
        message=_OLD_MESSAGE.replace(" isvalid", " {timestamp_type}: {timestamp} isvalid").replace(
            "NoCompressionCodec", "NONE"
        ),
        lenient=False,
    ),
    "0.11": _BATCHES,
    "1.0": _BATCHES,
    "1.1": _BATCHES,
    "2.8": _BATCHES._replace(
        head=CURRENT.head,
        batch=CURRENT.batch.replace("{codec}", "{CODEC}"),
        record=_NESTED.replace("VALID", "true").replace("CRC", "null") + " sequence: {sequence}",
        # Of a compressed message only the messages inside say where it begins.
        message=_NESTED.replace("VALID", "{valid}")
        .replace("CRC", "{crc}")
        .replace("{batch.base_offset}", "{base_offset}")
        + " crc: {crc} isvalid: {valid}",
        nested=True,
        keyed=True,
    ),
}


# ---- messages ------------------------------------------------------------------------------------

#: The place of the length of a key in an entry of magic 0 and of magic 1.
_KEY_AT = np.array([18, 26])
_LENGTH_BYTES = 4
_NULL = b"\xff\xff\xff\xff"


class MessageReader:
    """Messages, a decoded piece at a time; a compressed one may reach over pieces."""

    def __init__(self) -> None:
        """Start in front of the first piece."""
        self._position = -1
        self._taken = 0
        self._inner: Messages | None = None

    def of(self, data: memoryview, base: int, table: BatchTable, rows: Int64s) -> Messages:
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

    def without_lies(
        self, data: memoryview, base: int, header: BatchHeader, request: Request
    ) -> Iterator[RecordColumns]:
        """The messages of one entry behind those of `of`; null for a value with a wrong length.

        Yields:
            Nothing if no length is wrong, or the messages cannot be separated.

        Raises:
            KsegError: at a message that cannot be read even so.
        """
        skip = self._taken if header.position == self._position else 0
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

    def _take(self, entry: memoryview, header: BatchHeader, count: int) -> Messages:
        if header.position != self._position or self._inner is None:
            self._position, self._taken = header.position, 0
            self._inner = _inside(_inflated(entry, header))
        start = self._taken
        self._taken += count
        return self._inner.of(start, self._taken)


def _mended(entry: memoryview, header: BatchHeader) -> memoryview | None:
    """An entry with null for each value with a wrong length; None if all lengths are right."""
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


def _messages(data: memoryview, starts: Int64s, table: BatchTable) -> Messages:
    """The messages that begin at `starts` in `data`, with the headers of `table`."""
    key_at = starts + _KEY_AT[np.clip(table.magic, 0, 1)]
    key_size = _int32(data, key_at)
    value_at = key_at + _LENGTH_BYTES + np.maximum(key_size, 0)
    left = starts + table.size - value_at - _LENGTH_BYTES
    # Where a key leaves no room for this length, the message is refused, and nothing asks for it.
    value_size = np.where(left < 0, left, _int32(data, value_at))
    return Messages(table.crc.copy(), table.crc_ok != 0, key_size, value_size, left, value_at)


def _int32(data: memoryview, at: Int64s) -> Int64s:
    """Signed big-endian numbers of 32 bits; those behind the end are anything."""
    held = np.frombuffer(data, np.uint8)
    places = np.minimum(at, len(held) - _LENGTH_BYTES)[:, None] + np.arange(_LENGTH_BYTES)
    numbers: Int64s = held[places].view(">i4")[:, 0].astype(np.int64)
    return numbers
