"""Batches placed by their offsets: duplicates, collisions, and those that do not fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from kseg.log.salvage.values import ProvableRun, Unprovable, refused

if TYPE_CHECKING:
    from kseg.format.header import BatchTable

    #: The headers of some runs, each table with its run.
    Tables = Callable[[tuple[ProvableRun, ...]], Iterable[tuple[ProvableRun, BatchTable]]]


@dataclass(frozen=True, slots=True)
class Placed:
    """Runs by offset, and what has no place among them.

    Attributes:
        runs: each lies behind the one before.
        refused: batches that are there already, or have offsets that others have.
    """

    runs: tuple[ProvableRun, ...]
    refused: tuple[Unprovable, ...]


def place_runs(runs: Sequence[ProvableRun], tables: Tables) -> Placed:
    """Place runs by their offsets; where two have the same offsets, each of their batches.

    Of batches with the same offsets the first one of the first file stays: a batch with the same
    bytes is a duplicate, any other a collision.

    Args:
        runs: as they lie in the segments; each has offsets that grow.
        tables: reads the headers of runs.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    order = sorted(runs, key=lambda run: run.first_offset)
    if all(first.last_offset < second.first_offset for first, second in pairwise(order)):
        return Placed(tuple(order), ())
    among = _Places()
    clear, clashing = _parted(runs)
    for run, table in tables(tuple(clashing)):
        for batch in batches_of(run, table):
            among.add(batch)
    kept = sorted([*clear, *among.kept], key=lambda run: run.first_offset)
    return Placed(tuple(_joined(kept)), tuple(among.refused))


def _parted(runs: Sequence[ProvableRun]) -> tuple[list[ProvableRun], list[ProvableRun]]:
    """Runs whose offsets no other has; and the others, as they lie in the segments."""
    order = sorted(range(len(runs)), key=lambda at: runs[at].first_offset)
    clashing, reach, last = set(), -1, -1
    for at in order:
        if runs[at].first_offset <= reach:
            clashing |= {at, last}
        if runs[at].last_offset > reach:
            reach, last = runs[at].last_offset, at
    clear = [run for at, run in enumerate(runs) if at not in clashing]
    return clear, [runs[at] for at in sorted(clashing)]


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as a run, and what tells it from another with its offsets."""

    run: ProvableRun
    checksum: tuple[int, ...]


def batches_of(run: ProvableRun, table: BatchTable) -> Iterator[Batch]:
    """The batches of a table of a run, each as a run."""
    # A compressed message of magic 0 or 1 does not tell its first offset.
    known = table.base_offset >= 0
    first = table.base_offset * known + table.last_offset * ~known
    columns = (table.position, table.size, first, table.last_offset, table.record_count, known)
    marks = zip(table.magic.tolist(), table.crc.tolist(), table.leader_epoch.tolist(), strict=True)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for (position, size, begins, ends, records, is_known), mark in zip(rows, marks, strict=True):
        count = records if is_known and records >= 0 else None
        yield Batch(ProvableRun(run.path, position, size, begins, ends, 1, count), mark)


class _Places:
    """Batches by offset, one after the other."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._ends: list[int] = []
        self.refused: list[Unprovable] = []

    @property
    def kept(self) -> Iterator[ProvableRun]:
        """Those that have a place, by offset."""
        return (one.run for one in self._batches)

    def add(self, batch: Batch) -> None:
        """Place a batch, or refuse it."""
        run = batch.run
        at = bisect_left(self._ends, run.first_offset)
        there = self._batches[at] if at < len(self._ends) else None
        if there is None or there.run.first_offset > run.last_offset:
            self._ends.insert(at, run.last_offset)
            self._batches.insert(at, batch)
            return
        same = replace(there.run, path=run.path, position=run.position) == run
        reason = "duplicate" if same and there.checksum == batch.checksum else "collision"
        self._refuse(refused(run, reason))

    def _refuse(self, one: Unprovable) -> None:
        """Note a batch; those that follow each other in a file are one extent."""
        before = self.refused[-1] if self.refused else None
        where = (one.path, one.position, one.reason)
        if before is None or (before.path, before.end, before.reason) != where:
            self.refused.append(one)
            return
        assert before.last_offset is not None
        assert one.first_offset is not None
        if before.last_offset >= one.first_offset:
            self.refused.append(one)
            return
        self.refused[-1] = replace(
            before,
            size=before.size + one.size,
            last_offset=one.last_offset,
            batches=before.batches + one.batches,
        )


def _joined(runs: Iterable[ProvableRun]) -> Iterator[ProvableRun]:
    """Runs that follow each other in a file, as one."""
    before: ProvableRun | None = None
    for run in runs:
        if before is not None and (before.path, before.end) == (run.path, run.position):
            known = before.records is not None and run.records is not None
            before = replace(
                before,
                size=before.size + run.size,
                last_offset=run.last_offset,
                batches=before.batches + run.batches,
                records=(before.records or 0) + (run.records or 0) if known else None,
            )
            continue
        if before is not None:
            yield before
        before = run
    if before is not None:
        yield before


__all__ = ["Batch", "Placed", "batches_of", "place_runs"]
