"""Cutting the end of one closed log back to an offset: planned, then applied.

For a log that is open for appending use `Log.truncate_to`. `kseg.log.writer.truncate` has the steps
and their order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.errors import NotALogError, StalePlanError
from kseg.files import io
from kseg.files.names import list_partition
from kseg.log import data_directory
from kseg.log.clock import clock_of, now_of
from kseg.log.log import Log
from kseg.log.pending_deletes import files_of_segment
from kseg.log.reader.follow import seen_log
from kseg.log.recovery.backup import Backup, CutReport
from kseg.log.recovery.overlay import look_at
from kseg.log.sub_directories import refuse_cluster_metadata
from kseg.log.writer import truncate
from kseg.log.writer.truncate import TruncationPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from kseg.format.times import Time
    from kseg.log.config import LogConfig
    from kseg.log.reader.version import Version


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
        return _apply(plan, config, clock, backup)
    finally:
        lease.leave()


def _apply(
    plan: TruncationPlan,
    config: LogConfig | None,
    clock: Callable[[], int],
    backup: Backup | None,
) -> TruncationReport:
    version = _version(plan.path)
    unfollowed = truncate.is_unfollowed(version)
    freed = 0
    if unfollowed:
        # The last batch first, by itself: what is kept under a second name must not be cut.
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
    """Keep what is about to go; there is room for all of it, or nothing is done."""
    if backup is None or plan.is_noop:
        return
    cuts = [each for each in plan.actions if each.action == "truncate"]
    backup.check_room(sum(each.bytes for each in cuts))
    files = list_partition(plan.path)
    going = {each.path for each in plan.actions if each.action == "delete"}
    for segment in files.segments:
        if str(segment.log) in going:
            for path in files_of_segment(segment):
                backup.keep_file(path)
    for snapshot in files.snapshots:
        offset = snapshot.name.base_offset
        if offset is not None and (plan.whole or offset > plan.log_end_offset):
            backup.keep_file(snapshot.path)
    if files.leader_epochs is not None:
        backup.keep_file(files.leader_epochs)
    for each in cuts:
        if plan.position is not None:
            backup.keep_tail(each.path, plan.position)


__all__ = ["TruncationReport", "apply_truncation", "plan_truncation"]
