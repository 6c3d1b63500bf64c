"""The walk over batches: one header as a value, many as columns.

Owns the fields of a header and the reasons why a walk ends. It knows neither files nor records.
Length and magic lie at the same place in every format since Kafka 0.8, so a single kernel walks
magic 0, 1 and 2; Kafka 0.7 has a walk of its own. Layouts: `docs/format.md`.

Columns whose values come from the batch, or from it and the record's offset: repeated, not read.

Owns which header field makes which column; knows no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, overload

import numpy as np

from kseg import _core
from kseg._kernels import legacy as _legacy
from kseg._kernels import walk as _walk
from kseg.constants import (
    BATCH_HEADER_BYTES,
    INT32_MAX,
    INT64_MAX,
    Array,
    Bools,
    Buffer,
    Compression,
    Int64s,
    StopReason,
    TimestampType,
)
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptRecordError

#: Columns of `BatchTable.rows`, in order.
FIELDS = (
    "position",
    "size",
    "magic",
    "base_offset",
    "last_offset",
    "leader_epoch",
    "crc",
    "attributes",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
    "crc_ok",
    "control_type",
    "coordinator_epoch",
)
COLUMN = {name: index for index, name in enumerate(FIELDS)}
#: The most rows of a table of one walk.
BATCHES_MAX = 65_536

CODEC_MASK = 0x07
LOG_APPEND = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

#: Smallest entry: 12 of offset and size, 14 of message.
ENTRY_BYTES_MIN = 26
_ROW_FIELDS = len(FIELDS)
_WALK_FIELDS = 7
_STOPS = tuple(StopReason)
_VERIFY = {"ignore": 0, "defer": 0, "stop": 1, "note": 2}
_POLICY = {"strict": 0, "file": 1}


@frozen_dataclass
class BatchHeader:
    """One batch (magic 2) or outermost message (magic 0, 1, Kafka 0.7), each field as stored.

    -1 stands for a field that the format lacks. `size` counts the 12 bytes of offset and size too;
    `crc_ok` is 1, 0, or -1 if the checksum was not compared. For a compressed message of magic 0 or
    1, `base_offset` and `record_count` are -1: they are known from its records only.
    """

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    crc_ok: int
    control_type: int
    coordinator_epoch: int

    @property
    def codec(self) -> int:
        """Codec id, bits 0 to 2 of the attributes; `Compression` names 0 to 4."""
        return self.attributes & CODEC_MASK

    @property
    def compression(self) -> Compression:
        """The codec; ValueError for an id that no release ever used."""
        return Compression(self.codec)

    @property
    def timestamp_type(self) -> TimestampType:
        """The meaning of the timestamps; magic 0 has none."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType(bool(self.attributes & LOG_APPEND))

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the records are markers rather than data."""
        return self.magic >= 2 and bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop tombstones and markers, in ms; None if not set."""
        if self.magic >= 2 and self.attributes & DELETE_HORIZON:
            return self.base_timestamp
        return None

    @property
    def next_offset(self) -> int:
        """The offset after the last."""
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 without sequences. Wraps from 2147483647 to 0."""
        if self.base_sequence == -1:
            return -1
        return increment_sequence(self.base_sequence, self.last_offset - self.base_offset)


def increment_sequence(sequence: int, by: int) -> int:
    """The sequence `by` records on: a 31-bit counter that goes from 2147483647 to 0.

    Source: Kafka DefaultRecordBatch.incrementSequence.
    """
    if sequence > wrap_int32(INT32_MAX - by):
        return wrap_int32(by - (INT32_MAX - sequence) - 1)
    return wrap_int32(sequence + by)


def wrap_int64(value: int) -> int:
    """The low 64 bits, signed: Java's arithmetic, for numbers out of damage or far times."""
    return (value + 2**63) % 2**64 - 2**63


def wrap_int32(value: int) -> int:
    """The low 32 bits: Java's arithmetic, which shows where a damaged batch counts backwards."""
    return (value + 2**31) % 2**32 - 2**31


