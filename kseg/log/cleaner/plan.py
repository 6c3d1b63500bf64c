"""Deciding what compaction does to a log; nothing is changed.

A plan has been measured: each group is read and filtered as it would be written, so that it says
how many bytes go. Only the first pass can be; further ones, where the map is full, read what that
one has written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kseg.constants import COMPACTION_MAP_BYTES
from kseg.format.columns import Workspace
from kseg.log.clean_offsets import read_clean_offset
from kseg.log.cleaner.bounds import Bounds, between, bounds_of, is_due
from kseg.log.cleaner.groups import group_segments
from kseg.log.cleaner.inputs import CleanerInputs
from kseg.log.cleaner.offset_map import read_keys
from kseg.log.cleaner.rewrite import Rewrite
from kseg.log.cleaner.values import (
    ACTIVE,
    BEYOND_MAP,
    NOT_DUE,
    NOTHING_DIRTY,
    UNCHANGED,
    CompactedGroup,
    CompactedSegment,
    CompactionPlan,
    UncleanedSegment,
)
from kseg.log.cleaner.verdicts import Judge, LastBatches

if TYPE_CHECKING:
    from kseg.log.cleaner.groups import Group
    from kseg.log.topic_policy import RetentionRules


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


__all__ = ["CompactionOptions", "Pass", "plan_inputs"]
