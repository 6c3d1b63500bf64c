"""One whole log out of several copies: `plan_merge` decides, `apply_merge` writes it.

From each copy what can be proved. The copy of the latest leader epoch goes first, among those of
one epoch the longest: what it has, no number of older copies outvotes. Each other copy is cut where
it leaves that history (`lineage`), and gives what none before it has (`choosing`).

Source: nothing of Kafka's; a follower that is cut ends where Kafka would cut it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kseg.errors import (
    ConflictingCopiesError,
    InconsistentTopicIdError,
    NotALogError,
    os_reason,
)
from kseg.files.atomic import replace_file
from kseg.files.checkpoints import TopicPartition
from kseg.log import data_directory
from kseg.log.copies.choosing import CONFLICTS_MAX, Choosing, Ranked
from kseg.log.copies.joining import (
    Chosen,
    CopyPath,
    JoinedCopies,
    join_copies,
    places_of,
)
from kseg.log.copies.lineage import Lineage, divergence, lineage_of
from kseg.log.copies.proving import proved_by_each_other, unproved_conflicts
from kseg.log.copies.source import Copy
from kseg.log.copies.table import OFFSETS_END
from kseg.log.copies.values import MergedCopy, MergePlan, PartitionMerge
from kseg.log.data_directory import CLUSTER_METADATA
from kseg.log.salvage.output import (
    REPORT,
    Progress,
    TargetPartition,
    beside,
    check_output,
    write_output,
)
from kseg.log.salvage.segments import target_segments
from kseg.workers import at_file, in_order

if TYPE_CHECKING:
    from kseg.workers import Put


def plan_merge(
    *copies: str | PathLike[str],
    out: str | PathLike[str],
    prefer: str | PathLike[str] | None = None,
    chosen: Chosen | None = None,
    jobs: int = 1,
) -> MergePlan:
    """Decide what a merged log takes of each copy; nothing is written.

    At one offset the higher leader epoch wins. What a copy has behind the offset where it leaves
    the history of the last leader is left out. Sound batches of one epoch that differ are a
    conflict.

    Args:
        copies: partition directories, copies of one partition; or data directories, whose
            partitions are joined by topic and number. Two or more. The data directories of one
            broker are one copy, with commas between them as in `log.dirs`.
        out: the data directory to be made, new or empty; `OUT.kseg-salvage` lies beside it.
        prefer: one of the copies, whose batches win in a conflict.
        chosen: leaves out partitions of data directories, by topic and number.
        jobs: threads to share the work, partition by partition.

    Raises:
        ValueError: fewer than two copies, the same directory twice, `prefer` is none of them, or
            `jobs` below 1.
        FileExistsError, NotADirectoryError: OUT is not new or empty.
        InconsistentTopicIdError: copies of a topic of another id.
        NotALogError: a path is nothing of Kafka's, or a file; copies of different partitions, or
            of the log of KRaft alone; or nothing is chosen.
        UnsupportedFormatError: files of Kafka 0.7.
        KsegError: OUT lies in a copy, or around one; or a copy has changed on the way.
        OSError: a path is missing or cannot be listed; or no copy of a partition can be read.

    Example:
        >>> from kseg import plan_merge
        >>> plan_merge("a/orders-0", "b/orders-0", out="whole").is_whole  # doctest: +SKIP
        True
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}, not 1 or more")
    first = frozenset[str]() if prefer is None else _preferred(copies, prefer)
    joined, left_alone = _without_kraft(join_copies(copies, chosen))
    _check(joined)
    sources = tuple(str(place) for copy in copies for place in places_of(copy))
    check_output(out, sources)
    pieces = (partial(_put_plan, each, first) for each in joined)
    with closing(in_order(pieces, threads=jobs)) as plans:
        return MergePlan(Path(out), sources, tuple(plans), left_alone)


