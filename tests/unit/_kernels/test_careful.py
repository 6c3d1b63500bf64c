"""The kernel that takes one batch alone: what a piece holds is counted first, then copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kseg._kernels.reader import copy_records, count_records
from kseg.errors import KsegError
from kseg.format.columns import Request, decode_with_care
from kseg.format.header import scan
from kseg.format.reader import STATE_FIELDS
from kseg.format.workspace import Plan, Workspace
from tests.builders import GZIP, NONE, ZSTD, batch, message, messages, record, wrapper

FIELDS = ("offset", "timestamp", "key", "value", "headers")
SHAPES = [
    record(b"value", key=b"key"),
    record(b"", key=b""),
    record(None, key=b"k"),
    record(b"v", key=None),
    record(None, key=None),
    record(b"x" * 300, key=b"y" * 129),
    record(b"x" * 9000, key=b"y"),
    record(b"v", key=b"k", headers=((b"h", b"1"), (b"h", None))),
]
PLAIN = batch(SHAPES)


def rows_of(data: bytes, request: Request) -> tuple[list[int], list[Any], list[KsegError]]:
    """Rows of each piece, all records, and what is wrong."""
    errors: list[KsegError] = []
    table = scan(data, on_bad_crc="ignore")
    how = request, Workspace(), 0, None, errors.append
    sizes, rows = [], []
    for piece in decode_with_care(memoryview(data), table, *how):
        sizes.append(len(piece))
        rows += zip(*(list(piece[name]) for name in request.fields), strict=True)
    return sizes, rows, errors


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
@pytest.mark.parametrize("fields", [("key",), ("offset", "value"), FIELDS])
@pytest.mark.parametrize(
    ("rows_max", "bytes_max"), [(1, 1 << 20), (3, 1 << 20), (99, 1), (99, 450)]
)
def test_a_batch_in_many_pieces_is_the_same_batch(
    codec: int, fields: tuple[str, ...], rows_max: int, bytes_max: int
) -> None:
    data = batch(SHAPES, codec=codec)
    _, whole, _ = rows_of(data, Request(fields=fields))
    sizes, rows, errors = rows_of(
        data, Request(fields=fields, rows_max=rows_max, bytes_max=bytes_max)
    )
    assert rows == whole
    assert (len(rows), errors) == (len(SHAPES), [])
    assert len(sizes) > 1
    assert max(sizes) <= rows_max


@pytest.mark.parametrize("rows_max", [1, 3, 99])
@pytest.mark.parametrize(("codec", "left"), [(NONE, len(SHAPES)), (GZIP, 0)])
def test_of_a_compressed_batch_nothing_goes_out_unless_all_is_sound(
    rows_max: int, codec: int, left: int
) -> None:
    data = batch(SHAPES, codec=codec, count=len(SHAPES) + 1)
    sizes, _, errors = rows_of(data, Request(fields=FIELDS, rows_max=rows_max))
    assert (sum(sizes), len(errors)) == (left, 1)


@pytest.mark.parametrize("rows_max", [1, 99])
def test_messages_in_front_of_a_wrong_one_inside_go_out(rows_max: int) -> None:
    inside = messages([record(b"one"), record(b"two")], magic=1) + message(
        record(b"bad"), magic=1, offset=2, crc=1
    )
    data = wrapper([], inner=inside, magic=1, codec=GZIP, offset=7)
    _, rows, (error,) = rows_of(data, Request(fields=("offset", "value"), rows_max=rows_max))
    assert rows == [(5, b"one"), (6, b"two")]
    assert "does not match its checksum" in str(error)


def test_only_messages_inside_others_are_held_against_checksums_of_their_own() -> None:
    bad = message(record(b"bad"), magic=1, crc=1)
    data = wrapper(
        [], inner=messages([record(b"one")], magic=1) + bad, magic=1, codec=GZIP, offset=1
    )
    data += batch([record(b"two")], codec=GZIP) + message(record(b"three"), magic=1) + PLAIN
    _, rows, errors = rows_of(data, Request(fields=("valid",), verify_crc=False))
    assert [valid for (valid,) in rows] == [True, False, True, True, *[True] * len(SHAPES)]
    assert errors == []


def arguments(data: bytes) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """What is common to both calls, what the first has besides, and what the second."""
    table = scan(data)
    both = {
        "data": data,
        "row": table.rows[0],
        "body": None,
        "base": 0,
        "ask": Plan(Request(fields=FIELDS)).ask,
        "place": np.zeros(7, np.int64),
        "state": np.zeros(STATE_FIELDS, np.int64),
    }
    count = {"rows_max": 100, "bytes_max": 1 << 20, "at": np.zeros(16, np.int64)}
    total = count_records(**(both | {"place": np.zeros(7, np.int64)}), **count)
    return both, count, {"block": np.empty(total, np.uint8)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"row": np.zeros(3, np.int64)}, "length"),
        ({"place": np.zeros(3, np.int64)}, "length"),
        ({"place": np.array([0, 99_999, 0, 0, 0, 0, 0])}, "outside the batch"),
        ({"place": np.array([-1, 0, 0, 0, 0, 0, 0])}, "outside the batch"),
        ({"ask": np.zeros(3, np.int64)}, "length"),
        ({"state": np.zeros(3, np.int64)}, "length"),
        ({"base": 1}, "outside its source"),
        ({"data": PLAIN[:-1]}, "outside its source"),
        ({"data": b""}, "outside its source"),
        ({"rows_max": 0}, "range"),
        ({"bytes_max": 2**31}, "range"),
        ({"at": np.zeros(15, np.int64)}, "length"),
        ({"block": np.empty(100, np.uint8)}, "no room"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], words: str) -> None:
    both, count, copy = arguments(PLAIN)
    call: Any = copy_records if "block" in change else count_records
    given = both | (copy if "block" in change else count) | change
    with pytest.raises(ValueError, match=words):
        call(**given)


@pytest.mark.parametrize("field", [4, 6, 7, 9, 11, 12])
@pytest.mark.parametrize("by", [-1, 1])
def test_what_was_not_counted_is_not_copied(field: int, by: int) -> None:
    """Fields of the state: rows, headers, and bytes of each column."""
    both, _, copy = arguments(PLAIN)
    both["state"][field] += by
    copy["block"] = np.empty(1 << 20, np.uint8)
    with pytest.raises(ValueError, match="changed while they were read"):
        copy_records(**both, **copy)


def test_bytes_that_change_between_the_calls_are_told() -> None:
    both, _, copy = arguments(PLAIN)
    copy_records(**both, **copy)
    other = batch([*SHAPES[-2::-1], record(b"larger" * 2000)])
    both["data"] = other[: len(PLAIN)].ljust(len(PLAIN), b"\0")
    with pytest.raises(ValueError, match="changed while they were read"):
        copy_records(**both, **copy)


@pytest.mark.parametrize("state", [{4: -1}, {6: 2**31}, {7: -1}, {9: 2**40}])
def test_a_state_beyond_all_bounds_is_refused(state: dict[int, int]) -> None:
    both, _, copy = arguments(PLAIN)
    for field, value in state.items():
        both["state"][field] = value
    with pytest.raises(ValueError, match="fewer than"):
        copy_records(**both, **copy)
