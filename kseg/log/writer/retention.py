"""Which old segments a log gives up, and why: decided as a value, then done.

Three rules, one after the other, each from the oldest segment on, ending at the first that stays:

    log start   every record lies below the log's start; always asked
    size        the log has `retention_bytes` without it; where old segments are deleted
    time        its newest record is older than `retention_ms`; where old segments are deleted

Segments at or above the high watermark stay, and an empty last segment always does. The high
watermark of a log in a broker's data directory is that of the broker's checkpoint, or the log's
start without one. Of any other log it is the end, unless the caller has set it. If all others and a
last one with records are to go, the log gets a new segment first. A segment without timestamps
counts by the age of its file; one whose records are of the future keeps all after it.

Of a log with segments in a tier the limits are `local.retention.*`. A segment goes only if the tier
has it, and the start of the whole log stays in the checkpoint.

Where policy and limits are not known, as in a broker's data directory, `topic_policy` says which
count. Segments below the log's start go in any case.

Source: Kafka `UnifiedLog.deleteOldSegments`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.constants import INT64_MAX, Progress
from kseg.documents import frozen_dataclass
from kseg.errors import StalePlanError, UncleanShutdownError, UnsupportedFormatError
from kseg.files import io
from kseg.files.checkpoints import LeaderEpochs
from kseg.files.index import TimeIndex, TimeIndexEntry
from kseg.files.names import FileKind, list_partition, segment_name
from kseg.format.times import Time
from kseg.frames import TableRows
from kseg.log import data_directory
from kseg.log.clock import now_of
from kseg.log.config import LogConfig
from kseg.log.data_directory import partition_of
from kseg.log.pending_deletes import files_of_segment, least_bytes
from kseg.log.reader.version import HighWatermark, SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.plan import Plan, Report
from kseg.log.segment.index_entries import latest_from
from kseg.log.segment.reader import Segment
from kseg.log.segment.writer import KINDS
from kseg.log.tier.history import RemoteHistory, expired, history_of, tiered
from kseg.log.topic_policy import REMOTE, UNTOUCHED, RetentionRules, retention_rules, rules_beside
from kseg.log.writer import flush, removal
from kseg.log.writer.removal import delete_segments
from kseg.log.writer.state import LogState, high_watermark_of
from kseg.log.writer.truncate import increment_log_start

if TYPE_CHECKING:
    from kseg.log.tier.tier import TierLog

LOG_START: Final = "log start"
SIZE: Final = "size"
TIME: Final = "time"


@frozen_dataclass
class RetiredSegment:
    """A segment that retention removes.

    Attributes:
        base_offset: from the file's name.
        path: the log file.
        bytes: the size of the log file, without indexes.
        why: LOG_START, SIZE or TIME.
        largest_timestamp: the largest time of its records in ms, else the file's; None if not
            needed.
    """

    base_offset: int
    path: Path
    bytes: int
    why: str
    largest_timestamp: int | None = None


@frozen_dataclass(repr=False)
class RetentionReport(Report):
    """The changes that retention made.

    Attributes:
        freed_bytes: bytes that the disk gets back for all their files, now or when the renamed
            files are removed. A file with a second name, as in a backup, counts nothing.
        log_start_offset: where the log starts now.
        files: the renamed files, under their new names.
    """

    COLUMNS = "path"

    log_start_offset: int = 0
    files: tuple[Path, ...] = ()

    @property
    def segments_count(self) -> int:
        """How many segments were removed."""
        return len(self.plan.segments)

    @property
    def deleted_bytes(self) -> int:
        """Bytes of their logs."""
        return int(self.plan.deleted_bytes)

    @property
    def title(self) -> str:
        """The size of the deletion, and the start of the log."""
        return (
            f"{self.segments_count} segments went, {self.deleted_bytes} bytes; "
            f"the log starts at {self.log_start_offset}"
        )

    def table_rows(self) -> TableRows:
        """The renamed files."""
        return [{"path": str(path)} for path in self.files]


@frozen_dataclass(repr=False)
class RetentionPlan(Plan[RetentionReport]):
    """The changes that retention would make to a log.

    Attributes:
        path: the partition directory.
        now_ms: the time that counts.
        segments: the expired ones, oldest first.
        rolls: whether the last segment is among them, so that the log needs another one first.
        log_start_offset: where the log starts now.
        new_log_start_offset: where it starts then.
        log_end_offset: where the log ends.
        kept_bytes: the log bytes of the segments that stay.
        high_watermark: nothing at or above it goes.
        held_bytes: the log bytes of segments that stay only because of the high watermark.
        skipped: why the log is left alone, as a constant of `topic_policy`; None if it is not.
        why: a phrase with the known facts about its cleanup policy; empty if the policy was given.
        remote: its segments in a tier, and the effect of `retention.*` on them; None if it has no
            tier. The offsets above are those of the local part then.
        is_unclean: whether the log was not closed in good order, so that only closed segments
            before the recovery point go.
        opening: how the plan of `plan_retention` opens the log.
    """

    COLUMNS = "base_offset path bytes why largest_timestamp"
    KEEPS = False
    #: A log that is opened removes the files that were to be deleted by now.
    ALWAYS = True

    path: Path
    now_ms: int
    segments: tuple[RetiredSegment, ...]
    rolls: bool
    log_start_offset: int
    new_log_start_offset: int
    log_end_offset: int
    kept_bytes: int
    high_watermark: int
    held_bytes: int = 0
    skipped: str | None = None
    why: str = ""
    remote: RemoteHistory | None = None
    is_unclean: bool = False
    opening: flush.Opening | None = field(default=None, compare=False)

    @property
    def is_noop(self) -> bool:
        """Whether nothing is removed."""
        return not self.segments

    def do(
        self,
        backup: Backup | None,
        _progress: Progress | None,
        *,
        again: Callable[[LogState], RetentionPlan] | None = None,
        unclean: bool = True,
    ) -> RetentionReport:
        """Delete the segments that go.

        Files are renamed to `.deleted` and removed after `file_delete_delay_ms`: with a later call
        of this kind, or when the log is closed. If the log was not closed in good order, closed
        segments before the recovery point are deleted at once, and the others stay.

        Args:
            backup: keeps the files that go; None for no backup.
            again: plans once more when the log is open, which may have cut its end.
            unclean: whether anything is deleted if the log was not closed in good order.

        Raises:
            StalePlanError: the log has changed since the plan was made; nothing was done.
            UncleanShutdownError: the log was not closed in good order, and all that expires may
                need a recovery; nothing was done.
            LogLockedError: another process, or a log of this one, writes there; nothing was done.
            KsegError: the log has failed.
            OSError: the disk refuses. Another plan deletes the rest. A full disk that would get too
                little back from whole segments stays as it was.
        """
        assert self.opening is not None
        try:
            with self.opening.opened(self.now_ms) as state:
                plan = self if again is None else again(state)
                _check_fresh(state, plan)
                plan._keep(backup)
                return apply_state(state, plan)
        except UncleanShutdownError:
            early = before_recovery(self)
            if early.is_noop or not unclean:
                raise
            early._keep(backup)
            return apply_unloaded(early)

    def _keep(self, backup: Backup | None) -> None:
        """Back up all files of the segments that are removed."""
        if backup is not None:
            for segment in self.segments:
                for kind in (*KINDS, FileKind.SNAPSHOT):
                    backup.keep_file(self.path / segment_name(segment.base_offset, kind))

    @property
    def deleted_bytes(self) -> int:
        """The size of the logs that are removed."""
        return sum(segment.bytes for segment in self.segments)

    @property
    def why_held(self) -> str:
        """Why `held_bytes` stay."""
        if self.is_unclean:
            return (
                f"{self.held_bytes} bytes stay until a recovery: the log was not closed in good "
                f"order, and is on the disk up to offset {self.high_watermark}"
            )
        return (
            f"{self.held_bytes} bytes stay that reach above the high watermark "
            f"{self.high_watermark}, to which other replicas are known to have the log"
        )

    @property
    def title(self) -> str:
        """The path, and the size of the deletion."""
        if self.is_noop:
            return f"{self.path}: nothing to delete"
        return f"{self.path}: {len(self.segments)} segments expire, {self.deleted_bytes} bytes"

    def table_rows(self) -> TableRows:
        """The segments that are removed, oldest first."""
        return [asdict(segment) | {"path": str(segment.path)} for segment in self.segments]

    def __str__(self) -> str:
        """A line for each segment, for the log's start, and for the high watermark's effect."""
        held = [f"{self.path}: {self.why_held}"] if self.held_bytes else []
        if self.remote is not None:
            held += [f"{self.path}: {line}" for line in self.remote.lines(self.path.name)]
        if self.is_noop:
            nothing = f"{self.title}: {self.why}" if self.why else self.title
            return "\n".join([nothing, *held])
        lines = [
            f"delete {segment.path} ({segment.bytes} bytes): {segment.why}"
            for segment in self.segments
        ]
        start = f"{self.path}: log start {self.log_start_offset} -> {self.new_log_start_offset}"
        return "\n".join([start, *(["a new segment first"] if self.rolls else []), *lines, *held])


@frozen_dataclass
class LogBounds:
    """Where a log starts and ends, and its high watermark."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int


