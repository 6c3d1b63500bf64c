"""What became of each transaction, as far as compaction must know it.

Data of aborted transactions goes. A marker goes when no batch of its transaction is left, but only
after a time: until then it stands behind a horizon. Both are read from the log itself, in one walk
over its headers: a transaction index carries no checksum, and one that lost an entry would keep
what was aborted for committed. Of the old index entries are taken over where they agree with the
log, since they know where a transaction began whose first batches went with an earlier pass.

Source: Kafka `CleanedTransactionMetadata`, `Cleaner.shouldDiscardBatch`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files.txn_index import AbortedTxn, TxnIndex
from kseg.format.header import CONTROL, TRANSACTIONAL
from kseg.log.cleaner.inputs import CleanerInputs
from kseg.log.reader.aborted import AbortedRanges, TransactionWalk
from kseg.log.segment.walks import check_end

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.header import BatchTable
    from kseg.log.reader.version import SegmentInfo


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """What became of the transactions of a log.

    Attributes:
        aborted: which data batches are of aborted ones.
        bare: int64[n], rising: offsets of the markers of transactions without a batch of data.
        entries: aborted ones of which a batch is there, by their markers' offsets, rising.
        records: at most so many have a key from where the log is dirty; None where headers do not
            tell.
    """

    aborted: AbortedRanges
    bare: npt.NDArray[np.int64]
    entries: tuple[AbortedTxn, ...]
    records: int | None

    def discardable(self, table: BatchTable) -> npt.NDArray[np.bool_]:
        """bool[n]: batches of aborted data, and markers that have nothing left to decide."""
        found = self.aborted.within(table)
        control = table.is_control
        if control.any():
            # A marker that was emptied is none any more.
            found |= control & (table.record_count == 0)
            found |= control & np.isin(table.base_offset, self.bare)
        return found

    def entries_within(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """What the transaction index of a segment with these offsets must have."""
        return [one for one in self.entries if start_offset <= one.last_offset < end_offset]


#: Of a log without transactions.
NO_DECISIONS: Final = Decisions(AbortedRanges.of(()), np.empty(0, np.int64), (), None)


class _Walk(TransactionWalk):
    """A walk that also notes markers without data, and what an index has of the others.

    An aborted transaction that ended in front of the log's start is a committed one to Kafka, and
    is not over: the producer's next marker of a commit stands for its data, too. Here this data is
    aborted, but that marker stays as long as with Kafka.
    """

    def __init__(self, log_start_offset: int) -> None:
        super().__init__()
        self._log_start_offset = log_start_offset
        self._held: set[int] = set()
        self.bare: list[int] = []
        self.entries: list[AbortedTxn] = []
        self.records: int | None = 0

    def count(self, table: BatchTable) -> None:
        """Take in how many records the headers tell of; compressed ones of magic 0 and 1 do not."""
        told = table.record_count
        if self.records is not None and len(told):
            self.records = None if int(told.min()) < 0 else self.records + int(told.sum())

    def decide(self, producer_id: int, offset: int, *, aborts: bool) -> int | None:
        first = super().decide(producer_id, offset, aborts=aborts)
        holds = not aborts and producer_id in self._held
        if first is None and not holds:
            self.bare.append(offset)
        if holds:
            self._held.discard(producer_id)
        if first is not None and aborts:
            if offset < self._log_start_offset:
                self._held.add(producer_id)
            stable = min(self.open.values(), default=offset + 1)
            self.entries.append(AbortedTxn(producer_id, first, offset, stable))
        return first


def has_transactions(table: BatchTable) -> bool:
    """Whether there may be a batch of a transaction, or a marker."""
    return bool(table.attributes_seen & (TRANSACTIONAL | CONTROL))


def any_transactions(inputs: CleanerInputs, end_offset: int) -> bool:
    """Whether the segments that begin below an offset may have transactions.

    Raises:
        FormatError: a segment is damaged.
        OSError: a file cannot be read.
    """
    for info in inputs.segments:
        if info.base_offset >= end_offset:
            break
        with inputs.open_segment(info) as segment:
            for table in segment.headers():
                if has_transactions(table):
                    return True
            check_end(table, segment)
    return False


def read_decisions(inputs: CleanerInputs, start_offset: int, end_offset: int) -> Decisions:
    """Follow the transactions of a log until all are decided that have data below an offset.

    Args:
        inputs: of the log.
        start_offset: where it is dirty from.
        end_offset: where what may be touched ends.

    Raises:
        FormatError: a segment is damaged.
        OSError: a file cannot be read.
    """
    walk = _Walk(inputs.log_start_offset)
    for info in inputs.segments:
        if info.base_offset >= end_offset and all(o >= end_offset for o in walk.open.values()):
            break
        with inputs.open_segment(info) as segment:
            for table in segment.headers():
                walk.feed(table)
                if (
                    info.base_offset < end_offset
                    and table.last_offset.max(initial=-1) >= start_offset
                ):
                    walk.count(table)
            check_end(table, segment)
    stored = {
        (one.producer_id, one.last_offset): one
        for info in inputs.segments
        if walk.entries and info.base_offset < end_offset
        for one in _stored(info)
    }
    entries = tuple(
        _agreed(one, stored.get((one.producer_id, one.last_offset))) for one in walk.entries
    )
    return Decisions(
        AbortedRanges.of(walk.aborted), np.array(walk.bare, np.int64), entries, walk.records
    )


def _stored(info: SegmentInfo) -> tuple[AbortedTxn, ...]:
    """The entries that a segment's index has; none where it cannot be read."""
    path = info.files.txn_index
    with suppress(CorruptIndexError, LimitExceededError):
        return () if path is None else TxnIndex.open(path).entries()
    return ()


def _agreed(derived: AbortedTxn, stored: AbortedTxn | None) -> AbortedTxn:
    """The entry as it was stored, if it names the same transaction and no less of it."""
    if stored is None or stored.version or stored.first_offset > derived.first_offset:
        return derived
    return stored


__all__ = ["NO_DECISIONS", "Decisions", "any_transactions", "has_transactions", "read_decisions"]
