"""Single batches whose offsets or leader epoch do not fit where they lie.

No checksum covers a base offset or a leader epoch. So a batch between two others that follow each
other but for it is taken for one whose offsets are wrong if they are just as many as are missing
there; it is kept where they are just those that are missing elsewhere.

Leader epochs never fall. A batch with a higher epoch than the one behind it, or a lower one than
the one in front, is left out where the rest does not fall without it. Where more than single
batches fall, all of them stay.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kseg.log.salvage.chains import offset_orders
from kseg.log.salvage.tables import last_batch, provable_tables, run_between
from kseg.log.salvage.values import ProvableRun, SegmentSeen, Unprovable, refused

if TYPE_CHECKING:
    from kseg.format.header import BatchTable
    from kseg.log.salvage.chains import Int64Array

#: Batches that are left out for their epochs, at most; where more fall, all of them stay.
_EPOCHS_MAX: Final = 4_096
#: Places where the order breaks that are looked at: each costs a walk over the runs around it.
_LOOKS_MAX: Final = 256
#: How often those that have no place are looked at.
_PASSES: Final = 3
_INT64_MAX: Final = 2**63 - 1

#: Whether an index names an offset of a batch, which is then none that came to be by damage.
Named = Callable[[ProvableRun], bool]


# ---- single batches that do not follow the one before, in a chain that is whole ------------------


class Stray(NamedTuple):
    """A batch that is not in order where it lies.

    Attributes:
        run: the batch.
        hole: the offsets that are missing where it lies, first and last.
    """

    run: ProvableRun
    hole: tuple[int, int]

    @property
    def fills_hole(self) -> bool:
        """Whether it has just as many offsets as are missing where it lies."""
        first, last = self.hole
        return last - first == self.run.last_offset - self.run.first_offset


def without_strays(
    runs: Sequence[ProvableRun], segments: Sequence[SegmentSeen]
) -> tuple[list[ProvableRun], list[Stray]]:
    """Take single batches out that break the order of those around them.

    Args:
        runs: as they lie in the segments; each has offsets that grow.
        segments: that were read.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    kept: list[ProvableRun] = []
    strays: list[Stray] = []
    places = _Places(segments)
    waiting, looked_at = list(reversed(runs)), 0
    while waiting:
        run = waiting.pop()
        before = kept[-1] if kept else None
        if before is None or looked_at == _LOOKS_MAX or not places.breaks_off(before, run):
            kept.append(run)
            continue
        looked_at += 1
        found = list(places.strays_between(kept, run, waiting))
        if not found:
            kept.append(run)
            continue
        # Without the first one the rest leaves out less.
        stray, rest = next((one for one in found if one[0].fills_hole), found[0])
        strays.append(stray)
        kept.pop()
        waiting += [one for one in reversed(rest) if one is not None]
    return kept, strays


class _Places:
    """Which runs follow each other in the files of a partition, without a byte between them."""

    def __init__(self, segments: Sequence[SegmentSeen]) -> None:
        self._sizes = {each.path: each.size for each in segments}
        self._bases = {each.path: each.base_offset for each in segments}
        self._next = {one.path: other.path for one, other in pairwise(segments)}

    def meets(self, one: ProvableRun, other: ProvableRun) -> bool:
        """Whether a run begins where another ends, or a segment behind the one that it ends."""
        if one.path == other.path:
            return one.end == other.position
        ends = one.end == self._sizes[one.path] and other.position == 0
        return ends and self._next.get(one.path) == other.path

    def breaks_off(self, one: ProvableRun, other: ProvableRun) -> bool:
        """Whether a run that lies behind another does not go on behind its offsets."""
        return other.first_offset <= one.last_offset

    def strays_between(
        self, kept: Sequence[ProvableRun], run: ProvableRun, waiting: Sequence[ProvableRun]
    ) -> Iterator[tuple[Stray, tuple[ProvableRun | None, ProvableRun | None]]]:
        """Which one batch is out of order between two runs, and the runs without it.

        The last batch of the first run, or the first batch of the second one, or either.

        Args:
            kept: the runs up to the first one.
            run: the second one.
            waiting: those behind it, the next one last.
        """
        before = kept[-1]
        last, front = _last_batch(before)
        first, back = _first_batch(run)
        floor = self._bases[before.path] - 1
        if front is not None:
            floor = front.last_offset
        elif len(kept) > 1:
            floor = max(floor, kept[-2].last_offset)
        ceiling = _INT64_MAX
        if back is not None:
            ceiling = back.first_offset
        elif waiting and self.meets(run, waiting[-1]):
            ceiling = waiting[-1].first_offset
        behind = Stray(first, (before.last_offset + 1, ceiling - 1))
        ahead = Stray(last, (floor + 1, run.first_offset - 1))
        # Two that have some of their offsets in common may be in order.
        overlaps = last.first_offset < first.first_offset
        if floor < run.first_offset and (ahead.fills_hole or not overlaps):
            yield ahead, (front, run)
        if before.last_offset < ceiling and (behind.fills_hole or not overlaps):
            yield behind, (before, back)


