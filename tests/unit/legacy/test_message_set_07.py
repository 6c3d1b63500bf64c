"""Message07 and MessageSet07: what Kafka 0.7 wrote, and where it said to go on reading."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kseg.constants import NESTING_MAX, Compression
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    LimitExceededError,
    RecordTooLargeError,
)
from kseg.legacy.message_set import Message07, MessageSet, MessageSet07
from tests import builders
from tests.builders import GZIP

# Messages


BAD_07: dict[str, dict[str, Any]] = {
    "magic 2": {"magic": 2},
    "lz4": {"compression": Compression.LZ4},
    "magic 0 with a codec": {"magic": 0, "compression": Compression.GZIP},
}


@pytest.mark.parametrize("claim", BAD_07)
def test_what_0_7_does_not_have_is_not_built(claim: str) -> None:
    with pytest.raises(ValueError, match=r"Kafka 0\.7"):
        Message07.build(b"v", **BAD_07[claim])


def test_a_payload_of_0_7_longer_than_lengths_go_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="at most"):
        Message07.build(bytes(2**31 - 1 - 4 - 6 + 1))  # never touched


@pytest.mark.parametrize("data", [b"", bytes(4), b"\x01" + bytes(4)])
def test_a_message_of_0_7_too_short_for_its_header_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        Message07(data).ensure_valid()


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY])
def test_messages_of_0_7_wrap_each_other(codec: Compression) -> None:
    inner = [Message07.build(b"a"), Message07.build(b"b", magic=0)]
    outer = Message07.wrapping([Message07.wrapping(inner, codec), *inner])
    assert (outer.magic, outer.compression) == (1, Compression.GZIP)
    assert outer.is_valid
    with pytest.raises(ValueError, match="at least one"):
        Message07.wrapping([], codec)
    with pytest.raises(ValueError, match="not lz4"):
        Message07.wrapping(inner, Compression.LZ4)


# Sets

PAYLOADS = [b"one", b"", b"three"]


def read07(found: MessageSet07) -> list[tuple[bytes, int]]:
    return [(each.message.payload, each.next_offset) for each in found]


def nested(depth: int) -> bytes:
    data = builders.message07(b"deep")
    for _ in range(depth):
        data = builders.message07(builders.deflate(GZIP, data), codec=GZIP)
    return data


def test_sets_of_0_7_nest_to_a_bound() -> None:
    assert read07(MessageSet07(nested(NESTING_MAX))) == [(b"deep", len(nested(NESTING_MAX)))]
    with pytest.raises(LimitExceededError, match=str(NESTING_MAX)):
        list(MessageSet07(nested(NESTING_MAX + 1)))


def test_all_that_a_0_7_message_inflates_to_is_bounded_together() -> None:
    plain = builders.message07(bytes(10_000))
    packed = builders.message07(builders.deflate(GZIP, plain), codec=GZIP)
    twice = builders.message07(builders.deflate(GZIP, packed * 2), codec=GZIP)
    bound = 2 * len(packed) + 2 * len(plain)
    assert len(list(MessageSet07(twice).deep(inflated_max=bound))) == 2
    with pytest.raises(LimitExceededError):
        list(MessageSet07(twice).deep(inflated_max=bound - 1))


def test_an_append_of_0_7_takes_whole_sound_messages() -> None:
    whole = builders.messages07(PAYLOADS)
    cut = MessageSet07(whole + builders.message07(b"four")[:-1])
    assert cut.checked_for_append(payload_bytes_max=5) == whole
    with pytest.raises(RecordTooLargeError, match="record 2: payload of 5 bytes, 4 at most"):
        cut.checked_for_append(payload_bytes_max=4)
    with pytest.raises(CorruptRecordError, match="checksum"):
        MessageSet07(builders.message07(b"v", crc=1)).checked_for_append(payload_bytes_max=9)


def test_sets_of_0_7_are_equal_by_bytes_and_place() -> None:
    data = builders.messages07(PAYLOADS)
    assert MessageSet07(data, 5) == MessageSet07(bytearray(data), 5)
    assert hash(MessageSet07(data, 5)) == hash(MessageSet07(bytearray(data), 5))
    assert MessageSet07(data, 5) != MessageSet07(data, 6)
    assert MessageSet07(data, 5) != MessageSet07(data[:-1], 5)
    assert MessageSet07(data) != MessageSet(data)
    assert pickle.loads(pickle.dumps(MessageSet07(data, 5))) == MessageSet07(data, 5)
    assert "initial_offset=5" in repr(MessageSet07(data, 5))
