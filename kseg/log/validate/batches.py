"""The checks of an append: of whole batches, and of each record.

Leaders and followers make the same checks of a batch: framing, size, checksum, offsets. A header is
enough for all of them: nothing is inflated, and no record is read.

The kernels of `kseg._kernels.validate` check the records. This module counts their answers, and
raises errors with a text for each. It gives no offsets and builds no batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from kseg._kernels import validate as _validate
from kseg.constants import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD,
    AppendOrigin,
    Bools,
    Buffer,
    Compression,
    Int64s,
    StopReason,
    TimestampType,
)
from kseg.errors import (
    CorruptRecordError,
    FormatError,
    InvalidRecordError,
    InvalidTimestampError,
    KsegError,
    LimitExceededError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    RecordFault,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from kseg.format import codec
from kseg.format.bodies import at_batch, record_error, wrapper_value
from kseg.format.codec import CAPACITY_KEPT_MAX, Arena
from kseg.format.header import (
    CODEC_MASK,
    ENTRY_BYTES_MIN,
    BatchHeader,
    BatchTable,
    crc_error,
    scan,
    stop_error,
)
from kseg.log.validate.rules import LAST_OFFSET_MAX, AppendRules, ValidationMetrics

#: Which batches break a rule, or whether the only one does; and a function for the error.
Refusal = tuple["Bools | bool", Callable[[BatchHeader], KsegError]]


def walk(data: Buffer, *, verify: bool) -> BatchTable:
    """The whole batches in a buffer, with checksums compared or not; the end is not judged."""
    return scan(
        data,
        on_bad_crc="note" if verify else "ignore",
        batches_max=len(data) // ENTRY_BYTES_MIN + 1,
    )


def check_end(table: BatchTable, size: int) -> None:
    """Refuse bytes after the last whole batch that do not begin another one.

    Args:
        table: the walk over all of the buffer.
        size: the size of the buffer, in bytes.

    Raises:
        CorruptRecordError: a size or magic that no batch has; zeros for a size among them.

    Source: Kafka ByteBufferLogInputStream.nextBatch.
    """
    zeros = table.stop is StopReason.ZERO_TAIL and size - table.end_position >= LOG_OVERHEAD
    if zeros or table.stop in (StopReason.BAD_LENGTH, StopReason.BAD_MAGIC):
        raise stop_error(table)


def check_last_offset(last_offset: int) -> None:
    """Refuse an append after which no offset would be left.

    Raises:
        OffsetOverflowError: it ends at 2^63 - 1, or would end even further.
    """
    if last_offset > LAST_OFFSET_MAX:
        raise OffsetOverflowError(
            f"it ends past {LAST_OFFSET_MAX}, the largest offset that another can follow",
            offset=last_offset,
        )


def out_of_order(table: BatchTable, before: int) -> Bools:
    """Which batches end before they begin, or do not begin after the batch before; bool[n].

    A recovery cuts a log there, in kseg's own way (`kseg._kernels.placement.survey_rows`, strict).

    Args:
        table: the batches.
        before: the last offset before them.
    """
    last = table.last_offset
    # Compressed messages of magic 0 and 1 do not say where they begin.
    first = np.where(table.magic >= 2, table.base_offset, last)
    return (first <= np.concatenate(([before], last[:-1]))) | (last < first)


def overlap_error(table: BatchTable, row: int, before: int) -> OffsetsOutOfOrderError:
    """The error for a batch that is out of order; `before` is the last offset before all."""
    header = table[row]
    end = int(table.last_offset[row - 1]) if row else before
    reason = f"offsets {header.base_offset} to {header.last_offset} of one batch, after {end}"
    return at_batch(OffsetsOutOfOrderError(reason), header)


def check_rising(table: BatchTable, before: int) -> None:
    """Refuse batches that keep their offsets where a recovery would cut the log between them.

    Kafka only checks last offsets. But `recover` takes a batch of magic 2 for damage if it overlaps
    the batch before it, or ends before it begins. Acknowledged records would be lost then.

    Args:
        table: the batches.
        before: the last offset before them.

    Raises:
        OffsetsOutOfOrderError: there is one.
    """
    wrong = np.flatnonzero(out_of_order(table, before))
    if len(wrong):
        raise overlap_error(table, int(wrong[0]), before)


def check_whole(table: BatchTable, size: int) -> None:
    """Refuse bytes after the last whole batch: a leader would lose them.

    Kafka cuts them off a leader's append as well, and writes the batches before them, if any.

    Args:
        table: the walk over all of the buffer.
        size: the size of the buffer, in bytes.

    Raises:
        CorruptRecordError: the last bytes are not a whole batch.
    """
    bytes_left = size - table.end_position
    if bytes_left:
        reason = f"the last {bytes_left} bytes are not a whole batch"
        raise CorruptRecordError(reason, position=table.end_position, stop=table.stop)


def analyze(
    data: Buffer,
    rules: AppendRules,
    *,
    keep_offsets: bool = False,
    ignore_sizes: bool = False,
    metrics: ValidationMetrics | None = None,
) -> BatchTable:
    """Check the batches of an append by their headers, as leader and follower do.

    Args:
        data: the batches; an incomplete one at the end is not an error.
        rules: the origin, and the limits.
        keep_offsets: the batches keep their offsets, which must increase.
        ignore_sizes: accept batches of any size, as a follower does.
        metrics: counts wrong checksums.

    Returns:
        The headers of the batches.

    Raises:
        InvalidRecordError: a producer's batch does not start at offset 0, a Raft leader's has
            another epoch, or the codec is unknown.
        RecordTooLargeError: a batch is larger than allowed.
        CorruptRecordError: a size, magic or checksum is wrong.
        OffsetsOutOfOrderError: the batches keep offsets that do not increase.

    Source: Kafka UnifiedLog.analyzeAndValidateRecords.
    """
    table = walk(data, verify=True)
    # A single batch is checked as a header, which is faster than arrays of length one.
    batches = table[0] if len(table) == 1 else table
    _refuse_first(batches, rules, ignore_sizes, metrics)
    check_end(table, len(data))
    last = table.last_offset
    grows = (last[:1] > -1).all() and (last[1:] > last[:-1]).all()
    if keep_offsets and not grows:
        raise OffsetsOutOfOrderError(
            f"offsets that are kept have to grow; last offsets are {_few(last)}"
        )
    return table


def _few(offsets: Int64s) -> str:
    """The first five offsets as text."""
    shown = ", ".join(map(str, offsets[:5].tolist()))
    return f"{shown} ..." if len(offsets) > 5 else shown


def _refuse_first(
    batches: BatchTable | BatchHeader,
    rules: AppendRules,
    ignore_sizes: bool,
    metrics: ValidationMetrics | None,
) -> None:
    """Raise the error of the first faulty batch; if it has several, the first in Kafka's order."""
    first_refusal: tuple[int, Callable[[BatchHeader], KsegError]] | None = None
    for refused, error in _refusals(batches, rules, ignore_sizes):
        if isinstance(refused, bool):
            first = 0 if refused else None
        else:
            first = int(np.argmax(refused)) if refused.any() else None
        if first is not None and (first_refusal is None or first < first_refusal[0]):
            first_refusal = first, error
    if first_refusal is None:
        return
    index, make = first_refusal
    if make is crc_error and metrics is not None:
        metrics.invalid_checksum += 1
    raise make(batches if isinstance(batches, BatchHeader) else batches[index])


