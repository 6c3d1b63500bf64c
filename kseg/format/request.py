"""What a reader asks for: which records, which fields of them, and how much at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kseg.constants import INT64_MAX, Array, Int64s
from kseg.format.header import BATCH_FIELDS, BatchTable

INT64_MIN = -INT64_MAX - 1
#: The end that leaves nothing out: an offset, or a time, may be the largest number of 64 bits.
NO_END = INT64_MAX + 1
#: Default bounds of one piece.
ROWS_MAX = 65_536
BYTES_MAX = 16 << 20
#: A batch may inflate to this much before it is refused. Kafka's own bound is its 32-bit positions.
INFLATED_BYTES_MAX = 2**31 - 1

_RECORD_LEVEL = (
    "base_offset",
    "offset",
    "next_offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "sequence",
    "control_type",
)
#: A batch with a larger body is not read in one pass, and not inflated for it.
BODY_BYTES_MAX = 16 << 20
#: Every field that can be asked for.
FIELDS = (*BATCH_FIELDS, *_RECORD_LEVEL)
#: A further one, for who decides by it: bool[n], whether a record has a value.
HAS_VALUE = "has_value"
#: The fields decoded by default.
FIELDS_DEFAULT = ("offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Request:
    """Which records, which fields of them, and how much at a time.

    Attributes:
        fields: names out of `FIELDS`.
        offset_start, offset_end: records with `offset_start <= offset < offset_end`.
        timestamp_start, timestamp_end: the same for timestamps in ms; magic 0 has -1.
        rows_max, bytes_max: bounds of one piece; a record larger than `bytes_max` is a piece of its
            own.
        control: give control records too. A consumer never sees them.
        verify_crc: refuse batches, and messages inside compressed ones, whose checksum is wrong.
        inflated_max: refuse batches that inflate to more bytes.
        constants_once: a column that comes from the batches, and is the same in all of a piece, has
            its value in memory once, at stride 0.
    """

    fields: tuple[str, ...] = FIELDS_DEFAULT
    offset_start: int = INT64_MIN
    offset_end: int = NO_END
    timestamp_start: int = INT64_MIN
    timestamp_end: int = NO_END
    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX
    control: bool = False
    verify_crc: bool = True
    inflated_max: int = INFLATED_BYTES_MAX
    constants_once: bool = False

    def __post_init__(self) -> None:
        """Refuse what makes no sense, by name."""
        unknown = [name for name in self.fields if name not in (*FIELDS, HAS_VALUE)]
        if unknown:
            raise ValueError(f"no field {', '.join(unknown)}; there are: {', '.join(FIELDS)}")
        if self.rows_max < 1 or self.bytes_max < 1:
            raise ValueError("a piece holds at least one row and one byte")

    @property
    def within(self) -> Int64s:
        """int64[4] as the kernels take it: least and last offset, least and last timestamp."""
        offsets = _closed(self.offset_start, self.offset_end)
        return np.array(offsets + _closed(self.timestamp_start, self.timestamp_end), np.int64)

    @property
    def whole(self) -> bool:
        """Whether no record is passed over for its offset or time."""
        least = max(self.offset_start, self.timestamp_start) <= INT64_MIN
        return least and min(self.offset_end, self.timestamp_end) >= NO_END


def _closed(start: int, end: int) -> tuple[int, int]:
    """The least and the last number of a half-open range, within 64 bits."""
    if end <= INT64_MIN or start > INT64_MAX:
        return INT64_MAX, INT64_MIN  # nothing lies between
    return max(start, INT64_MIN), min(end - 1, INT64_MAX)


def narrow(table: BatchTable, request: Request) -> BatchTable:
    """The batches that can hold a record of the request, told by their headers."""
    keep: Array | None = None
    if not request.whole:
        least, last = _closed(request.offset_start, request.offset_end)
        earliest, _latest = _closed(request.timestamp_start, request.timestamp_end)
        keep = (table.last_offset >= least) & (table.base_offset <= last)
        if earliest > INT64_MIN:
            keep &= table.max_timestamp >= earliest
    if not request.control and table.attributes_seen & 0x20:
        data = ~table.is_control
        keep = data if keep is None else keep & data
    return table if keep is None or keep.all() else table.take(keep)
