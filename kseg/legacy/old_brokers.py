"""Changes of old brokers to messages: of 0.10.1 to a produced set, of 0.11 to 3.9 for consumers.

`down_convert` makes what brokers up to 3.9 sent to old consumers; losses go unreported. Headers,
producer fields, flags and leader epochs go; control batches are left out; offsets stay.
`kseg.format.convert` reports its losses, and converts upwards too.
Source: Kafka RecordsUtil.downConvert, FileRecords.downConvert.

`validate_append_010` makes the changes of 0.10.1 to a produced message set before it was written.

Callers use `kseg.broker.validate_append_010`. It takes two steps, as the broker's `Log.append` did:
`analyze_0_10` checks the outermost messages, their sizes and checksums. `validate_0_10` assigns
offsets and timestamps, in place where it can, else in a new set. 0.10.0 did the same and returned
the set and `sizes_maybe_changed` only. Today's rules are in `kseg.log.validate.append`. Reads no
clock.

The results equal 0.10.1's, with its oddities. A set that is compressed again is not checked
message by message. Log-append time does not reach messages whose wrapper is taken away. Two things
differ, because 0.10.1 wrote damaged bytes there. A set is changed in place only if it is one
wrapper and nothing else. A message that has the wanted magic stays as it is when others beside it
are converted.

Source: Kafka 0.10.1 kafka.log.Log.analyzeAndValidateMessageSet,
kafka.message.ByteBufferMessageSet.validateMessagesAndAssignOffsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kseg.constants import (
    INT32_MAX,
    INT64_MAX,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    Buffer,
    Compression,
    Int64s,
    TimestampType,
)
from kseg.documents import frozen_dataclass
from kseg.errors import (
    CorruptRecordError,
    FormatError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOverflowError,
    RecordFault,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from kseg.format.bodies import at_batch
from kseg.format.columns import WholeBatches, check_walk, decode_whole, refused_in
from kseg.format.encode import encode_batch, rows_of
from kseg.format.header import LOG_APPEND, BatchTable, scan_all
from kseg.format.options import options_for, overhead_bytes
from kseg.format.request import FIELDS_DEFAULT, OLD_FIELDS
from kseg.format.take import runs, take_rows
from kseg.legacy.message import Message, entry, patched
from kseg.legacy.message_set import MessageSet
from kseg.log.validate.rules import (
    NEAR_OFFSET_MAX,
    AppendRules,
    ConversionStats,
    ValidatedBatch,
    check_given,
)


def validate_append_010(
    data: Buffer, rules: AppendRules, *, next_offset: int, now_ms: int
) -> ValidatedBatch:
    """Check a produced message set as a leader of Kafka 0.10.1 did; then give it offsets.

    Args:
        data: messages of magic 0 or 1; a cut-off last one is left out.
        rules: the rules, for magic 0 or 1. The release knew one largest difference of timestamps
            for both directions, and neither epochs nor origins, which are ignored.
        next_offset: offset of the first message.
        now_ms: the broker's clock; the log append time.

    Returns:
        The set to write, all of it in `head`; `stats` are empty.

    Raises:
        ValueError: magic 2, a codec that the magic lacks, two different bounds of timestamps, or an
            invalid offset or time.
        OffsetOverflowError: no offset may follow the messages.
        RecordTooLargeError: a message is larger than `rules.batch_bytes_max`, before or after it
            was rebuilt.
        CorruptRecordError: a size that no message has, or a wrong checksum.
        InvalidRecordError, InvalidTimestampError: a message breaks a rule; `record_index` says
            which.
        LimitExceededError: compressed messages inflate to more than `rules.inflated_bytes_max`.

    Example:
        >>> from kseg.broker import AppendRules
        >>> from kseg.legacy import Message, MessageSet
        >>> data = MessageSet.create([Message.build(b"paid", timestamp=7)]).data
        >>> taken = validate_append_010(data, AppendRules(magic=1), next_offset=12, now_ms=7)
        >>> taken.first_offset, taken.next_offset, taken.max_timestamp
        (12, 13, 7)

    Source: Kafka 0.10.1 kafka.log.Log.append.
    """
    check_given(next_offset, now_ms)
    if next_offset >= NEAR_OFFSET_MAX:
        raise OffsetOverflowError("no offset may follow the messages", offset=next_offset)
    bytes_max = INT32_MAX if rules.batch_bytes_max is None else rules.batch_bytes_max
    source = analyze_0_10(data, message_bytes_max=bytes_max)
    validated = validate_0_10(data, rules, source=source, next_offset=next_offset, now_ms=now_ms)
    if validated.sizes_maybe_changed:
        analyze_0_10(validated.head, message_bytes_max=bytes_max)
    return validated


def analyze_0_10(data: Buffer, *, message_bytes_max: int) -> Compression:
    """Check the outermost messages of a set, from a producer or from the leader.

    Args:
        data: the set; a cut-off last message is left out.
        message_bytes_max: the most bytes of one message with its offset and size.

    Returns:
        The codec of the last compressed message; NONE if no message is compressed.

    Raises:
        RecordTooLargeError: a message is larger.
        CorruptRecordError: a size that no message has, or a wrong checksum.
    """
    source = Compression.NONE
    for index, (message, offset) in enumerate(MessageSet(data).shallow()):
        size = LOG_OVERHEAD + message.size
        if size > message_bytes_max:
            reason = f"message of {size} bytes, {message_bytes_max} at most"
            raise RecordTooLargeError(reason, offset=offset, record_index=index)
        _ensure_valid(message, index)
        source = message.compression or source
    return source


class _Append(NamedTuple):
    """A set that is being validated: the rules, and its codecs before and after."""

    rules: AppendRules
    source: Compression
    target: Compression
    next_offset: int
    now_ms: int


def validate_0_10(
    data: Buffer, rules: AppendRules, *, source: Compression, next_offset: int, now_ms: int
) -> ValidatedBatch:
    """Check the messages of a produced set, and assign offsets and timestamps.

    A timestamp of -1 (none) is one as any other here.

    Args:
        data: the set, which stays as it is; a cut-off last message is left out. `analyze_0_10` has
            checked the checksums of outermost messages.
        rules: as for `validate_append_010`.
        source: codec of the set, from `analyze_0_10`.
        next_offset: the offset for the first message.
        now_ms: the broker's clock; the log append time.

    Raises:
        ValueError: magic 2, or two different bounds of timestamps.
        InvalidRecordError: a message without a key, of a strange magic, or compressed inside a
            compressed one; `record_index` says which.
        InvalidTimestampError: a timestamp out of bounds, or one that claims log-append time.
        CorruptRecordError: a size that no message has, or a wrong checksum inside a wrapper that
            could stay as it is.
        LimitExceededError: more than `rules.inflated_bytes_max`.
    """
    if rules.magic not in (0, 1):
        raise ValueError(f"messages have magic 0 or 1, not {rules.magic}")
    if rules.timestamp_after_max_ms != rules.timestamp_before_max_ms:
        raise ValueError("Kafka 0.10.1 has one largest difference of timestamps")
    target = source if rules.compression is None else rules.compression
    append, messages = _Append(rules, source, target, next_offset, now_ms), MessageSet(data)
    if source == target == Compression.NONE:
        return _one_by_one(messages, append)
    return _validate_deep(messages, append)


def _validated_batch(
    head: bytes, append: _Append, count: int, largest: tuple[int, int], *, rebuilt: bool
) -> ValidatedBatch:
    """The result; `largest` is the largest timestamp, and the offset of the message that has it."""
    return ValidatedBatch(
        head=head,
        first_offset=append.next_offset,
        last_offset=append.next_offset + count - 1,
        record_count=count,
        max_timestamp=largest[0],
        offset_of_max_timestamp=largest[1],
        sizes_maybe_changed=rebuilt,
        log_append_time=append.now_ms if append.rules.is_log_append else NO_TIMESTAMP,
    )


def _largest_timestamp(timestamps: Sequence[int], first_offset: int) -> tuple[int, int]:
    """The largest timestamp, and the offset of the first message that has it; or -1, -1."""
    largest = max(timestamps, default=NO_TIMESTAMP)
    if largest <= NO_TIMESTAMP:
        return NO_TIMESTAMP, -1
    return largest, first_offset + timestamps.index(largest)


def _one_by_one(messages: MessageSet, append: _Append) -> ValidatedBatch:
    """Check plain messages; they are rebuilt if some have another magic than the topic's."""
    rules, parts, timestamps = append.rules, [], []
    rebuilt = not messages.wrappers_have_magic(rules.magic)
    for index, (message, _) in enumerate(messages.shallow()):
        _check_message(message, index, rules)
        if rebuilt or rules.magic > 0:
            _check_timestamp(message, index, append)
        written = message
        if rebuilt:
            written = message.to_format_version(
                rules.magic, timestamp_type=rules.timestamp_type, now_ms=append.now_ms
            )
        elif rules.magic > 0 and rules.is_log_append:
            written = _with_append_time(message, append.now_ms)
        parts.append(entry(written, append.next_offset + index))
        timestamps.append(written.timestamp)
    largest = _largest_timestamp(timestamps, append.next_offset)
    return _validated_batch(b"".join(parts), append, len(parts), largest, rebuilt=rebuilt)


