"""What a writer made, held against a vector: byte for byte, or read back where codecs differ."""

from __future__ import annotations

from typing import Any

from tests import reference
from tests.conformance.readers import Reference
from tests.conformance.test_record_vectors import expected_batch, expected_record, same_fields


def same_output(data: bytes, expect: dict[str, Any]) -> None:
    """The bytes of `hex`, or the very batches and records of `batches`, by the reference."""
    if expect["compare"] == "bytes":
        assert data.hex() == expect["hex"]
    reader = Reference()
    found = reader.walk(data, "memory")
    assert (found.error, found.end_position) == (None, len(data))
    assert len(found.batches) == len(expect["batches"])
    for batch, got in zip(expect["batches"], found.batches, strict=True):
        same_fields(expected_batch(batch), got)
        read = reader.read(data, got["position"], got["size"])
        assert read.error is None
        assert len(read.records) == len(batch["records"])
        for record, row in zip(batch["records"], read.records, strict=True):
            wanted = expected_record(record)
            assert {name: row[name] for name in wanted} == wanted
        if batch["magic"] < 2:
            assert read.records[0]["offset"] == batch["base_offset"]


def batches_of(data: bytes) -> list[reference.Batch]:
    """What the plain reader finds; every byte belongs to a batch with a right checksum."""
    walk = reference.walk(data)
    assert (walk.error, walk.end_position) == (None, len(data))
    for one in walk.batches:
        one.ensure_valid()
    return walk.batches


def records_in(data: bytes) -> list[reference.Record]:
    """Every record, by the plain reader; messages inside wrappers have right checksums too."""
    found = [one for batch in batches_of(data) for one in reference.records(batch)]
    assert all(one.crc_ok for one in found)
    return found
