"""The short ways of a follower take what the long one takes, and answer the same."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest

from kseg.errors import KsegError
from kseg.log.validate.append import validate_replica
from kseg.log.validate.rules import AppendOrigin, AppendRules, ValidatedBatch
from kseg.log.writer.one_batch import one_batch
from kseg.log.writer.replicas import take_replica, take_replicas
from tests.builders import GZIP, NONE, messages, record
from tests.reference_codecs import crc32c
from tests.unit.log.logs import NOW_MS, marker, stored

RULES = AppendRules(origin=AppendOrigin.REPLICATION)
#: Where the header of a batch has what decides, and what the checksum covers.
HEADER, COVERED = 61, 21


def by_the_long_way(data: bytes, end: int) -> ValidatedBatch | KsegError:
    try:
        return validate_replica(data, RULES, next_offset=end)
    except KsegError as error:
        return error


def by_the_short_ways(data: bytes, end: int) -> list[ValidatedBatch]:
    view = memoryview(data)
    one = one_batch(view)
    found = [take_replicas(view, end), one and take_replica(view, one, end)]
    return [taken for taken in found if taken is not None]


def alike(taken: ValidatedBatch, other: ValidatedBatch | KsegError) -> bool:
    assert isinstance(other, ValidatedBatch), other
    names = [field.name for field in fields(ValidatedBatch) if field.name != "table"]
    return all(getattr(taken, name) == getattr(other, name) for name in names)


@pytest.mark.parametrize(
    "data",
    [
        stored(5),
        stored(5, count=20, codec=GZIP, epoch=3),
        stored(5, time=-1),
        stored(5, count=3, producer_id=4, producer_epoch=0, base_sequence=9),
        stored(2**40) + stored(2**40 + 9, count=4) + stored(2**40 + 20, time=NOW_MS - 1),
        stored(5, time=NOW_MS + 3) + stored(6, time=NOW_MS + 3),
    ],
)
def test_sound_batches_take_a_short_way_and_are_told_the_same(data: bytes) -> None:
    taken = by_the_short_ways(data, 5)
    assert taken
    assert all(alike(one, by_the_long_way(data, 5)) for one in taken)


@pytest.mark.parametrize(
    "data",
    [
        stored(4),
        stored(5)[:-1],
        stored(5) + bytes(3),
        stored(5) + stored(5),
        stored(5) + stored(6, epoch=-1),
        messages([record(b"a", offset=5)], magic=1),
        stored(5, attributes=6),
        stored(2**63 - 5),
        bytes(80),
    ],
)
def test_whatever_is_unusual_takes_the_long_way(data: bytes) -> None:
    assert by_the_short_ways(data, 5) == []


@pytest.mark.parametrize("seed", range(40))
def test_no_bytes_take_a_short_way_that_the_long_one_refuses(seed: int) -> None:
    source = random.Random(seed)
    given = [stored(0, count=2), marker(1), stored(0) + stored(1, epoch=2), stored(3, codec=NONE)]
    short = 0
    for _ in range(60):
        data = bytearray(source.choice(given))
        for _ in range(source.randint(1, 2)):
            data[source.randrange(HEADER)] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
        if source.random() < 0.7:
            end = int.from_bytes(data[8:12], "big", signed=True) + 12
            if HEADER <= end <= len(data):
                data[17:COVERED] = crc32c(bytes(data[COVERED:end])).to_bytes(4, "big")
        for taken in by_the_short_ways(bytes(data), 0):
            short += 1
            assert alike(taken, by_the_long_way(bytes(data), 0))
    assert short
