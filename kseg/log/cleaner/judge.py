"""The decision for each batch and each record: `Judge`, and the facts that it decides by.

Transactions: data of aborted transactions goes. A marker goes once no batch of its transaction is
left, and its horizon has passed. One walk over the headers finds both. The transaction index has no
checksum, and an index that lost an entry would keep aborted data as committed. An index entry is
used where it agrees with the log: the index knows where a transaction began whose first batches an
earlier pass removed.

Keys: `LastOffsets` maps a 128-bit hash of each key of the dirty part to its last offset, as far as
the memory reaches. No producer can compute the hash; see the kernel. As in Kafka, a full map may
end in the middle of a batch, and so may the checkpoint.

    batch      goes unread: aborted data, and markers without data whose horizon has passed
               stays, if without records: the last batch of a producer, for its sequence, and the
               last batch before `end_offset`, so that this end stays visible
    record     stays: in a marker; beyond the end of the map; the last record of its key, unless it
               is a tombstone whose horizon has passed. A record without a key goes.

Source: Kafka `CleanedTransactionMetadata`, `Cleaner.shouldDiscardBatch`, `Cleaner.buildOffsetMap`,
`SkimpyOffsetMap`, `Cleaner.cleanInto` (its `RecordFilter`), `Cleaner.shouldRetainRecord`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from kseg._kernels.located import Located
from kseg._kernels.offset_map import KeepLatest, OffsetMap
from kseg.constants import Bools, Int64s, Uint8s
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files.log_file import Tile
from kseg.files.mapping import private_memory
from kseg.files.txn_index import AbortedTxn, TxnIndex
from kseg.format.columns import WholeBatches, decode_whole
from kseg.format.header import DELETE_HORIZON, BatchTable
from kseg.format.located import Known, Retention, Verdict
from kseg.format.reader import Workspace
from kseg.format.request import HAS_VALUE
from kseg.format.values import BinaryColumn
from kseg.log.cleaner.inputs import CleanerInputs, walk_sound
from kseg.log.producers.entry import ProducerEntry
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.visible import AbortedRanges, TransactionWalk
from kseg.log.segment.index_entries import check_end


@frozen_dataclass(eq=False)
class Decisions:
    """The outcome of the transactions of a log.

    Attributes:
        aborted: which data batches are of aborted ones.
        bare_markers: int64[n], rising: offsets of the markers of transactions that have no batch
            of data.
        entries: aborted ones of which a batch is there, by their markers' offsets, rising.
        records: the most records with a key in the dirty part of the log; None if headers do not
            tell.
    """

    aborted: AbortedRanges
    bare_markers: Int64s
    entries: tuple[AbortedTxn, ...]
    records: int | None

    def discardable(self, table: BatchTable) -> Bools:
        """bool[n]: batches of aborted data, and markers that have nothing left to decide."""
        discardable = self.aborted.within(table)
        control = table.is_control
        if control.any():
            # A marker without a record decides nothing any more.
            discardable |= control & (table.record_count == 0)
            discardable |= control & np.isin(table.base_offset, self.bare_markers)
        return discardable


class _Walk(TransactionWalk):
    """A walk that also notes markers without data, and the index entries of the others.

    An aborted transaction that ended before the log's start is a committed one to Kafka, and
    is not over: the producer's next marker of a commit stands for its data, too. Here this data is
    aborted, but that marker stays as long as with Kafka.

    Attributes:
        bare_markers: offsets of markers that end no transaction with data.
        entries: entries of the transaction index, for the aborted transactions.
        records: the number of records in the batches counted by `count_records`; None if unknown.
    """

    def __init__(self, log_start_offset: int) -> None:
        super().__init__()
        self._log_start_offset = log_start_offset
        # Producers whose next commit marker stays, since it also ends aborted data.
        self._held: set[int] = set()
        self.bare_markers: list[int] = []
        self.entries: list[AbortedTxn] = []
        self.records: int | None = 0

    def count_records(self, table: BatchTable) -> None:
        """Add the record counts of headers; unknown with compressed messages of magic 0 and 1."""
        counts = table.record_count
        if self.records is not None and len(counts):
            self.records = None if int(counts.min()) < 0 else self.records + int(counts.sum())

    def decide(self, producer_id: int, offset: int, *, aborts: bool) -> int | None:
        """Also note an abort for the index, and a marker that ends nothing.

        See the class for an abort before the log's start.
        """
        first = super().decide(producer_id, offset, aborts=aborts)
        holds = not aborts and producer_id in self._held
        if first is None and not holds:
            self.bare_markers.append(offset)
        if holds:
            self._held.discard(producer_id)
        if first is not None and aborts:
            if offset < self._log_start_offset:
                self._held.add(producer_id)
            stable = min(self.open.values(), default=offset + 1)
            self.entries.append(AbortedTxn(producer_id, first, offset, stable))
        return first


def read_decisions(inputs: CleanerInputs, dirty: range) -> Decisions:
    """Follow the transactions of a log until all are decided that have data before an offset.

    Args:
        inputs: the log.
        dirty: the offsets of the dirty part; the transactions before its end are followed.

    Returns:
        The decisions about all transactions with data before the end of the dirty part.

    Raises:
        FormatError: a segment is damaged.
        OSError: a file cannot be read.
    """
    walk, end_offset = _Walk(inputs.view.log_start_offset), dirty.stop
    for info in inputs.view.segments:
        if info.base_offset >= end_offset and all(o >= end_offset for o in walk.open.values()):
            break
        with inputs.view.open_segment(info) as segment:
            for table in segment.headers():
                walk.feed(table)
                if (
                    info.base_offset < end_offset
                    and table.last_offset.max(initial=-1) >= dirty.start
                ):
                    walk.count_records(table)
            check_end(table, segment)  # the last table; there is at least one
    stored = {
        (entry.producer_id, entry.last_offset): entry
        for info in inputs.view.segments
        if walk.entries and info.base_offset < end_offset
        for entry in _stored_entries(info)
    }
    entries = tuple(
        _entry_to_keep(entry, stored.get((entry.producer_id, entry.last_offset)))
        for entry in walk.entries
    )
    return Decisions(
        AbortedRanges.of(walk.aborted),
        np.array(walk.bare_markers, np.int64),
        entries,
        records=walk.records,
    )


def _stored_entries(info: SegmentInfo) -> tuple[AbortedTxn, ...]:
    """The entries in a segment's index; empty if it cannot be read."""
    path = info.files.txn_index
    with suppress(CorruptIndexError, LimitExceededError):
        return () if path is None else TxnIndex.open(path).entries()
    return ()


