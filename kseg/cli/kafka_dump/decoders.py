"""Records of internal topics, control records and entries of indexes as Kafka's tool prints them.

Messages are JSON, byte for byte as Kafka's generated converters write it; records of remote log
metadata are the text forms of Java objects.

Source: Kafka `DumpLogSegments.CoordinatorRecordMessageParser`,
`ClusterMetadataLogMessageParser`, `RemoteMetadataLogMessageParser`, `printControlRecord`;
`*JsonConverter`, Jackson's `JsonNode.toString`; `RemoteLogSegmentMetadata.toString`
and its like, `RemoteLogMetadataTransform`; `DumpLogSegments.dumpIndex`, `dumpTimeIndex`,
`dumpProducerIdSnapshot`, `dumpTxnIndex`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np

from kseg.analysis.transactions import STATES
from kseg.cli.kafka_dump.lines import Contents, Lines, Note, line_pieces, texts_of
from kseg.cli.rows import RowWriter
from kseg.constants import Bools, ControlType, Int64s
from kseg.documents import id_text
from kseg.errors import CorruptIndexError, InvalidRecordError
from kseg.files import producer_snapshot
from kseg.files.grammar import FileKind, file_name
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.txn_index import TxnIndex
from kseg.format.control import EndMarker, parse_control_key
from kseg.format.values import BinaryColumn, binary_column
from kseg.internal import InternalTopic, decode
from kseg.internal.schemas import Cursor, Schema, load, message_reader, record_types
from kseg.log.recovery import Finding

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns

#: The texts of a key and of a payload; None where the tool prints none.
Shown = tuple[str | None, str | None]


def internal_contents(
    topic: InternalTopic,
    columns: RecordColumns,
    control: Bools | None,
    note: Note,
    *,
    named_status: bool = False,
) -> Contents:
    """The texts of a piece of records of an internal topic.

    Args:
        topic: the topic of the records.
        columns: the piece.
        control: bool[n], the control records, which have no texts; None if there are none.
        note: receives records that cannot be decoded.
        named_status: whether the status of a transaction is a word.
    """
    keys: list[bytes | None] = [None] * len(columns)
    payloads: list[bytes | None] = [None] * len(columns)
    for row, (key, value) in enumerate(zip(columns.key, columns.value, strict=True)):
        if control is not None and control[row]:
            continue
        try:
            keys[row], payloads[row] = map(
                _encode_as_java, show(topic, key, value, named_status=named_status)
            )
        except InvalidRecordError as error:
            note(row, error)
    return binary_column(keys), binary_column(payloads)


def _encode_as_java(text: str | None) -> bytes | None:
    """A text in UTF-8, a question mark for half a surrogate pair, as Java writes it."""
    return None if text is None else text.encode("utf-8", "replace")


def show(
    topic: InternalTopic, key: bytes | None, value: bytes | None, *, named_status: bool = False
) -> Shown:
    """The texts that Kafka's tool prints for the key and the payload of one record.

    A text is None where the tool prints none. An unknown type or version is no damage: the payload
    says so. Of a newer version the known fields are printed, as Kafka prints them.

    Raises:
        InvalidRecordError: the record cannot be decoded.
    """
    record: Any = decode(topic, key, value)
    if not record.is_understood:
        return None, record.reason
    if topic is InternalTopic.REMOTE:
        return None, remote_text(record.name, record.value)
    record_type: Any = record_types(topic)[record.type]
    version = record.version
    data = "<DELETE>"
    if record.value is not None:
        status = record.value.get("transactionStatus")
        if named_status and status in range(len(STATES)):
            record.value["transactionStatus"] = STATES[status]
        data = message_json(record_type.value, version, record.value)
    if topic is InternalTopic.METADATA:
        return None, f'{{"type":"{record_type.name}","version":{version},"data":{data}}}'
    shown = f'{{"type":"{record.type}","data":{message_json(record_type.key, 0, record.key)}}}'
    if record.value is None:
        return shown, data
    return shown, f'{{"version":"{version}","data":{data}}}'


# ---- control records -----------------------------------------------------------------------------

#: Type of a control record -> the text before the JSON of its value, and the message in it, which
#: is always read as version 0.
_CONTROL_MESSAGES = {
    ControlType.LEADER_CHANGE: (" LeaderChange: ", "LeaderChangeMessage"),
    ControlType.SNAPSHOT_HEADER: (" SnapshotHeader ", "SnapshotHeaderRecord"),
    ControlType.SNAPSHOT_FOOTER: (" SnapshotFooter ", "SnapshotFooterRecord"),
    ControlType.KRAFT_VERSION: (" KRaftVersion ", "KRaftVersionRecord"),
    ControlType.KRAFT_VOTERS: (" KRaftVoters ", "VotersRecord"),
}


def control_marks(columns: RecordColumns, note: Note) -> BinaryColumn:
    """The texts of the control records of a piece."""
    rows = np.flatnonzero(columns.control).tolist()
    return texts_of(
        len(columns),
        rows,
        lambda row: control_text(columns.key[row], columns.value[row]).encode(),
        note,
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
_PLAIN_MIN = 1e-3
_PLAIN_END = 1e7


def message_json(message: str, version: int, fields: dict[str, Any]) -> str:
    """One message as JSON.

    Args:
        message: its name in the schemas.
        version: the version whose fields are written; the nearest known version for an unknown one.
        fields: name of a field -> value; a missing field of the version has its default.
    """
    versions = load()["messages"][message]
    chosen = min(map(int, versions), key=lambda number: abs(number - version))
    return _struct(versions[str(chosen)]["fields"], fields)


def _struct(schema: list[Schema], fields: dict[str, Any]) -> str:
    """A struct as JSON: all fields of its schema, without tagged ones that have their default."""
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
    """A value as JSON, according to its type in the schema; without one, according to its class."""
    if value is None:
        return "null"
    if "fields" in field:
        return _struct(field["fields"], value)
    if "items" in field:
        return "[" + ",".join(_value(field["items"], item) for item in value) + "]"
    return json_text(value)


def json_text(value: Any) -> str:
    """A value of a message as JSON, according to its class; no schema is needed."""
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
    """The escape of a character in JSON."""
    return _NAMED.get(match[0]) or f"\\u{ord(match[0]):04X}"


def _double(value: float) -> str:
    """A float as Java's `Double.toString` writes it since Java 19."""
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

