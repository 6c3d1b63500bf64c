"""Messages of magic 0 and 1 as objects: one message, sets of them, and decoders of keys and values.

Owns the layout of a message and of the entry around it, its checksum and its conversion, how
entries follow each other, how a compressed one is opened, and the offset of each message inside.
Reads no clock and no file. `columns` reads and `encode` writes in bulk. Layouts: `docs/format.md`.

    | field     | magic 0 at | magic 1 at |                                              |
    |-----------|------------|------------|----------------------------------------------|
    | crc       | 0          | 0          | CRC-32 of everything from the magic on       |
    | magic     | 4          | 4          |                                              |
    | attributes| 5          | 5          | bits 0-2 codec, bit 3 log-append time        |
    | timestamp | -          | 6          |                                              |
    | key       | 6          | 14         | i32 length (negative: null), then bytes      |
    | value     | 10 + key   | 18 + key   | the same                                     |

Source: Kafka 0.10.1 kafka.message.Message, ByteBufferMessageSet, MessageAndMetadata; today's
LegacyRecord and AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, Literal, NamedTuple, Protocol

from kseg._core import crc32
from kseg.constants import (
    INT64_MAX,
    INT64_MIN,
    LOG_OVERHEAD,
    MESSAGE_BYTES_MIN,
    NO_TIMESTAMP,
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
    UnsupportedFormatError,
)
from kseg.format.codec import decompress, flat
from kseg.format.compress import compress
from kseg.format.header import CODEC_MASK, LOG_APPEND, wrap_int64
from kseg.format.request import INFLATED_BYTES_MAX

#: Positions are numbers of 32 bits, the 12 bytes of offset and size count too.
MESSAGE_BYTES_MAX = 2**31 - 1 - LOG_OVERHEAD
_CRC_AT, _MAGIC_AT, _ATTRIBUTES_AT, _TIMESTAMP_AT = 0, 4, 5, 6
#: Where the length of the key lies.
_KEY_AT = (6, 14)
_U32, _I8, _U8, _I32, _I64 = Struct(">I"), Struct(">b"), Struct(">B"), Struct(">i"), Struct(">q")
_ENTRY = Struct(">qi")
_HEAD_0, _HEAD_1 = Struct(">bB"), Struct(">bBq")


class Borrowed:
    """An object over bytes that it borrows.

    Two of a class are equal, and have the same hash, if their bytes are equal. The other
    attributes of a subclass are keywords of its `__init__`.
    """

    __slots__ = ("data",)

    def __init__(self, data: Buffer = b"") -> None:
        """Borrow the bytes, which are C-contiguous; nothing is read yet."""
        self.data = flat(data)

    def __eq__(self, other: object) -> bool:
        """Whether the bytes are the same, at any position."""
        return self.data == other.data if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        """Of the bytes, which must not change meanwhile."""
        return hash(bytes(self.data))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with a copy of the bytes."""
        others = {name: getattr(self, name) for name in self.__slots__ if name != "data"}
        return partial(type(self), **others), (bytes(self.data),)


class BorrowedSet(Borrowed):
    """Messages one behind the other, over bytes that it borrows."""

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        """All bytes, with those of a cut last message."""
        return len(self.data)

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


