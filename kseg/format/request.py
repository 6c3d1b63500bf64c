"""`Request`: the one value with all options of a reading, from `scan` down to the kernels."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Set
from dataclasses import field, replace
from datetime import date
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

import numpy as np

from kseg.constants import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    ISOLATIONS,
    OPEN_TRANSACTIONS,
    Array,
    Int64s,
)
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, OnError
from kseg.format.header import BATCH_FIELDS, CONTROL, BatchTable
from kseg.format.times import DAY_MS, Time, bound_ms, is_day, is_span, time_ms

#: The end that leaves nothing out: an offset, or a time, may be the largest number of 64 bits.
NO_END = INT64_MAX + 1
#: Default bounds of one piece.
ROWS_MAX = 65_536
BYTES_MAX = 16 << 20
#: Bytes of one fetch by default, as a consumer's `max.partition.fetch.bytes`.
FETCH_BYTES: Final = 2**20
#: A batch may inflate to this much before it is refused. Kafka's own bound is its 32-bit positions.
INFLATED_BYTES_MAX = INT32_MAX

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
#: Every field that can be requested.
FIELDS = (*BATCH_FIELDS, *_RECORD_LEVEL)
#: A further field, for decisions: bool[n], whether a record has a value.
HAS_VALUE = "has_value"
#: The fields decoded by default.
FIELDS_DEFAULT = ("offset", "timestamp", "key", "value", "headers")
#: Those that magic 0 and 1 have.
OLD_FIELDS = FIELDS_DEFAULT[:-1]


class Needle(NamedTuple):
    """Bytes that are in the records of a batch if any of its records is selected.

    Attributes:
        data: the bytes, in lower case if case does not count; empty matches any batch.
        folds: whether the case of ASCII letters does not count.
    """

    data: bytes = b""
    folds: bool = False


#: No batch is passed over.
ANY_RECORD: Final = Needle()


def key_needle(key: bytes | None) -> Needle:
    """A key as stored in a record of magic 2, after its length as a varint; None for any key."""
    if key is None:
        return ANY_RECORD
    number, length = len(key) * 2, bytearray()
    while number > 0x7F:
        length.append(number & 0x7F | 0x80)
        number >>= 7
    return Needle(bytes((*length, number)) + key)


OffsetBounds = tuple[int | None, int | None] | range | int
TimeBounds: TypeAlias = "tuple[Time | None, Time | None] | range | str | date"
_UNBOUND: Final = (None, None)
_TIMES: Final = 'one day, as a date or "2025-11-14"; "-7d"; or (start, end), each a time or None'


class RequestOptions(TypedDict, total=False):
    """The attributes of a `Request`, as keyword arguments of the methods that read."""

    columns: tuple[str, ...]
    offset: OffsetBounds | None
    time: TimeBounds | None
    now: Time | None
    max_rows: int
    max_bytes: int
    isolation: str
    open_transactions: str
    on_corrupt: str | OnError
    threads: int
    control: bool
    verify_crc: bool
    inflated_max: int
    constants_once: bool


@frozen_dataclass
class Request:
    """The records that a reading returns, their columns, and the size of its pieces.

    Attributes:
        columns: names out of `FIELDS`; only these are decoded.
        offset: `(start, end)` or a `range`, half open, None for no bound; or one offset.
        time: `(start, end)` of times, as `kseg.times.time_ms` takes them; one day in UTC, as a
            `date` or its ISO 8601, "today" or "yesterday"; or "-7d" for the last seven days.
            Records need not be in order of time. Messages of magic 0 have the time -1.
        now: the time that "now" and "-7d" refer to; refused if None.
        max_rows, max_bytes: bounds of one piece; a record larger than `max_bytes` is a piece of its
            own.
        isolation: "read_uncommitted", or "read_committed": no records of aborted transactions, and
            no record at or past the last stable offset. For whole partitions.
        open_transactions: "wait" ends committed records at the first open transaction; "abort"
            takes open transactions as aborted, as a broker's timeout makes them.
        on_corrupt: "raise" the fault of a damaged batch, after the records before it; "skip" the
            batch; or a function that takes each fault, while the batch is skipped.
        threads: the number of threads of `kseg.scan`.
        control: return control records too. A consumer never sees them.
        verify_crc: refuse batches, and messages inside compressed ones, whose checksum is wrong.
        inflated_max: refuse batches that inflate to more bytes.
        constants_once: a column that comes from the batches, and is the same in all of a piece, has
            its value in memory once, at stride 0.
        contains: batches of magic 2 whose records lack these bytes are passed over. Their checksums
            are compared; whether their records are sound is not looked at.
        offset_start, offset_end, time_start, time_end: the bounds as numbers.
    """

    columns: tuple[str, ...] = FIELDS_DEFAULT
    offset: OffsetBounds | None = _UNBOUND
    time: TimeBounds | None = _UNBOUND
    now: Time | None = None
    max_rows: int = ROWS_MAX
    max_bytes: int = BYTES_MAX
    isolation: str = "read_uncommitted"
    open_transactions: str = "wait"
    on_corrupt: str | OnError = "raise"
    threads: int = 1
    control: bool = False
    verify_crc: bool = True
    inflated_max: int = INFLATED_BYTES_MAX
    constants_once: bool = False
    contains: Needle = ANY_RECORD
    offset_start: int = field(init=False, repr=False)
    offset_end: int = field(init=False, repr=False)
    time_start: int = field(init=False, repr=False)
    time_end: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the values, and turn the bounds into numbers."""
        unknown = [name for name in self.columns if name not in (*FIELDS, HAS_VALUE)]
        if unknown:
            raise ValueError(f"no field {', '.join(unknown)}; there are: {', '.join(FIELDS)}")
        if self.max_rows < 1 or self.max_bytes < 1:
            raise ValueError("a piece holds at least one row and one byte")
        check_word("isolation", self.isolation, ISOLATIONS)
        check_word("open_transactions", self.open_transactions, OPEN_TRANSACTIONS)
        if isinstance(self.on_corrupt, str):
            check_word("on_corrupt", self.on_corrupt, ("raise", "skip"))
        if operator.index(self.threads) < 1:
            raise ValueError(f"threads is {self.threads}, not 1 or more")
        for name, bounds in (
            ("offset", _offset_bounds(self.offset)),
            ("time", time_bounds(self.time, self.now)),
        ):
            start, end = bounds
            object.__setattr__(self, name, bounds)  # a clock is read once
            object.__setattr__(self, f"{name}_start", INT64_MIN if start is None else start)
            object.__setattr__(self, f"{name}_end", NO_END if end is None else end)

    @classmethod
    def of(cls, request: Request | None, options: RequestOptions) -> Request:
        """A request with other options; a new one with these options if `request` is None.

        Raises:
            TypeError: an option is unknown.
        """
        return cls(**options) if request is None else replace(request, **options)

    @property
    def on_error(self) -> OnError | None:
        """The function that receives faults; None if they are raised."""
        if isinstance(self.on_corrupt, str):
            return None if self.on_corrupt == "raise" else _ignore
        return self.on_corrupt

    @property
    def bounds(self) -> tuple[tuple[int | None, int | None], tuple[int | None, int | None]]:
        """Start and end of the offsets, and of the times; None for no bound."""
        offsets = (self.offset_start, self.offset_end)
        starts_and_ends = (offsets, (self.time_start, self.time_end))
        first, second = (
            (None if start == INT64_MIN else start, None if end == NO_END else end)
            for start, end in starts_and_ends
        )
        return first, second

    @property
    def within(self) -> Int64s:
        """int64[4] in the kernels' order: lowest and highest offset, lowest and highest time."""
        offsets = _closed_range(self.offset_start, self.offset_end)
        return np.array(offsets + _closed_range(self.time_start, self.time_end), np.int64)

    @property
    def whole(self) -> bool:
        """Whether no record is passed over for its offset or time."""
        least = max(self.offset_start, self.time_start) <= INT64_MIN
        return least and min(self.offset_end, self.time_end) >= NO_END


