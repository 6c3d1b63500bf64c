"""Record columns as Arrow and back: schema, record batches, readers, and the PyCapsule stream.

Needs the `[arrow]` extra. Binary columns and times are handed over without a copy; bytes also back.
`timestamp` is typed (milliseconds, UTC). It is null where a record has none (-1), and outside the
years 1 to 9999, which DuckDB, Polars and Python do not all hold; `timestamp_ms` is the raw number.
Names are those of `kseg.format.columns.FIELDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg.arrow_columns import binary_column_of, from_arrow, from_record_batch
from kseg.constants import NO_TIMESTAMP, Bools, Compression, ControlType, TimestampType
from kseg.extras import require
from kseg.format.header import BATCH_FIELDS, BatchTable
from kseg.format.times import DATETIMES_MS
from kseg.format.values import (
    BinaryColumn,
    HeadersColumn,
    Kind,
    RecordColumns,
    TypedColumn,
    binary_column,
)

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = require("pyarrow", extra="arrow")

_TIMESTAMP = pa.timestamp("ms", tz="UTC")
_LABEL = pa.dictionary(pa.int8(), pa.string())
_ENGINE_TYPES = {_TIMESTAMP: pa.timestamp("us", tz="UTC")}
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

#: Arrow type of each field.
TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "position": pa.int64(),
    "base_offset": pa.int64(),
    "offset": pa.int64(),
    "next_offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "timestamp_ms": pa.int64(),
    "timestamp_type": _LABEL,
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "magic": pa.int8(),
    "codec": _LABEL,
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "sequence": pa.int32(),
    "leader_epoch": pa.int32(),
    "transactional": pa.bool_(),
    "control": pa.bool_(),
    "control_type": _LABEL,
    "delete_horizon_ms": pa.int64(),
    "valid": pa.bool_(),
    "key_error": pa.string(),
    "value_error": pa.string(),
    "key_schema_id": pa.int32(),
    "value_schema_id": pa.int32(),
    "key_schema_name": pa.string(),
    "value_schema_name": pa.string(),
}
#: Columns on request: the bytes of keys and values that do not decode; the directory of a replica.
_BYTES_TYPES = {"key_bytes": pa.binary(), "value_bytes": pa.binary()}
_PLACE_TYPES = {"topic": TYPES["topic"], "partition": TYPES["partition"], "directory": pa.string()}

#: Arrow type of decoded keys and values.
KIND_TYPES: dict[Kind, pa.DataType] = {
    Kind.TEXT: pa.string(),
    Kind.JSON: pa.string(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.UUID: pa.string(),
}


def schema(fields: Iterable[str], kinds: Mapping[str, Any] | None = None) -> pa.Schema:
    """The Arrow schema of some fields.

    Args:
        fields: their names, in this order.
        kinds: the kinds of decoded fields, keyed by name.

    Raises:
        ValueError: an unknown field.
    """
    types = {
        **TYPES,
        **_BYTES_TYPES,
        **_PLACE_TYPES,
        **{name: _type_of(kind) for name, kind in (kinds or {}).items()},
    }
    named = tuple(fields)
    unknown = [name for name in named if name not in types]
    if unknown:
        raise ValueError(f"no field {', '.join(unknown)}; there are: {', '.join(TYPES)}")
    return pa.schema([pa.field(name, types[name]) for name in named])


#: The most digits of a decimal in most engines.
_DIGITS_MAX = 38


def for_engines(kind: pa.Schema) -> pa.Schema:
    """A schema as engines query it: the topic comes first, and times are in microseconds.

    Engines read the first column if they only count, and compare times in microseconds.

    Args:
        kind: the kind of the records.
    """
    fields = sorted(kind, key=lambda field: field.name != "topic")
    return pa.schema(
        [field.with_type(_ENGINE_TYPES.get(field.type, field.type)) for field in fields]
    )


#: Types that not all engines have, in the words of errors.
_UNION, _DECIMAL, _EMPTY = (
    "a union of several types",
    f"a decimal of more than {_DIGITS_MAX} digits",
    "a record without fields",
)
#: Engine -> the types that it lacks.
_LACKING: dict[str, tuple[str, ...]] = {
    "Parquet": (_UNION, _EMPTY),
    "pandas": (_UNION,),
    "Spark": (_UNION, _DECIMAL),
    "Polars": (_UNION, _DECIMAL),
    "DuckDB and Polars": (_UNION, _DECIMAL),
}


def check_types(kinds: Mapping[str, Any], engine: str, way_out: str = "") -> None:
    """Refuse decoded values of a type that an engine does not have, before it gets them.

    Args:
        kinds: the kinds of the decoded columns, keyed by name.
        engine: the name of the engine.
        way_out: what helps beside another decoding, with " or " after it.

    Raises:
        ValueError: a column has such a type; the message names it, and what helps.
    """
    for name, kind in kinds.items():
        for part in _parts(_type_of(kind)):
            if part in _LACKING[engine]:
                verb = "do" if " and " in engine else "does"
                raise ValueError(
                    f"{name} has {part}, which {engine} {verb} not have; {way_out}decode as "
                    "registry-json"
                )


def _parts(kind: pa.DataType) -> Iterator[str]:
    """Types that some engine lacks, in a type and in its fields."""
    is_a = pa.types
    if is_a.is_union(kind):
        yield _UNION
    elif is_a.is_decimal(kind) and kind.precision > _DIGITS_MAX:
        yield _DECIMAL
    elif is_a.is_struct(kind) and not kind.num_fields:
        yield _EMPTY
    for number in range(kind.num_fields):
        yield from _parts(kind.field(number).type)


def _type_of(kind: Any) -> pa.DataType:
    """The Arrow type of a kind; values that have schemas, or their decoding, have their own."""
    return KIND_TYPES[kind] if isinstance(kind, Kind) else getattr(kind, "type", kind)


def to_record_batch(
    columns: RecordColumns, *, fields: tuple[str, ...] | None = None
) -> pa.RecordBatch:
    """One piece of records as a record batch; binary data is shared, not copied.

    Args:
        columns: the piece.
        fields: the fields in order; all fields of the piece if None.

    Raises:
        ValueError: an unknown field.
        MissingFieldError: the piece has no column of a field.
    """
    names = columns.fields if fields is None else fields
    typed = {
        name: column.kind
        for name, column in columns.arrays.items()
        if isinstance(column, TypedColumn)
    }
    return _batch(columns, schema(names, typed))


def _batch(columns: RecordColumns, kind: pa.Schema) -> pa.RecordBatch:
    """The fields of a schema out of a piece of records."""
    arrays = [_array(name, columns) for name in kind.names]
    return pa.RecordBatch.from_arrays(arrays, schema=kind)


def to_reader(
    pieces: Iterable[RecordColumns],
    fields: tuple[str, ...],
    kinds: Mapping[str, Any] | None = None,
) -> pa.RecordBatchReader:
    """Pieces of records as a reader of record batches; nothing is read before the first request.

    Args:
        pieces: each with all of the fields; each becomes one record batch.
        fields: names of columns, in order.
        kinds: the kinds of decoded fields, keyed by name.

    Raises:
        ValueError: an unknown field.
    """
    kind = schema(fields, kinds)
    return pa.RecordBatchReader.from_batches(kind, (_batch(piece, kind) for piece in pieces))


def stream(
    pieces: Iterable[RecordColumns],
    fields: tuple[str, ...],
    requested_schema: object = None,
    kinds: Mapping[str, Any] | None = None,
) -> object:
    """An `arrow_array_stream` capsule over pieces of records.

    Args:
        pieces: as for `to_reader`.
        fields: as for `to_reader`.
        requested_schema: an `arrow_schema` capsule with the schema that the consumer would like;
            None for that of `schema`.
        kinds: as for `to_reader`.

    Raises:
        ValueError: an unknown field.
    """
    reader = to_reader(pieces, fields, kinds)
    return reader.__arrow_c_stream__(requested_schema)


#: Columns of a table of batches: Arrow's type, and the attribute of `BatchTable` if it is another.
_BATCH_TYPES: dict[str, pa.DataType] = {
    **{name: pa.int64() for name in ("position", "size")},
    "magic": pa.int8(),
    "base_offset": pa.int64(),
    "last_offset": pa.int64(),
    "record_count": pa.int32(),
    "base_timestamp": _TIMESTAMP,
    "max_timestamp": _TIMESTAMP,
    "timestamp_type": _LABEL,
    "codec": _LABEL,
    "leader_epoch": pa.int32(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "base_sequence": pa.int32(),
    "transactional": pa.bool_(),
    "control": pa.bool_(),
    "control_type": _LABEL,
    "valid": pa.bool_(),
}


def batches_reader(
    tables: Iterable[tuple[str | None, int | None, BatchTable]],
) -> pa.RecordBatchReader:
    """Tables of batch headers as a reader of record batches.

    Args:
        tables: the topic, the partition and the headers of each.
    """
    place_types = {name: TYPES[name] for name in ("topic", "partition")}
    kind = pa.schema([*place_types.items(), *_BATCH_TYPES.items()])

    def build(topic: str | None, partition: int | None, table: BatchTable) -> pa.RecordBatch:
        spot = RecordColumns(len(table), {}, topic=topic, partition=partition)
        arrays = [_array(name, spot) for name in place_types]
        arrays += [_batch_array(name, table) for name in _BATCH_TYPES]
        return pa.RecordBatch.from_arrays(arrays, schema=kind)

    return pa.RecordBatchReader.from_batches(kind, (build(*headers) for headers in tables))


def _batch_array(name: str, table: BatchTable) -> pa.Array:
    """A column of a table of batches."""
    values = BATCH_FIELDS[name][0](table) if name in BATCH_FIELDS else getattr(table, name)
    kind = _BATCH_TYPES[name]
    build = timestamp_array if kind == _TIMESTAMP else _BUILDERS.get(name)
    return numbers_array(values, kind) if build is None else build(values)


# ---- one column ----------------------------------------------------------------------------------


def binary_array(column: BinaryColumn, kind: pa.DataType | None = None) -> pa.Array:
    """A binary column as an Arrow array over the same memory.

    Args:
        column: n values, some of them null.
        kind: a type of 32-bit offsets, such as `pa.string()` for bytes that are known to be UTF-8;
            `pa.binary()` if None.

    Returns:
        An array of n values, which keeps the column's memory.
    """
    buffers = [
        None if column.validity is None else pa.py_buffer(column.validity),
        pa.py_buffer(column.offsets),
        pa.py_buffer(column.data),
    ]
    return pa.Array.from_buffers(kind or pa.binary(), len(column), buffers, column.null_count)


def matching(column: BinaryColumn, expression: str, *, ignore_case: bool) -> Bools:
    """Which values match a regular expression of RE2, which reads them as UTF-8.

    Args:
        column: n values. Null matches nothing.
        expression: as RE2 writes it.
        ignore_case: the case of letters does not count.

    Returns:
        bool[n].

    Raises:
        ValueError: it is not an expression of RE2, or takes too much memory.
    """
    compute = require("pyarrow.compute", extra="arrow")
    # RE2 takes any bytes for a text, so they need not be known to be UTF-8.
    values = binary_array(column, pa.string())
    matches = compute.match_substring_regex(values, expression, ignore_case=ignore_case)
    marks: Bools = matches.fill_null(False).to_numpy(zero_copy_only=False)
    return marks


def typed_array(column: TypedColumn, kind: pa.DataType | None = None) -> pa.Array:
    """Decoded values as an Arrow array; text over the same memory.

    Args:
        column: n values, some of them null.
        kind: the Arrow type of the column; that of their kind if None.

    Returns:
        An array of n values.
    """
    kind = kind or _type_of(column.kind)
    if isinstance(column.values, BinaryColumn):
        return binary_array(column.values, kind)
    if isinstance(column.values, pa.Array):
        return column.values if column.values.type == kind else column.values.cast(kind)
    return numbers_array(column.values, kind, column.valid)


def headers_array(column: HeadersColumn, kind: pa.DataType = HEADERS) -> pa.Array:
    """A headers column as a list of (key, value); invalid UTF-8 in a name becomes U+FFFD.

    Args:
        column: n lists.
        kind: a list of structs with a text and a binary field, in this order.

    Returns:
        An array of n lists; the values lie in the column's memory.
    """
    pairs = pa.StructArray.from_arrays(
        [_names(column.keys), binary_array(column.values)],
        fields=[kind.value_type.field(0), kind.value_type.field(1)],
    )
    return pa.ListArray.from_arrays(numbers_array(column.offsets, pa.int32()), pairs, type=kind)


def _names(keys: BinaryColumn) -> pa.Array:
    """The names of headers as text; over the same memory if they are ASCII."""
    if not len(keys.data) or int(keys.data.max()) < 0x80:
        return binary_array(keys, pa.string())
    return texts_array([(name or b"").decode("utf-8", "replace") for name in keys])


def timestamp_array(values: np.ndarray[Any, Any]) -> pa.Array:
    """Times in ms as Arrow's typed timestamps over the same memory.

    It is null for -1, and outside the years 1 to 9999: there DuckDB refuses the whole query, Polars
    panics and Python has no `datetime`.

    Args:
        values: int64[n]; values of another type or layout are copied.
    """
    times = np.ascontiguousarray(values, np.int64)
    usual = not len(times) or (times.min() > NO_TIMESTAMP and times.max() < DATETIMES_MS.stop)
    if usual:
        return numbers_array(times, _TIMESTAMP)
    is_datetime = (
        (times != NO_TIMESTAMP) & (times >= DATETIMES_MS.start) & (times < DATETIMES_MS.stop)
    )
    return numbers_array(times, _TIMESTAMP, is_datetime)


# `pa.array` and `pa.scalar` import pandas if it is installed, which takes 0.3 s in each new worker
# of Spark. So columns are made from buffers.


def numbers_array(
    values: np.ndarray[Any, Any], kind: pa.DataType = TYPES["offset"], valid: Bools | None = None
) -> pa.Array:
    """Values of one width as an Arrow array, over the same memory where they fit the type.

    Args:
        values: n integers, floats of the type's width, or flags.
        kind: a type of numbers, times or flags.
        valid: which of them are not null; None for all.
    """
    width = "f" if values.dtype.kind == "f" else "i"
    data = (
        np.packbits(values, bitorder="little")
        if kind.bit_width == 1
        else np.ascontiguousarray(values, f"{width}{kind.bit_width // 8}")
    )
    nulls = None if valid is None else validity_bits(valid)
    return pa.Array.from_buffers(kind, len(values), [nulls, pa.py_buffer(data)])


def validity_bits(valid: Bools) -> pa.Buffer | None:
    """A validity bitmap, least significant bit first; None where all are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def texts_array(texts: Sequence[str]) -> pa.Array:
    """A few non-null texts as an Arrow array."""
    return binary_array(binary_column([text.encode() for text in texts]), pa.string())


