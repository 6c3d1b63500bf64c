"""Records of batches that are not read in one pass: inflated bytes, or the error.

An unusual batch is read alone: `body_of` inflates it or explains its fault, and `record_error`
turns a kernel's fault in a record into an error. Messages of Kafka 0.7 are listed here, too. This
module knows neither fields nor files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from kseg import _core
from kseg.constants import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD,
    NESTING_MAX,
    Compression,
    Int64s,
    StopReason,
)
from kseg.errors import (
    CorruptRecordError,
    FormatError,
    InvalidRecordError,
    KsegError,
    LimitExceededError,
)
from kseg.format import codec
from kseg.format.header import BatchHeader, BatchTable, crc_error, scan, stop_error

_ErrorT = TypeVar("_ErrorT", bound=KsegError)

#: A piece inflates no further set of Kafka 0.7 once its arena holds this much: little enough to be
#: in the second-level cache still when its messages are gathered.
ARENA_PIECE_BYTES = 1 << 20
#: As many messages of Kafka 0.7 are listed at a time.
MESSAGES_PIECE = 16_384
#: The checksum of a message of magic 0 or 1, and of a batch, and from which of its bytes on.
_LEGACY_CRC = (_core.crc32, 16)
_BATCH_CRC = (_core.crc32c, 21)


def body_of(
    data: memoryview,
    table: BatchTable,
    *,
    base: int,
    arena: codec.Arena,
    inflated_max: int,
    refuse_bad_crc: bool,
) -> memoryview | None:
    """Inflate the records of the only batch of a table; None if no inflating is needed.

    Args:
        data: borrowed bytes; `data[0]` is at file position `base`.
        table: the header of one batch inside `data`.
        base: file position of `data[0]`.
        arena: holds the inflated bytes; the answer is a view of it.
        inflated_max: the batch may not inflate to more bytes.
        refuse_bad_crc: a wrong checksum is a fault. That of a plain batch is compared here only if
            the walk has done so; else the kernel that reads its records does it.

    Raises:
        FormatError, LimitExceededError: with position and offset of the batch.
    """
    header, start = table[0], int(table.position[0]) - base
    if header.crc_ok == 0 and _is_fault(header, refuse_bad_crc, base + len(data)):
        raise crc_error(header)
    legacy = header.magic < 2
    if not header.codec or (not legacy and header.record_count <= 0):
        return None
    entry = data[start : start + header.size]
    checksum, covered_at = _LEGACY_CRC if legacy else _BATCH_CRC
    # Checksums that the walk did not compare are compared before the codec runs.
    if refuse_bad_crc and header.crc_ok < 0 and checksum(entry[covered_at:]) != header.crc:
        raise crc_error(header)
    kind = int(header.codec)
    arena.clear()
    try:
        body = wrapper_value(entry, kind) if legacy else entry[BATCH_HEADER_BYTES:]
        codec.decompress_into(kind, body, arena, magic=header.magic, limit=inflated_max)
    except (FormatError, LimitExceededError) as error:
        at_batch(error, header)
        raise
    return arena.view()


def _is_fault(header: BatchHeader, refuse_bad_crc: bool, data_end: int) -> bool:
    """Whether a wrong checksum is a fault: always, or only for batches without usable records.

    A batch may be too short for its own header, or may reach past the borrowed bytes.
    """
    short = header.magic >= 2 and header.size < BATCH_HEADER_BYTES
    return refuse_bad_crc or short or header.position + header.size > data_end


def wrapper_value(entry: memoryview, kind: int) -> memoryview:
    """The compressed set inside a magic 0 or 1 message; its key is passed over.

    Source: Kafka AbstractLegacyRecordBatch.DeepRecordsIterator.
    """
    if kind == Compression.ZSTD:
        raise InvalidRecordError("zstd inside a message of magic 0 or 1")
    at = LOG_OVERHEAD + (14 if entry[16] else 6)  # after CRC, magic, attributes, and time of 1
    for name in ("key", "value"):
        bytes_left = len(entry) - at - 4
        if bytes_left < 0:
            raise InvalidRecordError(f"the message ends before the length of its {name}")
        length = int.from_bytes(entry[at : at + 4], "big", signed=True)
        if length > bytes_left:
            raise InvalidRecordError(
                f"{name} of {length} bytes in a message with {bytes_left} left"
            )
        if name == "key":
            at += 4 + max(0, length)
    if length < 0:
        raise InvalidRecordError("compressed message without a value")
    return entry[at + 4 : at + 4 + length]


# ---- Kafka 0.7 -----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)  # a frozen dataclass takes longer to make
class Payloads:
    """Payloads of messages of Kafka 0.7.

    Attributes:
        spans: int64[n, 3], for each the borrowed bytes (0) or the arena (1), its place there, its
            size.
        offsets: int64[n].
        batches: int64[n], the row of each one's outermost message in the table they come from.
        fault: the error of the message after them; None if there is no error.
    """

    spans: Int64s
    offsets: Int64s
    batches: Int64s
    fault: KsegError | None = None


def each_payload(
    data: memoryview,
    table: BatchTable,
    *,
    base: int,
    arena: codec.Arena,
    inflated_max: int,
    refuse_bad_crc: bool,
) -> Iterator[Payloads]:
    """The payloads of all messages of a table, as many at a time as a piece should hold.

    Args:
        data, base: as for `body_of`.
        table: headers of messages of Kafka 0.7 inside `data`.
        arena: holds the inflated bytes of one piece, or of one set that makes several;
            the payloads are views of it.
        inflated_max: no set may inflate to more bytes.
        refuse_bad_crc: a message with a wrong checksum is a fault.
    """
    arena.clear()
    first = 0
    while first < len(table):
        end, fault = _run_end(table, first, refuse_bad_crc, base + len(data))
        yield from _run(data, table, first, end, base, arena, inflated_max)
        if fault is not None:
            yield _Gathered().drain(fault)
        first = end + (fault is not None)


def _run_end(
    table: BatchTable, first: int, refuse_bad_crc: bool, data_end: int
) -> tuple[int, KsegError | None]:
    """The end of a run of sound messages, at the first bad one; and the bad message's error."""
    if table.bad_crc_count:
        bad = table.crc_ok[first:] == 0
        if not refuse_bad_crc:  # a message past the borrowed bytes has no payload to show
            bad &= table.position[first:] + table.size[first:] > data_end
        bad_rows = np.flatnonzero(bad)
        if len(bad_rows):
            end = first + int(bad_rows[0])
            return end, crc_error(table[end])
    return len(table), None


