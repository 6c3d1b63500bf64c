"""The batches that a reader of a log sees: overlapping segments, and aborted transactions.

A sound log has no segments that hold the same offsets. Copies made by hand and brokers that were
cut off may leave a segment that goes on past the base offset of the next one. A reader gets each
offset once, rising. The segment that is walked first gives all its offsets, and each later segment
gives the offsets past that end. As in Kafka, a read begins with the last segment whose base offset
is at or before its start. So a read that starts at or past the base of a later segment gets that
segment's copy. Headers show how far a segment goes, at no cost for a reader. Only where they point
past the next base, checksums are compared: a damaged header must not hide the rest of the log.

A data batch names the producer whose transaction it belongs to. A later control batch of the same
producer, the marker, decides the transaction. So a reader of committed records must know the
markers ahead. A walk over the headers goes ahead of the reader, until each transaction that is
open where it reads is decided. `.txnindex` is not used. It has no checksum, and an index that lost
an entry looks like an index that never had it: a reader could show aborted records. The walk is
cheap beside the reading of the same bytes.

Source: Kafka ProducerStateManager, UnifiedLog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np

from kseg.constants import INT64_MAX, Bools, ControlType, Int64s
from kseg.documents import frozen_dataclass
from kseg.format.header import COLUMN, CONTROL, TRANSACTIONAL, BatchTable

if TYPE_CHECKING:
    from kseg.log.reader.version import LogSegments, SegmentInfo
    from kseg.log.segment.pieces import Keep
    from kseg.log.segment.reader import Segment


class Reached:
    """How far a walk over segments has come; the walk notes batches, and the end of each segment.

    Attributes:
        offset: the segments to come return nothing before it.
    """

    __slots__ = ("_seen", "offset")

    def __init__(self, start_offset: int) -> None:
        """Begin a walk from an offset on."""
        self.offset = self._seen = start_offset

    def note(self, last_offset: int) -> None:
        """Note the last offset of a batch of the present segment, before any batch is left out."""
        self._seen = max(self._seen, last_offset + 1)

    def leave(
        self, info: SegmentInfo, segment: Segment | None, next_base_offset: int | None
    ) -> None:
        """Go on to the segment with that base offset; None if there is none."""
        if info.end_offset is not None:
            self._seen = max(self.offset, info.end_offset)
        elif segment is not None and next_base_offset is not None and self._seen > next_base_offset:
            # The stored offset of a batch in the middle may be wrong: no checksum covers it.
            self._seen = max(self.offset, believed_end(segment, next_base_offset) or 0)
        self.offset = self._seen


def first_offsets(log: LogSegments, start_offset: int) -> Iterator[tuple[SegmentInfo, int]]:
    """The segments that a read from an offset walks, each with the first offset that it returns.

    For readers that do not read the segments in order; reads each segment's end.
    """
    first = start_offset
    infos = log.segments_from(start_offset)
    for info, following in zip_longest(infos, infos[1:]):
        yield info, first
        if info.end_offset is not None:
            first = max(first, info.end_offset)
        elif following is not None:
            with log.open_segment(info) as segment:
                end = believed_end(segment, following.base_offset)
            first = first if end is None else max(first, end)


def end_of(segment: Segment) -> int | None:
    """The offset after a segment's last whole batch, found with the index; None if it has none."""
    start = segment.start_for_offset(INT64_MAX).position
    last = None
    for table in segment.headers(start=start):
        if len(table):
            last = table[len(table) - 1]
    if last is None:
        return None
    return segment.base_offset + last.position + last.size if segment.kafka07 else last.next_offset


def believed_end(segment: Segment, next_base_offset: int) -> int | None:
    """As `end_of`, but past the base offset of the next segment only if checksums match."""
    end = end_of(segment)
    if end is None or end <= next_base_offset:
        return end
    return _sound_end(segment, next_base_offset)


def _sound_end(segment: Segment, offset: int) -> int:
    """The offset after the last batch with a right checksum, but not less than `offset`."""
    start = segment.start_for_offset(offset).position
    end = offset
    for tile in segment.walk(start=start, on_bad_crc="note"):
        table = tile.table
        sound = table.last_offset[table.crc_ok != 0]
        if len(sound):
            end = max(end, int(sound.max()) + 1)
    return end


#: Columns by which transactions are followed.
_FOLLOWED: Final = [COLUMN[name] for name in ("producer_id", "base_offset", "control_type")]


