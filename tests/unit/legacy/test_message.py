"""Message: fields in, the same fields out; bytes that lie are refused, never read."""

from __future__ import annotations

import json
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest

from kseg.constants import Compression, TimestampType
from kseg.errors import (
    InvalidRecordError,
    KsegError,
    UnsupportedFormatError,
)
from kseg.legacy.message import Message, MessageAndMetadata, patched
from tests.reference_codecs import crc32

CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
NO_TYPE = TimestampType.NO_TIMESTAMP_TYPE


def sealed(tail: bytes) -> bytes:
    """A message with a right checksum around any bytes from the magic on."""
    return pack(">I", crc32(tail)) + tail


# Built from fields


def test_a_view_borrows_and_a_value_is_a_copy() -> None:
    data = bytearray(Message.build(b"value", key=b"key").data)
    message = Message(data)
    value, view = message.value, message.view_value()
    data[-1:] = b"!"
    assert value == b"value"
    assert view == b"valu!"
    assert not message.is_valid


BAD_FIELDS: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "magic 2": ({"magic": 2}, ValueError),
    "magic -1": ({"magic": -1}, ValueError),
    "timestamp -2": ({"timestamp": -2}, InvalidRecordError),
    "timestamp -2 in magic 0": ({"timestamp": -2, "magic": 0}, InvalidRecordError),
    "timestamp 2^63": ({"timestamp": 2**63}, InvalidRecordError),
    "no type in magic 1": ({"timestamp_type": NO_TYPE}, ValueError),
    "zstd": ({"compression": Compression.ZSTD}, ValueError),
    "codec 5": ({"compression": 5}, ValueError),
}


@pytest.mark.parametrize("claim", BAD_FIELDS)
def test_fields_that_no_message_has_are_refused(claim: str) -> None:
    fields, kind = BAD_FIELDS[claim]
    with pytest.raises(kind):
        Message.build(b"value", **fields)


@pytest.mark.parametrize("key_bytes", [0, 1 << 30])
def test_a_message_longer_than_positions_go_is_refused(key_bytes: int) -> None:
    largest = 2**31 - 1 - 12 - 22
    big = bytes(largest + 1 - key_bytes)  # never touched: refused by its length
    with pytest.raises(InvalidRecordError, match="at most"):
        Message.build(big, key=bytes(key_bytes))


# Over bytes


FIELDS: dict[str, Callable[[Message], object]] = {
    "crc": lambda message: message.crc,
    "magic": lambda message: message.magic,
    "attributes": lambda message: message.attributes,
    "timestamp": lambda message: message.timestamp,
    "timestamp_type": lambda message: message.timestamp_type,
    "key": lambda message: message.key,
    "value": lambda message: message.value,
    "key_size": lambda message: message.key_size,
    "value_size": lambda message: message.value_size,
}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_beyond_the_end_is_refused_at_every_cut(name: str, magic: int) -> None:
    whole = Message.build(b"value", key=b"key", magic=magic, timestamp=5)
    expected = FIELDS[name](whole)
    refused = 0
    for size in range(whole.size):
        cut = Message(whole.data[:size])
        try:
            assert FIELDS[name](cut) == expected
        except InvalidRecordError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("length", [-1, -5, -(2**31)])
@pytest.mark.parametrize("magic", [0, 1])
def test_any_negative_length_is_null(magic: int, length: int) -> None:
    message = Message(
        sealed(pack(">bb", magic, 0) + bytes(8 * magic) + pack(">ii", length, length))
    )
    assert (message.key, message.value) == (None, None)
    assert (message.key_size, message.value_size) == (-1, -1)
    assert (message.view_key(), message.has_key, message.is_null) == (None, False, True)


# Values


def test_equal_bytes_make_equal_messages() -> None:
    message = Message.build(b"value", key=b"key")
    copy = Message(bytearray(message.data), wrapper_timestamp=9)
    assert message == copy
    assert hash(message) == hash(copy)
    assert message != Message.build(b"other", key=b"key")
    assert message != "value"


# From one magic to another


@pytest.mark.parametrize("to_magic", [-1, 2])
def test_no_message_can_become_another_magic(to_magic: int) -> None:
    with pytest.raises(ValueError, match="0 or 1"):
        Message.build(b"v").to_format_version(to_magic)


