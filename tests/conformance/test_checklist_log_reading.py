"""UnifiedLog, one claim a test: what a read gives, which offset a time has, what a cut leaves.

The claims are those of Kafka's UnifiedLogTest on reading, timestamps and truncation.
"""

from __future__ import annotations

import pytest

from kseg.errors import OffsetOutOfRangeError
from kseg.log.log import Log
from tests.builders import record, records_of, write_segment
from tests.conformance.logs import NOW_MS, ONE, Logs, bases, named, offsets, one, snapshots
from tests.segments import time_entries

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def follower(offset: int, *, epoch: int = 0, **fields: int) -> bytes:
    return one(base_offset=offset, leader_epoch=epoch, **fields)


def first_of(log: Log, offset: int, **how: object) -> int | None:
    """The offset of the first record at or after `offset` that a read from there gives."""
    fetched = log.fetch(offset, **{"max_bytes": 10_000, "isolation": "log_end", **how})
    found = [o for piece in fetched.columns(columns=("offset",)) for o in piece.offset.tolist()]
    return found[0] if found else None


# Reads


def test_ul_050_loc_07_what_is_appended_is_read_back_one_by_one(logs: Logs) -> None:
    log = logs.new(segment_bytes=3 * ONE)
    assert offsets(log) == []
    for number in range(50):
        log.append(one(b"%d" % number))
    assert [first_of(log, offset) for offset in range(50)] == list(range(50))
    assert [found.value for found in log.records()] == [b"%d" % n for n in range(50)]
    assert len(log.fetch(50, max_bytes=1000, isolation="log_end").data) == 0
    assert log.recovery_point < log.log_end_offset == 50


def test_ul_055_there_is_no_reading_before_the_start_or_past_the_end(logs: Logs) -> None:
    log = logs.new()
    log.truncate_fully_and_start_at(1024)
    log.append(one())
    assert len(log.fetch(1025, max_bytes=1000, isolation="log_end").data) == 0
    for offset in (0, 1026):
        with pytest.raises(OffsetOutOfRangeError):
            log.fetch(offset, max_bytes=1000, isolation="log_end")


def test_ul_057_empty_files_are_a_log(logs: Logs) -> None:
    path = logs.directory()
    write_segment(path, 0)
    write_segment(path, 0, suffix=".index")
    log = logs.open(path, recover=True)
    assert log.append(one()).first_offset == 0


def test_ul_058_the_segments_of_a_range_begin_with_the_one_that_can_hold_its_start(
    logs: Logs,
) -> None:
    log = logs.new()
    for base in (0, 10, 20):
        log.roll(base)
        log.append_as_follower(follower(base))
    for offset, found in ((0, [0, 10, 20]), (1, [0, 10, 20]), (13, [10, 20]), (21, [20])):
        assert [info.base_offset for info in log.segments_from(offset)] == found


def test_ul_059_an_empty_segment_gets_its_indexes_at_the_latest_when_it_is_closed(
    logs: Logs,
) -> None:
    log = logs.new()
    log.append(one())
    log.roll()
    log.flush()
    assert "0.index" in named(log, "*.index")
    log.close()
    assert named(log, "*.index") == ["0.index", "1.index"]
    assert named(log, "*.timeindex") == ["0.timeindex", "1.timeindex"]


# Times


def test_ul_060_each_batch_of_a_follower_has_its_time_entry(logs: Logs) -> None:
    log = logs.new(index_interval_bytes=1, segment_index_bytes=12_000)
    data = b"".join(follower(n, time=NOW_MS + 10 * n) for n in range(100))
    log.append_as_follower(data)
    assert log.state.active.time_index.count == 99
    assert log.state.active.time_index.last_entry == (NOW_MS + 990, 99)


def test_ul_061_a_time_gives_its_offset_and_epoch(logs: Logs) -> None:
    log = logs.new()
    assert log.offset_for_timestamp(0) is None
    assert place(log, LATEST)[:2] == (-1, 0)
    log.append(one(time=1000), leader_epoch=0)
    log.append(one(time=2000), leader_epoch=1)
    assert place(log, 1000) == (1000, 0, 0)
    assert place(log, 2000) == (2000, 1, 1)
    assert place(log, 1001) == (2000, 1, 1)
    assert place(log, EARLIEST) == place(log, EARLIEST_LOCAL) == (-1, 0, 0)
    assert place(log, LATEST) == (-1, 2, 1)
    log.state.epochs.assign(2, 2)
    assert place(log, LATEST) == (-1, 2, 2)
    assert log.offset_for_timestamp(2001) is None


def place(log: Log, timestamp: int) -> tuple[int, int, int]:
    found = log.offset_for_timestamp(timestamp)
    assert found is not None
    return (found.timestamp, found.offset, found.leader_epoch)


def test_ul_062_the_largest_time_is_that_of_a_record_not_of_its_batch(logs: Logs) -> None:
    log = logs.new()
    given = [record(b"v", timestamp=time) for time in (1000, 3000, 2000)]
    log.append(records_of(given, magic=2))
    assert place(log, MAX_TIMESTAMP) == (3000, 1, 0)


