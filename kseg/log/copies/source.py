"""A copy of a partition, read once: its sound batches by offset, and what of it is not known.

What is sound, `kseg.log.salvage.provable` says. A copy that is being written is read up to what was
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.errors import KsegError
from kseg.files.metadata import read_partition_metadata
from kseg.format.header import FIELDS, BatchHeader
from kseg.log.clean_offsets import read_clean_offset
from kseg.log.copies.sound import sound_rows, taken_for_sound
from kseg.log.copies.table import FILE, OFFSETS_END, rows_of
from kseg.log.copies.values import BatchSeen
from kseg.log.salvage.provable import read_provable
from kseg.log.salvage.tables import provable_tables
from kseg.log.segment.reader import Segment

if TYPE_CHECKING:
    from collections import abc
    from uuid import UUID

    from kseg.files.mapping import Mapping
    from kseg.files.names import PartitionFiles
    from kseg.format.header import BatchTable
    from kseg.log.copies.table import Rows
    from kseg.log.salvage.values import LostOffsets, ProvablePartition


class Copy:
    """One copy.

    Attributes:
        path: the directory, as it was given.
        provable: what can be proved of it, and what cannot.
        files: its log files; rows name them by their numbers.
        batches: how many are sound; of a copy that is assumed to be, those of `tables` so far.
    """

    def __init__(
        self,
        path: str,
        provable: ProvablePartition,
        mapping: Mapping = "auto",
        *,
        is_assumed: bool = False,
    ) -> None:
        """Take what was found; use `read` or `assumed` instead."""
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
        """Take a partition directory for sound until `tables` is read; see `sound`.

        Raises:
            DoubtError: it may not be.
            KsegError, OSError: it cannot be read.
        """
        return cls(path, taken_for_sound(Path(path), mapping), mapping, is_assumed=True)

    @property
    def first_offset(self) -> int:
        """The base offset of its first segment; 0 without segments."""
        segments = self.provable.segments
        return segments[0].base_offset if segments else 0

    @property
    def start_offset(self) -> int:
        """Where its log begins: with its first segment, or later by the checkpoint."""
        return max(self.first_offset, self.provable.log_start_offset)

    @property
    def end_offset(self) -> int:
        """The offset behind its last sound batch."""
        return self.provable.end_offset

    @property
    def unknown(self) -> tuple[LostOffsets, ...]:
        """The offsets that lie in damaged bytes; those that merely are not there are none."""
        return tuple(lost for lost in self.provable.lost if lost.bytes)

    @cached_property
    def unknown_ranges(self) -> Rows:
        """The same as first and last offsets, int64[n, 2], ascending."""
        ranges = [
            (lost.first_offset, OFFSETS_END if lost.last_offset is None else lost.last_offset)
            for lost in self.unknown
        ]
        return np.array(ranges, np.int64).reshape(-1, 2)

    @property
    def hides_end(self) -> bool:
        """Whether damage lies behind its last sound batch, which hides where it ended."""
        return any(lost.last_offset is None for lost in self.unknown)

    @cached_property
    def clean_offset(self) -> int:
        """Up to where the log cleaner has compacted it; 0 where nothing says so."""
        path = self.provable.path
        with suppress(KsegError, OSError):
            return read_clean_offset(path.resolve(), self.provable.partition) or 0
        return 0

    def seen(self, row: Rows) -> BatchSeen:
        """A row of `tables` as a batch."""
        fields = row.tolist()
        return BatchSeen(self.files[fields[FILE]], BatchHeader(*fields[: len(FIELDS)]))

    def open_segment(self, number: int) -> Segment:
        """Open one of its files.

        Raises:
            OSError: it is gone, or cannot be read.
        """
        return Segment.open(self.files[number], mapping=self._mapping, is_last=False)

    def tables(self) -> Iterator[Rows]:
        """Its sound batches by offset, int64[n, COLUMNS], n above 0.

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
        expected, known = 0, None
        for run, table in provable_tables(self.provable.runs, self._mapping):
            if run is not known and table.is_wrapper[0]:
                expected = self._first_offset_of(numbers[run.path], table)
            yield rows_of(table, numbers[run.path], expected)
            expected, known = int(table.last_offset[-1]) + 1, run

    def _first_offset_of(self, number: int, table: BatchTable) -> int:
        """The offset of the first record of a table; the last of its batch if none can be read.

        Only inflating tells it of a compressed message of magic 0 or 1: what lies in front of it
        may be damaged.
        """
        start, last = int(table.position[0]), int(table.last_offset[0])
        with suppress(KsegError), self.open_segment(number) as segment:
            for columns in segment.read(
                start_position=start,
                end_position=start + int(table.size[0]),
                fields=("offset",),
                verify_crc=False,
            ):
                return min(int(columns.offset[0]), last) if len(columns) else last
        return last


def topic_id_of(listing: PartitionFiles) -> UUID | None:
    """The id of the topic; None where no file says it, or a malformed one."""
    if listing.metadata is None:
        return None
    with suppress(KsegError, OSError):
        return read_partition_metadata(listing.metadata).uuid
    return None


__all__ = ["Copy", "topic_id_of"]
