"""Records of internal topics and control records as Kafka's tool prints them, faults included.

Messages are JSON, byte for byte as Kafka's generated converters write it; records of remote log
metadata are the text forms of Java objects.

Source: Kafka 4.2 `DumpLogSegments.CoordinatorRecordMessageParser`,
`ClusterMetadataLogMessageParser`, `RemoteMetadataLogMessageParser`, `printControlRecord`;
`CoordinatorRecordSerde`, `AbstractApiMessageSerde`, `ControlRecordType`, `EndTransactionMarker`;
`*JsonConverter`, Jackson's `JsonNode.toString`; `RemoteLogSegmentMetadata.toString`
and its like, `RemoteLogMetadataTransform`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np

from kseg.cli.kafka_dump.lines import Contents, Failed, Texts, texts_until
from kseg.constants import Bools, ControlType
from kseg.errors import InvalidRecordError
from kseg.format.control import EndMarker, parse_control_key
from kseg.internal import InternalTopic, decode
from kseg.internal.ids import id_text
from kseg.internal.records import INT16_MAX, has_structs
from kseg.internal.schemas import Cursor, RecordType, Schema, load, message_reader, record_types

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns

#: The texts of a key and of a payload.
Shown = tuple[str | None, str | None]
#: Reasons of `kseg.internal`, and Kafka's words for the same; a number cut short is `null`.
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


def internal_contents(
    topic: InternalTopic, columns: RecordColumns, control: Bools | None, unread: Mapping[int, str]
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
            texts = show(topic, offset, key, value, unread.get(row))
        except InvalidRecordError as error:
            failed = (row, error)
            break
        keys[row], payloads[row] = map(_encoded, texts)
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
    """The texts of key and payload that Kafka's tool prints of one record; None for nothing.

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
            return None, _metadata(topic, value)
        except _SkippedError as error:
            where = "offset " if topic is InternalTopic.REMOTE else ""
            return None, f"Error at {where}{offset}, skipping. {error}"
    if key is None:
        raise InvalidRecordError(
            f"Failed to decode message at offset {offset} using the specified decoder "
            "(message had a missing key)"
        )
    if unread is not None:
        return f"Error at offset {offset}, skipping. {unread}", None
    try:
        return _coordinator(topic, offset, decode(topic, key, value))
    except InvalidRecordError as error:
        is_key = error.reason.startswith("the key: ")
        part, data = ("key", key) if is_key else ("value", value or b"")
        return f"Error at offset {offset}, skipping. {_unread(topic, part, data, error)}", None


# ---- coordinators --------------------------------------------------------------------------------


def _coordinator(topic: InternalTopic, offset: int, record: Any) -> Shown:
    if record.name is None:
        return f"Unknown record type {record.type} at offset {offset}, skipping.", None
    if record.reason is not None:
        what = f"Found an unknown record version {record.version} for {record.type} type"
        return f"Error at offset {offset}, skipping. {what}", None
    kind, version, fields = record.type, record.version, record.value
    known: Any = record_types(topic)[kind]
    key = f'{{"type":"{kind}","data":{message_json(known.key, 0, record.key)}}}'
    if fields is None:
        return key, "<DELETE>"
    data = message_json(known.value, version, fields)
    return key, f'{{"version":"{version}","data":{data}}}'


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
    types = record_types(topic).values()
    messages = [load()["messages"][name] for known in types for name in (known.key, known.value)]
    lists = (version["fields"] for message in messages for version in message.values())
    return frozenset(
        field["name"]
        for fields in lists
        for field in _each_field(fields)
        if field["type"].removeprefix("compact_") in ("string", "bytes")
    )


def _each_field(fields: list[Schema]) -> Iterator[Schema]:
    """All fields of a message; the items of an array have its name."""
    for field in fields:
        yield field
        yield from _each_field(field.get("fields", []))
        if "items" in field:
            yield from _each_field([{"name": field["name"], **field["items"]}])


# ---- metadata ------------------------------------------------------------------------------------


class _SkippedError(Exception):
    """A record that is passed over, with Kafka's words for it."""


