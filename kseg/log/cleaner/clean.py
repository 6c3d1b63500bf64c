"""A plan of compaction, and how it is carried out.

A plan has been measured: each group is read and filtered as it would be written, so the plan says
how many bytes go. Only the first pass can be measured. A further pass, where the map is full, reads
the segments that the pass before has written.

`apply_state` writes new files beside appends and readers, and holds the log's lock for the swap
alone. Where the disk has no room for the next group, a smaller group goes first. A group that loses
tombstones waits for the groups in front of it, or an older value of the key would come to life
again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kseg.constants import COMPACTION_MAP_BYTES
from kseg.errors import StalePlanError
from kseg.files import io
from kseg.log.clean_offsets import read_clean_offset, write_clean_offset
from kseg.log.cleaner.inputs import CleanerInputs, bounded_plan, group_segments, is_due
from kseg.log.cleaner.rewrite import Pass, keep_group, remove_cleaned, swap_in
from kseg.log.cleaner.values import (
    ACTIVE,
    BEYOND_MAP,
    NOT_DUE,
    NOTHING_DIRTY,
    UNCHANGED,
    CompactedGroup,
    CompactedSegment,
    CompactionPlan,
    CompactionReport,
)
from kseg.log.topic_policy import RetentionRules
from kseg.log.writer import retention

if TYPE_CHECKING:
    from kseg.format.times import Time
    from kseg.log.cleaner.inputs import Group
    from kseg.log.recovery.backup import Backup
    from kseg.log.topic_policy import RetentionRules
    from kseg.log.writer.state import LogState

    #: Called with bytes of log dealt with, and in all.
    Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """How a log is to be compacted.

    Attributes:
        from_start: from the log's start, whatever was compacted before.
        force: however little is dirty, and however young.
        rules: "4.0", where what was of magic 0 and 1 becomes magic 2; "3.9", where it stays.
        map_bytes: memory of the offset map.
        measure: look at how much goes, which takes as long as doing it.
    """

    from_start: bool = False
    force: bool = False
    rules: str = "4.0"
    map_bytes: int = COMPACTION_MAP_BYTES
    measure: bool = True


def plan_inputs(
    inputs: CleanerInputs, rules: RetentionRules | None, options: CompactionOptions
) -> CompactionPlan:
    """Plan one pass.

    Args:
        inputs: of the log.
        rules: why it is left alone, if it is.
        options: how.

    Raises:
        CorruptIndexError: `cleaner-offset-checkpoint` or an index cannot be read.
        FormatError, LimitExceededError: a batch is damaged; nothing of the log is compacted.
        OSError: a file cannot be read.
    """
    skipped, why = (None, "") if rules is None else (rules.skipped, rules.why)
    clean = None
    if skipped is None and not options.from_start:
        clean = read_clean_offset(inputs.path, inputs.partition)
    plan = bounded_plan(inputs, clean, ignore_lag=options.force)
    plan = replace(plan, rules=options.rules, map_bytes=options.map_bytes)
    if skipped is None and not plan.cleanable_bytes:
        skipped = NOTHING_DIRTY
        why = f"nothing is dirty that may be touched ({plan.why_uncleanable})"
    elif skipped is None and not (options.force or is_due(inputs, plan)):
        limit = inputs.config.min_cleanable_dirty_ratio
        skipped, why = NOT_DUE, f"its dirty ratio {plan.dirty_ratio:.3f} is not above {limit}"
    if skipped is not None:
        return replace(plan, skipped=skipped, why=why)
    end = plan.first_uncleanable_offset
    if options.measure:
        one = _next_pass(inputs, plan, plan.first_dirty_offset)
        end, groups = one.end_offset, [one.filter(group) for group in one.groups]
    else:  # all groups may change, if the map has room for all keys
        reached = [info for info in inputs.segments if info.base_offset < end]
        grouped = group_segments(reached, inputs.config, end)
        groups = [CompactedGroup.unmeasured(group) for group in grouped]
    same = [replace(group.segments[0], why=UNCHANGED) for group in groups if not group.changes]
    return replace(
        plan,
        end_offset=end,
        groups=tuple(group for group in groups if group.changes),
        staying=(*same, *_staying(inputs, plan, end)),
        why=why,
    )


def _next_pass(inputs: CleanerInputs, plan: CompactionPlan, first_dirty_offset: int) -> Pass:
    dirty = range(first_dirty_offset, plan.first_uncleanable_offset)
    return Pass.of(inputs, dirty, rules=plan.rules, map_bytes=plan.map_bytes)


def _staying(
    inputs: CleanerInputs, plan: CompactionPlan, end_offset: int
) -> Iterator[CompactedSegment]:
    """The segments behind the pass, and why they stay."""
    for info in inputs.segments:
        if info.base_offset < end_offset:
            continue
        why = plan.why_uncleanable
        if info.base_offset < plan.first_uncleanable_offset:
            why = BEYOND_MAP
        elif info.is_last:
            why = ACTIVE
        yield CompactedSegment(info.base_offset, info.path, info.size, why=why)


def apply_state(
    state: LogState,
    plan: CompactionPlan,
    *,
    backup: Backup | None = None,
    progress: Progress | None = None,
) -> CompactionReport:
    """As `kseg.log.cleanup.apply_compaction`, for what a log open for appending consists of."""
    with state.cleaning:
        report = CompactionReport(0, plan.first_dirty_offset)
        _check_fresh(state, plan)
        if not plan.advances and plan.is_noop:
            return report
        # A checkpoint that cannot be read is found out before anything changes.
        read_clean_offset(state.path, state.partition)
        known = {group.base_offsets: group for group in plan.groups}
        for one in plan.staying:
            if one.why == UNCHANGED:
                known[one.base_offset,] = CompactedGroup((one,), changes=False)
        while report.end_offset < plan.first_uncleanable_offset or not report.passes:
            inputs = CleanerInputs.of_state(state, plan.config, plan.now_ms)
            current = _next_pass(inputs, plan, report.end_offset)
            report = _run_pass(state, current, known, backup, progress, report)
            write_clean_offset(state.path, state.partition, current.end_offset)
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


def _run_pass(
    state: LogState,
    one: Pass,
    known: dict[tuple[int, ...], CompactedGroup],
    backup: Backup | None,
    progress: Progress | None,
    report: CompactionReport,
) -> CompactionReport:
    """Write each group anew and put it in its place."""
    total, done = sum(info.size for group in one.groups for info in group), 0
    pending = []
    for group in one.groups:
        planned = known.get(tuple(info.base_offset for info in group))
        pending.append((group, planned or CompactedGroup.unmeasured(group)))
    while pending:
        group, planned = pending.pop(_next(state, [each for _, each in pending]))
        if planned.changes:
            if backup is not None:
                keep_group(state, group, backup)
            report = _replace(state, one, group, report)
        done += sum(info.size for info in group)
        if progress is not None:
            progress(done, total)
    return replace(
        report,
        passes=report.passes + 1,
        end_offset=one.end_offset,
        unkeyed_records=report.unkeyed_records + one.judge.unkeyed_records,
    )


def _next(state: LogState, pending: list[CompactedGroup]) -> int:
    """The first group, or else the one that needs least of those that may go before it.

    Raises:
        OSError: there is no room for any.
    """
    ready = [0, *(n for n, group in enumerate(pending) if n and not group.removes_tombstones)]
    for number in (0, *sorted(ready, key=lambda n: pending[n].room_bytes)):
        if io.has_room(state.path, pending[number].room_bytes):
            return number
    needed = min(pending[n].room_bytes for n in ready)
    raise OSError(
        errno.ENOSPC,
        f"no room on the disk: {needed} bytes are needed to write a segment anew",
        os.fspath(state.path),
    )


def _replace(
    state: LogState, one: Pass, group: Group, report: CompactionReport
) -> CompactionReport:
    """Write a group and swap it in; adds it to the report."""
    try:
        written = one.write(group)
    except FileNotFoundError:
        if not set(group) <= set(state.sealed):
            raise StalePlanError(
                "segments went while they were compacted", path=state.path
            ) from None
        raise
    if not written.changes:
        remove_cleaned(state.path, group[0].base_offset)
        return report
    size = written.kept_bytes or 0
    try:
        freed = swap_in(state, group, size)
    except StalePlanError:
        remove_cleaned(state.path, group[0].base_offset)
        raise
    return replace(
        report,
        segments_before=report.segments_before + len(group),
        segments_after=report.segments_after + 1,
        bytes_before=report.bytes_before + written.bytes,
        bytes_after=report.bytes_after + size,
        records=report.records + (written.records or 0),
        kept_records=report.kept_records + (written.kept_records or 0),
        freed_bytes=report.freed_bytes + freed,
    )


__all__ = ["CompactionOptions", "apply_state", "clean_state", "plan_inputs"]