def decrement_sequence(sequence: int, by: int) -> int:
    """The sequence `by` records before, wrapping from 0 to 2147483647.

    Source: Kafka DefaultRecordBatch.decrementSequence.
    """
    if sequence < by:
        return INT32_MAX - (by - sequence) + 1
    return sequence - by


@frozen_dataclass(eq=False)
class BatchTable:
    """Headers of consecutive batches as columns, and why the walk over them ended.

    Attributes:
        rows: int64[n, 17], read-only; column `i` is `FIELDS[i]`, also reachable as an attribute
            (`table.position`).
        end_position: file position after the last whole batch.
        stop: why the walk ended there.
        needed: bytes announced by the batch at `end_position`; 0 if not known.
        attributes_seen: OR of all attributes, to skip work that no batch asks for.
        magics_seen: bit n is set where magic n occurs.
        bad_crc_count: batches whose checksum is wrong.
        kafka07: the rows are messages of Kafka 0.7, whose offsets are file positions.
    """

    rows: Int64s
    end_position: int
    stop: StopReason
    needed: int = 0
    attributes_seen: int = 0
    magics_seen: int = 0
    bad_crc_count: int = 0
    kafka07: bool = False

    def __len__(self) -> int:
        """The number of batches."""
        return len(self.rows)

    def __getattr__(self, name: str) -> Int64s:
        """A header field as int64[n]."""
        try:
            index = COLUMN[name]
        except KeyError:
            raise AttributeError(name) from None
        return self.rows[:, index]

    def __dir__(self) -> list[str]:
        """The attributes, with the header fields."""
        return [*object.__dir__(self), *COLUMN]

    @overload
    def __getitem__(self, index: int) -> BatchHeader: ...
    @overload
    def __getitem__(self, index: slice | Array) -> BatchTable: ...
    def __getitem__(self, index: int | slice | Array) -> BatchHeader | BatchTable:
        """The header with a number, or a smaller table for a slice, mask or indexes."""
        if isinstance(index, (slice, np.ndarray)):
            return self.take(index)
        return BatchHeader(*self.rows[index].tolist())

    def __iter__(self) -> Iterator[BatchHeader]:
        """Each header in file order."""
        for row in self.rows.tolist():
            yield BatchHeader(*row)

    @property
    def end_offset(self) -> int:
        """The offset after the last batch.

        Raises:
            IndexError: there is no batch.
        """
        return int(self.last_offset[-1]) + 1

    def take(self, index: slice | Array) -> BatchTable:
        """The chosen rows; fields about the walk stay as they are.

        Args:
            index: a slice, a mask bool[n] or row numbers int64[m], as NumPy accepts them.

        Raises:
            IndexError: a row that the table does not have.
        """
        return replace(self, rows=self.rows[index])

    def ended(self, stop: StopReason) -> BatchTable:
        """The same rows, with another reason why the walk ended.

        Args:
            stop: that reason.
        """
        return replace(self, stop=stop)

    def __post_init__(self) -> None:
        """Make the rows read-only."""
        self.rows.flags.writeable = False

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the fields, so that the rows are read-only again."""
        return BatchTable, tuple(getattr(self, field.name) for field in fields(self))

    def _has(self, flag: int) -> Bools:
        """Which rows have a flag of magic 2's attributes, bool[n]; older formats have no flags."""
        has: Bools = (self.magic >= 2) & ((self.attributes & flag) != 0)
        return has

    @property
    def codec(self) -> Int64s:
        """Codec ids, int64[n]."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> Int64s:
        """-1 none, 0 create time, 1 log append time, int64[n]."""
        kinds = (self.attributes & LOG_APPEND) >> 3
        return np.where(self.magic == 0, np.int64(-1), kinds)

    @property
    def is_dense(self) -> bool:
        """Whether there is a record for each offset, as without compaction; see `is_wrapper`."""
        spans = self.last_offset - self.base_offset + 1
        follows = (self.base_offset[1:] == self.last_offset[:-1] + 1).all()
        return bool(follows and (self.record_count == spans).all())

    @property
    def is_wrapper(self) -> Bools:
        """Which rows are compressed messages of magic 0, 1 and Kafka 0.7, bool[n]."""
        if not self.attributes_seen & CODEC_MASK or not (self.kafka07 or self.magics_seen & 3):
            return np.zeros(len(self), np.bool_)
        has: Bools = (self.magic < 2) & (self.codec != 0)
        return has

    @property
    def is_transactional(self) -> Bools:
        """Which batches are transactional, bool[n]."""
        return self._has(TRANSACTIONAL)

    @property
    def is_control(self) -> Bools:
        """Which batches are control batches, bool[n]."""
        return self._has(CONTROL)

    @property
    def delete_horizon_ms(self) -> Int64s:
        """Delete horizons in ms, int64[n]; -1 where a batch has none."""
        return np.where(self._has(DELETE_HORIZON), self.base_timestamp, np.int64(-1))

    @property
    def bounds_time(self) -> Bools:
        """bool[n]: whether no record can be newer than the header's largest time.

        Some clients left -1 there, or 0 for a compressed set.
        """
        usual: Bools = self.max_timestamp >= np.maximum(self.base_timestamp, 0)
        if usual.all() and (self.magic == 2).all():
            return usual
        least = np.where(self.delete_horizon_ms == -1, self.base_timestamp, 0)
        least = np.where(self.is_wrapper, 1, np.maximum(least, 0))
        plain = (self.magic < 2) & ~self.is_wrapper
        bounds: Bools = plain | (self.timestamp_type == 1) | (self.max_timestamp >= least)
        return bounds

    def may_reach(self, timestamp_ms: int) -> Bools:
        """Which batches may have a record of a time, or of a later one, bool[n].

        Args:
            timestamp_ms: the time.
        """
        late: Bools = self.max_timestamp >= timestamp_ms
        return late if late.all() else late | ~self.bounds_time

    @property
    def last_sequence(self) -> Int64s:
        """Last sequences, int64[n]; -1 without sequences."""
        base = self.base_sequence
        last = _increment_sequences(base, self.last_offset - self.base_offset)
        return np.where(base == -1, np.int64(-1), last)


def sequence_after(base: Int64s, delta: Int64s) -> Int64s:
    """Sequences of records, int64[n]; -1 where the base is negative.

    Source: Kafka DefaultRecord.readFrom.
    """
    return np.where(base < 0, np.int64(-1), _increment_sequences(base, delta))


def _increment_sequences(base: Int64s, delta: Int64s) -> Int64s:
    """`increment_sequence` for columns."""
    after = base + delta
    wraps = base > (INT32_MAX - delta).astype(np.int32)
    return np.where(wraps, after - (INT32_MAX + 1), after).astype(np.int32).astype(np.int64)


def empty_table(batches_max: int) -> tuple[Int64s, Int64s]:
    """Memory for a walking kernel: rows, and the result of the walk."""
    return np.empty((batches_max, _ROW_FIELDS), np.int64), np.empty(_WALK_FIELDS, np.int64)


def table_from(rows: Int64s, walk: Int64s, *, kafka07: bool = False) -> BatchTable:
    """A table from the memory of a walking kernel; unused rows are left out."""
    count, end, stop, needed, attributes, magics, bad = walk.tolist()
    used_rows = _used_rows(rows, count)
    return BatchTable(used_rows, end, _STOPS[stop], needed, attributes, magics, bad, kafka07)


def scan(
    data: Buffer,
    *,
    base: int = 0,
    start: int | None = None,
    limit: int | None = None,
    file_end: int | None = None,
    on_bad_crc: str = "stop",
    policy: str = "strict",
    batches_max: int = BATCHES_MAX,
    kafka07: bool = False,
    log_start: int = 0,
    entries: Buffer = b"",
) -> BatchTable:
    """Walk the batches that start in `[start, limit)`.

    Args:
        data: bytes `[base, base + len(data))` of a log file.
        base: file position of `data[0]`.
        start: position of a batch; `base` if None.
        limit: batches that start here or later are not read; unlimited if None.
        file_end: the file's size; the end of `data` if None. A batch that is cut by the end of
            `data` but not of the file ends the walk with LIMIT, and `needed` is its size in bytes.
        on_bad_crc: "stop" before a batch whose checksum is wrong, "note" it in `crc_ok`,
            "ignore" checksums, or "defer" them to the decoder (Kafka 0.7 notes them instead).
        policy: "strict", or "file" for the rules of Kafka's own file reader: any magic, and an end
            of file that leaves 17 bytes or fewer.
        batches_max: end with LIMIT after so many batches.
        kafka07: the bytes are messages of Kafka 0.7, which no flag distinguishes from later ones.
        log_start: Kafka 0.7 only: the offset of the file's first byte, from its name.
        entries: the entries of an offset index of the file, as stored. A walk that ignores
            checksums is faster with them; the result is the same, even with wrong entries.

    Returns:
        A table of at most `batches_max` rows. Bad bytes do not raise; they are its `stop`.

    Raises:
        ValueError: an unknown word in `on_bad_crc` or `policy`, or positions outside of the bytes.

    Source: Kafka ByteBufferLogInputStream, FileLogInputStream.nextBatch,
        DefaultRecordBatch.ensureValid; for 0.7
    kafka.message.ByteBufferMessageSet.
    """
    end = base + len(data)
    first = base if start is None else start
    stop = end if limit is None else min(limit, end)
    # The available bytes bound the rows, not the announced sizes. (0.7's smallest message has 9
    # bytes, a row a 9th of them.)
    smallest = 9 if kafka07 else ENTRY_BYTES_MIN
    capacity = max(0, min(batches_max, (stop - first) // smallest + 1))
    rows, walk = empty_table(capacity)
    where: dict[str, Any] = {
        "base": base,
        "start": first,
        "limit": INT64_MAX if limit is None else limit,
        "file_end": end if file_end is None else file_end,
        "rows": rows,
        "walk": walk,
    }
    if kafka07:
        verify = _code("on_bad_crc", _VERIFY, "note" if on_bad_crc == "defer" else on_bad_crc)
        _legacy.scan_messages_07(data, **where, verify=verify, log_start=log_start)
    else:
        verify = _code("on_bad_crc", _VERIFY, on_bad_crc)
        where |= {"policy": _code("policy", _POLICY, policy), "entries": entries}
        _walk.scan_batches(data, **where, verify=verify)
    return table_from(rows, walk, kafka07=kafka07)


def _code(name: str, codes: Mapping[str, int], word: str) -> int:
    """The kernel's code for the word of an argument."""
    code = codes.get(word)
    if code is None:
        raise ValueError(f"{name} is one of {', '.join(codes)}, not {word!r}")
    return code


