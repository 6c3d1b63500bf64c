"""Which offsets no provable batch has.

Damage hides the offsets between the sound batches around it. Where the log has a record for each
offset, these are lost, and where a file ends too early, too. Where compaction has left holes, some
of them may have had no record before; what no byte tells of is no loss there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kseg.log.salvage.tables import gap_columns
from kseg.log.salvage.values import (
    HARMLESS,
    LostOffsets,
    ProvableRun,
    SegmentSeen,
    Unprovable,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.log.salvage.chains import Int64Array

#: Where in a partition: the number of a segment and a position in it.
_Place = tuple[int, int]


class _Gap(NamedTuple):
    """Offsets between two runs, and where these lie."""

    first: int
    end: int | None
    behind: _Place
    before: _Place


def lost_offsets(
    runs: Sequence[ProvableRun],
    unprovable: Sequence[Unprovable],
    segments: Sequence[SegmentSeen],
    begin: int,
    *,
    compacted_to: int = 0,
) -> tuple[LostOffsets, ...]:
    """Offsets that are missing in front of the runs, between them and behind.

    Args:
        runs: by offset.
        unprovable: the other bytes, by segment and position.
        segments: by base offset.
        begin: where the log begins, if not with its first segment.
        compacted_to: offsets in front of this one may have had no record.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    numbers = {each.path: number for number, each in enumerate(segments)}
    damage = _Damage(unprovable, segments)
    # Compaction leaves segments without a batch in front of others.
    dense = all(run.is_dense for run in runs) and all(each.size for each in segments[:-1])
    found = []
    for gap in _gaps(runs, numbers, segments, begin, damage):
        place, size = damage.inside(gap)
        if place is None and (not dense or gap.end is None):
            continue
        last = None if gap.end is None else gap.end - 1
        number, position = gap.before
        exact = dense and gap.first >= compacted_to
        found.append(
            LostOffsets(
                gap.first,
                last,
                last - gap.first + 1 if exact and last is not None else None,
                not exact,
                segments[number].path if place is None else place.path,
                position if place is None else place.position,
                size,
            )
        )
    return tuple(found)


class _Damage:
    """Damaged bytes by their places, and by the offsets that batches there say."""

    def __init__(self, unprovable: Sequence[Unprovable], segments: Sequence[SegmentSeen]) -> None:
        numbers = {each.path: number for number, each in enumerate(segments)}
        # A file may be longer than its log, when it is made so ahead.
        behind = unprovable[-1] if unprovable else None
        if behind is not None and (behind.reason, behind.path, behind.end) != (
            "zeros",
            segments[-1].path,
            segments[-1].size,
        ):
            behind = None
        found = [one for one in unprovable if one.reason not in HARMLESS and one is not behind]
        told = sorted(
            ((one.first_offset, one) for one in found if one.first_offset is not None),
            key=lambda pair: pair[0],
        )
        self._by_place = _Sizes(((numbers[one.path], one.position), one) for one in found)
        self._by_offset = _Sizes(((offset, 0), one) for offset, one in told)
        self._told = np.array([offset for offset, _ in told], np.int64)
        self.is_any = bool(found)

    def may_hide(self, first: Int64Array, end: Int64Array) -> npt.NDArray[np.bool_]:
        """bool[n]: which offsets without a batch between others may be lost."""
        return np.searchsorted(self._told, first) < np.searchsorted(self._told, end)

    def inside(self, gap: _Gap) -> tuple[Unprovable | None, int]:
        """The first damage between two runs, and its bytes in all; else by its offsets."""
        found = self._by_place.between(gap.behind, gap.before)
        if found[0] is None and gap.end is not None:
            found = self._by_offset.between((gap.first, 0), (gap.end, 0))
        return found


class _Sizes:
    """Damaged bytes under keys that grow."""

    def __init__(self, pairs: Iterable[tuple[_Place, Unprovable]]) -> None:
        self._keys: list[_Place] = []
        self._found: list[Unprovable] = []
        self._sums = [0]
        for key, one in pairs:
            self._keys.append(key)
            self._found.append(one)
            self._sums.append(self._sums[-1] + one.size)

    def between(self, first: _Place, end: _Place) -> tuple[Unprovable | None, int]:
        """The first one of `[first, end)`, and their bytes in all."""
        begins, ends = bisect_left(self._keys, first), bisect_left(self._keys, end)
        if begins >= ends:
            return None, 0
        return self._found[begins], self._sums[ends] - self._sums[begins]


def _gaps(
    runs: Sequence[ProvableRun],
    numbers: dict[str, int],
    segments: Sequence[SegmentSeen],
    begin: int,
    damage: _Damage,
) -> Iterator[_Gap]:
    if not segments:
        return
    begin = max(segments[0].base_offset, begin)
    if not runs:
        yield _Gap(begin, None, (0, 0), (len(segments), 0))
        return
    first, last = runs[0], runs[-1]
    if first.first_offset > begin:
        yield _Gap(begin, first.first_offset, (0, 0), (numbers[first.path], first.position))
    yield from _inner_gaps(first, numbers[first.path], damage)
    for one, other in pairwise(runs):
        if other.first_offset > one.last_offset + 1:
            places = (numbers[one.path], one.end), (numbers[other.path], other.position)
            yield _Gap(one.last_offset + 1, other.first_offset, *places)
        yield from _inner_gaps(other, numbers[other.path], damage)
    # A segment begins where the log ended, so all in front of its base offset was there once.
    end, place, base = last.last_offset + 1, (numbers[last.path], last.end), segments[-1]
    if base.base_offset > end and place[0] < len(segments) - 1:
        yield _Gap(end, base.base_offset, place, (len(segments) - 1, 0))
        end, place = base.base_offset, (len(segments) - 1, 0)
    yield _Gap(end, None, place, (len(segments), 0))


def _inner_gaps(run: ProvableRun, number: int, damage: _Damage) -> Iterator[_Gap]:
    """Offsets that batches next to each other leave out, where damage elsewhere may hide them."""
    for first, end, position in gap_columns(run) if damage.is_any else ():
        for row in np.flatnonzero(damage.may_hide(first, end)).tolist():
            place = number, int(position[row])
            yield _Gap(int(first[row]), int(end[row]), place, place)


__all__ = ["lost_offsets"]
