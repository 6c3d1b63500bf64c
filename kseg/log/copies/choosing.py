"""The batches that a merged log takes: cuts, proofs by other copies, segments, missing offsets.

Cuts (`divergence`): a copy is cut where Kafka cuts a follower: after the last epoch that both
have, where the first of both ends it. Where damage hides the begin of an epoch, the checkpoint of
epochs gives it, or another copy; else it lies between the last batch before the damage and the
first one after it. A copy that has left the history there is cut where it may have left it.

Proof by another copy (`proved_by_each_other`): after damage a batch may be data of a record. It
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

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from kseg.constants import INT64_MAX, INT64_MIN, Bools, Int64s
from kseg.documents import Documented, frozen_dataclass
from kseg.files.checkpoints import UNDEFINED, EpochEntry, LeaderEpochs
from kseg.format.header import BatchHeader
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
from kseg.log.salvage.provable import epochs_of
from kseg.log.salvage.values import LostOffsets, Span, add_span, provable_tables

#: The most ranges that are listed separately; the last one covers all further ones.
MISSING_MAX: Final = 10_000
#: The most conflicts that are listed.
CONFLICTS_MAX: Final = 100
#: Batches that are left out for these may be proved by another copy.
_PROVABLE: Final = ("not-anchored", "offset-order")


@frozen_dataclass
class LeftOut(Documented):
    """Sound batches of a copy that are not part of the merged log.

    Attributes:
        path: the copy.
        why: a word of `LEFT_OUT`.
        first_offset, last_offset: between these.
        batches, bytes: their number and size.
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
        batches: one of the copy of higher rank, one of another copy. One of a higher epoch is not
            proved: it is readable after damage, and the other may be a diverged tail.
        decided: whether `prefer` decides it, in favour of the first.
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
        """Whether compaction may explain the difference: one has fewer records of an append."""
        first, other = (seen.header for seen in self.batches)
        fewer, more = (first, other) if first.record_count < other.record_count else (other, first)
        return (
            _append_of(first) == _append_of(other) and 0 <= fewer.record_count < more.record_count
        )


class Runs:
    """The runs of the merged log, as they are collected: consecutive batches in a file.

    Attributes:
        spans: the runs so far, sorted by offset.
    """

    def __init__(self, copies: Sequence[Copy]) -> None:
        """Start without runs.

        Args:
            copies: the copies, sorted by rank; rows number the files through all copies.
        """
        seen = [segment for copy in copies for segment in copy.provable.segments]
        self._paths: Final = tuple(segment.path for segment in seen)
        self._base_of_file: Final = {segment.path: segment.base_offset for segment in seen}
        # The segments of the merged log begin as in the copy of the first rank; and where a run
        # begins in a file of another copy, unless a run before it reaches that file's base offset.
        self._merged_bases = {segment.base_offset for segment in copies[0].provable.segments}
        self.spans: list[Span] = []

    def add(self, rows: Rows) -> None:
        """Add batches that come after those that were added before."""
        ends = rows[:, POSITION] + rows[:, SIZE]
        breaks = (rows[1:, FILE] != rows[:-1, FILE]) | (rows[1:, POSITION] != ends[:-1])
        begins = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(rows)])).tolist()
        for begin, end in pairwise(begins):
            path, position = self._paths[int(rows[begin, FILE])], int(rows[begin, POSITION])
            if not self.spans or self._base_of_file[path] > self.spans[-1].last_offset:
                self._merged_bases.add(self._base_of_file[path])
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
            add_span(self.spans, run)

    def bases(self, last_bases: Sequence[int], end: int) -> list[int]:
        """The base offsets of the merged log's segments, ascending; at least one.

        A last segment that begins at `end` or later has no batch, as after a roll: the merged log
        has it, too, so that it ends where that copy does. One that begins earlier has batches, and
        `add` has judged it with them. If there is no segment at all, an empty one begins at `end`.

        Args:
            last_bases: the base offsets of the copies' last segments.
            end: the offset after the last batch taken.
        """
        bases = self._merged_bases.union(base for base in last_bases if base >= end)
        return sorted(bases) or [end]


