"""Stretches of columns over which nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def runs(*columns: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """The stretches `[first, end)` over which all of the columns stay the same."""
    count = len(columns[0])
    if not count:
        return
    change = np.zeros(count, np.bool_)
    for column in columns:
        change[1:] |= column[1:] != column[:-1]
    yield from pairwise([0, *np.flatnonzero(change).tolist(), count])


__all__ = ["runs"]