def _validate_deep(messages: MessageSet, append: _Append) -> ValidatedBatch:
    """Check a set that is compressed, or is to be compressed."""
    rules = append.rules
    in_place = append.source == append.target and rules.magic > 0
    timestamps: list[int] = []
    inner: list[Message] = []
    entries = messages.deep(
        rules="0.10", ensure_matching_magic=True, inflated_max=rules.inflated_bytes_max
    )
    for index, (message, offset) in enumerate(entries):
        _check_message(message, index, rules)
        if message.magic > 0 and rules.magic > 0:
            _check_timestamp(message, index, append)
            in_place = in_place and offset == index
        timestamps.append(message.timestamp if rules.magic else NO_TIMESTAMP)
        if message.codec:
            reason = "a compressed message inside a compressed message"
            raise InvalidRecordError(reason, record_index=index)
        in_place = in_place and message.magic == rules.magic
        inner.append(message.to_format_version(rules.magic))
    largest = _largest_timestamp(timestamps, append.next_offset)
    outer = [entry.message for entry in messages.shallow()] if in_place else []
    # The magic of a wrapper with nothing inside has not been checked yet.
    if len(outer) == 1 and outer[0].codec and outer[0].magic == rules.magic:
        return _update_wrapper(outer[0], inner, largest[0], append)
    return _rebuild(inner, largest, append)


