"""Arrow to record columns: tables, batches and streams of any library, as records to be written.

Needs the `[arrow]` extra. Binary data is shared where its layout allows that. `kseg.arrow` has the
other direction, and offers both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg.constants import INT32_MAX, INT64_MAX, NO_TIMESTAMP
from kseg.errors import InvalidRecordError
from kseg.extras import require
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns, freeze

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = require("pyarrow", extra="arrow")

#: The most bytes of a binary column of one piece.
_BYTES_MAX = INT32_MAX
_MS_PER_SECOND = 1000
_SECONDS_MAX = INT64_MAX // _MS_PER_SECOND
#: How many of a finer unit make a millisecond.
_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
#: The first two have offsets of 32 bits, the others of 64.
_CONTIGUOUS = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
_VIEWS = (pa.binary_view(), pa.string_view())
_NO_BYTES = np.zeros(0, np.uint8)
_TOO_LARGE = "more than one piece can hold; from_arrow() cuts it"


def from_record_batch(batch: Any) -> RecordColumns:
    """The records of one record batch, to be written; binary data is shared, not copied.

    It takes the columns `offset`, `timestamp_ms` or else `timestamp`, `key`, `value` and `headers`,
    if they are there, and ignores all others.

    * `key`, `value`: binary or string of any layout; data is copied only for views, dictionaries
      and values of fixed size.
    * `timestamp`, `timestamp_ms`: integers are milliseconds; timestamps of any unit are rounded
      down to milliseconds, naive timestamps are UTC; null means no timestamp (-1).
    * `headers`: a list of structs with `key` and `value`, or a map; null means no headers.

    Args:
        batch: a `pyarrow.RecordBatch`, a table, or any object with the PyCapsule interface. Several
            chunks are copied into one.

    Raises:
        ValueError: an unknown column, one of another type, or more bytes than one piece can hold
            (`from_arrow` splits those).
        InvalidRecordError: the name of a header is null.
    """
    batch = _record_batch(batch)
    arrays = _simple_layouts(batch)
    if _bytes_of(arrays) > _BYTES_MAX:
        raise ValueError(_TOO_LARGE)
    return _columns(arrays, len(batch))


def binary_column_of(source: Any, name: str) -> BinaryColumn:
    """One column of bytes or text as a binary column.

    Args:
        source: an Arrow array, a chunked array, or a column of Polars or pandas.
        name: the name of the column in errors.

    Raises:
        TypeError: its values are neither bytes nor text.
        ValueError: it has more bytes than a piece can hold.
    """
    array = pa.chunked_array(source) if hasattr(source, "__arrow_c_stream__") else pa.array(source)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    try:
        array = _as_binary(array, name)
    except ValueError as error:
        raise TypeError(str(error)) from None
    if _data_bytes(array) > _BYTES_MAX:
        raise ValueError(f"column {name!r} has more bytes than a piece can hold")
    return _binary(array)


def from_arrow(
    source: Any,
    names: Mapping[str, str] | None = None,
    check: Callable[[list[str]], object] | None = None,
) -> Iterator[RecordColumns]:
    """The records of a table, reader, frame or stream, a piece for each of its chunks.

    Args:
        source: as for `from_record_batch`, chunk by chunk, so memory stays flat; a chunk with more
            bytes than a piece can hold is split.
        names: the column of the source for each field; None for columns named like the fields.
        check: is given the names of all columns, and refuses some.

    Yields:
        Pieces of records, in order.

    Raises:
        ValueError, InvalidRecordError: as for `from_record_batch`.
    """
    if isinstance(source, pa.RecordBatch) or not hasattr(source, "__arrow_c_stream__"):
        batches: Iterable[pa.RecordBatch] = (pa.record_batch(source),)
    else:
        batches = pa.RecordBatchReader.from_stream(source)
    for batch in batches:
        arrays = _simple_layouts(batch, names)
        if check is not None:
            check(batch.schema.names)
        yield from _split_to_32_bits(arrays, len(batch))


def _record_batch(source: Any) -> pa.RecordBatch:
    """A source of records as a single record batch."""
    if isinstance(source, pa.RecordBatch):
        return source  # its buffers' real sizes; through the interface the offsets would state them
    if hasattr(source, "__arrow_c_array__"):
        return pa.record_batch(source)
    table = pa.table(source).combine_chunks()
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    if len(batches) > 1:
        raise ValueError(_TOO_LARGE)
    return batches[0]


def _simple_layouts(
    batch: pa.RecordBatch, names: Mapping[str, str] | None = None
) -> dict[str, pa.Array]:
    """The columns to write, keyed by field, each in a layout that `_columns` accepts."""
    if names is None:
        fields = ("offset", "timestamp_ms", "timestamp", "key", "value", "headers")
        names = {name: name for name in fields}
    columns = {}
    for name, column_name in names.items():
        places = batch.schema.get_all_field_indices(column_name)
        if len(places) > 1:
            raise ValueError(f"several columns are called {column_name!r}")
        if places:
            columns[name] = batch.column(places[0])
    if not columns:
        names_there = ", ".join(batch.schema.names)
        raise ValueError(f"none of the columns {', '.join(names.values())} is among: {names_there}")
    if "timestamp_ms" in columns:
        columns["timestamp"] = columns.pop("timestamp_ms")
    for name in {"key", "value"} & columns.keys():
        columns[name] = _as_binary(columns[name], name)
    if "headers" in columns:
        columns["headers"] = _headers_as_list(columns["headers"])
    return columns


def _as_binary(array: pa.Array, name: str) -> pa.Array:
    """Binary data with offsets of 32 or 64 bits; anything else is copied into that."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if kind in _CONTIGUOUS or pa.types.is_null(kind):
        return array
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    if values in _CONTIGUOUS or values in _VIEWS or pa.types.is_fixed_size_binary(values):
        if pa.types.is_dictionary(kind):  # Arrow gathers no views
            return array.dictionary.cast(pa.large_binary()).take(array.indices)
        return array.cast(pa.large_binary())
    raise ValueError(f"column {name!r} is {kind}, not bytes or text")


