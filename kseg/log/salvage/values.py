"""A provable partition as values; and the headers of its batches, read again from their files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final
from uuid import UUID

import numpy as np

from kseg.constants import END_MARKERS, INT64_MIN, ControlType, Int64s
from kseg.documents import Documented, frozen_dataclass
from kseg.files.checkpoints import TopicPartition
from kseg.files.log_file import LogFile
from kseg.files.mapping import Mapping
from kseg.format.builder import BatchBuilder
from kseg.format.header import BatchHeader, BatchTable

#: Why bytes of a log are not kept, in stable words.
REASONS: Final = {
    "batch-crc": "a batch does not match its checksum",
    "batch-length": "the size stored here is not that of the batch",
    "batch-magic": "no release wrote the magic stored here",
    "batch-fields": "the checksum is right, but no release wrote such a header",
    "torn-tail": "the last batch is incomplete",
    "zeros": "zeros where a batch is to begin",
    "unreadable": "the disk cannot read these bytes",
    "not-anchored": "sound batches after damage that may lie in the value of a damaged one: "
    "nothing proves where they begin",
    "offset-order": "a sound batch whose offsets do not fit its place",
    "epoch-order": "a sound batch whose leader epoch does not fit its place",
    "behind-gap": "sound batches of the log of KRaft after its first gap",
    "duplicate": "a batch that is there already",
    "collision": "a sound batch with offsets that another sound batch has",
}
#: With bytes of these reasons nothing is lost.
HARMLESS: Final = frozenset(("duplicate",))
#: Below all offsets that a header can state: a damaged header may state any 64-bit number.
NO_OFFSET: Final = INT64_MIN - 1


@frozen_dataclass
class Span(Documented):
    """Bytes of a log file: consecutive provable batches, or bytes that are not kept.

    Attributes:
        path: the file.
        position: where they begin in it.
        size: the number of bytes.
        first_offset: the first batch's first offset; its last one if the first is compressed. For a
            damaged batch, the stored one; `NO_OFFSET` if it cannot be read.
        last_offset: the last offset of the last batch; likewise for a damaged one.
        batches: the number of sound batches.
        records: the number that their headers state; None if some records are compressed and old.
        reason: a word of `REASONS` if the bytes are not kept.
        places: the first and last offsets that a sound batch in doubt may have.
    """

    DOCUMENT = "path position size first_offset last_offset batches records"

    path: str
    position: int
    size: int
    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    batches: int = 0
    records: int | None = None
    reason: str = ""
    places: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        """The position after the span."""
        return self.position + self.size

    @property
    def is_dense(self) -> bool | None:
        """Whether each offset has a record; None if the number of records is unknown."""
        if self.records is None:
            return None
        return self.records == self.last_offset - self.first_offset + 1

    def and_then(self, following: Span) -> Span:
        """This span joined with the next one in its file."""
        are_counted = self.records is not None and following.records is not None
        return replace(
            self,
            size=self.size + following.size,
            last_offset=following.last_offset,
            batches=self.batches + following.batches,
            records=(self.records or 0) + (following.records or 0) if are_counted else None,
        )


def add_span(spans: list[Span], span: Span) -> None:
    """Append a span; if it follows the last one in the same file, the two are joined."""
    if spans and (spans[-1].path, spans[-1].end) == (span.path, span.position):
        spans[-1] = spans[-1].and_then(span)
    else:
        spans.append(span)


@frozen_dataclass
class LostOffsets(Documented):
    """Offsets that no provable batch has, in one copy or in several.

    Attributes:
        first_offset: the first one.
        last_offset: the last one; None where nothing sound follows.
        records: the number of records; None if unknown.
        at_most: some of these offsets may have had no record before the damage: compaction has left
            holes around it.
        path: the damaged log file; empty if several copies are damaged.
        position: where the damage begins in it.
        bytes: the number of damaged bytes; 0 if batches are missing without a trace.
    """

    first_offset: int
    last_offset: int | None
    records: int | None = None
    at_most: bool = False
    path: str = ""
    position: int = 0
    bytes: int = 0


@frozen_dataclass
class SegmentSeen:
    """A segment that was read.

    Attributes:
        base_offset: from its name.
        path: its log file.
        size: the bytes of the log file.
    """

    base_offset: int
    path: str
    size: int


@frozen_dataclass
class ProvablePartition:
    """The provable part of one copy of a partition.

    Attributes:
        path: its directory.
        partition: its name in checkpoints; None for a directory under another name.
        topic_id: from `partition.metadata`; None if that has none.
        log_start_offset: from the checkpoint beside it; 0 if that has none.
        segments: sorted by base offset.
        runs: the provable batches, sorted by offset; each run is after the run before it.
        unprovable: the other bytes, sorted by segment and position.
        lost: offsets that are missing between the runs, before them and after them.
        start_beyond_end: a start in the checkpoint that is beyond the end of the log, and is
            ignored; else None.
    """

    path: Path
    partition: TopicPartition | None
    topic_id: UUID | None
    log_start_offset: int
    segments: tuple[SegmentSeen, ...]
    runs: tuple[Span, ...]
    unprovable: tuple[Span, ...]
    lost: tuple[LostOffsets, ...]
    start_beyond_end: int | None = None

    @property
    def is_dense(self) -> bool:
        """Whether nothing shows that compaction has removed records."""
        return is_dense(self.runs, self.segments)

    @property
    def end_offset(self) -> int:
        """The offset after the last provable batch; the base of the first segment if none is."""
        if self.runs:
            return self.runs[-1].last_offset + 1
        return self.segments[0].base_offset if self.segments else self.log_start_offset


def numbers_of(segments: Iterable[SegmentSeen]) -> dict[str, int]:
    """The number of each segment, keyed by the path of its log file."""
    return {segment.path: number for number, segment in enumerate(segments)}


def is_dense(runs: Iterable[Span], segments: Sequence[SegmentSeen]) -> bool:
    """Whether each offset has a record; compaction leaves empty segments before others."""
    return all(run.is_dense for run in runs) and all(segment.size for segment in segments[:-1])


def offset_orders(table: BatchTable) -> Int64s:
    """The offsets by which to sort batches, int64[n]: the first ones, or the last if unknown."""
    return np.where(table.base_offset < 0, table.last_offset, table.base_offset)


def provable_tables(
    runs: Iterable[Span], mapping: Mapping = "never"
) -> Iterator[tuple[Span, BatchTable]]:
    """The headers of provable batches, some at a time, in the order of `runs`.

    Args:
        runs: any runs of a `ProvablePartition`, in any order.
        mapping: see `kseg.files.mapping`.

    Yields:
        Each run with tables of its batches: positions in its file, sizes, offsets, leader epochs,
        checksums and the other fields of `kseg.format.header.FIELDS`.

    Raises:
        CorruptRecordError, UnreadableError: a file has changed since it was read.
    """
    for path, file_runs in groupby(runs, key=lambda run: run.path):
        runs_begun: list[Span] = []  # `_positions` appends each run before it is read
        with LogFile.open(path, mapping) as log:
            for number, table in log.headers_of(_positions(file_runs, runs_begun)):
                if len(table):
                    yield runs_begun[number], table


def _positions(runs: Iterable[Span], runs_begun: list[Span]) -> Iterator[tuple[int, int]]:
    """The positions of runs; appends each run to `runs_begun` when its turn comes."""
    for run in runs:
        runs_begun.append(run)
        yield run.position, run.end


def span_of(path: str, table: BatchTable) -> Span:
    """One span for all batches of a table."""
    position, counts = int(table.position[0]), table.record_count
    return Span(
        path,
        position,
        int(table.position[-1] + table.size[-1]) - position,
        int(offset_orders(table)[0]),
        int(table.last_offset[-1]),
        len(table),
        int(counts.sum()) if counts.min() >= 0 else None,
    )


def span_between(log: LogFile, path: str, start: int, end: int) -> Span | None:
    """The batches of an open file between two positions; None if no batch ends at the second."""
    spans: list[Span] = []
    for _, table in log.headers_of([(start, end)]) if start < end else ():
        if len(table):
            add_span(spans, span_of(path, table))
    return spans[0] if spans and spans[0].end == end else None


def run_between(run: Span, start: int, end: int) -> Span | None:
    """The batches of a run between two positions where batches begin; None if there are none.

    Raises:
        CorruptRecordError, UnreadableError: the file has changed since it was read.
    """
    with LogFile.open(run.path, "never") as log:
        return span_between(log, run.path, start, end)


def gap_columns(run: Span) -> Iterator[tuple[Int64s, Int64s, Int64s]]:
    """The gaps in a run: first offsets, end offsets, positions of the next batch; int64[n] each."""
    if run.is_dense or run.batches == 1:
        return
    before = run.first_offset - 1
    for _, table in provable_tables([run]):
        first = np.append(before, table.last_offset[:-1]) + 1
        end = offset_orders(table)
        gaps = np.flatnonzero(end > first)
        yield first[gaps], end[gaps], table.position[gaps]
        before = int(table.last_offset[-1])


# ---- transactions --------------------------------------------------------------------------------


@frozen_dataclass
class DamagedTransaction(Documented):
    """A transaction with lost offsets after its first record.

    Attributes:
        producer_id, producer_epoch: the producer.
        first_offset: the offset of its first record.
        last_offset: the offset of its marker, or of its last record if the marker is lost.
        coordinator_epoch: from the last marker of this producer; 0 if there is none.
        is_open: the marker is lost. If false, offsets before the marker are lost: records may be
            missing, or these are two transactions and the first one's marker is lost.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    coordinator_epoch: int
    is_open: bool


