"""Segments of one log that hold the same offsets: which of them gives an offset to a reader.

A sound log has none. Copies made by hand and brokers that were cut off may leave a segment that
goes on past the base offset of the next one. A reader gets each offset once, rising. The segment
that is walked first gives all that it holds, and those behind it give what lies past its end. As in
Kafka, a read begins with the last segment whose base offset is at or before its start. So a read
that starts at or past the base of a later segment gets that segment's copy.

Headers tell how far a segment goes, and cost a reader nothing. Only where they say that it goes
past the next base are checksums compared: a damaged header must not hide the rest of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from kseg.constants import INT64_MAX

if TYPE_CHECKING:
    from kseg.log.reader.version import LogSegments, SegmentInfo
    from kseg.log.segment.reader import Segment


class Reached:
    """How far a walk over segments has come; told of batches, and of the end of each segment.

    Attributes:
        offset: nothing before it is to be given by the segments to come.
    """

    __slots__ = ("_seen", "offset")

    def __init__(self, start_offset: int) -> None:
        """Begin a walk from an offset on."""
        self.offset = self._seen = start_offset

    def note(self, last_offset: int) -> None:
        """Take the last offset of a batch of the segment at hand, before any is left out."""
        self._seen = max(self._seen, last_offset + 1)

    def leave(self, segment: Segment, next_base_offset: int | None) -> None:
        """Go on to the segment with that base offset, None if there is none."""
        if next_base_offset is not None and self._seen > next_base_offset:
            self._seen = max(self.offset, _sound_end(segment, next_base_offset))
        self.offset = self._seen


def first_offsets(log: LogSegments, start_offset: int) -> Iterator[tuple[SegmentInfo, int]]:
    """The segments that a read from an offset walks, and the first offset that each gives.

    For readers that do not read the segments one after the other; looks at each segment's end.
    """
    first = start_offset
    infos = log.segments_from(start_offset)
    for info, following in zip_longest(infos, infos[1:]):
        yield info, first
        if following is not None:
            with log.open_segment(info) as segment:
                end = believed_end(segment, following.base_offset)
            first = first if end is None else max(first, end)


def end_of(segment: Segment) -> int | None:
    """The offset after a segment's last whole batch, None if it holds none; the index helps."""
    start = segment.start_for_offset(INT64_MAX).position
    last = None
    for table in segment.headers(start=start):
        if len(table):
            last = table[len(table) - 1]
    if last is None:
        return None
    return segment.base_offset + last.position + last.size if segment.kafka07 else last.next_offset


def believed_end(segment: Segment, next_base_offset: int) -> int | None:
    """What `end_of` says, but past the base offset of the next segment only if checksums match."""
    end = end_of(segment)
    if end is None or end <= next_base_offset:
        return end
    return _sound_end(segment, next_base_offset)


def _sound_end(segment: Segment, offset: int) -> int:
    """The offset behind the last batch that matches its checksum; `offset` if it is larger."""
    start = segment.start_for_offset(offset).position
    end = offset
    for tile in segment.walk(start=start, on_bad_crc="note"):
        table = tile.table
        sound = table.last_offset[table.crc_ok != 0]
        if len(sound):
            end = max(end, int(sound.max()) + 1)
    return end


__all__ = ["Reached", "believed_end", "end_of", "first_offsets"]
