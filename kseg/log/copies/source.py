"""A copy of a partition as tables of batches; and several copies in step.

A row of a table is that of `BatchTable.rows` with two more numbers:

    FIRST   the first offset: the stored one. A compressed message of magic 0 or 1 does not store
            it; then it is the least offset possible after the batch before it
    FILE    the number of the log file in `Copy.files`

Two batches are the same if all fields of their headers agree but for the leader epoch, which no
checksum covers; the checksum itself is one of the fields.

`kseg.log.salvage` says which batches are sound. A copy that is being written is read up to its size
at the start. `Copy.assumed` takes a copy for sound, as most are, and reads it while it is compared,
checksums included: a third of the time. Damage, an old format, batches out of order or an
unfinished end raise `DoubtError`; then the caller reads the copy with `Copy.read`.

`windows` walks several copies in step. A window ends where no batch of any copy crosses its end, so
two batches that hold the same offset lie in the same window. Memory stays flat: of each copy one
table of its batches is in memory, and a few more if batches of two copies overlap again and again
without a common end. Past `HELD_MAX` batches such a window is cut anyway.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from kseg.constants import INT32_MAX, INT64_MAX, Bools, Int64s, Intps, StopReason, codec_label
from kseg.documents import Documented, fields_of, frozen_dataclass
from kseg.errors import KsegError
from kseg.files import io
from kseg.files.log_file import LogFile, Tile
from kseg.files.mapping import Mapping
from kseg.files.names import classify_path
from kseg.format.header import COLUMN, FIELDS, BatchHeader, BatchTable
from kseg.log import data_directory
from kseg.log.salvage.provable import clean_offset_of, read_provable
from kseg.log.salvage.values import (
    LostOffsets,
    ProvablePartition,
    SegmentSeen,
    Span,
    provable_tables,
)
from kseg.log.segment.index_entries import next_offset
from kseg.log.segment.reader import Segment
from kseg.stores.path import name_of, path_at

#: Batches as rows of numbers, int64[n, COLUMNS].
Rows: TypeAlias = Int64s

POSITION: Final = COLUMN["position"]
SIZE: Final = COLUMN["size"]
LAST: Final = COLUMN["last_offset"]
EPOCH: Final = COLUMN["leader_epoch"]
COUNT: Final = COLUMN["record_count"]
FIRST: Final = len(FIELDS)
FILE: Final = FIRST + 1
COLUMNS: Final = FILE + 1

#: The identity of a batch. The first offset of a compressed message is a guess from the batch
#: before it, so the stored one counts; the findings of the walk are not compared.
_SAME: Final = tuple(
    COLUMN[name]
    for name in FIELDS
    if name not in ("position", "leader_epoch", "crc_ok", "control_type", "coordinator_epoch")
)
#: The same as slices of neighbours, so that a comparison copies nothing.
_RUNS: Final = tuple(
    slice(run[0], run[-1] + 1)
    for run in np.split(np.array(_SAME), np.flatnonzero(np.diff(_SAME) != 1) + 1)
)
#: Beyond all offsets.
OFFSETS_END: Final = INT64_MAX
NOTHING: Final = np.empty((0, COLUMNS), np.int64)


def rows_of(table: BatchTable, file: int, next_offset: int) -> Rows:
    """The rows for a walk's table.

    Args:
        table: batches of one file, in the order of their offsets.
        file: the number of the file.
        next_offset: the lowest offset that the first batch can have.
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


def _same_batches(rows: Rows, other: Rows) -> Bools:
    """Which rows of two tables of one length are the same batch, bool[n]."""
    same = np.ones(len(rows), np.bool_)
    for run in _RUNS:
        same &= (rows[:, run] == other[:, run]).all(axis=1)
    return same


def keys_of(rows: Rows) -> list[bytes]:
    """The identity of the batch in each row, for comparisons."""
    return [row.tobytes() for row in rows[:, _SAME]]


