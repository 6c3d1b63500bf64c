"""LogSegment and FileRecords, one claim a test: what a segment under a writer must do.

The claims are those of Kafka's LogSegmentTest (all but recovery's) and of FileRecordsTest on
writing. Segments start at 40, as there, with small indexes and an entry every 10 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kseg.errors import LimitExceededError, OffsetOverflowError
from kseg.files import io
from kseg.files.log_writer import LogWriter
from kseg.files.names import SegmentFiles
from kseg.log.config import LogConfig
from kseg.log.pending_deletes import Deletions, files_of_segment, remove_segment
from kseg.log.segment.writer import SegmentWriter
from tests.segments import append, messages_at, placed

CONFIG = LogConfig(index_interval_bytes=10, segment_index_bytes=1000)
INT_MAX = 2**31 - 1
#: Of one message "hello" of magic 1.
MESSAGE = 39

Make = Callable[..., SegmentWriter]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Segments that are released when the test ends."""
    made = []

    def open_segment(base_offset: int = 40, **how: object) -> SegmentWriter:
        directory = tmp_path / f"t-{len(made)}"
        directory.mkdir(exist_ok=True)
        how = {"config": CONFIG, "create": True, "now_ms": 0, **how}
        segment = SegmentWriter.open(directory, base_offset, **how)  # type: ignore[arg-type]
        made.append(segment)
        return segment

    yield open_segment
    for segment in made:
        segment.close(trim=False)


def found(segment: SegmentWriter, offset: int) -> int | None:
    """The position of the batch that a read from `offset` starts with."""
    with segment.reader() as reader:
        location = reader.lookup(offset)
        return None if location is None else location.position


def offsets_from(segment: SegmentWriter, offset: int) -> list[int]:
    with segment.reader() as reader:
        return [record.offset for record in reader.records(offset=(offset, None))]


# Appending and reading


@pytest.mark.parametrize(
    ("base_offset", "largest"),
    [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (2**31, 2**32)],
)
def test_seg_01_an_offset_without_a_relative_form_is_refused_and_nothing_written(
    base_offset: int, largest: int, make: Make
) -> None:
    segment = make(base_offset)
    data = messages_at(largest, timestamp=1)
    with pytest.raises(OffsetOverflowError):
        append(segment, data)
    assert (segment.size, segment.path.stat().st_size) == (0, 0)
    assert segment.offset_index.count == segment.time_index.count == 0


def test_seg_01_no_segment_has_a_negative_base(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="base offset -2147483648"):
        SegmentWriter.open(tmp_path, -(2**31), CONFIG, create=True, now_ms=0)
    assert not list(tmp_path.iterdir())


def test_seg_02_an_empty_segment_has_nothing_to_read(make: Make) -> None:
    segment = make()
    assert found(segment, 40) is None


def test_seg_03_05_a_read_from_a_gap_starts_behind_it(make: Make) -> None:
    segment = make()
    append(segment, messages_at(50, 51))
    append(segment, messages_at(60, 61))
    assert offsets_from(segment, 41) == [50, 51, 60, 61]
    assert offsets_from(segment, 55) == [60, 61]


@pytest.mark.parametrize(("offset", "position"), [(48, 0), (50, 0), (51, 39), (52, None)])
def test_seg_04_06_to_08_a_read_starts_with_the_message_that_holds_the_offset(
    offset: int, position: int | None, make: Make
) -> None:
    segment = make()
    append(segment, messages_at(50, 51))
    assert found(segment, offset) == position


def test_seg_09_appends_can_be_cut_off_and_made_again(make: Make) -> None:
    segment = make()
    for offset in range(40, 70):
        append(segment, messages_at(offset))
        append(segment, messages_at(offset + 1))
        assert offsets_from(segment, offset) == [offset, offset + 1]
        assert segment.truncate_to(offset + 1) == MESSAGE
        assert offsets_from(segment, offset) == [offset]
    assert segment.next_offset() == 70


# Truncating


