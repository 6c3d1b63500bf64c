"""The headers of provable batches, read again from their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from kseg.files.log_file import LogFile
from kseg.files.mapping import Mapping
from kseg.format.header import BatchHeader, BatchTable
from kseg.log.salvage.chains import offset_orders
from kseg.log.salvage.values import ProvableRun

if TYPE_CHECKING:
    from kseg.log.salvage.chains import Int64Array


def provable_tables(
    runs: Iterable[ProvableRun], mapping: Mapping = "never"
) -> Iterator[tuple[ProvableRun, BatchTable]]:
    """The headers of provable batches, in their order, some at a time.

    Args:
        runs: of a `ProvablePartition`, in any choice and order.
        mapping: see `kseg.files.mapping`.

    Yields:
        Each run with tables of its batches: positions in its file, sizes, offsets, leader epochs,
        checksums and the other fields of `kseg.format.header.FIELDS`.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    for path, of_file in groupby(runs, key=lambda run: run.path):
        taken: list[ProvableRun] = []
        with LogFile.open(path, mapping) as log:
            for number, table in log.headers_of(_spans(of_file, taken)):
                if len(table):
                    yield taken[number], table


def _spans(runs: Iterable[ProvableRun], taken: list[ProvableRun]) -> Iterator[tuple[int, int]]:
    """Where runs lie; each is noted when it is asked for."""
    for run in runs:
        taken.append(run)
        yield run.position, run.end


def last_batch(run: ProvableRun) -> BatchHeader:
    """The last batch of a run.

    Raises:
        CorruptRecordError, UnreadableError: the file is not as it was when it was read.
    """
    last: BatchHeader | None = None
    for _, table in provable_tables([run]):
        last = table[-1]
    assert last is not None
    return last


def run_between(run: ProvableRun, start: int, end: int) -> ProvableRun | None:
    """The batches of a run from a position up to another, both where batches begin; None for none.

    Raises:
        CorruptRecordError, UnreadableError: the file is not as it was when it was read.
    """
    if start >= end:
        return None
    first = last = -1
    batches = records = 0
    counted = True
    whole = ProvableRun(run.path, start, end - start, -1, -1, 0)
    for _, table in provable_tables([whole]):
        first = int(offset_orders(table)[0]) if first < 0 else first
        last = int(table.last_offset[-1])
        batches += len(table)
        counted &= bool(((table.record_count >= 0) & (table.base_offset >= 0)).all())
        records += int(table.record_count.sum())
    size, count = end - start, records if counted else None
    return ProvableRun(run.path, start, size, first, last, batches, count)


def row_of(run: ProvableRun, table: BatchTable, row: int) -> ProvableRun:
    """One batch of a table of a run, as a run."""
    position, size = int(table.position[row]), int(table.size[row])
    first, last = int(offset_orders(table)[row]), int(table.last_offset[row])
    count = int(table.record_count[row]) if table.base_offset[row] >= 0 else -1
    records = count if count >= 0 else None
    return ProvableRun(run.path, position, size, first, last, 1, records)


def gaps_within(run: ProvableRun) -> Iterator[tuple[int, int]]:
    """Where batches of a run leave out offsets: a position, and the first offset behind the gap."""
    for _, end, position in gap_columns(run):
        yield from zip(position.tolist(), end.tolist(), strict=True)


def gap_columns(run: ProvableRun) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """First offsets and ends of the gaps in a run, and positions behind them, int64[n] each."""
    if run.is_dense or run.batches == 1:
        return
    before = run.first_offset - 1
    for _, table in provable_tables([run]):
        first = np.append(before, table.last_offset[:-1]) + 1
        end = offset_orders(table)
        gaps = np.flatnonzero(end > first)
        yield first[gaps], end[gaps], table.position[gaps]
        before = int(table.last_offset[-1])


__all__ = ["gap_columns", "gaps_within", "provable_tables", "row_of", "run_between"]
