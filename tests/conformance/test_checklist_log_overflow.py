"""UnifiedLog, one claim a test: segments that hold offsets which have no relative form there.

The claims are those of Kafka's UnifiedLogTest on splitting, and of LogTestUtils.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.split import split_log
from kseg.log.segment.reader import Segment
from tests.builders import write_segment
from tests.conformance.logs import INT_MAX, Logs, bases, one
from tests.conformance.overflows import STRIDE, has_overflow, overflowing


def test_fix_01_the_directory_has_one_segment_that_overflows(logs: Logs) -> None:
    path = logs.directory()
    assert len(overflowing(path)) == 16
    assert [has_overflow(log) for log in sorted(path.glob("*.log"))] == [False, True, False]


@pytest.mark.parametrize(
    ("base", "offset", "count", "overflows"),
    [(0, INT_MAX, 1, False), (0, INT_MAX, 2, True), (5, 4, 1, True), (5, 5, 1, False)],
)
def test_fix_02_a_batch_overflows_that_lies_before_its_base_or_too_far_behind_it(
    tmp_path: Path, base: int, offset: int, count: int, overflows: bool
) -> None:
    path = write_segment(tmp_path, base, one(base_offset=offset, count=count, leader_epoch=0))
    assert has_overflow(path) == overflows


def test_fix_03_after_recovery_there_is_no_overflow_and_nothing_temporary(logs: Logs) -> None:
    path = logs.directory()
    values = overflowing(path)
    log = logs.open(path, recover=True)
    logs.clock.sleep(log.config.file_delete_delay_ms)
    log.delete_old_segments()
    assert [found.value for found in log.records()] == values
    assert not any(has_overflow(each) for each in path.glob("*.log"))
    assert [each for each in path.iterdir() if each.name.count(".") > 1] == []


def test_ul_150_the_middle_one_of_three_becomes_two(logs: Logs) -> None:
    path = logs.directory()
    values = overflowing(path)
    middle = path / f"{STRIDE:020d}.log"
    split_log(middle, LogConfig())
    with Log.open(path) as log:
        assert bases(log) == [0, STRIDE, 2 * STRIDE, 3 * STRIDE]
        assert [found.value for found in log.records()] == values
    assert not any(has_overflow(each) for each in path.glob("*.log"))


@pytest.mark.parametrize("count", [1, 2])
def test_ul_151_batches_that_all_overflow_get_the_base_of_the_first(logs: Logs, count: int) -> None:
    path = logs.directory()
    first = INT_MAX + 10
    data = [one(base_offset=first + n, leader_epoch=0) for n in range(count)]
    split_log(write_segment(path, 0, *data), LogConfig())
    assert [each.name for each in path.glob("*.log")] == [f"{first:020d}.log"]
    with Segment.open(path / f"{first:020d}.log") as segment:
        assert [found.offset for found in segment.records()] == list(range(first, first + count))


def test_ul_151_a_batch_whose_last_offset_overflows_gets_its_own_base(logs: Logs) -> None:
    path = logs.directory()
    data = one(base_offset=INT_MAX, count=2, leader_epoch=0)
    split_log(write_segment(path, 0, data), LogConfig())
    assert [each.name for each in path.glob("*.log")] == [f"{INT_MAX:020d}.log"]