# ---- deciding ------------------------------------------------------------------------------------


def with_ends(
    segments: Sequence[SegmentInfo], log_end_offset: int
) -> list[tuple[SegmentInfo, int]]:
    """Each segment, with the offset at which the next one begins or the log ends."""
    ends = chain((later.base_offset for later in segments[1:]), (log_end_offset,))
    return [(info, end) for info, end in zip(segments, ends, strict=False)]


def choose(
    segments: Sequence[SegmentInfo],
    bounds: LogBounds,
    *,
    config: LogConfig,
    now_ms: int,
    largest_timestamp: Callable[[SegmentInfo], int],
    copied: int = INT64_MAX,
) -> tuple[RetiredSegment, ...]:
    """Choose the expired segments.

    Args:
        segments: all of the log, rising.
        bounds: the offsets of the log.
        config: the settings of the log.
        now_ms: the clock.
        largest_timestamp: returns a segment's in ms; called for as few segments as possible.
        copied: the last offset that a tier has, of a log with one.

    Returns:
        The segments that go, oldest first.

    Source: Kafka `UnifiedLog.deletableSegments` and its callers.
    """
    excess = sum(info.size for info in segments) - config.retention_bytes
    by_age = config.deletes and config.retention_ms >= 0
    rules = [LOG_START]
    if config.deletes and config.retention_bytes >= 0:
        rules.append(SIZE)
    if by_age:
        rules.append(TIME)
    retired: list[RetiredSegment] = []
    remaining = with_ends(segments, bounds.log_end_offset)
    for why in rules:  # each rule continues where the one before stopped
        while remaining:
            info, end = remaining[0]
            is_last = len(remaining) == 1
            # A tier must have a segment before it goes, unless it is before the log's start.
            is_kept = end - 1 > copied and (is_last or end > bounds.log_start_offset)
            if bounds.high_watermark < end or (is_last and not info.size) or is_kept:
                break
            newest = None
            if why == LOG_START:
                goes = not is_last and end <= bounds.log_start_offset
            elif why == SIZE:
                goes = excess >= info.size
            else:
                newest = largest_timestamp(info)
                goes = now_ms - newest > config.retention_ms
            if not goes:
                break
            excess -= info.size
            retired.append(RetiredSegment(info.base_offset, info.path, info.size, why, newest))
            del remaining[0]
    return tuple(retired)


