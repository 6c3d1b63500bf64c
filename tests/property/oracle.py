"""Rows that a decode must give, from the reference, and rows that kseg gives: in the same words."""

from __future__ import annotations

from typing import Any

from kseg.constants import StopReason
from kseg.format import columns, header
from kseg.format.request import FIELDS, Request
from tests import reference
from tests.conformance.readers import Reference, as_records

Fields = dict[str, Any]

STOPS = {
    StopReason.END: "end",
    StopReason.TORN_TAIL: "torn",
    StopReason.ZERO_TAIL: "zero",
    StopReason.BAD_LENGTH: "length",
    StopReason.BAD_MAGIC: "magic",
}


def rows_of(data: bytes) -> list[Fields]:
    """Every field of every record of a sound log."""
    plain, rows = Reference(), []
    for batch in plain.walk(data, "strict").batches:
        read = plain.read(data, batch["position"], batch["size"])
        assert read.error is None
        first = batch["base_offset"]
        if batch["magic"] < 2:
            first = read.records[0]["offset"]
        for record in read.records:
            row = {**batch, **record, "base_offset": first, "valid": batch["crc_ok"]}
            row["next_offset"] = batch["last_offset"] + 1
            rows.append({name: row[name] for name in FIELDS})
    return rows


def only(rows: list[Fields], fields: tuple[str, ...]) -> list[Fields]:
    """The rows with fewer fields."""
    return [{name: row[name] for name in fields} for row in rows]


def decoded(data: bytes, request: Request) -> list[Fields]:
    """kseg's rows over the whole of `data`."""
    table = header.scan(data, on_bad_crc="note")
    return flat(columns.decode(memoryview(data), table, request))


def flat(pieces: Any) -> list[Fields]:
    """Rows of all pieces, none of which may be empty."""
    rows: list[Fields] = []
    for piece in pieces:
        assert len(piece) > 0
        rows.extend(as_records(piece))
    return rows


def same_walk(data: bytes) -> header.BatchTable:
    """kseg's walk, after it was found equal to the reference's."""
    table = header.scan(data, on_bad_crc="note")
    expected = reference.walk(data, "strict")
    assert STOPS[table.stop] == expected.stop
    assert table.end_position == expected.end_position
    assert len(table) == len(expected.batches)
    for got, batch in zip(table, expected.batches, strict=True):
        for name in SAME_NAMES:
            assert getattr(got, name) == getattr(batch, name), name
    return table


SAME_NAMES = (
    "position",
    "size",
    "magic",
    "crc",
    "crc_ok",
    "attributes",
    "base_offset",
    "last_offset",
    "max_timestamp",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
    "codec",
    "timestamp_type",
    "is_transactional",
    "is_control",
)
