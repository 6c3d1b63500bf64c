"""Cuts that end in the middle: whatever call fails, the log that is opened again has no hole."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import CorruptRecordError, OffsetOutOfRangeError, PoisonedFileError
from kseg.files import io
from kseg.log.log import Log
from tests.unit.log.made import (
    LOG_START,
    checkpoint,
    fill,
    offsets_of,
    open_log,
    stored,
    thirty_records,
    told,
)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return thirty_records(tmp_path)


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


CHANGES: dict[str, Callable[[Log], Any]] = {
    "truncate": lambda log: log.truncate_to(13),
    "truncate in the last": lambda log: log.truncate_to(28),
    "begin anew later": lambda log: log.truncate_fully_and_start_at(100),
    "begin anew earlier": lambda log: log.truncate_fully_and_start_at(12),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_end_at_any_call_leaves_a_log_without_a_hole(
    log: Log, change: Callable[[Log], Any], tmp_path: Path
) -> None:
    log.close()
    before = told(log.path)
    calls = 0
    while True:
        calls += 1
        copy = tmp_path / f"copy-{calls}"
        os.mkdir(copy)
        _copy(log.path.parent, copy)
        broken = open_log(copy / "t-0", segment_bytes=500)
        counted = [0]
        with io.calls_replaced(failing_from(calls, counted)):
            try:
                change(broken)
                break
            except DiskError:
                pass
            # Failed for good, unless nothing had begun; closing does not write on.
            with pytest.raises((PoisonedFileError, DiskError)):
                fill(broken, [1])
        broken.state.active.close(trim=False)
        moved = tmp_path / f"moved-{calls}"
        os.mkdir(moved)
        _copy(copy, moved)
        with open_log(moved / "t-0", recover=True, segment_bytes=500) as again:
            left = told(again.path)
            start = left[0].base_offset if left else again.log_start_offset
            assert left == [each for each in before if each in left]
            assert [each.base_offset for each in left] == list(
                range(start, again.log_end_offset, 3)
            )[: len(left)]
            fill(again, [1])
    assert calls > 10


def test_an_empty_log_that_begins_anew_where_it_stands_is_there_at_any_call(
    log: Log, tmp_path: Path
) -> None:
    log.truncate_fully_and_start_at(100)
    log.close()
    for calls in itertools.count(1):
        copy = tmp_path / f"copy-{calls}"
        os.mkdir(copy)
        _copy(log.path.parent, copy)
        broken = open_log(copy / "t-0")
        with io.calls_replaced(failing_from(calls, [0])):
            try:
                broken.truncate_fully_and_start_at(100)
                break
            except DiskError:
                pass
        broken.state.active.close(trim=False)
        moved = tmp_path / f"moved-{calls}"
        os.mkdir(moved)
        _copy(copy, moved)
        with open_log(moved / "t-0", recover=True) as again:
            assert (again.log_start_offset, again.log_end_offset) == (100, 100)
    assert calls > 10


def _copy(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        there = target / path.relative_to(source)
        if path.name == ".lock":
            continue
        if path.is_dir():
            there.mkdir()
        else:
            there.write_bytes(path.read_bytes())


def test_a_log_that_failed_in_a_cut_does_not_show_what_was_to_go(log: Log) -> None:
    with io.calls_replaced(failing_from(LOOKS + 1, [0])), pytest.raises(DiskError):
        log.truncate_to(13)
    assert log.state.failed
    with pytest.raises(OffsetOutOfRangeError):
        log.fetch(20)
    assert log.fetch(10).next_offset == 12


def test_a_start_that_is_not_written_down_is_moved_all_the_same(log: Log) -> None:
    with io.calls_replaced(failing_from(LOOKS + 1, [0])), pytest.raises(DiskError):
        log.delete_records_before(20)
    assert (log.log_start_offset, log.state.failed) == (20, False)
    fill(log, [1])
    log.close()
    assert checkpoint(log, LOG_START) == 20


def test_a_reading_that_was_overtaken_by_a_cut_does_not_mix_what_was_with_what_is(
    log: Log,
) -> None:
    pieces = log.read(max_rows=1, fields=("offset",))
    assert offsets_of([next(pieces)]) == [0]
    log.truncate_to(20)
    assert offsets_of(next(pieces) for _ in range(17)) == list(range(1, 18))
    log.append_as_follower(stored(20, 1))
    with pytest.raises(CorruptRecordError, match="was cut at 20"):
        next(pieces)
    assert offsets_of(log.read(start_offset=18)) == [20]
