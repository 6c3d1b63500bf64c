"""The public door to the rules of 0.10.1: the same rules and values as for an append of today."""

from __future__ import annotations

import pytest

import kseg
from kseg import AppendRules, Compression, TimestampType
from tests import builders
from tests.builders import record

NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression
NOW_MS = 1_000_000
GIVEN = [record(value, key=b"k", timestamp=NOW_MS) for value in (b"a", b"b", b"c")]
PLAIN = builders.messages(GIVEN, magic=1)
RULES = AppendRules(magic=1)


def taken(data: bytes, rules: AppendRules = RULES) -> kseg.ValidatedBatch:
    return kseg.validate_append_010(data, rules, next_offset=12, now_ms=NOW_MS + 5)


def test_a_plain_set_stays_in_place_and_gets_offsets() -> None:
    found = taken(PLAIN + b"cut-off")
    assert found.to_bytes() == builders.messages(GIVEN, magic=1, base_offset=12)
    assert (found.first_offset, found.last_offset, found.next_offset) == (12, 14, 15)
    assert (found.record_count, found.in_place, found.log_append_time) == (3, True, -1)
    assert (found.max_timestamp, found.offset_of_max_timestamp) == (NOW_MS, 12)


def test_log_append_time_is_told() -> None:
    found = taken(PLAIN, AppendRules(magic=1, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert found.log_append_time == found.max_timestamp == NOW_MS + 5


@pytest.mark.parametrize("target", [None, NONE, GZIP, SNAPPY])
def test_the_codec_is_that_of_the_producer_unless_the_rules_say_one(
    target: Compression | None,
) -> None:
    data = builders.wrapper(GIVEN, magic=1, codec=GZIP, base_offset=2)
    found = taken(data, AppendRules(magic=1, compression=target))
    messages = list(kseg.MessageSet(found.to_bytes()).shallow())
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
    [(-1, ValueError), (2**63, ValueError), (2**63 - 1, kseg.OffsetOverflowError)],
)
def test_offsets_that_a_log_cannot_give_are_refused(
    next_offset: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        kseg.validate_append_010(PLAIN, RULES, next_offset=next_offset, now_ms=0)


def test_a_message_that_is_too_large_is_refused_before_it_is_made_anew_and_after() -> None:
    size = len(PLAIN) // 3
    with pytest.raises(kseg.RecordTooLargeError):
        taken(PLAIN, AppendRules(magic=1, batch_bytes_max=size - 1))
    assert taken(PLAIN, AppendRules(magic=1, batch_bytes_max=size)).in_place
    old = builders.messages(GIVEN, magic=0)
    with pytest.raises(kseg.RecordTooLargeError):  # eight bytes more, for the timestamp
        taken(old, AppendRules(magic=1, batch_bytes_max=size - 1))


def test_a_set_without_messages_gets_no_offsets() -> None:
    found = taken(b"")
    assert (found.record_count, found.next_offset, found.to_bytes()) == (0, 12, b"")
