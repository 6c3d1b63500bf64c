"""Magic 0 and 1 and Kafka 0.7, one claim a row: what a message and a set must give or refuse.

The claims are those of Kafka's LegacyRecordTest, SimpleLegacyRecordTest,
AbstractLegacyRecordBatchTest and 0.7's ByteBufferMessageSetTest, and rules that only code tells.
"""

from __future__ import annotations

from itertools import product
from struct import pack
from typing import Any

import pytest

from kseg.errors import CorruptRecordError
from kseg.format import columns
from kseg.format.header import scan
from kseg.format.request import Request
from tests.builders import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Record,
    deflate,
    message,
    message07,
    messages,
    messages07,
    record,
    records_of,
    wrapper,
)
from tests.conformance.readers import Read, Reader
from tests.reference07 import Message07, next_offsets
from tests.reference_codecs import crc32

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4}


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
@pytest.mark.parametrize("codec", CODECS)
def test_every_key_value_and_time_comes_back(magic: int, codec: str, reader: Reader) -> None:
    strings = [None, b"", b"key", bytes(1000)]
    for key, value, timestamp in product(strings, strings, [-1, 0, 1]):
        given = record(value, key=key, timestamp=timestamp)
        data = records_of([given], magic=magic, codec=CODECS[codec], base_offset=7)
        (row,) = read(reader, data).records
        assert (row["offset"], row["key"], row["value"]) == (7, key, value)
        assert row["timestamp"] == (timestamp if magic else -1)
        assert row["timestamp_type"] == ("CreateTime" if magic else "NoTimestampType")
        assert (row["headers"], row["sequence"]) == ([], -1)


@pytest.mark.parametrize("magic", [0, 1])
def test_any_changed_byte_behind_the_checksum_is_seen(magic: int, reader: Reader) -> None:
    data = message(record(b"value", key=b"key", timestamp=1), magic=magic)
    for at in range(16, len(data)):
        changed = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        if at == 16:  # another magic is another format
            assert reader.walk(changed, "memory").error == "corrupt"
        else:
            assert reader.check(changed) == "corrupt"


READABLE: dict[str, tuple[bytes, dict[str, Any]]] = {
    "lengths of -5 are null": (pack(">ii", -5, -5), {"key": None, "value": None}),
    "bytes after the value are ignored": (
        pack(">i", -1) + pack(">i", 1) + b"v" + b"spare",
        {"key": None, "value": b"v"},
    ),
}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("claim", READABLE)
def test_an_odd_message_is_read(claim: str, magic: int, reader: Reader) -> None:
    fields, expected = READABLE[claim]
    (row,) = read(reader, body(fields, magic=magic)).records
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_attribute_bits_without_a_meaning_are_ignored(magic: int, reader: Reader) -> None:
    data = body(pack(">ii", -1, -1), magic=magic, attributes=0xF0)
    assert read(reader, data).error is None
    assert reader.walk(data, "memory").batches[0]["codec"] == "none"


UNREADABLE = {
    "key length past the message": pack(">i", 999) + b"k" + pack(">i", -1),
    "value length past the message": pack(">i", -1) + pack(">i", 999) + b"v",
    "message ends before the value length": pack(">i", 4) + b"keys",
    "value length of 2^31-1": pack(">ii", -1, 2**31 - 1),
}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("claim", UNREADABLE)
def test_a_length_that_lies_is_refused(claim: str, magic: int, reader: Reader) -> None:
    result = read(reader, body(UNREADABLE[claim], magic=magic))
    assert result.error in {"invalid", "corrupt"}
    assert result.records == []


def test_a_message_too_short_for_its_magic_is_not_valid(reader: Reader) -> None:
    short = message(record(None), magic=0)  # 14 bytes, the least a message of magic 0 has
    short = short[:16] + b"\x01" + short[17:]
    assert reader.check(short) == "corrupt"
    assert read(reader, short).error in {"invalid", "corrupt"}


# Sets

THREE = [record(b"a", timestamp=1), record(b"b", timestamp=2), record(b"c", timestamp=3)]


def inner(*stored: int, magic: int = 1, attributes: int = 0) -> bytes:
    """Inner messages with these stored offsets."""
    return b"".join(
        message(record(b"v"), magic=magic, attributes=attributes, offset=at) for at in stored
    )


