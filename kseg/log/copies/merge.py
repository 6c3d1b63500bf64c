"""One whole log out of several copies: `plan_merge` decides, the plan's `apply` writes it.

Only the provable batches of a copy count. The copy of the latest leader epoch goes first, among
copies of one epoch the longest. Each copy is cut where it leaves the history of the copies before
it, and gives the batches that none of these has. So at one offset the higher leader epoch wins, not
the majority. Differing batches of one epoch and one offset are a conflict; only `prefer` decides
it.

Cuts (`divergence`): a copy is cut where Kafka cuts a follower: behind the last epoch that both
have, where the first of both ends it. Where damage hides the begin of an epoch, the checkpoint of
epochs gives it, or another copy; else it lies between the last batch in front of the damage and the
first one behind. A copy that has left the history there is cut where it may have left it.

Proof by another copy (`proved_by_each_other`): behind damage a batch may be data of a record. It
belongs to the log if another copy has it and that one is proved. From there lengths lead to more
batches, which may in turn prove batches of other copies. A place that is in doubt is certain where
another copy has the batch at the same offset.

Missing offsets (`MissingOffsets`): if each copy has a record for each offset, every offset that no
copy has is missing. If compaction has left holes, a gap in all copies is not a loss, unless damage
of a copy hides records. Other copies repair that damage if they give as many bytes for those
offsets as are damaged.

Segments (`Runs`): one begins where one begins in the copy that goes first, or in the copy that the
batch is taken from. So a whole log keeps its segments, and a segment that the first copy has lost
comes back under its name.

Source: Kafka `AbstractFetcherThread.getOffsetTruncationState`, `LeaderEpochFileCache.endOffsetFor`.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path, PosixPath
from typing import Any, Final

import numpy as np

from kseg.constants import INT64_MAX, INT64_MIN, Bools, Int64s, Progress, StrPath
from kseg.documents import Documented, document, fields_of
from kseg.errors import (
    ConflictingCopiesError,
    InconsistentTopicIdError,
    NotALogError,
    os_reason,
)
from kseg.files.atomic import replace_file
from kseg.files.checkpoints import UNDEFINED, EpochEntry, LeaderEpochs, TopicPartition
from kseg.files.mapping import MappedFile
from kseg.files.names import CLUSTER_METADATA, FileKind, SegmentFiles, segment_name
from kseg.files.selection import Selection
from kseg.format.header import BatchHeader
from kseg.frames import Table, TableRows, counted
from kseg.frozen import frozen_dataclass
from kseg.log import data_directory
from kseg.log.copies.joining import CopyPath, JoinedCopies, join_copies, places_of
from kseg.log.copies.source import (
    COLUMNS,
    COUNT,
    EPOCH,
    FILE,
    FIRST,
    LAST,
    NOTHING,
    OFFSETS_END,
    POSITION,
    SIZE,
    BatchSeen,
    Copy,
    Rows,
    keys_of,
    overlapping,
    rows_of,
    touches,
    twins,
    windows,
    without,
)
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
from kseg.log.salvage.values import LostOffsets, Span, add_span, provable_tables
from kseg.log.tier.history import with_tier_epochs
from kseg.log.tier.tier import Tier, TierLike
from kseg.stores.path import path_at
from kseg.stores.ranges import RangedFile
from kseg.workers import Put, at_file, in_order


@frozen_dataclass
class LeftOut(Documented):
    """Sound batches of a copy that the merged log does not take.

    Attributes:
        path: the copy.
        why: a word of `LEFT_OUT`.
        first_offset, last_offset: between these.
        batches, bytes: how many.
    """

    path: str
    why: str
    first_offset: int
    last_offset: int
    batches: int
    bytes: int


@frozen_dataclass
class Conflict(Documented):
    """Sound batches of the same offsets that differ, in one leader epoch or where one may be lost.

    Attributes:
        batches: of the copy that goes first, and of another one. One of a higher epoch is not
            proved: it is readable behind damage, and the other one may be a diverged tail.
        decided: whether `prefer` decides it, for the first.
    """

    DOCUMENT = "offset decided compacted=is_compacted batches"

    batches: tuple[BatchSeen, BatchSeen]
    decided: bool

    @property
    def offset(self) -> int:
        """The first offset that both have."""
        return max(seen.first_offset for seen in self.batches)

    @property
    def is_compacted(self) -> bool:
        """Whether compaction may be all that differs: one has fewer records of the same append."""
        first, other = (seen.header for seen in self.batches)
        fewer, more = (first, other) if first.record_count < other.record_count else (other, first)
        return (
            _append_of(first) == _append_of(other) and 0 <= fewer.record_count < more.record_count
        )


def _append_of(header: BatchHeader) -> tuple[object, ...]:
    """The fields of a batch that compaction does not change."""
    producer = header.producer_id, header.producer_epoch, header.base_sequence
    kinds = header.magic, header.is_transactional, header.is_control, header.leader_epoch
    return header.base_offset, header.last_offset, *producer, *kinds


@frozen_dataclass
class MergedCopy(Documented):
    """One copy, and the batches that the merged log takes from it.

    Attributes:
        path: its directory.
        leader_epoch: its latest one; -1 without any.
        log_start_offset, log_end_offset: where its log begins, and where its sound batches end.
        diverges_at: where it leaves the history of the copies before it; None if it does not.
        damaged_bytes: bytes that cannot be proved.
        batches, bytes: that the merged log takes from it.
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
    "diverged": "they lie behind the offset where the copy leaves the history of the last leader",
    "lower-epoch": "another copy has batches of a higher leader epoch there",
    "epoch-order": "the leader epochs of other copies in front of them or behind contradict theirs",
    "not-preferred": "they contradict batches of the preferred copy",
    "overlap": "a batch that was taken in front of them reaches over them",
    "deleted": "they lie in front of the log start of another copy",
}
#: No difference: records are deleted from one copy earlier than from another.
_NO_DIFFERENCE: Final = "deleted"


