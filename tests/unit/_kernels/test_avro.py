"""The kernel for Avro with programs made by hand; `tests/unit/decode` has those of schemas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kseg._kernels import avro

I64 = (-(2**63), 2**63 - 1)


def columns_of(nodes: Any, kids: Any, columns: Any) -> avro.Columns:
    return avro.Columns(
        np.array(nodes, np.int32),
        np.array(kids, np.int32),
        np.zeros(0, np.int32),
        np.array(columns, np.int64),
    )


def pair() -> avro.Columns:
    """A record of a number and a text."""
    return columns_of(
        [
            [avro.RECORD, 0, 0, 2, 0],
            [avro.LONG, 1, 0, 0, 0],
            [avro.STRING, 2, 0, 0, avro.UTF8],
        ],
        [1, 2, 1, 2],
        [
            [avro.K_STRUCT, 0, 1, 2, 2, *I64],
            [avro.K_INT64, 8, 0, 0, 0, *I64],
            [avro.K_BYTES, 0, 0, 0, 0, *I64],
        ],
    )


def decode(columns: avro.Columns, payloads: list[bytes | None]) -> dict[int, tuple[int, int, int]]:
    ends = np.cumsum([0, *(len(each or b"") for each in payloads)]).astype(np.int64)
    wanted = np.array([each is not None for each in payloads], np.uint8)
    faults: dict[int, tuple[int, int, int]] = {}
    columns.decode(ends, b"".join(each or b"" for each in payloads), wanted, faults)
    return faults


def test_a_payload_that_fails_leaves_nothing_in_a_column() -> None:
    columns = pair()
    faults = decode(columns, [b"\x02\x04ab", b"\x04\x08ab", None, b"\x06\x00"])
    assert faults == {1: (avro.SHORT, 2, 2)}
    count, _data, _ends, valid = columns.column(0)
    assert (count, bytes(valid or b"")) == (4, b"\1\0\0\1")
    assert np.frombuffer(columns.column(1)[1], np.int64).tolist() == [1, 0, 0, 3]
    count, data, ends, _valid = columns.column(2)
    assert (count, bytes(data)) == (4, b"ab")
    assert np.frombuffer(ends, np.int32).tolist() == [0, 2, 2, 2, 2]


def test_bytes_in_front_of_a_payload_are_passed_over() -> None:
    columns, payloads = pair(), b"\0\0\2\0\0"
    faults: dict[int, tuple[int, int, int]] = {}
    ends = np.array([0, 4, 5], np.int64)
    columns.decode(ends, payloads, np.ones(2, np.uint8), faults, 2)
    assert faults == {1: (avro.SHORT, 0, 0)}
    assert np.frombuffer(columns.column(1)[1], np.int64).tolist() == [1, 0]


def test_each_byte_that_is_cut_off_is_a_fault() -> None:
    payload = b"\xac\x02\x06abc"
    for size in range(len(payload)):
        assert decode(pair(), [payload[:size]]).keys() == {0}
    assert decode(pair(), [payload]) == {}
    assert decode(pair(), [payload + b"\0"]) == {0: (avro.TRAILING, 0, 6)}


@pytest.mark.parametrize("items", [2**20, 2**31 - 1, 2**60])
def test_items_without_bytes_do_not_go_on_for_ever(items: int) -> None:
    columns = columns_of(
        [[avro.ARRAY, 0, 0, 1, 0], [avro.NULL_, 1, 0, 0, 0]],
        [1, 1],
        [[avro.K_LIST, 0, 1, 1, 1, *I64], [avro.K_NULL, 0, 0, 0, 0, *I64]],
    )
    number, size = items << 1, b""
    while number:
        size += bytes([number & 127 | (128 if number > 127 else 0)])
        number >>= 7
    assert decode(columns, [size + b"\0"] * 500)[499][0] == avro.LIMIT
    assert columns.column(1)[0] == 0


def test_offsets_that_lie_are_refused() -> None:
    for ends in ([0, 9], [3, 1], [-1, 2]):
        with pytest.raises(ValueError, match="do not ascend"):
            pair().decode(np.array(ends, np.int64), b"abc", np.ones(1, np.uint8), {})
    with pytest.raises(ValueError, match="differ in number"):
        pair().decode(np.array([0, 1], np.int64), b"abc", np.ones(2, np.uint8), {})
    with pytest.raises(IndexError):
        pair().column(3)
    with pytest.raises(ValueError, match="another form"):
        columns_of(np.zeros((1, 3)), [], np.zeros((1, 7)))