def _refusals(
    batches: BatchTable | BatchHeader, rules: AppendRules, ignore_sizes: bool
) -> Iterator[Refusal]:
    """The checks of an append's headers in Kafka's order; see `Refusal`."""
    if rules.origin == AppendOrigin.RAFT_LEADER:
        epoch = rules.leader_epoch
        yield (
            batches.leader_epoch != epoch,
            _refusal(lambda h: f"leader epoch {h.leader_epoch} in an append of epoch {epoch}"),
        )
    if rules.origin == AppendOrigin.CLIENT:
        yield (
            (batches.magic >= 2) & (batches.base_offset != 0),
            _refusal(lambda h: f"a producer's batch starts at offset 0, not {h.base_offset}"),
        )
    limit = rules.batch_bytes_max
    if limit is not None and not ignore_sizes:
        yield batches.size > limit, lambda h: too_large(h, limit)
    yield batches.crc_ok == 0, crc_error
    yield batches.codec > Compression.ZSTD, _unknown_codec


def _refusal(text: Callable[[BatchHeader], str]) -> Callable[[BatchHeader], KsegError]:
    """A function that makes the error of a batch, with `text` of its header."""
    return lambda header: at_batch(InvalidRecordError(text(header)), header)


_unknown_codec = _refusal(lambda h: f"no codec has the number {h.codec}")