#: Name of a record's type -> its line, with the fields of its message in braces.
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
#: Field -> the names of its states, in the order of their numbers.
_STATES: Final[dict[str, tuple[str, ...]]] = {
    "remoteLogSegmentState": (
        "COPY_SEGMENT_STARTED",
        "COPY_SEGMENT_FINISHED",
        "DELETE_SEGMENT_STARTED",
        "DELETE_SEGMENT_FINISHED",
    ),
    "remotePartitionDeleteState": (
        "DELETE_PARTITION_MARKED",
        "DELETE_PARTITION_STARTED",
        "DELETE_PARTITION_FINISHED",
    ),
}


def remote_text(name: str, fields: dict[str, Any]) -> str:
    """The line that Kafka's tool prints for one record of remote log metadata.

    Args:
        name: the name of the record's type.
        fields: the fields of its message.

    Raises:
        InvalidRecordError: the number of a state is not known, or there are no leader epochs.
    """
    shown = {field: _java_text(field, value) for field, value in fields.items()}
    return _REMOTE[name].format_map(shown)


def _java_text(field: str, value: Any) -> str:
    """The text form of the Java object that a field becomes."""
    match field:
        case "remoteLogSegmentId":
            partition = _java_text("topicIdPartition", value["topicIdPartition"])
            return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={id_text(value['id'])}}}"
        case "topicIdPartition":
            return f"{id_text(value['id'])}:{value['name']}-{value['partition']}"
        case "segmentLeaderEpochs":
            epochs = {entry["leaderEpoch"]: entry["offset"] for entry in value}
            if not epochs:
                raise InvalidRecordError("segmentLeaderEpochs is empty")
            return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"
        case "customMetadata" if value is None:
            return "Optional.empty"
        case "customMetadata":
            return f"Optional[CustomMetadata{{{len(value)} bytes}}]"
        case "remoteLogSegmentState" | "remotePartitionDeleteState":
            if not 0 <= value < len(_STATES[field]):
                raise InvalidRecordError(f"{field} {value} is not known")
            return _STATES[field][int(value)]
        case "txnIndexEmpty":
            return str(value).lower()
    return id_text(value) if isinstance(value, UUID) else str(value)