class _HiddenRanges:
    """Offsets that damage of one copy hides, until other copies have supplied as many bytes.

    Attributes:
        ranges: first and last offset of each, int64[n, 2].
        damaged: the damaged bytes of each.
        given_bytes: bytes of batches of other copies that were chosen there.
    """

    def __init__(self, copy: Copy, cut: int) -> None:
        """Take the hidden ranges before the offset where the copy is cut."""
        before = copy.unknown_ranges[:, 0] < cut
        last = cut - 1 if cut < OFFSETS_END else cut
        self.ranges: Final = np.minimum(copy.unknown_ranges[before], last)
        self.damaged: Final = np.array([lost.bytes for lost in copy.unknown], np.int64)[before]
        self.given_bytes: Final = np.zeros_like(self.damaged)

    def give(self, rows: Rows) -> None:
        """Note chosen batches of other copies."""
        # By the last offset: the first one of a compressed message may be a guess.
        at = np.searchsorted(self.ranges[:, 1], rows[:, LAST])
        inside = np.flatnonzero(at < len(self.ranges))
        inside = inside[self.ranges[at[inside], 0] <= rows[inside, LAST]]
        np.add.at(self.given_bytes, at[inside], rows[inside, SIZE])

    @property
    def left(self) -> Rows:
        """The ranges for which no other copy has supplied as many bytes as were damaged."""
        return self.ranges[self.given_bytes < self.damaged]


class MissingOffsets:
    """The offsets that no copy has, which are being collected.

    Attributes:
        is_dense: whether each copy has a record for each offset, but for damage. If not, a gap may
            be the work of compaction, and counts only where damage hides offsets.
    """

    def __init__(self, copies: Sequence[tuple[Copy, int]]) -> None:
        """Begin with the hidden ranges of the copies; `add` and `note` then collect the gaps.

        Args:
            copies: each with the offset where it is cut.
        """
        self._hidden: Final = [_HiddenRanges(copy, cut) for copy, cut in copies]
        self._gaps: list[tuple[int, int]] = []
        self._last_gap_is_rest = False  # it covers all gaps beyond `MISSING_MAX`
        self.is_dense: Final = all(copy.provable.is_dense for copy, _ in copies)

    def add(self, rows: Rows, expected_offsets: Int64s) -> None:
        """Note chosen batches, and a gap wherever one begins later than expected.

        Args:
            rows: sorted by offset.
            expected_offsets: int64[n], for each row the offset after the batch before it.
        """
        for hidden in self._hidden:  # what one copy gives, the damage of another does not lose
            hidden.give(rows)
        at = np.flatnonzero(rows[:, FIRST] > expected_offsets)
        self.note(expected_offsets[at], rows[at, FIRST] - 1)

    def note(self, first: Int64s, last: Int64s) -> None:
        """Note gaps that come after those noted before, int64[n].

        Where logs have gaps without damage, as after compaction, only gaps that touch hidden
        offsets count.
        """
        gaps = np.stack((first, last), axis=1)
        if not self.is_dense:
            gaps = gaps[_are_hidden(gaps, [hidden.ranges for hidden in self._hidden])]
        room = MISSING_MAX - len(self._gaps)
        self._gaps += map(tuple, gaps[:room].tolist())
        if len(gaps) > room:
            self._gaps[-1] = (self._gaps[-1][0], int(gaps[-1, 1]))
            self._last_gap_is_rest = True

    def missing(self, end: int) -> tuple[LostOffsets, ...]:
        """The missing offsets of a log that ends at an offset, once all gaps were noted."""
        hidden_ranges = [hidden.left for hidden in self._hidden]
        gaps = np.array(self._gaps, np.int64).reshape(-1, 2)
        if not self.is_dense:
            gaps = gaps[_are_hidden(gaps, hidden_ranges)]
        at_most = not self.is_dense
        lost_ranges = [LostOffsets(first, last, at_most=at_most) for first, last in gaps.tolist()]
        if self._last_gap_is_rest and lost_ranges:
            lost_ranges[-1] = replace(lost_ranges[-1], at_most=True)
        if any(len(ranges) and ranges[-1, 1] == OFFSETS_END for ranges in hidden_ranges):
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
        epoch: the epoch of the leader.
        start: the first offset that is known to have this epoch.
        least: the lowest offset at which it may have begun.
    """

    epoch: int
    start: int
    least: int


@frozen_dataclass
class Lineage:
    """The epochs of a log.

    Attributes:
        begins: both numbers ascend.
        end: the offset after the last batch.
    """

    begins: tuple[EpochBegin, ...]
    end: int

    @property
    def latest(self) -> int:
        """The latest epoch; -1 if there is none."""
        return self.begins[-1].epoch if self.begins else -1

    @property
    def epochs(self) -> LeaderEpochs:
        """The begins as entries of the checkpoint of epochs."""
        return LeaderEpochs(EpochEntry(begin.epoch, begin.start) for begin in self.begins)

    def joined(self, other: Lineage, cut: int) -> Lineage:
        """This history up to a cut, joined with the epochs of another one."""
        begins = list(self.begins)
        for begin in other.begins:
            if begin.start < cut:
                _add_begin(begins, begin)
        return Lineage(tuple(begins), max(self.end, min(other.end, cut)))


def lineage_of(copy: Copy) -> Lineage:
    """The epochs of a copy, from its sound batches, and where damage is from its checkpoint.

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
        is_later = not begins or entry.epoch > begins[-1].epoch
        if (
            not is_later
            or entry.start_offset == end
            or (entry.start_offset > end and copy.hides_end)
        ):
            _add_begin(begins, EpochBegin(entry.epoch, entry.start_offset, entry.start_offset))
    return Lineage(tuple(begins), end)


