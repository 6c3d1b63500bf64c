"""A copy that is taken for sound until its one walk finds otherwise.

Most copies are. So they are read once, checksums and all, while they are compared. Whatever may be
damaged, of an old format, out of order or still being written raises `DoubtError`; then
`kseg.log.salvage` says what can be proved of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.constants import StopReason
from kseg.errors import KsegError
from kseg.files.log_file import LogFile
from kseg.files.names import classify_path
from kseg.format.header import COLUMN
from kseg.log import data_directory
from kseg.log.copies.table import COLUMNS, COUNT, EPOCH, FILE, FIRST, LAST
from kseg.log.salvage.values import ProvablePartition, ProvableRun, SegmentSeen
from kseg.log.segment.reader import Segment
from kseg.log.segment.walks import next_offset

if TYPE_CHECKING:
    from pathlib import Path

    from kseg.files.mapping import Mapping
    from kseg.format.header import BatchTable
    from kseg.log.copies.table import Rows

#: Tables are joined until they have so many batches: what follows costs by the table.
_ROWS_JOINED: Final = 4_096
_INT32_MAX: Final = 2**31 - 1
_BASE: Final = COLUMN["base_offset"]
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
    """What can be proved of a copy if it is sound; batches are not counted.

    Raises:
        DoubtError: it is no such copy.
        KsegError, OSError: a file cannot be read.
    """
    listing = classify_path(path).partition_files
    if listing is None or any(each.kafka07 for each in listing.segments):
        raise DoubtError("no log of batches", path=path)
    seen = tuple(
        SegmentSeen(each.base_offset, str(each.log), each.log.stat().st_size)
        for each in listing.segments
    )
    filled = [each for each in seen if each.size]
    runs = [ProvableRun(each.path, 0, each.size, each.base_offset, -1, 0) for each in filled]
    if runs:
        end = _end_of(runs[-1].path, mapping)
        last = runs.pop()
        runs.append(ProvableRun(last.path, 0, last.size, last.first_offset, end - 1, 0))
    return ProvablePartition(
        path,
        data_directory.partition_of(path),
        None,
        data_directory.told_of(path).log_start_offset,
        seen,
        tuple(runs),
        (),
        (),
    )


def _end_of(path: str, mapping: Mapping) -> int:
    """The offset behind the last batch of a segment, by its index; the walk says if that is so."""
    with Segment.open(path, mapping=mapping) as segment:
        return next_offset(segment, segment.base_offset + _INT32_MAX)


def sound_rows(provable: ProvablePartition, mapping: Mapping) -> Iterator[Rows]:
    """The batches of a copy, int64[n, COLUMNS], n above 0, their checksums compared.

    Args:
        provable: of `taken_for_sound`.
        mapping: see `kseg.files.mapping`.

    Raises:
        DoubtError: the copy may not be sound.
        KsegError, OSError: a file cannot be read.
    """
    check = _Check(provable)
    sizes = {segment.path: segment.size for segment in provable.segments}
    for number, path in enumerate(sizes):
        if not sizes[path]:
            continue
        with LogFile.open(path, mapping) as log:
            waiting: list[BatchTable] = []
            for tile in log.walk(end=sizes[path], on_bad_crc="stop"):
                waiting.append(tile.table)
                if sum(map(len, waiting)) >= _ROWS_JOINED:
                    yield check.of(waiting, number)
                    waiting = []
            if tile.table.stop is not StopReason.END:
                raise DoubtError("the walk does not come to the end", path=path)
            if any(map(len, waiting)):
                yield check.of(waiting, number)
    check.end()


class _Check:
    """Whether batches are such that all of them can be proved, in the order of a copy."""

    def __init__(self, provable: ProvablePartition) -> None:
        self._provable: Final = provable
        self._epoch = -1
        bases = [segment.base_offset for segment in provable.segments]
        self._expected, self._most = (bases[0], bases[-1] + _INT32_MAX) if bases else (0, 0)

    def of(self, tables: list[BatchTable], number: int) -> Rows:
        """The rows of tables of one file."""
        counts = list(map(len, tables))
        rows = np.empty((sum(counts), COLUMNS), np.int64)
        for table, end in zip(tables, accumulate(counts), strict=True):
            rows[end - len(table) : end, :FIRST] = table.rows
        rows[:, FIRST] = rows[:, _BASE]
        rows[:, FILE] = number
        rows[:, _CRC_OK] = -1  # as a walk over headers alone has it: rows are the same in both ways
        self._look(rows)
        self._expected = int(rows[-1, LAST]) + 1
        self._epoch = int(rows[-1, EPOCH])
        return rows

    def _look(self, rows: Rows) -> None:
        first, last, attributes = rows[:, FIRST], rows[:, LAST], rows[:, _ATTRIBUTES]
        counts, epochs = rows[:, COUNT], rows[:, EPOCH]
        is_usual = (
            bool((rows[:, _MAGIC] == _MAGIC_NOW).all())
            and not (attributes & ~_ATTRIBUTES_KNOWN).any()
            and bool(((attributes & _CODEC) <= _CODEC_MAX).all())
            and bool(((counts >= 0) & (counts <= last - first + 1) & (first <= last)).all())
            and first[0] >= self._expected
            and bool((first[1:] > last[:-1]).all())
            and last[-1] <= self._most
            and epochs[0] >= self._epoch
            and bool((epochs[1:] >= epochs[:-1]).all())
        )
        if not is_usual:
            raise DoubtError("batches that may not fit", path=self._provable.path)

    def end(self) -> None:
        """Judge the end of the copy."""
        if self._provable.runs and self._expected != self._provable.end_offset:
            raise DoubtError("the log ends elsewhere", path=self._provable.path)


__all__ = ["DoubtError", "sound_rows", "taken_for_sound"]