def _update_wrapper(
    wrapper: Message, inner: list[Message], largest: int, append: _Append
) -> ValidatedBatch:
    """Keep the compressed messages; set the wrapper's offset and, if necessary, its timestamp."""
    for index, message in enumerate(inner):
        _ensure_valid(message, index)
    last = append.next_offset + len(inner) - 1
    if append.rules.is_log_append:
        wrapper = _with_append_time(wrapper, append.now_ms)
    elif wrapper.timestamp != largest:
        wrapper = patched(wrapper, attributes=wrapper.attributes, timestamp=largest)
    time = wrapper.timestamp, last
    return _validated_batch(entry(wrapper, last), append, len(inner), time, rebuilt=False)


def _rebuild(messages: list[Message], largest: tuple[int, int], append: _Append) -> ValidatedBatch:
    """Make a new set of all messages, compressed or not."""
    rules, plain = append.rules, append.target == Compression.NONE
    last = append.next_offset + len(messages) - 1
    if rules.magic and rules.is_log_append:
        largest = append.now_ms, append.next_offset if plain else last
    elif rules.magic and not plain:
        largest = largest[0], last
    message_set = MessageSet.create(
        messages,
        offsets=append.next_offset,
        compression=append.target,
        timestamp=largest[0],
        timestamp_type=rules.timestamp_type,
    )
    return _validated_batch(bytes(message_set.data), append, len(messages), largest, rebuilt=True)


def _with_append_time(message: Message, now_ms: int) -> Message:
    """The message with log-append time; the other bits of its attributes stay."""
    return patched(message, attributes=message.attributes | LOG_APPEND, timestamp=now_ms)


def _ensure_valid(message: Message, index: int) -> None:
    """Refuse a wrong checksum; the error has the message's index."""
    try:
        message.ensure_valid()
    except CorruptRecordError as error:
        error.record_index = index
        raise


def _check_message(message: Message, index: int, rules: AppendRules) -> None:
    """Refuse a message of another magic than 0 and 1, and one that lacks a required key."""
    if message.magic not in (0, 1):
        reason = f"message of magic {message.magic}, 0 or 1 expected"
        raise InvalidRecordError(reason, record_index=index)
    if rules.compacted and not message.has_key:
        raise _message_error(
            InvalidRecordError, "a compacted topic takes no message without a key", index
        )


def _check_timestamp(message: Message, index: int, append: _Append) -> None:
    """Refuse a time too far from the clock's, and log-append time, which only the log sets."""
    timestamp, bound = message.timestamp, append.rules.timestamp_before_max_ms
    apart = min(abs(timestamp - append.now_ms), INT64_MAX)
    if not append.rules.is_log_append and apart > bound:
        reason = f"timestamp {timestamp} is {apart} ms from {append.now_ms}, {bound} at most"
    elif message.timestamp_type == TimestampType.LOG_APPEND_TIME:
        reason = "a producer's message claims log-append time"
    else:
        return
    raise _message_error(InvalidTimestampError, reason, index)


