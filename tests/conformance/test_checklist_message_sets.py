"""Messages and sets of 0.7 to 0.10 as their own classes made and checked them, one claim a test.

The claims are those of Kafka's LegacyRecordTest, SimpleLegacyRecordTest and
AbstractLegacyRecordBatchTest, of 0.10.1's ByteBufferMessageSetTest and of 0.7's, in the order of
the checklist of record behaviour.
"""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from kseg.constants import Compression, TimestampType
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    UnsupportedFormatError,
)
from kseg.legacy.message import Message, entry
from kseg.legacy.message_set import MessageSet, MessageSet07
from kseg.log.validate.rules import ValidatedBatch
from tests import builders
from tests.builders import record
from tests.legacy import validate_0_10
from tests.reference_codecs import crc32

CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression
CODECS = [GZIP, SNAPPY, LZ4]
both_magics = pytest.mark.parametrize("magic", [0, 1])


def sealed(tail: bytes) -> Message:
    """A message with a right checksum around any bytes from the magic on."""
    return Message(pack(">I", crc32(tail)) + tail)


# Messages of magic 0 and 1


@both_magics
@pytest.mark.parametrize("lengths", [(99, -1), (-1, 99)], ids=["key", "value"])
def test_a_length_past_a_checked_message_is_an_error_when_read(
    magic: int, lengths: tuple[int, int]
) -> None:
    made = sealed(pack(">bb", magic, 0) + bytes(8 * magic) + pack(">ii", *lengths))
    assert made.is_valid
    with pytest.raises(InvalidRecordError, match="99 bytes"):
        _ = made.value


# In-place changes of sets, from the message's side

THREE = [Message.build(value, timestamp=at) for at, value in enumerate((b"a", b"b", b"c"), start=1)]


def times(messages: MessageSet) -> list[tuple[int, TimestampType]]:
    return [(each.message.timestamp, each.message.timestamp_type) for each in messages]


def test_a_gzip_wrapper_of_three_set_to_last_offset_500_has_498_to_500() -> None:
    (wrapper,) = MessageSet.create(THREE, compression=GZIP).shallow()
    moved = MessageSet(entry(wrapper.message, 500))
    assert [found.offset for found in moved] == [498, 499, 500]
    assert next(moved.shallow()).message.is_valid


def test_setting_the_maximum_with_log_append_reaches_every_inner_message() -> None:
    (wrapper,) = MessageSet.create(THREE, compression=GZIP).shallow()
    changed = wrapper.message.with_timestamp(LOG_APPEND, 15)
    assert (changed.timestamp, changed.timestamp_type, changed.is_valid) == (15, LOG_APPEND, True)
    assert times(MessageSet(entry(changed, 2))) == [(15, LOG_APPEND)] * 3


def test_setting_the_maximum_with_create_leaves_the_inner_messages_at_1_2_3() -> None:
    (wrapper,) = MessageSet.create(THREE, compression=GZIP).shallow()
    changed = wrapper.message.with_timestamp(CREATE, 15)
    assert (changed.timestamp, changed.is_valid) == (15, True)
    assert times(MessageSet(entry(changed, 2))) == [(1, CREATE), (2, CREATE), (3, CREATE)]


@both_magics
def test_zstd_for_magic_0_or_1_is_an_argument_error_naming_the_magic(magic: int) -> None:
    with pytest.raises(ValueError, match=f"magic {magic}"):
        Message.build(b"v", magic=magic, compression=ZSTD)
    with pytest.raises(ValueError, match="zstd"):
        MessageSet.create([Message.build(b"v", magic=magic)], compression=ZSTD)


# 0.10 message sets

NOW = 1_000_000
GIVEN = [
    record(value, key=b"k", timestamp=NOW + late)
    for value, late in zip([b"a", b"b", b"c"], [-100, 100, 50], strict=True)
]


def messages_of(magic: int) -> list[Message]:
    return [
        Message.build(each.value, key=each.key, timestamp=each.timestamp, magic=magic)
        for each in GIVEN
    ]


def validate(data: bytes, **rules: Any) -> ValidatedBatch:
    defaults: dict[str, Any] = {"next_offset": 50, "now_ms": NOW, "source": NONE, "target": NONE}
    return validate_0_10(data, **{**defaults, **rules})


def shallow(data: Any) -> list[tuple[int, Message]]:
    return [(found.offset, found.message) for found in MessageSet(data).shallow()]


@both_magics
def test_shallow_iteration_gives_wrappers_and_deep_iteration_their_contents(magic: int) -> None:
    wrapper = MessageSet.create(messages_of(magic), offsets=70, compression=GZIP)
    plain = MessageSet.create(messages_of(magic), offsets=73)
    mixed = MessageSet(bytes(wrapper.data) + bytes(plain.data))
    assert [found.offset for found in mixed.shallow()] == [72, 73, 74, 75]
    deep = list(mixed.deep(rules="0.10"))
    assert [found.offset for found in deep] == [70, 71, 72, 73, 74, 75]
    assert [found.message for found in deep] == messages_of(magic) * 2


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [CREATE, LOG_APPEND])
@pytest.mark.parametrize("stored", [NOW + 100, 5], ids=["time right", "time wrong"])
def test_source_equal_to_target_in_order_stays_in_place(
    codec: Compression, kind: TimestampType, stored: int
) -> None:
    source = builders.wrapper(GIVEN, magic=1, codec=codec, timestamp=stored)
    result = validate(source, source=codec, target=codec, timestamp_type=kind)
    (((_, before)), ((offset, after))) = (*shallow(source), *shallow(result.head))
    assert (offset, result.sizes_maybe_changed) == (52, False)
    assert after.view_value() == before.view_value()
    assert after.is_valid
    expected = (NOW, LOG_APPEND) if kind == LOG_APPEND else (NOW + 100, CREATE)
    assert (after.timestamp, after.timestamp_type) == expected
    assert (after == before) == (kind == CREATE and stored == NOW + 100)