def repeated_array(value: str | int | None, kind: pa.DataType, count: int) -> pa.Array:
    """One value, repeated for each row.

    Args:
        value: a text or a number; None for null.
        kind: the type of the array.
        count: the number of rows.
    """
    if value is None:
        return pa.nulls(count, kind)
    constant = (
        texts_array([value]) if isinstance(value, str) else numbers_array(np.array([value]), kind)
    )
    return pa.repeat(constant[0], count)


def _labels(labels: Sequence[str], first: int = 0) -> Callable[..., pa.Array]:
    """A function that makes a column of labels out of numbers; the first label is for `first`."""
    names = texts_array(labels)

    def build(values: np.ndarray[Any, Any]) -> pa.Array:
        indices = values.astype(np.int32) - first
        unknown = (indices < 0) | (indices >= len(names))
        return pa.DictionaryArray.from_arrays(
            numbers_array(np.where(unknown, 0, indices), pa.int8(), ~unknown), names
        )

    return build


_BUILDERS: dict[str, Callable[[Any], pa.Array]] = {
    "timestamp": timestamp_array,
    "timestamp_type": _labels([kind.label for kind in TimestampType], -1),
    "codec": _labels([kind.label for kind in Compression]),
    "control_type": _labels([kind.name for kind in ControlType if kind >= 0]),
    "key": binary_array,
    "value": binary_array,
    "key_bytes": binary_array,
    "value_bytes": binary_array,
    "headers": headers_array,
    "delete_horizon_ms": lambda values: numbers_array(values, valid=values != NO_TIMESTAMP),
}


def _array(name: str, columns: RecordColumns) -> pa.Array:
    """One field of a piece of records as an Arrow array."""
    if name in _PLACE_TYPES:
        return repeated_array(getattr(columns, name), _PLACE_TYPES[name], len(columns))
    values = columns["timestamp_ms" if name == "timestamp" else name]
    if isinstance(values, TypedColumn):
        return typed_array(values)
    build = _BUILDERS.get(name)
    return numbers_array(values, TYPES[name]) if build is None else build(values)


# ---- from Arrow ----------------------------------------------------------------------------------


__all__ = [
    "HEADERS",
    "KIND_TYPES",
    "TYPES",
    "binary_array",
    "binary_column_of",
    "check_types",
    "from_arrow",
    "from_record_batch",
    "headers_array",
    "numbers_array",
    "repeated_array",
    "schema",
    "stream",
    "texts_array",
    "timestamp_array",
    "to_reader",
    "to_record_batch",
    "typed_array",
    "validity_bits",
]
