"""The builder, one claim a row: what is written, and what is refused.

The claims are those of Kafka's MemoryRecordsBuilderTest and of the parts of MemoryRecordsTest and
DefaultRecordBatchTest that build, and rules that only code tells. Its markers are in
`test_checklist_control.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kseg.constants import Compression, ControlType, TimestampType
from kseg.errors import BuilderStateError, InvalidRecordError
from kseg.format.builder import BatchBuilder
from kseg.format.header import EncodedBatch
from tests.conformance.readers import Reader

CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Compression if codec < 4 or magic > 1]
IN_ALL_FORMATS = pytest.mark.parametrize(
    ("magic", "codec"), FORMATS, ids=[f"magic{magic}-{codec.label}" for magic, codec in FORMATS]
)
OLD = pytest.mark.parametrize("magic", [0, 1])

MARKED = {"producer_id": 9, "producer_epoch": 3, "transactional": True, "control": True}


def read(reader: Reader, batch: EncodedBatch) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Headers and records, read back."""
    found = reader.walk(batch.data, "memory")
    assert (found.error, found.end_position) == (None, len(batch))
    assert all(part["crc_ok"] for part in found.batches)
    reads = [reader.read(batch.data, part["position"], part["size"]) for part in found.batches]
    assert [result.error for result in reads] == [None] * len(reads)
    return found.batches, [record for result in reads for record in result.records]


def is_wrapped(magic: int, codec: Compression) -> bool:
    return magic == 2 or codec != NONE


# Construction and closing


NOT_IN_OLD_FORMATS = {
    "zstd": {"compression": ZSTD},
    "transactional": {"transactional": True},
    "control": {"control": True},
    "delete horizon": {"delete_horizon_ms": 100},
}


@OLD
@pytest.mark.parametrize("given", NOT_IN_OLD_FORMATS.values(), ids=NOT_IN_OLD_FORMATS)
def test_what_old_formats_do_not_have_is_an_argument_error_at_construction(
    magic: int, given: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=f"magic {magic} has no "):
        BatchBuilder(magic=magic, **given)


def test_timestamps_without_a_type_are_an_argument_error_from_magic_1_on() -> None:
    none = TimestampType.NO_TIMESTAMP_TYPE
    BatchBuilder(magic=0, timestamp_type=none)
    for magic in (1, 2):
        with pytest.raises(ValueError, match="must be given"):
            BatchBuilder(magic=magic, timestamp_type=none)


@IN_ALL_FORMATS
def test_no_records_give_an_empty_result(magic: int, codec: Compression) -> None:
    batch = BatchBuilder(magic=magic, compression=codec, base_offset=15).build()
    assert (batch.data, batch.record_count, batch.uncompressed_bytes) == (b"", 0, 0)
    assert (batch.max_timestamp, batch.offset_of_max_timestamp) == (-1, -1)


BAD_PRODUCERS = {
    "transactional with producer id -1": {"transactional": True},
    "a producer id with epoch -1": {"producer_id": 1, "base_sequence": 0},
    "a producer id with base sequence -1": {"producer_id": 1, "producer_epoch": 0},
    "a producer id in magic 1": {
        "magic": 1,
        "producer_id": 1,
        "producer_epoch": 0,
        "base_sequence": 0,
    },
}


@pytest.mark.parametrize("given", BAD_PRODUCERS.values(), ids=BAD_PRODUCERS)
def test_producer_fields_that_do_not_fit_are_an_argument_error_at_close(
    given: dict[str, Any],
) -> None:
    builder = BatchBuilder(**given)
    builder.append(b"k", b"v")
    with pytest.raises(InvalidRecordError, match="producer"):
        builder.build()
    builder.set_producer_state(-1, -1, -1)
    assert builder.build().record_count == 1


def test_a_control_batch_needs_no_sequence() -> None:
    builder = BatchBuilder(**MARKED)
    builder.append_end_marker(ControlType.ABORT, 0, timestamp=5)
    assert builder.build().header.base_sequence == -1


# Timestamps


@IN_ALL_FORMATS
def test_log_append_time_is_the_time_of_every_record(
    magic: int, codec: Compression, reader: Reader
) -> None:
    builder = BatchBuilder(
        magic=magic, compression=codec, timestamp_type=LOG_APPEND, log_append_time=777
    )
    for timestamp in (0, 2, 1):
        builder.append(b"k", b"v", timestamp_ms=timestamp)
    batch = builder.build()
    assert batch.max_timestamp == 777
    assert batch.offset_of_max_timestamp == (2 if is_wrapped(magic, codec) else 0)
    headers, records = read(reader, batch)
    name = "LogAppendTime" if magic else "NoTimestampType"
    assert {header["timestamp_type"] for header in headers} == {name}
    assert {record["timestamp"] for record in records} == {777 if magic else -1}


