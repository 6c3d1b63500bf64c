"""Magic 0 and 1 and Kafka 0.7, one claim a row: what a message and a set must give or refuse.

The claims are those of Kafka's LegacyRecordTest, SimpleLegacyRecordTest,
AbstractLegacyRecordBatchTest and 0.7's ByteBufferMessageSetTest, and rules that only code tells.
"""

from __future__ import annotations

from struct import pack

import pytest

from kseg.errors import CorruptRecordError
from kseg.format import columns
from kseg.format.header import scan
from kseg.format.request import Request
from tests.builders import (
    GZIP,
    LZ4,
    SNAPPY,
    Record,
    deflate,
    message,
    message07,
    messages,
    messages07,
    record,
    wrapper,
)
from tests.conformance.readers import Read, Reader
from tests.reference_codecs import crc32


def read(reader: Reader, data: bytes) -> Read:
    """The records of the first entry."""
    found = reader.walk(data, "memory")
    assert found.error is None
    return reader.read(data, 0, found.batches[0]["size"])


def offsets(result: Read) -> list[int]:
    assert result.error is None
    return [row["offset"] for row in result.records]


def body(fields: bytes, *, magic: int, attributes: int = 0, offset: int = 0) -> bytes:
    """An entry with a right checksum around any bytes behind the timestamp."""
    tail = pack(">bB", magic, attributes) + (pack(">q", 5) if magic else b"") + fields
    return pack(">qiI", offset, 4 + len(tail), crc32(tail)) + tail


# Messages


@pytest.mark.parametrize("magic", [0, 1])
def test_lengths_of_minus_5_are_null(magic: int, reader: Reader) -> None:
    (row,) = read(reader, body(pack(">ii", -5, -5), magic=magic)).records
    assert (row["key"], row["value"]) == (None, None)


UNREADABLE = {
    "key length past the message": pack(">i", 999) + b"k" + pack(">i", -1),
    "message ends before the value length": pack(">i", 4) + b"keys",
    "value length of 2^31-1": pack(">ii", -1, 2**31 - 1),
}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("claim", UNREADABLE)
def test_a_length_that_lies_is_refused(claim: str, magic: int, reader: Reader) -> None:
    result = read(reader, body(UNREADABLE[claim], magic=magic))
    assert result.error in {"invalid", "corrupt"}
    assert result.records == []


# Sets

THREE = [record(b"a", timestamp=1), record(b"b", timestamp=2), record(b"c", timestamp=3)]


def inner(*stored: int, magic: int = 1, attributes: int = 0) -> bytes:
    """Inner messages with these stored offsets."""
    return b"".join(
        message(record(b"v"), magic=magic, attributes=attributes, offset=at) for at in stored
    )


def test_the_wrapper_s_magic_decides_the_offsets(reader: Reader) -> None:
    data = wrapper([], magic=0, codec=GZIP, offset=12, inner=inner(4, 5, magic=1))
    assert offsets(read(reader, data)) == [4, 5]


def test_eleven_bytes_behind_the_last_message_are_left_out(reader: Reader) -> None:
    data = wrapper([], magic=1, codec=GZIP, offset=41, inner=inner(0, 1) + bytes(11))
    assert offsets(read(reader, data)) == [40, 41]


#: Claim -> wrapper, records given before the error, kind of error.
REFUSED: dict[str, tuple[bytes, int, str]] = {
    "bad size after good messages": (
        wrapper([], magic=1, codec=GZIP, offset=1, inner=inner(0, 1) + pack(">qi", 2, 3)),
        0,
        "corrupt",
    ),
    "compressed message inside": (
        wrapper([], magic=1, codec=GZIP, offset=2, inner=inner(0, 1) + inner(2, attributes=GZIP)),
        2,
        "invalid",
    ),
    "not gzip": (message(Record(b"plain"), magic=1, attributes=GZIP), 0, "codec"),
    "lz4 check byte of magic 0 in magic 1": (
        message(Record(deflate(LZ4, inner(0), magic=0)), magic=1, attributes=LZ4),
        0,
        "codec",
    ),
}


@pytest.mark.parametrize("claim", REFUSED)
def test_a_bad_set_is_refused(claim: str, reader: Reader) -> None:
    data, given, kind = REFUSED[claim]
    result = read(reader, data)
    assert result.error == kind
    assert len(result.records) == given


def test_a_wrapper_s_create_time_leaves_the_inner_times(reader: Reader) -> None:
    data = wrapper(THREE, magic=1, codec=SNAPPY, timestamp=15)
    assert reader.walk(data, "memory").batches[0]["max_timestamp"] == 15
    assert [row["timestamp"] for row in read(reader, data).records] == [1, 2, 3]


def test_an_inner_log_append_bit_means_nothing(reader: Reader) -> None:
    stored = message(record(b"v", timestamp=4), magic=1, attributes=8)
    data = wrapper([], magic=1, codec=GZIP, offset=9, timestamp=15, inner=stored)
    (row,) = read(reader, data).records
    assert (row["timestamp"], row["timestamp_type"]) == (4, "CreateTime")


def test_a_wrong_inner_checksum_is_seen_only_by_who_asks() -> None:
    stored = inner(0) + message(record(b"bad"), magic=1, offset=1, crc=7)
    data = wrapper([], magic=1, codec=GZIP, offset=1, inner=stored)
    fields = ("offset", "value")
    trusting = Request(columns=fields, verify_crc=False)
    (piece,) = columns.decode(memoryview(data), scan(data), trusting)
    assert list(piece.value) == [b"v", b"bad"]
    checking = columns.decode(memoryview(data), scan(data), Request(columns=fields))
    assert next(checking).offset.tolist() == [0]
    with pytest.raises(CorruptRecordError):
        next(checking)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_side_by_side_are_batches_of_one(magic: int, reader: Reader) -> None:
    data = messages(THREE, magic=magic, base_offset=5)
    found = reader.walk(data, "memory").batches
    assert [(got["base_offset"], got["last_offset"]) for got in found] == [(5, 5), (6, 6), (7, 7)]
    assert {(got["leader_epoch"], got["producer_id"], got["last_sequence"]) for got in found} == {
        (-1, -1, -1)
    }
    assert not any(got["transactional"] or got["control"] for got in found)


# Kafka 0.7


REFUSED07 = {
    "wrong checksum inside a set": message07(
        deflate(GZIP, messages07([b"one"]) + message07(b"two", crc=1)), codec=GZIP
    ),
    "magic 2": message07(b"one")[:4] + b"\x02" + message07(b"one")[5:],
    "not the codec it says": message07(b"plain", codec=GZIP),
}


@pytest.mark.parametrize("claim", REFUSED07)
def test_kafka_0_7_damage_is_refused(claim: str, reader: Reader) -> None:
    result = reader.read07(REFUSED07[claim], 1000)
    assert result.error is not None
    assert [row["value"] for row in result.records] in ([], [b"one"])
