"""Records of internal topics: the frame around their messages, then the messages.

    Connect       key: JSON, a connector and its source; value: JSON, an offset
    MirrorMaker   key and value: the fields of `_MIRRORS`
    coordinator   key: int16 type, message; value: int16 version, message; no value: a tombstone
    metadata      value: uvarint frame (1), uvarint type, uvarint version, message, no byte more

Coordinator topics may have bytes after a message, which Kafka ignores.

`decode` takes one record; `rows` gives those of record columns, one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from kseg.constants import ConnectTopic, InternalTopic
from kseg.documents import id_text
from kseg.errors import InvalidRecordError
from kseg.format.values import RecordColumns
from kseg.internal.schemas import Cursor, RecordType, load, message_reader, record_types

_INT16: Final = struct.Struct(">h")
INT16_MAX: Final = 2**15 - 1
_FRAME_VERSION: Final = 1

#: The topics whose records have a frame, keyed by name.
_METADATA_TOPICS: Final = {
    str(topic): topic for topic in (InternalTopic.METADATA, InternalTopic.REMOTE)
}

#: The fields of keys and values, in order. Source: Kafka's `OffsetSync` and `Checkpoint`.
_PLACE: Final = (("topic", None), ("partition", struct.Struct(">i")))
_OFFSETS: Final = (("upstreamOffset", struct.Struct(">q")), ("offset", struct.Struct(">q")))
_MIRRORS: Final = {
    ConnectTopic.SYNCS: ("OFFSET_SYNC", _PLACE, _OFFSETS),
    ConnectTopic.CHECKPOINTS: (
        "CHECKPOINT",
        (("group", None), *_PLACE),
        (("version", _INT16), *_OFFSETS, ("metadata", None)),
    ),
}
#: A message as a value: its fields, keyed by Kafka's names.
Fields = dict[str, Any]
RecordTypes = Mapping[int, RecordType]


class InternalRecord(NamedTuple):
    """A record of an internal topic.

    Attributes:
        topic: whose.
        type: id of the record's type; None if a newer frame hides it.
        name: the name of the type, as Kafka's dump prints it; None for an unknown type.
        version: the version of the value's layout; None for a tombstone, and if unknown.
        key: fields of the key, keyed by name, or its bytes as they are. In metadata topics a key is
            ignored, and returned as it is.
        value: fields of the value, keyed by name, or its bytes as they are; None for a tombstone.
        reason: why key or value are bytes, since their type or version is not known; or that the
            version is newer than the known ones, and the value has the fields of the newest of
            those; None else.
        unknown_tags: the number of tagged fields of a newer version that `value` lacks.
    """

    topic: InternalTopic | ConnectTopic
    type: int | None = None
    name: str | None = None
    version: int | None = None
    key: Fields | bytes | None = None
    value: Fields | bytes | None = None
    reason: str | None = None
    unknown_tags: int = 0

    @property
    def is_understood(self) -> bool:
        """Whether key and value are fields, even if only those of an older version."""
        return self.name is not None and not isinstance(self.value, bytes)

    @property
    def is_tombstone(self) -> bool:
        """Whether the record deletes the object that its key names."""
        return self.value is None


def decode(topic: str, key: bytes | None, value: bytes | None) -> InternalRecord:
    """Read one record of an internal topic.

    Args:
        topic: its name, or an `InternalTopic`.
        key: the key of the record, as the log has it.
        value: the value of the record, as the log has it.

    Returns:
        The record; raw bytes and a reason if its type or version is not known. From a version
        above the known ones, the fields of the newest known one are read, if they fill the value.

    Raises:
        ValueError: the topic is not one of Kafka's internal topics.
        InvalidRecordError: the bytes do not fit their schema; `position` is counted from the
            start of the key, or of the value.

    Source: Kafka `CoordinatorRecordSerde`, `AbstractApiMessageSerde`.
    """
    if topic in set(ConnectTopic):
        read = _decode_connect if topic == ConnectTopic.OFFSETS else _decode_mirror
        return read(ConnectTopic(topic), key, value)
    framed = _METADATA_TOPICS.get(topic)
    if framed is not None:
        return _decode_metadata(framed, key, value)
    types = record_types(topic)
    return _decode_coordinator(InternalTopic(topic), types, key, value)


def _decode_mirror(topic: ConnectTopic, key: bytes | None, value: bytes | None) -> InternalRecord:
    """A record of MirrorMaker's topics; the value stays as bytes unless its version is 0."""
    name, of_key, of_value = _MIRRORS[topic]
    fields = _parse_fields(key or b"", "key", of_key)
    content = None if value is None else _parse_fields(value, "value", of_value)
    version = None if content is None else content.pop("version", None)
    if version:
        why = f"version {version} of {name} is not known, only 0"
        return InternalRecord(
            topic, name=name, version=version, key=fields, value=value, reason=why
        )
    return InternalRecord(topic, name=name, version=version, key=fields, value=content)


