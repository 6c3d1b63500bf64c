"""Records of internal topics as rows: their keys and values decoded.

A row has the fields of any record, in between them `type`, `type_id`, `version`, `tombstone` and
`reason`; `key` and `value` are JSON objects. A record of an unknown type or version, or one that
does not match its schema, has its bytes there, and the `reason` says why.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import numpy as np

from kseg.cli.rows import RECORD_FIELDS, UNKNOWN, Field, Style, Template, held_columns, rows_of
from kseg.constants import ConnectTopic, Int64s, InternalTopic
from kseg.errors import InvalidRecordError
from kseg.format.values import RecordColumns, binary_column
from kseg.internal.ids import id_text
from kseg.internal.log_rows import decode_or_keep
from kseg.internal.records import InternalRecord

#: Records decoded at a time: their rows stay in memory until they are written.
_ROWS_MAX: Final = 1024
_BYTES_MAX: Final = 1 << 20


def _fields() -> Iterator[Field]:
    for field in RECORD_FIELDS:
        if field.name == "key":
            yield Field("type", "text")
            yield Field("type_id", none=UNKNOWN)
            yield Field("version", none=UNKNOWN)
            yield Field("tombstone", "bool")
        if field.name in ("key", "value"):
            yield Field(field.name, "json")
        else:
            yield field
        if field.name == "value":
            yield Field("reason", "text")


#: The fields of a decoded record's line, in order.
DECODED_FIELDS: Final = tuple(_fields())


#: The rows of a few records, how many they are, and the errors of records that do not fit their
#: schemas, with their offsets.
Decoded = tuple[Template, int, list[InvalidRecordError]]


def decoded_rows(
    columns: RecordColumns, topic: InternalTopic | ConnectTopic, style: Style
) -> Iterator[Decoded]:
    """The rows of a piece of records, a few at a time.

    Args:
        columns: the piece, with the fields of a record's line.
        topic: by whose schemas they are decoded.
        style: of the rows.
    """
    sizes = columns.key.sizes().astype(np.int64) + columns.value.sizes()
    used = np.cumsum(np.maximum(sizes, 0))
    first = 0
    while first < len(columns):
        room = _BYTES_MAX + (int(used[first - 1]) if first else 0)
        end = min(
            len(columns),
            first + _ROWS_MAX,
            max(first + 1, int(np.searchsorted(used, room, "right"))),
        )
        yield _decoded(columns[first:end], topic, style)
        first = end


def _decoded(columns: RecordColumns, topic: InternalTopic | ConnectTopic, style: Style) -> Decoded:
    records, faults = _records(columns, topic)
    reasons = [None if record.reason is None else record.reason.encode() for record in records]
    held = held_columns(columns)
    held |= {
        "type": binary_column(
            [None if record.name is None else record.name.encode() for record in records]
        ),
        "type_id": _numbers([record.type for record in records]),
        "version": _numbers([record.version for record in records]),
        "tombstone": np.array(
            [record.name is not None and record.is_tombstone for record in records]
        ),
        "key": binary_column([_json(record.key, style) for record in records]),
        "value": binary_column([_json(record.value, style) for record in records]),
        "reason": binary_column(reasons),
    }
    return rows_of(held, style, DECODED_FIELDS), len(columns), faults


def _records(
    columns: RecordColumns, topic: InternalTopic | ConnectTopic
) -> tuple[list[InternalRecord], list[InvalidRecordError]]:
    records = []
    faults = []
    parts = zip(columns.key, columns.value, columns.control.tolist(), strict=True)
    for row, (key, value, control) in enumerate(parts):
        if control:  # the batch's own description, by its own schemas
            records.append(InternalRecord(topic, None, None, None, key, value))
            continue
        record, error = decode_or_keep(topic, key, value)
        records.append(record)
        if error is not None:
            position = int(columns.position[row])
            offset = int(columns.offset[row])
            faults.append(InvalidRecordError(error.reason, position=position, offset=offset))
    return records, faults


def _numbers(values: list[int | None]) -> Int64s:
    return np.array([UNKNOWN if value is None else value for value in values], np.int64)


def _json(value: dict[str, Any] | bytes | None, style: Style) -> bytes | None:
    """A key or value as JSON in ASCII, so that it steers no terminal; None for null."""
    if value is None:
        return None
    if isinstance(value, bytes):
        text = json.dumps(_bytes(value, style))
    else:
        try:
            text = _ENCODER.encode(value)
        except ValueError:  # a number that JSON does not have
            text = _ENCODER.encode(_without_nan(value))
    return text.replace("\x7f", "\\u007f").encode()


def _bytes(value: bytes, style: Style) -> str | dict[str, str]:
    """Bytes in the encoding of a style; bytes that are not UTF-8 stand in base64."""
    if style.encoding == "hex":
        return value.hex()
    if style.encoding == "utf8":
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return base64.b64encode(value).decode()


def _plain(value: object) -> str:
    """A value of a type that JSON lacks, as Kafka prints it."""
    if isinstance(value, UUID):
        return id_text(value)
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


#: One for all records: making one takes as long as a small record.
_ENCODER: Final = json.JSONEncoder(default=_plain, separators=(",", ":"), allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(field) for name, field in value.items()}
    if isinstance(value, tuple):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    return value