def _add_begin(begins: list[EpochBegin], begin: EpochBegin) -> None:
    """Add the begin of an epoch if it fits between its neighbours; or narrow a present one.

    The neighbour after it cannot have begun before it, so its `least` rises.
    """
    at = bisect_left(begins, begin.epoch, key=lambda epoch_begin: epoch_begin.epoch)
    same_epoch = begins[at] if at < len(begins) and begins[at].epoch == begin.epoch else None
    next_at = at + (same_epoch is not None)
    next_begin = begins[next_at] if next_at < len(begins) else None
    if at and begin.start <= begins[at - 1].start:
        return
    if next_begin is not None and begin.start >= next_begin.start:
        return
    if same_epoch is not None:
        if not same_epoch.least <= begin.start <= same_epoch.start:
            return
        begin = EpochBegin(begin.epoch, begin.start, max(begin.least, same_epoch.least))
    elif next_begin is not None and begin.start < next_begin.least:
        return
    begins[at:next_at] = [begin]
    if next_begin is not None:
        least = max(next_begin.least, min(begin.start, next_begin.start))
        begins[at + 1] = EpochBegin(next_begin.epoch, next_begin.start, least)


def divergence(leader: Lineage, follower: Lineage) -> int | None:
    """The offset to which a follower is cut; None if no epochs show one.

    Args:
        leader: the history of the copy with the latest epoch.
        follower: the history of a copy with that epoch or an earlier one.
    """
    common = _truncation(leader, follower)
    if common == UNDEFINED or common.start_offset >= follower.end:
        return None
    cut = common.start_offset
    at = bisect_right(leader.begins, common.epoch, key=lambda begin: begin.epoch)
    return min([cut, *(begin.least for begin in leader.begins[at : at + 1])])


