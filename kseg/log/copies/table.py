"""Batches of a copy as rows of numbers: the fields of their headers, and where they lie.

A row is that of `BatchTable.rows` with two numbers behind it:

    FIRST   the first offset: the stored one; of a compressed message of magic 0 or 1, which does
            not say, the least one that it can have behind the batch in front of it
    FILE    the number of the log file in `Copy.files`

Two batches are the same if all fields of their headers agree but for the leader epoch, which no
checksum covers: the checksum itself is among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.format.header import COLUMN, FIELDS

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.header import BatchTable

    Offsets = npt.NDArray[np.int64]
    Rows = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Index = npt.NDArray[np.intp]

POSITION: Final = COLUMN["position"]
SIZE: Final = COLUMN["size"]
LAST: Final = COLUMN["last_offset"]
EPOCH: Final = COLUMN["leader_epoch"]
COUNT: Final = COLUMN["record_count"]
FIRST: Final = len(FIELDS)
FILE: Final = FIRST + 1
COLUMNS: Final = FILE + 1

#: What says which batch it is. The first offset of a compressed message is a guess from the batch
#: in front of it, so the stored one counts; what the walk found out is not compared.
_SAME: Final = tuple(
    COLUMN[name]
    for name in FIELDS
    if name not in ("position", "leader_epoch", "crc_ok", "control_type", "coordinator_epoch")
)
#: The fields that are neighbours, so that a comparison takes slices and copies nothing.
_RUNS: Final = tuple(
    slice(run[0], run[-1] + 1)
    for run in np.split(np.array(_SAME), np.flatnonzero(np.diff(_SAME) != 1) + 1)
)
#: Behind all offsets.
OFFSETS_END: Final = 2**63 - 1
NOTHING: Final = np.empty((0, COLUMNS), np.int64)


def rows_of(table: BatchTable, file: int, next_offset: int) -> Rows:
    """The rows of a walk's table.

    Args:
        table: batches of one file, in the order of their offsets.
        file: its number.
        next_offset: the least offset that the first batch can have.
    """
    rows = np.empty((len(table), COLUMNS), np.int64)
    rows[:, :FIRST] = table.rows
    rows[:, FILE] = file
    first = rows[:, FIRST]
    first[:] = table.base_offset
    if table.is_wrapper.any():
        before = np.concatenate(([next_offset], table.last_offset[:-1] + 1))
        np.copyto(first, before, where=first < 0)
    return rows


def _same_batches(one: Rows, other: Rows) -> Mask:
    """bool[n]: which of the rows of two tables of one length are the same batch."""
    same = np.ones(len(one), np.bool_)
    for run in _RUNS:
        same &= (one[:, run] == other[:, run]).all(axis=1)
    return same


def keys_of(rows: Rows) -> list[bytes]:
    """What says which batch each row is, to be compared."""
    return [row.tobytes() for row in rows[:, _SAME]]


def all_same(one: Rows, other: Rows) -> bool:
    """Whether two tables are of the same batches, one by one."""
    return len(one) == len(other) and all(
        np.array_equal(one[:, run], other[:, run]) for run in _RUNS
    )


def twins(one: Rows, other: Rows) -> tuple[Index, Index]:
    """Which batches of two tables are the same: the numbers of their rows in each, intp[m].

    Args:
        one, other: both ascend, and no batch overlaps another of its table.
    """
    if all_same(one, other):
        every = np.arange(len(one))
        return every, every
    at = np.searchsorted(other[:, LAST], one[:, LAST])
    mine = np.flatnonzero(at < len(other))
    theirs = at[mine]
    same = _same_batches(one[mine], other[theirs])
    return mine[same], theirs[same]


def overlapping(rows: Rows, others: Rows) -> Mask:
    """bool[n]: which batches hold offsets that batches of the other table hold, too."""
    until = np.searchsorted(others[:, FIRST], rows[:, LAST], side="right")
    since = np.searchsorted(others[:, LAST], rows[:, FIRST], side="left")
    over: Mask = until > since
    return over


def touches(first: Offsets, last: Offsets, ranges: Rows) -> Mask:
    """bool[n]: which of some ranges of offsets touch one of those that ascend, int64[m, 2]."""
    until = np.searchsorted(ranges[:, 0], last, side="right")
    since = np.searchsorted(ranges[:, 1], first, side="left")
    touches: Mask = until > since
    return touches


def without(rows: Rows, taken: Index) -> Rows:
    """The rows but for those of some numbers."""
    left = np.ones(len(rows), np.bool_)
    left[taken] = False
    return rows[left]


__all__ = [
    "COLUMNS",
    "COUNT",
    "EPOCH",
    "FILE",
    "FIRST",
    "LAST",
    "NOTHING",
    "OFFSETS_END",
    "POSITION",
    "SIZE",
    "all_same",
    "keys_of",
    "overlapping",
    "rows_of",
    "touches",
    "twins",
    "without",
]
