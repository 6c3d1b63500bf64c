"""MessageSet: made, walked both ways, written out; what cannot be opened."""

from __future__ import annotations

import io
import os
import pickle
from itertools import count
from struct import pack
from typing import Any

import pytest

from kseg.constants import Compression, TimestampType
from kseg.errors import (
    CorruptRecordError,
    DecompressionError,
    InvalidRecordError,
    LimitExceededError,
)
from kseg.legacy.message import Message, entry
from kseg.legacy.message_set import MessageAndOffset, MessageSet
from tests import builders
from tests.builders import GZIP, record
from tests.reference_codecs import crc32

CREATE, LOG_APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
GIVEN = [
    record(b"a", timestamp=3),
    record(None, key=b"k", timestamp=9),
    record(b"c", timestamp=-1),
]


def made(magic: int) -> list[Message]:
    return [
        Message.build(each.value, key=each.key, timestamp=each.timestamp, magic=magic)
        for each in GIVEN
    ]


def read(found: MessageAndOffset) -> tuple[int, int, bytes | None, bytes | None]:
    message = found.message
    return found.offset, message.timestamp, message.key, message.value


def offsets(data: bytes, **rules: Any) -> list[int]:
    return [found.offset for found in MessageSet(data).deep(**rules)]


# Made


def test_refused_messages_take_no_offsets() -> None:
    counter = count(5)
    offsets = counter.__next__
    with pytest.raises(InvalidRecordError, match=r"record 3.*magic 0 among those of magic 1"):
        MessageSet.create([*made(1), *made(0)], offsets=offsets, compression=Compression.GZIP)
    created = MessageSet.create([*made(1), *made(0)], offsets=offsets)
    assert [found.offset for found in created] == [5, 6, 7, 8, 9, 10]
    assert [found.message.magic for found in created] == [1, 1, 1, 0, 0, 0]


# Walked


def test_a_message_tells_the_offset_after_it() -> None:
    (found,) = MessageSet.create([Message.build(b"v")], offsets=41)
    assert found.next_offset == 42


def inner(*stored: int, magic: int = 1, attributes: int = 0, value: bytes = b"v") -> bytes:
    return b"".join(
        builders.message(record(value), magic=magic, attributes=attributes, offset=at)
        for at in stored
    )


def wrapped(data: bytes, *, magic: int = 1, offset: int = 0, codec: int = GZIP) -> bytes:
    return builders.wrapper([], magic=magic, codec=codec, offset=offset, inner=data)


def strange(data: bytes) -> bytes:
    """The entry with magic 2 over the layout of magic 1, its checksum made right."""
    tail = b"\x02" + data[17:]
    return data[:12] + pack(">I", crc32(tail)) + tail


#: Claim -> wrapper, the error today, the error of 0.10.
UNOPENED: dict[str, tuple[bytes, type[Exception], type[Exception] | None]] = {
    "not gzip": (
        builders.message(record(b"v"), magic=1, attributes=GZIP),
        DecompressionError,
        InvalidRecordError,
    ),
    "no value": (
        entry(Message.build(None, compression=Compression.GZIP), 0),
        InvalidRecordError,
        InvalidRecordError,
    ),
    "magic 2 around": (strange(wrapped(inner(0))), InvalidRecordError, InvalidRecordError),
    "magic 2 inside": (wrapped(inner(1, magic=2)), InvalidRecordError, InvalidRecordError),
    "compressed inside": (wrapped(inner(1, attributes=GZIP)), InvalidRecordError, None),
}


@pytest.mark.parametrize("claim", UNOPENED)
def test_wrappers_that_cannot_be_opened_are_refused(claim: str) -> None:
    data, today, as_0_10 = UNOPENED[claim]
    with pytest.raises(today):
        offsets(data)
    if as_0_10 is None:
        assert len(offsets(data, rules="0.10")) == 1
    else:
        with pytest.raises(as_0_10):
            offsets(data, rules="0.10")


