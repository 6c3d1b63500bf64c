"""Copies side by side: windows that no batch reaches over, tables of batches compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from kseg.format.header import COLUMN
from kseg.log.copies import source
from kseg.log.copies.batches import (
    COLUMNS,
    FIRST,
    LAST,
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


def test_a_window_that_has_no_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "HELD_MAX", 3)
    one = [(10 * n, 10 * n + 9) for n in range(20)]
    other = [(10 * n + 5, 10 * n + 14) for n in range(20)]
    found = walked(Tables(one, 1), Tables(other, 1))
    assert len(found) > 3
    for side, pairs in enumerate((one, other)):
        assert [pair for _, sides in found for pair in sides[side]] == pairs
