"""A log that an adoption takes: read as far as it is taken, and made anew for its place.

Transactions that are open where the log is cut end as their coordinator decided. A transaction has
one end in all partitions. Three things tell it, the first that does counts:

    __transaction_state   the last state of its producer, up to the moment; PrepareCommit and
                          CompleteCommit commit, all others abort
    a marker              of the producer in any partition of the sources, up to the moment; one
                          that follows the transaction in its own partition counts first
    the caller            "abort" or "commit"; "stop" leaves it undecided

A marker of a commit beside a state that aborts contradicts it: copies of different moments. Such a
transaction is the caller's to decide, too.

Source: Kafka `TransactionMetadata`, `TransactionState`, KIP-890.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from kseg.change import swap
from kseg.constants import INT64_MAX, Buffer, ControlType, Int64s, InternalTopic
from kseg.documents import Documented, frozen_dataclass
from kseg.errors import FormatError, InvalidRecordError, StalePlanError, at_path
from kseg.files import checkpoints, io, metadata, producer_snapshot
from kseg.files.checkpoints import EpochEntry
from kseg.files.log_file import Tile
from kseg.files.names import FileKind, Partition, segment_name
from kseg.format.builder import BatchBuilder
from kseg.format.header import BatchHeader, BatchTable
from kseg.internal.records import decode
from kseg.log.config import LogConfig
from kseg.log.producers.state import ProducerState
from kseg.log.reader.find import records_of
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.recovery.sweep import pass_over
from kseg.log.segment.writer import SegmentWriter
from kseg.log.validate.batches import out_of_order, overlap_error

#: No log that a broker serves has such offsets; sums with them exceed 64 bits.
_OFFSETS_END: Final = 1 << 62
#: The bytes of a batch that hold its leader epoch.
_EPOCH_AT: Final = np.arange(12, 16)
#: Batches are copied in pieces of about this size, which fits the second-level cache.
_PIECE_BYTES: Final = 1 << 20


@frozen_dataclass
class AdoptedSegment(Documented):
    """A segment that is adopted.

    Attributes:
        base_offset: the base offset in its name.
        bytes: the size of its log.
        max_timestamp: the largest time of its records in ms; -1 if there is none.
    """

    base_offset: int
    bytes: int
    max_timestamp: int


@frozen_dataclass
class PartitionAdoption(Documented):
    """A log that is adopted.

    Attributes:
        topic, partition: the target.
        source: where the log is; if there are several copies, the last leader's.
        copies: the directories of several copies; empty for a single one.
        targets: its directories, one for each replica.
        leader_epoch: the epoch that its batches get.
        log_start_offset: the first offset to be read.
        source_end_offset: where it ends in the source, or is cut.
        segments: sorted by base offset.
        records: the producers' records; in a compressed set of an old format each offset counts.
        first_timestamp, last_timestamp: the time of the first batch, and the largest, in ms; -1
            if there is none.
        transactions: those that are open at the end, and how each is ended.
        behind: with a time, how many records of no later time are after the cut "first", and how
            many of a later time before the cut "last"; records of a batch count together.
        left_out: sentences about what is not adopted.
        notes: sentences about what else there is to know.
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
        """The next offset that the broker will assign: after the markers."""
        return self.source_end_offset + len(self.transactions)

    @property
    def bytes(self) -> int:
        """Bytes of log, without the markers."""
        return sum(segment.bytes for segment in self.segments)


# ---- reading -------------------------------------------------------------------------------------


