"""Control records: what is written, and what bytes are refused rather than misread."""

from __future__ import annotations

from struct import pack
from typing import Any
from uuid import UUID

import pytest

from kseg.constants import ControlType
from kseg.errors import InvalidRecordError
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
)

DIRECTORY = UUID("00112233-4455-6677-8899-aabbccddeeff")
FAR = UUID("ffffffff-ffff-ffff-0000-000000000005")
VOTER = Voter(3, DIRECTORY, (Endpoint("C", "kafka", 9093), Endpoint("", "", 65535)), 0, 1)
#: Each value with its bytes, field by field.
WRITTEN = {
    "an end of a transaction": (EndMarker(ControlType.COMMIT, 347), "0000 0000015b"),
    "a leader change": (
        LeaderChange(5, (2, 3), (3,)),
        "0000 00000005 03 0000000200 0000000300 02 0000000300 00",
    ),
    "a leader change without voters": (LeaderChange(-1), "0000 ffffffff 01 01 00"),
    # Version 1 as Kafka 4.2's LeaderChangeMessage writes it (kafka-clients 4.2.0, MessageUtil).
    "a leader change with directories": (
        LeaderChange(5, (5, 6), (5,), 1, (DIRECTORY, FAR), (DIRECTORY,)),
        "0001 00000005 03 00000005 00112233445566778899aabbccddeeff 00"
        "00000006 ffffffffffffffff0000000000000005 00"
        "02 00000005 00112233445566778899aabbccddeeff 00 00",
    ),
    "a leader change of version 1 without voters": (
        LeaderChange(-1, version=1),
        "0001 ffffffff 01 01 00",
    ),
    "a leader change with a directory of zeros": (
        LeaderChange(2**31 - 1, (0,), (0,), 1, (UUID(int=0),), (UUID(int=0),)),
        "0001 7fffffff 02 00000000 00000000000000000000000000000000 00"
        "02 00000000 00000000000000000000000000000000 00 00",
    ),
    "a snapshot header": (SnapshotHeader(1700000000000), "0000 0000018bcfe56800 00"),
    "a snapshot footer": (SnapshotFooter(), "0000 00"),
    "a version of KRaft": (KRaftVersion(1), "0000 0001 00"),
    "voters": (
        KRaftVoters((VOTER,)),
        "0000 02 00000003 00112233445566778899aabbccddeeff"
        "03 02 43 06 6b61666b61 2385 00 01 01 ffff 00 0000 0001 00 00 00",
    ),
    "no voters": (KRaftVoters(), "0000 01 00"),
    "another version of a value": (KRaftVoters(version=7), "0007 01 00"),
}
VALUES = pytest.mark.parametrize(("marker", "hexed"), WRITTEN.values(), ids=WRITTEN)


def reread(marker: Any, value: bytes) -> Any:
    kind = marker.type if isinstance(marker, EndMarker) else marker.TYPE
    return parse_control(control_key(kind), value)


@VALUES
def test_a_value_is_written_field_by_field_and_read_back(marker: Any, hexed: str) -> None:
    assert marker.to_bytes() == bytes.fromhex(hexed)
    assert reread(marker, bytes.fromhex(hexed)) == marker


@VALUES
def test_every_cut_of_a_value_is_refused(marker: Any, hexed: str) -> None:
    value = bytes.fromhex(hexed)
    for size in range(len(value)):
        with pytest.raises(InvalidRecordError):
            reread(marker, value[:size])
    with pytest.raises(InvalidRecordError):
        reread(marker, None)


@pytest.mark.parametrize("tags", ["01", "0100", "010005", "ffffffff0f", "8080808080", "01000201"])
def test_tagged_fields_that_are_not_there_are_refused(tags: str) -> None:
    with pytest.raises(InvalidRecordError, match="SNAPSHOT_FOOTER"):
        SnapshotFooter.from_bytes(pack(">h", 0) + bytes.fromhex(tags))


LYING = {
    "a null array": ("0000 00 00", "null where an array"),
    "an array longer than the value": ("0000 03" + "00" * 27 + "00", "array of 2"),
    "an array of 2^32 - 2": ("0000 ffffffff0f 00", "array of 4294967294"),
    "a count of six bytes": ("0000 808080808001 00", "more than 5 bytes"),
    "a null text": (WRITTEN["voters"][1].replace("02 43", "00"), "null where a text"),
    "a text longer than the value": (
        WRITTEN["voters"][1].replace("06 6b61666b61", "7f 6b61666b61"),
        "ends early",
    ),
    "a text that is not UTF-8": (
        WRITTEN["voters"][1].replace("6b61666b61", "6b61fe6b61"),
        "not UTF-8",
    ),
}


@pytest.mark.parametrize(("hexed", "reason"), LYING.values(), ids=LYING)
def test_lengths_that_lie_are_refused(hexed: str, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"KRAFT_VOTERS record .*{reason}"):
        KRaftVoters.from_bytes(bytes.fromhex(hexed))


def test_a_leader_change_ends_where_its_schema_does() -> None:
    value = LeaderChange(5).to_bytes()
    with pytest.raises(InvalidRecordError, match="1 bytes more"):
        LeaderChange.from_bytes(value + b"\0")
    assert SnapshotFooter.from_bytes(SnapshotFooter().to_bytes() + b"\0") == SnapshotFooter()


@pytest.mark.parametrize("version", [-(2**15), -1, 2, 2**15 - 1])
def test_a_leader_change_of_a_version_not_known_says_so(version: int) -> None:
    for rest in (b"", b"\x01\x01\0", bytes(60)):
        with pytest.raises(InvalidRecordError, match=f"has version {version}, where 1 is the last"):
            LeaderChange.from_bytes(pack(">hi", version, 5) + rest)


@pytest.mark.parametrize(
    "fields",
    [
        (5, (1,), (), 1),
        (5, (1,), (1,), 1, (FAR,)),
        (5, (1,), (), 0, (FAR,)),
        (5, (), (), 2),
        (5, (), (), -1),
    ],
)
def test_a_leader_change_that_no_version_has_is_an_argument_error(fields: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="version"):
        LeaderChange(*fields)


UNWRITABLE = {
    "a leader id of 33 bits": lambda: LeaderChange(2**31).to_bytes(),
    "a voter id of 33 bits": lambda: LeaderChange(1, (2**31,)).to_bytes(),
    "a timestamp of 65 bits": lambda: SnapshotHeader(2**63).to_bytes(),
    "a version of 17 bits": lambda: SnapshotFooter(2**15).to_bytes(),
    "a KRaft version of 17 bits": lambda: KRaftVersion(-(2**15) - 1).to_bytes(),
    "a coordinator epoch of 33 bits": lambda: EndMarker(ControlType.COMMIT, -(2**31) - 1),
    "a port of 17 bits": lambda: voters_at(65536),
    "a port below zero": lambda: voters_at(-1),
    "a name of 32768 bytes": lambda: voters_at(1, "x" * 32768),
}


def voters_at(port: int, name: str = "") -> bytes:
    return KRaftVoters((Voter(1, DIRECTORY, (Endpoint(name, "", port),)),)).to_bytes()


@pytest.mark.parametrize("write", UNWRITABLE.values(), ids=UNWRITABLE)
def test_what_has_no_room_in_its_field_is_an_argument_error(write: Any) -> None:
    with pytest.raises(ValueError, match=r"not -?\d+$|not \d+"):
        write()


def test_hundreds_of_voters_are_counted_in_two_bytes() -> None:
    change = LeaderChange(1, tuple(range(300)), tuple(range(127)))
    assert LeaderChange.from_bytes(change.to_bytes()) == change