class Transactions:
    """The transactions of a log that lost offsets may belong to.

    Attributes:
        damaged: these transactions, sorted by first offset.
        leader_epoch: the largest leader epoch of the batches; -1 if none has one or nothing is
            lost.
        max_timestamp: the largest timestamp; 0 if there is none or nothing is lost.
    """

    def __init__(self, runs: Sequence[Span], lost: Sequence[LostOffsets]) -> None:
        """Read the headers of all batches, if offsets are lost.

        Args:
            runs: the batches of the log, sorted by offset.
            lost: the offsets that are missing between the runs and after them.

        Raises:
            CorruptRecordError, UnreadableError: a file has changed since it was read.
        """
        self._lost_first_offsets = [lost_range.first_offset for lost_range in lost]
        # Producer id -> (first offset, last offset, producer epoch) of its open transaction.
        self._open: dict[int, tuple[int, int, int]] = {}
        # Producer id -> the coordinator epoch of its last marker.
        self._coordinator_epochs: dict[int, int] = {}
        self.damaged: list[DamagedTransaction] = []
        self.leader_epoch, self.max_timestamp = -1, 0
        for _, table in provable_tables(runs) if lost else ():
            self.leader_epoch = max(self.leader_epoch, int(table.leader_epoch.max()))
            self.max_timestamp = max(self.max_timestamp, int(table.max_timestamp.max()))
            is_transactional = table.is_transactional & (table.producer_id >= 0)
            if is_transactional.any():
                for header in table[is_transactional]:
                    self._note_batch(header)
        for producer, (first, last, epoch) in self._open.items():
            if self._loses(last, None):
                self._add_damaged(producer, first, last, epoch, is_open=True)
        self.damaged.sort(key=lambda transaction: transaction.first_offset)

    def _note_batch(self, header: BatchHeader) -> None:
        """Process a batch of a transaction, or the marker that ends it."""
        producer = header.producer_id
        if not header.is_control:
            first = self._open.get(producer, (header.base_offset,))[0]
            self._open[producer] = first, header.last_offset, header.producer_epoch
        elif header.control_type in END_MARKERS:
            self._coordinator_epochs[producer] = header.coordinator_epoch
            begun = self._open.pop(producer, None)
            if begun is not None:
                first, _last, epoch = begun
                if self._loses(first, header.last_offset):
                    self._add_damaged(producer, first, header.last_offset, epoch, is_open=False)

    def _loses(self, first: int, last: int | None) -> bool:
        """Whether a range of lost offsets begins from `first` to `last`; None for the log's end."""
        starts = self._lost_first_offsets
        at = bisect_left(starts, first)
        return at < len(starts) and (last is None or starts[at] <= last)

    def _add_damaged(
        self, producer: int, first: int, last: int, epoch: int, *, is_open: bool
    ) -> None:
        coordinator = self._coordinator_epochs.get(producer, 0)
        self.damaged.append(DamagedTransaction(producer, epoch, first, last, coordinator, is_open))


def abort_markers(transactions: Transactions, offset: int) -> bytes:
    """Markers that abort the open transactions, each a batch of its own; the first at `offset`.

    They have the largest leader epoch and the largest timestamp of the log.
    """
    markers = []
    for at, transaction in enumerate(
        transaction for transaction in transactions.damaged if transaction.is_open
    ):
        builder = BatchBuilder(
            base_offset=offset + at,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transactional=True,
            control=True,
            leader_epoch=transactions.leader_epoch,
        )
        builder.append_end_marker(
            ControlType.ABORT, transaction.coordinator_epoch, timestamp=transactions.max_timestamp
        )
        markers.append(builder.build().data)
    return b"".join(markers)
