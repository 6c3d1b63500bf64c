"""LogSegments and FileRecords, one claim a test: which segment holds an offset, what a file gives.

The claims are those of LogSegmentsTest, and those of FileRecordsTest that are about reading.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.constants import StopReason
from kseg.files.names import SegmentFiles
from kseg.log.producers.entry import OffsetMetadata
from kseg.log.reader.version import SegmentInfo, Version
from kseg.log.segment.reader import Segment
from tests.builders import GZIP, NONE, batch, messages, record, records_of, wrapper, write_segment

INT_MAX = 2**31 - 1
#: Three messages of magic 1, each of this size.
VALUES = (b"abcd", b"efgh", b"ijkl")
MESSAGE = 38


def version(*bases: int, size: int = 10) -> Version:
    """A log with segments at these bases, each of `size` bytes."""
    infos = [SegmentInfo(files(base), size, is_last=False) for base in bases]
    end = OffsetMetadata(bases[-1] + 1, bases[-1], size)
    start = bases[0]
    return Version(tuple(infos[:-1]), files(bases[-1]), start, end, end, end, start)


def files(base_offset: int) -> SegmentFiles:
    log = Path("t-0") / f"{base_offset:020d}.log"
    return SegmentFiles(base_offset, log, None, None, None)


def bases_from(log: Version, offset: int) -> list[int]:
    return [info.base_offset for info in log.segments_from(offset)]


# LogSegments


def test_sgs_01_a_log_is_its_segments_by_base_with_the_active_one_last() -> None:
    log = version(0, 100)
    assert [(info.base_offset, info.is_last) for info in log.segments] == [(0, False), (100, True)]
    assert log.active_info.base_offset == 100


@pytest.mark.parametrize(
    ("offset", "found"), [(1, [1, 2, 3, 4]), (2, [2, 3, 4]), (3, [3, 4]), (4, [4]), (5, [4])]
)
def test_sgs_02_segments_from_an_offset_begin_with_the_one_that_can_hold_it(
    offset: int, found: list[int]
) -> None:
    assert bases_from(version(1, 2, 3, 4), offset) == found


def test_sgs_03_the_active_segment_is_the_last_and_not_among_the_sealed() -> None:
    log = version(1, 2, 3, 4)
    assert (log.segments[0].base_offset, log.active.base_offset) == (1, 4)
    assert [info.base_offset for info in log.sealed] == [1, 2, 3]


@pytest.mark.parametrize(("offset", "floor"), [(2, 1), (3, 3), (4, 3), (6, 5), (7, 7), (99, 7)])
def test_sgs_04_the_segment_of_an_offset_is_the_last_whose_base_is_not_above_it(
    offset: int, floor: int
) -> None:
    assert bases_from(version(1, 3, 5, 7), offset)[0] == floor


@pytest.mark.parametrize(
    ("offset", "higher"),
    [(0, [1, 3, 5, 7, 9]), (1, [3, 5, 7, 9]), (8, [9]), (9, [])],
)
def test_sgs_05_those_above_an_offset_are_all_but_the_one_that_can_hold_it(
    offset: int, higher: list[int]
) -> None:
    found = bases_from(version(1, 3, 5, 7, 9), offset)
    assert [base for base in found if base > offset] == higher


def test_sgs_06_sizes_are_summed_beyond_31_bits() -> None:
    assert version(0, 1, 2, size=INT_MAX).size == 3 * INT_MAX


# FileRecords


@pytest.fixture
def path(tmp_path: Path) -> Path:
    given = [record(value, timestamp=n) for n, value in enumerate(VALUES)]
    return write_segment(tmp_path, 0, messages(given, magic=1))


def values(segment: Segment, **where: int) -> list[bytes | None]:
    return [found.value for found in segment.records(**where)]


def test_fr_02_in_front_of_a_file_is_no_place_and_behind_it_is_nothing(path: Path) -> None:
    with Segment.open(path) as segment:
        with pytest.raises(ValueError, match="start"):
            values(segment, start_position=-1)
        # Kafka refuses this one too; a reader's size may be older than the place it was told.
        assert values(segment, start_position=3 * MESSAGE + 1) == []


def test_fr_06_reading_twice_gives_the_same(path: Path) -> None:
    with Segment.open(path) as segment:
        assert values(segment) == values(segment) == list(VALUES)


@pytest.mark.parametrize("size", [3 * MESSAGE, 3 * MESSAGE + 1, 4 * MESSAGE, INT_MAX])
def test_fr_07_from_the_second_batch_on_whatever_size_is_asked(path: Path, size: int) -> None:
    with Segment.open(path, size=size) as segment:
        assert values(segment, start_position=MESSAGE) == list(VALUES[1:])


@pytest.mark.parametrize(
    ("asked", "found", "position"), [(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 50, 3), (50, 50, 3)]
)
def test_fr_08_an_offset_is_found_with_its_position_and_size(
    tmp_path: Path, asked: int, found: int, position: int
) -> None:
    offsets = (0, 1, 2, 50)
    given = [record(b"abcd", offset=offset) for offset in offsets]
    with Segment.open(write_segment(tmp_path, 0, messages(given, magic=1))) as segment:
        place = segment.lookup(asked)
    assert place is not None
    assert (place.last_offset, place.position, place.size) == (found, position * MESSAGE, MESSAGE)


def test_fr_08_behind_the_last_offset_nothing_is_found(path: Path) -> None:
    with Segment.open(path) as segment:
        assert segment.lookup(3) is None


@pytest.mark.parametrize(("size", "found"), [(MESSAGE, [b"abcd"]), (MESSAGE - 1, [])])
def test_fr_09_one_byte_less_than_a_batch_is_none(
    path: Path, size: int, found: list[bytes]
) -> None:
    with Segment.open(path, size=size) as segment:
        assert values(segment) == found


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_fr_13_a_time_is_found_but_never_in_magic_0(tmp_path: Path, magic: int, codec: int) -> None:
    parts = [
        records_of([record(b"", timestamp=time)], magic=magic, codec=codec, base_offset=offset)
        for offset, time in ((5, 10), (6, 11))
    ]
    with Segment.open(write_segment(tmp_path, 0, *parts)) as segment:
        found = [segment.lookup_time(time) for time in (9, 10, 11, 12)]
    rows = [place and (place.offset, place.timestamp, place.leader_epoch) for place in found]
    epoch = 0 if magic == 2 else -1
    first, second = (5, 10, epoch), (6, 11, epoch)
    assert rows == ([None] * 4 if magic == 0 else [first, first, second, None])


def test_a_time_search_starts_at_the_offset_asked_for(tmp_path: Path) -> None:
    records = [record(timestamp=30), record(timestamp=10), record(timestamp=20)]
    path = write_segment(tmp_path, 0, batch(records, codec=GZIP))
    with Segment.open(path) as segment:
        assert [
            found and found.offset
            for found in (
                segment.lookup_time(15),
                segment.lookup_time(15, start_offset=1),
                segment.lookup_time(25, start_offset=1),
            )
        ] == [0, 2, None]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_time_search_in_old_formats_has_no_epoch_and_finds_nothing_in_magic_0(
    tmp_path: Path, magic: int
) -> None:
    records = [record(timestamp=10), record(timestamp=11)]
    plain = messages(records, magic=magic, base_offset=5)
    packed = wrapper(records, magic=magic, codec=GZIP, base_offset=7)
    path = write_segment(tmp_path, 5, plain, packed)
    with Segment.open(path) as segment:
        found = [segment.lookup_time(11), segment.lookup_time(11, start_offset=7)]
    if magic == 0:
        assert found == [None, None]
    else:
        assert [(got.offset, got.leader_epoch) for got in found if got] == [(6, -1), (8, -1)]


def test_an_emptied_file_has_no_batches(tmp_path: Path) -> None:
    with Segment.open(write_segment(tmp_path, 2**31 - 1)) as segment:
        assert (len(segment.batches()), segment.batches().stop) == (0, StopReason.END)
        assert list(segment.read()) == []
        assert segment.lookup(0) is None
