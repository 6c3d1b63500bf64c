"""Base offsets and leader epochs, which no checksum covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.log.salvage.provable import read_provable
from kseg.log.salvage.values import ProvablePartition
from tests.builders import write_segment
from tests.unit.analysis.copied import told, write_copy

BASE = told(6)
SIZE = len(BASE[0].data)


def kept(found: ProvablePartition) -> list[int]:
    """Each offset that a run covers."""
    return [at for run in found.runs for at in range(run.first_offset, run.last_offset + 1)]


def overwrite(directory: Path, batch: int, at: int, data: bytes) -> None:
    """Write over bytes of a batch; each segment has three."""
    path = directory / f"{batch // 3 * 6:020d}.log"
    content = bytearray(path.read_bytes())
    start = sum(len(one.data) for one in BASE[batch // 3 * 3 : batch]) + at
    content[start : start + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize("batch", range(5))
@pytest.mark.parametrize("wrong", [1 << 6, 1 << 20])
def test_a_batch_with_another_base_offset_is_not_placed_where_that_says(
    tmp_path: Path, batch: int, wrong: int
) -> None:
    write_copy(tmp_path / "t-0", BASE)
    overwrite(tmp_path / "t-0", batch, 0, wrong.to_bytes(8, "big"))
    found = read_provable(tmp_path / "t-0")
    assert kept(found) == [at for at in range(12) if at // 2 != batch]
    assert [(one.reason, one.size) for one in found.unprovable] == [
        ("offset-order", len(BASE[batch].data))
    ]
    assert [(one.first_offset, one.last_offset) for one in found.lost] == [
        (2 * batch, 2 * batch + 1)
    ]


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2), (0, 2), (1, 4), (0, 5), (2, 3)])
def test_two_batches_that_are_swapped_are_both_kept(tmp_path: Path, one: int, other: int) -> None:
    order = list(range(6))
    order[one], order[other] = other, one
    batches = [BASE[number].data for number in order]
    write_segment(tmp_path / "t-0", 0, *batches[:3])
    write_segment(tmp_path / "t-0", 6, *batches[3:])
    found = read_provable(tmp_path / "t-0")
    assert kept(found) == list(range(12))
    assert (found.unprovable, found.lost) == ((), ())


@pytest.mark.parametrize("batch", range(5))
@pytest.mark.parametrize("epoch", [7, 2])
def test_a_batch_with_another_leader_epoch_is_left_out(
    tmp_path: Path, batch: int, epoch: int
) -> None:
    batches = told(6, epoch=4)
    write_copy(tmp_path / "t-0", batches)
    overwrite(tmp_path / "t-0", batch, 12, epoch.to_bytes(4, "big"))
    found = read_provable(tmp_path / "t-0")
    first = batch == 0 and epoch < 4  # nothing falls
    assert kept(found) == [at for at in range(12) if first or at // 2 != batch]
    assert [one.reason for one in found.unprovable] == ([] if first else ["epoch-order"])


def test_epochs_that_fall_for_more_than_one_batch_leave_all_of_them(tmp_path: Path) -> None:
    write_copy(tmp_path / "t-0", [*told(3, epoch=5), *told(3, epoch=3, start=6)])
    assert kept(read_provable(tmp_path / "t-0")) == list(range(12))


def test_epochs_that_rise_are_in_order(tmp_path: Path) -> None:
    write_copy(tmp_path / "t-0", [*told(3, epoch=3), *told(3, epoch=5, start=6)])
    assert kept(read_provable(tmp_path / "t-0")) == list(range(12))
