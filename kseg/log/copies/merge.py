"""One whole log out of several copies: `plan_merge` decides, the plan's `apply` writes it.

Only the provable batches of a copy count. The copy of the latest leader epoch goes first, among
copies of one epoch the longest. Each copy is cut where it leaves the history of the copies before
it, and gives the batches that none of these has. So at one offset the higher leader epoch wins, not
the majority. Differing batches of one epoch and one offset are a conflict; only `prefer` decides
it. `choosing` says how.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path, PosixPath
from typing import Any, Final

import numpy as np

from kseg.constants import Progress, StrPath
from kseg.documents import Documented, document, fields_of, frozen_dataclass
from kseg.errors import ConflictingCopiesError, InconsistentTopicIdError, NotALogError, os_reason
from kseg.files.atomic import replace_file
from kseg.files.checkpoints import EpochEntry, LeaderEpochs, TopicPartition
from kseg.files.mapping import MappedFile
from kseg.files.names import CLUSTER_METADATA, FileKind, SegmentFiles, segment_name
from kseg.files.selection import Selection
from kseg.frames import Table, TableRows, counted
from kseg.log import data_directory
from kseg.log.copies.choosing import (
    CONFLICTS_MAX,
    Choosing,
    Conflict,
    LeftOut,
    Ranked,
    divergence,
    lineage_of,
    proved_by_each_other,
    unproved_conflicts,
)
from kseg.log.copies.joining import CopyPath, JoinedCopies, join_copies, places_of
from kseg.log.copies.source import OFFSETS_END, Copy
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.view import LogView, RemotePart
from kseg.log.salvage.output import (
    REPORT,
    TargetPartition,
    beside,
    check_output,
    target_segments,
    write_output,
)
from kseg.log.salvage.provable import epochs_of
from kseg.log.salvage.values import LostOffsets, Span
from kseg.log.tier.history import with_tier_epochs
from kseg.log.tier.tier import Tier, TierLike
from kseg.stores.path import path_at
from kseg.stores.ranges import RangedFile
from kseg.workers import Put, at_file, in_order


@frozen_dataclass
class MergedCopy(Documented):
    """One copy, and how much of it is in the merged log.

    Attributes:
        path: its directory.
        leader_epoch: its latest epoch; -1 if it has none.
        log_start_offset, log_end_offset: where its log begins, and where its sound batches end.
        diverges_at: where it leaves the history of the copies before it; None if it does not.
        damaged_bytes: bytes that cannot be proved.
        batches, bytes: how much of it is in the merged log.
        error: why it cannot be read; None if it can.
        ends_damaged: whether damage hides its end, and not only an unfinished write.
    """

    DOCUMENT = (
        "path leader_epoch log_start_offset log_end_offset diverges_at damaged_bytes batches bytes"
        " error"
    )

    path: str
    leader_epoch: int = -1
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    diverges_at: int | None = None
    damaged_bytes: int = 0
    batches: int = 0
    bytes: int = 0
    error: str | None = None
    ends_damaged: bool = False


#: Why sound batches are left out of a merge, in stable words.
LEFT_OUT: Final = {
    "diverged": "they lie past the offset where the copy leaves the history of the last leader",
    "lower-epoch": "another copy has batches of a higher leader epoch there",
    "epoch-order": "the leader epochs of other copies before or after them contradict theirs",
    "not-preferred": "they contradict batches of the preferred copy",
    "overlap": "a batch that was taken before them reaches over them",
    "deleted": "they lie before the log start of another copy",
}
#: This is no difference: one copy has deleted old records earlier than another.
_NO_DIFFERENCE: Final = "deleted"


@frozen_dataclass(kw_only=True)
class PartitionMerge(TargetPartition, Documented):
    """One partition of a merge, as it is to be written.

    Attributes:
        topic_id: None where no copy says it.
        copies: sorted by rank: that of the latest leader first, unreadable ones last.
        high_watermark: the highest one beside a copy; None if there is none.
        runs: consecutive batches in a file of a copy, sorted by offset, that make the merged log.
        missing: offsets that no copy has.
        left_out: sound batches that it does not take.
        conflicts: batches that contradict each other, the first of them.
        undecided: how many conflicts are not decided.
    """

    DOCUMENT = (
        "topic=partition.topic partition=partition.partition topic_id log_start_offset"
        " log_end_offset high_watermark segments=segment_count batches bytes copies missing"
        " left_out conflicts undecided"
    )

    copies: tuple[MergedCopy, ...]
    runs: tuple[Span, ...]
    missing: tuple[LostOffsets, ...]
    left_out: tuple[LeftOut, ...]
    conflicts: tuple[Conflict, ...]
    undecided: int

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, nothing differs, and each copy could be read."""
        differs = any(left_out.why != _NO_DIFFERENCE for left_out in self.left_out)
        failed = any(copy.error is not None for copy in self.copies)
        return not (self.missing or self.conflicts or differs or failed)

    @property
    def batches(self) -> int:
        """The number of batches in the merged log."""
        return sum(run.batches for run in self.runs)

    @property
    def view(self) -> LogView:
        """The merged log as a view, read from the copies as they were when it was planned."""
        path, infos = path_at(self.copies[0].path), []
        for segment in self.segments:
            log = MergedPath(path, "merged", segment_name(segment.base_offset, FileKind.LOG))
            log.extents = segment.extents
            files, is_last = SegmentFiles(segment.base_offset, log), segment is self.segments[-1]
            infos.append(SegmentInfo(files, log.size_elsewhere(), is_last))
        start = RemotePart(self.log_start_offset, self.epochs, None)
        return LogView(path, tuple(infos), "never", remote=start)

    def to_dict(self, *, runs: bool = False) -> dict[str, Any]:
        """The object of `--json`; with `runs`, as in the report beside the output."""
        fields = Documented.to_dict(self)
        names = ("first_offset", "last_offset", "at_most")
        fields["missing"] = [
            {name: lost_range[name] for name in names} for lost_range in fields["missing"]
        ]
        return fields | ({"runs": document(self.runs)} if runs else {})


