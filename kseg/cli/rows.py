"""Records and batches as rows of text: which fields, in which order, under which names.

A row is a template of pieces, which the text kernel fills in for thousands of rows per call, into
one buffer however large a row is. A row that may not fit the buffer is written piece by piece, its
values in parts; that is the only case in which Python runs per row.

A decoded key or value that is JSON is written as it is, on one line and in ASCII; a number as in
JSON. The reason why a value does not decode is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kseg.commands import csv_field, json_string, printable
from kseg.constants import INT64_MIN, Array, Compression, ControlType, TimestampType
from kseg.format import text as _text
from kseg.format.header import BatchTable
from kseg.format.reader import Workspace
from kseg.format.typed import BYTES, ERRORS, SCHEMA_IDS, SCHEMA_NAMES, Kinds
from kseg.format.values import (
    BinaryColumn,
    HeadersColumn,
    Kind,
    RecordColumns,
    TypedColumn,
    binary_column,
)
from kseg.workers import Buffer

Piece = tuple[Any, ...]
#: The pieces of a row, with the columns that fill them.
Template = tuple[Piece, ...]

#: Stands for a number in the broken contents of a compressed message; no batch can store it.
UNKNOWN = INT64_MIN

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
        encoding: the encoding of bytes: `base64`, `hex`, `utf8` (escaped), or `raw` (CSV files
            only).
        directory, file: names for columns `dir` and `file` of each row; None for no column.
    """

    form: str
    encoding: str = "base64"
    directory: str | None = None
    file: str | None = None

    @property
    def bytes_style(self) -> int:
        """The kernel's number for the form and the encoding of binary values."""
        exact = self.form == "jsonl" and self.encoding == "utf8"
        return (
            _ENCODINGS[self.encoding]
            | (_text.CSV if self.form == "csv" else 0)
            | (_text.EXACT if exact else 0)
        )


