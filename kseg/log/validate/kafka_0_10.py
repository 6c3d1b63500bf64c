"""Changes that a broker of Kafka 0.10.1 made to a produced message set before it wrote it.

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

from typing import NamedTuple

from kseg.constants import LOG_OVERHEAD, NO_TIMESTAMP, Buffer, Compression, TimestampType
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOverflowError,
    RecordFault,
    RecordTooLargeError,
)
from kseg.format.header import LOG_APPEND
from kseg.format.message import Message, MessageAndOffset, MessageSet, entry, patched
from kseg.format.request import INFLATED_BYTES_MAX
from kseg.log.validate.rules import (
    NEAR_OFFSET_MAX,
    NOTHING_CONVERTED,
    AppendRules,
    ValidatedBatch,
    check_given,
)

#: The largest difference that two timestamps can have: as a bound it refuses nothing.
DIFFERENCE_UNBOUNDED_MS = 2**63 - 1


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
    difference_ms = rules.timestamp_before_max_ms
    if rules.timestamp_after_max_ms != difference_ms:
        raise ValueError("Kafka 0.10.1 has one largest difference of timestamps")
    bytes_max = 2**31 - 1 if rules.batch_bytes_max is None else rules.batch_bytes_max
    source = analyze_0_10(data, message_bytes_max=bytes_max)
    taken = validate_0_10(
        data,
        next_offset=next_offset,
        now_ms=now_ms,
        source=source,
        target=source if rules.compression is None else rules.compression,
        compacted=rules.compacted,
        magic=rules.magic,
        timestamp_type=rules.timestamp_type,
        timestamp_difference_max_ms=difference_ms,
        inflated_max=rules.inflated_bytes_max,
    )
    if taken.sizes_maybe_changed:
        analyze_0_10(taken.head, message_bytes_max=bytes_max)
    return taken


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


def validate_0_10(
    data: Buffer,
    *,
    next_offset: int,
    now_ms: int,
    source: Compression,
    target: Compression,
    compacted: bool = False,
    magic: int = 1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    timestamp_difference_max_ms: int = DIFFERENCE_UNBOUNDED_MS,
    inflated_max: int = INFLATED_BYTES_MAX,
) -> ValidatedBatch:
    """Check the messages of a produced set, and give them offsets and timestamps.

    Args:
        data: the set, which stays as it is; a cut-off last message is left out. `analyze_0_10` has
            checked the checksums of outermost messages.
        next_offset: for the first message.
        now_ms: the broker's clock; the log append time.
        source: codec of the set, from `analyze_0_10`.
        target: codec to write.
        compacted: refuse messages without a key.
        magic: message format of the topic, 0 or 1.
        timestamp_type: of the topic.
        timestamp_difference_max_ms: with create time, how far from `now_ms` a timestamp may lie;
            -1 (none) is a timestamp here as any other.
        inflated_max: refuse compressed messages that inflate to more bytes.

    Raises:
        ValueError: a magic that is neither 0 nor 1, or a codec or type of timestamp it lacks.
        InvalidRecordError: a message without a key, of a strange magic, or compressed inside a
            compressed one; `record_index` says which.
        InvalidTimestampError: a timestamp out of bounds, or one that claims log-append time.
        CorruptRecordError: a size that no message has, or a wrong checksum inside a wrapper that
            could stay as it is.
        LimitExceededError: more than `inflated_max`.
    """
    if magic not in (0, 1):
        raise ValueError(f"messages have magic 0 or 1, not {magic}")
    if timestamp_type == TimestampType.NO_TIMESTAMP_TYPE:
        raise ValueError("a topic has create time or log-append time")
    if target == Compression.ZSTD:
        raise ValueError(f"magic {magic} has no zstd compression")
    rules = _Rules(
        next_offset,
        now_ms,
        source,
        target,
        compacted,
        magic,
        timestamp_type == TimestampType.LOG_APPEND_TIME,
        timestamp_difference_max_ms,
    )
    messages = MessageSet(data)
    if source != Compression.NONE or target != Compression.NONE:
        return _validate_deep(messages, rules, inflated_max)
    return _one_by_one(messages, rules, rebuilt=not messages.wrappers_have_magic(magic))


class _Rules(NamedTuple):
    """The arguments of `validate_0_10`."""

    next_offset: int
    now_ms: int
    source: Compression
    target: Compression
    compacted: bool
    magic: int
    log_append: bool
    difference_max_ms: int


def _taken(
    messages: bytes,
    rules: _Rules,
    next_offset: int,
    max_timestamp: int,
    offset_of_max_timestamp: int,
    *,
    rebuilt: bool,
) -> ValidatedBatch:
    return ValidatedBatch(
        head=messages,
        tail=b"",
        first_offset=rules.next_offset,
        last_offset=next_offset - 1,
        next_offset=next_offset,
        record_count=next_offset - rules.next_offset,
        max_timestamp=max_timestamp,
        offset_of_max_timestamp=offset_of_max_timestamp,
        sizes_maybe_changed=rebuilt,
        log_append_time=rules.now_ms if rules.log_append else NO_TIMESTAMP,
        stats=NOTHING_CONVERTED,
        in_place=not rebuilt,
    )


class _Largest:
    """The largest timestamp so far, and the offset of the first message that has it."""

    def __init__(self) -> None:
        self.timestamp, self.offset = NO_TIMESTAMP, -1

    def see(self, timestamp: int, offset: int) -> None:
        if timestamp > self.timestamp:
            self.timestamp, self.offset = timestamp, offset


def _one_by_one(messages: MessageSet, rules: _Rules, *, rebuilt: bool) -> ValidatedBatch:
    """Plain messages; `rebuilt` if some are of another magic than the topic's."""
    parts: list[bytes] = []
    largest = _Largest()
    kind = TimestampType(rules.log_append)
    for index, (message, _) in enumerate(messages.shallow()):
        _check_message(message, index, rules)
        if rebuilt or rules.magic > 0:
            _check_timestamp(message, index, rules)
        written = message
        if rebuilt:
            written = message.to_format_version(
                rules.magic, timestamp_type=kind, now_ms=rules.now_ms
            )
        elif rules.magic > 0 and rules.log_append:
            written = _stamped(message, rules.now_ms)
        offset = rules.next_offset + index
        parts.append(entry(written, offset))
        largest.see(written.timestamp, offset)
    end = rules.next_offset + len(parts)
    return _taken(b"".join(parts), rules, end, largest.timestamp, largest.offset, rebuilt=rebuilt)


