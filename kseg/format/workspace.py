"""What a reader keeps from piece to piece: the meaning of its request, and memory to use again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from kseg._kernels.reader import Inflated
from kseg.format.arena import Arena
from kseg.format.recycle import Recycler
from kseg.format.request import BODY_BYTES_MAX, BYTES_MAX, HAS_VALUE, ROWS_MAX
from kseg.format.values import RECORD_FIELDS

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.request import Request

#: Bytes of bodies in a piece with keys, values or headers: its columns are written while they are
#: in the second-level cache.
PIECE_BYTES: Final = 512 << 10
#: The same in a stream whose consumer lets pieces go: fewer objects for each outweigh that the end
#: of a piece leaves that cache.
STREAMED_BYTES: Final = 1 << 20
#: So many pieces that a caller keeps do not tell yet that it keeps all.
_KEPT_FIRST: Final = 8
#: What becomes of pieces. "held": each is let go, or kept, as it is. "streamed": who keeps all gets
#: larger ones. "kept": all are kept.
Use = Literal["held", "streamed", "kept"]
#: Takes bytes, and stretches of them that will be filled for sure; gives uint8[bytes].
Fresh = Callable[[int, Sequence[tuple[int, int]]], "npt.NDArray[np.uint8]"]
#: For those: the bytes of a piece, as a multiple of what is kept already, and at the most.
_GROWTH: Final = {"streamed": (1, 32 << 20), "kept": (4, 1 << 30)}
#: Arrow's binary offsets are 32-bit.
_COLUMN_BYTES_MAX: Final = 2**31 - 1
#: The fields that a record itself holds, as bits for the kernel that reads batches.
_BITS: Final = {"offset": 1, "timestamp": 2, "key": 4, "value": 8, "headers": 16, HAS_VALUE: 32}


class Plan:
    """What a request means for the kernels; made once a reader.

    Attributes:
        ask: what is wanted, for the kernel that reads batches, as `csrc/reader.h` orders it.
        bytes_max: bound of one piece, within what Arrow can hold.
        as_large_as_possible: only the bytes at hand bound a piece.
        rows_max: bound of one piece.
        grows: a piece is as large as the workspace says.
        takes_data: keys, values or headers are wanted.
        shares: a column comes from the batches rather than the records.
        wants_types: all that `RecordColumns.records` needs is wanted but for the type, which is
            cheap to know.
    """

    __slots__ = (
        "as_large_as_possible",
        "ask",
        "bytes_max",
        "grows",
        "request",
        "rows_max",
        "shares",
        "takes_data",
        "wants_headers",
        "wants_types",
    )

    def __init__(self, request: Request, *, grows: bool = False) -> None:
        """Work it out.

        Args:
            request: what is asked for.
            grows: unless the request sets bounds of its own, pieces may be larger than usual.
        """
        fields = set(request.fields)
        self.request = request
        self.bytes_max = min(request.bytes_max, _COLUMN_BYTES_MAX)
        usual = request.rows_max == ROWS_MAX and request.bytes_max == BYTES_MAX
        self.grows = grows and usual
        self.rows_max = request.rows_max
        if self.grows:
            self.rows_max = self.bytes_max = _COLUMN_BYTES_MAX
        self.as_large_as_possible = request.rows_max > ROWS_MAX and request.bytes_max > BYTES_MAX
        self.wants_headers = "headers" in fields
        self.wants_types = set(RECORD_FIELDS) - fields == {"timestamp_type"}
        self.takes_data = not fields.isdisjoint(("key", "value", "headers"))
        self.shares = not fields <= _BITS.keys()
        bits = sum(_BITS[name] for name in fields & _BITS.keys())
        if "sequence" in fields:  # which is told by the offset
            bits |= _BITS["offset"]
        # Wrong checksums that are not refused are noted.
        notes_valid = "valid" in fields and not request.verify_crc
        inflated_max = min(request.inflated_max, self.bytes_max, BODY_BYTES_MAX)
        flags = [bits, request.control, request.verify_crc, self.wants_types, notes_valid]
        self.ask = np.array([*flags, *request.within.tolist(), inflated_max], np.int64)


class Workspace:
    """Memory that a reader uses again for each piece; belongs to one reader in one thread.

    Attributes:
        arena: for what is inflated with care.
        inflated: for what the kernel that reads batches inflates.
        empty: gives arrays with undefined contents.
        rows_a_byte, headers_a_byte: of the piece before, to size the next one.
        data_a_byte: likewise bytes of each column of bytes, by its place in a block.
    """

    __slots__ = (
        "_fresh",
        "_given",
        "_piece_bytes",
        "_plan",
        "_recycler",
        "_use",
        "arena",
        "data_a_byte",
        "empty",
        "headers_a_byte",
        "inflated",
        "rows_a_byte",
    )

    def __init__(
        self, *, use: Use = "held", fresh: Fresh | None = None, piece_bytes: int = PIECE_BYTES
    ) -> None:
        """Start empty.

        Args:
            use: what becomes of the pieces.
            piece_bytes: bytes of bodies in a piece that is held.
            fresh: gives memory for large ones; the heap if None.
        """
        self.arena = Arena()
        self.inflated = Inflated()
        self._recycler = Recycler()
        self.empty = self._recycler.empty
        self.rows_a_byte = 1 / 64
        self.headers_a_byte = 1 / 256
        self.data_a_byte: dict[int, float] = {}
        self._plan: Plan | None = None
        self._use: Use = use
        self._piece_bytes = piece_bytes
        self._fresh: Fresh = fresh or (lambda total, _filled: np.empty(total, np.uint8))
        self._given: list[tuple[weakref.ref[npt.NDArray[Any]], int]] = []

    def plan(self, request: Request) -> Plan:
        """The plan for a request; the last one is kept."""
        plan = self._plan
        if plan is None or plan.request is not request:
            plan = self._plan = Plan(request, grows=self._use != "held")
        return plan

    def piece_bytes(self) -> int:
        """Bytes of bodies for the next piece: more, the more of the pieces before are still in use.

        So memory is taken in the measure of what was read, whatever a file says of itself; and who
        lets go what it got gets pieces that stay in the cache.
        """
        if self._use == "held":
            return self._piece_bytes
        growth, most = _GROWTH[self._use]
        self._given = [given for given in self._given if given[0]() is not None]
        if self._use == "streamed":
            if self._recycler.has_unused:
                return STREAMED_BYTES
            if len(self._given) < _KEPT_FIRST:
                return PIECE_BYTES
        in_use = sum(size for _, size in self._given)
        return min(max(PIECE_BYTES, int(in_use * growth)), most)

    def block(
        self, total: int, size: int, filled: Sequence[tuple[int, int]]
    ) -> npt.NDArray[np.uint8]:
        """A block for a piece.

        Args:
            total: its bytes.
            size: bytes of bodies that it has room for.
            filled: stretches of it that will be filled for sure.

        Returns:
            uint8[n >= total], contents undefined.
        """
        if self._use == "held":
            return self.empty(total, np.uint8)
        block = (
            self.empty(total, np.uint8) if size <= STREAMED_BYTES else self._fresh(total, filled)
        )
        owner = _owner(block)
        if all(given() is not owner for given, _ in self._given):
            self._given.append((weakref.ref(owner), size))
        return block


def _owner(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array that lives as long as any view of its memory does."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


__all__ = ["PIECE_BYTES", "STREAMED_BYTES", "Plan", "Workspace"]