def test_sizes_inside_can_be_bounded() -> None:
    size = len(inner(0)) - 12
    data = wrapped(inner(0, 1), offset=1)
    assert offsets(data, message_bytes_max=size) == [0, 1]
    with pytest.raises(CorruptRecordError, match=f"{size - 1} at most"):
        offsets(data, message_bytes_max=size - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrapper_that_inflates_too_far_is_refused(codec: int) -> None:
    data = inner(0, value=bytes(10_000))
    set_ = wrapped(data, codec=codec)
    assert offsets(set_, inflated_max=len(data)) == [0]
    with pytest.raises(LimitExceededError):
        offsets(set_, inflated_max=len(data) - 1)


def test_the_type_inside_a_wrapper_of_magic_0_is_none_today_and_was_its_own() -> None:
    stored = builders.message(record(b"v", timestamp=4), magic=1, attributes=8)
    data = MessageSet(wrapped(stored, magic=0))
    (today,), (once,) = data.deep(), data.deep(rules="0.10")
    assert (today.message.timestamp, once.message.timestamp) == (4, 4)
    assert today.message.timestamp_type == TimestampType.NO_TIMESTAMP_TYPE
    assert once.message.timestamp_type == LOG_APPEND


# As one thing


def test_equal_bytes_make_equal_sets() -> None:
    ours, theirs = (MessageSet.create(made(1)) for _ in range(2))
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert ours != MessageSet.create(made(0))
    assert ours != ours.data
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert str(len(ours.data)) in repr(ours)


def test_offsets_inside_are_counted_as_java_counts_however_far_apart() -> None:
    offsets = (-(2**63), -1, 0, 2**63 - 1)
    entries = [
        builders.message(record(b"%d" % number), magic=0, offset=offset)
        for number, offset in enumerate(offsets)
    ]
    first = builders.wrapper([record(b"first")], magic=0, codec=GZIP, offset=offsets[0])
    made = MessageSet(first + b"".join(entries[1:])).to_message_format(1)
    assert [each.offset for each in made.deep(rules="0.10")] == [0, *offsets[1:]]


def test_a_set_changes_its_format_by_the_codec_of_its_first_entry() -> None:
    plain = entry(Message.build(b"p"), 3)
    packed = wrapped(inner(0, 1), offset=5)
    (only,) = MessageSet(packed + entry(Message.build(b"p"), 6)).to_message_format(0).shallow()
    assert (only.offset, only.message.codec) == (6, GZIP)
    turned = MessageSet(plain + packed).to_message_format(0)
    assert [(found.offset, found.message.codec) for found in turned.shallow()] == [
        (3, 0),
        (4, 0),
        (5, 0),
    ]


def test_a_set_with_no_whole_message_keeps_its_format() -> None:
    cut = MessageSet(entry(Message.build(b"v"), 3)[:-1])
    assert cut.to_message_format(0) is cut
    assert MessageSet(b"").to_message_format(0) == MessageSet(b"")


# Written out


class Greedy(io.RawIOBase):
    """Takes at most so many bytes of each write."""

    def __init__(self, *portions: int | None) -> None:
        self.portions = list(portions)
        self.taken = bytearray()

    def write(self, data: Any) -> int | None:
        portion = self.portions.pop(0) if len(self.portions) > 1 else self.portions[0]
        if portion is None:
            return None
        part = bytes(data[:portion])
        self.taken += part
        return len(part)


def test_a_target_that_takes_nothing_is_an_error() -> None:
    with pytest.raises(OSError, match="byte 3 of 20"):
        MessageSet(bytes(20)).write_to(Greedy(3, 0))


@pytest.mark.parametrize("buffering", [0, 4096])
def test_a_pipe_that_would_block_says_how_much_it_took(buffering: int) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with open(ours, "rb", buffering=0) as source:
        target = open(theirs, "wb", buffering=buffering)  # noqa: SIM115 closed before its reader
        with pytest.raises(BlockingIOError) as refused:
            MessageSet(bytes(16 << 20)).write_to(target)
        taken = 0
        os.set_blocking(ours, False)
        while part := source.read(1 << 20):
            taken += len(part)
        target.close()
        taken += len(source.read(1 << 20) or b"")
        assert taken == refused.value.characters_written > 0
