"""Offsets by time and epoch are those of a plain look at every record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg import Log
from kseg.log.reader import find
from kseg.log.reader.find import EpochEnd, TimestampOffset
from tests.builders import batch, record
from tests.unit.log.made import fill, new_log, stored

Batches = list[list[int]]


def log_of(root: Path, batches: Batches, **settings: Any) -> Log:
    """A log with a batch for each list of timestamps."""
    log = new_log(root, segment_bytes=400, **settings)
    for times in batches:
        given = [record(b"x", timestamp=time) for time in times]
        log.append_as_follower(batch(given, base_offset=log.log_end_offset))
    return log


def first_at_or_after(batches: Batches, time: int, start: int) -> TimestampOffset | None:
    flat = [each for times in batches for each in times]
    found = [offset for offset, each in enumerate(flat) if each >= time and offset >= start]
    return TimestampOffset(flat[found[0]], found[0], 0) if found else None


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=25),
    st.integers(0, 55),
    st.integers(0, 20),
    st.booleans(),
)
def test_a_time_leads_to_the_first_record_that_is_not_older(
    tmp_path_factory: pytest.TempPathFactory,
    batches: Batches,
    time: int,
    start: int,
    reading: bool,
) -> None:
    with log_of(tmp_path_factory.mktemp("times"), batches) as log:
        log.delete_records_before(min(start, log.log_end_offset))
        start = log.log_start_offset
        flat = [each for times in batches for each in times]
        assert log.offset_for_timestamp(time) == first_at_or_after(batches, time, start)
        largest = max(flat)
        expected = TimestampOffset(largest, flat.index(largest), 0)
        assert log.offset_for_timestamp(find.MAX_TIMESTAMP) == expected
        if reading:
            with Log.open(log.path) as other:
                assert other.offset_for_timestamp(find.MAX_TIMESTAMP) == expected


def test_ul_063_numbers_in_place_of_times_stand_for_the_ends(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        assert log.offset_for_timestamp(find.LATEST) == TimestampOffset(-1, 0)
        assert log.offset_for_timestamp(find.EARLIEST) == TimestampOffset(-1, 0)
        assert log.offset_for_timestamp(find.MAX_TIMESTAMP) is None
        assert log.offset_for_timestamp(5) is None
        fill(log, [2], leader_epoch=3)
        fill(log, [2], leader_epoch=5)
        log.delete_records_before(1)
        assert log.offset_for_timestamp(find.EARLIEST) == TimestampOffset(-1, 1, 3)
        assert log.offset_for_timestamp(find.EARLIEST_LOCAL) == TimestampOffset(-1, 1, 3)
        assert log.offset_for_timestamp(find.LATEST) == TimestampOffset(-1, 4, 5)
        for remote in (find.LATEST_TIERED, find.EARLIEST_PENDING_UPLOAD):
            assert log.offset_for_timestamp(remote) == TimestampOffset(-1, -1)
        log.state.epochs.assign(9, 4)  # no record yet
        assert log.offset_for_timestamp(find.LATEST) == TimestampOffset(-1, 4, 9)


@pytest.mark.parametrize("harm", ["missing", "empty", "garbage"])
def test_a_bad_time_index_hides_nothing(tmp_path: Path, harm: str) -> None:
    batches = [[10 * number + 1, 10 * number] for number in range(20)]
    log = log_of(tmp_path, batches)
    log.close()
    for path in log.path.glob("*.timeindex"):
        path.unlink()
        if harm == "empty":
            path.touch()
        if harm == "garbage":
            path.write_bytes(b"\x80" * 48)
    with Log.open(log.path) as reading:
        for time in range(0, 192, 7):
            found = reading.offset_for_timestamp(time)
            assert found == first_at_or_after(batches, time, 0)
        assert reading.offset_for_timestamp(find.MAX_TIMESTAMP) == TimestampOffset(191, 38, 0)


def test_the_end_of_an_epoch_is_where_the_next_begins(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        for epoch in (1, 4):
            log.append_as_follower(stored(log.log_end_offset, 3, leader_epoch=epoch))
        ends = {epoch: log.end_offset_for_epoch(epoch) for epoch in range(-1, 6)}
        assert ends == {
            -1: None,
            0: EpochEnd(0, 0),
            1: EpochEnd(1, 3),
            2: EpochEnd(1, 3),
            3: EpochEnd(1, 3),
            4: EpochEnd(4, 6),
            5: None,
        }
        with Log.open(log.path) as reading:
            assert {epoch: reading.end_offset_for_epoch(epoch) for epoch in ends} == ends
