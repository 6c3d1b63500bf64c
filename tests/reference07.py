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
    """`offset` is where the outermost message starts, `next_offset` where to go on reading."""

    offset: int
    next_offset: int
    magic: int
    codec: int
    payload: bytes


def messages07(data: bytes, offset: int = 0, *, deep: bool = True) -> Iterator[Message07]:
    """Messages of a set that starts at physical `offset`, as 0.7's own iterator gives them.

    Inside a compressed set every message but the last points back to the set's start.
    """
    position = 0
    while len(data) - position >= 4:
        (length,) = unpack_from(">i", data, position)
        left = len(data) - position - 4
        if length < 0 or (length > left and position == 0):
            raise RefusedError("corrupt", f"message of {length} bytes, {left} left")
        if length > left:
            return
        start, after = offset + position, offset + position + 4 + length
        magic, codec, payload = _parse07(data[position + 4 : position + 4 + length])
        if codec and deep:
            inner = list(messages07(inflate(codec, payload, magic=2)))
            for message in inner[:-1]:
                yield replace(message, offset=start, next_offset=start)
            if inner:
                yield replace(inner[-1], offset=start, next_offset=after)
        else:
            yield Message07(start, after, magic, codec, payload)
        position += 4 + length


def _parse07(message: bytes) -> tuple[int, int, bytes]:
    """(magic, codec, payload) of a message without its length."""
    if not message or message[0] > 1:
        raise RefusedError("unsupported", "magic of a 0.7 message")
    head = 5 + message[0]
    if len(message) < head:
        raise RefusedError("corrupt", f"message of {len(message)} bytes")
    codec = message[1] & 3 if message[0] else 0
    if codec == 3:
        raise RefusedError("unsupported", "codec 3 in a 0.7 message")
    payload = message[head:]
    if crc32(payload) != unpack_from(">I", message, head - 4)[0]:
        raise RefusedError("corrupt", "crc of a 0.7 message")
    return message[0], codec, payload
