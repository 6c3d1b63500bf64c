"""Rows by index: what is taken is what was there, bytes, nulls and headers alike."""

from __future__ import annotations

import numpy as np
import pytest

from kseg.format import columns, header
from kseg.format.request import Request
from kseg.format.take import take_rows
from kseg.format.values import RecordColumns
from tests.builders import batch, record

GIVEN = [
    record(
        b"v%d" % n if n % 3 else None,
        key=b"k" * n if n % 2 else None,
        headers=[(b"h", b"x"), (b"", None)][: n % 3],
        timestamp=n,
    )
    for n in range(10)
]


@pytest.fixture
def ten() -> RecordColumns:
    data = batch(GIVEN)
    (piece,) = columns.decode(memoryview(data), header.scan(data), Request())
    return piece


@pytest.mark.parametrize("index", [[], [0], [9, 3, 3, 1], list(range(10)), [8, 2], [1] * 50])
def test_rows_come_in_the_order_asked_for(ten: RecordColumns, index: list[int]) -> None:
    taken = take_rows(ten, np.array(index, np.intp))
    assert len(taken) == len(index)
    assert taken.offset.tolist() == taken.timestamp_ms.tolist() == index
    assert list(taken.key) == [GIVEN[row].key for row in index]
    assert list(taken.value) == [GIVEN[row].value for row in index]
    assert list(taken.headers) == [tuple(GIVEN[row].headers) for row in index]


def test_null_counts_are_those_of_the_rows_taken(ten: RecordColumns) -> None:
    taken = take_rows(ten, np.array([0, 1, 3], np.intp))
    assert (taken.key.null_count, taken.value.null_count) == (1, 2)
    assert take_rows(ten, np.array([1, 7], np.intp)).value.validity is None


def test_what_is_taken_is_read_only_and_stands_alone(ten: RecordColumns) -> None:
    taken = take_rows(ten, np.array([4], np.intp))
    assert not taken.offset.flags.writeable
    assert not taken.value.data.flags.writeable
    assert len(taken.value.data) == 2


def test_rows_can_be_taken_from_nothing(ten: RecordColumns) -> None:
    nothing = np.array([], np.intp)
    assert len(take_rows(take_rows(ten, nothing), nothing)) == 0