class Field(NamedTuple):
    """One field of a row.

    Attributes:
        name: the name of the field.
        kind: the kind of its column. Columns of kind `json` hold JSON in ASCII, those of kind
            `text` words; both are binary columns.
        names: the names of the values of an enumeration.
        first: the value of an enumeration that has the first name.
        none: the value that means absent; None if there is no such value.
        optional: whether the field is left out where it is absent, also in JSON; other absent
            fields are `null` there.
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

#: Field -> the value that text leaves out: -1 of producers, create time, false.
_TEXT_OMITS = {
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
#: The fields that come first in text, in this order.
_TEXT_ORDER = (
    "offset",
    "timestamp",
    "type",
    "type_id",
    "version",
    "tombstone",
    "key",
    "key_error",
    "value",
    "value_error",
    "reason",
    "headers",
)


def held_columns(columns: RecordColumns) -> dict[str, Any]:
    """Name of a field -> its column in a piece; `control_type` only if it has control records."""
    held = {name: columns.arrays[name] for name in columns.fields}
    control = held.get("control")
    if control is None or not control.any():
        held.pop("control_type", None)
    elif "control_type" in held:
        # -2 stands for a record that is not a control record: its cell is empty.
        held["control_type"] = np.where(control, held["control_type"], np.int8(-2))
    return held


def rows_of(held: dict[str, Any], style: Style, fields: tuple[Field, ...]) -> Template:
    """The template for some columns.

    Args:
        held: name of a field -> its column.
        style: the style of the rows.
        fields: the fields of a row, in order.
    """
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
    return (_text_template if style.form == "text" else _data_template)(columns, style)


def _data_template(columns: list[tuple[Field, Any]], style: Style) -> Template:
    """Lines of JSON, or of CSV: `dir` and `file` where the style has them, then the fields."""
    is_json = style.form == "jsonl"
    pieces: list[Piece] = []
    lead = b"{" if is_json else b""
    for name, text in (("dir", style.directory), ("file", style.file)):
        if text is not None:
            named = json_string(name) + b":" + json_string(text) if is_json else csv_field(text)
            pieces.append((_text.TEXT, lead + named))
            lead = b","
    for field, column in columns:
        if is_json:
            null = None if field.optional else b"null"
            name_lead = lead + json_string(field.name) + b":"
            pieces.append(_piece(field, column, name_lead, null, style))
        elif column is None:
            pieces.append((_text.TEXT, lead))
        else:
            pieces.append(_piece(field, column, lead, b"", style))
        lead = b","
    return (*pieces, (_text.TEXT, b"}\n" if is_json else b"\r\n"))


def _text_template(columns: list[tuple[Field, Any]], style: Style) -> Template:
    """`name=value` pairs: `dir` if the style has it, the fields of `_TEXT_ORDER`, then others."""
    order = {name: rank for rank, name in enumerate(_TEXT_ORDER)}
    ranked = sorted(columns, key=lambda pair: order.get(pair[0].name, len(order)))
    pieces: list[Piece] = []
    lead = b""
    if style.directory is not None:
        pieces.append((_text.TEXT, b"dir=" + printable(style.directory).encode()))
        lead = b" "
    for field, column in ranked:
        omitted = _TEXT_OMITS.get(field.name)
        may_lack = field.optional or field.kind in ("headers", "text")
        null = None if omitted is not None or may_lack else b"-"
        if field.kind in ("bytes", "json") or field.name in ("key", "value"):
            null = b"null"
        shown = field._replace(none=omitted) if omitted is not None else field
        name_lead = lead + field.name.encode() + b"="
        pieces.append(_piece(shown, column, name_lead, null, style))
        lead = b" "
    return (*pieces, (_text.TEXT, b"\n"))


def _piece(field: Field, column: Any, lead: bytes, null: bytes | None, style: Style) -> Piece:
    """The piece of a template for a field.

    Args:
        field: the name and the kind of the field.
        column: its values.
        lead: the text before each value.
        null: the text for an absent value, after the lead; None to leave out the lead as well.
        style: the style of the rows.
    """
    if field.kind == "bytes":
        return bytes_piece(lead, column, style.bytes_style, null)
    if field.kind in ("json", "text"):
        return bytes_piece(lead, column, _text_style(field.kind, style), null)
    if field.kind == "headers":
        listed = style.bytes_style
        if listed & _ENCODING == _text.RAW:  # an element of a JSON list is a JSON string
            listed += _text.UTF8 - _text.RAW
        return headers_piece(column, lead, null, listed)
    if field.kind == "time" and style.form == "text":
        return (_text.TIME, lead, null, column)
    if field.kind in ("int", "time"):
        return (_text.INT, lead, null, column, field.none)
    # The kernel's names for booleans and enumerations are whole texts: the lead and the value.
    names = _BOOLEANS if field.kind == "bool" else field.names
    is_bare = style.form != "jsonl" or field.name in _BARE or field.kind == "bool"
    around = b"" if is_bare else b'"'
    texts = [lead + around + name.encode() + around for name in names]
    if field.none is not None:
        texts[field.none - field.first] = b"" if null is None else lead + null
    return (_text.ENUM, b"", null, column, tuple(texts), field.first)


def bytes_piece(lead: bytes, column: BinaryColumn, style: int, null: bytes | None = None) -> Piece:
    """The piece for a binary column after `lead`; for `null` see `_piece`."""
    return (_text.BYTES, lead, null, style, column.offsets, column.data, column.validity)


def _text_style(kind: str, style: Style) -> int:
    """The kernel's style for text: JSON as it is, as it is ASCII; words as a string."""
    if kind == "text":
        encoding = _text.RAW if style.encoding == "raw" else _text.UTF8
        return encoding | (_text.CSV if style.form == "csv" else 0)
    return _text.RAW | (_text.CSV if style.form == "csv" else _text.BARE)


def headers_piece(column: HeadersColumn, lead: bytes, null: bytes | None, style: int) -> Piece:
    """The piece for a column of headers after `lead`; for `null` see `_piece`."""
    keys = column.keys
    values = column.values
    sources = (keys.offsets, keys.data, values.offsets, values.data, values.validity)
    return (_text.HEADERS, lead, null, style, column.offsets, *sources)


# ---- writing -------------------------------------------------------------------------------------

#: Small enough for the cache, large enough to make system calls rare.
BUFFER_BYTES = 1 << 19
#: The bytes of bodies in a piece of records.
_PIECE_BYTES = 2 << 20
_TEXTS = (_text.UTF8, _text.RAW)
#: Writes a view of bytes.
Write = Callable[[memoryview], object]


