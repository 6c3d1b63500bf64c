"""UnifiedLog, one claim a test: which old segments go, and what goes with them.

The claims are those of Kafka's tests on retention and on the log's start.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kseg.files.checkpoints import EpochEntry
from kseg.files.names import SegmentFiles
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.reader.version import SegmentInfo
from kseg.log.writer.retention import LogBounds, choose
from tests.conformance.logs import NOW_MS, ONE, Logs, bases, one


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


def test_ul_120_122_nothing_goes_above_the_high_watermark(logs: Logs) -> None:
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
