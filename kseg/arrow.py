"""Record columns as Arrow: schema, record batches, readers, and the PyCapsule stream.

Needs the `[arrow]` extra. Binary columns are handed over without a copy. `timestamp` is typed
(milliseconds, UTC) and null where a record has none (-1); `timestamp_ms` is the raw number. Names
are those of `kseg.format.columns.FIELDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg.constants import NO_TIMESTAMP, Compression, ControlType, TimestampType
from kseg.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

    from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns
else:
    pa = require("pyarrow", extra="arrow")

_TIMESTAMP = pa.timestamp("ms", tz="UTC")
_LABEL = pa.dictionary(pa.int8(), pa.string())
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
}


def schema(fields: Iterable[str]) -> pa.Schema:
    """The Arrow schema of these fields, in this order."""
    return pa.schema([pa.field(name, TYPES[name]) for name in fields])


def to_record_batch(
    columns: RecordColumns, *, fields: tuple[str, ...] | None = None
) -> pa.RecordBatch:
    """One piece of records as a record batch; binary data is shared, not copied.

    Args:
        columns: the piece.
        fields: which fields, in which order; all of the piece's if None.
    """
    names = columns.fields if fields is None else fields
    arrays = [_array(name, columns) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(names))


def to_reader(pieces: Iterable[RecordColumns], fields: tuple[str, ...]) -> pa.RecordBatchReader:
    """Pieces of records as a reader of record batches; nothing is read before it is asked for."""
    batches = (to_record_batch(columns, fields=fields) for columns in pieces)
    return pa.RecordBatchReader.from_batches(schema(fields), batches)


def stream(
    pieces: Iterable[RecordColumns], fields: tuple[str, ...], requested_schema: object = None
) -> object:
    """An `arrow_array_stream` capsule over pieces of records."""
    reader = to_reader(pieces, fields)
    return reader.__arrow_c_stream__(requested_schema)


# ---- one column ----------------------------------------------------------------------------------


def binary_array(column: BinaryColumn, kind: pa.DataType | None = None) -> pa.Array:
    """A binary column as an Arrow array over the same memory."""
    buffers = [
        None if column.validity is None else pa.py_buffer(column.validity),
        pa.py_buffer(column.offsets),
        pa.py_buffer(column.data),
    ]
    return pa.Array.from_buffers(kind or pa.binary(), len(column), buffers, column.null_count)


def headers_array(column: HeadersColumn, kind: pa.DataType = HEADERS) -> pa.Array:
    """A headers column as a list of (key, value); what is not UTF-8 in a name becomes U+FFFD."""
    pairs = pa.StructArray.from_arrays(
        [_names(column.keys), binary_array(column.values)],
        fields=[kind.value_type.field(0), kind.value_type.field(1)],
    )
    return pa.ListArray.from_arrays(pa.array(column.offsets), pairs, type=kind)


def _names(keys: BinaryColumn) -> pa.Array:
    if not len(keys.data) or int(keys.data.max()) < 0x80:
        return binary_array(keys, pa.string())
    return pa.array([(name or b"").decode("utf-8", "replace") for name in keys], pa.string())


def timestamp_array(values: np.ndarray[Any, Any]) -> pa.Array:
    """Times in ms as Arrow's typed timestamps, null for -1."""
    return pa.array(values, pa.int64(), mask=_mask(values == NO_TIMESTAMP)).cast(_TIMESTAMP)


def _mask(nulls: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    return nulls if nulls.any() else None


def _labels(kinds: type[TimestampType] | type[Compression], first: int) -> Callable[..., pa.Array]:
    names = pa.array([kind.label for kind in kinds])

    def build(values: np.ndarray[Any, Any]) -> pa.Array:
        indices = values.astype(np.int8) - np.int8(first)
        unknown = (indices < 0) | (indices >= len(names))
        return pa.DictionaryArray.from_arrays(
            pa.array(np.where(unknown, 0, indices), pa.int8(), mask=_mask(unknown)), names
        )

    return build


def _control_types(values: np.ndarray[Any, Any]) -> pa.Array:
    names = [kind.name for kind in ControlType if kind >= 0]
    unknown = (values < 0) | (values >= len(names))
    indices = pa.array(np.where(unknown, 0, values), pa.int8(), mask=_mask(unknown))
    return pa.DictionaryArray.from_arrays(indices, pa.array(names))


_BUILDERS: dict[str, Callable[[Any], pa.Array]] = {
    "timestamp": timestamp_array,
    "timestamp_type": _labels(TimestampType, -1),
    "codec": _labels(Compression, 0),
    "control_type": _control_types,
    "key": binary_array,
    "value": binary_array,
    "headers": headers_array,
    "delete_horizon_ms": lambda values: pa.array(
        values, pa.int64(), mask=_mask(values == NO_TIMESTAMP)
    ),
}


def _array(name: str, columns: RecordColumns) -> pa.Array:
    if name == "topic":
        return pa.repeat(pa.scalar(columns.topic, pa.string()), len(columns))
    if name == "partition":
        return pa.repeat(pa.scalar(columns.partition, pa.int32()), len(columns))
    values = columns["timestamp" if name == "timestamp_ms" else name]
    if name == "timestamp_ms":
        return pa.array(values, pa.int64())
    build = _BUILDERS.get(name)
    return pa.array(values, TYPES[name]) if build is None else build(values)


__all__ = [
    "HEADERS",
    "TYPES",
    "binary_array",
    "headers_array",
    "schema",
    "stream",
    "timestamp_array",
    "to_reader",
    "to_record_batch",
]