def test_seg_10_to_14_an_empty_segment_rolls_for_an_offset_and_not_by_age(make: Make) -> None:
    first = make()
    assert first.offset_index.count == first.time_index.count == 0
    first.close()
    assert first.path.with_suffix(".index").stat().st_size == 0
    assert first.path.with_suffix(".timeindex").stat().st_size == 0
    segment = SegmentWriter.open(first.path.parent, 40, CONFIG, now_ms=1000)
    assert (segment.offset_index.size, segment.time_index.size) == (0, 0)
    segment.truncate_to(57, now_ms=2000)
    assert not segment.offset_index.is_full
    assert not segment.time_index.is_full
    assert (segment.offset_index.slots, segment.time_index.slots) == (125, 83)
    assert segment.waited_for_roll_ms(2000, -1) == 0
    assert segment.waited_for_roll_ms(2301, -1) == 301
    asked = {"max_timestamp": -1, "messages_bytes": 1024, "segment_ms": 300}
    assert not segment.should_roll(now_ms=2000, largest_offset=100, **asked)
    assert not segment.should_roll(now_ms=2301, largest_offset=100, **asked)
    assert segment.should_roll(now_ms=2000, largest_offset=INT_MAX + 200, **asked)
    segment.close()


def test_seg_15_16_19_entries_go_with_their_messages(make: Make) -> None:
    config = CONFIG.with_changes(index_interval_bytes=2 * MESSAGE - 1)
    segment = make(config=config)
    assert segment.next_offset() == 40
    for offset in range(40, 70):
        append(segment, messages_at(offset))
    assert segment.next_offset() == 70
    assert segment.time_index.count == 14
    segment.truncate_to(41)
    assert segment.time_index.count == 0
    assert (segment.max_timestamp, segment.largest_timestamp) == (400, 400)
    assert segment.next_offset() == 41


def test_seg_17_a_segment_cut_to_nothing_begins_anew(make: Make) -> None:
    segment = make(now_ms=1000)
    data = messages_at(40, 41, magic=0)
    append(segment, data)
    assert segment.waited_for_roll_ms(1500, -1) == 500
    assert segment.truncate_to(0, now_ms=1500) == len(data)
    assert segment.waited_for_roll_ms(1500, -1) == 0
    assert not segment.offset_index.is_full
    assert not segment.time_index.is_full
    assert found(segment, 0) is None
    append(segment, data)
    assert offsets_from(segment, 40) == [40, 41]


def test_seg_18_a_time_leads_to_the_first_message_not_before_it(make: Make) -> None:
    segment = make(config=CONFIG.with_changes(index_interval_bytes=2 * MESSAGE - 1))
    for offset in range(40, 50):
        append(segment, messages_at(offset))
    assert segment.largest_timestamp == 490
    with segment.reader() as reader:
        asked = {420: 42, 421: 43, 430: 43, 431: 44, 401: 41, 399: 40}
        for time, offset in asked.items():
            location = reader.lookup_time(time)
            assert location is not None
            assert location.offset == offset
        assert reader.lookup_time(491) is None


def test_seg_20_indexes_are_made_at_their_first_use_under_the_name_of_the_day(make: Make) -> None:
    segment = make(suffix=".cleaned")
    index, times = (
        segment.path.with_name(f"{40:020d}.{kind}.cleaned") for kind in ("index", "timeindex")
    )
    assert [path.name for path in index.parent.iterdir()] == [f"{40:020d}.log.cleaned"]
    assert segment.offset_index.path == str(index)
    assert segment.offset_index.count == 0
    assert index.exists()
    assert not times.exists()
    assert segment.time_index.count == 0
    assert times.exists()


def test_seg_20_a_rename_minds_no_index_that_is_not_there(make: Make) -> None:
    segment = make()
    files = files_of_segment(SegmentFiles(40, segment.path, segment.path.with_suffix(".index")))
    (marked,) = Deletions().mark_for_deletion(files, now_ms=0, delay_ms=1)
    assert list(segment.path.parent.iterdir()) == [marked]
    assert marked.name == f"{40:020d}.log.deleted"


# Preallocation


def test_seg_27_28_what_is_preallocated_is_no_log_and_goes_with_the_close(make: Make) -> None:
    size = 512 * 2**20
    config = CONFIG.with_changes(segment_bytes=size, preallocate=True)
    segment = make(config=config)
    append(segment, messages_at(50, 51))
    append(segment, messages_at(60, 61))
    assert offsets_from(segment, 55) == [60, 61]
    assert (segment.size, segment.path.stat().st_size) == (4 * MESSAGE, size)
    segment.close()
    assert segment.path.stat().st_size == 4 * MESSAGE
    again = SegmentWriter.open(segment.path.parent, 40, config, now_ms=0)
    assert again.size == 4 * MESSAGE
    assert append(again, messages_at(70)) == 4 * MESSAGE
    assert offsets_from(again, 40) == [50, 51, 60, 61, 70]
    again.close()