class Message(Borrowed):
    """A message of magic 0 or 1 over bytes that it borrows.

    No field is read before it is asked for, so a message over damaged bytes can be made and asked
    whether it `is_valid`. Two are equal, and hash alike, if their bytes are equal.

    Attributes:
        data: the bytes, checksum first; neither copied nor changed.
        wrapper_timestamp: of the compressed message it lay in; None outside of one.
        wrapper_timestamp_type: the kind of timestamp that one has; None outside of one.

    Example:
        >>> message = Message.build(b"out", key=b"42", timestamp=1_700_000_000_000)
        >>> message.magic, message.key, message.size, message.is_valid
        (1, b'42', 27, True)
        >>> message.to_format_version(0).timestamp
        -1
    """

    __slots__ = ("wrapper_timestamp", "wrapper_timestamp_type")

    def __init__(
        self,
        data: Buffer,
        *,
        wrapper_timestamp: int | None = None,
        wrapper_timestamp_type: TimestampType | None = None,
    ) -> None:
        """Borrow a message; nothing is checked yet.

        Args:
            data: all of the message and nothing else, C-contiguous; kept as long as this object.
            wrapper_timestamp: of the compressed message around it, ms; None without one.
            wrapper_timestamp_type: likewise; a LogAppendTime there is that of all messages in it.
        """
        super().__init__(data)
        self.wrapper_timestamp = wrapper_timestamp
        self.wrapper_timestamp_type = wrapper_timestamp_type

    @classmethod
    def build(
        cls,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        timestamp: int = NO_TIMESTAMP,
        timestamp_type: TimestampType | None = None,
        magic: int = 1,
        compression: Codec = Compression.NONE,
    ) -> Message:
        """Make a message out of its fields.

        Args:
            value: the payload; None for null. With a codec, the compressed set.
            key: None for null.
            timestamp: in ms, -1 for none; magic 0 cannot keep it.
            timestamp_type: create time if None; magic 0 cannot store it.
            magic: 0 or 1.
            compression: for the attributes; `wrapping` compresses too.

        Raises:
            ValueError: another magic, magic 1 without a type of timestamp, or zstd.
            InvalidRecordError: a timestamp below -1, or more bytes than a size can tell.

        Source: Kafka LegacyRecord.write.
        """
        compression = codec_of(compression)
        if magic not in (0, 1):
            raise ValueError(f"a message has magic 0 or 1, not {magic}")
        if compression == Compression.ZSTD:
            raise ValueError(f"magic {magic} has no zstd compression")
        if magic and timestamp_type == TimestampType.NO_TIMESTAMP_TYPE:
            raise ValueError("magic 1 has timestamps, so their type must be given")
        if timestamp < NO_TIMESTAMP:
            raise InvalidRecordError(f"timestamp {timestamp}must be -1 (none) or more")
        kind = LOG_APPEND if magic and timestamp_type == TimestampType.LOG_APPEND_TIME else 0
        parts: list[Buffer] = [_head(magic, compression | kind, timestamp)]
        for field in (key, value):
            view = flat(b"" if field is None else field)
            length = -1 if field is None else len(view)
            if length > MESSAGE_BYTES_MAX:
                raise InvalidRecordError(f"{length} bytes, {MESSAGE_BYTES_MAX} at most")
            parts += [_I32.pack(length), view]
        return cls(_sealed(parts))

    @classmethod
    def wrapping(
        cls,
        messages: Iterable[Message],
        compression: Codec,
        *,
        offsets: Sequence[int] | None = None,
        timestamp: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        level: int | None = None,
    ) -> Message:
        """Make one compressed message that holds others; all of them or none.

        Args:
            messages: at least one, none compressed, all of one magic, which the wrapper gets too.
            compression: the codec.
            offsets: absolute, one a message; 0, 1, 2 and so on if None. The entry around the
                wrapper has to get the last one.
            timestamp: of the wrapper; the largest of the messages if None. Magic 0 has none.
            timestamp_type: the new kind of every timestamp inside.
            level: the codec's; None for Kafka's default.

        Raises:
            ValueError: no message, no codec or a level it does not have, offsets that do not fit.
            InvalidRecordError: a message of another magic than the first, or one with a codec.

        Source: Kafka 0.10.1 ByteBufferMessageSet.create, MessageWriter.
        """
        given, compression = list(messages), codec_of(compression)
        if not given:
            raise ValueError("a compressed message holds at least one message")
        if compression == Compression.NONE:
            raise ValueError("a compressed message needs a codec")
        magic, largest = check_wrappable(given)
        stored = range(len(given)) if offsets is None else offsets
        if len(stored) != len(given):
            raise ValueError(f"{len(stored)} offsets for {len(given)} messages")
        # Magic 0 keeps absolute offsets inside, magic 1 relative ones.
        first = stored[0] if magic else 0
        inner = [
            part
            for message, offset in zip(given, stored, strict=True)
            for part in (_entry_head(_relative(offset, first), message.size), message.data)
        ]
        value = compress(compression, b"".join(inner), magic=magic, level=level)
        return cls.build(
            value,
            timestamp=largest if timestamp is None else timestamp,
            timestamp_type=timestamp_type,
            magic=magic,
            compression=compression,
        )

    @property
    def size(self) -> int:
        """Bytes of the message, without the 12 of offset and size around it."""
        return len(self.data)

    @property
    def crc(self) -> int:
        """The checksum stored, unsigned."""
        return self._number(_U32, _CRC_AT)

    @property
    def computed_crc(self) -> int:
        """The checksum that the bytes ought to have."""
        return crc32(self.data[_MAGIC_AT:])

    @property
    def magic(self) -> int:
        """0 or 1; any other value is read like 1, as Kafka does, until a check refuses it."""
        return self._number(_I8, _MAGIC_AT)

    @property
    def attributes(self) -> int:
        """All eight bits, those without a meaning among them."""
        return self._number(_U8, _ATTRIBUTES_AT)

    @property
    def codec(self) -> int:
        """Codec id, bits 0 to 2 of the attributes."""
        return self.attributes & CODEC_MASK

    @property
    def compression(self) -> Compression:
        """The codec; UnsupportedFormatError for an id that no release ever used."""
        codec = self.codec
        if codec > Compression.ZSTD:
            raise UnsupportedFormatError(f"no codec has the number {codec}")
        return Compression(codec)

    @property
    def timestamp(self) -> int:
        """In ms; -1 for magic 0. The wrapper's, where that has log-append time."""
        if self.magic == 0:
            return NO_TIMESTAMP
        if (
            self.wrapper_timestamp is not None
            and self.wrapper_timestamp_type == TimestampType.LOG_APPEND_TIME
        ):
            return self.wrapper_timestamp
        return self._number(_I64, _TIMESTAMP_AT)

    @property
    def timestamp_type(self) -> TimestampType:
        """The meaning of the timestamp: the wrapper decides, else bit 3; none for magic 0."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self.wrapper_timestamp_type is not None:
            return self.wrapper_timestamp_type
        return TimestampType(bool(self.attributes & LOG_APPEND))

    @property
    def key_size(self) -> int:
        """Bytes of the key; -1 for null."""
        start, end = self._key()
        return end - start

    @property
    def value_size(self) -> int:
        """Bytes of the value; -1 for null."""
        start, end = self._value()
        return end - start

    @property
    def has_key(self) -> bool:
        """Whether there is a key; an empty one is one."""
        return self.key_size >= 0

    @property
    def is_null(self) -> bool:
        """Whether the value is null."""
        return self.value_size < 0

    @property
    def key(self) -> bytes | None:
        """A copy of the key; None for null."""
        view = self.view_key()
        return None if view is None else bytes(view)

    @property
    def value(self) -> bytes | None:
        """A copy of the value; None for null."""
        view = self.view_value()
        return None if view is None else bytes(view)

    def view_key(self) -> memoryview | None:
        """The bytes of the key; None for null. A view of `data`."""
        start, end = self._key()
        return self.data[start:end] if end >= start else None

    def view_value(self) -> memoryview | None:
        """The bytes of the value; None for null. A view of `data`."""
        start, end = self._value()
        return self.data[start:end] if end >= start else None

    @property
    def is_valid(self) -> bool:
        """Whether the message is long enough and matches its checksum."""
        return self.size >= MESSAGE_BYTES_MIN and self.crc == self.computed_crc

    def ensure_valid(self) -> None:
        """Refuse a message that is not valid.

        Raises:
            CorruptRecordError: too few bytes for a message, or its checksum is wrong.

        Source: Kafka LegacyRecord.ensureValid.
        """
        if self.size < MESSAGE_BYTES_MIN:
            raise CorruptRecordError(f"message of {self.size} bytes, {MESSAGE_BYTES_MIN} at least")
        stored, computed = self.crc, self.computed_crc
        if stored != computed:
            raise CorruptRecordError(f"checksum {stored:#010x} stored, {computed:#010x} computed")

    def to_format_version(
        self,
        magic: int,
        *,
        timestamp_type: TimestampType | None = None,
        now_ms: int = NO_TIMESTAMP,
    ) -> Message:
        """The message in another magic: this very object where it has that magic already.

        Key, value and codec stay. Upwards the message grows by 8 bytes for a timestamp: `now_ms`
        with log-append time, else -1. Downwards timestamp and type are lost.

        Args:
            magic: 0 or 1.
            timestamp_type: for a conversion to magic 1, the kind of timestamp; the message's own if
                None.
            now_ms: the log append time.

        Raises:
            ValueError: another magic.
            InvalidRecordError: the message is of neither magic.

        Source: Kafka 0.10.1 Message.toFormatVersion, convertToBuffer.
        """
        if not header_size_difference(self.magic, magic):
            return self
        kind = self.wrapper_timestamp_type if timestamp_type is None else timestamp_type
        if kind is None:  # bit 3 decides, for every magic
            kind = TimestampType(bool(self.attributes & LOG_APPEND))
        log_append = magic == 1 and kind == TimestampType.LOG_APPEND_TIME
        attributes = self.attributes & ~LOG_APPEND | (LOG_APPEND if log_append else 0)
        head = _head(magic, attributes, now_ms if log_append else NO_TIMESTAMP)
        return Message(_sealed([head, _behind_header(self, self.magic)]))

    def with_timestamp(self, timestamp_type: TimestampType, timestamp: int) -> Message:
        """The message with another timestamp: this very object where it has that one already.

        Meaningless attribute bits are cleared, and the checksum is computed again.

        Args:
            timestamp_type: CreateTime or LogAppendTime.
            timestamp: ms; -1 for none.

        Raises:
            UnsupportedFormatError: magic 0 has no timestamp.
            ValueError: no type of timestamp.

        Source: Kafka AbstractLegacyRecordBatch.ByteBufferLegacyRecordBatch.setMaxTimestamp.
        """
        if self.magic == 0:
            raise UnsupportedFormatError("magic 0 has no timestamp to set")
        if self.timestamp_type == timestamp_type and self.timestamp == timestamp:
            return self
        if timestamp_type == TimestampType.NO_TIMESTAMP_TYPE:
            raise ValueError("magic 1 has timestamps, so their type must be given")
        attributes = self.codec | (LOG_APPEND if timestamp_type else 0)
        return patched(self, attributes=attributes, timestamp=timestamp)

    def __repr__(self) -> str:
        """Magic and size."""
        magic = self.magic if self.size > _MAGIC_AT else "none"
        return f"Message(magic={magic}, size={self.size})"

    def _number(self, layout: Struct, at: int) -> int:
        if len(self.data) - at < layout.size:
            raise InvalidRecordError(f"the message ends at byte {len(self.data)}, in its header")
        number: int = layout.unpack_from(self.data, at)[0]
        return number

    def _key(self) -> tuple[int, int]:
        return self._sized("key", _KEY_AT[self.magic != 0])

    def _value(self) -> tuple[int, int]:
        start, end = self._key()
        return self._sized("value", max(start, end))

    def _sized(self, name: str, at: int) -> tuple[int, int]:
        """Start and end of a field whose length lies at `at`; null ends one before it starts."""
        start = at + _I32.size
        left = len(self.data) - start
        if left < 0:
            raise InvalidRecordError(f"the message ends before the length of its {name}")
        length: int = _I32.unpack_from(self.data, at)[0]
        if length > left:
            raise InvalidRecordError(f"{name} of {length} bytes in a message with {left} left")
        return start, start + max(length, -1)


def header_size_difference(magic: int, to_magic: int) -> int:
    """Bytes by which a message grows from one magic to another: 8, -8 or 0.

    Raises:
        ValueError: `to_magic` is neither 0 nor 1.
        InvalidRecordError: `magic`, which comes from the message, is neither.
    """
    if to_magic not in (0, 1):
        raise ValueError(f"a message has magic 0 or 1, not {to_magic}")
    if magic not in (0, 1):
        raise InvalidRecordError(f"message of magic {magic}, 0 or 1 expected")
    return _KEY_AT[to_magic] - _KEY_AT[magic]


def patched(message: Message, *, attributes: int, timestamp: int) -> Message:
    """A copy of a magic 1 message with these two fields and a checksum that fits them."""
    return Message(_sealed([_head(1, attributes, timestamp), _behind_header(message, 1)]))


def _head(magic: int, attributes: int, timestamp: int) -> bytes:
    """The fields between checksum and key."""
    if magic == 0:
        return _HEAD_0.pack(magic, attributes)
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise InvalidRecordError(f"timestamp {timestamp} does not fit 64 bits")
    return _HEAD_1.pack(magic, attributes, timestamp)


def _behind_header(message: Message, magic: int) -> memoryview:
    """Key and value with their lengths, and the bytes behind them."""
    if message.size < MESSAGE_BYTES_MIN:
        raise InvalidRecordError(f"the message ends at byte {message.size}, in its header")
    return message.data[_KEY_AT[magic] :]


def entry(message: Message, offset: int) -> bytes:
    """The message as it lies in a set: offset, size, message; ValueError beyond 64 bits."""
    return _entry_head(offset, message.size) + message.data


def _entry_head(offset: int, size: int) -> bytes:
    return _ENTRY.pack(_fitting(offset), size)


def _relative(offset: int, first: int) -> int:
    """An offset counted from another one, in 64 bits as Java counts."""
    return wrap_int64(_fitting(offset) - first)


def _fitting(offset: int) -> int:
    if not INT64_MIN <= offset <= INT64_MAX:
        raise ValueError(f"offset {offset} does not fit 64 bits")
    return offset


def _sealed(parts: list[Buffer]) -> bytes:
    """A message's bytes from its magic on, with the checksum in front."""
    size = _U32.size + sum(map(len, parts))
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRecordError(f"message of {size} bytes, {MESSAGE_BYTES_MAX} at most")
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    return b"".join([_U32.pack(crc), *parts])


