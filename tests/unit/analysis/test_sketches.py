"""Sketches: exact halves exact, estimates within what they promise, joins in any order alike."""

from __future__ import annotations

import random
from collections import Counter
from functools import reduce
from itertools import permutations

import numpy as np
import pytest

from kseg.analysis.sketches import KeyCounter, KeyTotals, SizeHistogram
from kseg.format.values import BinaryColumn


def column(keys: list[bytes | None]) -> BinaryColumn:
    data = np.frombuffer(b"".join(key or b"" for key in keys), np.uint8)
    offsets = np.cumsum([0, *(len(key or b"") for key in keys)]).astype(np.int32)
    valid = np.array([key is not None for key in keys], np.bool_)
    validity = None if valid.all() else np.packbits(valid, bitorder="little")
    return BinaryColumn(offsets, data, validity, int((~valid).sum()))


def counted(
    records: list[tuple[bytes | None, int]], *, kept: int, limit: int, piece: int
) -> KeyTotals:
    counter = KeyCounter(keys_max=kept, counted=limit)
    for at in range(0, len(records), piece):
        rows = records[at : at + piece]
        counter.feed(column([key for key, _ in rows]), np.array([size for _, size in rows]))
    return counter.totals()


def skewed(seed: int, count: int, keys: int) -> list[tuple[bytes | None, int]]:
    random.seed(seed)
    numbers = [int(keys * random.random() ** 4) for _ in range(count)]
    return [(b"k%d" % number, random.randrange(200)) for number in numbers]


def truth(records: list[tuple[bytes | None, int]]) -> Counter[bytes]:
    total: Counter[bytes] = Counter()
    for key, size in records:
        if key is not None:
            total[key] += size
    return total


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("spread", [1, 40, 5_000, 2**31])
def test_quantiles_are_at_most_a_sixteenth_too_large(share: float, spread: int) -> None:
    random.seed(spread)
    sizes = sorted(random.randrange(spread) for _ in range(1_000))
    exact = sizes[max(int(np.ceil(share * 1_000)) - 1, 0)]
    found = SizeHistogram.of(np.array(sizes, np.int64)).quantile(share)
    assert exact <= found <= exact + exact / 16


def test_sizes_of_nothing_are_zero() -> None:
    none = SizeHistogram.of(np.zeros(0, np.int64))
    found = none.document()
    assert found.pop("quantile_error") > 0
    assert found.pop("histogram") == []
    assert set(found.values()) == {0}


# ---- distinct keys -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 10, 1_000, 20_000, 200_000])
def test_distinct_keys_are_counted_within_five_percent(count: int) -> None:
    counter = KeyCounter()
    keys = [b"key %d" % number for number in range(count)]
    counter.feed(column(keys + keys[:100]), np.ones(len(keys + keys[:100]), np.int64))
    assert abs(counter.distinct().estimate() - count) <= 0.05 * count


# ---- top keys ------------------------------------------------------------------------------------


def test_top_keys_are_exact_while_there_is_room_for_all() -> None:
    records = skewed(seed=3, count=5_000, keys=400)
    top = counted(records, kept=400, limit=1_000, piece=700).top(20)
    expected = sorted(truth(records).items(), key=lambda item: (-item[1], item[0]))[:20]
    assert [(one.key, one.bytes) for one in top] == expected
    assert {one.bytes_error for one in top} == {0}
    records_of = Counter(key for key, _size in records)
    assert [one.records for one in top] == [records_of[one.key] for one in top]


@pytest.mark.parametrize("seed", range(5))
def test_truth_lies_within_the_error_when_keys_had_to_go(seed: int) -> None:
    records = skewed(seed, count=8_000, keys=4_000)
    found = counted(records, kept=50, limit=200, piece=500)
    exact = truth(records)
    assert found.lost > 0
    for one in found.top(50):
        assert one.bytes <= exact[one.key] <= one.bytes + one.bytes_error
    listed = {one.key for one in found.top(50)}
    assert all(size <= found.lost for key, size in exact.items() if key not in listed)


def test_joined_totals_are_the_same_in_every_order_and_hold_the_truth() -> None:
    parts = [skewed(seed, count=2_000, keys=1_500) for seed in range(3)]
    sides = [counted(part, kept=40, limit=100, piece=300) for part in parts]
    exact = truth([record for part in parts for record in part])
    answers = set()
    for order in permutations(sides):
        joined = reduce(KeyTotals.merge, order)
        answers.add(joined.top(15))
        for one in joined.top(200):
            assert one.bytes <= exact[one.key] <= one.bytes + one.bytes_error
    assert len(answers) == 1


def test_of_keys_with_as_many_bytes_few_are_remembered_by_name() -> None:
    counter = KeyCounter(keys_max=8, counted=1_000)
    for at in range(0, 20_000, 100):
        keys = [b"key %d" % number for number in range(at, at + 100)]
        counter.feed(column(keys), np.full(100, 50))
        assert len(counter._names) <= 5 * 8 + 100
    assert len(counter.totals().names) == 8
