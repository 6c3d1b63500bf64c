"""Compaction of a log: the plan, and the passes that carry it out.

A plan has been measured: each group is read and filtered as it would be written, so the plan says
how many bytes go. Only the first pass can be measured. A further pass, where the map is full, reads
the segments that the pass before has written.

`apply_state` writes new files beside appends and readers, and holds the log's lock for the swap
alone (`kseg.log.cleaner.rewrite`). If the disk has no room for the next group, a smaller group goes
first. A group that loses tombstones waits for the groups before it, or an older value of the
key would reappear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Final

from kseg.constants import COMPACTION_MAP_BYTES, COMPACTION_RULES, Progress
from kseg.documents import fields_of, frozen_dataclass
from kseg.errors import StalePlanError
from kseg.files import io
from kseg.files.checkpoints import read_clean_offset, write_clean_offset
from kseg.format.times import Time
from kseg.frames import TableRows
from kseg.log.cleaner.inputs import (
    ACTIVE,
    BEYOND_MAP,
    HIGH_WATERMARK,
    LAST_STABLE,
    MIN_LAG,
    UNCHANGED,
    CleanerInputs,
    CompactedGroup,
    CompactedSegment,
    Group,
    group_segments,
)
from kseg.log.cleaner.rewrite import Pass, keep_group, no_room, remove_cleaned, swap_in
from kseg.log.config import LogConfig
from kseg.log.reader.version import SegmentInfo
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.plan import Plan, Report, sum_of
from kseg.log.segment.index_entries import timestamp_of_first
from kseg.log.topic_policy import RetentionRules
from kseg.log.writer import retention
from kseg.log.writer.flush import Opening
from kseg.log.writer.retention import largest_timestamp_of
from kseg.log.writer.state import LogState
from kseg.workers import sum_progress

#: Reasons to skip a log, besides those of `kseg.log.topic_policy`.
NOTHING_DIRTY: Final = "nothing-dirty"
NOT_DUE: Final = "not-dirty-enough"


@frozen_dataclass(repr=False)
class CompactionReport(Report):
    """The result of a compaction.

    Attributes:
        passes: the number of passes; more than one if the map had no room for all keys.
        end_offset: the cleaner's checkpoint afterwards.
        segments_before, segments_after: the number of rewritten segments, and of their successors.
        bytes_before, bytes_after: the size of their log files.
        records, kept_records: the number of records in them.
        unkeyed_records: records without a key, which a compacted log cannot keep; they are dropped.
    """

    COLUMNS = (
        "passes end_offset segments_before segments_after bytes_before bytes_after records"
        " kept_records unkeyed_records freed_bytes"
    )

    passes: int = 0
    end_offset: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records: int = 0
    kept_records: int = 0
    unkeyed_records: int = 0

    @property
    def title(self) -> str:
        """The numbers of segments and bytes, before and after."""
        return (
            f"{self.segments_before} segments became {self.segments_after}, "
            f"{self.bytes_before} bytes became {self.bytes_after}"
        )

    def table_rows(self) -> TableRows:
        """One row with all numbers."""
        return [fields_of(self, self.COLUMNS)]


@frozen_dataclass(repr=False)
class CompactionPlan(Plan[CompactionReport]):
    """The plan of one pass of compaction.

    Attributes:
        path: the partition directory.
        config: the settings.
        now_ms: the time that counts.
        log_start_offset, log_end_offset: the bounds of the log.
        high_watermark, last_stable_offset: nothing at or above them is touched.
        first_dirty_offset: records below it were compacted before.
        first_uncleanable_offset: records at or above it are not changed: a segment's base.
        clean_bytes, cleanable_bytes: the bytes below `first_dirty_offset`, and from there on.
        end_offset: where the pass ends, and the checkpoint then; below `first_uncleanable_offset`
            where the map has no room for all keys, so that further passes follow.
        groups: the rewritten segments, ascending.
        staying: the others.
        skipped: why the log is left alone, a constant of this module or of `topic_policy`; None if
            it is not.
        why: the reason as a phrase.
        rules: the release whose rules count; see `kseg.format.retain`.
        map_bytes: memory of the offset map.
        why_uncleanable: why nothing is touched from `first_uncleanable_offset` on, in a word of
            this module.
        unkeyed_records: records without a key, which go since a compacted log cannot keep them;
            None if they were not counted.
        opening: how the plan of `plan_compaction` opens the log.
    """

    COLUMNS = "base_offset path bytes kept_bytes why into"
    KEEPS = False
    #: The log is opened in any case.
    ALWAYS = True

    path: Path
    config: LogConfig
    now_ms: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    end_offset: int
    groups: tuple[CompactedGroup, ...] = ()
    staying: tuple[CompactedSegment, ...] = ()
    skipped: str | None = None
    why: str = ""
    rules: str = COMPACTION_RULES[-1]
    map_bytes: int = COMPACTION_MAP_BYTES
    why_uncleanable: str = ACTIVE
    unkeyed_records: int | None = None
    opening: Opening | None = field(default=None, compare=False)

    @property
    def is_noop(self) -> bool:
        """Whether no file changes, but for the checkpoint."""
        return not self.groups

    @property
    def is_idle(self) -> bool:
        """Whether neither a file nor the checkpoint changes."""
        return self.is_noop and not self.advances

    @property
    def backup_bytes(self) -> None:
        """Nothing is known before segments are rewritten."""

    def do(
        self,
        backup: Backup | None,
        progress: Progress | None,
        *,
        again: Callable[[LogState], CompactionPlan] | None = None,
    ) -> CompactionReport:
        """Compact the log.

        A plan for a log that is open for appending uses that log: appends and reads go on
        meanwhile, since the log's lock is held only while files are swapped. Any other plan opens
        the log for appending, with the settings of the plan, and closes it. The old files go as
        soon as the new ones are lasting, and only a backup keeps them. If the process is killed
        on the way, each segment is as before or compacted.

        Args:
            backup: keeps the old files; None for no backup.
            progress: called after each segment with the bytes of log that are done, and all of
                them.
            again: plans once more where the open log is not as this plan saw it.

        Raises:
            StalePlanError: the log has changed since the plan was made, or changed meanwhile.
            UncleanShutdownError: the log was not closed in good order; nothing was done.
            LogLockedError: another process, or a log of this one, writes there; nothing was done.
            FormatError, LimitExceededError: a batch is damaged; its segment is as it was.
            KsegError: the log has failed.
            OSError: the disk refuses, or is full; the segment that was written is as it was.
        """
        assert self.opening is not None
        with self.opening.opened(self.now_ms) as state:
            try:
                return apply_state(state, self, backup=backup, progress=progress)
            except StalePlanError:
                if again is None:
                    raise
                return apply_state(state, again(state), backup=backup, progress=progress)

    @property
    def advances(self) -> bool:
        """Whether something is compacted that was not before, if no more than the checkpoint."""
        return self.skipped is None and self.end_offset > self.first_dirty_offset

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes in the cleanable part; 0 for an empty log."""
        return self.cleanable_bytes / max(self.clean_bytes + self.cleanable_bytes, 1)

    @property
    def is_complete(self) -> bool:
        """Whether one pass compacts all that is dirty."""
        return self.end_offset >= self.first_uncleanable_offset

    @property
    def bytes(self) -> int:
        """The size of the logs that are rewritten."""
        return sum(group.bytes for group in self.groups)

    @property
    def kept_bytes(self) -> int | None:
        """The size of the new logs; None if it was not measured."""
        return sum_of(group.kept_bytes for group in self.groups)

    @property
    def saved_bytes(self) -> int | None:
        """How many bytes are removed; None if they were not measured."""
        kept_bytes = self.kept_bytes
        return None if kept_bytes is None else self.bytes - kept_bytes

    @property
    def records(self) -> int | None:
        """The number of records in the logs that are rewritten; None if it was not measured."""
        return sum_of(group.records for group in self.groups)

    @property
    def kept_records(self) -> int | None:
        """The records that stay; None if they were not measured."""
        return sum_of(group.kept_records for group in self.groups)

    @property
    def saved_records(self) -> int | None:
        """How many records are removed; None if they were not measured."""
        records, kept_records = self.records, self.kept_records
        return None if records is None or kept_records is None else records - kept_records

    @property
    def room_bytes(self) -> int:
        """Free room that the largest group needs, while old and new files are both there."""
        return max((group.room_bytes for group in self.groups), default=0)

    @property
    def title(self) -> str:
        """The path, and the size of the pass."""
        if self.skipped is not None or self.is_noop:
            return f"{self.path}: nothing to compact"
        offsets = f"{self.first_dirty_offset} to {self.end_offset}"
        return f"{self.path}: compact from {offsets}, {self.bytes} bytes"

    def table_rows(self) -> TableRows:
        """The segments; `into` is the base offset of the new segment, None if a segment stays."""
        compacted = [
            (segment, group.base_offset) for group in self.groups for segment in group.segments
        ]
        return [
            asdict(segment) | {"path": str(segment.path), "into": into}
            for segment, into in (*compacted, *((segment, None) for segment in self.staying))
        ]

    def __str__(self) -> str:
        """A line a group."""
        if self.skipped is not None or self.is_noop:
            return f"{self.title}: {self.why}" if self.why else self.title
        lines = [self.title]
        for group in self.groups:
            staying = "" if group.kept_bytes is None else f", of which {group.kept_bytes} stay"
            bases = ", ".join(map(str, group.base_offsets))
            lines.append(f"segments {bases} become one ({group.bytes} bytes{staying})")
        return "\n".join(lines)


