"""Down-conversion, one claim a row: what must come out, and what it costs.

The claims are those of Kafka's MemoryRecordsBuilderTest and FileRecordsTest, and rules that only
code tells. Input comes from the plain encoder,
output is read by the plain reader.
"""

from __future__ import annotations

from typing import Any

import pytest

from kseg.errors import UnsupportedFormatError
from kseg.legacy.old_brokers import down_convert
from tests.builders import COMMIT, GZIP, NONE, ZSTD, batch, control_batch, record, records_of
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


def test_a_slice_with_only_a_part_of_a_batch_comes_back_as_it_is() -> None:
    part = batch([record(bytes(100))])[:80]
    assert down_convert(part, 1, as_file=True).data == part
    assert down_convert(part, 1).data == b""
    assert down_convert(b"", 1).data == b""


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
