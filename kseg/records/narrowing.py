"""The request that reads no more than a lazy frame's conditions need.

Headers, indexes and directories answer conditions on the topic, the partition, the offset and the
time. The narrowed request may give more records than the conditions take, and never fewer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from kseg.files.names import Partition
from kseg.format.request import Request
from kseg.format.typed import Kinds
from kseg.format.values import Kind
from kseg.lazy import Condition, Nanoseconds
from kseg.records.query import Range

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