#: How many more rows than the batches so far lead to expect, in parts of them.
_ROWS_SPARE = 32


def join_tables(tables: Iterable[BatchTable], end: int) -> BatchTable:
    """Join the tables of one walk; each is copied when it comes, into memory for all of them.

    Args:
        tables: the tables of the walk, at least one.
        end: the position where the walk ends at the latest, to estimate the number of rows from
            the batches so far: memory grows with their number, whatever sizes they announce.
    """
    rows = np.empty((0, _ROW_FIELDS), np.int64)
    count = attributes = magics = bad = 0
    for table in tables:
        end_row = count + len(table)
        if end_row > len(rows):
            ahead = max(0, end - table.end_position) * end_row // max(1, table.end_position)
            spare = end_row // _ROWS_SPARE + min(ahead + ahead // _ROWS_SPARE, BATCHES_MAX)
            rows, filled = np.empty((end_row + spare, _ROW_FIELDS), np.int64), rows[:count]
            rows[:count] = filled
        rows[count:end_row] = table.rows
        count = end_row
        attributes |= table.attributes_seen
        magics |= table.magics_seen
        bad += table.bad_crc_count
    return replace(
        table,
        rows=_used_rows(rows, count),
        attributes_seen=attributes,
        magics_seen=magics,
        bad_crc_count=bad,
    )