#: Claim -> magic, wrapper offset, inner bytes, offsets read.
OFFSETS: dict[str, tuple[int, int, bytes, list[int]]] = {
    "magic 1, fresh": (1, 12, inner(0, 1, 2), [10, 11, 12]),
    "magic 1 at 109 with gaps": (1, 109, inner(0, 4, 9), [100, 104, 109]),
    "magic 1, wrapper offset 0": (1, 0, inner(0, 1, 2), [0, 1, 2]),
    "magic 1, absolute inside": (1, 102, inner(100, 101, 102), [100, 101, 102]),
    "magic 0, wrapper offset 0": (0, 0, inner(0, 1, 2, magic=0), [0, 1, 2]),
    "magic 0, as stored": (0, 50, inner(7, 3, magic=0), [7, 3]),
    "magic 1 around magic 0": (1, 12, inner(0, 1, magic=0), [11, 12]),
    "magic 0 around magic 1": (0, 12, inner(4, 5, magic=1), [4, 5]),
    "last inner message cut off": (1, 41, inner(0, 1, 2)[:-1], [40, 41]),
    "eleven bytes behind the last": (1, 41, inner(0, 1) + bytes(11), [40, 41]),
}


@pytest.mark.parametrize("claim", OFFSETS)
def test_the_wrapper_s_magic_decides_the_offsets(claim: str, reader: Reader) -> None:
    magic, offset, stored, expected = OFFSETS[claim]
    data = wrapper([], magic=magic, codec=GZIP, offset=offset, inner=stored)
    assert offsets(read(reader, data)) == expected


#: Claim -> wrapper, records given before the error, kind of error.
REFUSED: dict[str, tuple[bytes, int, str]] = {
    "null value": (message(Record(None), magic=1, attributes=GZIP), 0, "invalid"),
    "no messages inside": (wrapper([], magic=1, codec=GZIP, offset=1, inner=b""), 0, "invalid"),
    "only a cut-off message inside": (
        wrapper([], magic=1, codec=GZIP, offset=1, inner=inner(0)[:-1]),
        0,
        "invalid",
    ),
    "wrapper offset 1 around three": (
        wrapper(THREE, magic=1, codec=GZIP, offset=1),
        0,
        "invalid",
    ),
    "inner size 13": (
        wrapper([], magic=1, codec=GZIP, offset=1, inner=pack(">qi", 0, 13) + bytes(13)),
        0,
        "corrupt",
    ),
    "negative inner size": (
        wrapper([], magic=1, codec=GZIP, offset=1, inner=pack(">qi", 0, -1) + bytes(13)),
        0,
        "corrupt",
    ),
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
    "zstd": (
        message(Record(deflate(ZSTD, inner(0))), magic=1, attributes=ZSTD),
        0,
        "invalid",
    ),
    "codec 6": (message(Record(inner(0)), magic=1, attributes=6), 0, "unknown codec"),
    "not gzip": (message(Record(b"plain"), magic=1, attributes=GZIP), 0, "codec"),
    "lz4 check byte of magic 0 in magic 1": (
        message(Record(deflate(LZ4, inner(0), magic=0)), magic=1, attributes=LZ4),
        0,
        "codec",
    ),
}
KINDS = {"unknown codec": {"invalid", "unsupported"}}


@pytest.mark.parametrize("claim", REFUSED)
def test_a_bad_set_is_refused(claim: str, reader: Reader) -> None:
    data, given, kind = REFUSED[claim]
    result = read(reader, data)
    assert result.error in KINDS.get(kind, {kind})
    assert len(result.records) == given


@pytest.mark.parametrize("magic", [0, 2])
def test_magic_0_takes_any_lz4_check_byte(magic: int, reader: Reader) -> None:
    value = deflate(LZ4, inner(0, magic=0), magic=magic)
    assert offsets(read(reader, message(Record(value), magic=0, attributes=LZ4))) == [0]