class MagicAndTimestamp(NamedTuple):
    """The magic that messages share, and their largest timestamp in ms; -1 for none."""

    magic: int
    largest_timestamp: int


def magic_and_largest_timestamp(messages: Sequence[Message]) -> MagicAndTimestamp:
    """The magic and the timestamp of a wrapper around these messages.

    Raises:
        ValueError: there is no message.
        InvalidRecordError: a message's magic is not the first one's.

    Source: Kafka 0.10.1 MessageSet.magicAndLargestTimestamp.
    """
    if not messages:
        raise ValueError("no message, so no magic")
    magic, largest = messages[0].magic, NO_TIMESTAMP
    for index, message in enumerate(messages):
        if message.magic != magic:
            reason = f"message of magic {message.magic} among those of magic {magic}"
            raise InvalidRecordError(reason, record_index=index)
        largest = max(largest, message.timestamp)
    return MagicAndTimestamp(magic, largest)


def check_wrappable(messages: Sequence[Message]) -> MagicAndTimestamp:
    """Refuse messages that no compressed message can hold; else describe the wrapper.

    Raises:
        ValueError: there is no message.
        InvalidRecordError: mixed magics, a magic that is neither 0 nor 1, or one with a codec.
    """
    found = magic_and_largest_timestamp(messages)
    header_size_difference(found.magic, 0)
    for index, message in enumerate(messages):
        if message.codec:
            reason = "a compressed message inside a compressed message"
            raise InvalidRecordError(reason, record_index=index)
    return found