def too_large(header: BatchHeader, limit: int) -> RecordTooLargeError:
    """The error for a batch larger than allowed."""
    reason = f"a batch of {header.size} bytes; max.message.bytes allows {limit}"
    return at_batch(RecordTooLargeError(reason), header)


def source_codec(table: BatchTable) -> Compression:
    """The codec of an append: the codec of its last compressed batch.

    Raises:
        InvalidRecordError: no release has this codec.
    """
    if not table.attributes_seen & CODEC_MASK:
        return Compression.NONE
    coded = np.flatnonzero(table.codec)
    if not len(coded):
        return Compression.NONE
    header = table[int(coded[-1])]
    if header.codec > Compression.ZSTD:
        raise _unknown_codec(header)
    return header.compression


def check_batch(
    header: BatchHeader, rules: AppendRules, metrics: ValidationMetrics | None = None
) -> None:
    """Check the header of a magic 2 batch before its records are read.

    Raises:
        InvalidRecordError: a producer's batch counts its records wrongly, holds markers, or has a
            producer id without a sequence.
        UnsupportedFormatError: a transaction or a producer, and the log's format has neither.

    Source: Kafka LogValidator.validateBatch.
    """
    metrics = metrics or ValidationMetrics()
    if rules.origin == AppendOrigin.CLIENT:
        reason = _count_fault(header)
        if reason is None and header.is_control:
            reason = "a producer may not write control batches"
        if reason is not None:
            metrics.invalid_offset += 1
            raise at_batch(InvalidRecordError(reason), header)
        if header.producer_id > -1 and header.base_sequence < 0:
            metrics.invalid_sequence += 1
            reason = f"producer {header.producer_id} with base sequence {header.base_sequence}"
            raise at_batch(InvalidRecordError(reason), header)
    check_transaction(header, rules)
    if rules.magic < 2 and header.producer_id > -1:
        reason = f"a log of magic {rules.magic} has no idempotent producers"
        raise at_batch(UnsupportedFormatError(reason), header)


def check_transaction(header: BatchHeader, rules: AppendRules) -> None:
    """Refuse a transaction where the log's format has none.

    Raises:
        UnsupportedFormatError: it has none.
    """
    if rules.magic < 2 and header.is_transactional:
        reason = f"a log of magic {rules.magic} has no transactions"
        raise at_batch(UnsupportedFormatError(reason), header)


def _count_fault(header: BatchHeader) -> str | None:
    """Says how a producer's batch counts its records wrongly; None if it counts them right."""
    span = header.last_offset - header.base_offset + 1
    if span <= 0:
        return f"offsets {header.base_offset} to {header.last_offset} go backwards"
    if header.record_count <= 0:
        return f"a producer's batch holds records, not {header.record_count}"
    if span != header.record_count:
        return f"{header.record_count} records for {span} offsets"
    return None


# ---- records -------------------------------------------------------------------------------------


#: The reasons why a single record is refused, in the order of the kernels' numbers.
REASONS = ("magic", "no_key", "timestamp", "timestamp_type")

#: Columns of the faults that a kernel notes.
NOTED_FIELDS = ("record", "reason", "offset", "timestamp")

_MAGIC, _NO_KEY, _TIMESTAMP, _TIMESTAMP_TYPE = range(len(REASONS))

_NO_FAULTS = np.empty((0, len(NOTED_FIELDS)), np.int64)

#: Status of the kernels for messages whose checksum is wrong, or of another magic.
_MESSAGE_CRC, _MESSAGE_MAGIC = 13, 17

#: The most refused records that the text of an error names.
_SHOWN_MAX = 3


