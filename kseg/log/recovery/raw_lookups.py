"""Finding a place in a segment as Kafka does: by its offset index, without checks.

Every other lookup of this package checks the batch that an index entry leads to. These do not, to
predict a broker's behaviour with a garbled index: they search the stored entries with the same
order of comparisons as Kafka, and the walk begins at any place that an entry names.

Source: Kafka `AbstractIndex.indexSlotRangeFor`, `LogSegment.translateOffset`,
`LogSegment.readNextOffset`, `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from kseg.constants import StopReason
from kseg.errors import KsegError, at_path
from kseg.files.index import OFFSET_ENTRY
from kseg.format.header import BatchTable, stop_error
from kseg.log.producers.state import ProducerState
from kseg.log.segment.reader import Segment

#: Takes the place of a compressed message of magic 0 or 1: its log file and position.
Inflates = Callable[[str, int], None]

#: The slots at the end of an index in which Kafka searches first.
_WARM_SLOTS: Final = 8192 // OFFSET_ENTRY.size
#: Ends of a walk for which Kafka's reader of files raises an error; it passes over a torn end.
RAISED: Final = (StopReason.BAD_LENGTH, StopReason.ZERO_TAIL)


def stored_position(entries: bytes, base_offset: int, offset: int) -> int:
    """The position that an offset index gives for `offset`, of any sign; 0 without an entry.

    Args:
        entries: the bytes of the index; those behind the last whole entry are ignored.
        base_offset: of the segment.
        offset: the offset to look up.

    Source: Kafka `OffsetIndex.lookup`.
    """
    count = len(entries) // OFFSET_ENTRY.size
    if not count:
        return 0
    relative = offset - base_offset
    low, high = 0, count - 1
    warm = max(0, count - 1 - _WARM_SLOTS)
    if _relative(entries, warm) < relative:
        low = warm
    elif _relative(entries, 0) > relative:
        return 0
    else:
        high = warm
    while low < high:
        middle = (low + high + 1) // 2
        middle_relative = _relative(entries, middle)
        if middle_relative > relative:
            high = middle - 1
        else:
            low = middle
            if middle_relative == relative:
                break
    position: int = OFFSET_ENTRY.unpack_from(entries, low * OFFSET_ENTRY.size)[1]
    return position


def _relative(entries: bytes, slot: int) -> int:
    relative: int = OFFSET_ENTRY.unpack_from(entries, slot * OFFSET_ENTRY.size)[0]
    return relative


def position_of(
    segment: Segment, entries: bytes, offset: int, inflates: Inflates | None = None
) -> int | None:
    """The position of the batch with `offset` or the next one, from where the index leads.

    The first batch that begins at or past `offset` ends the walk, and only the one right in front
    of it may hold `offset`. Where offsets are out of order this is not the first that ends past it.

    Args:
        segment: to be read.
        entries: its offset index.
        offset: the offset to look up.
        inflates: takes each compressed message on the way, which Kafka inflates to learn where its
            offsets begin.

    Raises:
        CorruptRecordError: a size in front of it is not that of a batch.

    Source: Kafka `LogSegment.translateOffset`, `FileRecords.searchForOffsetFromPosition`.
    """
    start = max(stored_position(entries, segment.base_offset, offset), 0)
    before: tuple[int, int] | None = None  # where the last one begins, and its last offset
    for table in segment.headers(start=start, policy="file"):
        not_before = np.flatnonzero(table.base_offset >= offset)
        count = int(not_before[0]) if len(not_before) else len(table)
        if inflates is not None:
            for position in _compressed_messages(table, count + 1):
                inflates(str(segment.path), position)
        if count:
            before = int(table.position[count - 1]), int(table.last_offset[count - 1])
        if len(not_before):
            is_exact = int(table.base_offset[count]) == offset
            held = None if is_exact else _holding(before, offset)
            return int(table.position[count]) if held is None else held
    _check(table, segment)
    return _holding(before, offset)


def _compressed_messages(table: BatchTable, count: int) -> list[int]:
    """Where those among the first so many batches lie; a negative magic is an old one to Kafka."""
    is_compressed = (table.magic < 2) & (table.codec != 0)
    positions: list[int] = table.position[:count][is_compressed[:count]].tolist()
    return positions


def _holding(batch: tuple[int, int] | None, offset: int) -> int | None:
    """The position of a batch that ends at or past `offset`; None for another, or for none."""
    return None if batch is None or batch[1] < offset else batch[0]


def next_offset(segment: Segment, entries: bytes, inflates: Inflates | None = None) -> int:
    """The offset behind the last batch, as far as the index lets it be found.

    If the last entry points at a torn batch this is the base offset, whatever is in front.

    Raises:
        CorruptRecordError: a size in between is not that of a batch.

    Source: Kafka `LogSegment.readNextOffset`.
    """
    count = len(entries) // OFFSET_ENTRY.size
    last = segment.base_offset + (_relative(entries, count - 1) if count else 0)
    start = position_of(segment, entries, last, inflates)
    end = segment.base_offset
    if start is None:
        return end
    for table in segment.headers(start=start, policy="file"):
        if len(table):
            end = table.end_offset
    _check(table, segment)
    return end


def feed_segment(
    state: ProducerState,
    segment: Segment,
    entries: bytes,
    end_offset: int,
    inflates: Inflates | None = None,
    *,
    holds_end: bool,
) -> None:
    """Process a segment's batches from `map_end_offset` on, up to `end_offset`.

    Args:
        state: changed in place, but for its `map_end_offset`.
        segment: to be read.
        entries: its offset index.
        end_offset: where to end.
        inflates: as for `position_of`.
        holds_end: whether `end_offset` belongs to this segment; else all of it is taken in.

    Raises:
        InvalidTxnStateError, InvalidRecordError: a batch that no leader would have taken.
        KsegError: by the index the end is in front of the start.
        CorruptRecordError: a size in between is not that of a batch.

    Source: Kafka `UnifiedLog.rebuildProducerState`.
    """
    start = state.map_end_offset
    limit = position_of(segment, entries, end_offset, inflates) if holds_end else None
    position = position_of(segment, entries, start, inflates)
    if position is None:
        return
    limit = segment.size if limit is None else limit
    if limit < position:
        raise KsegError(
            f"its index leads to {limit} for the end at {end_offset}, in front of {position}",
            path=segment.path,
        )
    for table in segment.headers(start=position, limit=limit, policy="file"):
        state.feed(table)
        state.map_end_offset = start
    _check(table, segment)


def _check(table: BatchTable, segment: Segment) -> None:
    if table.stop in RAISED:
        raise at_path(stop_error(table), segment.path)
