"""Retention, compaction and truncation of one log: first a plan, then the change.

Retention and compaction take an open `Log`. `plan_truncation` takes the directory of a closed one;
an open log has `Log.truncate_to`. The rules and the order of the steps stand in
`kseg.log.writer.retention`, `kseg.log.cleaner` and `kseg.log.writer.truncate`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.constants import COMPACTION_MAP_BYTES
from kseg.errors import NotALogError, StalePlanError
from kseg.files import io
from kseg.files.names import FileKind, list_partition, segment_name
from kseg.log import data_directory
from kseg.log.cleaner import clean as applying
from kseg.log.cleaner.clean import CompactionOptions, plan_inputs
from kseg.log.cleaner.inputs import CleanerInputs
from kseg.log.clock import clock_of, now_of
from kseg.log.config import LogConfig
from kseg.log.data_directory import entry_of, refuse_cluster_metadata
from kseg.log.log import Log
from kseg.log.pending_deletes import files_of_segment
from kseg.log.reader.follow import seen_log
from kseg.log.recovery.backup import Backup, CutReport
from kseg.log.recovery.overlay import look_at
from kseg.log.topic_policy import RetentionRules, compaction_rules, known_topics
from kseg.log.writer import retention, truncate
from kseg.log.writer.retention import (
    LOG_START,
    SIZE,
    TIME,
    RetiredSegment,
    StayingSegment,
    latest_of,
    staying,
)
from kseg.log.writer.truncate import TruncationPlan

if TYPE_CHECKING:
    from kseg.format.times import Time
    from kseg.log.cleaner.values import CompactionPlan, CompactionReport
    from kseg.log.reader.version import HighWatermark, Version
    from kseg.log.writer.retention import RetentionPlan, RetentionReport

# ---- retention -----------------------------------------------------------------------------------


def plan_retention(
    log: Log,
    *,
    config: LogConfig | RetentionRules | None = None,
    now_ms: Time | None = None,
    high_watermark: HighWatermark | None = None,
) -> RetentionPlan:
    """Plan the retention of a log that is open for reading or for appending; changes nothing.

    Args:
        log: the log.
        config: the settings, or the answer of `retention_rules` for one log. None means the log's
            own, or no setting for a log that is open for reading.
        now_ms: the time that counts; None for the log's clock, or the machine's.
        high_watermark: as for `Log.open`, which takes it for a log that is open for appending.

    Raises:
        ValueError: a high watermark for a log that is open for appending.
        CorruptIndexError, FormatError: a segment's times cannot be read.
        UnsupportedFormatError: the log is one of Kafka 0.7.
        OSError: a file cannot be read.
    """
    if log.mode == "append":
        _refuse_high_watermark(high_watermark)
        return retention.plan_state(log.state, config=config, now_ms=now_ms)
    return retention.plan_view(
        log.view, config=config, now_ms=now_ms, high_watermark=high_watermark
    )


def apply_retention(log: Log, plan: RetentionPlan) -> RetentionReport:
    """Apply a plan to a log that is open for appending.

    Files are renamed to `.deleted` and removed after `file_delete_delay_ms`: with a later call of
    this kind, or when the log is closed.

    Raises:
        StalePlanError: the log has changed since the plan was made; nothing was done.
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
        log: the log of the plan.
        plan: from `plan_retention`.
        config: the settings behind the plan, as `RetentionRules.config` has them.

    Raises:
        CorruptIndexError, FormatError: a segment's times cannot be read.
        OSError: a file cannot be read.
    """
    return staying(log.view.segments, plan, config)


def files_of(plan: RetentionPlan) -> Iterator[Path]:
    """The files that go, whether they exist or not."""
    for segment in plan.segments:
        for kind in (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX):
            yield plan.path / segment_name(segment.base_offset, kind)
        yield plan.path / segment_name(segment.base_offset, FileKind.SNAPSHOT)


def _refuse_high_watermark(given: HighWatermark | None) -> None:
    if given is not None:
        raise ValueError("a log open for appending has the high watermark of its opening")


# ---- compaction ----------------------------------------------------------------------------------


def plan_compaction(
    log: Log,
    *,
    config: LogConfig | RetentionRules | None = None,
    now_ms: Time | None = None,
    high_watermark: HighWatermark | None = None,
    from_start: bool = False,
    force: bool = False,
    rules: str = "4.0",
    map_bytes: int = COMPACTION_MAP_BYTES,
    measure: bool = True,
    verify_crc: bool = True,
) -> CompactionPlan:
    """Plan the compaction of a log that is open for reading or for appending; changes nothing.

    Args:
        log: the log.
        config: the settings, or the answer of `compaction_rules`. None means the log's own, or
            no setting for a log that is open for reading.
        now_ms: the time that counts; None for the log's clock, or the machine's.
        high_watermark: as for `Log.open`, which takes it for a log that is open for appending.
        from_start: compact from the log's start, not from where `cleaner-offset-checkpoint` says.
        force: also compact segments that are too young or have too little to clean. Records that
            are not replicated or not decided stay, and so does the active segment.
        rules: "4.0", where magic 0 and 1 becomes magic 2; "3.9", where it stays.
        map_bytes: memory for keys, 24 bytes each; where it is too little, compaction takes several
            passes.
        measure: count the bytes that go, which takes as long as compaction does.
        verify_crc: refuse a log with a batch that does not match its checksum. Kafka's cleaner
            compares no checksums, and gives each batch that it changes a checksum that fits.

    Raises:
        ValueError: a high watermark for a log that is open for appending, or too little memory.
        CorruptIndexError: `cleaner-offset-checkpoint`, or an index, is malformed.
        FormatError, LimitExceededError: a batch is damaged; nothing of the log can be compacted.
        UnsupportedFormatError: the log is one of Kafka 0.7.
        OSError: a file cannot be read.
    """
    known = config if isinstance(config, RetentionRules) else _rules(log, config)
    if log.mode == "append":
        _refuse_high_watermark(high_watermark)
        inputs = CleanerInputs.of_state(log.state, known.config, now_ms)
    else:
        inputs = CleanerInputs.of_view(log.view, known.config, now_ms, high_watermark)
    inputs = replace(inputs, on_bad_crc="stop" if verify_crc else "ignore")
    options = CompactionOptions(from_start, force, rules, map_bytes, measure)
    return plan_inputs(inputs, known, options)


def _rules(log: Log, config: LogConfig | None) -> RetentionRules:
    directory = log.path.resolve()
    partition = entry_of(directory).partition
    if config is None:
        config = log.config if log.mode == "append" else LogConfig()
    return compaction_rules(known_topics(directory.parent), partition and partition.topic, config)


def apply_compaction(
    log: Log,
    plan: CompactionPlan,
    *,
    backup: Backup | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CompactionReport:
    """Apply a plan to a log that is open for appending.

    Appends and reads go on meanwhile: the log's lock is held only while files are swapped. The old
    files go as soon as the new ones are lasting, and only a `backup` keeps them. If the process is
    killed on the way, each segment is as before or compacted.

    Args:
        log: the log.
        plan: from `plan_compaction`.
        backup: keeps the old files.
        progress: called after each segment with the bytes of log that are done, and all of them.

    Raises:
        StalePlanError: the log has changed since the plan was made, or changed meanwhile.
        FormatError, LimitExceededError: a batch is damaged; its segment is as it was.
        KsegError: the log is open for reading only, or has failed.
        OSError: the disk refuses, or is full; the segment that was written is as it was.
    """
    return applying.apply_state(log.state, plan, backup=backup, progress=progress)


# ---- truncation ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TruncationReport(CutReport[TruncationPlan]):
    """The result of a truncation."""


def plan_truncation(path: io.StrPath, offset: int) -> TruncationPlan:
    """Plan a cut of a log back to an offset; changes nothing, and takes no lock.

    Args:
        path: a partition directory.
        offset: the new end of the log: each batch that has it, or a larger one, goes whole. Below
            the first segment all of the log goes, and begins there anew.

    Raises:
        ValueError: the offset is negative.
        NotALogError: not a partition directory, or that of KRaft.
        CorruptRecordError: damage lies between the place the index leads to and the offset.
        OSError: it cannot be read.

    Example:
        >>> plan_truncation("orders-0", 1_200).truncated_bytes  # doctest: +SKIP
        65536
    """
    directory = Path(path)
    if not directory.is_dir():
        os.stat(directory)
        raise NotALogError("not a partition directory", path=path)
    refuse_cluster_metadata(directory)
    seen = look_at(directory)
    return replace(truncate.plan_of(directory, _version(directory), offset), seen=seen)


def apply_truncation(
    plan: TruncationPlan,
    *,
    config: LogConfig | None = None,
    now_ms: Time | None = None,
    backup_directory: io.StrPath | None = None,
    keep_cut: bool = True,
) -> TruncationReport:
    """Apply a plan, under the lock of the data directory.

    The log is then as a clean shutdown leaves it. If the process is killed on the way, the log has
    to be recovered; it ends at the offset, at its old end, or at a batch in between.

    Args:
        plan: from `plan_truncation`.
        config: the settings of the log; Kafka's defaults if None.
        now_ms: the clock; the machine's if None.
        backup_directory: where the backup goes; None for a sibling of the data directory, named
            after the time.
        keep_cut: whether to make a backup.

    Raises:
        StalePlanError: files have changed since the plan was made; nothing was done.
        UncleanShutdownError: the log was not closed in good order; nothing was done.
        LogLockedError: another process holds the data directory, or another log of this one has the
            partition open; nothing was done.
        SegmentInUseError: a reader maps bytes that the cut removes; the log ends where it did.
        OSError: the disk refuses, or is too full for the backup; nothing was done if the first
            check finds that.
    """
    refuse_cluster_metadata(plan.path)
    home = plan.path.resolve().parent
    time_ms = now_of(now_ms)
    clock = clock_of(None if now_ms is None else lambda: time_ms)
    lease = data_directory.enter(home)
    try:
        if look_at(plan.path) != plan.seen:
            raise StalePlanError("files have changed since the plan was made", path=plan.path)
        if plan.is_noop:
            return TruncationReport(plan)
        backup = Backup(home, backup_directory, now_ms=time_ms) if keep_cut else None
        return _cut(plan, config, clock, backup)
    finally:
        lease.leave()


def _cut(
    plan: TruncationPlan,
    config: LogConfig | None,
    clock: Callable[[], int],
    backup: Backup | None,
) -> TruncationReport:
    version = _version(plan.path)
    unfollowed = truncate.is_unfollowed(version)
    freed = 0
    if unfollowed:
        # The last batch goes first, by itself: a file under a second name must not be cut.
        last = truncate.plan_of(plan.path, version, truncate.last_offset(version))
        _keep(last, backup)
        freed = truncate.cut_unfollowed(last)
    with Log.open(plan.path, mode="append", recover=unfollowed, config=config, now_ms=clock) as log:
        _keep(truncate.plan_of(log.path, log.version, plan.log_end_offset), backup)
        log.truncate_to(plan.log_end_offset)
        start, end = log.log_start_offset, log.log_end_offset
        freed += log.state.deletions.freed_bytes
    done = replace(plan, log_start_offset=start, log_end_offset=end)
    return TruncationReport(done, () if backup is None else tuple(backup.kept), freed)


def _version(directory: Path) -> Version:
    """The log as its files are now."""
    with Log.open(directory) as log:
        return seen_log(log.view).version


def _keep(plan: TruncationPlan, backup: Backup | None) -> None:
    """Back up the bytes that go; if they have no room, nothing is done."""
    if backup is None or plan.is_noop:
        return
    cuts = [each for each in plan.actions if each.action == "truncate"]
    backup.check_room(sum(each.bytes for each in cuts))
    files = list_partition(plan.path)
    going = {each.path for each in plan.actions if each.action == "delete"}
    gone = [
        path
        for segment in files.segments
        if str(segment.log) in going
        for path in files_of_segment(segment)
    ]
    for snapshot in files.snapshots:
        offset = snapshot.name.base_offset
        if offset is not None and (plan.whole or offset > plan.log_end_offset):
            gone.append(snapshot.path)
    for path in (*gone, files.leader_epochs):
        if path is not None:
            backup.keep_file(path)
    for each in cuts:
        if plan.position is not None:
            backup.keep_tail(each.path, plan.position)


__all__ = [
    "LOG_START",
    "SIZE",
    "TIME",
    "RetiredSegment",
    "StayingSegment",
    "TruncationReport",
    "apply_compaction",
    "apply_retention",
    "apply_truncation",
    "files_of",
    "latest_of",
    "plan_compaction",
    "plan_retention",
    "plan_truncation",
    "segments_that_stay",
]
