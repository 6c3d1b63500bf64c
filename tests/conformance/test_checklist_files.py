"""Finding and cutting in a file, one claim a row: what Kafka's FileRecordsTest says of reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg import Segment
from kseg.constants import StopReason
from tests.builders import GZIP, batch, messages, record, records_of, wrapper, write_segment

ONE = batch([record(b"abc")])
TWO = batch([record(b"def"), record(b"ghi")], base_offset=1)
GAP = batch([record(b"jkl")], base_offset=10)


def test_every_format_and_codec_in_one_file_is_read(tmp_path: Path) -> None:
    parts, offset = [], 0
    for magic, codec in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)] + [
        (2, codec) for codec in range(5)
    ]:
        values = [record(bytes([magic, codec])), record(None)]
        parts.append(records_of(values, magic=magic, codec=codec, base_offset=offset))
        offset += 2
    path = write_segment(tmp_path, 0, *parts)
    with Segment.open(path) as segment:
        pieces = list(segment.read(columns=("offset", "value", "magic", "codec")))
    rows = [
        (magic, codec, value)
        for piece in pieces
        for magic, codec, value in zip(piece.magic, piece.codec, piece.value, strict=True)
    ]
    assert [offset for piece in pieces for offset in piece.offset] == list(range(26))
    assert rows[::2] == [(magic, codec, bytes([magic, codec])) for magic, codec, _ in rows[::2]]
    assert {value for _, _, value in rows[1::2]} == {None}


@pytest.mark.parametrize("zeros", [0, 2, 4, 5, 6, 11])
def test_a_few_zero_bytes_at_the_end_change_nothing(tmp_path: Path, zeros: int) -> None:
    path = write_segment(tmp_path, 0, ONE, TWO, bytes(zeros))
    with Segment.open(path) as segment:
        assert segment.batches().last_offset.tolist() == [0, 2]
        assert [piece.offset.tolist() for piece in segment.read()] == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("offset", "base_offset"), [(0, 0), (1, 1), (2, 1), (3, 10), (9, 10), (10, 10), (11, None)]
)
def test_an_offset_leads_to_the_first_batch_that_ends_at_it_or_later(
    tmp_path: Path, offset: int, base_offset: int | None
) -> None:
    path = write_segment(tmp_path, 0, ONE, TWO, GAP)
    with Segment.open(path) as segment:
        found = segment.lookup(offset)
    if base_offset is None:
        assert found is None
    else:
        assert found is not None
        assert found.base_offset == base_offset
        assert found.position == {0: 0, 1: len(ONE), 10: len(ONE + TWO)}[base_offset]


#: Target time -> offset and leader epoch of the record found.
TIMES = {9: (5, 0), 10: (5, 0), 11: (6, 1), 12: None}


@pytest.mark.parametrize("target", TIMES)
def test_a_time_leads_to_the_first_record_at_it_or_later(tmp_path: Path, target: int) -> None:
    path = write_segment(
        tmp_path,
        5,
        batch([record(timestamp=10)], base_offset=5, leader_epoch=0),
        batch([record(timestamp=11)], base_offset=6, leader_epoch=1),
    )
    with Segment.open(path) as segment:
        found = segment.lookup_time(target)
    assert (found and (found.offset, found.leader_epoch)) == TIMES[target]


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


def test_a_size_bounds_what_is_read_to_whole_batches(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, ONE, TWO, GAP)
    for size, last in [(len(ONE), [0]), (len(ONE) + 1, [0]), (len(ONE + TWO), [0, 2])]:
        with Segment.open(path, size=size) as segment:
            assert segment.batches().last_offset.tolist() == last
    with Segment.open(path, size=len(ONE) - 1) as segment:
        table = segment.batches()
        assert (len(table), table.stop) == (0, StopReason.TORN_TAIL)
    with Segment.open(path, size=2**31 - 1) as segment:
        assert len(segment.batches()) == 3


def test_an_emptied_file_has_no_batches(tmp_path: Path) -> None:
    with Segment.open(write_segment(tmp_path, 2**31 - 1)) as segment:
        assert (len(segment.batches()), segment.batches().stop) == (0, StopReason.END)
        assert list(segment.read()) == []
        assert segment.lookup(0) is None
