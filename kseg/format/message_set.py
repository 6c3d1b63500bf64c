"""Sets of messages of magic 0 and 1: made from messages, walked, written out as they stand.

Owns how entries follow each other, how a compressed one is opened, and which offset each message
then has. It knows no files: `write_to` writes to any object that takes bytes. Here each message is
an object; `columns` reads and `encode` writes in bulk.

Source: Kafka 0.10.1 kafka.message.ByteBufferMessageSet; today's AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

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
from kseg.format.message import Message, check_wrappable, entry, flat
from kseg.format.request import INFLATED_BYTES_MAX

if TYPE_CHECKING:
    from kseg.format.header import Buffer

_ENTRY = Struct(">qi")
_MAGIC_AT = LOG_OVERHEAD + 4


class MessageAndOffset(NamedTuple):
    """A message of a set, and its offset in the log."""

    message: Message
    offset: int

    @property
    def next_offset(self) -> int:
        """The offset after it."""
        return self.offset + 1


class OffsetCounter:
    """Hands out consecutive offsets; one counter may serve many sets.

    Attributes:
        value: the next offset.
    """

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        """Count from `value` on."""
        self.value = value

    def take(self, count: int) -> range:
        """The next `count` offsets, which are gone then."""
        taken = range(self.value, self.value + count)
        self.value = taken.stop
        return taken


#: Where offsets come from: the first of consecutive ones, a counter, or a call for each message.
OffsetAssigner = int | OffsetCounter | Callable[[], int]


class MessageSet:
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

    __slots__ = ("data",)

    def __init__(self, data: Buffer = b"") -> None:
        """Look at a set; nothing is read yet.

        Args:
            data: messages of magic 0 or 1, each behind its offset and length, C-contiguous; kept
                as long as this object.
        """
        self.data = flat(data)

    @classmethod
    def create(
        cls,
        messages: Iterable[Message],
        *,
        offsets: OffsetAssigner = 0,
        compression: Codec = Compression.NONE,
        level: int | None = None,
        timestamp: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    ) -> MessageSet:
        """Make a set: an entry for each message, or with a codec one wrapper around all.

        Args:
            messages: in order; none give a set without bytes.
            offsets: one for each message; none is taken if the messages are refused.
            compression: the codec.
            level: the codec's; None for Kafka's default.
            timestamp: of the wrapper; the largest of the messages if None. Magic 0 has none.
            timestamp_type: of the wrapper.

        Raises:
            ValueError: a codec that these magics or a level that this codec does not have.
            InvalidRecordError: with a codec: mixed magics, or a message with a codec of its own.

        Source: Kafka 0.10.1 ByteBufferMessageSet.create.
        """
        given, compression = list(messages), codec_of(compression)
        if not given:
            return cls()
        if compression == Compression.NONE:
            places = _assign(offsets, len(given))
            return cls(b"".join(map(entry, given, places)))
        check_wrappable(given)
        places = _assign(offsets, len(given))
        wrapper = Message.wrapping(
            given,
            compression,
            offsets=places,
            timestamp=timestamp,
            timestamp_type=timestamp_type,
            level=level,
        )
        return cls(entry(wrapper, places[-1]))

    @property
    def size_bytes(self) -> int:
        """All bytes, those of a cut-off last entry too."""
        return len(self.data)

    @property
    def valid_bytes(self) -> int:
        """Bytes of the whole entries; raises like `shallow`."""
        return sum(LOG_OVERHEAD + size for _, _, size in _entries(self.data))

    def shallow(self) -> Iterator[MessageAndOffset]:
        """Each entry, compressed ones as they are; no checksum is looked at.

        A cut-off last entry ends the set.

        Raises:
            CorruptRecordError: a size that no message has.
        """
        for position, offset, size in _entries(self.data):
            start = position + LOG_OVERHEAD
            yield MessageAndOffset(Message(self.data[start : start + size]), offset)

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
        limits = _Limits(rules == "0.10", ensure_matching_magic, message_bytes_max, inflated_max)
        for found in self.shallow():
            if found.message.codec:
                yield from _unwrap(found, limits)
            else:
                yield found

    def __iter__(self) -> Iterator[MessageAndOffset]:
        """Each message, as `deep()` gives it."""
        return self.deep()

    def wrappers_have_magic(self, magic: int) -> bool:
        """Whether every entry has this magic; what lies in compressed ones is not looked at.

        Source: Kafka 0.10.1 MessageSet.isMagicValueInAllWrapperMessages.
        """
        return all(found.message.magic == magic for found in self.shallow())

    def to_message_format(self, magic: int) -> MessageSet:
        """All messages in one magic, at their offsets; a single wrapper if the first entry is one.

        A set without a whole message is given back as it is: its bytes say how large one is.

        Raises:
            ValueError: a magic that is neither 0 nor 1.
            FormatError: as `deep` does.

        Source: Kafka 0.10.1 FileMessageSet.toMessageFormat.
        """
        found = list(self.deep(rules="0.10"))
        if self.size_bytes and not found:
            return self
        messages = [each.message.to_format_version(magic) for each in found]
        first = next(self.shallow(), None)
        return MessageSet.create(
            messages,
            offsets=iter([each.offset for each in found]).__next__,
            compression=first.message.compression if first else Compression.NONE,
        )

    def write_to(self, target: Writable | Sendable) -> int:
        """Write the bytes as they stand to a file or a socket.

        Args:
            target: has `send` or `write`, which may take the bytes in parts.

        Returns:
            The number of bytes, which is all of them.

        Raises:
            BlockingIOError, OSError: as `write_all` says.
        """
        return write_all(self.data, target)

    def __eq__(self, other: object) -> bool:
        """Whether the bytes are the same, wherever they lie."""
        return self.data == other.data if isinstance(other, MessageSet) else NotImplemented

    def __hash__(self) -> int:
        """Of the bytes, which must not change meanwhile."""
        return hash(bytes(self.data))

    def __repr__(self) -> str:
        """The size."""
        return f"MessageSet(size_bytes={self.size_bytes})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with a copy of the bytes."""
        return MessageSet, (bytes(self.data),)


