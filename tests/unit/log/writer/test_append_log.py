from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path

import pytest

from kseg.errors import (
    KsegError,
    NotALogError,
    UncleanShutdownError,
)
from kseg.files import io
from kseg.log.data_directory import PartitionOffsets
from kseg.log.log import Log
from tests.unit.log.logs import ONE, failing, offsets, one, open_log

SIX = 6


def written(path: Path, count: int = SIX, **settings: object) -> None:
    with open_log(path, **settings) as log:
        for _ in range(count):
            log.append(one())


@pytest.mark.parametrize("name", ["t", "t-x", "a-0.0123456789abcdef0123456789abcdef-delete"])
def test_only_a_partitions_directory_is_appended_to(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotALogError):
        open_log(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_log_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    for turn in range(3):
        written(path, segment_bytes=3 * ONE)
        with Log.open(path) as log:
            assert offsets(log) == list(range(SIX * (turn + 1)))
            assert (log.mode, log.high_watermark) == ("read", SIX * (turn + 1))


def test_a_log_that_failed_is_refused_each_time_while_others_live_on(tmp_path: Path) -> None:
    def refuse(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    with open_log(tmp_path / "u-0"):
        log = open_log(tmp_path / "t-0")
        log.append(one())
        with io.calls_replaced(io.Calls(fdatasync=refuse)), pytest.raises(OSError, match="Input"):
            log.flush()
        log.close()
        for _ in range(2):
            with pytest.raises(UncleanShutdownError):
                open_log(tmp_path / "t-0")
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


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


def test_reading_a_log_that_is_appended_to_ends_where_it_ended(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", segment_bytes=2 * ONE) as log:
        log.append([one() for _ in range(5)])
        reading = log.records(max_rows=1)
        assert next(reading).offset == 0
        log.append([one() for _ in range(5)])
        assert [r.offset for r in reading] == [1, 2, 3, 4]
        assert offsets(log, offset=(3, 8)) == [3, 4, 5, 6, 7]
        assert log.lookup(9).base_offset == 9
        assert log.refresh() is log


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