class RowWriter:
    """Writes rows through a buffer of its own. Not for several threads at once.

    A row that the buffer does not hold is written piece by piece, and a large value part by part.
    """

    def __init__(self, write: Write | None = None, buffer_bytes: int | None = None) -> None:
        """Write through `write`; None if `to` sets it later."""
        self._buffer = memoryview(Buffer(buffer_bytes or BUFFER_BYTES))
        self.to(write or _nowhere)

    def to(self, write: Write) -> RowWriter:
        """Write through `write` from now on; returns this writer.

        When `write` returns, it no longer needs the bytes; or it keeps them and returns another
        buffer, see `kseg.workers.Put`.
        """
        self._write = write
        self.replaced = 0  #: values of CSV that differ from the log's bytes
        self.is_empty = True  #: whether no row was written
        return self

    def rows(self, template: Template, count: int, start: int = 0) -> None:
        """Write rows `start` to `count`."""
        row = start
        replacing = inexact(template)
        self.is_empty = self.is_empty and row >= count
        while row < count:
            end = _text.write_rows(template, row, count, self._buffer)
            if end.written:
                self._send(end.written)
                self._count_replaced(replacing, row, end.next_row)
            elif end.next_row < count:
                self._large_row(template, end.next_row)
                row = end.next_row + 1
                continue
            row = end.next_row

    def _send(self, size: int) -> None:
        """Write the first bytes of the buffer."""
        other = self._write(self._buffer[:size])
        if isinstance(other, Buffer):
            self._buffer = memoryview(other)

    def _count_replaced(self, template: Template, start: int, stop: int) -> None:
        """Count the values in these rows that are not UTF-8, so that text replaces some bytes."""
        for piece in template:
            if piece[0] == _text.BYTES:
                *_, offsets, data, _validity = piece
                count = _text.count_not_utf8(offsets, data, start, stop)
            else:
                # Headers: `offsets` are those of the rows, `value_offsets` those of the values.
                *_, offsets, _key_offsets, _keys, value_offsets, data, _validity = piece
                first, end = int(offsets[start]), int(offsets[stop])
                count = _text.count_not_utf8(value_offsets, data, first, end)
            self.replaced += count

    def _large_row(self, template: Template, row: int) -> None:
        """Write a row that the buffer does not hold."""
        for piece in template:
            end = _text.write_rows((piece,), row, row + 1, self._buffer)
            if end.next_row > row or piece[0] == _text.BYTES:
                if end.next_row > row:
                    self._send(end.written)
                else:
                    self._large_value(piece, row)
                self._count_replaced(inexact((piece,)), row, row + 1)
            elif piece[0] == _text.HEADERS:
                self._large_headers(piece, row)
            else:
                raise AssertionError("a constant longer than the buffer")

    def _large_value(self, piece: Piece, row: int) -> None:
        """Write a binary value that the buffer does not hold: the quotes, and its text in parts."""
        _kind, lead, _null, style, offsets, data, _validity = piece
        quote = b'""' if style & _text.NESTED else b'"'
        if style & _text.BARE:
            quote = b""
        left = memoryview(data)[offsets[row] : offsets[row + 1]]
        close = b""
        if style & _text.EXACT and _text.count_not_utf8(offsets, data, row, row + 1):
            style = _text.BASE64
            lead = lead + b"{" + quote + b"base64" + quote + b":"
            close = b"}"
        self._write(memoryview(lead + quote))
        while left:
            end = _text.encode_bytes(left, style, True, self._buffer)
            self._send(end.written)
            left = left[end.used :]
        self._write(memoryview(quote + close))

    def _large_headers(self, piece: Piece, row: int) -> None:
        """The headers of one row as rows of their own, a comma before all but one."""
        _kind, lead, _null, style, offsets, *sources = piece
        first = int(offsets[row])
        end = int(offsets[row + 1])
        if style & _text.BARE:
            self._write(memoryview(lead + b"["))
            for comma, start, stop in ((b"", first, min(first + 1, end)), (b",", first + 1, end)):
                self.rows(((_text.BYTES, comma, None, style, *sources[:2], None),), stop, start)
            self._write(memoryview(b"]"))
            return
        around = b'"' if style & _text.CSV else b""
        self._write(memoryview(lead + around + b"["))
        self.rows(_header_rows(b"[", style, *sources), min(first + 1, end), first)
        self.rows(_header_rows(b",[", style, *sources), end, first + 1)
        self._write(memoryview(b"]" + around))


def _nowhere(_text: memoryview) -> None:
    raise AssertionError("rows without a place to go")


def dump_workspace() -> Workspace:
    """Memory for a piece whose rows are written at once.

    Python's work for a piece costs more than columns of a piece this large, which exceed the
    second-level cache.
    """
    return Workspace(piece_bytes=_PIECE_BYTES)


def inexact(template: Template) -> Template:
    """The pieces whose bytes are written as text of CSV, even if they are not UTF-8."""
    return tuple(
        piece
        for piece in template
        if piece[0] in (_text.BYTES, _text.HEADERS) and _may_replace(piece[3])  # its style
    )


def _may_replace(style: int) -> bool:
    """Whether bytes in a style of CSV are text, so that those that are not UTF-8 are replaced."""
    return style & (_text.CSV | _text.EXACT) == _text.CSV and style & _ENCODING in _TEXTS


def _header_rows(
    lead: bytes,
    style: int,
    key_offsets: Any,
    key_data: Any,
    value_offsets: Any,
    value_data: Any,
    validity: Any,
) -> Template:
    """The template for headers as rows: `[name,value]` each, without a comma between them."""
    nested = style | _text.NESTED if style & _text.CSV else style
    key_style = _text.UTF8 | _text.EXACT | (nested & (_text.CSV | _text.NESTED))
    name = (_text.BYTES, lead, b"", key_style, key_offsets, key_data, None)
    value = (_text.BYTES, b",", b"null", nested, value_offsets, value_data, validity)
    return (name, value, (_text.TEXT, b"]"))