@frozen_dataclass
class CompactionOptions:
    """Options of compaction.

    Attributes:
        from_start: begin at the log's start, even if it was compacted before.
        force: compact although little is dirty, or it is young.
        rules: the release whose rules count, out of `COMPACTION_RULES`.
        map_bytes: memory of the offset map.
        measure: count the bytes that go, which takes as long as compaction.
    """

    from_start: bool = False
    force: bool = False
    rules: str = COMPACTION_RULES[-1]
    map_bytes: int = COMPACTION_MAP_BYTES
    measure: bool = True


def bounded_plan(
    inputs: CleanerInputs, clean_offset: int | None, options: CompactionOptions
) -> CompactionPlan:
    """A plan with the bounds of a pass, and nothing to do yet.

    Args:
        inputs: the log.
        clean_offset: the end of the clean part; None if there is none, or it is outside of the log.
        options: the options; with `force` the age of records does not count.

    Raises:
        CorruptIndexError, FormatError: the age of a segment cannot be read.
        OSError: a file cannot be read.
    """
    start = inputs.view.log_start_offset
    if clean_offset is None or not start <= clean_offset <= inputs.view.log_end_offset:
        clean_offset = start
    limits = [
        (inputs.active_base_offset, ACTIVE),
        (inputs.high_watermark, HIGH_WATERMARK),
        (inputs.view.last_stable_offset, LAST_STABLE),
    ]
    young = None if options.force else _first_young(inputs, clean_offset)
    if young is not None:
        limits.append((young.base_offset, MIN_LAG))
    limit, why = min(limits, key=lambda pair: pair[0])
    # The base of the sealed segment that can hold the limit, or else of the active one.
    limit_segments = inputs.between(max(limit, clean_offset), inputs.active_base_offset)
    end = limit_segments[0].base_offset if limit_segments else inputs.active_base_offset
    dirty = inputs.between(min(clean_offset, end), end)
    return CompactionPlan(
        path=inputs.view.path,
        config=inputs.config,
        now_ms=inputs.now_ms,
        log_start_offset=start,
        log_end_offset=inputs.view.log_end_offset,
        high_watermark=inputs.high_watermark,
        last_stable_offset=inputs.view.last_stable_offset,
        first_dirty_offset=clean_offset,
        first_uncleanable_offset=end,
        clean_bytes=sum(info.size for info in inputs.between(0, clean_offset)),
        cleanable_bytes=sum(info.size for info in dirty),
        end_offset=clean_offset,
        rules=options.rules,
        map_bytes=options.map_bytes,
        why_uncleanable=why,
    )