@frozen_dataclass(kw_only=True)
class PartitionMerge(TargetPartition, Documented):
    """One partition of a merge, as it is to be written.

    Attributes:
        topic_id: None where no copy says it.
        copies: by rank: that of the latest leader first, unreadable ones last.
        high_watermark: the highest one beside a copy; None without one.
        runs: the runs it takes, by offset: consecutive batches in a file of a copy.
        missing: offsets that no copy has.
        left_out: sound batches that it does not take.
        conflicts: batches that contradict each other, the first of them.
        undecided: how many conflicts nothing decides.
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
        differs = any(left.why != _NO_DIFFERENCE for left in self.left_out)
        failed = any(copy.error is not None for copy in self.copies)
        return not (self.missing or self.conflicts or differs or failed)

    @property
    def batches(self) -> int:
        """The number of batches that it takes."""
        return sum(run.batches for run in self.runs)

    @property
    def view(self) -> LogView:
        """The merged log, read from the copies as far as they reached when it was planned."""
        path, infos = path_at(self.copies[0].path), []
        for segment in self.segments:
            log = MergedPath(path, "merged", segment_name(segment.base_offset, FileKind.LOG))
            log.extents = segment.extents
            files, is_last = SegmentFiles(segment.base_offset, log), segment is self.segments[-1]
            infos.append(SegmentInfo(files, log.size_elsewhere(), is_last))
        start = RemotePart(self.log_start_offset, self.epochs, None)
        return LogView(path, tuple(infos), "never", remote=start)

    def to_dict(self, *, runs: bool = False) -> dict[str, Any]:
        """The document of `--json`; with `runs`, that of the report beside the output."""
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
        """An index beside it, which does not exist."""
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
        parts, position = [], 0
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
        partitions: by name.
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
        """How many conflicts nothing decides; with any, nothing is written."""
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
        """The document of `--json`; with `runs`, that of the report beside the output."""
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
        """The partitions; of a list its length."""
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


class Runs:
    """The runs of the merged log, which are being collected.

    Attributes:
        taken: by offset.
    """

    def __init__(self, copies: Sequence[Copy]) -> None:
        """Start without runs.

        Args:
            copies: in the order of their rank; rows name their files by numbers through all copies.
        """
        seen = [segment for copy in copies for segment in copy.provable.segments]
        self._paths: Final = tuple(segment.path for segment in seen)
        self._bases: Final = {segment.path: segment.base_offset for segment in seen}
        self._begins = {segment.base_offset for segment in copies[0].provable.segments}
        self.taken: list[Span] = []

    def add(self, rows: Rows) -> None:
        """Add batches that lie behind those that were added before."""
        ends = rows[:, POSITION] + rows[:, SIZE]
        breaks = (rows[1:, FILE] != rows[:-1, FILE]) | (rows[1:, POSITION] != ends[:-1])
        begins = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(rows)])).tolist()
        for begin, end in pairwise(begins):
            path, position = self._paths[int(rows[begin, FILE])], int(rows[begin, POSITION])
            if not self.taken or self._bases[path] > self.taken[-1].last_offset:
                self._begins.add(self._bases[path])
            counts = rows[begin:end, COUNT]
            run = Span(
                path,
                position,
                int(ends[end - 1]) - position,
                int(rows[begin, FIRST]),
                int(rows[end - 1, LAST]),
                end - begin,
                int(counts.sum()) if (counts >= 0).all() else None,
            )
            add_span(self.taken, run)

    def bases(self, begins: Sequence[int], end: int) -> list[int]:
        """Where segments begin, one or more, ascending.

        Args:
            begins: where the last segments of the copies begin.
            end: the offset behind the last batch taken.
        """
        bases = self._begins.union(begin for begin in begins if begin >= end)
        return sorted(bases) or [end]


#: The most ranges that are listed separately; the last one covers all further ones.
MISSING_MAX: Final = 10_000


class _Hidden:
    """Offsets hidden by damage of a copy: ranges, damaged bytes, bytes that others gave."""

    def __init__(self, copy: Copy, cut: int) -> None:
        """Take the hidden ranges in front of the offset where the copy is cut."""
        before = copy.unknown_ranges[:, 0] < cut
        last = cut - 1 if cut < OFFSETS_END else cut
        self.ranges: Final = np.minimum(copy.unknown_ranges[before], last)
        self.damaged: Final = np.array([lost.bytes for lost in copy.unknown], np.int64)[before]
        self.given_bytes: Final = np.zeros_like(self.damaged)

    def give(self, rows: Rows) -> None:
        """Note batches that are taken."""
        # By the last offset: the first one of a compressed message may be a guess.
        at = np.searchsorted(self.ranges[:, 1], rows[:, LAST])
        inside = np.flatnonzero(at < len(self.ranges))
        inside = inside[self.ranges[at[inside], 0] <= rows[inside, LAST]]
        np.add.at(self.given_bytes, at[inside], rows[inside, SIZE])

    @property
    def left(self) -> Rows:
        """The ranges whose bytes no other copy has given."""
        return self.ranges[self.given_bytes < self.damaged]


class MissingOffsets:
    """The offsets that no copy has, which are being collected.

    Attributes:
        is_dense: whether each copy has a record for each offset, but for damage.
    """

    def __init__(self, copies: Sequence[tuple[Copy, int]]) -> None:
        """Start without missing offsets.

        Args:
            copies: each with the offset where it is cut.
        """
        self._hidden: Final = [_Hidden(copy, cut) for copy, cut in copies]
        self._ranges: list[tuple[int, int]] = []
        self._is_cut_short = False
        self.is_dense: Final = all(copy.provable.is_dense for copy, _ in copies)

    def add(self, rows: Rows, expected_offsets: Int64s) -> None:
        """Note batches that are taken, and a gap wherever one begins later than expected.

        Args:
            rows: by offset.
            expected_offsets: int64[n], for each row the offset after the batch before it.
        """
        for hidden in self._hidden:  # what one copy gives, the damage of another does not lose
            hidden.give(rows)
        at = np.flatnonzero(rows[:, FIRST] > expected_offsets)
        self.note(expected_offsets[at], rows[at, FIRST] - 1)

    def note(self, first: Int64s, last: Int64s) -> None:
        """Note gaps behind those before, int64[n]."""
        gaps = np.stack((first, last), axis=1)
        if not self.is_dense:
            gaps = gaps[_are_hidden(gaps, [hidden.ranges for hidden in self._hidden])]
        room = MISSING_MAX - len(self._ranges)
        self._ranges += map(tuple, gaps[:room].tolist())
        if len(gaps) > room:
            self._ranges[-1] = (self._ranges[-1][0], int(gaps[-1, 1]))
            self._is_cut_short = True

    def missing(self, end: int) -> tuple[LostOffsets, ...]:
        """The missing offsets of a log that ends at an offset, once all gaps were noted."""
        left = [hidden.left for hidden in self._hidden]
        gaps = np.array(self._ranges, np.int64).reshape(-1, 2)
        if not self.is_dense:
            gaps = gaps[_are_hidden(gaps, left)]
        at_most = not self.is_dense
        lost_ranges = [LostOffsets(first, last, at_most=at_most) for first, last in gaps.tolist()]
        if self._is_cut_short and lost_ranges:
            lost_ranges[-1] = replace(lost_ranges[-1], at_most=True)
        if any(len(ranges) and ranges[-1, 1] == OFFSETS_END for ranges in left):
            lost_ranges.append(LostOffsets(end, None, at_most=at_most))
        return tuple(lost_ranges)


def _are_hidden(gaps: Rows, ranges: Sequence[Rows]) -> Bools:
    """bool[n]: which gaps touch hidden offsets of any copy."""
    hidden = np.zeros(len(gaps), np.bool_)
    for copy_ranges in ranges:
        hidden |= touches(gaps[:, 0], gaps[:, 1], copy_ranges)
    return hidden


@frozen_dataclass
class EpochBegin:
    """The begin of a leader epoch in a log.

    Attributes:
        epoch: of the leader.
        start: the first offset that is known to be of it.
        least: it may have begun here already.
    """

    epoch: int
    start: int
    least: int


@frozen_dataclass
class Lineage:
    """The epochs of a log.

    Attributes:
        begins: both numbers ascend.
        end: the offset behind the last batch.
    """

    begins: tuple[EpochBegin, ...]
    end: int

    @property
    def latest(self) -> int:
        """The latest epoch; -1 without any."""
        return self.begins[-1].epoch if self.begins else -1

    @property
    def epochs(self) -> LeaderEpochs:
        """The begins as entries of the checkpoint of epochs."""
        return LeaderEpochs(None, (EpochEntry(begin.epoch, begin.start) for begin in self.begins))

    def joined(self, other: Lineage, cut: int) -> Lineage:
        """This history with the epochs of another one in front of a cut."""
        begins = list(self.begins)
        for begin in other.begins:
            if begin.start < cut:
                _add_begin(begins, begin)
        return Lineage(tuple(begins), max(self.end, min(other.end, cut)))


def lineage_of(copy: Copy) -> Lineage:
    """The epochs of a copy: of its sound batches, and of its checkpoint where damage hides them.

    Raises:
        KsegError, OSError: a file has changed, or is gone.
    """
    begins: list[EpochBegin] = []
    epoch, end = -1, copy.first_offset
    for rows in copy.tables():
        epochs = np.concatenate(([epoch], rows[:, EPOCH]))
        ends = np.concatenate(([end], rows[:, LAST] + 1))
        for at in np.flatnonzero(epochs[1:] > np.maximum.accumulate(epochs)[:-1]).tolist():
            least = int(ends[at])
            begins.append(EpochBegin(int(epochs[at + 1]), int(rows[at, FIRST]), least))
        epoch, end = int(epochs.max()), int(ends[-1])
    for entry in epochs_of(copy.provable.path):
        is_behind = not begins or entry.epoch > begins[-1].epoch
        if (
            not is_behind
            or entry.start_offset == end
            or (entry.start_offset > end and copy.hides_end)
        ):
            _add_begin(begins, EpochBegin(entry.epoch, entry.start_offset, entry.start_offset))
    return Lineage(tuple(begins), end)


def _add_begin(begins: list[EpochBegin], begin: EpochBegin) -> None:
    """Add a begin, or a closer one, if it fits between its neighbours."""
    at = bisect_left(begins, begin.epoch, key=lambda epoch_begin: epoch_begin.epoch)
    same_epoch = begins[at] if at < len(begins) and begins[at].epoch == begin.epoch else None
    behind = at + (same_epoch is not None)
    next_one = begins[behind] if behind < len(begins) else None
    if at and begin.start <= begins[at - 1].start:
        return
    if next_one is not None and begin.start >= next_one.start:
        return
    if same_epoch is not None:
        if not same_epoch.least <= begin.start <= same_epoch.start:
            return
        begin = EpochBegin(begin.epoch, begin.start, max(begin.least, same_epoch.least))
    elif next_one is not None and begin.start < next_one.least:
        return
    begins[at:behind] = [begin]
    if next_one is not None:
        least = max(next_one.least, min(begin.start, next_one.start))
        begins[at + 1] = EpochBegin(next_one.epoch, next_one.start, least)


def divergence(leader: Lineage, follower: Lineage) -> int | None:
    """The offset to which a follower is cut; None where no epochs tell of one.

    Args:
        leader: of the latest epoch.
        follower: of that epoch or an earlier one.
    """
    common = _truncation(leader, follower)
    if common == UNDEFINED or common.start_offset >= follower.end:
        return None
    cut = common.start_offset
    at = bisect_right(leader.begins, common.epoch, key=lambda begin: begin.epoch)
    return min([cut, *(begin.least for begin in leader.begins[at : at + 1])])


def _truncation(leader: Lineage, follower: Lineage) -> EpochEntry:
    """The last epoch that both have, and where the first of both ends it; -1 for neither."""
    epochs, follower_epochs = leader.epochs, follower.epochs
    end, epoch = follower.end, follower.latest
    while True:  # each turn asks for a lower epoch
        asked = epochs.end_offset_for(epoch, leader.end)
        mine = follower_epochs.end_offset_for(asked.epoch, end)
        if UNDEFINED in (asked, mine):
            return UNDEFINED
        end = min(mine.start_offset, end)
        if mine.epoch == asked.epoch:
            return EpochEntry(mine.epoch, min(asked.start_offset, end))
        epoch = mine.epoch


#: Batches that are left out for these may be proved by another copy.
_PROVABLE: Final = ("not-anchored", "offset-order")


def proved_by_each_other(copies: Sequence[Copy]) -> list[Copy]:
    """The copies, each read again as long as others prove more of its batches.

    Raises:
        KsegError, OSError: a file has changed, or is gone.
    """
    read_copies = list(copies)
    proved_positions: list[set[tuple[int, int]]] = [set() for _ in copies]
    waiting = set(range(len(read_copies)))
    while waiting:
        number = waiting.pop()
        rows = readable_rows(read_copies[number], *_PROVABLE)
        if not len(rows):
            continue
        # A value may hold a copy of a batch that lies behind it, so the last place counts.
        places = dict(zip(keys_of(rows), rows[:, [FILE, POSITION]].tolist(), strict=True))
        other_copies = (other for at, other in enumerate(read_copies) if at != number)
        shared = {
            key for other in other_copies for key in _keys_within(other, rows)
        } & places.keys()
        proved = {(file, position) for file, position in map(places.__getitem__, shared)}
        if proved <= proved_positions[number]:
            continue
        proved_positions[number] |= proved
        copy = read_copies[number]
        by_file: dict[str, list[int]] = {}
        for file, position in sorted(proved_positions[number]):
            by_file.setdefault(copy.files[file], []).append(position)
        read_copies[number] = Copy.read(copy.path, proved=by_file, weighs=True)
        waiting = set(range(len(read_copies)))
    return read_copies


def unproved_conflicts(copies: Sequence[Copy]) -> Iterator[Conflict]:
    """Proved batches that may be a diverged tail, by batches of another copy that nothing proves.

    These have a higher leader epoch, and the checkpoint of epochs beside them says that it began in
    front of them: so a later leader may have written other records there.
    """
    for copy in copies:
        rows = readable_rows(copy, "not-anchored")
        epochs = epochs_of(copy.provable.path) if len(rows) else ()
        begins = {entry.epoch: entry.start_offset for entry in epochs}
        rows = np.array(
            [row for row in rows if begins.get(row[EPOCH], OFFSETS_END) <= row[FIRST]], np.int64
        ).reshape(-1, COLUMNS)
        other_copies = [other for other in copies if other is not copy] if len(rows) else []
        for other in other_copies:
            for table in other.tables():
                for row in rows:
                    clash = overlapping(table, row[np.newaxis]) & (table[:, EPOCH] < row[EPOCH])
                    for against in table[clash]:
                        yield Conflict((copy.seen(row), other.seen(against)), decided=False)


def readable_rows(copy: Copy, *reasons: str) -> Rows:
    """The sound batches of a copy that are not kept for some reasons, as they lie in its files."""
    numbers = {path: number for number, path in enumerate(copy.files)}
    runs = [span for span in copy.provable.unprovable if span.reason in reasons]
    tables = [
        rows_of(table, numbers[run.path], run.first_offset) for run, table in provable_tables(runs)
    ]
    return np.concatenate(tables) if tables else NOTHING


def _keys_within(copy: Copy, rows: Rows) -> Iterator[bytes]:
    """Keys of the batches of a copy, of those with offsets of some rows."""
    first, last = int(rows[:, FIRST].min()), int(rows[:, LAST].max())
    in_doubt = readable_rows(copy, "offset-order")
    for table in (*copy.tables(), in_doubt):
        yield from keys_of(table[(table[:, LAST] >= first) & (table[:, FIRST] <= last)])


#: So many conflicts are listed.
CONFLICTS_MAX: Final = 100


@frozen_dataclass(eq=False)
class Ranked:
    """A copy with its rank.

    Attributes:
        copy: the copy.
        lineage: the epochs in it.
        cut: batches from this offset on are left out.
        history: the epochs of the copies before it; None for the first.
        is_preferred: whether its batches win where batches of one epoch differ.
    """

    copy: Copy
    lineage: Lineage
    cut: int = OFFSETS_END
    history: Lineage | None = None
    is_preferred: bool = False


class Choosing:
    """The choice of batches for the merged log, window by window.

    Attributes:
        start: where the merged log begins.
        runs: the batches that the merged log takes.
        gaps: the offsets that no copy has.
        conflicts: the first `CONFLICTS_MAX`.
        undecided: how many conflicts nothing decides.
        expected: the offset behind the last batch taken.
        taken: of each copy, how many batches and how many bytes.
    """

    def __init__(self, ranked: Sequence[Ranked], start: int) -> None:
        """Start in front of the first batch.

        Args:
            ranked: the copies, by rank.
            start: where the merged log begins.
        """
        self._ranked: Final = ranked
        self.start: Final = start
        self._files: Final = tuple(
            path for ranked_copy in ranked for path in ranked_copy.copy.files
        )
        self._bounds: Final = np.cumsum(
            [0, *(len(ranked_copy.copy.files) for ranked_copy in ranked)]
        )
        self._preferred: Final = next(
            (n for n, ranked_copy in enumerate(ranked) if ranked_copy.is_preferred), -1
        )
        self._epochs: Final = [_epochs_of(ranked_copy.history) for ranked_copy in ranked]
        self._left: dict[tuple[str, str], LeftOut] = {}
        self.runs: Final = Runs([ranked_copy.copy for ranked_copy in ranked])
        self.gaps: Final = MissingOffsets(
            [(ranked_copy.copy, ranked_copy.cut) for ranked_copy in ranked]
        )
        self.conflicts: list[Conflict] = []
        self.undecided = 0
        self.expected = start
        self.taken = np.zeros((len(ranked), 2), np.int64)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Sound batches that are not taken, by copy and reason."""
        return tuple(self._left.values())

    def run(self) -> None:
        """Choose the batches of all windows.

        Raises:
            KsegError, OSError: a file has changed, or is gone.
        """
        order = sorted(range(len(self._ranked)), key=lambda at: not self._ranked[at].is_preferred)
        for _, sides in windows([ranked_copy.copy for ranked_copy in self._ranked]):
            chosen = NOTHING
            for at in order:
                chosen = self._add_from_copy(chosen, at, self._offered(at, sides[at]))
            self._take(chosen)

    # ---- one copy in a window --------------------------------------------------------------------

    def _offered(self, at: int, rows: Rows) -> Rows:
        """The batches of a copy that it may give; their files are numbered through all copies."""
        rows = rows.copy()
        rows[:, FILE] += self._bounds[at]
        rows = self._leave_out(at, rows, rows[:, LAST] < self.start, "deleted")
        rows = self._leave_out(at, rows, rows[:, LAST] >= self._ranked[at].cut, "diverged")
        # A window that has no common end is cut, so a batch taken before may reach into this one.
        reached = self.expected if self.taken.any() else 0
        return self._leave_out(at, rows, rows[:, FIRST] < reached, "overlap")

    def _add_from_copy(self, chosen: Rows, at: int, rows: Rows) -> Rows:
        """The chosen batches, with the additions of a copy."""
        rows = without(rows, twins(chosen, rows)[1])
        clashes = overlapping(rows, chosen)
        if clashes.any():
            self._resolve_clashes(chosen, at, rows[clashes])
        rows = rows[~clashes]
        rows = self._leave_out(at, rows, self._is_out_of_order(at, rows), "epoch-order")
        both = np.concatenate((chosen, rows))
        return both[np.argsort(both[:, LAST], kind="stable")]

    def _resolve_clashes(self, chosen: Rows, at: int, rows: Rows) -> None:
        """Batches with offsets of chosen ones: of a lower epoch they are left out."""
        against = chosen[np.searchsorted(chosen[:, LAST], rows[:, FIRST])]
        lower = rows[:, EPOCH] < against[:, EPOCH]
        against = against[~lower]
        rows = self._leave_out(at, rows, lower, "lower-epoch")
        wins = self._owners(against) == self._preferred
        self.undecided += int((~wins).sum())
        left = CONFLICTS_MAX - len(self.conflicts)
        for chosen_row, row, decided in zip(
            against[:left], rows[:left], wins[:left].tolist(), strict=True
        ):
            self.conflicts.append(
                Conflict(
                    (BatchSeen.of(chosen_row, self._files), BatchSeen.of(row, self._files)), decided
                )
            )
        self._leave_out(at, rows, wins, "not-preferred")

    def _is_out_of_order(self, at: int, rows: Rows) -> Bools:
        """bool[n]: which batches would let epochs fall, by the epochs of the copies before."""
        starts, epochs = self._epochs[at]
        epoch_number = np.searchsorted(starts, rows[:, FIRST], side="right")
        wrong: Bools = rows[:, EPOCH] < epochs[epoch_number]
        return wrong | (rows[:, EPOCH] > epochs[epoch_number + 1])

    def _leave_out(self, at: int, rows: Rows, mask: Bools, why: str) -> Rows:
        """Note the masked batches as left out; return the others."""
        gone = rows[mask]
        if len(gone):
            path = self._ranked[at].copy.path
            first, last = int(gone[0, FIRST]), int(gone[-1, LAST])
            left_before = self._left.get((path, why), LeftOut(path, why, first, last, 0, 0))
            self._left[path, why] = replace(
                left_before,
                last_offset=last,
                batches=left_before.batches + len(gone),
                bytes=left_before.bytes + int(gone[:, SIZE].sum()),
            )
        return rows[~mask]

    # ---- chosen batches --------------------------------------------------------------------------

    def _take(self, rows: Rows) -> None:
        if not len(rows):
            return
        owners = self._owners(rows)
        np.add.at(self.taken[:, 0], owners, 1)
        np.add.at(self.taken[:, 1], owners, rows[:, SIZE])
        behind = np.concatenate(([self.expected], rows[:-1, LAST] + 1))
        self.gaps.add(rows, behind)
        self.runs.add(rows)
        self.expected = int(rows[-1, LAST]) + 1

    def _owners(self, rows: Rows) -> Int64s:
        """The number of each batch's copy."""
        return np.searchsorted(self._bounds, rows[:, FILE], side="right") - 1


