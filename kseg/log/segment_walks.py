"""What only a walk over a segment tells, as someone who writes to it needs it.

Source: Kafka `LogSegment`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.constants import StopReason
from kseg.errors import at_path
from kseg.format.header import BatchTable, stop_error
from kseg.log.placement import Latest

if TYPE_CHECKING:
    from kseg.log.segment import Segment
    from kseg.log.segment_writer import SegmentWriter

_INT32_MAX: Final = 2**31 - 1
#: A writer finds these behind what it has written; what they mean for a log is recovery's to say.
_SOUND: Final = (StopReason.END, StopReason.LIMIT, StopReason.TORN_TAIL, StopReason.ZERO_TAIL)
#: Bytes that are copied at a time, unless one batch is larger.
_COPIED_BYTES: Final = 2**20


def timestamp_of_first(segment: Segment) -> int | None:
    """The largest timestamp of the first batch in ms; None if there is no batch."""
    for tile in segment.walk(limit=1, on_bad_crc="ignore"):
        if len(tile.table):
            return int(tile.table.max_timestamp[0])
    return None


def next_offset(segment: Segment, indexed_offset: int) -> int:
    """The offset behind the last whole batch; the base offset if there is none.

    Args:
        segment: where to look.
        indexed_offset: the last one of its offset index, from where the walk starts.

    Raises:
        FormatError: damage lies in between.

    Source: Kafka `LogSegment.readNextOffset`; where that index entry leads to a torn batch, Kafka
        answers the base offset, whatever lies before.
    """
    end = segment.base_offset
    start = segment.start_for_offset(indexed_offset)
    for tile in segment.walk(start=start.position, on_bad_crc="ignore"):
        if len(tile.table):
            end = int(tile.table.last_offset[-1]) + 1
    _check_end(tile.table, segment)
    return end


def latest_from(segment: Segment, position: int, latest: Latest) -> Latest:
    """The largest timestamp: `latest`, or a larger one in a batch from `position` on.

    Raises:
        FormatError: damage lies in between.

    Source: Kafka `LogSegment.readLargestTimestamp`.
    """
    for tile in segment.walk(start=position, on_bad_crc="ignore"):
        times = tile.table.max_timestamp
        if len(times) and int(times.max()) > latest.timestamp:
            row = int(times.argmax())  # the earliest of those that have it
            latest = Latest(int(times[row]), int(tile.table.last_offset[row]))
    _check_end(tile.table, segment)
    return latest


def copy_batches(source: Segment, target: SegmentWriter, position: int = 0) -> int:
    """Append whole batches of another segment, from one at `position` on, as long as they fit.

    Returns:
        How many bytes that were; it ends where `source` does, or in front of the first batch whose
        last offset has no 32-bit form relative to the base of `target`.

    Raises:
        FormatError: damage in `source`.
        OSError: the disk refuses.

    Source: Kafka `LogSegment.appendFromFile`.
    """
    start = position
    for tile in source.walk(start=position, on_bad_crc="ignore"):
        table = tile.table
        above = table.last_offset - target.base_offset
        misfits = np.flatnonzero((above < 0) | (above > _INT32_MAX))
        fitting = table.take(slice(int(misfits[0]) if len(misfits) else len(table)))
        done = 0
        while done < len(fitting):
            first = int(fitting.position[done])
            ends = fitting.position[done:] + fitting.size[done:]
            count = max(int(np.searchsorted(ends, first + _COPIED_BYTES)), 1)
            end = int(ends[count - 1])
            piece = fitting.take(slice(done, done + count))
            target.append_table([tile.data[first - tile.base : end - tile.base]], piece)
            position, done = end, done + count
        if len(misfits):
            return position - start
    _check_end(table, source)
    return position - start


def _check_end(table: BatchTable, segment: Segment) -> None:
    """Refuse a walk that met damage; a torn tail is none."""
    if table.stop not in _SOUND:
        raise at_path(stop_error(table), segment.path)