class MergedPath(PosixPath):
    """The path of a merged segment that is read from the copies; no disk has a file of this name.

    Attributes:
        extents: whole batches, in the order of their offsets.
    """

    __slots__ = ("extents",)
    extents: Sequence[Span]

    def with_name(self, name: str) -> Path:  # type: ignore[override]
        """The path of an index beside it, which does not exist."""
        return Path(self.parent, name)

    def size_elsewhere(self) -> int:
        """The size of the segment, in bytes."""
        return sum(extent.size for extent in self.extents)

    def open_elsewhere(self) -> MappedFile:
        """Open the segment for reading; no copy is opened yet."""
        file = _Extents(os.fspath(self), self.size_elsewhere())
        file.extents = self.extents
        return file


class _Extents(RangedFile):
    """Batches of several files, read as one file."""

    __slots__ = ("extents",)
    extents: Sequence[Span]

    def _fetch(self, start: int, end: int) -> tuple[memoryview, None]:
        """Read a range of the segment, which may be spread over several extents."""
        parts, position = [], 0  # where the extent begins in the merged segment
        for extent in self.extents:
            first, last = max(start - position, 0), min(end - position, extent.size)
            if first < last:
                with MappedFile.open(extent.path, "never") as file:
                    parts.append(file.read(extent.position + first, last - first))
            position += extent.size
        return memoryview(b"".join(parts)), None


