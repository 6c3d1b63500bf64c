"""Messages of magic 0 and 1 as objects.

Owns the layout of a message and of the entry around it, its checksum and its conversion;
`kseg.legacy.message_set` owns sets of them. Reads no clock and no file. `kseg.format` reads and
writes in bulk. Layouts: `docs/format.md`.

    | field     | magic 0 at | magic 1 at |                                              |
    |-----------|------------|------------|----------------------------------------------|
    | crc       | 0          | 0          | CRC-32 of everything from the magic on       |
    | magic     | 4          | 4          |                                              |
    | attributes| 5          | 5          | bits 0-2 codec, bit 3 log-append time        |
    | timestamp | -          | 6          |                                              |
    | key       | 6          | 14         | i32 length (negative: null), then bytes      |
    | value     | 10 + key   | 18 + key   | the same                                     |

Source: Kafka 0.10.1 kafka.message.Message, MessageAndMetadata; today's LegacyRecord.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar

from kseg._core import crc32
from kseg.constants import (
    INT32_MAX,
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
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptRecordError, InvalidRecordError, UnsupportedFormatError
from kseg.format.codec import flat
from kseg.format.compress import compress
from kseg.format.header import CODEC_MASK, LOG_APPEND, wrap_int64

#: Positions are numbers of 32 bits, the 12 bytes of offset and size count too.
MESSAGE_BYTES_MAX = INT32_MAX - LOG_OVERHEAD
_MAGIC_AT = 4
#: The positions of the key's length, for magic 0 and 1.
_KEY_AT = (6, 14)
_U32, _I32, ENTRY = Struct(">I"), Struct(">i"), Struct(">qi")
_HEADS = (Struct(">bB"), Struct(">bBq"))


class Borrowed:
    """An object over bytes that it borrows.

    Two objects of a class are equal, and have the same hash, if their bytes are equal. The other
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
        """The hash of the bytes, which must not change meanwhile."""
        return hash(bytes(self.data))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with a copy of the bytes."""
        others = {name: getattr(self, name) for name in self.__slots__ if name != "data"}
        return partial(type(self), **others), (bytes(self.data),)


class BorrowedMessage(Borrowed):
    """A message of any format; a subclass has the fields `attributes`, `crc`, `computed_crc`."""

    __slots__ = ()
    #: Bits of the codec in the attributes, and the last codec.
    _CODECS: ClassVar = (CODEC_MASK, Compression.ZSTD)
    #: Bytes of the shortest message, if its checksum says nothing of it.
    _BYTES_MIN: ClassVar = 0
    if TYPE_CHECKING:
        attributes: Any
        crc: Any
        computed_crc: Any

    @property
    def size(self) -> int:
        """Bytes of the message, without the offset and the size around it."""
        return len(self.data)

    @property
    def codec(self) -> int:
        """Codec id, the lowest bits of the attributes."""
        codec: int = self.attributes & self._CODECS[0]
        return codec

    @property
    def compression(self) -> Compression:
        """The codec; UnsupportedFormatError for an id that no release of the format used."""
        if self.codec > self._CODECS[1]:
            raise UnsupportedFormatError(f"this format knows no codec {self.codec}")
        return Compression(self.codec)

    @property
    def is_valid(self) -> bool:
        """Whether the message is long enough and matches its checksum."""
        return self.size >= self._BYTES_MIN and bool(self.crc == self.computed_crc)

    def ensure_valid(self) -> None:
        """Refuse a message that is not valid.

        Raises:
            CorruptRecordError: too few bytes for a message, or its checksum is wrong.
            UnsupportedFormatError: Kafka 0.7 does not know its magic.

        Source: Kafka LegacyRecord.ensureValid.
        """
        if self.size < self._BYTES_MIN:
            raise CorruptRecordError(f"message of {self.size} bytes, {self._BYTES_MIN} at least")
        stored, computed = self.crc, self.computed_crc
        if stored != computed:
            raise CorruptRecordError(f"checksum {stored:#010x} stored, {computed:#010x} computed")

    def __repr__(self) -> str:
        """Only the size, since any other field may be damaged."""
        return f"{type(self).__name__}(size={self.size})"


class BorrowedSet(Borrowed):
    """Messages one after the other, over bytes that it borrows."""

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        """The size of all bytes, with those of a cut-off last message."""
        return len(self.data)

    def __repr__(self) -> str:
        """The size."""
        return f"{type(self).__name__}(size_bytes={self.size_bytes})"

    def write_to(self, target: Any) -> int:
        """Write the bytes as they stand to a file or a socket.

        Args:
            target: has `send` or `write`, which may take the bytes in parts.

        Returns:
            The number of bytes, which is all of them.

        Raises:
            BlockingIOError: the target takes no more right now; `characters_written` is how many
                it took.
            OSError: as the target raises it, or the target took nothing and raised nothing.
        """
        take = target.send if hasattr(target, "send") else target.write
        written = 0
        while written < len(self.data):
            try:
                count = take(self.data[written:])
            except BlockingIOError as error:
                written, count = written + getattr(error, "characters_written", 0), None
            if count is None:
                raise BlockingIOError(errno.EAGAIN, "the target takes no more right now", written)
            if count <= 0:
                raise OSError(errno.EIO, f"nothing taken after byte {written} of {len(self.data)}")
            written += count
        return written


def _number(code: str, at: int, doc: str) -> Any:
    """A field of a message that is a number; InvalidRecordError if the bytes end before it."""
    layout = Struct(code)

    def read(message: Message) -> Any:
        if message.size - at < layout.size:
            raise InvalidRecordError(f"the message ends at byte {message.size}, in its header")
        return layout.unpack_from(message.data, at)[0]

    return property(read, doc=doc)


def _field(name: str, take: Callable[[memoryview | None], Any], doc: str) -> Any:
    """A field of a message, out of the bytes of its key or value; as `Message.view_key` raises."""
    return property(lambda message: take(message._view(name)), doc=doc)


def _size_of(view: memoryview | None) -> int:
    return -1 if view is None else len(view)


def _copy_of(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


def _is_there(view: memoryview | None) -> bool:
    return view is not None


class Message(BorrowedMessage):
    """A message of magic 0 or 1 over bytes that it borrows.

    No field is read before it is asked for, so a message over damaged bytes can be made, and its
    `is_valid` read. Two are equal, and hash alike, if their bytes are equal.

    Attributes:
        data: the bytes, checksum first; neither copied nor changed.
        wrapper_timestamp: from the compressed message around it; None if there is none.
        wrapper_timestamp_type: the kind of that timestamp; None if there is none.

    Example:
        >>> message = Message.build(b"out", key=b"42", timestamp=1_700_000_000_000)
        >>> message.magic, message.key, message.size, message.is_valid
        (1, b'42', 27, True)
        >>> message.to_format_version(0).timestamp
        -1
    """

    __slots__ = ("wrapper_timestamp", "wrapper_timestamp_type")
    _BYTES_MIN: ClassVar = MESSAGE_BYTES_MIN

    crc = _number(">I", 0, "The checksum stored, unsigned.")
    magic = _number(
        ">b", 4, "0 or 1; any other value is read like 1, as Kafka does, until a check refuses it."
    )
    attributes = _number(">B", 5, "All eight bits, those without a meaning among them.")
    _own_timestamp = _number(">q", 6, "The timestamp stored in a message of magic 1.")
    key = _field("key", _copy_of, "A copy of the key; None for null.")
    key_size = _field("key", _size_of, "Bytes of the key; -1 for null.")
    has_key = _field("key", _is_there, "Whether there is a key; an empty one is one.")
    value = _field("value", _copy_of, "A copy of the value; None for null.")
    value_size = _field("value", _size_of, "Bytes of the value; -1 for null.")
    is_null = _field("value", lambda view: view is None, "Whether the value is null.")

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
            wrapper_timestamp: from the compressed message around it, ms; None if there is none.
            wrapper_timestamp_type: its kind; LogAppendTime applies to all messages inside.
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
            timestamp: in ms, -1 for no time; magic 0 cannot keep it.
            timestamp_type: None for create time; magic 0 cannot store it.
            magic: 0 or 1.
            compression: the codec in the attributes; only `wrapping` compresses.

        Raises:
            ValueError: another magic, magic 1 without a type of timestamp, or zstd.
            InvalidRecordError: a timestamp below -1, or more bytes than a size can tell.

        Source: Kafka LegacyRecord.write.
        """
        compression = codec_of(compression)
        _check_magic(magic)
        if compression == Compression.ZSTD:
            raise ValueError(f"magic {magic} has no zstd compression")
        if magic and timestamp_type == TimestampType.NO_TIMESTAMP_TYPE:
            raise ValueError("magic 1 has timestamps, so their type must be given")
        if timestamp < NO_TIMESTAMP:
            raise InvalidRecordError(f"timestamp {timestamp}must be -1 (none) or more")
        kind = LOG_APPEND if magic and timestamp_type == TimestampType.LOG_APPEND_TIME else 0
        parts: list[Buffer] = []
        for field in (key, value):
            view = flat(b"" if field is None else field)
            if len(view) > MESSAGE_BYTES_MAX:
                raise InvalidRecordError(f"{len(view)} bytes, {MESSAGE_BYTES_MAX} at most")
            parts += [_I32.pack(-1 if field is None else len(view)), view]
        return cls(_with_checksum(magic, compression | kind, timestamp, parts))

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
            timestamp: the wrapper's; None for the largest of the messages. Magic 0 has none.
            timestamp_type: the new kind of every timestamp inside.
            level: the codec's; None for Kafka's default.

        Raises:
            ValueError: no message, no codec or a level it does not have, offsets that do not fit.
            InvalidRecordError: a message of another magic than the first, or one with a codec.

        Source: Kafka 0.10.1 ByteBufferMessageSet.create, MessageWriter.
        """
        listed, compression = list(messages), codec_of(compression)
        if compression == Compression.NONE:
            raise ValueError("a compressed message needs a codec")
        magic, largest = magic_and_time(listed)
        stored = range(len(listed)) if offsets is None else offsets
        if len(stored) != len(listed):
            raise ValueError(f"{len(stored)} offsets for {len(listed)} messages")
        # Magic 0 keeps absolute offsets inside, magic 1 relative ones.
        first = stored[0] if magic else 0
        inner = [
            entry(message, wrap_int64(_fitting(offset) - first))
            for message, offset in zip(listed, stored, strict=True)
        ]
        return cls.build(
            compress(compression, b"".join(inner), magic=magic, level=level),
            timestamp=largest if timestamp is None else timestamp,
            timestamp_type=timestamp_type,
            magic=magic,
            compression=compression,
        )

    @property
    def computed_crc(self) -> int:
        """The checksum that the bytes ought to have."""
        return crc32(self.data[_MAGIC_AT:])

    @property
    def timestamp(self) -> int:
        """In ms; -1 for magic 0. The wrapper's, if that has log-append time."""
        if self.magic == 0:
            return NO_TIMESTAMP
        is_append_time = self.wrapper_timestamp_type == TimestampType.LOG_APPEND_TIME
        if is_append_time and self.wrapper_timestamp is not None:
            return self.wrapper_timestamp
        stored: int = self._own_timestamp
        return stored

    @property
    def timestamp_type(self) -> TimestampType:
        """The meaning of the timestamp: the wrapper decides, else bit 3; magic 0 has none."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return self._kind(self.wrapper_timestamp_type)

    def view_key(self) -> memoryview | None:
        """The bytes of the key; None for null. A view of `data`."""
        return self._view("key")

    def view_value(self) -> memoryview | None:
        """The bytes of the value; None for null. A view of `data`."""
        return self._view("value")

    def to_format_version(
        self,
        magic: int,
        *,
        timestamp_type: TimestampType | None = None,
        now_ms: int = NO_TIMESTAMP,
    ) -> Message:
        """The message in another magic: this very object if it has that magic already.

        Key, value and codec stay. Upwards the message grows by 8 bytes for a timestamp: `now_ms`
        with log-append time, else -1. Downwards timestamp and type are lost.

        Args:
            magic: 0 or 1.
            timestamp_type: for a conversion to magic 1, the kind of timestamp; None for that of
                the message.
            now_ms: the log append time.

        Raises:
            ValueError: another magic.
            InvalidRecordError: the message is of neither magic.

        Source: Kafka 0.10.1 Message.toFormatVersion, convertToBuffer.
        """
        _check_magic(magic)
        _check_stored_magic(self.magic)
        if self.magic == magic:
            return self
        # Without a type bit 3 decides, for every magic.
        kind = self._kind(
            timestamp_type if timestamp_type is not None else self.wrapper_timestamp_type
        )
        log_append = magic == 1 and kind == TimestampType.LOG_APPEND_TIME
        attributes = self.attributes & ~LOG_APPEND | (LOG_APPEND if log_append else 0)
        timestamp = now_ms if log_append else NO_TIMESTAMP
        return Message(_with_checksum(magic, attributes, timestamp, [_after_header(self)]))

    def with_timestamp(self, timestamp_type: TimestampType, timestamp: int) -> Message:
        """The message with another timestamp: this very object if it has that one already.

        Meaningless attribute bits are cleared, and the checksum is computed again.

        Args:
            timestamp_type: CreateTime or LogAppendTime.
            timestamp: in ms; -1 for no time.

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

    def _kind(self, kind: TimestampType | None) -> TimestampType:
        """The given kind of timestamp; if None, the one in bit 3 of the attributes."""
        return TimestampType(bool(self.attributes & LOG_APPEND)) if kind is None else kind

    def _view(self, part: str) -> memoryview | None:
        """The bytes of the key or the value; None for null."""
        at = _KEY_AT[self.magic != 0]
        for name in ("key", "value"):
            start = at + _I32.size
            bytes_left = self.size - start
            if bytes_left < 0:
                raise InvalidRecordError(f"the message ends before the length of its {name}")
            length: int = _I32.unpack_from(self.data, at)[0]
            if length > bytes_left:
                raise InvalidRecordError(
                    f"{name} of {length} bytes in a message with {bytes_left} left"
                )
            at = start + max(length, 0)
            if name == part and length >= 0:
                return self.data[start:at]
            if name == part:
                break
        return None


