from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptIndexError, OffsetOverflowError, OffsetsOutOfOrderError
from kseg.files import io
from kseg.files.index_writer import OffsetIndexWriter, TimeIndexWriter
from tests.segments import offset_entries, time_entries
from tests.unit.files import index_bytes

KINDS = [OffsetIndexWriter, TimeIndexWriter]


def fill(add: Callable[[int, int], object], entries: Iterable[tuple[int, int]]) -> None:
    for entry in entries:
        add(*entry)


def refuse(*_arguments: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_no_file_before_the_first_use(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "x"
    index = kind.open(path, 0, bytes_max=100)
    assert not index.opened
    index.close()
    assert not path.exists()
    index = kind.open(path, 0, bytes_max=100)
    index.flush()
    assert path.stat().st_size == 100 // kind.ENTRY.size * kind.ENTRY.size
    index.close()
    assert path.stat().st_size == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [-1, 0, 7, 2**31])
def test_no_index_has_such_a_size(kind: Any, size: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="are not a possible size of an index"):
        kind.open(tmp_path / "x", 0, bytes_max=size)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_that_do_not_count_are_gone(kind: Any, tmp_path: Path) -> None:
    make = index_bytes.offset_index if kind is OffsetIndexWriter else index_bytes.time_index
    path = make(tmp_path / "x", [(1, 1), (2, 2), (3, 3), (4, 4)])
    whole = path.read_bytes()
    size = kind.ENTRY.size
    with kind.open(path, 0, bytes_max=80, used=3) as index:
        assert (index.count, index.slots) == (3, 4)
        assert path.read_bytes() == whole[: 3 * size] + bytes(size)
    with kind.open(path, 0, bytes_max=80, used=9) as index:
        assert (index.count, index.slots) == (3, 3)


def test_a_cut_that_stops_half_way_leaves_a_sound_index(tmp_path: Path) -> None:
    cuts = 0

    def once(fd: int, size: int) -> None:
        nonlocal cuts
        cuts += 1
        if cuts > 1:
            refuse()
        os.ftruncate(fd, size)

    with OffsetIndexWriter.open(tmp_path / "x", 0, bytes_max=80) as index:
        fill(index.append, [(1, 10), (2, 20), (3, 30)])
        with io.calls_replaced(io.Calls(ftruncate=once)), pytest.raises(OSError, match="No space"):
            index.truncate_to(2)
        assert (index.count, index.slots, index.last_offset, index.is_full) == (1, 1, 1, True)
        index.resize(80)
        index.append(2, 21)
        assert offset_entries(tmp_path / "x")[:3] == [(1, 10), (2, 21), (0, 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_form_or_no_room_is_refused(kind: Any, tmp_path: Path) -> None:
    with kind.open(tmp_path / "x", 40, bytes_max=24) as index:
        for offset in (39, 40 + 2**31, -1):
            with pytest.raises(OffsetOverflowError):
                index.append(offset, 5) if kind is KINDS[0] else index.maybe_append(5, offset)
        with pytest.raises(ValueError, match="entries more"):
            index.append_packed(bytes(24 + kind.ENTRY.size), (9, 9))
        assert index.count == 0
        index.append_packed(bytes([1] * kind.ENTRY.size), (50, 50))
        index.clear()
    assert (tmp_path / "x").read_bytes() == b""


def test_oix_06_07_an_entry_that_is_refused_or_fails_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with OffsetIndexWriter.open(path, 0, bytes_max=24) as index:
        index.append(1, 1)
        for offset in (0, 1):
            with pytest.raises(OffsetsOutOfOrderError, match="not above 1"):
                index.append(offset, 2)
        with io.calls_replaced(io.Calls(pwritev=refuse)), pytest.raises(OSError, match="No space"):
            index.append(2, 2)
        assert (index.count, index.last_offset) == (1, 1)
        fill(index.append, [(2, 2), (3, 3)])
        with pytest.raises(ValueError, match="0 entries more"):
            index.append(4, 4)
    assert offset_entries(path) == [(1, 1), (2, 2), (3, 3)]


def test_a_time_that_says_nothing_new_gets_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with TimeIndexWriter.open(path, 0, bytes_max=48) as index:
        fill(index.maybe_append, [(5, 1), (5, 2), (6, 3), (7, 4)])
        with pytest.raises(ValueError, match="is full"):
            index.maybe_append(8, 5)
        with pytest.raises(ValueError, match="6 ms is below 7"):
            index.maybe_append(6, 9, skip_full_check=True)
    assert time_entries(path) == [(5, 1), (6, 3), (7, 4)]


def test_a_file_that_somebody_shortened_is_corrupt(tmp_path: Path) -> None:
    with OffsetIndexWriter.open(tmp_path / "x", 0, bytes_max=80_000) as index:
        fill(index.append, [(n + 1, n) for n in range(5000)])
        os.truncate(tmp_path / "x", 8)
        with pytest.raises(CorruptIndexError, match="shorter than its entries"):
            index.truncate_to(2500)
        index.close(trim=False)


@given(data=st.data())
def test_a_cut_leaves_the_entries_below_an_offset(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("index")
    offsets = sorted(data.draw(st.sets(st.integers(101, 400), max_size=50)))
    with (
        OffsetIndexWriter.open(directory / "o", 100, bytes_max=8 * 50) as index,
        TimeIndexWriter.open(directory / "t", 100, bytes_max=12 * 51) as times,
    ):
        fill(index.append, [(o, 3 * o) for o in offsets])
        fill(times.maybe_append, [(7 * o, o) for o in offsets])
        cut = data.draw(st.integers(90, 410))
        left = [o for o in offsets if o < cut]
        for one in (index, times):
            assert one.truncate_to(cut) == len(offsets) - len(left)
            assert one.count == len(left)
