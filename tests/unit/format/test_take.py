"""Rows by index, and pieces joined: bytes, nulls and headers are what was there."""

from __future__ import annotations

import numpy as np
import pytest

from kseg.format import columns, header
from kseg.format.request import Request
from kseg.format.take import join_binary, join_rows, take_rows
from kseg.format.values import BinaryColumn, RecordColumns
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


# Pieces as one

FIELDS = ("offset", "timestamp", "key", "value", "headers")


def piece_of(*values: bytes | None, headers: int = 0, base_offset: int = 0) -> RecordColumns:
    given = [record(value, key=value, headers=[(b"h", value)] * headers) for value in values]
    data = batch(given, base_offset=base_offset)
    (piece,) = columns.decode(data, header.scan(data), Request(columns=FIELDS))
    return piece


PIECES = {
    "nulls on both sides": [[b"a", None, b""], [None, b"longer"]],
    "nulls in the last alone": [[b"a", b"b"], [None] * 9],
    "nulls in the first alone": [[None], [b"a"] * 9],
    "no nulls": [[b"a"], [b"b"], [b"c", b"d"]],
    "past a byte of bits": [[None, b"x"] * 7, [b"y"], [None] * 3, [b"z"] * 8],
}


@pytest.mark.parametrize("name", PIECES)
def test_rows_of_all_pieces_follow_each_other(name: str) -> None:
    values = [value for part in PIECES[name] for value in part]
    offsets = iter(range(0, 1000, 50))
    pieces = [
        piece_of(*part, headers=number, base_offset=next(offsets))
        for number, part in enumerate(PIECES[name])
    ]
    joined = join_rows(pieces)
    assert (len(joined), joined.fields) == (len(values), FIELDS)
    assert list(joined.value) == list(joined.key) == values
    assert joined.offset.tolist() == [n for piece in pieces for n in piece.offset.tolist()]
    assert list(joined.headers) == [pairs for piece in pieces for pairs in piece.headers]
    assert joined.value.null_count == values.count(None)
    assert (joined.value.validity is None) == (None not in values)
    for array in (joined.offset, joined.value.offsets, joined.value.data):
        assert not array.flags.writeable


def test_one_piece_is_answered_as_it_is() -> None:
    piece = piece_of(b"a")
    assert join_rows([piece]) is piece


def test_pieces_of_other_fields_are_refused() -> None:
    piece = piece_of(b"a")
    other = RecordColumns(1, {"value": piece.value})
    with pytest.raises(ValueError, match="same fields"):
        join_rows([piece, other])


def test_columns_whose_offsets_begin_later_keep_their_bytes() -> None:
    data = np.frombuffer(b"__abc_", np.uint8)
    late = BinaryColumn(np.array([2, 4, 5], np.int32), data, None, 0)
    assert list(join_binary([late, late])) == [b"ab", b"c"] * 2


def test_more_than_two_gibibytes_are_refused_before_they_are_copied() -> None:
    vast = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**30,), (0,))
    column = BinaryColumn(np.array([0, 2**30], np.int32), vast, None, 0)
    with pytest.raises(ValueError, match="2147483648 bytes do not fit"):
        join_binary([column, column])
