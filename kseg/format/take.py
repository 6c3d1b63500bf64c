"""Rows of record columns selected by index, pieces joined, and keys hashed and counted.

The kernel that gathers bytes copies them; this module only computes their places. Pieces are joined
since the records of one batch may come in several.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from kseg import _core
from kseg._kernels.keymap import KeyTable, hash_values, note_distinct
from kseg.constants import INT32_MAX, NO_TIMESTAMP, Array, Bools, Int8s, Int32s, Int64s, Intps
from kseg.format.times import DAY_MS
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns, TypedColumn, freeze


def runs(*columns: Array) -> Iterator[tuple[int, int]]:
    """The stretches `[first, end)` over which all of the columns stay the same."""
    count = len(columns[0])
    if not count:
        return
    change = np.zeros(count, np.bool_)
    for column in columns:
        change[1:] |= column[1:] != column[:-1]
    yield from pairwise([0, *np.flatnonzero(change).tolist(), count])


#: Spare bytes that the kernel wants after its output.
_COPY_SLACK = 64
_NO_BITS = np.empty(0, np.uint8)


#: No time of 64 bits is in this day.
_NO_DAY = np.iinfo(np.int64).min


def split_days(columns: RecordColumns) -> Iterator[tuple[int | None, RecordColumns]]:
    """The records of each day in UTC, in their order; records without a time form a group.

    Yields:
        The number of the day since 1970, None for no time; and its records.
    """
    times = columns["timestamp_ms"]
    days = np.where(times == NO_TIMESTAMP, _NO_DAY, times // DAY_MS)
    if not len(days) or (days == days[0]).all():
        parts: list[Any] = [slice(None)] if len(days) else []
    else:
        order = np.argsort(days, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(days[order])) + 1)
    for part in parts:
        day = int(days[part][0])
        rows = columns if isinstance(part, slice) else take_rows(columns, part)
        yield None if day == _NO_DAY else day, rows


def take_rows(columns: RecordColumns, index: Intps) -> RecordColumns:
    """The rows whose numbers are in `index`, in its order.

    Args:
        columns: any fields.
        index: intp[m], each within `[0, len(columns))`.

    Returns:
        Columns of their own memory, read-only.

    Raises:
        ValueError: the index repeats rows until a column passes 2 GiB.
    """
    arrays = {name: _take(column, index) for name, column in columns.arrays.items()}
    types = columns.timestamp_types
    if isinstance(types, np.ndarray):
        types = types[index]
    for column in (*arrays.values(), types):
        freeze(column)
    return replace(columns, length=len(index), arrays=arrays, timestamp_types=types)


def _take(column: Any, index: Intps) -> Any:
    """The rows of a column, of any kind, whose numbers are in `index`, in that order."""
    if isinstance(column, BinaryColumn):
        return take_binary(column, index)
    if isinstance(column, HeadersColumn):
        return take_headers(column, index)
    if isinstance(column, TypedColumn):
        return replace(
            column,
            values=_take(column.values, index),
            valid=None if column.valid is None else column.valid[index],
        )
    # An array of Arrow has no index of rows.
    return column[index] if isinstance(column, np.ndarray) else column.take(index)


def take_binary(column: BinaryColumn, index: Intps) -> BinaryColumn:
    """The values in the rows `index`, in that order; see `take_rows`."""
    # For `gather`: the source (both are the same), the start and the size of each value.
    spans = np.zeros((len(index), 3), np.int64)
    spans[:, 1] = column.offsets[:-1][index]
    spans[:, 2] = column.sizes()[index]
    data: Any = column.data.data
    return gather(data, data, spans)


def gather(first: Any, second: Any, spans: Int64s) -> BinaryColumn:
    """Join byte strings from two buffers in a column.

    Args:
        first, second: the buffers.
        spans: int64[n, 3], for each value its buffer (0 or 1), its position, and its size, -1
            for null.

    Raises:
        ValueError: the values have more than 2 GiB.
    """
    count, sizes = len(spans), spans[:, 2]
    total, nulls = int(np.maximum(sizes, 0).sum()), int((sizes < 0).sum())
    if total > INT32_MAX:
        raise ValueError(f"{total} bytes do not fit into one column")
    offsets = np.empty(count + 1, np.int32)
    data = np.empty(total + _COPY_SLACK, np.uint8)
    bits = np.zeros((count + 7) // 8, np.uint8) if nulls else _NO_BITS
    _core.gather(first, second, spans, offsets, data, bits)
    return BinaryColumn(offsets, data[:total], bits if nulls else None, nulls)


def take_headers(column: HeadersColumn, index: Intps) -> HeadersColumn:
    """The lists of `index`, in its order; see `take_rows`."""
    starts = column.offsets[:-1][index].astype(np.int64)
    counts = column.offsets[1:][index] - starts
    offsets = np.zeros(len(index) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    flat = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
    keys, values = take_binary(column.keys, flat), take_binary(column.values, flat)
    return HeadersColumn(offsets.astype(np.int32), keys, values)


def first_rows(pieces: Generator[RecordColumns], limit: int | None) -> Generator[RecordColumns]:
    """The first rows of all pieces, which are closed then; no piece is empty.

    Args:
        pieces: not read after the limit.
        limit: the number of rows; None for all.
    """
    rows_left = limit
    with closing(pieces):
        while rows_left != 0:
            columns = next(pieces, None)
            if columns is None:
                return
            part = columns if rows_left is None else columns[:rows_left]
            if len(part):
                yield part
            if rows_left is not None:
                rows_left -= len(part)


#: Bytes compared at a time, so that a key's mask takes little memory for pieces of any size.
_COMPARED_BYTES = 1 << 20


def last_rows(pieces: Sequence[RecordColumns], count: int) -> list[RecordColumns]:
    """The last rows of some pieces, no more than there are."""
    parts: list[RecordColumns] = []
    for columns in reversed(pieces):
        part = columns[max(0, len(columns) - count) :] if count > 0 else columns[:0]
        count -= len(part)
        if len(part):
            parts.insert(0, part)
    return parts


def last_rows_of_each(pieces: Iterable[RecordColumns], count: int) -> Iterator[RecordColumns]:
    """The last rows of each source; a piece whose `source` is None ends a source's pieces."""
    latest: list[RecordColumns] = []
    for columns in pieces:
        if columns.source is None:
            yield from latest
            latest = []
        else:
            latest = last_rows([*latest, columns], count)


