from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import kseg
from kseg.errors import (
    CorruptIndexError,
    KsegError,
    NotALogError,
    UnsupportedFormatError,
)
from kseg.files.checkpoints import TopicPartition
from kseg.log.config import LogConfig
from kseg.log.data_directory import EntryKind, list_entries
from kseg.log.directory import LogDirectory
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


def test_a_partition_without_a_segment_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with LogDirectory.open(tmp_path) as directory:
        (log,) = directory.logs.values()
        assert (log.log_start_offset, log.log_end_offset, list(log.read())) == (0, 0, [])
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


def test_malformed_meta_properties_leave_all_as_it_was(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0")
    (data / "meta.properties").write_text("version=7\n")
    with pytest.raises(CorruptIndexError):
        opened(data)
    assert (data / MARK).exists()
    assert not (data / ".lock").exists()


# After a crash


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

        with opened(data, recover=True, threads=jobs, progress=progress) as directory:
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


def test_mgr_03_one_log_that_cannot_be_opened_closes_the_others(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0", "orders-1", "orders-2")
    (data / "orders-1" / f"{0:020d}.kafka").write_bytes(b"")
    with pytest.raises(UnsupportedFormatError):
        opened(data, threads=2)
    assert not (data / ".lock").exists()
    assert not (data / MARK).exists()
    (data / "orders-1" / f"{0:020d}.kafka").unlink()
    with opened(data, recover=True) as directory:
        assert len(directory.logs) == 3


# Upkeep


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_retention_forgets_producers_that_are_silent_for_long(tmp_path: Path, policy: str) -> None:
    config = CONFIG.with_changes(producer_id_expiration_ms=1000, cleanup_policy=frozenset({policy}))
    with opened(tmp_path, config=config) as directory:
        log = directory.create("orders", 0)
        for producer, time in ((1, NOW_MS), (2, NOW_MS + 1)):
            given = [record(b"", key=b"k", timestamp=time)]
            log.append(batch(given, producer_id=producer, producer_epoch=0, base_sequence=0))
        directory.retain(NOW_MS + 1000)
        assert set(log.state.producers.entries) == {2}


# Whose it is


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


def test_a_brokers_directory_is_taken_over_and_left_without_a_changed_byte(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(Path(kseg.__file__).parent / "demo_data", data)

    def bytes_of_all() -> dict[str, bytes]:
        # As in Kafka, a load takes away a leader epoch that has no record.
        names = (path for path in data.rglob("*") if path.name != "leader-epoch-checkpoint")
        return {str(path): path.read_bytes() for path in names if path.is_file()}

    before = bytes_of_all()
    with LogDirectory.open(data, mode="append", now_ms=clock) as directory:
        assert directory.was_clean
        assert directory.meta is not None
        assert len(directory.logs) == 12
    assert bytes_of_all() == before