@frozen_dataclass(repr=False)
class MergePlan(Table):
    """The plan of a merge.

    Attributes:
        out: the data directory to be made.
        sources: the directories that were given.
        partitions: sorted by name.
        left_alone: copies of the log of KRaft, which are not merged.
    """

    out: Path
    sources: tuple[str, ...]
    partitions: tuple[PartitionMerge, ...]
    left_alone: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether no offset is missing."""
        return not any(partition.missing for partition in self.partitions)

    @property
    def undecided(self) -> int:
        """How many conflicts are not decided; if there are any, nothing is written."""
        return sum(partition.undecided for partition in self.partitions)

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, nothing differs, and each copy could be read."""
        return all(partition.ok for partition in self.partitions)

    @property
    def bytes(self) -> int:
        """The size of the merged logs."""
        return sum(partition.bytes for partition in self.partitions)

    def to_dict(self, *, runs: bool = False) -> dict[str, Any]:
        """The document of `--json`; with `runs`, as in the report beside the output."""
        return {
            **fields_of(self, "out ok whole=is_whole undecided bytes left_alone"),
            "partitions": [partition.to_dict(runs=runs) for partition in self.partitions],
        }

    @property
    def title(self) -> str:
        """The output, its bytes, and the number of conflicts that nothing decides."""
        whole = "no offset missing" if self.is_whole else "offsets missing"
        return (
            f"{self.out}: {len(self.partitions)} partitions, {self.bytes} bytes, {whole}, "
            f"{self.undecided} undecided conflicts"
        )

    def table_rows(self) -> TableRows:
        """The partitions as rows; a list appears as its length."""
        return [counted(partition.to_dict()) for partition in self.partitions]

    def apply(self, *, progress: Progress | None = None) -> Path:
        """Write the merged logs of a plan, whole or not at all; the copies do not change.

        Args:
            progress: called with bytes of log copied so far, and in all.

        Returns:
            The report beside OUT: the plan as JSON, with where each run of batches came from.

        Raises:
            ConflictingCopiesError: there are conflicts that nothing decides.
            FileExistsError, NotADirectoryError: OUT is not new or empty any more.
            StalePlanError: a copy is not as it was when the plan was made.
            OSError: the disk refuses, or has no room. OUT does not exist then.

        Example:
            >>> from kseg import plan_merge
            >>> plan_merge("a/orders-0", "b/orders-0", out="whole").apply()  # doctest: +SKIP
            PosixPath('whole.kseg-salvage/report.json')
        """
        for partition in self.partitions:
            if partition.undecided:
                seen = partition.conflicts[0].batches[0]
                raise ConflictingCopiesError(
                    f"{partition.undecided} batches of {partition.name} contradict those of "
                    "another copy in the same leader epoch, or may: say which copy is preferred",
                    path=seen.path,
                    position=seen.header.position,
                    offset=partition.conflicts[0].offset,
                )

        def finish(beside_target: Path) -> None:
            document = {"schema": "kseg.merge-report/1", **self.to_dict(runs=True)}
            replace_file(beside_target / REPORT, json.dumps(document).encode() + b"\n")

        write_output(
            self.out, self.partitions, sources=self.sources, finish=finish, progress=progress
        )
        return beside(self.out) / REPORT


# ---- runs and gaps -------------------------------------------------------------------------------


def plan_merge(
    *copies: StrPath,
    out: StrPath,
    prefer: StrPath | None = None,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int | range] | None = None,
    threads: int = 1,
    tier: TierLike | None = None,
) -> MergePlan:
    """Choose the batches of the merged log from all copies; nothing is written.

    At one offset the higher leader epoch wins. Batches after the offset where a copy leaves the
    history of the last leader are left out. Sound batches of one epoch that differ are a conflict.

    Args:
        copies: partition directories, copies of one partition; or data directories, whose
            partitions are joined by topic and number. Two or more. The data directories of one
            broker are one copy, with commas between them as in `log.dirs`.
        out: the data directory to make, new or empty; `OUT.kseg-salvage` is made beside it.
        prefer: one of the copies, whose batches win in a conflict.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
        threads: the number of threads; each does a partition at a time.
        tier: has earlier leader epochs, if the checkpoints of all copies lost them; None for what
            `__remote_log_metadata` beside a copy says.

    Raises:
        ValueError: fewer than two copies, the same directory twice, `prefer` is not a copy, or
            `threads` below 1.
        FileExistsError, NotADirectoryError: OUT is not new or empty.
        InconsistentTopicIdError: copies of a topic of another id.
        NotALogError: a path is not Kafka's, or is a file; copies of different partitions, or of the
            log of KRaft alone; or nothing is chosen.
        UnsupportedFormatError: files of Kafka 0.7.
        TierError: leader epochs of a log with a tier are lost, and nothing tells them.
        KsegError: OUT is in a copy, or around one; or a copy has changed meanwhile.
        OSError: a path is missing or cannot be listed; or no copy of a partition can be read.

    Example:
        >>> from kseg import plan_merge
        >>> plan_merge("a/orders-0", "b/orders-0", out="whole").is_whole  # doctest: +SKIP
        True
    """
    if threads < 1:
        raise ValueError(f"threads is {threads}, not 1 or more")
    first = frozenset[str]() if prefer is None else _preferred_directories(copies, prefer)
    joined, left_alone = _without_kraft(
        join_copies(copies, Selection.of(topics, partitions).choice)
    )
    _check(joined)
    sources = tuple(str(directory) for copy in copies for directory in places_of(copy))
    check_output(out, sources)
    tier = Tier.beside() if tier is None else tier
    pieces = (
        partial(_put_plan, copies_of_partition, first, tier) for copies_of_partition in joined
    )
    with closing(in_order(pieces, threads=threads)) as plans:
        return MergePlan(Path(out), sources, tuple(plans), left_alone)


