"""Messages and sets of Kafka 0.7: no offsets, no keys, a checksum of the payload alone.

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

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import ClassVar, NamedTuple

from kseg._core import crc32
from kseg.constants import INT32_MAX, NESTING_MAX, Buffer, Codec, Compression, codec_of
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KsegError,
    LimitExceededError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from kseg.format.codec import decompress, flat
from kseg.format.compress import compress
from kseg.format.request import INFLATED_BYTES_MAX
from kseg.legacy.message import BorrowedMessage, BorrowedSet

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
        """Make one compressed message that holds others, compressed ones if need be.

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
    """The message as it lies in a set: length, message."""
    return _LENGTH.pack(message.size) + message.data


class MessageAndNextOffset(NamedTuple):
    """A message of Kafka 0.7, and where a consumer that has it goes on reading."""

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
        """Take a set; nothing is read yet.

        Args:
            data: messages, each after its length, C-contiguous; kept as long as this object.
            initial_offset: of the first byte; in 0.7 an offset is a position in the log.
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
        """Each message, those in compressed ones in their place, however deep they lie.

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
        for entry in self.shallow():
            try:
                yield from _unwrap(entry, [inflated_max], 0)
            except KsegError as error:
                error.offset = entry.next_offset - entry.message.size - _LENGTH_BYTES
                error.position = error.offset - self.initial_offset
                raise

    def __iter__(self) -> Iterator[MessageAndNextOffset]:
        """Each message, as `deep()` gives it."""
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
        """Of bytes, which must not change meanwhile, and initial offset."""
        return hash((super().__hash__(), self.initial_offset))

    def __repr__(self) -> str:
        """Size and initial offset."""
        return f"MessageSet07(size_bytes={self.size_bytes}, initial_offset={self.initial_offset})"


def _unwrap(
    wrapper: MessageAndNextOffset, left: list[int], depth: int
) -> Iterator[MessageAndNextOffset]:
    """The messages of one, which is itself if it is plain; `left[0]` bytes may still come out."""
    message, after = wrapper
    if message.compression == Compression.NONE:
        yield wrapper
        return
    before = after - message.size - _LENGTH_BYTES
    inner = _inner_messages(message, left, depth + 1)
    # One is read ahead: only the last one points after the set.
    held = next(inner, None)
    while held is not None:
        following = next(inner, None)
        yield MessageAndNextOffset(held.message, after if following is None else before)
        held = following


def _inner_messages(
    message: Message07, left: list[int], depth: int
) -> Iterator[MessageAndNextOffset]:
    """The messages in a compressed one, `depth` deep; takes their bytes off `left[0]`."""
    if depth > NESTING_MAX:
        raise LimitExceededError(f"compressed messages nested deeper than {NESTING_MAX}")
    data = decompress(message.codec, message.view_payload(), magic=0, limit=left[0])
    left[0] -= len(data)
    for entry in MessageSet07(data).shallow():
        yield from _unwrap(entry, left, depth)
