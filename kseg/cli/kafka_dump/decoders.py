"""Kafka's decoders of internal topics: what they print of a key and a value, faults included.

Source: Kafka 4.2 `DumpLogSegments.CoordinatorRecordMessageParser`,
`ClusterMetadataLogMessageParser`, `RemoteMetadataLogMessageParser`; `CoordinatorRecordSerde`,
`AbstractApiMessageSerde`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kseg.cli.kafka_dump.json_text import message_json
from kseg.cli.kafka_dump.lines import Texts
from kseg.cli.kafka_dump.parsers import Contents
from kseg.cli.kafka_dump.remote_text import remote_text
from kseg.errors import InvalidRecordError
from kseg.internal import InternalRecord, InternalTopic, decode
from kseg.internal.cursor import Cursor
from kseg.internal.schemas import RecordType, load, message_reader, topic_schema

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kseg.cli.kafka_dump.parsers import Unread
    from kseg.format.values import RecordColumns

_SHORT_MAX = 2**15 - 1
#: Reasons of `kseg.internal`, and what Kafka says for the same; a number cut short is `null`.
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(\w+) is null, which"), "non-nullable field {0} was serialized as null"),
    (
        re.compile(r"\w+ has (\d+) items, (\d+) bytes are left"),
        "Tried to allocate a collection of size {0}, but there are only {1} bytes remaining.",
    ),
)
_BLOB = re.compile(r"(\w+) has (\d+) bytes, (\d+) are left")
_BLOB_TEXT = "Error reading byte array of {0} byte(s): only {1} byte(s) available"
_FRAMES = {
    0: "Could not deserialize metadata record with frame version 0. Note that upgrades from the "
    "preview release of KRaft in 2.8 to newer versions are not supported.",
}
_FRAME = (
    "Could not deserialize metadata record due to unknown frame version {0}"
    "(only frame version 1 is supported)"
)
_UNKNOWN_ID = "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {0}"
_NO_VALUE = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.Record.value()" is null'
)


class Shown(NamedTuple):
    """What is printed of one record; None for nothing."""

    key: str | None = None
    payload: str | None = None


class InternalParser:
    """The decoder of one internal topic."""

    prints_stored_bytes = False

    def __init__(self, topic: InternalTopic) -> None:
        """Decode records of this topic."""
        self._topic = topic

    def parse(
        self, columns: RecordColumns, control: npt.NDArray[np.bool_] | None, unread: Unread
    ) -> Contents:
        """The texts of a piece of records, up to one at which Kafka's tool ends."""
        count = len(columns)
        keys: list[bytes | None] = [None] * count
        payloads: list[bytes | None] = [None] * count
        failed = None
        rows = zip(columns.offset.tolist(), columns.key, columns.value, strict=True)
        for row, (offset, key, value) in enumerate(rows):
            if control is not None and control[row]:
                continue
            try:
                shown = show(self._topic, offset, key, value, unread.get(row))
            except InvalidRecordError as error:
                failed = (row, error)
                break
            keys[row], payloads[row] = _encoded(shown.key), _encoded(shown.payload)
        return Contents(Texts.of(keys), Texts.of(payloads), failed)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "replace")


def show(
    topic: InternalTopic,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    unread: str | None = None,
) -> Shown:
    """What Kafka's tool prints of one record.

    Args:
        topic: whose decoder.
        offset: of the record.
        key: as the log has it.
        value: likewise.
        unread: Java's words for why the value cannot be read; None if it can.

    Raises:
        InvalidRecordError: a coordinator's record has no key, which ends the tool.
    """
    if topic in (InternalTopic.METADATA, InternalTopic.REMOTE):
        try:
            if unread is not None:
                raise _SkippedError(unread)
            return Shown(payload=_metadata(topic, value))
        except _SkippedError as error:
            where = "offset " if topic is InternalTopic.REMOTE else ""
            return Shown(payload=f"Error at {where}{offset}, skipping. {error.reason}")
    if key is None:
        raise InvalidRecordError(
            f"Failed to decode message at offset {offset} using the specified decoder "
            "(message had a missing key)"
        )
    if unread is not None:
        return Shown(f"Error at offset {offset}, skipping. {unread}")
    try:
        return _coordinator(topic, offset, decode(topic, key, value))
    except InvalidRecordError as error:
        is_key = error.reason.startswith("the key: ")
        part, data = ("key", key) if is_key else ("value", value or b"")
        return Shown(f"Error at offset {offset}, skipping. {_unread(topic, part, data, error)}")


# ---- coordinators --------------------------------------------------------------------------------


