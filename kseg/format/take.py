"""Some rows of record columns, by index: what a mask keeps, in Arrow's layout again.

The kernel that gathers bytes copies them; this module only computes their places.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg import _core
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns, TypedColumn, freeze

if TYPE_CHECKING:
    import numpy.typing as npt

    Index = npt.NDArray[np.intp]

#: Spare bytes that the kernel wants behind what it writes.
_COPY_SLACK = 64
_NO_BITS = np.empty(0, np.uint8)


def take_rows(columns: RecordColumns, index: Index) -> RecordColumns:
    """The rows of `index`, in its order.

    Args:
        columns: any fields.
        index: intp[m], each within `[0, len(columns))`.

    Returns:
        Columns of their own memory, read-only.

    Raises:
        ValueError: the index repeats rows until a column passes 2 GiB.
    """
    taken = {name: _take(column, index) for name, column in columns.arrays.items()}
    types = columns.timestamp_types
    if isinstance(types, np.ndarray):
        types = types[index]
    for column in (*taken.values(), types):
        freeze(column)
    return replace(columns, length=len(index), arrays=taken, timestamp_types=types)


def _take(column: Any, index: Index) -> Any:
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
    return column[index]


def take_binary(column: BinaryColumn, index: Index) -> BinaryColumn:
    """The values of `index`, in its order; see `take_rows`."""
    count = len(index)
    sizes = column.sizes()[index]
    total, nulls = int(np.maximum(sizes, 0).sum(dtype=np.int64)), int((sizes < 0).sum())
    if total > 2**31 - 1:
        raise ValueError(f"{total} bytes do not fit into one column")
    spans = np.empty((count, 3), np.int64)
    spans[:, 0] = 0
    spans[:, 1] = column.offsets[:-1][index]
    spans[:, 2] = sizes
    offsets = np.empty(count + 1, np.int32)
    data = np.empty(total + _COPY_SLACK, np.uint8)
    bits = np.zeros((count + 7) // 8, np.uint8) if nulls else _NO_BITS
    lent: Any = column.data.data
    _core.gather(lent, lent, spans, offsets, data, bits)
    return BinaryColumn(offsets, data[:total], bits if nulls else None, nulls)


def take_headers(column: HeadersColumn, index: Index) -> HeadersColumn:
    """The lists of `index`, in its order; see `take_rows`."""
    starts = column.offsets[:-1][index].astype(np.int64)
    counts = column.offsets[1:][index] - starts
    offsets = np.zeros(len(index) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    flat = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
    keys, values = take_binary(column.keys, flat), take_binary(column.values, flat)
    return HeadersColumn(offsets.astype(np.int32), keys, values)


__all__ = ["take_binary", "take_headers", "take_rows"]
