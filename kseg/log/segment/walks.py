"""Facts about a segment that a writer needs, and that only a walk over it finds.

Source: Kafka `LogSegment`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kseg.constants import StopReason
from kseg.errors import at_path
from kseg.format.header import BatchTable, stop_error
from kseg.log.segment.index_entries import Latest

if TYPE_CHECKING:
    from kseg.log.segment.reader import Segment

#: A writer may find these behind its own bytes; recovery decides about them.
_SOUND: Final = (StopReason.END, StopReason.LIMIT, StopReason.TORN_TAIL, StopReason.ZERO_TAIL)


def timestamp_of_first(segment: Segment) -> int | None:
    """The largest timestamp of the first batch in ms; None without a batch."""
    for table in segment.headers(limit=1):
        if len(table):
            return int(table.max_timestamp[0])
    return None


def next_offset(segment: Segment, indexed_offset: int) -> int:
    """The offset behind the last whole batch; the base offset without batches.

    Args:
        segment: where to look.
        indexed_offset: the last one of its offset index, from where the walk starts.

    Raises:
        FormatError: damage lies in between.

    Source: Kafka `LogSegment.readNextOffset`; if that index entry leads to a torn batch, Kafka
        answers the base offset, whatever is in front.
    """
    end = segment.base_offset
    start = segment.start_for_offset(indexed_offset)
    for table in segment.headers(start=start.position):
        if len(table):
            end = int(table.last_offset[-1]) + 1
    check_end(table, segment)
    return end


def latest_from(segment: Segment, position: int, latest: Latest) -> Latest:
    """The largest timestamp: `latest`, or a larger one in a batch from `position` on.

    Raises:
        FormatError: damage lies in between.

    Source: Kafka `LogSegment.readLargestTimestamp`.
    """
    for table in segment.headers(start=position):
        times = table.max_timestamp
        if len(times) and int(times.max()) > latest.timestamp:
            row = int(times.argmax())  # the earliest of the batches that have it
            latest = Latest(int(times[row]), int(table.last_offset[row]))
    check_end(table, segment)
    return latest


def check_end(table: BatchTable, segment: Segment) -> None:
    """Refuse a walk that met damage; a torn tail is not damage."""
    if table.stop not in _SOUND:
        raise at_path(stop_error(table), segment.path)
