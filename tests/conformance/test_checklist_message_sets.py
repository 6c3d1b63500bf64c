"""Messages and sets of 0.7 to 0.10 as their own classes made and checked them, one claim a test.

The claims are those of Kafka's LegacyRecordTest, SimpleLegacyRecordTest and
AbstractLegacyRecordBatchTest, of 0.10.1's ByteBufferMessageSetTest and of 0.7's, in the order of
the checklist of record behaviour.
"""

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
    UnsupportedFormatError,
)
from kseg.legacy.message import Message, MessageSet, entry
from kseg.legacy.message07 import Message07, MessageSet07
from kseg.log.validate.rules import ValidatedBatch
from tests import builders
from tests.builders import record
from tests.legacy import validate_0_10
from tests.reference_codecs import crc32, inflate

CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
NO_TYPE = TimestampType.NO_TIMESTAMP_TYPE
NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression
CODECS = [GZIP, SNAPPY, LZ4]
both_magics = pytest.mark.parametrize("magic", [0, 1])


def sealed(tail: bytes) -> Message:
    """A message with a right checksum around any bytes from the magic on."""
    return Message(pack(">I", crc32(tail)) + tail)


# Messages of magic 0 and 1


@both_magics
@pytest.mark.parametrize("codec", [NONE, *CODECS])
def test_all_fields_of_a_written_message_come_back(magic: int, codec: Compression) -> None:
    strings = [None, b"", b"key", bytes(1000)]
    for timestamp, key, value in product([-1, 0, 1], strings, strings):
        made = Message.build(value, key=key, timestamp=timestamp, magic=magic, compression=codec)
        assert (made.magic, made.key, made.value) == (magic, key, value)
        assert made.compression == codec
        if magic == 0:  # no timestamp and no type, whatever was passed
            assert (made.timestamp, made.timestamp_type) == (-1, NO_TYPE)
        else:
            assert (made.timestamp, made.timestamp_type) == (timestamp, CREATE)
        fields = bytes(made.data[4:])
        assert made.crc == made.computed_crc == crc32(fields)


@both_magics
def test_a_byte_after_the_checksum_changed_to_another_value_is_seen(magic: int) -> None:
    data = Message.build(b"value", key=b"key", timestamp=1, magic=magic).data
    for at in range(4, len(data)):
        changed = bytearray(data)
        changed[at] = 69 if changed[at] != 69 else 70
        assert not Message(changed).is_valid
        with pytest.raises(CorruptRecordError):
            Message(changed).ensure_valid()


@both_magics
def test_a_copy_of_the_bytes_is_equal(magic: int) -> None:
    made = Message.build(b"value", key=b"key", magic=magic)
    assert Message(bytes(made.data)) == made


@pytest.mark.parametrize("rules", ["current", "0.10"])
def test_a_gzip_wrapper_with_null_value_is_invalid_on_deep_iteration(rules: Any) -> None:
    wrapper = MessageSet(entry(Message.build(None, compression=GZIP), 0))
    with pytest.raises(InvalidRecordError):
        list(wrapper.deep(rules=rules))


def test_a_wrapper_whose_decompressed_content_is_empty_is_invalid_on_deep_iteration() -> None:
    value = builders.deflate(GZIP, b"")
    wrapper = MessageSet(entry(Message.build(value, compression=GZIP), 0))
    with pytest.raises(InvalidRecordError):
        list(wrapper)


@pytest.mark.parametrize("data", [bytes(2), pack(">I", 54)], ids=["2 bytes", "4, a wrong checksum"])
def test_a_buffer_too_short_for_a_message_is_corrupt(data: bytes) -> None:
    assert not Message(data).is_valid
    with pytest.raises(CorruptRecordError):
        Message(data).ensure_valid()


#: Arguments that no message can be written with.
UNWRITABLE: dict[str, dict[str, Any]] = {
    "magic 2": {"magic": 2},
    "timestamp -2": {"timestamp": -2},
    "magic 1 and type none": {"magic": 1, "timestamp_type": NO_TYPE},
}


@pytest.mark.parametrize("claim", UNWRITABLE)
def test_it_is_an_argument_error_on_writing(claim: str) -> None:
    with pytest.raises(ValueError, match=r"magic|timestamp"):
        Message.build(b"v", **UNWRITABLE[claim])


@both_magics
def test_bytes_after_the_value_with_a_right_checksum_are_ignored(magic: int) -> None:
    made = Message.build(b"value", key=b"key", magic=magic)
    longer = sealed(bytes(made.data[4:]) + b"spare")
    assert (longer.key, longer.value, longer.is_valid) == (b"key", b"value", True)


@both_magics
def test_key_or_value_length_minus_5_is_null(magic: int) -> None:
    made = sealed(pack(">bb", magic, 0) + bytes(8 * magic) + pack(">ii", -5, -5))
    assert (made.key, made.value, made.is_valid) == (None, None, True)