def tiles_of(
    view: LogView, start: int, end: int, *, compare_checksums: bool
) -> Iterator[tuple[SegmentInfo, Tile]]:
    """The whole batches of a log before an offset.

    Args:
        view: the view of the log.
        start: begin with the segment of this offset.
        end: batches that reach it are left out.
        compare_checksums: if false, only headers are read, and tiles have no bytes.

    Yields:
        Of each segment at least one tile, which may have no batch.

    Raises:
        FormatError: a batch is damaged, or out of order.
        OSError: a file cannot be read.
    """
    before = -1  # the offset after which the next batch must begin
    for info in view.segments_from(start):
        if info.base_offset >= end:
            return
        before = max(before, info.base_offset - 1)
        # To read only headers is faster than a map, which loads whole pages.
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
    """A walk over a source, and what it has found so far.

    Attributes:
        entry: the source.
        view: the view of its log.
        copies: the directories of several copies that the view joins.
        topic, targets, leader_epoch: as for `PartitionAdoption`.
        start: the first offset to be read.
        end: the offset after the last batch.
        state: the producers' state at `end`.
        sizes: base offset of a segment -> its bytes and largest time (ms; -1 if there is none).
        magics: bit n is set where magic n occurs.
        gaps: first and last offsets between two segments that are in neither: the segment with
            them may be missing.
        holes: whether offsets are missing inside of segments, as compaction leaves them. Then
            `gaps` prove nothing, since compaction leaves those as well.
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

    def feed(self, info: SegmentInfo, table: BatchTable) -> None:
        """Count the next batches, all of one segment; `table` may be empty."""
        size, latest_ms = self.sizes.setdefault(info.base_offset, (0, -1))
        if not len(table):
            return
        is_magic_2 = table.magic >= 2
        # The header of a batch of magic 0 or 1 does not state its first offset.
        first = int(table.base_offset[0]) if is_magic_2[0] else self.end
        if self.magics and first > self.end:  # not the first batch of the walk
            if size:  # the segment has batches before these
                self.holes = True
            else:
                self.gaps.append((self.end, first - 1))
        records = records_of(table)
        follows = table.base_offset[1:] == table.last_offset[:-1] + 1
        self.holes |= bool((is_magic_2[1:] & ~follows).any())
        has_fewer_records = records <= table.last_offset - table.base_offset  # than offsets
        self.holes |= bool((is_magic_2 & has_fewer_records).any())
        is_adopted_data = ~table.is_control & (table.last_offset >= self.start)
        self.records += int(records[is_adopted_data].sum())
        if not self.magics:
            self.first_ms = int(table.base_timestamp[0])
        self.magics |= table.magics_seen
        latest_ms = max(latest_ms, int(table.max_timestamp.max()))
        self.sizes[info.base_offset] = size + int(table.size.sum()), latest_ms
        self.state.feed(table, on_error=pass_over)
        self.end = table.end_offset

    def settle(self) -> None:
        """Treat a log whose records are all before its start as one that is empty from there on."""
        if self.end <= self.start:
            self.end, self.records, self.first_ms = self.start, 0, -1
            self.sizes, self.state = {}, ProducerState()

    def note_transactions(self) -> None:
        """Note the transactions that are open at the end of the source."""
        for producer_id, place in self.state.ongoing:
            entry, from_offset = self.state.entries[producer_id], (place.offset, None)
            pieces = self.view.read(offset=from_offset, columns=("timestamp",))
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
        """Sentences why the log cannot be adopted."""
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
    """Make the log of an adoption in the staging directory, lasting.

    Args:
        adoption: the log.
        target: the partition directory that it will replace.
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
    """A log that is being written, segment by segment.

    Attributes:
        bytes: the number of bytes that were appended.
        end: the offset after the last batch; -1 before the first one.
    """

    def __init__(self, directory: Path, config: LogConfig, now_ms: int, leader_epoch: int) -> None:
        """Begin with no segment.

        Args:
            directory: the directory of the log.
            config: the settings of its indexes.
            now_ms: the clock.
            leader_epoch: the epoch that every batch gets.
        """
        self._directory, self._config, self._now_ms = directory, config, now_ms
        self._epoch = np.frombuffer(leader_epoch.to_bytes(4, "big"), np.uint8)
        self._leader_epoch = leader_epoch
        self._state = ProducerState()
        self._buffer = np.empty(_PIECE_BYTES, np.uint8)
        self._writer: SegmentWriter | None = None
        self.bytes, self.end = 0, -1

    def begin(self, base_offset: int) -> None:
        """Begin the segment of this base offset; the segment before is sealed, and lasting."""
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


# ---- the end of open transactions ----------------------------------------------------------------


