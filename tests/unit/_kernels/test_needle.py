"""The search for bytes in a column, held to Python's own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kseg._kernels.needle import mark_holding


def marked(values: list[bytes], needle: bytes, *, folds: bool = False) -> list[bool]:
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    marks = np.zeros(len(values), np.uint8)
    mark_holding(np.frombuffer(b"".join(values), np.uint8), ends, needle, folds, marks)
    return marks.astype(bool).tolist()


def test_values_are_marked_as_python_finds_the_bytes() -> None:
    rng = random.Random(7)
    for _ in range(3_000):
        letters = rng.choice((b"ab", b"abcABC", bytes(range(256)), b'{"k": 1}'))
        values = [
            bytes(rng.choices(letters, k=rng.choice((0, 1, 3, 20, 200))))
            for _ in range(rng.randrange(8))
        ]
        needle = bytes(rng.choices(letters, k=rng.choice((1, 2, 3, 5, 70))))
        if values and rng.random() < 0.5:
            needle = values[0][: len(needle)] or needle
        assert marked(values, needle) == [needle in value for value in values]
        small = [needle.lower() in value.lower() for value in values]
        assert marked(values, needle.lower(), folds=True) == small


def test_bytes_over_the_border_of_two_values_are_in_neither() -> None:
    assert marked([b"xab", b"cx", b"", b"abc"], b"abc") == [False, False, False, True]


@pytest.mark.parametrize("folds", [False, True])
def test_data_that_matches_almost_everywhere_takes_linear_time(folds: bool) -> None:
    """Compared at each position it would take an hour."""
    needle = b"a" * 500_000 + b"b" + b"a" * 500_000
    value = (b"a" * 499_000 + b"b") * 8
    assert marked([value, value + needle, b"a" * 2_000_000], needle, folds=folds) == [
        False,
        True,
        False,
    ]
    assert marked([b"a"] * 100_000, needle, folds=folds) == [False] * 100_000


@pytest.mark.parametrize(
    ("ends", "needle", "marks"),
    [
        ([0, 4], b"a", 1),
        ([2, 1], b"a", 1),
        ([0, 1], b"", 1),
        ([0, 1, 2], b"a", 1),
        ([-1, 1], b"a", 1),
    ],
)
def test_a_column_that_does_not_fit_is_refused(ends: list[int], needle: bytes, marks: int) -> None:
    data = np.frombuffer(b"abc", np.uint8)
    with pytest.raises(ValueError, match=r"offsets|marks"):
        mark_holding(data, np.array(ends, np.int32), needle, False, np.zeros(marks, np.uint8))