_ENTRY_MAGIC_AT = LOG_OVERHEAD + 4


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
        offsets: OffsetAssigner = 0,
        compression: Codec = Compression.NONE,
        level: int | None = None,
        timestamp: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    ) -> MessageSet:
        """Make a set: an entry for each message, or with a codec one wrapper around all.

        Args:
            messages: in order; none give a set without bytes.
            offsets: one for each message; unused if the messages are refused.
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
        """Whether every entry has this magic; the contents of compressed entries are not checked.

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

    def __repr__(self) -> str:
        """The size."""
        return f"MessageSet(size_bytes={self.size_bytes})"


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
        if limits.ensure_matching_magic and inner[position + _ENTRY_MAGIC_AT] != magic:
            reason = f"message of magic {inner[position + _ENTRY_MAGIC_AT]} in one of magic {magic}"
            raise InvalidRecordError(reason, record_index=index)
        last = offset
    return last


def _shift(magic: int, wrapper_offset: int, last: int, limits: _Limits) -> int:
    """The number to add to inner offsets; the wrapper's magic decides, not theirs."""
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


Decoder = Callable[[bytes], Any]


def decode_raw(data: bytes) -> bytes:
    """The bytes as they are."""
    return data


def decode_utf8(data: bytes) -> str:
    """Text; invalid UTF-8 becomes U+FFFD, as with Kafka's StringDecoder."""
    return data.decode("utf-8", errors="replace")