def is_due(inputs: CleanerInputs, plan: CompactionPlan) -> bool:
    """Whether a broker would compact the log now: it is dirty enough, or has been for too long."""
    config = inputs.config
    if plan.dirty_ratio > config.min_cleanable_dirty_ratio:
        return True
    since = inputs.now_ms - config.max_compaction_lag_ms
    if not plan.cleanable_bytes or since <= 0:
        return False
    for info in inputs.between(plan.first_dirty_offset, inputs.active_base_offset):
        with inputs.view.open_segment(info) as segment:
            if 0 < (timestamp_of_first(segment) or 0) < since:
                return True
    return False


def _first_young(inputs: CleanerInputs, first_dirty_offset: int) -> SegmentInfo | None:
    """The first dirty segment with a record younger than `min.compaction.lag.ms`."""
    lag = inputs.config.min_compaction_lag_ms
    if lag <= 0:
        return None
    young = inputs.now_ms - lag
    for info in inputs.between(first_dirty_offset, inputs.active_base_offset):
        if largest_timestamp_of(info) > young:
            return info
    return None


def plan_inputs(
    inputs: CleanerInputs, rules: RetentionRules | None, options: CompactionOptions
) -> CompactionPlan:
    """Plan one pass.

    Args:
        inputs: the log.
        rules: say whether the log is left alone, and why.
        options: the options.

    Raises:
        CorruptIndexError: `cleaner-offset-checkpoint` or an index cannot be read.
        FormatError, LimitExceededError: a batch is damaged; the log is not compacted at all.
        OSError: a file cannot be read.
    """
    skipped, why = (None, "") if rules is None else (rules.skipped, rules.why)
    clean = None
    if skipped is None and not options.from_start:
        clean = read_clean_offset(inputs.view.path, inputs.partition)
    plan = bounded_plan(inputs, clean, options)
    if skipped is None and not plan.cleanable_bytes:
        skipped = NOTHING_DIRTY
        why = f"nothing is dirty that may be touched ({plan.why_uncleanable})"
    elif skipped is None and not (options.force or is_due(inputs, plan)):
        limit = inputs.config.min_cleanable_dirty_ratio
        skipped, why = NOT_DUE, f"its dirty ratio {plan.dirty_ratio:.3f} is not above {limit}"
    if skipped is not None:
        return replace(plan, skipped=skipped, why=why)
    end, unkeyed_records = plan.first_uncleanable_offset, None
    if options.measure:
        measured = _next_pass(inputs, plan, plan.first_dirty_offset)
        end, groups = measured.end_offset, [measured.filter(group) for group in measured.groups]
        unkeyed_records = measured.judge.unkeyed_records
    else:  # all groups may change, if the map has room for all keys
        grouped = group_segments(inputs.between(0, end), inputs.config, end)
        groups = [CompactedGroup.unmeasured(group) for group in grouped]
    same = [replace(group.segments[0], why=UNCHANGED) for group in groups if not group.changes]
    return replace(
        plan,
        end_offset=end,
        groups=tuple(group for group in groups if group.changes),
        staying=(*same, *_staying_segments(inputs, plan, end)),
        why=why,
        unkeyed_records=unkeyed_records,
    )