@both_magics
@pytest.mark.parametrize("lengths", [(99, -1), (-1, 99)], ids=["key", "value"])
def test_a_length_past_a_checked_message_is_an_error_when_read(
    magic: int, lengths: tuple[int, int]
) -> None:
    made = sealed(pack(">bb", magic, 0) + bytes(8 * magic) + pack(">ii", *lengths))
    assert made.is_valid
    with pytest.raises(InvalidRecordError, match="99 bytes"):
        _ = made.value


@both_magics
def test_attribute_bits_4_to_7_are_ignored(magic: int) -> None:
    made = sealed(pack(">bB", magic, 0xF0) + bytes(8 * magic) + pack(">ii", -1, -1))
    assert (made.compression, made.is_valid) == (NONE, True)
    assert made.timestamp_type == (CREATE if magic else NO_TYPE)


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


def test_setting_the_maximum_with_type_none_is_an_argument_error() -> None:
    with pytest.raises(ValueError, match="type"):
        THREE[0].with_timestamp(NO_TYPE, 15)


@pytest.mark.parametrize("kind", [CREATE, LOG_APPEND])
def test_setting_the_maximum_on_magic_0_is_an_unsupported_operation(kind: TimestampType) -> None:
    with pytest.raises(UnsupportedFormatError):
        Message.build(b"v", magic=0).with_timestamp(kind, 15)


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


@pytest.mark.parametrize("codec", [NONE, *CODECS])
def test_no_messages_create_an_empty_buffer(codec: Compression) -> None:
    assert MessageSet.create([], compression=codec).size_bytes == 0


@both_magics
def test_codec_none_creates_entries_at_successive_absolute_offsets(magic: int) -> None:
    created = MessageSet.create(messages_of(magic), offsets=1234567)
    assert created.data == builders.messages(GIVEN, magic=magic, base_offset=1234567)


@both_magics
@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_creates_one_wrapper(magic: int, codec: Compression) -> None:
    created = MessageSet.create(messages_of(magic), offsets=70, compression=codec)
    ((offset, wrapper),) = shallow(created.data)
    assert (offset, wrapper.key, wrapper.compression) == (72, None, codec)
    inner = MessageSet(inflate(codec, wrapper.value or b"", magic=magic))
    # Relative in magic 1, absolute in magic 0.
    assert [found.offset for found in inner.shallow()] == ([0, 1, 2] if magic else [70, 71, 72])


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_different_magic_in_one_compressed_set_are_an_error(
    codec: Compression,
) -> None:
    with pytest.raises(ValueError, match="magic 0 among those of magic 1"):
        MessageSet.create([*messages_of(1), *messages_of(0)], compression=codec)


@pytest.mark.parametrize(("magic", "expected"), [(1, NOW + 100), (0, -1)])
def test_no_wrapper_timestamp_gives_the_largest_inner_one(magic: int, expected: int) -> None:
    ((_, wrapper),) = shallow(MessageSet.create(messages_of(magic), compression=GZIP).data)
    assert wrapper.timestamp == expected


@both_magics
def test_shallow_iteration_gives_wrappers_and_deep_iteration_their_contents(magic: int) -> None:
    wrapper = MessageSet.create(messages_of(magic), offsets=70, compression=GZIP)
    plain = MessageSet.create(messages_of(magic), offsets=73)
    mixed = MessageSet(bytes(wrapper.data) + bytes(plain.data))
    assert [found.offset for found in mixed.shallow()] == [72, 73, 74, 75]
    deep = list(mixed.deep(rules="0.10"))
    assert [found.offset for found in deep] == [70, 71, 72, 73, 74, 75]
    assert [found.message for found in deep] == messages_of(magic) * 2


@both_magics
def test_both_codecs_none_and_all_magics_right_get_offsets_in_place(magic: int) -> None:
    result = validate(builders.messages(GIVEN, magic=magic), magic=magic)
    assert result.head == builders.messages(GIVEN, magic=magic, base_offset=50)
    assert (result.next_offset, result.sizes_maybe_changed) == (53, False)


@pytest.mark.parametrize(("magic", "grown"), [(0, 8), (1, -8)])
def test_both_codecs_none_and_a_wrong_magic_are_converted(magic: int, grown: int) -> None:
    source = builders.messages(GIVEN, magic=magic)
    result = validate(source, magic=1 - magic)
    assert len(result.head) == len(source) + 3 * grown
    assert {message.magic for _, message in shallow(result.head)} == {1 - magic}
    assert result.sizes_maybe_changed


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
            GIVEN[:2],
            magic=1,
            codec=GZIP,
            offset=2,
            inner=builders.message(GIVEN[0], magic=1)
            + builders.message(GIVEN[1], magic=1, offset=2),
        ),
        {},
    ),
    "an inner magic to convert": (builders.wrapper(GIVEN, magic=0, codec=GZIP), {"magic": 1}),
}


