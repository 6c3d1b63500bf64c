"""Batches of every magic and codec, spoilt with the knowledge of how they are laid out.

A `Shape` is a sound batch taken apart into its numbers and bytes, made once. `spoil` changes some
of these, puts the batch together again, and mostly makes its size and checksum right, so that what
lies behind those is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from struct import pack
from typing import NamedTuple

from tests import builders
from tests.builders import GZIP, LZ4, NONE, SNAPPY
from tests.fuzz import frames
from tests.fuzz.mutate import blind, number, packed, seal, varint

#: A number is written as a varint (magic 2) or in four bytes (magic 0 and 1), bytes as they are.
Part = int | bytes
Parts = list[Part]

CODECS = {0: (NONE, GZIP, SNAPPY, LZ4), 1: (NONE, GZIP, SNAPPY, LZ4), 2: (*range(5),)}
_HEADER = 61
_COUNT = slice(57, 61)
_SIZES = (0, 1, 5, 31, 33, 62, 63, 64, 65, 127, 128, 129)
_TIMES = (0, 5, -1, 1_700_000_000_000, 2**62, -(2**40))
#: Position and size of header fields that a walk does not need.
_FIELDS_2 = (
    *((0, 8), (12, 4), (17, 4), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4)),
    *((57, 4), (57, 4)),
)
_FIELDS_1 = ((0, 8), (12, 4), (18, 8))


class Spoilt(NamedTuple):
    """One batch or one entry of an older format."""

    data: bytes
    #: What it was made from, as "magic 2, codec 1".
    kind: str


# ---- shapes --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Shape:
    """A sound batch taken apart.

    Attributes:
        magic, codec: of the batch.
        head: its 61 bytes of header; of older formats, the offset and attributes of the wrapper.
        records: each record, or message, as its parts behind length or checksum.
        written: the same, put together.
    """

    magic: int
    codec: int
    head: bytes
    records: list[Parts]
    written: list[bytes]

    @property
    def kind(self) -> str:
        """As figures name it."""
        return f"magic {self.magic}, codec {self.codec}"


def _some(source: Random, most: int) -> bytes | None:
    size = source.choice((None, *_SIZES, most))
    return None if size is None else source.randbytes(1) * size


def _sized(data: bytes | None) -> Parts:
    return [-1] if data is None else [len(data), data]


def _parts_2(source: Random, delta: int) -> Parts:
    headers: Parts = []
    count = source.choice((0, 0, 0, 1, 2, 5))
    for _ in range(count):
        name = source.choice((b"", b"h", b"n" * 70))
        headers += [*_sized(name), *_sized(source.choice((None, b"", b"1", b"v" * 66)))]
    times = delta * source.choice((0, 1, 1, -1, 1000))
    key, value = _some(source, 200), _some(source, 1500)
    return [b"\0", times, delta, *_sized(key), *_sized(value), count, *headers]


def _parts_1(source: Random, magic: int) -> Parts:
    time = packed(source.choice(_TIMES), 8) * (magic == 1)
    return [time, *_sized(_some(source, 200)), *_sized(_some(source, 1500))]


def _record(parts: Sequence[Part]) -> bytes:
    """A record of magic 2 behind its length."""
    return b"".join([varint(part) if isinstance(part, int) else part for part in parts])


def _message(parts: Sequence[Part]) -> bytes:
    """A message of magic 0 or 1 behind its attributes."""
    return b"".join([packed(part, 4) if isinstance(part, int) else part for part in parts])


def _with_length(record: bytes) -> bytes:
    return varint(len(record)) + record


def _entry(offset: int, magic: int, attributes: int, rest: bytes) -> bytes:
    """One entry of an older format, sound as far as `rest` is."""
    made = bytearray(pack(">qiIbB", offset, 0, 0, magic, attributes & 0xFF) + rest)
    seal(made)
    return bytes(made)


def _counts(source: Random) -> int:
    return source.choice((1, 1, 1, 2, 2, 3, 5, 9, 20))


def _shape_2(source: Random, codec: int) -> Shape:
    count = _counts(source) * (source.random() > 0.02)
    gap = source.choice((1, 1, 1, 3, 100))
    head = builders.batch(
        base_offset=source.choice((0, 7, 100, 2**31, 2**63 - 1, -1)),
        base_timestamp=source.choice(_TIMES),
        max_timestamp=source.choice(_TIMES),
        last_offset_delta=max(0, count * gap - 1),
        codec=codec,
        count=count,
        log_append=source.random() < 0.2,
        control=source.random() < 0.1,
        transactional=source.random() < 0.1,
        delete_horizon=source.random() < 0.05,
        producer_id=source.choice((-1, 5)),
        base_sequence=source.choice((-1, 0, 2**31 - 1)),
    )
    records = [_parts_2(source, index * gap) for index in range(count)]
    written = [_with_length(_record(parts)) for parts in records]
    return Shape(2, codec, head[:_HEADER], records, written)


def _shape_1(source: Random, magic: int, codec: int) -> Shape:
    count = _counts(source) if codec else 1
    offset = source.choice((0, 7, 100, 2**31, 2**63 - 1))
    head = pack(">qB", offset, codec | source.choice((0, 0, 8)))
    records = [_parts_1(source, magic) for _ in range(count)]
    first = offset - count + 1 if magic == 0 else 0
    written = [
        _entry(first + index, magic, 0, _message(parts)) for index, parts in enumerate(records)
    ]
    return Shape(magic, codec, head, records, written)


def shapes(source: Random, each: int = 12) -> list[Shape]:
    """So many of each magic and codec; magic 2 has half of all."""
    made = []
    for magic, codecs in CODECS.items():
        for codec in codecs:
            for _ in range(each * 2 if magic == 2 else each):
                legacy = magic < 2
                made.append(_shape_1(source, magic, codec) if legacy else _shape_2(source, codec))
    return made


# ---- spoiling ------------------------------------------------------------------------------------


def _lie(value: int, left: int, source: Random) -> int:
    """A number in place of a true one, where `left` bytes follow."""
    near = (value + 1, value - 1, -1, -2, 0, left, left + 1, left - 1, -value)
    return source.choice(near) if source.random() < 0.7 else number(source)


def _spoil_parts(parts: Parts, source: Random) -> Parts:
    """One part changed, dropped, doubled or exchanged with the next."""
    changed = list(parts)
    at = source.randrange(len(parts))
    part = parts[at]
    match source.randrange(10):
        case 0:
            del changed[at]
        case 1:
            changed.insert(at, part)
        case 2 if at + 1 < len(parts):
            changed[at : at + 2] = parts[at + 1], part
        case 3:
            changed += source.choice(([b"\0"], [0, 0], parts, [source.randbytes(9)]))
        case 4 | 5 if isinstance(part, int):
            changed[at] = varint(part, source)
        case _ if isinstance(part, int):
            left = sum(len(each) for each in parts[at + 1 :] if isinstance(each, bytes))
            changed[at] = _lie(part, left, source)
        case _:
            assert isinstance(part, bytes)
            changed[at] = blind(part, source, [part or b"\0"])[:3000]
    return changed


def _spoil_record(parts: Parts, source: Random) -> bytes:
    record = _record(_spoil_parts(parts, source) if source.random() < 0.85 else parts)
    if source.random() < 0.85:
        return _with_length(record)
    return varint(_lie(len(record), len(record), source), source) + record


def _spoil_entry(shape: Shape, at: int, source: Random) -> bytes:
    """A message inside a wrapper, with lies about magic, attributes and checksum."""
    parts = shape.records[at]
    rest = _message(_spoil_parts(parts, source) if source.random() < 0.7 else parts)
    magic = shape.magic if source.random() < 0.95 else source.choice((0, 1, 2))
    attributes = source.choice((0,) * 9 + (8, 1, 2, 3, 4, 7, 0x10))
    if attributes & 7 and source.random() < 0.7:  # a wrapper in a wrapper
        inner = frames.sound(attributes & 7, b"".join(shape.written), shape.magic)
        rest = _message([bytes(8) * (magic == 1), -1, *_sized(inner)])
    offset = source.choice((at, at, at, number(source) % 2**63))
    entry = bytearray(_entry(offset, magic, attributes, rest))
    if source.random() < 0.2:
        place, size = source.choice(((0, 8), (8, 4), (12, 4), (16, 1)))
        entry[place : place + size] = packed(number(source), size)
    return bytes(entry)


def _spoil_body(shape: Shape, source: Random) -> tuple[bytes, int]:
    """Records or messages, some of them spoilt, and how many there should be."""
    written = list(shape.written)
    if not written:
        return source.choice((b"", b"\0", b"\x0e" + bytes(7))), 0
    at = source.randrange(len(written))
    match source.randrange(12):
        case 0:
            del written[at]
        case 1:
            written.insert(at, written[source.randrange(len(written))])
        case 2:
            written.append(source.choice((b"\0", bytes(7), source.randbytes(12))))
        case 3:
            written[-1] = written[-1][: -source.choice((1, 2, 5))]
        case 4:
            return blind(b"".join(written), source, written)[:8000], len(written)
        case _ if shape.magic == 2:
            written[at] = _spoil_record(shape.records[at], source)
        case _:
            written[at] = _spoil_entry(shape, at, source)
    return b"".join(written), len(written)


def _packed_body(shape: Shape, body: bytes, source: Random) -> bytes:
    if not shape.codec:
        return body
    if source.random() < 0.5:
        return frames.sound(shape.codec, body, shape.magic)
    return frames.spoilt(shape.codec, body, source)


def _spoil_field(batch: bytearray, fields: Sequence[tuple[int, int]], source: Random) -> None:
    place, size = source.choice(fields)
    true = int.from_bytes(batch[place : place + size], "big", signed=True)
    batch[place : place + size] = packed(_lie(true, len(batch) - _HEADER, source), size)


def _spoil_attributes(batch: bytearray, at: int, source: Random) -> None:
    bit = source.choice((0, 1, 2, 3, 3, 3, 4, 5, 6, 7))
    batch[at] ^= 1 << bit


def _spoil_2(shape: Shape, other: Shape, source: Random) -> bytearray:
    """A batch of magic 2 with body, frame or header spoilt; perhaps with another's body too."""
    batch = bytearray(shape.head)
    body, count = b"".join(shape.written), len(shape.written)
    if source.random() < 0.6:
        body, count = _spoil_body(shape, source)
        if source.random() < 0.7:
            batch[_COUNT] = packed(count, 4)
    elif source.random() < 0.1:
        body += b"".join(other.written)
        batch[_COUNT] = packed(count + source.choice((0, len(other.written))), 4)
    batch += _packed_body(shape, body, source)
    if source.random() < 0.25:
        _spoil_field(batch, _FIELDS_2, source)
    if source.random() < 0.1:
        _spoil_attributes(batch, 22, source)
    return batch


