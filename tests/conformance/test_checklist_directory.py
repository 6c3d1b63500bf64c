"""LogManager and checkpoint files, one claim a test.

The claims are those of Kafka's LogManagerTest and of its tests of checkpoints. Kafka's manager has
threads that come round; here the owner of a directory calls.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kseg.errors import (
    InconsistentTopicIdError,
    LogLockedError,
    OffsetOutOfRangeError,
    UncleanShutdownError,
)
from kseg.files import metadata
from kseg.files.checkpoints import (
    TopicPartition,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from tests.conformance.logs import ONE, Clock, bases, named, one
from tests.unit.files.foreign import holding
from tests.unit.log.logs import failing

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
MARK = ".kafka_cleanshutdown"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(path: Path, clock: Clock, **how: Any) -> LogDirectory:
    path.mkdir(exist_ok=True)
    known = {name: how.pop(name) for name in list(how) if name in LogConfig.__slots__}
    how.setdefault("config", LogConfig(**known))
    return LogDirectory.open(path, mode="append", now_ms=clock, **how)


# LogManager


def test_mgr_01_a_log_is_made_once_and_asking_makes_none(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as directory:
        assert T0 not in directory.logs
        assert os.listdir(tmp_path) == [".lock"]
        log = directory.create("t", 0)
        log.append(one())
        assert (tmp_path / "t-0" / f"{0:020d}.log").exists()
        with pytest.raises(FileExistsError):
            directory.create("t", 0)
        assert directory.logs[T0] is log


def test_mgr_02_the_mark_is_written_if_all_logs_closed_well(tmp_path: Path, clock: Clock) -> None:
    directory = opened(tmp_path, clock)
    directory.create("t", 0)
    log = directory.create("t", 1)
    log.append(one())
    with failing("fdatasync", error=OSError(5, "I/O error")), pytest.raises(OSError, match="I/O"):
        log.flush()
    directory.close()
    assert not (tmp_path / MARK).exists()
    assert not (tmp_path / ".lock").exists()
    opened(tmp_path, clock, recover=True).close()
    assert (tmp_path / MARK).exists()


def test_mgr_04_expired_segments_go_and_the_rest_works_on(tmp_path: Path, clock: Clock) -> None:
    with opened(
        tmp_path, clock, segment_bytes=3 * ONE, retention_ms=1000, file_delete_delay_ms=0
    ) as directory:
        log = directory.create("t", 0)
        for number in range(20):
            log.append(one(producer_id=1, producer_epoch=0, base_sequence=number), leader_epoch=0)
        assert len(log.segments) > 1
        log.flush()
        clock.sleep(1001)
        reports = directory.retain()
        assert reports[T0].segments_count == 7
        assert bases(log) == [20]
        with pytest.raises(OffsetOutOfRangeError):
            log.fetch(0)
        assert log.append(one()).first_offset == 20
        log.flush()
        # A log, two indexes and a snapshot, and the epochs.
        assert len(os.listdir(log.path)) == 4 * len(log.segments) + 1


def test_mgr_05_ul_124_size_keeps_the_boundary_segment(tmp_path: Path, clock: Clock) -> None:
    with opened(
        tmp_path,
        clock,
        segment_bytes=10 * ONE,
        retention_bytes=5 * 10 * ONE + 10,
        file_delete_delay_ms=0,
    ) as directory:
        log = directory.create("t", 0)
        for _ in range(200):
            log.append(one())
        assert len(log.segments) == 20
        directory.retain()
        assert len(log.segments) == 6
        assert named(log, "*.log") == [f"{base}.log" for base in range(140, 200, 10)]
        with pytest.raises(OffsetOutOfRangeError):
            log.fetch(0)
        assert log.append(one()).first_offset == 200


@pytest.mark.parametrize("policy", [{"compact"}, {"compact", "delete"}])
def test_mgr_06_compacted_logs_are_left_to_the_cleaner(
    tmp_path: Path, clock: Clock, policy: set[str]
) -> None:
    with opened(
        tmp_path,
        clock,
        segment_bytes=2 * ONE,
        retention_bytes=0,
        retention_ms=0,
        cleanup_policy=frozenset(policy),
    ) as directory:
        log = directory.create("t", 0)
        for _ in range(10):
            log.append(one(key=b"k"))
        clock.sleep(10**9)
        before = bases(log)
        assert directory.retain() == {}
        assert bases(log) == before


def test_mgr_07_a_log_is_flushed_when_it_has_waited_long_enough(
    tmp_path: Path, clock: Clock
) -> None:
    with opened(tmp_path, clock, flush_ms=1000) as directory:
        log = directory.create("t", 0)
        log.append(one())
        assert log.recovery_point == 0
        clock.sleep(1001)
        log.append(one())
        assert log.recovery_point == 2


def test_mgr_09_the_cache_of_a_remote_store_is_passed_over(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as directory:
        directory.create("t", 0)
    cache_of_indexes = tmp_path / "remote-log-index-cache"
    cache_of_indexes.mkdir()
    (cache_of_indexes / "0_abc.index").touch()
    stray = tmp_path / f"t-1.{'0' * 32}-stray"
    stray.mkdir()
    with opened(tmp_path, clock) as directory:
        assert list(directory.logs) == [T0]
    assert stray.exists()
    assert os.listdir(cache_of_indexes) == ["0_abc.index"]


def test_mgr_10_one_process_has_a_directory_until_it_lets_go(tmp_path: Path, clock: Clock) -> None:
    with holding(tmp_path), pytest.raises(LogLockedError):
        opened(tmp_path, clock)
    with opened(tmp_path, clock):
        assert (tmp_path / ".lock").exists()
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("form", ["plain", "slash", "relative"])
def test_mgr_11_checkpoints_hold_the_recovery_points(
    tmp_path: Path, clock: Clock, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.chdir(tmp_path)
    path = {"plain": str(data), "slash": f"{data}/", "relative": "data"}[form]
    write_offset_checkpoint(data / RECOVERY_POINTS, {TopicPartition("other", 7): 5})
    with LogDirectory.open(path, mode="append", now_ms=clock) as directory:
        for number, flushed in ((0, 2), (1, 3)):
            log = directory.create("t", number)
            for _ in range(5):
                log.append(one())
            log.flush(flushed)
        directory.flush_checkpoints()
        expected = {key: log.recovery_point for key, log in directory.logs.items()}
        assert expected == {T0: 2, T1: 3}
        checkpoint = read_offset_checkpoint(data / RECOVERY_POINTS)
        assert checkpoint == {TopicPartition("other", 7): 5, **expected}


def test_mgr_12_a_name_as_long_as_a_directory_can_have_is_cut(tmp_path: Path, clock: Clock) -> None:
    topic = "x" * 253
    Log.open(tmp_path / f"{topic}-0", mode="append", create=True, now_ms=clock).close()
    with opened(tmp_path, clock, file_delete_delay_ms=0) as directory:
        renamed = directory.delete(topic, 0)
        assert len(renamed.name) == 255
        assert not renamed.exists()


def test_mgr_13_a_start_is_checkpointed_while_it_lies_past_the_first_segment(
    tmp_path: Path, clock: Clock
) -> None:
    with opened(tmp_path, clock, segment_bytes=2 * ONE) as directory:
        log = directory.create("t", 0)
        for _ in range(9):
            log.append(one())
        assert bases(log) == [0, 2, 4, 6, 8]

        def starts() -> dict[TopicPartition, int]:
            directory.flush_checkpoints()
            path = tmp_path / LOG_STARTS
            return read_offset_checkpoint(path) if path.exists() else {}

        assert starts() == {}
        log.delete_records_before(5)
        assert starts() == {T0: 5}
        log.delete_old_segments()
        assert bases(log)[0] == 4
        assert starts() == {T0: 5}
        log.delete_records_before(6)
        assert starts() == {T0: 6}
        log.delete_old_segments()
        assert bases(log)[0] == 6
        assert starts() == {}


def test_mgr_14_ids_of_directories_are_read_where_there_are_any(
    tmp_path: Path, clock: Clock
) -> None:
    ids: list[str | None] = ["wX9JIH7VHVQzeEc98wsAbg", None]
    for number, directory_id in enumerate(ids):
        path = tmp_path / str(number)
        path.mkdir()
        if directory_id is not None:
            text = f"version=1\ncluster.id=c\nnode.id=1\ndirectory.id={directory_id}\n"
            (path / "meta.properties").write_text(text)
        with opened(path, clock) as directory:
            found = None if directory.meta is None else directory.meta.directory_id
            assert found == directory_id


# Checkpoint files


def test_chk_01_offsets_are_written_over_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / RECOVERY_POINTS
    many = {TopicPartition("t", number): 10 * number for number in range(10_000)}
    for given in ({T0: 5, T1: 10}, {T0: 7}, many, {}):
        write_offset_checkpoint(path, given)
        assert read_offset_checkpoint(path) == given


def test_chk_04_a_topic_has_one_id(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    metadata.record_topic_id(path, UUID(bytes=bytes(range(1, 17))))
    assert path.read_text().splitlines() == ["version: 0", "topic_id: AQIDBAUGBwgJCgsMDQ4PEA"]
    metadata.record_topic_id(path, UUID(bytes=bytes(range(1, 17))))
    with pytest.raises(InconsistentTopicIdError):
        metadata.record_topic_id(path, UUID(int=1))
    assert metadata.read_partition_metadata(path).uuid.bytes == bytes(range(1, 17))


# Deleting a log


def test_ul_134_a_closed_log_can_be_deleted(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock, file_delete_delay_ms=0) as directory:
        directory.create("t", 0).close()
        directory.delete("t", 0)
        assert not [entry.path for entry in directory.entries]


def test_ul_134_a_directory_that_has_become_a_file_is_an_error(
    tmp_path: Path, clock: Clock
) -> None:
    directory = opened(tmp_path, clock)
    log = directory.create("t", 0)
    log.append(one())
    os.rename(log.path, tmp_path.parent / f"{tmp_path.name}-gone")
    log.path.touch()
    with pytest.raises(OSError, match=r"t-0|directory"):
        directory.delete("t", 0)
    directory.close()
    assert not (tmp_path / MARK).exists()


def test_what_was_not_closed_well_is_not_loaded_unasked(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as directory:
        directory.create("t", 0).append(one())
    (tmp_path / MARK).unlink()
    with pytest.raises(UncleanShutdownError):
        opened(tmp_path, clock)
