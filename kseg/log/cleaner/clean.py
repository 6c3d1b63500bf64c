"""Compaction of a log: the plan, and the passes that carry it out.

A plan has been measured: each group is read and filtered as it would be written, so the plan says
how many bytes go. Only the first pass can be measured. A further pass, where the map is full, reads
the segments that the pass before has written.

`apply_state` writes new files beside appends and readers, and holds the log's lock for the swap
alone. If the disk has no room for the next group, a smaller group goes first. A group that loses
tombstones waits for the groups in front of it, or an older value of the key would reappear. Memory
holds a stretch of the log and its filtered form, for segments of any size.

The swap leaves the old files or the new ones at each kill:

    1. `.cleaned` becomes `.swap`, the log first. As long as one `.cleaned` is there, a start throws
       all of them away.
    2. The old files of the group go, except those that the new files replace by their names.
    3. `.swap` becomes the plain name, the log first. A start does steps 2 and 3 where it finds
       `.swap`.

Names are lasting after each step, and the old files go only when the names of step 1 are lasting.

Source: Kafka `Cleaner.cleanSegments`, `Cleaner.cleanInto`, `LocalLog.replaceSegments`; Kafka
renames old files to `.deleted` and removes them later.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from kseg.constants import COMPACTION_MAP_BYTES, COMPACTION_RULES, Progress
from kseg.errors import KsegError, StalePlanError, at_path
from kseg.files import io
from kseg.files.log_file import Tile
from kseg.files.names import FileKind, segment_name
from kseg.format.columns import scan_all
from kseg.format.retain import Filtered, filter_walked
from kseg.format.times import Time
from kseg.format.workspace import Workspace
from kseg.log.clean_offsets import read_clean_offset, write_clean_offset
from kseg.log.cleaner.inputs import (
    CleanerInputs,
    Group,
    bounded_plan,
    group_segments,
    is_due,
    walk_sound,
)
from kseg.log.cleaner.judge import Judge, LastBatches, read_decisions, read_keys
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
from kseg.log.pending_deletes import files_of_segment
from kseg.log.reader.version import SegmentInfo
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.load_context import CLEANED, SWAP
from kseg.log.segment.reader import Segment
from kseg.log.segment.writer import SegmentWriter
from kseg.log.topic_policy import RetentionRules
from kseg.log.writer import retention
from kseg.log.writer.removal import unlink_segment
from kseg.log.writer.state import LogState

_T = TypeVar("_T")

#: The files of a segment, in the order in which Kafka renames them.
KINDS: Final = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Options of compaction.

    Attributes:
        from_start: from the log's start, even if it was compacted before.
        force: however little is dirty, and however young.
        rules: of which release, out of `COMPACTION_RULES`.
        map_bytes: memory of the offset map.
        measure: count the bytes that go, which takes as long as compaction.
    """

    from_start: bool = False
    force: bool = False
    rules: str = COMPACTION_RULES[-1]
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
        FormatError, LimitExceededError: a batch is damaged; the log is not compacted at all.
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
    end, unkeyed_records = plan.first_uncleanable_offset, None
    if options.measure:
        one = _next_pass(inputs, plan, plan.first_dirty_offset)
        end, groups = one.end_offset, [one.filter(group) for group in one.groups]
        unkeyed_records = one.judge.unkeyed_records
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
        unkeyed_records=unkeyed_records,
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
    """As `kseg.log.cleanup.CompactionPlan.apply`, for the state of a log open for appending."""
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
    """As `kseg.log.log.Log.clean`, for the state of a log open for appending."""
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
    if plan.path.resolve() != state.path.resolve():
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
    """Rewrite each group and put it in its place."""
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
    """The first group, or else the group that needs least room of those that may go before it.

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
        f"no room on the disk: {needed} bytes are needed to rewrite a segment",
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


# ---- one pass ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One pass: its end, its groups, and the rules by which each is written.

    Attributes:
        inputs: the log.
        judge: decides about batches and records.
        rules: the release.
        end_offset: where the pass ends.
        groups: rising.
        old_tombstones_since_ns: tombstones of magic 0 and 1 stay in files modified later.
        workspace: memory to use again.
    """

    inputs: CleanerInputs
    judge: Judge
    rules: str
    end_offset: int
    groups: list[Group]
    old_tombstones_since_ns: int
    workspace: Workspace

    @classmethod
    def of(cls, inputs: CleanerInputs, dirty: range, *, rules: str, map_bytes: int) -> Pass:
        """Read the keys of the dirty part, as many as there is memory for.

        Args:
            inputs: the log.
            dirty: the offsets from the first dirty one up to the first that must not be cleaned.
            rules: the release.
            map_bytes: memory for keys.

        Raises:
            ValueError: there is no memory for one key.
            FormatError, LimitExceededError: a batch is damaged.
            OSError: a file cannot be read.
        """
        decisions = read_decisions(inputs, dirty)
        last_offsets = read_keys(inputs, dirty, decisions, map_bytes)
        producers = LastBatches.of(inputs.producers.values())
        is_shown = dirty.stop if rules in COMPACTION_RULES[:2] else inputs.high_watermark
        judge = Judge(last_offsets, decisions, producers, is_shown, inputs.now_ms)
        end = last_offsets.latest_offset + 1
        reached = [info for info in inputs.segments if info.base_offset < end]
        clean = [info for info in inputs.segments if info.base_offset < dirty.start]
        since = 0
        if clean:  # when the last clean segment was written, less the time that tombstones stay
            modified = os.stat(clean[-1].path).st_mtime_ns
            since = modified - inputs.config.delete_retention_ms * 1_000_000
        groups = group_segments(reached, inputs.config, dirty.stop)
        return cls(inputs, judge, rules, end, groups, since, Workspace())

    def write(self, group: Group) -> CompactedGroup:
        """Write the `.cleaned` files of a group, lasting when this returns.

        A segment that does not change is not written; one alone is measured first.

        Raises:
            FormatError, LimitExceededError: a batch is damaged; no new file is there.
            OSError: a file cannot be read, or the disk refuses; as before.
        """
        remove_cleaned(self.inputs.path, group[0].base_offset)
        if len(group) == 1:
            counts = self.judge.unkeyed_records, self.judge.removed_tombstones
            done = self.filter(group, whole=True)
            if not done.changes:
                return done
            self.judge.unkeyed_records, self.judge.removed_tombstones = counts

        def fill(writer: SegmentWriter) -> CompactedGroup:
            done = self.filter(group, writer)
            self._finish(group, writer)
            return done

        return write_cleaned(self.inputs, group, fill)

    def filter(
        self, group: Group, writer: SegmentWriter | None = None, *, whole: bool = False
    ) -> CompactedGroup:
        """Filter each segment; measures a group without a writer.

        Args:
            group: the segments.
            writer: takes the batches that stay.
            whole: stop at the first stretch that is not copied whole: the segment changes.

        Raises:
            FormatError, LimitExceededError: a batch is damaged.
            OSError: a file cannot be read, or the disk refuses.
        """
        segments: list[CompactedSegment] = []
        records = kept_records = copied = 0
        removed = self.judge.removed_tombstones
        for info in group:
            modified = os.stat(info.path).st_mtime_ns
            self.judge.old_tombstones = modified > self.old_tombstones_since_ns
            kept = 0
            with self.inputs.open_segment(info) as segment:
                for result in self._filtered(segment):
                    kept += result.bytes_retained
                    records += result.messages_read
                    kept_records += result.messages_retained
                    copied += result.bytes_copied
                    if whole and result.bytes_copied != result.bytes_read:
                        break
                    if writer is not None and result.bytes_retained:
                        _append(writer, result)
            segments.append(CompactedSegment(info.base_offset, info.path, info.size, kept))
        removes = self.judge.removed_tombstones > removed
        changes = len(group) > 1 or copied != group[0].size
        return CompactedGroup(tuple(segments), records, kept_records, removes, changes)

    def _filtered(self, segment: Segment) -> Iterator[Filtered]:
        for tile in walk_sound(segment, on_bad_crc=self.inputs.on_bad_crc):
            if len(tile.table):
                try:
                    yield self._filter(tile)
                except KsegError as error:
                    raise at_path(error, segment.path) from None

    def _filter(self, tile: Tile) -> Filtered:
        verdict = self.judge.judge(tile.table)
        located = self.judge.located
        filtered = filter_walked(
            tile.data,
            tile.table,
            verdict,
            self.judge.keep,
            located=located,
            base=tile.base,
            horizon_ms=self.inputs.now_ms + self.inputs.config.delete_retention_ms,
            rules=self.rules,
            workspace=self.workspace,
        )
        self.judge.count(located)
        return filtered

    def _finish(self, group: Group, writer: SegmentWriter) -> None:
        """Give the new segment the indexes of a segment without further appends."""
        bases = [info.base_offset for info in self.inputs.segments]
        end = bases[bases.index(group[-1].base_offset) + 1]
        for entry in self.judge.decisions.entries_within(group[0].base_offset, end):
            writer.txn_index.append(entry)
        writer.become_inactive()
        writer.flush()