def test_seg_29_cutting_inside_a_gap_removes_what_follows_it(make: Make) -> None:
    segment = make()
    append(segment, messages_at(40))
    append(segment, messages_at(43))
    segment.truncate_to(41)
    assert offsets_from(segment, 40) == [40]


def test_seg_32_deleting_minds_no_missing_file(make: Make) -> None:
    segment = make()
    segment.flush()
    segment.path.unlink()
    index, times = (segment.path.with_suffix(end) for end in (".index", ".timeindex"))
    remove_segment(SegmentFiles(40, segment.path, index, times))
    assert not list(segment.path.parent.iterdir())


# FileRecords


def test_fr_01_no_file_grows_beyond_31_bits(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    with path.open("wb") as file:
        file.truncate(INT_MAX)
    writer = LogWriter.open(path)
    with pytest.raises(LimitExceededError):
        writer.append(b"x")
    assert path.stat().st_size == writer.size == INT_MAX
    writer.close(trim=False)
    with path.open("r+b") as file:
        file.truncate(INT_MAX + 1)
    with pytest.raises(LimitExceededError):
        LogWriter.open(path)


def test_fr_03_the_size_is_the_files_length_after_each_append(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    with LogWriter.open(path, create=True) as writer:
        for number in range(20):
            assert writer.append(bytes(number + 1)) == sum(range(number + 1))
            assert writer.size == path.stat().st_size


@pytest.mark.parametrize("zeros", [0, 2, 4, 5, 6, 11])
def test_fr_04_stray_zeros_behind_the_writers_back_are_no_batches(make: Make, zeros: int) -> None:
    segment = make()
    append(segment, messages_at(50, 51, 52))
    with segment.path.open("ab") as file:
        file.write(bytes(zeros))
    assert offsets_from(segment, 40) == [50, 51, 52]


def test_fr_05_a_reader_keeps_its_size_while_the_writer_goes_on(make: Make) -> None:
    segment = make()
    append(segment, messages_at(50, 51))
    with segment.reader() as reader:
        append(segment, messages_at(52))
        assert reader.size == 2 * MESSAGE
        assert [record.offset for record in reader.records()] == [50, 51]


def test_fr_10_cutting_at_the_second_message_leaves_one(make: Make) -> None:
    segment = make()
    append(segment, messages_at(50, 51, 52))
    assert segment.truncate_to(51) == 2 * MESSAGE
    assert placed(segment.path.read_bytes()) == [(50, 500, MESSAGE)]


@pytest.mark.parametrize(("size", "cuts"), [(42, []), (23, [23])])
def test_fr_11_a_file_that_is_no_longer_is_not_cut(
    size: int, cuts: list[int], tmp_path: Path
) -> None:
    asked: list[int] = []
    with LogWriter.open(tmp_path / "x.log", create=True) as writer:
        writer.append(bytes(42))
        with io.calls_replaced(io.Calls(ftruncate=lambda _fd, size: asked.append(size))):
            assert writer.truncate(size) == 42 - size
    assert asked == cuts


def test_fr_11_a_log_is_not_cut_past_its_end(tmp_path: Path) -> None:
    with LogWriter.open(tmp_path / "x.log", create=True) as writer:
        writer.append(bytes(42))
        for size in (43, -1):
            with pytest.raises(ValueError, match="cannot cut 42 bytes"):
                writer.truncate(size)
        assert writer.size == 42


@pytest.mark.parametrize("preallocated", [0, 2**20])
def test_fr_12_a_new_file_is_as_long_as_was_asked_until_it_is_closed(
    preallocated: int, tmp_path: Path
) -> None:
    path = tmp_path / "x.log"
    writer = LogWriter.open(path, create=True, preallocate_bytes=preallocated)
    assert (writer.size, path.stat().st_size) == (0, preallocated)
    assert writer.append(b"abcd", b"efgh") == 0
    writer.close()
    assert path.read_bytes() == b"abcdefgh"
    with LogWriter.open(path) as again:
        assert again.append(b"ijkl") == 8
