"""Where index entries go as batches are appended: a rule over offsets, times and sizes alone.

An entry is made for a batch in front of which more than the interval of bytes lie, counted from the
batch that had the last one. So the first batch of a segment has none, nor has the first one behind
an opening, which starts to count anew.

Source: Kafka `LogSegment.append` (3.9.1, 4.2; before, an append made one index entry at most).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from kseg._placement import place_rows
from kseg.files.index_writer import Entries
from kseg.format.header import COLUMN, BatchTable

_LAST_OFFSET: Final = COLUMN["last_offset"]
_MAX_TIMESTAMP: Final = COLUMN["max_timestamp"]
_SIZE: Final = COLUMN["size"]


class Placed(NamedTuple):
    """What a segment has to know of a batch that is appended.

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

    entries: Entries
    times: Entries
    end: int
    bytes_since_entry: int
    latest: Latest


def place(
    batches: Iterable[tuple[int, int, int]],
    *,
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
    table: BatchTable, *, position: int, bytes_since_entry: int, interval: int, latest: Latest
) -> Placement:
    """`place` for batches whose headers are a table; `position` may differ from theirs."""
    state = np.array((position, bytes_since_entry, *latest), dtype=np.int64)
    out = np.empty((len(table), 4), dtype=np.int64)
    count = place_rows(table.rows, _LAST_OFFSET, _MAX_TIMESTAMP, _SIZE, interval, state, out)
    end, since, timestamp, offset = state.tolist()
    return Placement(out[:count, :2], out[:count, 2:], end, since, Latest(timestamp, offset))
