"""What is asked of Kafka 0.10.1: message sets as producers of that time sent them.

validate_0_10  bytes and the rules of a topic      message_0_10  one message, in both formats
deep_0_10      bytes, wrappers opened
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from kseg.constants import Compression, TimestampType
from kseg.legacy.message import Message
from kseg.legacy.message_set import MessageSet
from tests import builders, reference
from tests.fuzz import mutate
from tests.interop.made import NOW, Request, entries, often, records
from tests.legacy import validate_0_10

Answer = dict[str, Any]

CODECS = ("none", "gzip", "snappy", "lz4")
#: All that was wrong with a message was one exception then.
BAD_MESSAGE = ("invalid", "corrupt", "codec")


# Cases


def _set(chance: Random) -> Request:
    magic = chance.randrange(2)
    parts = [entries(chance, magic, chance.choice((0, 0, 0, 7, 2**33)))]
    if often(chance, 0.1):
        parts.append(entries(chance, chance.randrange(2), 10**7))
    data = b"".join(parts)
    if often(chance, 0.1):
        return {"data": mutate.MUTATORS["log"](data, chance, parts), "hostile": True}
    return {"data": data, "hostile": False}


def _validate(chance: Random) -> Request:
    given = _set(chance)
    source = "none"
    for message, _ in _shallow(given["data"]):
        source = CODECS[message.codec] if 0 < message.codec < len(CODECS) else source
    return {
        **given,
        "source": source,
        "codec": source if often(chance, 0.5) else chance.choice(CODECS),
        "magic": chance.randrange(2),
        "compacted": often(chance, 0.2),
        "timestamp_type": chance.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        "difference_max": chance.choice((2**63 - 1, 2**63 - 1, 2**63 - 1, 100_000, 5)),
        "next_offset": chance.choice((0, 0, 1234567, 2**40)),
        "now": NOW + chance.choice((0, 5, -100_001)),
    }


def _shallow(data: bytes) -> list[Any]:
    try:
        return list(MessageSet(data).shallow())
    except ValueError:
        return []


def _message(chance: Random) -> Request:
    magic = chance.randrange(2)
    attributes = chance.choice((0, 0, 1, 2, 3, 8, 9, 0xF0))
    one = records(chance, magic=magic)[0]
    return {"data": builders.message(one, magic=magic, attributes=attributes)[12:]}


MAKERS = {"validate_0_10": _validate, "deep_0_10": _set, "message_0_10": _message}


# kseg's answers


def validated(request: Request, release: str) -> Answer:
    """For a broker to append."""
    codecs = {codec.label: codec for codec in Compression}
    kinds = {kind.label: kind for kind in TimestampType}
    taken = validate_0_10(
        request["data"],
        next_offset=request["next_offset"],
        now_ms=request["now"],
        source=codecs[request["source"]],
        target=codecs[request["codec"]],
        compacted=request["compacted"],
        magic=request["magic"],
        timestamp_type=kinds[request["timestamp_type"]],
        timestamp_difference_max_ms=request["difference_max"],
    )
    return {
        "data": taken.head,
        "max_timestamp": taken.max_timestamp,
        "shallow_offset": taken.offset_of_max_timestamp,
        "sizes_changed": taken.sizes_maybe_changed,
        "next_offset": taken.next_offset,
    }


def deep(request: Request, release: str) -> Answer:
    """Each message, those in wrappers too."""
    found = MessageSet(request["data"])
    rows = [
        [offset, message.timestamp, message.key, message.value]
        for message, offset in found.deep(rules="0.10")
    ]
    return {"valid_bytes": found.valid_bytes, "rows": rows}


def message(request: Request, release: str) -> Answer:
    """One message in both formats."""
    given = Message(request["data"])
    forms = {f"as_{magic}": bytes(given.to_format_version(magic).data) for magic in (0, 1)}
    return {"crc": given.crc, "is_valid": given.is_valid, **forms}


ANSWERS = {"validate_0_10": validated, "deep_0_10": deep, "message_0_10": message}


def is_beyond(request: Request) -> bool:
    """Whether 0.10.1 damages such a set, or stumbles over it; kseg does as was meant.

    Of a set that mixes magics it converts also what has the right one already; it takes an empty
    wrapper of another magic for one of the topic's, and a cut-off last entry for a whole one.
    """
    walk = reference.walk(request["data"], "memory")
    if len({batch.magic for batch in walk.batches}) > 1:
        return True
    if walk.end_position < len(request["data"]):
        return True
    return any("without messages" in _refusal(batch) for batch in walk.batches)


def _refusal(batch: reference.Batch) -> str:
    try:
        list(reference.records(batch))
    except reference.RefusedError as error:
        return str(error)
    return ""


def rows_of(answer: Answer, unbase64: Any) -> Iterator[list[Any]]:
    """Kafka's rows, their bytes as bytes."""
    for offset, timestamp, key, value in answer["rows"]:
        yield [offset, timestamp, unbase64(key), unbase64(value)]
