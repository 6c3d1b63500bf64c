"""Doing what a plan of compaction says.

New files are written beside appends and readers; the log's lock is held for the swap alone. Where
the disk has no room for the next group, one that needs less goes first. A group that loses
tombstones waits for those in front of it: an older value of the key would come to life again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kseg.errors import StalePlanError
from kseg.files import io
from kseg.log.clean_offsets import read_clean_offset, write_clean_offset
from kseg.log.cleaner.inputs import CleanerInputs
from kseg.log.cleaner.plan import CompactionOptions, Pass, plan_inputs
from kseg.log.cleaner.rewrite import remove_cleaned
from kseg.log.cleaner.swap import keep_group, swap_in
from kseg.log.cleaner.values import UNCHANGED, CompactionPlan, CompactionReport
from kseg.log.topic_policy import RetentionRules
from kseg.log.writer import retention

if TYPE_CHECKING:
    from kseg.format.times import Time
    from kseg.log.cleaner.groups import Group
    from kseg.log.cleaner.rewrite import Rewritten
    from kseg.log.recovery.backup import Backup
    from kseg.log.writer.state import LogState

    #: Called with bytes of log dealt with, and in all.
    Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Known:
    """What a plan knows of a group: the room it needs, whether it changes, loses tombstones."""

    bytes: int
    changes: bool = True
    removes_tombstones: bool = True


def apply_state(
    state: LogState,
    plan: CompactionPlan,
    *,
    backup: Backup | None = None,
    progress: Progress | None = None,
) -> CompactionReport:
    """As `kseg.log.compact.apply_compaction`, for what a log open for appending consists of."""
    with state.cleaning:
        report = CompactionReport(0, plan.first_dirty_offset)
        _check_fresh(state, plan)
        if not plan.advances and plan.is_noop:
            return report
        # A checkpoint that cannot be read is found out before anything changes.
        read_clean_offset(state.path, state.partition)
        known = _known(plan)
        while report.end_offset < plan.first_uncleanable_offset or not report.passes:
            inputs = CleanerInputs.of_state(state, plan.config, plan.now_ms)
            one = Pass.of(
                inputs,
                report.end_offset,
                plan.first_uncleanable_offset,
                rules=plan.rules,
                map_bytes=plan.map_bytes,
            )
            report = _pass(state, one, known, backup, progress, report)
            write_clean_offset(state.path, state.partition, one.end_offset)
            known = {}
        return report


def clean_state(
    state: LogState, *, now_ms: Time | None, force: bool, map_bytes: int
) -> CompactionReport | None:
    """As `kseg.log.log.Log.clean`, for what a log open for appending consists of."""
    if not state.config.compacted:
        return None
    inputs = CleanerInputs.of_state(state, now_ms=now_ms)
    options = CompactionOptions(force=force, map_bytes=map_bytes, measure=False)
    plan = plan_inputs(inputs, None, options)
    report = None if plan.skipped else apply_state(state, plan)
    if state.config.deletes:
        retention.delete_old_segments(state, now_ms, RetentionRules(state.config))
    return report


def _known(plan: CompactionPlan) -> dict[tuple[int, ...], _Known]:
    """By the base offsets of each group's segments."""
    known: dict[tuple[int, ...], _Known] = {
        (one.base_offset,): _Known(0, changes=False) for one in plan.staying if one.why == UNCHANGED
    }
    for group in plan.groups:
        size = group.bytes if group.kept_bytes is None else group.kept_bytes
        bases = tuple(segment.base_offset for segment in group.segments)
        known[bases] = _Known(size, removes_tombstones=group.removes_tombstones is not False)
    return known


def _check_fresh(state: LogState, plan: CompactionPlan) -> None:
    """Refuse a plan for other segments, or for a log that is not decided so far any more."""
    if plan.path != state.path:
        raise StalePlanError(f"the plan is for {plan.path}", path=state.path)
    with state.lock:
        end = plan.first_uncleanable_offset
        planned = [(one.base_offset, one.bytes) for group in plan.groups for one in group.segments]
        planned += [(one.base_offset, one.bytes) for one in plan.staying if one.base_offset < end]
        found = [(info.base_offset, info.size) for info in state.sealed if info.base_offset < end]
        same = sorted(planned) == found
        bounds = (state.replicated_offset, state.version.last_stable_offset)
        if plan.advances and not (same and end <= min(bounds)):
            raise StalePlanError("the log is not as the plan saw it", path=state.path)


def _pass(
    state: LogState,
    one: Pass,
    known: dict[tuple[int, ...], _Known],
    backup: Backup | None,
    progress: Progress | None,
    report: CompactionReport,
) -> CompactionReport:
    """Write each group anew and put it in its place."""
    judge = one.rewrite.judge
    total, done = sum(info.size for group in one.groups for info in group), 0
    pending = [(group, _of_group(known, group)) for group in one.groups]
    while pending:
        group, what = pending.pop(_next(state, pending))
        if what.changes:
            if backup is not None:
                keep_group(state, group, backup)
            written, freed = _replace(state, one, group)
            report = _added(report, group, written, freed)
        done += sum(info.size for info in group)
        if progress is not None:
            progress(done, total)
    return replace(
        report,
        passes=report.passes + 1,
        end_offset=one.end_offset,
        unkeyed_records=report.unkeyed_records + judge.unkeyed_records,
    )


def _of_group(known: dict[tuple[int, ...], _Known], group: Group) -> _Known:
    bases = tuple(info.base_offset for info in group)
    return known.get(bases) or _Known(sum(info.size for info in group))


def _next(state: LogState, pending: list[tuple[Group, _Known]]) -> int:
    """The first group, or else the one that needs least of those that may go before it.

    Raises:
        OSError: there is no room for any.
    """
    ready = [0, *(n for n, (_, what) in enumerate(pending) if n and not what.removes_tombstones)]
    for number in (0, *sorted(ready, key=lambda n: pending[n][1].bytes)):
        if io.has_room(state.path, pending[number][1].bytes):
            return number
    needed = min(pending[n][1].bytes for n in ready)
    raise OSError(
        errno.ENOSPC,
        f"no room on the disk: {needed} bytes are needed to write a segment anew",
        os.fspath(state.path),
    )


def _replace(state: LogState, one: Pass, group: Group) -> tuple[Rewritten, int]:
    """Write a group and swap it in; answers what it came to, and what the disk gets back."""
    try:
        written = one.rewrite.write(group)
    except FileNotFoundError:
        _check_there(state, group)
        raise
    try:
        if not written.changes(group):
            remove_cleaned(state.path, group[0].base_offset)
            return written, 0
        return written, swap_in(state, group, sum(written.kept_bytes))
    except StalePlanError:
        remove_cleaned(state.path, group[0].base_offset)
        raise


def _check_there(state: LogState, group: Group) -> None:
    if not set(group) <= set(state.sealed):
        raise StalePlanError("segments went while they were compacted", path=state.path)


def _added(
    report: CompactionReport, group: Group, written: Rewritten, freed: int
) -> CompactionReport:
    if not written.changes(group):
        return report
    return replace(
        report,
        segments_before=report.segments_before + len(group),
        segments_after=report.segments_after + 1,
        bytes_before=report.bytes_before + sum(info.size for info in group),
        bytes_after=report.bytes_after + sum(written.kept_bytes),
        records=report.records + written.records,
        kept_records=report.kept_records + written.kept_records,
        freed_bytes=report.freed_bytes + freed,
    )


__all__ = ["apply_state"]
