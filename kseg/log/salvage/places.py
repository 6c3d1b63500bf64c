"""Which batches of a log have a certain place, by their offsets and leader epochs.

No checksum covers a base offset or a leader epoch, so a sound batch may have a wrong one. In a log
both grow in the order of the batches in their files. The batches that all best readings of a
partition have in common stay. A reading leaves out batches until the rest grows. The best readings
leave out the fewest; among these, the other batches follow each other once the left out ones have
their offsets between them. Two best readings that disagree leave all of their batches in doubt.

A batch in doubt is never moved or changed. Nor is one kept that

- has other offsets than its segment, and does not follow the batch before it;
- has offsets that its offset index contradicts, or an epoch that the checkpoint of epochs
  contradicts, where neither contradicts its neighbours;
- lies alone beside the only gap of a dense log, as the last batch may, without an index entry or a
  segment's name for its offsets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice, pairwise
from typing import Final

import numpy as np

from kseg.constants import INT32_MAX, INT64_MAX, Bools, Int64s
from kseg.files.checkpoints import EpochEntry
from kseg.files.index import OffsetEntries
from kseg.format.header import BatchTable
from kseg.log.salvage.values import (
    SegmentSeen,
    Span,
    add_span,
    numbers_of,
    offset_orders,
    provable_tables,
    run_between,
    span_of,
)

#: Whether something beside the log has the offsets of a batch.
Agrees = Callable[[Span], bool]
#: The entries of the offset index of a log file, if there are any.
Index = Callable[[str], OffsetEntries | None]

#: A piece is compared with so many pieces before it.
_BACK_MAX: Final = 4_096
#: One batch more counts more than any number of pieces that follow each other.
_BATCH_SCORE: Final = 1 << 24
#: Counts of readings are compared by their remainders.
_PRIME: Final = INT32_MAX
#: Where a file beside the log contradicts more batches, it is that file that is wrong.
_CONTRADICTED_MAX: Final = 4_096


def place_runs(
    runs: Sequence[Span],
    segments: Sequence[SegmentSeen],
    epochs: Sequence[EpochEntry],
    agrees: Agrees | None,
    index: Index | None = None,
) -> tuple[list[Span], list[Span]]:
    """Find the batches that have a certain place.

    Args:
        runs: in the order of the files; the offsets within each run increase.
        segments: sorted by base offset.
        epochs: the entries of the leader epoch checkpoint beside the log.
        agrees: whether an index entry or the name of a segment has the offsets of a batch; None
            if a batch beside a gap needs no such proof.
        index: returns the entries of a log file's offset index; None to ignore the indexes.

    Returns:
        The runs that have a place, sorted by offset, which is also their order in the files; and
        the other batches, each with a reason.

    Raises:
        CorruptRecordError, UnreadableError: a file has changed since it was read.
    """
    if not runs:
        return [], []
    pieces = list(runs)
    if any(run.last_offset >= other.first_offset for run, other in pairwise(runs)):
        borders = np.array(
            sorted({at for run in runs for at in (run.first_offset, run.last_offset + 1)}), np.int64
        )
        pieces = [piece for run in runs for piece in _split_at_borders(run, borders)]
    stays = _stays_of(pieces, segments)
    placed = [piece for piece, stay in zip(pieces, stays, strict=True) if stay]
    refused = [
        _refusal(piece, placed, hole)
        for piece, hole in _with_holes(pieces, stays, segments[0].base_offset)
    ]
    placed = _join_runs(placed)
    if index is not None:
        differs = partial(_contradicts_index, index=index)
        placed, wrong = _remove_batches(
            placed, _contradicted_batches(placed, differs), "offset-order"
        )
        refused += wrong
    placed, wrong = _remove_batches(
        placed,
        _contradicted_batches(placed, partial(_contradicts_epochs, epochs=epochs)),
        "epoch-order",
    )
    placed, falling = _remove_batches(placed, _with_falling_epochs(placed), "epoch-order")
    refused += wrong + falling
    if agrees is not None:
        placed, beside_gap = _without_doubts(placed, segments, agrees)
        refused += beside_gap
    return placed, refused


# ---- offsets -------------------------------------------------------------------------------------


def _split_at_borders(run: Span, borders: Int64s) -> Iterator[Span]:
    """Split a run at offsets: no piece has offsets on both sides of one, unless it is one batch."""
    first, end = np.searchsorted(borders, (run.first_offset + 1, run.last_offset + 1)).tolist()
    inner = borders[first:end]
    if run.batches == 1 or not len(inner):
        yield run
        return
    cuts = {run.position, run.end}  # positions
    for _, table in provable_tables([run]):
        rows = np.searchsorted(table.last_offset, inner)
        inside = rows < len(table)
        rows, crossed_borders = rows[inside], inner[inside]
        reach = (offset_orders(table)[rows] < crossed_borders).nonzero()[0]
        cuts.update(table.position[rows].tolist())
        cuts.update((table.position[rows[reach]] + table.size[rows[reach]]).tolist())
        inner = inner[~inside]
    for start, stop in pairwise(sorted(cuts)):
        piece = run_between(run, start, stop)
        if piece is not None:
            yield piece


def _stays_of(pieces: Sequence[Span], segments: Sequence[SegmentSeen]) -> list[bool]:
    """Which pieces are in all best readings, and not in a segment of other offsets."""
    first = np.array([piece.first_offset for piece in pieces], np.int64)
    last = np.array([piece.last_offset for piece in pieces], np.int64)
    batches = np.array([piece.batches for piece in pieces], np.int64)
    kinds = _batch_kinds(pieces)
    stays: list[bool] = _in_best_readings(
        first, last, batches, kinds, segments[0].base_offset
    ).tolist()
    ends = [*(segment.base_offset for segment in segments[1:]), INT64_MAX]
    bounds = {
        segment.path: (segment.base_offset, end)
        for segment, end in zip(segments, ends, strict=True)
    }
    before = -1
    for number, piece in enumerate(pieces):
        begin, end = bounds[piece.path]
        is_home = begin <= piece.first_offset and piece.last_offset < end
        stays[number] &= is_home or piece.first_offset == before + 1
        before = piece.last_offset if stays[number] else before
    return stays


def _batch_kinds(pieces: Sequence[Span]) -> Int64s:
    """A number for each piece, int64[n]; pieces of the same batches have the same number."""
    places: dict[tuple[int, int], list[int]] = {}
    for number, piece in enumerate(pieces):
        places.setdefault((piece.first_offset, piece.last_offset), []).append(number)
    kinds = np.arange(len(pieces))
    for numbers in places.values():
        number_of_marks: dict[tuple[tuple[int, ...], ...], int] = {}
        for number in numbers if len(numbers) > 1 else ():
            tables = provable_tables([pieces[number]])
            marks = tuple(mark for _, table in tables for mark in _marks(table))
            kinds[number] = number_of_marks.setdefault(marks, number)
    return kinds


def _in_best_readings(
    first: Int64s,
    last: Int64s,
    batches: Int64s,
    kinds: Int64s,
    begin: int | None,
) -> Bools:
    """Which pieces are in all of the best readings, bool[n].

    Args:
        first, last: int64[n]; in a reading each `first` is larger than the `last` before it.
        batches: how many batches each piece stands for, int64[n].
        kinds: equal for pieces of the same batches, int64[n].
        begin: where the log begins; None where pieces need not follow each other.
    """
    stays = np.ones(len(first), np.bool_)
    # Where all pieces before have lower offsets than all after, neither side decides on the other.
    least = np.minimum.accumulate(first[::-1])[::-1]
    clean = np.flatnonzero(np.maximum.accumulate(last)[:-1] < least[1:]) + 1
    for start, stop in pairwise([0, *clean.tolist(), len(first)]):
        if stop - start > 1:
            part = slice(start, stop)
            around: tuple[int, int | None] | None = None
            if begin is not None:
                ahead = int(last[start - 1]) + 1 if start else begin
                around = ahead, int(first[stop]) if stop < len(first) else None
            stays[part] = _in_all_readings(
                first[part], last[part], batches[part], kinds[part], around
            )
    return stays


def _in_all_readings(
    first: Int64s,
    last: Int64s,
    batches: Int64s,
    kinds: Int64s,
    around: tuple[int, int | None] | None,
) -> Bools:
    """bool[n]: the pieces of one of the best readings that all the best readings have.

    The pieces decide on each other, so all readings are compared at once; see `_in_best_readings`.

    For each piece the best reading that ends in it is found from the best ones that end in a piece
    before it. A piece is in all best readings if as many of them go through it as there are.

    `around` has the offset after the pieces before them, and the first one after them: None
    where there are none. It is None itself where pieces need not follow each other.
    """
    count = len(first)
    begin, end = (-1, None) if around is None else around
    spans = last - first + 1
    # Each number is that of a piece; all readings have one more at the begin, and one at the end.
    ahead_of = np.concatenate(([0, 0], np.cumsum(spans)))
    first = np.concatenate(([0], first, [INT64_MAX if end is None else end]))
    last = np.concatenate(([begin - 1], last, [0]))
    spans = np.concatenate(([0], spans, [0]))
    # The score of the best reading that ends in each piece, and how many readings have it.
    scores, ways = np.zeros(count + 2, np.int64), np.zeros(count + 2, np.int64)
    weights = np.concatenate(([0], batches, [0])) * _BATCH_SCORE
    ways[0] = 1
    joints = [np.empty(0, np.int64)]  # by piece: the pieces before it in these readings
    for at in range(1, count + 2):
        back = np.arange(max(0, at - _BACK_MAX), at)
        back = np.concatenate(([0], back)) if back[0] else back
        back = back[last[back] < first[at]]
        reading_scores = scores[back] + weights[at]
        if around is not None and (at <= count or end is not None):
            # Offsets of the pieces between, which this reading leaves out.
            between = ahead_of[at] - ahead_of[back] - spans[back]
            reading_scores = reading_scores + (first[at] == last[back] + 1 + between)
        scores[at] = reading_scores.max()
        joints.append(back[reading_scores == scores[at]])
        ways[at] = int(ways[joints[at]].sum()) % _PRIME
    # How many best readings have a piece: the ways up to it times the ways from it on.
    ways_on = np.zeros(count + 2, np.int64)
    ways_on[count + 1] = 1
    for at in range(count + 1, 0, -1):
        ways_on[joints[at]] = (ways_on[joints[at]] + ways_on[at]) % _PRIME
    through = (ways * ways_on % _PRIME)[1:-1]
    _, kind = np.unique(kinds, return_inverse=True)
    sums = np.zeros(count, np.int64)
    np.add.at(sums, kind, through)
    in_one = np.zeros(count + 2, np.bool_)
    at = int(joints[-1][0])
    while at:
        in_one[at] = True
        at = int(joints[at][0])
    found_in_all: Bools = in_one[1:-1] & (sums[kind] % _PRIME == ways[-1])
    return found_in_all


def _with_holes(
    pieces: Sequence[Span], stays: Sequence[bool], begin: int
) -> Iterator[tuple[Span, tuple[int, int]]]:
    """The pieces that do not stay, each with the first and last offset missing around it."""
    waiting: list[Span] = []
    for piece, stay in zip(pieces, stays, strict=True):
        if stay:
            yield from ((left_out, (begin, piece.first_offset - 1)) for left_out in waiting)
            waiting, begin = [], piece.last_offset + 1
        else:
            waiting.append(piece)
    yield from ((left_out, (begin, INT64_MAX)) for left_out in waiting)


def _refusal(piece: Span, placed: Sequence[Span], hole: tuple[int, int]) -> Span:
    """A piece that does not stay, with the reason and the places where its offsets may belong.

    `hole` has the first and the last offset that the placed pieces lack around it.
    """
    at = bisect_left(placed, piece.first_offset, key=lambda run: run.last_offset)
    end = bisect_right(placed, piece.last_offset, key=lambda run: run.first_offset)
    placed_marks = {mark for _, table in provable_tables(placed[at:end]) for mark in _marks(table)}
    piece_marks = {mark for _, table in provable_tables([piece]) for mark in _marks(table)}
    first, last = stated = piece.first_offset, piece.last_offset
    if piece_marks <= placed_marks:
        return replace(piece, reason="duplicate")
    if any(begin <= last and first <= until for begin, until, *_ in placed_marks):
        return replace(piece, reason="collision")
    # It may have its own offsets, or those at the beginning of the hole, if it fits in there.
    hole_first, hole_last = hole
    other = hole_first, hole_first + last - first
    places = (stated, other) if other[1] <= hole_last and other != stated else (stated,)
    return replace(piece, reason="offset-order", places=places)


def _marks(table: BatchTable) -> Iterator[tuple[int, ...]]:
    """The offsets of each batch, and the facts that distinguish batches with equal offsets."""
    columns = (
        offset_orders(table),
        table.last_offset,
        table.size,
        table.magic,
        table.crc,
        table.leader_epoch,
    )
    return zip(*(column.tolist() for column in columns), strict=True)


def _without_doubts(
    placed: list[Span], segments: Sequence[SegmentSeen], agrees: Agrees
) -> tuple[list[Span], list[Span]]:
    """Remove doubtful batches beside the only gap of a log that is dense elsewhere.

    A single batch there may be data of a record, if `agrees` does not confirm it. Returns the runs
    that stay, and the batches.
    """
    pieces = _dense_pieces(placed)
    numbers = numbers_of(segments)
    starts = [0, *accumulate(segment.size for segment in segments)]
    # The offsets and the bytes between each piece and the piece before it.
    missing, between = [], []
    last, end = segments[0].base_offset - 1, 0
    for piece in pieces:
        start = starts[numbers[piece.path]]
        # Compressed messages of magic 0 and 1 do not say their first offset.
        missing.append(0 if piece.records is None else piece.first_offset - last - 1)
        between.append(start + piece.position - end)
        last, end = piece.last_offset, start + piece.end
    # More offsets than bytes are missing: no damaged batch can have had them.
    gaps = [at for at in range(len(pieces)) if missing[at] > between[at]]
    if len(gaps) != 1:
        return placed, []
    (gap,) = gaps
    # Whether each piece follows the piece before without a gap, in offsets and in bytes.
    touches = [not (offsets or size) for offsets, size in zip(missing, between, strict=True)]
    out: dict[int, Span] = {}
    # The pieces on both sides of the gap, and the border on the other side of each.
    for at, border in ((gap - 1, gap - 1), (gap, gap + 1)):
        is_alone = at >= 0 and touches[border : border + 1] != [True]
        if is_alone and pieces[at].batches == 1 and not agrees(pieces[at]):
            span = pieces[at].last_offset - pieces[at].first_offset
            hole = pieces[gap].first_offset - 1 - span
            if at == gap:
                hole = pieces[at].first_offset - missing[at]
            stated = pieces[at].first_offset, pieces[at].last_offset
            places = (stated, (hole, hole + span))
            out[at] = replace(pieces[at], reason="offset-order", places=places)
    remaining = [piece for at, piece in enumerate(pieces) if at not in out]
    return _join_runs(remaining) if out else placed, list(out.values())


def _dense_pieces(runs: Sequence[Span]) -> list[Span]:
    """Runs cut where they leave out offsets; an empty list if a log leaves out many."""
    pieces: list[Span] = []
    for run in runs:
        cuts = [run.position, run.end]
        if not run.is_dense:
            cuts[1:1] = islice(_gap_positions(run), 2)
        parts = [run_between(run, start, end) for start, end in pairwise(cuts)]
        pieces += [piece for piece in parts if piece is not None]
    return pieces if all(piece.is_dense is not False for piece in pieces) else []


def _gap_positions(run: Span) -> Iterator[int]:
    """Positions of batches after a gap; compressed messages do not say whether there is one."""
    last = run.last_offset
    for _, table in provable_tables([run]):
        gap = table.base_offset > np.append(last, table.last_offset[:-1]) + 1
        last = int(table.last_offset[-1])
        yield from table.position[gap].tolist()


def _join_runs(runs: Iterable[Span]) -> list[Span]:
    """Join runs that follow each other in a file."""
    joined: list[Span] = []
    for run in runs:
        add_span(joined, run)
    return joined


# ---- contradicted single batches ----------------------------------------------------------------


def _contradicted_batches(
    runs: Sequence[Span],
    differs: Callable[[Span, BatchTable], Bools],
) -> list[Span]:
    """Batches that a file beside the log contradicts although it agrees with their neighbours.

    `differs` says of which batches of a table this is so; empty if there are very many of them.
    """
    contradicted: dict[int, Span] = {}
    count = 0
    for run, table in provable_tables(runs):
        for row in np.flatnonzero(differs(run, table)).tolist():
            contradicted[count + row] = span_of(run.path, table.take(slice(row, row + 1)))
        if len(contradicted) > _CONTRADICTED_MAX:
            return []
        count += len(table)
    return [
        batch for row, batch in contradicted.items() if not {row - 1, row + 1} & contradicted.keys()
    ]


def _contradicts_index(run: Span, table: BatchTable, index: Index) -> Bools:
    """Which batches have offsets that are not between those of the entries around them, bool[n].

    An entry has the position of an append, and its first offset or its last one. So the newest
    entry at or before a batch may have the batch's own last offset: the entry before it counts.
    """
    entries = index(run.path)
    if entries is None or (np.diff(entries.offsets) <= 0).any():
        return np.zeros(len(table), np.bool_)
    # Two sentinels in front: `offsets[n]` is then the entry before the n-th one, and any batch
    # has such an entry. The sentinel at the end serves batches that no entry follows.
    offsets = np.concatenate(([-1, -1], entries.offsets, [INT64_MAX]))
    before = np.searchsorted(entries.positions, table.position, side="right")
    after = np.searchsorted(entries.positions, table.position + table.size) + 2
    contradicts: Bools = (offsets[before] >= offset_orders(table)) | (
        offsets[after] <= table.last_offset
    )
    return contradicts


def _contradicts_epochs(run: Span, table: BatchTable, epochs: Sequence[EpochEntry]) -> Bools:
    """Which batches have another epoch than the checkpoint has at their offsets, bool[n]."""
    starts = np.array([entry.start_offset for entry in epochs], np.int64)
    checkpoint_epochs = np.array([-1, *(entry.epoch for entry in epochs)], np.int64)
    expected = checkpoint_epochs[np.searchsorted(starts, table.base_offset, side="right")]
    differs = (expected >= 0) & (table.leader_epoch >= 0) & (expected != table.leader_epoch)
    contradicts: Bools = (table.magic >= 2) & (differs | (table.leader_epoch < -1))
    return contradicts


def _with_falling_epochs(runs: Sequence[Span]) -> list[Span]:
    """Single batches to remove so that the leader epochs of the others never decrease."""
    epochs: list[int] = []
    counts: list[int] = []
    begins: list[Span] = []
    for run, table in provable_tables(runs):
        rows = np.flatnonzero((table.magic >= 2) & (table.leader_epoch >= 0))
        batch_epochs = table.leader_epoch[rows]
        changes = np.flatnonzero(
            np.diff(batch_epochs, prepend=epochs[-1] if epochs else -1)
        ).tolist()
        if counts:
            counts[-1] += changes[0] if changes else len(rows)
        for start, stop in pairwise([*changes, len(rows)]):
            epochs.append(int(batch_epochs[start]))
            counts.append(stop - start)
            begins.append(span_of(run.path, table.take(rows[start : start + 1])))
    # Batches of one epoch in a row count as one piece here.
    order = np.array(epochs, np.int64)
    if not (np.diff(order) < 0).any():
        return []
    counted, kinds = np.array(counts, np.int64), np.arange(len(order))
    # As offsets, so that an equal epoch may follow, and a lower one may not.
    stays = _in_best_readings(2 * order + 1, 2 * order, counted, kinds, begin=None)
    return [
        batch
        for batch, count, stay in zip(begins, counts, stays.tolist(), strict=True)
        if count == 1 and not stay
    ]


def _remove_batches(
    runs: Sequence[Span], wrong: Sequence[Span], reason: str
) -> tuple[list[Span], list[Span]]:
    """The runs without the `wrong` batches; and these batches, each with the reason."""
    by_file: dict[str, list[Span]] = {}
    for batch in sorted(wrong, key=_position):
        by_file.setdefault(batch.path, []).append(batch)
    remaining = [part for run in runs for part in _run_without(run, by_file.get(run.path, ()))]
    return remaining, [replace(batch, reason=reason) for batch in wrong]


def _run_without(run: Span, wrong: Sequence[Span]) -> Iterator[Span]:
    """The parts of a run between the `wrong` batches of its file, which are sorted by position."""
    first, end = (bisect_left(wrong, at, key=_position) for at in (run.position, run.end))
    if first == end:
        yield run
        return
    inside = wrong[first:end]
    starts = [run.position, *(batch.end for batch in inside)]
    for start, stop in zip(starts, [*map(_position, inside), run.end], strict=True):
        part = run_between(run, start, stop)
        if part is not None:
            yield part


def _position(run: Span) -> int:
    return run.position
