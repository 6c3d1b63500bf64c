"""What a reader keeps from piece to piece: the meaning of its request, and memory to use again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kseg._kernels.reader import Inflated
from kseg.format.arena import Arena
from kseg.format.recycle import Recycler
from kseg.format.request import BODY_BYTES_MAX, BYTES_MAX, ROWS_MAX
from kseg.format.values import RECORD_FIELDS

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.request import Request

#: Arrow's binary offsets are 32-bit.
_COLUMN_BYTES_MAX: Final = 2**31 - 1
_SPAN_FIELDS: Final = 6
#: The fields that a record itself holds, as bits for the kernel that reads batches.
_BITS: Final = {"offset": 1, "timestamp": 2, "key": 4, "value": 8, "headers": 16}


class Plan:
    """What a request means for the kernels; made once a reader.

    Attributes:
        within: least and last offset, least and last timestamp.
        ask: the same and the rest, for the kernel that reads batches, as `csrc/reader.h` orders it.
        bytes_max: bound of one piece, within what Arrow can hold.
        as_large_as_possible: only the bytes at hand bound a piece.
        takes_data: keys, values or headers are wanted.
        shares: a column comes from the batches rather than the records.
        wants_types: all that `RecordColumns.records` needs is wanted but for the type, which is
            cheap to know.
        notes_valid: wrong checksums that are not refused are noted.
        binary: which of key and value are wanted.
    """

    __slots__ = (
        "as_large_as_possible",
        "ask",
        "binary",
        "bytes_max",
        "notes_valid",
        "request",
        "shares",
        "takes_data",
        "wants_headers",
        "wants_offset",
        "wants_timestamp",
        "wants_types",
        "within",
    )

    def __init__(self, request: Request) -> None:
        """Work it out."""
        fields = set(request.fields)
        self.request = request
        self.within = request.within
        self.bytes_max = min(request.bytes_max, _COLUMN_BYTES_MAX)
        self.as_large_as_possible = request.rows_max > ROWS_MAX and request.bytes_max > BYTES_MAX
        self.wants_offset = not fields.isdisjoint(("offset", "sequence"))
        self.wants_timestamp = "timestamp" in fields
        self.wants_headers = "headers" in fields
        self.wants_types = set(RECORD_FIELDS) - fields == {"timestamp_type"}
        self.notes_valid = "valid" in fields and not request.verify_crc
        self.binary = tuple(name for name in ("key", "value") if name in fields)
        self.takes_data = bool(self.binary) or self.wants_headers
        self.shares = not fields <= _BITS.keys()
        bits = sum(_BITS[name] for name in fields & _BITS.keys())
        bits |= _BITS["offset"] * self.wants_offset
        inflated_max = min(request.inflated_max, self.bytes_max, BODY_BYTES_MAX)
        flags = [bits, request.control, request.verify_crc, self.wants_types]
        self.ask = np.array([*flags, *self.within.tolist(), inflated_max], np.int64)


class Workspace:
    """Memory that a reader uses again for each piece; belongs to one reader in one thread.

    Attributes:
        arena: for what is inflated with care.
        inflated: for what the kernel that reads batches inflates.
        empty: gives arrays with undefined contents.
        rows_a_byte, headers_a_byte: of the piece before, to size the next one.
    """

    __slots__ = ("_plan", "arena", "empty", "headers_a_byte", "inflated", "rows_a_byte", "spans")

    def __init__(self) -> None:
        """Start empty."""
        self.arena = Arena()
        self.inflated = Inflated()
        self.spans = np.empty((0, _SPAN_FIELDS), np.int32)
        self.empty = Recycler().empty
        self.rows_a_byte = 1 / 64
        self.headers_a_byte = 1 / 256
        self._plan: Plan | None = None

    def plan(self, request: Request) -> Plan:
        """The plan for a request; the last one is kept."""
        plan = self._plan
        if plan is None or plan.request is not request:
            plan = self._plan = Plan(request)
        return plan

    def spans_for(self, rows: int) -> npt.NDArray[np.int32]:
        """int32[rows, 6], contents undefined."""
        if len(self.spans) < rows:
            self.spans = np.empty((rows, _SPAN_FIELDS), np.int32)
        return self.spans[:rows]


__all__ = ["Plan", "Workspace"]