def test_inner_checksums_are_checked_in_place() -> None:
    inner = builders.message(GIVEN[0], magic=1, crc=7)
    source = builders.wrapper(GIVEN[:1], magic=1, codec=GZIP, inner=inner)
    with pytest.raises(CorruptRecordError):
        validate(source, source=GZIP, target=GZIP)


#: What gives up in-place: the set, and rules.
REBUILT: dict[str, tuple[bytes, dict[str, Any]]] = {
    "another codec": (builders.wrapper(GIVEN, magic=1, codec=GZIP), {"target": LZ4}),
    "format 0": (builders.wrapper(GIVEN, magic=0, codec=GZIP), {"magic": 0}),
    "an inner offset out of place": (
        builders.wrapper(
            [],
            magic=1,
            codec=GZIP,
            offset=2,
            inner=b"".join(builders.message(GIVEN[0], magic=1, offset=at) for at in (0, 1, 1)),
        ),
        {},
    ),
    "an inner magic to convert": (builders.wrapper(GIVEN, magic=0, codec=GZIP), {"magic": 1}),
}


@pytest.mark.parametrize("claim", REBUILT)
def test_otherwise_the_set_is_rebuilt(claim: str) -> None:
    source, rules = REBUILT[claim]
    result = validate(source, **{"source": GZIP, "target": GZIP, **rules})
    assert (result.next_offset, result.sizes_maybe_changed) == (53, True)
    assert [found.offset for found in MessageSet(result.head)] == [50, 51, 52]


#: Source, target, offset of the largest timestamp with create and with log-append time.
LARGEST = [
    (NONE, NONE, 51, 50),
    (GZIP, NONE, 51, 50),
    (NONE, GZIP, 52, 52),
    (GZIP, GZIP, 52, 52),
    (GZIP, LZ4, 52, 52),
]


@pytest.mark.parametrize(("source", "target", "create_at", "log_append_at"), LARGEST)
def test_the_largest_timestamp_and_its_offset(
    source: Compression, target: Compression, create_at: int, log_append_at: int
) -> None:
    data = builders.records_of(GIVEN, magic=1, codec=source)
    rules: dict[str, Any] = {"source": source, "target": target}
    created = validate(data, **rules)
    assert (created.max_timestamp, created.offset_of_max_timestamp) == (NOW + 100, create_at)
    appended = validate(data, timestamp_type=LOG_APPEND, **rules)
    assert (appended.max_timestamp, appended.offset_of_max_timestamp) == (NOW, log_append_at)
    old = validate(data, magic=0, **rules)
    assert (old.max_timestamp, old.offset_of_max_timestamp) == (-1, -1)


@pytest.mark.parametrize("target", [NONE, GZIP, SNAPPY])
def test_a_compressed_inner_message_is_an_invalid_message_error(target: Compression) -> None:
    inner = builders.wrapper(GIVEN, magic=1, codec=GZIP)
    source = builders.wrapper(GIVEN, magic=1, codec=GZIP, inner=inner)
    with pytest.raises(InvalidRecordError):
        validate(source, source=GZIP, target=target)


@both_magics
def test_an_inner_magic_different_from_the_wrapper_s_is_an_invalid_message_error(
    magic: int,
) -> None:
    inner = builders.messages(GIVEN, magic=1 - magic)
    source = builders.wrapper(GIVEN, magic=magic, codec=GZIP, inner=inner)
    with pytest.raises(InvalidRecordError):
        validate(source, source=GZIP, target=GZIP)


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_key_less_message_on_a_compacted_topic_is_an_invalid_message_error(
    codec: Compression,
) -> None:
    source = builders.records_of([record(b"v", timestamp=NOW)], magic=1, codec=codec)
    with pytest.raises(InvalidRecordError, match="record 0"):
        validate(source, source=codec, target=codec, compacted=True)


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_timestamp_marked_log_append_is_an_invalid_timestamp_error(
    codec: Compression,
) -> None:
    marked = (
        builders.wrapper(GIVEN, magic=1, codec=codec, log_append=True)
        if codec
        else builders.messages(GIVEN, magic=1, log_append=True)
    )
    for kind in (CREATE, LOG_APPEND):
        with pytest.raises(InvalidTimestampError, match="log-append"):
            validate(marked, source=codec, target=codec, timestamp_type=kind)


# Kafka 0.7 sets


def test_0_7_a_partial_first_message_is_an_invalid_size() -> None:
    with pytest.raises(CorruptRecordError, match="9 bytes, 8 left"):
        list(MessageSet07(builders.message07(b"one")[:12]))


def test_0_7_codec_bits_3_and_magic_2_are_unknown() -> None:
    for data in (builders.message07(b"v", codec=3), builders.message07(b"v", magic=2)):
        with pytest.raises(UnsupportedFormatError, match="knows no"):
            list(MessageSet07(data))
