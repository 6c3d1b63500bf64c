"""A pair of copies of a partition, compared: their batches, and the records in these.

Two copies are compared a window of offsets at a time, without a loop over batches. A batch is the
same in both if all fields of its headers but the leader epoch are equal, its checksum included; so
no record is read. The batches that only one side has are

    differing   the other copy has another batch with some of its offsets
    ahead       its offsets are beyond the end of the other copy
    unknown     its offsets are where the other copy is damaged
    lacking     none of these: the other copy lacks the batch

With `--records`, the records of differing and lacking batches are compared by their offsets.
Records before the later log start of both copies are not compared; a log start that differs
is a difference of its own.

The values have the fields of `kseg diff --json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from kseg.constants import Bools, Int64s
from kseg.documents import Documented, fields_of, frozen_dataclass
from kseg.format.take import take_binary, take_headers, take_rows
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns
from kseg.log.copies import (
    EPOCH,
    FILE,
    FIRST,
    LAST,
    OFFSETS_END,
    POSITION,
    SIZE,
    BatchSeen,
    Copy,
    overlapping,
    touches,
    twins,
    without,
)
from kseg.log.salvage import LostOffsets

#: The relation of a copy to the first one; a pair has the last relation that holds.
RELATIONS: Final = {
    "same": "both have the same records",
    "start": "one of both begins later, and has the same records from there on",
    "prefix": "one of both ends earlier, and has the same records up to there",
    "unknown": "nothing differs, but damaged bytes hide records",
    "holes": "one of both lacks records that the other has",
    "epochs": "the same records under other leader epochs",
    "diverged": "both have records at the same offset, and these differ",
    "other-topic": "a topic of the same name with another id; nothing was compared",
    "absent": "there is no such partition",
    "unreadable": "it cannot be read",
}
#: Rows of batches: of the first copy, and of the other one.
_Sides = tuple[Int64s, Int64s]
#: So many ranges of offsets of a kind are listed one by one; all are counted.
LISTED_MAX: Final = 100


class OffsetRange(NamedTuple):
    """Offsets from the first to the last one."""

    first_offset: int
    last_offset: int


@frozen_dataclass
class Difference(Documented):
    """Offsets where both copies have records that differ.

    Attributes:
        first_offset, last_offset: the first and the last of these offsets.
        batches: the first batch there in the first copy, and in the other one.
    """

    first_offset: int
    last_offset: int
    batches: tuple[BatchSeen, BatchSeen]


@dataclass(slots=True)
class Ranges(Documented):
    """Ranges of offsets of one kind, in ascending order; bounded in size, whatever their number.

    Attributes:
        listed: the first `LISTED_MAX` ranges.
        count: the number of all ranges.
        batches: the number of batches in all ranges; with `--records`, of records.
        end: the last offset of the last range; None if there is no range.
    """

    DOCUMENT = "ranges=listed count batches"

    listed: list[OffsetRange] = field(default_factory=list)
    count: int = 0
    batches: int = 0
    end: int | None = None

    def add(self, first: Int64s, last: Int64s, batches: int) -> None:
        """Add ranges that begin after the start of the last range so far; join those that touch.

        Args:
            first, last: the first and the last offset of each range, int64[n].
            batches: the number of batches, or of records, in these ranges.
        """
        if not len(first):
            return
        first, last = joined(first, last)
        self.batches += batches
        extends_last = self.end is not None and int(first[0]) <= self.end + 1
        if extends_last and self.count == len(self.listed):
            self.listed[-1] = self.listed[-1]._replace(last_offset=int(last[0]))
        self.count += len(first) - extends_last
        new = slice(int(extends_last), extends_last + LISTED_MAX - len(self.listed))
        self.listed += map(OffsetRange, first[new].tolist(), last[new].tolist())
        self.end = int(last[-1])


def _two_ranges() -> tuple[Ranges, Ranges]:
    return Ranges(), Ranges()


@frozen_dataclass
class CopySeen(Documented):
    """One copy of a partition.

    Attributes:
        path: its directory.
        topic_id: the id in its `partition.metadata`; None if that has none.
        log_start_offset, log_end_offset: where its log begins, and where its sound batches end.
        segments, bytes, batches: the numbers of segments, bytes and batches that were read.
        unknown: the offsets of damaged bytes.
        error: why it cannot be read; None if it can.
    """

    path: str
    topic_id: UUID | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    unknown: tuple[LostOffsets, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The document, as in `--json`."""
        document = Documented.to_dict(self)
        document |= {
            "unknown": document["unknown"][:LISTED_MAX],
            "unknown_count": len(self.unknown),
        }
        return document | {"error": document.pop("error")}