def _coordinator(topic: InternalTopic, offset: int, record: InternalRecord) -> Shown:
    if record.name is None:
        return Shown(f"Unknown record type {record.type} at offset {offset}, skipping.")
    if record.reason is not None:
        what = f"Found an unknown record version {record.version} for {record.type} type"
        return Shown(f"Error at offset {offset}, skipping. {what}")
    assert record.type is not None
    known = topic_schema(topic).types[record.type]
    assert isinstance(record.key, dict)
    assert known.key is not None
    key = f'{{"type":"{record.type}","data":{message_json(known.key, 0, record.key)}}}'
    if record.value is None:
        return Shown(key, "<DELETE>")
    assert isinstance(record.value, dict)
    assert record.version is not None
    data = message_json(known.value, record.version, record.value)
    return Shown(key, f'{{"version":"{record.version}","data":{data}}}')


def _unread(topic: InternalTopic, part: str, data: bytes, error: InvalidRecordError) -> str:
    if len(data) < 2:
        return f"Could not read version from {part}'s buffer."
    version = int.from_bytes(data[:2], "big", signed=True)
    why = _java_reason(topic, error.reason)
    return f"Could not read record with version {version} from {part}'s buffer due to: {why}."


def _java_reason(topic: InternalTopic, reason: str) -> str:
    for pattern, text in _REASONS:
        found = pattern.search(reason)
        if found:
            return text.format(*found.groups())
    found = _BLOB.search(reason)
    if found and "the length of" not in reason and found[1] in _blob_names(topic):
        return _BLOB_TEXT.format(found[2], found[3])
    return "null"


@cache
def _blob_names(topic: InternalTopic) -> frozenset[str]:
    """Names of fields of text or bytes in the messages of a topic."""
    found: set[str] = set()
    for known in topic_schema(topic).types.values():
        for message in filter(None, (known.key, known.value)):
            for version in load()["messages"][message].values():
                _collect(version["fields"], found)
    return frozenset(found)


def _collect(fields: list[Any], found: set[str]) -> None:
    for field in fields:
        items = field.get("items", {})
        if field["type"].removeprefix("compact_") in ("string", "bytes"):
            found.add(field["name"])
        if items.get("type", "").removeprefix("compact_") in ("string", "bytes"):
            found.add(field["name"])
        _collect(field.get("fields", []) + items.get("fields", []), found)


# ---- metadata ------------------------------------------------------------------------------------


class _SkippedError(Exception):
    """A record that is passed over, with Kafka's words for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _metadata(topic: InternalTopic, value: bytes | None) -> str:
    remote = topic is InternalTopic.REMOTE
    if value is None:
        raise _SkippedError(_NO_VALUE if remote else "Error while reading frame version")
    cursor = Cursor(value, "value")
    frame = _header(cursor, "frame version")
    if frame != 1:
        raise _SkippedError(_FRAMES.get(frame, _FRAME.format(frame)))
    kind, version = _header(cursor, "type"), _header(cursor, "version")
    known = topic_schema(topic).types.get(kind)
    if known is None:
        raise _SkippedError(_UNKNOWN_ID.format(kind))
    fields = _body(known, kind, version, cursor)
    if remote:
        return _remote(known, fields)
    data = message_json(known.value, version, fields)
    return f'{{"type":"{known.name}","version":{version},"data":{data}}}'


def _header(cursor: Cursor, what: str) -> int:
    """A number in front of a message; of one below 0 Kafka keeps the low 16 bits."""
    try:
        number = cursor.uvarint(what)
    except InvalidRecordError:
        raise _SkippedError(f"Error while reading {what}") from None
    if number > _SHORT_MAX:
        raise _SkippedError(f"Value for {what} was too large.")
    return (number + _SHORT_MAX + 1) % (2 * _SHORT_MAX + 2) - _SHORT_MAX - 1


def _body(known: RecordType, kind: int, version: int, cursor: Cursor) -> dict[str, Any]:
    """The message, of a version above the highest as far as that one goes."""
    lowest, highest = known.versions
    try:
        read = message_reader(known.value, min(max(version, lowest), highest))
        fields: dict[str, Any] = read(cursor)
    except InvalidRecordError:
        raise _SkippedError(f"Failed to deserialize record with type {kind}") from None
    if version > highest and _has_struct(fields):
        raise _SkippedError(f"Failed to deserialize record with type {kind}")
    if cursor.left:
        raise _SkippedError(f"Found {cursor.left} byte(s) of garbage after {kind}")
    return fields


def _has_struct(value: Any) -> bool:
    """Whether a struct lies in it, which Kafka reads by its own version."""
    values = value.values() if isinstance(value, dict) else ()
    return any(
        isinstance(each, dict)
        or (isinstance(each, tuple) and any(isinstance(item, dict) for item in each))
        for each in values
    )


def _remote(known: RecordType, fields: dict[str, Any]) -> str:
    try:
        return remote_text(known.name, fields)
    except ValueError as error:
        raise _SkippedError(str(error)) from None


__all__ = ["InternalParser", "Shown", "show"]
