"""Which part of a log is clean, which is dirty, which must not be touched, and whether it is time.

    log start ... clean ... first dirty ... dirty ... first uncleanable ... log end

Nothing is touched from the segment on that holds the high watermark, or the last stable offset, or
is the active one, or has a record that is younger than `min.compaction.lag.ms`.

Source: Kafka `LogCleanerManager.cleanableOffsets`, `LogToClean`, `grabFilthiestCompactedLog`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from kseg.log.cleaner.inputs import CleanerInputs
from kseg.log.cleaner.values import ACTIVE, HIGH_WATERMARK, LAST_STABLE, MIN_LAG
from kseg.log.reader.version import SegmentInfo
from kseg.log.segment.walks import timestamp_of_first
from kseg.log.writer.retention import largest_timestamp_of


@dataclass(frozen=True, slots=True)
class Bounds:
    """From where to where a log can be compacted.

    Attributes:
        first_dirty_offset: what lies below was compacted before.
        first_uncleanable_offset: the base of the first segment that is not touched.
        why_uncleanable: what keeps it, in a word of `values`.
        clean_bytes, cleanable_bytes: of the logs of the segments in front of both.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    why_uncleanable: str
    clean_bytes: int
    cleanable_bytes: int

    @property
    def ratio(self) -> float:
        """Which part is dirty; 0 for nothing."""
        return self.cleanable_bytes / max(self.clean_bytes + self.cleanable_bytes, 1)


def bounds_of(inputs: CleanerInputs, clean_offset: int | None, *, ignore_lag: bool) -> Bounds:
    """Find the bounds.

    Args:
        inputs: of the log.
        clean_offset: up to where it was compacted; None for nothing, as is one outside of the log.
        ignore_lag: do not ask for the age of records.

    Raises:
        CorruptIndexError, FormatError: the age of a segment cannot be told.
        OSError: a file cannot be read.
    """
    start = inputs.log_start_offset
    if clean_offset is None or not start <= clean_offset <= inputs.log_end_offset:
        clean_offset = start
    limits = [
        (inputs.active_base_offset, ACTIVE),
        (inputs.high_watermark, HIGH_WATERMARK),
        (inputs.last_stable_offset, LAST_STABLE),
    ]
    young = None if ignore_lag else _first_young(inputs, clean_offset)
    if young is not None:
        limits.append((young.base_offset, MIN_LAG))
    limit, why = min(limits, key=lambda pair: pair[0])
    end = _base_at(inputs, max(limit, clean_offset))
    return Bounds(
        first_dirty_offset=clean_offset,
        first_uncleanable_offset=end,
        why_uncleanable=why,
        clean_bytes=sum(info.size for info in inputs.segments if info.base_offset < clean_offset),
        cleanable_bytes=sum(
            info.size for info in between(inputs.segments, min(clean_offset, end), end)
        ),
    )


def between(
    segments: tuple[SegmentInfo, ...], start_offset: int, end_offset: int
) -> tuple[SegmentInfo, ...]:
    """The segments that can hold offsets from one on, and begin in front of another."""
    if start_offset >= end_offset:
        return ()
    first = bisect_right(segments, start_offset, key=lambda info: info.base_offset) - 1
    return tuple(info for info in segments[max(first, 0) :] if info.base_offset < end_offset)


def is_due(inputs: CleanerInputs, bounds: Bounds) -> bool:
    """Whether a broker would compact the log now: it is dirty enough, or for too long."""
    config = inputs.config
    if bounds.ratio > config.min_cleanable_dirty_ratio:
        return True
    since = inputs.now_ms - config.max_compaction_lag_ms
    if not bounds.cleanable_bytes or since <= 0:
        return False
    return any(
        0 < first < since
        for first in (
            _first_timestamp(inputs, info) for info in _dirty(inputs, bounds.first_dirty_offset)
        )
    )


def _base_at(inputs: CleanerInputs, offset: int) -> int:
    """The base of the sealed segment that can hold an offset, or else of the active one."""
    active = inputs.active_base_offset
    if offset >= active:
        return active
    held = between(inputs.segments, offset, active)
    return held[0].base_offset if held else active


def _dirty(inputs: CleanerInputs, first_dirty_offset: int) -> tuple[SegmentInfo, ...]:
    return between(inputs.segments, first_dirty_offset, inputs.active_base_offset)


def _first_young(inputs: CleanerInputs, first_dirty_offset: int) -> SegmentInfo | None:
    """The first dirty segment with a record younger than `min.compaction.lag.ms`."""
    lag = inputs.config.min_compaction_lag_ms
    if lag <= 0:
        return None
    young = inputs.now_ms - lag
    for info in _dirty(inputs, first_dirty_offset):
        if largest_timestamp_of(info) > young:
            return info
    return None


def _first_timestamp(inputs: CleanerInputs, info: SegmentInfo) -> int:
    """The largest timestamp of a segment's first batch; 0 without one."""
    with inputs.open_segment(info) as segment:
        return timestamp_of_first(segment) or 0


__all__ = ["Bounds", "between", "bounds_of", "is_due"]
