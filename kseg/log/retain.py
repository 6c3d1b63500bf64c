"""Retention of one open log: planned, then applied.

`kseg.log.writer.retention` has the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.files.names import FileKind, segment_name
from kseg.log.writer import retention
from kseg.log.writer.retention import (
    LOG_START,
    SIZE,
    TIME,
    RetiredSegment,
    StayingSegment,
    latest_of,
    staying,
)

if TYPE_CHECKING:
    from kseg.format.times import Time
    from kseg.log.config import LogConfig
    from kseg.log.log import Log
    from kseg.log.reader.version import HighWatermark
    from kseg.log.topic_policy import RetentionRules
    from kseg.log.writer.retention import RetentionPlan, RetentionReport


def plan_retention(
    log: Log,
    *,
    config: LogConfig | RetentionRules | None = None,
    now_ms: Time | None = None,
    high_watermark: HighWatermark | None = None,
) -> RetentionPlan:
    """Plan what retention would do to a log, open for reading or for appending; changes nothing.

    Args:
        log: the log.
        config: the settings, or the answer of `retention_rules` for one log; the log's own if None,
            or none for a log that is open for reading.
        now_ms: the time that counts; the log's clock, or the machine's, if None.
        high_watermark: as for `Log.open`, which takes it for a log that is open for appending.

    Raises:
        ValueError: a high watermark for a log that is open for appending.
        CorruptIndexError, FormatError: a segment's times cannot be read.
        UnsupportedFormatError: the log is one of Kafka 0.7.
        OSError: a file cannot be read.
    """
    if log.mode == "append":
        if high_watermark is not None:
            raise ValueError("a log open for appending was told its high watermark at its opening")
        return retention.plan_state(log.state, config=config, now_ms=now_ms)
    return retention.plan_view(
        log.view, config=config, now_ms=now_ms, high_watermark=high_watermark
    )


def apply_retention(log: Log, plan: RetentionPlan) -> RetentionReport:
    """Apply a plan to a log that is open for appending.

    Files are renamed to `.deleted` and removed after `file_delete_delay_ms`: with a later call of
    this kind, or when the log is closed.

    Raises:
        StalePlanError: the log is not as the plan saw it; nothing was done.
        KsegError: the log is open for reading only, or has failed.
        OSError: the disk refuses. Another plan deletes the rest. A full disk that would get too
            little back from whole segments stays as it was.
    """
    return retention.apply_state(log.state, plan)


def segments_that_stay(
    log: Log, plan: RetentionPlan, *, config: LogConfig
) -> tuple[StayingSegment, ...]:
    """Say why each segment stays that a plan leaves, oldest first, of a log open for reading.

    Args:
        log: the log that was planned for.
        plan: of `plan_retention`.
        config: what the plan went by, as `RetentionRules.config` is.

    Raises:
        CorruptIndexError, FormatError: a segment's times cannot be read.
        OSError: a file cannot be read.
    """
    return staying(log.view.segments, plan, config)


def files_of(plan: RetentionPlan) -> Iterator[Path]:
    """The files that go, whether they are there or not."""
    for segment in plan.segments:
        for kind in (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX):
            yield plan.path / segment_name(segment.base_offset, kind)
        yield plan.path / segment_name(segment.base_offset, FileKind.SNAPSHOT)


__all__ = [
    "LOG_START",
    "SIZE",
    "TIME",
    "RetiredSegment",
    "StayingSegment",
    "apply_retention",
    "files_of",
    "latest_of",
    "plan_retention",
    "segments_that_stay",
]
