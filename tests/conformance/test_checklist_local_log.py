"""LocalLog, one claim a test: segments, their end and start, rolling, cutting, names.

The claims are those of Kafka's LocalLogTest, asked of a whole log: it has no local one inside. What
that changes, a comment says.
"""

from __future__ import annotations

import pytest

from kseg.errors import KsegError, NotALogError
from kseg.files.grammar import parse_partition_dir
from tests.conformance.logs import ONE, Logs, bases, named, offsets, one

# Settings and the life of a log


def test_loc_04_new_settings_count_at_once(logs: Logs) -> None:
    log = logs.new(segment_bytes=2 * ONE)
    log.update_config(log.config.with_changes(segment_bytes=ONE))
    assert log.config.segment_bytes == ONE
    log.append(one())
    log.append(one())
    assert bases(log) == [0, 1]


def test_loc_08_ul_036_a_closed_log_takes_nothing_and_may_be_closed_again(logs: Logs) -> None:
    log = logs.new()
    log.append(one())
    log.close()
    for change in (lambda: log.append(one()), log.roll):
        with pytest.raises(KsegError, match="closed"):
            change()
    log.close()


# Cutting


def test_loc_12_13_18_a_log_that_starts_anew_has_one_empty_segment(logs: Logs) -> None:
    log = logs.new()
    for _ in range(5):
        log.append(one())
        log.roll()
    assert bases(log) == [0, 1, 2, 3, 4, 5]
    assert [info.base_offset for info in log.segments if not info.is_last] == [0, 1, 2, 3, 4]
    log.truncate_fully_and_start_at(10)
    assert bases(log) == [10]
    assert named(log, "*.log") == ["10.log"]
    assert (log.log_end_offset, log.log_start_offset, offsets(log)) == (10, 10, [])
    assert log.recovery_point == 0


def test_loc_17_cutting_drops_the_segments_above_and_the_batches_behind(logs: Logs) -> None:
    log = logs.new(segment_bytes=3 * ONE)
    for _ in range(12):
        log.append(one())
    assert bases(log) == [0, 3, 6, 9]
    log.truncate_to(7)
    assert bases(log) == [0, 3, 6]
    assert (log.log_end_offset, log.recovery_point) == (7, 0)
    assert offsets(log, offset=(6, None)) == [6]
    assert log.append(one()).first_offset == 7


# Reading up to a limit


@pytest.fixture
def limited(logs: Logs) -> object:
    """Segments at 0, 2 and 4 with two records each, the high watermark at 4."""
    log = logs.new(segment_bytes=2 * ONE)
    for _ in range(6):
        log.append(one())
    assert bases(log) == [0, 2, 4]
    log.update_high_watermark(4)
    return log


@pytest.mark.parametrize("offset", [4, 5])
def test_loc_15_a_read_at_the_limit_or_past_it_is_empty(limited, offset: int) -> None:
    fetched = limited.fetch(offset, max_bytes=100, isolation="read_uncommitted")
    assert (len(fetched.data), fetched.start_offset) == (0, offset)
    assert (fetched.segment, fetched.position) == (4, (offset - 4) * ONE)


# Names


@pytest.mark.parametrize("plain", ["", "topic", "-1", "topic-", "topic-1a", "non_kafka_dir"])
def test_loc_20_other_names_are_none(plain: str) -> None:
    for name in (plain, f"{plain}.{'0f' * 16}-delete", f"{plain}-delete"):
        with pytest.raises(NotALogError):
            parse_partition_dir(name)


# Rolling


def test_loc_02_24_a_roll_goes_to_the_end_or_further_as_is_expected(logs: Logs) -> None:
    log = logs.new()
    log.roll()
    assert bases(log) == [0]
    assert log.append(one()).first_offset == 0
    log.roll()
    assert bases(log) == [0, 1]
    log.append(one())
    log.roll(1)
    assert bases(log) == [0, 1, 2]


def test_loc_24_a_roll_past_the_end_leaves_a_gap(logs: Logs) -> None:
    log = logs.new()
    log.append(one())
    log.roll(5)
    assert bases(log) == [0, 5]
    assert log.append_as_follower(one(base_offset=5, leader_epoch=0)).first_offset == 5
    assert offsets(log) == [0, 5]
