"""Down-conversion, one claim a row: what must come out, and what it costs.

The claims are those of Kafka's MemoryRecordsBuilderTest, FileRecordsTest and
LazyDownConversionRecordsTest, and rules that only code tells. Input comes from the plain encoder,
output is read by the plain reader.
"""

from __future__ import annotations

from typing import Any

import pytest

from kseg.errors import UnsupportedFormatError
from kseg.format.down_convert import ConversionStats, LazyDownConversion, down_convert
from tests import reference
from tests.builders import (
    COMMIT,
    GZIP,
    NONE,
    ZSTD,
    batch,
    control_batch,
    messages,
    record,
    records_of,
)
from tests.conformance.outputs import batches_of, records_in


def test_markers_go_types_stay_and_the_records_are_counted() -> None:
    for codec in (NONE, GZIP):
        data = b"".join(
            [
                batch([record(b"a", timestamp=1)], log_append=True, max_timestamp=50, codec=codec),
                control_batch(COMMIT, base_offset=1),
                batch([record(b"b", timestamp=2)], base_offset=2, codec=codec),
                control_batch(COMMIT, base_offset=3),
                batch([record(b"c", timestamp=3)], base_offset=4, codec=codec),
            ]
        )
        converted = down_convert(data, 1)
        found = batches_of(converted.data)
        assert [(one.magic, one.codec, one.timestamp_type) for one in found] == [
            (1, codec, 1),
            (1, codec, 0),
            (1, codec, 0),
        ]
        assert [(one.offset, one.timestamp) for one in records_in(converted.data)] == [
            (0, 50),
            (2, 2),
            (4, 3),
        ]
        assert converted.stats.records_converted == 3
    with pytest.raises(UnsupportedFormatError, match="zstd"):
        down_convert(batch([record()], codec=ZSTD), 1)


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_only_the_newer_batch_is_converted_and_first_offset_counts_without_codec(
    codec: int,
) -> None:
    old = records_of([record(b"old")], magic=0, codec=codec)
    new = batch([record(b"a"), record(b"b")], base_offset=1, codec=codec)
    converted = down_convert(old + new, 1, first_offset=0)
    assert converted.data.startswith(old)
    assert [one.magic for one in batches_of(converted.data)] == [0, 1, 1][: 2 if codec else 3]
    converted = down_convert(old + new, 1, first_offset=2)
    wanted = [0, 1, 2] if codec else [0, 2]
    assert [one.offset for one in records_in(converted.data)] == wanted


def test_a_magic_2_batch_and_a_magic_1_batch_come_out_readable() -> None:
    data = batch([record(b"new")]) + messages([record(b"old", offset=1)], magic=1)
    converted = down_convert(data, 1)
    assert [one.offset for one in records_in(converted.data)] == [0, 1]


def test_a_slice_with_only_a_part_of_a_batch_comes_back_as_it_is() -> None:
    part = batch([record(bytes(100))])[:80]
    assert down_convert(part, 1, as_file=True).data == part
    assert down_convert(part, 1).data == b""
    assert list(LazyDownConversion(part, 1).chunks()) == []
    assert LazyDownConversion(part, 1).size_bytes == 0


def test_nothing_comes_of_an_empty_set() -> None:
    lazy = LazyDownConversion(b"", 1)
    assert (lazy.size_bytes, list(lazy.chunks()), list(lazy.sent())) == (0, [], [])


OFFSETS = [0, 2, 3, 9, 11, 15, 16, 17, 22, 24]
HEADERS = [(b"headerKey1", b"headerValue1"), (b"headerKey2", b"headerValue2")]


def gaps(codec: int) -> bytes:
    """Kafka's own case: magic 0, 1 and 2, with gaps between all offsets."""
    given = [
        record(b"hello" * 4, key=b"k%d" % offset, timestamp=n + 1, offset=offset, headers=HEADERS)
        for n, offset in enumerate(OFFSETS)
    ]
    return b"".join(
        [
            records_of(given[:3], magic=0, codec=codec),
            records_of(given[3:6], magic=1, codec=codec),
            batch(given[6:], base_offset=16, codec=codec),
        ]
    )