def _next_pass(inputs: CleanerInputs, plan: CompactionPlan, first_dirty_offset: int) -> Pass:
    dirty = range(first_dirty_offset, plan.first_uncleanable_offset)
    return Pass.of(inputs, dirty, rules=plan.rules, map_bytes=plan.map_bytes)


def _staying_segments(
    inputs: CleanerInputs, plan: CompactionPlan, end_offset: int
) -> Iterator[CompactedSegment]:
    """The segments after the pass, and why they stay."""
    for info in inputs.view.segments:
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
    """As `CompactionPlan.do`, for the state of a log open for appending."""
    with state.cleaning:
        report = CompactionReport(plan, end_offset=plan.first_dirty_offset)
        _check_fresh(state, plan)
        if not plan.advances and plan.is_noop:
            return report
        # A checkpoint that cannot be read is found out before anything changes.
        read_clean_offset(state.path, state.partition)
        planned_groups = {group.base_offsets: group for group in plan.groups}
        for segment in plan.staying:
            if segment.why == UNCHANGED:
                planned_groups[segment.base_offset,] = CompactedGroup((segment,), changes=False)
        while report.end_offset < plan.first_uncleanable_offset or not report.passes:
            inputs = CleanerInputs.of_state(state, plan.config, plan.now_ms)
            current = _next_pass(inputs, plan, report.end_offset)
            report = _run_pass(state, current, planned_groups, backup, progress, report)
            write_clean_offset(state.path, state.partition, current.end_offset)
            planned_groups = {}
        return report