def decode_json(data: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        InvalidRecordError: it is null.
        LimitExceededError: it is nested deeper than the parser goes.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise LimitExceededError("JSON nested too deep") from error
    except ValueError as error:
        raise InvalidRecordError(f"not JSON: {error}") from error


#: Decoders by name.
DECODERS: dict[str, Decoder] = {"raw": decode_raw, "utf-8": decode_utf8, "json": decode_json}


@dataclass(frozen=True, slots=True)
class MessageAndMetadata:
    """A message with its topic, partition and offset, and the decoders for its key and value.

    Attributes:
        topic, partition, offset: where the message comes from.
        message: as it lies in the log.
        key_decoder, value_decoder: called with the bytes of a key or value; not called for null.

    Example:
        >>> from kseg.format.message import Message
        >>> message = Message.build(b'{"total": 9}', key=b"42")
        >>> MessageAndMetadata("orders", 0, message, 7, decode_utf8, decode_json).value()
        {'total': 9}

    Source: Kafka 0.10 kafka.message.MessageAndMetadata.
    """

    topic: str
    partition: int
    message: Message
    offset: int
    key_decoder: Decoder = decode_raw
    value_decoder: Decoder = decode_raw

    @property
    def timestamp(self) -> int:
        """In ms; -1 for none."""
        return self.message.timestamp

    @property
    def timestamp_type(self) -> TimestampType:
        """The meaning of the timestamp."""
        return self.message.timestamp_type

    def key(self) -> Any:
        """The key, decoded; None for null, which no decoder sees."""
        data = self.message.key
        return None if data is None else self.key_decoder(data)

    def value(self) -> Any:
        """The value, decoded; None for null, which no decoder sees."""
        data = self.message.value
        return None if data is None else self.value_decoder(data)
