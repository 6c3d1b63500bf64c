"""Payloads in blocks of bounded size: many at once by a fast reader, the others one by one.

A fast reader marks the rows that it leaves alone. An exact reader takes each of these, or says why
it is not a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from kseg.constants import Bools, Int32s, Uint8s
from kseg.extras import require

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = require("pyarrow", extra="arrow")

#: Why rows are null, by row.
Reasons = dict[int, str]

#: So many payloads, and so many of their bytes if there is more than one, are decoded at once.
BLOCK_ROWS: Final = 1 << 18
BLOCK_BYTES: Final = 32 << 20
#: So many values of the exact reader are Python's at once.
EXACT_ROWS: Final = 1024
#: A block has at most so many values in columns: a few bytes may mean very many.
VALUES_MAX: Final = 1 << 24
#: Marks of a fast reader: a row for the exact reader, and a row with too many values.
ODD: Final = 1
LARGE: Final = 2

#: Marks rows of a block from the first on, and gives the values of so many; the values of marked
#: rows are ignored.
Fast = Callable[["Block"], tuple["pa.Array", Uint8s]]
#: Gives a value as `pa.array` takes it; ValueError with the reason if it does not decode.
Exact = Callable[[bytes], Any]


class Block(NamedTuple):
    """Some payloads in Arrow's layout.

    Attributes:
        payloads: n of them, of type binary.
        offsets: int32[n + 1].
        data: uint8, the bytes that the offsets refer to.
        valid: bool[n]: which are not null.
    """

    payloads: pa.BinaryArray
    offsets: Int32s
    data: Uint8s
    valid: Bools


def decode_blocks(
    payloads: pa.BinaryArray | pa.LargeBinaryArray, kind: pa.DataType, fast: Fast, exact: Exact
) -> tuple[pa.Array, Reasons]:
    """Decode payloads, most of them by `fast`.

    Args:
        payloads: n of them; null stays null.
        kind: the type of the values.
        fast: the reader of blocks.
        exact: the reader for rows that `fast` marks as `ODD`.

    Returns:
        n values, and why a row is null whose payload is not.
    """
    parts: list[pa.Array] = []
    reasons: Reasons = {}
    first = 0
    while first < len(payloads):
        block = block_at(payloads, first)
        values, marks = fast(block)
        exact_values: list[Any] = []
        made, rows = [values], []
        for row in np.flatnonzero(marks * block.valid[: len(marks)]).tolist():
            try:
                if marks[row] == LARGE:
                    raise ValueError(f"more than {VALUES_MAX} values")
                exact_values.append(exact(block.payloads[row].as_py()))
                rows.append(row)
            except ValueError as error:
                reasons[first + row] = str(error)
            if len(exact_values) == EXACT_ROWS:
                made.append(pa.array(exact_values, kind))
                exact_values = []
        if rows:
            order = np.arange(len(marks))
            order[rows] = len(marks) + np.arange(len(rows))
            values = pa.concat_arrays([*made, pa.array(exact_values, kind)]).take(pa.array(order))
        parts.append(values)
        first += len(marks)
    if len(parts) == 1:
        return parts[0], reasons
    return pa.concat_arrays(parts) if parts else pa.array([], kind), reasons


def block_at(payloads: pa.BinaryArray | pa.LargeBinaryArray, first: int) -> Block:
    """The payloads from one on that make a block.

    Args:
        payloads: more than `first` of them.
        first: the row.
    """
    width = np.int64 if pa.types.is_large_binary(payloads.type) else np.int32
    ends = np.frombuffer(payloads.buffers()[1], width)[payloads.offset :][: len(payloads) + 1]
    fitting = int(np.searchsorted(ends, ends[first] + BLOCK_BYTES, "right")) - 1 - first
    count = min(max(fitting, 1), BLOCK_ROWS)
    # A copy, so that it has bytes of its own from 0 on.
    some = pa.concat_arrays([payloads.slice(first, count).cast(pa.binary()), _NONE])
    _, offsets, data = some.buffers()
    return Block(
        some,
        np.frombuffer(offsets, np.int32)[: count + 1],
        np.frombuffer(data or b"", np.uint8),
        some.is_valid().to_numpy(zero_copy_only=False),
    )


_NONE: Final = pa.array([], pa.binary())


class Decoder(Protocol):
    """Decodes payloads of one schema into values of one Arrow type."""

    @property
    def type(self) -> pa.DataType:
        """The type of every value; the schema alone decides it."""

    def decode(self, payloads: pa.BinaryArray | pa.LargeBinaryArray) -> tuple[pa.Array, Reasons]:
        """Decode payloads, which have no prefix.

        A damaged payload never raises. Memory is bounded by the bytes of the payloads.

        Args:
            payloads: n payloads; null stays null without a reason.

        Returns:
            n values of `type`, and a reason for each row whose payload does not decode; these
            values are null.
        """
