"""Which batches a log takes, and the offsets, epoch and times that it gives them.

`validate_append` has all checks of a leader, `validate_replica` the checks of a follower, which
keeps offsets. `validate` is the middle part alone, Kafka's LogValidator. A batch that may stay gets
a new header before the caller's own bytes; others are rebuilt. Nothing here reads a clock,
a file or the log: the next offset and the time are arguments.

Example:
    >>> from kseg.format.encode import encode_batch
    >>> from kseg.format.options import BatchOptions
    >>> batch = encode_batch({"value": [b"a", b"b"]}, BatchOptions())
    >>> taken = validate_append(batch, AppendRules(), next_offset=42, now_ms=1_700_000_000_000)
    >>> taken.first_offset, taken.next_offset, len(taken.head), taken.in_place
    (42, 44, 21, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

import numpy as np

from kseg import _core
from kseg._kernels import validate as _validate
from kseg.constants import (
    INT32_MAX,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    AppendOrigin,
    Buffer,
    Compression,
    TimestampType,
)
from kseg.errors import (
    InvalidRecordError,
    KsegError,
    LimitExceededError,
    RecordBatchTooLargeError,
    UnexpectedAppendOffsetError,
    UnsupportedFormatError,
)
from kseg.format import codec
from kseg.format.bodies import at_batch
from kseg.format.columns import decode
from kseg.format.encode import encode_batch
from kseg.format.header import (
    CODEC_MASK,
    COLUMN,
    ENTRY_BYTES_MIN,
    LOG_APPEND,
    BatchHeader,
    BatchTable,
    EncodedBatch,
    scan,
    wrap_int64,
)
from kseg.format.options import BatchOptions, overhead_bytes
from kseg.format.request import Request
from kseg.log.validate.batches import (
    Inflated,
    RecordCounts,
    analyze,
    check_batch,
    check_end,
    check_last_offset,
    check_transaction,
    check_whole,
    examine_batch,
    examine_entries,
    examine_wrapper,
    inflate,
    source_codec,
    too_large,
    walk,
)
from kseg.log.validate.rules import (
    NOTHING_CONVERTED,
    AppendRules,
    ConversionStats,
    ValidatedBatch,
    ValidationMetrics,
    check_given,
)

# ---- rebuilt batches -----------------------------------------------------------------------------
# For batches that the log cannot store: another format, codec or offsets. Bytes that were inflated
# for the checks are used again: nothing is inflated twice.

#: All records of an append in one piece; their checksums were checked before.
_WHOLE = Request(
    columns=("timestamp", "key", "value", "headers"),
    max_rows=INT32_MAX,
    max_bytes=INT32_MAX,
    control=True,
    verify_crc=False,
)


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
        header: the header of the first batch; its producer and transaction stay.
        rules: the format to build.
        target: the codec that is wanted.
        next_offset: offset of the first record.
        now_ms: the time of the append.
        temporary_bytes: inflated bytes so far.

    Raises:
        InvalidRecordError: the format cannot hold a record, or no record is given.
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
    batch = encode_batch(columns, options, base_offset=next_offset)
    count = batch.record_count
    built_bytes = overhead_bytes(rules.magic, target) + batch.uncompressed_bytes
    return ValidatedBatch(
        head=batch.data,
        first_offset=next_offset,
        last_offset=next_offset + count - 1,
        record_count=count,
        max_timestamp=batch.max_timestamp,
        offset_of_max_timestamp=batch.offset_of_max_timestamp,
        sizes_maybe_changed=True,
        log_append_time=log_append_time,
        stats=ConversionStats(temporary_bytes + built_bytes, count),
    )


def _plain_table(inflated: Inflated, header: BatchHeader) -> BatchTable:
    """The headers of the batches as they are in the inflated bytes, where no codec is left."""
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
    """The records of an append, without their offsets; None if there are no records."""
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
        # Every message in a wrapper has the wrapper's time.
        fields["timestamp"] = np.full(len(columns), header.max_timestamp, np.int64)
    return fields


# ---- header patches ------------------------------------------------------------------------------
# A batch that stays as it is gets a new header: offset, epoch, and time where that differs.
# Everything after a head is the producer's own bytes. Only where the time changes does the
# checksum, which is then taken over head and tail as they are.

#: A batch of magic 2 up to its checksum: base offset, size, epoch, magic, checksum. Then on to the
#: end of its largest time: attributes, delta of the last offset, base time, largest time.
_HEAD, _TIMED_HEAD = Struct(">qiibI"), Struct(">hiqq")

#: An entry of magic 1 up to its checksum: offset, size, checksum. Then on to the end of its time:
#: magic, attributes, time.
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
    """The head of a magic 2 batch: 21 bytes, or 43 if its time changes and so its checksum.

    Args:
        view: the batch.
        header: the header of the batch.
        last_offset: its new last offset.
        leader_epoch: its new epoch.
        log_append: whether its time becomes the log's.
        max_timestamp: its new largest time; None to keep time and type.

    Source: Kafka DefaultRecordBatch.setLastOffset, setPartitionLeaderEpoch, setMaxTimestamp.
    """
    # As it is stored: a wrong last offset in a header may be beyond 64 bits, and wrapped.
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
        header: the header of the entry.
        offset: its new offset.
        log_append: whether its time becomes the log's.
        timestamp: its new time.

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


# ---- validating an append ------------------------------------------------------------------------


def validate_append(
    data: Buffer | EncodedBatch,
    rules: AppendRules,
    *,
    next_offset: int,
    now_ms: int,
    metrics: ValidationMetrics | None = None,
) -> ValidatedBatch:
    """Check an append as a leader does: checksums, sizes and records; then give it offsets.

    Args:
        data: one batch, or several messages of magic 0 or 1, and nothing else. The result borrows
            from it.
        rules: the rules. A Raft leader's batches keep their offsets, as in `validate_replica`.
        next_offset: offset of the first record.
        now_ms: the time of the append, in ms.
        metrics: counted on.

    Returns:
        The validated result.

    Raises:
        ValueError: `next_offset` or `now_ms` is negative, or has more than 64 bits.
        CorruptRecordError: a size, magic or checksum is wrong, or the last batch is cut short.
        InvalidRecordError, InvalidTimestampError: the batch or records in it break a rule;
            `.record_errors` names each record. Kafka checks only for producers that a header counts
            its offsets. Here a header is refused from every origin if it spans no offset, or more
            than there are records: the batch would overlap the batch before it, and `recover`
            cuts a log there.
        UnsupportedFormatError: the log's format cannot hold it, or zstd is not allowed.
        DecompressionError, LimitExceededError: the batch cannot be inflated.
        RecordTooLargeError: a batch is larger than allowed, before or after it was rebuilt.
        RecordBatchTooLargeError: all together are larger than a segment.
        OffsetOverflowError: no offset would be left after them.

    Source: Kafka UnifiedLog.append.
    """
    check_given(next_offset, now_ms)
    view = codec.flat(data.data if isinstance(data, EncodedBatch) else data)
    if rules.origin == AppendOrigin.RAFT_LEADER:
        return validate_replica(view, rules, next_offset=next_offset, metrics=metrics)
    table = analyze(view, rules, metrics=metrics)
    check_whole(table, len(view))
    append = _Append(view, table, rules, next_offset, now_ms, metrics or ValidationMetrics())
    validated = _choose(append, source_codec(table))
    if validated.sizes_maybe_changed and rules.batch_bytes_max is not None:
        for header in walk(validated.head, verify=False):
            if header.size > rules.batch_bytes_max:
                raise too_large(header, rules.batch_bytes_max)
    return _check_total(validated, rules)


def validate_replica(
    data: Buffer | EncodedBatch,
    rules: AppendRules,
    *,
    next_offset: int,
    metrics: ValidationMetrics | None = None,
) -> ValidatedBatch:
    """Check batches that keep their offsets, for a follower or a Raft leader; reads no record.

    Args:
        data: batches. A follower's last one may be cut short, as fetches have it; it is left out.
        rules: whether its origin is a Raft leader, and sizes; a follower takes batches of any size.
        next_offset: where the log ends; the batches must not lie before it.
        metrics: counts wrong checksums.

    Returns:
        The bytes as they are. The record count is -1 where only inflating would tell it.

    Raises:
        CorruptRecordError: a size, magic or checksum is wrong, or a Raft leader's last batch is
            cut short.
        OffsetsOutOfOrderError: the last offsets do not grow. Batches that overlap are refused by
            the log, see `check_rising`.
        UnexpectedAppendOffsetError: they begin before the log's end.
        InvalidRecordError: no batch at all, or one of another epoch than the Raft leader's.
        RecordTooLargeError, RecordBatchTooLargeError: as in `validate_append`.
        OffsetOverflowError: they end at 2^63 - 1, after which no log goes on.

    Source: Kafka UnifiedLog.append.
    """
    check_given(next_offset, 0)
    view = codec.flat(data.data if isinstance(data, EncodedBatch) else data)
    follower = rules.origin != AppendOrigin.RAFT_LEADER
    if follower:
        rules = replace(rules, origin=AppendOrigin.REPLICATION)
    table = analyze(view, rules, keep_offsets=True, ignore_sizes=follower, metrics=metrics)
    if not follower:
        check_whole(table, len(view))
    if not len(table):
        raise InvalidRecordError("no whole batch")
    last = int(table.last_offset[-1])
    has_first = int(table.magic[0]) >= 2
    first = int(table.base_offset[0] if has_first else table.last_offset[0])
    if first < next_offset:
        first = first if has_first else _first_offset_inside(view, table)
        error = UnexpectedAppendOffsetError(
            f"offset {first} where the log continues at {next_offset}"
        )
        error.first_offset, error.last_offset = first, last
        raise error
    check_last_offset(last)
    counts = table.record_count
    latest = int(np.argmax(table.max_timestamp))
    max_timestamp = int(table.max_timestamp[latest])
    has_time = max_timestamp > NO_TIMESTAMP
    validated = ValidatedBatch(
        head=b"",
        tail=view[: table.end_position],
        first_offset=first,
        last_offset=last,
        record_count=-1 if (counts < 0).any() else int(counts.sum()),
        max_timestamp=max_timestamp if has_time else NO_TIMESTAMP,
        offset_of_max_timestamp=int(table.last_offset[latest]) if has_time else -1,
        table=table,
    )
    return _check_total(validated, rules)


def _first_offset_inside(view: memoryview, table: BatchTable) -> int:
    """The first offset of messages; a compressed one is inflated for it."""
    request = Request(columns=("offset",), max_rows=1, control=True)
    with suppress(KsegError):
        for columns in decode(view, table[:1], request):
            return int(columns["offset"][0])
    return int(table.last_offset[0])


def validate(
    data: Buffer,
    rules: AppendRules,
    *,
    next_offset: int,
    now_ms: int,
    source: Compression | None = None,
    metrics: ValidationMetrics | None = None,
) -> ValidatedBatch:
    """Hold batches and records against the rules and give them offsets; no checksum is compared.

    Args:
        data: one batch, or several messages of magic 0 or 1, as `analyze` has passed them.
        rules: the rules.
        next_offset: offset of the first record.
        now_ms: the time of the append, in ms.
        source: the codec that the append counts as, for one whose batches have none.
        metrics: counted on.

    Returns:
        The validated result; sizes are not checked.

    Raises:
        As `validate_append`, but for sizes and the checksum of a batch.

    Source: Kafka LogValidator.validateMessagesAndAssignOffsets.
    """
    check_given(next_offset, now_ms)
    view = codec.flat(data)
    table = walk(view, verify=False)
    check_end(table, len(view))
    source = source_codec(table) or source
    append = _Append(
        view[: table.end_position],
        table,
        rules,
        next_offset,
        now_ms,
        metrics or ValidationMetrics(),
    )
    return _choose(append, source or Compression.NONE)


def _check_total(append: ValidatedBatch, rules: AppendRules) -> ValidatedBatch:
    """Refuse an append that is larger than a segment may be; otherwise return it."""
    limit = rules.append_bytes_max
    if limit is not None and len(append) > limit:
        raise RecordBatchTooLargeError(f"an append of {len(append)} bytes, a segment holds {limit}")
    return append


# ---- the three ways ------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Append:
    """One unfinished append: whole batches, their headers, and the rules for them."""

    view: memoryview
    table: BatchTable
    rules: AppendRules
    next_offset: int
    now_ms: int
    metrics: ValidationMetrics


def _choose(append: _Append, source: Compression) -> ValidatedBatch:
    """Choose whether to keep everything in place or to rebuild it; `source` is the codec now."""
    rules, table = append.rules, append.table
    target = source if rules.compression is None else rules.compression
    if not len(table):
        raise InvalidRecordError("no batch at all")
    first = table[0]
    if target == Compression.ZSTD and not rules.zstd_allowed:
        raise UnsupportedFormatError("zstd needs brokers of Kafka 2.1 or later")
    if len(table) > 1 and (first.magic >= 2 or source != Compression.NONE):
        raise at_batch(InvalidRecordError(f"{len(table)} batches, where one is allowed"), table[1])
    if source == target == Compression.NONE:
        return _validate_plain(append, first)
    return _validate_compressed(append, first, source, target)


def _validate_plain(append: _Append, first: BatchHeader) -> ValidatedBatch:
    """No codec before and after: one batch, or messages; rebuilt if the log has another magic.

    Source: Kafka LogValidator.assignOffsetsNonCompressed, convertAndAssignOffsetsNonCompressed.
    """
    rules = append.rules
    in_place = append.table.magics_seen == 1 << rules.magic
    if not in_place:
        # Kafka begins to build before it checks a batch, and refuses a transaction there.
        check_transaction(first, rules)
    inflated, record_counts = _examine(append, first, skip=False)
    if not in_place:
        return rebuild(
            inflated,
            first,
            rules,
            Compression.NONE,
            next_offset=append.next_offset,
            now_ms=append.now_ms,
            temporary_bytes=0,
        )
    next_offset = append.next_offset + record_counts.records
    max_timestamp, offset = record_counts.max_timestamp, -1
    if max_timestamp > NO_TIMESTAMP:
        offset = (
            next_offset - 1 if rules.magic >= 2 else append.next_offset + record_counts.max_record
        )
    if rules.is_log_append and rules.magic:
        max_timestamp = append.now_ms
        offset = next_offset - 1 if rules.magic >= 2 else append.next_offset
    if first.magic >= 2:
        head = _batch_head(append, first, next_offset - 1, max_timestamp)
        tail: memoryview | bytes = append.view[len(head) :]
    else:
        time = append.now_ms if rules.is_log_append else None
        head = plain_entries(append.view, next_offset=append.next_offset, append_time=time)
        tail = b""
    return _validated_batch(
        append, record_counts, head, tail, max_timestamp, offset, NOTHING_CONVERTED
    )


def _validate_compressed(
    append: _Append, first: BatchHeader, source: Compression, target: Compression
) -> ValidatedBatch:
    """A codec before or after: one batch, but for plain messages that become a wrapper.

    Source: Kafka LogValidator.validateMessagesAndAssignOffsetsCompressed.
    """
    rules, magic = append.rules, append.rules.magic
    in_place = source == target and first.magic == magic and magic > 0
    # A marker is never compressed by the log.
    in_place |= source == Compression.NONE and first.is_control
    skip = in_place and first.magic >= 2  # brokers do not compare lengths within records then
    inflated, record_counts = _examine(append, first, skip=skip and bool(first.codec))
    temporary = record_counts.record_bytes + overhead_bytes(magic, first.codec) * len(append.table)
    if in_place and first.magic and magic and not record_counts.sequential:
        if skip and first.codec:
            # Kafka has skipped the values that it would need to rebuild the batch, and fails.
            reason = "the offsets in a compressed batch do not go 0, 1, 2"
            raise at_batch(InvalidRecordError(reason), first)
        in_place = False
    if not in_place:
        return rebuild(
            inflated,
            first,
            rules,
            target,
            next_offset=append.next_offset,
            now_ms=append.now_ms,
            temporary_bytes=temporary,
        )
    max_timestamp = record_counts.max_timestamp if magic else NO_TIMESTAMP
    max_timestamp = append.now_ms if rules.is_log_append else max_timestamp
    last_offset = append.next_offset + record_counts.records - 1
    if first.magic >= 2:
        head = _batch_head(append, first, last_offset, max_timestamp)
    else:
        head = entry_head(
            append.view,
            first,
            offset=last_offset,
            log_append=rules.is_log_append,
            timestamp=max_timestamp,
        )
    tail = append.view[len(head) :]
    stats = ConversionStats(temporary, 0)
    return _validated_batch(append, record_counts, head, tail, max_timestamp, last_offset, stats)


def _examine(append: _Append, first: BatchHeader, *, skip: bool) -> tuple[Inflated, RecordCounts]:
    """Check every batch and record; also return the inflated bytes, for a later rebuild.

    An append of magic 2, or a compressed one, has a single batch: `first`.

    Args:
        append: the batches.
        first: the header of the first batch.
        skip: whether the length of a record may differ from its fields; see `examine_batch`.
    """
    rules, metrics, now_ms = append.rules, append.metrics, append.now_ms
    if first.magic >= 2:
        check_batch(first, rules, metrics)
        inflated = inflate(append.view, append.table, first, rules.inflated_bytes_max)
        record_counts = examine_batch(
            inflated.body, first, rules, now_ms=now_ms, skip=skip, metrics=metrics
        )
    elif first.codec:
        inflated = inflate(append.view, append.table, first, rules.inflated_bytes_max)
        record_counts = examine_wrapper(inflated.body, first, rules, now_ms=now_ms, metrics=metrics)
    else:
        inflated = Inflated(append.view, append.view, append.table)
        record_counts = examine_entries(
            append.view, append.table, rules, now_ms=now_ms, metrics=metrics
        )
    check_last_offset(append.next_offset + record_counts.records - 1)
    return inflated, record_counts


def _batch_head(append: _Append, first: BatchHeader, last_offset: int, max_timestamp: int) -> bytes:
    """The head of a magic 2 batch, which a marker stays in a log of an older format too.

    It ends where it has to, so its base offset follows from how many offsets it spans.
    """
    rules, records = append.rules, last_offset + 1 - append.next_offset
    spans = wrap_int64(first.last_offset - first.base_offset) + 1
    if not 0 < spans <= records:
        reason = f"{records} records, and {spans} offsets in the header of their batch"
        raise at_batch(InvalidRecordError(reason), first)
    return batch_head(
        append.view,
        first,
        last_offset=last_offset,
        leader_epoch=rules.leader_epoch if rules.magic >= 2 else first.leader_epoch,
        log_append=rules.is_log_append,
        max_timestamp=max_timestamp if rules.magic else None,
    )


def _validated_batch(
    append: _Append,
    record_counts: RecordCounts,
    head: bytes,
    tail: memoryview | bytes,
    max_timestamp: int,
    offset_of_max_timestamp: int,
    stats: ConversionStats,
) -> ValidatedBatch:
    """The result for an append of which only the head was rewritten."""
    return ValidatedBatch(
        head=head,
        tail=tail,
        first_offset=append.next_offset,
        last_offset=append.next_offset + record_counts.records - 1,
        record_count=record_counts.records,
        max_timestamp=max_timestamp,
        offset_of_max_timestamp=offset_of_max_timestamp,
        log_append_time=append.now_ms if append.rules.is_log_append else NO_TIMESTAMP,
        stats=stats,
    )


__all__ = [
    "AppendOrigin",
    "AppendRules",
    "ConversionStats",
    "ValidatedBatch",
    "ValidationMetrics",
    "analyze",
    "validate",
    "validate_append",
    "validate_replica",
]
