"""A pair of copies of a partition, compared: their batches, and the records in these.

Two copies are compared a window of offsets at a time, without a loop over batches. A batch is the
same in both if all fields of its headers but the leader epoch are equal, its checksum included; so
no record is read. The batches that only one side has are

    differing   the other copy has other batches with offsets of it
    ahead       it lies beyond the end of the other copy
    unknown     it lies where the other copy is damaged
    lacking     neither of these: the other copy lacks it

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
#: Values of the first copy, and of the other one.
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
        first_offset, last_offset: from the first to the last one.
        batches: the first batch there of the first copy, and of the other one.
    """

    first_offset: int
    last_offset: int
    batches: tuple[BatchSeen, BatchSeen]


@dataclass(slots=True)
class Ranges(Documented):
    """Ranges of offsets of one kind, by offset; bounded in size, whatever their number.

    Attributes:
        listed: the first `LISTED_MAX` of them.
        count: how many there are.
        batches: how many batches lie in them; with `--records`, how many records.
        end: the last offset of the last one; None without any.
    """

    DOCUMENT = "ranges=listed count batches"

    listed: list[OffsetRange] = field(default_factory=list)
    count: int = 0
    batches: int = 0
    end: int | None = None

    def add(self, first: Int64s, last: Int64s, batches: int) -> None:
        """Note ranges after those before."""
        if not len(first):
            return
        first, last = joined(first, last)
        self.batches += batches
        goes_on = self.end is not None and int(first[0]) <= self.end + 1  # of the last range
        if goes_on and self.count == len(self.listed):
            self.listed[-1] = self.listed[-1]._replace(last_offset=int(last[0]))
        self.count += len(first) - goes_on
        new = slice(int(goes_on), goes_on + LISTED_MAX - len(self.listed))
        self.listed += map(OffsetRange, first[new].tolist(), last[new].tolist())
        self.end = int(last[-1])


def _two_ranges() -> tuple[Ranges, Ranges]:
    return Ranges(), Ranges()


@frozen_dataclass
class CopySeen(Documented):
    """One copy of a partition.

    Attributes:
        path: its directory.
        topic_id: as `partition.metadata` says; None without one.
        log_start_offset, log_end_offset: where its log begins, and where its sound batches end.
        segments, bytes, batches: how much was read.
        unknown: offsets that lie in damaged bytes.
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
    """A copy against the first one of its partition.

    Attributes:
        copy: the other one.
        relation: a word of `RELATIONS`.
        same_batches: how many both have.
        differences: where both have records that differ, the first `LISTED_MAX` of them.
        difference_count: the number of all such ranges.
        epochs: where the same records have other leader epochs.
        lacks: offsets that the first copy has and the other one lacks; and the other way round.
        ahead: batches of the first copy beyond the end of the other one, and the other way round.
        compacted: with `--records`, offsets that the other copy lacks because of compaction, and
            the first one; they are not differences.
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
        """Where both differ first."""
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
    """Ranges with those joined that touch or overlap.

    Args:
        first, last: of each range, int64[n], in any order.

    Returns:
        The same offsets as ranges that ascend.
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
    """The records of batches as columns, a bounded piece at a time."""
    if not len(rows):
        return
    ends = rows[:, POSITION] + rows[:, SIZE]
    breaks = (rows[1:, POSITION] != ends[:-1]) | (rows[1:, FILE] != rows[:-1, FILE])
    begins = np.flatnonzero(np.concatenate(([True], breaks)))
    lasts = np.append(begins[1:], len(rows)) - 1
    for begin, last in zip(begins.tolist(), lasts.tolist(), strict=True):
        with copy.open_segment(int(rows[begin, FILE])) as segment:
            yield from segment.read(
                start_position=int(rows[begin, POSITION]),
                end_position=int(ends[last]),
                columns=_FIELDS,
                control=True,
                verify_crc=False,
            )


def _align_pieces(
    first: Iterator[RecordColumns], other: Iterator[RecordColumns]
) -> Iterator[tuple[RecordColumns | None, RecordColumns | None]]:
    """Cut the pieces of two readers so that the pieces of a pair end at the same offset.

    None stands for a reader that has no record up to there.
    """
    held = [next(first, None), next(other, None)]
    sources = (first, other)
    while held[0] is not None or held[1] is not None:
        until = min(OFFSETS_END if piece is None else int(piece.offset[-1]) for piece in held)
        taken: list[RecordColumns | None] = []
        for side, piece in enumerate(held):
            count = 0 if piece is None else int(np.searchsorted(piece.offset, until, side="right"))
            if piece is None or count == len(piece):
                taken.append(piece)
                held[side] = None if piece is None else next(sources[side], None)
                continue
            taken.append(take_rows(piece, np.arange(count)) if count else None)
            held[side] = take_rows(piece, np.arange(count, len(piece)))
        yield taken[0], taken[1]


def _compare_records(
    copies: tuple[Copy, Copy],
    sides: tuple[Int64s, Int64s],
    pieces: tuple[RecordColumns | None, RecordColumns | None],
) -> tuple[Int64s, Int64s, list[Int64s], list[Int64s]]:
    """Offsets of differences between the records of two copies, int64[n], ascending.

    Args:
        copies: the first one, and the other one.
        sides: the batches of each that are compared by their records.
        pieces: records of these with the same bounds of offsets; None for none.

    Returns:
        Records that differ; the same ones under another leader epoch; and for each copy those that
        it has and the other one lacks, and those that compaction has taken from the other one.
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
        alone = np.setdiff1d(offsets[side], common, assume_unique=True)
        is_compacted = _is_compacted(alone, copies[1 - side], sides[1 - side])
        lacks.append(alone[~is_compacted])
        compacted.append(alone[is_compacted])
    return differing, epochs, lacks, compacted


