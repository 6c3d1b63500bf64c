from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kseg.errors import (
    CorruptIndexError,
    KsegError,
    LogLockedError,
    NotALogError,
    UncleanShutdownError,
    UnsupportedFormatError,
)
from kseg.files import io
from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint
from kseg.files.metadata import read_partition_metadata
from kseg.log import directory as directory_module
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.partition import Log
from kseg.log.sub_directories import EntryKind, list_entries
from tests.builders import batch, record
from tests.unit.files.foreign import holding

NOW_MS = 1_700_000_000_000
MARK = ".kafka_cleanshutdown"
HEX = "3f2504e04f8911d39a0c0305e82c3301"
ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(
    segment_bytes=400, segment_index_bytes=1200, retention_ms=-1, file_delete_delay_ms=1000
)


def one() -> bytes:
    return batch([record(bytes(200), timestamp=NOW_MS)])


def clock() -> int:
    return NOW_MS


def opened(path: Path, **how: object) -> LogDirectory:
    path.mkdir(exist_ok=True)
    how = {"mode": "append", "config": CONFIG, "now_ms": clock, **how}
    return LogDirectory.open(path, **how)  # type: ignore[arg-type]


def made(path: Path, *names: str, records: int = 1) -> Path:
    """A data directory that was shut down cleanly, with these partitions."""
    with opened(path) as directory:
        for name in names:
            topic, _, number = name.rpartition("-")
            log = directory.create(topic, int(number))
            for _ in range(records):
                log.append(one())
    return path


# What there is


def test_sub_directories_are_named_for_what_they_are(tmp_path: Path) -> None:
    for name in (
        "orders-0",
        f"orders-1.{HEX}-delete",
        f"orders-2.{HEX}-future",
        f"orders-3.{HEX}-stray",
        "__cluster_metadata-0",
        "remote-log-index-cache",
        "lost+found",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "meta.properties").touch()
    found = {entry.path.name: (entry.kind, entry.partition) for entry in list_entries(tmp_path)}
    assert found == {
        "orders-0": (EntryKind.LOG, ORDERS),
        f"orders-1.{HEX}-delete": (EntryKind.DELETE, TopicPartition("orders", 1)),
        f"orders-2.{HEX}-future": (EntryKind.FUTURE, TopicPartition("orders", 2)),
        f"orders-3.{HEX}-stray": (EntryKind.STRAY, TopicPartition("orders", 3)),
        "__cluster_metadata-0": (
            EntryKind.CLUSTER_METADATA,
            TopicPartition("__cluster_metadata", 0),
        ),
        "remote-log-index-cache": (EntryKind.CACHE, None),
        "lost+found": (EntryKind.UNKNOWN, None),
    }


def test_all_logs_are_opened_and_closed_together(tmp_path: Path) -> None:
    made(tmp_path / "data", "orders-0", "orders-1", "a-b.c-7", records=3)
    with opened(tmp_path / "data") as directory:
        assert list(directory.logs) == [
            TopicPartition("a-b.c", 7),
            ORDERS,
            TopicPartition("orders", 1),
        ]
        assert directory.was_clean
        assert all(log.log_end_offset == 3 for log in directory.logs.values())
        assert not (tmp_path / "data" / MARK).exists()
    assert directory.logs == {}
    assert (tmp_path / "data" / MARK).exists()
    directory.close()
    checkpoint = read_offset_checkpoint(tmp_path / "data" / "recovery-point-offset-checkpoint")
    assert set(checkpoint.offsets.values()) == {3}