def _headers_as_list(array: pa.Array) -> pa.Array:
    """Headers as a list, however long its offsets, of (key, value)."""
    kind = array.type
    if pa.types.is_map(kind):
        parts = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
        return array.cast(pa.list_(pa.struct(parts)))
    if pa.types.is_null(kind):
        return array
    pairs = getattr(kind, "value_type", None)
    if pairs is None or not pa.types.is_struct(pairs) or pa.types.is_dictionary(kind):
        raise ValueError(f"column 'headers' is {kind}, not a list of (key, value)")
    if {"key", "value"} - {pairs.field(at).name for at in range(pairs.num_fields)}:
        raise ValueError(f"headers are {pairs}, without the fields key and value")
    return array


def _split_to_32_bits(arrays: dict[str, pa.Array], length: int) -> Iterator[RecordColumns]:
    """Split records in halves until the offsets of each piece fit 32 bits."""
    if _bytes_of(arrays) <= _BYTES_MAX:
        yield _columns(arrays, length)
        return
    if length == 1:
        raise ValueError(f"one record has more than {_BYTES_MAX} bytes")
    half = length // 2
    for start, end in ((0, half), (half, length)):
        part = {name: array.slice(start, end - start) for name, array in arrays.items()}
        yield from _split_to_32_bits(part, end - start)


def _bytes_of(arrays: dict[str, pa.Array]) -> int:
    """The bytes of the largest column, which decide whether one piece can have all of it."""
    return max(_data_bytes(array) for array in arrays.values())


def _data_bytes(array: pa.Array) -> int:
    """Bytes of a binary column; for headers, the larger of names and values, or their number."""
    if array.type in _CONTIGUOUS:
        ends = _ends(array)
        return int(ends[-1]) - int(ends[0])
    if getattr(array.type, "value_type", None) is None or not len(array):
        return 0
    pairs = array.flatten()
    return max(len(pairs), *(_data_bytes(part) for part in _key_and_value(pairs)))


def _columns(arrays: dict[str, pa.Array], length: int) -> RecordColumns:
    """The columns of a batch as a piece of records, read-only."""
    columns: dict[str, Any] = {}
    for name, array in arrays.items():
        columns[name] = _READERS[name](array)
        freeze(columns[name])
    return RecordColumns(length, columns)


