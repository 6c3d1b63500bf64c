"""Records of internal topics as Arrow tables: one table for each type of record.

| column | content |
|---|---|
| partition | where a scan knows it, else null |
| offset, timestamp | of the record; the time is null where it has none |
| version | of the value's layout |
| tombstone | whether the record deletes the object that its key names |
| key, value | structs with the fields of every version; null where a version has no such field |
| key_bytes, value_bytes | of a record that stays bytes, else null |
| reason | why it does, else null |

Ids are text as Kafka prints them. `subscription` and `assignment` of a group's members are structs
where they could be decoded; where not, `subscription_bytes` and `assignment_bytes` have them.
Records without a known type make a table of their own, `UNKNOWN`, which has a `type` and no
structs; nor have the metadata topics a `key`.

Needs the `[arrow]` extra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kseg.arrow import TYPES, timestamp_array
from kseg.extras import require
from kseg.internal.records import InternalRow, Source, check_on_error, piece_rows, pieces_of, plain
from kseg.internal.schemas import RecordType, Schema, load, record_types

if TYPE_CHECKING:
    import pyarrow as pa

    from kseg.constants import InternalTopic
    from kseg.format.values import RecordColumns
else:
    pa = require("pyarrow", extra="arrow")

#: The table of records whose type is not known.
UNKNOWN: Final = "UNKNOWN"
_SIMPLE: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "uuid": pa.string(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_BYTES: Final = "_bytes"
#: Makes an array of a type from rows.
_ArrayOf = Callable[[list[InternalRow], pa.DataType], pa.Array]


# ---- tables --------------------------------------------------------------------------------------


def tables(
    source: Source, topic: str | None = None, *, on_error: str = "raise"
) -> dict[str, pa.Table]:
    """The records of an internal topic as a table for each type of record that there is.

    Args:
        source: as for `rows`.
        topic: as for `record_batches`.
        on_error: as for `record_batches`.

    Returns:
        Tables, keyed by the names of types, such as OFFSET_COMMIT; memory grows with the data.

    Raises:
        ValueError, InvalidRecordError, MissingFieldError: as for `rows`.

    Example:
        >>> from kseg.arrow import from_record_batch
        >>> fields = {"offset": [5], "timestamp": [0], "value": [None]}
        >>> gone = pa.record_batch({**fields, "key": [bytes.fromhex("0002000141")]})
        >>> found = tables(from_record_batch(gone), "__consumer_offsets")
        >>> found["GROUP_METADATA"].select(["offset", "key", "tombstone"]).to_pylist()
        [{'offset': 5, 'key': {'group': 'A'}, 'tombstone': True}]
    """
    check_on_error(on_error)
    parts: dict[str, list[pa.RecordBatch]] = {}
    for columns, internal_topic in pieces_of(source, topic):
        for name, batch in _batches(columns, internal_topic, on_error).items():
            parts.setdefault(name, []).append(batch)
    return {name: pa.Table.from_batches(batches) for name, batches in parts.items()}


def record_batches(
    columns: RecordColumns, topic: str | None = None, *, on_error: str = "raise"
) -> dict[str, pa.RecordBatch]:
    """The records of one piece as a record batch for each type of record.

    Read piece by piece, a long log takes no more memory than its largest piece.

    Args:
        columns: records with `offset`, `timestamp`, `key` and `value`.
        topic: the internal topic; that of the columns if None.
        on_error: as for `rows`.

    Returns:
        A record batch for each type of record in the piece, by its name.

    Raises:
        ValueError, InvalidRecordError, MissingFieldError: as for `rows`.
    """
    check_on_error(on_error)
    ((piece, internal_topic),) = pieces_of(columns, topic)
    return _batches(piece, internal_topic, on_error)


def _batches(
    columns: RecordColumns, topic: InternalTopic, on_error: str
) -> dict[str, pa.RecordBatch]:
    """The records of a piece as a record batch for each type."""
    rows_by_type: dict[str, list[InternalRow]] = {}
    for row in piece_rows(columns, topic, on_error):
        rows_by_type.setdefault(row.record.name or UNKNOWN, []).append(row)
    return {name: _batch(topic, name, rows) for name, rows in rows_by_type.items()}


def _batch(topic: InternalTopic, name: str, rows: list[InternalRow]) -> pa.RecordBatch:
    schema = table_schema(topic, name)
    arrays = [_ARRAYS[field.name](rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fields_of(message: Any) -> dict[str, Any] | None:
    """A decoded key or value in the form that Arrow needs; None for bytes.

    Messages that members carry have two columns: one for the fields, one for undecoded bytes.
    """
    if not isinstance(message, dict):
        return None
    row: dict[str, Any] = plain(message)
    for rule in _embedded_rules(frozenset(row)):
        for item in row[rule["in"]]:
            for name in rule["fields"]:
                if isinstance(item[name], bytes):
                    item[name + _BYTES], item[name] = item[name], None
    return row


def _embedded_rules(names: frozenset[str]) -> list[Any]:
    rules = load()["embedded"].values()
    return [rule for rule in rules if {rule["in"], *rule["when"]} <= names]


def _bytes_of(message: Any) -> bytes | None:
    return message if isinstance(message, bytes) else None


def _column(path: str, shown: Callable[[Any], Any] = lambda value: value) -> _ArrayOf:
    """A function that makes an array of one attribute of rows, named by a dotted path."""
    get = attrgetter(path)
    return lambda rows, kind: pa.array([shown(get(row)) for row in rows], kind)


_ARRAYS: Final[Mapping[str, _ArrayOf]] = {
    "partition": _column("partition"),
    "offset": _column("offset"),
    "timestamp": lambda rows, _kind: timestamp_array(
        np.array([row.timestamp for row in rows], np.int64)
    ),
    "type": _column("record.type"),
    "version": _column("record.version"),
    "tombstone": _column("record.is_tombstone"),
    "key": _column("record.key", _fields_of),
    "value": _column("record.value", _fields_of),
    "key_bytes": _column("record.key", _bytes_of),
    "value_bytes": _column("record.value", _bytes_of),
    "reason": _column("record.reason"),
}


# ---- schemas -------------------------------------------------------------------------------------


@cache
def table_schema(topic: str, name: str) -> pa.Schema:
    """The schema of the table of one type of record.

    Args:
        topic: an internal topic.
        name: the name of the type, such as OFFSET_COMMIT; or UNKNOWN.

    Raises:
        ValueError: the topic is not internal, or has no such type.
    """
    fields = {
        "partition": TYPES["partition"],
        "offset": TYPES["offset"],
        "timestamp": TYPES["timestamp"],
        **({"type": pa.int32()} if name == UNKNOWN else {}),
        "version": pa.int32(),
        "tombstone": pa.bool_(),
        **({} if name == UNKNOWN else _messages(_record_type(topic, name))),
        "key_bytes": pa.binary(),
        "value_bytes": pa.binary(),
        "reason": pa.string(),
    }
    return pa.schema(fields.items())


def _record_type(topic: str, name: str) -> RecordType:
    types = {record_type.name: record_type for record_type in record_types(topic).values()}
    if name not in types:
        raise ValueError(f"{topic} has no records {name!r}, only {', '.join((*types, UNKNOWN))}")
    return types[name]


def _messages(record_type: RecordType) -> dict[str, pa.DataType]:
    parts = {"key": record_type.key, "value": record_type.value}
    return {part: _message(name) for part, name in parts.items() if name is not None}


@cache
def _message(name: str) -> pa.DataType:
    """The struct of a message: the fields of all its versions, older ones first."""
    versions = load()["messages"][name]
    by_version = [versions[number]["fields"] for number in sorted(versions, key=int)]
    return pa.struct(_struct_fields(by_version, load()["embedded"].get(name, {})))


def _struct_fields(lists: list[list[Schema]], rule: Schema) -> list[pa.Field]:
    """The fields of several versions of a struct.

    Args:
        lists: the fields of each version.
        rule: `embedded` in the schemas: which fields of which array in it are messages as bytes.
    """
    by_name: dict[str, list[Schema]] = {}
    for fields in lists:
        for field in fields:
            by_name.setdefault(field["name"], []).append(field)
    arrow_fields = []
    for name, versions in by_name.items():
        inner = rule["fields"] if name == rule.get("in") else {}
        arrow_fields.append(pa.field(name, _type(versions, inner)))
    return arrow_fields


def _type(versions: list[Schema], inner: Mapping[str, str]) -> pa.DataType:
    """The type of one field.

    Args:
        versions: the schema of each version.
        inner: messages that its structs carry as bytes, keyed by the names of the fields.
    """
    kind = versions[0]["type"].removeprefix("compact_")
    if kind == "array":
        return pa.list_(_type([version["items"] for version in versions], inner))
    if kind != "struct":
        return _SIMPLE[kind]
    fields = []
    for field in _struct_fields([version["fields"] for version in versions], {}):
        if field.name in inner:
            fields += [field.with_type(_message(inner[field.name]))]
            fields += [pa.field(field.name + _BYTES, pa.binary())]
        else:
            fields.append(field)
    return pa.struct(fields)
