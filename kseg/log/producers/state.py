"""The state of all producers of a log: their last batches, and their transactions.

An append is prepared, written, and then committed. `prepare` checks every batch against the state
and changes nothing. So an append that is refused, or cannot be written, leaves no trace. Batches
that the log holds already, as after a restart, go through `feed`, which checks little.

Nothing here touches a disk or reads a clock; snapshots of it are `kseg.log.producers.snapshots`.

Source: Kafka `ProducerStateManager`, `UnifiedLog.analyzeAndValidateProducerState`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kseg.constants import AppendOrigin
from kseg.errors import InvalidRecordError, InvalidTxnStateError, OnError
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.txn_index import AbortedTxn
from kseg.format.header import COLUMN, BatchTable
from kseg.format.times import DAY_MS
from kseg.log.producers.entry import (
    BATCHES_KEPT,
    BatchDescriptor,
    CompletedTxn,
    OffsetMetadata,
    ProducerAppend,
    ProducerBatch,
    ProducerEntry,
    VerificationEntry,
    VerificationGuard,
    telling_batches,
)

# ---- open transactions, in the order of their first offsets --------------------------------------


class TransactionsByOffset:
    """A map from the first offset of a transaction to its producer and place, ascending.

    Nearly all are added at the end and removed near the front, which is cheap.
    """

    __slots__ = ("_offsets", "_values")

    def __init__(self) -> None:
        """Begin without transactions."""
        self._offsets: list[int] = []
        self._values: dict[int, tuple[int, OffsetMetadata]] = {}

    def __len__(self) -> int:
        """How many."""
        return len(self._offsets)

    def __iter__(self) -> Iterator[tuple[int, OffsetMetadata]]:
        """Producer id and first offset of each, the oldest first."""
        return map(self._values.__getitem__, self._offsets)

    @property
    def oldest(self) -> tuple[int, OffsetMetadata] | None:
        """Producer id and first offset of the oldest."""
        return self._values[self._offsets[0]] if self._offsets else None

    def put(self, producer_id: int, place: OffsetMetadata) -> None:
        """Add a transaction; it replaces another that begins at the same offset."""
        offset = place.offset
        if offset not in self._values:
            if not self._offsets or offset > self._offsets[-1]:
                self._offsets.append(offset)
            else:
                insort(self._offsets, offset)
        self._values[offset] = producer_id, place

    def remove(self, offset: int) -> tuple[int, OffsetMetadata] | None:
        """Remove the transaction that begins at `offset`; return None if there is none."""
        value = self._values.pop(offset, None)
        if value is not None:
            del self._offsets[bisect_left(self._offsets, offset)]
        return value

    def keep(self, offsets: set[int]) -> None:
        """Remove all transactions but those that begin at one of `offsets`."""
        self._offsets = [offset for offset in self._offsets if offset in offsets]
        self._values = {offset: self._values[offset] for offset in self._offsets}

    def clear(self) -> None:
        """Take out all."""
        self._offsets.clear()
        self._values.clear()


# ---- all producers of a log ----------------------------------------------------------------------


#: Makes a named tuple in half the time of a normal call.
_tuple: Final = tuple.__new__


_POSITION: Final = COLUMN["position"]


@dataclass(slots=True, eq=False)
class ProducerUpdate:
    """The changes that an append makes once it is written.

    Attributes:
        duplicate: the batch appended before that this append repeats; nothing is to be written.
        entries: the producers' entries as they will be.
        started: producer id and first offset of each transaction that begins.
        completed: transactions that markers decide, in their order.
        verified: producers whose guards are used up.
    """

    duplicate: BatchDescriptor | None = None
    entries: Mapping[int, ProducerEntry] = field(default_factory=dict)
    started: Sequence[tuple[int, OffsetMetadata]] = ()
    completed: tuple[CompletedTxn, ...] = ()
    verified: Collection[int] = ()


#: A data batch that continues its producer's sequence, as `kseg._kernels.placement` has it:
#: producer id, epoch, position in its segment (-1 if it is of no transaction), last sequence, last
#: offset, offset delta, largest timestamp.
WrittenBatch = tuple[int, int, int, int, int, int, int]

#: The update for nearly every append without producer ids.
NOTHING: Final = ProducerUpdate()


class ProducerState:
    """The producers of one log. One thread at a time may change it; entries may be read by any.

    Attributes:
        map_end_offset: batches before this offset are taken in.
        last_snapshot_offset: the newest snapshot's, or where the state began if there is none.
        expiration_ms: a producer that has written nothing for so long, by the times of its
            records, is forgotten; `producer.id.expiration.ms`.
        transaction_max_timeout_ms: no transaction may take longer.
        verification_enabled: whether transactions may be opened only with a guard.
    """

    __slots__ = (
        "_completed_min",
        "_completed_offsets",
        "_entries",
        "_ongoing",
        "_unreplicated",
        "_verifications",
        "expiration_ms",
        "last_snapshot_offset",
        "map_end_offset",
        "transaction_max_timeout_ms",
        "verification_enabled",
    )

    def __init__(
        self,
        *,
        expiration_ms: int = DAY_MS,
        transaction_max_timeout_ms: int = 15 * 60 * 1000,
        verification_enabled: bool = False,
    ) -> None:
        """Begin without producers, at offset 0."""
        self.map_end_offset = 0
        self.last_snapshot_offset = 0
        self.expiration_ms = expiration_ms
        self.transaction_max_timeout_ms = transaction_max_timeout_ms
        self.verification_enabled = verification_enabled
        self._entries: dict[int, ProducerEntry] = {}
        self._ongoing = TransactionsByOffset()
        # Decided transactions whose markers are not below the high watermark; their last offsets by
        # their first ones, and the least of the last ones.
        self._unreplicated = TransactionsByOffset()
        self._completed_offsets: dict[int, int] = {}
        self._completed_min = 0
        self._verifications: dict[int, VerificationEntry] = {}

    # ---- looking ---------------------------------------------------------------------------------

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        """The producers, keyed by id, as a view that follows all changes."""
        return MappingProxyType(self._entries)

    @property
    def unguarded(self) -> dict[int, ProducerEntry] | None:
        """The producers, keyed by id, read-only; None if an append may need a guard."""
        guarded = self.verification_enabled or self._verifications
        return None if guarded else self._entries

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known."""
        return not self._entries

    @property
    def ongoing(self) -> tuple[tuple[int, OffsetMetadata], ...]:
        """Producer id and first offset of each open transaction, the oldest first."""
        return tuple(self._ongoing)

    @property
    def first_unstable(self) -> OffsetMetadata | None:
        """Where the oldest unstable transaction begins: it is open, or was decided only lately.

        Lately means: by a marker that is not below the high watermark. Returns the place in the log
        with the offset, if the place is known.
        """
        oldest = (self._ongoing.oldest, self._unreplicated.oldest)
        places = (transaction[1] for transaction in oldest if transaction)
        return min(places, key=lambda place: place.offset, default=None)

    @property
    def first_unstable_offset(self) -> int | None:
        """The offset of `first_unstable`."""
        first = self.first_unstable
        return first and first.offset

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """The last stable offset for a transaction's entry in the index: up to here all is decided.

        Called before `complete`. The first offset of the oldest open transaction of another
        producer, else the offset after the marker. Source: Kafka
        `ProducerStateManager.lastStableOffset`.
        """
        others = (at.offset for owner, at in self._ongoing if owner != completed.producer_id)
        return next(others, completed.last_offset + 1)

    # ---- appending -------------------------------------------------------------------------------

    def prepare(
        self,
        batches: BatchTable,
        *,
        origin: AppendOrigin,
        segment_base_offset: int = -1,
        position: int = -1,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> ProducerUpdate:
        """Check the batches of an append, in order; nothing changes before `commit`.

        Args:
            batches: their headers, with the offsets that they will have in the log; positions count
                from the begin of the append in memory.
            origin: where the batches come from.
            segment_base_offset: the segment that they will be in; -1 if not known.
            position: the position of the first batch in it.
            guard: from `start_verification`, for a transaction that begins.
            transaction_version: the coordinator's version; from 2 on a marker
                needs an epoch above its producer's.

        Raises:
            OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError,
            TransactionCoordinatorFencedError: a batch may not follow; see
                `kseg.log.producers.entry`.
            InvalidRecordError: a control batch with a producer that is not a marker.
        """
        chosen = telling_batches(batches, all_known=origin != AppendOrigin.REPLICATION)
        if not chosen:
            return NOTHING
        start = int(batches.rows[0, _POSITION])
        appends: dict[int, ProducerAppend] = {}
        completed: list[CompletedTxn] = []
        for batch in chosen:
            if origin == AppendOrigin.CLIENT:
                entry = self._entries.get(batch.producer_id)
                duplicate = entry and entry.duplicate_of(batch)
                if duplicate:
                    return ProducerUpdate(duplicate=duplicate)
            if self.verification_enabled:
                self._check_verified(batch, origin, guard)
            place = OffsetMetadata(batch.base_offset)
            if position >= 0:
                at = position + batch.position - start
                place = OffsetMetadata(batch.base_offset, segment_base_offset, at)
            append = appends.get(batch.producer_id)
            if append is None:
                append = self._append_of(batch.producer_id, origin, transaction_version)
                appends[batch.producer_id] = append
            decided = append.take(batch, place)
            if decided is not None:
                completed.append(decided)
        return ProducerUpdate(
            entries={key: append.entry() for key, append in appends.items()},
            started=[(key, at) for key, append in appends.items() for at in append.started],
            completed=tuple(completed),
            verified={
                batch.producer_id
                for batch in (chosen if self._verifications else ())
                if batch.is_transactional
            },
        )

    def take(self, written: Iterable[WrittenBatch], segment_base_offset: int) -> bool:
        """Commit batches that a kernel has checked, now that they are written.

        The same as `prepare` and `commit` of these batches.

        Args:
            written: in the log's order; for a long run of one producer, its first and last batches.
            segment_base_offset: the segment that they are in.

        Returns:
            Whether one of them is part of a transaction.
        """
        entries, has_transaction = self._entries, False
        for producer_id, epoch, position, *batch in written:
            before = entries.get(producer_id) or ProducerEntry(producer_id)
            descriptor = _tuple(BatchDescriptor, batch)
            transaction = before.current_txn_first_offset
            if position >= 0:
                has_transaction = True
                if transaction is None:
                    transaction = descriptor.first_offset
                    place = OffsetMetadata(transaction, segment_base_offset, position)
                    self._ongoing.put(producer_id, place)
            batches = (*before.batches, descriptor)[-BATCHES_KEPT:]
            coordinator, latest_ms = before.coordinator_epoch, descriptor.timestamp
            entry = producer_id, epoch, coordinator, latest_ms, transaction, batches
            entries[producer_id] = _tuple(ProducerEntry, entry)
        return has_transaction

    def _append_of(self, producer_id: int, origin: AppendOrigin, version: int) -> ProducerAppend:
        stored = self._entries.get(producer_id) or ProducerEntry(producer_id)
        return ProducerAppend(stored, origin, self._verifications.get(producer_id), version)

    def commit(self, update: ProducerUpdate) -> tuple[CompletedTxn, ...]:
        """Commit a prepared append, now that it is written.

        Nothing else may have changed since `prepare`. The caller moves `map_end_offset`.

        Returns:
            The transactions that are decided. For each, in order, the caller reads
            `last_stable_offset`, writes an index entry if it is aborted, and calls `complete`.
        """
        if update is not NOTHING:
            self._entries.update(update.entries)
            for producer_id, place in update.started:
                self._ongoing.put(producer_id, place)
            for producer_id in update.verified:
                self._verifications.pop(producer_id, None)
        return update.completed

    def complete(self, completed: CompletedTxn) -> None:
        """A transaction is decided; it stays unstable until its marker is below the high watermark.

        Raises:
            ValueError: no transaction is open there.

        Source: Kafka `ProducerStateManager.completeTxn`.
        """
        if not self._complete(completed):
            raise ValueError(f"no transaction is open at offset {completed.first_offset}")

    def _complete(self, completed: CompletedTxn) -> bool:
        """As `complete`; returns False if no transaction is open at the first offset."""
        ongoing = self._ongoing.remove(completed.first_offset)
        if ongoing is None:
            return False
        if not self._completed_offsets or completed.last_offset < self._completed_min:
            self._completed_min = completed.last_offset
        self._unreplicated.put(*ongoing)
        self._completed_offsets[completed.first_offset] = completed.last_offset
        return True

    def high_watermark_updated(self, offset: int) -> None:
        """Decided transactions whose markers are before `offset` are stable from now on."""
        if not self._completed_offsets or offset <= self._completed_min:
            return
        unstable = {
            first: last for first, last in self._completed_offsets.items() if last >= offset
        }
        self._completed_offsets = unstable
        self._completed_min = min(unstable.values(), default=0)
        self._unreplicated.keep(set(unstable))

    def expire(self, now_ms: int) -> tuple[int, ...]:
        """Forget producers that have written nothing for long, and guards that were not used.

        Returns:
            The ids of the producers.
        """
        expired = tuple(k for k, entry in self._entries.items() if self.is_expired(entry, now_ms))
        for producer_id in expired:
            del self._entries[producer_id]
        self._verifications = {
            producer_id: entry
            for producer_id, entry in self._verifications.items()
            if now_ms - entry.created_ms < self.expiration_ms
        }
        return expired

    def is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        """Whether a producer is to be forgotten; never with an open transaction."""
        if entry.current_txn_first_offset is not None:
            return False
        return now_ms - entry.last_timestamp >= self.expiration_ms

    # ---- verification ----------------------------------------------------------------------------

    def start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, now_ms: int
    ) -> VerificationGuard | None:
        """The guard that the append that opens a transaction must have; None if one is open.

        Source: Kafka `ProducerStateManager.maybeCreateVerificationStateEntry`.
        """
        if self._is_in_transaction(producer_id, producer_epoch):
            return None
        new = VerificationEntry(now_ms, sequence, producer_epoch)
        entry = self._verifications.setdefault(producer_id, new)
        entry.announce(sequence, producer_epoch)
        return entry.guard

    def _is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self._entries.get(producer_id)
        if entry is None or entry.current_txn_first_offset is None:
            return False
        return entry.producer_epoch == producer_epoch

    def _check_verified(
        self, batch: ProducerBatch, origin: AppendOrigin, guard: VerificationGuard | None
    ) -> None:
        """Refuse to begin a transaction that was not verified with its coordinator (KIP-890).

        Replicated batches, markers and batches of open transactions need no verification.
        """
        if not batch.is_transactional or batch.is_control:
            return
        if origin not in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
            return
        if self._is_in_transaction(batch.producer_id, batch.producer_epoch):
            return
        entry = self._verifications.get(batch.producer_id)
        if guard is None or entry is None or entry.guard is not guard:
            raise InvalidTxnStateError(
                f"producer {batch.producer_id} has no transaction open here, and none was verified",
                offset=batch.base_offset,
            )

    # ---- batches in the log ----------------------------------------------------------------------

    def feed(self, table: BatchTable, *, on_error: OnError | None = None) -> tuple[AbortedTxn, ...]:
        """Process the next batches in the log, each as if appended by itself.

        Rows without a producer id cost next to nothing, and of a long run of one producer only the
        rows that leave a trace are looked at.

        Args:
            table: headers, in the log's order; the caller has checked the checksums, if it wants
                to.
            on_error: called with the error for a batch that a leader would not accept: not
                transactional inside of a transaction, or a control batch that is not a marker. The
                walk continues. Without it the error is raised.

        Returns:
            Entries for the transaction index of the segment that holds these batches.

        Raises:
            InvalidTxnStateError, InvalidRecordError: see `on_error`; the state is of no use then.

        Source: Kafka `LogSegment.updateProducerState`.
        """
        aborted: list[AbortedTxn] = []
        appends: dict[int, ProducerAppend] = {}
        for batch in telling_batches(table):
            append = appends.get(batch.producer_id)
            if append is None:
                append = self._append_of(batch.producer_id, AppendOrigin.REPLICATION, 0)
                appends[batch.producer_id] = append
            completed = None
            try:
                completed = append.take(batch, OffsetMetadata(batch.base_offset))
            except (InvalidTxnStateError, InvalidRecordError) as error:
                error.position = batch.position
                if on_error is None:
                    raise
                on_error(error)
            while append.started:
                self._ongoing.put(batch.producer_id, append.started.pop())
            if completed is not None:
                if completed.aborted:
                    owner, first, last, _aborted = completed
                    stable = self.last_stable_offset(completed)
                    aborted.append(AbortedTxn(owner, first, last, stable))
                self._complete(completed)
        self._entries.update(
            (key, append.entry(one_by_one=True)) for key, append in appends.items()
        )
        if len(table):
            self.map_end_offset = table.end_offset
        return tuple(aborted)

    # ---- moving ends -----------------------------------------------------------------------------

    def load(
        self, stored: Iterable[ProducerSnapshotEntry], offset: int, *, now_ms: int | None = None
    ) -> None:
        """Begin again with the entries of a snapshot taken at `offset`.

        Args:
            stored: the entries; if a producer has two, the last counts.
            offset: the offset in the snapshot's name.
            now_ms: producers that have expired by then are left out; None to keep all.
        """
        self.clear()
        entries = map(ProducerEntry.from_snapshot, stored)
        opened = []
        for entry in entries:
            if now_ms is not None and self.is_expired(entry, now_ms):
                continue
            self._entries[entry.producer_id] = entry
            if entry.current_txn_first_offset is not None:
                opened.append((entry.current_txn_first_offset, entry.producer_id))
        for first, producer_id in sorted(opened, key=lambda pair: pair[0]):
            self._ongoing.put(producer_id, OffsetMetadata(first))
        self.map_end_offset = self.last_snapshot_offset = offset

    def snapshot_entries(self) -> list[ProducerSnapshotEntry]:
        """The entries of a snapshot written now, sorted by producer id."""
        return [self._entries[key].to_snapshot() for key in sorted(self._entries)]

    def clear(self) -> None:
        """Forget all producers and transactions; offsets stay."""
        self._entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._completed_offsets.clear()


__all__ = [
    "NOTHING",
    "BatchDescriptor",
    "CompletedTxn",
    "OffsetMetadata",
    "ProducerEntry",
    "ProducerState",
    "ProducerUpdate",
    "TransactionsByOffset",
    "WrittenBatch",
]
