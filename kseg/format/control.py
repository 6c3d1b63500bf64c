"""Control records: the markers of transactions and of KRaft, as values.

A control record's key has its type, which gives the layout of the value. Transaction markers are
fixed in layout; KRaft's values are flexible structures, in which arrays and strings carry their
length plus one, and each structure ends with tagged fields, which Kafka does not keep and this
module skips.

Example:
    >>> key = control_key(ControlType.COMMIT)
    >>> value = EndMarker(ControlType.COMMIT, coordinator_epoch=3).to_bytes()
    >>> key.hex(), value.hex()
    ('00000001', '000000000003')
    >>> parse_control(key, value).coordinator_epoch
    3

Source: Kafka ControlRecordType, EndTransactionMarker, ControlRecordUtils and the generated
LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, TypeVar
from uuid import UUID

from kseg.constants import END_MARKERS, Buffer, ControlType
from kseg.documents import frozen_dataclass
from kseg.errors import InvalidRecordError

_T = TypeVar("_T")


# Keys


class ControlKey(NamedTuple):
    """The key of a control record: the type of the marker, and the version of the key's layout."""

    type: ControlType
    version: int = 0


def control_key(kind: ControlType) -> bytes:
    """The key of a control record of this type, 4 bytes.

    Raises:
        ValueError: the type is UNKNOWN.

    Source: Kafka ControlRecordType.recordKey.
    """
    if kind == ControlType.UNKNOWN:
        raise ValueError("a control record of unknown type cannot be written")
    return struct.pack(">hh", 0, ControlType(kind))


def parse_control_key(data: Buffer | None) -> ControlKey:
    """Type and version from a key; a layout newer than 0 is read as version 0.

    Raises:
        InvalidRecordError: fewer than 4 bytes, or a negative version.

    Source: Kafka ControlRecordType.parse.
    """
    version, kind = _version_and_number("the key of a control record", ">hh", data)
    is_known = 0 <= kind <= ControlType.KRAFT_VOTERS
    return ControlKey(ControlType(kind) if is_known else ControlType.UNKNOWN, version)


def _version_and_number(what: str, layout: str, data: Buffer | None) -> tuple[int, int]:
    """The version and the number after it; later bytes are ignored."""
    size = struct.calcsize(layout)
    if data is None or len(data) < size:
        have = "no" if data is None else len(data)
        raise InvalidRecordError(f"{what} has {size} bytes or more, not {have}")
    version, number = struct.unpack_from(layout, data)
    if version < 0:
        raise InvalidRecordError(f"{what} has version {version}")
    return version, number


# Values


@frozen_dataclass
class EndMarker:
    """The end of a transaction.

    Attributes:
        type: ABORT or COMMIT.
        coordinator_epoch: epoch of the coordinator that ended it.

    Raises:
        ValueError: another type.

    Source: Kafka EndTransactionMarker.
    """

    type: ControlType
    coordinator_epoch: int

    def __post_init__(self) -> None:
        """Refuse a type that does not end a transaction."""
        if self.type not in END_MARKERS:
            raise ValueError(f"a transaction ends with ABORT or COMMIT, not {self.type.name}")
        _check_range("coordinator_epoch", self.coordinator_epoch, 32)

    def to_bytes(self) -> bytes:
        """The value of the control record, 6 bytes."""
        return struct.pack(">hi", 0, self.coordinator_epoch)

    @classmethod
    def from_bytes(cls, kind: ControlType, value: Buffer | None) -> EndMarker:
        """The marker of a type with this value; versions above 0 are read as 0.

        Args:
            kind: ABORT or COMMIT, as the key of the record says.
            value: the control record's value, 6 bytes or more; None for a record without a value.

        Raises:
            ValueError: the type is neither ABORT nor COMMIT.
            InvalidRecordError: fewer than 6 bytes, or a negative version.
        """
        if kind not in END_MARKERS:
            raise ValueError(f"a transaction ends with ABORT or COMMIT, not {kind.name}")
        return cls(kind, _version_and_number("the value of a marker", ">hi", value)[1])


