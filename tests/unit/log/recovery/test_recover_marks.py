"""What a recovery leaves for the next opening: a log that need not be recovered again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.errors import UncleanShutdownError
from kseg.files import io
from kseg.log.config import LogConfig
from kseg.log.data_directory import offsets_beside
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from kseg.log.recovery import recover
from kseg.log.recovery.recover import plan_recovery
from tests.builders import batch, record

NOW_MS = 1_700_000_000_000
MARK = ".kafka_cleanshutdown"
CONFIG = LogConfig(segment_index_bytes=1200)


def crashed(path: Path, *numbers: int, torn: bool = True) -> Path:
    """A data directory without a mark, a torn batch at the end of each log."""
    path.mkdir()
    with LogDirectory.open(path, mode="append", config=CONFIG, now_ms=lambda: NOW_MS) as directory:
        for number in numbers:
            directory.create("t", number).append(batch([record(b"x", timestamp=NOW_MS)]))
    (path / MARK).unlink()
    for number in numbers if torn else ():
        with open(path / f"t-{number}" / f"{0:020d}.log", "ab") as file:
            file.write(b"torn")
    return path


def test_the_mark_comes_with_the_last_of_several(tmp_path: Path) -> None:
    data = crashed(tmp_path / "data", 0, 1)
    recover.recover(data / "t-0", now_ms=NOW_MS)
    assert not (data / MARK).exists()
    with pytest.raises(UncleanShutdownError):
        Log.open(data / "t-1", mode="append")


def test_a_stray_log_leaves_the_recovery_point_of_the_partition_alone(tmp_path: Path) -> None:
    data = crashed(tmp_path / "data", 0, 1)
    longer = data / f"t-0.{'0' * 32}-stray"
    (data / "t-1").rename(longer)
    with open(longer / f"{0:020d}.log", "r+b") as file:
        file.truncate(0)
        for offset in range(9):
            file.write(batch([record(b"x", timestamp=NOW_MS)], base_offset=offset))
    ends = [
        recover.recover(each, now_ms=NOW_MS, clean=False).plan.log_end_offset
        for each in (data / "t-0", longer)
    ]
    assert ends == [1, 9]
    assert offsets_beside(data / "t-0").recovery_point == 1


def test_a_recovery_that_fails_leaves_no_mark(tmp_path: Path) -> None:
    data = crashed(tmp_path / "data", 0)
    (data / MARK).touch()
    plan = plan_recovery(data / "t-0", now_ms=NOW_MS, clean=False)
    assert not plan.is_noop

    def fail(_fd: int, _size: int) -> None:
        raise OSError(5, "I/O error")

    with io.calls_replaced(io.Calls(ftruncate=fail)), pytest.raises(OSError, match="I/O"):
        plan.apply()
    assert not (data / MARK).exists()
