"""The plan of a cut of a log back to an offset; `kseg.log.writer.truncate` makes the cut."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.errors import KsegError, NotALogError
from kseg.files import io
from kseg.log.config import LogConfig
from kseg.log.data_directory import refuse_cluster_metadata
from kseg.log.producers.snapshots import rebuild
from kseg.log.reader.follow import seen_log
from kseg.log.reader.version import SegmentInfo, Version
from kseg.log.reader.view import LogView
from kseg.log.recovery.load_context import LoadContext, RecoveryInputs
from kseg.log.recovery.overlay import Overlay
from kseg.log.recovery.plan import look_at
from kseg.log.recovery.sweep import pass_over
from kseg.log.segment.index_entries import next_offset
from kseg.log.segment.reader import Segment
from kseg.log.tier.history import history_of, tiered
from kseg.log.writer.truncate import TruncationPlan, is_unfollowed, plan_of
from kseg.stores.path import local_path_at

if TYPE_CHECKING:
    from kseg.log.tier.tier import TierLike


def plan_truncation(
    path: io.StrPath, offset: int, *, tier: TierLike | None = None
) -> TruncationPlan:
    """Plan a cut of a log back to an offset; changes nothing, and takes no lock.

    Args:
        path: a partition directory, or a `Log`.
        offset: the new end of the log: batches with this offset or larger ones are removed whole,
            so the end may lie in front of it. Below the first segment the whole log is removed, and
            begins again there.
        tier: as for `plan_retention`.

    Raises:
        ValueError: the offset is negative.
        TierError: what a tier says of its segments cannot be used.
        NotALogError: not a partition directory, or that of KRaft.
        CorruptRecordError: damage lies between the place the index leads to and the offset.
        OSError: it cannot be read.

    Example:
        >>> plan_truncation("orders-0", 1_200).truncated_bytes  # doctest: +SKIP
        65536
    """
    directory = local_path_at(path)
    if not directory.is_dir():
        os.stat(directory)
        raise NotALogError("not a partition directory", path=path)
    refuse_cluster_metadata(directory)
    seen = look_at(directory)
    version = seen_log(LogView.open(directory)).version
    plan = plan_of(directory, version, offset)
    if plan.position is not None:
        end = _end_at(version.segments_from(offset)[0], plan.position, offset)
        plan = replace(plan, log_end_offset=end)
    if not (plan.is_noop or is_unfollowed(version)):
        plan = replace(plan, left_open=_left_open(plan, version))
    log, remote = tiered(directory, tier), None
    if log is not None and plan.whole:  # no epoch is left, by which a copy counts
        remote = history_of(log, deleted=log.finished, start=offset)
    elif log is not None:
        remote = history_of(log, end=plan.log_end_offset)
    return replace(plan, seen=seen, remote=remote)


def _end_at(info: SegmentInfo, position: int, offset: int) -> int:
    """The end of a log that is cut at a position, as the next load finds it."""
    with Segment.open(info.path, mapping="never", size=position, is_last=True) as segment:
        start = segment.start_for_offset(offset - 1).position
        return next_offset(segment, offset - 1 if start < position else info.base_offset)


def _left_open(plan: TruncationPlan, version: Version) -> tuple[tuple[int, int], ...]:
    """Transactions that are open at the new end and have ended by the old one."""
    ends = (plan.log_end_offset, version.log_end.offset)
    with suppress(KsegError):
        now, before = (_ongoing(plan.path, version, end) for end in ends)
        return tuple(sorted(now - before))
    return ()


def _ongoing(path: Path, version: Version, end: int) -> set[tuple[int, int]]:
    """The transactions that are open at an offset: the producer's id, and the first offset."""
    start = version.log_start_offset
    context = LoadContext(Overlay(path), RecoveryInputs(LogConfig(), True, 0, start, 0))
    for info in version.segments:
        context.add(info.base_offset)
    state = context.new_state()
    rebuild(
        state,
        context.snapshots(aloof=True),
        context.bases,
        context.open,
        log_start_offset=start,
        end_offset=end,
        now_ms=0,
        clean=False,
        on_error=pass_over,
    )
    return {(producer_id, place.offset) for producer_id, place in state.ongoing}
