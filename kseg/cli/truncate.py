"""`kseg truncate`: cut a log back to an offset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kseg import TruncationReport, apply_truncation, plan_truncation
from kseg.cli import changing
from kseg.cli.parsing import GivenSettings, Selection
from kseg.cli.paths import one_partition
from kseg.cli.settings import known_configs
from kseg.log.recovery import Action

#: What this verb's documents call an action, where that is not what plans call it.
_WORDS: Final = {"truncate": "cut"}


def truncate(
    directory: str,
    offset: int,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    as_json: bool,
    **how: Any,
) -> int:
    """Do what the verb says; returns the exit code."""
    change = changing.change_of(**how)
    partition = one_partition((directory,), Selection(topics, partitions), strict=True)
    configs = known_configs([partition], given)
    plan = plan_truncation(partition.path, offset)
    report = TruncationReport(plan)
    if not (plan.is_noop or change.is_plan):
        place = change.place_of(partition.path)
        with change.holding([partition.path]):
            report = apply_truncation(
                plan if place == partition.path else plan_truncation(place, offset),
                config=configs[partition.path],
                now_ms=given.now_ms,
                backup_directory=change.backup_directory,
                keep_cut=change.keeps,
            )
    return changing.report(
        "truncate",
        directory,
        change,
        [_action(each) for each in report.plan.actions],
        report.kept,
        freed_bytes=report.freed_bytes if change.apply else 0,
        as_json=as_json,
        log_start_offset=report.log_start_offset,
        log_end_offset=report.log_end_offset,
        truncated_bytes=report.truncated_bytes,
    )


def _action(each: Action) -> Action:
    """In the words of this verb's documents."""
    return replace(each, action=_WORDS.get(each.action, each.action))