def _metadata(topic: InternalTopic, value: bytes | None) -> str:
    remote = topic is InternalTopic.REMOTE
    if value is None:
        raise _SkippedError(_NO_VALUE if remote else "Error while reading frame version")
    cursor = Cursor(value, "value")
    frame = _header(cursor, "frame version")
    if frame != 1:
        raise _SkippedError(_FRAMES.get(frame, _FRAME.format(frame)))
    kind, version = _header(cursor, "type"), _header(cursor, "version")
    known = record_types(topic).get(kind)
    if known is None:
        raise _SkippedError(_UNKNOWN_ID.format(kind))
    fields = _body(known, kind, version, cursor)
    if remote:
        return remote_text(known.name, fields)
    data = message_json(known.value, version, fields)
    return f'{{"type":"{known.name}","version":{version},"data":{data}}}'


def _header(cursor: Cursor, what: str) -> int:
    """A number in front of a message; of one below 0 Kafka keeps the low 16 bits."""
    try:
        number = cursor.uvarint(what)
    except InvalidRecordError:
        raise _SkippedError(f"Error while reading {what}") from None
    if number > INT16_MAX:
        raise _SkippedError(f"Value for {what} was too large.")
    return (number + INT16_MAX + 1) % (2 * INT16_MAX + 2) - INT16_MAX - 1


def _body(known: RecordType, kind: int, version: int, cursor: Cursor) -> dict[str, Any]:
    """The message, of a version above the highest as far as that one goes."""
    lowest, highest = known.versions
    try:
        read = message_reader(known.value, min(max(version, lowest), highest))
        fields: dict[str, Any] = read(cursor)
    except InvalidRecordError:
        raise _SkippedError(f"Failed to deserialize record with type {kind}") from None
    if version > highest and has_structs(fields):
        raise _SkippedError(f"Failed to deserialize record with type {kind}")
    if cursor.left:
        raise _SkippedError(f"Found {cursor.left} byte(s) of garbage after {kind}")
    return fields


# ---- control records -----------------------------------------------------------------------------

#: The text in front of the JSON of a value, and its message; always read as version 0.
_CONTROL_MESSAGES = {
    ControlType.LEADER_CHANGE: (" LeaderChange: ", "LeaderChangeMessage"),
    ControlType.SNAPSHOT_HEADER: (" SnapshotHeader ", "SnapshotHeaderRecord"),
    ControlType.SNAPSHOT_FOOTER: (" SnapshotFooter ", "SnapshotFooterRecord"),
    ControlType.KRAFT_VERSION: (" KRaftVersion ", "KRaftVersionRecord"),
    ControlType.KRAFT_VOTERS: (" KRaftVoters ", "VotersRecord"),
}


def control_marks(columns: RecordColumns) -> tuple[Texts, Failed]:
    """The texts of the control records of a piece, and the first that cannot be read."""
    rows = np.flatnonzero(columns.control).tolist()
    return texts_until(
        len(columns), rows, lambda row: control_text(columns.key[row], columns.value[row]).encode()
    )


def control_text(key: bytes | None, value: bytes | None) -> str:
    """The text of one control record.

    Raises:
        InvalidRecordError: it cannot be read.
    """
    control = parse_control_key(key)
    if control.type in (ControlType.ABORT, ControlType.COMMIT):
        epoch = EndMarker.from_bytes(control.type, value).coordinator_epoch
        return f" endTxnMarker: {control.type.name} coordinatorEpoch: {epoch}"
    if control.type not in _CONTROL_MESSAGES:
        return f" controlType: UNKNOWN({int.from_bytes((key or b'')[2:4], 'big', signed=True)})"
    lead, message = _CONTROL_MESSAGES[control.type]
    if value is None:
        raise InvalidRecordError("a control record without a value")
    fields = message_reader(message, 0)(Cursor(value, "value"))
    return lead + message_json(message, fields["version"], fields)


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
        fields: its values by name; a missing field of the version has its default.
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
        if "tag" not in field or text != json_text(field["default"]):
            parts.append(f"{json_text(name)}:{text}")
    return "{" + ",".join(parts) + "}"


