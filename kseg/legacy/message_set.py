"""Sets of messages of magic 0 and 1 as objects, and the messages and sets of Kafka 0.7.

Owns how entries follow each other, how a compressed one is opened, and the offset of each message
inside; `kseg.legacy.message` owns one message. Reads no clock and no file.

Source: Kafka 0.10.1 ByteBufferMessageSet; today's AbstractLegacyRecordBatch.

A message of Kafka 0.7 has no offset and no key, and a checksum of the payload alone:

    | field      | magic 0 at | magic 1 at |                                         |
    |------------|------------|------------|-----------------------------------------|
    | magic      | 0          | 0          | of 0.7 alone: not that of `message`     |
    | attributes | -          | 1          | bits 0-1 codec: none, gzip, snappy      |
    | crc        | 1          | 2          | CRC-32 of the payload                   |
    | payload    | 5          | 6          | or a compressed set, nested to any depth |

In a set an i32 with the message's length lies before each. An offset of 0.7 is a position in
the partition's log, and the offset of a message is the position after it.

Source: Kafka 0.7.2 kafka.message.Message, ByteBufferMessageSet, CompressionUtils.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, ClassVar, Literal, NamedTuple

from kseg._core import crc32
from kseg.constants import (
    INT32_MAX,
    LOG_OVERHEAD,
    MESSAGE_BYTES_MIN,
    NESTING_MAX,
    Buffer,
    Codec,
    Compression,
    TimestampType,
    codec_of,
)
from kseg.errors import (
    CorruptRecordError,
    DecompressionError,
    InvalidRecordError,
    KsegError,
    LimitExceededError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from kseg.format.codec import decompress, flat
from kseg.format.compress import compress
from kseg.format.header import wrap_int64
from kseg.format.request import INFLATED_BYTES_MAX
from kseg.legacy.message import ENTRY, BorrowedMessage, BorrowedSet, Message, entry, magic_and_time


class MessageAndOffset(NamedTuple):
    """A message of a set, and its offset in the log."""

    message: Message
    offset: int

    @property
    def next_offset(self) -> int:
        """The offset after this message's."""
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
            messages: in order; if there are none, the set has no bytes.
            offsets: the first of consecutive offsets, or called for each message; unused if the
                messages are refused.
            compression: the codec.
            level: the codec's; None for Kafka's default.
            timestamp: the wrapper's; None for the largest of the messages. Magic 0 has none.
            timestamp_type: the wrapper's kind of timestamp.

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
        """Each entry, compressed ones as they are; checks no checksum.

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
        """Each message, with those inside of compressed ones in their place; checks no checksum.

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
        """Each message, as `deep()` yields it."""
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
    """Inflate the messages inside a compressed message; its key is ignored."""
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
    """Check the message at `index` in a wrapper; the caller checks all before it yields one."""
    if bytes_max is not None and message.size > bytes_max:
        reason = f"message of {message.size} bytes, {bytes_max} at most"
        raise CorruptRecordError(reason, record_index=index)
    if same_magic and message.magic != wrapper_magic:
        reason = f"message of magic {message.magic} in one of magic {wrapper_magic}"
        raise InvalidRecordError(reason, record_index=index)


def _inner_messages(
    outer: MessageAndOffset, inner: MessageSet, shift: int, as_0_10: bool
) -> Iterator[MessageAndOffset]:
    """The messages of a compressed one, with the offsets, timestamps and type from it."""
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
    """The number to add to inner offsets; it depends on the wrapper's magic, not on theirs."""
    if last is None and not as_0_10:
        raise InvalidRecordError("a compressed message holds no messages")
    if last is None or wrapper.message.magic == 0:
        return 0
    if as_0_10:
        return wrapper.offset - last
    if wrapper.offset == 0:  # some versions of librdkafka write it so
        return 0
    if wrapper.offset < last:
        reason = f"wrapper at offset {wrapper.offset}, its last message at {last}"
        raise InvalidRecordError(reason)
    return wrapper.offset - last


_LENGTH, _U32 = Struct(">i"), Struct(">I")
_LENGTH_BYTES = 4
#: Bytes before the payload.
_HEADER_BYTES = (5, 6)
_MESSAGE_BYTES_MAX = INT32_MAX - _LENGTH_BYTES


