"""Retention of one log, for those who hold it: a plan first, then done.

The rules stand in `kseg.log.writer.retention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.log.writer import retention
from kseg.log.writer.retention import LOG_START, SIZE, TIME, RetiredSegment

if TYPE_CHECKING:
    from kseg.log.config import LogConfig
    from kseg.log.log import Log
    from kseg.log.reader.version import HighWatermark
    from kseg.log.topic_policy import RetentionRules
    from kseg.log.writer.retention import RetentionPlan, RetentionReport


def plan_retention(
    log: Log,
    *,
    config: LogConfig | RetentionRules | None = None,
    now_ms: int | None = None,
    high_watermark: HighWatermark | None = None,
) -> RetentionPlan:
    """Say what retention would do to a log, open for reading or for appending; nothing is changed.

    Args:
        log: the log.
        config: the settings, to be gone by as `retention_rules` says for one log, or what that
            has said; the log's own if None, or none for a log that is open for reading.
        now_ms: the time that counts; the log's clock, or the machine's, if None.
        high_watermark: as for `Log.open`; a log that is open for appending was told then.

    Raises:
        ValueError: a high watermark for a log that is open for appending.
        CorruptIndexError, FormatError: a segment's times cannot be told.
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
    """Do what a plan says to a log that is open for appending.

    Files are renamed to `.deleted` and removed after `file_delete_delay_ms`: with a later call of
    this kind, or when the log is closed.

    Raises:
        StalePlanError: the log is not as the plan saw it; nothing was done.
        KsegError: the log is open for reading only, or has failed.
        OSError: the disk refuses. What is left goes with another plan. One that is full and gets
            too little back from segments that go whole is left as it was.
    """
    return retention.apply_state(log.state, plan)


__all__ = ["LOG_START", "SIZE", "TIME", "RetiredSegment", "apply_retention", "plan_retention"]
