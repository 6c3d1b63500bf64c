"""Records and batches as rows of text: which fields, in which order, under which names.

A row is a template of pieces, which the text kernel fills in for thousands of rows per call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kseg.cli.row_writer import Piece, Template
from kseg.commands import csv_field, json_string, printable
from kseg.constants import Array, Compression, ControlType, TimestampType
from kseg.format import text as _text
from kseg.format.header import BatchTable
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns

#: Stands for a number in the broken contents of a compressed message; no batch can store it.
UNKNOWN = -(2**63)

_ENCODINGS = {"base64": _text.BASE64, "hex": _text.HEX, "utf8": _text.UTF8, "raw": _text.RAW}
#: The bits of a style that are its encoding.
_ENCODING = 3
_CODECS = (*(codec.label for codec in Compression), *(f"unknown{n}" for n in (5, 6, 7)), "unknown")
_TIMESTAMP_TYPES = tuple(kind.label for kind in TimestampType)
_CONTROL_TYPES = tuple(kind.name for kind in ControlType if kind is not ControlType.UNKNOWN)
_BOOLEANS = ("false", "true")
#: Enumerations that are a boolean or null in JSON.
_BARE = frozenset(("crc_ok",))


class Style(NamedTuple):
    """The form of rows.

    Attributes:
        form: `jsonl`, `csv` or `text`.
        encoding: of bytes: `base64`, `hex`, `utf8` (escaped), or `raw` (CSV files only).
        directory, file: names for columns `dir` and `file` of each row; None for no column.
    """

    form: str
    encoding: str = "base64"
    directory: str | None = None
    file: str | None = None

    @property
    def bytes_style(self) -> int:
        """The kernel's number for it."""
        exact = self.form == "jsonl" and self.encoding == "utf8"
        return (
            _ENCODINGS[self.encoding]
            | (_text.CSV if self.form == "csv" else 0)
            | (_text.EXACT if exact else 0)
        )


class Field(NamedTuple):
    """One field of a row: its name, the kind of its column, and for enumerations the names.

    Columns of kind `json` hold JSON in ASCII, those of kind `text` words; both are binary columns.
    `none` is the value that means absent. An `optional` field is left out where it is absent, in
    JSON too; all others are `null` there.
    """

    name: str
    kind: str = "int"
    names: tuple[str, ...] = ()
    first: int = 0
    none: int | None = None
    optional: bool = False


#: The fields of a record line, in order; `dir` and `file` precede them.
RECORD_FIELDS = (
    Field("position"),
    Field("base_offset"),
    Field("offset"),
    Field("next_offset", optional=True),
    Field("timestamp", "time"),
    Field("timestamp_type", "enum", _TIMESTAMP_TYPES, -1),
    Field("key", "bytes"),
    Field("value", "bytes"),
    Field("headers", "headers"),
    Field("magic"),
    Field("codec", "enum", _CODECS),
    Field("producer_id"),
    Field("producer_epoch"),
    Field("sequence"),
    Field("leader_epoch"),
    Field("transactional", "bool"),
    Field("control", "bool"),
    Field("delete_horizon_ms", "time", none=-1),
    Field("valid", "bool"),
    # -2 marks rows that are not control records; an unknown kind of control record is -1.
    Field("control_type", "enum", ("", "UNKNOWN", *_CONTROL_TYPES, "UNKNOWN"), -2, -2, True),
)

#: The fields of a batch line, in order.
BATCH_FIELDS = (
    Field("position"),
    Field("size"),
    Field("base_offset", none=UNKNOWN),
    Field("last_offset"),
    Field("count", none=UNKNOWN),
    Field("base_sequence"),
    Field("last_sequence"),
    Field("producer_id"),
    Field("producer_epoch"),
    Field("leader_epoch"),
    Field("transactional", "bool"),
    Field("control", "bool"),
    Field("delete_horizon_ms", "time", none=-1),
    Field("base_timestamp", "time"),
    Field("max_timestamp", "time"),
    Field("timestamp_type", "enum", _TIMESTAMP_TYPES, -1),
    Field("magic"),
    Field("codec", "enum", _CODECS),
    Field("crc"),
    Field("crc_ok", "enum", ("null", "false", "true"), -1),
)

#: Values that text leaves out: -1 of producers, create time, false.
_TEXT_QUIET = {
    "producer_id": -1,
    "producer_epoch": -1,
    "sequence": -1,
    "base_sequence": -1,
    "last_sequence": -1,
    "leader_epoch": -1,
    "delete_horizon_ms": -1,
    "timestamp_type": 0,
    "transactional": 0,
    "control": 0,
    "valid": 1,
    "codec": 0,
    "tombstone": 0,
    "type_id": UNKNOWN,
    "version": UNKNOWN,
}
_TEXT_ORDER = (
    *("offset", "timestamp", "type", "type_id", "version", "tombstone"),
    *("key", "key_error", "value", "value_error", "reason", "headers"),
)


def record_rows(
    columns: RecordColumns, style: Style, fields: tuple[Field, ...] = RECORD_FIELDS
) -> Template:
    """The template for a piece of records; fields that it does not hold are empty in CSV only."""
    return rows_of(held_columns(columns), style, fields)


def held_columns(columns: RecordColumns) -> dict[str, Any]:
    """The columns of a piece by the names of fields; of control records only, those have a type."""
    held = {name: columns.arrays[name] for name in columns.fields}
    control = held.get("control")
    if control is None or not control.any():
        held.pop("control_type", None)
    elif "control_type" in held:
        held["control_type"] = np.where(control, held["control_type"], np.int8(-2))
    return held