def _validate_deep(messages: MessageSet, rules: _Rules, inflated_max: int) -> ValidatedBatch:
    """A set that is compressed, or is to be."""
    in_place = rules.source == rules.target and rules.magic > 0
    largest = _Largest()
    kept: list[Message] = []
    found = messages.deep(rules="0.10", ensure_matching_magic=True, inflated_max=inflated_max)
    for index, (message, offset) in enumerate(found):
        _check_message(message, index, rules)
        if message.magic > 0 and rules.magic > 0:
            _check_timestamp(message, index, rules)
            in_place = in_place and offset == index
            largest.see(message.timestamp, rules.next_offset + index)
        if message.codec:
            reason = "a compressed message inside a compressed message"
            raise InvalidRecordError(reason, record_index=index)
        in_place = in_place and message.magic == rules.magic
        kept.append(message.to_format_version(rules.magic))
    wrapper = _only_wrapper(messages, rules.magic) if in_place else None
    if wrapper is None:
        return _rebuild(kept, largest, rules)
    return _update_wrapper(wrapper, kept, largest.timestamp, rules)


def _only_wrapper(messages: MessageSet, magic: int) -> Message | None:
    """The compressed message of a set that has no other message; else None."""
    entries = messages.shallow()
    first: MessageAndOffset | None = next(entries, None)
    if first is None or next(entries, None) is not None:
        return None
    # The magic of one with nothing inside has not been checked yet.
    return first.message if first.message.codec and first.message.magic == magic else None


def _update_wrapper(
    wrapper: Message, kept: list[Message], largest: int, rules: _Rules
) -> ValidatedBatch:
    """Keep compressed messages: a new offset, and if necessary a new timestamp."""
    for index, message in enumerate(kept):
        _ensure_valid(message, index)
    last = rules.next_offset + len(kept) - 1
    if rules.log_append:
        wrapper = _stamped(wrapper, rules.now_ms)
    elif wrapper.timestamp != largest:
        wrapper = patched(wrapper, attributes=wrapper.attributes, timestamp=largest)
    return _taken(entry(wrapper, last), rules, last + 1, wrapper.timestamp, last, rebuilt=False)


def _rebuild(kept: list[Message], largest: _Largest, rules: _Rules) -> ValidatedBatch:
    """All messages in a new set, compressed or not."""
    end = rules.next_offset + len(kept)
    plain = rules.target == Compression.NONE
    if rules.magic == 0:
        timestamp, offset = NO_TIMESTAMP, -1
    elif rules.log_append:
        timestamp, offset = rules.now_ms, rules.next_offset if plain else end - 1
    else:
        timestamp, offset = largest.timestamp, largest.offset if plain else end - 1
    made = MessageSet.create(
        kept,
        offsets=rules.next_offset,
        compression=rules.target,
        timestamp=timestamp,
        timestamp_type=TimestampType(rules.log_append),
    )
    return _taken(bytes(made.data), rules, end, timestamp, offset, rebuilt=True)


def _stamped(message: Message, now_ms: int) -> Message:
    """The message with log-append time; other bits of its attributes stay."""
    return patched(message, attributes=message.attributes | LOG_APPEND, timestamp=now_ms)


def _ensure_valid(message: Message, index: int) -> None:
    try:
        message.ensure_valid()
    except CorruptRecordError as error:
        error.record_index = index
        raise


def _check_message(message: Message, index: int, rules: _Rules) -> None:
    if message.magic not in (0, 1):
        reason = f"message of magic {message.magic}, 0 or 1 expected"
        raise InvalidRecordError(reason, record_index=index)
    if rules.compacted and not message.has_key:
        reason = "a compacted topic takes no message without a key"
        invalid = InvalidRecordError(reason, record_index=index)
        invalid.record_errors = (RecordFault(index, reason),)
        raise invalid


def _check_timestamp(message: Message, index: int, rules: _Rules) -> None:
    timestamp, bound = message.timestamp, rules.difference_max_ms
    apart = min(abs(timestamp - rules.now_ms), DIFFERENCE_UNBOUNDED_MS)
    if not rules.log_append and apart > bound:
        reason = f"timestamp {timestamp} is {apart} ms from {rules.now_ms}, {bound} at most"
    elif message.timestamp_type == TimestampType.LOG_APPEND_TIME:
        reason = "a producer's message claims log-append time"
    else:
        return
    refused = InvalidTimestampError(reason, record_index=index)
    refused.record_errors = (RecordFault(index, reason),)
    raise refused
