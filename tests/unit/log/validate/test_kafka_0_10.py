"""The 0.10.1 rules: what stays in place, what is made anew, what is refused and why."""

from __future__ import annotations

from itertools import product
from struct import pack
from typing import Any

import pytest

from kseg.constants import Compression, TimestampType
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    LimitExceededError,
)
from kseg.format.message import Message, MessageSet
from kseg.log.validate.kafka_0_10 import validate_0_10
from kseg.log.validate.rules import ValidatedBatch
from tests import builders
from tests.builders import Record, record
from tests.reference_codecs import crc32

CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression
#: Source and target codec: each way through.
PATHS = list(product([NONE, GZIP], repeat=2))
NOW = 1_000_000
#: Each within a hundred of NOW, the largest in the middle.
TIMES = [NOW - 100, NOW + 100, NOW + 50]
GIVEN = [
    record(value, key=b"k", timestamp=at)
    for value, at in zip([b"a", b"b", b"c"], TIMES, strict=True)
]


def validate(data: bytes, **rules: Any) -> ValidatedBatch:
    defaults: dict[str, Any] = {"next_offset": 50, "now_ms": NOW, "source": NONE, "target": NONE}
    return validate_0_10(data, **{**defaults, **rules})


def outcome(result: ValidatedBatch) -> tuple[int, int, int, bool]:
    return (
        result.next_offset,
        result.max_timestamp,
        result.offset_of_max_timestamp,
        result.sizes_maybe_changed,
    )


def only(data: bytes) -> Message:
    (found,) = MessageSet(data).shallow()
    return found.message


# Both codecs none


def test_stamping_leaves_attribute_bits_without_a_meaning() -> None:
    data = builders.message(record(b"v"), magic=1, attributes=0xF0)
    assert only(validate(data, timestamp_type=LOG_APPEND).head).attributes == 0xF8
    assert only(validate(data).head).attributes == 0xF0


def test_the_set_that_was_given_stays_as_it_is() -> None:
    for data in (
        builders.messages(GIVEN, magic=1),
        builders.wrapper(GIVEN, magic=1, codec=GZIP),
    ):
        given = bytearray(data)
        validate(given, source=GZIP, target=GZIP, timestamp_type=LOG_APPEND)
        validate(given, timestamp_type=LOG_APPEND)
        assert given == data


# Compressed, in place


def test_a_right_timestamp_leaves_even_a_wrong_checksum() -> None:
    source = bytearray(builders.wrapper(GIVEN, magic=1, codec=GZIP))
    source[12:16] = b"oops"
    result = validate(bytes(source), source=GZIP, target=GZIP)
    assert only(result.head).crc == int.from_bytes(b"oops", "big")


def test_checksums_inside_are_not_looked_at_when_the_set_is_made_anew() -> None:
    inner = builders.message(GIVEN[0], magic=1, crc=7)
    source = builders.wrapper(GIVEN[:1], magic=1, codec=GZIP, inner=inner)
    result = validate(source, source=GZIP, target=LZ4)
    (found,) = MessageSet(result.head)
    assert (found.message.crc, found.message.value) == (7, b"a")


# Compressed, made anew


def test_a_wrapper_with_nothing_inside_is_taken() -> None:
    source = builders.wrapper([], magic=1, codec=GZIP, offset=0, inner=b"")
    in_place = validate(source, source=GZIP, target=GZIP)
    assert outcome(in_place) == (50, -1, 49, False)
    assert only(in_place.head).value == only(source).value
    assert validate(source, source=GZIP, target=NONE).head == b""


@pytest.mark.parametrize("kind", [CREATE, LOG_APPEND])
def test_a_wrapper_of_another_magic_with_nothing_inside_does_not_stay(kind: TimestampType) -> None:
    source = builders.wrapper([], magic=0, codec=GZIP, offset=0, inner=b"")
    result = validate(source, source=GZIP, target=GZIP, timestamp_type=kind)
    assert (result.head, result.next_offset, result.sizes_maybe_changed) == (b"", 50, True)


# Refused


@pytest.mark.parametrize(("source", "target"), PATHS)
@pytest.mark.parametrize("time", [NOW - 100, NOW + 100])
def test_create_time_is_bounded_on_both_sides(
    time: int, source: Compression, target: Compression
) -> None:
    data = builders.records_of(
        [record(b"a", timestamp=NOW), record(b"b", timestamp=time)], magic=1, codec=source
    )
    rules: dict[str, Any] = {"source": source, "target": target}
    assert validate(data, timestamp_difference_max_ms=100, **rules).next_offset == 52
    with pytest.raises(InvalidTimestampError, match=r"record 1: .* 100 ms .* 99 at") as refused:
        validate(data, timestamp_difference_max_ms=99, **rules)
    assert [fault.record_index for fault in refused.value.record_errors] == [1]
    late = validate(data, timestamp_difference_max_ms=0, timestamp_type=LOG_APPEND, **rules)
    assert late.max_timestamp == NOW


@pytest.mark.parametrize("magic", [0, 1])
def test_no_timestamp_is_a_timestamp_as_any_other(magic: int) -> None:
    data = builders.messages([record(b"a", timestamp=-1)], magic=magic)
    assert validate(data).next_offset == 51
    assert validate(data, timestamp_difference_max_ms=NOW + 1).next_offset == 51
    with pytest.raises(InvalidTimestampError, match=f"{NOW + 1} ms"):
        validate(data, timestamp_difference_max_ms=NOW)


def test_a_message_of_a_strange_magic_is_refused() -> None:
    tail = pack(">bBqii", 3, 0, NOW, -1, -1)
    strange = pack(">qiI", 1, 4 + len(tail), crc32(tail)) + tail
    data = builders.messages(GIVEN[:1], magic=1) + strange
    for target in (NONE, GZIP):
        with pytest.raises(InvalidRecordError, match="record 1: message of magic 3"):
            validate(data, target=target)


@pytest.mark.parametrize(("source", "target"), [(NONE, NONE), (NONE, GZIP)])
def test_a_size_that_no_message_has_is_corrupt(source: Compression, target: Compression) -> None:
    data = builders.messages(GIVEN, magic=1) + pack(">qi", 9, 13) + bytes(13)
    with pytest.raises(CorruptRecordError):
        validate(data, source=source, target=target)


def test_a_wrapper_that_cannot_be_inflated_is_refused() -> None:
    data = builders.message(Record(b"plain"), magic=1, attributes=GZIP)
    with pytest.raises(InvalidRecordError, match="gzip"):
        validate(data, source=GZIP, target=GZIP)
    big = builders.wrapper([record(bytes(10_000))], magic=1, codec=GZIP)
    with pytest.raises(LimitExceededError):
        validate(big, source=GZIP, target=GZIP, inflated_max=10_000)


BAD_RULES: dict[str, dict[str, Any]] = {
    "magic 2": {"magic": 2},
    "magic -1": {"magic": -1},
    "no type of timestamp": {"timestamp_type": TimestampType.NO_TIMESTAMP_TYPE},
    "zstd": {"target": ZSTD},
}


@pytest.mark.parametrize("claim", BAD_RULES)
def test_rules_that_0_10_did_not_have_are_refused(claim: str) -> None:
    with pytest.raises(ValueError, match=r"0 or 1|create time|zstd"):
        validate(b"", **BAD_RULES[claim])
