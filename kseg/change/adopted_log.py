"""A log that an adoption takes: read as far as it is taken, and made anew for its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from kseg.change import swap
from kseg.change.transactions import AdoptedTransaction
from kseg.change.truncate import records_of
from kseg.constants import (
    Buffer,
    ControlType,
)
from kseg.documents import Documented
from kseg.errors import (
    StalePlanError,
    at_path,
)
from kseg.files import checkpoints, io, metadata, producer_snapshot
from kseg.files.checkpoints import EpochEntry
from kseg.files.log_file import Tile
from kseg.files.names import FileKind, Partition, segment_name
from kseg.format.builder import BatchBuilder
from kseg.format.header import BatchTable
from kseg.frozen import frozen_dataclass
from kseg.log.config import LogConfig
from kseg.log.producers.state import ProducerState
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.recovery.sweep import pass_over
from kseg.log.segment.writer import SegmentWriter
from kseg.log.validate.batches import out_of_order, overlap_error

#: No log that a broker serves has such offsets; sums with them leave 64 bits.
_OFFSETS_END: Final = 1 << 62
_EPOCH_AT: Final = np.arange(12, 16)
#: Batches are copied in pieces of about this size, which fits the second-level cache.
_PIECE_BYTES: Final = 1 << 20


@frozen_dataclass
class AdoptedSegment(Documented):
    """A segment that comes in.

    Attributes:
        base_offset: in its name.
        bytes: of log.
        max_timestamp: the largest time of its records in ms; -1 for none.
    """

    base_offset: int
    bytes: int
    max_timestamp: int


@frozen_dataclass
class PartitionAdoption(Documented):
    """A log that comes in.

    Attributes:
        topic, partition: the target.
        source: where the log is; of several copies, that of the last leader.
        copies: the directories of several copies; none for one.
        targets: its directories, one for each replica.
        leader_epoch: that its batches get.
        log_start_offset: the first offset to be read.
        source_end_offset: where it ends in the source, or is cut.
        segments: rising.
        records: of producers; in a compressed set of an old format each offset counts.
        first_timestamp, last_timestamp: the time of the first batch, and the largest, in ms; -1
            for none.
        transactions: those that are open in front of the end, and how each is ended.
        behind: with a time, how many records of no later time lie behind the cut "first", and how
            many of a later time in front of the cut "last"; records of a batch count together.
        left_out: what does not come in, in words.
        notes: what else there is to know, in words.
    """

    DOCUMENT = (
        "topic partition source copies targets leader_epoch log_start_offset log_end_offset"
        " segments records bytes first_timestamp last_timestamp transactions behind left_out notes"
    )

    topic: str
    partition: int
    source: Path
    targets: tuple[Path, ...]
    leader_epoch: int
    log_start_offset: int
    source_end_offset: int
    segments: tuple[AdoptedSegment, ...]
    records: int
    first_timestamp: int
    last_timestamp: int
    transactions: tuple[AdoptedTransaction, ...] = ()
    behind: Mapping[str, int] | None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    copies: tuple[Path, ...] = ()
    view: LogView | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"{self.topic}-{self.partition}"

    @property
    def log_end_offset(self) -> int:
        """The next offset that the broker gives: behind the markers."""
        return self.source_end_offset + len(self.transactions)

    @property
    def bytes(self) -> int:
        """Bytes of log, without the markers."""
        return sum(segment.bytes for segment in self.segments)


# ---- reading -------------------------------------------------------------------------------------


def tiles_of(
    view: LogView, start: int, end: int, *, compare_checksums: bool
) -> Iterator[tuple[SegmentInfo, Tile]]:
    """The whole batches of a log in front of an offset.

    Args:
        view: of the log.
        start: from the segment of this offset on.
        end: batches that reach it are left out.
        compare_checksums: if false, headers alone are read, and tiles have no bytes.

    Yields:
        Of each segment at least one tile, which may have no batch.

    Raises:
        FormatError: a batch is damaged, or out of order.
        OSError: a file cannot be read.
    """
    before = -1
    for info in view.segments_from(start):
        if info.base_offset >= end:
            return
        before = max(before, info.base_offset - 1)
        # Headers alone are read faster than through a map, which takes whole pages.
        with view.open_segment(info, None if compare_checksums else "never") as segment:
            headers = (Tile(memoryview(b""), 0, table) for table in segment.headers())
            for tile in segment.walk(on_bad_crc="stop") if compare_checksums else headers:
                table = tile.table
                count = int(np.count_nonzero(np.logical_and.accumulate(table.last_offset < end)))
                inside = table[:count]
                wrong = out_of_order(inside, before)
                if wrong.any():
                    raise at_path(overlap_error(inside, int(wrong.argmax()), before), info.path)
                yield info, tile._replace(table=inside)
                if count < len(table):
                    return
                before = int(table.last_offset[-1]) if count else before
            fault = segment.stop_fault(table)
            if fault is not None:
                raise fault


@dataclass(slots=True)
class Walk:
    """A walk over a source, and its results so far.

    Attributes:
        entry: the source.
        view: of its log.
        copies: the directories of several copies that the view joins.
        topic, targets, leader_epoch: as for `PartitionAdoption`.
        start: the first offset to be read.
        end: behind the last batch.
        state: of the producers there.
        sizes: bytes and largest time of each segment, by its base offset.
        magics: bit n is set where magic n occurs.
        gaps: offsets that lie between two segments, and in neither.
        holes: whether offsets are missing inside of segments, as compaction leaves them.
    """

    entry: Partition
    view: LogView
    topic: str
    targets: tuple[Path, ...]
    leader_epoch: int
    start: int
    end: int
    state: ProducerState = field(default_factory=ProducerState)
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    records: int = 0
    first_ms: int = -1
    magics: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    holes: bool = False
    behind: dict[str, int] | None = None
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    copies: tuple[Path, ...] = ()
    transactions: list[AdoptedTransaction] = field(default_factory=list)

    def take(self, info: SegmentInfo, table: BatchTable) -> None:
        """Take the next batches."""
        size, latest = self.sizes.setdefault(info.base_offset, (0, -1))
        if not len(table):
            return
        is_new = table.magic >= 2
        first = int(table.base_offset[0]) if is_new[0] else self.end
        if self.magics and first > self.end:
            if size:
                self.holes = True
            else:
                self.gaps.append((self.end, first - 1))
        records = records_of(table)
        follows = table.base_offset[1:] == table.last_offset[:-1] + 1
        self.holes |= bool((is_new[1:] & ~follows).any())
        self.holes |= bool((is_new & (records <= table.last_offset - table.base_offset)).any())
        served = ~table.is_control & (table.last_offset >= self.start)
        self.records += int(records[served].sum())
        if not self.magics:
            self.first_ms = int(table.base_timestamp[0])
        self.magics |= table.magics_seen
        latest = max(latest, int(table.max_timestamp.max()))
        self.sizes[info.base_offset] = size + int(table.size.sum()), latest
        self.state.feed(table, on_error=pass_over)
        self.end = table.end_offset

    def settle(self) -> None:
        """Take a log without records that are read for one that is empty from its start on."""
        if self.end <= self.start:
            self.end, self.records, self.first_ms = self.start, 0, -1
            self.sizes, self.state = {}, ProducerState()

    def note_transactions(self) -> None:
        """Note those that are open at the end."""
        for producer_id, place in self.state.ongoing:
            entry, rest = self.state.entries[producer_id], (place.offset, None)
            pieces = self.view.read(offset=rest, columns=("timestamp",))
            times = (int(columns["timestamp_ms"][0]) for columns in pieces if len(columns))
            self.transactions.append(
                AdoptedTransaction(
                    partition=f"{self.entry.topic}-{self.entry.partition}",
                    producer_id=producer_id,
                    producer_epoch=entry.producer_epoch,
                    coordinator_epoch=max(entry.coordinator_epoch, 0),
                    first_offset=place.offset,
                    first_timestamp=next(times, -1),
                )
            )

    def faults(self) -> Iterator[str]:
        """Why the log cannot be adopted, in words."""
        path = os.fspath(self.entry.path)
        if not 0 <= self.start <= self.end < _OFFSETS_END:
            yield f"{path}: offsets {self.start} to {self.end} are none that a broker gives"
        for first, last in self.gaps if not self.holes else ():
            yield (
                f"{path}: offsets {first} to {last} are in no segment, so one is missing: adopt a "
                "copy that has it, or join copies with 'kseg merge'"
            )


# ---- making --------------------------------------------------------------------------------------


def stage(
    adoption: PartitionAdoption,
    target: Path,
    config: LogConfig,
    now_ms: int,
    note: Callable[[int], None],
) -> None:
    """Make the log of an adoption beside its place, lasting.

    Args:
        adoption: the log.
        target: the partition directory whose place it will take.
        config: the settings of the log.
        now_ms: the time of the segments.
        note: called with the bytes that were made since.

    Raises:
        StalePlanError: the source is not as the plan saw it.
        FormatError, OSError: it cannot be read, or the disk refuses.
    """
    view = adoption.view
    assert view is not None
    directory = swap.staged(target)
    io.make_directory(directory, like=os.stat(target))
    identity = target / FileKind.PARTITION_METADATA.value
    with io.WriteFile.open(
        directory / identity.name, exclusive=True, like=os.stat(identity)
    ) as file:
        file.write_at(0, io.read_file(identity, bytes_max=metadata.METADATA_BYTES_MAX))
        file.flush()
    making = _Making(directory, config, now_ms, adoption.leader_epoch)
    try:
        end = adoption.source_end_offset
        tiles = tiles_of(view, adoption.log_start_offset, end, compare_checksums=True)
        for info, tile in tiles if adoption.segments else ():
            making.begin(info.base_offset)
            making.append(tile)
            note(int(tile.table.size.sum()))
        if making.bytes != adoption.bytes or making.end not in (-1, end):
            raise StalePlanError("the source is not as it was", path=adoption.source)
        for number, transaction in enumerate(adoption.transactions):
            making.end_transaction(transaction, end + number, max(adoption.last_timestamp, 0))
        making.begin(adoption.log_end_offset)
        making.close()
    finally:
        making.release()
    first, end = adoption.log_start_offset, adoption.log_end_offset
    if first < end:
        snapshot = directory / segment_name(end, FileKind.SNAPSHOT)
        producer_snapshot.write(snapshot, ())
    epochs = (EpochEntry(adoption.leader_epoch, first),) if first < end else ()
    checkpoints.write_leader_epochs(directory / FileKind.LEADER_EPOCHS.value, epochs)
    io.flush_directory(directory)


class _Making:
    """A log in the making, segment by segment."""

    def __init__(self, directory: Path, config: LogConfig, now_ms: int, leader_epoch: int) -> None:
        self._directory, self._config, self._now_ms = directory, config, now_ms
        self._epoch = np.frombuffer(leader_epoch.to_bytes(4, "big"), np.uint8)
        self._leader_epoch = leader_epoch
        self._state = ProducerState()
        self._buffer = np.empty(_PIECE_BYTES, np.uint8)
        self._writer: SegmentWriter | None = None
        self.bytes, self.end = 0, -1

    def begin(self, base_offset: int) -> None:
        """Go on in the segment of this base offset; the one before is sealed, and lasting."""
        if self._writer is not None:
            if self._writer.base_offset == base_offset:
                return
            self._writer.become_inactive()
            self.close()
        self._writer = SegmentWriter.open(
            self._directory,
            base_offset,
            self._config,
            create=True,
            now_ms=self._now_ms,
            preallocate=False,
        )

    def append(self, tile: Tile) -> None:
        """Append batches, of the leader epoch of this log."""
        table, data = tile.table, np.frombuffer(tile.data, np.uint8)
        ends, first = table.position + table.size, 0
        while first < len(table):
            begin = int(table.position[first])
            last = max(int(np.searchsorted(ends, begin + _PIECE_BYTES, "right")), first + 1)
            piece, end = table[first:last], int(ends[last - 1])
            copy = self._buffer if end - begin <= _PIECE_BYTES else np.empty(end - begin, np.uint8)
            copy = copy[: end - begin]
            copy[:] = data[begin - tile.base : end - tile.base]
            heads = piece.position[piece.magic >= 2] - begin
            copy[heads[:, None] + _EPOCH_AT] = self._epoch
            self._write(copy.data, piece)
            self.bytes += end - begin
            first = last
        if len(table):
            self.end = table.end_offset

    def _write(self, data: Buffer, table: BatchTable) -> None:
        assert self._writer is not None
        self._writer.append((data,), table)
        for aborted in self._state.feed(table, on_error=pass_over):
            self._writer.txn_index.append(aborted)

    def end_transaction(self, transaction: AdoptedTransaction, offset: int, time_ms: int) -> None:
        """Append the marker of a transaction."""
        builder = BatchBuilder(
            base_offset=offset,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transactional=True,
            control=True,
            leader_epoch=self._leader_epoch,
        )
        kind = ControlType.COMMIT if transaction.commits else ControlType.ABORT
        builder.append_end_marker(kind, transaction.coordinator_epoch, timestamp=time_ms)
        batch = builder.build()
        if self._writer is None or not self._writer.can_convert(offset):
            self.begin(offset)
        self._write(batch.data, batch.table)

    def close(self) -> None:
        """Make the open segment lasting, and close it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.flush()
            finally:
                writer.close()

    def release(self) -> None:
        """Close files as they are, after an error."""
        if self._writer is not None:
            self._writer.close(trim=False)
