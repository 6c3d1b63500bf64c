"""Records of internal topics and control records as Kafka's tool prints them, faults included.

Messages are JSON, byte for byte as Kafka's generated converters write it; records of remote log
metadata are the text forms of Java objects.

Source: Kafka 4.2 `DumpLogSegments.CoordinatorRecordMessageParser`,
`ClusterMetadataLogMessageParser`, `RemoteMetadataLogMessageParser`, `printControlRecord`;
`CoordinatorRecordSerde`, `AbstractApiMessageSerde`, `ControlRecordType`, `EndTransactionMarker`;
`*JsonConverter`, Jackson's `JsonNode.toString`; `RemoteLogSegmentMetadata.toString` and those of
its kind, `RemoteLogMetadataTransform`.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import numpy as np

from kseg.cli.kafka_dump.lines import Contents, Texts
from kseg.constants import ControlType
from kseg.errors import InvalidRecordError, KsegError
from kseg.internal import InternalRecord, InternalTopic, decode
from kseg.internal.cursor import Cursor
from kseg.internal.ids import id_text
from kseg.internal.schemas import RecordType, load, message_reader, topic_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kseg.cli.kafka_dump.lines import Failed, Mask
    from kseg.format.values import RecordColumns
    from kseg.internal.schemas import Schema

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


def internal_contents(
    topic: InternalTopic, columns: RecordColumns, control: Mask | None, unread: Mapping[int, str]
) -> Contents:
    """The texts of a piece of records of an internal topic, up to one at which the tool ends."""
    keys: list[bytes | None] = [None] * len(columns)
    payloads: list[bytes | None] = [None] * len(columns)
    failed = None
    rows = zip(columns.offset.tolist(), columns.key, columns.value, strict=True)
    for row, (offset, key, value) in enumerate(rows):
        if control is not None and control[row]:
            continue
        try:
            shown = show(topic, offset, key, value, unread.get(row))
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
        try:
            return remote_text(known.name, fields)
        except ValueError as error:
            raise _SkippedError(str(error)) from None
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


# ---- control records -----------------------------------------------------------------------------

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
#: What precedes the JSON of a value, and the message that it is; always read as version 0.
_CONTROL_MESSAGES = {
    ControlType.LEADER_CHANGE: (" LeaderChange: ", "LeaderChangeMessage"),
    ControlType.SNAPSHOT_HEADER: (" SnapshotHeader ", "SnapshotHeaderRecord"),
    ControlType.SNAPSHOT_FOOTER: (" SnapshotFooter ", "SnapshotFooterRecord"),
    ControlType.KRAFT_VERSION: (" KRaftVersion ", "KRaftVersionRecord"),
    ControlType.KRAFT_VOTERS: (" KRaftVoters ", "VotersRecord"),
}


def control_marks(columns: RecordColumns) -> tuple[Texts, Failed]:
    """The texts of the control records of a piece, and the first that cannot be read."""
    texts: list[bytes | None] = [None] * len(columns)
    for row in np.flatnonzero(columns.control).tolist():
        try:
            texts[row] = control_text(columns.key[row], columns.value[row]).encode()
        except KsegError as error:
            return Texts.of(texts), (row, error)
    return Texts.of(texts), None


def control_text(key: bytes | None, value: bytes | None) -> str:
    """What one control record says.

    Raises:
        InvalidRecordError: it cannot be read.
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError("a control record has a key of 4 bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"version {version} of a control record's key")
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return f" endTxnMarker: {ControlType(kind).name} coordinatorEpoch: {_epoch(value)}"
    if kind not in _CONTROL_MESSAGES:
        return f" controlType: UNKNOWN({kind})"
    lead, message = _CONTROL_MESSAGES[ControlType(kind)]
    if value is None:
        raise InvalidRecordError("a control record without a value")
    fields = message_reader(message, 0)(Cursor(value, "value"))
    return lead + message_json(message, fields["version"], fields)


def _epoch(value: bytes | None) -> int:
    if value is None or len(value) < _MARKER.size:
        raise InvalidRecordError("the value of a transaction marker has 6 bytes")
    version, epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"version {version} of a transaction marker")
    return int(epoch)


# ---- JSON ----------------------------------------------------------------------------------------

_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_NAMED = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
#: Java writes smaller and larger numbers with an exponent.
_PLAIN_MIN, _PLAIN_END = 1e-3, 1e7


def message_json(message: str, version: int, fields: dict[str, Any]) -> str:
    """One message as JSON.

    Args:
        message: its name in the schemas.
        version: whose fields are written; the nearest known one for any other.
        fields: its values by name; those of the version that are missing have their defaults.
    """
    versions = load()["messages"][message]
    chosen = min(map(int, versions), key=lambda known: abs(known - version))
    return _struct(versions[str(chosen)]["fields"], fields)


def _struct(schema: list[Schema], fields: dict[str, Any]) -> str:
    parts = []
    for field in schema:
        name = field["name"]
        if name not in fields and field["type"] == "uuid":
            text = json_text(UUID(int=0))
        else:
            text = _value(field, fields[name])
        if "tag" not in field or text != _plain(field["default"]):
            parts.append(f"{json_text(name)}:{text}")
    return "{" + ",".join(parts) + "}"