def apply_merge(plan: MergePlan, *, progress: Progress | None = None) -> Path:
    """Write what a plan says, whole or not at all; the copies stay as they are.

    Args:
        plan: of `plan_merge`.
        progress: called with bytes of log copied so far, and in all.

    Returns:
        The report beside OUT: the plan as JSON, with where each run of batches came from.

    Raises:
        ConflictingCopiesError: there are conflicts that nothing decides.
        FileExistsError, NotADirectoryError: OUT is not new or empty any more.
        StalePlanError: a copy is not as it was when the plan was made.
        OSError: the disk refuses, or has no room. There is no OUT then.

    Example:
        >>> from kseg import apply_merge, plan_merge
        >>> apply_merge(plan_merge("a/orders-0", "b/orders-0", out="whole"))  # doctest: +SKIP
        PosixPath('whole.kseg-salvage/report.json')
    """
    for each in plan.partitions:
        if each.undecided:
            seen = each.conflicts[0].batches[0]
            raise ConflictingCopiesError(
                f"{each.undecided} batches of {each.name} contradict those of another copy in the "
                "same leader epoch, or may: say which copy is preferred",
                path=seen.path,
                position=seen.header.position,
                offset=each.conflicts[0].offset,
            )

    def finish(place: Path) -> None:
        document = {"schema": "kseg.merge-report/1", **plan.to_dict(runs=True)}
        replace_file(place / REPORT, json.dumps(document).encode() + b"\n")

    targets = [_target(each) for each in plan.partitions]
    write_output(plan.out, targets, sources=plan.sources, finish=finish, progress=progress)
    return beside(plan.out) / REPORT


def _target(plan: PartitionMerge) -> TargetPartition:
    return TargetPartition(
        plan.partition,
        plan.segments,
        plan.log_end_offset,
        plan.topic_id,
        plan.log_start_offset,
        plan.high_watermark,
    )


# ---- deciding ------------------------------------------------------------------------------------


def _preferred(
    copies: Sequence[str | PathLike[str]], prefer: str | PathLike[str]
) -> frozenset[str]:
    """The directories of the preferred copy, which may be named by one of them."""
    wanted = _real_places(prefer)
    for copy in copies:
        places = _real_places(copy)
        if wanted <= places:
            return places
    raise ValueError(f"{os.fspath(prefer)} is preferred, but none of the copies")


def _real_places(copy: str | PathLike[str]) -> frozenset[str]:
    return frozenset(map(os.path.realpath, places_of(copy)))


def _without_kraft(
    joined: Sequence[JoinedCopies],
) -> tuple[list[JoinedCopies], tuple[str, ...]]:
    """The partitions but for the log of KRaft, and its copies, which a quorum makes whole itself.

    Raises:
        NotALogError: nothing else was given.
    """
    left = [one for one in joined if one.topic != CLUSTER_METADATA]
    alone = tuple(
        copy.path
        for one in joined
        if one.topic == CLUSTER_METADATA
        for copy in one.copies
        if copy.lacks is None
    )
    if not left:
        raise NotALogError(
            "copies of the log of KRaft are not merged: move a damaged one aside, and its "
            "controller fetches it from the others",
            path=alone[0],
        )
    return left, alone


