"""Batches placed by their offsets: duplicates, collisions, and those that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kseg.log.salvage.values import ProvableRun, Unprovable


@dataclass(frozen=True, slots=True)
class Placed:
    """Runs by offset, and what has no place among them.

    Attributes:
        runs: each lies behind the one before.
        refused: batches that are there already, or do not fit.
    """

    runs: tuple[ProvableRun, ...]
    refused: tuple[Unprovable, ...]


def place_runs(runs: Sequence[ProvableRun]) -> Placed:
    """Place runs by their offsets.

    Args:
        runs: as they lie in the segments; each has offsets that grow.
    """
    if all(first.last_offset < second.first_offset for first, second in pairwise(runs)):
        return Placed(tuple(runs), ())
    raise NotImplementedError


__all__ = ["Placed", "place_runs"]