def _is_compacted(offsets: Int64s, other: Copy, rows: Int64s) -> Bools:
    """bool[n]: offsets that the other copy lacks because of compaction.

    These offsets are below its clean offset, or inside one of its batches: Kafka writes no
    batch with a gap, but the cleaner keeps the first and the last offset of one that it thins out.
    """
    at = np.searchsorted(rows[:, LAST], offsets)
    inside = np.zeros(len(offsets), np.bool_)
    is_inside = at < len(rows)
    inside[is_inside] = rows[at[is_inside], FIRST] <= offsets[is_inside]
    return inside | (offsets < other.clean_offset)


def _differing(first: RecordColumns, other: RecordColumns) -> Bools:
    """bool[n]: which of the records of two pieces of one length differ."""
    differs: Bools = first.timestamp != other.timestamp
    differs |= _differing_binary(first.key, other.key)
    differs |= _differing_binary(first.value, other.value)
    differs |= _differing_headers(first.headers, other.headers)
    return differs


def _differing_binary(first: BinaryColumn, other: BinaryColumn) -> Bools:
    """bool[n]: which values differ: by their sizes, null among them, and else by their bytes."""
    sizes = first.sizes()
    differs: Bools = sizes != other.sizes()
    if not differs.any() and np.array_equal(first.data, other.data):
        return differs
    alike = np.flatnonzero(~differs)
    mine = take_binary(first, alike)
    theirs = take_binary(other, alike)
    at = np.flatnonzero(mine.data != theirs.data)
    rows = np.searchsorted(mine.offsets, at, side="right") - 1
    differs[alike[rows]] = True
    return differs


def _differing_headers(first: HeadersColumn, other: HeadersColumn) -> Bools:
    """bool[n]: which records have other headers: by their number, and else by names and values."""
    counts = np.diff(first.offsets)
    differs: Bools = counts != np.diff(other.offsets)
    alike = np.flatnonzero(~differs)
    mine = take_headers(first, alike)
    theirs = take_headers(other, alike)
    inner = _differing_binary(mine.keys, theirs.keys)
    inner |= _differing_binary(mine.values, theirs.values)
    owners = np.repeat(alike, counts[alike])
    differs[owners[inner]] = True
    return differs


class Pair:
    """A copy and the first one of its partition, as far as they were compared.

    Tuples and numbers of a side have the first copy at 0, and the other one at 1.
    """

    def __init__(self, first: Copy, other: Copy, *, records: bool) -> None:
        """Start before both."""
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
        """Compare the batches of a window, of the first copy and of the other one."""
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
        """Rows that the other copy lacks, from batches that overlap none of its batches."""
        return rows[self._known_to(1 - side, rows[:, FIRST], rows[:, LAST])]

    def _known_to(self, side: int, first: Int64s, last: Int64s) -> Bools:
        """bool[n]: of which ranges a copy knows that it has them or not; counts those after it."""
        is_beyond = first >= self._copies[side].end_offset
        self._ahead[1 - side] += int(is_beyond.sum())
        return ~is_beyond & ~touches(first, last, self._unknown[side])

    def _note_differing(self, sides: _Sides, first: Int64s, last: Int64s, count: int) -> None:
        """Note ranges of offsets, with the first batch of each side in those that are listed."""
        self._differing.add(first, last, count)
        for begins, _ in self._differing.listed[len(self._batches) :]:
            of_first, of_other = (
                _batch_from(copy, rows, begins)
                for copy, rows in zip(self._copies, sides, strict=True)
            )
            self._batches.append((of_first, of_other))

    def _feed_records(self, differing: _Sides, lacking: _Sides) -> None:
        """Compare the records of differing batches, and of batches that one side lacks.

        Adds the offsets to the answer: of records that differ, that differ in their leader epoch
        alone, that one side lacks, and that compaction has removed on one side.
        """
        sides = (_merge_rows(differing[0], lacking[0]), _merge_rows(differing[1], lacking[1]))
        pieces = (_pieces(copy, rows) for copy, rows in zip(self._copies, sides, strict=True))
        for aligned in _align_pieces(*pieces):
            differ, epochs, lacks, compacted = _compare_records(self._copies, sides, aligned)
            self._note_differing(differing, differ, differ, len(differ))
            self._epochs.add(epochs, epochs, len(epochs))
            for side in (0, 1):
                for ranges, offsets in (
                    (self._lacks[side], lacks[side]),
                    (self._compacted[side], compacted[side]),
                ):
                    is_known = self._known_to(1 - side, offsets, offsets)
                    offsets = offsets[is_known & (offsets >= self._start)]
                    ranges.add(offsets, offsets, len(offsets))

    def value(self, other: CopySeen) -> Compared:
        """The result of the comparison."""
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
    """Rows of one copy in their order again."""
    rows = np.concatenate((first, other))
    return rows[np.argsort(rows[:, LAST], kind="stable")]


def _batch_from(copy: Copy, rows: Int64s, offset: int) -> BatchSeen:
    """The first batch that ends at an offset or later."""
    at = min(int(np.searchsorted(rows[:, LAST], offset)), len(rows) - 1)
    return copy.seen(rows[at])
