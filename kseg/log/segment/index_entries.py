"""Placing index entries as batches are appended: the kernel's answers, as values and errors.

Only `kseg/_kernels/placement.pyx` decides which batch gets an entry.

Source: Kafka `LogSegment.append` (since 3.9; before, an append made one index entry at most).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kseg._kernels.placement import place_rows
from kseg.constants import NO_TIMESTAMP, StopReason
from kseg.errors import (
    KsegError,
    LimitExceededError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    at_path,
)
from kseg.files.index import OFFSET_ENTRY as OFFSET_ENTRY
from kseg.files.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, TimeIndexEntry
from kseg.files.index import TIME_ENTRY as TIME_ENTRY
from kseg.format.header import BatchTable, stop_error
from kseg.log.config import LogConfig

if TYPE_CHECKING:
    from kseg.log.segment.reader import Segment


class Indexed(NamedTuple):
    """The last entries of both indexes, and the room after them.

    Attributes:
        offset: the offset in the last entry of the offset index; below the base offset if empty.
        time: the last entry of the time index; (-1, base offset) if it is empty.
        offset_room, time_room: entries that fit in after them.
    """

    offset: int
    time: TimeIndexEntry
    offset_room: int
    time_room: int


class Placement(NamedTuple):
    """The effect of batches on the indexes.

    Attributes:
        offsets, times: the new entries of both indexes, as they lie there.
        indexed: where both stand after these.
        end: the position after the last batch that is placed.
        bytes_since_entry: bytes from the last entry on.
        latest: the largest timestamp, these batches and a refused one included.
        placed: how many batches are placed, counted from the first.
        refusal: why the next batch cannot have its entry; None if all are placed.
    """

    offsets: memoryview | bytes
    times: memoryview | bytes
    indexed: Indexed
    end: int
    bytes_since_entry: int
    latest: TimeIndexEntry
    placed: int
    refusal: KsegError | None


class Refused(IntEnum):
    """The kernel's reason why a batch cannot have its entry."""

    FULL = 1
    FAR = 2
    OFFSET_NOT_ABOVE = 3
    TIME_BELOW = 4


def place(
    table: BatchTable,
    position: int,
    bytes_since_entry: int,
    interval: int,
    latest: TimeIndexEntry,
    *,
    base_offset: int,
    indexed: Indexed,
    strict: bool = False,
) -> Placement:
    """Choose batches for index entries, up to the first one that cannot have its own.

    Args:
        table: the headers; the positions in them are ignored.
        position: the position of the first batch.
        bytes_since_entry: bytes from the batch of the last entry to the first batch.
        interval: `index.interval.bytes`.
        latest: the largest timestamp before them.
        base_offset: the segment's base offset.
        indexed: the present state of the indexes.
        strict: refuse a batch without room for its entry; if false, it gets no entry.
    """
    # The kernel reads `state`, and leaves in it the state after the placed batches.
    rows = len(table)
    offset_room, time_room = min(indexed.offset_room, rows), min(indexed.time_room, rows)
    state = np.array(
        (
            position,
            bytes_since_entry,
            *latest,
            indexed.offset,
            *indexed.time,
            offset_room,
            time_room,
        ),
        np.int64,
    )
    offsets = bytearray(offset_room * OFFSET_ENTRY_BYTES)
    times = bytearray(time_room * TIME_ENTRY_BYTES)
    count, refused = place_rows(table.rows, base_offset, interval, strict, state, offsets, times)
    end, since, time, time_offset, offset, *indexed_after = state.tolist()
    indexed_time, indexed_time_offset, offset_room_left, time_room_left = indexed_after
    used, used_times = offset_room - offset_room_left, time_room - time_room_left
    placement = Placement(
        memoryview(offsets)[: used * OFFSET_ENTRY_BYTES],
        memoryview(times)[: used_times * TIME_ENTRY_BYTES],
        Indexed(
            offset,
            TimeIndexEntry(indexed_time, indexed_time_offset),
            indexed.offset_room - used,
            indexed.time_room - used_times,
        ),
        end,
        since,
        TimeIndexEntry(time, time_offset),
        count,
        None,
    )
    if not refused:
        return placement
    last_offset = int(table.last_offset[count])
    return placement._replace(refusal=_refusal(refused, base_offset, last_offset, placement))


