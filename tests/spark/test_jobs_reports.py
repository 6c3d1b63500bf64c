"""Through a real Spark: its workers give the answers that one process gives."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kseg import diff, doctor, explain, plan_compaction
from kseg.analysis.stats import stats as stats_here
from kseg.analysis.units import Unit, UnitKind, run_units
from kseg.analysis.verify import VerifyOptions, examine, merge_all
from kseg.analysis.verify import verify as verify_here
from kseg.errors import KsegError, LogLockedError, NotALogError
from kseg.log import data_directory
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from kseg.log.recovery.reindex import plan_reindex
from kseg.spark import jobs
from kseg.spark.jobs import running
from kseg.spark.jobs.closed import CompactOptions, ReindexOptions
from kseg.times import time_ms
from tests.builders import batch, record, write_segment
from tests.unit.log.settings.made import FIRST, Broker, setting, topic
from tests.unit.log.settings.made import partition as placed

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("topics", "partitions", "wanted"),
    [("t", None, {"t-0", "t-1"}), (None, 1, {"t-1", "u-1"}), (["u"], [1], {"u-1"})],
)
def test_topics_and_partitions_choose_as_in_one_process(
    spark: SparkSession, tmp_path: Path, topics: Any, partitions: Any, wanted: set[str]
) -> None:
    for home in ("one", "two"):
        for name in ("t-0", "t-1", "u-1"):
            write_segment(tmp_path / home / name, 0, batch([record()]))
    asked = {"topics": topics, "partitions": partitions}
    one, both = str(tmp_path / "one"), [str(tmp_path / "one"), str(tmp_path / "two")]
    assert {each.dir for each in jobs.stats(spark, one, **asked).report.partitions} == wanted
    assert jobs.verify(spark, one, **asked).report == verify_here(one, **asked)
    (directory,) = jobs.doctor(spark, one, **asked).report.directories
    assert {Path(each.path).name for each in directory.partitions} == wanted
    compared = jobs.diff(spark, both, **asked).report.partitions
    assert {f"{each.topic}-{each.partition}" for each in compared} == wanted
    for run, paths in (
        (jobs.verify, one),
        (jobs.stats, one),
        (jobs.doctor, one),
        (jobs.diff, both),
    ):
        with pytest.raises((ValueError, NotALogError)):
            run(spark, paths, topics="none")


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every item in a task of its own."""
    monkeypatch.setattr(running, "TASK_BYTES_MIN", 1)
    monkeypatch.setattr(running, "TASKS_PER_CORE", 1 << 40)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of two segments each, one batch of them damaged."""
    for partition in (0, 1):
        for base in (0, 10):
            given = [record(b"v%d" % n, key=b"k%d" % (n % 3), timestamp=n) for n in range(10)]
            write_segment(tmp_path / "data" / f"t-{partition}", base,
                          batch(given, base_offset=base))  # fmt: skip
    log = tmp_path / "data" / "t-1" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    return tmp_path / "data"


# ---- the same answers ----------------------------------------------------------------------------


def test_verify_of_every_fixture_is_that_of_one_process(
    spark: SparkSession, fixture_cases: list[Path]
) -> None:
    found = jobs.verify(spark, fixture_cases, deep=True)
    assert found.report == verify_here(fixture_cases, deep=True)
    assert len(found.report.findings) > 100
    assert found.skipped == 0
    assert found.frame(spark).toArrow().to_pylist() == found.report.to_arrow().to_pylist()


def test_stats_of_every_fixture_are_those_of_one_process(
    spark: SparkSession, fixture_cases: list[Path]
) -> None:
    found = jobs.stats(spark, fixture_cases, top=3)
    here = [one.document() for one in stats_here(fixture_cases, top=3).partitions]
    assert [one.document() for one in found.report.partitions] == here
    assert found.frame(spark).toArrow().to_pylist() == found.report.to_arrow().to_pylist()


@pytest.mark.usefixtures("many_tasks")
def test_many_tasks_give_what_one_gives(spark: SparkSession, data: Path) -> None:
    told: list[tuple[int, int]] = []
    found = jobs.verify(spark, data, progress=lambda *at: told.append(at))
    assert found.report == verify_here(data)
    assert "batch-crc" in {finding.code for finding in found.report.findings}
    assert found.tasks == 7
    assert told[-1] == (7, 7)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


@pytest.mark.usefixtures("many_tasks")
def test_a_diff_of_two_directories_is_that_of_one_process(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    (other / "t-0" / f"{10:020}.log").unlink()
    found = jobs.diff(spark, [data, other])
    assert found.report == diff(data, other)
    assert found.report.totals == {"prefix": 1, "unknown": 1}


@pytest.fixture
def two_brokers(tmp_path: Path) -> tuple[Path, ...]:
    """Two brokers of one cluster; the second, which has two data directories, keeps for longer."""
    places = [("one", 1), ("two", 2), ("three", 2)]
    brokers = [Broker(tmp_path / name, node_id=node_id) for name, node_id in places]
    told = [placed(FIRST, number, [1, 2]) for number in range(3)]
    for one, kept_ms in zip(brokers, (1_000, 10**13), strict=False):
        kept = [setting("retention.ms", str(kept_ms)), setting("cleanup.policy", "delete")]
        spacing = setting("index.interval.bytes", "0" if kept_ms == 1_000 else "100000")
        one.says([topic("orders"), *kept, spacing, *told])
    for number, one in enumerate(brokers):
        path = one.has(f"orders-{number}")
        for base in range(3):
            write_segment(
                path, base, batch([record(b"v", timestamp=10**12 + base)], base_offset=base)
            )
    return tuple(one.path for one in brokers)


@pytest.mark.usefixtures("many_tasks")
def test_a_doctor_of_a_fleet_is_that_of_each_broker(
    spark: SparkSession, two_brokers: tuple[Path, ...], tmp_path: Path
) -> None:
    first, *second = two_brokers
    found = jobs.doctor(spark, two_brokers, fleet=True, job=tmp_path / "job")
    assert [one.node_id for one in found.reports] == [1, 2]
    for one, homes in zip(found.reports, ([first], second), strict=True):
        alone = doctor(homes)
        assert list(one.all_findings()) == list(alone.all_findings())
        assert [each.outcome for each in one.directories] == [
            each.outcome for each in alone.directories
        ]
    rows = found.frame(spark).toArrow().to_pylist()
    assert {(row["node_id"], row["code"]) for row in rows} >= {(1, "unclean"), (2, "unclean")}
    again = jobs.doctor(spark, two_brokers, fleet=True, job=tmp_path / "job")
    assert (found.skipped, again.tasks, again.skipped) == (0, 0, 5)
    with pytest.raises(ValueError, match=r"kseg: a server.properties is of one broker"):
        jobs.doctor(spark, two_brokers, fleet=True, broker_config=tmp_path / "none")


@pytest.mark.usefixtures("many_tasks")
def test_an_explanation_of_a_fleet_goes_by_each_brokers_own_settings(
    spark: SparkSession, two_brokers: tuple[Path, ...], tmp_path: Path
) -> None:
    how: dict[str, Any] = {"now_ms": 2 * 10**12, "what_if": {"retention.ms": "2000"}}
    first, *second = two_brokers
    found = jobs.explain(spark, two_brokers, job=tmp_path / "job", **how)
    parts = [*explain(first, **how).partitions, *explain(second, **how).partitions]
    assert found.report.partitions == tuple(sorted(parts, key=lambda one: one.path))
    causes = {
        one.topic and (one.partition, {row.cause for row in one.rows if row.base_offset == 0}.pop())
        for one in found.report.partitions
        if one.topic == "orders"
    }
    assert causes == {
        (0, "high-watermark"),
        (1, "younger-than-retention"),
        (2, "younger-than-retention"),
    }
    assert found.report.what_if == explain(two_brokers, **how).what_if
    again = jobs.explain(spark, two_brokers, job=tmp_path / "job", **how)
    assert (again.tasks, again.skipped) == (0, 5)
    assert (again.report.partitions, again.report.what_if) == (
        found.report.partitions,
        found.report.what_if,
    )
    rows = found.frame(spark).toArrow().to_pylist()
    assert [row["cause"] for row in rows] == [row.cause for row in found.report.rows()]


@pytest.mark.usefixtures("many_tasks")
def test_indexes_of_a_fleet_have_each_topics_own_spacing(
    spark: SparkSession, two_brokers: tuple[Path, ...]
) -> None:
    for home in two_brokers:
        logs = sorted((home / f"orders-{two_brokers.index(home)}").glob("*.log"))
        data = b"".join(batch([record(b"v")], base_offset=at) for at in range(4))
        logs[0].write_bytes(data)
        for log in logs[1:]:
            log.unlink()
    found = jobs.reindex(spark, two_brokers)
    counts = [segment.index_entries for plan in found.plans for segment in plan.segments]
    assert counts == [3, 0, 0]
    given = ReindexOptions(topic_config={"orders": {"index.interval.bytes": "0"}})
    found = jobs.reindex(spark, two_brokers, options=given)
    counts = [segment.index_entries for plan in found.plans for segment in plan.segments]
    assert counts == [3, 3, 3]
    given = ReindexOptions(config=LogConfig(index_interval_bytes=0))
    assert jobs.reindex(spark, two_brokers, options=given).settings_findings == ()


def test_a_task_may_begin_in_a_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with running._in_directory(str(tmp_path)):
        assert Path.cwd() == tmp_path
    monkeypatch.chdir(tmp_path.parent)
    with running._in_directory(str(tmp_path)):
        assert Path.cwd() == tmp_path
    assert Path.cwd() == tmp_path.parent


# ---- going on ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("many_tasks")
def test_what_is_finished_is_not_done_again(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    first = jobs.stats(spark, data, job=tmp_path / "job")
    again = jobs.stats(spark, data, job=tmp_path / "job")
    assert (first.tasks, first.skipped, again.tasks, again.skipped) == (6, 0, 0, 6)
    write_segment(data / "t-0", 20, batch([record(b"more")], base_offset=20))
    more = jobs.stats(spark, data, job=tmp_path / "job")
    # The new segment, its directory, and what was the last segment until now.
    assert (more.tasks, more.skipped) == (3, 4)
    here = [one.document() for one in stats_here(data).partitions]
    assert [one.document() for one in more.report.partitions] == here
    with pytest.raises(KsegError, match="another job"):
        jobs.verify(spark, data, job=tmp_path / "job")


@pytest.mark.usefixtures("many_tasks")
def test_a_worker_s_error_is_raised_here_when_all_else_is_finished(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    there, missing = data / "t-0" / f"{0:020}.log", tmp_path / f"{0:020}.log"
    units = [Unit(UnitKind.BATCHES, str(path)) for path in (missing, there)]
    work = partial(examine, options=VerifyOptions())

    def examined() -> tuple[jobs.SparkRunner, list[Any]]:
        runner = jobs.SparkRunner(lambda: spark, "verify", job=tmp_path / "job")
        return runner, list(run_units(units, work, threads=runner, merge=merge_all))

    with pytest.raises(FileNotFoundError, match=str(missing)):
        examined()
    shutil.copy(there, missing)
    runner, answers = examined()
    assert (runner.tasks, runner.skipped) == (1, 1)
    assert [answer.records for answer in answers] == [10, 10]


# ---- reindex -------------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Two data directories of the demo log, without some of their indexes."""
    demo = Path(running.__file__).parents[2] / "demo_data"
    for name in ("one", "two"):
        shutil.copytree(demo, tmp_path / name)
        for path in (tmp_path / name).glob("orders-*/*index"):
            path.unlink()
    return tmp_path


