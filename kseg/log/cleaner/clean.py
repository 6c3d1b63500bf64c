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
from kseg.format.workspace import Workspace
from kseg.log.clean_offsets import read_clean_offset, write_clean_offset
from kseg.log.cleaner.inputs import (
    Bounds,
    CleanerInputs,
    between,
    bounds_of,
    group_segments,
    is_due,
)
from kseg.log.cleaner.judge import Judge, LastBatches, read_keys
from kseg.log.cleaner.rewrite import Rewrite, keep_group, remove_cleaned, swap_in
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
    UncleanedSegment,
)
from kseg.log.topic_policy import RetentionRules
from kseg.log.writer import retention

if TYPE_CHECKING:
    from kseg.format.times import Time
    from kseg.log.cleaner.inputs import Group
    from kseg.log.cleaner.rewrite import Rewritten
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


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One pass, worked out: up to where, which segments become one, and what becomes of each.

    Attributes:
        end_offset: where it ends.
        groups: rising.
        rewrite: writes a group.
    """

    end_offset: int
    groups: list[Group]
    rewrite: Rewrite

    @classmethod
    def of(
        cls,
        inputs: CleanerInputs,
        first_dirty_offset: int,
        first_uncleanable_offset: int,
        *,
        rules: str,
        map_bytes: int,
    ) -> Pass:
        """Read the keys of the dirty part, as many as there is memory for.

        Raises:
            ValueError: there is no memory for one.
            FormatError, LimitExceededError: a batch is damaged.
            OSError: a file cannot be read.
        """
        decisions, last_offsets = read_keys(
            inputs,
            between(inputs.segments, first_dirty_offset, first_uncleanable_offset),
            range(first_dirty_offset, first_uncleanable_offset),
            map_bytes,
        )
        end = last_offsets.latest_offset + 1
        judge = Judge(
            last_offsets,
            decisions,
            LastBatches.of(inputs.producers.values()),
            first_uncleanable_offset,
            inputs.now_ms,
        )
        horizon = _old_tombstones_since_ns(inputs, first_dirty_offset)
        rewrite = Rewrite(inputs, judge, rules, horizon, Workspace())
        reached = [info for info in inputs.segments if info.base_offset < end]
        groups = group_segments(reached, inputs.config, first_uncleanable_offset)
        return cls(end, groups, rewrite)


def _old_tombstones_since_ns(inputs: CleanerInputs, first_dirty_offset: int) -> int:
    """When the last clean segment was written, less the time that tombstones stay; 0 for none."""
    clean = [info for info in inputs.segments if info.base_offset < first_dirty_offset]
    if not clean:
        return 0
    return os.stat(clean[-1].path).st_mtime_ns - inputs.config.delete_retention_ms * 1_000_000


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
    bounds = bounds_of(inputs, clean, ignore_lag=options.force)
    if skipped is None and not bounds.cleanable_bytes:
        skipped, why = (
            NOTHING_DIRTY,
            f"nothing is dirty that may be touched ({bounds.why_uncleanable})",
        )
    elif skipped is None and not (options.force or is_due(inputs, bounds)):
        limit = inputs.config.min_cleanable_dirty_ratio
        skipped, why = NOT_DUE, f"its dirty ratio {bounds.ratio:.3f} is not above {limit}"
    groups: tuple[CompactedGroup, ...] = ()
    staying: tuple[UncleanedSegment, ...] = ()
    end = bounds.first_dirty_offset
    if skipped is None:
        end, described = _looked_at(inputs, bounds, options)
        groups = tuple(group for group, changes in described if changes)
        same = [group.segments[0] for group, changes in described if not changes]
        staying = (
            *(
                UncleanedSegment(each.base_offset, each.path, each.bytes, UNCHANGED)
                for each in same
            ),
            *_staying(inputs, bounds, end),
        )
    return CompactionPlan(
        path=inputs.path,
        config=inputs.config,
        now_ms=inputs.now_ms,
        log_start_offset=inputs.log_start_offset,
        log_end_offset=inputs.log_end_offset,
        high_watermark=inputs.high_watermark,
        last_stable_offset=inputs.last_stable_offset,
        first_dirty_offset=bounds.first_dirty_offset,
        first_uncleanable_offset=bounds.first_uncleanable_offset,
        clean_bytes=bounds.clean_bytes,
        cleanable_bytes=bounds.cleanable_bytes,
        end_offset=end,
        groups=groups,
        staying=staying,
        skipped=skipped,
        why=why,
        rules=options.rules,
        map_bytes=options.map_bytes,
        why_uncleanable=bounds.why_uncleanable,
    )


def _looked_at(
    inputs: CleanerInputs, bounds: Bounds, options: CompactionOptions
) -> tuple[int, list[tuple[CompactedGroup, bool]]]:
    """Where a pass ends; its groups, and whether each changes.

    Without a look at the records all of them may, and the map is taken to have room for all keys.
    """
    end = bounds.first_uncleanable_offset
    if options.measure:
        one = Pass.of(
            inputs,
            bounds.first_dirty_offset,
            end,
            rules=options.rules,
            map_bytes=options.map_bytes,
        )
        measured = [(group, one.rewrite.measure(group)) for group in one.groups]
        return one.end_offset, [
            (done.described(group), done.changes(group)) for group, done in measured
        ]
    reached = [info for info in inputs.segments if info.base_offset < end]
    return end, [
        (
            CompactedGroup(
                tuple(CompactedSegment(info.base_offset, info.path, info.size) for info in group)
            ),
            True,
        )
        for group in group_segments(reached, inputs.config, end)
    ]


def _staying(inputs: CleanerInputs, bounds: Bounds, end_offset: int) -> Iterator[UncleanedSegment]:
    """The segments behind the pass, and why."""
    for info in inputs.segments:
        if info.base_offset < end_offset:
            continue
        why = bounds.why_uncleanable
        if info.base_offset < bounds.first_uncleanable_offset:
            why = BEYOND_MAP
        elif info.is_last:
            why = ACTIVE
        yield UncleanedSegment(info.base_offset, info.path, info.size, why)


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
    """As `kseg.log.cleanup.apply_compaction`, for what a log open for appending consists of."""
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


__all__ = ["CompactionOptions", "Pass", "apply_state", "plan_inputs"]