@pytest.mark.parametrize("claim", REBUILT)
def test_otherwise_the_set_is_rebuilt(claim: str) -> None:
    source, rules = REBUILT[claim]
    result = validate(source, **{"source": GZIP, "target": GZIP, **rules})
    assert result.sizes_maybe_changed
    found = list(MessageSet(result.head))
    assert [each.offset for each in found] == list(range(50, 50 + len(found)))
    assert result.next_offset == 50 + len(found) > 51
    assert {each.message.magic for each in found} == {rules.get("magic", 1)}
    assert all(each.message.is_valid for each in found)


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
def test_a_timestamp_too_far_away_or_marked_log_append_is_an_invalid_timestamp_error(
    codec: Compression,
) -> None:
    far = builders.records_of(GIVEN, magic=1, codec=codec)
    with pytest.raises(InvalidTimestampError, match="record 0"):
        validate(far, source=codec, target=codec, timestamp_difference_max_ms=99)
    marked = (
        builders.wrapper(GIVEN, magic=1, codec=codec, log_append=True)
        if codec
        else builders.messages(GIVEN, magic=1, log_append=True)
    )
    for kind in (CREATE, LOG_APPEND):
        with pytest.raises(InvalidTimestampError, match="log-append"):
            validate(marked, source=codec, target=codec, timestamp_type=kind)


def test_to_format_version() -> None:
    old = Message.build(b"value", key=b"key", magic=0)
    new = old.to_format_version(1)
    assert (new.size, new.timestamp, new.is_valid) == (old.size + 8, -1, True)
    stamped = Message.build(b"value", key=b"key", timestamp=5, timestamp_type=LOG_APPEND)
    back = stamped.to_format_version(0)
    assert (back.size, back.attributes, back.is_valid) == (stamped.size - 8, 0, True)
    assert old.to_format_version(0) is old
    assert new.to_format_version(1) is new


# Kafka 0.7 sets


def consumed(data: bytes, initial_offset: int = 0) -> list[tuple[bytes, int]]:
    found = MessageSet07(data, initial_offset)
    return [(each.message.payload, each.next_offset) for each in found]


def test_0_7_magic_1_without_codec_has_its_payload_from_byte_6() -> None:
    made = Message07.build(b"payload")
    assert bytes(made.data[6:]) == made.payload == b"payload"
    assert made.crc == crc32(b"payload")


def test_0_7_magic_0_has_its_payload_from_byte_5_and_no_codec() -> None:
    made = Message07.build(b"payload", magic=0)
    assert bytes(made.data[5:]) == made.payload == b"payload"
    assert made.compression == NONE


def test_0_7_an_attribute_bit_changed_leaves_the_checksum_valid() -> None:
    for bit in range(2, 8):
        data = bytearray(Message07.build(b"payload").data)
        data[1] ^= 1 << bit
        assert Message07(data).is_valid


def test_0_7_codec_bits_3_and_magic_2_are_unknown() -> None:
    for data in (builders.message07(b"v", codec=3), builders.message07(b"v", magic=2)):
        with pytest.raises(UnsupportedFormatError, match="knows no"):
            consumed(data)


def test_0_7_next_offsets_are_1000_and_cumulative_entry_sizes() -> None:
    data = builders.messages07([b"one", b"", b"three"])
    assert consumed(data, 1000) == [(b"one", 1013), (b"", 1023), (b"three", 1038)]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_0_7_a_compressed_set_of_three_is_left_only_behind_its_last(codec: Compression) -> None:
    first = builders.message07(b"first")
    made = MessageSet07.create(map(Message07.build, [b"a", b"b", b"c"]), compression=codec)
    start, end = 1000 + len(first), 1000 + len(first) + made.size_bytes
    expected = [(b"first", start), (b"a", start), (b"b", start), (b"c", end)]
    assert consumed(first + bytes(made.data), 1000) == expected


def test_0_7_a_compressed_set_inside_a_compressed_set_gives_the_innermost_messages() -> None:
    inner = Message07.wrapping([Message07.build(b"a"), Message07.build(b"b")], SNAPPY)
    made = MessageSet07.create([inner, Message07.build(b"c")], compression=GZIP)
    assert consumed(bytes(made.data)) == [(b"a", 0), (b"b", 0), (b"c", made.size_bytes)]


def test_0_7_a_partial_last_message_is_the_end_a_partial_first_an_invalid_size() -> None:
    data = builders.messages07([b"one", b"two"])
    assert consumed(data[:-1]) == [(b"one", 13)]
    with pytest.raises(CorruptRecordError, match="9 bytes, 8 left"):
        consumed(data[:12])


@pytest.mark.parametrize("size", range(4))
def test_0_7_fewer_than_4_bytes_are_an_empty_set(size: int) -> None:
    assert consumed(bytes(size)) == []


def test_0_7_a_negative_length_is_an_invalid_size_even_after_good_messages() -> None:
    found = iter(MessageSet07(builders.message07(b"good") + pack(">i", -1)))
    assert next(found).message.payload == b"good"
    with pytest.raises(CorruptRecordError, match="-1 bytes"):
        next(found)


def test_0_7_a_wrong_checksum_is_an_invalid_message_shallow_or_deep() -> None:
    bad = builders.message07(b"bad", crc=1)
    packed = builders.message07(builders.deflate(GZIP, bad), codec=GZIP)
    with pytest.raises(CorruptRecordError):
        list(MessageSet07(bad).shallow())
    for data in (bad, packed):
        with pytest.raises(CorruptRecordError):
            consumed(data)
