"""What watches kseg's own way of loading sees what it is there for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.log.recovery.recover import RecoveryPlan, plan_recovery
from tests.builders import batch, record
from tests.interop import careful

NAME = f"{0:020d}.log"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three batches, and noise behind them."""
    path = tmp_path / "data" / "t-0"
    path.mkdir(parents=True)
    data = b"".join(batch([record(b"%d" % at)], base_offset=at) for at in range(3))
    (path / NAME).write_bytes(data + b"noise")
    return path


def mended(path: Path) -> tuple[careful.Logs, RecoveryPlan, Path]:
    before = careful.logs_in(path)
    plan = plan_recovery(path, clean=False)
    kept = path.parent.parent / "kept"
    plan.apply(backup_directory=kept)
    careful.check(before, plan, path, kept)
    return before, plan, kept


def test_a_sound_front_stays_and_what_is_cut_is_kept(partition: Path) -> None:
    before, plan, kept = mended(partition)
    assert plan.truncated_bytes == len(b"noise")
    shutil.rmtree(kept)
    with pytest.raises(AssertionError, match="are nowhere"):
        careful.check(before, plan, partition, kept)


def test_a_batch_less_is_seen_though_it_is_kept(partition: Path) -> None:
    before, plan, kept = mended(partition)
    log = partition / NAME
    data = log.read_bytes()
    size = len(data) // 3
    log.write_bytes(data[:-size])
    (kept / "t-0" / f"{NAME}.from-{2 * size}").write_bytes(data[-size:])
    with pytest.raises(AssertionError, match=f"sound up to {3 * size}, and {2 * size} bytes"):
        careful.check(before, plan, partition, kept)


def test_other_bytes_than_before_are_seen(partition: Path) -> None:
    before, plan, kept = mended(partition)
    data = (partition / NAME).read_bytes()
    (partition / NAME).write_bytes(data[:-1] + b"!")
    with pytest.raises(AssertionError, match="other bytes"):
        careful.check(before, plan, partition, kept)


def test_an_index_that_does_not_fit_is_seen(partition: Path) -> None:
    before, plan, kept = mended(partition)
    with (partition / NAME.replace(".log", ".timeindex")).open("ab") as file:
        file.write(b"!")
    with pytest.raises(AssertionError, match="time-index"):
        careful.check(before, plan, partition, kept)
