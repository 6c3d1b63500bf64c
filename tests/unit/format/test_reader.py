"""Pieces grow in the measure of what a caller keeps, and not by what a file says."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kseg import Log, Segment, scan
from kseg.files import mapping
from kseg.files.mapping import HUGE_BYTES, private_memory
from kseg.format import reader
from kseg.format.reader import PIECE_BYTES, STREAMED_BYTES, Use, Workspace
from tests.builders import batch, record, write_segment

FIELDS = ("offset", "timestamp", "key", "value")


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 MB in two segments; one record has no time."""
    directory = tmp_path_factory.mktemp("tables") / "orders-0"
    for base in (0, 60_000):
        times = [record(b"v" * 100, key=b"k" * 9, timestamp=at) for at in range(500)]
        if base:
            times[400] = record(b"v" * 100, key=None, timestamp=-1)
        batches = [batch(times, base_offset=base + 500 * at) for at in range(90)]
        write_segment(directory, base, *batches)
    return directory


def sizes(use: Use, kept: int, pieces: int = 20) -> list[int]:
    """The sizes of pieces of which a caller keeps the latest so many."""
    memory, held, found = Workspace(use=use, fresh=private_memory).blocks, [], []
    for _ in range(pieces):
        size = memory.piece_bytes()
        held.append(memory.take(2 * size, size, [] if size > STREAMED_BYTES else None))
        found.append(size)
        del held[: max(0, len(held) - kept)]
    return [size // PIECE_BYTES for size in found]


@pytest.mark.parametrize("kept", [1, 2, 6])
def test_who_lets_go_gets_the_same_memory_again(kept: int) -> None:
    first = kept + 1
    assert sizes("streamed", kept) == [1] * first + [2] * (20 - first)
    assert sizes("held", 20) == [1] * 20


def test_who_keeps_all_gets_larger_pieces_up_to_a_bound() -> None:
    assert sizes("streamed", 20)[:13] == [1] * 8 + [8, 16, 32, 64, 64]
    assert sizes("kept", 20, 6) == [1, 4, 20, 100, 500, 2048]


def test_who_lets_go_late_gets_small_pieces_again() -> None:
    memory = Workspace(use="streamed").blocks
    held = [memory.take(2 * PIECE_BYTES, memory.piece_bytes()) for _ in range(8)]
    assert memory.piece_bytes() == 8 * PIECE_BYTES
    del held[3]
    assert memory.piece_bytes() == STREAMED_BYTES


def test_mapped_memory_goes_back_with_its_last_view() -> None:
    address = 0

    def is_mapped() -> bool:
        lines = Path("/proc/self/maps").read_text().splitlines()
        ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in lines]
        return any(low <= address < high for low, high in ranges)

    block = private_memory(40 << 20, [(0, 10 << 20), (30 << 20, 45 << 20)])
    address = block.ctypes.data + (20 << 20)
    assert (address % HUGE_BYTES, len(block)) == (0, 40 << 20)
    block[[0, -1]] = 1
    view = block[5:].view(np.uint8)[-10:]
    del block
    gc.collect()
    assert is_mapped()
    del view
    gc.collect()
    assert not is_mapped()


@pytest.mark.parametrize("size", [1, HUGE_BYTES - 1, HUGE_BYTES, 3 * HUGE_BYTES + 1])
def test_huge_pages_are_asked_for_within_bounds(size: int) -> None:
    for start, end in ((0, size), (0, 2 * size + HUGE_BYTES), (size, 3 * size), (size, 0)):
        block = private_memory(size, [(start, end)])
        block[:] = 7
        assert int(block.sum()) == 7 * size


def test_a_system_without_private_maps_gives_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "_PRIVATE", 0)
    assert len(private_memory(HUGE_BYTES, [(0, HUGE_BYTES)])) == HUGE_BYTES


def test_tables_have_few_chunks_and_the_rows_of_the_pieces(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reader.GROWTH["streamed"], "least_kept", 2)
    found = scan(orders, columns=FIELDS)
    pieces = [piece for piece in found]
    expected = pa.concat_tables([scan(orders, columns=FIELDS, max_rows=700).to_arrow()])
    ways: list[Any] = [pa.table(found), found.to_arrow()]
    for table in ways:
        table.validate(full=True)
        assert table.equals(expected)
        assert table["value"].num_chunks <= 10 < len(pieces)
    assert expected["value"].num_chunks > 100
    times = expected["timestamp"]
    assert times.null_count == 90
    assert sum(chunk.buffers()[0] is not None for chunk in ways[1]["timestamp"].chunks) <= 3


def test_bounds_that_are_set_hold_for_streams_and_tables(orders: Path) -> None:
    for table in (
        pa.table(scan(orders, columns=FIELDS, max_rows=700)),
        scan(orders, columns=FIELDS, max_rows=700).to_arrow(),
    ):
        assert max(len(chunk) for chunk in table["offset"].chunks) <= 700


def test_logs_and_segments_grow_too(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reader.GROWTH["streamed"], "least_kept", 2)
    with Log.open(orders) as log, Segment.open(orders / f"{0:020}.log") as segment:
        assert pa.table(log)["value"].num_chunks <= 10
        assert pa.table(segment)["value"].num_chunks <= 7