def _epochs_of(history: Lineage | None) -> tuple[Int64s, Int64s]:
    """Where epochs begin, int64[n]; and the epochs around these offsets, int64[n + 2]."""
    begins = () if history is None else history.begins
    starts = np.array([begin.start for begin in begins], np.int64)
    epochs = np.array([INT64_MIN, *(begin.epoch for begin in begins), INT64_MAX], np.int64)
    return starts, epochs


def plan_merge(
    *copies: StrPath,
    out: StrPath,
    prefer: StrPath | None = None,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int | range] | None = None,
    threads: int = 1,
    tier: TierLike | None = None,
) -> MergePlan:
    """Choose the batches that a merged log takes from each copy; nothing is written.

    At one offset the higher leader epoch wins. Batches behind the offset where a copy leaves the
    history of the last leader are left out. Sound batches of one epoch that differ are a conflict.

    Args:
        copies: partition directories, copies of one partition; or data directories, whose
            partitions are joined by topic and number. Two or more. The data directories of one
            broker are one copy, with commas between them as in `log.dirs`.
        out: the data directory to be made, new or empty; `OUT.kseg-salvage` lies beside it.
        prefer: one of the copies, whose batches win in a conflict.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
        threads: threads to share the work, partition by partition.
        tier: with earlier leader epochs, if the checkpoints of all copies lost them; None for what
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
        KsegError: OUT lies in a copy, or around one; or a copy has changed on the way.
        OSError: a path is missing or cannot be listed; or no copy of a partition can be read.

    Example:
        >>> from kseg import plan_merge
        >>> plan_merge("a/orders-0", "b/orders-0", out="whole").is_whole  # doctest: +SKIP
        True
    """
    if threads < 1:
        raise ValueError(f"threads is {threads}, not 1 or more")
    first = frozenset[str]() if prefer is None else _preferred(copies, prefer)
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