def _check_magic(magic: int) -> None:
    if magic not in (0, 1):
        raise ValueError(f"a message has magic 0 or 1, not {magic}")


def _check_stored_magic(magic: int) -> None:
    if magic not in (0, 1):
        raise InvalidRecordError(f"message of magic {magic}, 0 or 1 expected")


def patched(message: Message, *, attributes: int, timestamp: int) -> Message:
    """A copy of a magic 1 message with these two fields and a matching checksum."""
    return Message(_with_checksum(1, attributes, timestamp, [_after_header(message)]))


def _after_header(message: Message) -> memoryview:
    """Key and value with their lengths: the bytes after the header."""
    if message.size < MESSAGE_BYTES_MIN:
        raise InvalidRecordError(f"the message ends at byte {message.size}, in its header")
    return message.data[_KEY_AT[message.magic != 0] :]


def _with_checksum(magic: int, attributes: int, timestamp: int, parts: Sequence[Buffer]) -> bytes:
    """Make the bytes of a message, from the checksum on."""
    if magic and not INT64_MIN <= timestamp <= INT64_MAX:
        raise InvalidRecordError(f"timestamp {timestamp} does not fit 64 bits")
    head = _HEADS[magic].pack(*(magic, attributes, timestamp)[: 2 + magic])
    size = _U32.size + len(head) + sum(map(len, parts))
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRecordError(f"message of {size} bytes, {MESSAGE_BYTES_MAX} at most")
    crc = crc32(head)
    for part in parts:
        crc = crc32(part, crc)
    return b"".join([_U32.pack(crc), head, *parts])