def _parse_fields(
    data: bytes, part: str, layout: tuple[tuple[str, struct.Struct | None], ...]
) -> Fields:
    """The fields of a key or value: numbers by their forms, texts (form None) after their sizes.

    If the version is not 0, nothing is read after it: its layout is unknown.
    """
    cursor = Cursor(data, part)
    fields = Fields()
    for name, form in layout:
        if form is not None:
            fields[name] = cursor.unpack(form, name)
        else:
            text = cursor.take(cursor.unpack(_INT16, f"the size of {name}"), name)
            fields[name] = text.decode("utf-8", "backslashreplace")
        if fields.get("version"):
            break
    return fields


def _decode_connect(topic: ConnectTopic, key: bytes | None, value: bytes | None) -> InternalRecord:
    """A source's offset of Kafka Connect: the key is a list of connector and source."""
    source = _parse_json(key or b"", "key")
    if not isinstance(source, list) or len(source) != 2:
        raise InvalidRecordError("the key: not a connector and a source", position=0)
    fields = {"connector": source[0], "source": source[1]}
    offset = None if value is None else {"offset": _parse_json(value, "value")}
    return InternalRecord(topic, name="CONNECT_OFFSET", key=fields, value=offset)


def _parse_json(data: bytes, part: str) -> Any:
    """The JSON of a key or a value."""
    import json  # imported late: other topics do not need it

    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"the {part}: not JSON: {error}", position=0) from None


def _decode_coordinator(
    topic: InternalTopic, types: RecordTypes, key: bytes | None, value: bytes | None
) -> InternalRecord:
    """A record whose key and value each begin with a version; the key's version is the type.

    An unknown type or version is not damage: the record has the reason.
    """
    if key is None:
        raise InvalidRecordError("the key: there is none")
    cursor = Cursor(key, "key")
    kind: int = cursor.unpack(_INT16, "the type")
    record_type = types.get(kind)
    if record_type is None:
        why = f"type {kind} is not known"
        return InternalRecord(topic, kind, key=key, value=value, reason=why)
    assert record_type.key is not None
    fields: Fields = message_reader(record_type.key, 0)(cursor)
    if value is None:
        return InternalRecord(topic, kind, record_type.name, key=fields)
    cursor = Cursor(value, "value")
    version: int = cursor.unpack(_INT16, "the version")
    record = InternalRecord(topic, kind, record_type.name, version, fields, value)
    return _with_value(record, record_type, cursor)


def _decode_metadata(
    topic: InternalTopic, key: bytes | None, value: bytes | None
) -> InternalRecord:
    """A record of the metadata log: a frame with type and version around the value."""
    if value is None:
        raise InvalidRecordError("the value: missing")
    cursor = Cursor(value, "value")
    frame = _frame_number(cursor, "the version of the frame")
    if frame != _FRAME_VERSION:
        why = f"frame version {frame} is not known"
        return InternalRecord(topic, key=key, value=value, reason=why)
    kind = _frame_number(cursor, "the type")
    version = _frame_number(cursor, "the version")
    types = record_types(topic)
    if kind not in types:
        why = f"type {kind} is not known"
        return InternalRecord(topic, kind, version=version, key=key, value=value, reason=why)
    name = types[kind].name
    record = InternalRecord(topic, kind, name, version, key, value)
    record = _with_value(record, types[kind], cursor)
    if record.reason is None and cursor.left:
        raise cursor.error(f"{cursor.left} bytes are left over after {name}")
    return record


