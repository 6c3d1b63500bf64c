"""The kernel that takes one batch alone: what a piece holds is counted first, then copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kseg._kernels.blocks import Blocks
from kseg._kernels.reader import BatchReader
from kseg.errors import KsegError
from kseg.format.columns import decode_with_care
from kseg.format.header import scan
from kseg.format.reader import Plan, Workspace
from kseg.format.request import Request
from tests.builders import GZIP, NONE, batch, record

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
        rows += zip(*(list(piece[name]) for name in request.columns), strict=True)
    return sizes, rows, errors


@pytest.mark.parametrize("rows_max", [1, 3, 99])
@pytest.mark.parametrize(("codec", "left"), [(NONE, len(SHAPES)), (GZIP, 0)])
def test_of_a_compressed_batch_nothing_goes_out_unless_all_is_sound(
    rows_max: int, codec: int, left: int
) -> None:
    data = batch(SHAPES, codec=codec, count=len(SHAPES) + 1)
    sizes, _, errors = rows_of(data, Request(columns=FIELDS, max_rows=rows_max))
    assert (sum(sizes), len(errors)) == (left, 1)


def alone(memory: Blocks | None = None) -> BatchReader:
    """A reader of one batch at a time."""
    workspace = Workspace()
    asked = Plan(Request(columns=FIELDS)).asked
    return BatchReader(memory or workspace.blocks, workspace.inflated, **asked)


def arguments(**change: Any) -> dict[str, Any]:
    """What reads all of one batch."""
    usual = {"data": PLAIN, "row": scan(PLAIN).rows[0], "body": None}
    return usual | {"base": 0, "rows_max": 100, "bytes_max": 1 << 20} | change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"row": np.zeros(3, np.int64)}, "length"),
        ({"base": 1}, "outside its source"),
        ({"data": PLAIN[:-1]}, "outside its source"),
        ({"data": b""}, "outside its source"),
        ({"rows_max": 0}, "range"),
        ({"bytes_max": 2**31}, "range"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        alone().read_one(**arguments(**change))


def test_another_batch_is_not_read_on_where_one_ended() -> None:
    reader, short = alone(), batch([record(b"v")] * 3)
    assert reader.read_one(**arguments(rows_max=7))[0]
    with pytest.raises(ValueError, match="outside the batch"):
        reader.read_one(**arguments(data=short, row=scan(short).rows[0]))
    reader.begin_one()
    assert reader.read_one(**arguments(data=short, row=scan(short).rows[0])) == (False, 0, 3)


OTHERS = {
    "longer values": batch([*SHAPES[-2::-1], record(b"larger" * 2000)]),
    "fewer bytes": batch([record(b"v")] * len(SHAPES)),
    "other nulls": batch([record(None, key=None)] * len(SHAPES)),
    "zeros": bytes(len(PLAIN)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_bytes_that_change_while_they_are_read_are_told(other: str) -> None:
    """The memory for a piece is asked for between the two looks at a batch."""
    data = bytearray(PLAIN)

    def changed(size: int) -> Any:
        data[61:] = OTHERS[other][61 : len(PLAIN)].ljust(len(PLAIN) - 61, b"\0")
        return np.empty(size, np.uint8)

    reader = alone(Blocks(changed, first_bytes=1000))
    with pytest.raises(ValueError, match="changed while they were read"):
        reader.read_one(**arguments(data=data))
    assert reader.take() is None
