"""Batches that a log cannot take as they are, built anew: another format, codec or offsets.

The bytes that were inflated for the checks serve here too: nothing is inflated twice.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg import _core
from kseg._kernels import validate as _validate
from kseg.constants import (
    BATCH_HEADER_BYTES,
    INT32_MAX,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    Compression,
    TimestampType,
)
from kseg.errors import (
    FormatError,
    InvalidRecordError,
    LimitExceededError,
    UnsupportedFormatError,
)
from kseg.format import codec
from kseg.format.bodies import at_batch, wrapper_value
from kseg.format.codec import CAPACITY_KEPT_MAX, Arena
from kseg.format.columns import decode
from kseg.format.down_convert import ConversionStats
from kseg.format.encode import encode_batch
from kseg.format.header import (
    CODEC_MASK,
    COLUMN,
    ENTRY_BYTES_MIN,
    LOG_APPEND,
    BatchHeader,
    BatchTable,
    scan,
    wrap_int64,
)
from kseg.format.options import BatchOptions, overhead_bytes
from kseg.format.request import Request
from kseg.log.validate.rules import AppendRules, ValidatedBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

#: All records of an append in one piece; their checksums were checked before.
_WHOLE = Request(
    columns=("timestamp", "key", "value", "headers"),
    max_rows=INT32_MAX,
    max_bytes=INT32_MAX,
    control=True,
    verify_crc=False,
)


@dataclass(slots=True, eq=False)
class Inflated:
    """An append without its codec.

    Attributes:
        data: plain batches or messages.
        body: the records in it: behind the header of a batch, or all of the messages.
        table: of the append as it was given; where there was a codec, `data` differs.
    """

    data: memoryview
    body: memoryview
    table: BatchTable


_kept = threading.local()


def inflate_records(codec_id: int, data: memoryview, limit: int) -> memoryview | None:
    """The records of a compressed batch, inflated; None if they cannot be.

    Valid until this thread inflates another one.
    """
    try:
        return _inflated(codec_id, data, magic=2, limit=limit, free=0)
    except (FormatError, LimitExceededError):
        return None


def inflate(
    view: memoryview, table: BatchTable, header: BatchHeader, inflated_max: int
) -> Inflated:
    """The only batch of an append, inflated; valid until this thread inflates another one.

    Raises:
        DecompressionError, LimitExceededError, InvalidRecordError: it cannot be inflated.
    """
    start = BATCH_HEADER_BYTES if header.magic >= 2 else 0
    if not header.codec or (header.magic >= 2 and header.record_count <= 0):
        return Inflated(view, view[start:], table)
    try:
        packed = view[start:] if header.magic >= 2 else wrapper_value(view, header.codec)
        data = _inflated(header.codec, packed, magic=header.magic, limit=inflated_max, free=start)
    except (FormatError, LimitExceededError) as error:
        at_batch(error, header)
        raise
    return Inflated(data, data[start:], table)


def _inflated(
    codec_id: int, packed: memoryview, *, magic: int, limit: int, free: int
) -> memoryview:
    """Some bytes inflated, behind so many free ones.

    They lie in this thread's arena, whose pages are warm from the append before. The memory of a
    very large batch is released.
    """
    arena: Arena | None = getattr(_kept, "arena", None)
    if arena is None:
        arena = _kept.arena = Arena()
    arena.clear()
    try:
        if free:
            arena.append(bytes(free))
        codec.decompress_into(codec_id, packed, arena, magic=magic, limit=limit)
        return arena.view()
    finally:
        if arena.capacity > CAPACITY_KEPT_MAX:
            _kept.arena = Arena()


def rebuild(
    inflated: Inflated,
    header: BatchHeader,
    rules: AppendRules,
    target: Compression,
    *,
    next_offset: int,
    now_ms: int,
    temporary_bytes: int,
) -> ValidatedBatch:
    """Build one batch, wrapper or run of messages of the log's format, with consecutive offsets.

    Args:
        inflated: the records, checked already.
        header: of the first batch; its producer and transaction stay.
        rules: the format that is wanted.
        target: the codec that is wanted.
        next_offset: offset of the first record.
        now_ms: the time of the append.
        temporary_bytes: what was inflated so far.

    Raises:
        InvalidRecordError: the format cannot hold a record, or there is none.
        UnsupportedFormatError: the format does not have the codec.
        LimitExceededError: a batch cannot hold them all.

    Source: Kafka LogValidator.buildRecordsAndAssignOffsets.
    """
    if target == Compression.ZSTD and rules.magic < 2:
        raise UnsupportedFormatError(f"magic {rules.magic} has no zstd compression")
    log_append_time = now_ms if rules.is_log_append else NO_TIMESTAMP
    options = BatchOptions(
        magic=rules.magic,
        compression=target,
        level=rules.level,
        timestamp_type=rules.timestamp_type,
        log_append_time=log_append_time,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        leader_epoch=rules.leader_epoch,
    )
    columns = _columns(inflated, header)
    if columns is None:
        raise at_batch(InvalidRecordError("no records to build a batch of"), header)
    made = encode_batch(columns, options, base_offset=next_offset)
    count = made.record_count
    built_bytes = overhead_bytes(rules.magic, target) + made.uncompressed_bytes
    return ValidatedBatch(
        head=made.data,
        tail=b"",
        first_offset=next_offset,
        last_offset=next_offset + count - 1,
        next_offset=next_offset + count,
        record_count=count,
        max_timestamp=made.max_timestamp,
        offset_of_max_timestamp=made.offset_of_max_timestamp,
        sizes_maybe_changed=True,
        log_append_time=log_append_time,
        stats=ConversionStats(temporary_bytes + built_bytes, count),
        in_place=False,
    )


def _plain_table(inflated: Inflated, header: BatchHeader) -> BatchTable:
    """Where the batches lie in what was inflated."""
    data, table = inflated.data, inflated.table
    if not header.codec:
        return table
    if header.magic < 2:
        most = len(data) // ENTRY_BYTES_MIN + 1
        return scan(data, on_bad_crc="ignore", batches_max=most)
    rows = table.rows.copy()
    rows[0, COLUMN["size"]] = len(data)
    rows[0, COLUMN["attributes"]] &= ~CODEC_MASK
    return replace(table, rows=rows, attributes_seen=int(rows[0, COLUMN["attributes"]]))


def _columns(inflated: Inflated, header: BatchHeader) -> Mapping[str, Any] | None:
    """The records of an append, but for their offsets; None where there are none."""
    table = _plain_table(inflated, header)
    pieces = list(decode(inflated.data, table, _WHOLE))
    if not pieces:
        return None
    columns, *more = pieces
    if more:
        raise LimitExceededError("more records than one batch can hold")
    fields = dict(columns.arrays)
    if (
        header.magic == 1
        and header.codec
        and header.timestamp_type is TimestampType.LOG_APPEND_TIME
    ):
        # The wrapper's time is that of every message in it.
        fields["timestamp"] = np.full(len(columns), header.max_timestamp, np.int64)
    return fields


# ---- header patches ------------------------------------------------------------------------------
# A batch that stays as it is gets a new header: offset, epoch, and time where that differs.
# Everything behind a head is the producer's own bytes. Only where the time changes does the
# checksum, which is then taken over head and tail as they are.

#: A batch of magic 2 up to its checksum, then on to the end of its largest time.
_HEAD, _TIMED_HEAD = Struct(">qiibI"), Struct(">hiqq")
#: An entry of magic 1 up to its checksum, then on to the end of its time.
_ENTRY_HEAD, _TIMED_ENTRY = Struct(">qiI"), Struct(">bbq")
_TIMED_HEAD_BYTES, _TIMED_ENTRY_BYTES = 43, 26
#: Attributes that a rewrite keeps: codec, transactional, control, delete horizon.
_KEPT_ATTRIBUTES = 0x77


def batch_head(
    view: memoryview,
    header: BatchHeader,
    *,
    last_offset: int,
    leader_epoch: int,
    log_append: bool,
    max_timestamp: int | None,
) -> bytes:
    """The head of a magic 2 batch: 21 bytes, or 43 where its time changes and so its checksum.

    Args:
        view: the batch.
        header: of the batch.
        last_offset: what its last offset becomes.
        leader_epoch: what its epoch becomes.
        log_append: whether its time becomes the log's.
        max_timestamp: what its largest time becomes; None to leave time and type alone.

    Source: Kafka DefaultRecordBatch.setLastOffset, setPartitionLeaderEpoch, setMaxTimestamp.
    """
    # As it is stored: the last offset of a header that lies may have gone round 64 bits.
    _, delta, base_timestamp, _ = _TIMED_HEAD.unpack_from(view, 21)
    front = (
        wrap_int64(last_offset - delta),
        header.size - LOG_OVERHEAD,
        leader_epoch,
        header.magic,
    )
    same_type = bool(header.attributes & LOG_APPEND) == log_append
    if max_timestamp is None or (same_type and header.max_timestamp == max_timestamp):
        return _HEAD.pack(*front, header.crc)
    attributes = header.attributes & _KEPT_ATTRIBUTES | (LOG_APPEND if log_append else 0)
    timed = _TIMED_HEAD.pack(attributes, delta, base_timestamp, max_timestamp)
    crc = _core.crc32c(view[_TIMED_HEAD_BYTES:], _core.crc32c(timed))
    return _HEAD.pack(*front, crc) + timed


def entry_head(
    view: memoryview, header: BatchHeader, *, offset: int, log_append: bool, timestamp: int
) -> bytes:
    """The first 26 bytes of a magic 1 message, its checksum changed only where its time is.

    Args:
        view: the entry.
        header: of the entry.
        offset: what its offset becomes.
        log_append: whether its time becomes the log's.
        timestamp: what its time becomes.

    Source: Kafka AbstractLegacyRecordBatch.ByteBufferLegacyRecordBatch.setMaxTimestamp.
    """
    timed, crc = bytes(view[16:_TIMED_ENTRY_BYTES]), header.crc
    same_type = bool(header.attributes & LOG_APPEND) == log_append
    if not same_type or header.max_timestamp != timestamp:
        attributes = header.codec | (LOG_APPEND if log_append else 0)
        timed = _TIMED_ENTRY.pack(header.magic, attributes, timestamp)
        crc = _core.crc32(view[_TIMED_ENTRY_BYTES:], _core.crc32(timed))
    return _ENTRY_HEAD.pack(offset, header.size - LOG_OVERHEAD, crc) + timed


def plain_entries(view: memoryview, *, next_offset: int, append_time: int | None) -> bytes:
    """Plain messages with their new offsets, copied.

    Args:
        view: whole entries of magic 0 or 1.
        next_offset: offset of the first.
        append_time: the log's time, for messages of magic 1; None to keep their own.

    Source: as `entry_head`.
    """
    changed = bytearray(view)
    _validate.assign_messages(
        changed,
        next_offset=next_offset,
        create_time=append_time is None,
        now=append_time or 0,
    )
    return bytes(changed)
