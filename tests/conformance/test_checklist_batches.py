"""Magic 2, one claim a row: what a record, a batch and a walk must give or refuse.

The claims are those of Kafka's DefaultRecordTest, DefaultRecordBatchTest, ControlRecordTypeTest,
EndTransactionMarkerTest and ByteBufferLogInputStreamTest, and rules that only the code tells.
"""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from kseg.constants import StopReason
from kseg.format.header import scan
from tests.builders import GZIP, NONE, batch, control_batch, record, varint, varlong
from tests.conformance.readers import Read, Reader

GOOD = varint(7) + bytes([0]) + varlong(0) + varint(0) + varint(-1) + varint(1) + b"v" + varint(0)
START = bytes([0]) + varlong(0) + varint(0)
KEY_VALUE = START + varint(1) + b"k" + varint(1) + b"v"
HEADER = varint(1) + b"h" + varint(1) + b"x"


def sized(fields: bytes, *, longer: int = 0) -> bytes:
    """A record: the length, true unless made longer, and the fields."""
    return varint(len(fields) + longer) + fields


def read(reader: Reader, data: bytes) -> Read:
    """The records of the first batch."""
    found = reader.walk(data, "memory")
    return reader.read(data, 0, found.batches[0]["size"])


REFUSED_RECORDS = {
    "header count one higher than present": sized(KEY_VALUE + varint(2) + HEADER),
    "header key cut off": sized(KEY_VALUE + varint(1)),
    "record ends inside the timestamp": sized(bytes([0, 0x80])),
    "record ends inside the offset": sized(bytes([0, 0, 0x80])),
    "record ends before the key length": sized(START),
    "record ends before the header count": sized(KEY_VALUE),
    "fifth byte of the offset goes on": sized(bytes([0, 0]) + b"\x80" * 5 + KEY_VALUE[3:]),
    "declared length far larger than the data": sized(KEY_VALUE + varint(0), longer=2**30),
    "spare byte inside the declared length": sized(KEY_VALUE + varint(0) + b"\0"),
    "no bytes where a record should start": b"",
}


@pytest.mark.parametrize("claim", REFUSED_RECORDS)
@pytest.mark.parametrize("codec", [NONE, GZIP], ids=["plain", "gzip"])
def test_a_bad_record_is_invalid_and_only_plain_batches_give_those_before_it(
    claim: str, codec: int, reader: Reader
) -> None:
    body = GOOD + REFUSED_RECORDS[claim]
    result = read(reader, batch(body=body, count=2, codec=codec, last_offset_delta=1))
    assert result.error == "invalid"
    assert len(result.records) == (1 if codec == NONE else 0)


ACCEPTED_RECORDS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "key length -2 and value length -7 are null": (
        sized(START + varint(-2) + varint(-7) + varint(0)),
        {"key": None, "value": None},
    ),
    "a header key that is not UTF-8 keeps its bytes": (
        sized(KEY_VALUE + varint(1) + varint(2) + b"\xff\xfe" + varint(0)),
        {"headers": [(b"\xff\xfe", b"")]},
    ),
    "an offset delta may be negative": (
        sized(bytes([0]) + varlong(0) + varint(-4) + KEY_VALUE[3:] + varint(0)),
        {"offset": 96},
    ),
    "an offset delta may lie beyond the last": (
        sized(bytes([0]) + varlong(0) + varint(40) + KEY_VALUE[3:] + varint(0)),
        {"offset": 140},
    ),
    "a fifth varint byte keeps only its low four bits": (
        sized(START + b"\x82\x80\x80\x80\x70" + b"k" + varint(1) + b"v" + varint(0)),
        {"key": b"k", "value": b"v"},
    ),
}


@pytest.mark.parametrize("claim", ACCEPTED_RECORDS)
@pytest.mark.parametrize("codec", [NONE, GZIP], ids=["plain", "gzip"])
def test_an_odd_record_is_read(claim: str, codec: int, reader: Reader) -> None:
    body, expected = ACCEPTED_RECORDS[claim]
    result = read(reader, batch(body=body, count=1, codec=codec, base_offset=100))
    assert result.error is None
    (row,) = result.records
    assert {name: row[name] for name in expected} == expected


PLAIN_BODY = GOOD * 3

#: Claim -> a batch, then how many records a plain and a compressed batch give, then the error.
COUNTS: dict[str, tuple[dict[str, Any], int, int, str | None]] = {
    "count 2, 3 present": ({"body": PLAIN_BODY, "count": 2}, 1, 0, "invalid"),
    "count -1": ({"body": PLAIN_BODY, "count": -1}, 0, 0, "invalid"),
    "count 2^31-1": ({"body": PLAIN_BODY, "count": 2**31 - 1}, 3, 0, "invalid"),
}


@pytest.mark.parametrize("claim", COUNTS)
@pytest.mark.parametrize("codec", [NONE, GZIP], ids=["plain", "gzip"])
def test_the_count_must_be_that_of_the_records(claim: str, codec: int, reader: Reader) -> None:
    fields, plain, compressed, error = COUNTS[claim]
    result = read(reader, batch(codec=codec, **fields))
    assert result.error == error
    assert len(result.records) == (plain if codec == NONE else compressed)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_no_release_knows_is_refused(codec: int, reader: Reader) -> None:
    result = read(reader, batch(body=PLAIN_BODY, count=3, codec=codec))
    assert result.error in {"invalid", "unsupported"}
    assert result.records == []


