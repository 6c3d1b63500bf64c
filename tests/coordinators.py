"""Logs of coordinators' topics in one line: records by name, with zeros for fields not given."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from struct import pack
from typing import Any
from uuid import UUID

from tests import builders
from tests.internal_schemas import FORMS, SCHEMAS, encode_message, frame, layout

OFFSETS = "__consumer_offsets"
SHARE = "__share_group_state"
TRANSACTIONS = "__transaction_state"
#: A record: its key, its value, and the time of its batch.
Pair = tuple[bytes, bytes | None]


def pair(topic: str, name: str, key: Any, value: Any, version: int | None = None) -> Pair:
    """Key and value of a record; a tombstone for None."""
    (kind,) = (each for each in SCHEMAS["topics"][topic]["records"] if each["name"] == name)
    at = kind["value_versions"][1] if version is None else version
    body = b""
    if value is not None:
        body = encode_message(kind["value"], at, _filled(*layout(kind["value"], at), value))
    found, framed = frame(topic, kind["type"], at, encode_message(kind["key"], 0, key), body)
    return found, None if value is None else framed


def _filled(fields: list[dict[str, Any]], flexible: bool, value: dict[str, Any]) -> dict[str, Any]:
    """A message with every field of its version; nested messages too."""
    found = {}
    for field in fields:
        given = value.get(field["name"], _zero(field))
        if field["type"] == "struct" and given is not None:
            given = _filled(field["fields"], flexible, given)
        items = field.get("items", {})
        if items.get("type") == "struct" and given is not None:
            given = [_filled(items["fields"], flexible, each) for each in given]
        found[field["name"]] = given
    return found


def _zero(field: dict[str, Any]) -> Any:
    if "default" in field and not isinstance(field["default"], str | dict | list):
        return field["default"]
    kind = field["type"].removeprefix("compact_")
    if field.get("nullable"):
        return None
    if kind in FORMS:
        return 0
    return {"string": "", "bytes": b"", "array": (), "uuid": UUID(int=0), "struct": {}}[kind]


def commit(group: str, topic: str, partition: int, offset: int | None, **more: Any) -> Pair:
    """A committed offset; a tombstone for None."""
    version = more.pop("version", None)
    value = None if offset is None else {"offset": offset, "leaderEpoch": -1, **more}
    key = {"group": group, "topic": topic, "partition": partition}
    return pair(OFFSETS, "OFFSET_COMMIT", key, value, version)


def group(name: str, group_id: str, value: Any, **key: str) -> Pair:
    """A record of a group of the newer protocols, such as CONSUMER_GROUP_METADATA."""
    return pair(OFFSETS, name, {"groupId": group_id, **key}, value)


class LogWriter:
    """Writes a partition, a batch at a time, with the offsets that come next."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.end = 0
        self._parts: list[bytes] = []

    def add(self, pairs: Iterable[Pair], time: int = 0, **options: Any) -> LogWriter:
        """A batch; `producer_id` makes it transactional."""
        if "producer_id" in options:
            options = {"producer_epoch": 0, "base_sequence": 0, "transactional": True} | options
        records = [builders.record(value, key=key, timestamp=time) for key, value in pairs]
        self._parts.append(builders.batch(records, base_offset=self.end, **options))
        self.end += len(records)
        return self

    def end_transaction(
        self, producer_id: int, time: int = 0, *, commits: bool, epoch: int = 0
    ) -> LogWriter:
        """A marker."""
        key = pack(">hh", 0, 1 if commits else 0)
        marker = builders.record(pack(">hi", 0, 0), key=key, timestamp=time)
        whose = {"producer_id": producer_id, "producer_epoch": epoch, "transactional": True}
        part = builders.batch([marker], base_offset=self.end, control=True, **whose)
        self._parts.append(part)
        self.end += 1
        return self

    def write(self) -> Path:
        """The partition directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        builders.write_segment(self.directory, 0, *self._parts)
        return self.directory
