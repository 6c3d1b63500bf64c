"""The kernel that makes records of columns: what it gives, and what it refuses."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

from kseg._kernels.rows import Rows
from kseg.constants import TimestampType
from kseg.format.values import BinaryColumn, Record, binary_column

TYPES = tuple(TimestampType)


def rows(**others: Any) -> Rows:
    given = {
        "kind": Record,
        "offsets": np.arange(3, dtype=np.int64),
        "times": np.array([5, -1, 7], np.int64),
        "types": np.array([0, -1, 1], np.int8),
        "type_names": TYPES,
        "keys": binary_column([b"a", None, b""]),
        "values": binary_column([None, b"1", b"22"]),
        "headers": None,
    } | others
    return Rows(*given.values())


def test_each_row_is_a_record() -> None:
    found = list(rows(headers=[(), ((b"h", None),), ()]))
    assert found == [
        Record(0, 5, TimestampType.CREATE_TIME, b"a", None, ()),
        Record(1, -1, TimestampType.NO_TIMESTAMP_TYPE, None, b"1", ((b"h", None),)),
        Record(2, 7, TimestampType.LOG_APPEND_TIME, b"", b"22", ()),
    ]
    assert [type(one) for one in found] == [Record] * 3
    assert list(rows())[1].headers == ()


def test_rows_come_one_by_one_and_once() -> None:
    made = rows()
    assert made.__length_hint__() == 3
    assert next(made).offset == 0
    assert len(list(made)) == 2
    assert list(made) == []


def test_no_reference_is_kept_and_none_is_lost() -> None:
    value = b"x" * 1_000
    header = ((b"h", value),)
    before = sys.getrefcount(header)
    for _ in range(100):
        list(rows(headers=[header, header, header]))
    gc.collect()
    assert sys.getrefcount(header) == before
    assert gc.is_tracked(next(rows()))


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"times": np.zeros(2, np.int64)}, "different lengths"),
        ({"types": np.zeros(4, np.int8)}, "different lengths"),
        ({"keys": binary_column([b"a"])}, "different lengths"),
        ({"headers": [()]}, "different lengths"),
        ({"types": np.array([0, 2, 0], np.int8)}, "no such type"),
        ({"type_names": TYPES[:2]}, "three types"),
        ({"kind": dict}, "rows are tuples"),
        (
            {
                "keys": BinaryColumn(
                    np.array([0, 9, 9, 9], np.int32), np.zeros(3, np.uint8), None, 0
                )
            },
            "do not ascend",
        ),
        (
            {
                "keys": BinaryColumn(
                    np.array([0, 2, 1, 3], np.int32), np.zeros(3, np.uint8), None, 0
                )
            },
            "do not ascend",
        ),
        (
            {
                "values": BinaryColumn(
                    np.zeros(4, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.uint8), 3
                )
            },
            "too few validity bits",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(others: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        list(rows(**others))
