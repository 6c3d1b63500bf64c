"""Records of two copies against each other, by offset: offset, epoch, time, key, value, headers.

For batches that were compacted apart, hold another codec, or are cut otherwise. Memory stays flat:
of each copy one piece of columns is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.format.take import take_binary, take_headers, take_rows
from kseg.log.copies import FILE, FIRST, LAST, OFFSETS_END, POSITION, SIZE

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns
    from kseg.log.copies import Copy

    Offsets = npt.NDArray[np.int64]
    Rows = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_FIELDS: Final = ("offset", "leader_epoch", "timestamp", "key", "value", "headers")
_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RecordsFound:
    """What some records of both came to, as offsets, int64[n], ascending.

    Attributes:
        differing: both have a record there, and these differ.
        epochs: the same record under another leader epoch.
        lacks: by copy, what it has and the other one lacks.
        compacted: the same, where compaction has taken it from the other one.
    """

    differing: Offsets
    epochs: Offsets
    lacks: tuple[Offsets, Offsets]
    compacted: tuple[Offsets, Offsets]


def compare_records(copies: tuple[Copy, Copy], sides: tuple[Rows, Rows]) -> Iterator[RecordsFound]:
    """Compare the records of some batches of two copies.

    Args:
        copies: both.
        sides: the batches of each, by offset.

    Raises:
        KsegError, OSError: a file has changed, or a batch cannot be decoded.
    """
    pieces = (_pieces(copies[0], sides[0]), _pieces(copies[1], sides[1]))
    for one, other in _aligned(*pieces):
        yield _compared(copies, sides, (one, other))


def _pieces(copy: Copy, rows: Rows) -> Iterator[RecordColumns]:
    """The records of batches as columns, a bounded piece at a time."""
    if not len(rows):
        return
    ends = rows[:, POSITION] + rows[:, SIZE]
    breaks = (rows[1:, POSITION] != ends[:-1]) | (rows[1:, FILE] != rows[:-1, FILE])
    begins = np.flatnonzero(np.concatenate(([True], breaks)))
    lasts = np.append(begins[1:], len(rows)) - 1
    for begin, last in zip(begins.tolist(), lasts.tolist(), strict=True):
        with copy.open_segment(int(rows[begin, FILE])) as segment:
            yield from segment.read(
                start_position=int(rows[begin, POSITION]),
                end_position=int(ends[last]),
                fields=_FIELDS,
                control=True,
                verify_crc=False,
            )


def _aligned(
    one: Iterator[RecordColumns], other: Iterator[RecordColumns]
) -> Iterator[tuple[RecordColumns | None, RecordColumns | None]]:
    """Pieces of both with all records up to the same offset."""
    held = [next(one, None), next(other, None)]
    sources = (one, other)
    while held[0] is not None or held[1] is not None:
        until = min(OFFSETS_END if piece is None else int(piece.offset[-1]) for piece in held)
        taken: list[RecordColumns | None] = []
        for side, piece in enumerate(held):
            count = 0 if piece is None else int(np.searchsorted(piece.offset, until, side="right"))
            if piece is None or count == len(piece):
                taken.append(piece)
                held[side] = None if piece is None else next(sources[side], None)
                continue
            taken.append(take_rows(piece, np.arange(count)) if count else None)
            held[side] = take_rows(piece, np.arange(count, len(piece)))
        yield taken[0], taken[1]


def _compared(
    copies: tuple[Copy, Copy],
    sides: tuple[Rows, Rows],
    pieces: tuple[RecordColumns | None, RecordColumns | None],
) -> RecordsFound:
    offsets = [_NONE if piece is None else piece.offset for piece in pieces]
    common, mine, theirs = np.intersect1d(offsets[0], offsets[1], return_indices=True)
    differing = epochs = _NONE
    if pieces[0] is not None and pieces[1] is not None and len(common):
        one, other = take_rows(pieces[0], mine), take_rows(pieces[1], theirs)
        differs = _differing(one, other)
        differing = common[differs]
        epochs = common[~differs & (one.leader_epoch != other.leader_epoch)]
    lacks, compacted = [], []
    for side in (0, 1):
        alone = np.setdiff1d(offsets[side], common, assume_unique=True)
        gone = _is_compacted(alone, copies[1 - side], sides[1 - side])
        lacks.append(alone[~gone])
        compacted.append(alone[gone])
    return RecordsFound(differing, epochs, (lacks[0], lacks[1]), (compacted[0], compacted[1]))


def _is_compacted(offsets: Offsets, other: Copy, rows: Rows) -> Mask:
    """bool[n]: what the other copy lacks because it was compacted.

    That is what lies in front of its clean offset, or inside one of its batches: Kafka writes no
    batch with a gap, but the cleaner keeps the first and the last offset of one that it thins out.
    """
    at = np.searchsorted(rows[:, LAST], offsets)
    inside = np.zeros(len(offsets), np.bool_)
    known = at < len(rows)
    inside[known] = rows[at[known], FIRST] <= offsets[known]
    return inside | (offsets < other.clean_offset)


# ---- columns -------------------------------------------------------------------------------------


def _differing(one: RecordColumns, other: RecordColumns) -> Mask:
    """bool[n]: which of the records of two pieces of one length differ."""
    differs: Mask = one.timestamp != other.timestamp
    differs |= _differing_binary(one.key, other.key)
    differs |= _differing_binary(one.value, other.value)
    differs |= _differing_headers(one.headers, other.headers)
    return differs


def _differing_binary(one: BinaryColumn, other: BinaryColumn) -> Mask:
    sizes = one.sizes()
    differs: Mask = sizes != other.sizes()
    if not differs.any() and np.array_equal(one.data, other.data):
        return differs
    alike = np.flatnonzero(~differs)
    mine, theirs = take_binary(one, alike), take_binary(other, alike)
    at = np.flatnonzero(mine.data != theirs.data)
    rows = np.searchsorted(mine.offsets, at, side="right") - 1
    differs[alike[rows]] = True
    return differs


def _differing_headers(one: HeadersColumn, other: HeadersColumn) -> Mask:
    counts = np.diff(one.offsets)
    differs: Mask = counts != np.diff(other.offsets)
    alike = np.flatnonzero(~differs)
    mine, theirs = take_headers(one, alike), take_headers(other, alike)
    inner = _differing_binary(mine.keys, theirs.keys)
    inner |= _differing_binary(mine.values, theirs.values)
    owners = np.repeat(alike, counts[alike])
    differs[owners[inner]] = True
    return differs


__all__ = ["RecordsFound", "compare_records"]