def _first_batch(run: ProvableRun) -> tuple[ProvableRun, ProvableRun | None]:
    """The first batch of a run, and the rest."""
    _, table = next(iter(provable_tables([run])))
    end = run.position + int(table.size[0])
    first = run_between(run, run.position, end)
    assert first is not None
    return first, run_between(run, end, run.end)


def _last_batch(run: ProvableRun) -> tuple[ProvableRun, ProvableRun | None]:
    """The last batch of a run, and the rest."""
    position = last_batch(run).position
    last = run_between(run, position, run.end)
    assert last is not None
    return last, run_between(run, run.position, position)


def strays_that_fit(
    strays: Sequence[Stray],
    placed: Sequence[ProvableRun],
    duplicates: Collection[tuple[str, int]],
    start: int,
    named: Named,
) -> tuple[list[ProvableRun], list[Unprovable]]:
    """Those that belong elsewhere, and those whose offsets are taken for wrong.

    Args:
        strays: of `without_strays`.
        placed: the other runs, by offset.
        duplicates: path and position of strays that are there already.
        start: the base offset of the first segment.
        named: whether an index names an offset of a batch.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    kept = [one.run for one in strays if (one.run.path, one.run.position) in duplicates]
    left = [one for one in strays if one.run not in kept]
    order = list(placed)
    for _ in range(_PASSES):
        # One that has its place may be what another one follows.
        for one in tuple(left):
            others = (each for each in strays if each is not one)
            gap = _gap_around(one.run, order, start)
            if _belongs_elsewhere(one, gap, others) or (gap is not None and named(one.run)):
                left.remove(one)
                kept.append(one.run)
                insort(order, one.run, key=lambda run: run.first_offset)
    return kept, [refused(one.run, "offset-order") for one in left]


def _belongs_elsewhere(
    stray: Stray, gap: tuple[int, int | None] | None, others: Iterable[Stray]
) -> bool:
    """Whether a batch is rather in a wrong place than its offsets are wrong.

    Args:
        stray: the batch.
        gap: the offsets in front of those that it says, and behind, that other batches have; None
            where they have some of its own.
        others: batches that are out of order, too.
    """
    if gap is None:
        return not stray.fills_hole
    run, (before, behind) = stray.run, gap
    # Wrong offsets are seldom such as no other batch has, but in front of the end, or where zeros
    # lie over them.
    seldom = behind == run.last_offset + 1 if run.first_offset == 0 else behind is not None
    if seldom or 0 < before + 1 == run.first_offset:
        return True
    # Two lie in each other's place.
    return any(_overlap(each.run, stray.hole) and _overlap(run, each.hole) for each in others)


def _overlap(run: ProvableRun, hole: tuple[int, int]) -> bool:
    first, last = hole
    return run.first_offset <= last and first <= run.last_offset


def _gap_around(
    run: ProvableRun, placed: Sequence[ProvableRun], start: int
) -> tuple[int, int | None] | None:
    """The last offset in front of those of a batch that another has, and the first one behind."""
    at = bisect_right(placed, run.first_offset, key=lambda one: one.first_offset)
    around = placed[at - 1] if at else None
    behind = placed[at].first_offset if at < len(placed) else None
    before = start - 1 if around is None else around.last_offset
    if around is not None and before >= run.first_offset:
        before, behind = _gap_within(around, run.first_offset)
    return None if behind is not None and behind <= run.last_offset else (before, behind)


def _gap_within(run: ProvableRun, offset: int) -> tuple[int, int]:
    """The same between the batches of a run: the offset in front of another, and one from it on."""
    before = run.first_offset - 1
    for _, table in provable_tables([run]):
        row = int(np.searchsorted(table.last_offset, offset))
        if row < len(table):
            before = int(table.last_offset[row - 1]) if row else before
            return before, int(offset_orders(table)[row])
        before = int(table.last_offset[-1])
    raise AssertionError("a run ends with its last offset")


# ---- leader epochs -----------------------------------------------------------------------------


class _Epoch(NamedTuple):
    """A batch with its leader epoch."""

    epoch: int
    run: ProvableRun
    position: int
    size: int


def with_fitting_epochs(
    runs: Sequence[ProvableRun],
) -> tuple[list[ProvableRun], list[Unprovable]]:
    """The runs without single batches at which the leader epoch falls, and those batches.

    Args:
        runs: by offset.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    wrong = list(islice(_misfits(runs), _EPOCHS_MAX + 1))
    if len(wrong) > _EPOCHS_MAX:
        return list(runs), []
    cut: dict[ProvableRun, list[_Epoch]] = {}
    for one in wrong:
        cut.setdefault(one.run, []).append(one)
    left_out: list[Unprovable] = []
    kept = [part for run in runs for part in _cut_out(run, cut.get(run, ()), left_out)]
    return kept, left_out


