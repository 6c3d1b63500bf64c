"""Turn the records that a caller gives, columns or sequences, into columns for the kernels.

Owns how a user's mapping becomes `Rows`, the columns lent to the writing kernels. Sequences of
bytes are handed over as they are; nothing is copied but numbers that come as Python's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np

from kseg._kernels.encode import Rows, int64s
from kseg.constants import NO_TIMESTAMP
from kseg.format.times import datetimes_ms, time_ms
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns

#: Where records come from: "offset" as an int64 array or a sequence of int; "timestamp" likewise in
#: ms, or as a datetime64 array or a sequence of what `kseg.time_ms` takes, None for none; "key" and
#: "value" as `BinaryColumn` or sequences of bytes and None; "headers" as `HeadersColumn` or
#: sequences of (name, value) for each record. All are optional but one.
RecordSource: TypeAlias = RecordColumns | Mapping[str, Any]

#: The fields that records are written from.
SOURCE_FIELDS = ("offset", "timestamp", "key", "value", "headers")

_NAMES = frozenset(SOURCE_FIELDS)
_INT64 = np.dtype(np.int64)


def rows_of(source: RecordSource | Rows) -> Rows:
    """The source's columns, lent to the writing kernels as long as the result lives.

    Args:
        source: columns that were read, whose other fields are ignored, or a mapping. The defaults
            for missing columns: consecutive offsets, no timestamp (-1), null keys and values, no
            headers.

    Raises:
        ValueError: columns differ in length, a name is unknown, or there is no column at all.
        TypeError: a value is of another type than its field.
        InvalidRecordError: a header has no name.
    """
    if isinstance(source, Rows):
        return source
    if isinstance(source, RecordColumns):
        fields: Mapping[str, Any] = source.arrays
        length = source.length
    else:
        fields, length = source, -1
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
        key = tuple(key)
    if value is not None and type(value) is not BinaryColumn:
        value = tuple(value)
    if headers is None:
        return Rows(length, offset, timestamp, key, value)
    return Rows(length, offset, timestamp, key, value, *_lists_of(headers))


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
    return offsets, names, tuple(value for _, value in pairs)


__all__ = ["SOURCE_FIELDS", "RecordSource", "Rows", "rows_of"]