def plan_view(
    view: LogView,
    *,
    config: LogConfig | RetentionRules | None = None,
    now_ms: Time | None = None,
    high_watermark: HighWatermark | None = None,
    tier: TierLog | None = None,
) -> RetentionPlan:
    """As `kseg.change.cleanup.plan_retention`, for a log that is open for reading."""
    if any(info.files.kafka07 for info in view.segments):
        raise UnsupportedFormatError("a log of Kafka 0.7 is only read here", path=view.path)
    mark, now = high_watermark_of(view, high_watermark), now_of(now_ms)
    return _plan(view, mark, config or LogConfig(), now, largest_timestamp_of, tier)


def plan_state(
    state: LogState,
    *,
    config: LogConfig | RetentionRules | None = None,
    now_ms: Time | None = None,
    tier: TierLog | None = None,
) -> RetentionPlan:
    """As `kseg.change.cleanup.plan_retention`, for a log open for appending."""
    with state.lock:

        def largest_timestamp(info: SegmentInfo) -> int:
            if info.base_offset == state.active.base_offset:
                return state.active.largest_timestamp
            writer = state.unflushed.get(info.base_offset)
            return largest_timestamp_of(info) if writer is None else writer.largest_timestamp

        mark, now = state.replicated_offset, now_of(now_ms, state.now_ms)
        return _plan(state.as_view(), mark, config or state.config, now, largest_timestamp, tier)


