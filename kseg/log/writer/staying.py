"""Why a segment stays that retention leaves, and until when.

A segment goes when its newest record, and that of every older segment that is left, is older than
`retention.ms`: so the date is that of the newest record up to it. One in the future keeps all
behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.log.writer.retention import latest_of, with_ends

if TYPE_CHECKING:
    from kseg.log.config import LogConfig
    from kseg.log.reader.version import SegmentInfo
    from kseg.log.segment.writer import Latest
    from kseg.log.writer.retention import RetentionPlan

#: Why a segment stays.
ACTIVE: Final = "active"
YOUNG: Final = "younger-than-retention"
FUTURE: Final = "future-timestamp"
UNDER_SIZE: Final = "under-size-limit"
HIGH_WATERMARK: Final = "high-watermark"
NO_LIMIT: Final = "no-limit"


@dataclass(frozen=True, slots=True)
class StayingSegment:
    """A segment that stays.

    Attributes:
        base_offset: from the file's name.
        path: the log file.
        bytes: of the log file.
        why: a word of this module.
        until_ms: when it goes by time, if nothing changes; None for never by time.
        newest: its newest record's time and offset; None where nothing goes by time or size.
        holder: the newest record up to it, and the log file that has it.
        grows_bytes: so many bytes more in the log, and it goes by size; None without that limit.
        is_held: whether it reaches above the high watermark, and so could not go in any case.
    """

    base_offset: int
    path: Path
    bytes: int
    why: str
    until_ms: int | None = None
    newest: Latest | None = None
    holder: tuple[Latest, Path] | None = None
    grows_bytes: int | None = None
    is_held: bool = False


def staying(
    segments: Sequence[SegmentInfo], plan: RetentionPlan, config: LogConfig
) -> tuple[StayingSegment, ...]:
    """Say why each segment stays that a plan leaves, oldest first.

    Raises:
        CorruptIndexError, FormatError: a segment's times cannot be read.
        OSError: a file cannot be read.
    """
    going = {each.base_offset for each in plan.segments}
    pairs = with_ends(segments, plan.log_end_offset)
    left = [pair for pair in pairs if pair[0].base_offset not in going]
    if not config.deletes:
        return tuple(
            StayingSegment(
                each.base_offset, each.path, each.size, ACTIVE if each.is_last else NO_LIMIT
            )
            for each, _ in left
        )
    behind = sum(each.size for each, _ in left)
    holder: tuple[Latest, Path] | None = None
    answer = []
    for info, end in left:
        behind -= info.size
        newest = latest_of(info)
        if holder is None or newest.timestamp > holder[0].timestamp:
            holder = newest, info.path
        until = holder[0].timestamp + config.retention_ms + 1 if config.retention_ms >= 0 else None
        grows = config.retention_bytes - behind if config.retention_bytes >= 0 else None
        is_held = plan.high_watermark < end
        why = _why(info, plan, until, grows, is_held=is_held)
        if why == YOUNG and holder[0].timestamp > plan.now_ms:
            why = FUTURE
        answer.append(
            StayingSegment(
                info.base_offset, info.path, info.size, why, until, newest, holder, grows, is_held
            )
        )
    return tuple(answer)


def _why(
    info: SegmentInfo, plan: RetentionPlan, until: int | None, grows: int | None, *, is_held: bool
) -> str:
    is_due = (until is not None and until <= plan.now_ms) or (grows is not None and grows <= 0)
    if is_due and is_held and info.size:
        return HIGH_WATERMARK
    if info.is_last:
        return ACTIVE
    if until is not None:
        return HIGH_WATERMARK if is_due else YOUNG
    return NO_LIMIT if grows is None else UNDER_SIZE


__all__ = [
    "ACTIVE",
    "FUTURE",
    "HIGH_WATERMARK",
    "NO_LIMIT",
    "UNDER_SIZE",
    "YOUNG",
    "StayingSegment",
    "staying",
]