def _entry_to_keep(derived: AbortedTxn, stored: AbortedTxn | None) -> AbortedTxn:
    """The stored entry, if it begins no later than the derived entry; else the derived one.

    An earlier pass may have removed the first batches, which only the stored entry still covers.
    """
    if stored is None or stored.version or stored.first_offset > derived.first_offset:
        return derived
    return stored


#: Bytes of a slot, and the part of them that is filled: `log.cleaner.io.buffer.load.factor`.
SLOT_BYTES: Final = 24
_LOAD: Final = 0.9
#: Two bits for an offset: so many offsets for each byte of the map, a 32nd part of the memory.
_OFFSETS_PER_BYTE: Final = 0.125
#: Larger maps are allocated in huge pages: each key is looked up at another place.
_HEAP_BYTES_MAX: Final = 4 << 20


class LastOffsets:
    """The map of the last offset of each key, and how much of the log it covers.

    Attributes:
        start_offset: where the dirty part begins.
        latest_offset: the keys of all records up to this offset are in it; -1 at first.
        full: whether there was no room for the next key.
    """

    def __init__(self, map_bytes: int, dirty: range, records: int | None = None) -> None:
        """Begin empty.

        Args:
            map_bytes: memory; less is used if so much cannot be needed.
            dirty: the offsets whose keys will be put in.
            records: the most records with a key; None if unknown.

        Raises:
            ValueError: there is no room for one key.
        """
        limit = int(map_bytes // SLOT_BYTES * _LOAD)
        if limit < 1:
            raise ValueError(f"a map of {map_bytes} bytes has no room for a key")
        span = min(len(dirty), int(map_bytes * _OFFSETS_PER_BYTE))
        slots = max(limit + 1, (map_bytes - span // 4) // SLOT_BYTES)
        most = len(dirty) if records is None else min(len(dirty), records)
        slots = min(slots, 2 * most + 2)
        size = slots * SLOT_BYTES
        memory = private_memory(size, [(0, size)]) if size > _HEAP_BYTES_MAX else None
        self._map: Final = OffsetMap(
            slots, min(limit, slots - 1), secrets.token_bytes(16), dirty.start, span, memory
        )
        self.start_offset: Final = dirty.start
        self.latest_offset = -1
        self.full = False

    @property
    def count(self) -> int:
        """How many keys it has."""
        return int(self._map.count)

    def put(self, whole: WholeBatches, table: BatchTable) -> int:
        """Put the keys of rows from `start_offset` on; return how many rows there was room for.

        Args:
            whole: offsets, keys, and whether there is a value.
            table: the headers of the batches.
        """
        key, offsets = whole.columns["key"], whole.columns["offset"]
        done = int(
            self._map.put(
                key.data,
                key.offsets,
                key.is_valid().view(np.uint8),
                offsets,
                self.start_offset,
                **_map_arguments(whole, table),
            )
        )
        self.full = done < len(offsets)
        return done

    def put_batches(
        self, data: memoryview, base: int, table: BatchTable, located: Located
    ) -> tuple[int, int]:
        """Note keys of batches where they lie, until one comes that has to be read as columns.

        Args:
            data: bytes of the file from `base` on.
            base: position of `data[0]`.
            table: headers of batches of data.
            located: memory to use again.

        Returns:
            The first batch that was not taken whole; if there was no room for one of its keys, the
            offset of the last key of it that was taken, else -1.
        """
        at, self.full, last = self._map.put_batches(
            located, data, table.rows, base, self.start_offset
        )
        return at, last

    def reach(self, table: BatchTable, count: int) -> None:
        """Move `latest_offset` to the end of the first `count` batches of a table."""
        if count and int(table.last_offset[count - 1]) >= self.start_offset:
            self.latest_offset = int(table.last_offset[count - 1])

    def keep(self, tombstones: Bools, discarded: Bools) -> KeepLatest:
        """Make a function that keeps the last record of each key in the data batches of a table.

        Args:
            tombstones: bool[n], whether each batch keeps tombstones, too.
            discarded: bool[n], whether each batch keeps nothing.
        """
        return KeepLatest(
            self._map, self.latest_offset, tombstones.view(np.uint8), discarded.view(np.uint8)
        )

    def latest(self, key: BinaryColumn, offsets: Int64s) -> Bools:
        """Which rows have a key that the map does not have at a later offset, bool[n]."""
        out = np.empty(len(key), np.uint8)
        valid = key.is_valid().view(np.uint8)
        self._map.latest(key.data, key.offsets, valid, offsets, self.latest_offset, out)
        return out.view(np.bool_)

    def known(self, table: BatchTable) -> Uint8s:
        """The state of data batches whose keys were all put in, as `Known`, uint8[n]."""
        out = np.empty(len(table), np.uint8)
        self._map.told(
            np.ascontiguousarray(table.base_offset),
            np.ascontiguousarray(table.last_offset),
            np.ascontiguousarray(table.record_count),
            self.latest_offset,
            out,
        )
        return out


def read_keys(
    inputs: CleanerInputs, dirty: range, decisions: Decisions, map_bytes: int
) -> LastOffsets:
    """The last offsets of the keys of the dirty part of a log.

    Args:
        inputs: the log.
        dirty: the offsets of the dirty part, up to the base of the segment after it.
        decisions: about its transactions; records of aborted ones do not count.
        map_bytes: memory.

    Raises:
        ValueError: there is no memory for one key.
        FormatError, LimitExceededError: a batch is damaged.
        OSError: a file cannot be read.
    """
    last_offsets = LastOffsets(map_bytes, dirty, decisions.records)
    workspace = Workspace()
    segments = inputs.between(dirty.start, dirty.stop)
    bases = [*(info.base_offset for info in segments), dirty.stop]
    for info, (_, following) in zip(segments, pairwise(bases), strict=True):
        with inputs.view.open_segment(info) as segment:
            start = segment.start_for_offset(dirty.start).position
            for tile in walk_sound(segment, start=start, on_bad_crc=inputs.on_bad_crc):
                _put_tile(last_offsets, tile, decisions, workspace)
                if last_offsets.full:
                    return last_offsets
        # Where offsets are missing at the end of a segment, nothing more is to come.
        last_offsets.latest_offset = following - 1
    return last_offsets


def _put_tile(
    last_offsets: LastOffsets, tile: Tile, decisions: Decisions, workspace: Workspace
) -> None:
    """Put the keys of a tile; `latest_offset` becomes that of its last batch.

    If the map is full before, it becomes that of the last key that was put in.
    """
    table = tile.table
    if not len(table):
        return
    dirty = table.last_offset >= last_offsets.start_offset
    rows = np.flatnonzero(dirty & ~table.is_control & ~decisions.aborted.within(table))
    dirty_ones = table if len(rows) == len(table) else table.take(rows)
    at, last = last_offsets.put_batches(tile.data, tile.base, dirty_ones, workspace.located)
    if not last_offsets.full and at < len(rows):
        at, last = _put_columns(last_offsets, tile, dirty_ones, at, workspace)
    if not last_offsets.full:
        last_offsets.reach(table, len(table))
        return
    # All before the batch that did not fit, and its keys up to `last`.
    last_offsets.reach(table, int(rows[at]))
    if last >= 0:
        last_offsets.latest_offset = last


def _put_columns(
    last_offsets: LastOffsets,
    tile: Tile,
    dirty_ones: BatchTable,
    at: int,
    workspace: Workspace,
) -> tuple[int, int]:
    """Put the keys of the batches from number `at` on into `last_offsets`.

    Returns as `LastOffsets.put_batches`.
    """
    table = dirty_ones.take(slice(at, None))
    pieces = decode_whole(
        tile.data,
        table,
        base=tile.base,
        fields=("offset", "key", HAS_VALUE),
        verify_crc=False,
        workspace=workspace,
    )
    for piece in pieces:
        done = last_offsets.put(piece, table)
        if last_offsets.full:
            number = int(np.searchsorted(piece.ends, done, "right")) - 1
            batch_rows = slice(int(piece.ends[number]), done)
            offsets = piece.columns["offset"][batch_rows]
            keyed = piece.columns["key"].is_valid()[batch_rows] & (
                offsets >= last_offsets.start_offset
            )
            last = int(offsets[keyed][-1]) if keyed.any() else -1
            return at + int(piece.batches[number]), last
    return len(dirty_ones), -1


def _map_arguments(whole: WholeBatches, table: BatchTable) -> dict[str, Any]:
    """Arguments by which the map can answer `known`; empty for batches of magic 0 or 1.

    The headers of these do not count their records.
    """
    if table.magics_seen & 3:
        return {}
    return {
        "has_value": whole.columns[HAS_VALUE].view(np.uint8),
        "first_row": whole.ends,
        "base_offsets": table.base_offset[whole.batches],
        "last_offsets": table.last_offset[whole.batches],
    }


@frozen_dataclass(eq=False)
class LastBatches:
    """The last batch of each producer, which keeps its sequence.

    Attributes:
        producer_ids: int64[n], rising.
        last_offsets: int64[n]: the last offset with data; -1 if unknown.
        epochs: int64[n]: of the producer.
    """

    producer_ids: Int64s
    last_offsets: Int64s
    epochs: Int64s

    @classmethod
    def of(cls, entries: Iterable[ProducerEntry]) -> LastBatches:
        """Take the last batches from the entries of producers."""
        rows = [(entry.producer_id, entry.last_offset, entry.producer_epoch) for entry in entries]
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
        is_listed = (ids >= 0) & (self.producer_ids[at] == ids)
        marked = (last < 0) & table.is_control & (table.producer_epoch == epoch)
        among: Bools = is_listed & ((last >= 0) & (table.last_offset == last) | marked)
        return among


@dataclass(slots=True, eq=False)
class Judge:
    """The decisions of one pass; counts records without a key.

    Attributes:
        last_offsets: the map.
        decisions: about transactions.
        last_batches: the last batches of producers.
        end_offset: the end of the range; since Kafka 4.4 the high watermark.
        now_ms: the time that counts.
        old_tombstones: whether tombstones of magic 0 and 1 stay, which have no horizon.
        unkeyed_records: how many of them were removed.
        removed_tombstones: how many were removed whose key the map has at no later offset.
    """

    last_offsets: LastOffsets
    decisions: Decisions
    last_batches: LastBatches
    end_offset: int
    now_ms: int
    old_tombstones: bool = False
    unkeyed_records: int = 0
    removed_tombstones: int = 0
    # The table that was judged last; which of its batches keep nothing; which keep tombstones.
    _judged: tuple[BatchTable, Bools, Bools] | None = field(default=None, init=False)

    def judge(self, table: BatchTable) -> Verdict:
        """Decide about batches; until the next call, `keep` receives records of these batches."""
        discardable = self.decisions.discardable(table)
        control, old = table.is_control, table.magic < 2
        has_horizon = ~old & ((table.attributes & DELETE_HORIZON) != 0)
        due = has_horizon & (table.base_timestamp <= self.now_ms)
        discarded = discardable & (~control | due)
        is_last = self.last_batches.among(table)
        # The header of the last batch shows where the range ends. One of magic 0 or 1 cannot stay
        # without records; see `keep`.
        is_last |= ~old & (table.last_offset == self.end_offset - 1)
        retention = np.where(discarded, Retention.DELETE, Retention.DELETE_EMPTY)
        retention[is_last] = Retention.RETAIN_EMPTY
        self._judged = table, discarded, np.where(old, self.old_tombstones, ~due)
        fates = self.last_offsets.known(table)
        fates[control | discarded | old] = Known.NOTHING
        return Verdict(retention.astype(np.uint8), discardable & control, fates)

    @property
    def located(self) -> KeepLatest:
        """As `keep`, for batches of data of magic 2; `count` receives its counts."""
        assert self._judged is not None
        _, discarded, needed = self._judged
        return self.last_offsets.keep(needed, discarded)

    def count(self, located: KeepLatest) -> None:
        """Add the numbers of records that `located` has removed."""
        self.unkeyed_records += located.unkeyed
        self.removed_tombstones += located.removed_tombstones

    def keep(self, whole: WholeBatches) -> Bools:
        """bool[n]: which records stay."""
        assert self._judged is not None
        (table, all_discarded, all_needed), batches = self._judged, whole.batches
        columns = whole.columns
        offsets, key = columns["offset"], columns["key"]
        beyond = offsets > self.last_offsets.latest_offset  # after all that was put into the map
        keyed, has_value = key.is_valid(), columns["value"].is_valid()
        latest = self.last_offsets.latest(key, offsets)
        needed = has_value | np.repeat(all_needed[batches], whole.counts)
        keep: Bools = beyond | (latest & needed)
        control = table.is_control[batches]
        if control.any():
            keep |= np.repeat(control, whole.counts)
            keyed |= np.repeat(control, whole.counts)
        discarded = all_discarded[batches]
        if discarded.any():
            keep &= ~np.repeat(discarded, whole.counts)
        self.unkeyed_records += int((~keyed & ~keep).sum())
        self.removed_tombstones += int((latest & ~has_value & ~keep).sum())
        # The last record of a range that ends with magic 0 or 1 stays, to show where it ends.
        # Kafka fails there.
        number = int(whole.batches[-1])
        if table.magic[number] < 2 and int(table.last_offset[number]) == self.end_offset - 1:
            keep[-1] |= not keep[whole.ends[-2] :].any()
        return keep
