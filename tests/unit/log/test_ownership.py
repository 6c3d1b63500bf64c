"""Columns own their bytes: whatever is kept of a piece stays as it was while the reader goes on."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest

from kseg import Segment, arrow
from kseg.format.columns import FIELDS
from kseg.format.values import RecordColumns
from tests.builders import GZIP, batch, messages07, record, write_segment

ROWS = 1000


@pytest.fixture(scope="module", params=["plain", "gzip", "07"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment of five pieces."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "07":
        sets = [messages07([b"%060d" % at] * 100) for at in range(50)]
        return write_segment(directory, 0, *sets, suffix=".kafka")
    codec = GZIP if request.param == "gzip" else 0
    given = [
        record(b"%060d" % at, key=b"%020d" % at, headers=[(b"h%d" % at, b"%d" % at)])
        for at in range(250)
    ]
    one = batch(given, codec=codec)
    parts = [(250 * at).to_bytes(8, "big") + one[8:] for at in range(20)]
    return write_segment(directory, 0, *parts)


#: What somebody may keep of a piece, dropping the rest, and what it then says.
KEPT: dict[str, tuple[Callable[[RecordColumns], Any], Callable[[Any], Any]]] = {
    "the piece": (lambda piece: piece, lambda piece: list(piece.value)),
    "a column": (lambda piece: piece.value, list),
    "its bytes": (lambda piece: piece.value.data, bytes),
    "a slice of numbers": (lambda piece: piece.offset[7:70], np.ndarray.tolist),
    "a view of them": (lambda piece: memoryview(piece.offset)[3:], memoryview.tolist),
    "other numbers over them": (lambda piece: piece.timestamp.view(np.uint8), bytes),
    "a header name": (lambda piece: piece.headers.keys, list),
    "a record batch": (arrow.to_record_batch, pa.RecordBatch.to_pylist),
    "a slice of an Arrow column": (
        lambda piece: arrow.to_record_batch(piece)["value"][5:50],
        lambda column: column.to_pylist(),
    ),
    "a Polars column": (
        lambda piece: polars.from_arrow(arrow.to_record_batch(piece))["value"],  # type: ignore[index]
        lambda column: column.to_list(),
    ),
    "an Arrow buffer": (lambda piece: arrow.to_record_batch(piece)["value"].buffers()[2], bytes),
    "its first objects": (
        lambda piece: [value for _, value in zip(range(9), piece.value, strict=False)],
        list,
    ),
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("mapping", ["always", "never"])
def test_what_is_kept_of_a_piece_stays(path: Path, mapping: Any, name: str) -> None:
    keep, read = KEPT[name]
    kept, then = [], []
    with Segment.open(path, mapping=mapping) as segment:
        for piece in segment.read(max_rows=ROWS):
            kept.append(keep(piece))
            then.append(read(kept[-1]))
            del piece
    assert len(kept) >= 5
    assert [read(one) for one in kept] == then
    assert len({pickle.dumps(said) for said in then}) >= (len(then) if name in UNLIKE else 1)


#: These differ from piece to piece in every log above.
UNLIKE = {"a slice of numbers", "a view of them", "a record batch"}


def test_the_memory_of_pieces_that_are_let_go_is_used_again(path: Path) -> None:
    """What the test above says would hold of itself if each piece had memory of its own."""
    places = []
    with Segment.open(path) as segment:
        for piece in segment.read(max_rows=ROWS):
            places.append(piece.offset.ctypes.data)
            del piece
    assert len(places) >= 5
    assert len(set(places)) < len(places)


def test_a_reader_left_in_the_middle_leaves_its_pieces_alone(path: Path) -> None:
    with Segment.open(path) as segment:
        whole = [np.array(piece.offset) for piece in segment.read(max_rows=ROWS, fields=FIELDS)]
        first, second = (segment.read(max_rows=ROWS, fields=FIELDS) for _ in range(2))
        pairs = [(next(first), next(second)) for _ in range(3)]
        first.close()
        del first
        rest = list(second)
    assert [one.offset.tolist() for one, _ in pairs] == [array.tolist() for array in whole[:3]]
    assert [two.offset.tolist() for _, two in pairs] == [array.tolist() for array in whole[:3]]
    assert [piece.offset.tolist() for piece in rest] == [array.tolist() for array in whole[3:]]