def _run(
    data: memoryview,
    table: BatchTable,
    first: int,
    end: int,
    base: int,
    arena: codec.Arena,
    inflated_max: int,
) -> Iterator[Payloads]:
    """Payloads of sound messages `[first, end)`; split or joined to fit pieces."""
    compressed = np.flatnonzero(table.attributes[first:end]) + first
    gathered = _Gathered()
    at = first
    for index in [*compressed.tolist(), end]:
        rows = table.rows[at:index]
        base_offsets = rows[:, _BASE_OFFSET]
        gathered.add(_spans(rows, 0, -base), base_offsets, np.arange(at, index))
        at = index + 1
        if index == end or arena.used >= ARENA_PIECE_BYTES or gathered.count >= MESSAGES_PIECE:
            yield gathered.drain()
            arena.clear()
        if index == end:
            return
        header = table[index]
        entry = data[header.position - base : header.position - base + header.size]
        try:
            for spans in _inflate_nested(entry, arena, arena.used + inflated_max, depth=1):
                offsets = np.full(len(spans), header.base_offset, np.int64)
                gathered.add(spans, offsets, np.full(len(spans), index, np.int64))
                if gathered.count >= MESSAGES_PIECE:
                    yield gathered.drain()
        except (FormatError, LimitExceededError) as error:
            yield gathered.drain(at_batch(error, header))


class _Gathered:
    """Payloads that are gathered until they make a piece."""

    def __init__(self) -> None:
        self.spans = [np.empty((0, 3), np.int64)]
        self.offsets = [_NO_OFFSETS]
        self.batches = [_NO_OFFSETS]
        self.count = 0

    def add(self, spans: Int64s, offsets: Int64s, batches: Int64s) -> None:
        self.spans.append(spans)
        self.offsets.append(offsets)
        self.batches.append(batches)
        self.count += len(spans)

    def drain(self, fault: KsegError | None = None) -> Payloads:
        """Hand over the gathered messages, and start again."""
        parts = self.spans, self.offsets, self.batches
        spans, offsets, batches = (np.concatenate(part) for part in parts)
        _Gathered.__init__(self)
        return Payloads(spans, offsets, batches, fault)


_NO_OFFSETS = np.empty(0, np.int64)
#: The place of the field in `kseg.format.header.FIELDS`, which begin with position, size and magic.
_BASE_OFFSET = 3


