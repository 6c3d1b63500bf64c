"""Metadata logs made record by record, in a broker's data directory."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import UUID

from kseg.format.control import SnapshotFooter, SnapshotHeader, control_key
from kseg.log.config import SettingValue
from tests.builders import batch, record
from tests.internal_schemas import SCHEMAS, encode_message, uvarint

FIRST, SECOND = UUID(int=1), UUID(int=2)
TYPES = {each["name"]: each for each in SCHEMAS["topics"]["__cluster_metadata"]["records"]}
#: A kind of record, and its fields.
Said = tuple[str, dict[str, Any]]


def topic(name: str, topic_id: UUID = FIRST) -> Said:
    return "TOPIC_RECORD", {"name": name, "topicId": topic_id}


def partition(of: UUID, number: int, replicas: Sequence[int], **others: Any) -> Said:
    """A partition with its replicas, each by its node's id; `others` are fields of the record."""
    fields = {
        "partitionId": number,
        "topicId": of,
        "replicas": list(replicas),
        "isr": list(replicas),
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": replicas[0],
        "leaderEpoch": 0,
        "partitionEpoch": 0,
        "leaderRecoveryState": 0,
        "directories": [UUID(int=9)] * len(replicas),
        "eligibleLeaderReplicas": None,
        "lastKnownElr": None,
    }
    return "PARTITION_RECORD", fields | others


def moved(of: UUID, number: int, replicas: Sequence[int] | None) -> Said:
    """A change of a partition: its replicas, or None for another change."""
    return "PARTITION_CHANGE_RECORD", {
        "partitionId": number,
        "topicId": of,
        "replicas": None if replicas is None else list(replicas),
        "isr": None,
        "leader": -2,
        "removingReplicas": None,
        "addingReplicas": None,
        "leaderRecoveryState": -1,
        "directories": None if replicas is None else [UUID(int=9)] * len(replicas),
        "eligibleLeaderReplicas": None,
        "lastKnownElr": None,
    }


def removed(topic_id: UUID) -> Said:
    return "REMOVE_TOPIC_RECORD", {"topicId": topic_id}


def setting(name: str, value: str | None, of: str = "orders", kind: int = 2) -> Said:
    fields = {"resourceType": kind, "resourceName": of, "name": name, "value": value}
    return "CONFIG_RECORD", fields


def feature(name: str, level: int) -> Said:
    return "FEATURE_LEVEL_RECORD", {"name": name, "featureLevel": level}


def node(number: int, **others: Any) -> Said:
    """A broker with its endpoint; `others` are fields of the record."""
    fields = {
        "brokerId": number,
        "isMigratingZkBroker": False,
        "incarnationId": UUID(int=4),
        "brokerEpoch": 7,
        "endPoints": [{"name": "INSIDE", "host": "h", "port": 9092, "securityProtocol": 0}],
        "features": [],
        "rack": None,
        "fenced": True,
        "inControlledShutdown": False,
        "logDirs": [UUID(int=9 << 64)],
    }
    return "REGISTER_BROKER_RECORD", fields | others


def node_change(number: int, **others: Any) -> Said:
    fields = {"brokerId": number, "brokerEpoch": 7, "fenced": 0, "inControlledShutdown": 0}
    return "BROKER_REGISTRATION_CHANGE_RECORD", {**fields, "logDirs": [], **others}


def acl(number: int, **others: Any) -> Said:
    fields = {
        "id": UUID(int=number),
        "resourceType": 2,
        "resourceName": "orders",
        "patternType": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permissionType": 3,
    }
    return "ACCESS_CONTROL_ENTRY_RECORD", fields | others


def quota(entity: dict[str, str | None], key: str, value: float, *, remove: bool = False) -> Said:
    parts = [{"entityType": kind, "entityName": name} for kind, name in entity.items()]
    fields = {"entity": parts, "key": key, "value": value, "remove": remove}
    return "CLIENT_QUOTA_RECORD", fields


def scram(user: str, secret: bytes) -> Said:
    keys = {"salt": secret, "storedKey": secret, "serverKey": secret, "iterations": 4096}
    return "USER_SCRAM_CREDENTIAL_RECORD", {"name": user, "mechanism": 1, **keys}