def twins(rows: Rows, other: Rows) -> tuple[Intps, Intps]:
    """Which batches of two tables are the same: their row indices in each, intp[m].

    Args:
        rows, other: both ascend, and no batch overlaps another of its table.
    """
    if len(rows) == len(other) and all(
        np.array_equal(rows[:, run], other[:, run]) for run in _RUNS
    ):
        every = np.arange(len(rows))
        return every, every
    # Batches that are the same have the same last offset.
    at = np.searchsorted(other[:, LAST], rows[:, LAST])
    own_rows = np.flatnonzero(at < len(other))
    other_rows = at[own_rows]
    same = _same_batches(rows[own_rows], other[other_rows])
    return own_rows[same], other_rows[same]


def overlapping(rows: Rows, other_rows: Rows) -> Bools:
    """Which batches have offsets that batches of the other table have too, bool[n].

    Both tables ascend: the other rows from `since` to `until` overlap a batch.
    """
    until = np.searchsorted(other_rows[:, FIRST], rows[:, LAST], side="right")
    since = np.searchsorted(other_rows[:, LAST], rows[:, FIRST], side="left")
    over: Bools = until > since
    return over


def touches(first: Int64s, last: Int64s, ranges: Rows) -> Bools:
    """Which ranges of offsets touch one of some ascending ranges, int64[m, 2]; bool[n]."""
    until = np.searchsorted(ranges[:, 0], last, side="right")
    since = np.searchsorted(ranges[:, 1], first, side="left")
    touches: Bools = until > since
    return touches


def without(rows: Rows, taken: Intps) -> Rows:
    """The rows except those with the numbers `taken`."""
    stays = np.ones(len(rows), np.bool_)
    stays[taken] = False
    return rows[stays]


@frozen_dataclass
class BatchSeen(Documented):
    """A batch of one copy: its place, and its header."""

    path: str
    header: BatchHeader

    @classmethod
    def of(cls, row: Rows, files: Sequence[str]) -> BatchSeen:
        """A row as a batch; the row has the number of its file in `files`."""
        fields = row.tolist()
        return cls(files[fields[FILE]], BatchHeader(*fields[: len(FIELDS)]))

    @property
    def first_offset(self) -> int:
        """Its first offset; the last offset for a compressed message of magic 0 or 1."""
        header = self.header
        return header.base_offset if header.base_offset >= 0 else header.last_offset

    def to_dict(self) -> dict[str, Any]:
        """The document of `--json`, with the names of `kseg dump --batches`."""
        words = (
            "position size base_offset last_offset count=record_count leader_epoch producer_id"
            " producer_epoch base_sequence max_timestamp magic codec transactional=is_transactional"
            " control=is_control crc"
        )
        codec = codec_label(self.header.codec)
        return {"path": self.path, **fields_of(self.header, words), "codec": codec}


#: Tables are joined until they have so many batches: later steps cost time for each table.
_ROWS_JOINED: Final = 4_096
_MAGIC: Final = COLUMN["magic"]
_ATTRIBUTES: Final = COLUMN["attributes"]
_CRC_OK: Final = COLUMN["crc_ok"]
_MAGIC_NOW: Final = 2
_ATTRIBUTES_KNOWN: Final = 0x7F
_CODEC: Final = 0x07
_CODEC_MAX: Final = 4


class DoubtError(KsegError):
    """A copy may not be sound."""