def merge_of(topic: str, partition: int, paths: Sequence[Path]) -> PartitionMerge:
    """Choose the batches of one merged log, as `plan_merge` does for many.

    Args:
        topic, partition: which one it is.
        paths: the directories of the copies, under any names.

    Raises:
        KsegError, OSError: as `plan_merge`.
    """
    joined = [replace(copies, topic=topic, partition=partition) for copies in join_copies(paths)]
    _check(joined)
    return _plan(joined[0], frozenset(), Tier.beside())


# ---- deciding ------------------------------------------------------------------------------------


def _preferred_directories(copies: Sequence[StrPath], prefer: StrPath) -> frozenset[str]:
    """The directories of the preferred copy; `prefer` may be any one of them."""
    preferred = _real_paths(prefer)
    for copy in copies:
        places = _real_paths(copy)
        if preferred <= places:
            return places
    raise ValueError(f"{os.fspath(prefer)} is preferred, but is not among the copies")


def _real_paths(copy: StrPath) -> frozenset[str]:
    """The directories of a copy without symbolic links, by which copies are compared."""
    return frozenset(map(os.path.realpath, places_of(copy)))


def _without_kraft(
    joined: Sequence[JoinedCopies],
) -> tuple[list[JoinedCopies], tuple[str, ...]]:
    """The partitions without KRaft's log, which a quorum repairs itself; and that log's copies.

    Raises:
        NotALogError: nothing else was given.
    """
    partitions = [partition for partition in joined if partition.topic != CLUSTER_METADATA]
    kraft_paths = tuple(
        copy.path
        for partition in joined
        if partition.topic == CLUSTER_METADATA
        for copy in partition.copies
        if copy.lacks is None
    )
    if not partitions:
        raise NotALogError(
            "copies of the log of KRaft are not merged: move a damaged one aside, and its "
            "controller fetches it from the others",
            path=kraft_paths[0],
        )
    return partitions, kraft_paths


def _check(joined: Sequence[JoinedCopies]) -> None:
    """Refuse copies that are not of one partition of one topic."""
    for partition in joined:
        if partition.topic is None:
            raise NotALogError(
                "the copies are not named as one partition", path=partition.copies[0].path
            )
        other = next((copy for copy in partition.copies if copy.lacks == "other-topic"), None)
        if other is not None:
            raise InconsistentTopicIdError(
                f"the topic's id is {other.topic_id}, that of {partition.copies[0].path} is "
                f"{partition.topic_id}: these are two topics",
                path=other.path,
            )


def _put_plan(joined: JoinedCopies, prefer: frozenset[str], tier: TierLike, put: Put) -> None:
    with at_file(joined.copies[0].path):
        put(_plan(joined, prefer, tier))