def entry(message: Message, offset: int) -> bytes:
    """The message as stored in a set: offset, size, message; ValueError beyond 64 bits."""
    return ENTRY.pack(_fitting(offset), message.size) + message.data


def _fitting(offset: int) -> int:
    if not INT64_MIN <= offset <= INT64_MAX:
        raise ValueError(f"offset {offset} does not fit 64 bits")
    return offset


def magic_and_time(messages: Sequence[Message]) -> tuple[int, int]:
    """The magic and the largest timestamp of messages for one wrapper.

    Raises:
        ValueError: there is no message.
        InvalidRecordError: mixed magics, a magic that is neither 0 nor 1, or one with a codec.

    Source: Kafka 0.10.1 MessageSet.magicAndLargestTimestamp.
    """
    if not messages:
        raise ValueError("a compressed message holds at least one message")
    magic = messages[0].magic
    for index, message in enumerate(messages):
        if message.magic != magic:
            reason = f"message of magic {message.magic} among those of magic {magic}"
            raise InvalidRecordError(reason, record_index=index)
        if message.codec:
            reason = "a compressed message inside a compressed message"
            raise InvalidRecordError(reason, record_index=index)
    _check_stored_magic(magic)
    return magic, max(NO_TIMESTAMP, *(message.timestamp for message in messages))


@frozen_dataclass
class MessageAndMetadata:
    """A message with its topic, partition and offset, and the decoders for its key and value.

    Attributes:
        topic, partition, offset: where the message comes from.
        message: the message as it is in the log.
        key_decoder, value_decoder: called with the bytes of a key or value; not called for null.

    Example:
        >>> import json
        >>> message = Message.build(b'{"total": 9}', key=b"42")
        >>> MessageAndMetadata("orders", 0, message, 7, bytes.decode, json.loads).value()
        {'total': 9}

    Source: Kafka 0.10 kafka.message.MessageAndMetadata.
    """

    topic: str
    partition: int
    message: Message
    offset: int
    key_decoder: Callable[[bytes], Any] = bytes
    value_decoder: Callable[[bytes], Any] = bytes

    @property
    def timestamp(self) -> int:
        """In ms; -1 for no time."""
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