#: `transactionStatus` of PrepareCommit, and of this and CompleteCommit.
_PREPARE_COMMIT: Final = 2
_COMMITS: Final = (_PREPARE_COMMIT, 4)
#: That of all that end a transaction: also PrepareAbort, CompleteAbort, PrepareEpochFence.
_ENDS: Final = (2, 3, 4, 5, 7)
#: `clientTransactionVersion` since KIP-890: the epoch rises at the end of each transaction.
_BUMPS: Final = 2
#: Where a value of `__transaction_state` has the producer's id.
_PRODUCER_ID: Final = slice(2, 10)
#: The id and the epoch of a producer, which name one transaction at a time.
_Name = tuple[int, int]
#: A marker, and the partition that it is in.
_Marker = tuple[str, BatchHeader]


@frozen_dataclass
class AdoptedTransaction(Documented):
    """A transaction that is open at the end of the adopted part of a log.

    Attributes:
        partition: as the source names it.
        producer_id, producer_epoch: the producer, as in its last batch.
        coordinator_epoch: from the last marker of the producer; 0 if there is none.
        first_offset, first_timestamp: its first record's; the time is -1 if it has none.
        commits: whether it is committed; None if nothing decides it.
        why: a phrase for what decides it.
    """

    partition: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    first_timestamp: int
    commits: bool | None = None
    why: str = ""

    @property
    def question(self) -> str:
        """A sentence with the transaction, saying that nothing decides it."""
        return (
            f"{self.partition}: nothing tells the end of the transaction of producer "
            f"{self.producer_id} from offset {self.first_offset} on{self.why}: --undecided abort, "
            "or commit, ends it"
        )


def decide(
    transactions: Iterable[AdoptedTransaction],
    sources: Sequence[tuple[LogView, int]],
    at_ms: int | None,
    undecided: str,
) -> dict[AdoptedTransaction, AdoptedTransaction]:
    """Decide open transactions; a transaction has the same end in all partitions.

    Args:
        transactions: the transactions that are open in one partition or several.
        sources: all logs, each with the offset before which it is adopted, 0 for nothing;
            `__transaction_state` among them if it is there.
        at_ms: the moment; None for the end of the sources. For a producer with a later marker in
            what is taken, that is the moment.
        undecided: "abort", "commit" or "stop".

    Returns:
        Each transaction with its end.

    Raises:
        KsegError, OSError: a source cannot be read.
    """
    key = attrgetter("producer_id", "producer_epoch")
    ordered = sorted(transactions, key=key)
    groups = {name: list(group) for name, group in groupby(ordered, key=key)}
    if not groups:
        return {}
    moments = dict.fromkeys((name[0] for name in groups), INT64_MAX if at_ms is None else at_ms)
    markers = _markers(sources, moments)
    states = _states([view for view, _ in sources], moments)
    otherwise = {"abort": False, "commit": True}.get(undecided)
    decided = dict[AdoptedTransaction, AdoptedTransaction]()
    for name, group in groups.items():
        began_ms = max(transaction.first_timestamp for transaction in group)
        end_ms = moments[name[0]]
        first_offsets = {transaction.partition: transaction.first_offset for transaction in group}
        # Each marker: its time, whether it commits, whether its partition has the open transaction.
        ends = [
            (
                header.max_timestamp,
                header.control_type == ControlType.COMMIT,
                partition in first_offsets,
            )
            for partition, header in markers.get(name, ())
            if header.base_offset > first_offsets.get(partition, -1)
        ]
        its_own = [end for end in ends if end[2]]
        is_open = bool(its_own) and min(its_own)[0] > end_ms  # at the moment; it ended later
        others = [end for end in ends if began_ms <= end[0] <= end_ms]
        marker = None if is_open else min(its_own or others, default=None)
        commits = _end_by_state(name, began_ms, states, is_open=is_open)
        why, doubt = "the state of its coordinator", ""
        # A marker of another partition counts only where the states say nothing.
        if marker is not None and (commits is None or its_own):
            commits, why = marker[1], "a marker"
        elif marker is not None and marker[1] != commits:
            commits, doubt = None, ", and a marker contradicts the state of its coordinator"
        if commits is None:
            commits, why = otherwise, doubt if otherwise is None else "the caller"
        decided |= {
            transaction: replace(transaction, commits=commits, why=why) for transaction in group
        }
    return decided


class _State(NamedTuple):
    """A record of `__transaction_state`.

    Attributes:
        status: `transactionStatus`.
        update_ms: the time of the change, in ms.
        bumps: whether the producer's epoch rises at the end of each transaction.
    """

    status: int
    update_ms: int
    bumps: bool