def _frame_number(cursor: Cursor, what: str) -> int:
    """A number before a message of the metadata topics."""
    start = cursor.position
    number = cursor.uvarint(what)
    if not 0 <= number <= INT16_MAX:
        cursor.position = start
        raise cursor.error(f"{what} is {number}, and 0 to {INT16_MAX} is allowed")
    return number


def _with_value(record: InternalRecord, record_type: RecordType, cursor: Cursor) -> InternalRecord:
    """A record with the fields of its value; its bytes and a reason if the layout is not known.

    Of a newer version it has the fields of the newest known one if they fit. A flexible message
    gets further fields as tagged ones for the most part. Other changes leave bytes over, or are no
    value of the known version.

    Args:
        record: with the bytes of its value.
        record_type: its type.
        cursor: positioned at the first field of the value.
    """
    message = record_type.value
    name = record_type.name
    (lowest, newest), version = record_type.versions, record.version or 0
    reason = None
    if not lowest <= version <= newest:
        unknown = f"version {version} of {name} is not known, only {lowest} to {newest}"
        record = record._replace(reason=unknown)
        if version < lowest or not load()["messages"][message][str(newest)]["flexible"]:
            return record
        reason = f"version {version} of {name} is newer than {newest}, whose fields it has"
    try:
        content: Fields = message_reader(message, min(version, newest))(cursor)
    except InvalidRecordError:
        if reason is None:
            raise
        return record
    if reason is not None and cursor.left:
        return record
    _decode_embedded(message, content, cursor)
    unknown_tags = 0 if reason is None else cursor.unknown_tags
    return record._replace(value=content, reason=reason, unknown_tags=unknown_tags)


def _decode_embedded(message: str, content: Fields, cursor: Cursor) -> None:
    """Decode messages that a message has as bytes, if they are sound."""
    rule = load()["embedded"].get(message)
    if rule is None or any(content[name] != value for name, value in rule["when"].items()):
        return
    for item in content[rule["in"]]:
        for name, inner in rule["fields"].items():
            item[name] = _parse_embedded(inner, item[name], cursor)


def _parse_embedded(message: str, data: bytes, around: Cursor) -> Fields | bytes:
    """A message after its version; the bytes as they are if they cannot be read.

    Clients write these, newer ones than the broker too. A version above the highest is read as far
    as the highest goes, and the bytes after are ignored; but its structs are not known.

    Source: Kafka `ConsumerProtocol.deserializeSubscription`, `deserializeAssignment`.
    """
    cursor = Cursor(data, "value", around.items_left)
    highest = max(int(version) for version in load()["messages"][message])
    try:
        version: int = cursor.unpack(_INT16, "the version")
        fields: Fields = message_reader(message, min(max(version, 0), highest))(cursor)
    except InvalidRecordError:
        return data
    finally:
        around.items_left = cursor.items_left
    return data if version > highest and has_structs(fields) else fields


def has_structs(fields: Fields) -> bool:
    """Whether a message has structs, to which a newer version may have added fields."""
    values = fields.values()
    items = (item for value in values if isinstance(value, tuple) for item in value)
    return any(isinstance(value, dict) for value in (*values, *items))


ON_ERROR = ("raise", "raw")


class InternalRow(NamedTuple):
    """One record of a log, decoded.

    Attributes:
        partition: the partition that it comes from, if a scan knows it.
        offset: the offset of the record.
        timestamp: the time in ms; -1 for no time.
        record: the decoded record.
    """

    partition: int | None
    offset: int
    timestamp: int
    record: InternalRecord


class Readable(Protocol):
    """A log: it has a topic and can be read."""

    @property
    def topic(self) -> str | None:
        """Its topic, from the name of its directory."""

    @property
    def partition(self) -> int | None:
        """Its partition, from the name of its directory."""

    def read(self) -> Iterator[RecordColumns]:
        """Its records."""


