"""Narrowed requests: never fewer records than conditions take."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kseg.files.names import FileKind, FileName, Partition, PartitionName
from kseg.format.request import Request
from kseg.format.values import Kind
from kseg.lazy import Condition, Nanoseconds
from kseg.records.narrowing import can_have, narrowed, wanted_key

TAKES = {
    "==": lambda own, value: own == value,
    "!=": lambda own, value: own != value,
    "<": lambda own, value: own < value,
    "<=": lambda own, value: own <= value,
    ">": lambda own, value: own > value,
    ">=": lambda own, value: own >= value,
}


@pytest.mark.parametrize("word", TAKES)
def test_bounds_hold_the_records_that_a_condition_takes(word: str) -> None:
    for first, second in product(range(-2, 3), repeat=2):
        conditions = [Condition("offset", word, first), Condition("offset", "<=", second)]
        request = narrowed(Request(offset=(-1, 3)), conditions)
        least, end = request.offset_start, request.offset_end
        for offset in range(-1, 3):
            takes = TAKES[word](offset, first) and offset <= second
            assert not takes or least <= offset < end
            exact = word != "!=" and least <= offset < end
            assert not exact or takes


@pytest.mark.parametrize("word", TAKES)
def test_times_are_rounded_outwards(word: str) -> None:
    for nanoseconds in (-1_500_001, -1_000_000, -1, 0, 1, 999_999, 1_000_000, 1_500_000):
        request = narrowed(Request(), [Condition("timestamp", word, Nanoseconds(nanoseconds))])
        for time in range(-3, 4):
            inside = request.time_start <= time < request.time_end
            assert inside or not TAKES[word](time * 10**6, nanoseconds)
            if word in ("<", "<=", ">", ">="):
                assert inside == TAKES[word](time * 10**6, nanoseconds)


def test_lists_bound_offsets_and_times() -> None:
    conditions = [Condition("offset", "in", [9, 3, 5]), Condition("timestamp_ms", "in", [4, 2])]
    assert narrowed(Request(), conditions).bounds == ((3, 10), (2, 5))
    assert narrowed(Request(), [Condition("offset", "in", [])]).bounds[0] == (0, 0)


def test_values_of_other_types_are_no_bounds() -> None:
    conditions = [
        Condition("offset", ">", Nanoseconds(5)),
        Condition("offset", ">", "5"),
        Condition("offset", "in", [5, "5"]),
        Condition("timestamp", ">", 5),
        Condition("timestamp_ms", ">", Nanoseconds(5)),
        Condition("value", ">", 5),
    ]
    assert narrowed(Request(), conditions).whole


@pytest.mark.parametrize(
    ("column", "word", "value", "wanted"),
    [
        ("topic", "==", "a", True),
        ("topic", "!=", "a", False),
        ("topic", "<", "b", True),
        ("topic", "in", ["b"], False),
        ("topic", "in", ["b", "a"], True),
        ("topic", "==", b"x", True),
        ("topic", "in", ["b", 3], True),
        ("partition", "==", 2, True),
        ("partition", ">=", 3, False),
        ("partition", "in", [], False),
        ("partition", "==", "3", True),
        ("offset", "==", 3, True),
    ],
)
def test_a_source_has_one_topic_and_one_partition(
    column: str, word: str, value: Any, wanted: bool
) -> None:
    source = Partition(Path("a-2"), PartitionName("a", 2))
    assert can_have(source, [Condition(column, word, value)]) is wanted


def test_a_source_without_a_topic_answers_no_comparison() -> None:
    source = Partition(Path("loose.log"), None, file=FileName(FileKind.LOG))
    assert not can_have(source, [Condition("topic", "!=", "a")])
    assert not can_have(source, [Condition("partition", "<", 9)])
    assert can_have(source, [Condition("offset", "<", 9)])


@pytest.mark.parametrize(
    ("kind", "word", "value", "wanted"),
    [
        (None, "==", b"k", b"k"),
        (None, "==", b"", b""),
        (None, "==", "k", None),
        (None, "<=", b"k", None),
        (Kind.TEXT, "==", "k", b"k"),
        (Kind.TEXT, "==", b"k", None),
        (Kind.JSON, "==", "1", None),
        (Kind.DOUBLE, "==", 1, None),
    ],
)
def test_a_key_is_found_by_its_bytes(kind: Kind | None, word: str, value: Any, wanted: Any) -> None:
    conditions = [Condition("value", "==", b"x"), Condition("key", word, value)]
    assert wanted_key(conditions, {} if kind is None else {"key": kind}) == wanted