def _spans(messages: Int64s, source: int, shift: int) -> Int64s:
    """The places of plain messages' payloads, as in `Payloads.spans`.

    Args:
        messages: their row numbers in a table of headers.
        source: 0 for the borrowed bytes, 1 for the arena.
        shift: added to the positions in the headers.
    """
    position, size, magic = messages[:, :3].T
    header_bytes = 9 + magic  # magic 1 has attributes
    return np.column_stack(
        (np.full(len(messages), source), position + shift + header_bytes, size - header_bytes)
    )


def _inflate_nested(
    entry: memoryview, arena: codec.Arena, ceiling: int, *, depth: int
) -> Iterator[Int64s]:
    """Inflate a compressed message of Kafka 0.7, and compressed messages in it, into an arena.

    The set is inflated whole, its messages are not listed whole: the smallest has 9 bytes.

    Args:
        entry: the message.
        arena: receives the set.
        ceiling: the most bytes that the arena may hold.
        depth: how many messages are around this one.

    Yields:
        Where payloads begin and end in the arena, some thousand at a time.
    """
    if depth > NESTING_MAX:
        raise LimitExceededError(f"compressed messages nested deeper than {NESTING_MAX}")
    # Size, magic, attributes with the codec, and CRC: 10 bytes, since magic 0 has no codec.
    kind = entry[5] & 3
    if kind > Compression.SNAPPY:
        raise InvalidRecordError(f"Kafka 0.7 knows no codec {kind}")
    position = arena.used
    codec.decompress_into(kind, entry[10:], arena, magic=0, limit=ceiling - position)
    end, seen = arena.used, 0
    while True:
        set_left = arena.view()[position:end]
        table = scan(set_left, base=position, kafka07=True, batches_max=MESSAGES_PIECE)
        seen += len(table)
        at = 0
        # Plain messages up to each compressed one, and then its contents.
        for index in [*np.flatnonzero(table.attributes).tolist(), len(table)]:
            if index > at:
                yield _spans(table.rows[at:index], 1, 0)
            if index < len(table):
                start, size = table.rows[index, :2].tolist()
                nested = memoryview(bytes(arena.view()[start : start + size]))
                yield from _inflate_nested(nested, arena, ceiling, depth=depth + 1)
            at = index + 1
        if table.stop is not StopReason.LIMIT:
            break
        position = table.end_position
    # A fault inside a set does not end the walk over the file.
    if table.stop is StopReason.BAD_CRC:
        raise CorruptRecordError(_RECORD_TEXT[_MESSAGE_MISMATCH], record_index=seen)
    if table.stop.value > StopReason.TORN_TAIL.value:
        raise CorruptRecordError(stop_error(table).reason, record_index=seen)
    if not seen and table.stop is StopReason.TORN_TAIL:
        reason = "compressed message whose set is cut before its first message ends"
        raise CorruptRecordError(reason, record_index=0)


# ---- faults that a kernel found ------------------------------------------------------------------

_RECORD_TEXT = {
    1: "the record count is negative",
    2: "fewer records than the header counts",
    3: "bytes left over after the last record",
    4: "a record's length is zero, negative or runs past the batch",
    5: "a variable-length number is cut off or too long",
    6: "the key runs past its record",
    7: "the value runs past its record",
    8: "the header count is negative or larger than the bytes left",
    9: "a header's name is null, cut off or runs past its record",
    10: "a header's value is cut off or runs past its record",
    11: "a record's fields do not fill its length",
    12: "a message inside is smaller than any message can be",
    13: "a message inside does not match its checksum",
    14: "a compressed message holds no messages",
    15: "the wrapper's offset is below its last message's",
    16: "a compressed message inside a compressed message",
    17: "a message of a magic that its set cannot hold",
}
_CORRUPT = {12, 13}
_MESSAGE_MISMATCH, _BATCH_MISMATCH = 13, 18


def record_error(status: int, header: BatchHeader, record_index: int) -> FormatError:
    """The error for a record that a locating kernel refused."""
    plain = not header.codec
    if status == _BATCH_MISMATCH or (status == _MESSAGE_MISMATCH and plain):
        return crc_error(header)
    kind = CorruptRecordError if status in _CORRUPT else InvalidRecordError
    reason = _RECORD_TEXT[status]
    return at_batch(kind(reason, record_index=record_index), header)


def message_error(position: int, offset: int) -> CorruptRecordError:
    """The error for a message inside a sound wrapper whose own checksum is wrong."""
    reason = _RECORD_TEXT[_MESSAGE_MISMATCH]
    return CorruptRecordError(reason, position=position, offset=offset)


def at_batch(error: _ErrorT, header: BatchHeader) -> _ErrorT:
    """Say in which batch an error arose."""
    error.position = header.position
    error.offset = header.base_offset if header.base_offset >= 0 else header.last_offset
    return error