def taken_for_sound(path: Path, mapping: Mapping) -> ProvablePartition:
    """The provable part of a copy if its indexes say that it is sound; its batches are not counted.

    Raises:
        DoubtError: it is not such a copy.
        KsegError, OSError: a file cannot be read.
    """
    listing = classify_path(path).partition_files
    if listing is None or any(files.kafka07 for files in listing.segments):
        raise DoubtError("no log of batches", path=path)
    seen = tuple(
        SegmentSeen(files.base_offset, name_of(files.log), io.size_at(files.log))
        for files in listing.segments
    )
    filled = [segment for segment in seen if segment.size]
    runs = [Span(segment.path, 0, segment.size, segment.base_offset) for segment in filled]
    if runs:  # the end according to the last segment's index; the walk will show if it is right
        with Segment.open(runs[-1].path, mapping=mapping) as segment:
            end = next_offset(segment, segment.base_offset + INT32_MAX)
        runs[-1] = replace(runs[-1], last_offset=end - 1)
    return ProvablePartition(
        path,
        data_directory.partition_of(path),
        None,
        data_directory.offsets_beside(path).log_start_offset,
        seen,
        tuple(runs),
        (),
        (),
    )


def sound_rows(provable: ProvablePartition, mapping: Mapping) -> Iterator[Rows]:
    """The batches of a copy, int64[n, COLUMNS], n above 0, their checksums compared.

    Args:
        provable: the answer of `taken_for_sound`.
        mapping: see `kseg.files.mapping`.

    Raises:
        DoubtError: the copy may not be sound.
        KsegError, OSError: a file cannot be read.
    """
    bases = [segment.base_offset for segment in provable.segments]
    # The least first offset that comes next, and the largest that the last segment can have.
    expected, most = (bases[0], bases[-1] + INT32_MAX) if bases else (0, 0)
    epoch = -1
    for number, segment in enumerate(provable.segments):
        if not segment.size:
            continue
        with LogFile.open(segment.path, mapping) as log:
            for tables in _join_tables(log.walk(end=segment.size, on_bad_crc="stop")):
                rows = np.concatenate([rows_of(table, number, 0) for table in tables])
                rows[:, _CRC_OK] = -1  # as `Copy.tables` has them for copies that were proved
                if len(rows):
                    do_follow = rows[0, FIRST] >= expected and rows[0, EPOCH] >= epoch
                    if not (do_follow and rows[-1, LAST] <= most and _are_usual(rows)):
                        raise DoubtError("batches that may not fit", path=provable.path)
                    yield rows
                    expected, epoch = int(rows[-1, LAST]) + 1, int(rows[-1, EPOCH])
            if tables[-1].stop is not StopReason.END:
                raise DoubtError("the walk does not come to the end", path=segment.path)
    if provable.runs and expected != provable.end_offset:
        raise DoubtError("the log ends elsewhere", path=provable.path)


def _join_tables(tiles: Iterable[Tile]) -> Iterator[list[BatchTable]]:
    """The tables of a walk, `_ROWS_JOINED` batches or more at a time."""
    waiting: list[BatchTable] = []
    for tile in tiles:
        waiting.append(tile.table)
        if sum(map(len, waiting)) >= _ROWS_JOINED:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _are_usual(rows: Rows) -> bool:
    """Whether batches are of magic 2, with possible headers, in the order of offsets and epochs."""
    first, last, attributes = rows[:, FIRST], rows[:, LAST], rows[:, _ATTRIBUTES]
    counts, epochs = rows[:, COUNT], rows[:, EPOCH]
    return (
        bool((rows[:, _MAGIC] == _MAGIC_NOW).all())
        and not (attributes & ~_ATTRIBUTES_KNOWN).any()
        and bool(((attributes & _CODEC) <= _CODEC_MAX).all())
        and bool(((counts >= 0) & (counts <= last - first + 1) & (first <= last)).all())
        and bool((first[1:] > last[:-1]).all())
        and bool((epochs[1:] >= epochs[:-1]).all())
    )


