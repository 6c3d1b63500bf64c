"""Message objects against the plain reader and encoder: sound sets, changed ones, any bytes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.constants import Compression, TimestampType
from kseg.errors import CorruptRecordError, KsegError
from kseg.legacy.message import Message
from kseg.legacy.message_set import Message07, MessageAndOffset, MessageSet, MessageSet07
from kseg.legacy.old_brokers import analyze_0_10
from tests import builders, reference
from tests.builders import GZIP, Record
from tests.conformance.readers import KINDS, Read
from tests.legacy import validate_0_10
from tests.property.strategies import (
    base_offsets,
    byte_strings,
    codecs,
    legacy_messages,
    logs07,
    record_lists,
    timestamps,
)
from tests.property.test_hostile import inner_sets, likely_bytes, mutated, noise
from tests.reference07 import messages07, next_offsets
from tests.reference_codecs import RefusedError

kinds = st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
magics = st.sampled_from([0, 1])
any_bytes = st.one_of(st.binary(max_size=120), st.lists(likely_bytes, max_size=120).map(bytes))


def objects(given_records: list[Record], magic: int) -> list[Message]:
    return [
        Message.build(each.value, key=each.key, timestamp=each.timestamp, magic=magic)
        for each in given_records
    ]


def fields(found: MessageAndOffset) -> dict[str, Any]:
    message = found.message
    return {
        "offset": found.offset,
        "timestamp": message.timestamp,
        "key": message.key,
        "value": message.value,
        "crc_ok": message.is_valid,
    }


def by_objects(data: bytes) -> Read:
    taken: list[dict[str, Any]] = []
    try:
        taken.extend(map(fields, MessageSet(data)))
    except KsegError as error:
        return Read(taken, KINDS[type(error)])
    return Read(taken, None)


def by_reference(data: bytes) -> Read:
    taken: list[dict[str, Any]] = []
    walk = reference.walk(data, "memory")
    try:
        for batch in walk.batches:
            taken.extend(
                {
                    "offset": each.offset,
                    "timestamp": each.timestamp,
                    "key": each.key,
                    "value": each.value,
                    # A plain message's checksum is that of its batch.
                    "crc_ok": each.crc_ok,
                }
                for each in reference.records(batch)
            )
    except RefusedError as error:
        return Read(taken, error.kind)
    return Read(taken, walk.error)


# Sound


@given(data=st.lists(legacy_messages(), max_size=3).map(b"".join))
def test_deep_iteration_gives_what_the_plain_reader_gives(data: bytes) -> None:
    assert by_objects(data) == by_reference(data)


@given(data=st.data(), magic=magics, codec=codecs, base=base_offsets)
def test_what_is_created_is_read_back(
    data: st.DataObject, magic: int, codec: int, base: int
) -> None:
    wanted = data.draw(record_lists(base, magic=magic, min_size=0))
    messages = objects(wanted, magic)
    offsets = [each.offset or 0 for each in wanted]
    created = MessageSet.create(
        messages, offsets=iter(offsets).__next__, compression=Compression(codec)
    )
    for rules in ("current", "0.10"):
        if rules == "0.10" or magic == 0 or not codec or offsets[-1:] != [0]:
            found = list(created.deep(rules=rules))  # type: ignore[arg-type]
            assert [each.offset for each in found] == offsets
            assert [each.message for each in found] == messages
    assert by_reference(bytes(created.data)) == by_objects(bytes(created.data))
    assert created.valid_bytes == created.size_bytes


@given(
    value=byte_strings, key=byte_strings, time=timestamps, magic=magics, kind=kinds, now=timestamps
)
def test_conversion_there_and_back_keeps_key_and_value(
    value: bytes | None, key: bytes | None, time: int, magic: int, kind: TimestampType, now: int
) -> None:
    made = Message.build(value, key=key, timestamp=time, timestamp_type=kind, magic=magic)
    assert made.to_format_version(magic) is made
    other = made.to_format_version(1 - magic, now_ms=now)
    assert other.is_valid
    assert (other.key, other.value) == (key, value)
    back = other.to_format_version(magic)
    if magic == 0:
        assert back == made
    else:
        assert back == Message.build(value, key=key)


@given(data=logs07(), start=st.integers(0, 2**62))
def test_0_7_sets_give_what_the_plain_reader_gives(data: bytes, start: int) -> None:
    expected = list(messages07(data, start))
    found = list(MessageSet07(data, start))
    assert [each.message.payload for each in found] == [each.payload for each in expected]
    assert [each.next_offset for each in found] == next_offsets(expected)
    shallow = [each.message for each in MessageSet07(data, start).shallow()]
    assert MessageSet07.create(shallow).data == data


# The 0.10.1 rules


@given(
    data=st.data(),
    magic=magics,
    to_magic=magics,
    source=codecs,
    target=codecs,
    kind=kinds,
    next_offset=st.integers(0, 2**62),
    now=st.integers(0, 2**60),
)
def test_validation_keeps_keys_values_and_order(
    data: st.DataObject,
    magic: int,
    to_magic: int,
    source: int,
    target: int,
    kind: TimestampType,
    next_offset: int,
    now: int,
) -> None:
    wanted = [
        Record(each.value, key=each.key, timestamp=each.timestamp)
        for each in data.draw(record_lists(0, magic=magic))
    ]
    produced = builders.records_of(wanted, magic=magic, codec=source)
    rules: dict[str, Any] = {
        "next_offset": next_offset,
        "now_ms": now,
        "source": analyze_0_10(produced, message_bytes_max=2**31),
        "target": Compression(target),
        "magic": to_magic,
        "timestamp_type": kind,
    }
    result = validate_0_10(produced, **rules)
    found = list(MessageSet(result.head).deep())
    last = next_offset + len(wanted) - 1
    assert [each.offset for each in found] == list(range(next_offset, last + 1))
    assert result.next_offset == last + 1
    assert [(each.message.key, each.message.value) for each in found] == [
        (each.key, each.value) for each in wanted
    ]
    assert all(each.message.is_valid for each in found)
    assert {each.message.magic for each in found} == {to_magic}
    messages = list(MessageSet(result.head).shallow())
    outer = [offset for _, offset in messages]
    assert (outer, outer[-1:]) == (sorted(set(outer)), [last] if wanted else [])
    assert analyze_0_10(result.head, message_bytes_max=2**31) == target
    # In place or not, the same records; and in place only where nothing had to change.
    in_place = magic == to_magic and source == target and (magic == 1 or not source)
    assert result.sizes_maybe_changed != in_place
    if in_place:
        assert len(result.head) == len(produced)
    if kind == TimestampType.CREATE_TIME and to_magic == 1:
        times = [each.timestamp if magic else -1 for each in wanted]
        assert [each.message.timestamp for each in found] == times
        assert result.max_timestamp == max(times)
        assert max(message.timestamp for message, _ in messages) == max(times)


@given(
    inner=st.one_of(inner_sets(), noise),
    magic=magics,
    offset=st.sampled_from([0, 1, 5, 2**63 - 1, -1]),
    rules=st.tuples(magics, codecs, codecs, kinds, st.booleans()),
)
def test_validation_of_changed_sets_gives_a_set_or_one_of_our_errors(
    inner: bytes, magic: int, offset: int, rules: tuple[int, int, int, TimestampType, bool]
) -> None:
    to_magic, source, target, kind, compacted = rules
    data = builders.wrapper([], magic=magic, codec=GZIP, offset=offset, inner=inner) + inner
    try:
        result = validate_0_10(
            data,
            next_offset=7,
            now_ms=50,
            source=Compression(source),
            target=Compression(target),
            magic=to_magic,
            timestamp_type=kind,
            compacted=compacted,
        )
    except KsegError:
        return
    written = MessageSet(result.head)
    assert written.valid_bytes == written.size_bytes
    assert [each.message.magic for each in written.shallow()] == [to_magic] * len(
        list(written.shallow())
    )


# Changed


@given(
    inner=st.one_of(inner_sets(), noise),
    magic=magics,
    offset=st.sampled_from([0, 1, 5, 100, 2**63 - 1, -1]),
    log_append=st.booleans(),
)
def test_changed_sets_inside_wrappers_are_given_and_refused_alike(
    inner: bytes, magic: int, offset: int, log_append: bool
) -> None:
    data = builders.wrapper(
        [], magic=magic, codec=GZIP, offset=offset, inner=inner, log_append=log_append, timestamp=7
    )
    assert by_objects(data) == by_reference(data)


@given(data=any_bytes)
def test_any_bytes_at_all_are_a_message_or_refused(data: bytes) -> None:
    message = Message(data)
    repr(message)
    assert message == Message(bytearray(data))
    assert message.is_valid == (len(data) >= 14 and message.crc == builders.crc32(data[4:]))
    with nullcontext() if message.is_valid else pytest.raises(CorruptRecordError):
        message.ensure_valid()
    for convert in (
        lambda: message.to_format_version(0),
        lambda: fields(MessageAndOffset(message, 0)),
    ):
        try:
            convert()
        except KsegError:
            continue
    for iterate in (MessageSet(data), MessageSet(data).deep(rules="0.10"), MessageSet07(data)):
        try:
            list(iterate)
        except KsegError:
            continue


@given(payloads=st.lists(st.binary(max_size=20), max_size=3), data=st.data())
def test_changed_sets_of_0_7_are_given_and_refused_alike(
    payloads: list[bytes], data: st.DataObject
) -> None:
    inner = data.draw(mutated(builders.messages07(payloads)))
    outer = builders.message07(builders.deflate(GZIP, inner), codec=GZIP)
    for changed in (inner, outer):
        assert by_objects07(changed) == by_reference07(changed)


def by_objects07(data: bytes) -> list[bytes] | None:
    """The payloads; None where the set is refused."""
    try:
        return [each.message.payload for each in MessageSet07(data, 5)]
    except KsegError:
        return None


def by_reference07(data: bytes) -> list[bytes] | None:
    try:
        return [each.payload for each in messages07(data, 5)]
    except RefusedError:
        return None


@given(payload=st.binary(max_size=40), magic=magics, data=st.data())
def test_any_change_of_a_0_7_payload_is_seen(
    payload: bytes, magic: int, data: st.DataObject
) -> None:
    message = Message07.build(payload, magic=magic)
    changed = bytearray(message.data)
    at = data.draw(st.integers(1 + magic, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    assert message.is_valid
    assert not Message07(changed).is_valid
