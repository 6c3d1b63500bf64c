"""`kseg retain`: what is planned, what is done, and what is kept of it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from kseg.log.log import Log
from tests import full_disk
from tests.golden import made
from tests.unit.cli.conftest import Kseg, made_in

NOW = "2025-10-09T08:53:20Z"
#: What is assumed of no topic.
RETENTION = ("--config", "retention.ms=604800000")
A_WEEK = ("--now", NOW, *RETENTION)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.aged)


def everything(directory: Path) -> dict[str, tuple[bytes, int]]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in found
    }


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("point", "deleted_to", "goes"), [(3, 0, 2), (2, 0, 2), (1, 0, 1), (1, 2, 1)]
)
def test_closed_segments_in_front_of_the_recovery_point_need_no_recovery(
    kseg: Kseg, data: Path, full: bool, point: int, deleted_to: int, goes: int
) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    if deleted_to:
        starts = data / "log-start-offset-checkpoint"
        starts.write_text(f"0\n1\norders 0 {deleted_to}\n")
    points = data / "recovery-point-offset-checkpoint"
    points.write_text(f"0\n1\norders 0 {point}\n")
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    with full_disk.full() if full else nullcontext():
        ran = kseg("retain", data, *A_WEEK, "--no-backup", "--apply")
    assert ran.code == 0, ran.err
    left = [each.name for each in sorted((data / "orders-0").glob("*.log"))]
    assert left == [f"{base:020d}.log" for base in range(goes, 4)]
    start = max(goes, deleted_to)
    assert (data / "orders-0" / "leader-epoch-checkpoint").read_text() == f"0\n1\n0 {start}\n"
    assert not (data / ".kafka_cleanshutdown").exists()
    assert ("stay until a recovery" in ran.text) == (goes == 1)
    assert kseg("recover", data, "--apply").code == 0
    assert kseg("verify", "--deep", data).code == 0
    with Log.open(data / "orders-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (start, 4)
