"""Where the records of each batch lie: in the bytes lent, or inflated in an arena.

Compressed batches join the path of plain ones here: one call then locates and gathers the records
of a piece, whatever their codec. This module inflates, and turns what a kernel found wrong into an
error. It knows neither fields nor files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kseg import _core
from kseg._kernels import frames as _frames
from kseg.constants import BATCH_HEADER_BYTES, LOG_OVERHEAD, NESTING_MAX, Compression, StopReason
from kseg.errors import (
    CorruptRecordError,
    FormatError,
    InvalidRecordError,
    KsegError,
    LimitExceededError,
)
from kseg.format import codec
from kseg.format.header import CODEC_MASK, BatchTable, crc_error, scan, stop_error

if TYPE_CHECKING:
    from kseg.format.arena import Arena
    from kseg.format.header import BatchHeader, Int64Array

_ErrorT = TypeVar("_ErrorT", bound=KsegError)

#: Columns of `Bodies.rows`, in order.
FIELDS = (
    "source",
    "start",
    "end",
    "base_offset",
    "base_timestamp",
    "max_timestamp",
    "log_append",
    "count",
    "eager",
    "magic",
    "crc",
)
(
    SOURCE,
    START,
    END,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    TIMESTAMP_TYPE,
    COUNT,
    EAGER,
    MAGIC,
    CRC,
) = range(len(FIELDS))
#: int64[15] that a locating kernel goes on from: body, record, position, checked, shift, then what
#: it found: rows, status, key bytes, key nulls, value bytes, value nulls, headers, header name
#: bytes, value bytes, value nulls.
STATE_FIELDS = 15
STATE_KEPT = 5

#: A piece inflates no further batch once its arena holds this much: little enough to be in the
#: second-level cache still when its records are gathered.
ARENA_PIECE_BYTES = 1 << 20
#: As many messages of Kafka 0.7 are listed at a time.
MESSAGES_PIECE = 16_384
#: `BatchTable.magics_seen` of a table without older batches.
_ONLY_MAGIC_2 = 1 << 2
#: What inflating has to know of a body.
_INFLATE_FIELDS = [START, END, EAGER, MAGIC, CRC]
_INFLATE_AHEAD = 64
#: The checksum of an entry or a batch, and from where on it is taken, told from the body's start.
_LEGACY_CRC = (_core.crc32, 16)
_BATCH_CRC = (_core.crc32c, 21 - BATCH_HEADER_BYTES)


@dataclass(slots=True, eq=False)  # frozen ones take longer to make
class Bodies:
    """The records of a run of batches that one kernel can locate.

    Attributes:
        rows: int64[m, 11], columns as in `FIELDS`; `start` and `end` count from the beginning of
            their source, which is the bytes lent (0) or the arena (1); `crc` is the checksum that
            the kernel has still to compare, or -1.
        batches: int64[m], the row of each body's batch in the table they come from.
        batch_end: the first batch of the table that these bodies do not cover to its end.
        legacy: the batches are of magic 0 and 1.
        fault: the error of the batch in front of `batch_end`, which then has no body; else None.
    """

    rows: Int64Array
    batches: Int64Array
    batch_end: int
    legacy: bool = False
    fault: KsegError | None = None


def each_bodies(
    data: memoryview,
    table: BatchTable,
    *,
    base: int,
    arena: Arena,
    inflated_max: int,
    refuse_bad_crc: bool,
) -> Iterator[Bodies]:
    """The bodies of all batches of a table, as many at a time as a piece should hold.

    Args:
        data: the bytes lent; `data[0]` lies at file position `base`.
        table: headers of batches inside `data`.
        base: file position of `data[0]`.
        arena: holds the inflated bytes of one piece, or of one batch that makes several pieces;
            lent with it.
        inflated_max: no batch may inflate to more bytes.
        refuse_bad_crc: a batch with a wrong checksum is a fault; one that the walk did not look at
            is compared here, or by the kernel that locates its records.
    """
    if table.kafka07:
        arena.clear()
        yield from _each_07(data, table, base, arena, inflated_max, refuse_bad_crc)
        return
    first = 0
    while first < len(table):
        bodies = _take(data, table, first, base, arena, inflated_max, refuse_bad_crc)
        yield bodies
        first = bodies.batch_end


def _take(
    data: memoryview,
    table: BatchTable,
    first: int,
    base: int,
    arena: Arena,
    inflated_max: int,
    refuse_bad_crc: bool,
) -> Bodies:
    """Bodies of batches `[first, ...)`: as many as a piece should hold, all of one family."""
    arena.clear()
    end, fault = _run_end(table, first, refuse_bad_crc, base + len(data))
    headers = table.rows[first:end]
    rows = np.empty((end - first, len(FIELDS)), np.int64)
    _frames.plain_bodies(headers, base, refuse_bad_crc, rows)
    legacy = table.magics_seen != _ONLY_MAGIC_2 and end > first and bool(headers[0, 2] < 2)
    if table.attributes_seen & CODEC_MASK:
        taken, refused = _inflate(data, rows, legacy, arena, inflated_max)
        if taken < len(rows):
            rows, end, fault = rows[:taken], first + taken, None
        if isinstance(refused, _MismatchError):
            fault = crc_error(table[end])
        elif refused is not None:
            fault = at_batch(refused, table[end])
    batches = np.arange(first, end, dtype=np.int64)
    return Bodies(rows, batches, end + (fault is not None), legacy, fault)


def _run_end(
    table: BatchTable, first: int, refuse_bad_crc: bool, data_end: int
) -> tuple[int, KsegError | None]:
    """The end of a run of one family, in front of the first bad batch; and that batch's error."""
    end = len(table)
    if table.magics_seen & 3 and table.magics_seen & ~3:
        legacy = table.magic[first:] < 2
        other = np.flatnonzero(legacy != legacy[0])
        end = first + int(other[0]) if len(other) else end
    if table.bad_crc_count:
        # A batch too short for its own header, or too long to be lent, has no records to show.
        bad = table.crc_ok[first:end] == 0
        if not refuse_bad_crc:
            size = table.size[first:end]
            short = (table.magic[first:end] >= 2) & (size < BATCH_HEADER_BYTES)
            bad &= short | (table.position[first:end] + size > data_end)
        found = np.flatnonzero(bad)
        if len(found):
            end = first + int(found[0])
            return end, crc_error(table[end])
    return end, None


