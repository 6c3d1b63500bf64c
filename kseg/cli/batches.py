"""Batch tables as the command line shows them: wrappers completed, ranges, tails."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import kseg
from kseg.cli.rows import UNKNOWN
from kseg.format.bodies import message_error
from kseg.format.columns import decode
from kseg.format.header import COLUMN, BatchTable
from kseg.format.request import Request

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg import Segment
    from kseg.errors import CorruptRecordError, KsegError
    from kseg.files.mapping import Mapping
    from kseg.format.values import RecordColumns

    Column = npt.NDArray[np.int64]
    OnError = Callable[[KsegError], None]


def complete_wrappers(
    data: memoryview, base: int, table: BatchTable, on_error: OnError
) -> BatchTable:
    """Fill in `base_offset` and `record_count` of compressed messages, which are inflated for that.

    Both become `UNKNOWN` for a message that cannot be inflated.

    Args:
        data: bytes of the file from `base` on.
        base: file position of `data[0]`.
        table: headers of batches inside `data`.
        on_error: called with each error inside them.
    """
    wrapped = table.is_wrapper
    if not wrapped.any():
        return table
    rows = table.rows.copy()
    fields = ("position", "base_offset", "offset", "valid")
    request = Request(columns=fields, control=True, verify_crc=False)
    count, first = rows[:, COLUMN["record_count"]], rows[:, COLUMN["base_offset"]]
    count[wrapped] = first[wrapped] = UNKNOWN
    for columns in decode(data, table.take(wrapped), request, base=base, on_error=on_error):
        for error in message_errors(columns, table):
            on_error(error)
        positions, starts, counts = np.unique(
            columns.position, return_index=True, return_counts=True
        )
        at = np.searchsorted(table.position, positions)
        fresh = count[at] == UNKNOWN
        first[at[fresh]] = columns.base_offset[starts[fresh]]
        count[at] = np.maximum(count[at], 0) + counts
    return replace(table, rows=rows)


def message_errors(columns: RecordColumns, table: BatchTable) -> Iterator[CorruptRecordError]:
    """An error for each message in a sound wrapper whose own checksum is wrong.

    Args:
        columns: with `position`, `offset` and `valid`.
        table: the headers that they come from, with what a walk found of their checksums.
    """
    rows = np.flatnonzero(~columns.valid)
    if not len(rows):
        return
    outer = np.searchsorted(table.position, columns.position[rows])
    for row in rows[table.crc_ok[outer] != 0].tolist():
        yield message_error(int(columns.position[row]), int(columns.offset[row]))


def tail_of(
    paths: Sequence[Path], count: int, *, control: bool = True, mapping: Mapping = "auto"
) -> tuple[int, int]:
    """The file and position from which on at least the last `count` records lie.

    Compressed messages of magic 0 and 1, which do not say how many they hold, count as one.

    Args:
        paths: logs in order.
        count: records wanted.
        control: control records count too.
        mapping: how to open them.

    Raises:
        UnreadableError: the disk cannot read bytes of one of them.
    """
    needed = count
    for number in range(len(paths) - 1, -1, -1):
        with kseg.Segment.open(paths[number], mapping=mapping) as segment:
            tables = _last_tables(segment, needed, control=control)
        for position, records in reversed(tables):
            from_end = np.cumsum(records[::-1])
            enough = int(np.searchsorted(from_end, needed))
            if enough < len(from_end):
                return number, int(position[len(position) - 1 - enough])
            needed -= int(from_end[-1])
    return 0, 0


def _last_tables(segment: Segment, count: int, *, control: bool) -> list[tuple[Column, Column]]:
    """Positions and record counts of the last tables that together hold `count` records."""
    held: deque[tuple[Column, Column, int]] = deque()
    total = 0
    for table in segment.headers():
        if not len(table):
            continue
        records = np.maximum(table.record_count, (table.magic < 2).astype(np.int64))
        if not control:
            records = np.where(table.is_control, 0, records)
        held.append((table.position, records, int(records.sum())))
        total += held[-1][2]
        while total - held[0][2] >= count and len(held) > 1:
            total -= held.popleft()[2]
    return [(position, records) for position, records, _ in held]