@IN_ALL_FORMATS
def test_create_times_0_2_1_have_the_largest_timestamp_2(
    magic: int, codec: Compression, reader: Reader
) -> None:
    builder = BatchBuilder(magic=magic, compression=codec, timestamp_type=CREATE)
    for timestamp in (0, 2, 1):
        builder.append(b"k", b"v", timestamp_ms=timestamp)
    batch = builder.build()
    assert batch.max_timestamp == (2 if magic else -1)
    wanted = -1 if magic == 0 else 2 if is_wrapped(magic, codec) else 1
    assert batch.offset_of_max_timestamp == wanted
    headers, records = read(reader, batch)
    assert [record["timestamp"] for record in records] == ([0, 2, 1] if magic else [-1] * 3)
    if is_wrapped(magic, codec) and magic:
        assert headers[0]["max_timestamp"] == 2


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_timestamps_that_are_all_missing_have_no_largest(magic: int, codec: Compression) -> None:
    builder = BatchBuilder(magic=magic, compression=codec)
    builder.append(b"k", b"v", timestamp_ms=-1)
    batch = builder.build()
    assert (batch.max_timestamp, batch.offset_of_max_timestamp) == (-1, -1)


# Sizes and room


@IN_ALL_FORMATS
def test_the_compression_ratio_leaves_headers_out(magic: int, codec: Compression) -> None:
    builder = BatchBuilder(magic=magic, compression=codec)
    for _ in range(3):
        builder.append(b"k" * 100, b"v" * 100)
    assert builder.compression_ratio == 1.0
    batch = builder.build()
    overhead = (12 + 14, 12 + 22, 61)[magic]
    ratio = (len(batch) - overhead) / builder.uncompressed_bytes if codec else 1.0
    assert builder.compression_ratio == batch.compression_ratio == pytest.approx(ratio)
    assert batch.uncompressed_bytes == builder.uncompressed_bytes
    assert codec == NONE or ratio < 0.8


@IN_ALL_FORMATS
def test_the_size_estimate_grows_with_ten_appends(magic: int, codec: Compression) -> None:
    builder = BatchBuilder(magic=magic, compression=codec, expected_ratio=0.5)
    seen = [builder.estimated_bytes]
    for number in range(10):
        builder.append(b"key%d" % number, b"value" * 10)
        seen.append(builder.estimated_bytes)
    assert seen == sorted(set(seen))
    batch = builder.build()
    assert builder.estimated_bytes == len(batch)
    assert codec != NONE or seen[-1] == len(batch)


def test_an_estimate_is_header_and_records_times_ratio_times_1_05() -> None:
    builder = BatchBuilder(compression=LZ4, expected_ratio=0.5)
    builder.append(None, bytes(993))
    assert builder.uncompressed_bytes == 1002
    assert builder.estimated_bytes == 61 + int(1002 * 0.5 * 1.05)


@IN_ALL_FORMATS
def test_limit_0_takes_one_record_and_is_full(magic: int, codec: Compression) -> None:
    builder = BatchBuilder(magic=magic, compression=codec, batch_bytes_max=0)
    assert not builder.is_full
    assert builder.has_room_for(b"k", b"v")
    builder.append(b"k", b"v")
    assert builder.is_full
    assert not builder.has_room_for(b"k", b"v")


@IN_ALL_FORMATS
def test_64_bytes_have_no_room_for_a_third_record_which_may_come_anyway(
    magic: int, codec: Compression, reader: Reader
) -> None:
    builder = BatchBuilder(magic=magic, compression=codec, batch_bytes_max=64, expected_ratio=0.5)
    builder.append(b"a", b"1", timestamp_ms=0)
    builder.append(b"b", b"2", timestamp_ms=1)
    assert not builder.has_room_for(b"c", b"3", timestamp_ms=2)
    builder.append(b"c", b"3", timestamp_ms=2)
    _, records = read(reader, builder.build())
    assert [record["value"] for record in records] == [b"1", b"2", b"3"]


@IN_ALL_FORMATS
def test_1024_bytes_have_room_behind_a_small_record_until_it_is_closed(
    magic: int, codec: Compression
) -> None:
    builder = BatchBuilder(magic=magic, compression=codec, batch_bytes_max=1024)
    builder.append(b"k", b"v")
    assert builder.has_room_for(b"k", b"v")
    builder.close_for_appends()
    assert not builder.has_room_for(b"k", b"v")
    assert builder.is_full


@IN_ALL_FORMATS
def test_120_bytes_have_room_for_ten_headers_only_where_they_are_not_counted(
    magic: int, codec: Compression
) -> None:
    builder = BatchBuilder(magic=magic, compression=codec, batch_bytes_max=120)
    builder.append(b"key", b"value")
    headers = [(f"hkey{number}", b"hvalue") for number in range(10)]
    assert builder.has_room_for(b"key", b"value", headers) == (magic < 2)


@pytest.mark.parametrize(
    ("magic", "codec", "crc"),
    [(0, NONE, 1978725405), (1, NONE, 109425508), (2, NONE, 3851219455), (2, LZ4, 2745969314)],
)
def test_two_known_records_have_kafka_s_checksum(magic: int, codec: Compression, crc: int) -> None:
    builder = BatchBuilder(magic=magic, compression=codec)
    builder.append(b"key1", b"value1", timestamp_ms=283843)
    builder.append(b"key2", b"value2", timestamp_ms=1234)
    assert builder.build().header.crc == crc


