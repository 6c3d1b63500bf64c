"""Finding a place as Kafka 4.2 does, by whatever the offset index says."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kseg import Segment
from kseg.errors import CorruptRecordError
from kseg.log.recovery.raw_lookups import next_offset, position_of
from tests.builders import batch, record


def written(tmp_path: Path, bases: tuple[int, ...], tail: bytes = b"") -> tuple[Path, list[int]]:
    """A log of batches of two records each, and where they begin."""
    data, starts = b"", []
    for base in bases:
        starts.append(len(data))
        data += batch([record(b"a"), record(b"b")], base_offset=base)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(data + tail)
    return path, starts


@pytest.mark.parametrize(
    ("bases", "wanted", "found"),
    [
        ((0, 2, 8), 3, 1),
        ((0, 2, 8), 2, 1),
        ((0, 2, 8), 5, 2),
        ((0, 2, 8), 9, 2),
        ((0, 2, 8), 10, None),
        ((8, 0), 9, None),  # only the batch right in front of the end may hold it
        ((8, 0), 8, 0),
        ((8, 0, 20), 9, 2),
        ((), 0, None),
    ],
)
def test_the_batch_in_front_of_the_first_that_begins_past_an_offset_may_hold_it(
    tmp_path: Path, bases: tuple[int, ...], wanted: int, found: int | None
) -> None:
    path, starts = written(tmp_path, bases)
    with Segment.open(path) as segment:
        assert position_of(segment, b"", wanted) == (None if found is None else starts[found])


def test_a_last_index_entry_that_no_batch_holds_leaves_the_base_offset(tmp_path: Path) -> None:
    path, starts = written(tmp_path, (0, 8, 0))
    with Segment.open(path) as segment:
        assert next_offset(segment, struct.pack(">ii", 9, starts[1])) == 0
        assert next_offset(segment, struct.pack(">ii", 8, starts[1])) == 2


def test_a_size_that_no_batch_has_fails_a_search_that_walks_on_to_it(tmp_path: Path) -> None:
    path, starts = written(tmp_path, (0, 2), bytes(40))
    with Segment.open(path) as segment:
        assert position_of(segment, b"", 2) == starts[1]
        with pytest.raises(CorruptRecordError):
            position_of(segment, b"", 3)


@pytest.mark.parametrize(
    ("magic", "attributes", "is_told"),
    [(0, 2, True), (1, 1, True), (0xFF, 0xC9, True), (1, 0, False), (2, 2, False)],
)
def test_what_counts_as_a_compressed_message_on_the_way_is_told(
    tmp_path: Path, magic: int, attributes: int, is_told: bool
) -> None:
    path, starts = written(tmp_path, (0, 2, 4, 6))
    data = bytearray(path.read_bytes())
    for start in starts[1::2]:
        data[start + 16] = magic
        data[start + (17 if magic != 2 else 22)] = attributes
    path.write_bytes(data)
    told: list[tuple[str, int]] = []
    with Segment.open(path) as segment:
        position_of(segment, b"", 4, lambda *place: told.append(place))
    assert told == ([(str(path), starts[1])] if is_told else [])
