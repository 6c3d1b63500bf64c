"""Cutting a log that nobody holds: the plan, carrying it out, and what stops that."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from kseg.log.validate.rules import AppendOrigin
from tests.builders import batch, control_batch, record

NOW_MS = 1_760_000_000_000
CONFIG = kseg.LogConfig(segment_bytes=500)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Batches of two records at 0, 2 | 4, 6 | 8, in segments at 0, 4 and 8."""
    path = tmp_path / "data" / "orders-0"
    given = [record(bytes(80), timestamp=NOW_MS)] * 2
    with kseg.Log.open(path, mode="append", create=True, config=CONFIG) as log:
        for number in range(5):
            log.append(batch(given), leader_epoch=number // 2)
    return path


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_marker_that_goes_leaves_its_transaction_open(tmp_path: Path, snapshots: bool) -> None:
    path = tmp_path / "data" / "t-0"
    given = [record(bytes(80), timestamp=NOW_MS)]
    with kseg.Log.open(path, mode="append", create=True, config=CONFIG) as log:
        for producer_id in (7, 8, 9):
            who = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
            log.append(batch(given * 2, base_sequence=0, **who), leader_epoch=0)
        for producer_id in (7, 8):
            marker = control_batch(producer_id == 7, producer_id=producer_id)
            log.append(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    for snapshot in [] if snapshots else path.glob("*.snapshot"):
        snapshot.unlink()
    lost = {8: (), 7: ((8, 2),), 6: ((7, 0), (8, 2)), 3: ((7, 0),), 1: ()}
    for offset, left_open in lost.items():
        plan = kseg.plan_truncation(path, offset)
        assert plan.left_open == left_open
        assert str(plan).count("loses its marker and stays open") == len(left_open)


def test_a_negative_offset_is_refused(partition: Path) -> None:
    with pytest.raises(ValueError, match="cannot end at -1"):
        kseg.plan_truncation(partition, -1)
