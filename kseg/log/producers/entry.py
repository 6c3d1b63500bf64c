"""The state of one producer, and the rules for its next batch: values and rules only.

Has the rules for one producer at a time. The map of all producers, and their transactions, are in
`kseg.log.producers.state`. An entry never changes: an append prepares a new one, which replaces it
once the append is written.

Source: Kafka `ProducerStateEntry`, `BatchMetadata`, `ProducerAppendInfo`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from kseg.constants import (
    INT32_MAX,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    AppendOrigin,
    ControlType,
    Int64s,
)
from kseg.documents import frozen_dataclass
from kseg.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.format.header import (
    COLUMN,
    CONTROL,
    TRANSACTIONAL,
    BatchTable,
    decrement_sequence,
    increment_sequence,
    wrap_int32,
)

#: How many last batches of a producer are remembered, to recognize a repeated one.
BATCHES_KEPT: Final = 5
#: Batches that a working copy holds before it drops all but the last `BATCHES_KEPT`.
_BATCHES_MAX: Final = 64
_NO_EPOCH: Final = -1


class OffsetMetadata(NamedTuple):
    """An offset and its place: segment base and position, -1 where unknown."""

    offset: int
    segment_base_offset: int = -1
    position: int = -1


class ProducerBatch(NamedTuple):
    """The header fields that the rules for a producer need; `position` as in the header."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    attributes: int
    record_count: int
    control_type: int
    coordinator_epoch: int
    position: int

    @property
    def is_control(self) -> bool:
        """Whether it is a marker."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)


#: The fields of a `ProducerBatch` out of a row of a table of headers.
_OF_ROW: Final = itemgetter(*(COLUMN[name] for name in ProducerBatch._fields))


def last_sequence(base: int, delta: int) -> int:
    """Sequence of a batch's last record; -1 for a batch without."""
    last = base + delta
    if base >= 0 and base <= last <= INT32_MAX:
        return last
    return NO_SEQUENCE if base == NO_SEQUENCE else increment_sequence(base, delta)


class BatchDescriptor(NamedTuple):
    """A remembered batch of a producer; the timestamp is its largest, in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence of the first record."""
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    """A transaction that its marker, at `last_offset`, has decided."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry(NamedTuple):
    """The state of one producer.

    Attributes:
        producer_id: its number.
        producer_epoch: -1 if unknown.
        coordinator_epoch: from the coordinator that wrote its last marker; -1 if there is none.
        last_timestamp: largest timestamp of its last batch, or time of its last marker, in ms.
        current_txn_first_offset: where its open transaction begins; None if none is open.
        batches: its last batches of data, at most 5, the oldest first.
    """

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = _NO_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None
    batches: tuple[BatchDescriptor, ...] = ()

    @property
    def first_sequence(self) -> int:
        """Sequence of the first remembered record; -1 if there is none."""
        return self.batches[0].first_sequence if self.batches else NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 if no batch is remembered."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def first_offset(self) -> int:
        """Offset of the first remembered record; -1 if there is none."""
        return self.batches[0].first_offset if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Offset of the last record of data; -1 if no batch is remembered."""
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, batch: ProducerBatch) -> BatchDescriptor | None:
        """The remembered batch that `batch` repeats: same epoch, same first and last sequence.

        Source: Kafka `ProducerStateEntry.findDuplicateBatch`.
        """
        if batch.producer_epoch != self.producer_epoch:
            return None
        first = batch.base_sequence
        last = last_sequence(first, batch.last_offset - batch.base_offset)
        for earlier in self.batches:
            if earlier.last_sequence == last and earlier.first_sequence == first:
                return earlier
        return None

    @classmethod
    def from_snapshot(cls, stored: ProducerSnapshotEntry) -> ProducerEntry:
        """The entry from a snapshot: one batch at most, with the producer's last timestamp."""
        batch = BatchDescriptor(
            stored.last_sequence, stored.last_offset, stored.offset_delta, stored.last_timestamp
        )
        first = stored.current_txn_first_offset
        return cls(
            stored.producer_id,
            stored.producer_epoch,
            stored.coordinator_epoch,
            stored.last_timestamp,
            first if first >= 0 else None,
            (batch,) if stored.has_batch else (),
        )

    def to_snapshot(self) -> ProducerSnapshotEntry:
        """The form in a snapshot: the last batch, without a timestamp of its own."""
        first = self.current_txn_first_offset
        return ProducerSnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            self.last_sequence,
            self.last_offset,
            self.batches[-1].offset_delta if self.batches else 0,
            self.last_timestamp,
            self.coordinator_epoch,
            -1 if first is None else first,
        )


