from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kseg.change.cleanup import plan_retention
from kseg.errors import StalePlanError, UnsupportedFormatError
from kseg.files import io
from kseg.files.names import SegmentFiles
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.reader.version import SegmentInfo
from kseg.log.writer.retention import LOG_START, SIZE, LogBounds, choose
from tests.builders import batch, record

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
KEEP_ALL = LogConfig(retention_ms=-1)


def row(*sizes: int, first: int = 0, offsets: int = 10) -> list[SegmentInfo]:
    """Segments of so many bytes, `offsets` apart."""
    last = len(sizes) - 1
    return [
        SegmentInfo(
            SegmentFiles(base := first + offsets * index, Path(f"{base:020d}.log")),
            size,
            index == last,
        )
        for index, size in enumerate(sizes)
    ]


def chosen(
    segments: list[SegmentInfo],
    config: LogConfig,
    *,
    start: int = 0,
    high_watermark: int | None = None,
    times: dict[int, int] | None = None,
) -> list[tuple[int, str]]:
    end = segments[-1].base_offset + (10 if segments[-1].size else 0)
    given = times or {}
    retired = choose(
        segments,
        LogBounds(start, end, end if high_watermark is None else high_watermark),
        config=config,
        now_ms=NOW_MS,
        largest_timestamp=lambda info: given.get(info.base_offset, NOW_MS),
    )
    return [(each.base_offset, each.why) for each in retired]


def test_size_counts_only_what_the_log_start_has_left() -> None:
    config = KEEP_ALL.with_changes(retention_bytes=200)
    assert chosen(row(100, 100, 100, 100), config, start=10) == [(0, LOG_START), (10, SIZE)]
    assert chosen(row(100, 100, 100), config, start=10) == [(0, LOG_START)]


# Done to a log


CONFIG = LogConfig(
    segment_bytes=400, segment_index_bytes=1200, retention_ms=-1, file_delete_delay_ms=1000
)


def one(offset_time: int = NOW_MS) -> bytes:
    return batch([record(bytes(200), timestamp=offset_time)])


@contextmanager
def opened(path: Path, config: LogConfig = CONFIG, count: int = 0, **how: Any) -> Iterator[Log]:
    """A log with `count` records, one in each segment."""
    clock = how.pop("now_ms", lambda: NOW_MS)
    with Log.open(path, mode="append", create=True, config=config, now_ms=clock, **how) as log:
        for _ in range(count):
            log.append(one())
        yield log


def names(log: Log, pattern: str) -> list[str]:
    return sorted(path.name.lstrip("0") for path in log.path.glob(pattern))


def test_a_plan_changes_nothing_and_says_what_would_go(tmp_path: Path) -> None:
    with opened(tmp_path / "data" / "t-0", count=4) as log:
        log.flush()
        before = sorted(os.listdir(log.path))
        size = log.segments[0].size
        config = CONFIG.with_changes(retention_bytes=2 * size)
        plan = plan_retention(log, config=config, now_ms=NOW_MS)
        assert [(each.base_offset, each.bytes, each.why) for each in plan.segments] == [
            (0, size, SIZE),
            (1, size, SIZE),
        ]
        assert (plan.log_start_offset, plan.new_log_start_offset) == (0, 2)
        assert (plan.deleted_bytes, plan.kept_bytes, plan.rolls) == (2 * size, 2 * size, False)
        assert sorted(os.listdir(log.path)) == before
        assert pickle.loads(pickle.dumps(plan)) == plan
        assert plan == plan_retention(log, config=config, now_ms=NOW_MS)
        assert "log start 0 -> 2" in str(plan)


def test_a_plan_for_a_relative_path_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "data" / "t-0", count=4):
        pass
    monkeypatch.chdir(tmp_path)
    config = CONFIG.with_changes(retention_bytes=0)
    plan = plan_retention("data/t-0", config=config, now_ms=NOW_MS)
    assert plan.segments
    assert plan.apply().segments_count == len(plan.segments)


def test_a_plan_is_stale_once_the_high_watermark_is_below_it(tmp_path: Path) -> None:
    config = CONFIG.with_changes(retention_bytes=0)
    with opened(tmp_path / "data" / "t-0", config, count=3) as log:
        log.update_high_watermark(2)
        plan = plan_retention(log)
        log.update_high_watermark(1)
        with pytest.raises(StalePlanError):
            plan.apply()
        assert names(log, "*.deleted") == []


def test_what_cannot_be_renamed_stays_a_part_of_the_log(tmp_path: Path) -> None:
    def rename(source: Any, target: Any) -> None:
        if os.fspath(target).endswith("1.log.deleted"):
            raise OSError(5, "I/O error", os.fspath(source))
        os.replace(source, target)

    config = CONFIG.with_changes(retention_bytes=0)
    with opened(tmp_path / "data" / "t-0", config, count=4) as log:
        log.update_high_watermark(3)
        with (
            io.calls_replaced(io.Calls(rename=rename)),
            pytest.raises(OSError, match="I/O"),
        ):
            log.delete_old_segments()
        assert log.log_start_offset == 3
        assert [info.base_offset for info in log.segments] == [1, 2, 3]
        assert [found.offset for found in log.records()] == [3]
        assert log.delete_old_segments().segments_count == 2
        assert names(log, "*.log") == ["3.log"]
        assert log.append(one()).first_offset == 4


def test_the_log_start_stays_written_down_until_the_names_are_gone_for_good(tmp_path: Path) -> None:
    """Where a rename fails, those before it were not flushed: a power cut brings some back."""
    checkpoint = tmp_path / "data" / "log-start-offset-checkpoint"
    written = []

    def rename(source: Any, target: Any) -> None:
        if os.fspath(target).endswith("2.index.deleted"):
            raise OSError(5, "I/O error", os.fspath(source))
        os.replace(source, target)

    def fsync(descriptor: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).name == "t-0":
            written.append(checkpoint.read_text())
        os.fsync(descriptor)

    with opened(tmp_path / "data" / "t-0", CONFIG.with_changes(retention_bytes=0), count=4) as log:
        log.update_high_watermark(3)
        with io.calls_replaced(io.Calls(rename=rename)), pytest.raises(OSError, match="I/O"):
            log.delete_old_segments()
        assert log.first_offset == 3
        log.state.note_offsets(write=True)
        assert checkpoint.read_text() == "0\n1\nt 0 3\n"
        with io.calls_replaced(io.Calls(fsync=fsync)):
            log.append(one(), durable=True)
        log.state.note_offsets(write=True)
        assert written[0] == "0\n1\nt 0 3\n"
        assert checkpoint.read_text() == "0\n0\n"


def test_segments_without_timestamps_go_by_the_age_of_their_files(tmp_path: Path) -> None:
    config = CONFIG.with_changes(retention_ms=DAY_MS)
    with opened(tmp_path / "data" / "t-0", config) as log:
        for _ in range(3):
            log.append(one(-1))
        path = log.path
    for base, days in ((0, 3), (1, 1), (2, 0)):
        time_ns = (NOW_MS - days * DAY_MS) * 1_000_000
        os.utime(path / f"{base:020d}.log", ns=(time_ns, time_ns))
    with opened(path, config) as log:
        assert [each.base_offset for each in plan_retention(log).segments] == [0]
        (retired,) = plan_retention(log).segments
        assert retired.largest_timestamp == NOW_MS - 3 * DAY_MS


def test_a_log_of_kafka_0_7_has_no_retention_here(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.kafka").touch()
    with Log.open(tmp_path / "t-0") as log, pytest.raises(UnsupportedFormatError):
        plan_retention(log)
