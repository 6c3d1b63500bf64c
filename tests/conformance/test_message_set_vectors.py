"""The vectors of magic 0, magic 1 and Kafka 0.7 as message objects, read and written back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kseg.constants import Compression
from kseg.errors import (
    CorruptRecordError,
    FormatError,
    InvalidRecordError,
    KsegError,
    UnsupportedFormatError,
)
from kseg.legacy.message import Message, entry
from kseg.legacy.message_set import Message07, MessageAndOffset, MessageSet, MessageSet07
from tests.conformance.test_record_vectors import TIMESTAMP_TYPES, expected_record

#: What Kafka raises -> what kseg may raise. Java leaks argument errors; "refused" is what binds.
KINDS: dict[str, tuple[type[FormatError], ...]] = {
    "corrupt": (CorruptRecordError,),
    "invalid": (InvalidRecordError,),
    "argument": (InvalidRecordError, UnsupportedFormatError),
}
#: The same for 0.7, by the name of its exception.
KINDS_07: dict[str, type[FormatError]] = {
    "InvalidMessageSizeException": CorruptRecordError,
    "InvalidMessageException": CorruptRecordError,
    "UnknownCodecException": UnsupportedFormatError,
}


Vector = dict[str, Any]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The batches of magic 0 and 1, wherever in a vector they lie."""
    path = Path(metafunc.config.getoption("--vectors")) / "records.json"
    chosen = {"old_batch": old_batches, "old_negative": old_negatives, "sound07": sound07}
    for argument, choose in chosen.items():
        if argument in metafunc.fixturenames:
            vectors = json.loads(path.read_text())
            ids, values = zip(*choose(vectors), strict=True)
            metafunc.parametrize(argument, values, ids=ids)


def old_batches(vectors: Vector) -> Iterable[tuple[str, Vector]]:
    for vector in vectors["records"]:
        for batch in vector["expect"]["batches"]:
            if batch["magic"] < 2:
                start, end = batch["position"], batch["position"] + batch["size"]
                data = bytes.fromhex(vector["hex"])[start:end]
                canonical = vector["canonical"] and batch["codec"] == "none"
                yield f"{vector['name']}-{start}", {**batch, "data": data, "canonical": canonical}


def old_negatives(vectors: Vector) -> Iterable[tuple[str, Vector]]:
    for vector in vectors["negative"]:
        data = bytes.fromhex(vector["hex"])
        if len(data) > 16 and data[16] < 2:
            yield vector["name"], {**vector, "data": data}


def sound07(vectors: Vector) -> Iterable[tuple[str, Vector]]:
    for vector in vectors["kafka07"]:
        if "error" not in vector:
            yield vector["name"], vector


def fields(found: MessageAndOffset) -> dict[str, Any]:
    message = found.message
    return {
        "offset": found.offset,
        "timestamp": message.timestamp,
        "key": message.key,
        "value": message.value,
    }


def test_an_old_entry_has_the_fields_that_kafka_reads(old_batch: Vector) -> None:
    (found,) = MessageSet(old_batch["data"]).shallow()
    message = found.message
    assert found.offset == old_batch["last_offset"]
    assert (message.magic, message.crc) == (old_batch["magic"], old_batch["crc"])
    assert message.is_valid == old_batch["crc_ok"]
    assert message.attributes == old_batch["attributes"] & 0xFF
    assert message.compression.label == old_batch["codec"]
    assert message.timestamp == old_batch["max_timestamp"]
    assert message.timestamp_type.label == TIMESTAMP_TYPES[old_batch["timestamp_type"]]


def test_old_messages_are_those_that_kafka_reads(old_batch: Vector) -> None:
    found = list(MessageSet(old_batch["data"]))
    assert [fields(each) for each in found] == [
        expected_record(record) for record in old_batch["records"]
    ]
    for each, record in zip(found, old_batch["records"], strict=True):
        assert each.message.is_valid != bool(record.get("record_crc_error"))


def test_an_old_message_is_written_byte_for_byte(old_batch: Vector) -> None:
    """Wrappers too: what is compressed is their value."""
    (found,) = MessageSet(old_batch["data"]).shallow()
    message = found.message
    built = Message.build(
        message.value,
        key=message.key,
        timestamp=message.timestamp,
        timestamp_type=message.timestamp_type,
        magic=message.magic,
        compression=message.compression,
    )
    assert built.is_valid
    if old_batch["canonical"]:
        assert entry(built, found.offset) == old_batch["data"]
    assert (built.key, built.value) == (message.key, message.value)


def test_old_bytes_are_refused_as_kafka_refuses_them(old_negative: Vector) -> None:
    given, error = 0, None
    try:
        for found in MessageSet(old_negative["data"]):
            if old_negative["stage"] == "ensure_valid":
                found.message.ensure_valid()
            fields(found)
            given += 1
    except KsegError as refused:
        error = refused
    assert isinstance(error, KINDS[old_negative["kind"]])
    if old_negative["stage"] == "iterate":
        assert given == old_negative["records_before_error"]


def consumed(found: Any) -> list[dict[str, Any]]:
    return [
        {
            "next_offset": each.next_offset,
            "magic": each.message.magic,
            "codec": each.message.codec,
            "payload": each.message.payload.hex(),
        }
        for each in found
    ]


def test_0_7_sets_give_their_messages_and_next_offsets(sound07: Vector) -> None:
    read = MessageSet07(bytes.fromhex(sound07["hex"]), sound07["initial_offset"])
    assert consumed(read) == sound07["deep"]
    assert consumed(read.shallow()) == sound07["shallow"]
    ends = [sound07["initial_offset"], *(each["next_offset"] for each in sound07["shallow"])]
    assert read.valid_bytes == ends[-1] - ends[0]


def test_0_7_damage_is_refused_as_kafka_refuses_it(vector07: Vector) -> None:
    given, error = 0, None
    try:
        for _ in MessageSet07(bytes.fromhex(vector07["hex"]), vector07["initial_offset"]):
            given += 1
    except KsegError as refused:
        error = refused
    if "error" in vector07:
        assert type(error) is KINDS_07[vector07["error"]]
        assert given == vector07.get("messages_before_error", 0)
    else:
        assert (given, error) == (len(vector07["deep"]), None)


def test_0_7_messages_are_written_byte_for_byte(sound07: Vector) -> None:
    data = bytes.fromhex(sound07["hex"])
    read = MessageSet07(data)
    written = [
        Message07.build(
            bytes.fromhex(each["payload"]),
            magic=each["magic"],
            compression=Compression(each["codec"]),
        )
        for each in sound07["shallow"]
    ]
    made = bytearray(MessageSet07.create(written).data)
    if sound07["name"] == "k07_attributes_not_in_crc":
        made[5] = 0x80  # the one bit in all vectors that no writer sets
    assert made == data[: read.valid_bytes]