@frozen_dataclass
class Compared(Documented):
    """A copy compared with the first copy of its partition.

    Attributes:
        copy: the copy that is not the first one.
        relation: a word of `RELATIONS`.
        same_batches: the number of batches that both have.
        differences: the first `LISTED_MAX` ranges where both have records that differ.
        difference_count: the number of all such ranges.
        epochs: where the same records have other leader epochs.
        lacks: offsets that the first copy has and the other one lacks; and the other way round.
        ahead: batches of the first copy beyond the end of the other one, and the other way round.
        compacted: with `--records`, offsets that the other copy lacks because of compaction, and
            those that the first copy lacks because of it; they are not differences.
    """

    copy: CopySeen
    relation: str
    same_batches: int = 0
    differences: tuple[Difference, ...] = ()
    difference_count: int = 0
    epochs: Ranges = field(default_factory=Ranges)
    lacks: tuple[Ranges, Ranges] = field(default_factory=_two_ranges)
    ahead: tuple[int, int] = (0, 0)
    compacted: tuple[Ranges, Ranges] = field(default_factory=_two_ranges)

    @property
    def divergence(self) -> Difference | None:
        """The first range where both copies differ; None if there is none."""
        return self.differences[0] if self.differences else None

    def to_dict(self) -> dict[str, Any]:
        """The document, as in `--json`."""
        return {
            **self.copy.to_dict(),
            **fields_of(self, "relation same_batches differences difference_count epochs"),
            "lacks": self.lacks[0].to_dict(),
            "first_lacks": self.lacks[1].to_dict(),
            "behind_batches": self.ahead[0],
            "ahead_batches": self.ahead[1],
            "compacted": self.compacted[0].to_dict(),
            "first_compacted": self.compacted[1].to_dict(),
        }