@pytest.mark.parametrize(
    ("start", "end", "crc_ok"),
    [(0, 8, True), (12, 16, True), (17, 21, False), (21, 61, False), (61, 78, False)],
    ids=["base offset", "leader epoch", "checksum", "other fields", "records"],
)
def test_the_checksum_covers_what_follows_it(
    start: int, end: int, crc_ok: bool, reader: Reader
) -> None:
    data = control_batch(1)
    for at in range(start, end):
        changed = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        assert reader.walk(changed, "memory").batches[0]["crc_ok"] is crc_ok
        assert reader.check(changed) == (None if crc_ok else "corrupt")


CONTROL_KEYS = {
    "ABORT": (pack(">hh", 0, 0), "ABORT"),
    "KRAFT_VOTERS": (pack(">hh", 0, 6), "KRAFT_VOTERS"),
    "type 257 is unknown, whatever its low byte": (pack(">hh", 0, 257), "UNKNOWN"),
    "type -255 is unknown, whatever its low byte": (pack(">hh", 0, -255), "UNKNOWN"),
    "version -1 says nothing": (pack(">hh", -1, 1), "UNKNOWN"),
    "three bytes say nothing": (bytes(3), "UNKNOWN"),
    "a null key says nothing": (None, "UNKNOWN"),
}


@pytest.mark.parametrize("claim", CONTROL_KEYS)
def test_a_control_record_is_named_by_its_key(claim: str, reader: Reader) -> None:
    key, name = CONTROL_KEYS[claim]
    data = batch([record(pack(">hi", 0, 7), key=key)], control=True)
    result = read(reader, data)
    assert result.error is None
    assert [row["control_type"] for row in result.records] == [name]
    assert result.records[0]["key"] == key


MARKER_VALUES = {
    "epoch 79": (pack(">hi", 0, 79), 79),
    "version 5 with extra bytes reads as version 0": (pack(">hiq", 5, 79, 1), 79),
    "version -1 says nothing": (pack(">hi", -1, 79), -1),
    "an empty value says nothing": (b"", -1),
    "a null value says nothing": (None, -1),
}


@pytest.mark.parametrize("claim", MARKER_VALUES)
def test_a_marker_s_value_holds_the_coordinator_epoch(claim: str) -> None:
    value, epoch = MARKER_VALUES[claim]
    marker = record(value, key=pack(">hh", 0, 0))
    assert scan(batch([marker], control=True)).coordinator_epoch.tolist() == [epoch]


ONE = batch([record(b"first", timestamp=5)], leader_epoch=3)
TWO = batch([record(b"second"), record(b"third")], base_offset=1)


def resized(data: bytes, size: int) -> bytes:
    """The batch with another size field."""
    return data[:8] + pack(">i", size) + data[12:]


#: Claim -> bytes, batches found, error in memory, error in a file, kseg's stop.
WALKS: dict[str, tuple[bytes, int, str | None, str | None, StopReason]] = {
    "two whole batches": (ONE + TWO, 2, None, None, StopReason.END),
    "nothing": (b"", 0, None, None, StopReason.END),
    "last five bytes cut": ((ONE + TWO)[:-5], 1, None, None, StopReason.TORN_TAIL),
    "last thirteen bytes cut": ((ONE + TWO)[:-13], 1, None, None, StopReason.TORN_TAIL),
    "size 9": (ONE + resized(TWO, 9), 1, "corrupt", "corrupt", StopReason.BAD_LENGTH),
    "size -1": (ONE + resized(TWO, -1), 1, "corrupt", "corrupt", StopReason.BAD_LENGTH),
    "size 13, 12 bytes there": (
        ONE + resized(TWO, 13)[:12],
        1,
        "corrupt",
        None,
        StopReason.BAD_LENGTH,
    ),
    "good size, 16 bytes there": (ONE + TWO[:16], 1, None, None, StopReason.TORN_TAIL),
    "size 2^31-1": (ONE + resized(TWO, 2**31 - 1), 1, None, None, StopReason.TORN_TAIL),
    "zero tail of 11": (ONE + bytes(11), 1, None, None, StopReason.ZERO_TAIL),
    "zero tail of 12": (ONE + bytes(12), 1, "corrupt", None, StopReason.ZERO_TAIL),
    "zero tail of 17": (ONE + bytes(17), 1, "corrupt", None, StopReason.ZERO_TAIL),
    "zero tail of 18": (ONE + bytes(18), 1, "corrupt", "corrupt", StopReason.ZERO_TAIL),
    "incomplete batch with a bad magic": (
        ONE + TWO[:16] + b"\x09" + TWO[17:20],
        1,
        "corrupt",
        None,
        StopReason.BAD_MAGIC,
    ),
}


@pytest.mark.parametrize("claim", WALKS)
def test_a_walk_ends_as_kafka_s_does(claim: str, reader: Reader) -> None:
    data, count, in_memory, in_file, stop = WALKS[claim]
    for policy, error in (("memory", in_memory), ("file", in_file)):
        found = reader.walk(data, policy)
        assert (len(found.batches), found.error) == (count, error)
    assert scan(data).stop is stop


def test_magic_minus_1_is_a_legacy_batch_with_a_bad_checksum_in_a_file(reader: Reader) -> None:
    data = ONE + TWO[:16] + b"\xff" + TWO[17:]
    assert reader.walk(data, "memory").error == "corrupt"
    assert [got["crc_ok"] for got in reader.walk(data, "file").batches] == [True, False]


@pytest.mark.parametrize("size", [14, 30, 48])
def test_a_batch_below_its_header_is_stepped_over_but_not_valid(size: int, reader: Reader) -> None:
    short = resized(TWO, size)[: 12 + size]
    assert len(reader.walk(short + ONE, "memory").batches) == 2
    assert reader.check(short + ONE) == "corrupt"
    assert scan(short + ONE).stop is StopReason.BAD_LENGTH
