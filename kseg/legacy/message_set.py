"""Sets of messages of magic 0 and 1 as objects.

Owns how entries follow each other, how a compressed one is opened, and the offset of each message
inside; `kseg.legacy.message` owns one message. Reads no clock and no file.

Source: Kafka 0.10.1 ByteBufferMessageSet; today's AbstractLegacyRecordBatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from kseg.constants import (
    LOG_OVERHEAD,
    MESSAGE_BYTES_MIN,
    Codec,
    Compression,
    TimestampType,
    codec_of,
)
from kseg.errors import CorruptRecordError, DecompressionError, InvalidRecordError, KsegError
from kseg.format.codec import decompress
from kseg.format.header import wrap_int64
from kseg.format.request import INFLATED_BYTES_MAX
from kseg.legacy.message import ENTRY, BorrowedSet, Message, entry, magic_and_time


class MessageAndOffset(NamedTuple):
    """A message of a set, and its offset in the log."""

    message: Message
    offset: int

    @property
    def next_offset(self) -> int:
        """The offset after it."""
        return self.offset + 1


class MessageSet(BorrowedSet):
    """Messages of magic 0 and 1, one entry after the other, over bytes that it borrows.

    Two sets are equal, and hash alike, if their bytes are equal. Iterating is `deep()`.

    Attributes:
        data: the bytes, a cut-off last entry among them; neither copied nor changed.

    Example:
        >>> made = MessageSet.create(
        ...     [Message.build(b"a"), Message.build(b"b")], offsets=7, compression=Compression.GZIP
        ... )
        >>> [(found.offset, found.message.value) for found in made]
        [(7, b'a'), (8, b'b')]
        >>> [found.offset for found in made.shallow()]
        [8]
    """

    __slots__ = ()

    @classmethod
    def create(
        cls,
        messages: Iterable[Message],
        *,
        offsets: int | Callable[[], int] = 0,
        compression: Codec = Compression.NONE,
        level: int | None = None,
        timestamp: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    ) -> MessageSet:
        """Make a set: an entry for each message, or with a codec one wrapper around all.

        Args:
            messages: in order; none give a set without bytes.
            offsets: the first of consecutive ones, or called for each message; unused if the
                messages are refused.
            compression: the codec.
            level: the codec's; None for Kafka's default.
            timestamp: of the wrapper; the largest of the messages if None. Magic 0 has none.
            timestamp_type: of the wrapper.

        Raises:
            ValueError: a codec that these magics or a level that this codec does not have.
            InvalidRecordError: with a codec: mixed magics, or a message with a codec of its own.

        Source: Kafka 0.10.1 ByteBufferMessageSet.create.
        """
        listed, compression = list(messages), codec_of(compression)
        if not listed:
            return cls()
        if compression != Compression.NONE:
            magic_and_time(listed)
        if isinstance(offsets, int):
            places: Sequence[int] = range(offsets, offsets + len(listed))
        else:
            places = [offsets() for _ in listed]
        if compression != Compression.NONE:
            how: dict[str, Any] = {"timestamp": timestamp, "timestamp_type": timestamp_type}
            listed = [Message.wrapping(listed, compression, offsets=places, level=level, **how)]
        return cls(b"".join(map(entry, listed, places[-len(listed) :])))

    @property
    def valid_bytes(self) -> int:
        """Bytes of the whole entries; raises like `shallow`."""
        return sum(LOG_OVERHEAD + entry.message.size for entry in self.shallow())

    def shallow(self) -> Iterator[MessageAndOffset]:
        """Each entry, compressed ones as they are; no checksum is looked at.

        A cut-off last entry ends the set.

        Raises:
            CorruptRecordError: a size that no message has.
        """
        position, end = 0, self.size_bytes
        while end - position >= LOG_OVERHEAD:
            offset, size = ENTRY.unpack_from(self.data, position)
            if size < MESSAGE_BYTES_MIN:
                reason = f"message of {size} bytes, {MESSAGE_BYTES_MIN} at least"
                raise CorruptRecordError(reason, position=position, offset=offset)
            start = position + LOG_OVERHEAD
            position = start + size
            if position > end:
                return
            yield MessageAndOffset(Message(self.data[start:position]), offset)

    def deep(
        self,
        *,
        rules: Literal["current", "0.10"] = "current",
        ensure_matching_magic: bool = False,
        message_bytes_max: int | None = None,
        inflated_max: int = INFLATED_BYTES_MAX,
    ) -> Iterator[MessageAndOffset]:
        """Each message, those in compressed ones in their place; no checksum is looked at.

        A compressed message is inflated, and its entries' sizes are checked, before its first
        message is given.

        Args:
            rules: "current" as Kafka reads today. "0.10" as 0.10.0 and 0.10.1 did: the offset of
                a magic 1 wrapper is always its last message's, even if that is 0; a wrapper may
                hold nothing, and its messages may be compressed, which are given as they are.
            ensure_matching_magic: refuse messages of another magic than their wrapper's.
            message_bytes_max: refuse larger messages inside a wrapper.
            inflated_max: refuse wrappers that inflate to more bytes.

        Raises:
            CorruptRecordError: a size that no message has, or above `message_bytes_max`.
            InvalidRecordError: a wrapper that cannot be opened by these rules.
            DecompressionError: the codec refuses the bytes ("0.10": InvalidRecordError).
            LimitExceededError: more than `inflated_max`.
            UnsupportedFormatError: the codec has no name.

        Source: Kafka AbstractLegacyRecordBatch.DeepRecordsIterator; 0.10.1
            ByteBufferMessageSet.deepIterator.
        """
        as_0_10 = rules == "0.10"
        for outer in self.shallow():
            if not outer.message.codec:
                yield outer
                continue
            last = None
            try:
                inner = _inner_entries(outer.message, inflated_max, as_0_10)
                for index, (message, offset) in enumerate(inner.shallow()):
                    _check_inner(
                        *(message, index, outer.message.magic),
                        same_magic=ensure_matching_magic,
                        bytes_max=message_bytes_max,
                    )
                    last = offset
                shift = _shift(outer, last, as_0_10)
            except KsegError as error:
                error.offset = outer.offset
                raise
            yield from _inner_messages(outer, inner, shift, as_0_10)

    def __iter__(self) -> Iterator[MessageAndOffset]:
        """Each message, as `deep()` gives it."""
        return self.deep()

    def wrappers_have_magic(self, magic: int) -> bool:
        """Whether every entry has this magic; the contents of compressed entries are not checked.

        Source: Kafka 0.10.1 MessageSet.isMagicValueInAllWrapperMessages.
        """
        return all(entry.message.magic == magic for entry in self.shallow())

    def to_message_format(self, magic: int) -> MessageSet:
        """All messages in one magic, at their offsets; a single wrapper if the first entry is one.

        A set without a whole message is given back as it is: its bytes say how large one is.

        Raises:
            ValueError: a magic that is neither 0 nor 1.
            FormatError: as `deep` does.

        Source: Kafka 0.10.1 FileMessageSet.toMessageFormat.
        """
        entries = list(self.deep(rules="0.10"))
        if self.size_bytes and not entries:
            return self
        first = next(self.shallow(), None)
        return MessageSet.create(
            [entry.message.to_format_version(magic) for entry in entries],
            offsets=iter([entry.offset for entry in entries]).__next__,
            compression=first.message.compression if first else Compression.NONE,
        )


def _inner_entries(wrapper: Message, inflated_max: int, as_0_10: bool) -> MessageSet:
    """The entries inside a compressed message, whose key is passed over."""
    if wrapper.magic not in (0, 1):
        raise InvalidRecordError(f"compressed message of magic {wrapper.magic}")
    codec, value = wrapper.compression, wrapper.view_value()
    if value is None:
        raise InvalidRecordError("compressed message without a value")
    try:
        return MessageSet(decompress(codec, value, magic=wrapper.magic, limit=inflated_max))
    except DecompressionError as error:
        if as_0_10:
            raise InvalidRecordError(error.reason) from error
        raise


def _check_inner(
    message: Message, index: int, wrapper_magic: int, *, same_magic: bool, bytes_max: int | None
) -> None:
    """Check the message at `index` in a wrapper; the caller checks all before it yields any."""
    if bytes_max is not None and message.size > bytes_max:
        reason = f"message of {message.size} bytes, {bytes_max} at most"
        raise CorruptRecordError(reason, record_index=index)
    if same_magic and message.magic != wrapper_magic:
        reason = f"message of magic {message.magic} in one of magic {wrapper_magic}"
        raise InvalidRecordError(reason, record_index=index)


def _inner_messages(
    outer: MessageAndOffset, inner: MessageSet, shift: int, as_0_10: bool
) -> Iterator[MessageAndOffset]:
    """The messages of a compressed one, with the offsets, timestamps and type that it gives."""
    wrapper, magic = outer.message, outer.message.magic
    timestamp = wrapper.timestamp if magic else None
    kind = wrapper.timestamp_type if magic or not as_0_10 else None
    for index, (message, offset) in enumerate(inner.shallow()):
        reason = None
        if message.magic not in (0, 1):
            reason = f"a message of magic {message.magic} inside a compressed message"
        elif message.codec and not as_0_10:
            reason = "a compressed message inside a compressed message"
        if reason is not None:
            raise InvalidRecordError(reason, offset=outer.offset, record_index=index)
        message.wrapper_timestamp, message.wrapper_timestamp_type = timestamp, kind
        yield MessageAndOffset(message, wrap_int64(offset + shift))


def _shift(wrapper: MessageAndOffset, last: int | None, as_0_10: bool) -> int:
    """The number to add to inner offsets; the wrapper's magic decides, not theirs."""
    if last is None and not as_0_10:
        raise InvalidRecordError("a compressed message holds no messages")
    if last is None or wrapper.message.magic == 0:
        return 0
    if as_0_10:
        return wrapper.offset - last
    if wrapper.offset == 0:  # as some versions of librdkafka write it
        return 0
    if wrapper.offset < last:
        reason = f"wrapper at offset {wrapper.offset}, its last message at {last}"
        raise InvalidRecordError(reason)
    return wrapper.offset - last