def _assign(offsets: OffsetAssigner, count: int) -> Sequence[int]:
    if isinstance(offsets, int):
        return range(offsets, offsets + count)
    if isinstance(offsets, OffsetCounter):
        return offsets.take(count)
    return [offsets() for _ in range(count)]


def _entries(data: memoryview) -> Iterator[tuple[int, int, int]]:
    """Position, offset and message size of each whole entry."""
    position, end = 0, len(data)
    while end - position >= LOG_OVERHEAD:
        offset, size = _ENTRY.unpack_from(data, position)
        if size < MESSAGE_BYTES_MIN:
            reason = f"message of {size} bytes, {MESSAGE_BYTES_MIN} at least"
            raise CorruptRecordError(reason, position=position, offset=offset)
        if size > end - position - LOG_OVERHEAD:
            return
        yield position, offset, size
        position += LOG_OVERHEAD + size


class _Limits(NamedTuple):
    """The arguments of `deep`."""

    as_0_10: bool
    ensure_matching_magic: bool
    message_bytes_max: int | None
    inflated_max: int


def _unwrap(found: MessageAndOffset, limits: _Limits) -> Iterator[MessageAndOffset]:
    """The messages of a compressed one, with the offsets, timestamps and type that it gives."""
    wrapper, wrapper_offset = found
    magic = wrapper.magic
    try:
        inner = _inflated(wrapper, limits)
        last = _survey(inner, magic, limits)
        if last is None:
            if limits.as_0_10:
                return
            raise InvalidRecordError("a compressed message holds no messages")
        shift = _shift(magic, wrapper_offset, last, limits)
    except KsegError as error:
        error.offset = wrapper_offset
        raise
    timestamp = wrapper.timestamp if magic else None
    kind = wrapper.timestamp_type if magic or not limits.as_0_10 else None
    for index, (position, offset, size) in enumerate(_entries(inner)):
        start = position + LOG_OVERHEAD
        message = Message(
            inner[start : start + size],
            wrapper_timestamp=timestamp,
            wrapper_timestamp_type=kind,
        )
        if message.magic not in (0, 1):
            reason = f"a message of magic {message.magic} inside a compressed message"
            raise InvalidRecordError(reason, offset=wrapper_offset, record_index=index)
        if message.codec and not limits.as_0_10:
            reason = "a compressed message inside a compressed message"
            raise InvalidRecordError(reason, offset=wrapper_offset, record_index=index)
        yield MessageAndOffset(message, wrap_int64(offset + shift))


