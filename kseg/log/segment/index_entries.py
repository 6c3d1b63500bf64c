"""Where index entries go as batches are appended: a rule over offsets, times and sizes alone.

A batch gets an entry if more than the interval of bytes lie in front of it, counted from the batch
with the last entry. So the first batch of a segment has none. An opening starts the count anew, so
the first batch after it has none either.

Source: Kafka `LogSegment.append` (3.9.1, 4.2; before, an append made one index entry at most).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kseg._kernels import placement as _placement
from kseg.files.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from kseg.files.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from kseg.files.time_index import TimeIndexEntry
from kseg.format.header import BatchTable


class Placed(NamedTuple):
    """A batch to append, as the index entries need it.

    Attributes:
        last_offset: of its last record, or where that was before compaction.
        max_timestamp: the largest timestamp of its records in ms; -1 for none.
        size: its bytes.
    """

    last_offset: int
    max_timestamp: int
    size: int


class Latest(NamedTuple):
    """The largest timestamp in ms, and the last offset of the earliest batch that has it."""

    timestamp: int
    offset: int


class Placement(NamedTuple):
    """What batches do to the indexes.

    Attributes:
        entries: (last offset, position) of each batch that gets an entry.
        times: the largest timestamp so far and its offset, at each of these.
        end: the position behind the last batch.
        bytes_since_entry: bytes from the last entry on.
        latest: the largest timestamp, these batches included.
    """

    entries: list[tuple[int, int]]
    times: list[tuple[int, int]]
    end: int
    bytes_since_entry: int
    latest: Latest


class Indexed(NamedTuple):
    """Where both indexes stand.

    Attributes:
        offset: of the last entry of the offset index; below the base offset for none.
        time: the last entry of the time index; (-1, base offset) for none.
        offset_room, time_room: entries that fit in behind them.
    """

    offset: int
    time: TimeIndexEntry
    offset_room: int
    time_room: int


class Packed(NamedTuple):
    """What batches do to the indexes, as bytes.

    Attributes:
        offsets, times: the new entries of both indexes, as they lie there.
        indexed: where both stand behind these.
        end, bytes_since_entry, latest: as in `Placement`.
    """

    offsets: memoryview | bytes
    times: memoryview | bytes
    indexed: Indexed
    end: int
    bytes_since_entry: int
    latest: Latest


def place(
    batches: Iterable[tuple[int, int, int]],
    position: int,
    bytes_since_entry: int,
    interval: int,
    latest: Latest,
) -> Placement:
    """Say which batches get index entries.

    Args:
        batches: (last offset, max timestamp, size) of each, as `Placed`.
        position: where the first one starts.
        bytes_since_entry: bytes before it, from the last entry on.
        interval: `index.interval.bytes`.
        latest: the largest timestamp before them.
    """
    timestamp, offset = latest
    entries: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    for last_offset, max_timestamp, size in batches:
        if max_timestamp > timestamp:
            timestamp, offset = max_timestamp, last_offset
        if bytes_since_entry > interval:
            entries.append((last_offset, position))
            times.append((timestamp, offset))
            bytes_since_entry = 0
        position += size
        bytes_since_entry += size
    return Placement(entries, times, position, bytes_since_entry, Latest(timestamp, offset))


def place_table(
    table: BatchTable,
    position: int,
    bytes_since_entry: int,
    interval: int,
    latest: Latest,
    *,
    base_offset: int,
    indexed: Indexed,
) -> Packed | Placement:
    """`place` for batches whose headers are a table, down to the bytes of the entries.

    Args:
        table: the headers; where they say that batches lie is of no matter.
        position, bytes_since_entry, interval, latest: as for `place`.
        base_offset: of the segment.
        indexed: where the indexes stand. Entries that there is no room for are left out.

    Returns:
        Pairs, not bytes, if an entry may not follow those before it or has no 32-bit form; the
        index will say what is wrong with it.
    """
    count = len(table)
    offset_room, time_room = min(indexed.offset_room, count), min(indexed.time_room, count)
    room = (offset_room, time_room)
    state = np.array(
        (position, bytes_since_entry, *latest, indexed.offset, *indexed.time, *room), np.int64
    )
    offsets = bytearray(offset_room * OFFSET_ENTRY_BYTES)
    times = bytearray(time_room * TIME_ENTRY_BYTES)
    if not _placement.place_rows(table.rows, base_offset, interval, state, offsets, times):
        columns = (table.last_offset, table.max_timestamp, table.size)
        batches = zip(*(column.tolist() for column in columns), strict=True)
        return place(batches, position, bytes_since_entry, interval, latest)
    end, since, time, time_at, offset, indexed_time, indexed_at, *left = state.tolist()
    used, used_times = offset_room - left[0], time_room - left[1]
    return Packed(
        memoryview(offsets)[: used * OFFSET_ENTRY_BYTES],
        memoryview(times)[: used_times * TIME_ENTRY_BYTES],
        Indexed(
            offset,
            TimeIndexEntry(indexed_time, indexed_at),
            indexed.offset_room - used,
            indexed.time_room - used_times,
        ),
        end,
        since,
        Latest(time, time_at),
    )