def _message_error(
    kind: type[InvalidRecordError | InvalidTimestampError], reason: str, index: int
) -> InvalidRecordError | InvalidTimestampError:
    """The error for one message."""
    error = kind(reason, record_index=index)
    error.record_errors = (RecordFault(index, reason),)
    return error


# ---- down-conversion -----------------------------------------------------------------------------


@frozen_dataclass
class Converted:
    """Batches after conversion.

    Attributes:
        data: the bytes.
        stats: its cost.
    """

    data: bytes
    stats: ConversionStats


def down_convert(
    data: Buffer,
    to_magic: int,
    *,
    first_offset: int = 0,
    as_file: bool = False,
    verify_crc: bool = True,
) -> Converted:
    """Convert batches newer than `to_magic`, and copy the others byte for byte.

    Args:
        data: whole batches; an incomplete last one is left out.
        to_magic: 0, 1 or 2.
        first_offset: the offset that a consumer asked for. Records below it are left out of
            converted batches that are not compressed, where `to_magic` is 0 or 1.
        as_file: as for a slice of a file: where no record was converted the answer is the very
            input, an incomplete batch and control batches included.
        verify_crc: refuse a batch whose checksum is wrong. Kafka does not check it, and so gives
            damaged records a right checksum.

    Raises:
        ValueError: the magic is unknown.
        UnsupportedFormatError: a zstd batch is to become magic 0 or 1, or stay so.
        FormatError: a batch is damaged, or holds a record that an older format cannot hold.

    Source: Kafka RecordsUtil.downConvert; with `as_file`, FileRecords.downConvert.
    """
    if to_magic not in (0, 1, 2):
        raise ValueError(f"magic is 0, 1 or 2, not {to_magic}")
    view = memoryview(data)
    table = scan_all(view, on_bad_crc="note" if verify_crc else "ignore")
    check_walk(table)
    converted = _convert(view, table, to_magic, first_offset, verify_crc)
    if as_file and not converted.stats.records_converted:
        return Converted(bytes(view), ConversionStats())
    return converted


def _convert(
    data: memoryview, table: BatchTable, to_magic: int, first_offset: int, verify_crc: bool
) -> Converted:
    """Convert the batches of a table, a run of the same treatment at a time; see `down_convert`."""
    parts: list[bytes | memoryview] = []
    stats = ConversionStats()
    keep = np.ones(len(table), np.bool_) if to_magic >= 2 else ~table.is_control
    newer = table.magic > to_magic
    fields = OLD_FIELDS if to_magic < 2 else FIELDS_DEFAULT
    refused = keep & (to_magic < 2) & (table.codec == Compression.ZSTD)
    for first, end in runs(keep, newer, refused):
        if refused[first]:
            reason = "batches compressed with zstd have no older format"
            raise at_batch(UnsupportedFormatError(reason), table[first])
        if not keep[first]:
            continue
        if not newer[first]:
            start, stop = table.position[first], table.position[end - 1] + table.size[end - 1]
            parts.append(data[start:stop])
            stats += ConversionStats(int(stop - start), 0)
            continue
        some = table.take(slice(first, end))
        for whole in decode_whole(data, some, fields=fields, verify_crc=verify_crc):
            for part, cost in _batches(some, whole, to_magic, first_offset):
                parts.append(part)
                stats += cost
    return Converted(b"".join(parts), stats)


def _batches(
    table: BatchTable, whole: WholeBatches, to_magic: int, first_offset: int
) -> Iterator[tuple[bytes, ConversionStats]]:
    """Yields one batch after the other. A plain message is a batch too."""
    rows, ends = rows_of(whole.columns), whole.ends.tolist()
    for number, batch in enumerate(whole.batches.tolist()):
        header = table[batch]
        source, first, end = rows, ends[number], ends[number + 1]
        numbers: range | Int64s = range(-first, end - first)
        if to_magic < 2 and not header.codec:
            chosen = np.flatnonzero(whole.columns["offset"][first:end] >= first_offset)
            if not len(chosen):
                continue
            if len(chosen) < end - first:
                source = rows_of(take_rows(whole.columns, chosen + first))
                first, end, numbers = 0, len(chosen), chosen
        options = options_for(header, to_magic)
        try:
            encoded = encode_batch(source, options, first=first, end=end)
        except FormatError as error:
            raise refused_in(error, header, numbers) from None
        cost = (
            header.size + overhead_bytes(to_magic, options.compression) + encoded.uncompressed_bytes
        )
        yield encoded.data, ConversionStats(cost, end - first)