class RecordCounts(NamedTuple):
    """The counts of a pass over the records of an append.

    Attributes:
        status: why no sound record follows the last one; 0 where all are sound.
        records: the number of sound records.
        max_timestamp: the largest timestamp; -1 if there is none.
        max_record: the first message of magic 1 that has it; -1 if there is none.
        record_bytes: the size of the records as Kafka counts it, uncompressed.
        sequential: whether offsets go 0, 1, 2.
        bad_magic, no_key, bad_timestamp, bad_timestamp_type: records refused for each reason.
    """

    status: int
    records: int
    max_timestamp: int
    max_record: int
    record_bytes: int
    sequential: bool
    bad_magic: int
    no_key: int
    bad_timestamp: int
    bad_timestamp_type: int

    @property
    def fault_count(self) -> int:
        """How many records are refused by themselves."""
        return self.bad_magic + self.no_key + self.bad_timestamp + self.bad_timestamp_type


def examine_batch(
    body: Buffer,
    header: BatchHeader,
    rules: AppendRules,
    *,
    now_ms: int,
    skip: bool,
    metrics: ValidationMetrics,
) -> RecordCounts:
    """Check the records of a magic 2 batch against the rules.

    Args:
        body: the records, inflated; not looked at where the header counts none.
        header: the batch's.
        rules: the rules.
        now_ms: the time of the append.
        skip: do not hold the length of a record against its fields, as brokers do where they leave
            a batch compressed.
        metrics: counted on.

    Raises:
        InvalidRecordError, InvalidTimestampError: with all refused records, or for bytes that are
            no record.
    """
    look = partial(
        _validate.examine_records,
        body,
        count=header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        log_append=header.timestamp_type == TimestampType.LOG_APPEND_TIME,
        skip=skip,
    )
    return _check_rules(look, header, rules, now_ms, metrics)


def examine_wrapper(
    body: Buffer,
    header: BatchHeader,
    rules: AppendRules,
    *,
    now_ms: int,
    metrics: ValidationMetrics,
) -> RecordCounts:
    """Check the messages inside a wrapper of magic 0 or 1 against the rules.

    Raises:
        CorruptRecordError: the size or checksum of a message inside is wrong.
        InvalidRecordError, InvalidTimestampError: with all refused records, or for a set that is
            none.
    """
    look = partial(
        _validate.examine_messages,
        body,
        inner=True,
        magic=header.magic,
        offset=header.last_offset,
        timestamp=header.max_timestamp,
        log_append=header.timestamp_type == TimestampType.LOG_APPEND_TIME,
    )
    return _check_rules(look, header, rules, now_ms, metrics)


def examine_entries(
    data: Buffer,
    table: BatchTable,
    rules: AppendRules,
    *,
    now_ms: int,
    metrics: ValidationMetrics,
) -> RecordCounts:
    """Check uncompressed messages of magic 0 or 1, each of them a batch, against the rules.

    Raises:
        InvalidRecordError: a message has another magic than the first, or is refused by itself.
        InvalidTimestampError: a message is refused because of its time.
    """
    magic = int(table.magic[0])
    look = partial(
        _validate.examine_messages,
        data,
        inner=False,
        magic=magic,
        offset=0,
        timestamp=0,
        log_append=False,
    )
    return _check_rules(look, table, rules, now_ms, metrics)