def _preferred(copies: Sequence[StrPath], prefer: StrPath) -> frozenset[str]:
    """The directories of the preferred copy, which may be named by one of them."""
    preferred = _real_paths(prefer)
    for copy in copies:
        places = _real_paths(copy)
        if preferred <= places:
            return places
    raise ValueError(f"{os.fspath(prefer)} is preferred, but is not among the copies")


def _real_paths(copy: StrPath) -> frozenset[str]:
    return frozenset(map(os.path.realpath, places_of(copy)))


def _without_kraft(
    joined: Sequence[JoinedCopies],
) -> tuple[list[JoinedCopies], tuple[str, ...]]:
    """The partitions but for the log of KRaft, and its copies, which a quorum makes whole itself.

    Raises:
        NotALogError: nothing else was given.
    """
    left = [partition for partition in joined if partition.topic != CLUSTER_METADATA]
    alone = tuple(
        copy.path
        for partition in joined
        if partition.topic == CLUSTER_METADATA
        for copy in partition.copies
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
    """Refuse copies that must not be mixed."""
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
    assert joined.topic is not None
    assert joined.partition is not None
    ranked, failed = _ranked([copy for copy in joined.copies if copy.lacks is None], prefer)
    copies = [ranked_copy.copy for ranked_copy in ranked]
    choosing = Choosing(ranked, _start_of(copies))
    choosing.run()
    doubts = [] if prefer else list(unproved_conflicts(copies))
    # The last segment of a copy that is not cut may have no batch yet.
    whole = (ranked_copy.copy for ranked_copy in ranked if ranked_copy.cut == OFFSETS_END)
    begins = [segment.base_offset for copy in whole for segment in copy.provable.segments[-1:]]
    end = max([choosing.expected, *begins])
    if end > choosing.expected:
        choosing.gaps.note(np.array([choosing.expected]), np.array([end - 1]))
    bases = choosing.runs.bases(begins, choosing.expected)
    begin = max(bisect_right(bases, choosing.start) - 1, 0)
    segments = target_segments(choosing.runs.taken, bases[begin:])
    # Offsets in front of a high watermark beside any copy were committed.
    marks = (data_directory.offsets_beside(copy.provable.path).high_watermark for copy in copies)
    return PartitionMerge(
        TopicPartition(joined.topic, joined.partition),
        segments,
        end,
        joined.topic_id,
        max(choosing.start, segments[0].base_offset),
        max((min(mark, end) for mark in marks if mark is not None), default=None),
        _earlier_epochs(copies, end, tier),
        copies=(*map(_merged, ranked, choosing.taken.tolist()), *failed),
        runs=tuple(choosing.runs.taken),
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
    return LeaderEpochs(None, epochs).within(start, end)


def _ranked(
    paths: Sequence[CopyPath], prefer: frozenset[str]
) -> tuple[list[Ranked], list[MergedCopy]]:
    """The copies by rank, and the unreadable ones.

    The copy of the latest leader goes first, then the longest. Each is cut where it leaves the
    history of those before it.
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


def _merged(ranked: Ranked, taken: Sequence[int]) -> MergedCopy:
    return MergedCopy(
        ranked.copy.path,
        ranked.lineage.latest,
        ranked.copy.start_offset,
        ranked.copy.end_offset,
        None if ranked.cut == OFFSETS_END else ranked.cut,
        sum(span.size for span in ranked.copy.provable.unprovable),
        int(taken[0]),
        int(taken[1]),
        ends_damaged=any(
            span.reason not in ("torn-tail", "zeros")
            for lost in ranked.copy.unknown
            for span in ranked.copy.provable.unprovable
            if lost.last_offset is None and (span.path, span.position) >= (lost.path, lost.position)
        ),
    )
