"""A provable partition as values; and the headers of its batches, read again from their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import numpy as np

from kseg.documents import Documented
from kseg.files.checkpoints import TopicPartition
from kseg.files.log_file import LogFile
from kseg.files.mapping import Mapping
from kseg.format.header import BatchHeader, BatchTable

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64Array = npt.NDArray[np.int64]


#: Why bytes of a log are not kept, in stable words.
REASONS: Final = {
    "batch-crc": "a batch does not match its checksum",
    "batch-length": "the size stored here is not that of the batch",
    "batch-magic": "no release ever wrote the magic stored here",
    "batch-fields": "the checksum is right, but no release ever wrote such a header",
    "torn-tail": "the last batch is incomplete",
    "zeros": "zeros where a batch is to begin",
    "unreadable": "the disk cannot read these bytes",
    "not-anchored": "sound batches behind damage that may lie in the value of a damaged one: "
    "nothing proves where they begin",
    "offset-order": "a sound batch whose offsets do not fit where it lies",
    "epoch-order": "a sound batch whose leader epoch does not fit where it lies",
    "behind-gap": "sound batches of the log of KRaft behind its first gap",
    "duplicate": "a batch that is there already",
    "collision": "a sound batch with offsets that another sound batch has",
}
#: Of these nothing is lost.
HARMLESS: Final = frozenset(("duplicate",))


@dataclass(frozen=True, slots=True)
class Span(Documented):
    """Bytes of a file.

    Attributes:
        path: the file.
        position: byte in it where they begin.
        size: how many.
    """

    path: str
    position: int
    size: int

    @property
    def end(self) -> int:
        """The position behind them."""
        return self.position + self.size


@dataclass(frozen=True, slots=True)
class ProvableRun(Span):
    """Provable batches that follow each other in a file, with offsets that grow.

    Attributes:
        first_offset: the first offset; the last one of the first batch where only inflating tells.
        last_offset: the last offset.
        batches: how many.
        records: how many they say they hold; None where only inflating tells.
    """

    first_offset: int
    last_offset: int
    batches: int
    records: int | None = None

    def and_then(self, behind: ProvableRun) -> ProvableRun:
        """Both as one; the second follows the first in its file."""
        known = self.records is not None and behind.records is not None
        return replace(
            self,
            size=self.size + behind.size,
            last_offset=behind.last_offset,
            batches=self.batches + behind.batches,
            records=(self.records or 0) + (behind.records or 0) if known else None,
        )

    @property
    def is_dense(self) -> bool | None:
        """Whether each of its offsets has a record; None where only inflating tells."""
        if self.records is None:
            return None
        return self.records == self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class Unprovable(Span):
    """Bytes of a log file that are not kept.

    Attributes:
        reason: one of `REASONS`.
        first_offset, last_offset: what the batch there says of its offsets, or what sound batches
            there have; None where nothing can be read.
        batches: how many, if they are sound; else 0.
        places: first and last offsets that a sound batch in doubt may have.
    """

    reason: str
    first_offset: int | None = None
    last_offset: int | None = None
    batches: int = 0
    places: tuple[tuple[int, int], ...] = ()


def refused(run: ProvableRun, reason: str) -> Unprovable:
    """A run as bytes that are not kept."""
    offsets = (run.first_offset, run.last_offset)
    return Unprovable(run.path, run.position, run.size, reason, *offsets, run.batches)


@dataclass(frozen=True, slots=True)
class LostOffsets(Documented):
    """Offsets that no provable batch has.

    Attributes:
        first_offset: the first one.
        last_offset: the last one; None where nothing sound follows.
        records: how many records; None where that is not known.
        at_most: some of these offsets may have had no record before the damage: compaction has left
            holes around it.
        path: the log file where the damage lies.
        position: byte in it where it begins.
        bytes: how many are damaged; 0 where batches are missing and no byte tells of them.
    """

    first_offset: int
    last_offset: int | None
    records: int | None
    at_most: bool
    path: str
    position: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SegmentSeen:
    """A segment that was read.

    Attributes:
        base_offset: as its name says.
        path: its log file.
        size: bytes of it.
    """

    base_offset: int
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class ProvablePartition:
    """What can be proved of one copy of a partition.

    Attributes:
        path: its directory.
        partition: what checkpoints call it; None for a directory under another name.
        topic_id: as `partition.metadata` says; None without one.
        log_start_offset: what the checkpoint beside it says; 0 without one.
        start_beyond_end: a start that the checkpoint says and that lies behind the end of the log;
            it is not taken over.
        segments: by base offset.
        runs: by offset; each lies behind the one before.
        unprovable: the other bytes, by segment and position.
        lost: offsets that are missing between the runs, in front of them and behind.
    """

    path: Path
    partition: TopicPartition | None
    topic_id: UUID | None
    log_start_offset: int
    segments: tuple[SegmentSeen, ...]
    runs: tuple[ProvableRun, ...]
    unprovable: tuple[Unprovable, ...]
    lost: tuple[LostOffsets, ...]
    start_beyond_end: int | None = None

    @property
    def end_offset(self) -> int:
        """The offset behind the last provable batch; the base of the first segment without any."""
        if self.runs:
            return self.runs[-1].last_offset + 1
        return self.segments[0].base_offset if self.segments else self.log_start_offset


def offset_orders(table: BatchTable) -> Int64Array:
    """The offsets by which batches follow each other, int64[n]: the first ones, where known."""
    return np.where(table.base_offset < 0, table.last_offset, table.base_offset)


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


__all__ = [
    "HARMLESS",
    "REASONS",
    "LostOffsets",
    "ProvablePartition",
    "ProvableRun",
    "SegmentSeen",
    "Unprovable",
    "gap_columns",
    "gaps_within",
    "offset_orders",
    "provable_tables",
    "refused",
    "row_of",
    "run_between",
]