def test_a_wrapper_s_log_append_time_overrides_the_inner_times(reader: Reader) -> None:
    data = wrapper(THREE, magic=1, codec=SNAPPY, log_append=True, timestamp=15)
    result = read(reader, data)
    assert [row["timestamp"] for row in result.records] == [15, 15, 15]
    assert {row["timestamp_type"] for row in result.records} == {"LogAppendTime"}


def test_a_wrapper_s_create_time_leaves_the_inner_times(reader: Reader) -> None:
    data = wrapper(THREE, magic=1, codec=SNAPPY, timestamp=15)
    assert reader.walk(data, "memory").batches[0]["max_timestamp"] == 15
    assert [row["timestamp"] for row in read(reader, data).records] == [1, 2, 3]


def test_an_inner_log_append_bit_means_nothing(reader: Reader) -> None:
    stored = message(record(b"v", timestamp=4), magic=1, attributes=8)
    data = wrapper([], magic=1, codec=GZIP, offset=9, timestamp=15, inner=stored)
    (row,) = read(reader, data).records
    assert (row["timestamp"], row["timestamp_type"]) == (4, "CreateTime")


def test_a_wrapper_s_key_is_ignored(reader: Reader) -> None:
    data = wrapper(THREE, magic=1, codec=GZIP, key=b"key")
    assert [row["key"] for row in read(reader, data).records] == [None, None, None]


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


def consumed(result: Read) -> list[tuple[bytes, int]]:
    """Payloads, each with the offset at which 0.7's consumer goes on."""
    assert result.error is None
    made = [
        Message07(row["offset"], row["next_offset"], 0, 0, row["value"]) for row in result.records
    ]
    return list(zip([got.payload for got in made], next_offsets(made), strict=True))


PLAIN07 = messages07([b"one", b"three"])
SET07 = messages07([b"one", b"two", b"three"], codec=GZIP)

READ07: dict[str, tuple[bytes, list[tuple[bytes, int]]]] = {
    "fewer than four bytes": (bytes(3), []),
    "next offsets are cumulative sizes": (PLAIN07, [(b"one", 1013), (b"three", 1028)]),
    "magic 0 has no attributes": (messages07([b"one"], magic=0), [(b"one", 1012)]),
    "a payload may be empty": (messages07([b""]), [(b"", 1010)]),
    "attribute bits beyond the codec are ignored": (
        message07(b"one", codec=0xFC),
        [(b"one", 1013)],
    ),
    "the first of a compressed set point back to it": (
        SET07,
        [(b"one", 1000), (b"two", 1000), (b"three", 1000 + len(SET07))],
    ),
    "a partial last message is the end": (PLAIN07[:-1], [(b"one", 1013)]),
    "sets inside sets are unpacked": (
        message07(deflate(SNAPPY, SET07), codec=SNAPPY),
        [(b"one", 1000), (b"two", 1000), (b"three", 1010 + len(deflate(SNAPPY, SET07)))],
    ),
}


@pytest.mark.parametrize("claim", READ07)
def test_kafka_0_7_sets_are_read(claim: str, reader: Reader) -> None:
    data, expected = READ07[claim]
    assert consumed(reader.read07(data, 1000)) == expected


REFUSED07 = {
    "wrong checksum": message07(b"one", crc=1),
    "wrong checksum inside a set": message07(
        deflate(GZIP, messages07([b"one"]) + message07(b"two", crc=1)), codec=GZIP
    ),
    "codec bits 3": message07(b"one", codec=3),
    "magic 2": message07(b"one")[:4] + b"\x02" + message07(b"one")[5:],
    "negative length after good messages": PLAIN07 + pack(">i", -1) + bytes(12),
    "not the codec it says": message07(b"plain", codec=GZIP),
}


@pytest.mark.parametrize("claim", REFUSED07)
def test_kafka_0_7_damage_is_refused(claim: str, reader: Reader) -> None:
    result = reader.read07(REFUSED07[claim], 1000)
    assert result.error is not None
    assert [row["value"] for row in result.records] in ([], [b"one"], [b"one", b"three"])


def test_kafka_0_7_checksum_covers_the_payload_alone(reader: Reader) -> None:
    data = message07(b"one")
    changed = data[:5] + b"\x80" + data[6:]
    assert consumed(reader.read07(changed, 0)) == [(b"one", 13)]