def _truncation(leader: Lineage, follower: Lineage) -> EpochEntry:
    """The last epoch that both have, and where the first of both ends it; -1 if there is none."""
    epochs, follower_epochs = leader.epochs, follower.epochs
    end, epoch = follower.end, follower.latest
    while True:  # each turn asks for a lower epoch
        leader_entry = epochs.end_offset_for(epoch, leader.end)
        follower_entry = follower_epochs.end_offset_for(leader_entry.epoch, end)
        if UNDEFINED in (leader_entry, follower_entry):
            return UNDEFINED
        end = min(follower_entry.start_offset, end)
        if follower_entry.epoch == leader_entry.epoch:
            return EpochEntry(follower_entry.epoch, min(leader_entry.start_offset, end))
        epoch = follower_entry.epoch


def proved_by_each_other(copies: Sequence[Copy]) -> list[Copy]:
    """Read copies again as long as other copies prove more of their batches; return the copies.

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
        # A value may hold a copy of a batch that comes after it, so the last place counts.
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

    These batches have a higher leader epoch, and the epochs checkpoint beside says that it began
    before them: so a later leader may have written other records there.
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
    """The sound batches of a copy that were left out for the reasons given, in file order."""
    numbers = {path: number for number, path in enumerate(copy.files)}
    runs = [span for span in copy.provable.unprovable if span.reason in reasons]
    tables = [
        rows_of(table, numbers[run.path], run.first_offset) for run, table in provable_tables(runs)
    ]
    return np.concatenate(tables) if tables else NOTHING


def _keys_within(copy: Copy, rows: Rows) -> Iterator[bytes]:
    """The keys of the batches of a copy whose offsets are within those of some rows."""
    first, last = int(rows[:, FIRST].min()), int(rows[:, LAST].max())
    in_doubt = readable_rows(copy, "offset-order")
    for table in (*copy.tables(), in_doubt):
        yield from keys_of(table[(table[:, LAST] >= first) & (table[:, FIRST] <= last)])


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
        undecided: how many conflicts are not decided.
        expected: the offset after the last batch taken.
        taken: how many batches and how many bytes of each copy are chosen, int64[copies, 2].
    """

    def __init__(self, ranked: Sequence[Ranked], start: int) -> None:
        """Start before the first batch.

        Args:
            ranked: the copies, sorted by rank.
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
        self._epochs: Final = [_epoch_bounds(ranked_copy.history) for ranked_copy in ranked]
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
        """Summaries of the sound batches that are not chosen, one for each copy and reason."""
        return tuple(self._left.values())

    def run(self) -> None:
        """Choose the batches of all windows.

        Raises:
            KsegError, OSError: a file has changed, or is gone.
        """
        # Sorted by rank, but the preferred copy is first.
        order = sorted(range(len(self._ranked)), key=lambda at: not self._ranked[at].is_preferred)
        for _, sides in windows([ranked_copy.copy for ranked_copy in self._ranked]):
            chosen = NOTHING
            for at in order:
                chosen = self._add_from_copy(chosen, at, self._offered_batches(at, sides[at]))
            self._append(chosen)

    # ---- one copy in a window --------------------------------------------------------------------

    def _offered_batches(self, at: int, rows: Rows) -> Rows:
        """The batches of a copy that may be chosen; the others are noted as left out.

        In the result, file numbers count through the files of all copies.
        """
        rows = rows.copy()
        rows[:, FILE] += self._bounds[at]
        rows = self._leave_out(at, rows, rows[:, LAST] < self.start, "deleted")
        rows = self._leave_out(at, rows, rows[:, LAST] >= self._ranked[at].cut, "diverged")
        # A window that has no common end is split: a batch chosen before may reach into this one.
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

    def _resolve_clashes(self, chosen: Rows, number: int, clashing: Rows) -> None:
        """Leave out batches with offsets of chosen ones; note a conflict unless the epoch is lower.

        The chosen one stays in any case: of two batches in conflict, nothing says which is right,
        unless the chosen one is the preferred copy's.

        Args:
            chosen: the batches chosen so far.
            number: the number of the copy that `clashing` is from.
            clashing: batches of that copy, each with an offset that a chosen one has.
        """
        rivals = chosen[np.searchsorted(chosen[:, LAST], clashing[:, FIRST])]
        lower = clashing[:, EPOCH] < rivals[:, EPOCH]
        rivals = rivals[~lower]
        clashing = self._leave_out(number, clashing, lower, "lower-epoch")
        is_decided = self._owners(rivals) == self._preferred
        self.undecided += int((~is_decided).sum())
        room = CONFLICTS_MAX - len(self.conflicts)
        for rival, row, decided in zip(
            rivals[:room], clashing[:room], is_decided[:room].tolist(), strict=True
        ):
            self.conflicts.append(
                Conflict(
                    (BatchSeen.of(rival, self._files), BatchSeen.of(row, self._files)), decided
                )
            )
        self._leave_out(number, clashing, is_decided, "not-preferred")

    def _is_out_of_order(self, at: int, rows: Rows) -> Bools:
        """Which batches would make epochs decrease, after the copies of higher rank; bool[n].

        A batch's epoch must be between the epochs that begin before and after its first offset.
        """
        starts, epochs = self._epochs[at]
        epoch_number = np.searchsorted(starts, rows[:, FIRST], side="right")
        wrong: Bools = rows[:, EPOCH] < epochs[epoch_number]
        return wrong | (rows[:, EPOCH] > epochs[epoch_number + 1])

    def _leave_out(self, at: int, rows: Rows, mask: Bools, why: str) -> Rows:
        """Note the masked batches as left out; return the others."""
        left_out = rows[mask]
        if len(left_out):
            path = self._ranked[at].copy.path
            first, last = int(left_out[0, FIRST]), int(left_out[-1, LAST])
            left_before = self._left.get((path, why), LeftOut(path, why, first, last, 0, 0))
            self._left[path, why] = replace(
                left_before,
                last_offset=last,
                batches=left_before.batches + len(left_out),
                bytes=left_before.bytes + int(left_out[:, SIZE].sum()),
            )
        return rows[~mask]

    # ---- chosen batches --------------------------------------------------------------------------

    def _append(self, rows: Rows) -> None:
        """Append the chosen batches of a window to the merged log."""
        if not len(rows):
            return
        owners = self._owners(rows)
        np.add.at(self.taken[:, 0], owners, 1)
        np.add.at(self.taken[:, 1], owners, rows[:, SIZE])
        expected_offsets = np.concatenate(([self.expected], rows[:-1, LAST] + 1))
        self.gaps.add(rows, expected_offsets)
        self.runs.add(rows)
        self.expected = int(rows[-1, LAST]) + 1

    def _owners(self, rows: Rows) -> Int64s:
        """The number of each batch's copy."""
        return np.searchsorted(self._bounds, rows[:, FILE], side="right") - 1


def _epoch_bounds(history: Lineage | None) -> tuple[Int64s, Int64s]:
    """Where epochs begin, int64[n]; these epochs between two sentinels, int64[n + 2].

    If k epochs begin at or before an offset, `epochs[k]` and `epochs[k + 1]` bound its epoch.
    """
    begins = () if history is None else history.begins
    starts = np.array([begin.start for begin in begins], np.int64)
    epochs = np.array([INT64_MIN, *(begin.epoch for begin in begins), INT64_MAX], np.int64)
    return starts, epochs


def _append_of(header: BatchHeader) -> tuple[object, ...]:
    """The fields of a batch that compaction does not change; if equal, two are of one append."""
    producer = header.producer_id, header.producer_epoch, header.base_sequence
    kinds = header.magic, header.is_transactional, header.is_control, header.leader_epoch
    return header.base_offset, header.last_offset, *producer, *kinds
