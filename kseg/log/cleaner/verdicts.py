"""What becomes of each batch and each record, in bulk.

    batch      goes unread: aborted data, and markers without data whose horizon has passed
               stays, if without records: the last one of a producer, for its sequence, and the
               last one of the range, so that it is seen where that ends
    record     stays: of a marker; behind where the map ends; the last one of its key, unless it is
               a tombstone whose horizon has passed. One without a key goes.

Source: Kafka `Cleaner.cleanInto` (its `RecordFilter`), `Cleaner.shouldRetainRecord`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kseg.format.header import DELETE_HORIZON
from kseg.format.retain import Known, Retention, Verdict
from kseg.log.cleaner.offset_map import LastOffsets
from kseg.log.cleaner.transactions import Decisions

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from kseg._kernels.offset_map import KeepLatest
    from kseg.format.header import BatchTable
    from kseg.format.whole import WholeBatches
    from kseg.log.producers.entry import ProducerEntry

    Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LastBatches:
    """The last batch of each producer, which keeps its sequence.

    Attributes:
        producer_ids: int64[n], rising.
        last_offsets: int64[n]: of its last data; -1 where none is known.
        epochs: int64[n]: of the producer.
    """

    producer_ids: npt.NDArray[np.int64]
    last_offsets: npt.NDArray[np.int64]
    epochs: npt.NDArray[np.int64]

    @classmethod
    def of(cls, entries: Iterable[ProducerEntry]) -> LastBatches:
        """From what is known of producers."""
        rows = [(one.producer_id, one.last_offset, one.producer_epoch) for one in entries]
        columns = np.array(sorted(rows), np.int64).reshape(-1, 3).T
        return cls(*columns)

    def among(self, table: BatchTable) -> Bools:
        """bool[n]: which batches are the last of their producers.

        Source: Kafka `Cleaner.cleanInto`, `UnifiedLog.lastRecordsOfActiveProducers`.
        """
        ids = table.producer_id
        if not len(self.producer_ids) or not (ids >= 0).any():
            return np.zeros(len(table), np.bool_)
        at = np.searchsorted(self.producer_ids, ids)
        at[at == len(self.producer_ids)] = 0
        last, epoch = self.last_offsets[at], self.epochs[at]
        known = (ids >= 0) & (self.producer_ids[at] == ids)
        marked = (last < 0) & table.is_control & (table.producer_epoch == epoch)
        found: Bools = known & ((last >= 0) & (table.last_offset == last) | marked)
        return found


@dataclass(slots=True, eq=False)
class Judge:
    """What one pass goes by; counts records without a key.

    Attributes:
        last_offsets: the map.
        decisions: about transactions.
        last_batches: of producers.
        end_offset: where the range ends.
        now_ms: the time that counts.
        old_tombstones: whether tombstones of magic 0 and 1 stay, which have no horizon.
        unkeyed_records: how many went.
        removed_tombstones: how many went whose key the map has at no later offset.
    """

    last_offsets: LastOffsets
    decisions: Decisions
    last_batches: LastBatches
    end_offset: int
    now_ms: int
    old_tombstones: bool = False
    unkeyed_records: int = 0
    removed_tombstones: int = 0
    _table: BatchTable | None = field(default=None, init=False)
    _discarded: Bools | None = field(default=None, init=False)
    _needed: Bools | None = field(default=None, init=False)

    def judge(self, table: BatchTable) -> Verdict:
        """Say what becomes of batches; `keep` is asked for these until the next call."""
        discardable = self.decisions.discardable(table)
        control, old = table.is_control, table.magic < 2
        has_horizon = ~old & ((table.attributes & DELETE_HORIZON) != 0)
        due = has_horizon & (table.base_timestamp <= self.now_ms)
        discarded = discardable & (~control | due)
        is_last = self.last_batches.among(table)
        # A batch of magic 0 or 1 cannot stay without records; see `keep`.
        is_last |= ~old & (table.last_offset == self.end_offset - 1)
        retention = np.where(discarded, Retention.DELETE, Retention.DELETE_EMPTY)
        retention[is_last] = Retention.RETAIN_EMPTY
        self._table, self._discarded = table, discarded
        self._needed = np.where(old, self.old_tombstones, ~due)
        known = self.last_offsets.told(table)
        known[control | discarded | old] = Known.NOTHING
        return Verdict(retention.astype(np.uint8), discardable & control, known)

    @property
    def located(self) -> KeepLatest:
        """What `keep` says, for batches of data of magic 2; `count` has to be told of it."""
        assert self._discarded is not None
        assert self._needed is not None
        return self.last_offsets.keep(self._needed, self._discarded)

    def count(self, located: KeepLatest) -> None:
        """Take in how many records went by what `located` said."""
        self.unkeyed_records += located.unkeyed
        self.removed_tombstones += located.removed_tombstones

    def keep(self, whole: WholeBatches) -> Bools:
        """bool[n]: which records stay."""
        table, batches = self._table, whole.batches
        assert table is not None
        assert self._discarded is not None
        assert self._needed is not None
        columns = whole.columns
        offsets, key = columns["offset"], columns["key"]
        beyond = offsets > self.last_offsets.latest_offset
        keyed, has_value = key.is_valid(), columns["value"].is_valid()
        latest = self.last_offsets.latest(key, offsets)
        needed = has_value | np.repeat(self._needed[batches], whole.counts)
        keep: Bools = beyond | (latest & needed)
        control = table.is_control[batches]
        if control.any():
            keep |= np.repeat(control, whole.counts)
            keyed |= np.repeat(control, whole.counts)
        discarded = self._discarded[batches]
        if discarded.any():
            keep &= ~np.repeat(discarded, whole.counts)
        self.unkeyed_records += int((~keyed & ~keep).sum())
        self.removed_tombstones += int((latest & ~has_value & ~keep).sum())
        self._keep_end(whole, keep)
        return keep

    def _keep_end(self, whole: WholeBatches, keep: Bools) -> None:
        """Keep the last record of a range that ends with magic 0 or 1, so that its end is seen.

        Kafka fails there.
        """
        table = self._table
        assert table is not None
        number = int(whole.batches[-1])
        if table.magic[number] < 2 and int(table.last_offset[number]) == self.end_offset - 1:
            keep[-1] |= not keep[whole.ends[-2] :].any()


__all__ = ["Judge", "LastBatches"]