def _states(
    sources: Sequence[LogView], moments: Mapping[int, int]
) -> tuple[dict[_Name, _State], dict[_Name, _State]]:
    """The first end of each transaction, and the last state, up to the moments of producers.

    If the log is damaged on the way, the last states are unknown, and only ends count.
    """
    ends, last = dict[_Name, _State](), dict[_Name, _State]()
    for view in sources:
        if view.topic != InternalTopic.TRANSACTIONS:
            continue
        states = dict[_Name, _State]()
        try:
            for name, state in _records(view, moments):
                states[name] = state
                if state.status in _ENDS:
                    ends.setdefault(name, state)
        except FormatError:  # later states are unknown; an end that was read stays one
            states = {name: state for name, state in states.items() if state.status in _ENDS}
        last |= states
    return ends, last


def _end_by_state(
    name: _Name,
    began_ms: int,
    states: tuple[Mapping[_Name, _State], Mapping[_Name, _State]],
    *,
    is_open: bool,
) -> bool | None:
    """The end of a transaction by the states of its producer; None if they do not tell.

    Args:
        name: the producer's id, and its epoch in the transaction.
        began_ms: the time of the transaction's first record, in ms.
        states: the ends, and the last states, as `_states` gives them.
        is_open: whether the transaction's own markers are all later than the moment.

    Since KIP-890 the end of a transaction has the next epoch, in which the next one begins. If all
    its markers are later, a state that says that all are written is of an earlier one.
    """
    ends, last = states
    last_state, first_end = last.get(name), ends.get((name[0], name[1] + 1))
    if first_end is not None:
        return first_end.status in _COMMITS
    if last_state is None:
        return None
    if is_open:
        return last_state.status == _PREPARE_COMMIT
    if last_state.status in _ENDS and (last_state.bumps or last_state.update_ms < began_ms):
        return None  # the state is an earlier transaction's
    return last_state.status in _COMMITS


def _records(view: LogView, moments: Mapping[int, int]) -> Iterator[tuple[_Name, _State]]:
    """The states of some producers, each with its epoch, in the order of the log."""
    for columns in view.read(columns=("key", "value", "timestamp")):
        times = columns["timestamp_ms"].tolist()
        for name, value, time_ms in zip(columns["key"], columns["value"], times, strict=True):
            if value is None:
                continue
            producer_id = int.from_bytes(value[_PRODUCER_ID], "big", signed=True)
            if time_ms > moments.get(producer_id, -1):
                continue
            with suppress(InvalidRecordError):
                fields = decode(InternalTopic.TRANSACTIONS, name, value).value
                if isinstance(fields, dict):
                    yield (
                        (fields["producerId"], fields["producerEpoch"]),
                        _State(
                            fields["transactionStatus"],
                            fields["transactionLastUpdateTimestampMs"],
                            fields.get("clientTransactionVersion", 0) >= _BUMPS,
                        ),
                    )


def _markers(
    sources: Sequence[tuple[LogView, int]], moments: dict[int, int]
) -> dict[_Name, list[_Marker]]:
    """The markers of some producers; sets their moments to their last markers before the end.

    A marker ends the transaction whose batches are before it: since KIP-890 its own epoch
    is that of the next one.
    """
    producers, markers = np.array(list(moments)), dict[_Name, list[_Marker]]()
    for view, end in sources:
        partition, epochs = f"{view.topic}-{view.partition}", dict[int, int]()
        for header in _batches_of(view, producers):
            producer_id = header.producer_id
            if not header.is_control:
                epochs[producer_id] = header.producer_epoch
            elif header.control_type in (ControlType.COMMIT, ControlType.ABORT):
                name = producer_id, epochs.pop(producer_id, -1)
                markers.setdefault(name, []).append((partition, header))
                if header.base_offset < end:
                    moments[producer_id] = max(moments[producer_id], header.max_timestamp)
    return markers


def _batches_of(view: LogView, producers: Int64s) -> Iterator[BatchHeader]:
    """The batches and markers of the transactions of some producers."""
    for info in view.segments:
        with view.open_segment(info) as segment:
            for table in segment.headers():
                yield from table[table.is_transactional & np.isin(table.producer_id, producers)]
