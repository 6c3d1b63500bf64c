"""Decoded keys and values as fields of rows, for `read` and `export`.

JSON stays in a row as it is, on one line and in ASCII; a number as JSON has it. Reasons for values
that do not decode are words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from kseg.cli.failures import usage_errors
from kseg.cli.parsing import Paths
from kseg.cli.paths import catalog_errors, check_catalog, tier_of_run
from kseg.cli.rows import RECORD_FIELDS, Field, Style, Template, held_columns, rows_of
from kseg.constants import SCHEMA_WORDS
from kseg.errors import NotALogError, SchemaError
from kseg.format.typed import BYTES, ERRORS, SCHEMA_IDS, SCHEMA_NAMES, Kinds
from kseg.format.values import BinaryColumn, Kind, RecordColumns, TypedColumn, binary_column
from kseg.stores.path import path_at

if TYPE_CHECKING:
    from kseg.records.scan import Scan

#: Fields that say where a record lies, which only files have.
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


def scanned(paths: Paths, query: dict[str, Any]) -> Scan:
    """The records that a command line asks for; reports the paths that cannot be read.

    Args:
        paths: as they were typed.
        query: the answers to questions, as `kseg.scan` takes them; `schemas` are places.

    Raises:
        UsageError: options do not go together, or no schema, or several, could be meant.
        Exit: two directories are of one partition, which was reported.
        NotALogError: nothing is there, or nothing is chosen.
        OSError: the only path cannot be read.
    """
    from kseg import schemas
    from kseg.records.scan import scan

    decode = query.get("decode", {})
    places = query.get("schemas")
    if {*decode.values()} & set(SCHEMA_WORDS) - {"json:struct"}:
        try:
            query = {**query, "schemas": schemas(places or paths)}
        except NotALogError as error:
            where = "" if places else "; name its data directory, or a registry: --schemas DATA"
            raise NotALogError(error.reason + where, path=error.path) from None
    query = {**query, "tier": tier_of_run(), "on_error": "skip"}
    try:
        with usage_errors(), catalog_errors(paths):
            records = scan(map(path_at, paths), **query)
    except SchemaError as error:
        raise click.UsageError(f"{error}.") from None
    check_catalog(paths, records.sources, records.skipped)
    return records


def typed_fields(kinds: Kinds, *, keep_bytes: bool = False) -> tuple[Field, ...]:
    """The fields of a record's line; the reasons of decoded fields follow them.

    Args:
        kinds: of the decoded fields.
        keep_bytes: add the fields on request: the bytes of values that do not decode, and the id
            and the name of the schema.
    """
    return tuple(_fields(kinds, keep_bytes=keep_bytes))


def _fields(kinds: Kinds, *, keep_bytes: bool) -> Iterator[Field]:
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
    """The template for a piece of records; fields that it does not hold are empty in CSV only."""
    held = held_columns(columns)
    for name, column in columns.arrays.items():
        if isinstance(column, TypedColumn):
            held[name] = _shown(column)
    return rows_of(held, style, fields)


def _shown(column: TypedColumn) -> BinaryColumn:
    if not isinstance(column.kind, Kind):
        from kseg.decode.registry import json_columns

        return json_columns(column.values)
    if not isinstance(column.values, BinaryColumn):
        return _numbers(column)
    return _plain_json(column.values) if column.kind is Kind.JSON else column.values


def _plain_json(column: BinaryColumn) -> BinaryColumn:
    """JSON on one line, in ASCII: nothing in it ends a row or steers a terminal.

    Line ends and tabs stand between its parts only, since strings escape them; text outside of
    ASCII stands in strings only.
    """
    if not len(column.data):
        return column
    if int(column.data.max()) > _ASCII_MAX:
        return binary_column(
            [text and _NOT_ASCII.sub(_escaped, text.decode()).encode() for text in column]
        )
    data = np.where(np.isin(column.data, _SPACES), np.uint8(0x20), column.data)
    return BinaryColumn(column.offsets, data, column.validity, column.null_count)


def _escaped(match: re.Match[str]) -> str:
    letter = match[0]
    if letter in "\t\n\r":
        return " "
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _numbers(column: TypedColumn) -> BinaryColumn:
    """Numbers as JSON has them; floats that JSON lacks as words, as Kafka prints them."""
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
    is_digit = (shown != 0) & valid[:, None]
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.count_nonzero(is_digit, axis=1), out=ends[1:])
    bits = np.packbits(valid, bitorder="little")
    return BinaryColumn(ends, shown[is_digit], bits, column.null_count)