def scan_all(data: memoryview, *, on_bad_crc: str, kafka07: bool = False) -> BatchTable:
    """As `scan` for any number of batches, as one table, whose memory grows with them."""
    first = scan(data, on_bad_crc=on_bad_crc, kafka07=kafka07)
    if first.stop is not StopReason.LIMIT:
        return first

    def tables() -> Iterator[BatchTable]:
        table = first
        yield table
        while table.stop is StopReason.LIMIT:
            table = scan(data, start=table.end_position, on_bad_crc=on_bad_crc, kafka07=kafka07)
            yield table

    return join_tables(tables(), len(data))


def _used_rows(rows: Int64s, count: int) -> Int64s:
    """The rows in use; a view would keep all the memory, so few of many are copied."""
    return rows[:count] if count * 2 > len(rows) else rows[:count].copy()


class ChecksumRule(NamedTuple):
    """The checksum of a batch: its kind, its position, and where the bytes that it covers begin."""

    function: Callable[[Buffer, int], int]
    stored_at: int
    covered_at: int

    def stored(self, head: Buffer) -> int:
        """The checksum in the header."""
        return int.from_bytes(head[self.stored_at : self.stored_at + 4], "big")


#: The bytes of a batch that `checksum_rule` and `refused_batch` ask for.
HEAD_BYTES = BATCH_HEADER_BYTES