class Copy:
    """One copy of a partition.

    Attributes:
        path: the directory, as it was given.
        provable: its provable batches, and its other bytes.
        files: its log files; rows name them by their numbers.
        batches: the number of sound ones; for a copy that is assumed sound, those of `tables` so
            far.
    """

    def __init__(
        self,
        path: str,
        provable: ProvablePartition,
        mapping: Mapping = "auto",
        *,
        is_assumed: bool = False,
    ) -> None:
        """Hold a copy that was read; use `read` or `assumed` instead."""
        self.path: Final = path
        self.provable: Final = provable
        self.files: Final = tuple(segment.path for segment in provable.segments)
        self.batches = sum(run.batches for run in provable.runs)
        self._mapping: Final[Mapping] = mapping
        self._is_assumed: Final = is_assumed

    @classmethod
    def read(
        cls,
        path: str,
        mapping: Mapping = "auto",
        *,
        proved: abc.Mapping[str, abc.Sequence[int]] | None = None,
        weighs: bool = False,
    ) -> Copy:
        """Read all batches of a partition directory, with their checksums.

        Args:
            path: the directory.
            mapping: see `kseg.files.mapping`.
            proved, weighs: see `read_provable`.

        Raises:
            NotALogError: no segment is in it.
            OSError: it cannot be listed, or a file not be opened.
        """
        return cls(path, read_provable(path, proved=proved, weighs=weighs), mapping)

    @classmethod
    def assumed(cls, path: str, mapping: Mapping = "auto") -> Copy:
        """Assume that a partition directory is sound, until `tables` is read.

        Raises:
            DoubtError: it may not be.
            KsegError, OSError: it cannot be read.
        """
        return cls(path, taken_for_sound(path_at(path), mapping), mapping, is_assumed=True)

    @property
    def first_offset(self) -> int:
        """The base offset of its first segment; 0 if it has no segment."""
        segments = self.provable.segments
        return segments[0].base_offset if segments else 0

    @property
    def start_offset(self) -> int:
        """Where its log begins: with its first segment, or later by the checkpoint."""
        return max(self.first_offset, self.provable.log_start_offset)

    @property
    def end_offset(self) -> int:
        """The offset after its last sound batch."""
        return self.provable.end_offset

    @property
    def unknown(self) -> tuple[LostOffsets, ...]:
        """Offsets in damaged bytes; plain gaps are not included."""
        return tuple(lost for lost in self.provable.lost if lost.bytes)

    @cached_property
    def unknown_ranges(self) -> Rows:
        """The ranges of `unknown` as first and last offsets, int64[n, 2], ascending."""
        ranges = [
            (lost.first_offset, OFFSETS_END if lost.last_offset is None else lost.last_offset)
            for lost in self.unknown
        ]
        return np.array(ranges, np.int64).reshape(-1, 2)

    @property
    def hides_end(self) -> bool:
        """Whether damage after its last sound batch hides where it ended."""
        return any(lost.last_offset is None for lost in self.unknown)

    @cached_property
    def clean_offset(self) -> int:
        """The offset up to which the log cleaner has compacted it; 0 if unknown."""
        return clean_offset_of(self.provable.path, self.provable.partition)

    def seen(self, row: Rows) -> BatchSeen:
        """A row of `tables` as a batch."""
        return BatchSeen.of(row, self.files)

    def open_segment(self, number: int) -> Segment:
        """Open one of its segments.

        Raises:
            OSError: it is gone, or cannot be read.
        """
        return Segment.open(self.files[number], mapping=self._mapping, is_last=False)

    def tables(self) -> Iterator[Rows]:
        """Its sound batches, sorted by offset, int64[n, COLUMNS], n above 0.

        Raises:
            DoubtError: it was assumed to be sound, and may not be.
            KsegError, OSError: a file has changed, or is gone.
        """
        if self._is_assumed:
            for rows in sound_rows(self.provable, self._mapping):
                self.batches += len(rows)
                yield rows
            return
        numbers = {path: number for number, path in enumerate(self.files)}
        # Compressed messages of magic 0 and 1 begin after the batch before them, within a run.
        expected, last_run = 0, None
        for run, table in provable_tables(self.provable.runs, self._mapping):
            if run is not last_run and table.is_wrapper[0]:
                expected = self._first_offset_of(numbers[run.path], table)
            yield rows_of(table, numbers[run.path], expected)
            expected, last_run = table.end_offset, run

    def _first_offset_of(self, number: int, table: BatchTable) -> int:
        """The offset of the first record of a table; the last of its batch if none is readable.

        A compressed message of magic 0 or 1 is inflated for that: the bytes before it may be
        damaged.
        """
        start, last = int(table.position[0]), int(table.last_offset[0])
        with suppress(KsegError), self.open_segment(number) as segment:
            for columns in segment.read(
                start_position=start,
                end_position=start + int(table.size[0]),
                columns=("offset",),
                verify_crc=False,
            ):
                return min(int(columns.offset[0]), last) if len(columns) else last
        return last