def rows_of(held: dict[str, Any], style: Style, fields: tuple[Field, ...]) -> Template:
    """The template for columns by the names of their fields."""
    # Lines of JSON hold the existing fields; lines of CSV hold as many as the head.
    chosen = fields if style.form == "csv" else tuple(f for f in fields if f.name in held)
    return field_rows([(field, held.get(field.name)) for field in chosen], style)


def batch_rows(table: BatchTable, style: Style) -> Template:
    """The template for a table of batches."""
    held: dict[str, Array] = {
        "count": table.record_count,
        "transactional": table.is_transactional,
        "control": table.is_control,
    }
    columns = [
        (field, held[field.name] if field.name in held else getattr(table, field.name))
        for field in BATCH_FIELDS
    ]
    return field_rows(columns, style)


def csv_head(fields: tuple[Field, ...], style: Style) -> bytes:
    """The first line of CSV: `dir` and `file` where the style has them, then the fields."""
    places = {"dir": style.directory, "file": style.file}
    names = [name for name, text in places.items() if text is not None]
    return (",".join([*names, *(field.name for field in fields)]) + "\r\n").encode()


def field_rows(columns: list[tuple[Field, Any]], style: Style) -> Template:
    """The template for any fields and their columns, in the form that the style asks for."""
    if style.form == "jsonl":
        return _json_template(columns, style)
    if style.form == "csv":
        return _csv_template(columns, style)
    return _text_template(columns, style)


def _json_template(columns: list[tuple[Field, Any]], style: Style) -> Template:
    pieces: list[Piece] = []
    lead = b"{"
    for name, text in (("dir", style.directory), ("file", style.file)):
        if text is not None:
            pieces.append((_text.TEXT, lead + json_string(name) + b":" + json_string(text)))
            lead = b","
    for field, column in columns:
        null = None if field.optional else b"null"
        name_lead = lead + json_string(field.name) + b":"
        pieces.append(_piece(field, column, name_lead, null, style, quote=b'"', times=False))
        lead = b","
    return (*pieces, (_text.TEXT, b"}\n"))


def _csv_template(columns: list[tuple[Field, Any]], style: Style) -> Template:
    pieces: list[Piece] = []
    lead = b""
    for text in (style.directory, style.file):
        if text is not None:
            pieces.append((_text.TEXT, lead + csv_field(text)))
            lead = b","
    for field, column in columns:
        if column is None:
            pieces.append((_text.TEXT, lead))
        else:
            pieces.append(_piece(field, column, lead, b"", style, quote=b"", times=False))
        lead = b","
    return (*pieces, (_text.TEXT, b"\r\n"))


def _text_template(columns: list[tuple[Field, Any]], style: Style) -> Template:
    """`name=value` pairs: `dir` if it is wanted, the most wanted, then others that have a value."""
    order = {name: rank for rank, name in enumerate(_TEXT_ORDER)}
    ranked = sorted(columns, key=lambda pair: order.get(pair[0].name, len(order)))
    pieces: list[Piece] = []
    lead = b""
    if style.directory is not None:
        pieces.append((_text.TEXT, b"dir=" + printable(style.directory).encode()))
        lead = b" "
    for field, column in ranked:
        quiet = _TEXT_QUIET.get(field.name)
        silent = field.optional or field.kind in ("headers", "text")
        null = None if quiet is not None or silent else b"-"
        if field.kind in ("bytes", "json") or field.name in ("key", "value"):
            null = b"null"
        shown = field._replace(none=quiet) if quiet is not None else field
        name_lead = lead + field.name.encode() + b"="
        pieces.append(_piece(shown, column, name_lead, null, style, quote=b"", times=True))
        lead = b" "
    return (*pieces, (_text.TEXT, b"\n"))


def _piece(
    field: Field,
    column: Any,
    lead: bytes,
    null: bytes | None,
    style: Style,
    *,
    quote: bytes,
    times: bool,
) -> Piece:
    if field.kind == "bytes":
        return _bytes_piece(column, lead, null, style.bytes_style)
    if field.kind in ("json", "text"):
        return _bytes_piece(column, lead, null, _text_style(field.kind, style))
    if field.kind == "headers":
        return headers_piece(column, lead, null, style.bytes_style)
    if field.kind == "time" and times:
        return (_text.TIME, lead, null, column)
    if field.kind in ("int", "time"):
        return (_text.INT, lead, null, column, field.none)
    # Of booleans and enumerations the whole text of each value, with its lead, is a name.
    names = _BOOLEANS if field.kind == "bool" else field.names
    around = b"" if field.name in _BARE or field.kind == "bool" else quote
    texts = [lead + around + name.encode() + around for name in names]
    if field.none is not None:
        texts[field.none - field.first] = b"" if null is None else lead + null
    return (_text.ENUM, b"", null, column, tuple(texts), field.first)


def _bytes_piece(column: BinaryColumn, lead: bytes, null: bytes | None, style: int) -> Piece:
    return (_text.BYTES, lead, null, style, column.offsets, column.data, column.validity)


def _text_style(kind: str, style: Style) -> int:
    """The kernel's number for text: JSON as it is, which is ASCII; words as a string."""
    if kind == "text":
        encoding = _text.RAW if style.encoding == "raw" else _text.UTF8
        return encoding | (_text.CSV if style.form == "csv" else 0)
    return _text.RAW | (_text.CSV if style.form == "csv" else _text.BARE)


def headers_piece(column: HeadersColumn, lead: bytes, null: bytes | None, style: int) -> Piece:
    """A column of headers behind `lead`."""
    keys, values = column.keys, column.values
    sources = (keys.offsets, keys.data, values.offsets, values.data, values.validity)
    if style & _ENCODING == _text.RAW:  # an element of a JSON list is a JSON string
        style += _text.UTF8 - _text.RAW
    return (_text.HEADERS, lead, null, style, column.offsets, *sources)