def _plain(default: Any) -> str:
    return json.dumps(default, separators=(",", ":"), ensure_ascii=False)


def _value(field: Schema, value: Any) -> str:
    """A value by its type; what was decoded where the schema has bytes has types of its own."""
    if value is None:
        return "null"
    if "fields" in field:
        return _struct(field["fields"], value)
    if "items" in field:
        return "[" + ",".join(_value(field["items"], item) for item in value) + "]"
    return json_text(value)


def json_text(value: Any) -> str:
    """A value of a message as JSON, structs and arrays without a schema too."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{_ESCAPED.sub(_escape, value)}"'
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case UUID():
            return f'"{id_text(value)}"'
        case float():
            return _double(value)
        case dict():
            return "{" + ",".join(f"{json_text(k)}:{json_text(v)}" for k, v in value.items()) + "}"
        case tuple():
            return "[" + ",".join(json_text(item) for item in value) + "]"
    return str(value)


def _escape(match: re.Match[str]) -> str:
    return _NAMED.get(match[0]) or f"\\u{ord(match[0]):04X}"


def _double(value: float) -> str:
    """As Java's `Double.toString` since Java 19."""
    if value != value:
        return '"NaN"'
    if value in (float("inf"), -float("inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return str(value)
    exact = Decimal(repr(value))
    if len(exact.as_tuple().digits) == 1:  # Java has two digits at least, and takes the nearest two
        exact = Decimal(f"{value:.1e}")
    sign, digits, exponent = exact.normalize().as_tuple()
    assert isinstance(exponent, int)
    power = exponent + len(digits) - 1
    if _PLAIN_MIN <= abs(value) < _PLAIN_END:
        plain = f"{exact.normalize():f}"
        return plain if "." in plain else f"{plain}.0"
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{power}"


# ---- remote log metadata -------------------------------------------------------------------------

_SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_DELETE_STATES = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def remote_text(name: str, fields: dict[str, Any]) -> str:
    """One record, by the name of its type.

    Raises:
        ValueError: Kafka refuses to make the object, with its words.
    """
    match name:
        case "REMOTE_LOG_SEGMENT_METADATA_RECORD":
            return _segment(fields)
        case "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD":
            return _update(fields)
        case "REMOTE_PARTITION_DELETE_METADATA_RECORD":
            return _deletion(fields)
    return _snapshot(fields)


def _segment(fields: dict[str, Any]) -> str:
    epochs = _epochs(fields)
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(fields)}, "
        f"startOffset={fields['startOffset']}, endOffset={fields['endOffset']}, "
        f"brokerId={fields['brokerId']}, maxTimestampMs={fields['maxTimestampMs']}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, {_rest(fields, epochs)}}}"
    )


def _snapshot(fields: dict[str, Any]) -> str:
    epochs = _epochs(fields)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={id_text(fields['segmentId'])}, "
        f"startOffset={fields['startOffset']}, endOffset={fields['endOffset']}, "
        f"maxTimestampMs={fields['maxTimestampMs']}, {_rest(fields, epochs)}}}"
    )


def _rest(fields: dict[str, Any], epochs: str) -> str:
    empty = "true" if fields["txnIndexEmpty"] else "false"
    return (
        f"segmentLeaderEpochs={epochs}, segmentSizeInBytes={fields['segmentSizeInBytes']}, "
        f"customMetadata={_custom(fields)}, state={_segment_state(fields)}, txnIdxEmpty={empty}"
    )


def _update(fields: dict[str, Any]) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(fields)}, "
        f"customMetadata={_custom(fields)}, state={_segment_state(fields)}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, brokerId={fields['brokerId']}}}"
    )


def _deletion(fields: dict[str, Any]) -> str:
    state = _state(fields["remotePartitionDeleteState"], _DELETE_STATES, "null")
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(fields['topicIdPartition'])}, "
        f"state={state}, eventTimestampMs={fields['eventTimestampMs']}, "
        f"brokerId={fields['brokerId']}}}"
    )


def _segment_id(fields: dict[str, Any]) -> str:
    found = fields["remoteLogSegmentId"]
    place = _partition(found["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={place}, id={id_text(found['id'])}}}"


def _partition(found: dict[str, Any]) -> str:
    return f"{id_text(found['id'])}:{found['name']}-{found['partition']}"


def _epochs(fields: dict[str, Any]) -> str:
    epochs = {each["leaderEpoch"]: each["offset"] for each in fields["segmentLeaderEpochs"]}
    if not epochs:
        raise ValueError("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _custom(fields: dict[str, Any]) -> str:
    found = fields["customMetadata"]
    if found is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(found)} bytes}}]"


def _segment_state(fields: dict[str, Any]) -> str:
    return _state(fields["remoteLogSegmentState"], _SEGMENT_STATES, "state can not be null")


def _state(number: int, names: tuple[str, ...], refusal: str) -> str:
    if not 0 <= number < len(names):
        raise ValueError(refusal)
    return names[number]