# Records that are refused


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an offset equal to the last": ({}, {"offset": 7}, "offset 7 is not above"),
    "an offset below the last": ({}, {"offset": 6}, "offset 6 is not above"),
    "a timestamp of -2": ({}, {"timestamp_ms": -2}, "timestamp -2"),
    "headers in magic 0": ({"magic": 0}, {"headers": [("h", b"")]}, "magic 0 has no headers"),
    "headers in magic 1": ({"magic": 1}, {"headers": [("h", b"")]}, "magic 1 has no headers"),
    "an offset 2^31 above the base": ({}, {"offset": 2**31}, "more than 2147483647"),
    "an offset 2^31 above in magic 0": ({"magic": 0}, {"offset": 2**31}, "more than 2147483647"),
    "a header without name": ({}, {"headers": [(None, b"")]}, "header has no name"),
    "no list of headers": ({}, {"headers": None}, "header has no name"),
}


@pytest.mark.parametrize(("given", "record", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_record_is_refused_and_the_builder_goes_on(
    given: dict[str, Any], record: dict[str, Any], reason: str
) -> None:
    builder, other = BatchBuilder(**given), BatchBuilder(**given)
    for one in (builder, other):
        one.append(b"k", b"v", timestamp_ms=5, offset=7)
    with pytest.raises(InvalidRecordError, match=reason) as caught:
        builder.append(b"k", b"v", **record)
    assert caught.value.record_index == 1
    for one in (builder, other):
        assert one.append(b"k", b"v", timestamp_ms=-1) == 8
    assert builder.build() == other.build()


def test_an_offset_2147483647_above_the_base_is_written(reader: Reader) -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(b"k", b"v")
    builder.append(b"k", b"v", offset=10 + 2**31 - 1)
    _, records = read(reader, builder.build())
    assert [record["offset"] for record in records] == [10, 10 + 2**31 - 1]


# States


@IN_ALL_FORMATS
def test_an_aborted_builder_does_nothing_more(magic: int, codec: Compression) -> None:
    builder = BatchBuilder(magic=magic, compression=codec)
    builder.append(b"k", b"v")
    builder.abort()
    refused: list[Callable[[], Any]] = [
        builder.build,
        lambda: builder.append(b"k", b"v"),
        lambda: builder.reopen(1, 0, 0),
        lambda: builder.set_producer_state(1, 0, 0),
    ]
    for call in refused:
        with pytest.raises(BuilderStateError, match="aborted"):
            call()
    assert builder.uncompressed_bytes == builder.record_count == 0


@IN_ALL_FORMATS
def test_append_after_build_says_that_no_more_records_are_taken(
    magic: int, codec: Compression
) -> None:
    builder = BatchBuilder(magic=magic, compression=codec)
    builder.append(b"k", b"v")
    built = builder.build()
    with pytest.raises(BuilderStateError, match="built, it cannot take a record"):
        builder.append(b"k", b"v")
    assert builder.build() is built


def test_append_after_close_for_appends_is_a_state_error() -> None:
    builder = BatchBuilder()
    builder.close_for_appends()
    with pytest.raises(BuilderStateError, match="closed, it cannot take a record"):
        builder.append(b"k", b"v")


@pytest.mark.parametrize("codec", Compression)
def test_the_header_may_change_between_close_for_appends_and_build(
    codec: Compression, reader: Reader
) -> None:
    builder = BatchBuilder(compression=codec, base_offset=5)
    builder.append(b"k", b"v")
    builder.close_for_appends()
    builder.set_producer_state(1, 2, 3, transactional=True)
    builder.override_last_offset(11)
    ((header,), (record,)) = read(reader, builder.build())
    names = ("producer_id", "producer_epoch", "base_sequence", "transactional", "last_offset")
    assert [header[name] for name in names] == [1, 2, 3, True, 11]
    assert record["offset"] == 5


def test_the_last_offset_and_the_producer_of_a_built_batch_do_not_change() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"v")
    builder.build()
    with pytest.raises(BuilderStateError, match="built"):
        builder.override_last_offset(9)
    with pytest.raises(BuilderStateError, match="built"):
        builder.set_producer_state(1, 0, 0)


@pytest.mark.parametrize("codec", Compression)
def test_reopening_rewrites_the_producer_over_the_same_records(
    codec: Compression, reader: Reader
) -> None:
    builder = BatchBuilder(
        compression=codec, producer_id=1, producer_epoch=0, base_sequence=0, base_offset=3
    )
    builder.append(b"k", b"v", timestamp_ms=7)
    before = builder.build()
    builder.reopen(2, 5, 40, transactional=True)
    after = builder.build()
    ((header,), records) = read(reader, after)
    names = ("producer_id", "producer_epoch", "base_sequence", "transactional")
    assert [header[name] for name in names] == [2, 5, 40, True]
    assert after.data[61:] == before.data[61:]
    assert [record["sequence"] for record in records] == [40]
    with pytest.raises(BuilderStateError):
        builder.append(b"k", b"v")
