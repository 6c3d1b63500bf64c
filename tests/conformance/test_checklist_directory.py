"""LogManager, checkpoint files and retention, one claim a test.

The claims are those of Kafka's LogManagerTest, of its tests of checkpoints, and of UnifiedLogTest
on retention. Kafka's manager has threads that come round; here the owner of a directory calls.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kseg.errors import (
    CorruptIndexError,
    InconsistentTopicIdError,
    LogLockedError,
    OffsetOutOfRangeError,
    UncleanShutdownError,
    UnsupportedFormatError,
)
from kseg.files import metadata
from kseg.files.checkpoints import (
    EpochEntry,
    TopicPartition,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kseg.files.names import SegmentFiles
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.epochs import LeaderEpochs
from kseg.log.partition import Log
from kseg.log.published import SegmentInfo
from kseg.log.retention import LogBounds, choose
from tests.conformance.logs import NOW_MS, ONE, Clock, Logs, bases, named, offsets, one, snapshots
from tests.unit.files.foreign import holding

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
MARK = ".kafka_cleanshutdown"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LINES = {f"mgr {n}" for n in range(1, 16)} | {f"chk {n}" for n in range(1, 6)}
#: Line -> why nothing here can be asked for it.
NOT_ASKED = {
    "mgr 8": "a log is made in the directory that its caller names, not in the emptiest of several",
    "mgr 15": "settings come from the caller alone, who changes them when the log is open",
    "chk 2": "checkpoints are read when a directory is entered, and written as long as it is held",
}


@cache
def load(path: Path) -> dict[str, list[dict[str, Any]]]:
    return json.loads(path.read_text())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "retention_size" in metafunc.fixturenames:
        path = Path(metafunc.config.getoption("--vectors")) / "storage.json"
        metafunc.parametrize("retention_size", load(path)["retention_size"])


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(path: Path, clock: Clock, **how: Any) -> LogDirectory:
    path.mkdir(exist_ok=True)
    known = {name: how.pop(name) for name in list(how) if name in LogConfig.__slots__}
    how.setdefault("config", LogConfig(**known))
    return LogDirectory.open(path, mode="append", now_ms=clock, **how)


def test_every_line_is_tested_or_there_is_a_reason() -> None:
    tested = {
        f"{heading} {int(number)}"
        for name in globals()
        if name.startswith(("test_mgr_", "test_chk_"))
        for _, heading, number, *_ in [name.split("_")]
    }
    assert tested | NOT_ASKED.keys() == LINES
    assert not tested & NOT_ASKED.keys()


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
    log.state.fail(OSError("the disk is broken"))
    directory.close()
    assert not (tmp_path / MARK).exists()
    opened(tmp_path, clock, recover=True).close()
    assert (tmp_path / MARK).exists()


def test_mgr_03_an_end_before_all_is_loaded_leaves_no_mark(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as directory:
        directory.create("t", 0)
        directory.create("t", 1)
    (tmp_path / MARK).unlink()
    (tmp_path / "t-1" / f"{0:020d}.kafka").touch()
    with pytest.raises(UnsupportedFormatError):
        opened(tmp_path, clock, recover=True)
    assert not (tmp_path / MARK).exists()


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


def test_mgr_05_size_keeps_the_boundary_segment(tmp_path: Path, clock: Clock) -> None:
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
        checkpoint = read_offset_checkpoint(data / RECOVERY_POINTS).offsets
        assert checkpoint == {TopicPartition("other", 7): 5, **expected}


def test_mgr_12_a_deleted_log_is_gone_after_the_delay(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock, file_delete_delay_ms=1000) as directory:
        log = directory.create("t", 0)
        log.append(one())
        renamed = directory.delete("t", 0)
        assert T0 not in directory.logs
        assert (renamed / f"{0:020d}.log").exists()
        clock.sleep(1000)
        directory.delete_due()
        assert not renamed.exists()


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
            return read_offset_checkpoint(path).offsets if path.exists() else {}

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
        assert read_offset_checkpoint(path).offsets == given
    path.write_text("")
    assert read_offset_checkpoint(path).offsets == {}
    path.write_text("1\n1\nt 0 5\n")
    with pytest.raises(CorruptIndexError):
        read_offset_checkpoint(path)


def test_chk_03_epochs_survive_their_object(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    entries = (EpochEntry(0, 1), EpochEntry(1, 2), EpochEntry(2, 3))
    epochs = LeaderEpochs.load(path)
    for entry in entries[:2]:
        epochs.assign(*entry)
    again = LeaderEpochs.load(path)
    assert again.entries == entries[:2]
    again.assign(*entries[2])
    assert LeaderEpochs.load(path).entries == entries


def test_chk_04_a_topic_has_one_id(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "partition.metadata"
    metadata.record_topic_id(path, UUID(bytes=bytes(range(1, 17))))
    assert path.read_text().splitlines() == ["version: 0", "topic_id: AQIDBAUGBwgJCgsMDQ4PEA"]
    metadata.record_topic_id(path, UUID(bytes=bytes(range(1, 17))))
    with pytest.raises(InconsistentTopicIdError):
        metadata.record_topic_id(path, UUID(int=1))
    assert metadata.read_partition_metadata(path).uuid.bytes == bytes(range(1, 17))
    with opened(tmp_path / "data", clock) as directory:
        log = directory.create("t", 0)
        assert not (log.path / "partition.metadata").exists()


def test_chk_05_the_mark_of_a_clean_shutdown(tmp_path: Path) -> None:
    assert metadata.read_clean_shutdown(tmp_path) is None
    metadata.write_clean_shutdown(tmp_path, 10)
    assert metadata.read_clean_shutdown(tmp_path) == metadata.CleanShutdown(10)
    (tmp_path / MARK).write_text('{"version":0,"brokerEpoch":10,"unknown":123}')
    assert metadata.read_clean_shutdown(tmp_path) == metadata.CleanShutdown(10)
    metadata.remove_clean_shutdown(tmp_path)
    assert metadata.read_clean_shutdown(tmp_path) is None


# Retention


def test_old_segments_go_by_size_as_the_vectors_say(retention_size: dict[str, Any]) -> None:
    sizes = retention_size["segment_sizes"]
    row = [
        SegmentInfo(SegmentFiles(10 * n, Path(f"{10 * n:020d}.log")), size, n == len(sizes) - 1)
        for n, size in enumerate(sizes)
    ]
    end = 10 * len(sizes)
    retired = choose(
        row,
        LogBounds(0, end, end),
        config=LogConfig(retention_bytes=retention_size["retention_bytes"], retention_ms=-1),
        now_ms=0,
        largest_timestamp=lambda info: 0,
    )
    assert len(retired) == retention_size["deleted"]


def expired(logs: Logs, **how: Any) -> Log:
    """100 records, five a segment, all of them too old; in two epochs."""
    log = logs.new(segment_bytes=5 * ONE, retention_ms=999, **how)
    for number in range(100):
        log.append(one(time=NOW_MS - 1000), leader_epoch=0 if number < 90 else 1)
    assert bases(log) == list(range(0, 100, 5))
    return log


def test_ul_120_nothing_goes_above_the_high_watermark(logs: Logs) -> None:
    log = expired(logs)
    log.update_high_watermark(0)
    assert log.delete_old_segments().segments_count == 0
    assert len(log.segments) == 20
    for high_watermark in range(25, 31):
        log.update_high_watermark(high_watermark)
        log.delete_old_segments()
        assert log.log_start_offset <= high_watermark
        ends = [*bases(log)[1:], log.log_end_offset]
        assert all(end - 1 >= high_watermark or end == high_watermark for end in ends)
    log.update_high_watermark(log.log_end_offset)
    log.delete_old_segments()
    assert bases(log) == [100]
    assert log.leader_epochs == (EpochEntry(1, 100),)


def test_ul_121_segments_go_one_by_one_as_the_high_watermark_rises(logs: Logs) -> None:
    log = expired(logs)
    for high_watermark in range(101):
        log.update_high_watermark(high_watermark)
        log.delete_old_segments()
        first, *later = bases(log)
        assert first <= high_watermark
        assert all(base > high_watermark for base in later)
    assert log.log_start_offset == 100
    assert [(info.base_offset, info.size) for info in log.segments] == [(100, 0)]


def test_ul_122_a_high_watermark_from_the_start_bounds_what_goes(logs: Logs) -> None:
    log = logs.new(segment_bytes=5 * ONE, retention_ms=999)
    log.update_high_watermark(0)
    for _ in range(100):
        log.append(one(time=NOW_MS - 1000))
    log.update_high_watermark(25)
    log.delete_old_segments()
    assert log.log_start_offset == 25
    assert bases(log)[0] == 25


def test_ul_123_segments_below_the_start_go(logs: Logs) -> None:
    log = logs.new(segment_bytes=5 * ONE, retention_ms=-1)
    for _ in range(15):
        log.append(one())
    assert len(log.segments) == 3
    for start, left in ((1, 3), (6, 2), (15, 1)):
        log.delete_records_before(start)
        log.delete_old_segments()
        assert len(log.segments) == left
        assert log.log_start_offset == start


@pytest.mark.parametrize(("limit", "left"), [(10, 2), (15, 3)])
def test_ul_124_size_keeps_at_least_what_it_names(logs: Logs, limit: int, left: int) -> None:
    log = logs.new(segment_bytes=5 * ONE, retention_bytes=limit * ONE)
    for _ in range(15):
        log.append(one())
    log.delete_old_segments()
    assert len(log.segments) == left


@pytest.mark.parametrize(("time", "left"), [(10, 1), (NOW_MS, 3)])
def test_ul_125_time_goes_by_the_records(logs: Logs, time: int, left: int) -> None:
    log = logs.new(segment_bytes=5 * ONE, retention_ms=10_000)
    for _ in range(15):
        log.append(one(time=time))
    log.delete_old_segments()
    assert len(log.segments) == left


def test_ul_126_only_the_start_takes_segments_of_a_compacted_log(logs: Logs) -> None:
    compact, both = frozenset({"compact"}), frozenset({"compact", "delete"})

    def filled(policy: frozenset[str]) -> Log:
        keyed = len(one(key=b"k"))
        log = logs.new(segment_bytes=5 * keyed, retention_ms=10_000, cleanup_policy=policy)
        for _ in range(15):
            log.append(one(key=b"k", time=10))
        for info in log.segments:
            os.utime(info.path, ns=(0, (NOW_MS - 20_000) * 1_000_000))
        return log

    log = filled(compact)
    assert log.delete_old_segments().segments_count == 0
    log.delete_records_before(6)
    assert log.delete_old_segments().segments_count == 1
    assert bases(log) == [5, 10]
    assert filled(both).delete_old_segments().segments_count == 3


def test_ul_127_one_new_record_keeps_all_that_lies_behind(logs: Logs) -> None:
    log = logs.new(segment_bytes=2 * ONE, retention_ms=1000)
    for time in (NOW_MS, NOW_MS, NOW_MS - 5000, NOW_MS - 5000, NOW_MS, NOW_MS):
        log.append(one(time=time))
    assert bases(log) == [0, 2, 4]
    assert log.delete_old_segments().segments_count == 0
    log.delete_records_before(2)
    assert log.delete_old_segments().segments_count == 2
    assert log.delete_old_segments().segments_count == 0
    assert bases(log) == [4]


@pytest.mark.parametrize("count", [0, 1, 25])
def test_ul_128_a_log_whose_records_all_expire_goes_on_at_its_end(logs: Logs, count: int) -> None:
    log = logs.new(segment_bytes=5 * ONE, retention_ms=1000)
    for _ in range(count):
        log.append(one(time=NOW_MS - 5000))
    log.delete_old_segments()
    assert len(log.segments) == 1
    assert log.log_end_offset == count
    assert log.delete_old_segments().segments_count == 0
    assert log.append(one()).first_offset == count


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (((0, 0), (1, 5), (2, 10)), ((1, 5), (2, 10))),
        (((0, 0), (1, 7), (2, 10)), ((0, 5), (1, 7), (2, 10))),
    ],
)
def test_ul_130_epochs_go_or_move_with_their_segments(
    logs: Logs, before: tuple[tuple[int, int], ...], after: tuple[tuple[int, int], ...]
) -> None:
    log = logs.new(segment_bytes=5 * ONE, retention_bytes=10 * ONE)
    starts = {start: epoch for epoch, start in before}
    epoch = 0
    for offset in range(15):
        epoch = starts.get(offset, epoch)
        log.append(one(), leader_epoch=epoch)
    assert log.leader_epochs == before
    log.delete_old_segments()
    assert bases(log) == [5, 10]
    assert log.leader_epochs == after


def test_ul_132_a_prefix_goes_and_never_an_empty_last_segment(logs: Logs) -> None:
    def row(last_size: int) -> list[SegmentInfo]:
        return [
            SegmentInfo(SegmentFiles(base, Path(f"{base:020d}.log")), size, base == 9)
            for base, size in zip(range(10), [1] * 9 + [last_size], strict=True)
        ]

    def count(last_size: int, expired_to: int) -> int:
        end = 9 + bool(last_size)
        asked = choose(
            row(last_size),
            LogBounds(0, end, end),
            config=LogConfig(retention_ms=0),
            now_ms=1,
            largest_timestamp=lambda info: 0 if info.base_offset <= expired_to else 1,
        )
        return len(asked)

    assert count(0, 5) == 6
    assert count(0, 9) == 9
    assert count(1, 9) == 10


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


def test_deleted_snapshots_are_those_of_deleted_segments(logs: Logs) -> None:
    log = expired(logs)
    log.update_high_watermark(52)
    log.delete_old_segments()
    assert snapshots(log)[0] == 50
    assert offsets(log)[0] == log.log_start_offset == 50


def test_what_was_not_closed_well_is_not_loaded_unasked(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as directory:
        directory.create("t", 0).append(one())
    (tmp_path / MARK).unlink()
    with pytest.raises(UncleanShutdownError):
        opened(tmp_path, clock)
