"""Former names of what is public: each still answers, and warns."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from kseg.log.recovery import Backup
from tests.builders import batch, record

NOW_MS = 1_760_000_000_000


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "orders-0"
    with kseg.Log.open(path, mode="append", create=True) as log:
        log.append(batch([record(timestamp=NOW_MS)]))
    return path


def test_what_keeps_old_indexes_is_a_backup(partition: Path, tmp_path: Path) -> None:
    index = partition / f"{0:020d}.index"
    index.write_bytes(b"\xff" * 8)
    backup = Backup(partition.parent, tmp_path / "backup", now_ms=NOW_MS)
    with pytest.warns(DeprecationWarning, match="backup"):
        report = kseg.apply_reindex(kseg.plan_reindex(partition), keeper=backup)
    assert [each.path for each in report.kept] == [index]
    assert {each.backup for each in report.kept} == {tmp_path / "backup"}


def test_what_a_log_has_published_is_its_version(partition: Path) -> None:
    with kseg.Log.open(partition, mode="append") as log:
        with pytest.warns(DeprecationWarning, match="version"):
            former = log.published
        assert former is log.version


def test_leftovers_of_a_plan_are_its_temporary_files(partition: Path) -> None:
    (partition / f"{9:020d}.log.deleted").write_bytes(b"")
    plan = kseg.plan_recovery(partition)
    with pytest.warns(DeprecationWarning, match="temporary_files"):
        former = plan.leftovers
    assert former == plan.temporary_files == (f"{9:020d}.log.deleted",)