#: Where records come from: one piece, many (as `kseg.scan` gives them), or a log.
Source = RecordColumns | Iterable[RecordColumns] | Readable


def pieces_of(source: Source, topic: str | None) -> Iterator[tuple[RecordColumns, InternalTopic]]:
    """The pieces of a source, each with the internal topic that it belongs to.

    Raises:
        ValueError: a piece's topic is unknown, or not one of Kafka's internal topics.
    """
    if isinstance(source, RecordColumns):
        pieces: Iterable[RecordColumns] = (source,)
    elif isinstance(source, Iterable):
        pieces = source  # type: ignore[assignment]  # columns, which iterate too, came first
    else:
        topic = topic or source.topic
        pieces = source.read()
    for columns in pieces:
        name = topic or columns.topic
        if name is None:
            raise ValueError("which topic the records belong to is not known: name it as `topic`")
        yield columns, InternalTopic(name)


def decode_or_keep(
    topic: InternalTopic | ConnectTopic, key: bytes | None, value: bytes | None
) -> tuple[InternalRecord, InvalidRecordError | None]:
    """`decode`; a record that does not fit its schema stays bytes, and the error says why."""
    try:
        return decode(topic, key, value), None
    except InvalidRecordError as error:
        reason = error.reason if error.position is None else f"{error.reason}, at {error.position}"
        return InternalRecord(topic, key=key, value=value, reason=reason), error


def rows(
    source: Source, topic: str | None = None, *, on_error: str = "raise"
) -> Iterator[InternalRow]:
    """Decode the records of an internal topic, one after the other; control records are left out.

    Args:
        source: a scan, a log, or record columns with `offset`, `timestamp`, `key` and `value`.
        topic: the topic of the records; None to use the source's.
        on_error: "raise" if a record does not fit its schema, or "raw" to keep its bytes, with
            the reason.

    Raises:
        ValueError: `on_error` is neither, or the topic is not known or not internal.
        InvalidRecordError: of "raise", with the segment and the offset.
        MissingFieldError: a column was not read.

    Example:
        >>> import pyarrow
        >>> from kseg.arrow import from_record_batch
        >>> fields = {"offset": [5], "timestamp": [0], "value": [None]}
        >>> gone = pyarrow.record_batch({**fields, "key": [bytes.fromhex("0002000141")]})
        >>> for row in rows(from_record_batch(gone), "__consumer_offsets"):
        ...     print(row.offset, row.record.name, row.record.key, row.record.is_tombstone)
        5 GROUP_METADATA {'group': 'A'} True
    """
    check_on_error(on_error)
    return _rows(source, topic, on_error)


def _rows(source: Source, topic: str | None, on_error: str) -> Iterator[InternalRow]:
    for columns, internal_topic in pieces_of(source, topic):
        yield from piece_rows(columns, internal_topic, on_error)


def piece_rows(
    columns: RecordColumns, topic: InternalTopic, on_error: str
) -> Iterator[InternalRow]:
    """The rows of one piece; see `rows`."""
    numbers = columns["offset"].tolist(), columns["timestamp_ms"].tolist()
    control: list[bool] = [False] * len(columns)
    if "control" in columns.fields:
        control = columns["control"].tolist()
    parts = zip(*numbers, columns["key"], columns["value"], control, strict=True)
    for offset, timestamp, key, value, is_control in parts:
        if is_control:
            continue
        record, error = decode_or_keep(topic, key, value)
        if error is not None and on_error == "raise":
            # The position of the error is not that of the file.
            raise InvalidRecordError(error.reason, path=columns.source, offset=offset) from error
        yield InternalRow(columns.partition, offset, timestamp, record)


def check_on_error(on_error: str) -> None:
    """Refuse an unknown `on_error`.

    Raises:
        ValueError: it is unknown.
    """
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error is raise or raw, not {on_error!r}")


def plain(value: Any) -> Any:
    """A decoded value in plain types: ids as Kafka prints them, arrays as lists."""
    kind = type(value)
    if kind is dict:
        return {name: plain(member) for name, member in value.items()}
    if kind is tuple:
        return [plain(item) for item in value]
    return id_text(value) if kind is UUID else value