def _spoil_1(shape: Shape, source: Random) -> bytearray:
    """An entry of magic 0 or 1, plain or a wrapper, spoilt inside or outside."""
    offset, attributes = int.from_bytes(shape.head[:8], "big"), shape.head[8]
    if shape.codec:
        body = b"".join(shape.written)
        if source.random() < 0.6:
            body, _ = _spoil_body(shape, source)
        time = shape.records[0][0]
        parts: Parts = [time, -1, *_sized(_packed_body(shape, body, source))]
    else:
        parts = shape.records[0]
    if source.random() < (0.15 if shape.codec else 0.7):
        parts = _spoil_parts(parts, source)
    batch = bytearray(_entry(offset, shape.magic, attributes, _message(parts)))
    if source.random() < 0.2:
        _spoil_field(batch, _FIELDS_1[: 2 + shape.magic], source)
    if source.random() < 0.15:
        _spoil_attributes(batch, 17, source)
    return batch


def _seal(batch: bytearray, source: Random) -> None:
    """The size made right, and mostly the checksum."""
    at = 17 if batch[16] >= 2 else 12
    before = bytes(batch[at : at + 4])
    seal(batch)
    if source.random() < 0.06:
        batch[at : at + 4] = before


def spoil(kept: Sequence[Shape], source: Random) -> Spoilt:
    """One batch with right size, that a walk over others goes past."""
    shape = source.choice(kept)
    batch = (
        _spoil_1(shape, source) if shape.magic < 2 else _spoil_2(shape, source.choice(kept), source)
    )
    if source.random() < 0.01:
        batch[16] = source.choice((0, 1, 2))
    if source.random() < 0.03:
        del batch[source.randrange(min(26, len(batch)), len(batch) + 1) :]
    elif source.random() < 0.01:
        batch += source.choice((b"\0", source.randbytes(12), bytes(61)))
    batch += bytes(max(0, 26 - len(batch)))
    _seal(batch, source)
    return Spoilt(bytes(batch), shape.kind)


def break_framing(data: bytes, source: Random) -> bytes:
    """One batch spoilt so that a walk may not go past it, for better or worse."""
    batch = bytearray(data)
    match source.randrange(5):
        case 0 | 1:
            size = int.from_bytes(batch[8:12], "big")
            batch[8:12] = packed(_lie(size, len(batch) - 12, source), 4)
        case 2:
            batch[16] = source.choice((0, 1, 2, 3, 4, 127, 255))
        case 3:
            del batch[source.randrange(len(batch)) :]
        case 4:
            batch[: source.choice((8, 12, 17, 61))] = bytes(17)
    return bytes(batch)