class Message07(BorrowedMessage):
    """A message of Kafka 0.7 over bytes that it borrows, its length not among them.

    Two are equal if magic, attributes, checksum and payload are, so if their bytes are.

    Attributes:
        data: the bytes, magic first; neither copied nor changed.

    Example:
        >>> message = Message07.build(b"hello")
        >>> message.magic, message.payload, message.size, message.is_valid
        (1, b'hello', 11, True)
    """

    __slots__ = ()
    _CODECS: ClassVar = (0x03, Compression.SNAPPY)

    @classmethod
    def build(
        cls, payload: Buffer, *, magic: int = 1, compression: Codec = Compression.NONE
    ) -> Message07:
        """Make a message around a payload, which with a codec is the compressed set as it is.

        Args:
            payload: its bytes, C-contiguous; they are copied.
            magic: 0 or 1; magic 0 has no codec.
            compression: none, gzip or snappy: the codec in the attributes.

        Raises:
            ValueError: a magic or codec that 0.7 does not have; magic 0 has no codec at all.
            InvalidRecordError: a payload longer than a length can tell.
        """
        compression = codec_of(compression)
        if magic not in (0, 1):
            raise ValueError(f"Kafka 0.7 has magic 0 or 1, not {magic}")
        if compression > Compression.SNAPPY or (compression and not magic):
            name = compression.label
            raise ValueError(f"magic {magic} of Kafka 0.7 has no {name} compression")
        view = flat(payload)
        if len(view) > _MESSAGE_BYTES_MAX - _HEADER_BYTES[magic]:
            reason = f"payload of {len(view)} bytes in a message of {_MESSAGE_BYTES_MAX} at most"
            raise InvalidRecordError(reason)
        head = bytes([magic, compression][: magic + 1])
        return cls(b"".join([head, _U32.pack(crc32(view)), view]))

    @classmethod
    def wrapping(
        cls, messages: Iterable[Message07], compression: Codec = Compression.GZIP
    ) -> Message07:
        """Make one compressed message around others, which may be compressed themselves.

        Args:
            messages: one or more, in order.
            compression: gzip or snappy.

        Raises:
            ValueError: no message, or a codec that 0.7 does not have.
        """
        compression = codec_of(compression)
        plain = b"".join(map(entry07, messages))
        if not plain:
            raise ValueError("a compressed message holds at least one message")
        if compression not in (Compression.GZIP, Compression.SNAPPY):
            name = compression.label
            raise ValueError(f"Kafka 0.7 compresses with gzip or snappy, not {name}")
        return cls.build(compress(compression, plain, magic=0), compression=compression)

    @property
    def magic(self) -> int:
        """0 or 1.

        Raises:
            CorruptRecordError: the bytes are empty.
            UnsupportedFormatError: another magic.
        """
        if not len(self.data):
            raise CorruptRecordError("message without a byte")
        magic = self.data[0]
        if magic > 1:
            raise UnsupportedFormatError(f"Kafka 0.7 knows no magic {magic}")
        return magic

    @property
    def attributes(self) -> int:
        """All eight bits; 0 for magic 0, which has none."""
        return self.data[1] if self._header_bytes() > _HEADER_BYTES[0] else 0

    @property
    def crc(self) -> int:
        """The checksum stored, unsigned."""
        stored: int = _U32.unpack_from(self.data, self._header_bytes() - _U32.size)[0]
        return stored

    @property
    def computed_crc(self) -> int:
        """The checksum that the payload ought to have."""
        return crc32(self.view_payload())

    @property
    def payload_size(self) -> int:
        """Bytes of the payload."""
        return len(self.data) - self._header_bytes()

    @property
    def payload(self) -> bytes:
        """A copy of the payload."""
        return bytes(self.view_payload())

    def view_payload(self) -> memoryview:
        """The bytes of the payload, a view of `data`."""
        return self.data[self._header_bytes() :]

    def _header_bytes(self) -> int:
        """Bytes before the payload; an error if there are fewer."""
        header = _HEADER_BYTES[self.magic]
        if len(self.data) < header:
            raise CorruptRecordError(f"message of {len(self.data)} bytes, {header} at least")
        return header


def entry07(message: Message07) -> bytes:
    """The message as stored in a set: length, message."""
    return _LENGTH.pack(message.size) + message.data


class MessageAndNextOffset(NamedTuple):
    """A message of Kafka 0.7, and the position from which its consumer reads on."""

    message: Message07
    next_offset: int


