"""What 0.10.1 read off the outermost messages of a set before it looked inside."""

from __future__ import annotations

import pytest

from kseg.constants import Compression
from kseg.errors import CorruptRecordError, RecordTooLargeError, UnsupportedFormatError
from kseg.log.validate.kafka_0_10 import analyze_0_10, validate_0_10
from tests import builders
from tests.builders import record

NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression
NOW = 1_000_000
GIVEN = [
    record(value, key=b"k", timestamp=NOW + late)
    for value, late in zip([b"a", b"b", b"c"], [-100, 100, 50], strict=True)
]


def test_the_codec_of_a_set_is_that_of_its_last_compressed_message() -> None:
    parts = [
        builders.wrapper(GIVEN, magic=1, codec=codec, base_offset=at)
        for codec, at in ((GZIP, 0), (LZ4, 3))
    ]
    plain = builders.messages(GIVEN, magic=1, base_offset=6)
    assert analyze_0_10(b"".join(parts) + plain, message_bytes_max=999) == LZ4
    assert analyze_0_10(plain + b"cut-off entry", message_bytes_max=999) == NONE
    assert analyze_0_10(b"", message_bytes_max=0) == NONE


def test_the_largest_message_allowed_counts_its_offset_and_size() -> None:
    small, large = (builders.message(record(bytes(n)), magic=1) for n in (10, 11))
    assert analyze_0_10(small + small, message_bytes_max=len(small)) == NONE
    with pytest.raises(RecordTooLargeError, match=rf"record 1: .*{len(large)} .*{len(small)} at"):
        analyze_0_10(small + large, message_bytes_max=len(small))


def test_a_wrong_checksum_outside_is_corrupt() -> None:
    good, bad = (builders.message(record(), magic=1, crc=crc) for crc in (None, 7))
    with pytest.raises(CorruptRecordError, match="record 1: checksum"):
        analyze_0_10(good + bad, message_bytes_max=99)


def test_a_codec_without_a_name_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="7"):
        analyze_0_10(builders.message(record(), magic=1, attributes=7), message_bytes_max=99)


def test_a_set_that_grew_is_looked_at_again_by_its_sizes() -> None:
    data = builders.messages([record(b"v")], magic=0)
    bound = len(data)
    assert analyze_0_10(data, message_bytes_max=bound) == NONE
    result = validate_0_10(data, next_offset=0, now_ms=0, source=NONE, target=NONE)
    assert result.sizes_maybe_changed
    with pytest.raises(RecordTooLargeError):
        analyze_0_10(result.head, message_bytes_max=bound)
