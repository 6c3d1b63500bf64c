"""Batches rewritten from their own bytes are those that columns would make."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from kseg._kernels.located import Located, rewrite
from kseg._kernels.offset_map import KeepLatest, OffsetMap
from kseg.errors import KsegError
from kseg.format.columns import WholeBatches
from kseg.format.header import BatchTable, scan_all
from kseg.format.located import FATE_FIELDS, LEFT, WRITTEN, Retention, Verdict, rewrite_located
from kseg.format.retain import Filtered, filter_walked
from tests.builders import GZIP, LZ4, NONE, SNAPPY, ZSTD, Record, batch, record

KEYS = [b"a", b"b", b"c", b"", None, b"a longer key than eight bytes", b"x" * 200]
HEADERS: list[list[tuple[bytes, bytes | None]]] = [
    *([] for _ in range(6)),
    [(b"", None)],
    [(b"name", b"v" * 90), (b"", b"")],
]
HORIZON_MS = 5_000_000


def one_record(chance: random.Random, **other: Any) -> Record:
    value = chance.choice([None, b"", bytes(chance.randrange(300)), b"v" * chance.randrange(60)])
    return record(
        value,
        key=chance.choice(KEYS),
        headers=chance.choice(HEADERS),
        timestamp=chance.choice([5, 6, 70, 9_000, 10**12]),
        **other,
    )


def some_batch(chance: random.Random, base_offset: int, *, odd: bool = False) -> bytes:
    """A batch of data; an odd one has something that Kafka's writer never leaves, or is damaged."""
    how: dict[str, Any] = {"codec": chance.choice([NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD])}
    if chance.random() < 0.3:
        how |= {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}
        how |= {"transactional": chance.random() < 0.5}
    if chance.random() < 0.3:
        how |= {"delete_horizon": True, "base_timestamp": chance.choice([4, 10**12])}
    other: dict[str, Any] = {}
    if odd:
        other = chance.choice([{}, {"width": 2}, {"attributes": 1}, {"width": 5}])
        how |= chance.choice(
            [{}, {"log_append": True}, {"count": 3}, {"base_timestamp": -4}, {"producer_id": 4}]
        )
        how |= chance.choice([{}, {"last_offset_delta": 0}, {"attributes": 0x80}])
    count = chance.choice([1, 2, 5, 40])
    records = [one_record(chance, **other) for _ in range(count)]
    if chance.random() < 0.3:
        at, rising = base_offset, []
        for each in records:
            rising.append(Record(each.value, each.key, each.headers, each.timestamp, at))
            at += chance.choice([1, 1, 2, 90])
        records = rising
    return batch(records, base_offset=base_offset, **how)


def some_log(seed: int, *, odd: bool) -> bytes:
    chance = random.Random(seed)
    parts = [
        some_batch(chance, 10_000 * number, odd=odd and chance.random() < 0.3)
        for number in range(chance.choice([1, 3, 12]))
    ]
    if odd and chance.random() < 0.5:
        noise = bytearray(chance.choice(parts[:1]))
        noise[chance.randrange(61, len(noise))] ^= 1 << chance.randrange(8)
        parts[0] = bytes(noise)
    return b"".join(parts)


