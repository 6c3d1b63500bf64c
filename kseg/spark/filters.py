"""Spark's pushed filters as ranges: what planning and reading can use, and what Spark must recheck.

Filters on partition, topic and offset are applied exactly, so Spark need not apply them again. A
filter on the timestamp only narrows (milliseconds below, microseconds above) and goes back to
Spark, as do all others. It recognises filters by class name and attribute, so it needs no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The records that filters leave: half-open ranges and sets, None for no bound.

    Timestamps are milliseconds. `partitions` and `topics` are what remains; an empty set is
    nothing at all.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    partition_from: int | None = None
    partition_to: int | None = None

    def wants(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition's records can pass; SQL: a null passes no comparison."""
        if self.topics is not None and topic not in self.topics:
            return False
        if self.partitions is not None and partition not in self.partitions:
            return False
        low, high = self.partition_from, self.partition_to
        if low is None and high is None:
            return True
        return (
            partition is not None
            and (low is None or partition >= low)
            and (high is None or partition < high)
        )


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of `push`: the narrowing, and the very filter objects that Spark rechecks."""

    narrowing: Narrowing
    recheck: tuple[Any, ...]


def push(filters: Iterable[Any]) -> Pushed:
    """Fold Spark's filters, which all hold at once, into one `Narrowing`."""
    narrowing = Narrowing()
    recheck = []
    for pushed in filters:
        narrowed, exact = _narrow(narrowing, pushed)
        narrowing = narrowed
        if not exact:
            recheck.append(pushed)
    return Pushed(narrowing, tuple(recheck))


def _narrow(narrowing: Narrowing, pushed: Any) -> tuple[Narrowing, bool]:
    """Apply one filter; answers the narrowing and whether it holds exactly from now on."""
    kind = type(pushed).__name__
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    value = getattr(pushed, "value", None)
    if len(attribute) != 1 or kind not in _COMPARISONS:
        return narrowing, False
    column = attribute[0].lower()
    if column == "topic":
        return _narrow_topic(narrowing, kind, value)
    if column == "partition":
        return _narrow_partition(narrowing, kind, value)
    if column == "offset":
        return _narrow_offset(narrowing, kind, value)
    if column == "timestamp":
        return _narrow_timestamp(narrowing, kind, value), False
    return narrowing, False


_COMPARISONS: Final = frozenset(
    ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In")
)

_ItemT = TypeVar("_ItemT")


def _values(kind: str, value: Any, item: type[_ItemT]) -> frozenset[_ItemT] | None:
    """The values of an equality or IN, nulls aside; None for other filters and other types."""
    if kind not in ("EqualTo", "In"):
        return None
    values = [one for one in (value if kind == "In" else [value]) if one is not None]
    if not all(isinstance(one, item) and not isinstance(one, bool) for one in values):
        return None
    return frozenset(values)


def _both(known: frozenset[_ItemT] | None, more: frozenset[_ItemT]) -> frozenset[_ItemT]:
    return more if known is None else known & more


def _narrow_topic(narrowing: Narrowing, kind: str, value: Any) -> tuple[Narrowing, bool]:
    topics = _values(kind, value, str)
    if topics is None:
        return narrowing, False
    return replace(narrowing, topics=_both(narrowing.topics, topics)), True


def _narrow_partition(narrowing: Narrowing, kind: str, value: Any) -> tuple[Narrowing, bool]:
    partitions = _values(kind, value, int)
    if partitions is not None:
        return replace(narrowing, partitions=_both(narrowing.partitions, partitions)), True
    bounds = _range(kind, value)
    if bounds is None:
        return narrowing, False
    low, high = bounds
    return replace(
        narrowing,
        partition_from=_later(narrowing.partition_from, low),
        partition_to=_earlier(narrowing.partition_to, high),
    ), True


def _narrow_offset(narrowing: Narrowing, kind: str, value: Any) -> tuple[Narrowing, bool]:
    offsets = _values(kind, value, int)
    exact = kind != "In"
    if offsets is not None:
        bounds: tuple[int | None, int | None] | None = (
            (min(offsets), max(offsets) + 1) if offsets else (0, 0)
        )
    else:
        bounds = _range(kind, value)
    if bounds is None:
        return narrowing, False
    low, high = bounds
    if high is not None and high > _INT64_MAX:
        high = None
    if low is not None and low > _INT64_MAX:
        low, high = 0, 0
    return replace(
        narrowing,
        start_offset=_later(narrowing.start_offset, low),
        end_offset=_earlier(narrowing.end_offset, high),
    ), exact


def _narrow_timestamp(narrowing: Narrowing, kind: str, value: Any) -> Narrowing:
    """Widen to whole milliseconds: the narrowing may keep too much, never too little."""
    moments = _values(kind, value, datetime)
    if moments is not None:
        if not moments:
            return replace(narrowing, start_offset=0, end_offset=0)
        low: int | None = min(map(_floor_ms, moments))
        high: int | None = max(map(_floor_ms, moments)) + 1
    elif isinstance(value, datetime):
        low = _floor_ms(value) if kind.startswith("Greater") else None
        high = _floor_ms(value) + 1 if kind.startswith("Less") else None
    else:
        return narrowing
    return replace(
        narrowing,
        start_timestamp=_later(narrowing.start_timestamp, low),
        end_timestamp=_earlier(narrowing.end_timestamp, high),
    )


def _range(kind: str, value: Any) -> tuple[int | None, int | None] | None:
    """The half-open range of a comparison with an integer; None for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value < _INT64_MIN:
        return None
    ranges = {
        "GreaterThan": (value + 1, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (None, value),
        "LessThanOrEqual": (None, value + 1),
    }
    return ranges.get(kind)


def _floor_ms(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def _later(known: int | None, bound: int | None) -> int | None:
    return bound if known is None else known if bound is None else max(known, bound)


def _earlier(known: int | None, bound: int | None) -> int | None:
    return bound if known is None else known if bound is None else min(known, bound)