def token(token_id: str) -> Said:
    times = {"issueTimestamp": 1, "maxTimestamp": 3, "expirationTimestamp": 2}
    names = {"owner": "User:a", "requester": "User:b", "renewers": ["User:c"], "tokenId": token_id}
    return "DELEGATION_TOKEN_RECORD", {**names, **times}


def turn(which: str) -> Said:
    fields = {"BEGIN": {"name": "t"}, "ABORT": {"reason": "why"}, "END": {}}[which]
    return f"{which}_TRANSACTION_RECORD", fields


NO_OP: Said = ("NO_OP_RECORD", {})


#: A record of a known type that bears on no topic, in a version that is not known.
#: A PartitionRecord in a version that is not known.
NEWER_PARTITION = bytes.fromhex("01037f00")
NEWER_BROKER = bytes.fromhex("01007f00")


def encoded(said: Said, raised_by: int = 0) -> bytes:
    """A record in the newest version that is known, under a number that is `raised_by` higher."""
    kind = TYPES[said[0]]
    version = kind["value_versions"][1]
    body = encode_message(kind["value"], version, said[1])
    return uvarint(1) + uvarint(kind["type"]) + uvarint(version + raised_by) + body


def batches(
    told: Sequence[Sequence[Said | bytes]], base_offset: int = 0, times: Sequence[int] = ()
) -> bytes:
    """One batch for each list, with its time; a record may be bytes as they are."""
    data = b""
    for each, time in zip_longest(told, times, fillvalue=0):
        assert not isinstance(each, int)
        values = [said if isinstance(said, bytes) else encoded(said) for said in each]
        records = [record(value, timestamp=time) for value in values]
        data += batch(records, base_offset=base_offset)
        base_offset += len(each)
    return data


def snapshot(told: Sequence[Sequence[Said]], *, footer: bool = True) -> bytes:
    """The bytes of a `.checkpoint` file."""
    count = sum(map(len, told))
    data = _control(SnapshotHeader(0), 0) + batches(told, 1)
    return data + (_control(SnapshotFooter(), count + 1) if footer else b"")


def _control(value: SnapshotHeader | SnapshotFooter, offset: int) -> bytes:
    given = record(value.to_bytes(), key=control_key(value.TYPE))
    return batch([given], base_offset=offset, control=True)


def partition_metadata(topic_id: UUID) -> str:
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}"


class Broker:
    """A broker's data directory that is about to be filled."""

    def __init__(self, path: Path, *, cluster: str = "c1", node_id: int = 7) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        text = f"version=1\ncluster.id={cluster}\nnode.id={node_id}\n"
        (path / "meta.properties").write_text(text)

    def says(
        self, *told: Sequence[Said | bytes], base_offset: int = 0, times: Sequence[int] = ()
    ) -> Broker:
        """The metadata log from an offset on, a batch for each list."""
        self.log.mkdir(exist_ok=True)
        path = self.log / f"{base_offset:020d}.log"
        path.write_bytes(batches(told, base_offset, times))
        return self

    def votes(self, *voters: int) -> Broker:
        """The voters of the quorum."""
        ids = [{"voterId": each} for each in voters]
        text = json.dumps({"currentVoters": ids, "data_version": 0})
        (self.log / "quorum-state").write_text(text)
        return self

    def has_snapshot(self, end: int, data: bytes) -> Broker:
        self.log.mkdir(exist_ok=True)
        (self.log / f"{end:020d}-0000000001.checkpoint").write_bytes(data)
        return self

    def has(self, name: str = "orders-0", topic_id: UUID | None = FIRST) -> Path:
        """A partition's directory, empty but for its topic's id."""
        path = self.path / name
        path.mkdir()
        if topic_id is not None:
            (path / "partition.metadata").write_text(partition_metadata(topic_id))
        return path

    @property
    def log(self) -> Path:
        return self.path / "__cluster_metadata-0"


def value(text: str, source: str) -> SettingValue:
    return SettingValue(text, source)