def wanted(to_magic: int, offset: int) -> dict[str, Any]:
    born = 0 if offset <= 3 else 1 if offset <= 15 else 2
    magic = min(born, to_magic)
    return {
        "offset": offset,
        "key": b"k%d" % offset,
        "timestamp": OFFSETS.index(offset) + 1 if magic else -1,
        "headers": HEADERS if magic == 2 else [],
    }


def same_records(data: bytes, to_magic: int, kept: list[int]) -> None:
    got = [
        {
            "offset": one.offset,
            "key": one.key,
            "timestamp": one.timestamp,
            "headers": list(one.headers),
        }
        for one in records_in(data)
    ]
    assert got == [wanted(to_magic, offset) for offset in kept]


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("to_magic", [0, 1, 2])
def test_mixed_formats_with_gaps_keep_offsets_and_codec(to_magic: int, codec: int) -> None:
    data = gaps(codec)
    converted = down_convert(data, to_magic)
    same_records(converted.data, to_magic, OFFSETS)
    assert {one.codec for one in batches_of(converted.data)} == {codec}
    assert all(one.magic <= to_magic for one in batches_of(converted.data))
    largest = max(one.size for one in batches_of(data)) + 1
    for read_bytes in (16 << 10, len(data), len(data) - 1, len(data) // 4, largest, 1):
        lazy = LazyDownConversion(data, to_magic)
        chunks = list(lazy.chunks(read_bytes))
        assert b"".join(chunk.data for chunk in chunks) == converted.data
        assert sum((chunk.stats for chunk in chunks), ConversionStats()) == converted.stats
        assert all(chunk.data for chunk in chunks)


@pytest.mark.parametrize(("to_magic", "first"), [(0, 11), (1, 17)])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_first_offset_drops_converted_records_below_it(
    to_magic: int, first: int, codec: int
) -> None:
    converted = down_convert(gaps(codec), to_magic, first_offset=first)
    untouched = [offset for offset in OFFSETS if offset <= (3 if to_magic == 0 else 15)]
    kept = (
        OFFSETS if codec else untouched + [n for n in OFFSETS if n >= first and n not in untouched]
    )
    same_records(converted.data, to_magic, kept)


# The lazy variant


def test_a_lone_marker_becomes_an_entry_longer_than_the_answer() -> None:
    lazy = LazyDownConversion(control_batch(COMMIT), 1)
    assert list(lazy.chunks()) == []
    assert lazy.size_bytes == 12
    (sent,) = lazy.sent()
    assert sent == (-1).to_bytes(8, "big", signed=True) + (61).to_bytes(4, "big")
    assert reference.walk(sent).batches == []


@pytest.mark.parametrize("to_magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_what_is_missing_is_filled_with_entries_that_readers_ignore(
    to_magic: int, codec: int
) -> None:
    data = b"".join(
        batch([record(b"v%d" % n, key=b"k")], base_offset=n, codec=codec) for n in range(3)
    )
    lazy = LazyDownConversion(data, to_magic)
    assert lazy.size_bytes == len(data)
    for size in (lazy.size_bytes, 2 * lazy.size_bytes):
        sent = b"".join(lazy.sent(size))
        assert len(sent) == size
        walk = reference.walk(sent)
        assert walk.error is None
        got = [one.value for found in walk.batches for one in reference.records(found)]
        assert got == [b"v0", b"v1", b"v2"]


def test_the_promise_holds_the_first_converted_batch_at_least() -> None:
    given = [record(b"", timestamp=n) for n in range(40)]
    data = batch(given)  # 40 records of 8 bytes become 40 messages of 34
    lazy = LazyDownConversion(data, 1)
    assert lazy.size_bytes == len(down_convert(data, 1).data) > len(data)
    assert b"".join(lazy.sent()) == down_convert(data, 1).data


def test_zstd_is_an_error_at_first_and_an_overflow_entry_later() -> None:
    plain = batch([record(b"v")])
    squeezed = batch([record(b"w")], base_offset=1, codec=ZSTD)
    with pytest.raises(UnsupportedFormatError):
        LazyDownConversion(squeezed + plain, 1)
    lazy = LazyDownConversion(plain + squeezed, 1)
    sent = b"".join(lazy.sent())
    assert len(sent) == len(plain + squeezed)
    walk = reference.walk(sent)
    assert [one.value for found in walk.batches for one in reference.records(found)] == [b"v"]
