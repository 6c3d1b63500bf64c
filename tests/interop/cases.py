"""Seeded cases that kseg and Kafka are both given: `case("7", 123)` is the same on every machine.

A case is a request to the driver in `tests/interop/java`; kseg's side reads the same request. Bytes
that a case starts from come from `tests/builders.py`, lies included, and now and then from the
mutators of `tests/fuzz`.

    build     records and the arguments of a builder          estimate   ratios of batches to come
    validate  bytes and the rules of a topic                  message    one message of magic 0 or 1
    convert   bytes and an older magic                        parse      bytes
    filter    bytes and what of them is to stay        and those of `tests/interop/release_0_10.py`
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator
from dataclasses import dataclass
from random import Random

from tests import builders
from tests.fuzz import mutate
from tests.interop import release_0_10
from tests.interop.made import NOW, Request, often, records, rows, written

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
    "validate_0_10": 3,
    "deep_0_10": 1,
    "message_0_10": 1,
}


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


# Building


def _codec(chance: Random, magic: int) -> str:
    return chance.choice(CODECS if magic == 2 else CODECS[:4])


def _level(chance: Random, codec: str) -> int | None:
    if codec not in LEVELS or often(chance, 0.7):
        return None
    return chance.randint(*LEVELS[codec])


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
    observed = [chance.choice((0.0, 0.3, 0.99, 1.0, 1.2, chance.random())) for _ in range(9)]
    return {"codec": _codec(chance, chance.choice((0, 1, 2))), "observed": observed}


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
        "room": chance.choice((1 << 20, 1 << 20, 1 << 20, 1)),
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
    **release_0_10.MAKERS,
}
