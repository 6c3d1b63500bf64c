"""Plans of retention; `kseg.log.writer.retention` has the rules, and deletes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kseg._door import renamed
from kseg.constants import StrPath
from kseg.format.times import Time
from kseg.log.config import ConfigLike, LogConfig
from kseg.log.log import Log
from kseg.log.reader.version import HighWatermark
from kseg.log.reader.view import LogView
from kseg.log.tier.history import tiered
from kseg.log.topic_policy import RetentionRules
from kseg.log.writer import retention
from kseg.log.writer.flush import Opening
from kseg.log.writer.retention import (
    LOG_START,
    SIZE,
    TIME,
    RetentionPlan,
    RetiredSegment,
    StayingSegment,
    latest_of,
    staying,
)
from kseg.log.writer.state import LogState
from kseg.stores.path import local_path_at

if TYPE_CHECKING:
    from kseg.log.tier.tier import TierLike


@renamed(now_ms="now")
def plan_retention(
    log: Log | StrPath,
    *,
    config: ConfigLike | RetentionRules | None = None,
    now: Time | None = None,
    high_watermark: HighWatermark | None = None,
    tier: TierLike | None = None,
) -> RetentionPlan:
    """Plan the retention of a log; changes nothing.

    For a log with segments in a tier, local segments expire by `local.retention.*`, once the tier
    has them, as on a broker. `plan.remote` describes the remote segments, those that a broker
    deletes by `retention.*`, and the expired ones that are not copied yet.

    Args:
        log: a partition directory, or a log that is open for reading or for appending.
        config: the settings, or the answer of `retention_rules` for one log. None means the log's
            own, or no setting for a log that is open for reading.
        now: the time that counts; None for the log's clock, or the machine's.
        high_watermark: as for `Log.open`, which takes it for a log that is open for appending.
        tier: a URL or a directory with older segments; by default `__remote_log_metadata` beside
            the partition decides.

    Raises:
        ValueError: a high watermark for a log that is open for appending.
        TierError: what a tier says of its segments cannot be used.
        CorruptIndexError, FormatError: a segment's times cannot be read.
        UnsupportedFormatError: the log is one of Kafka 0.7.
        OSError: a file cannot be read.
    """
    remote = tiered(log, tier)
    if config is not None and not isinstance(config, RetentionRules):
        config = LogConfig.of(config)
    source = state_or_view(log, high_watermark)
    if isinstance(source, LogState):
        plan = retention.plan_state(source, config=config, now_ms=now, tier=remote)
    else:
        plan = retention.plan_view(
            source, config=config, now_ms=now, high_watermark=high_watermark, tier=remote
        )
    settings = config.config if isinstance(config, RetentionRules) else config or LogConfig()
    return replace(plan, opening=opening_of(source, settings, high_watermark))


def segments_that_stay(
    log: Log, plan: retention.RetentionPlan, *, config: LogConfig
) -> tuple[StayingSegment, ...]:
    """Say why each segment stays that a plan leaves, oldest first, of a log open for reading.

    Args:
        log: the log of the plan.
        plan: from `plan_retention`.
        config: the settings behind the plan, as `RetentionRules.config` has them.

    Raises:
        CorruptIndexError, FormatError: a segment's times cannot be read.
        OSError: a file cannot be read.
    """
    return staying(log.view.segments, plan, config if plan.remote is None else config.local)


def state_or_view(log: Log | StrPath, high_watermark: HighWatermark | None) -> LogState | LogView:
    """The state of a log that is open for appending; the view of any other, or of a path.

    Args:
        log: as for `plan_retention`.
        high_watermark: of the caller.

    Raises:
        ValueError: a high watermark for a log that is open for appending.
        NotALogError, OSError: as for `Log.open`.
    """
    if not isinstance(log, Log):
        return LogView.open(local_path_at(log))
    if log.mode != "append":
        return log.view
    if high_watermark is not None:
        raise ValueError("a log open for appending has the high watermark of its opening")
    return log.state


def opening_of(
    source: LogState | LogView, config: LogConfig, high_watermark: HighWatermark | None
) -> Opening:
    """The way in which a plan opens its log.

    Args:
        source: from `state_or_view`.
        config, high_watermark: as for `Log.open`.
    """
    state = source if isinstance(source, LogState) else None
    return Opening(source.path, config, high_watermark, state)


__all__ = [
    "LOG_START",
    "SIZE",
    "TIME",
    "RetentionPlan",
    "RetiredSegment",
    "StayingSegment",
    "latest_of",
    "plan_retention",
    "segments_that_stay",
]
