"""The plan of a cut back to an offset, or to a time; `kseg.log.writer.truncate` makes the cut."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from kseg.constants import INT64_MAX, Int64s, StrPath
from kseg.errors import KsegError, NotALogError
from kseg.format.header import BatchTable
from kseg.format.times import Time, bound_ms
from kseg.log.cleaner.inputs import producers_at
from kseg.log.config import LogConfig
from kseg.log.data_directory import refuse_cluster_metadata
from kseg.log.reader.follow import seen_log
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.recovery.plan import look_at
from kseg.log.segment.index_entries import next_offset
from kseg.log.segment.reader import Segment
from kseg.log.tier.history import history_of, tiered
from kseg.log.writer.truncate import TruncationPlan, is_unfollowed, plan_of
from kseg.stores.path import local_path_at

if TYPE_CHECKING:
    from kseg.log.tier.tier import TierLike


#: Where a log ends that is cut at a time; see `cut_at`.
Cut = Literal["first", "last"]


def plan_truncation(
    path: StrPath,
    offset: int | None = None,
    *,
    time: Time | None = None,
    tier: TierLike | None = None,
) -> TruncationPlan:
    """Plan a cut of a log back to an offset; changes nothing, and takes no lock.

    Args:
        path: a partition directory, or a `Log`.
        offset: the new end of the log: batches with this offset or larger ones are removed whole,
            so the end may lie in front of it. Below the first segment the whole log is removed, and
            begins again there.
        time: the log as it stood then, instead: it ends in front of the first batch with a later
            time.
        tier: as for `plan_retention`.

    Raises:
        ValueError: the offset is negative, or there is an offset and a time, or neither.
        TierError: what a tier says of its segments cannot be used.
        NotALogError: not a partition directory, or that of KRaft.
        CorruptRecordError: damage lies between the place the index leads to and the offset.
        OSError: it cannot be read.

    Example:
        >>> plan_truncation("orders-0", 1_200).truncated_bytes  # doctest: +SKIP
        65536
    """
    if (offset is None) == (time is None):
        raise ValueError("a log is cut at an offset or at a time")
    directory = local_path_at(path)
    if not directory.is_dir():
        os.stat(directory)
        raise NotALogError("not a partition directory", path=path)
    refuse_cluster_metadata(directory)
    seen = look_at(directory)
    view = LogView.open(directory, mapping="never")
    version = seen_log(view).version
    if offset is None:
        at_ms = bound_ms(time)
        assert at_ms is not None
        offset, _ = cut_at(view, view.first_offset, at_ms, "first")
    plan = plan_of(directory, version, offset)
    if plan.position is not None:
        end = _end_at(version.segments_from(offset)[0], plan.position, offset)
        plan = replace(plan, log_end_offset=end)
    if not (plan.is_noop or is_unfollowed(version)):
        plan = replace(plan, left_open=_left_open(view, plan.log_end_offset))
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


def _left_open(view: LogView, end: int) -> tuple[tuple[int, int], ...]:
    """Transactions that are open at the new end and have ended by the old one.

    Each is the producer's id, and the first offset.
    """
    with suppress(KsegError):
        now, before = (
            {(producer_id, place.offset) for producer_id, place in state.ongoing}
            for state in (producers_at(view, at, LogConfig()) for at in (end, view.log_end_offset))
        )
        return tuple(sorted(now - before))
    return ()


# ---- a cut at a time -----------------------------------------------------------------------------


def records_of(table: BatchTable) -> Int64s:
    """int64[n]: the records of each batch, by its header, or else by its offsets."""
    spans = np.where(table.magic >= 2, table.last_offset - table.base_offset + 1, 1)
    return np.where(table.record_count >= 0, table.record_count, spans)


def cut_at(view: LogView, start: int, at_ms: int, cut: Cut) -> tuple[int, dict[str, int]]:
    """The end of a log that is cut at a time, by headers alone.

    Args:
        view: of the log.
        start: from the segment of this offset on.
        at_ms: the time in ms.
        cut: "first" in front of the first batch with a later time; "last" behind the last batch
            that began no later.

    Returns:
        The offset, 2^63 - 1 for no cut; and on the other side of both cuts, the records of batches
        with no later time that lie behind, and those with a later one that lie in front.

    Raises:
        KsegError, OSError: a segment cannot be read.
    """
    ends = {"first": INT64_MAX, "last": start}
    behind = {"first": 0, "last": 0}
    late_so_far = 0
    for info in view.segments_from(start):
        with view.open_segment(info) as segment:
            for table in segment.headers():
                if not len(table):
                    continue
                records = np.where(table.is_control, 0, records_of(table))
                later = table.max_timestamp > at_ms
                if ends["first"] == INT64_MAX and later.any():
                    ends["first"] = int(table.last_offset[later.argmax()])
                passed = np.full(len(table), ends["first"] < INT64_MAX)
                passed &= table.last_offset >= ends["first"]
                behind["first"] += int(records[passed & ~later].sum())
                begun = table.base_timestamp <= at_ms
                late = np.cumsum(np.where(later, records, 0)) + late_so_far
                if begun.any():
                    row = int(np.flatnonzero(begun)[-1])
                    ends["last"] = int(table.last_offset[row]) + 1
                    behind["last"] = int(late[row])
                late_so_far = int(late[-1])
    return ends[cut], behind