def _inflate(
    data: memoryview, rows: Int64Array, legacy: bool, arena: Arena, inflated_max: int
) -> tuple[int, KsegError | None]:
    """Inflate compressed bodies into the arena: how many, and the error of the next one."""
    chosen = np.flatnonzero((rows[:, EAGER] != 0) & (rows[:, COUNT] > 0))
    checksum, covered_at = _LEGACY_CRC if legacy else _BATCH_CRC
    decompress, ends = codec.decompress_into, [arena.used]
    refused: KsegError | None = None
    try:
        for start, end, kind, magic, crc in _places(rows, chosen):
            if arena.used >= ARENA_PIECE_BYTES:
                break
            # What the walk left alone is compared before the codec sees it.
            if crc >= 0 and checksum(data[start + covered_at : end]) != crc:
                raise _MismatchError("")
            body = wrapper_value(data[start:end], kind) if legacy else data[start:end]
            decompress(kind, body, arena, magic=magic, limit=inflated_max)
            ends.append(arena.used)
    except (FormatError, LimitExceededError) as error:
        refused = error
    count = len(ends) - 1
    done = chosen[:count]
    rows[done, SOURCE] = 1
    rows[done, START] = ends[:-1]
    rows[done, END] = ends[1:]
    rows[done, CRC] = -1
    return int(chosen[count]) if count < len(chosen) else len(rows), refused


def _places(rows: Int64Array, chosen: Int64Array) -> Iterator[list[int]]:
    """Codec, source and place of each chosen body, a few at a time: a piece may end early."""
    for first in range(0, len(chosen), _INFLATE_AHEAD):
        ahead = chosen[first : first + _INFLATE_AHEAD, None]
        yield from rows[ahead, _INFLATE_FIELDS].tolist()


class _MismatchError(FormatError):
    """A checksum that the walk did not compare is wrong; the header makes the real error."""


def wrapper_value(entry: memoryview, kind: int) -> memoryview:
    """The compressed set inside a magic 0 or 1 message; its key is passed over.

    Source: Kafka AbstractLegacyRecordBatch.DeepRecordsIterator.
    """
    if kind == Compression.ZSTD:
        raise InvalidRecordError("zstd inside a message of magic 0 or 1")
    at = LOG_OVERHEAD + (14 if entry[16] else 6)
    for name in ("key", "value"):
        left = len(entry) - at - 4
        if left < 0:
            raise InvalidRecordError(f"the message ends before the length of its {name}")
        length = int.from_bytes(entry[at : at + 4], "big", signed=True)
        if length > left:
            raise InvalidRecordError(f"{name} of {length} bytes in a message with {left} left")
        if name == "key":
            at += 4 + max(0, length)
    if length < 0:
        raise InvalidRecordError("compressed message without a value")
    return entry[at + 4 : at + 4 + length]


# ---- Kafka 0.7 -----------------------------------------------------------------------------------


def _each_07(
    data: memoryview, table: BatchTable, base: int, arena: Arena, inflated_max: int, refuse: bool
) -> Iterator[Bodies]:
    """One body a message: the payload; those of a compressed set share its batch."""
    first = 0
    while first < len(table):
        end, fault = _run_end(table, first, refuse, base + len(data))
        yield from _run_07(data, table, first, end, base, arena, inflated_max)
        if fault is not None:
            yield _Payloads().taken(end + 1, fault)
        first = end + (fault is not None)