def _cut_out(
    run: ProvableRun, wrong: Sequence[_Epoch], left_out: list[Unprovable]
) -> Iterator[ProvableRun]:
    """A run without some of its batches."""
    if not wrong:
        yield run
        return
    start = run.position
    for one in sorted(wrong, key=lambda one: one.position):
        for begin, end, stays in (
            (start, one.position, True),
            (one.position, one.position + one.size, False),
        ):
            part = run_between(run, begin, end)
            if part is not None and stays:
                yield part
            elif part is not None:
                left_out.append(refused(part, "epoch-order"))
        start = one.position + one.size
    rest = run_between(run, start, run.end)
    if rest is not None:
        yield rest


def _misfits(runs: Sequence[ProvableRun]) -> Iterator[_Epoch]:
    """Batches without which the leader epochs do not fall where they do."""
    #: The last two batches that have an epoch and stay.
    held: list[_Epoch] = []
    for run, table, ahead in _with_next(provable_tables(runs)):
        rows = np.flatnonzero((table.magic >= 2) & (table.leader_epoch >= 0))
        epochs = table.leader_epoch[rows]
        if not len(rows):
            continue
        if (not held or epochs[0] >= held[-1].epoch) and not (np.diff(epochs) < 0).any():
            held = [*held, *_last_two(run, table, rows)][-2:]
            continue
        following = [*epochs[1:].tolist(), ahead]
        for row, epoch, later in zip(rows.tolist(), epochs.tolist(), following, strict=True):
            one = _Epoch(epoch, run, int(table.position[row]), int(table.size[row]))
            wrong = _misfit(held, one, later)
            if wrong is not None:
                yield wrong
            held = [each for each in (*held, one) if each is not wrong][-2:]


def _misfit(held: list[_Epoch], one: _Epoch, later: int) -> _Epoch | None:
    """Without which of the batches around it a fall is none; None where it stays one.

    Args:
        held: up to two batches in front.
        one: the next one.
        later: the epoch of the one behind it.
    """
    if not held or held[-1].epoch <= one.epoch:
        return None
    if held[-1].epoch <= later:
        return one
    return held[-1] if len(held) < 2 or held[-2].epoch <= one.epoch else None


def _last_two(run: ProvableRun, table: BatchTable, rows: Int64Array) -> Iterator[_Epoch]:
    for row in rows[-2:].tolist():
        yield _Epoch(
            int(table.leader_epoch[row]), run, int(table.position[row]), int(table.size[row])
        )


def _with_next(
    tables: Iterable[tuple[ProvableRun, BatchTable]],
) -> Iterator[tuple[ProvableRun, BatchTable, int]]:
    """Each table with the leader epoch of the batch behind it; -1 if there is none, or no epoch."""
    held: tuple[ProvableRun, BatchTable] | None = None
    for run, table in tables:
        if held is not None:
            yield *held, int(table.leader_epoch[0])
        held = run, table
    if held is not None:
        yield *held, -1


__all__ = ["Named", "Stray", "strays_that_fit", "with_fitting_epochs", "without_strays"]