@frozen_dataclass
class LeaderChange:
    """A new leader of a KRaft partition, and the votes.

    Version 1, of clusters with `kraft.version` 1, says the metadata directory of each voter, too.
    Kafka 4.2 reads it as if it were version 0, and fails.

    Attributes:
        leader_id: the leader.
        voters: ids of all voters.
        granting_voters: ids of the voters that voted for the leader.
        version: the version of the value, 0 or 1.
        voter_directory_ids: one for each of `voters`, in their order; empty at version 0.
        granting_voter_directory_ids: one for each of `granting_voters`; empty at version 0.

    Raises:
        ValueError: another version, or not one directory for each voter.
    """

    TYPE: ClassVar = ControlType.LEADER_CHANGE
    VERSION_MAX: ClassVar = 1

    leader_id: int
    voters: tuple[int, ...] = ()
    granting_voters: tuple[int, ...] = ()
    version: int = 0
    voter_directory_ids: tuple[UUID, ...] = ()
    granting_voter_directory_ids: tuple[UUID, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that no version has room for."""
        if not 0 <= self.version <= self.VERSION_MAX:
            raise ValueError(f"a change of leader has version 0 or 1, not {self.version}")
        for ids, directories in self._voters():
            directory_count = len(ids) * self.version
            if len(directories) != directory_count:
                raise ValueError(
                    f"version {self.version} with {len(ids)} voters names {directory_count} "
                    f"directories, not {len(directories)}"
                )

    def _voters(self) -> tuple[tuple[tuple[int, ...], tuple[UUID, ...]], ...]:
        """Ids and directories of all voters, and of the voters for the leader."""
        return (
            (self.voters, self.voter_directory_ids),
            (self.granting_voters, self.granting_voter_directory_ids),
        )

    def to_bytes(self) -> bytes:
        """The value of the control record."""
        parts = [_pack("hi", version=self.version, leader_id=self.leader_id)]
        parts += [_pack_voters(ids, directories) for ids, directories in self._voters()]
        return b"".join([*parts, _NO_TAGS])

    @classmethod
    def from_bytes(cls, value: Buffer | None) -> LeaderChange:
        """Read a value as the version in it says.

        Raises:
            InvalidRecordError: it is cut off, of an unknown version, or has more bytes than its
                version has.
        """
        source = _ValueReader(value, cls.TYPE, cls.VERSION_MAX)
        version, leader = source.numbers("hi")
        if not source.is_known:
            raise source.fail("cannot be read")
        # The function that reads a voter, and the least bytes of one.
        read, least = (_read_voter_id, 5) if version == 0 else (_read_placed_voter, 21)
        voters, granting = (source.array(read, least=least) for _ in range(2))
        source.skip_tags()
        # A value read by the layout of another version need not break off: it may end early.
        if source.left:
            raise source.fail(f"has {source.left} bytes more than its schema")
        (ids, places), (granted, granted_at) = _split_voters(voters), _split_voters(granting)
        return cls(leader, ids, granted, version, places, granted_at)


@frozen_dataclass
class SnapshotHeader:
    """The first record of a KRaft snapshot.

    Attributes:
        last_contained_log_timestamp: time of the last record that the snapshot covers, in ms.
        version: the version of the value, as stored.
    """

    TYPE: ClassVar = ControlType.SNAPSHOT_HEADER
    VERSION_MAX: ClassVar = 0

    last_contained_log_timestamp: int
    version: int = 0

    def to_bytes(self) -> bytes:
        """The value of the control record, 11 bytes."""
        timestamp = self.last_contained_log_timestamp
        return _pack("hq", version=self.version, timestamp=timestamp) + _NO_TAGS

    @classmethod
    def from_bytes(cls, value: Buffer | None) -> SnapshotHeader:
        """Read a value; InvalidRecordError if it is cut off."""
        version, timestamp = _ValueReader(value, cls.TYPE, cls.VERSION_MAX).structure("hq")
        return cls(timestamp, version)


@frozen_dataclass
class SnapshotFooter:
    """The last record of a KRaft snapshot. `version` is that of the value, as stored."""

    TYPE: ClassVar = ControlType.SNAPSHOT_FOOTER
    VERSION_MAX: ClassVar = 0

    version: int = 0

    def to_bytes(self) -> bytes:
        """The value of the control record, 3 bytes."""
        return _pack("h", version=self.version) + _NO_TAGS

    @classmethod
    def from_bytes(cls, value: Buffer | None) -> SnapshotFooter:
        """Read a value; InvalidRecordError if it is cut off."""
        return cls(*_ValueReader(value, cls.TYPE, cls.VERSION_MAX).structure("h"))


@frozen_dataclass
class KRaftVersion:
    """The version of KRaft from here on.

    Attributes:
        kraft_version: the feature level `kraft.version`.
        version: the version of the value, as stored.
    """

    TYPE: ClassVar = ControlType.KRAFT_VERSION
    VERSION_MAX: ClassVar = 0

    kraft_version: int
    version: int = 0

    def to_bytes(self) -> bytes:
        """The value of the control record, 5 bytes."""
        return _pack("hh", version=self.version, kraft_version=self.kraft_version) + _NO_TAGS

    @classmethod
    def from_bytes(cls, value: Buffer | None) -> KRaftVersion:
        """Read a value; InvalidRecordError if it is cut off."""
        version, kraft_version = _ValueReader(value, cls.TYPE, cls.VERSION_MAX).structure("hh")
        return cls(kraft_version, version)


class Endpoint(NamedTuple):
    """Where a voter listens: listener name, host, port (0 to 65535)."""

    name: str
    host: str
    port: int


@frozen_dataclass
class Voter:
    """One voter of a KRaft partition.

    Attributes:
        voter_id: its node id.
        directory_id: the id of its metadata log directory.
        endpoints: the addresses where it listens.
        kraft_version_min: the least `kraft.version` that it supports.
        kraft_version_max: the greatest.
    """

    voter_id: int
    directory_id: UUID
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 0


@frozen_dataclass
class KRaftVoters:
    """The voters of a KRaft partition from here on. `version` is that of the value, as stored."""

    TYPE: ClassVar = ControlType.KRAFT_VOTERS
    VERSION_MAX: ClassVar = 0

    voters: tuple[Voter, ...] = ()
    version: int = 0

    def to_bytes(self) -> bytes:
        """The value of the control record."""
        parts = [_pack("h", version=self.version), _uvarint(len(self.voters) + 1)]
        for voter in self.voters:
            parts += [_pack("i", voter_id=voter.voter_id), voter.directory_id.bytes]
            parts.append(_uvarint(len(voter.endpoints) + 1))
            for name, host, port in voter.endpoints:
                parts += [_pack_text(name), _pack_text(host), _pack("H", port=port), _NO_TAGS]
            least, most = voter.kraft_version_min, voter.kraft_version_max
            parts += [_pack("hh", kraft_version_min=least, kraft_version_max=most)]
            parts += [_NO_TAGS, _NO_TAGS]
        return b"".join([*parts, _NO_TAGS])

    @classmethod
    def from_bytes(cls, value: Buffer | None) -> KRaftVoters:
        """Read a value; InvalidRecordError if it is cut off or its text is not UTF-8."""
        source = _ValueReader(value, cls.TYPE, cls.VERSION_MAX)
        (version,) = source.numbers("h")
        voters = source.array(_read_voter, least=27)
        source.skip_tags()
        return cls(voters, version)


ControlValue = (
    EndMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters
)
#: The values whose class says their type.
KRaftValue = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters
_KraftT = TypeVar(
    "_KraftT", LeaderChange, SnapshotHeader, SnapshotFooter, KRaftVersion, KRaftVoters
)
_CLASSES: dict[ControlType, type[KRaftValue]] = {
    kind.TYPE: kind
    for kind in (LeaderChange, SnapshotHeader, SnapshotFooter, KRaftVersion, KRaftVoters)
}


def parse_control(key: Buffer | None, value: Buffer | None) -> ControlValue | None:
    """The marker in the key and value of a control record; None for an unknown type.

    Raises:
        InvalidRecordError: key or value break their layout.
    """
    kind = parse_control_key(key).type
    if kind == ControlType.UNKNOWN:
        return None
    if kind in END_MARKERS:
        return EndMarker.from_bytes(kind, value)
    return _CLASSES[kind].from_bytes(value)


def parse_control_as(
    marker_type: type[_KraftT], key: Buffer | None, value: Buffer | None
) -> _KraftT:
    """A KRaft marker of the requested kind.

    Raises:
        ValueError: the key has another type; the message names both.
        InvalidRecordError: key or value break their layout.

    Source: Kafka ControlRecordUtils.deserializeVotersRecord and its siblings.
    """
    kind = parse_control_key(key).type
    if kind != marker_type.TYPE:
        raise ValueError(f"a {marker_type.TYPE.name} record was expected, this is {kind.name}")
    return marker_type.from_bytes(value)


# Writing the parts of flexible structures

_NO_TAGS = b"\0"
_WIDTHS = {"h": 16, "H": 16, "i": 32, "q": 64}


def _check_range(name: str, number: int, bits: int, *, signed: bool = True) -> None:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= number <= high:
        raise ValueError(f"{name} is {low} to {high}, not {number}")


def _pack(layout: str, **numbers: int) -> bytes:
    """Big-endian numbers; raises ValueError that names the number out of range."""
    for code, (name, number) in zip(layout, numbers.items(), strict=True):
        _check_range(name, number, _WIDTHS[code], signed=code != "H")
    return struct.pack(">" + layout, *numbers.values())


def _uvarint(value: int) -> bytes:
    """A number as an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _pack_text(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0x7FFF:
        raise ValueError(f"a name has at most 32767 bytes, not {len(data)}")
    return _uvarint(len(data) + 1) + data


def _pack_voters(voters: Sequence[int], directories: Sequence[UUID]) -> bytes:
    """Voters of a change of leader, with their directories where there are any."""
    placed = [directory.bytes for directory in directories] or [b""] * len(voters)
    packed = [
        _pack("i", voter_id=voter) + directory + _NO_TAGS
        for voter, directory in zip(voters, placed, strict=True)
    ]
    return b"".join([_uvarint(len(packed) + 1), *packed])


# Reading them


class _ValueReader:
    """Reads the bytes of a value; every length is compared with the bytes left.

    A value of an unknown version is read by the highest known one, as Kafka reads it; its errors
    name the version.
    """

    def __init__(self, value: Buffer | None, kind: ControlType, version_max: int) -> None:
        self.kind = kind
        self.data = b"" if value is None else bytes(value)
        self.position = 0
        self.version_max = version_max

    @property
    def version(self) -> int:
        """The version in the value; 0 if the value is too short."""
        return struct.unpack_from(">h", self.data)[0] if len(self.data) >= 2 else 0

    @property
    def is_known(self) -> bool:
        return 0 <= self.version <= self.version_max

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def fail(self, what: str) -> InvalidRecordError:
        if not self.is_known:
            what = f"has version {self.version}, where {self.version_max} is the last known; {what}"
        return InvalidRecordError(f"the value of a {self.kind.name} record {what}")

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise self.fail(f"ends early: {count} bytes are wanted, {self.left} are left")
        self.position += count
        return self.data[self.position - count : self.position]

    def numbers(self, layout: str) -> tuple[int, ...]:
        layout = ">" + layout
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def structure(self, layout: str) -> tuple[int, ...]:
        """Read numbers and the tagged fields after them."""
        numbers = self.numbers(layout)
        self.skip_tags()
        return numbers

    def uvarint(self) -> int:
        """An unsigned varint of 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise self.fail("holds a number of more than 5 bytes")

    def length(self, what: str) -> int:
        """Read a length or count, which is stored plus one; 0 would be null."""
        stored = self.uvarint()
        if stored == 0:
            raise self.fail(f"holds null where {what} belongs")
        return stored - 1

    def array(self, read: Callable[[_ValueReader], _T], *, least: int) -> tuple[_T, ...]:
        """Read the elements of an array; each has at least so many bytes."""
        count = self.length("an array")
        if count > self.left // least:
            raise self.fail(f"has an array of {count} in {self.left} bytes")
        return tuple(read(self) for _ in range(count))

    def text(self) -> str:
        """A text after its length."""
        data = self.take(self.length("a text"))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.fail(f"has a text that is not UTF-8: {data!r}") from None

    def skip_tags(self) -> None:
        """Tagged fields: a count, and for each its tag and its size."""
        count = self.uvarint()
        if count > self.left // 2:
            raise self.fail(f"has {count} tagged fields in {self.left} bytes")
        for _ in range(count):
            self.uvarint()
            self.take(self.uvarint())


def _read_voter_id(source: _ValueReader) -> tuple[int, UUID | None]:
    return source.structure("i")[0], None


def _read_placed_voter(source: _ValueReader) -> tuple[int, UUID | None]:
    (voter_id,) = source.numbers("i")
    directory = UUID(bytes=source.take(16))
    source.skip_tags()
    return voter_id, directory


def _split_voters(
    voters: Sequence[tuple[int, UUID | None]],
) -> tuple[tuple[int, ...], tuple[UUID, ...]]:
    """Split voters into ids, and the directories of voters that have one."""
    ids = tuple(voter_id for voter_id, _directory in voters)
    return ids, tuple(directory for _id, directory in voters if directory is not None)


def _read_endpoint(source: _ValueReader) -> Endpoint:
    name, host = source.text(), source.text()
    return Endpoint(name, host, *source.structure("H"))


def _read_voter(source: _ValueReader) -> Voter:
    """A voter of `VotersRecord`."""
    (voter_id,) = source.numbers("i")
    directory = UUID(bytes=source.take(16))
    endpoints = source.array(_read_endpoint, least=5)
    least, most = source.structure("hh")
    source.skip_tags()
    return Voter(voter_id, directory, endpoints, least, most)