@frozen_dataclass(eq=False)
class AbortedRanges:
    """Offsets of aborted records, for each producer.

    Attributes:
        ranges: producer id -> first and last offsets, int64[k, 2], ascending, without overlap.
    """

    ranges: dict[int, Int64s]

    @classmethod
    def of(cls, transactions: Iterable[tuple[int, int, int]]) -> AbortedRanges:
        """Make the ranges from (producer id, first offset, last offset) in any order."""
        by_producer: dict[int, set[tuple[int, int]]] = {}
        for producer_id, first, last in transactions:
            by_producer.setdefault(producer_id, set()).add((first, last))
        return cls({key: np.array(sorted(pairs), np.int64) for key, pairs in by_producer.items()})

    def __len__(self) -> int:
        """How many aborted transactions."""
        return sum(len(pairs) for pairs in self.ranges.values())

    def drop(self, table: BatchTable) -> BatchTable:
        """The table without the data batches of aborted transactions."""
        inside = self.within(table)
        return table.take(~inside) if inside.any() else table

    def within(self, table: BatchTable) -> Bools:
        """bool[n]: which batches are data of aborted transactions."""
        aborted = np.zeros(len(table), np.bool_)
        if not self.ranges or not table.attributes_seen & TRANSACTIONAL:
            return aborted
        suspects = table.is_transactional & ~table.is_control
        producers = np.unique(table.producer_id[suspects]).tolist()
        for producer_id in producers:
            pairs = self.ranges.get(producer_id)
            if pairs is None:
                continue
            rows = np.flatnonzero(suspects & (table.producer_id == producer_id))
            offsets = table.base_offset[rows]
            at = np.searchsorted(pairs[:, 0], offsets, side="right") - 1
            inside = (at >= 0) & (offsets <= pairs[np.maximum(at, 0), 1])
            aborted[rows[inside]] = True
        return aborted


class Decided(NamedTuple):
    """The transactions of a segment, known without walking its headers.

    Attributes:
        open: first offset of each producer's transaction that is undecided after the segment.
        aborted: (producer id, first offset, offset of the marker) of the transactions it aborts.
    """

    open: dict[int, int]
    aborted: list[tuple[int, int, int]]


@runtime_checkable
class Decides(Protocol):
    """The path of a segment that describes its own transactions."""

    def decided(self) -> Decided | None:
        """None to walk its headers."""


class TransactionWalk:
    """Follows transactions through the headers of a log, in order.

    Attributes:
        open: first offset of each producer's undecided transaction.
        aborted: (producer id, first offset, offset of the marker) of aborted transactions.
    """

    __slots__ = ("aborted", "open")

    def __init__(self, undecided: dict[int, int] | None = None) -> None:
        """Begin with transactions known to be open."""
        self.open: dict[int, int] = dict(undecided or {})
        self.aborted: list[tuple[int, int, int]] = []

    def feed(self, table: BatchTable, *, offset_end: int | None = None) -> None:
        """Take the next headers; data at or past `offset_end` opens nothing, markers count."""
        if not table.attributes_seen & (TRANSACTIONAL | CONTROL):
            return
        control = table.is_control
        relevant = (table.producer_id >= 0) & (control | table.is_transactional)
        chosen = table.rows[relevant][:, _FOLLOWED].tolist()
        for (producer_id, offset, kind), marks in zip(chosen, control[relevant], strict=True):
            if not marks:
                if offset_end is None or offset < offset_end:
                    self.open.setdefault(producer_id, offset)
                continue
            if kind not in (ControlType.ABORT, ControlType.COMMIT):
                continue  # emptied by compaction, or a marker of another sort
            self.decide(producer_id, offset, aborts=kind == ControlType.ABORT)

    def jump(self, decided: Decided, *, offset_end: int | None = None) -> None:
        """Take a whole segment; as for `feed`."""
        end = INT64_MAX if offset_end is None else offset_end
        self.open = {key: first for key, first in decided.open.items() if first < end}
        self.aborted += decided.aborted

    def decide(self, producer_id: int, offset: int, *, aborts: bool) -> int | None:
        """Process a marker; return the first offset of the transaction that it decides, or None."""
        first = self.open.pop(producer_id, None)
        if first is not None and aborts:
            self.aborted.append((producer_id, first, offset))
        return first


def last_stable_offset(log: LogSegments) -> int:
    """The first offset of the earliest undecided transaction, else the log's end.

    Begins at the newest sound producer snapshot; never before the log's start. Source: Kafka
    UnifiedLog.lastStableOffset, with the end of the log for the high watermark.
    """
    start, undecided = _newest_snapshot(log)
    walk = TransactionWalk(undecided)
    for _end, part in _parts_from(log, start):
        if isinstance(part, Decided):
            walk.jump(part)
        else:
            walk.feed(part)
    return max(log.log_start_offset, min([*walk.open.values(), log.log_end_offset]))


def _newest_snapshot(log: LogSegments) -> tuple[int, dict[int, int]]:
    """Offset and open transactions of the newest sound snapshot; else the log's start, and none."""
    from kseg.log.producers.snapshots import SnapshotFiles  # only readers of committed records ask

    snapshot = SnapshotFiles.of(log.files).newest_sound(at_most=log.log_end_offset)
    if snapshot is None or snapshot[0] < log.first_offset:
        return log.first_offset, {}
    offset, entries = snapshot
    undecided = {
        entry.producer_id: entry.current_txn_first_offset
        for entry in entries
        if entry.current_txn_first_offset >= 0
    }
    return offset, undecided