def _run_07(
    data: memoryview,
    table: BatchTable,
    first: int,
    end: int,
    base: int,
    arena: Arena,
    inflated_max: int,
) -> Iterator[Bodies]:
    """Bodies of sound messages `[first, end)`; a set may take several, a piece may hold several."""
    compressed = np.flatnonzero(table.attributes[first:end]) + first
    payloads = _Payloads()
    at = first
    for index in [*compressed.tolist(), end]:
        payloads.add(_payload_rows(table.rows[at:index], 0, -base), np.arange(at, index))
        at = index + 1
        if index == end or arena.used >= ARENA_PIECE_BYTES or payloads.count >= MESSAGES_PIECE:
            yield payloads.taken(index)
            arena.clear()
        if index == end:
            return
        header = table[index]
        entry = data[header.position - base : header.position - base + header.size]
        try:
            for rows in _inner_07(entry, arena, arena.used + inflated_max, depth=1):
                rows[:, BASE_OFFSET] = header.base_offset
                payloads.add(rows, np.full(len(rows), index, np.int64))
                if payloads.count >= MESSAGES_PIECE:
                    yield payloads.taken(index)
        except (FormatError, LimitExceededError) as error:
            yield payloads.taken(index + 1, at_batch(error, header))


class _Payloads:
    """Bodies of 0.7 messages that are gathered until they make a piece."""

    def __init__(self) -> None:
        self.rows = [_NO_ROWS]
        self.batches = [_NO_BATCHES]
        self.count = 0

    def add(self, rows: Int64Array, batches: Int64Array) -> None:
        self.rows.append(rows)
        self.batches.append(batches)
        self.count += len(rows)

    def taken(self, batch_end: int, fault: KsegError | None = None) -> Bodies:
        """Hand over what was gathered, and begin anew."""
        rows, batches = np.concatenate(self.rows), np.concatenate(self.batches)
        _Payloads.__init__(self)
        return Bodies(rows, batches, batch_end, fault=fault)


_NO_ROWS = np.empty((0, len(FIELDS)), np.int64)
_NO_BATCHES = np.empty(0, np.int64)


def _payload_rows(messages: Int64Array, source: int, shift: int) -> Int64Array:
    """Bodies of plain 0.7 messages."""
    rows = np.full((len(messages), len(FIELDS)), -1, np.int64)
    rows[:, SOURCE] = source
    rows[:, START] = messages[:, 0] + shift + 9 + messages[:, 2]
    rows[:, END] = messages[:, 0] + shift + messages[:, 1]
    rows[:, BASE_OFFSET] = messages[:, 3]
    rows[:, COUNT] = 1
    rows[:, MAGIC] = messages[:, 2]
    return rows


def _inner_07(entry: memoryview, arena: Arena, ceiling: int, *, depth: int) -> Iterator[Int64Array]:
    """Bodies of a compressed 0.7 message, sets within sets unpacked, some thousand at a time.

    The set is inflated whole, its messages are not listed whole: the smallest has 9 bytes.
    """
    if depth > NESTING_MAX:
        raise LimitExceededError(f"compressed messages nested deeper than {NESTING_MAX}")
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
        for index in [*np.flatnonzero(table.attributes).tolist(), len(table)]:
            if index > at:
                yield _payload_rows(table.rows[at:index], 1, 0)
            if index < len(table):
                start, size = table.rows[index, :2].tolist()
                nested = memoryview(bytes(arena.view()[start : start + size]))
                yield from _inner_07(nested, arena, ceiling, depth=depth + 1)
            at = index + 1
        if table.stop is not StopReason.LIMIT:
            break
        position = table.end_position
    # What is wrong inside a set is no end of the walk over the file.
    if table.stop is StopReason.BAD_CRC:
        raise CorruptRecordError(_RECORD_TEXT[_MESSAGE_MISMATCH], record_index=seen)
    if table.stop.value > StopReason.TORN_TAIL.value:
        raise CorruptRecordError(stop_error(table).reason, record_index=seen)
    if not seen and table.stop is StopReason.TORN_TAIL:
        reason = "compressed message whose set is cut before its first message ends"
        raise CorruptRecordError(reason, record_index=0)


# ---- what a kernel found wrong -------------------------------------------------------------------

_RECORD_TEXT = {
    1: "the record count is negative",
    2: "fewer records than the header counts",
    3: "bytes left over behind the last record",
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
    """The error for a message inside a sound wrapper that was given with a wrong checksum."""
    reason = _RECORD_TEXT[_MESSAGE_MISMATCH]
    return CorruptRecordError(reason, position=position, offset=offset)


def at_batch(error: _ErrorT, header: BatchHeader) -> _ErrorT:
    """Say in which batch an error arose."""
    error.position = header.position
    error.offset = header.base_offset if header.base_offset >= 0 else header.last_offset
    return error