def equal_to(column: BinaryColumn, key: bytes) -> Bools:
    """bool[n]: whether each value is exactly these bytes; false for null."""
    mask: Bools = column.sizes() == len(key)
    key_bytes = np.frombuffer(key, np.uint8)
    rows = np.flatnonzero(mask)
    step = max(1, _COMPARED_BYTES // max(1, len(key)))
    for first in range(0, len(rows) if len(key) else 0, step):
        some = rows[first : first + step]
        at = column.offsets[some].astype(np.int64)[:, None] + np.arange(len(key))
        mask[some] = (column.data[at] == key_bytes).all(axis=1)
    return mask


def take_equal(columns: RecordColumns, key: bytes) -> RecordColumns:
    """The records whose key is exactly these bytes."""
    same = equal_to(columns["key"], key)
    return columns if same.all() else take_rows(columns, np.flatnonzero(same))


def join_rows(pieces: Sequence[RecordColumns]) -> RecordColumns:
    """The rows of all pieces, one piece after another.

    Args:
        pieces: one or more, with the same fields. A single one is returned as it is.

    Returns:
        Columns of their own memory, read-only.

    Raises:
        ValueError: the fields differ, or a column would pass 2 GiB.
    """
    first = pieces[0]
    if len(pieces) == 1:
        return first
    if any(set(piece.fields) != set(first.fields) for piece in pieces):
        raise ValueError("only pieces with the same fields can be joined")
    arrays = {name: _join([piece.arrays[name] for piece in pieces]) for name in first.fields}
    types = _join_types(pieces)
    for column in (*arrays.values(), types):
        freeze(column)
    return RecordColumns(sum(map(len, pieces)), arrays, timestamp_types=types)


def _join_types(pieces: Sequence[RecordColumns]) -> Int8s | None:
    """The type of each record's timestamp; None if a piece does not know its own."""
    parts = []
    for piece in pieces:
        if piece.timestamp_types is None:
            return None
        parts.append(np.broadcast_to(np.asarray(piece.timestamp_types, np.int8), len(piece)))
    return np.concatenate(parts)


def _join(columns: list[Any]) -> Any:
    """Join columns of one kind, one after the other."""
    if isinstance(columns[0], BinaryColumn):
        return join_binary(columns)
    if isinstance(columns[0], HeadersColumn):
        return HeadersColumn(
            _offsets([column.offsets for column in columns]),
            join_binary([column.keys for column in columns]),
            join_binary([column.values for column in columns]),
        )
    return np.concatenate(columns)


def join_binary(columns: Sequence[BinaryColumn]) -> BinaryColumn:
    """The values of all columns, one column after another; see `join_rows`."""
    null_count = sum(column.null_count for column in columns)
    validity = None
    if null_count:
        valid = np.concatenate([column.is_valid() for column in columns])
        validity = np.packbits(valid, bitorder="little")
    offsets = _offsets([column.offsets for column in columns])  # refuses more than it can copy
    parts = [column.data[column.offsets[0] : column.offsets[-1]] for column in columns]
    return BinaryColumn(offsets, np.concatenate(parts), validity, null_count)


def _offsets(parts: list[Int32s]) -> Int32s:
    """The offsets of joined columns, int32[n + 1], from those of each; ValueError from 2 GiB on."""
    sizes = np.concatenate([np.diff(part) for part in parts])
    total = int(sizes.sum(dtype=np.int64))
    if total > INT32_MAX:
        raise ValueError(f"{total} bytes do not fit into one column")
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


__all__ = [
    "KeyTable",
    "equal_to",
    "first_rows",
    "gather",
    "hash_values",
    "join_binary",
    "join_rows",
    "note_distinct",
    "runs",
    "split_days",
    "take_binary",
    "take_equal",
    "take_headers",
    "take_rows",
]
