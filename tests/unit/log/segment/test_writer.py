from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg._kernels.placement import place_rows
from kseg.errors import (
    FormatError,
    KsegError,
    LimitExceededError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    PoisonedFileError,
)
from kseg.files import io
from kseg.files.index import TimeIndexEntry
from kseg.files.txn_index import AbortedTxn
from kseg.format.header import FIELDS, BatchTable, scan
from kseg.log.config import LogConfig
from kseg.log.segment.index_entries import Indexed, place
from kseg.log.segment.writer import SegmentWriter
from tests.builders import write_segment
from tests.segments import (
    append,
    batch_of,
    offset_entries,
    time_entries,
)

CONFIG = LogConfig(index_interval_bytes=10, segment_index_bytes=240)


def new(directory: Path, base_offset: int = 0, **changes: object) -> SegmentWriter:
    config = CONFIG.with_changes(**changes)
    return SegmentWriter.open(directory, base_offset, config, create=True, now_ms=0)


def state(segment: SegmentWriter) -> tuple[object, ...]:
    return (
        segment.size,
        segment.latest,
        segment.rolling_timestamp,
        segment.offset_index.count,
        segment.offset_index.last_offset,
        segment.time_index.count,
        segment.time_index.last_entry,
    )


# Appending


@pytest.mark.parametrize("size", [99, 101])
def test_parts_of_another_size_are_refused(size: int, tmp_path: Path) -> None:
    with new(tmp_path) as segment:
        with pytest.raises(ValueError, match="have not the 100 bytes"):
            segment.append([bytes(size)], scan(batch_of(100, base_offset=0)))
        assert segment.append([], scan(b"")) == segment.size == 0