def _value(field: Schema, value: Any) -> str:
    """A value by its type; a message that was decoded out of bytes has types of its own."""
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
    if _PLAIN_MIN <= abs(value) < _PLAIN_END:
        return repr(value)
    exact = Decimal(repr(value)).normalize()
    if len(exact.as_tuple().digits) == 1:  # Java has two digits at least, and takes the nearest two
        exact = Decimal(f"{value:.1e}").normalize()
    digits, _, power = f"{exact:E}".partition("E")
    return f"{digits}{'' if '.' in digits else '.0'}E{int(power)}"


# ---- remote log metadata -------------------------------------------------------------------------

#: The text of each type of record, with the fields of its message in braces.
_REMOTE: Final = {
    "REMOTE_LOG_SEGMENT_METADATA_RECORD": "RemoteLogSegmentMetadata{{"
    "remoteLogSegmentId={remoteLogSegmentId}, startOffset={startOffset}, endOffset={endOffset}, "
    "brokerId={brokerId}, maxTimestampMs={maxTimestampMs}, eventTimestampMs={eventTimestampMs}, "
    "segmentLeaderEpochs={segmentLeaderEpochs}, segmentSizeInBytes={segmentSizeInBytes}, "
    "customMetadata={customMetadata}, state={remoteLogSegmentState}, txnIdxEmpty={txnIndexEmpty}}}",
    "REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD": "RemoteLogSegmentMetadataSnapshot{{"
    "segmentId={segmentId}, startOffset={startOffset}, endOffset={endOffset}, "
    "maxTimestampMs={maxTimestampMs}, "
    "segmentLeaderEpochs={segmentLeaderEpochs}, segmentSizeInBytes={segmentSizeInBytes}, "
    "customMetadata={customMetadata}, state={remoteLogSegmentState}, txnIdxEmpty={txnIndexEmpty}}}",
    "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD": "RemoteLogSegmentMetadataUpdate{{"
    "remoteLogSegmentId={remoteLogSegmentId}, customMetadata={customMetadata}, "
    "state={remoteLogSegmentState}, eventTimestampMs={eventTimestampMs}, brokerId={brokerId}}}",
    "REMOTE_PARTITION_DELETE_METADATA_RECORD": "RemotePartitionDeleteMetadata{{"
    "topicPartition={topicIdPartition}, state={remotePartitionDeleteState}, "
    "eventTimestampMs={eventTimestampMs}, brokerId={brokerId}}}",
}
#: The names of states by their numbers, and Kafka's words for any other number.
_STATES: Final = {
    "remoteLogSegmentState": (
        "COPY_SEGMENT_STARTED COPY_SEGMENT_FINISHED DELETE_SEGMENT_STARTED DELETE_SEGMENT_FINISHED",
        "state can not be null",
    ),
    "remotePartitionDeleteState": (
        "DELETE_PARTITION_MARKED DELETE_PARTITION_STARTED DELETE_PARTITION_FINISHED",
        "null",
    ),
}


def remote_text(name: str, fields: dict[str, Any]) -> str:
    """One record, by the name of its type.

    Raises:
        _SkippedError: Kafka refuses to make the object, with its words.
    """
    shown = {field: _java_text(field, value) for field, value in fields.items()}
    return _REMOTE[name].format_map(shown)


def _java_text(field: str, value: Any) -> str:
    """The text form of the Java object that a field becomes."""
    match field:
        case "remoteLogSegmentId":
            place = _java_text("topicIdPartition", value["topicIdPartition"])
            return f"RemoteLogSegmentId{{topicIdPartition={place}, id={id_text(value['id'])}}}"
        case "topicIdPartition":
            return f"{id_text(value['id'])}:{value['name']}-{value['partition']}"
        case "segmentLeaderEpochs":
            epochs = {each["leaderEpoch"]: each["offset"] for each in value}
            if not epochs:
                raise _SkippedError("segmentLeaderEpochs can not be null or empty")
            return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"
        case "customMetadata" if value is None:
            return "Optional.empty"
        case "customMetadata":
            return f"Optional[CustomMetadata{{{len(value)} bytes}}]"
        case "remoteLogSegmentState" | "remotePartitionDeleteState":
            names, refusal = _STATES[field]
            if not 0 <= value < len(names.split()):
                raise _SkippedError(refusal)
            return str(names.split()[value])
        case "txnIndexEmpty":
            return str(value).lower()
    return id_text(value) if isinstance(value, UUID) else str(value)