def _refusal(refused: int, base_offset: int, last_offset: int, before: Placement) -> KsegError:
    """Why a batch with this last offset cannot have its entry after the present ones.

    Source: Kafka OffsetIndex.append, TimeIndex.maybeAppend.
    """
    offset, time = before.indexed.offset, before.indexed.time
    error, reason = {
        Refused.FULL: (LimitExceededError, "an index has no room for its entry"),
        Refused.FAR: (OffsetOverflowError, f"it has no 32-bit form relative to {base_offset}"),
        Refused.OFFSET_NOT_ABOVE: (
            OffsetsOutOfOrderError,
            f"it is not above {offset}, the last one of the index",
        ),
        Refused.TIME_BELOW: (
            OffsetsOutOfOrderError,
            f"its time is that of offset {before.latest.offset}, below {time.offset}, "
            "the last one of the time index",
        ),
    }[Refused(refused)]
    return error(reason, position=before.end, offset=last_offset)


#: A writer may find these after its own bytes; recovery decides about them.
_SOUND: Final = (StopReason.END, StopReason.LIMIT, StopReason.TORN_TAIL, StopReason.ZERO_TAIL)


def timestamp_of_first(segment: Segment) -> int | None:
    """The largest timestamp of the first batch in ms; None if there is no batch."""
    for table in segment.headers(limit=1):
        if len(table):
            return int(table.max_timestamp[0])
    return None


def next_offset(segment: Segment, indexed_offset: int) -> int:
    """The offset after the last whole batch; the base offset if there is no batch.

    Args:
        segment: where to look.
        indexed_offset: the last one of its offset index, from where the walk starts.

    Raises:
        FormatError: a batch on the way is damaged.

    Source: Kafka `LogSegment.readNextOffset`; if that index entry leads to a torn batch, Kafka
        answers the base offset, whatever comes before it.
    """
    end = segment.base_offset
    start = segment.start_for_offset(indexed_offset)
    for table in segment.headers(start=start.position):
        if len(table):
            end = table.end_offset
    check_end(table, segment)
    return end


def latest_from(segment: Segment, position: int, latest: TimeIndexEntry) -> TimeIndexEntry:
    """The largest timestamp: `latest`, or a larger one in a batch from `position` on.

    Raises:
        FormatError: a batch on the way is damaged.

    Source: Kafka `LogSegment.readLargestTimestamp`.
    """
    for table in segment.headers(start=position):
        times = table.max_timestamp
        if len(times) and int(times.max()) > latest.timestamp:
            row = int(times.argmax())  # the earliest of the batches that have it
            latest = TimeIndexEntry(int(times[row]), int(table.last_offset[row]))
    check_end(table, segment)
    return latest


def check_end(table: BatchTable, segment: Segment, sound: tuple[StopReason, ...] = _SOUND) -> None:
    """Refuse a walk that met damage; a torn tail is not damage, unless `sound` lacks it."""
    if table.stop not in sound:
        raise at_path(stop_error(table), segment.path)


# ---- the entries of all batches of a segment -----------------------------------------------------


class DerivedEntries:
    """The bytes of both indexes, and where the next entry goes.

    Attributes:
        offsets, times: the entries so far.
        position: the position after the last batch.
        latest: the largest timestamp so far; (-1, base offset) before the first batch.
    """

    __slots__ = (
        "_base_offset",
        "_careful",
        "_indexed",
        "_interval",
        "_since",
        "latest",
        "offsets",
        "position",
        "times",
    )

    def __init__(self, base_offset: int, config: LogConfig, *, careful: bool) -> None:
        """Begin with an empty segment.

        Args:
            base_offset: the segment's base offset.
            config: the interval of entries, and the size of indexes.
            careful: a batch without room for its entry gets none; if false, it is refused.
        """
        self.offsets, self.times = bytearray(), bytearray()
        self.position = 0
        self.latest = TimeIndexEntry(NO_TIMESTAMP, base_offset)
        self._since = 0
        self._base_offset = base_offset
        self._interval = config.index_interval_bytes
        self._careful = careful
        size = config.segment_index_bytes
        self._indexed = Indexed(
            base_offset - 1,
            TimeIndexEntry(NO_TIMESTAMP, base_offset),
            size // OFFSET_ENTRY.size,
            # One is kept for the entry of the end.
            size // TIME_ENTRY.size - 1,
        )

    def add(self, table: BatchTable) -> tuple[int, KsegError | None]:
        """Place entries for batches; return how many were placed, and the fault after them."""
        placed = place(
            table,
            self.position,
            self._since,
            self._interval,
            self.latest,
            base_offset=self._base_offset,
            indexed=self._indexed,
            strict=not self._careful,
        )
        self.offsets += placed.offsets
        self.times += placed.times
        self._indexed, self.latest = placed.indexed, placed.latest
        self.position, self._since = placed.end, placed.bytes_since_entry
        return placed.placed, placed.refusal

    def closing_entry(self) -> bytes:
        """The entry for the largest timestamp; None if the last entry has it."""
        if self.latest.timestamp <= self._indexed.time.timestamp:
            return b""
        timestamp, offset = self.latest
        return TIME_ENTRY.pack(timestamp, offset - self._base_offset)
