"""The vectors of internal.json: what Kafka 4.2 prints for the records of its internal topics."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from kseg.constants import ControlType
from kseg.errors import InvalidRecordError
from kseg.format import control
from kseg.internal import InternalRecord, InternalTopic, decode
from tests.internal_schemas import SCHEMAS, layout, to_json

Vector = dict[str, Any]
#: What Kafka says of a type or version that it does not know.
UNKNOWN = re.compile(
    "Unknown record type|Unknown metadata id|unknown record version|frame version [0-9]"
)
#: What Kafka's own classes refuse in records that are well formed.
NO_STATE = re.compile("(state|segmentLeaderEpochs) can not be null|skipping. null$")


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def read(vector: Vector) -> InternalRecord:
    return decode(vector["topic"], bytes_of(vector["key"]), bytes_of(vector["value"]))


def refusal(vector: Vector) -> str | None:
    """What Kafka says about a record that it does not print."""
    if "throws" in vector:
        return str(vector["throws"])
    said = str(vector.get("payload_text") or vector["key_text"])
    return said if said.startswith(("Error", "Unknown")) else None


def fields_of(record: InternalRecord, part: str) -> Any:
    """The key's or the value's fields as Kafka's JSON has them."""
    types = {each["type"]: each for each in SCHEMAS["topics"][record.topic]["records"]}
    fields, _ = layout(types[record.type][part], (record.version or 0) if part == "value" else 0)
    return to_json(fields, getattr(record, part))


def test_records_are_read_as_kafka_reads_them(internal_vector: Vector) -> None:
    said = refusal(internal_vector)
    if "above the highest" in internal_vector["what"]:
        # Kafka reads a newer version as if it were its newest, and so does kseg, with a reason.
        record = read(internal_vector)
        assert record.is_understood or record.value == bytes_of(internal_vector["value"])
        assert record.is_understood or "is not known" in str(record.reason)
    elif said is None or NO_STATE.search(said):
        check_printed(internal_vector, read(internal_vector))
    elif UNKNOWN.search(said):
        record = read(internal_vector)
        assert record.reason is not None
        assert record.value == bytes_of(internal_vector["value"])
    else:
        with pytest.raises(InvalidRecordError, match=r"^(@ [0-9]+: )?the (key|value): "):
            read(internal_vector)


def check_printed(vector: Vector, record: InternalRecord) -> None:
    """Hold a record against Kafka's text of it."""
    assert record.reason is None
    if record.topic in (InternalTopic.METADATA, InternalTopic.REMOTE):
        told = vector.get("json") or vector["payload_text"]
        if not told.startswith("{"):
            return  # Java's own text form, of a vector that has no JSON
        told = json.loads(told)
        if "data" in told:
            assert (told["type"], told["version"]) == (record.name, record.version)
            told = told["data"]
        assert repr(fields_of(record, "value")) == repr(told)
        return
    key = json.loads(vector["key_text"])
    assert (key["type"], key["data"]) == (str(record.type), fields_of(record, "key"))
    if vector["payload_text"] == "<DELETE>":
        assert record.is_tombstone
        return
    told = json.loads(vector["payload_text"])
    assert told["version"] == str(record.version)
    assert repr(fields_of(record, "value")) == repr(told["data"])


def test_control_records_are_read_as_kafka_reads_them(marker_vector: Vector) -> None:
    key, value = bytes_of(marker_vector["key"]), bytes_of(marker_vector["value"])
    told = marker_vector.get("text", "").strip()
    if told.startswith("controlType: UNKNOWN"):
        assert control.parse_control_key(key).type is ControlType.UNKNOWN
        return
    if "throws" in marker_vector and not _has_version_1(marker_vector):
        with pytest.raises(InvalidRecordError):
            control.parse_control(key, value)
        return
    if told.startswith("endTxnMarker"):
        marker = control.parse_control(key, value)
        assert told == (
            f"endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"
        )
        return
    shown = json.loads(told[told.index("{") :]) if told else {"version": 1}
    if shown["version"] == 0:  # Kafka reads all versions as 0, and kseg none that is not known
        assert values_of(control.parse_control(key, value)) == list(_leaves(shown))


def _has_version_1(vector: Vector) -> bool:
    return vector["key"] == "00000002" and vector["value"].startswith("0001")


def values_of(value: Any) -> list[Any]:
    """What a control record says, in the order of Kafka's JSON."""
    match value:
        case control.LeaderChange():
            return [0, value.leader_id, *value.voters, *value.granting_voters]
        case control.SnapshotHeader():
            return [0, value.last_contained_log_timestamp]
        case control.SnapshotFooter():
            return [0]
        case control.KRaftVersion():
            return [0, value.kraft_version]
    assert isinstance(value, control.KRaftVoters)
    found: list[Any] = [0]
    for voter in value.voters:
        directory = base64.urlsafe_b64encode(voter.directory_id.bytes).decode().rstrip("=")
        endpoints = [each for endpoint in voter.endpoints for each in endpoint]
        found += [voter.voter_id, directory, *endpoints]
        found += [voter.kraft_version_min, voter.kraft_version_max]
    return found


def _leaves(value: Any) -> Any:
    match value:
        case dict():
            for each in value.values():
                yield from _leaves(each)
        case list():
            for each in value:
                yield from _leaves(each)
        case _:
            yield value