#: The most batches of one copy that wait for the end of a window.
HELD_MAX: Final = 1 << 16


def windows(copies: Sequence[Copy]) -> Iterator[tuple[int, tuple[Rows, ...]]]:
    """Walk copies side by side.

    Args:
        copies: one or more.

    Yields:
        The end of a window of offsets, and the batches of each copy in it, int64[n, COLUMNS]. The
        windows follow each other, from 0 to `OFFSETS_END`. No batch reaches over the end of its
        window, unless more than `HELD_MAX` batches of a copy overlap others without a break.

    Raises:
        KsegError, OSError: as `Copy.tables`.
    """
    cursors = [_Cursor(copy) for copy in copies]
    start = 0
    while start < OFFSETS_END:  # the copy of which the least was read is next
        least = min(cursor.read_to for cursor in cursors)
        for cursor in cursors:
            if cursor.read_to == least:
                cursor.load()
        reached = min(cursor.read_to for cursor in cursors)
        end = _clean_end(cursors, reached)
        if end <= start:
            if max(len(cursor.rows) for cursor in cursors) <= HELD_MAX:
                continue
            end = reached
        yield end, tuple(cursor.take(end) for cursor in cursors)
        start = end


def _clean_end(cursors: Sequence[_Cursor], end: int) -> int:
    """The last offset up to `end` that no batch of any copy crosses."""
    if not any(cursor.reaches_over(end) for cursor in cursors):
        return end
    # There the last chain of batches begins in which each overlaps one before it.
    rows = np.concatenate([cursor.before(end) for cursor in cursors])
    rows = rows[np.argsort(rows[:, FIRST], kind="stable")]
    reached = np.maximum.accumulate(rows[:, LAST])
    breaks = np.flatnonzero(rows[1:, FIRST] > reached[:-1])
    return int(rows[breaks[-1] + 1 if len(breaks) else 0, FIRST])


class _Cursor:
    """One copy: the batches that were read and are not in a window yet.

    Attributes:
        rows: the batches that are read and not in a window yet.
        read_to: all batches before this offset were read; -1 before the first read.
    """

    __slots__ = ("_tables", "read_to", "rows")

    def __init__(self, copy: Copy) -> None:
        self._tables = copy.tables()
        self.rows: Rows = NOTHING
        self.read_to = -1

    def load(self) -> None:
        """Read the next batches."""
        rows = next(self._tables, None)
        if rows is None:
            self.read_to = OFFSETS_END
            return
        self.rows = np.concatenate((self.rows, rows)) if len(self.rows) else rows
        self.read_to = int(rows[-1, LAST]) + 1

    def reaches_over(self, end: int) -> bool:
        """Whether a batch begins before an offset and has that offset, too."""
        at = int(np.searchsorted(self.rows[:, LAST], end))
        return at < len(self.rows) and bool(self.rows[at, FIRST] < end)

    def before(self, end: int) -> Rows:
        """The batches that begin before an offset."""
        return self.rows[: int(np.searchsorted(self.rows[:, FIRST], end))]

    def take(self, end: int) -> Rows:
        """Remove and return the batches before an offset, up to which the copy was read."""
        removed = self.before(end)
        self.rows = self.rows[len(removed) :]
        return removed