def write_cleaned(inputs: CleanerInputs, group: Group, fill: Callable[[SegmentWriter], _T]) -> _T:
    """Write the `.cleaned` files of a group, lasting when this returns.

    Args:
        inputs: the log.
        group: the segments that they are to replace.
        fill: writes the new segment; its answer is that of this function.

    Raises:
        Exception: `fill` raised it; no new file is there.
        OSError: the disk refuses; likewise.
    """
    directory, base = inputs.path, group[0].base_offset
    try:
        writer = SegmentWriter.open(
            directory,
            base,
            inputs.config,
            create=True,
            now_ms=inputs.now_ms,
            suffix=CLEANED,
            preallocate=False,
        )
        try:
            done = fill(writer)
        except BaseException:
            writer.close(trim=False)
            raise
        writer.close()
        _dress(directory, base, group)
        io.flush_directory(directory)
    except BaseException:
        with suppress(OSError):
            remove_cleaned(directory, base)
        raise
    return done


def _append(writer: SegmentWriter, result: Filtered) -> None:
    data = result.parts[0] if len(result.parts) == 1 else result.data
    writer.append([data], scan_all(memoryview(data), on_bad_crc="ignore"))


def _dress(directory: Path, base: int, segments: Sequence[SegmentInfo]) -> None:
    """Give new files owner and permissions of the first old log, and the time of the last."""
    model, modified = os.stat(segments[0].path), os.stat(segments[-1].path).st_mtime_ns
    for path in names_of(directory, base, CLEANED):
        with suppress(FileNotFoundError):
            io.dress_like(path, model)
            io.set_modified(path, modified)