class MessageSet07(BorrowedSet):
    """Messages of Kafka 0.7, one after the other, over bytes that it borrows.

    Two sets are equal if their bytes and their initial offsets are. Iterating is `deep()`.

    Attributes:
        data: the bytes, a cut-off last message among them; neither copied nor changed.
        initial_offset: position of the first byte in the partition's log.

    Example:
        >>> made = MessageSet07.create([Message07.build(b"a"), Message07.build(b"bc")])
        >>> read = MessageSet07(made.data, initial_offset=1000)
        >>> [(found.message.payload, found.next_offset) for found in read]
        [(b'a', 1011), (b'bc', 1023)]
    """

    __slots__ = ("initial_offset",)

    def __init__(self, data: Buffer = b"", initial_offset: int = 0) -> None:
        """Wrap a set; nothing is read yet.

        Args:
            data: messages, each after its length, C-contiguous; kept as long as this object.
            initial_offset: the offset of the first byte; in 0.7 an offset is a position in the log.
        """
        super().__init__(data)
        self.initial_offset = initial_offset

    @classmethod
    def create(
        cls, messages: Iterable[Message07], *, compression: Codec = Compression.NONE
    ) -> MessageSet07:
        """Make a set, with a codec as one compressed message; no messages give no bytes.

        Args:
            messages: any number, in order.
            compression: none, gzip or snappy.

        Raises:
            ValueError: a codec that 0.7 does not have.
        """
        listed = list(messages)
        if compression != Compression.NONE and listed:
            listed = [Message07.wrapping(listed, compression)]
        return cls(b"".join(map(entry07, listed)))

    @property
    def valid_bytes(self) -> int:
        """Bytes of the whole messages; raises like `shallow`."""
        return sum(_LENGTH_BYTES + entry.message.size for entry in self.shallow())

    def shallow(self) -> Iterator[MessageAndNextOffset]:
        """Each message, compressed ones as they are, its checksum compared.

        A cut-off message ends the set, unless it is the first.

        Raises:
            CorruptRecordError: a negative length, a first message that is cut (or larger than the
                fetched bytes), or a wrong checksum.
            UnsupportedFormatError: a magic that 0.7 does not know.
        """
        position, end = 0, self.size_bytes
        while end - position >= _LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(self.data, position)
            start = position + _LENGTH_BYTES
            try:
                if length < 0 or (length > end - start and position == 0):
                    raise CorruptRecordError(f"message of {length} bytes, {end - start} left")
                if length > end - start:
                    return
                message = Message07(self.data[start : start + length])
                message.ensure_valid()
            except (CorruptRecordError, UnsupportedFormatError) as error:
                error.position, error.offset = position, self.initial_offset + position
                raise
            position = start + length
            yield MessageAndNextOffset(message, self.initial_offset + position)

    def deep(self, *, inflated_max: int = INFLATED_BYTES_MAX) -> Iterator[MessageAndNextOffset]:
        """Each message, with those inside of compressed ones in their place, at any depth.

        All of a compressed set but the last point back to the set's start, so a consumer that
        stops among them reads them all again.

        Args:
            inflated_max: refuse messages that inflate to more bytes, all sets inside counted.

        Raises:
            CorruptRecordError, UnsupportedFormatError: as `shallow`, for sets inside too, or a
                codec that 0.7 does not know.
            DecompressionError: the codec refuses the bytes.
            LimitExceededError: more than `inflated_max`, or sets nested deeper than `NESTING_MAX`.
        """
        for entry07 in self.shallow():
            try:
                yield from _unwrap(entry07, [inflated_max], 0)
            except KsegError as error:
                error.offset = entry07.next_offset - entry07.message.size - _LENGTH_BYTES
                error.position = error.offset - self.initial_offset
                raise

    def __iter__(self) -> Iterator[MessageAndNextOffset]:
        """Each message, as `deep()` yields it."""
        return self.deep()

    def checked_for_append(self, *, payload_bytes_max: int) -> memoryview:
        """The bytes that a log takes: whole messages, each matching its checksum.

        Args:
            payload_bytes_max: bytes of an outermost payload at the most.

        Returns:
            The bytes from the start of the set to the end of its last whole message, borrowed.

        Raises:
            RecordTooLargeError: an outermost payload is longer than allowed.
            FormatError: as `shallow` does.

        Source: Kafka 0.7.2 ByteBufferMessageSet.verifyMessageSize, Log.append.
        """
        valid = 0
        for index, (message, next_offset) in enumerate(self.shallow()):
            size = message.payload_size
            if size > payload_bytes_max:
                reason = f"payload of {size} bytes, {payload_bytes_max} at most"
                raise RecordTooLargeError(reason, record_index=index)
            valid = next_offset - self.initial_offset
        return self.data[:valid]

    def __eq__(self, other: object) -> bool:
        """Whether bytes and initial offset are the same."""
        same = super().__eq__(other)
        if isinstance(other, MessageSet07):
            return same and self.initial_offset == other.initial_offset
        return same

    def __hash__(self) -> int:
        """The hash of the bytes, which must not change meanwhile, and of the initial offset."""
        return hash((super().__hash__(), self.initial_offset))

    def __repr__(self) -> str:
        """Size and initial offset."""
        return f"MessageSet07(size_bytes={self.size_bytes}, initial_offset={self.initial_offset})"


def _unwrap(
    wrapper: MessageAndNextOffset, left: list[int], depth: int
) -> Iterator[MessageAndNextOffset]:
    """The messages in a message; a plain one yields itself. `left[0]` bounds inflated bytes."""
    message, after = wrapper
    if message.compression == Compression.NONE:
        yield wrapper
        return
    before = after - message.size - _LENGTH_BYTES
    inner = _inner_set07(message, left, depth + 1)
    # One message is read ahead: only the last one's offset points after the set.
    current = next(inner, None)
    while current is not None:
        following = next(inner, None)
        yield MessageAndNextOffset(current.message, after if following is None else before)
        current = following


def _inner_set07(message: Message07, left: list[int], depth: int) -> Iterator[MessageAndNextOffset]:
    """The messages in a compressed one, `depth` deep; subtracts their bytes from `left[0]`."""
    if depth > NESTING_MAX:
        raise LimitExceededError(f"compressed messages nested deeper than {NESTING_MAX}")
    data = decompress(message.codec, message.view_payload(), magic=0, limit=left[0])
    left[0] -= len(data)
    for entry07 in MessageSet07(data).shallow():
        yield from _unwrap(entry07, left, depth)