def in_sequence(last: int, following: int) -> bool:
    """Whether one sequence follows another; 0 follows 2147483647, and -1 (none)."""
    return following == last + 1 or (following == 0 and last == INT32_MAX)


# ---- guards of transactions ----------------------------------------------------------------------
# A broker asks the coordinator before it lets a producer begin a transaction. The answer may come
# late. Until then the log keeps a guard, and only an append with the same guard may open the
# transaction.
#
# Source: Kafka `VerificationStateEntry`, `VerificationGuard` (KIP-890).


@frozen_dataclass(eq=False)
class VerificationGuard:
    """One request to the coordinator; equal to itself only."""


@dataclass(slots=True)
class VerificationEntry:
    """The announcement of a producer's next transaction.

    Attributes:
        created_ms: when the guard was made.
        lowest_sequence: the smallest first sequence announced; no batch may come above it first.
        producer_epoch: the newest epoch announced.
        guard: the guard that the append must bring.
    """

    created_ms: int
    lowest_sequence: int
    producer_epoch: int
    guard: VerificationGuard = field(default_factory=VerificationGuard)

    def announce(self, sequence: int, producer_epoch: int) -> None:
        """Note another announcement: of a newer epoch, or of a smaller sequence in the same."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


# ---- a producer's part of an append --------------------------------------------------------------


class ProducerAppend:
    """One producer's part of an append: a working copy of its entry, updated batch by batch.

    Attributes:
        stored: the entry before the append; the empty entry for an unknown producer.
        started: the transactions begun, keyed by first offset.
    """

    __slots__ = (
        "_batches",
        "_coordinator_epoch",
        "_epoch",
        "_forgets",
        "_lowest",
        "_origin",
        "_timestamp",
        "_transaction_version",
        "_txn_first",
        "started",
        "stored",
    )

    def __init__(
        self,
        stored: ProducerEntry,
        origin: AppendOrigin,
        verification: VerificationEntry | None = None,
        transaction_version: int = 0,
    ) -> None:
        """Begin with the stored entry, and no batches.

        Args:
            stored: the present entry.
            origin: where the batches come from; a follower's append passes fewer checks.
            verification: its announced transaction, if there is one.
            transaction_version: the coordinator's version; from 2 on a marker
                that ends a transaction needs an epoch above the producer's.
        """
        self.stored = stored
        self.started: list[OffsetMetadata] = []
        self._origin = origin
        self._lowest = None if verification is None else verification.lowest_sequence
        self._transaction_version = transaction_version
        self._epoch = stored.producer_epoch
        self._coordinator_epoch = stored.coordinator_epoch
        self._timestamp = stored.last_timestamp
        self._txn_first = stored.current_txn_first_offset
        self._forgets = False
        self._batches: list[BatchDescriptor] = []

    def take(self, batch: ProducerBatch, place: OffsetMetadata) -> CompletedTxn | None:
        """Check and add the producer's next batch, of data or a marker.

        Args:
            batch: the batch, with the offsets that it has in the log.
            place: where it begins, for a transaction that it may open.

        Returns:
            The transaction that a marker decides; None for one without data, and for data.

        Raises:
            InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTxnStateError,
            TransactionCoordinatorFencedError: the batch may not follow.
            InvalidRecordError: a control batch that is not a transaction marker.

        Source: Kafka `ProducerAppendInfo.append`.
        """
        if batch.attributes & CONTROL:
            # Nothing is in it: the cleaner has removed the transaction with its marker.
            return self._add_marker(batch) if batch.record_count else None
        self._add_data(batch, place)
        return None

    def entry(self, *, one_by_one: bool = False) -> ProducerEntry:
        """The entry as it will be once the append is written.

        Args:
            one_by_one: as if each batch were appended by itself: then each new epoch drops the
                batches before it. In one append only the last epoch counts.

        Source: Kafka `ProducerStateEntry.update`.
        """
        stored = self.stored
        batches = tuple(self._batches)
        forgets = self._forgets if one_by_one else self._epoch != stored.producer_epoch
        newest = (batches if forgets else stored.batches + batches)[-BATCHES_KEPT:]
        return ProducerEntry(
            stored.producer_id,
            self._epoch,
            self._coordinator_epoch,
            self._timestamp,
            self._txn_first,
            newest,
        )

    # ---- data ------------------------------------------------------------------------------------

    def _add_data(self, batch: ProducerBatch, place: OffsetMetadata) -> None:
        """Check and add a batch of data. Source: Kafka `ProducerAppendInfo.appendDataBatch`."""
        self._check_epoch(batch, above=False)
        if self._origin == AppendOrigin.CLIENT:
            self._check_sequence(batch)
        self._enter_epoch(batch.producer_epoch)
        delta = batch.last_offset - batch.base_offset
        if not 0 <= delta <= INT32_MAX:  # a damaged header; the low 32 bits count
            delta = wrap_int32(delta)
        last = last_sequence(batch.base_sequence, delta)
        self._batches.append(BatchDescriptor(last, batch.last_offset, delta, batch.max_timestamp))
        if len(self._batches) > _BATCHES_MAX:
            del self._batches[:-BATCHES_KEPT]
        self._timestamp = batch.max_timestamp
        if batch.attributes & TRANSACTIONAL:
            if self._txn_first is None:
                self._txn_first = place.offset
                self.started.append(place)
        elif self._txn_first is not None:
            raise InvalidTxnStateError(
                f"producer {self.stored.producer_id} has a transaction open since offset "
                f"{self._txn_first}, and this batch is not transactional",
                offset=batch.base_offset,
            )

    def _enter_epoch(self, epoch: int) -> None:
        """Drop the batches of the epoch before."""
        if epoch != self._epoch:
            self._batches.clear()
            self._forgets = True
            self._epoch = epoch

    def _check_epoch(self, batch: ProducerBatch, *, above: bool) -> None:
        """Refuse an epoch below the producer's.

        With `above` an equal epoch is refused as well while a transaction is open; if none is, a
        marker decides nothing and may repeat. A follower accepts all that its leader has accepted.
        """
        epoch, current_epoch = batch.producer_epoch, self._epoch
        if self._origin == AppendOrigin.REPLICATION:
            return
        if epoch < current_epoch or (
            above and epoch == current_epoch and self._txn_first is not None
        ):
            raise InvalidProducerEpochError(
                f"producer {self.stored.producer_id} comes with epoch {epoch}, "
                + (
                    f"and an end marker needs one above {current_epoch}"
                    if above
                    else f"and has {current_epoch}"
                ),
                offset=batch.base_offset,
            )

    def _check_sequence(self, batch: ProducerBatch) -> None:
        """Refuse a sequence that does not follow the producer's last one.

        Source: Kafka `ProducerAppendInfo.checkSequence`.
        """
        first, stored = batch.base_sequence, self.stored
        if self._lowest is not None and first > self._lowest:
            self._refuse_sequence(batch, f"at most {self._lowest}, which was announced")
        if batch.producer_epoch != self._epoch:
            if first != 0 and self._epoch != NO_PRODUCER_EPOCH:
                self._refuse_sequence(batch, f"0 in the new epoch {batch.producer_epoch}")
            return
        if stored.producer_epoch == NO_PRODUCER_EPOCH:
            return  # the producer is unknown, maybe since retention has removed its records
        if self._batches:
            last = self._batches[-1].last_sequence
        elif batch.producer_epoch == stored.producer_epoch:
            last = stored.last_sequence
        else:
            last = NO_SEQUENCE
        if not in_sequence(last, first):
            self._refuse_sequence(batch, f"the one after {last}")

    def _refuse_sequence(self, batch: ProducerBatch, expected: str) -> None:
        """Raise the error for a wrong sequence; `expected` says which one would follow, and why."""
        raise OutOfOrderSequenceError(
            f"producer {self.stored.producer_id} comes with sequence {batch.base_sequence}, and "
            f"{expected}, is expected",
            offset=batch.base_offset,
        )

    # ---- markers ---------------------------------------------------------------------------------

    def _add_marker(self, batch: ProducerBatch) -> CompletedTxn | None:
        """Take the marker of a transaction's end; None if no transaction was open.

        Source: Kafka `ProducerAppendInfo.appendEndTxnMarker`.
        """
        kind = batch.control_type
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            raise InvalidRecordError(
                f"a control batch of producer {self.stored.producer_id} is not an end marker "
                f"of a transaction, but of type {kind}",
                offset=batch.base_offset,
            )
        self._check_epoch(batch, above=self._transaction_version >= 2)
        current_epoch = self._coordinator_epoch
        if current_epoch > batch.coordinator_epoch and self._origin != AppendOrigin.REPLICATION:
            raise TransactionCoordinatorFencedError(
                f"a marker for producer {self.stored.producer_id} comes from coordinator epoch "
                f"{batch.coordinator_epoch}, and one of epoch {current_epoch} has written already",
                offset=batch.base_offset,
            )
        first = self._txn_first
        self._enter_epoch(batch.producer_epoch)
        self._coordinator_epoch = batch.coordinator_epoch
        self._timestamp = batch.max_timestamp
        self._txn_first = None
        if first is None:
            return None
        return CompletedTxn(
            self.stored.producer_id, first, batch.base_offset, kind == ControlType.ABORT
        )


# ---- batches that change the state of their producers --------------------------------------------
# Kafka has no such step: it processes every batch.

_PRODUCER_ID: Final = COLUMN["producer_id"]
#: The columns of a table of headers by which `_leaving_traces` chooses.
_ASKED: Final = [COLUMN[name] for name in ("producer_id", "producer_epoch", "attributes")]
#: So few rows are faster to take one by one.
_FEW: Final = 8


def telling_batches(table: BatchTable, *, all_known: bool = False) -> list[ProducerBatch]:
    """The batches that change the final state of their producers, in order.

    Batches without a producer id are left out. So are, unless `all_known`, data batches that
    continue the one before of the same producer and are followed by as many as an entry remembers.
    A state that takes the rest, without checks of sequences, is the same in the end.
    """
    rows = table.rows
    if len(rows) > _FEW:
        chosen = np.flatnonzero(rows[:, _PRODUCER_ID] >= 0)
        if len(chosen) > _FEW and not all_known:
            chosen = chosen[_leaving_traces(rows[:, _ASKED][chosen])]
        rows = rows[chosen]
    return [ProducerBatch._make(_OF_ROW(row)) for row in rows.tolist() if row[_PRODUCER_ID] >= 0]


def _leaving_traces(rows: Int64s) -> Int64s:
    """The numbers of the rows that `telling_batches` chooses.

    Args:
        rows: int64[n, 3]: producer id, which is not -1, producer epoch, attributes.
    """
    order = np.argsort(rows[:, 0], kind="stable")
    producers, epochs, attributes = rows[order].T
    control = (attributes & CONTROL) != 0
    first = np.ones(len(order), np.bool_)
    first[1:] = producers[1:] != producers[:-1]
    chosen = first | control
    chosen[1:] |= control[:-1] | (epochs[1:] != epochs[:-1])
    chosen[1:] |= ((attributes[1:] ^ attributes[:-1]) & TRANSACTIONAL) != 0
    # Data rows of the same producer that follow: those up to its last row less those up to here.
    data = np.cumsum(~control)
    lasts = np.append(np.flatnonzero(first)[1:], len(order)) - 1
    following = data[lasts][np.cumsum(first) - 1] - data
    chosen |= ~control & (following < BATCHES_KEPT)
    return np.sort(order[chosen])


__all__ = [
    "BATCHES_KEPT",
    "BatchDescriptor",
    "CompletedTxn",
    "OffsetMetadata",
    "ProducerAppend",
    "ProducerEntry",
    "in_sequence",
    "telling_batches",
]