def names_of(directory: Path, base_offset: int, suffix: str) -> list[Path]:
    """The names of a segment's files, whether they are there or not."""
    return [directory / (segment_name(base_offset, kind) + suffix) for kind in KINDS]


def remove_cleaned(directory: Path, base_offset: int) -> None:
    """Remove the `.cleaned` files of a segment, if there are any.

    Raises:
        OSError: the disk refuses.
    """
    for path in names_of(directory, base_offset, CLEANED):
        io.unlink(path, missing_ok=True)


def swap_in(state: LogState, group: Sequence[SegmentInfo], size: int) -> int:
    """Put the `.cleaned` files of a group in its place, lasting when this returns.

    Args:
        state: the log; its lock is held meanwhile.
        group: the old segments, rising.
        size: of the new log.

    Returns:
        The bytes that the disk gets back.

    Raises:
        StalePlanError: the log has not all of them any more; nothing was done.
        OSError: the disk refuses. The log has failed then; the next opening puts it in order.
    """
    with state.changing():
        if not set(group) <= set(state.sealed):
            raise StalePlanError("segments went while they were compacted", path=state.path)
        before = state.deletions.freed_bytes
        base = group[0].base_offset
        with state.all_or_poison():
            taken = _rename(state.path, base, CLEANED, SWAP)
            state.flush_names()
            new = SegmentInfo(state.files_of(base), size, is_last=False)
            state.replace_segments({info.base_offset for info in group}, (new,))
            _remove_old(state, group)
            state.flush_names()
            _rename(state.path, base, SWAP, "")
            state.flush_names()
        state.publish()
        return state.deletions.freed_bytes - before - taken


def _remove_old(state: LogState, group: Sequence[SegmentInfo]) -> None:
    first, *others = group
    for path in files_of_segment(first.files):
        if path.with_name(path.name + SWAP).exists():
            state.deletions.add_freed(io.bytes_given_back(path))
        else:
            state.deletions.unlink(path)
    for info in others:
        unlink_segment(state, info)


def _rename(directory: Path, base: int, old: str, new: str) -> int:
    """Rename the files of the new segment; answers how many bytes of disk they have."""
    taken = 0
    sources, targets = names_of(directory, base, old), names_of(directory, base, new)
    for source, target in zip(sources, targets, strict=True):
        with suppress(FileNotFoundError):
            taken += os.stat(source).st_blocks * 512
            io.rename(source, target)
    return taken


def keep_group(state: LogState, group: Sequence[SegmentInfo], backup: Backup) -> None:
    """Keep the files of a group, and the snapshots that go with it.

    Raises:
        OSError: the disk refuses.
    """
    for info in group:
        for path in files_of_segment(info.files):
            backup.keep_file(path)
    for info in group[1:]:
        snapshot = state.snapshots.path(info.base_offset)
        if snapshot is not None:
            backup.keep_file(snapshot)
