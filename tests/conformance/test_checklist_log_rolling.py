"""UnifiedLog, one claim a test: when a log goes on in a new segment, and what is left behind.

The claims are those of Kafka's UnifiedLogTest on rolling.
"""

from __future__ import annotations

import pytest

from tests.conformance.logs import NOW_MS, ONE, Logs, bases, offsets, one, snapshots
from tests.unit.log.logs import failing

HOUR_MS = 3_600_000
NO_TIME = -1


def test_ul_030_without_times_it_is_the_clock_that_rolls_but_no_empty_segment(logs: Logs) -> None:
    log = logs.new(segment_ms=HOUR_MS)
    assert bases(log) == [0]
    logs.clock.sleep(HOUR_MS + 1)
    log.append(one(time=NO_TIME))
    assert bases(log) == [0]
    log.append(one(time=NO_TIME))
    assert bases(log) == [0, 1]
    for end in (2, 3):
        logs.clock.sleep(HOUR_MS + 1)
        log.append(one(time=NO_TIME))
        assert len(bases(log)) == end + 1
    count = len(bases(log))
    log.append(one(time=NO_TIME))
    assert len(bases(log)) == count


def test_ul_031_a_first_record_without_time_leaves_its_segment_to_the_clock(logs: Logs) -> None:
    log = logs.new(segment_ms=HOUR_MS)
    log.append(one(time=NO_TIME))
    log.append(one(time=NOW_MS + HOUR_MS // 2))
    assert bases(log) == [0]
    logs.clock.sleep(HOUR_MS + 1)
    log.append(one(time=NOW_MS + HOUR_MS // 2))
    assert bases(log) == [0, 2]


def test_ul_032_with_times_it_is_the_records_that_roll(logs: Logs) -> None:
    log = logs.new(segment_ms=HOUR_MS)
    log.append(one())
    logs.clock.sleep(HOUR_MS + 1)
    log.append(one())
    assert bases(log) == [0]
    log.append(one(time=NOW_MS + HOUR_MS + 1))
    assert bases(log) == [0, 2]
    log.append(one(time=NOW_MS + HOUR_MS + 1))
    assert bases(log) == [0, 2]
    assert log.append(b"").valid_bytes == 0
    assert (bases(log), log.log_end_offset) == ([0, 2], 4)


def test_ul_033_jitter_rolls_earlier_and_never_more_than_it_may(logs: Logs) -> None:
    jitter = HOUR_MS // 20
    log = logs.new(segment_ms=HOUR_MS, segment_jitter_ms=jitter)
    log.append(one(time=NO_TIME))
    logs.clock.sleep(HOUR_MS - jitter)
    log.append(one(time=NO_TIME))
    assert bases(log) == [0]
    logs.clock.sleep(jitter + 1)
    log.append(one(time=NO_TIME))
    assert bases(log) == [0, 2]


def test_ul_035_loc_23_an_empty_segment_is_made_again_in_its_place(logs: Logs) -> None:
    log = logs.new()
    log.roll(0)
    assert bases(log) == [0]
    log.append(one())
    log.append(one())
    log.roll()
    assert bases(log) == [0, 2]
    log.state.active.resize_indexes(0)
    log.append(one())
    assert bases(log) == [0, 2]
    assert not log.state.active.offset_index.is_full
    assert offsets(log) == [0, 1, 2]


def test_ul_037_loc_06_many_small_segments_are_read_in_order_and_flushed_up_to_the_last(
    logs: Logs,
) -> None:
    log = logs.new(segment_bytes=ONE + ONE // 2)
    for _ in range(100):
        log.append(one())
    assert offsets(log) == list(range(100))
    # Kafka's scheduler does this; here it is whoever has the log.
    log.flush(bases(log)[-1])
    assert log.recovery_point == bases(log)[-1] == 99


def test_ul_038_081_a_roll_takes_a_snapshot_and_a_flush_takes_none_away(logs: Logs) -> None:
    log = logs.new()
    log.append(one(count=5))
    log.roll()
    log.append(one())
    log.roll()
    assert snapshots(log) == [5, 6]
    assert log.state.producers.map_end_offset == 6
    log.append(one(count=3))
    log.flush(8)
    assert (snapshots(log), log.recovery_point) == ([5, 6], 8)


def test_ul_039_the_snapshot_of_a_segment_that_is_emptied_stays(logs: Logs) -> None:
    log = logs.new(segment_bytes=ONE + ONE // 2)
    for sequence in range(2):
        log.append(one(producer_id=1, producer_epoch=0, base_sequence=sequence))
    assert (bases(log), snapshots(log)) == ([0, 1], [1])
    log.truncate_to(1)
    assert (bases(log), snapshots(log)) == ([0, 1], [1])
    assert log.segments[-1].size == 0
    assert log.state.producers.entries[1].last_sequence == 0


def test_ul_040_nothing_is_flushed_whose_snapshot_is_not(logs: Logs) -> None:
    log = logs.new()
    log.append(one(producer_id=1, producer_epoch=0, base_sequence=0))
    log.roll()
    refused = failing("fsync", "fdatasync", error=OSError(5, "made to fail"), ends=".snapshot")
    with refused, pytest.raises(OSError, match="made to fail"):
        log.flush()
    assert log.recovery_point == 0


def test_ul_041_a_rolled_index_has_no_room_and_one_cut_to_nothing_has_all(logs: Logs) -> None:
    log = logs.new(segment_bytes=10 * ONE, index_interval_bytes=1, segment_index_bytes=1000)
    for _ in range(12):
        log.append(one())
    assert bases(log) == [0, 10]
    sizes = {
        name: (log.path / f"{0:020d}.{name}").stat().st_size for name in ("index", "timeindex")
    }
    assert sizes["index"] == 9 * 8
    log.truncate_to(0)
    assert bases(log) == [0]
    active = log.state.active
    assert (active.offset_index.slots, active.time_index.slots) == (1000 // 8, 1000 // 12)
    assert (active.offset_index.count, active.time_index.count) == (0, 0)
    for _ in range(10):
        log.append(one())
    assert bases(log) == [0]