def failing_at(name: str, number: int) -> io.Calls:
    """A disk that refuses one call, the half of its bytes written."""
    calls = 0
    real: Callable[..., int] = getattr(io.Calls(), name)

    def call(*arguments: object) -> int:
        nonlocal calls
        calls += 1
        if calls != number:
            return real(*arguments)
        if name == "pwritev":
            fd, parts, position = arguments
            data = b"".join(parts)  # type: ignore[arg-type]
            os.pwrite(fd, data[: len(data) // 2], position)  # type: ignore[arg-type]
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    return io.Calls(**{name: call})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_append_that_fails_at_any_write_changes_nothing(number: int, tmp_path: Path) -> None:
    with new(tmp_path) as segment:
        append(segment, batch_of(100, base_offset=0, timestamp=1))
        append(segment, batch_of(100, base_offset=1, timestamp=2))
        log, before = segment.path.read_bytes(), state(segment)
        refused = [batch_of(100, base_offset=n, timestamp=n + 1) for n in (2, 3)]
        with (
            io.calls_replaced(failing_at("pwritev", number)),
            pytest.raises(OSError, match="Input/output"),
        ):
            append(segment, *refused)
        assert (segment.path.read_bytes(), state(segment)) == (log, before)
        assert not segment.poisoned
        append(segment, *refused)
        assert segment.offset_index.count == 3
        assert segment.path.read_bytes() == log + b"".join(refused)


def test_an_offset_that_the_index_refuses_is_not_appended(tmp_path: Path) -> None:
    with new(tmp_path) as segment:
        append(segment, batch_of(100, base_offset=5, timestamp=1))
        append(segment, batch_of(100, base_offset=6, timestamp=2))
        before = (segment.path.read_bytes(), state(segment))
        with pytest.raises(OffsetsOutOfOrderError, match="not above 6"):
            append(segment, batch_of(100, base_offset=6, timestamp=3))
        assert (segment.path.read_bytes(), state(segment)) == before


def test_a_segment_that_cannot_undo_never_takes_more(tmp_path: Path) -> None:
    segment = new(tmp_path)
    append(segment, batch_of(100, base_offset=0, timestamp=1))
    segment.flush()  # makes the indexes, which takes an ftruncate each
    calls = io.Calls(
        pwritev=failing_at("pwritev", 2).pwritev, ftruncate=failing_at("ftruncate", 1).ftruncate
    )
    with io.calls_replaced(calls), pytest.raises(OSError, match="Input/output"):
        append(segment, batch_of(100, base_offset=1, timestamp=2))
    assert segment.poisoned
    with pytest.raises(PoisonedFileError):
        append(segment, batch_of(100, base_offset=2, timestamp=2))
    segment.close(trim=False)


def test_batches_that_the_indexes_have_no_room_for_go_without_entries(tmp_path: Path) -> None:
    with new(tmp_path, segment_index_bytes=24) as segment:
        append(segment, *(batch_of(100, base_offset=n, timestamp=n) for n in range(9)))
        assert (segment.offset_index.count, segment.offset_index.slots) == (3, 3)
        assert (segment.time_index.count, segment.time_index.slots) == (1, 2)
        assert segment.latest == (8, 8)
        assert ask(segment)
        segment.become_inactive()
        assert time_entries(segment.path.with_suffix(".timeindex")) == [(1, 1), (8, 8)]


def test_the_first_append_after_an_opening_is_not_indexed(tmp_path: Path) -> None:
    with new(tmp_path) as segment:
        append(segment, batch_of(100, base_offset=0, timestamp=1))
        append(segment, batch_of(100, base_offset=1, timestamp=2))
    with SegmentWriter.open(tmp_path, 0, CONFIG, now_ms=0) as again:
        again.resize_indexes(240)
        assert again.latest == (2, 1)
        append(again, batch_of(100, base_offset=2, timestamp=3))
        append(again, batch_of(100, base_offset=3, timestamp=4))
    index = tmp_path / f"{0:020d}.index"
    assert offset_entries(index) == [(1, 100), (3, 300)]
    assert time_entries(index.with_suffix(".timeindex")) == [(2, 1), (4, 3)]


ROWS = st.lists(
    st.tuples(st.integers(1, 50), st.integers(-1, 60), st.integers(1, 300)), max_size=60
)


def wanted_entries(
    rows: list[tuple[int, int, int]],
    position: int,
    since: int,
    interval: int,
    latest: TimeIndexEntry,
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], tuple[int, int, TimeIndexEntry]]:
    """(last offset, position) of entries, the largest timestamp at each, and where all stands."""
    entries, times = [], []
    for last, timestamp, size in rows:
        if timestamp > latest.timestamp:
            latest = TimeIndexEntry(timestamp, last)
        if since > interval:
            entries.append((last, position))
            times.append(tuple(latest))
            since = 0
        position, since = position + size, since + size
    return entries, times, (position, since, latest)


def table_of(rows: list[tuple[int, int, int]]) -> BatchTable:
    table = scan(b"".join(batch_of(100, base_offset=n) for n in range(len(rows))))
    if rows:
        values = table.rows.copy()
        columns = np.array(rows)
        for name, column in zip(("last_offset", "max_timestamp", "size"), columns.T, strict=True):
            values[:, FIELDS.index(name)] = column
        object.__setattr__(table, "rows", values)
    return table


@given(rows=ROWS, interval=st.integers(0, 500), room=st.tuples(*[st.integers(0, 70)] * 2))
def test_a_table_is_placed_as_its_batches_are(
    rows: list[tuple[int, int, int]], interval: int, room: tuple[int, int]
) -> None:
    ends = [99 + end for end in accumulate(step for step, _, _ in rows)]
    batches = [(end, *row[1:]) for end, row in zip(ends, rows, strict=True)]
    how = (1000, 7, interval, TimeIndexEntry(-1, 100))
    wanted, wanted_times, behind = wanted_entries(batches, *how)
    indexed = Indexed(99, TimeIndexEntry(-1, 100), *room)
    found = place(table_of(batches), *how, base_offset=100, indexed=indexed)
    assert found[3:] == (*behind, len(rows), None)
    entries = [(offset - 100, position) for offset, position in wanted[: room[0]]]
    assert [*struct.iter_unpack(">ii", found.offsets)] == entries
    times, largest = [], -1
    for timestamp, offset in wanted_times:
        if timestamp > largest and len(times) < room[1]:
            times.append((timestamp, offset - 100))
            largest = timestamp
    assert [*struct.iter_unpack(">qi", found.times)] == times
    assert found.indexed.offset_room == room[0] - len(entries)
    assert found.indexed.time_room == room[1] - len(times)


@pytest.mark.parametrize(
    ("rows", "indexed", "error", "said"),
    [
        ([(102, 5, 90)], (102, (-1, 100), 9, 9), OffsetsOutOfOrderError, "not above 102"),
        ([(102, 5, 90)], (101, (4, 103), 9, 9), OffsetsOutOfOrderError, "that of offset 102, b"),
        ([(100 + 2**31, 5, 90)], (99, (-1, 100), 9, 9), OffsetOverflowError, "32-bit form"),
        ([(99, 5, 90)], (99, (-1, 100), 9, 9), OffsetOverflowError, "32-bit form"),
        ([(102, 5, 90)], (99, (-1, 100), 1, 9), LimitExceededError, "no room"),
        ([(102, 5, 90)], (99, (-1, 100), 9, 1), LimitExceededError, "no room"),
    ],
)
def test_batches_are_placed_up_to_the_one_that_cannot_have_its_entry(
    rows: list[tuple[int, int, int]],
    indexed: tuple[int, tuple[int, int], int, int],
    error: type[KsegError],
    said: str,
) -> None:
    offset, time, *room = indexed
    stand = Indexed(offset, TimeIndexEntry(*time), *room)
    if error is LimitExceededError:  # the last entry that there is room for comes first
        rows = [(101, 3, 50), *rows]
    found = place(
        table_of([(100, -1, 10), *rows, (300, 9, 10)]), 1000, 8, 9, TimeIndexEntry(*time),
        base_offset=100, indexed=stand, strict=True,
    )  # fmt: skip
    before = len(rows)
    assert found.placed == before
    assert found.end == 1010 + sum(size for _, _, size in rows[:-1])
    assert isinstance(found.refusal, error)
    assert (found.refusal.position, found.refusal.offset) == (found.end, rows[-1][0])
    assert said in str(found.refusal)
    assert len(found.offsets) == 8 * (before - 1)


def test_the_kernel_minds_its_bounds() -> None:
    rows = scan(batch_of(100, base_offset=0)).rows
    good = np.array([0, 0, -1, 0, -1, -1, 0, 1, 1], dtype=np.int64)
    for base, state_given, offsets, times in [
        (-1, good, 8, 12),
        (0, good[:8], 8, 12),
        (0, good, 7, 12),
        (0, good, 8, 11),
        (0, good - 2, 8, 12),
    ]:
        room = bytearray(offsets), bytearray(times)
        with pytest.raises(ValueError, match=r"room|shape"):
            place_rows(rows, base, 0, False, state_given.copy(), *room)
    with pytest.raises(ValueError, match="shape"):
        place_rows(rows[:, :3].copy(), 0, 0, False, good.copy(), bytearray(8), bytearray(12))


# Rolling


def ask(segment: SegmentWriter, **how: int) -> bool:
    asked = {
        "now_ms": 0,
        "max_timestamp": -1,
        "messages_bytes": 100,
        "largest_offset": 50,
        "segment_ms": 1000,
    }
    return segment.should_roll(**(asked | how))


# Cutting


def test_cutting_cuts_aborted_transactions_and_makes_room_for_entries(tmp_path: Path) -> None:
    with new(tmp_path) as segment:
        for n in range(5):
            append(segment, batch_of(100, base_offset=n, timestamp=n))
        for last_offset in (2, 4):
            segment.txn_index.append(AbortedTxn(1, 0, last_offset, 0))
        segment.become_inactive()
        assert segment.offset_index.is_full
        segment.truncate_to(3)
        assert segment.txn_index.read().last_offsets.tolist() == [2]
        assert (segment.offset_index.slots, segment.offset_index.count) == (30, 2)
        assert (segment.time_index.slots, segment.time_index.count) == (20, 2)
        append(segment, batch_of(100, base_offset=3, timestamp=1))
        assert segment.offset_index.count == 2  # bytes are counted from here on


def test_the_next_offset_is_found_behind_a_torn_tail_but_not_behind_damage(tmp_path: Path) -> None:
    data = batch_of(100, base_offset=0) + batch_of(100, base_offset=1)
    path = write_segment(tmp_path, 0, data, data[:50])
    with SegmentWriter.open(tmp_path, 0, CONFIG, now_ms=0) as segment:
        assert segment.next_offset() == 2
    write_segment(tmp_path, 0, data, bytes(8), b"\xff" * 50)
    with (
        SegmentWriter.open(tmp_path, 0, CONFIG, now_ms=0) as segment,
        pytest.raises(FormatError, match=path.name),
    ):
        segment.next_offset()


# Life


def test_closing_goes_on_after_an_error_and_tells_the_first(tmp_path: Path) -> None:
    segment = new(tmp_path)
    append(segment, batch_of(100, base_offset=0, timestamp=5))
    segment.flush()
    opened = len(os.listdir("/proc/self/fd"))
    with (
        io.calls_replaced(failing_at("ftruncate", 1)),
        pytest.raises(OSError, match="Input/output"),
    ):
        segment.close()
    assert len(os.listdir("/proc/self/fd")) == opened - 3
    assert time_entries(tmp_path / f"{0:020d}.timeindex") == [(5, 0)]
