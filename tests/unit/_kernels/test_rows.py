"""The kernel that makes records of columns: what it gives, and what it refuses."""

from __future__ import annotations

import gc
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from kseg._kernels.rows import Dicts, Rows
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


def test_each_row_is_a_dict_that_begins_with_its_place() -> None:
    columns = [np.array([0, -(2**63)], np.int64), binary_column([b"a", None]), [(), (b"h",)]]
    made = Dicts({"topic": "t"}, ("timestamp", "key", "headers"), columns, 2)
    assert made.__length_hint__() == 2
    first, second = made
    assert list(first) == ["topic", "timestamp", "key", "headers"]
    assert first == {"topic": "t", "timestamp": EPOCH, "key": b"a", "headers": ()}
    assert second == {"topic": "t", "timestamp": None, "key": None, "headers": (b"h",)}
    assert list(made) == []


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def test_times_are_those_of_python() -> None:
    chance = np.random.default_rng(7)
    edges = [datetime(year, 3, 1, tzinfo=UTC) for year in (1, 4, 100, 1900, 1970, 2000, 9999)]
    times = [
        *(FIRST_MS, LAST_MS, -1, 0, 999, -1000),
        *(int(edge.timestamp()) * 1000 + by for edge in edges for by in (-86_400_000, -1, 0, 1)),
        *chance.integers(FIRST_MS, LAST_MS, 20_000).tolist(),
    ]
    made = Dicts({}, ("timestamp",), [np.array(times, np.int64)], len(times))
    wanted = [EPOCH + timedelta(milliseconds=time) for time in times]
    assert [row["timestamp"] for row in made] == wanted
    for time in (FIRST_MS - 1, LAST_MS + 1, 2**63 - 1):
        with pytest.raises(ValueError, match="outside the years"):
            next(Dicts({}, ("timestamp",), [np.array([time], np.int64)], 1))


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (("a",), [[1]]),
        (("a",), [np.zeros(1, np.int64)]),
        (("a",), [binary_column([b""])]),
        (("a", "b"), [[1, 2]]),
        ((), [[1, 2]]),
    ],
)
def test_dicts_of_columns_that_do_not_fit_are_refused(names: Any, columns: Any) -> None:
    with pytest.raises(ValueError, match=r"lengths|no name"):
        Dicts({}, names, columns, 2)