def _plan(
    view: LogView,
    high_watermark: int,
    config: LogConfig | RetentionRules,
    now_ms: int,
    largest_timestamp: Callable[[SegmentInfo], int],
    tier: TierLog | None,
) -> RetentionPlan:
    """The plan for a log; see `plan_view` and `plan_state`.

    Args:
        view: the log.
        high_watermark: nothing at or above it is removed.
        config: settings, or the rules that follow from them.
        now_ms: the time that counts.
        largest_timestamp: as for `choose`.
        tier: the tier of the log; None if it has none.
    """
    segments = view.segments
    rules = rules_beside(view.path, retention_rules, config, of_one_log=True)
    bounds = LogBounds(view.log_start_offset, view.log_end_offset, high_watermark)
    retired: tuple[RetiredSegment, ...] = ()
    prevented: tuple[RetiredSegment, ...] = ()
    remote = None
    if tier is not None and rules.skipped == REMOTE:
        rules = RetentionRules(rules.config)
    if rules.skipped not in UNTOUCHED:
        chosen = partial(
            choose,
            segments,
            config=rules.config if tier is None else rules.config.local,
            now_ms=now_ms,
            largest_timestamp=largest_timestamp,
        )
        copied = INT64_MAX if tier is None else tier.highest_remote
        retired = chosen(bounds, copied=copied)
        if bounds.high_watermark < bounds.log_end_offset:  # what only the high watermark prevents
            whole = replace(bounds, high_watermark=bounds.log_end_offset)
            prevented = chosen(whole, copied=copied)[len(retired) :]
        if tier is not None:
            uncopied = [segment.bytes for segment in chosen(bounds)[len(retired) :]]
            deleted, first = expired(tier, rules.config, now_ms)
            remote = history_of(tier, uncopied=uncopied, deleted=deleted, start=first)
    count = len(retired)
    rolls = count == len(segments) > 0
    survivor = bounds.log_end_offset if rolls or not segments else segments[count].base_offset
    start = bounds.log_start_offset
    return RetentionPlan(
        path=view.path,
        now_ms=now_ms,
        segments=retired,
        rolls=rolls,
        log_start_offset=start,
        new_log_start_offset=max(start, survivor) if count else start,
        log_end_offset=bounds.log_end_offset,
        kept_bytes=sum(info.size for info in segments[count:]),
        high_watermark=bounds.high_watermark,
        held_bytes=sum(segment.bytes for segment in prevented),
        skipped=rules.skipped,
        why=rules.why,
        remote=remote,
    )


