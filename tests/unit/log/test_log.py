"""Log: a directory's segments as one row, its bounds, its damage, and files that go away."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest

import kseg
from kseg import Log, NotALogError, Segment, arrow
from kseg.format.values import RecordColumns
from kseg.log.reader import view
from kseg.log.recovery import Backup
from tests.builders import GZIP, batch, messages07, record, write_segment
from tests.unit.files.index_bytes import offset_index
from tests.unit.log.brute import rows


def one(offset: int, value: bytes = b"value", timestamp: int = 0) -> bytes:
    return batch([record(value, timestamp=timestamp)], base_offset=offset)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """`orders-3` with offsets 2 to 10 in four segments, the last one empty."""
    directory = tmp_path / "orders-3"
    for base in (2, 5, 8):
        write_segment(directory, base, *(one(at) for at in range(base, base + 3)))
    write_segment(directory, 11)
    return directory


def offsets(directory: Path, **where: object) -> list[int]:
    with Log.open(directory) as log:
        return [row["offset"] for row in rows(log.read(columns=("offset",), **where))]  # type: ignore[arg-type]


def test_a_log_knows_its_name_bounds_and_segments(orders: Path) -> None:
    with Log.open(orders) as log:
        assert (log.topic, log.partition) == ("orders", 3)
        assert [info.base_offset for info in log.segments] == [2, 5, 8, 11]
        assert [info.is_last for info in log.segments] == [False, False, False, True]
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (2, 11, 11)
        assert log.leader_epochs == ()
        assert repr(log) == f"Log({str(orders)!r}, 4 segments)"
    moved = orders.rename(orders.with_name("a copy"))
    with Log.open(moved) as log:
        assert (log.topic, log.partition, log.log_start_offset) == (None, None, 2)


def test_the_end_is_behind_the_last_whole_batch(orders: Path) -> None:
    tail = write_segment(orders, 11, one(11), one(12)[:-1])
    with Log.open(orders) as log:
        assert log.log_end_offset == 12
    offset_index(tail.with_suffix(".index"), [(0, len(one(11)))])
    with Log.open(orders) as log:
        assert log.log_end_offset == 12
    for garbage in (b"\xff" * 16, bytes(160), b"\x00\x00\x00\x01\x00\x00\x00\x07"):
        tail.with_suffix(".index").write_bytes(garbage)
        with Log.open(orders) as log:
            assert log.log_end_offset == 12
    for path in orders.glob("*.log"):
        path.write_bytes(b"")
    with Log.open(orders) as log:
        assert log.log_end_offset == 11


def test_directories_without_segments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALogError, match="empty"):
        Log.open(tmp_path)
    with pytest.raises(FileNotFoundError):
        Log.open(tmp_path / "nowhere")
    write_segment(tmp_path / "a-0", 0, one(0))
    with pytest.raises(NotALogError, match="not a partition"):
        Log.open(tmp_path)
    with pytest.raises(NotALogError):
        Log.open(tmp_path / "a-0" / f"{0:020d}.log")


# ---- directories that are none, or change --------------------------------------------------------


def test_a_segment_deleted_while_the_log_is_opened_is_left_out(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classified = view.classify_path
    first = orders / f"{2:020d}.log"

    def list_then_delete(path: Path) -> object:
        known = classified(path)
        first.unlink()
        return known

    monkeypatch.setattr(view, "classify_path", list_then_delete)
    with Log.open(orders) as log:
        assert [info.base_offset for info in log.segments] == [5, 8, 11]


NOW_MS = 1_760_000_000_000


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "orders-0"
    with kseg.Log.open(path, mode="append", create=True) as log:
        log.append(batch([record(timestamp=NOW_MS)]))
    return path


def test_what_keeps_old_indexes_is_a_backup(partition: Path, tmp_path: Path) -> None:
    index = partition / f"{0:020d}.index"
    index.write_bytes(b"\xff" * 8)
    backup = Backup(partition.parent, tmp_path / "backup", now_ms=NOW_MS)
    report = kseg.plan_reindex(partition).apply(backup=backup)
    assert [each.path for each in report.kept] == [index]
    assert {each.backup for each in report.kept} == {tmp_path / "backup"}


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
    "other numbers over them": (lambda piece: piece.timestamp_ms.view(np.uint8), bytes),
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
