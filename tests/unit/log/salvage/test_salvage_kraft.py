"""The log of KRaft: whole batches up to its first gap, unless a snapshot covers it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg import SalvagePlan, apply_salvage, plan_salvage
from kseg.constants import ControlType
from tests.builders import control_batch
from tests.unit.analysis.copied import told, write_copy

BASE = told(9)
NAME = "__cluster_metadata-0"


def damaged(home: Path) -> Path:
    """Batches of two offsets, three in a segment; that of offsets 8 and 9 is damaged."""
    directory = write_copy(home / NAME, BASE)
    path = directory / f"{6:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(BASE[3].data) + 70] ^= 1
    path.write_bytes(data)
    (directory / "quorum-state").write_text("{}")
    return directory


def snapshot(directory: Path, end: int, *, whole: bool = True) -> Path:
    parts = [control_batch(ControlType.SNAPSHOT_HEADER, base_offset=0)]
    parts += [control_batch(ControlType.SNAPSHOT_FOOTER, base_offset=1)] if whole else []
    path = directory / f"{end:020d}-{0:010d}.checkpoint"
    path.write_bytes(b"".join(parts))
    return path


def salvaged(directory: Path, out: Path) -> SalvagePlan:
    plan = plan_salvage(directory, out=out)
    apply_salvage(plan)
    return plan


def test_what_stands_behind_the_first_gap_is_listed_and_not_kept(tmp_path: Path) -> None:
    directory = damaged(tmp_path / "in")
    plan = salvaged(directory, tmp_path / "out")
    (partition,) = plan.partitions
    assert (partition.log_end_offset, plan.ok) == (8, False)
    behind = [one for one in partition.unprovable if one.reason == "behind-gap"]
    assert [(one.first_offset, one.last_offset) for one in behind] == [(10, 11), (12, 17)]
    assert (tmp_path / "out" / NAME / "quorum-state").read_text() == "{}"
    logs = sorted(path.name for path in (tmp_path / "out" / NAME).glob("*.log"))
    assert logs == [f"{0:020d}.log", f"{6:020d}.log"]


@pytest.mark.parametrize(("end", "whole", "kept"), [(10, True, 18), (10, False, 8), (8, True, 8)])
def test_a_sound_snapshot_that_covers_the_gap_lets_it_go_on(
    tmp_path: Path, end: int, whole: bool, kept: int
) -> None:
    directory = damaged(tmp_path / "in")
    path = snapshot(directory, end, whole=whole)
    plan = salvaged(directory, tmp_path / "out")
    assert plan.partitions[0].log_end_offset == kept
    assert (tmp_path / "out" / NAME / path.name).exists() is whole
