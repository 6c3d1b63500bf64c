"""Where the last records of a log begin, by headers alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kseg.constants import Int64s
from kseg.log.reader.visible import believed_end
from kseg.log.segment.reader import Segment

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping
    from kseg.log.reader.version import SegmentInfo
    from kseg.log.reader.view import LogView


def start_of_tail(view: LogView, count: int, *, control: bool) -> int | None:
    """The offset of at least the last `count` records, by headers; None if they do not say."""
    number, position = tail_of([info.path for info in view.segments], count, control=control)
    infos = view.segments[number:]
    if not infos or _overlap(view, infos):
        return None
    with view.open_segment(infos[0]) as segment:
        for tile in segment.walk(start=position, limit=position + 1):
            table = tile.table
            if len(table) and table.crc_ok[0] == 1:
                first = int(table.base_offset[0])
                return first if first >= 0 else int(table.last_offset[0])
    return None


def _overlap(view: LogView, infos: tuple[SegmentInfo, ...]) -> bool:
    """Whether a segment reaches past the next one's base, so that records would count twice."""
    for info, following in pairwise(infos):
        with view.open_segment(info) as segment:
            end = believed_end(segment, following.base_offset)
        if end is not None and end > following.base_offset:
            return True
    return False


def tail_of(
    paths: Sequence[Path], count: int, *, control: bool = True, mapping: Mapping = "auto"
) -> tuple[int, int]:
    """The file and position from which on at least the last `count` records lie.

    Compressed messages of magic 0 and 1, which do not say how many they hold, count as one.

    Args:
        paths: logs in order.
        count: records wanted.
        control: control records count too.
        mapping: how to open them.

    Raises:
        UnreadableError: the disk cannot read bytes of one of them.
    """
    needed = count
    for number in range(len(paths) - 1, -1, -1):
        with Segment.open(paths[number], mapping=mapping) as segment:
            tables = _last_tables(segment, needed, control=control)
        for position, records in reversed(tables):
            from_end = np.cumsum(records[::-1])
            enough = int(np.searchsorted(from_end, needed))
            if enough < len(from_end):
                return number, int(position[len(position) - 1 - enough])
            needed -= int(from_end[-1])
    return 0, 0


def _last_tables(segment: Segment, count: int, *, control: bool) -> list[tuple[Int64s, Int64s]]:
    """Positions and record counts of the last tables that together hold `count` records."""
    held: deque[tuple[Int64s, Int64s, int]] = deque()
    total = 0
    for table in segment.headers():
        if not len(table):
            continue
        records = np.maximum(table.record_count, (table.magic < 2).astype(np.int64))
        if not control:
            records = np.where(table.is_control, 0, records)
        held.append((table.position, records, int(records.sum())))
        total += held[-1][2]
        while total - held[0][2] >= count and len(held) > 1:
            total -= held.popleft()[2]
    return [(position, records) for position, records, _ in held]
