"""Copies side by side: windows that no batch reaches over, tables of batches compared."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from kseg.format.header import COLUMN
from kseg.log.copies import source
from kseg.log.copies.batches import (
    COLUMNS,
    EPOCH,
    FIRST,
    LAST,
    OFFSETS_END,
    overlapping,
    twins,
    without,
)
from kseg.log.copies.source import windows

Pairs = Sequence[tuple[int, int]]


def rows(pairs: Pairs) -> Any:
    """Batches with these first and last offsets."""
    table = np.zeros((len(pairs), COLUMNS), np.int64)
    table[:, COLUMN["base_offset"]] = table[:, FIRST] = [first for first, _ in pairs]
    table[:, LAST] = [last for _, last in pairs]
    return table


class Tables:
    """A copy as tables of so many batches."""

    def __init__(self, pairs: Pairs, size: int = 2) -> None:
        self.pairs, self.size = pairs, size

    def tables(self) -> Iterator[Any]:
        for at in range(0, len(self.pairs), self.size):
            yield rows(self.pairs[at : at + self.size])


def walked(*copies: Tables) -> list[tuple[int, list[list[tuple[int, int]]]]]:
    """The end of each window, and the first and last offsets of each side."""
    return [
        (one.end, [[(int(r[FIRST]), int(r[LAST])) for r in side] for side in one.sides])
        for one in windows(copies)  # type: ignore[arg-type]
    ]


def test_copies_alike_are_cut_where_their_tables_end() -> None:
    pairs = [(0, 1), (2, 3), (4, 5)]
    assert walked(Tables(pairs), Tables(pairs)) == [
        (4, [pairs[:2], pairs[:2]]),
        (6, [pairs[2:], pairs[2:]]),
        (OFFSETS_END, [[], []]),
    ]


def test_batches_that_overlap_lie_in_one_window() -> None:
    one, other = [(0, 9), (10, 19)], [(0, 4), (5, 14), (15, 19)]
    assert walked(Tables(one, 1), Tables(other, 1))[0] == (20, [one, other])


def test_a_window_that_has_no_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "HELD_MAX", 3)
    one = [(10 * n, 10 * n + 9) for n in range(20)]
    other = [(10 * n + 5, 10 * n + 14) for n in range(20)]
    found = walked(Tables(one, 1), Tables(other, 1))
    assert len(found) > 3
    for side, pairs in enumerate((one, other)):
        assert [pair for _, sides in found for pair in sides[side]] == pairs


@pytest.mark.parametrize("seed", range(30))
def test_each_batch_comes_once_and_no_window_cuts_one(seed: int) -> None:
    rng = random.Random(seed)
    copies = []
    for _ in range(rng.randrange(1, 4)):
        at, pairs = rng.randrange(5), []
        for _ in range(rng.randrange(12)):
            last = at + rng.randrange(4)
            pairs.append((at, last))
            at = last + 1 + rng.randrange(3)
        copies.append(Tables(pairs, rng.randrange(1, 4)))
    found = walked(*copies)
    ends = [end for end, _ in found]
    assert ends == sorted(set(ends))
    for side, copy in enumerate(copies):
        assert [pair for _, sides in found for pair in sides[side]] == copy.pairs
        for start, (end, sides) in zip([0, *ends], found, strict=False):
            assert all(start <= first and last < end for first, last in sides[side])


def test_twins_differ_in_nothing_but_place_and_epoch() -> None:
    one, other = rows([(0, 1), (2, 3), (4, 5)]), rows([(0, 1), (3, 3), (4, 5)])
    other[:, EPOCH] = 9
    other[:, 0] = 77  # the position
    mine, theirs = twins(one, other)
    assert (mine.tolist(), theirs.tolist()) == ([0, 2], [0, 2])
    assert without(one, mine)[:, FIRST].tolist() == [2]
    other[0, 6] = 1  # the checksum
    assert twins(one, other)[0].tolist() == [2]


def test_overlapping_is_told_by_offsets() -> None:
    one = rows([(0, 4), (5, 9), (20, 29), (30, 30)])
    other = rows([(4, 4), (10, 19), (25, 26)])
    assert overlapping(one, other).tolist() == [True, False, True, False]
    assert overlapping(other, one).tolist() == [True, False, True]
    assert overlapping(one, other[:0]).tolist() == [False] * 4