def _check_rules(
    look: Callable[..., tuple[int, ...]],
    headers: BatchHeader | BatchTable,
    rules: AppendRules,
    now_ms: int,
    metrics: ValidationMetrics,
) -> RecordCounts:
    """The result of a pass over records; raises the faults that the pass notes.

    Args:
        look: the kernel's pass, which notes as many refused records as `faults` has rows.
        headers: the header of the batch with all records, or a table with one message for each.
        rules, now_ms, metrics: see `examine_batch`.
    """
    look = partial(
        look,
        compacted=rules.compacted,
        create_time=not rules.is_log_append,
        now=now_ms,
        before_max=rules.timestamp_before_max_ms,
        after_max=rules.timestamp_after_max_ms,
    )
    record_counts = RecordCounts._make(look(faults=_NO_FAULTS))  # only counts; see `_refusal_error`
    metrics.invalid_magic += record_counts.bad_magic
    metrics.no_key_compacted += record_counts.no_key
    metrics.invalid_checksum += record_counts.status == _MESSAGE_CRC
    if not (record_counts.status or record_counts.fault_count):
        return record_counts
    if isinstance(headers, BatchHeader):
        header, record = headers, record_counts.records
    else:
        header, record = headers[record_counts.records], 0
        if record_counts.status == _MESSAGE_MAGIC:
            metrics.invalid_magic += 1
            reason = f"magic {header.magic} after messages of magic {headers[0].magic}"
            raise at_batch(InvalidRecordError(reason), header)
    if record_counts.status:
        raise record_error(record_counts.status, header, record)
    raise _refusal_error(look, record_counts, header, rules, now_ms)


def _refusal_error(
    look: Callable[..., tuple[int, ...]],
    record_counts: RecordCounts,
    header: BatchHeader,
    rules: AppendRules,
    now_ms: int,
) -> InvalidRecordError | InvalidTimestampError:
    """The error for refused records: a second pass finds which, and whether for their time.

    Source: Kafka LogValidator.processRecordErrors.
    """
    noted = np.zeros((record_counts.fault_count, len(NOTED_FIELDS)), np.int64)
    look(faults=noted)
    is_message = header.magic < 2 and not header.codec  # a batch of its own
    faults = tuple(
        RecordFault(0 if is_message else record, _reason(reason, timestamp, header, rules, now_ms))
        for record, reason, _, timestamp in noted.tolist()
    )
    shown = "; ".join(
        f"record {fault.record_index}: {fault.reason}" for fault in faults[:_SHOWN_MAX]
    )
    text = f"{len(faults)} of the batch's records may not be appended: {shown}"
    if len(faults) > _SHOWN_MAX:
        text += f"; and {len(faults) - _SHOWN_MAX} more"
    # As in Kafka, one record that is refused because of its time decides for all.
    for_time = record_counts.bad_timestamp or record_counts.bad_timestamp_type
    error = InvalidTimestampError(text) if for_time else InvalidRecordError(text)
    error.record_errors = faults
    return at_batch(error, header)


def _reason(
    reason: int, timestamp: int, header: BatchHeader, rules: AppendRules, now_ms: int
) -> str:
    """Says why one record is refused, with the limit that it exceeds."""
    if reason == _MAGIC:
        return f"its magic is not {header.magic}, that of the message around it"
    if reason == _NO_KEY:
        return "it has no key, which a compacted log needs"
    if reason == _TIMESTAMP_TYPE:
        return "it is marked with log append time, which only the log sets"
    if timestamp <= now_ms:
        limit = rules.timestamp_before_max_ms
        return f"its timestamp {timestamp} is more than {limit} ms older than {now_ms}"
    limit = rules.timestamp_after_max_ms
    return f"its timestamp {timestamp} is more than {limit} ms newer than {now_ms}"


# ---- inflating -----------------------------------------------------------------------------------

_kept = threading.local()


@dataclass(slots=True, eq=False)
class Inflated:
    """An append without its codec.

    Attributes:
        data: plain batches or messages.
        body: the records in it: after the header of a batch, or all of the messages.
        table: the headers of the append as it was given; `data` differs if that had a codec.
    """

    data: memoryview
    body: memoryview
    table: BatchTable


def inflate_records(codec_id: int, data: memoryview, limit: int) -> memoryview | None:
    """The records of a compressed batch, inflated; None if they cannot be.

    Valid until this thread inflates another one.
    """
    try:
        return _inflate_with_room(codec_id, data, magic=2, limit=limit, free=0)
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
        data = _inflate_with_room(
            header.codec, packed, magic=header.magic, limit=inflated_max, free=start
        )
    except (FormatError, LimitExceededError) as error:
        at_batch(error, header)
        raise
    return Inflated(data, data[start:], table)


def _inflate_with_room(
    codec_id: int, packed: memoryview, *, magic: int, limit: int, free: int
) -> memoryview:
    """Some bytes inflated, after `free` zero bytes, where the header of a batch has room.

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