def check_word(name: str, word: str, words: tuple[str, ...]) -> None:
    """Refuse a value that an option does not have.

    Raises:
        ValueError: it is not among `words`.
    """
    if word not in words:
        raise ValueError(f"{name} is {' or '.join(words)}, not {word!r}")


def _offset_bounds(bounds: OffsetBounds | None) -> tuple[int | None, int | None]:
    """Bounds of offsets, half open; a single offset becomes a range of one."""
    if isinstance(bounds, int | np.integer) and not isinstance(bounds, bool):
        return int(bounds), int(bounds) + 1
    return _pair(
        "offset", bounds, "one offset, or (start, end), each a whole number or None", _whole_number
    )


def _pair(name: str, bounds: Any, expected: str, bound: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Both bounds of a pair or a range.

    Raises:
        TypeError: they are not a pair.
    """
    if bounds is None or bounds is _UNBOUND:
        return _UNBOUND
    try:
        if isinstance(bounds, range) and bounds.step == 1:
            bounds = bounds.start, bounds.stop
        if isinstance(bounds, str | range | Mapping | Set):
            raise TypeError
        start, end = bounds
        return bound(start), bound(end)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {expected}, not {bounds!r}") from None


def time_bounds(bounds: TimeBounds | None, now: Time | None) -> tuple[int | None, int | None]:
    """Both bounds of a range of times, in ms.

    Raises:
        TypeError: it is neither a pair nor a day.
        ValueError: a bound is not a time.
    """
    if bounds is None or bounds is _UNBOUND:
        return _UNBOUND
    clock = None if now is None else partial(time_ms, now)
    if isinstance(bounds, str) and is_span(bounds):
        return time_ms(bounds, now_ms=clock), None
    if isinstance(bounds, str | date) and is_day(bounds):
        start = time_ms(bounds, now_ms=clock)
        return start, start + DAY_MS
    start, end = _pair("time", bounds, _TIMES, lambda bound: bound)
    return bound_ms(start, clock), bound_ms(end, clock)


def _whole_number(number: Any) -> int | None:
    return None if number is None else operator.index(number)


def _ignore(_error: KsegError) -> None:
    """Receive a fault, and ignore it."""


def _closed_range(start: int, end: int) -> tuple[int, int]:
    """The least and the last number of a half-open range, within 64 bits."""
    if end <= INT64_MIN or start > INT64_MAX:
        return INT64_MAX, INT64_MIN  # no record is between them
    return max(start, INT64_MIN), min(end - 1, INT64_MAX)


def narrow(table: BatchTable, request: Request) -> BatchTable:
    """The batches that can have a record of the request, according to their headers."""
    keep: Array | None = None
    if not request.whole:
        least, last = _closed_range(request.offset_start, request.offset_end)
        earliest, latest = _closed_range(request.time_start, request.time_end)
        keep = (table.last_offset >= least) & (table.base_offset <= last)
        if earliest > INT64_MIN:
            keep &= table.may_reach(earliest)
        if latest < INT64_MAX:
            # All records of a batch with log append time have the largest time.
            one_time = (table.magic == 2) & (table.timestamp_type == 1)
            keep &= ~one_time | (table.max_timestamp <= latest)
    if not request.control and table.attributes_seen & CONTROL:
        data = ~table.is_control
        keep = data if keep is None else keep & data
    return table if keep is None or keep.all() else table.take(keep)
