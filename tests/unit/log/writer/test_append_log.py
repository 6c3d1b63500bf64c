from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from kseg.errors import (
    KsegError,
)
from kseg.log.data_directory import PartitionOffsets
from kseg.log.log import Log
from tests.unit.log.logs import offsets, one, open_log

SIX = 6


def written(path: Path, count: int = SIX, **settings: object) -> None:
    with open_log(path, **settings) as log:
        for _ in range(count):
            log.append(one())


def test_what_is_known_of_a_log_counts_more_than_its_directory(tmp_path: Path) -> None:
    written(tmp_path / "t-0")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with open_log(tmp_path / "t-0", known=PartitionOffsets(clean=True, log_start_offset=2)) as log:
        assert (log.log_start_offset, log.recovery_point, offsets(log)) == (2, SIX, [2, 3, 4, 5])
        assert log.refresh() is log


def test_a_log_open_for_reading_is_not_changed(tmp_path: Path) -> None:
    written(tmp_path / "t-0")
    with Log.open(tmp_path / "t-0") as log:
        assert log.high_watermark == SIX
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
