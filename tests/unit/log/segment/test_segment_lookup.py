"""Offsets and times are found where they are, whatever the indexes say or have become."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kseg import CorruptRecordError, Log, Segment
from kseg.log.segment.reader import RecordLocation
from tests.builders import batch, record, write_segment
from tests.unit.files.index_bytes import offset_index, time_index
from tests.unit.log.brute import Whole, copy_partition, partitions_of, sound_segments


def found_at(location: RecordLocation | None) -> tuple[int, int] | None:
    return None if location is None else (location.offset, location.timestamp)


def check(whole: Whole, offsets: list[int], times: list[int]) -> None:
    """Both lookups against the long way."""
    with Segment.open(whole.path, mapping="always") as segment:
        for offset in offsets:
            got = segment.lookup(offset)
            assert (got and got.position) == whole.batch_of(offset), f"offset {offset}"
        for time in times:
            got_time = found_at(segment.lookup_time(time))
            assert got_time == whole.record_at(time), f"time {time}"


@pytest.mark.one_case_in(10)
def test_every_offset_and_time_of_every_fixture_is_found(fixture_case: Path) -> None:
    for directory in partitions_of(fixture_case):
        for whole in sound_segments(directory):
            check(whole, whole.offsets_to_ask(50), whole.times_to_ask(10))


# ---- indexes that have become something else -----------------------------------------------------


@dataclass(frozen=True)
class Place:
    """What a breaker knows of the segment whose indexes it breaks."""

    whole: Whole
    others: list[Path]

    @property
    def index(self) -> Path:
        return self.whole.path.with_suffix(".index")

    @property
    def time_index(self) -> Path:
        return self.whole.path.with_suffix(".timeindex")

    @property
    def base_offset(self) -> int:
        return int(self.whole.path.stem)

    @property
    def offset_entries(self) -> list[tuple[int, int]]:
        """An entry for each batch, as a broker would write with the smallest interval."""
        table = self.whole.table
        relative = np.maximum(table.last_offset - self.base_offset, 0)
        return list(zip(relative.tolist(), table.position.tolist(), strict=True))

    @property
    def time_entries(self) -> list[tuple[int, int]]:
        """An entry for each batch that is later than all before it."""
        table = self.whole.table
        latest, entries = -1, []
        for time, last in zip(
            table.max_timestamp.tolist(), table.last_offset.tolist(), strict=True
        ):
            if time > latest:
                entries.append((time, last - self.base_offset))
                latest = time
        return entries


Breaker = Callable[[Place], None]


def deleted(place: Place) -> None:
    place.index.unlink(missing_ok=True)
    place.time_index.unlink(missing_ok=True)


def filled(index: bytes, time_index: bytes) -> Breaker:
    def fill(place: Place) -> None:
        place.index.write_bytes(index)
        place.time_index.write_bytes(time_index)

    return fill


def swapped(place: Place) -> None:
    offset_index(place.index, place.offset_entries[::-1])
    time_index(place.time_index, place.time_entries[::-1])


def in_the_middle(place: Place) -> None:
    offset_index(place.index, [(offset, at + 7) for offset, at in place.offset_entries])
    time_index(place.time_index, [(time - 1, offset) for time, offset in place.time_entries])


def past_the_end(place: Place) -> None:
    end = place.whole.table.end_position
    offset_index(place.index, [(offset, at + end) for offset, at in place.offset_entries])
    time_index(
        place.time_index, [(time, 2**31 - 1 - offset) for time, offset in place.time_entries]
    )


def of_another_segment(place: Place) -> None:
    for other in place.others:
        for mine, suffix in ((place.index, ".index"), (place.time_index, ".timeindex")):
            theirs = other.with_suffix(suffix)
            if theirs.exists():
                mine.write_bytes(theirs.read_bytes())


def too_late(place: Place) -> None:
    """Rising entries, each of which points at a batch some batches on."""
    entries, times = place.offset_entries, place.time_entries
    pairs = zip(entries, entries[3:], strict=False)
    offset_index(place.index, [(offset, at) for (offset, _), (_, at) in pairs])
    later = zip(times, times[2:], strict=False)
    time_index(place.time_index, [(time, offset) for (time, _), (_, offset) in later])


def too_early(place: Place) -> None:
    entries, times = place.offset_entries, place.time_entries
    pairs = zip(entries[3:], entries, strict=False)
    offset_index(place.index, [(offset, at) for (offset, _), (_, at) in pairs])
    earlier = zip(times[2:], times, strict=False)
    time_index(place.time_index, [(time, offset) for (time, _), (_, offset) in earlier])


BREAKERS: list[Breaker] = [
    deleted,
    filled(b"", b""),
    filled(bytes(80), bytes(120)),
    filled(b"\xff" * 80, b"\x7f" * 120),
    filled(random.Random(1).randbytes(163), random.Random(2).randbytes(243)),
    swapped,
    in_the_middle,
    past_the_end,
    of_another_segment,
    too_late,
    too_early,
]


@pytest.mark.one_case_in(10)
def test_broken_indexes_change_no_answer(fixture_case: Path, tmp_path: Path) -> None:
    for directory in partitions_of(fixture_case)[:2]:
        copy = copy_partition(directory, tmp_path)
        wholes = [whole for whole in sound_segments(copy) if whole.path.suffix == ".log"]
        for whole in wholes[:2]:
            place = Place(whole, [other.path for other in wholes if other is not whole])
            for breaker in BREAKERS:
                breaker(place)
                check(whole, whole.offsets_to_ask(5), whole.times_to_ask(3))


# ---- rules, one by one ---------------------------------------------------------------------------


def test_damage_in_front_of_an_offset_is_an_error_not_a_later_answer(tmp_path: Path) -> None:
    bad = bytearray(batch([record()], base_offset=1))
    bad[16] = 9
    path = write_segment(
        tmp_path, 0, batch([record()]), bytes(bad), batch([record()], base_offset=2)
    )
    write_segment(tmp_path, 3, batch([record()], base_offset=3))
    with Log.open(tmp_path) as log:
        assert log.lookup(0).position == 0
        assert log.lookup(3).position == 0
        with pytest.raises(CorruptRecordError) as caught:
            log.lookup(2)
    assert caught.value.path == str(path)
    assert caught.value.position == len(batch([record()]))
