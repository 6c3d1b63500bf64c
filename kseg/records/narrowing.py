"""The part of logs that a scan need not read: by a lazy frame's conditions, by the last records.

Headers, indexes and directories answer conditions on the topic, the partition, the offset and the
time. The narrowed request may give more records than the conditions take, and never fewer. Headers
alone tell where the last records of a log begin.
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
    """Whether a source can have a record that conditions take.

    Args:
        source: its topic and partition are those of all of its records.
        conditions: all hold; a comparison with null never does.
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
        request: gives more.
        conditions: all hold.
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
    """The bytes of the only key that conditions select; None without such a condition.

    Args:
        conditions: all hold.
        kinds: of decoded columns. Of numbers, equal values may have different bytes.
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
    """Whether a value, or each of a list, is of a type itself, not of one below it."""
    return all(type(item) is kind for item in (value if isinstance(value, list) else [value]))


def _bounds(word: str, value: Any, unit: int) -> Range:
    """The half-open range, in units, that a comparison takes; the ends are rounded outwards."""
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
    """The offset from which on at least the last `count` records lie; None if headers do not say.

    They do not where segments overlap, or where the batch that would be first is damaged.
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
    held: deque[tuple[Int64s, Int64s, int]] = deque()  # positions, record counts and their sum
    total = 0
    for table in segment.headers():
        if not len(table):
            continue
        records = np.maximum(table.record_count, (table.magic < 2).astype(np.int64))
        if not control:
            records = np.where(table.is_control, 0, records)
        count_here = int(records.sum())
        held.append((table.position, records, count_here))
        total += count_here
        while total - held[0][2] >= count and len(held) > 1:
            total -= held.popleft()[2]
    return [(position, records) for position, records, _ in held]
