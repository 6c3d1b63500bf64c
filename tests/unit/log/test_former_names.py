"""Former names of what is public: each still answers, and warns."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from tests.builders import batch, record

NOW_MS = 1_760_000_000_000


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "orders-0"
    with kseg.Log.open(path, mode="append", create=True) as log:
        log.append(batch([record(timestamp=NOW_MS)]))
    return path


def test_leftovers_of_a_plan_are_its_temporary_files(partition: Path) -> None:
    (partition / f"{9:020d}.log.deleted").write_bytes(b"")
    plan = kseg.plan_recovery(partition)
    with pytest.warns(DeprecationWarning, match="temporary_files"):
        former = plan.leftovers
    assert former == plan.temporary_files == (f"{9:020d}.log.deleted",)
