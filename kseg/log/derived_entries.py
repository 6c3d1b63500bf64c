"""The index entries that a segment's batches make, as bytes, while the batches go by.

Where entries go is the rule of `kseg.log.placement`; this is where they are gathered, and where it
is told which batch cannot have its own.

Source: Kafka `LogSegment.recover`, `OffsetIndex.append`, `TimeIndex.maybeAppend`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kseg.constants import NO_TIMESTAMP
from kseg.errors import KsegError, LimitExceededError, OffsetsOutOfOrderError
from kseg.files.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from kseg.files.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from kseg.files.time_index import TimeIndexEntry
from kseg.log.placement import Indexed, Latest, Packed, place_table

if TYPE_CHECKING:
    from kseg.format.header import BatchTable
    from kseg.log.config import LogConfig

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class DerivedEntries:
    """The entries of both indexes, as they lie there, and where the next one goes.

    Attributes:
        offsets, times: the entries so far.
        position: behind the last batch.
        latest: the largest timestamp so far; (-1, base offset) for none.
    """

    __slots__ = (
        "_as_broker",
        "_base_offset",
        "_indexed",
        "_interval",
        "_since",
        "latest",
        "offsets",
        "position",
        "times",
    )

    def __init__(self, base_offset: int, config: LogConfig, *, as_broker: bool) -> None:
        """Begin with an empty segment.

        Args:
            base_offset: of the segment.
            config: the interval of entries, and the size of indexes.
            as_broker: refuse a batch for whose entry there is no room; else it goes without.
        """
        self.offsets, self.times = bytearray(), bytearray()
        self.position = 0
        self.latest = Latest(NO_TIMESTAMP, base_offset)
        self._since = 0
        self._base_offset = base_offset
        self._interval = config.index_interval_bytes
        self._as_broker = as_broker
        size = config.segment_index_bytes
        self._indexed = Indexed(
            base_offset - 1,
            TimeIndexEntry(NO_TIMESTAMP, base_offset),
            size // OFFSET_ENTRY_BYTES,
            # One is kept for the entry of the end.
            size // TIME_ENTRY_BYTES - 1,
        )

    def add(self, table: BatchTable) -> tuple[int, KsegError | None]:
        """Place entries for batches; how many of these that were, and what is wrong behind them."""
        placed = place_table(
            table,
            self.position,
            self._since,
            self._interval,
            self.latest,
            base_offset=self._base_offset,
            indexed=self._indexed,
        )
        if not isinstance(placed, Packed) or (self._as_broker and 0 in placed.indexed[2:]):
            return self._add_singly(table)
        self.offsets += placed.offsets
        self.times += placed.times
        self._indexed, self.latest = placed.indexed, placed.latest
        self.position, self._since = placed.end, placed.bytes_since_entry
        return len(table), None

    def _add_singly(self, table: BatchTable) -> tuple[int, KsegError | None]:
        """The same where some batch cannot have its entry: up to that one."""
        columns = (table.last_offset, table.max_timestamp, table.size)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, (last_offset, max_timestamp, size) in enumerate(rows):
            if max_timestamp > self.latest.timestamp:
                self.latest = Latest(max_timestamp, last_offset)
            if self._since > self._interval:
                error = self._refusal(last_offset)
                if error is not None:
                    return row, error
                self._append(last_offset)
                self._since = 0
            self.position += size
            self._since += size
        return len(table), None

    def _refusal(self, last_offset: int) -> KsegError | None:
        """Source: Kafka OffsetIndex.append, TimeIndex.maybeAppend."""
        indexed = self._indexed
        error: KsegError | None = None
        if not indexed.offset_room or not indexed.time_room:
            error = LimitExceededError("an index has no room for its entry")
        elif self.offsets and last_offset <= indexed.offset:
            error = OffsetsOutOfOrderError(
                f"it is not above {indexed.offset}, the last one of the index"
            )
        elif self.times and self.latest.offset < indexed.time.offset:
            error = OffsetsOutOfOrderError(
                f"its time is that of offset {self.latest.offset}, below {indexed.time.offset}, "
                "the last one of the time index"
            )
        if error is not None:
            error.position, error.offset = self.position, last_offset
        return error

    def _append(self, last_offset: int) -> None:
        indexed = self._indexed
        self.offsets += _OFFSET_ENTRY.pack(last_offset - self._base_offset, self.position)
        indexed = indexed._replace(offset=last_offset, offset_room=indexed.offset_room - 1)
        if self.latest.timestamp > indexed.time.timestamp:
            self.times += self._packed_time()
            indexed = indexed._replace(
                time=TimeIndexEntry(*self.latest), time_room=indexed.time_room - 1
            )
        self._indexed = indexed

    def closing_entry(self) -> bytes:
        """The entry for the largest timestamp, if the last one is not of it."""
        if self.latest.timestamp <= self._indexed.time.timestamp:
            return b""
        return self._packed_time()

    def _packed_time(self) -> bytes:
        timestamp, offset = self.latest
        return _TIME_ENTRY.pack(timestamp, offset - self._base_offset)


__all__ = ["DerivedEntries"]
