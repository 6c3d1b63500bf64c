"""The locating kernel: two ways to the same columns, and arguments that do not fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kseg import _core
from kseg.errors import KsegError
from kseg.format import columns
from kseg.format.arena import Arena
from kseg.format.bodies import STATE_FIELDS, each_bodies
from kseg.format.columns import Request, decode
from kseg.format.header import scan
from tests.builders import GZIP, NONE, ZSTD, batch, record

SHAPES = [
    record(b"value", key=b"key"),
    record(b"", key=b""),
    record(None, key=b"k"),
    record(b"v", key=None),
    record(None, key=None),
    record(b"x" * 70, key=b"y" * 33),
    record(b"x" * 300, key=b"y" * 129),
    record(b"x" * 9000, key=b"y"),
    record(b"v", key=b"k", headers=((b"h", b"1"), (b"h", None))),
]


def log(codec: int) -> memoryview:
    """Batches of every shape, the last of them with one record too few."""
    good = [
        batch(SHAPES[first:] + SHAPES[:first], base_offset=100 * first, codec=codec)
        for first in range(len(SHAPES))
    ]
    return memoryview(b"".join([*good, batch(SHAPES, base_offset=5000, codec=codec, count=10)]))


def pieces(data: memoryview, request: Request) -> Iterator[tuple[Any, ...]]:
    found: list[KsegError] = []
    for piece in decode(data, scan(data, on_bad_crc="ignore"), request, on_error=found.append):
        yield tuple(
            list(column) if not isinstance(column, np.ndarray) else column.tolist()
            for column in piece.arrays.values()
        )
    yield tuple(str(error) for error in found)


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
@pytest.mark.parametrize("rows_max", [1, 4, 9, 10, 65_536])
@pytest.mark.parametrize(
    "fields", [("key",), ("value",), ("offset", "key", "value"), ("key", "value", "headers")]
)
def test_copying_at_once_and_gathering_later_give_the_same(
    monkeypatch: pytest.MonkeyPatch, codec: int, rows_max: int, fields: tuple[str, ...]
) -> None:
    data = log(codec)
    request = Request(fields=fields, rows_max=rows_max)
    at_once = list(pieces(data, request))
    monkeypatch.setattr(columns, "_AT_ONCE_BYTES_MAX", -1)
    assert list(pieces(data, request)) == at_once
    assert len(at_once[-1]) == 1  # the fault is reported once
    rows = sum(len(piece[0]) for piece in at_once[:-1])
    assert rows == len(SHAPES) ** 2 + (len(SHAPES) if codec == NONE else 0)


def arguments(data: memoryview) -> tuple[Any, dict[str, Any]]:
    """What a call needs that asks for nothing, and its bodies."""
    (bodies,) = each_bodies(
        data, scan(data), base=0, arena=Arena(), inflated_max=1 << 20, refuse_bad_crc=False
    )
    empty = np.empty(0, np.int64)
    return bodies.rows, {
        "within": Request().within,
        "rows_max": 100,
        "bytes_max": 1 << 20,
        "offsets": empty,
        "timestamps": empty,
        "spans": np.empty((0, 6), np.int32),
        "first_row": np.empty(len(bodies.rows) + 1, np.int64),
        "state": np.zeros(STATE_FIELDS, np.int64),
    }


@pytest.mark.parametrize("name", ["keys", "values"])
@pytest.mark.parametrize(
    ("offsets", "data", "validity"), [(100, 1 << 20, 13), (101, 200, 13), (101, 1 << 20, 12)]
)
def test_a_column_without_room_is_refused(
    name: str, offsets: int, data: int, validity: int
) -> None:
    lent = memoryview(batch(SHAPES))
    rows, given = arguments(lent)
    column: Any = (
        np.empty(offsets, np.int32),
        np.empty(data, np.uint8),
        np.zeros(validity, np.uint8),
    )
    with pytest.raises(ValueError, match="room"):
        _core.locate_records(lent, b"", rows, **given, **{name: column})


@pytest.mark.parametrize(
    "change",
    [
        {"state": np.zeros(3, np.int64)},
        {"first_row": np.zeros(1, np.int64)},
        {"offsets": np.zeros(5, np.int64)},
        {"timestamps": np.zeros(99, np.int64)},
        {"spans": np.zeros((99, 6), np.int32)},
        {"spans": np.zeros((0, 5), np.int32)},
        {"within": np.zeros(3, np.int64)},
        {"rows_max": -1},
    ],
    ids=lambda change: f"{next(iter(change))} too small",
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    lent = memoryview(batch(SHAPES))
    rows, given = arguments(lent)
    with pytest.raises(ValueError, match=r"length|width|range|shorter"):
        _core.locate_records(lent, b"", rows, **{**given, **change})


def test_bodies_outside_their_source_are_refused() -> None:
    lent = memoryview(batch(SHAPES))
    rows, given = arguments(lent)
    with pytest.raises(ValueError, match="outside"):
        _core.locate_records(lent[:-1], b"", rows, **given)
