"""State that a reader keeps between pieces: the parsed request, and memory to use again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from kseg._kernels.blocks import Blocks
from kseg._kernels.located import Located
from kseg._kernels.reader import FIELD_BITS, BatchReader, Inflated
from kseg.constants import INT32_MAX, Int64s, Uint8s
from kseg.format.codec import Arena
from kseg.format.header import BATCHES_MAX
from kseg.format.request import BODY_BYTES_MAX, BYTES_MAX, ROWS_MAX, Request
from kseg.format.values import RECORD_FIELDS

#: Bytes of bodies in a piece with keys, values or headers: its columns are written while they are
#: in the second-level cache.
PIECE_BYTES: Final = 512 << 10
#: The same in a stream whose consumer lets pieces go: fewer objects for each outweigh that the end
#: of a piece leaves that cache.
STREAMED_BYTES: Final = 1 << 20
#: So many pieces that a caller keeps do not tell yet that it keeps all.
_KEPT_FIRST: Final = 8
#: The use of pieces. "held": each is dropped, or kept, as it is. "streamed": a consumer that keeps
#: all gets larger ones. "kept": all are kept.
Use = Literal["held", "streamed", "kept"]
#: Takes bytes, and stretches of them that will be filled for sure; gives uint8[bytes].
Fresh = Callable[[int, Sequence[tuple[int, int]]], "Uint8s"]
#: For those: the bytes of a piece, as a multiple of the bytes kept so far, and the maximum.
GROWTH: Final[dict[str, dict[str, int]]] = {
    "streamed": {
        "growth": 1,
        "most": 32 << 20,
        "again_bytes": STREAMED_BYTES,
        "least_kept": _KEPT_FIRST,
    },
    "kept": {"growth": 4, "most": 1 << 30},
}


class Plan:
    """A request in the terms of the kernels; made once a reader.

    Attributes:
        asked: the wanted fields, and the bounds of a piece, as `BatchReader` takes them.
        shares: a column comes from the batches rather than the records.
        wants_types: all that `RecordColumns.records` needs is wanted but for the type, which is
            cheap to know.
    """

    __slots__ = ("asked", "request", "shares", "wants_types")

    def __init__(self, request: Request, *, grows: bool = False) -> None:
        """Work it out.

        Args:
            request: the request.
            grows: unless the request sets bounds of its own, pieces may be larger than usual.
        """
        fields = set(request.columns)
        self.request = request
        self.wants_types = set(RECORD_FIELDS) - fields == {"timestamp_type"}
        self.shares = not fields <= FIELD_BITS.keys()
        read = fields & FIELD_BITS.keys()
        if "sequence" in fields:  # it follows from the offset
            read.add("offset")
        takes_data = not fields.isdisjoint(("key", "value", "headers"))
        usual = request.max_rows == ROWS_MAX and request.max_bytes == BYTES_MAX
        grows = grows and usual
        at_hand = request.max_rows > ROWS_MAX and request.max_bytes > BYTES_MAX
        # Arrow's binary offsets have 32 bits.
        bytes_max = INT32_MAX if grows else min(request.max_bytes, INT32_MAX)
        self.asked: dict[str, Any] = {
            "fields": sum(FIELD_BITS[name] for name in read),
            "control": request.control,
            "verify_crc": request.verify_crc,
            "one_type": self.wants_types,
            # Wrong checksums that are not refused are noted.
            "notes": "valid" in fields and not request.verify_crc,
            "within": request.within,
            "inflated_max": min(request.inflated_max, bytes_max, BODY_BYTES_MAX),
            "rows_max": INT32_MAX if grows else min(request.max_rows, INT32_MAX),
            "bytes_max": bytes_max,
            "rows_usual": INT32_MAX if grows or at_hand else ROWS_MAX,
            "body_max": BODY_BYTES_MAX,
            "sized": takes_data or grows,
            "as_large_as_possible": at_hand,
            "needle": request.contains.data,
            "folds": request.contains.folds,
        }


class Workspace:
    """Memory that a reader uses again for each piece; belongs to one reader in one thread.

    Attributes:
        arena: for batches inflated by Python.
        inflated: for batches inflated by the kernel.
        blocks: for the columns of pieces.
    """

    __slots__ = ("_counts", "_grows", "_located", "_plan", "arena", "blocks", "inflated")

    def __init__(
        self, *, use: Use = "held", fresh: Fresh | None = None, piece_bytes: int = PIECE_BYTES
    ) -> None:
        """Start empty.

        Args:
            use: of the pieces.
            piece_bytes: bytes of bodies in a piece that is held.
            fresh: allocates memory for large pieces; the heap if None.
        """
        self.arena = Arena()
        self.inflated = Inflated()
        self._grows = use != "held"
        growth: dict[str, Any] = GROWTH[use] if self._grows else {}
        if self._grows:
            growth = growth | {"fresh": fresh or _from_heap, "large_bytes": STREAMED_BYTES}
        self.blocks = Blocks(_empty, first_bytes=piece_bytes, **growth)
        self._plan: Plan | None = None
        self._counts: Int64s | None = None
        self._located: Located | None = None

    @property
    def located(self) -> Located:
        """For records that are looked at where they lie."""
        if self._located is None:
            self._located = Located()
        return self._located

    def plan(self, request: Request) -> Plan:
        """The plan for a request; the last one is kept."""
        plan = self._plan
        if plan is None or plan.request is not request:
            plan = self._plan = Plan(request, grows=self._grows)
        return plan

    @property
    def counts(self) -> Int64s:
        """int64[2, n], for records and base offsets of the batches of one piece."""
        if self._counts is None:
            self._counts = np.empty((2, BATCHES_MAX), np.int64)
        return self._counts

    def reader(self, plan: Plan) -> BatchReader:
        """A reader of batches with this memory; bytes inflated for another reader are dropped."""
        self.inflated.forget()
        return BatchReader(
            self.blocks, self.inflated, self.counts if plan.shares else None, **plan.asked
        )


def _empty(size: int) -> Uint8s:
    return np.empty(size, np.uint8)


def _from_heap(size: int, _filled: Sequence[tuple[int, int]]) -> Uint8s:
    return np.empty(size, np.uint8)