def _inflated(wrapper: Message, limits: _Limits) -> memoryview:
    """The entries inside a compressed message, whose key is passed over."""
    if wrapper.magic not in (0, 1):
        raise InvalidRecordError(f"compressed message of magic {wrapper.magic}")
    codec, value = wrapper.compression, wrapper.view_value()
    if value is None:
        raise InvalidRecordError("compressed message without a value")
    try:
        return decompress(codec, value, magic=wrapper.magic, limit=limits.inflated_max)
    except DecompressionError as error:
        if limits.as_0_10:
            raise InvalidRecordError(error.reason) from error
        raise


def _survey(inner: memoryview, magic: int, limits: _Limits) -> int | None:
    """Check every entry inside a wrapper before one is given; the last one's offset, if any."""
    last = None
    for index, (position, offset, size) in enumerate(_entries(inner)):
        if limits.message_bytes_max is not None and size > limits.message_bytes_max:
            reason = f"message of {size} bytes, {limits.message_bytes_max} at most"
            raise CorruptRecordError(reason, record_index=index)
        if limits.ensure_matching_magic and inner[position + _MAGIC_AT] != magic:
            reason = f"message of magic {inner[position + _MAGIC_AT]} in one of magic {magic}"
            raise InvalidRecordError(reason, record_index=index)
        last = offset
    return last


def _shift(magic: int, wrapper_offset: int, last: int, limits: _Limits) -> int:
    """What to add to the offsets inside: the wrapper's magic decides, not theirs."""
    if magic == 0:
        return 0
    if limits.as_0_10:
        return wrapper_offset - last
    if wrapper_offset == 0:  # as some versions of librdkafka write it
        return 0
    if wrapper_offset < last:
        reason = f"wrapper at offset {wrapper_offset}, its last message at {last}"
        raise InvalidRecordError(reason)
    return wrapper_offset - last


class Writable(Protocol):
    """A file, raw or buffered."""

    def write(self, data: memoryview, /) -> int | None:
        """Take some of the bytes; how many, None for none right now."""


class Sendable(Protocol):
    """A socket."""

    def send(self, data: memoryview, /) -> int:
        """Take some of the bytes; how many."""


def write_all(data: memoryview, target: Writable | Sendable) -> int:
    """Write all bytes to a file or a socket, which may take them in as many parts as it likes.

    Returns:
        The number of bytes, which is all of them.

    Raises:
        BlockingIOError: the target takes no more right now; `characters_written` is how many it
            took.
        OSError: as the target raises it, or the target took nothing and raised nothing.
    """
    take = target.send if hasattr(target, "send") else target.write
    written = 0
    while written < len(data):
        try:
            taken = take(data[written:])
        except BlockingIOError as error:
            part = getattr(error, "characters_written", 0)
            raise _would_block(written + part) from error
        if taken is None:
            raise _would_block(written)
        if taken <= 0:
            raise OSError(errno.EIO, f"nothing taken behind byte {written} of {len(data)}")
        written += taken
    return written


def _would_block(written: int) -> BlockingIOError:
    return BlockingIOError(errno.EAGAIN, "the target takes no more right now", written)