def _plan(joined: JoinedCopies, prefer: frozenset[str], tier: TierLike) -> PartitionMerge:
    """Choose the batches of one partition.

    Args:
        joined: its copies.
        prefer: directories of the preferred copy; empty if there is none.
        tier: as for `plan_merge`.
    """
    assert joined.topic is not None
    assert joined.partition is not None
    ranked, failed = _rank_copies([copy for copy in joined.copies if copy.lacks is None], prefer)
    copies = [ranked_copy.copy for ranked_copy in ranked]
    choosing = Choosing(ranked, _start_of(copies))
    choosing.run()
    doubts = [] if prefer else list(unproved_conflicts(copies))
    # The last segment of a copy that is not cut may have no batch yet.
    whole = (ranked_copy.copy for ranked_copy in ranked if ranked_copy.cut == OFFSETS_END)
    last_bases = [segment.base_offset for copy in whole for segment in copy.provable.segments[-1:]]
    end = max([choosing.expected, *last_bases])
    if end > choosing.expected:
        choosing.gaps.note(np.array([choosing.expected]), np.array([end - 1]))
    bases = choosing.runs.bases(last_bases, choosing.expected)
    begin = max(bisect_right(bases, choosing.start) - 1, 0)
    segments = target_segments(choosing.runs.spans, bases[begin:])
    # Offsets before a high watermark beside any copy were committed.
    marks = (data_directory.offsets_beside(copy.provable.path).high_watermark for copy in copies)
    return PartitionMerge(
        TopicPartition(joined.topic, joined.partition),
        segments,
        end,
        joined.topic_id,
        max(choosing.start, segments[0].base_offset),
        max((min(mark, end) for mark in marks if mark is not None), default=None),
        _earlier_epochs(copies, end, tier),
        copies=(*map(_merged_copy, ranked, choosing.taken.tolist()), *failed),
        runs=tuple(choosing.runs.spans),
        missing=choosing.gaps.missing(end),
        left_out=choosing.left_out,
        conflicts=(*choosing.conflicts, *doubts[:CONFLICTS_MAX]),
        undecided=choosing.undecided + len(doubts),
    )


def _earlier_epochs(copies: Sequence[Copy], end: int, tier: TierLike) -> tuple[EpochEntry, ...]:
    """The epochs of the checkpoint that reaches back furthest, or of a tier."""
    start = max(copy.provable.log_start_offset for copy in copies)
    stored = filter(None, (epochs_of(copy.provable.path) for copy in copies))
    epochs = min(stored, key=lambda entries: entries[0].start_offset, default=())
    for copy in copies:
        epochs = with_tier_epochs(copy.provable.path, epochs, start, tier, is_lost=not epochs)
    return LeaderEpochs(epochs).within(start, end)


def _rank_copies(
    paths: Sequence[CopyPath], prefer: frozenset[str]
) -> tuple[list[Ranked], list[MergedCopy]]:
    """The copies, sorted by rank, and the unreadable ones.

    The copy of the latest leader is first, then the longest. Each is cut where it leaves the
    history of the copies before it.
    """
    copies, failed = [], []
    errors: list[OSError] = []
    for copy_path in paths:
        try:
            if copy_path.error is not None:
                raise OSError(copy_path.error)
            copies.append(Copy.read(copy_path.path, weighs=True))
        except OSError as error:
            errors.append(error)
            failed.append(MergedCopy(copy_path.path, error=os_reason(error)))
    if not copies:
        raise errors[0]
    read = [(lineage_of(copy), copy) for copy in proved_by_each_other(copies)]
    read.sort(key=lambda pair: (-pair[0].latest, -pair[0].end))
    history = read[0][0]
    ranked: list[Ranked] = []
    for lineage, copy in read:
        cut = divergence(history, lineage)
        cut = OFFSETS_END if cut is None else cut
        real_path = Path(os.path.realpath(copy.path))
        is_preferred = not prefer.isdisjoint((str(real_path), str(real_path.parent)))
        ranked.append(Ranked(copy, lineage, cut, history if ranked else None, is_preferred))
        history = history.joined(lineage, cut)
    return ranked, failed


def _start_of(copies: Sequence[Copy]) -> int:
    """Where the merged log begins: with the first batch of all, or where records were deleted."""
    first = min((copy.first_offset for copy in copies if copy.files), default=0)
    deleted = [copy.start_offset for copy in copies if copy.start_offset > copy.first_offset]
    return max([first, *deleted])


def _merged_copy(ranked: Ranked, chosen: Sequence[int]) -> MergedCopy:
    """A copy in the answer; `taken` is the number and the bytes of its chosen batches."""
    return MergedCopy(
        ranked.copy.path,
        ranked.lineage.latest,
        ranked.copy.start_offset,
        ranked.copy.end_offset,
        None if ranked.cut == OFFSETS_END else ranked.cut,
        sum(span.size for span in ranked.copy.provable.unprovable),
        int(chosen[0]),
        int(chosen[1]),
        ends_damaged=any(
            span.reason not in ("torn-tail", "zeros")
            for lost in ranked.copy.unknown
            for span in ranked.copy.provable.unprovable
            if lost.last_offset is None and (span.path, span.position) >= (lost.path, lost.position)
        ),
    )