def checksum_rule(head: Buffer, *, kafka07: bool = False) -> ChecksumRule:
    """The rule for the batch that begins with `head`, of at least 26 bytes (Kafka 0.7: 9).

    Byte 16 is the magic; in Kafka 0.7 it is byte 4, and magic 1 has a byte of attributes.
    """
    if kafka07:
        header = 10 if head[4] else 9
        return ChecksumRule(_core.crc32, header - 4, header)
    if head[16] < 2:
        return ChecksumRule(_core.crc32, 12, 16)
    return ChecksumRule(_core.crc32c, 17, 21)


def refused_batch(
    head: bytes,
    *,
    position: int,
    size: int,
    policy: str = "strict",
    kafka07: bool = False,
    log_start: int = 0,
) -> BatchTable:
    """A table with one batch whose checksum is known to be wrong; needs only its first bytes.

    Args:
        head: these bytes, up to the end of a header.
        position: the position of the batch in its file.
        size: the size of the batch, as it is stored.
        policy: as for the walk that found it, see `scan`.
        kafka07: as for that walk.
        log_start: as for that walk.
    """
    # The header as that of a batch without records, whose size is right.
    if kafka07:
        short = (6).to_bytes(4, "big") + head[4:10]
    else:
        body = 49 if head[16] >= 2 else 14
        short = (head[:8] + body.to_bytes(4, "big") + head[12:])[: 12 + body]
    start = log_start + position
    table = scan(short, on_bad_crc="ignore", policy=policy, kafka07=kafka07, log_start=start)
    rows = table.rows.copy()
    rows[0, COLUMN["position"]] = position
    rows[0, COLUMN["size"]] = size
    rows[0, COLUMN["crc_ok"]] = 0
    return replace(
        table,
        rows=rows,
        end_position=position + size,
        stop=StopReason.LIMIT,
        bad_crc_count=1,
    )


#: The words of `kseg verify --codes` for ends of a walk that are not in order. For Kafka's reader
#: the log has ended where too few bytes for a batch follow; offsets out of order are its limit.
STOP_CODES = {
    StopReason.END: "torn-tail",
    StopReason.LIMIT: "offset-order",
    StopReason.TORN_TAIL: "torn-tail",
    StopReason.ZERO_TAIL: "zero-tail",
    StopReason.BAD_LENGTH: "batch-length",
    StopReason.BAD_MAGIC: "batch-magic",
    StopReason.BAD_CRC: "batch-crc",
}


