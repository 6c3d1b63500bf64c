from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path

import pytest

from kseg.errors import (
    KsegError,
)
from kseg.log.data_directory import PartitionOffsets
from kseg.log.log import Log
from tests.unit.log.logs import ONE, failing, offsets, one, open_log

SIX = 6


def written(path: Path, count: int = SIX, **settings: object) -> None:
    with open_log(path, **settings) as log:
        for _ in range(count):
            log.append(one())


def test_an_empty_directory_has_nothing_to_recover(tmp_path: Path) -> None:
    written(tmp_path / "t-0")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "u-0").mkdir()
    with open_log(tmp_path / "u-0") as log:
        assert log.append(one()).first_offset == 0


def test_what_is_known_of_a_log_counts_more_than_its_directory(tmp_path: Path) -> None:
    written(tmp_path / "t-0")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with open_log(tmp_path / "t-0", known=PartitionOffsets(clean=True, log_start_offset=2)) as log:
        assert (log.log_start_offset, log.recovery_point, offsets(log)) == (2, SIX, [2, 3, 4, 5])


def test_a_start_that_fails_leaves_no_mark_and_no_lock(tmp_path: Path) -> None:
    written(tmp_path / "t-0")
    error = OSError(5, "Input/output error")
    with failing("open", error=error, ends=".log"), pytest.raises(OSError, match="Input/output"):
        open_log(tmp_path / "t-0")
    assert not (tmp_path / ".lock").exists()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_log_open_for_reading_is_not_changed(tmp_path: Path) -> None:
    written(tmp_path / "t-0")
    with Log.open(tmp_path / "t-0") as log:
        for change in (
            lambda: log.append(one()),
            log.flush,
            log.roll,
            lambda: log.update_high_watermark(1),
            lambda: log.recovery_point,
        ):
            with pytest.raises(KsegError, match="for reading only"):
                change()
    with pytest.raises(ValueError, match="mode is"):
        Log.open(tmp_path / "t-0", mode="write")  # type: ignore[arg-type]


def test_a_reader_of_the_directory_sees_whole_batches_beside_the_writer(tmp_path: Path) -> None:
    stop, wrong = threading.Event(), []
    with open_log(tmp_path / "t-0", segment_bytes=20 * ONE) as log:

        def read() -> None:
            while not stop.is_set():
                found = offsets(Log.open(tmp_path / "t-0"))
                if found != list(range(len(found))):
                    wrong.append(found)

        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(300):
            log.append(one())
        stop.set()
        reader.join()
    assert wrong == []


def test_small_indexes_of_new_settings_hold_what_is_in_them(tmp_path: Path) -> None:
    written(tmp_path / "t-0", index_interval_bytes=0)
    with open_log(tmp_path / "t-0", segment_index_bytes=24) as log:
        assert log.append(one()).first_offset == SIX
        assert [info.base_offset for info in log.segments] == [0, SIX]


def test_appending_on_and_on_takes_no_more_memory(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        for _ in range(200):
            log.append(one())
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(3000):
                log.append(one())
            assert tracemalloc.get_traced_memory()[0] - before < 20_000
        finally:
            tracemalloc.stop()