# Truncation


def transactional(sequence: int) -> bytes:
    return one(producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)


@pytest.mark.parametrize("fully", [False, True])
def test_ul_070_cutting_below_an_open_transaction_forgets_it(logs: Logs, fully: bool) -> None:
    log = logs.new()
    log.append(transactional(0))
    log.append(transactional(1))
    log = logs.again(log)
    assert log.last_stable_offset == 0
    if fully:
        log.truncate_fully_and_start_at(0)
    else:
        log.truncate_to(0)
    assert dict(log.state.producers.entries) == {}
    log.append(one())
    assert log.last_stable_offset == 1


def test_ul_071_a_log_may_start_below_where_it_goes_on(logs: Logs) -> None:
    log = logs.new()
    log.append(transactional(0))
    log.truncate_fully_and_start_at(2, log_start_offset=1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 2)
    assert dict(log.state.producers.entries) == {}


def test_ul_072_cutting_at_the_end_changes_nothing_but_an_epoch_without_data(logs: Logs) -> None:
    log = logs.new()
    for _ in range(10):
        log.append(one(), leader_epoch=0)
    log.state.epochs.assign(4, 10)
    before = log.segments
    for offset in (10, 11):
        assert log.truncate_to(offset) is False
    assert (log.segments, log.log_end_offset) == (before, 10)
    assert [(e.epoch, e.start_offset) for e in log.leader_epochs] == [(0, 0)]


def test_ul_073_cut_and_filled_again_a_log_is_as_long_as_was_asked(logs: Logs) -> None:
    log = logs.new(segment_bytes=10 * ONE)
    for _ in range(10):
        log.append(one())
    assert (bases(log), log.state.version.size) == ([0], 10 * ONE)
    log.truncate_to(5)
    assert (log.log_end_offset, log.state.version.size) == (5, 5 * ONE)
    log.truncate_to(0)
    assert (log.log_end_offset, log.state.version.size) == (0, 0)
    for _ in range(10):
        log.append(one())
    assert (log.log_end_offset, log.state.version.size) == (10, 10 * ONE)
    log.truncate_fully_and_start_at(7)
    assert (log.log_end_offset, log.state.version.size) == (7, 0)
    log.append(one())
    log.truncate_to(0)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (0, 0, [0])
    with pytest.raises(ValueError, match="-1"):
        log.truncate_to(-1)


def test_ul_074_epochs_are_cut_with_the_log(logs: Logs) -> None:
    log = logs.new(segment_bytes=10 * ONE)
    for offset in range(20):
        log.append(one(), leader_epoch=0 if offset < 10 else 1 if offset < 16 else 2)
    left = []
    for offset in (20, 11, 10, 0):
        log.truncate_to(offset)
        left.append([(entry.epoch, entry.start_offset) for entry in log.leader_epochs])
    whole = [(0, 0), (1, 10), (2, 16)]
    assert left == [whole, whole[:2], whole[:1], []]


def test_ul_075_ldr_07_snapshots_above_a_cut_go(logs: Logs) -> None:
    log = logs.new(segment_bytes=ONE + ONE // 2)
    for sequence in range(3):
        log.append(one(producer_id=1, producer_epoch=0, base_sequence=sequence))
    assert snapshots(log) == [1, 2]
    ends = []
    for offset in (2, 1, 0):
        log.truncate_to(offset)
        ends.append((log.state.snapshots.newest_offset, log.state.producers.map_end_offset))
    assert ends == [(2, 2), (1, 1), (None, 0)]
    assert snapshots(log) == []


def test_ul_076_producers_are_rebuilt_where_snapshots_are_gone(logs: Logs) -> None:
    log = logs.new(segment_bytes=ONE + ONE // 2)
    for sequence in range(3):
        log.append(one(producer_id=1, producer_epoch=0, base_sequence=sequence))
    for path in log.path.glob("*.snapshot"):
        path.unlink()
    log.state.snapshots.delete_all()
    log.truncate_to(1)
    assert log.state.producers.entries[1].last_sequence == 0


def test_ul_077_psm_19_a_log_that_starts_anew_has_no_snapshots(logs: Logs) -> None:
    log = logs.new(segment_bytes=ONE + ONE // 2)
    for sequence in range(3):
        log.append(one(producer_id=1, producer_epoch=0, base_sequence=sequence))
    log.truncate_fully_and_start_at(29)
    assert (bases(log), snapshots(log)) == ([29], [])
    assert (log.state.producers.is_empty, log.state.producers.map_end_offset) == (True, 29)
    assert offsets(log) == []
    log.append(one(producer_id=1, producer_epoch=0, base_sequence=0))
    log.roll()
    assert snapshots(log) == [30]


def test_a_time_index_ends_with_the_largest_time(logs: Logs) -> None:
    log = logs.new()
    log.append(one(time=5000))
    log.append(one(time=4000))
    log.close()
    assert time_entries(log.path / f"{0:020d}.timeindex") == [(5000, 0)]