def stop_code(stop: StopReason, *, is_last: bool = True) -> str:
    """The code for a walk's end: a torn tail only at the end of the last segment, else damage."""
    if stop in (StopReason.END, StopReason.TORN_TAIL) and not is_last:
        stop = StopReason.BAD_LENGTH
    return STOP_CODES[stop]


_STOP_TEXT = {
    StopReason.TORN_TAIL: "the last batch is incomplete",
    StopReason.ZERO_TAIL: "only zero bytes follow",
    StopReason.BAD_LENGTH: "no batch can have the size stored here",
    StopReason.BAD_MAGIC: "no release wrote the magic stored here",
    StopReason.BAD_CRC: "the batch does not match its checksum",
}


def stop_error(table: BatchTable) -> CorruptRecordError:
    """The error for a walk that has ended where its caller must go on."""
    return CorruptRecordError(_STOP_TEXT[table.stop], position=table.end_position, stop=table.stop)


def crc_error(header: BatchHeader) -> CorruptRecordError:
    """The error for a batch with a wrong checksum, or too short to have one."""
    short = header.magic >= 2 and header.size < BATCH_HEADER_BYTES
    stop = StopReason.BAD_LENGTH if short else StopReason.BAD_CRC
    reason = _STOP_TEXT[stop] if short else f"{_STOP_TEXT[stop]} {header.crc:#010x}"
    offset = header.base_offset if header.base_offset >= 0 else header.last_offset
    return CorruptRecordError(reason, position=header.position, offset=offset, stop=stop)


#: Fields that every record of a batch shares: column of the table, or a way to get one, and dtype.
BATCH_FIELDS: dict[str, tuple[Callable[[BatchTable], Array], type]] = {
    "position": (lambda t: t.position, np.int64),
    "magic": (lambda t: t.magic, np.int8),
    "codec": (lambda t: t.codec, np.int8),
    "timestamp_type": (lambda t: np.where(t.kafka07, -1, t.timestamp_type), np.int8),
    "producer_id": (lambda t: t.producer_id, np.int64),
    "producer_epoch": (lambda t: t.producer_epoch, np.int16),
    "leader_epoch": (lambda t: t.leader_epoch, np.int32),
    "transactional": (lambda t: t.is_transactional, np.bool_),
    "control": (lambda t: t.is_control, np.bool_),
    "delete_horizon_ms": (lambda t: t.delete_horizon_ms, np.int64),
    "valid": (lambda t: t.crc_ok != 0, np.bool_),
}


@dataclass(slots=True, unsafe_hash=True)  # a frozen dataclass takes five times as long to make
class EncodedBatch:
    """The bytes of one batch, as they are on disk and go over the wire.

    For magic 2 that is a batch; for magic 0 and 1 one wrapper message if there is a codec, else
    one entry after another.

    Attributes:
        data: the bytes; empty where no record was given.
        magic: 0, 1 or 2.
        base_offset: offset of the first record.
        last_offset: offset of the last record, or the header's value in place of it.
        record_count: the number of records.
        max_timestamp: the largest timestamp, in ms; -1 if there is none.
        offset_of_max_timestamp: the last offset of the batch or message with it; -1 if none has.
        uncompressed_bytes: size of the records before compression, with the 12 bytes of offset
            and size of each message for magic 0 and 1, without the header of a batch.
        compression_ratio: compressed by uncompressed size; 1.0 where nothing was compressed.
    """

    data: bytes
    magic: int
    base_offset: int
    last_offset: int
    record_count: int
    max_timestamp: int
    offset_of_max_timestamp: int
    uncompressed_bytes: int
    compression_ratio: float = 1.0

    def __len__(self) -> int:
        """The number of bytes."""
        return len(self.data)

    def __bytes__(self) -> bytes:
        """The bytes."""
        return self.data

    @property
    def table(self) -> BatchTable:
        """The headers, read back from the bytes; several for plain messages of magic 0 and 1."""
        return scan(self.data)

    @property
    def header(self) -> BatchHeader:
        """The header, or the first of several; IndexError if there is no record."""
        return self.table[0]
