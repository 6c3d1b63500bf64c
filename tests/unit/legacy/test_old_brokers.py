"""The 0.10.1 rules: what stays in place, what is rebuilt, what is refused and why."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from kseg.constants import Compression, TimestampType
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOverflowError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from kseg.legacy.message_set import MessageSet
from kseg.legacy.old_brokers import analyze_0_10, down_convert, validate_append_010
from kseg.log.validate.rules import AppendRules, ValidatedBatch
from tests import builders
from tests.builders import batch, messages, record
from tests.conformance.outputs import records_in
from tests.legacy import validate_0_10
from tests.reference_codecs import crc32

CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression


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


# Both codecs none


def test_the_set_that_was_given_stays_as_it_is() -> None:
    for data in (
        builders.messages(GIVEN, magic=1),
        builders.wrapper(GIVEN, magic=1, codec=GZIP),
    ):
        given = bytearray(data)
        validate(given, source=GZIP, target=GZIP, timestamp_type=LOG_APPEND)
        validate(given, timestamp_type=LOG_APPEND)
        assert given == data


@pytest.mark.parametrize("magic", [0, 1])
def test_no_timestamp_is_a_timestamp_as_any_other(magic: int) -> None:
    data = builders.messages([record(b"a", timestamp=-1)], magic=magic)
    assert validate(data).next_offset == 51
    assert validate(data, timestamp_difference_max_ms=NOW + 1).next_offset == 51
    with pytest.raises(InvalidTimestampError, match=f"{NOW + 1} ms"):
        validate(data, timestamp_difference_max_ms=NOW)


# Refused


def test_a_message_of_a_strange_magic_is_refused() -> None:
    tail = pack(">bBqii", 3, 0, NOW, -1, -1)
    strange = pack(">qiI", 1, 4 + len(tail), crc32(tail)) + tail
    data = builders.messages(GIVEN[:1], magic=1) + strange
    for target in (NONE, GZIP):
        with pytest.raises(InvalidRecordError, match="record 1: message of magic 3"):
            validate(data, target=target)


BAD_RULES: dict[str, dict[str, Any]] = {
    "magic 2": {"magic": 2},
    "magic -1": {"magic": -1},
    "no type of timestamp": {"timestamp_type": TimestampType.NO_TIMESTAMP_TYPE},
    "zstd": {"target": ZSTD},
}


@pytest.mark.parametrize("claim", BAD_RULES)
def test_rules_that_0_10_did_not_have_are_refused(claim: str) -> None:
    with pytest.raises(ValueError, match=r"0 or 1|0, 1 or 2|create time|zstd"):
        validate(b"", **BAD_RULES[claim])


# The outermost messages


def test_the_codec_of_a_set_is_that_of_its_last_compressed_message() -> None:
    parts = [
        builders.wrapper(GIVEN, magic=1, codec=codec, base_offset=at)
        for codec, at in ((GZIP, 0), (LZ4, 3))
    ]
    plain = builders.messages(GIVEN, magic=1, base_offset=6)
    assert analyze_0_10(b"".join(parts) + plain, message_bytes_max=999) == LZ4
    assert analyze_0_10(plain + b"cut-off entry", message_bytes_max=999) == NONE
    assert analyze_0_10(b"", message_bytes_max=0) == NONE


def test_a_wrong_checksum_outside_is_corrupt() -> None:
    good, bad = (builders.message(record(), magic=1, crc=crc) for crc in (None, 7))
    with pytest.raises(CorruptRecordError, match="record 1: checksum"):
        analyze_0_10(good + bad, message_bytes_max=99)


def test_a_codec_without_a_name_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="7"):
        analyze_0_10(builders.message(record(), magic=1, attributes=7), message_bytes_max=99)


# Both steps, as `kseg.broker.validate_append_010` takes them

SAME_TIME = [record(value, key=b"k", timestamp=NOW) for value in (b"a", b"b", b"c")]
PLAIN = builders.messages(SAME_TIME, magic=1)
RULES = AppendRules(magic=1)


def taken(data: bytes, rules: AppendRules = RULES) -> ValidatedBatch:
    return validate_append_010(data, rules, next_offset=12, now_ms=NOW + 5)


def test_a_plain_set_stays_in_place_and_gets_offsets() -> None:
    found = taken(PLAIN + b"cut-off")
    assert found.to_bytes() == builders.messages(SAME_TIME, magic=1, base_offset=12)
    assert (found.first_offset, found.last_offset, found.next_offset) == (12, 14, 15)
    assert (found.record_count, found.in_place, found.log_append_time) == (3, True, -1)
    assert (found.max_timestamp, found.offset_of_max_timestamp) == (NOW, 12)


@pytest.mark.parametrize("target", [None, NONE, GZIP, SNAPPY])
def test_the_codec_is_that_of_the_producer_unless_the_rules_say_one(
    target: Compression | None,
) -> None:
    data = builders.wrapper(SAME_TIME, magic=1, codec=GZIP, base_offset=2)
    found = taken(data, AppendRules(magic=1, compression=target))
    messages = list(MessageSet(found.to_bytes()).shallow())
    assert {message.compression for message, _ in messages} == {GZIP if target is None else target}
    assert found.sizes_maybe_changed is not found.in_place
    assert found.next_offset == 15


@pytest.mark.parametrize(
    "rules",
    [
        AppendRules(),
        AppendRules(magic=1, timestamp_before_max_ms=5, timestamp_after_max_ms=6),
    ],
)
def test_rules_that_the_release_did_not_have_are_refused(rules: AppendRules) -> None:
    with pytest.raises(ValueError, match=r"magic 0 or 1|one largest difference"):
        taken(PLAIN, rules)


@pytest.mark.parametrize(
    ("next_offset", "error"),
    [(-1, ValueError), (2**63, ValueError), (2**63 - 1, OffsetOverflowError)],
)
def test_offsets_that_a_log_cannot_give_are_refused(
    next_offset: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        validate_append_010(PLAIN, RULES, next_offset=next_offset, now_ms=0)


def test_a_message_that_is_too_large_is_refused_before_it_is_made_anew_and_after() -> None:
    size = len(PLAIN) // 3
    with pytest.raises(RecordTooLargeError):
        taken(PLAIN, AppendRules(magic=1, batch_bytes_max=size - 1))
    assert taken(PLAIN, AppendRules(magic=1, batch_bytes_max=size)).in_place
    old = builders.messages(SAME_TIME, magic=0)
    with pytest.raises(RecordTooLargeError):  # eight bytes more, for the timestamp
        taken(old, AppendRules(magic=1, batch_bytes_max=size - 1))


# Down-conversion where Kafka's own tests do not look


def test_plain_messages_whose_offsets_fall_are_converted_one_after_the_other() -> None:
    given = [record(b"%d" % n, offset=n) for n in (5, 6, 2, 2, 9)]
    converted = down_convert(messages(given, magic=1), 0)
    assert converted.data == messages(given, magic=0)
    assert converted.stats.records_converted == 5
    assert converted.stats.temporary_bytes == sum(
        len(messages([one], magic=magic)) for one in given for magic in (0, 1)
    )
    later = down_convert(messages(given, magic=1), 0, first_offset=6)
    assert [one.offset for one in records_in(later.data)] == [6, 9]


@pytest.mark.parametrize("bad", [0, 3])
def test_a_message_that_cannot_be_written_is_named(bad: int) -> None:
    given = [record(timestamp=-9 if n == bad else n) for n in range(5)]
    data = messages(given, magic=1)
    with pytest.raises(InvalidRecordError, match="timestamp") as caught:
        down_convert(data, 0)
    assert caught.value.position == bad * (len(data) // 5)
    assert (caught.value.offset, caught.value.record_index) == (bad, 0)


def test_a_wrong_checksum_is_refused_unless_kafka_s_way_is_asked_for() -> None:
    data = batch([record(b"v")], crc=1)
    with pytest.raises(CorruptRecordError):
        down_convert(data, 1)
    assert [one.value for one in records_in(down_convert(data, 1, verify_crc=False).data)] == [b"v"]


@pytest.mark.parametrize("magic", [-1, 3])
def test_only_three_magics_can_be_asked_for(magic: int) -> None:
    with pytest.raises(ValueError, match="magic is 0, 1 or 2"):
        down_convert(b"", magic)