class Judge:
    """What stays by a map of a log's first batches: records as columns, or where they lie."""

    def __init__(self, data: memoryview, table: BatchTable, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.known_to = int(table.last_offset[len(table) * 2 // 3])
        self.map = OffsetMap(4096, 4095, bytes(16), 0, int(chance.choice([0, 20_000, 1 << 18])))
        first = table.take(table.last_offset <= self.known_to)
        self.map.put_batches(Located(), data, first.rows, 0, 0)
        self.tombstones = chance.random(len(table)) < 0.5
        self.discarded = chance.random(len(table)) < 0.1

    def keep(self, whole: WholeBatches) -> Any:
        key, offsets = whole.columns["key"], whole.columns["offset"]
        out = np.empty(len(key), np.uint8)
        valid = key.is_valid().view(np.uint8)
        self.map.latest(key.data, key.offsets, valid, offsets, self.known_to, out)
        has_value = whole.columns["value"].is_valid()
        needed = has_value | whole.spread(self.tombstones).astype(np.bool_)
        kept = (offsets > self.known_to) | (out.view(np.bool_) & needed)
        return kept & ~whole.spread(self.discarded).astype(np.bool_)

    @property
    def located(self) -> KeepLatest:
        flags = (self.tombstones.view(np.uint8), self.discarded.view(np.uint8))
        return KeepLatest(self.map, self.known_to, *flags)


def filtered(data: bytes, seed: int, *, located: bool) -> tuple[Any, ...]:
    """What a filter makes of batches, or says of them."""
    view = memoryview(data)
    table = scan_all(view, on_bad_crc="ignore")
    judge = Judge(view, table, seed)
    retention = np.random.default_rng(seed).choice(list(Retention), len(table)).astype(np.uint8)
    try:
        made: Filtered = filter_walked(
            view,
            table,
            Verdict(retention),
            judge.keep,
            located=judge.located if located else None,
            horizon_ms=HORIZON_MS,
            rules="4.0",
        )
    except KsegError as error:
        return type(error), error.position, error.record_index
    names = (field.name for field in fields(made) if field.name != "parts")
    return (made.data, *(getattr(made, name) for name in names))


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("first", range(0, 120, 40))
def test_what_is_rewritten_in_place_is_what_columns_make(first: int, odd: bool) -> None:
    for seed in range(first, first + 40):
        data = some_log(seed, odd=odd)
        assert filtered(data, seed, located=True) == filtered(data, seed, located=False), seed


def dealt_with(data: bytes, seed: int = 1) -> list[int]:
    """What became of each batch where records lie."""
    view = memoryview(data)
    table = scan_all(view, on_bad_crc="ignore")
    asked = np.arange(len(table))
    located = Judge(view, table, seed).located
    made = rewrite_located(view, table, asked, located, Located(), base=0, horizon_ms=HORIZON_MS)
    return made.fates[:, FATE_FIELDS.index("way")].tolist()


def test_usual_batches_are_not_left_to_columns() -> None:
    ways = [way for seed in range(50) for way in dealt_with(some_log(seed, odd=False), seed)]
    assert LEFT not in ways
    assert ways.count(WRITTEN) > 50


BODY = b"\x10\x00\x00\x00\x02k\x02v\x00"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (BODY, 2),
        (BODY + b"\x00", 1),
        (BODY[:-1], 1),
        (b"\x10\x01" + BODY[2:], 1),
        (b"\x12\x00\x80\x00\x00\x02k\x02v\x00", 1),
        (BODY + BODY, 2),
        (b"\x10\x00\x00\x01\x02k\x02v\x00", 1),
        (b"\x0c\x00\x00\x00\x03\x03\x00", 1),
        (b"\x0e\x00\x00\x00\x01\x01\x02\x01", 1),
        (b"", 1),
        (BODY, 2**31 - 1),
        (BODY, -1),
    ],
    ids=[
        *("too-many", "left-over", "cut", "attributes", "long-number", "same-offset"),
        *("offset-below", "null-as-minus-2", "nameless-header", "nothing", "lying-count"),
        "negative-count",
    ],
)
def test_what_kafka_does_not_write_is_left_to_columns(body: bytes, count: int) -> None:
    assert dealt_with(batch([], body=body, count=count, last_offset_delta=1)) == [LEFT]


@pytest.mark.parametrize("count", [-1, -150, -(2**31)])
def test_a_header_that_counts_below_zero_takes_no_room_from_other_batches(count: int) -> None:
    rows = [record(b"v" * 30, key=b"k%d" % (number % 7)) for number in range(40)]
    usual = batch(rows, base_offset=100) + batch(rows, base_offset=200)
    lying = batch([], body=BODY, count=count, last_offset_delta=1)
    for data in (lying + usual, usual + lying):
        assert filtered(data, 1, located=True) == filtered(data, 1, located=False)
        assert dealt_with(data).count(LEFT) == 1


def test_a_batch_that_inflates_to_more_than_there_is_room_for_gets_a_larger_one() -> None:
    records = [record(b"v" * 1000, key=b"%d" % (number % 700)) for number in range(1200)]
    data = batch(records, codec=ZSTD) + batch(records, base_offset=5000)
    for seed in range(3):
        assert filtered(data, seed, located=True) == filtered(data, seed, located=False)
        assert LEFT not in dealt_with(data, seed)


def test_rows_that_lie_outside_their_bytes_are_left_to_columns() -> None:
    view = memoryview(batch([record()]))
    table = scan_all(view, on_bad_crc="ignore")
    keep = Judge(view, table, 1).located
    for name, value in (("position", 1), ("position", -1), ("size", 60), ("base_offset", -1)):
        rows = table.rows.copy()
        rows[0, {"position": 0, "size": 1, "base_offset": 3}[name]] = value
        fates = np.zeros((1, 6), np.int64)
        out = np.empty(500, np.uint8)
        rewrite(keep, Located(), view, rows, np.zeros(1, np.int64), 0, 0, 0, out, fates)
        assert fates[0, 0] == LEFT