def clean_state(
    state: LogState, *, now_ms: Time | None, force: bool, map_bytes: int
) -> CompactionReport | None:
    """As `kseg.log.log.Log.clean`, for the state of a log open for appending."""
    if not state.config.compacted:
        return None
    inputs = CleanerInputs.of_state(state, now_ms=now_ms)
    options = CompactionOptions(force=force, map_bytes=map_bytes, measure=False)
    plan = plan_inputs(inputs, rules=None, options=options)
    report = None if plan.skipped else apply_state(state, plan)
    if state.config.deletes:
        retention.delete_old_segments(state, now_ms, RetentionRules(state.config))
    return report


def _check_fresh(state: LogState, plan: CompactionPlan) -> None:
    """Refuse a plan for other segments, or for transactions that are no longer decided so far."""
    if plan.path.resolve() != state.path.resolve():
        raise StalePlanError(f"the plan is for {plan.path}", path=state.path)
    with state.lock:
        end = plan.first_uncleanable_offset
        rewritten = [segment for group in plan.groups for segment in group.segments]
        staying = [segment for segment in plan.staying if segment.base_offset < end]
        planned = [(segment.base_offset, segment.bytes) for segment in (*rewritten, *staying)]
        present = [(info.base_offset, info.size) for info in state.sealed if info.base_offset < end]
        same = sorted(planned) == present
        bounds = (state.replicated_offset, state.version.last_stable_offset)
        if plan.advances and not (same and end <= min(bounds)):
            raise StalePlanError("the log is not as the plan saw it", path=state.path)


def _run_pass(
    state: LogState,
    current: Pass,
    planned_groups: dict[tuple[int, ...], CompactedGroup],
    backup: Backup | None,
    progress: Progress | None,
    report: CompactionReport,
) -> CompactionReport:
    """Rewrite each group and swap it in; not in order where the disk is almost full."""
    note = sum_progress(progress, sum(info.size for group in current.groups for info in group))
    pending = []
    for group in current.groups:
        planned = planned_groups.get(tuple(info.base_offset for info in group))
        pending.append((group, planned or CompactedGroup.unmeasured(group)))
    while pending:
        group, planned = pending.pop(
            _next_number(state, [planned_group for _, planned_group in pending])
        )
        if planned.changes:
            if backup is not None:
                keep_group(state, group, backup)
            report = _rewrite_group(state, current, group, report)
        note(sum(info.size for info in group))
    return replace(
        report,
        passes=report.passes + 1,
        end_offset=current.end_offset,
        unkeyed_records=report.unkeyed_records + current.judge.unkeyed_records,
    )


def _next_number(state: LogState, pending: list[CompactedGroup]) -> int:
    """The number of the group to rewrite next, for which there is room on the disk.

    It is the first one, or else the group that needs least room: its swap may free some for the
    others. A group that removes tombstones waits for the groups before it, which may have older
    values of their keys.

    Raises:
        OSError: there is no room for any.
    """
    ready = [0, *(n for n, group in enumerate(pending) if n and not group.removes_tombstones)]
    for number in (0, *sorted(ready, key=lambda n: pending[n].room_bytes)):
        if io.has_room(state.path, pending[number].room_bytes):
            return number
    raise no_room(state.path, min(pending[n].room_bytes for n in ready))


def _rewrite_group(
    state: LogState, current: Pass, group: Group, report: CompactionReport
) -> CompactionReport:
    """Write a group and swap it in; return its report with the numbers."""
    try:
        written = current.write(group)
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
