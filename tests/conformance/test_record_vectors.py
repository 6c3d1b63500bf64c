"""The vectors of records.json: what Kafka's own classes say about bytes made by the book."""

from __future__ import annotations

from typing import Any

import pytest

from kseg import _core
from kseg.format.header import decrement_sequence, increment_sequence, scan
from tests import reference, reference_codecs
from tests.conformance.readers import Reader
from tests.reference07 import Message07, messages07, next_offsets

TIMESTAMP_TYPES = {"none": "NoTimestampType", "create": "CreateTime", "log_append": "LogAppendTime"}

#: Java leaks an index error here; what is binding is that the bytes are refused.
REFUSALS = {
    "corrupt": {"corrupt"},
    "invalid": {"invalid"},
    "codec": {"codec"},
    "argument": {"invalid", "corrupt", "unsupported"},
}

CHECKSUMS = {
    "crc32": (reference_codecs.crc32, _core.crc32),
    "crc32c": (reference_codecs.crc32c, _core.crc32c),
    "xxh32_seed0": (reference_codecs.xxh32,),
}


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def expected_record(record: dict[str, Any]) -> dict[str, Any]:
    expected = {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "key": unhex(record["key"]),
        "value": unhex(record["value"]),
    }
    if "headers" in record:
        expected["headers"] = [(name.encode(), unhex(value)) for name, value in record["headers"]]
        expected["sequence"] = record["sequence"]
    return expected


def expected_batch(batch: dict[str, Any]) -> dict[str, Any]:
    expected = {name: value for name, value in batch.items() if name not in ("records", "count")}
    expected["timestamp_type"] = TIMESTAMP_TYPES[batch["timestamp_type"]]
    if batch["magic"] < 2 and batch["codec"] != "none":
        del expected["base_offset"]  # only the inner messages tell; see the first record
    expected.pop("last_offset_delta", None)
    return expected


def same_fields(expected: dict[str, Any], got: dict[str, Any]) -> None:
    assert {name: got[name] for name in expected} == expected


def test_every_whole_batch_is_found_with_every_header_field(
    record_vector: dict[str, Any], reader: Reader
) -> None:
    expect = record_vector["expect"]
    found = reader.walk(bytes.fromhex(record_vector["hex"]), "memory")
    assert found.error is None
    assert found.end_position == expect["valid_bytes"]
    assert len(found.batches) == len(expect["batches"])
    for batch, got in zip(expect["batches"], found.batches, strict=True):
        same_fields(expected_batch(batch), got)
        if "count" in batch:
            assert got["count"] == batch["count"]


def test_every_record_is_decoded_with_every_field(
    record_vector: dict[str, Any], reader: Reader
) -> None:
    data = bytes.fromhex(record_vector["hex"])
    for batch in record_vector["expect"]["batches"]:
        read = reader.read(data, batch["position"], batch["size"])
        assert read.error is None
        assert len(read.records) == len(batch["records"])
        for record, got in zip(batch["records"], read.records, strict=True):
            same_fields(expected_record(record), got)
        if read.records and batch["magic"] < 2:
            assert read.records[0]["offset"] == batch["base_offset"]


def test_control_records_carry_their_type(record_vector: dict[str, Any], reader: Reader) -> None:
    control = record_vector["expect"].get("control_record")
    batches = record_vector["expect"]["batches"]
    if control is None:
        assert not any(batch.get("control") for batch in batches)
        return
    read = reader.read(bytes.fromhex(record_vector["hex"]), 0, batches[0]["size"])
    assert read.records[0]["control_type"] == control["type"]


def test_the_refusal_has_its_kind_and_comes_after_the_good_records(
    negative_vector: dict[str, Any], reader: Reader
) -> None:
    data = bytes.fromhex(negative_vector["hex"])
    kinds = REFUSALS[negative_vector["kind"]]
    found = reader.walk(data, "memory")
    if negative_vector["stage"] == "frame":
        assert found.error in kinds
        return
    assert found.error is None
    if negative_vector["stage"] == "ensure_valid":
        assert reader.check(data) in kinds
        return
    read = reader.read(data, 0, found.batches[0]["size"])
    assert read.error in kinds
    assert len(read.records) == negative_vector["records_before_error"]


