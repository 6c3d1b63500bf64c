"""Seeded cases that kseg and Kafka are both given: `case("7", 123)` is the same on every machine.

A case is a request to the driver in `tests/interop/java`; kseg's side reads the same request. Bytes
that a case starts from come from `tests/builders.py`, lies included, and now and then from the
mutators of `tests/fuzz`.

    build     records and the arguments of a builder          estimate   sizes of records to come
    validate  bytes and the rules of a topic                  message    one message of magic 0 or 1
    convert   bytes and an older magic                        parse      bytes
    filter    bytes and what of them is to stay
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests import builders
from tests.builders import Record
from tests.fuzz import mutate

NOW = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-5, 19)}
CREATE, APPEND, NO_TYPE = "CreateTime", "LogAppendTime", "NoTimestampType"
WEIGHTS = {
    "build": 6,
    "validate": 9,
    "convert": 3,
    "filter": 3,
    "parse": 3,
    "message": 1,
    "estimate": 1,
}
_LONG_BYTES = 70_000

Request = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One request; its seed and number repeat it."""

    seed: str
    number: int
    request: Request

    @property
    def kind(self) -> str:
        """What is asked."""
        kind: str = self.request["op"]
        return kind


def case(seed: str, number: int) -> Case:
    """The case of a seed with that number."""
    chance, kind = _begin(seed, number)
    return Case(seed, number, {"op": kind, **MAKERS[kind](chance)})


def of_kinds(kinds: Container[str], seed: str, first: int, count: int) -> Iterator[Case]:
    """As many cases of these kinds, the numbers between left out."""
    numbers = (number for number in itertools.count(first) if _begin(seed, number)[1] in kinds)
    return (case(seed, number) for number in itertools.islice(numbers, count))


def _begin(seed: str, number: int) -> tuple[Random, str]:
    chance = Random(f"{seed}:{number}")
    return chance, chance.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]


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


def _codec(chance: Random, magic: int) -> str:
    return chance.choice(CODECS if magic == 2 else CODECS[:4])


def _level(chance: Random, codec: str) -> int | None:
    if codec not in LEVELS or often(chance, 0.7):
        return None
    return chance.randint(*LEVELS[codec])


# Building


def _build(chance: Random) -> Request:
    magic = chance.choice((0, 1, 2, 2, 2))
    first = chance.choice((0, 0, 0, 5, 10**6, 2**40))
    made = records(chance, magic=magic, first=first) if often(chance, 0.97) else []
    codec = _codec(chance, magic)
    base = max(0, first - chance.choice((0, 0, 0, 1, 5)))
    kind = chance.choice((CREATE, CREATE, APPEND)) if magic else chance.choice((CREATE, NO_TYPE))
    request: Request = {
        "magic": magic,
        "codec": codec,
        "level": _level(chance, codec),
        "timestamp_type": kind,
        "base_offset": base,
        "log_append_time": NOW + 7 if kind == APPEND else -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "transactional": False,
        "control": False,
        "leader_epoch": chance.choice((-1, -1, 0, 7, 2**31 - 1)),
        "delete_horizon_ms": -1,
        "records": rows(made),
    }
    if magic == 2 and often(chance, 0.4):
        _add_producer(chance, request)
    if magic == 2 and often(chance, 0.1):
        request["delete_horizon_ms"] = chance.choice((0, 1024, NOW))
    if magic == 2 and made and often(chance, 0.1):
        request["last_offset"] = (made[-1].offset or 0) + chance.choice((0, 1, 1000))
    if magic == 2 and made and often(chance, 0.1):
        producer = (chance.choice((-1, 0, 6)), 3, chance.choice((0, 44, -1)), often(chance, 0.5))
        request["reopened"] = list(producer)
    if often(chance, 0.1):
        request["batch_bytes_max"] = chance.choice((0, 100, 500, 16384))
        request["expected_ratio"] = chance.choice((1.0, 0.5, 0.25, 1.5))
    if often(chance, 0.12):
        request.pop("reopened", None)
        chance.choice(_BUILD_LIES)(chance, request)
    return request


def _add_producer(chance: Random, request: Request) -> None:
    request["producer_id"] = chance.choice((0, 1, 4_000, 2**63 - 1))
    request["producer_epoch"] = chance.choice((0, 1, 32767))
    request["base_sequence"] = chance.choice((0, 1, 99, 2**31 - 1, 2**31 - 3))
    request["transactional"] = often(chance, 0.5)
    if often(chance, 0.2):
        request["control"] = request["transactional"] = True
        request["base_sequence"] = chance.choice((-1, 0))
        request["codec"], request["level"] = "none", None
        marker = chance.choice(("COMMIT", "ABORT"))
        request["markers"] = [[marker, chance.choice((NOW, 0, -1)), chance.choice((0, 347))]]
        request["records"] = []


def _negative_time(chance: Random, request: Request) -> None:
    if request["records"]:
        chance.choice(request["records"])[1] = chance.choice((-2, -(2**63)))


def _same_offset_twice(chance: Random, request: Request) -> None:
    if len(request["records"]) > 1:
        index = chance.randrange(1, len(request["records"]))
        request["records"][index][0] = request["records"][index - 1][0] - chance.randrange(2)


def _far_offset(chance: Random, request: Request) -> None:
    if request["records"]:
        request["records"][-1][0] = request["base_offset"] + 2**31 - chance.randrange(2)
        request.pop("last_offset", None)


