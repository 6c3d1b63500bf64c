"""`tests/builders.py` writes what Kafka writes: from a canonical vector's fields its very bytes."""

from __future__ import annotations

from typing import Any

from tests.builders import Record, batch, message
from tests.conformance.test_record_vectors import expected_record


def given(record: dict[str, Any]) -> Record:
    fields = expected_record(record)
    return Record(
        fields["value"],
        key=fields["key"],
        headers=fields.get("headers", ()),
        timestamp=fields["timestamp"],
        offset=fields["offset"],
    )


def test_builders_write_the_bytes_of_canonical_vectors(canonical_vector: dict[str, Any]) -> None:
    expect = canonical_vector["expect"]
    built = b"".join(build(part) for part in expect["batches"])
    assert built == bytes.fromhex(canonical_vector["hex"])[: expect["valid_bytes"]]


def build(part: dict[str, Any]) -> bytes:
    records = [given(record) for record in part["records"]]
    if part["magic"] < 2:
        return message(
            records[0],
            magic=part["magic"],
            attributes=part["attributes"],
            offset=part["base_offset"],
        )
    return batch(
        records,
        base_offset=part["base_offset"],
        last_offset_delta=part["last_offset_delta"],
        leader_epoch=part["leader_epoch"],
        attributes=part["attributes"],
        base_timestamp=part["base_timestamp"],
        max_timestamp=part["max_timestamp"],
        producer_id=part["producer_id"],
        producer_epoch=part["producer_epoch"],
        base_sequence=part["base_sequence"],
    )
