"""The part of logs that a scan need not read: because of a lazy frame's conditions, or of `last`.

Headers, indexes and directories answer conditions on the topic, the partition, the offset and the
time. The narrowed request may give more records than the conditions select, and never fewer. Only
headers are read to find where the last records of a log begin.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kseg.constants import Int64s
from kseg.files.names import Partition
from kseg.format.request import Request
from kseg.format.typed import Kinds
from kseg.format.values import Kind
from kseg.lazy import Condition, Nanoseconds
from kseg.log.reader.visible import believed_end
from kseg.log.segment.reader import Segment
from kseg.records.query import Range

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping
    from kseg.log.reader.version import SegmentInfo
    from kseg.log.reader.view import LogView

_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda actual, values: actual in values,
}


def can_have(source: Partition, conditions: Sequence[Condition]) -> bool:
    """Whether a source can have a record that conditions select.

    Args:
        source: its topic and partition are those of all of its records.
        conditions: a record must meet all of them; a comparison with null is never met.
    """
    for column, word, value in conditions:
        kind = {"topic": str, "partition": int}.get(column)
        if kind is None or not _is_of(kind, value):
            continue
        actual = source.topic if column == "topic" else source.partition
        if actual is None or not _COMPARED[word](actual, value):
            return False
    return True


def narrowed(request: Request, conditions: Sequence[Condition]) -> Request:
    """A request for those records of another request that conditions can select.

    Args:
        request: the other request.
        conditions: a record must meet all of them.
    """
    offsets, times = request.bounds
    for column, word, value in conditions:
        if column == "offset" and _is_of(int, value):
            offsets = _both(offsets, _bounds(word, value, 1))
        elif column == "timestamp_ms" and _is_of(int, value):
            times = _both(times, _bounds(word, value, 1))
        elif column == "timestamp" and _is_of(Nanoseconds, value):
            times = _both(times, _bounds(word, value, 10**6))
    return replace(request, offset=offsets, time=times)


def wanted_key(conditions: Sequence[Condition], kinds: Kinds) -> bytes | None:
    """The bytes of the only key that conditions select; None if they select other keys as well.

    Args:
        conditions: a record must meet all of them.
        kinds: the kinds of decoded columns. Equal numbers may have different bytes.
    """
    kind = kinds.get("key")
    for column, word, value in conditions:
        if column == "key" and word == "==":
            if kind is None and isinstance(value, bytes):
                return value
            if kind is Kind.TEXT and isinstance(value, str):
                return value.encode()
    return None


def _is_of(kind: type, value: Any) -> bool:
    """Whether a value, or each value of a list, is of exactly this type, not of a subclass."""
    return all(type(item) is kind for item in (value if isinstance(value, list) else [value]))


def _bounds(word: str, value: Any, unit: int) -> Range:
    """The half-open range that a comparison selects, its ends rounded outwards.

    Args:
        word: the comparison.
        value: the value or values that it compares with.
        unit: the range counts in this many units of the value.
    """
    values = value if isinstance(value, list) else [value]
    if not values:
        return 0, 0
    first, last = -(-min(values) // unit), max(values) // unit + 1
    if word == ">":
        return last, None
    if word == "<":
        return None, first
    start = first if word in ("==", "in", ">=") else None
    return start, last if word in ("==", "in", "<=") else None


def _both(first: Range, other: Range) -> Range:
    """The range in which two ranges overlap."""
    pairs = zip(first, other, strict=True)
    starts, ends = ([bound for bound in pair if bound is not None] for pair in pairs)
    return max(starts, default=None), min(ends, default=None)


def start_of_tail(view: LogView, count: int, *, control: bool) -> int | None:
    """The offset from which on a log has at least its last `count` records.

    None if headers do not tell: segments overlap, or the batch at that offset is damaged.
    """
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
    """Whether a segment has offsets past the next one's base, so that records would count twice."""
    for info, following in pairwise(infos):
        with view.open_segment(info) as segment:
            end = believed_end(segment, following.base_offset)
        if end is not None and end > following.base_offset:
            return True
    return False


def tail_of(
    paths: Sequence[Path], count: int, *, control: bool = True, mapping: Mapping = "auto"
) -> tuple[int, int]:
    """The number of the file and the position from which on files have at least `count` records.

    A compressed message of magic 0 or 1 does not say how many records it holds, and counts as one.

    Args:
        paths: log files in order.
        count: the number of records.
        control: control records count too.
        mapping: how to open the files.

    Raises:
        UnreadableError: the disk cannot read bytes of a file.
    """
    needed = count
    for number in range(len(paths) - 1, -1, -1):
        with Segment.open(paths[number], mapping=mapping) as segment:
            tables = _last_tables(segment, needed, control=control)
        for position, records in reversed(tables):
            from_end = np.cumsum(records[::-1])
            batches_after = int(np.searchsorted(from_end, needed))
            if batches_after < len(from_end):
                return number, int(position[len(position) - 1 - batches_after])
            needed -= int(from_end[-1])
    return 0, 0


def _last_tables(segment: Segment, count: int, *, control: bool) -> list[tuple[Int64s, Int64s]]:
    """Positions and record counts of the last tables that together hold `count` records."""
    last_tables: deque[tuple[Int64s, Int64s, int]] = deque()  # positions, record counts, their sum
    total = 0
    for table in segment.headers():
        if not len(table):
            continue
        records = np.maximum(table.record_count, (table.magic < 2).astype(np.int64))
        if not control:
            records = np.where(table.is_control, 0, records)
        count_here = int(records.sum())
        last_tables.append((table.position, records, count_here))
        total += count_here
        while total - last_tables[0][2] >= count and len(last_tables) > 1:
            total -= last_tables.popleft()[2]
    return [(position, records) for position, records, _ in last_tables]