class AbortedAhead:
    """The aborted transactions of a log, for one reader that reads it from front to back.

    One walk over the headers serves the whole read. It is only so far ahead that all transactions
    open at the reader's position are decided.
    """

    __slots__ = ("_end", "_parts", "_reached", "_walk")

    def __init__(self, log: LogSegments, start_offset: int, end_offset: int) -> None:
        """Prepare for a reader of `[start_offset, end_offset)`; nothing is walked yet."""
        self._parts = _parts_from(log, start_offset)
        self._walk = TransactionWalk()
        self._reached = start_offset
        self._end = end_offset

    def beside(self, start_offset: int, next_base_offset: int | None) -> Keep:
        """A filter that leaves out aborted records of this segment only.

        Args:
            start_offset: where its reading begins.
            next_base_offset: the base offset of the next segment; None for the last segment.
        """
        end = INT64_MAX if next_base_offset is None else next_base_offset
        ranges = self.within(start_offset, end)

        def keep(table: BatchTable) -> BatchTable:
            """Leave out batches of aborted transactions; walks on if some are not decided yet."""
            nonlocal ranges, end
            last = int(table.last_offset.max(initial=0))
            if last >= end:  # the segment's offsets go beyond the next segment's base
                end = last + 1
                ranges = self.within(start_offset, end)
            return ranges.drop(table)

        return keep

    def within(self, start_offset: int, end_offset: int) -> AbortedRanges:
        """The aborted ranges within these offsets; offsets of later calls must not be lower."""
        end = min(end_offset, self._end)
        while self._reached < end or any(first < end for first in self._walk.open.values()):
            reached, part = next(self._parts, (None, None))
            if part is None:
                # If damage has destroyed the marker, nothing is committed.
                for producer_id, first in self._walk.open.items():
                    self._walk.aborted.append((producer_id, first, INT64_MAX))
                self._walk.open.clear()
                break
            if isinstance(part, Decided):
                self._walk.jump(part, offset_end=self._end)
            else:
                self._walk.feed(part, offset_end=self._end)
            self._reached = self._reached if reached is None else reached
        # An aborted transaction whose marker is before the start counts no more.
        self._walk.aborted = [txn for txn in self._walk.aborted if txn[2] >= start_offset]
        return AbortedRanges.of(self._walk.aborted)


def aborted_ranges(log: LogSegments, start_offset: int, end_offset: int) -> AbortedRanges:
    """The aborted transactions within `[start_offset, end_offset)`."""
    return AbortedAhead(log, start_offset, end_offset).within(start_offset, end_offset)


def _parts_from(log: LogSegments, offset: int) -> Iterator[tuple[int | None, BatchTable | Decided]]:
    """Headers from the batch that holds `offset` to the log's end; checksums are not compared.

    Yields:
        The end of the part, None if it has no batches; and headers, or for a segment in a tier its
        own description.
    """
    reached = Reached(offset)
    infos = log.segments_from(offset)
    for info, following in zip_longest(infos, infos[1:]):
        next_base = None if following is None else following.base_offset
        decided = _transactions_of_tier(info)
        if decided is not None:
            yield info.end_offset, decided
            reached.leave(info, None, next_base)
            continue
        with log.open_segment(info) as segment:
            start = segment.start_for_offset(offset).position
            for table in segment.headers(start=start):
                reached.note(int(table.last_offset.max(initial=-1)))
                if info.end_offset is not None:
                    table = table.take(table.base_offset < info.end_offset)
                if len(table) and int(table.last_offset[0]) < reached.offset:
                    table = table.take(table.last_offset >= reached.offset)
                yield table.end_offset if len(table) else None, table
            reached.leave(info, segment, next_base)


def _transactions_of_tier(info: SegmentInfo) -> Decided | None:
    """The transactions of a whole segment in a tier; None for other segments."""
    if info.end_offset is None or not info.is_whole:
        return None
    path = info.path
    return path.decided() if isinstance(path, Decides) else None


class WholeBatches:
    """Counts records by headers: those of magic 2 batches that a request selects as a whole.

    Attributes:
        records: the records in the batches that it left out of a reading.
    """

    __slots__ = ("records",)

    def __init__(self) -> None:
        """Start without batches."""
        self.records = 0

    def keep(self, also: Keep | None, start: int, end: int) -> Keep:
        """Make a function that leaves out, and counts, the batches that are in `[start, end)`.

        Args:
            also: is called first and may leave batches out; None for no other choice.
            start, end: the offsets to count.
        """

        def keep(table: BatchTable) -> BatchTable:
            """Count the batches that are whole between the offsets, and leave them out."""
            candidates = table if also is None else also(table)
            whole = (
                (candidates.magic == 2) & ~candidates.is_control & (candidates.record_count >= 0)
            )
            whole &= (candidates.base_offset >= start) & (candidates.last_offset < end)
            self.records += int(candidates.record_count[whole].sum())
            return candidates.take(~whole) if whole.any() else candidates

        return keep
