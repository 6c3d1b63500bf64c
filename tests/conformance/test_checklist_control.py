"""Control records, one claim a row: what is written, and what is refused.

The claims are those of Kafka's ControlRecordTypeTest, ControlRecordUtilsTest,
EndTransactionMarkerTest and the markers of MemoryRecordsBuilderTest, and rules that only code
tells.
"""

from __future__ import annotations

from struct import pack
from typing import Any
from uuid import UUID

import pytest

from kseg.constants import ControlType
from kseg.errors import InvalidRecordError
from kseg.format.builder import BatchBuilder
from kseg.format.control import (
    EndMarker,
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    control_key,
    parse_control,
    parse_control_as,
    parse_control_key,
)
from tests.conformance.readers import Reader
from tests.conformance.test_checklist_builder import MARKED, read

BAD_MARKERS = {
    "without the transactional flag": {**MARKED, "transactional": False},
    "in a batch that is no control batch": {**MARKED, "control": False, "base_sequence": 0},
    "without a producer id": {"transactional": True, "control": True},
}


@pytest.mark.parametrize("given", BAD_MARKERS.values(), ids=BAD_MARKERS)
def test_an_end_transaction_marker_is_refused_at_append(given: dict[str, Any]) -> None:
    builder = BatchBuilder(**given)
    with pytest.raises(InvalidRecordError):
        builder.append_end_marker(ControlType.COMMIT, 1, timestamp=0)
    assert builder.record_count == 0


def test_a_record_that_is_no_marker_is_refused_by_a_control_batch() -> None:
    with pytest.raises(InvalidRecordError, match="only control records"):
        BatchBuilder(**MARKED).append(b"k", b"v")


CHANGE = LeaderChange(5, voters=(2, 3), granting_voters=(3,))


def test_a_leader_change_without_leader_epoch_is_refused_at_append() -> None:
    with pytest.raises(InvalidRecordError, match="leader epoch"):
        BatchBuilder(control=True).append_leader_change(CHANGE, timestamp=0)


VOTERS = KRaftVoters(
    (
        Voter(1, UUID(int=2**127 + 5), (Endpoint("CONTROLLER", "kafka-1", 9093),), 0, 1),
        Voter(2, UUID(int=0), (), 0, 0),
    )
)
KRAFT = {
    marker.TYPE.name: marker
    for marker in (CHANGE, SnapshotHeader(1700), SnapshotFooter(), KRaftVersion(1), VOTERS)
}


@pytest.mark.parametrize("marker", KRAFT.values(), ids=KRAFT)
def test_every_kraft_record_comes_back_from_a_batch(marker: Any, reader: Reader) -> None:
    builder = BatchBuilder(control=True, leader_epoch=3)
    builder.append_control(marker, timestamp=1)
    _, (record,) = read(reader, builder.build())
    assert record["control_type"] == marker.TYPE.name
    assert parse_control(record["key"], record["value"]) == marker
    assert parse_control_as(type(marker), record["key"], record["value"]) == marker


def test_type_337_is_unknown() -> None:
    assert parse_control_key(pack(">hh", 0, 337)).type == ControlType.UNKNOWN
    assert parse_control(pack(">hh", 0, 337), b"whatever") is None


@pytest.mark.parametrize("kind", [kind for kind in ControlType if kind >= 0])
def test_every_type_comes_back_from_its_key(kind: ControlType) -> None:
    assert parse_control_key(control_key(kind)) == (kind, 0)


BAD_KEYS = {"a key of 3 bytes": bytes(3), "a key of version -1": pack(">hh", -1, 1), "no key": None}


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_control_key_is_invalid(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        parse_control_key(key)


def test_an_unknown_type_has_no_key_and_no_marker() -> None:
    with pytest.raises(ValueError, match="unknown"):
        control_key(ControlType.UNKNOWN)
    with pytest.raises(ValueError, match="ABORT or COMMIT, not UNKNOWN"):
        EndMarker(ControlType.UNKNOWN, 24)
    with pytest.raises(ValueError, match="ABORT or COMMIT, not UNKNOWN"):
        EndMarker.from_bytes(ControlType.UNKNOWN, EndMarker(ControlType.ABORT, 24).to_bytes())
    with pytest.raises(ValueError, match="not UNKNOWN"):
        BatchBuilder(**MARKED).append_end_marker(ControlType.UNKNOWN, 1, timestamp=0)


BAD_MARKER_VALUES = {
    "version -1": pack(">hi", -1, 1),
    "an empty value": b"",
    "5 bytes": bytes(5),
    "no value": None,
}


@pytest.mark.parametrize("value", BAD_MARKER_VALUES.values(), ids=BAD_MARKER_VALUES)
def test_a_marker_value_is_invalid(value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        EndMarker.from_bytes(ControlType.COMMIT, value)


def test_asking_a_commit_key_for_voters_names_both_types() -> None:
    with pytest.raises(ValueError, match="KRAFT_VOTERS record was expected, this is COMMIT"):
        parse_control_as(KRaftVoters, control_key(ControlType.COMMIT), VOTERS.to_bytes())


def test_a_leader_change_of_schema_1_is_read_by_it() -> None:
    # Kafka 4.2 reads it as schema 0, and fails; it writes none.
    ids = UUID(int=2**127 + 5), UUID(int=0)
    for places in (ids[:1], ids[1:], ids, ids[1:] * 2):
        listed = bytes([len(places) + 1]) + b"".join(
            pack(">i", 2) + at.bytes + b"\0" for at in places
        )
        change = LeaderChange.from_bytes(pack(">hi", 1, 5) + listed + listed + b"\0")
        assert change == LeaderChange(5, *((2,) * len(places),) * 2, 1, places, places)
        with pytest.raises(InvalidRecordError, match="LEADER_CHANGE"):
            LeaderChange.from_bytes(pack(">hi", 0, 5) + listed + listed + b"\0")