def _check(joined: Sequence[JoinedCopies]) -> None:
    """Refuse what must not be mixed."""
    for each in joined:
        if each.topic is None:
            raise NotALogError(
                "the copies are not named as one partition", path=each.copies[0].path
            )
        other = next((one for one in each.copies if one.lacks == "other-topic"), None)
        if other is not None:
            raise InconsistentTopicIdError(
                f"the topic's id is {other.topic_id}, that of {each.copies[0].path} is "
                f"{each.topic_id}: these are two topics",
                path=other.path,
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """A copy and the epochs in it."""

    copy: Copy
    lineage: Lineage

    @property
    def order(self) -> tuple[int, int]:
        """The latest leader first, then the longest."""
        return (-self.lineage.latest, -self.lineage.end)


def _put_plan(joined: JoinedCopies, prefer: frozenset[str], put: Put) -> None:
    with at_file(joined.copies[0].path):
        put(_plan(joined, prefer))


def _plan(joined: JoinedCopies, prefer: frozenset[str]) -> PartitionMerge:
    assert joined.topic is not None
    assert joined.partition is not None
    read, failed = _read([one for one in joined.copies if one.lacks is None])
    ranked = _ranked(read, prefer)
    choosing = Choosing(ranked, _start_of([one.copy for one in read]))
    choosing.run()
    doubts = [] if prefer else list(unproved_conflicts([one.copy for one in read]))
    begins = _last_begins(ranked)
    end = max([choosing.expected, *begins])
    if end > choosing.expected:
        choosing.gaps.note(np.array([choosing.expected]), np.array([end - 1]))
    bases = choosing.runs.bases(begins, choosing.expected)
    segments = target_segments(choosing.runs.taken, bases)
    start = max(choosing.start, segments[0].base_offset)
    return PartitionMerge(
        TopicPartition(joined.topic, joined.partition),
        joined.topic_id,
        (*map(_merged, read, ranked, choosing.taken.tolist()), *failed),
        start,
        end,
        _high_watermark(read, end),
        tuple(choosing.runs.taken),
        segments,
        choosing.gaps.missing(end),
        choosing.left_out,
        (*choosing.conflicts, *doubts[:CONFLICTS_MAX]),
        choosing.undecided + len(doubts),
    )


def _read(paths: Sequence[CopyPath]) -> tuple[list[_Read], list[MergedCopy]]:
    """The copies in the order in which they count, and those that the disk does not give."""
    copies, failed = [], []
    errors: list[OSError] = []
    for one in paths:
        try:
            if one.error is not None:
                raise OSError(one.error)
            copies.append(Copy.read(one.path, weighs=True))
        except OSError as error:
            errors.append(error)
            failed.append(MergedCopy(one.path, error=os_reason(error)))
    if not copies:
        raise errors[0]
    read = [_Read(copy, lineage_of(copy)) for copy in proved_by_each_other(copies)]
    return sorted(read, key=lambda one: one.order), failed


def _ranked(read: Sequence[_Read], prefer: frozenset[str]) -> list[Ranked]:
    """The copies, each cut where it leaves the history of those before it."""
    history = read[0].lineage
    ranked = []
    for at, one in enumerate(read):
        cut = divergence(history, one.lineage)
        cut = OFFSETS_END if cut is None else cut
        before = history if at else None
        ranked.append(Ranked(one.copy, cut, before, _is_within(one.copy.path, prefer)))
        history = history.joined(one.lineage, cut)
    return ranked


def _is_within(path: str, places: frozenset[str]) -> bool:
    place = Path(os.path.realpath(path))
    return not places.isdisjoint((str(place), str(place.parent)))


def _start_of(copies: Sequence[Copy]) -> int:
    """Where the merged log begins: with the first batch of all, or where records were deleted."""
    first = min((copy.first_offset for copy in copies if copy.files), default=0)
    deleted = [copy.start_offset for copy in copies if copy.start_offset > copy.first_offset]
    return max([first, *deleted])


def _last_begins(ranked: Sequence[Ranked]) -> list[int]:
    """Where the last segment of each copy begins that is not cut: it may have no batch yet."""
    return [
        segment.base_offset
        for one in ranked
        if one.cut == OFFSETS_END
        for segment in one.copy.provable.segments[-1:]
    ]


def _high_watermark(read: Sequence[_Read], end: int) -> int | None:
    """The highest that was noted beside a copy: what lies in front of it was committed."""
    told = (data_directory.told_of(one.copy.provable.path).high_watermark for one in read)
    return max((min(one, end) for one in told if one is not None), default=None)


def _merged(read: _Read, ranked: Ranked, taken: Sequence[int]) -> MergedCopy:
    copy = read.copy
    return MergedCopy(
        copy.path,
        read.lineage.latest,
        copy.start_offset,
        copy.end_offset,
        None if ranked.cut == OFFSETS_END else ranked.cut,
        sum(each.size for each in copy.provable.unprovable),
        int(taken[0]),
        int(taken[1]),
    )


__all__ = ["apply_merge", "plan_merge"]
