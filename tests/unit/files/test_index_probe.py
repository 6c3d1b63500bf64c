"""One question to an index by small reads has the answer of the index itself."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.files.index_probe import probe_offset, probe_upper_bound
from kseg.files.offset_index import IndexEntry, OffsetIndex

BASE = 1_000


def write(path: Path, entries: list[tuple[int, int]], *, empty_slots: int = 0) -> Path:
    packed = b"".join(struct.pack(">ii", relative, at) for relative, at in entries)
    path.write_bytes(packed + bytes(8 * empty_slots))
    return path


@st.composite
def indexes(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    count = draw(st.sampled_from([0, 1, 2, 3, 511, 512, 513, 1_500]))
    step = draw(st.integers(1, 5))
    entries = [(step * (slot + 1), 100 * (slot + 1)) for slot in range(count)]
    return entries, draw(st.sampled_from([0, 1, 700, 5_000]))


@given(indexes(), st.data())
def test_a_probe_answers_as_the_index_does(
    tmp_path_factory: pytest.TempPathFactory,
    made: tuple[list[tuple[int, int]], int],
    data: st.DataObject,
) -> None:
    entries, empty_slots = made
    path = write(tmp_path_factory.mktemp("probe") / "1000.index", entries, empty_slots=empty_slots)
    with OffsetIndex.open(path, BASE, mapping="never") as index:
        for _ in range(5):
            offset = BASE + data.draw(st.integers(-2, 8_000))
            position = data.draw(st.integers(0, 160_000))
            assert probe_offset(path, BASE, offset) == index.lookup(offset)
            assert probe_upper_bound(path, BASE, position) == index.fetch_upper_bound(position, 0)


def test_an_equal_position_in_the_first_slot_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "i", [(5, 50), (9, 90)])
    assert probe_upper_bound(path, BASE, 50) == IndexEntry(BASE + 9, 90)
    assert probe_upper_bound(path, BASE, 49) == IndexEntry(BASE + 5, 50)
    assert probe_upper_bound(path, BASE, 90) == IndexEntry(BASE + 9, 90)
    assert probe_upper_bound(path, BASE, 91) is None


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"\xff" * 800, b"\x80" * 9_000])
def test_garbage_leads_to_the_start_of_the_segment(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "i"
    path.write_bytes(content)
    assert probe_offset(path, BASE, BASE + 100) == IndexEntry(BASE, 0)


def test_a_missing_index_leads_to_the_start_of_the_segment(tmp_path: Path) -> None:
    assert probe_offset(tmp_path / "none", BASE, BASE + 100) == IndexEntry(BASE, 0)
    assert probe_upper_bound(tmp_path / "none", BASE, 0) is None