_PRODUCER = (
    "producerId: {0.producer_id} producerEpoch: {0.producer_epoch} "
    "coordinatorEpoch: {0.coordinator_epoch} currentTxnFirstOffset: {1} "
    "lastTimestamp: {0.last_timestamp}"
)
_LAST_BATCH = (
    " firstSequence: {0.first_sequence} lastSequence: {0.last_sequence} "
    "lastOffset: {0.last_offset} offsetDelta: {0.offset_delta} timestamp: {0.last_timestamp}"
)
_TXN = (
    "version: {0.version} producerId: {0.producer_id} firstOffset: {0.first_offset} "
    "lastOffset: {0.last_offset} lastStableOffset: {0.last_stable_offset}"
)


def findings_of(log: Path) -> tuple[Finding, ...]:
    """The findings of `kseg verify` on a segment; empty if the log does not exist.

    Raises:
        OSError: a file cannot be read.
    """
    from kseg.analysis.verify import verify  # imported late: slow, and only indexes need it

    return tuple(verify(log).findings) if log.exists() else ()


def faults_of(
    path: Path, findings: Iterable[Finding], *, of_length: bool
) -> list[CorruptIndexError]:
    """Where an index contradicts the log beside it.

    Unused room after the entries is no fault here: a broker's active segment has it.

    Args:
        path: the index.
        findings: the findings on its segment.
        of_length: whether only the length counts, as in Kafka's sanity check.
    """
    return [
        CorruptIndexError(finding.message, position=finding.position, offset=finding.offset)
        for finding in findings
        if Path(finding.path) == path
        and finding.severity == "error"
        and finding.code != "index-unused"
        and (not of_length or finding.code.endswith("-length"))
    ]


def print_index(path: Path, writer: RowWriter | None) -> bool:
    """Write a line for each entry of an offset or a time index; returns whether there are any.

    Args:
        path: the index.
        writer: takes the lines; None writes none.

    Raises:
        CorruptIndexError: the file is damaged.
        OSError: the file cannot be read.
    """
    name = file_name(path)
    is_time = name.kind is FileKind.TIMEINDEX
    kind = TimeIndex if is_time else OffsetIndex
    line = "timestamp: {0} offset: {1}\n" if is_time else "offset: {0} position: {1}\n"
    with kind.open(path, name.base_offset or 0) as index:
        columns: tuple[Int64s, Int64s] = index.entries()
        if index.slots and not index.entry_count:  # the first slot is printed, used or not
            empty = np.zeros(1, np.int64)
            base = np.array([index.base_offset])
            columns = (empty, base) if is_time else (base, empty)
    if writer is not None:
        writer.rows(line_pieces(line, lambda field: columns[int(field)]), len(columns[0]))
    return len(columns[0]) > 0


def lines_of(path: Path, lines: Lines) -> Iterator[str]:
    """A line for each producer of a snapshot, or for each aborted transaction of an index.

    Args:
        path: the file.
        lines: the lines of the release.

    Raises:
        CorruptIndexError: the file is damaged.
        OSError: the file cannot be read.
    """
    if path.suffix == ".txnindex":
        yield from map(_TXN.format, TxnIndex.open(path).entries())
    else:
        for entry in producer_snapshot.read(path):
            first = entry.current_txn_first_offset
            ongoing = "OptionalLong.empty" if first == -1 else f"OptionalLong[{first}]"
            line = _PRODUCER + _LAST_BATCH if entry.has_batch else _PRODUCER
            yield line.format(entry, ongoing) + ("" if entry.has_batch else lines.last_of_producer)
