"""Records and bytes by chance, for `tests/interop/cases.py`: sound ones, odd ones, and lies.

Bytes come from `tests/builders.py`, and now and then from the mutators of `tests/fuzz`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests import builders
from tests.builders import Record
from tests.fuzz import mutate

NOW = 1_700_000_000_000
_LONG_BYTES = 70_000

Request = dict[str, Any]


def often(chance: Random, share: float) -> bool:
    """True for that share of the cases."""
    return chance.random() < share


# Records


def _text(chance: Random, sizes: tuple[int, ...]) -> bytes:
    size = chance.choice(sizes)
    if often(chance, 0.5):
        return chance.randbytes(size)
    return (b"%d," % chance.randrange(100) * size)[:size]


def _maybe(chance: Random, sizes: tuple[int, ...]) -> bytes | None:
    return None if often(chance, 0.25) else _text(chance, sizes)


def _headers(chance: Random) -> list[tuple[bytes, bytes | None]]:
    names = (b"", b"a", b"trace", "naïve".encode(), b"a", b"n" * 130)
    count = chance.choice((1, 1, 2, 3, 9))
    return [(chance.choice(names), _maybe(chance, (0, 1, 5, 200))) for _ in range(count)]


def _timestamps(chance: Random, count: int) -> list[int]:
    style = chance.randrange(8)
    if style == 0:
        return [-1] * count
    if style == 1:
        return [NOW + index * 10 for index in range(count)]
    if style == 2:
        return [chance.choice((-1, NOW, 0, 1, NOW + 99)) for _ in range(count)]
    if style == 3:
        odd = (0, 1, 63, 64, 2**31, 2**62, 2**63 - 1, -1)
        return [chance.choice(odd) for _ in range(count)]
    spread = chance.choice((0, 5, 100_000))
    return [NOW + chance.randint(-spread, spread) for _ in range(count)]


def _offsets(chance: Random, count: int, first: int) -> list[int]:
    """Strictly rising, mostly without gaps."""
    offsets, gaps = [first], often(chance, 0.25)
    for _ in range(count - 1):
        step = chance.choice((1, 1, 2, 70, 20_000)) if gaps else 1
        offsets.append(offsets[-1] + step)
    return offsets[:count]


def records(chance: Random, *, magic: int, first: int = 0) -> list[Record]:
    """Records that the format can hold; some cases have none, a few have many."""
    count = chance.choice((1, 1, 2, 3, 3, 4, 5, 8, 20)) if often(chance, 0.97) else 300
    large = often(chance, 0.02)
    with_headers = magic == 2 and often(chance, 0.5)
    sizes = (0, 1, 5, 30, 63, 64, 65, 200)
    made = []
    stamps = _timestamps(chance, count)
    for offset, timestamp in zip(_offsets(chance, count, first), stamps, strict=True):
        headers = _headers(chance) if with_headers and often(chance, 0.6) else []
        value = _maybe(chance, sizes)
        if large and often(chance, 0.3):
            value = _text(chance, (_LONG_BYTES, 33_000, 9_000))
        made.append(Record(value, _maybe(chance, sizes[:7]), headers, timestamp, offset))
    return made


def rows(made: Sequence[Record]) -> list[list[Any]]:
    """Records as the driver reads them."""
    return [
        [one.offset, one.timestamp, one.key, one.value, [list(pair) for pair in one.headers]]
        for one in made
    ]


# Bytes that a broker may be sent, or may hold


def _batch(chance: Random, first: int) -> bytes:
    """One batch of magic 2."""
    codec = chance.choice((0, 0, 1, 2, 3, 4))
    made = records(chance, magic=2, first=first)
    options: dict[str, Any] = {"base_offset": first, "codec": codec}
    if often(chance, 0.35):
        options["producer_id"] = chance.choice((0, 9, 2**40))
        options["producer_epoch"] = chance.choice((0, 3))
        options["base_sequence"] = chance.choice((0, 77, 2**31 - 2, -1))
        options["transactional"] = often(chance, 0.5)
    if often(chance, 0.1):
        options["log_append"] = True
        options["max_timestamp"] = NOW + 3
    if often(chance, 0.1):
        options["max_timestamp"] = chance.choice((-1, 0, NOW + 5))
    if often(chance, 0.08):
        made[0] = replace(made[0], timestamp=max(0, made[0].timestamp))
        options["delete_horizon"], options["base_timestamp"] = True, chance.choice((0, NOW + 9))
    if often(chance, 0.08):
        options["last_offset_delta"] = chance.choice((0, 1, len(made), len(made) + 3, -1))
    if often(chance, 0.05):
        options["attributes"] = chance.choice((0x80, 0x7F80, 0x100))
    if often(chance, 0.05):
        options["count"] = chance.choice((0, -1, len(made) + 1, len(made) - 1))
    if often(chance, 0.1):
        made = [replace(one, width=chance.choice((1, 2, 3))) for one in made]
    options["leader_epoch"] = chance.choice((-1, 0, 5))
    return builders.batch(made, **options)


def _control(chance: Random, first: int) -> bytes:
    if often(chance, 0.2):  # what is left of one after compaction
        return builders.batch(
            base_offset=first,
            control=True,
            transactional=True,
            max_timestamp=NOW,
            last_offset_delta=0,
        )
    kind = chance.choice((builders.ABORT, builders.COMMIT))
    return builders.control_batch(kind, base_offset=first, coordinator_epoch=3)


def entries(chance: Random, magic: int, first: int) -> bytes:
    """Plain messages, or a wrapper; some with offsets that old clients wrote."""
    made = records(chance, magic=magic, first=first)
    codec = chance.choice((0, 0, 1, 2, 3))
    log_append = magic == 1 and often(chance, 0.12)
    if not codec:
        return builders.messages(made, magic=magic, log_append=log_append)
    last = made[-1].offset or 0
    options: dict[str, Any] = {"log_append": log_append}
    if often(chance, 0.3):
        options["offset"] = chance.choice((0, last, last + 3, max(0, last - 1), len(made) - 1))
    if often(chance, 0.2):
        options["timestamp"] = chance.choice((-1, NOW + 11, 0))
    if often(chance, 0.05):
        options["key"] = b"ignored"
    if often(chance, 0.25):
        options["inner"] = _inner(chance, magic, made)
    return builders.wrapper(made, magic=magic, codec=codec, **options)


def _inner(chance: Random, magic: int, made: list[Record]) -> bytes:
    """Inner messages that are not what a modern writer would put there."""
    style = chance.randrange(6)
    shift = 0 if style == 0 else made[0].offset or 0
    inner_magic = 1 - magic if style == 1 else magic
    parts = []
    for index, one in enumerate(made):
        stored = (one.offset or 0) - shift
        odd = style in (2, 3) and often(chance, 0.4)
        parts.append(
            builders.message(
                one,
                magic=inner_magic if not (style == 4 and index) else 1 - magic,
                offset=stored,
                attributes=1 if odd and style == 2 else 0,
                crc=12345 if odd and style == 3 else None,
            )
        )
    data = b"".join(parts)
    if style == 5:
        return data[: len(data) - chance.randrange(len(data))]
    return data


def _piece(chance: Random, magic: int, first: int) -> bytes:
    if magic == 2:
        return _batch(chance, first) if often(chance, 0.93) else _control(chance, first)
    return entries(chance, magic, first)


def written(chance: Random, *, several: float, mixed: float, hostile: float) -> Request:
    """A set under "data": batches of one magic or more, perhaps mutated, which "hostile" tells."""
    magic = chance.choice((0, 1, 2, 2))
    first = chance.choice((0, 0, 0, 7, 2**33))
    parts = [_piece(chance, magic, first)]
    while often(chance, several) and len(parts) < 5:
        first += chance.choice((400, 10**7))
        parts.append(_piece(chance, chance.randrange(3) if often(chance, mixed) else magic, first))
    data = b"".join(parts)
    if often(chance, hostile):
        return {"data": mutate.MUTATORS["log"](data, chance, parts), "hostile": True}
    return {"data": data, "hostile": False}
