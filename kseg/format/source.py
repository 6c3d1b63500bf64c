"""Turn the records that a caller gives, columns or sequences, into columns for the kernels.

Owns how a user's mapping becomes `Rows`, the columns lent to the writing kernels. Sequences of
bytes are handed over as they are; nothing is copied but text, and numbers that come as Python's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np

from kseg._kernels.encode import Rows, has_text, int64s
from kseg.constants import NO_TIMESTAMP
from kseg.format.times import datetimes_ms, time_ms
from kseg.format.values import BinaryColumn, HeadersColumn, Record, RecordColumns

#: Where records come from: columns that were read; a mapping of columns; or pairs (key, value), or
#: `Record`s, one a record. Columns of a mapping, of which one will do: "offset" as an int64 array
#: or a sequence of int; "timestamp" likewise in ms, or as a datetime64 array or a sequence of what
#: `kseg.time_ms` takes, None for none; "key" and "value" as `BinaryColumn` or sequences of bytes,
#: text (as UTF-8) and None; "headers" as `HeadersColumn` or sequences of (name, value) pairs.
RecordSource: TypeAlias = (
    RecordColumns | Mapping[str, Any] | Iterable[Record] | Iterable[tuple[Any, Any]]
)

#: The fields that records are written from.
SOURCE_FIELDS = ("offset", "timestamp", "key", "value", "headers")

_NAMES = frozenset(SOURCE_FIELDS)
_INT64 = np.dtype(np.int64)
_ONE_VALUE = (str, bytes, bytearray, memoryview)
_WANTED = 'records are columns, such as {"value": [b"..."]}, or a list of pairs (key, value)'


def rows_of(source: RecordSource | Rows, *, timestamp_ms: int | None = None) -> Rows:
    """The source's columns, lent to the writing kernels as long as the result lives.

    Args:
        source: columns that were read, whose other fields are ignored, or what else `RecordSource`
            says. The defaults for missing columns: consecutive offsets, null keys and values, no
            headers.
        timestamp_ms: of records that come without timestamps; -1 (none) if None.

    Raises:
        ValueError: columns differ in length, a name is unknown, or there is no column at all.
        TypeError: a value is of another type than its field.
        InvalidRecordError: a header has no name.
    """
    if isinstance(source, Rows):
        return source
    length = -1
    if isinstance(source, RecordColumns):
        fields: Mapping[str, Any] = source.arrays
        length = source.length
    else:
        fields = source if isinstance(source, (dict, Mapping)) else columns_of(source)
        if not fields.keys() <= _NAMES:
            unknown = ", ".join(name for name in fields if name not in _NAMES)
            raise ValueError(f"records have {', '.join(SOURCE_FIELDS)}, not {unknown}")
    get = fields.get
    offset, timestamp = get("offset"), get("timestamp")
    key, value, headers = get("key"), get("value"), get("headers")
    if offset is not None and not _is_int64(offset):
        offset = _int64(offset, "offset")
    if timestamp is not None and not _is_int64(timestamp):
        timestamp = _times(timestamp)
    if key is not None and type(key) is not BinaryColumn:
        key = _values(key, "key")
    if value is not None and type(value) is not BinaryColumn:
        value = _values(value, "value")
    lists = () if headers is None else _lists_of(headers)
    if timestamp is None and timestamp_ms is not None:
        count = length if length >= 0 else _length(offset, key, value, *lists)
        timestamp = np.full(count, timestamp_ms, np.int64)
    return Rows(length, offset, timestamp, key, value, *lists)


def _length(offset: Any, key: Any, value: Any, headers: Any = None, *_parts: Any) -> int:
    """How many records columns are for; 0 where there is none, which `Rows` refuses."""
    for column in (offset, key, value):
        if column is not None:
            return len(column)
    return 0 if headers is None else len(headers) - 1


def columns_of(records: Iterable[Any]) -> dict[str, Any]:
    """Pairs (key, value), or `Record`s, as columns.

    Raises:
        TypeError: the records, or one of them, are something else; the text says what is wanted.
    """
    if hasattr(records, "__arrow_c_stream__") or hasattr(records, "__arrow_c_array__"):
        raise TypeError("kseg.arrow.from_arrow gives the records of a table or frame, in pieces")
    if isinstance(records, _ONE_VALUE) or not isinstance(records, Iterable):
        raise TypeError(f"{_WANTED}, not {type(records).__name__}")
    given = list(records)
    if given and all(type(one) is Record for one in given):
        columns = zip(*given, strict=True)
        return {
            name: list(column)
            for name, column in zip(Record._fields, columns, strict=True)
            if name in _NAMES
        }
    for number, one in enumerate(given):
        if type(one) not in (tuple, list) or len(one) != 2:
            raise TypeError(f"{_WANTED}; record {number} is {_kind_of(one)}")
    return {"key": [key for key, _ in given], "value": [value for _, value in given]}


def _kind_of(one: Any) -> str:
    size = f" of {len(one)}" if isinstance(one, (tuple, list)) else ""
    return f"{type(one).__name__}{size}"


def _values(column: Any, name: str) -> Any:
    """Keys or values as a tuple of bytes and None, text as UTF-8; the kernels refuse the rest."""
    if type(column) not in (list, tuple) and isinstance(column, (*_ONE_VALUE, Mapping)):
        kind = type(column).__name__
        raise TypeError(f"{name} is a list with one {name} a record, not {kind}")
    values = tuple(column)
    if not has_text(values):
        return values
    return tuple(one.encode() if isinstance(one, str) else one for one in values)


def _is_int64(column: Any) -> bool:
    return type(column) is np.ndarray and column.dtype == _INT64 and column.flags.c_contiguous


def _int64(column: Iterable[int], name: str) -> Any:
    """Numbers as int64; those that are no integers, or too large, are refused."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind not in "iu" or column.ndim != 1:
            raise TypeError(f"{name} is {column.dtype}[{column.ndim} dimensions], not int64[n]")
        if column.dtype == np.uint64 and len(column) and int(column.max()) > 2**63 - 1:
            raise ValueError(f"{name} has a number beyond 64 bits")
        return np.ascontiguousarray(column, np.int64)
    try:
        return int64s(column)
    except OverflowError:
        raise ValueError(f"{name} has a number beyond 64 bits") from None


def _times(column: Any) -> Any:
    """Timestamps as int64: what `kseg.time_ms` takes, -1 for None and NaT."""
    if isinstance(column, np.ndarray):
        return datetimes_ms(column) if column.dtype.kind == "M" else _int64(column, "timestamp")
    times = column if type(column) is list else list(column)
    try:
        return _int64(times, "timestamp")
    except TypeError:
        given = (NO_TIMESTAMP if time is None else time_ms(time) for time in times)
        return _int64(list(given), "timestamp")


def _lists_of(headers: Any) -> tuple[Any, ...]:
    """First header of each record, names and values; nothing where there are no headers at all."""
    if isinstance(headers, HeadersColumn):
        return headers.offsets, headers.keys, headers.values
    lists = [tuple(pairs) for pairs in headers]
    offsets = array("i", accumulate(map(len, lists), initial=0))
    pairs = list(chain.from_iterable(lists))
    names = tuple(name.encode() if type(name) is str else name for name, _ in pairs)
    return offsets, names, _values([value for _, value in pairs], "value")


__all__ = ["SOURCE_FIELDS", "RecordSource", "Rows", "columns_of", "rows_of"]