def test_a_strange_or_short_message_is_not_converted() -> None:
    with pytest.raises(InvalidRecordError, match="magic 5"):
        Message(sealed(pack(">bBqii", 5, 0, 0, -1, -1))).to_format_version(1)
    with pytest.raises(InvalidRecordError):
        Message(Message.build(b"v").data[:13]).to_format_version(0)
    with pytest.raises(InvalidRecordError):
        patched(Message(bytes(13)), attributes=0, timestamp=0)


# Another timestamp


def test_a_timestamp_is_set_with_a_checksum_that_fits() -> None:
    odd = Message(sealed(pack(">bBqii", 1, 0xF2, 5, -1, -1)))
    later = odd.with_timestamp(LOG_APPEND, 15)
    assert (later.timestamp, later.timestamp_type, later.codec) == (15, LOG_APPEND, 2)
    assert later.attributes == 0x0A
    assert later.is_valid
    assert odd.with_timestamp(CREATE, 5) is odd


def test_a_timestamp_that_cannot_be_set_is_refused() -> None:
    for kind in (CREATE, LOG_APPEND):
        with pytest.raises(UnsupportedFormatError, match="magic 0"):
            Message.build(b"v", magic=0).with_timestamp(kind, 1)
    with pytest.raises(ValueError, match="type"):
        Message.build(b"v").with_timestamp(NO_TYPE, 1)
    with pytest.raises(InvalidRecordError, match="64 bits"):
        Message.build(b"v").with_timestamp(CREATE, 2**63)


# Wrapped


UNWRAPPABLE: dict[str, tuple[list[Message], dict[str, Any], type[Exception]]] = {
    "nothing": ([], {}, ValueError),
    "no codec": ([Message.build(b"v")], {"compression": Compression.NONE}, ValueError),
    "zstd": ([Message.build(b"v")], {"compression": Compression.ZSTD}, ValueError),
    "a level too high": ([Message.build(b"v")], {"level": 10}, ValueError),
    "an offset too few": ([Message.build(b"v")], {"offsets": []}, ValueError),
    "an offset beyond 64 bits": (
        [Message.build(b"v", magic=0)],
        {"offsets": [2**63]},
        ValueError,
    ),
    "two magics": (
        [Message.build(b"v"), Message.build(b"v", magic=0)],
        {},
        InvalidRecordError,
    ),
    "a magic of no message": (
        [Message(sealed(pack(">bBqii", 5, 0, 0, -1, -1)))],
        {},
        InvalidRecordError,
    ),
    "a compressed message": (
        [Message.build(b"v"), Message.build(b"v", compression=Compression.GZIP)],
        {},
        InvalidRecordError,
    ),
}


@pytest.mark.parametrize("claim", UNWRAPPABLE)
def test_what_cannot_be_wrapped_is_refused(claim: str) -> None:
    messages, fields, kind = UNWRAPPABLE[claim]
    with pytest.raises(kind) as refused:
        Message.wrapping(messages, **{"compression": Compression.GZIP, **fields})
    if len(messages) > 1:
        assert isinstance(refused.value, KsegError)
        assert refused.value.record_index == 1


# With metadata


def test_key_and_value_are_decoded_on_demand() -> None:
    message = Message.build(b'{"total": 9}', key="zw\u00f6lf".encode(), timestamp=5)
    found = MessageAndMetadata("orders", 3, message, 7, bytes.decode, json.loads)
    assert (found.key(), found.value()) == ("zw\u00f6lf", {"total": 9})
    assert (found.topic, found.partition, found.offset) == ("orders", 3, 7)
    assert (found.timestamp, found.timestamp_type) == (5, CREATE)
    plain = MessageAndMetadata("orders", 3, message, 7)
    assert plain.value() == b'{"total": 9}'
    assert plain == MessageAndMetadata("orders", 3, Message(bytes(message.data)), 7)


def test_null_is_never_decoded() -> None:
    def refuse(data: bytes) -> object:
        raise AssertionError(data)

    found = MessageAndMetadata("orders", 0, Message.build(None), 0, refuse, refuse)
    assert (found.key(), found.value()) == (None, None)
