"""What goes with a recovery, as its plan says, and what that comes to when it is applied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.log.recovery.recover import RecoveryPlan, plan_recovery
from tests import reference
from tests.unit.log import damaged
from tests.unit.log.damaged import logs


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Six segments, not closed in good order."""
    return damaged.write(tmp_path / "data", close=False)


def batches(path: Path) -> list[reference.Batch]:
    return reference.walk(path.read_bytes()).batches


def patched(path: Path, position: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(new)] = new
    path.write_bytes(bytes(data))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def with_zeros(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(500))


def not_its_checksum(path: Path) -> None:
    patched(path, batches(path)[0].size - 1, b"\xff")


@pytest.mark.parametrize(
    ("change", "code", "sound_behind"),
    [
        (cut_short, "torn-tail", [0]),
        (with_zeros, "zero-tail", []),
        (not_its_checksum, "batch-crc", None),
    ],
)
def test_ends_of_the_last_segment(
    partition: Path, change: Callable[[Path], None], code: str, sound_behind: list[int] | None
) -> None:
    last = logs(partition)[-1]
    count = len(batches(last))
    change(last)
    plan = plan_recovery(partition, clean=False)
    assert [finding.code for finding in plan.findings] == [code]
    expected = [count - 1] if sound_behind is None else sound_behind
    assert [lost.sound_behind for lost in plan.lost] == expected


def test_what_a_plan_says_is_what_goes(partition: Path) -> None:
    before = {f.base_offset: f.record_count for path in logs(partition) for f in batches(path)}
    path = logs(partition)[2]
    patched(path, batches(path)[0].size - 1, b"\xff")
    copy = partition.parent.with_name("other") / partition.name
    shutil.copytree(partition, copy)
    plan: RecoveryPlan = plan_recovery(copy, clean=False)
    plan.apply(keep_cut=False)
    after = {f.base_offset for path in logs(copy) for f in batches(path)}
    assert sum(lost.records or 0 for lost in plan.lost) == sum(
        count for base, count in before.items() if base not in after
    )


def test_a_sound_log_loses_nothing(partition: Path) -> None:
    assert plan_recovery(partition, clean=False).lost == ()
    assert plan_recovery(partition, clean=True).lost == ()
