"""Checks across the files of a partition, and across the partitions of a data directory."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from kseg.analysis import overlaps
from kseg.analysis.findings import Findings
from kseg.analysis.values import CheckpointSummary, Examined, PartitionSummary, SegmentSummary
from kseg.errors import KsegError
from kseg.files.checkpoints import EpochEntry, assign_epochs
from kseg.files.names import FileKind
from kseg.log.recovery import judge_transactions
from kseg.log.settings import settings


def check_across(examined: Examined, found: Findings) -> None:
    """Compare segments with each other, and with the small files that describe them."""
    by_partition: dict[str, list[SegmentSummary]] = defaultdict(list)
    for segment in examined.segments:
        by_partition[segment.partition].append(segment)
    ends = {}  # the end of a log is not known if its last batches are damaged
    for path, segments in by_partition.items():
        segments.sort(key=lambda segment: segment.base_offset)
        _check_segments(segments, found)
        _check_gaps(path, segments, found)
        if segments[-1].whole:
            ends[path] = _end_offset(segments)
    for partition in examined.partitions:
        segments = by_partition.get(partition.path, [])
        if segments and not segments[0].kafka07:
            end = ends.get(partition.path)
            _check_snapshots(partition, end, found)
            told = ((each.base_offset, each.whole, each.transactions) for each in segments)
            judge_transactions(partition.begun, told, found)
            _check_epochs(partition, end, segments, found)
    keys = {partition.path: partition.key for partition in examined.partitions}
    for checkpoint in examined.checkpoints:
        _check_offsets(checkpoint, ends, keys, found)


def _end_offset(segments: Sequence[SegmentSummary]) -> int:
    """The offset after the last; the last base offset where that segment is empty."""
    last = segments[-1]
    return last.base_offset if last.last_offset is None else last.last_offset + 1


def _check_segments(segments: Sequence[SegmentSummary], found: Findings) -> None:
    farthest = segments[0]  # of those in front: it may go on past more than one
    for before, segment in pairwise(segments):
        if (before.last_offset or -1) >= (farthest.last_offset or -1):
            farthest = before
        name, last = os.path.basename(farthest.path), farthest.last_offset
        if last is not None and last >= segment.base_offset and not segment.kafka07:
            found.add(
                "offset-order",
                segment.path,
                f"the segment starts at {segment.base_offset}, {name} before it ends at {last}"
                + overlaps.describe(farthest, segment),
                position=0,
                offset=segment.base_offset,
            )
        name = os.path.basename(before.path)
        if before.epochs and segment.epochs and segment.epochs[0][0] < before.epochs[-1][0]:
            epoch, offset = segment.epochs[0]
            found.add(
                "leader-epoch-order",
                segment.path,
                f"leader epoch {epoch} follows {before.epochs[-1][0]}, which ends {name}",
                offset=offset,
            )


def _check_gaps(partition: str, segments: Sequence[SegmentSummary], found: Findings) -> None:
    """Offsets that no segment has, where the policy is known and compaction takes none."""
    gaps = [
        (_end_offset((before,)), segment)
        for before, segment in pairwise(segments)
        if before.whole and not segment.kafka07 and segment.base_offset > _end_offset((before,))
    ]
    if not gaps or not _keeps_all(partition):
        return
    for first, segment in gaps:
        found.add(
            "segment-gap",
            segment.path,
            f"no segment has offsets {first} to {segment.base_offset - 1}: a segment may be "
            "missing, or the topic was compacted once",
            offset=first,
        )


def _keeps_all(partition: str) -> bool:
    """Whether it is known that the topic of a partition is not compacted."""
    try:
        values = settings(os.path.dirname(os.path.realpath(partition))).of(partition).values
    except (KsegError, OSError, ValueError):
        return False
    policy = values.get("cleanup.policy")
    # A default is a guess: the broker's file, which is not here, may say otherwise.
    is_known = policy is not None and policy.source != "default"
    return policy is not None and is_known and "compact" not in policy.value


def _check_snapshots(partition: PartitionSummary, end: int | None, found: Findings) -> None:
    for path, offset in partition.snapshots:
        if end is not None and offset > end:
            found.add(
                "snapshot-ahead",
                path,
                f"the log ends at offset {end}",
                offset=offset,
                severity="warning" if partition.live else None,
            )


def _check_epochs(
    partition: PartitionSummary,
    end: int | None,
    segments: Sequence[SegmentSummary],
    found: Findings,
) -> None:
    """Each change of epoch in the log must agree with the checkpoint's entry for that offset."""
    # As Kafka takes them: one that falls displaces those before it.
    told = (EpochEntry(*change) for segment in segments for change in segment.epochs)
    changes = assign_epochs(told)
    if partition.epochs_path is None:
        # A topic that was set to an older format has had its checkpoint deleted.
        older = any(segment.magics_seen & 3 for segment in segments)
        if changes and not older and not partition.bare:
            found.add("epochs-missing", partition.path, "batches have leader epochs, the log none")
        return
    epochs = partition.epochs
    if epochs is None:
        return
    if epochs and end is not None and epochs[-1][1] > end:
        found.add(
            "epochs-ahead",
            partition.epochs_path,
            f"epoch {epochs[-1][0]} starts at {epochs[-1][1]}, the log ends at {end}",
            offset=epochs[-1][1],
            severity="warning" if partition.live else None,
        )
    starts = [start for _, start in epochs]
    for epoch, offset in changes:
        at = bisect_right(starts, offset) - 1
        # What lies before the first entry was deleted by moving the log start.
        if at >= 0 and epochs[at][0] != epoch:
            found.add(
                "epochs-wrong",
                partition.epochs_path,
                f"the batch at offset {offset} has epoch {epoch}, the checkpoint says "
                f"{epochs[at][0]}",
                offset=offset,
            )


def _check_offsets(
    checkpoint: CheckpointSummary,
    ends: dict[str, int],
    keys: dict[str, tuple[str, int] | None],
    found: Findings,
) -> None:
    paths = {
        key: path
        for path, key in keys.items()
        if key is not None and os.path.dirname(path) == checkpoint.directory.rstrip(os.sep)
    }
    starts = checkpoint.name == FileKind.LOG_START.value
    for key, offset in checkpoint.offsets.items():
        path = paths.get(key)
        end = None if path is None else ends.get(path)
        if end is not None and offset > end:
            found.add(
                "log-start-ahead" if starts else "checkpoint-ahead",
                checkpoint.path,
                f"{key[0]}-{key[1]} is said to be at offset {offset}, its log ends at {end}",
                offset=offset,
            )
