"""What can be proved of a copy: sound batches by offset, damaged bytes, lost offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.log.salvage.provable import read_provable
from kseg.log.salvage.values import LostOffsets, ProvablePartition
from tests.builders import write_segment
from tests.unit.analysis.copied import Told, told, write_copy

BASE = told(6)


def offsets(found: ProvablePartition) -> list[tuple[int, int]]:
    return [(run.first_offset, run.last_offset) for run in found.runs]


def lost(found: ProvablePartition) -> list[tuple[int, int | None, bool, bool]]:
    return [(one.first_offset, one.last_offset, one.at_most, one.bytes > 0) for one in found.lost]


def garble(directory: Path, base: int, batch: int, *, byte: int = 70) -> None:
    """Change one byte of a batch of two records; all of them are as long."""
    path = directory / f"{base:020d}.log"
    data = bytearray(path.read_bytes())
    at = sum(len(one.data) for one in BASE if base <= one.first < base + 2 * batch)
    data[at + byte] ^= 1
    path.write_bytes(data)


def test_where_compaction_left_holes_a_loss_is_an_upper_bound(tmp_path: Path) -> None:
    batches = [BASE[0], Told(2, 2, without=(2,)), *BASE[2:]]
    garble(write_copy(tmp_path / "t-0", batches), 6, 1)
    assert lost(read_provable(tmp_path / "t-0")) == [(8, 9, True, True)]


def test_without_a_sound_batch_all_is_lost(tmp_path: Path) -> None:
    path = write_copy(tmp_path / "t-0", BASE[:1])
    garble(path, 0, 0)
    found = read_provable(path)
    assert (offsets(found), lost(found)) == ([], [(0, None, False, True)])


def test_zeros_behind_the_last_batch_hide_nothing(tmp_path: Path) -> None:
    path = write_copy(tmp_path / "t-0", BASE[:1])
    with (path / f"{0:020d}.log").open("ab") as file:
        file.write(bytes(500))
    assert read_provable(path).lost == ()


def test_of_two_halves_in_the_wrong_order_neither_has_a_certain_place(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    write_segment(path, 0, *(one.data for one in (*BASE[3:], *BASE[:3])))
    found = read_provable(path)
    assert offsets(found) == []
    assert [(one.reason, one.batches) for one in found.unprovable] == [("offset-order", 3)] * 2


def test_the_larger_part_in_order_is_kept_and_the_rest_is_in_doubt(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    write_segment(path, 0, *(one.data for one in (BASE[5], *BASE[:5])))
    found = read_provable(path)
    assert offsets(found) == [(0, 9)]
    assert [(one.reason, one.places) for one in found.unprovable] == [("offset-order", ((10, 11),))]


def test_what_is_lost_says_how_many_records_and_where(tmp_path: Path) -> None:
    path = write_copy(tmp_path / "t-0", BASE)
    garble(path, 6, 1)
    size = len(BASE[4].data)
    (one,) = read_provable(path).lost
    log = str(path / f"{6:020d}.log")
    assert one == LostOffsets(8, 9, 2, False, log, len(BASE[3].data), size)


@pytest.mark.parametrize("left", [1, 12, 17, 26, 46, 60, 61, 70])
def test_a_batch_that_the_end_of_the_log_cuts_off_is_a_torn_tail(tmp_path: Path, left: int) -> None:
    write_segment(tmp_path / "t-0", 0, *(one.data for one in BASE[:3]), BASE[3].data[:left])
    found = read_provable(tmp_path / "t-0")
    assert [(one.reason, one.size) for one in found.unprovable] == [("torn-tail", left)]
