"""`kseg.plan_x` of a path or of a `Log` gives a plan, and `.apply()` takes its steps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kseg
from kseg.frames import Table
from tests.builders import batch, record

CONFIG = kseg.LogConfig(
    cleanup_policy=("compact", "delete"),
    segment_bytes=300,
    retention_bytes=500,
    min_cleanable_dirty_ratio=0.0,
    min_compaction_lag_ms=0,
)
#: Plan functions for one partition, with arguments that change something.
PLANS: dict[str, Callable[..., Any]] = {
    "recovery": kseg.plan_recovery,
    "reindex": partial(kseg.plan_reindex, exact=True),
    "truncation": lambda given: kseg.plan_truncation(given, 3),
    "retention": partial(kseg.plan_retention, config=CONFIG),
    "compaction": partial(kseg.plan_compaction, config=CONFIG, force=True),
}


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Six batches of one key, each in a segment; `recover` and `reindex` have something to do."""
    path = tmp_path / "data" / "t-0"
    with kseg.Log.open(path, mode="append", create=True, config=CONFIG) as log:
        for number in range(6):
            log.append(batch([record(b"%d" % number + bytes(150), key=b"k")]))
    return path


def damage(name: str, path: Path) -> None:
    """Give recovery and reindexing something to do."""
    last = max(path.glob("*.log"))
    if name == "recovery":
        last.write_bytes(last.read_bytes() + b"torn")
        (path.parent / ".kafka_cleanshutdown").unlink()
    elif name == "reindex":
        min(path.glob("*.timeindex")).write_bytes(b"x" * 12)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("of_log", [False, True])
def test_a_plan_of_a_path_or_a_log_open_for_reading_applies_itself(
    name: str, of_log: bool, partition: Path
) -> None:
    damage(name, partition)
    if of_log:
        with kseg.Log.open(partition) as log:
            plan = PLANS[name](log)
    else:
        plan = PLANS[name](partition)
    assert not plan.is_noop
    assert plan.title.startswith(f"{partition}: ")
    assert plan.table_rows()
    report = plan.apply()
    assert isinstance(report, Table)
    again = PLANS[name](partition)
    assert again.is_noop
    assert set(plan.to_arrow().column_names) == set(again.to_arrow().column_names)
    for one in (plan, report):
        assert len(repr(one)) <= 500
        assert "<table>" in one._repr_html_()
        assert len(one.to_pandas()) == pa.table(one).num_rows == len(one.table_rows())


@pytest.mark.parametrize("name", ["retention", "compaction"])
def test_a_plan_of_a_log_open_for_appending_uses_it(name: str, partition: Path) -> None:
    with kseg.Log.open(partition, mode="append", config=CONFIG) as log:
        before = sum(each.size for each in log.segments)
        PLANS[name](log).apply()
        assert sum(each.size for each in log.segments) < before
        with pytest.raises(kseg.LogLockedError):
            PLANS[name](partition).apply()


@pytest.mark.parametrize("name", PLANS)
def test_a_stale_plan_is_refused(name: str, partition: Path) -> None:
    damage(name, partition)
    plan = PLANS[name](partition)
    if name in ("recovery", "reindex"):
        os.utime(min(partition.glob("*.log")), ns=(1, 1))
        (partition / "00000000000000000099.log").write_bytes(b"")
    else:
        kseg.plan_truncation(partition, 1).apply(keep_cut=False)
    before = sorted((one.name, one.stat().st_size) for one in partition.glob("*.log"))
    with pytest.raises(kseg.StalePlanError):
        plan.apply()
    assert sorted((one.name, one.stat().st_size) for one in partition.glob("*.log")) == before


def test_a_log_that_was_not_closed_well_is_refused(partition: Path) -> None:
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (partition.parent / name).unlink()
    for name in ("truncation", "retention", "compaction"):
        with pytest.raises(kseg.UncleanShutdownError):
            PLANS[name](partition).apply()


def test_salvage_and_merge_take_paths_and_logs(partition: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "t-0"
    shutil.copytree(partition, copy)
    with kseg.Log.open(partition) as log, kseg.Log.open(copy) as other:
        salvage = kseg.plan_salvage(log, out=tmp_path / "salvaged")
        merge = kseg.plan_merge(log, other, out=tmp_path / "merged")
    report = salvage.apply()
    assert report.path.exists()
    assert merge.apply().exists()
    for plan, out in ((salvage, "salvaged"), (report, "salvaged"), (merge, "merged")):
        assert plan.title.startswith(str(tmp_path / out))
        (row,) = plan.table_rows()
        assert (row["topic"], row["partition"]) == ("t", 0)
        assert pa.table(plan).num_rows == 1
    assert kseg.scan(tmp_path / "merged").count() == kseg.scan(tmp_path / "salvaged").count() == 6