def largest_timestamp_of(info: SegmentInfo) -> int:
    """The newest record's time in ms; see `latest_of`."""
    return latest_of(info).timestamp


def latest_of(info: SegmentInfo) -> TimeIndexEntry:
    """The time in ms and the offset of the newest record, according to the time index.

    Without an entry it is the file's time of change, and -1. Of a segment that may still be written
    to, the batches after the last index entry count too.
    """
    files = info.files
    newest = TimeIndexEntry(-1, info.base_offset)
    if files.time_index is not None:
        with TimeIndex.open(files.time_index, info.base_offset, mapping="never") as index:
            newest = TimeIndexEntry(*index.last_entry)
    if info.is_last:
        with Segment.open(info.path, mapping="never", size=info.size, is_last=True) as segment:
            start = segment.start_for_offset(newest.offset)
            newest = latest_from(segment, start.position, newest)
    if newest.timestamp >= 0:
        return newest
    return TimeIndexEntry(os.stat(info.path).st_mtime_ns // 1_000_000, -1)


# ---- doing ---------------------------------------------------------------------------------------


def delete_old_segments(
    state: LogState, now_ms: Time | None = None, rules: RetentionRules | None = None
) -> RetentionReport:
    """Plan and apply under one lock; None as `rules` uses the log's own settings."""
    with state.lock:
        tier = tiered(state.path, tier=None)
        return apply_state(state, plan_state(state, config=rules, now_ms=now_ms, tier=tier))


def apply_state(state: LogState, plan: RetentionPlan) -> RetentionReport:
    """As `RetentionPlan.do`, for a log open for appending.

    The log's start is stored before a file is renamed. So segments that a crash brings back are
    below it. On a disk too full for that, whole segments are removed first, at once
    (`kseg.log.writer.removal`).

    Source: Kafka `UnifiedLog.deleteSegments`.
    """
    with state.changing():
        _check_fresh(state, plan)
        state.deletions.remove_due(state.now_ms())
        if plan.is_noop:
            return RetentionReport(plan, log_start_offset=state.log_start_offset)
        freed_before = state.deletions.freed_bytes
        going = {segment.base_offset for segment in plan.segments}
        if plan.remote is None:
            removal.free_oldest(state, [info for info in state.sealed if info.base_offset in going])
        if plan.rolls:
            flush.roll(state)
        # The state of producers is durable before the records that it came from are removed.
        flush.flush(state, plan.new_log_start_offset)
        if plan.remote is None:
            increment_log_start(state, plan.new_log_start_offset)
        else:  # checkpoint and epochs keep the log's start: the tier has what goes here
            state.move_start(plan.new_log_start_offset)
            if state.lease is not None:
                start = plan.remote.log_start_offset
                state.lease.note(state.partition, log_start_offset=start)
        removed = state.replace_segments(going)
        state.publish()
        try:
            files = _delete(state, removed)
        except BaseException:
            # A load counts remaining files as part of the log.
            state.replace_segments((), (info for info in removed if info.path.exists()))
            state.publish()
            raise
        # From here on the first segment's base says where the log starts.
        state.note_offsets(write=True)
        freed = state.deletions.freed_bytes - freed_before
        return RetentionReport(plan, (), freed, state.log_start_offset, files)


def before_recovery(plan: RetentionPlan) -> RetentionPlan:
    """The part of a plan that needs no recovery: closed segments before the recovery point."""
    point = data_directory.offsets_beside(plan.path).recovery_point
    bases = [segment.base_offset for segment in list_partition(plan.path).segments]
    flushed = max((base for base in bases if base <= point), default=0)
    going = tuple(segment for segment in plan.segments if segment.base_offset < flushed)
    staying = plan.segments[len(going) :]
    start = min(
        [plan.new_log_start_offset, *(staying_segment.base_offset for staying_segment in staying)]
    )
    return replace(
        plan,
        segments=going,
        rolls=False,
        new_log_start_offset=max(plan.log_start_offset, start),
        kept_bytes=plan.kept_bytes + sum(staying_segment.bytes for staying_segment in staying),
        held_bytes=sum(staying_segment.bytes for staying_segment in staying),
        high_watermark=flushed,
        is_unclean=True,
    )


def apply_unloaded(plan: RetentionPlan) -> RetentionReport:
    """Apply a plan of `before_recovery`; the log is not loaded.

    Its start is stored first. On a disk too full for that, the oldest segments go first, as in
    `kseg.log.writer.removal`. The snapshot of producers after them stays.

    Raises:
        StalePlanError: the log has changed since the plan was made; nothing was done.
        LogLockedError: another process, or a log of this one, writes there; nothing was done.
        CorruptIndexError: the file of epochs is malformed; nothing was done.
        OSError: the disk refuses; another plan deletes the rest.
    """
    directory, first = plan.path.resolve(), plan.new_log_start_offset
    partition = partition_of(directory)
    lease = data_directory.enter(directory.parent)
    freed = 0
    try:
        lease.claim(directory.name)
        files = list_partition(directory).segments[: len(plan.segments)]
        present = [(segment.base_offset, io.size_at(segment.log)) for segment in files]
        if present != [(segment.base_offset, segment.bytes) for segment in plan.segments]:
            raise StalePlanError(f"the oldest segments are {present}", path=directory)
        epochs = LeaderEpochs.load(directory / FileKind.LEADER_EPOCHS.value)
        start = first if plan.remote is None else plan.remote.log_start_offset
        lease.note(partition, log_start_offset=start)
        if io.has_room(directory, least_bytes(directory)):
            lease.write_checkpoints()
        for segment in files:
            snapshot = directory / segment_name(segment.base_offset, FileKind.SNAPSHOT)
            for path in (*files_of_segment(segment), snapshot):
                freed += io.bytes_given_back(path)
                io.unlink(path, missing_ok=True)
            io.flush_directory(directory)
        if plan.remote is None:
            base = list_partition(directory).segments[0].base_offset
            lease.note(partition, log_start_offset=start, first_offset=base)
            epochs.truncate_from_start(first)
            epochs.flush()
    finally:
        lease.leave()
    return RetentionReport(plan, (), freed, first)


def _delete(state: LogState, removed: Sequence[SegmentInfo]) -> tuple[Path, ...]:
    """Rename the files of segments that are no part of the log any more; returns the new names."""
    if state.lease is not None and state.partition is not None:
        files = delete_segments(state, removed)
        state.flush_names()
        return files
    # Only the first segment shows where this log starts, so none may outlive a later one.
    io.flush_directory(state.path)
    renamed: list[Path] = []
    for info in removed:
        renamed += delete_segments(state, (info,))
        state.flush_names()
    return tuple(renamed)


def _check_fresh(state: LogState, plan: RetentionPlan) -> None:
    """Refuse a plan whose segments are not the oldest any more, or may not be removed any more."""
    present = [(info.base_offset, info.size) for info in state.segments[: len(plan.segments)]]
    planned = [(segment.base_offset, segment.bytes) for segment in plan.segments]
    if plan.path.resolve() != state.path.resolve():
        raise StalePlanError(f"the plan is for {plan.path}", path=state.path)
    if present != planned:
        raise StalePlanError(
            f"the oldest segments are {present}, and the plan is for {planned}", path=state.path
        )
    if plan.rolls and state.log_end_offset != plan.log_end_offset:
        raise StalePlanError(
            f"the log ends at {state.log_end_offset}, and did at {plan.log_end_offset} for the "
            "plan, which takes all of it",
            path=state.path,
        )
    if plan.segments and state.replicated_offset < plan.new_log_start_offset:
        raise StalePlanError(
            f"the high watermark is {state.replicated_offset}, and the log is to start at "
            f"{plan.new_log_start_offset}",
            path=state.path,
        )