@pytest.mark.usefixtures("many_tasks")
def test_indexes_are_planned_as_here_and_made_anew(spark: SparkSession, bare: Path) -> None:
    homes = [bare / "one", bare / "two"]
    planned = jobs.reindex(spark, homes, job=bare / "job")
    here = [plan_reindex(plan.path) for plan in planned.plans]
    for name in ("actions", "findings"):
        assert [getattr(plan, name) for plan in planned.plans] == [
            getattr(plan, name) for plan in here
        ]
    assert len(planned.plans) == 24
    assert len(planned.actions) >= 2 * 2 * 7
    assert not planned.applied
    assert planned.frame(spark).count() == len(planned.actions)
    done = jobs.reindex(spark, homes, apply=True, job=bare / "job")
    assert done.skipped == 24
    assert done.applied
    assert done.actions == planned.actions
    again = jobs.reindex(spark, homes, job=bare / "job")
    assert (again.actions, again.findings, again.skipped) == ((), (), 20)
    assert verify_here(homes).findings == ()


# ---- compact -------------------------------------------------------------------------------------

COMPACTED = LogConfig(
    segment_bytes=400, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
)
COMPACT = CompactOptions(config={"cleanup.policy": "compact", "segment.bytes": "400"})


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """Two data directories with two partitions each, with 30 records of 2 keys."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with LogDirectory.open(tmp_path / name, mode="append", config=COMPACTED) as directory:
            for partition in (0, 1):
                log = directory.create("users", partition)
                for number in range(30):
                    log.append(batch([record(b"%d" % number, key=b"%d" % (number % 2))]))
                log.roll()
    return tmp_path


def last_values(path: Path) -> dict[bytes | None, bytes | None]:
    with Log.open(path) as log:
        return {one.key: one.value for one in log.records()}


@pytest.mark.usefixtures("many_tasks")
def test_logs_are_compacted_as_planned_here_and_a_run_goes_on(
    spark: SparkSession, users: Path
) -> None:
    homes = [users / "one", users / "two"]
    paths = [home / f"users-{number}" for home in homes for number in (0, 1)]
    options = replace(COMPACT, now_ms=date(2030, 1, 1))
    planned = jobs.compact(spark, homes, options=options, job=users / "job")
    assert [one.path for one in planned.partitions] == paths
    assert (planned.tasks, planned.skipped, planned.applied) == (4, 0, False)
    for one in planned.partitions:
        with Log.open(one.path) as log:
            assert one.plan is not None
            assert one.plan.now_ms == time_ms("2030-01-01")
            assert one.plan == plan_compaction(log, config=one.rules, now_ms=one.plan.now_ms)
            assert (one.plan.records, one.plan.kept_records) == (30, 2)
    rows = planned.frame(spark).toArrow().to_pylist()
    assert [row["saved_records"] for row in rows] == [28] * 4
    before = [last_values(path) for path in paths]
    done = jobs.compact(spark, homes, apply=True, options=options, job=users / "job")
    assert (done.skipped, done.tasks, done.applied, done.backups) == (4, 2, True, ())
    assert done.freed_bytes > 0
    assert [one.done.kept_records for one in done.partitions if one.done is not None] == [2] * 4
    assert [last_values(path) for path in paths] == before
    again = jobs.compact(spark, homes, apply=True, options=options, job=users / "job")
    assert (again.skipped, again.freed_bytes) == (0, 0)
    assert all(one.is_noop for one in again.partitions)
    assert not [one for one in verify_here(homes).findings if one.severity == "error"]


def test_damage_leaves_one_partition_alone_and_the_others_go_on(
    spark: SparkSession, users: Path
) -> None:
    log = users / "one" / "users-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    done = jobs.compact(spark, users / "one", apply=True, options=COMPACT)
    assert [one.finding is None for one in done.partitions] == [False, True]
    assert len(done.findings) == 1
    assert log.read_bytes() == data
    assert done.partitions[1].done is not None


def test_a_held_data_directory_is_told_and_others_are_compacted(
    spark: SparkSession, users: Path
) -> None:
    before = sorted(os.listdir(users / "one" / "users-0"))
    held = data_directory.enter(users / "one")
    try:
        with pytest.raises(LogLockedError, match=str(users / "one")):
            jobs.compact(spark, [users / "one", users / "two"], apply=True, options=COMPACT)
    finally:
        held.leave()
    assert sorted(os.listdir(users / "one" / "users-0")) == before
    (one, _) = jobs.compact(spark, users / "two", options=COMPACT).partitions
    assert one.is_noop


def test_old_segments_are_kept_where_it_is_asked_for(spark: SparkSession, users: Path) -> None:
    options = replace(COMPACT, backup_directory=str(users / "kept"))
    done = jobs.compact(spark, users / "one", apply=True, options=options)
    assert done.backups == (str(users / "kept"),)
    assert done.kept_bytes > 0
    assert list((users / "kept").rglob("*.log"))