if TYPE_CHECKING:
    pass
#: Fields that say where a record is, which only exported files have.
PLACE_FIELDS: Final = ("topic", "partition")
#: The values of `kseg export --fields`.
FIELD_NAMES: Final = (
    *PLACE_FIELDS,
    *(field.name for field in RECORD_FIELDS),
    "timestamp_ms",
    *ERRORS.values(),
    *SCHEMA_IDS.values(),
    *SCHEMA_NAMES.values(),
)
_WORDS: Final = (Kind.TEXT, Kind.UUID)
_SPACES: Final = (0x09, 0x0A, 0x0D)
_ASCII_MAX: Final = 0x7E
_NOT_ASCII: Final = re.compile(r"[^ -~]")
#: A float as text: sign, 17 digits, point and exponent.
_NUMBER_BYTES_MAX: Final = 32


def typed_fields(kinds: Kinds, *, keep_bytes: bool = False) -> tuple[Field, ...]:
    """The fields of a record's line; the reason for a null of a decoded field follows the field.

    Args:
        kinds: the kinds of the decoded fields.
        keep_bytes: add the fields on request: the bytes of values that do not decode, and the id
            and the name of the schema.
    """
    return tuple(_fields(kinds, keep_bytes=keep_bytes))


def _fields(kinds: Kinds, *, keep_bytes: bool) -> Iterator[Field]:
    """The fields of rows; a decoded key or value has columns for its reason and bytes after it."""
    for field in RECORD_FIELDS:
        if field.name not in kinds:
            yield field
            continue
        yield Field(field.name, "text" if kinds[field.name] in _WORDS else "json")
        yield Field(ERRORS[field.name], "text")
        if keep_bytes:
            yield Field(BYTES[field.name], "bytes")
            yield Field(SCHEMA_IDS[field.name], "json")
            yield Field(SCHEMA_NAMES[field.name], "text")


def record_rows(
    columns: RecordColumns, style: Style, fields: tuple[Field, ...] = RECORD_FIELDS
) -> Template:
    """The template for a piece of records; CSV has empty cells for fields it does not hold."""
    held = held_columns(columns)
    for name, column in columns.arrays.items():
        if isinstance(column, TypedColumn):
            held[name] = _typed_texts(column)
    return rows_of(held, style, fields)


def _typed_texts(column: TypedColumn) -> BinaryColumn:
    """The texts of decoded values, or their JSON."""
    if not isinstance(column.kind, Kind):
        from kseg.decode.registry import json_columns

        return json_columns(column.values)
    if not isinstance(column.values, BinaryColumn):
        return _numbers(column)
    return _plain_json(column.values) if column.kind is Kind.JSON else column.values


def _plain_json(column: BinaryColumn) -> BinaryColumn:
    """JSON on one line, in ASCII, so that nothing in it ends a row or controls a terminal.

    Line ends and tabs occur only between its parts, since strings escape them; characters outside
    of ASCII occur only in strings.
    """
    if not len(column.data):
        return column
    if int(column.data.max()) > _ASCII_MAX:
        return binary_column(
            [text and _NOT_ASCII.sub(_escape_match, text.decode()).encode() for text in column]
        )
    data = np.where(np.isin(column.data, _SPACES), np.uint8(0x20), column.data)
    return BinaryColumn(column.offsets, data, column.validity, column.null_count)


def _escape_match(match: re.Match[str]) -> str:
    """An escape of a character outside of ASCII; a blank for white space between parts of JSON."""
    letter = match[0]
    if letter in "\t\n\r":
        return " "
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _numbers(column: TypedColumn) -> BinaryColumn:
    """Numbers as JSON text; floats that JSON lacks (NaN, infinity) as Kafka prints them."""
    values: Any = column.values
    texts = values.astype(f"S{_NUMBER_BYTES_MAX}")
    if values.dtype.kind == "f":
        for chosen, word in (
            (np.isnan(values), b'"NaN"'),
            (np.isposinf(values), b'"Infinity"'),
            (np.isneginf(values), b'"-Infinity"'),
        ):
            texts[chosen] = word
    valid = np.ones(len(values), np.bool_) if column.valid is None else column.valid
    shown = texts.view(np.uint8).reshape(len(values), _NUMBER_BYTES_MAX)
    # NumPy fills short texts with zeros, and null rows have no text.
    is_text = (shown != 0) & valid[:, None]
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.count_nonzero(is_text, axis=1), out=ends[1:])
    bits = np.packbits(valid, bitorder="little")
    return BinaryColumn(ends, shown[is_text], bits, column.null_count)
