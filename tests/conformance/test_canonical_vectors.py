"""From a canonical vector's fields its very bytes: record by record, and in bulk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kseg.constants import ControlType, TimestampType
from kseg.format import control
from kseg.format.builder import BatchBuilder
from kseg.format.encode import encode_batch
from kseg.format.options import BatchOptions
from tests.conformance.conftest import is_canonical, load
from tests.conformance.test_record_vectors import expected_record

TYPES = {
    "none": TimestampType.NO_TIMESTAMP_TYPE,
    "create": TimestampType.CREATE_TIME,
    "log_append": TimestampType.LOG_APPEND_TIME,
}


def vector_bytes(vector: dict[str, Any]) -> bytes:
    return bytes.fromhex(vector["hex"])[: vector["expect"]["valid_bytes"]]


def options_of(part: dict[str, Any]) -> dict[str, Any]:
    """What all records of a batch share."""
    options = {
        "magic": part["magic"],
        "timestamp_type": TYPES[part["timestamp_type"]],
        "log_append_time": part["max_timestamp"] if part["timestamp_type"] == "log_append" else -1,
    }
    if part["magic"] == 2:
        horizon = part["delete_horizon_ms"]
        options |= {
            "producer_id": part["producer_id"],
            "producer_epoch": part["producer_epoch"],
            "base_sequence": part["base_sequence"],
            "transactional": part["transactional"],
            "control": part["control"],
            "leader_epoch": part["leader_epoch"],
            "delete_horizon_ms": -1 if horizon is None else horizon,
        }
    return options


def appended(part: dict[str, Any]) -> bytes:
    """One batch or message, record by record."""
    builder = BatchBuilder(base_offset=part["base_offset"], **options_of(part))
    for given in map(expected_record, part["records"]):
        if part.get("control"):
            append_marker(builder, given)
        else:
            builder.append(
                given["key"],
                given["value"],
                timestamp_ms=given["timestamp"],
                headers=given.get("headers", ()),
                offset=given["offset"],
            )
    builder.override_last_offset(part["last_offset"])
    return builder.build().data


def append_marker(builder: BatchBuilder, given: dict[str, Any]) -> None:
    """A control record, by way of what it means."""
    marker = control.parse_control(given["key"], given["value"])
    if isinstance(marker, control.EndMarker):
        epoch = marker.coordinator_epoch
        builder.append_end_marker(marker.type, epoch, timestamp=given["timestamp"])
    else:
        assert marker is not None
        builder.append_control(marker, timestamp=given["timestamp"])


def in_bulk(part: dict[str, Any]) -> bytes:
    """One batch or message, from columns."""
    records = [expected_record(record) for record in part["records"]]
    fields = ("offset", "timestamp", "key", "value")
    columns = {name: [record[name] for record in records] for name in fields}
    columns["headers"] = [record.get("headers", ()) for record in records]
    return encode_batch(
        columns,
        BatchOptions(**options_of(part)),
        base_offset=part["base_offset"],
        last_offset=part["last_offset"],
    ).data


@pytest.mark.parametrize("written", [appended, in_bulk])
def test_fields_of_a_canonical_vector_become_its_bytes(
    written: Any, canonical_vector: dict[str, Any]
) -> None:
    parts = canonical_vector["expect"]["batches"]
    assert b"".join(map(written, parts)) == vector_bytes(canonical_vector)


def decoded(marker: control.ControlValue | None) -> dict[str, Any]:
    """A control record in the words of the vectors."""
    match marker:
        case None:
            return {"type": "UNKNOWN"}
        case control.EndMarker(type=kind, coordinator_epoch=epoch):
            return {"type": kind.name, "coordinatorEpoch": epoch}
        case control.LeaderChange():
            return {
                "type": marker.TYPE.name,
                "version": marker.version,
                "leaderId": marker.leader_id,
                "voters": list(marker.voters),
                "grantingVoters": list(marker.granting_voters),
            }
        case control.SnapshotHeader(last_contained_log_timestamp=timestamp, version=version):
            fields = {"lastContainedLogTimestamp": timestamp}
        case control.SnapshotFooter(version=version):
            fields = {}
        case control.KRaftVersion(kraft_version=number, version=version):
            fields = {"kraftVersion": number}
        case _:
            raise AssertionError(marker)
    return {"type": marker.TYPE.name, "version": version, **fields}


def test_control_vectors_say_what_they_hold(control_vector: dict[str, Any]) -> None:
    ((record,),) = [part["records"] for part in control_vector["expect"]["batches"]]
    given = expected_record(record)
    found = decoded(control.parse_control(given["key"], given["value"]))
    if found["type"] in (ControlType.ABORT.name, ControlType.COMMIT.name):
        found["version"] = control.parse_control_key(given["key"]).version
    expected = control_vector["expect"]["control_record"]
    assert {name: found[name] for name in expected} == expected


def test_no_canonical_vector_is_left_out(pytestconfig: pytest.Config) -> None:
    vectors = load(Path(pytestconfig.getoption("--vectors")) / "records.json")["records"]
    assert sum(map(is_canonical, vectors)) == sum(vector["canonical"] for vector in vectors) >= 23
