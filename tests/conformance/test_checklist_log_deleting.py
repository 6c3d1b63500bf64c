"""LocalLog and UnifiedLog, one claim a test: what happens to the files that a log gives up.

The claims are those of Kafka's tests on deleting segments. Kafka's scheduler removes them when
their time has come; here whoever changes the log next does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.errors import KsegError
from kseg.files.grammar import parse_partition_dir, suffixed_directory
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from tests.conformance.logs import ONE, Logs, bases, named, offsets, one, snapshots

DELAY_MS = 60_000
UUID = "0123456789abcdef" * 2


def rolled(logs: Logs, count: int, **how: object) -> Log:
    """A log of so many segments with one record each; every record has a producer of its own."""
    log = logs.new(segment_bytes=ONE + ONE // 2, **how)
    for producer in range(count):
        log.append(one(producer_id=producer, producer_epoch=0, base_sequence=0))
    assert bases(log) == list(range(count))
    return log


@pytest.fixture
def data(logs: Logs) -> Iterator[LogDirectory]:
    """A data directory with the partition `t-0`, which has two records in two segments."""
    config = LogConfig(segment_bytes=ONE, file_delete_delay_ms=DELAY_MS)
    path = logs.directory().parent
    with LogDirectory.open(path, mode="append", config=config, now_ms=logs.clock) as made:
        log = made.create("t", 0)
        log.append(one())
        log.append(one())
        yield made


def test_loc_01_a_deleted_log_takes_nothing_more_and_its_directory_waits(
    data: LogDirectory,
) -> None:
    log = data.logs["t", 0]
    renamed = data.delete("t", 0)
    with pytest.raises(KsegError, match="closed"):
        log.append(one())
    assert not log.path.exists()
    assert len(list(renamed.glob("*.log"))) == 2
    assert ("t", 0) not in data.logs


def test_loc_03_mgr_12_a_deleted_log_is_gone_with_its_directory_when_its_time_has_come(
    data: LogDirectory, logs: Logs
) -> None:
    renamed = data.delete("t", 0)
    logs.clock.sleep(DELAY_MS - 1)
    assert data.delete_due() == ()
    logs.clock.sleep(1)
    assert data.delete_due() == (renamed,)
    assert not renamed.exists()


def test_loc_10_all_segments_can_go_at_once(logs: Logs) -> None:
    log = rolled(logs, 10)
    log.truncate_fully_and_start_at(100)
    assert bases(log) == [100]
    assert len(named(log, "*.log.deleted")) == 10
    logs.clock.sleep(DELAY_MS)
    log.delete_old_segments()
    assert named(log, "*.deleted") == []
    assert named(log, "*.log") == ["100.log"]


@pytest.mark.parametrize("delay_ms", [0, DELAY_MS])
def test_loc_11_files_wait_under_another_name_until_their_time_has_come(
    logs: Logs, delay_ms: int
) -> None:
    log = rolled(logs, 3, retention_bytes=ONE, file_delete_delay_ms=delay_ms)
    log.flush()
    going = [name for name in named(log, "0*") if name[0] in "01" and name != "1.snapshot"]
    log.delete_old_segments()
    assert bases(log) == [2]
    assert not {*going} & {*named(log, "0*")}
    waiting = [f"{name}.deleted" for name in going] if delay_ms else []
    assert {*waiting} <= {*named(log, "*.deleted")}
    logs.clock.sleep(DELAY_MS - 1)
    log.delete_old_segments()
    assert {*waiting} <= {*named(log, "*.deleted")}
    logs.clock.sleep(1)
    log.delete_old_segments()
    assert named(log, "*.deleted") == []


def test_loc_21_a_directory_that_goes_has_a_name_of_its_own() -> None:
    name = suffixed_directory("foo", 3, "delete", UUID)
    assert name == f"foo-3.{UUID}-delete"
    assert parse_partition_dir(name).suffix == "delete"
    long = suffixed_directory("n" * 249, 3, "delete", UUID)
    assert (len(long), long.count("n")) == (255, 213)
    assert parse_partition_dir(long).topic == "n" * 213


def test_loc_26_a_log_whose_directory_is_gone_is_not_said_to_be_flushed(logs: Logs) -> None:
    log = logs.new()
    log.append(one())
    log.path.rename(log.path.with_name("elsewhere"))
    # Kafka passes over it, since its broker deletes partitions under its own logs.
    with pytest.raises((OSError, KsegError)):
        log.flush()
    assert log.recovery_point == 0


def test_ul_084_the_snapshot_at_a_deleted_base_goes_with_it(logs: Logs) -> None:
    log = rolled(logs, 3, retention_bytes=0)
    assert snapshots(log) == [1, 2]
    log.delete_old_segments()
    assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (3, 3, [])
    assert snapshots(log) == [3]
    assert named(log, "*.snapshot.deleted") == ["1.snapshot.deleted", "2.snapshot.deleted"]


def test_ul_085_087_a_later_start_and_retention_take_snapshots_but_no_producers(logs: Logs) -> None:
    log = rolled(logs, 3, file_delete_delay_ms=1000)
    assert snapshots(log) == [1, 2]
    log.delete_records_before(2)
    log.delete_old_segments()
    assert (bases(log), snapshots(log)) == ([2], [2])
    logs.clock.sleep(1001)
    log.delete_old_segments()
    assert named(log, "*.deleted") == []
    assert sorted(log.state.producers.entries) == [0, 1, 2]


def test_ul_131_files_that_wait_are_gone_after_a_restart(logs: Logs) -> None:
    log = rolled(logs, 2, retention_bytes=ONE)
    log.delete_old_segments()
    path: Path = logs.after_crash(log).path
    assert list(path.glob("*.deleted")) == []
