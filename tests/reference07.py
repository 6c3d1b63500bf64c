"""Reading Kafka 0.7's message sets in plain Python; see `tests/reference.py`.

message  length i32 [0] magic i8 [4] (magic 1: attributes i8 [5]) crc u32 payload;
         crc is CRC-32 of the payload
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import unpack_from

from tests.reference_codecs import RefusedError, crc32, inflate


@dataclass(frozen=True, slots=True)
class Message07:
    """A message; `offset` and `end_offset` are where its outermost message starts and ends.

    `magic` and `codec` are the outermost message's too.
    """

    offset: int
    end_offset: int
    magic: int
    codec: int
    payload: bytes


def messages07(data: bytes, offset: int = 0, *, deep: bool = True) -> Iterator[Message07]:
    """Messages of a set that starts at physical `offset`; sets within sets unpacked if `deep`."""
    position = 0
    while len(data) - position >= 4:
        (length,) = unpack_from(">i", data, position)
        left = len(data) - position - 4
        if length < 0 or (length > left and position == 0):
            raise RefusedError("corrupt", f"message of {length} bytes, {left} left")
        if length > left:
            return
        entry = data[position + 4 : position + 4 + length]
        message = _parse(entry, offset + position, offset + position + 4 + length)
        if message.codec and deep:
            for inner in messages07(inflate(message.codec, message.payload, magic=2)):
                yield replace(message, payload=inner.payload)
        else:
            yield message
        position += 4 + length


def next_offsets(messages: list[Message07]) -> list[int]:
    """What 0.7's own iterator gives with each message: where a consumer goes on reading.

    Inside a compressed set every message but the last points back to the set's start.
    """
    followers = [*messages, None][1:]
    return [
        message.offset if after and after.offset == message.offset else message.end_offset
        for message, after in zip(messages, followers, strict=True)
    ]


def _parse(entry: bytes, offset: int, end_offset: int) -> Message07:
    if not entry or entry[0] > 1:
        raise RefusedError("unsupported", "magic of a 0.7 message")
    head = 5 + entry[0]
    if len(entry) < head:
        raise RefusedError("corrupt", f"message of {len(entry)} bytes")
    codec = entry[1] & 3 if entry[0] else 0
    if codec == 3:
        raise RefusedError("unsupported", "codec 3 in a 0.7 message")
    payload = entry[head:]
    if crc32(payload) != unpack_from(">I", entry, head - 4)[0]:
        raise RefusedError("corrupt", "crc of a 0.7 message")
    return Message07(offset, end_offset, entry[0], codec, payload)