def joined(first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """Join ranges of offsets that touch or overlap.

    Args:
        first, last: the first and the last offset of each range, int64[n], in any order.

    Returns:
        The first and the last offsets of the joined ranges, which ascend.
    """
    order = np.argsort(first, kind="stable")
    first = first[order]
    last = np.maximum.accumulate(last[order])
    begins = np.ones(len(first), np.bool_)
    begins[1:] = first[1:] > last[:-1] + 1
    ends = np.append(begins[1:], True)[: len(first)]
    return first[begins], last[ends]


_FIELDS: Final = ("offset", "leader_epoch", "timestamp", "key", "value", "headers")
_NONE: Final = np.empty(0, np.int64)


def _pieces(copy: Copy, rows: Int64s) -> Iterator[RecordColumns]:
    """The records of some batches as columns, a bounded piece at a time.

    Args:
        copy: the copy that has the batches.
        rows: the batches; those that follow each other in a file are read at once.
    """
    if not len(rows):
        return
    ends = rows[:, POSITION] + rows[:, SIZE]
    breaks = (rows[1:, POSITION] != ends[:-1]) | (rows[1:, FILE] != rows[:-1, FILE])
    run_starts = np.flatnonzero(np.concatenate(([True], breaks)))
    run_lasts = np.append(run_starts[1:], len(rows)) - 1
    for start_row, last_row in zip(run_starts.tolist(), run_lasts.tolist(), strict=True):
        with copy.open_segment(int(rows[start_row, FILE])) as segment:
            yield from segment.read(
                start_position=int(rows[start_row, POSITION]),
                end_position=int(ends[last_row]),
                columns=_FIELDS,
                control=True,
                verify_crc=False,
            )


def _align_pieces(
    first: Iterator[RecordColumns], other: Iterator[RecordColumns]
) -> Iterator[tuple[RecordColumns | None, RecordColumns | None]]:
    """Split the pieces of two readers so that both pieces of a pair end at the same offset.

    A piece of a pair is None if its reader has no record up to that offset.
    """
    pending = [next(first, None), next(other, None)]
    sources = (first, other)
    while pending[0] is not None or pending[1] is not None:
        until = min(OFFSETS_END if piece is None else int(piece.offset[-1]) for piece in pending)
        aligned: list[RecordColumns | None] = []
        for side, piece in enumerate(pending):
            count = 0 if piece is None else int(np.searchsorted(piece.offset, until, side="right"))
            if piece is None or count == len(piece):
                aligned.append(piece)
                pending[side] = None if piece is None else next(sources[side], None)
                continue
            aligned.append(take_rows(piece, np.arange(count)) if count else None)
            pending[side] = take_rows(piece, np.arange(count, len(piece)))
        yield aligned[0], aligned[1]


def _compare_records(
    copies: tuple[Copy, Copy],
    sides: tuple[Int64s, Int64s],
    pieces: tuple[RecordColumns | None, RecordColumns | None],
) -> tuple[Int64s, Int64s, list[Int64s], list[Int64s]]:
    """Offsets of differences between the records of two copies, int64[n], ascending.

    Args:
        copies: the first one, and the other one.
        sides: the batches of each copy that are compared by their records.
        pieces: the records of each copy between the same two offsets; None if there are none.

    Returns:
        The offsets of records that differ; of equal records under another leader epoch; for each
        copy, of records that only it has and the other one lacks; and for each copy, of records
        that only it has because compaction removed them from the other one.
    """
    offsets = [_NONE if piece is None else piece.offset for piece in pieces]
    common, mine, theirs = np.intersect1d(offsets[0], offsets[1], return_indices=True)
    differing = epochs = _NONE
    if pieces[0] is not None and pieces[1] is not None and len(common):
        of_first = take_rows(pieces[0], mine)
        of_other = take_rows(pieces[1], theirs)
        differs = _differing(of_first, of_other)
        differing = common[differs]
        epochs = common[~differs & (of_first.leader_epoch != of_other.leader_epoch)]
    lacks = []
    compacted = []
    for side in (0, 1):
        only_here = np.setdiff1d(offsets[side], common, assume_unique=True)
        is_compacted = _is_compacted(only_here, copies[1 - side], sides[1 - side])
        lacks.append(only_here[~is_compacted])
        compacted.append(only_here[is_compacted])
    return differing, epochs, lacks, compacted


def _is_compacted(offsets: Int64s, other: Copy, rows: Int64s) -> Bools:
    """bool[n]: which offsets the other copy lacks because of compaction.

    These offsets are below its clean offset, or inside one of its batches: Kafka writes no
    batch with a gap, but when the cleaner removes records of a batch, the batch keeps its first
    and its last offset.

    Args:
        offsets: offsets of records that the other copy lacks.
        other: the other copy.
        rows: its batches there.
    """
    batch = np.searchsorted(rows[:, LAST], offsets)  # the first batch that ends there or later
    inside = np.zeros(len(offsets), np.bool_)
    has_batch = batch < len(rows)
    inside[has_batch] = rows[batch[has_batch], FIRST] <= offsets[has_batch]
    return inside | (offsets < other.clean_offset)


def _differing(first: RecordColumns, other: RecordColumns) -> Bools:
    """bool[n]: which records differ between two pieces of the same length."""
    differs: Bools = first.timestamp != other.timestamp
    differs |= _differing_binary(first.key, other.key)
    differs |= _differing_binary(first.value, other.value)
    differs |= _differing_headers(first.headers, other.headers)
    return differs


def _differing_binary(first: BinaryColumn, other: BinaryColumn) -> Bools:
    """bool[n]: which values differ, in their sizes (null has its own) or in their bytes."""
    sizes = first.sizes()
    differs: Bools = sizes != other.sizes()
    if not differs.any() and np.array_equal(first.data, other.data):
        return differs
    same_size = np.flatnonzero(~differs)
    mine = take_binary(first, same_size)
    theirs = take_binary(other, same_size)
    byte_positions = np.flatnonzero(mine.data != theirs.data)
    rows = np.searchsorted(mine.offsets, byte_positions, side="right") - 1
    differs[same_size[rows]] = True
    return differs


def _differing_headers(first: HeadersColumn, other: HeadersColumn) -> Bools:
    """bool[n]: which records differ in the number of their headers, their names or their values."""
    counts = np.diff(first.offsets)
    differs: Bools = counts != np.diff(other.offsets)
    same_count = np.flatnonzero(~differs)
    mine = take_headers(first, same_count)
    theirs = take_headers(other, same_count)
    header_differs = _differing_binary(mine.keys, theirs.keys)
    header_differs |= _differing_binary(mine.values, theirs.values)
    record_of_header = np.repeat(same_count, counts[same_count])
    differs[record_of_header[header_differs]] = True
    return differs


class Pair:
    """A copy and the first copy of its partition, as far as they were compared.

    A `side` is 0 for the first copy and 1 for the other one: the index into each pair of values.
    `_lacks[side]` and `_compacted[side]` have offsets that only this side has; `_ahead[side]`
    counts what it has beyond the end of the other side.
    """

    def __init__(self, first: Copy, other: Copy, *, records: bool) -> None:
        """Begin a comparison.

        Args:
            first, other: the copies.
            records: compare the records of batches that differ, and of those that one side lacks.
        """
        self._copies: Final = (first, other)
        self._start: Final = max(first.start_offset, other.start_offset)
        self._unknown: Final = (first.unknown_ranges, other.unknown_ranges)
        self._by_records: Final = records
        self._same = 0
        self._epochs = Ranges()
        self._lacks = _two_ranges()
        self._compacted = _two_ranges()
        self._ahead = [0, 0]
        self._differing = Ranges()
        self._batches: list[tuple[BatchSeen, BatchSeen]] = []

    def feed(self, first: Int64s, other: Int64s) -> None:
        """Compare the batches of a window of offsets.

        Args:
            first, other: the rows of all batches of each copy in the window.
        """
        mine, theirs = twins(first, other)
        self._same += len(mine)
        self._note_epochs(first[mine], other[theirs])
        if len(mine) == len(first) == len(other):
            return
        left = (
            self._after_both_starts(without(first, mine)),
            self._after_both_starts(without(other, theirs)),
        )
        differs = (overlapping(left[0], left[1]), overlapping(left[1], left[0]))
        lacking = (
            self._lacking(0, left[0][~differs[0]]),
            self._lacking(1, left[1][~differs[1]]),
        )
        differing = (left[0][differs[0]], left[1][differs[1]])
        if self._by_records:
            self._feed_records(differing, lacking)
            return
        self._note_differing(differing, *_offsets_of(np.concatenate(differing)))
        for side in (0, 1):
            self._lacks[side].add(*_offsets_of(lacking[side]))

    def _after_both_starts(self, rows: Int64s) -> Int64s:
        """The batches after the start of both logs; records before it were deleted from one."""
        return rows[rows[:, LAST] >= self._start]

    def _note_epochs(self, first: Int64s, other: Int64s) -> None:
        """Note batches that are the same but for their leader epochs."""
        differ = first[:, EPOCH] != other[:, EPOCH]
        if differ.any():
            rows = self._after_both_starts(first[differ])
            self._epochs.add(*_offsets_of(rows))

    def _lacking(self, side: int, rows: Int64s) -> Int64s:
        """The batches that the other side lacks, out of those that overlap none of its batches.

        Args:
            side: the side that has the batches.
            rows: the batches.
        """
        return rows[self._filter_lacked(side, rows[:, FIRST], rows[:, LAST])]

    def _filter_lacked(self, side: int, first: Int64s, last: Int64s) -> Bools:
        """bool[n]: which ranges of offsets the other side certainly lacks.

        Ranges beyond its end are not lacking, but counted in `_ahead`; nor are ranges that touch
        its damaged bytes, where it may have had the same records.

        Args:
            side: the side that has the ranges.
            first, last: the first and the last offset of each range, int64[n].
        """
        other = 1 - side
        is_beyond = first >= self._copies[other].end_offset
        self._ahead[side] += int(is_beyond.sum())
        return ~is_beyond & ~touches(first, last, self._unknown[other])

    def _note_differing(self, sides: _Sides, first: Int64s, last: Int64s, count: int) -> None:
        """Note ranges of offsets where both sides differ, with the first batch of each side there.

        Args:
            sides: the differing batches of both sides.
            first, last: the first and the last offset of each range, int64[n].
            count: the number of batches, or of records, in these ranges.
        """
        self._differing.add(first, last, count)
        for first_offset, _ in self._differing.listed[len(self._batches) :]:
            of_first, of_other = (
                _batch_from(copy, rows, first_offset)
                for copy, rows in zip(self._copies, sides, strict=True)
            )
            self._batches.append((of_first, of_other))

    def _feed_records(self, differing: _Sides, lacking: _Sides) -> None:
        """Compare the records of differing batches, and of batches that one side lacks.

        Notes the offsets of records that differ, that differ only in their leader epoch, that one
        side lacks, and that compaction has removed from one side.
        """
        sides = (_merge_rows(differing[0], lacking[0]), _merge_rows(differing[1], lacking[1]))
        pieces = (_pieces(copy, rows) for copy, rows in zip(self._copies, sides, strict=True))
        for aligned in _align_pieces(*pieces):
            differs, epochs, lacks, compacted = _compare_records(self._copies, sides, aligned)
            self._note_differing(differing, differs, differs, len(differs))
            self._epochs.add(epochs, epochs, len(epochs))
            for side in (0, 1):
                for ranges, offsets in (
                    (self._lacks[side], lacks[side]),
                    (self._compacted[side], compacted[side]),
                ):
                    is_lacked = self._filter_lacked(side, offsets, offsets)
                    offsets = offsets[is_lacked & (offsets >= self._start)]
                    ranges.add(offsets, offsets, len(offsets))

    def value(self, other: CopySeen) -> Compared:
        """The result of the comparison.

        Args:
            other: the facts about the other copy.
        """
        listed = zip(self._differing.listed, self._batches, strict=True)
        return Compared(
            other,
            self._relation(),
            self._same,
            tuple(Difference(*offsets, batches) for offsets, batches in listed),
            self._differing.count,
            self._epochs,
            self._lacks,
            (self._ahead[0], self._ahead[1]),
            self._compacted,
        )

    def _relation(self) -> str:
        """The last word of `RELATIONS` that holds."""
        if self._differing.count:
            return "diverged"
        if self._epochs.count:
            return "epochs"
        if self._lacks[0].count or self._lacks[1].count:
            return "holes"
        if any(copy.unknown for copy in self._copies):
            return "unknown"
        if any(self._ahead):
            return "prefix"
        first, other = self._copies
        return "same" if first.start_offset == other.start_offset else "start"


def _offsets_of(rows: Int64s) -> tuple[Int64s, Int64s, int]:
    """The first and the last offset of each batch, and their number: arguments of `Ranges.add`."""
    return rows[:, FIRST], rows[:, LAST], len(rows)


def _merge_rows(first: Int64s, other: Int64s) -> Int64s:
    """Two sets of batches of one copy as one, sorted by offset."""
    rows = np.concatenate((first, other))
    return rows[np.argsort(rows[:, LAST], kind="stable")]


def _batch_from(copy: Copy, rows: Int64s, offset: int) -> BatchSeen:
    """The first batch of a copy that ends at an offset or later; the last one if none does."""
    at = min(int(np.searchsorted(rows[:, LAST], offset)), len(rows) - 1)
    return copy.seen(rows[at])
