"""Join pieces of record columns: the records of one batch may come in several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns, freeze

if TYPE_CHECKING:
    import numpy.typing as npt


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
    arrays = {name: _join([piece[name] for piece in pieces]) for name in first.fields}
    types = _join_types(pieces)
    for column in (*arrays.values(), types):
        freeze(column)
    return RecordColumns(sum(map(len, pieces)), arrays, timestamp_types=types)


def _join_types(pieces: Sequence[RecordColumns]) -> npt.NDArray[np.int8] | None:
    parts = []
    for piece in pieces:
        if piece.timestamp_types is None:
            return None
        parts.append(np.broadcast_to(np.asarray(piece.timestamp_types, np.int8), len(piece)))
    return np.concatenate(parts)


def _join(columns: list[Any]) -> Any:
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
    offsets = _offsets([column.offsets for column in columns])  # refuses what is too much to copy
    data = np.concatenate([_own_data(column) for column in columns])
    return BinaryColumn(offsets, data, validity, null_count)


def _own_data(column: BinaryColumn) -> npt.NDArray[np.uint8]:
    """The bytes that the offsets span."""
    return column.data[column.offsets[0] : column.offsets[-1]]


def _offsets(parts: list[npt.NDArray[np.int32]]) -> npt.NDArray[np.int32]:
    sizes = np.concatenate([np.diff(part) for part in parts])
    total = int(sizes.sum(dtype=np.int64))
    if total > 2**31 - 1:
        raise ValueError(f"{total} bytes do not fit into one column")
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


__all__ = ["join_binary", "join_rows"]