def _ends(array: pa.Array) -> np.ndarray[Any, Any]:
    """Where each value of a binary column begins, and where the last one ends; checked."""
    if not len(array):
        return np.zeros(1, np.int32)
    _validity, ends, data = array.buffers()
    dtype = np.dtype(np.int32 if array.type in _CONTIGUOUS[:2] else np.int64)
    offsets = np.frombuffer(ends, dtype, len(array) + 1, array.offset * dtype.itemsize)
    size = 0 if data is None else data.size
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise ValueError("the offsets of a binary column lead outside its data")
    return offsets


def _binary(array: pa.Array) -> BinaryColumn:
    """A binary column over the memory of an Arrow array; its offsets begin at 0."""
    if pa.types.is_null(array.type):
        array = array.cast(pa.binary())
    ends = _ends(array)
    first, count = int(ends[0]), int(ends[-1]) - int(ends[0])
    data = np.frombuffer(array.buffers()[2], np.uint8, count, first) if count else _NO_BYTES
    if first or ends.dtype != np.int32:
        ends = (ends - first).astype(np.int32)
    return BinaryColumn(ends, data, _validity_bits(array), array.null_count)


def _validity_bits(array: pa.Array) -> np.ndarray[Any, Any] | None:
    """The validity bits of an array, shifted so that the first value's bit is first."""
    if not array.null_count:
        return None
    first, bit = divmod(array.offset, 8)
    size = (bit + len(array) + 7) // 8
    bits = np.frombuffer(array.buffers()[0], np.uint8, size, first)
    if not bit:
        return bits
    shifted = np.unpackbits(bits, bitorder="little")[bit : bit + len(array)]
    return np.packbits(shifted, bitorder="little")


def _headers(array: pa.Array) -> HeadersColumn:
    """A headers column from a list; an error for a name that is null."""
    if pa.types.is_null(array.type):
        none = _binary(pa.nulls(0, pa.binary()))
        return HeadersColumn(np.zeros(len(array) + 1, np.int32), none, none)
    lengths = array.value_lengths().fill_null(0)
    ends = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=ends[1:])
    keys, values = (_binary(part) for part in _key_and_value(array.flatten()))
    if keys.null_count:
        header = int(np.argmin(keys.is_valid()))
        row = int(np.searchsorted(ends, header, "right")) - 1
        raise InvalidRecordError("the name of a header is null", record_index=row)
    return HeadersColumn(ends, keys, values)


def _key_and_value(pairs: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Names and values of headers; both null where the pair itself is."""
    parts = dict(zip((field.name for field in pairs.type), pairs.flatten(), strict=True))
    return _as_binary(parts["key"], "headers.key"), _as_binary(parts["value"], "headers.value")


def _times(array: pa.Array) -> np.ndarray[Any, Any]:
    """Times in ms, rounded down, int64[n]; -1 for null."""
    kind = array.type
    if not pa.types.is_timestamp(kind):
        return _integers(array, "timestamp", none=NO_TIMESTAMP)
    values = _integers(array.view(pa.int64()), "timestamp", none=NO_TIMESTAMP)
    if kind.unit != "s":
        whole = values // _PER_MS[kind.unit]
    elif ((values > _SECONDS_MAX) | (values < -_SECONDS_MAX)).any():
        raise ValueError("a timestamp in seconds has more milliseconds than 64 bits hold")
    else:
        whole = values * _MS_PER_SECOND
    return whole if not array.null_count else np.where(array.is_valid(), whole, NO_TIMESTAMP)


def _integers(array: pa.Array, name: str, *, none: int | None = None) -> np.ndarray[Any, Any]:
    """int64[n]: whole numbers, with `none` for null; an error for null if `none` is None."""
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise ValueError(f"column {name!r} is {kind}, not whole numbers")
    if array.null_count:
        if none is None:
            raise ValueError(f"column {name!r} has nulls")
        array = array.cast(pa.int64()).fill_null(none)
    numbers: np.ndarray[Any, Any] = array.cast(pa.int64()).to_numpy()
    return numbers


_READERS: dict[str, Callable[[pa.Array], Any]] = {
    "offset": lambda array: _integers(array, "offset"),
    "timestamp": _times,
    "key": _binary,
    "value": _binary,
    "headers": _headers,
}