def _headers_where_none_may_be(chance: Random, request: Request) -> None:
    if request["records"]:
        chance.choice(request["records"])[4] = [[b"h", b"v"]]


def _half_a_producer(chance: Random, request: Request) -> None:
    name = chance.choice(("producer_id", "producer_epoch", "base_sequence", "transactional"))
    request[name] = {"transactional": True}.get(name, chance.choice((-1, 5)))


def _option_of_another_magic(chance: Random, request: Request) -> None:
    name, value = chance.choice(
        (
            ("transactional", True),
            ("control", True),
            ("delete_horizon_ms", 5),
            ("codec", "zstd"),
            ("timestamp_type", NO_TYPE),
        )
    )
    request[name], request["level"] = value, None


_BUILD_LIES = (
    _negative_time,
    _same_offset_twice,
    _far_offset,
    _headers_where_none_may_be,
    _half_a_producer,
    _option_of_another_magic,
)


def _estimate(chance: Random) -> Request:
    magic = chance.choice((0, 1, 2))
    made = records(chance, magic=magic) if often(chance, 0.9) else []
    observed = [chance.choice((0.0, 0.3, 0.99, 1.0, 1.2, chance.random())) for _ in range(9)]
    return {
        "magic": magic,
        "codec": _codec(chance, magic),
        "records": rows(made),
        "observed": observed,
    }


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


def _entries(chance: Random, magic: int, first: int) -> bytes:
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
    return _entries(chance, magic, first)


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


# Requests on bytes


def _validate(chance: Random) -> Request:
    given = written(chance, several=0.08, mixed=0.4, hostile=0.2)
    data = given["data"]
    magic = chance.choice((0, 1, 2, 2, 2, 2))
    if often(chance, 0.5) and len(data) > 16 and data[16] <= 2:
        magic = data[16]
    source = _source_codec(data)
    codec = source if often(chance, 0.5) else _codec(chance, magic)
    return {
        **given,
        "magic": magic,
        "source": source,
        "codec": codec,
        "level": None if codec == source else _level(chance, codec),
        "compacted": often(chance, 0.2),
        "timestamp_type": chance.choice((CREATE, CREATE, APPEND)),
        "before_max": chance.choice((2**63 - 1, 2**63 - 1, 2**63 - 1, 100_000, 5, 0)),
        "after_max": chance.choice((2**63 - 1, 2**63 - 1, 2**63 - 1, 100_000, 5, 0)),
        "leader_epoch": chance.choice((0, 0, 7, 2**31 - 1)),
        "origin": chance.choice(
            ("CLIENT", "CLIENT", "CLIENT", "COORDINATOR", "REPLICATION", "RAFT_LEADER")
        ),
        "release": chance.choice(("IBP_3_9_IV0", "IBP_3_9_IV0", "IBP_2_0_IV1")),
        "next_offset": chance.choice((0, 0, 1234567, 2**40)),
        "now": NOW + chance.choice((0, 0, 5, -100_001, 10**9)),
    }


def _source_codec(data: bytes) -> str:
    """As the log finds it: that of the last compressed batch in front of any damage."""
    source, position = 0, 0
    while position + 23 <= len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        magic = data[position + 16]
        if size < 14 or magic > 2 or position + 12 + size > len(data):
            break
        codec = data[position + (22 if magic == 2 else 17)] & 7
        source = codec if 0 < codec < len(CODECS) else source
        position += 12 + size
    return CODECS[source]


def _convert(chance: Random) -> Request:
    given = written(chance, several=0.6, mixed=0.3, hostile=0.1)
    return {
        **given,
        "magic": chance.choice((0, 1, 1, 2)),
        "first_offset": chance.choice((0, 0, 1, 3, 8, 401, 2**33 + 1)),
        "read_bytes": chance.choice((1, 500, 1 << 17)),
    }


def _filter(chance: Random) -> Request:
    given = written(chance, several=0.6, mixed=0.2, hostile=0.05)
    size = len(given["data"])
    keep = chance.choice((0.0, 0.3, 0.7, 0.95, 1.0))
    kinds = ("DELETE_EMPTY", "DELETE_EMPTY", "DELETE_EMPTY", "RETAIN_EMPTY", "DELETE")
    decisions = []
    for _ in range(size // 26 + 1):
        mask = "".join("1" if often(chance, keep) else "0" for _ in range(min(size, 320)))
        decisions.append([chance.choice(kinds), often(chance, 0.1), mask])
    return {
        **given,
        "decisions": decisions,
        "now": chance.choice((1000, NOW)),
        "delete_retention": chance.choice((0, 24, 86_400_000)),
        "room": chance.choice((1 << 20, 1 << 20, 1 << 20, 1, 100)),
    }


def _parse(chance: Random) -> Request:
    return written(chance, several=0.5, mixed=0.5, hostile=0.6)


def _message(chance: Random) -> Request:
    magic = chance.randrange(2)
    one = records(chance, magic=magic)[0]
    attributes = chance.choice((0, 0, 1, 2, 3, 8, 9, 0xF0))
    data = bytearray(builders.message(one, magic=magic, attributes=attributes)[12:])
    if often(chance, 0.3):
        mutate.flip_bits(data, chance, [])
    if often(chance, 0.1):
        del data[chance.randrange(len(data)) :]
    return {"data": bytes(data)}


MAKERS = {
    "build": _build,
    "estimate": _estimate,
    "validate": _validate,
    "convert": _convert,
    "filter": _filter,
    "parse": _parse,
    "message": _message,
}