@pytest.mark.parametrize("policy", ["memory", "file"])
def test_the_walk_stops_where_kafka_s_reader_stops(
    walk_vector: dict[str, Any], policy: str, reader: Reader
) -> None:
    expect = walk_vector[policy]
    found = reader.walk(bytes.fromhex(walk_vector["hex"]), policy)
    assert len(found.batches) == expect["batches"]
    assert found.end_position == expect["valid_bytes"]
    assert [batch["crc_ok"] for batch in found.batches] == expect["crc_ok"]
    if expect["error"] != "IllegalArgumentException":  # 12 + 2^31-1 overflows in Java
        assert found.error == (None if expect["error"] is None else "corrupt")


def test_kafka_0_7_messages_tell_where_to_go_on(vector07: dict[str, Any], reader: Reader) -> None:
    read = reader.read07(bytes.fromhex(vector07["hex"]), vector07["initial_offset"])
    if "error" in vector07:
        assert read.error in {"corrupt", "invalid", "unsupported"}
        assert len(read.records) == vector07.get("messages_before_error", 0)
        return
    assert read.error is None
    assert same_as_07(read.records) == wanted_07(vector07["deep"])


def test_kafka_0_7_walk_finds_each_outermost_message(vector07: dict[str, Any]) -> None:
    data, start = bytes.fromhex(vector07["hex"]), vector07["initial_offset"]
    table = scan(data, kafka07=True, log_start=start)
    payloads = [data[row.position + 9 + row.magic : row.position + row.size] for row in table]
    ends = (table.base_offset + table.size).tolist()
    if "shallow" in vector07:
        assert list(zip(payloads, ends, strict=True)) == wanted_07(vector07["shallow"])
        shallow = messages07(data, start, deep=False)
        assert [message.end_offset for message in shallow] == ends


def same_as_07(records: list[dict[str, Any]]) -> list[tuple[bytes, int]]:
    messages = [Message07(got["offset"], got["next_offset"], 0, 0, got["value"]) for got in records]
    payloads = [message.payload for message in messages]
    return list(zip(payloads, next_offsets(messages), strict=True))


def wanted_07(expected: list[dict[str, Any]]) -> list[tuple[bytes, int]]:
    return [(bytes.fromhex(message["payload"]), message["next_offset"]) for message in expected]


def test_primitives_have_the_values_kafka_gives(primitive: dict[str, Any]) -> None:
    kind, data = primitive["kind"], bytes.fromhex(primitive["hex"])
    if kind == "lz4_frame_header_check":
        assert reference_codecs.xxh32(data) >> 8 & 0xFF == primitive["correct_hc"]
        whole = b"\x04\x22\x4d\x18" + data
        assert reference_codecs.xxh32(whole) >> 8 & 0xFF == primitive["broken_hc"]
    elif kind in CHECKSUMS:
        for checksum in CHECKSUMS[kind]:
            assert checksum(data) == primitive["value"]
    else:
        varint(primitive, data)


def varint(primitive: dict[str, Any], data: bytes) -> None:
    read = {
        "varint": reference.read_varint,
        "varlong": reference.read_varlong,
        "uvarint": reference.read_uvarint,
    }[primitive["kind"]]
    if "error" in primitive:
        with pytest.raises(reference.RefusedError):
            read(data, 0, len(data))
        return
    value, position = read(data, 0, len(data))
    assert value == primitive["value"]
    assert position == primitive.get("consumed", len(data))


def test_sequences_wrap_from_2147483647_to_0(sequence_step: dict[str, Any]) -> None:
    sequence, by = sequence_step["sequence"], sequence_step["by"]
    if sequence_step["op"] == "increment":
        assert reference.increment_sequence(sequence, by) == sequence_step["result"]
        assert increment_sequence(sequence, by) == sequence_step["result"]
    else:
        assert decrement_sequence(sequence, by) == sequence_step["result"]