def test_for_reading_nothing_is_changed_and_no_lock_taken(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0")
    (data / "lost+found").mkdir()
    before = sorted((str(path), path.stat().st_mtime_ns) for path in data.rglob("*"))
    with holding(data), LogDirectory.open(data) as directory:
        assert [found.offset for found in directory.logs[ORDERS].records()] == [0]
        assert directory.was_clean
        assert (directory.meta, directory.findings) == (None, ())
        for change in (directory.retain, directory.flush_checkpoints):
            with pytest.raises(KsegError, match="reading only"):
                change()
        with pytest.raises(KsegError, match="reading only"):
            directory.create("clicks", 0)
        with pytest.raises(KsegError, match="reading only"):
            directory.delete("orders", 0)
    (data / ".lock").unlink()
    assert sorted((str(path), path.stat().st_mtime_ns) for path in data.rglob("*")) == before


def test_a_partition_without_a_segment_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with LogDirectory.open(tmp_path) as directory:
        assert directory.logs == {}
        assert [entry.kind for entry in directory.entries] == [EntryKind.LOG]


@pytest.mark.parametrize("name", ["lost+found", "orders", "orders-x", "orders-0.old"])
def test_a_folder_that_stops_a_broker_is_refused_before_anything_is_changed(
    tmp_path: Path, name: str
) -> None:
    data = made(tmp_path / "data", "orders-0")
    (data / name).mkdir()
    before = sorted(os.listdir(data))
    with pytest.raises(NotALogError, match="no broker starts") as caught:
        opened(data)
    assert caught.value.path == str(data / name)
    assert sorted(os.listdir(data)) == before


def test_two_directories_of_one_partition_are_refused(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0")
    (data / "orders-00").mkdir()
    with pytest.raises(NotALogError, match="same partition"):
        opened(data)


def test_another_process_keeps_us_out(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0")
    with holding(data), pytest.raises(LogLockedError):
        opened(data)
    assert (data / MARK).exists()


def test_meta_properties_are_read(tmp_path: Path) -> None:
    text = "version=1\ncluster.id=abc\nnode.id=7\ndirectory.id=wX9JIH7VHVQzeEc98wsAbg\n"
    (tmp_path / "meta.properties").write_text(text)
    with opened(tmp_path) as directory:
        assert directory.meta is not None
        assert (directory.meta.node_id, directory.meta.cluster_id) == (7, "abc")
        assert directory.meta.directory_id == "wX9JIH7VHVQzeEc98wsAbg"


def test_malformed_meta_properties_leave_all_as_it_was(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0")
    (data / "meta.properties").write_text("version=7\n")
    with pytest.raises(CorruptIndexError):
        opened(data)
    assert (data / MARK).exists()
    assert not (data / ".lock").exists()


# After a crash


def test_what_was_not_shut_down_cleanly_is_recovered_only_if_asked_for(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0", "orders-1")
    (data / MARK).unlink()
    with pytest.raises(UncleanShutdownError):
        opened(data)
    assert not (data / ".lock").exists()
    with opened(data, recover=True) as directory:
        assert not directory.was_clean
        assert len(directory.logs) == 2
    assert (data / MARK).exists()
    opened(data).close()


def test_every_log_is_recovered_whatever_the_number_of_jobs(tmp_path: Path) -> None:
    data = made(tmp_path / "data", *(f"orders-{number}" for number in range(5)))
    name = f"{0:020d}.log"
    for number in range(5):
        with open(data / f"orders-{number}" / name, "ab") as file:
            file.write(b"torn")
    whole = (data / "orders-0" / name).stat().st_size - len(b"torn")
    for jobs in (1, 3):
        (data / MARK).unlink()
        told: list[tuple[int, int]] = []

        def progress(done: int, total: int, told: list[tuple[int, int]] = told) -> None:
            told.append((done, total))

        with opened(data, recover=True, jobs=jobs, progress=progress) as directory:
            assert [log.log_end_offset for log in directory.logs.values()] == [1] * 5
            assert {log.segments[0].size for log in directory.logs.values()} == {whole}
        assert told == [(done, 5) for done in range(1, 6)]


@pytest.mark.parametrize("kind", ["future", "stray"])
def test_a_copy_in_the_making_and_a_log_astray_are_mended_too(tmp_path: Path, kind: str) -> None:
    data = made(tmp_path / "data", "orders-0", "orders-1")
    other = data / f"orders-1.{HEX}-{kind}"
    (data / "orders-1").rename(other)
    log = other / f"{0:020d}.log"
    whole = log.stat().st_size
    with open(log, "ab") as file:
        file.write(b"torn")
    (data / MARK).unlink()
    with opened(data, recover=True) as directory:
        assert list(directory.logs) == [ORDERS]
    assert log.stat().st_size == whole
    assert (data / MARK).exists()


def test_one_log_that_cannot_be_opened_closes_the_others(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0", "orders-1", "orders-2")
    (data / "orders-1" / f"{0:020d}.kafka").write_bytes(b"")
    with pytest.raises(UnsupportedFormatError):
        opened(data, jobs=2)
    assert not (data / ".lock").exists()
    assert not (data / MARK).exists()
    (data / "orders-1" / f"{0:020d}.kafka").unlink()
    with opened(data, recover=True) as directory:
        assert len(directory.logs) == 3


def test_a_log_that_failed_leaves_no_mark(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0", "orders-1")
    directory = opened(data)
    log = directory.logs[ORDERS]
    log.append(one())

    def fail(_fd: int) -> None:
        raise OSError(5, "I/O error")

    with io.calls_replaced(io.Calls(fdatasync=fail)), pytest.raises(OSError, match="I/O"):
        log.flush()
    directory.close()
    assert not (data / MARK).exists()
    assert not (data / ".lock").exists()


# Partitions come


def test_a_partition_is_made_with_the_id_of_its_topic(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create("orders", 0, topic_id=UUID(int=7))
        assert log.append(one()).first_offset == 0
        assert directory.logs[ORDERS] is log
    metadata = read_partition_metadata(tmp_path / "orders-0" / "partition.metadata")
    assert metadata.uuid == UUID(int=7)


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "ö", "x" * 250])
def test_a_topic_has_a_name_that_kafka_takes(tmp_path: Path, topic: str) -> None:
    with opened(tmp_path / "data") as directory:
        for number in (0, -1, 2**31):
            with pytest.raises(ValueError, match="topic"):
                directory.create(topic, number)
        assert os.listdir(tmp_path / "data") == [".lock"]


@pytest.mark.parametrize("number", [-1, 2**31])
def test_a_partition_has_a_number_that_kafka_takes(tmp_path: Path, number: int) -> None:
    with opened(tmp_path) as directory, pytest.raises(ValueError, match="number"):
        directory.create("orders", number)


def test_a_partition_is_made_once(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create("orders", 0)
        with pytest.raises(FileExistsError):
            directory.create("orders", 0)
        log.append(one())


def test_a_new_partition_has_nothing_of_one_that_had_its_name(tmp_path: Path) -> None:
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / name).write_text("0\n2\norders 0 500\nclicks 3 7\n")
    with opened(tmp_path) as directory:
        log = directory.create("orders", 0)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    text = (tmp_path / "log-start-offset-checkpoint").read_text()
    assert text == "0\n1\nclicks 3 7\n"


def test_settings_may_be_those_of_each_topic(tmp_path: Path) -> None:
    def config(partition: TopicPartition) -> LogConfig:
        return LogConfig(segment_bytes=1000 + partition.partition)

    with opened(tmp_path, config=config) as directory:
        assert directory.create("orders", 5).config.segment_bytes == 1005
    with opened(tmp_path, config=config) as directory:
        assert directory.logs[TopicPartition("orders", 5)].config.segment_bytes == 1005


# Partitions go


def test_a_deleted_partition_is_renamed_and_later_gone(tmp_path: Path) -> None:
    now = [NOW_MS]
    data = made(tmp_path / "data", "orders-0", "orders-1")
    with opened(data, now_ms=lambda: now[0]) as directory:
        directory.logs[ORDERS].append(one())
        renamed = directory.delete("orders", 0)
        assert list(directory.logs) == [TopicPartition("orders", 1)]
        assert renamed.name.startswith("orders-0.")
        assert not (data / "orders-0").exists()
        offsets = read_offset_checkpoint(data / "recovery-point-offset-checkpoint").offsets
        assert list(offsets) == [TopicPartition("orders", 1)]
        now[0] += 999
        assert directory.delete_due() == ()
        now[0] += 1
        (renamed / "folder").mkdir()
        (renamed / "folder" / "file").touch()
        assert directory.delete_due() == (renamed,)
        assert not renamed.exists()
        assert directory.delete_due() == ()
        with pytest.raises(KeyError):
            directory.delete("orders", 0)
    assert (data / MARK).exists()


def test_a_deleted_partition_may_be_made_again_at_once(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0", records=5)
    with opened(data) as directory:
        directory.delete("orders", 0)
        assert directory.create("orders", 0).log_end_offset == 0


def test_what_was_deleted_before_goes_after_the_delay(tmp_path: Path) -> None:
    now = [NOW_MS]
    data = made(tmp_path / "data", "orders-0")
    with opened(data, now_ms=lambda: now[0]) as directory:
        renamed = directory.delete("orders", 0)
    assert renamed.exists()
    with opened(data, now_ms=lambda: now[0]) as directory:
        assert directory.was_clean
        directory.retain()
        assert renamed.exists()
        now[0] += 1000
        directory.retain()
        assert not renamed.exists()


def test_a_link_in_a_deleted_partition_leads_nowhere(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    with opened(data, config=CONFIG.with_changes(file_delete_delay_ms=0)) as directory:
        (data / "orders-0" / "link").symlink_to(tmp_path / "precious")
        renamed = directory.delete("orders", 0)
        assert not renamed.exists()
    assert (tmp_path / "precious" / "file").exists()


# Upkeep


def test_retention_goes_through_all_logs_but_those_that_are_compacted(tmp_path: Path) -> None:
    def config(partition: TopicPartition) -> LogConfig:
        policy = frozenset({"delete", "compact"} if partition.topic == "kept" else {"delete"})
        return CONFIG.with_changes(retention_bytes=0, cleanup_policy=policy)

    with opened(tmp_path, config=config) as directory:
        for topic in ("kept", "orders"):
            log = directory.create(topic, 0)
            for _ in range(3):
                log.append(batch([record(bytes(200), key=b"k", timestamp=NOW_MS)]))
        reports = directory.retain()
        assert list(reports) == [ORDERS]
        assert reports[ORDERS].segments_count == 3
        assert directory.logs[TopicPartition("kept", 0)].log_start_offset == 0
        assert directory.retain() == {}


def test_checkpoints_say_what_the_logs_say(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create("orders", 0)
        for _ in range(3):
            log.append(one())
        log.flush(2)
        log.update_high_watermark(1)
        directory.flush_checkpoints()
        for name, offset in (("recovery-point", 2), ("replication", 1)):
            checkpoint = read_offset_checkpoint(tmp_path / f"{name}-offset-checkpoint")
            assert checkpoint.offsets == {ORDERS: offset}


def test_logs_are_used_from_many_threads(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:

        def work(number: int) -> None:
            log = directory.create("orders", number)
            for _ in range(5):
                log.append(one())
            directory.flush_checkpoints()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [log.log_end_offset for log in directory.logs.values()] == [5] * 4


def test_a_log_of_the_directory_is_nobody_elses(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0")
    with opened(data), pytest.raises(LogLockedError):
        Log.open(data / "orders-0", mode="append")


def test_a_closed_directory_is_not_changed(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.close()
    before = sorted(os.listdir(tmp_path))
    for change in (
        directory.retain,
        directory.flush_checkpoints,
        directory.delete_due,
        lambda: directory.create("orders", 0),
        lambda: directory.delete("orders", 0),
    ):
        with pytest.raises(KsegError, match="closed"):
            change()
    assert sorted(os.listdir(tmp_path)) == before


def test_the_mode_is_one_of_two(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read or append"):
        LogDirectory.open(tmp_path, mode="write")


def test_the_clock_is_the_machines_unless_told(tmp_path: Path) -> None:
    before = directory_module._machine_clock()
    with LogDirectory.open(tmp_path, mode="append") as directory:
        log = directory.create("orders", 0)
        assert log.state.now_ms() >= before


class Killed(BaseException):
    """The process ends here."""


def test_an_end_at_any_call_of_a_deletion_leaves_the_partition_or_nothing(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0", "orders-1", records=3)
    found = set()
    for call in range(1, 100):
        count = 0

        def end(real: Callable[..., Any], last: int = call) -> Callable[..., Any]:
            def do(*given: Any, **named: Any) -> Any:
                nonlocal count
                count += 1
                if count >= last:
                    raise Killed
                return real(*given, **named)

            return do

        live, left = tmp_path / f"{call}-live", tmp_path / f"{call}-left"
        shutil.copytree(data, live)
        calls = io.Calls(
            **{f.name: end(getattr(io.Calls(), f.name)) for f in dataclasses.fields(io.Calls)}
        )
        directory = opened(live, config=CONFIG.with_changes(file_delete_delay_ms=0))
        with io.calls_replaced(calls), suppress(Killed):
            directory.delete("orders", 0)
        shutil.copytree(live, left)
        directory.close()
        with opened(left, recover=True) as after:
            ends = {key.partition: log.log_end_offset for key, log in after.logs.items()}
            assert ends in ({0: 3, 1: 3}, {1: 3}), call
            found.add(len(ends))
            if len(ends) == 1:
                assert after.create("orders", 0).log_start_offset == 0
        if count < call:
            break
    assert found == {1, 2}
    assert not list(left.glob("*-delete"))
