"""Cuts: what stays is what lay in front, on the disk as in memory, wherever a cut ends early."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kseg.analysis.verify import verify
from kseg.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    SegmentInUseError,
)
from kseg.files import io
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.segment.reader import Segment
from kseg.log.writer import truncate
from tests.builders import batch, record
from tests.unit.log.made import (
    NOW_MS,
    fill,
    new_log,
    offsets_of,
    open_log,
    stored,
    thirty_records,
    told,
)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return thirty_records(tmp_path)


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


# ---- back to an offset ---------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [True, False])
def test_a_segment_that_is_appended_to_again_is_as_old_as_before(
    tmp_path: Path, flushed: bool
) -> None:
    clock = [NOW_MS]
    (tmp_path / "data").mkdir()
    with Log.open(
        tmp_path / "data" / "t-0",
        mode="append",
        create=True,
        config=LogConfig(segment_ms=10_000),
        now_ms=lambda: clock[0],
    ) as log:

        def append() -> list[int]:
            log.append(batch([record(b"no time", timestamp=-1)]))
            return [info.base_offset for info in log.segments]

        append()
        append()
        clock[0] += 6_000
        log.roll()
        append()
        if flushed:
            log.flush()
        log.truncate_to(1)
        clock[0] += 4_000
        assert append() == [0]
        clock[0] += 1
        assert append() == [0, 2]


def test_a_segment_that_was_loaded_is_as_old_as_the_loading(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=500)
    fill(log, [3] * 10)
    log.close()
    with open_log(log.path) as again:
        assert again.state.created_ms(9) == NOW_MS


def test_no_offset_is_below_nothing(log: Log) -> None:
    with pytest.raises(ValueError, match="-1"):
        log.truncate_to(-1)
    with pytest.raises(ValueError, match="start at 6 and end at 5"):
        log.truncate_fully_and_start_at(5, 6)


def test_what_is_read_through_a_map_stays_for_its_readers(log: Log) -> None:
    before = told(log.path)
    path = log.segments[1].path
    with Segment.open(path, mapping="always") as reader:
        assert len(reader.batches()) == 3
        assert log.truncate_to(18)  # all of that segment stays
        assert log.truncate_to(13)
        assert len(reader.batches()) == 3
    fill(log, [2])
    kept = [each for each in before if each.last_offset < 13]
    assert told(log.path)[:-1] == kept
    assert log.fetch(13).next_offset == 15
    log.close()
    assert verify(log.path).ok


def test_an_index_that_is_looked_into_through_a_map_stays_for_its_readers(log: Log) -> None:
    with Log.open(log.path, mapping="always") as other, other.open_segment(other.segments[1]) as s:
        count = s.offset_index.entry_count
        assert count
        assert log.truncate_to(12)
        assert s.offset_index.entry_count == count
    log.close()
    assert verify(log.path).ok


def test_what_is_read_through_a_map_is_not_cut_without_room_for_what_stays(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = told(log.path)
    path = log.segments[1].path
    with Segment.open(path, mapping="always"):
        with monkeypatch.context() as full:
            full.setattr(os, "fstatvfs", lambda _fd: SimpleNamespace(f_bavail=0, f_frsize=512))
            with pytest.raises(SegmentInUseError, match="the disk has 0 bytes left"):
                log.truncate_to(13)
        assert told(log.path) == before
        assert log.log_end_offset == 30
        assert log.truncate_to(13)


def test_damage_in_front_of_the_cut_stops_it_before_anything_changes(log: Log) -> None:
    victim = told(log.path)[4]
    path = log.segments[1].path
    with open(path, "r+b") as file:
        file.seek(victim.position + 8)
        file.write((3).to_bytes(4, "big"))
    listed = names(log.path)
    with pytest.raises(CorruptRecordError):
        log.truncate_to(16)
    assert names(log.path) == listed
    assert log.log_end_offset == 30
    fill(log, [1])


# ---- plans ---------------------------------------------------------------------------------------


def test_a_plan_for_a_log_that_begins_later_names_the_new_beginning(log: Log) -> None:
    log.truncate_fully_and_start_at(50)
    plan = truncate.plan_of(log.path, log.version, 20)
    assert plan.whole
    assert [each.action for each in plan.actions] == ["delete", "create"]
    assert plan.actions[1].path == str(log.path / f"{20:020d}.log")


# ---- all of it -----------------------------------------------------------------------------------


def test_a_new_beginning_may_call_its_start_an_earlier_offset(log: Log) -> None:
    log.truncate_fully_and_start_at(40, 35)
    assert (log.log_start_offset, log.log_end_offset) == (35, 40)
    assert log.fetch(36).size == 0


# ---- the start -----------------------------------------------------------------------------------


class DiskError(OSError):
    """A call that a test lets fail."""


def failing_from(call: int, counted: list[int]) -> io.Calls:
    """Each call from one on fails, as on a disk that is gone."""
    genuine = io.Calls()

    def counting(name: str) -> Callable[..., Any]:
        real = getattr(genuine, name)

        def run(*args: Any, **how: Any) -> Any:
            counted[0] += 1
            if counted[0] >= call:
                raise DiskError(5, "the disk is gone")
            return real(*args, **how)

        return run

    return io.Calls(**{each.name: counting(each.name) for each in fields(io.Calls)})


#: Calls that find out whether there is room, and change nothing.
LOOKS = 4


def test_a_log_that_failed_in_a_cut_does_not_show_what_was_to_go(log: Log) -> None:
    with io.calls_replaced(failing_from(LOOKS + 1, [0])), pytest.raises(DiskError):
        log.truncate_to(13)
    assert log.state.failed
    with pytest.raises(OffsetOutOfRangeError):
        log.fetch(20)
    assert log.fetch(10).next_offset == 12


def test_a_reading_that_was_overtaken_by_a_cut_does_not_mix_what_was_with_what_is(
    log: Log,
) -> None:
    pieces = log.read(max_rows=1, columns=("offset",))
    assert offsets_of([next(pieces)]) == [0]
    log.truncate_to(20)
    assert offsets_of(next(pieces) for _ in range(17)) == list(range(1, 18))
    log.append_as_follower(stored(20, 1))
    with pytest.raises(CorruptRecordError, match="was cut at 20"):
        next(pieces)
    assert offsets_of(log.read(offset=(18, None))) == [20]
