from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import KsegError, PoisonedFileError
from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint
from kseg.log.log import Log
from kseg.log.writer.flush import CHECKPOINT_INTERVAL_MS, UNFLUSHED_MAX
from tests.unit.log.logs import ONE, Clock, bases, failing, noted, one, open_log

EIO = OSError(errno.EIO, "Input/output error")
PARTITION = TopicPartition("t", 0)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with open_log(tmp_path / "t-0", segment_bytes=2 * ONE, index_interval_bytes=0) as opened:
        yield opened


# ---- flush ---------------------------------------------------------------------------------------


def test_a_log_is_flushed_after_so_many_offsets(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", flush_messages=3) as log:
        log.append(one(count=2))
        assert log.recovery_point == 0
        log.append(one())
        assert log.recovery_point == 3


def test_the_recovery_point_is_written_down_once_a_minute_and_at_the_end(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "recovery-point-offset-checkpoint"
    with open_log(tmp_path / "t-0", clock) as log:
        log.append(one(), durable=True)
        assert not path.exists()
        clock.ms += CHECKPOINT_INTERVAL_MS
        log.append(one(), durable=True)
        assert read_offset_checkpoint(path) == {PARTITION: 2}
        log.append(one(), durable=True)
        assert read_offset_checkpoint(path) == {PARTITION: 2}
    assert read_offset_checkpoint(path) == {PARTITION: 3}


@pytest.mark.parametrize("clean", [True, False])
def test_a_recovery_point_behind_an_end_that_was_lost_is_taken_back_at_once(
    tmp_path: Path, clean: bool
) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    with open_log(tmp_path / "t-0") as log:
        log.append([one(), one()])
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"")
    if not clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    assert read_offset_checkpoint(path) == {PARTITION: 2}
    with open_log(tmp_path / "t-0", recover=True) as log:
        assert (log.log_end_offset, log.recovery_point) == (0, 0)
        assert read_offset_checkpoint(path) == {PARTITION: 0}


# ---- roll ----------------------------------------------------------------------------------------


def test_a_roll_does_not_go_back(log: Log) -> None:
    log.roll(7)
    with pytest.raises(KsegError, match="would not follow"):
        log.roll(5)
    log.append_as_follower(one(base_offset=7, leader_epoch=0), durable=True)
    assert log.recovery_point == 8
    assert log.roll() == 8


def test_a_roll_removes_what_lies_where_the_new_files_come(log: Log) -> None:
    log.append(one())
    for kind in ("log", "index", "timeindex", "txnindex"):
        (log.path / f"{1:020d}.{kind}").write_bytes(b"of an earlier life")
    log.roll()
    assert {p.name for p in log.path.glob(f"{1:020d}.*")} == {
        f"{1:020d}.log",
        f"{1:020d}.snapshot",
    }


def test_segments_wait_for_a_flush_but_not_without_end(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", segment_bytes=ONE) as log:
        descriptors = set()
        for _ in range(3 * UNFLUSHED_MAX):
            log.append(one())
            descriptors.add(len(os.listdir("/proc/self/fd")))
            assert len(log.state.unflushed) <= UNFLUSHED_MAX
        assert max(descriptors) - min(descriptors) <= 3 * (UNFLUSHED_MAX + 1)
        assert log.recovery_point == 3 * UNFLUSHED_MAX - UNFLUSHED_MAX - 1


def test_a_flushed_segment_that_is_sealed_is_flushed_as_it_is_then(log: Log) -> None:
    log.append(one())
    log.append(one(), durable=True)
    with noted() as told:
        log.append(one())
    assert f"flush {0:020d}.index" in told
    with noted() as told:
        log.flush()
    assert f"flush {0:020d}.index" not in told


@pytest.mark.parametrize("file", [".log", ".txnindex"])
def test_no_file_stays_of_a_segment_that_could_not_begin(tmp_path: Path, file: str) -> None:
    full = OSError(errno.ENOSPC, "No space left")
    with open_log(tmp_path / "t-0", segment_bytes=2 * ONE, preallocate=True) as log:
        log.append([one(), one()])
        with (
            failing("open", "ftruncate", error=full, ends=f"{2:020d}{file}", after=file == ".log"),
            pytest.raises(OSError, match="No space"),
        ):
            log.append(one())
        assert not list(log.path.glob(f"{2:020d}*"))
        log.truncate_to(1)
    with open_log(tmp_path / "t-0") as log:
        assert (bases(log), log.log_end_offset) == ([0], 1)


def test_a_log_fails_whose_unborn_segment_cannot_be_taken_away(log: Log) -> None:
    log.append([one(), one()])
    broken = failing("open", "unlink", error=EIO, ends=f"{2:020d}.txnindex", after=1)
    with broken, pytest.raises(OSError, match="Input/output"):
        log.append(one())
    with pytest.raises(PoisonedFileError):
        log.append(one())


def test_a_snapshot_that_cannot_be_written_does_not_fail_the_log(log: Log) -> None:
    log.append([one(), one()])
    full = failing("open", error=OSError(errno.ENOSPC, "No space left"), ends=".snapshot")
    with full, pytest.raises(OSError, match="No space"):
        log.append(one())
    assert (bases(log), log.log_end_offset) == ([0, 2], 2)
    assert log.append(one()).first_offset == 2


# ---- close ---------------------------------------------------------------------------------------


def test_a_close_that_fails_lets_go_of_everything_and_leaves_no_mark(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    log = open_log(tmp_path / "t-0")
    log.append(one())
    with failing("fdatasync", error=EIO, ends=".log"), pytest.raises(OSError, match="Input/output"):
        log.close()
    log.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / ".lock").exists()
