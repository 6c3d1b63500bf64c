"""Every log file that a real broker left, against what Kafka's own classes read from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.expectations import Expected, expectations
from tests.conformance.readers import Reader


def same_batch(expected: dict[str, Any], got: dict[str, Any]) -> None:
    assert {name: got[name] for name in expected if name != "count"} == {
        name: value for name, value in expected.items() if name != "count"
    }
    if expected["magic"] >= 2 and "count" in expected:
        assert got["count"] == expected["count"]


def same_record(expected: dict[str, Any], got: dict[str, Any], batch: dict[str, Any]) -> None:
    merged = {**batch, **got}
    names = [(name.decode(errors="replace"), value) for name, value in got["headers"]]
    merged["headers"] = names
    assert {name: merged[name] for name in expected if name != "base_offset"} == {
        name: value for name, value in expected.items() if name != "base_offset"
    }


@pytest.mark.one_case_in(2)
def test_batches_and_records_are_those_that_kafka_reads(fixture_case: Path, reader: Reader) -> None:
    for log in expectations(fixture_case):
        if log.kafka07:
            same_messages(log, reader)
        else:
            same_log(log, reader)


def same_log(log: Expected, reader: Reader) -> None:
    data = log.path.read_bytes()
    found = reader.walk(data, "file" if log.read_to is not None else "strict")
    if log.read_to is not None:
        assert found.end_position == log.read_to
    assert len(found.batches) >= len(log.batches)
    for batch, got in zip(log.batches, found.batches, strict=False):
        same_batch(batch, got)
        same_records(log, got, reader, data)
    beyond = found.batches[len(log.batches) :]
    assert not beyond or not (log.complete or beyond[0]["crc_ok"])
    assert set(log.records) <= {batch["position"] for batch in log.batches}


def same_records(log: Expected, batch: dict[str, Any], reader: Reader, data: bytes) -> None:
    position = batch["position"]
    read = reader.read(data, position, batch["size"])
    expected, refusal = log.records[position], log.refused.get(position)
    place = f"{log.path.parent.name}/{log.path.name} at {position}"
    assert len(read.records) == len(expected), place
    for record, got in zip(expected, read.records, strict=True):
        same_record(record, got, batch)
    assert (read.error is None) == (refusal is None), place
    if expected and batch["magic"] < 2:
        assert read.records[0]["offset"] == expected[0].get("base_offset", expected[0]["offset"])


def same_messages(log: Expected, reader: Reader) -> None:
    """Kafka 0.7: the file's name is the physical offset of its first byte."""
    read = reader.read07(log.path.read_bytes(), int(log.path.stem))
    assert read.error is None
    expected = [record for records in log.records.values() for record in records]
    assert len(read.records) == len(expected)
    for record, got in zip(expected, read.records, strict=True):
        assert {name: got[name] for name in record} == record
