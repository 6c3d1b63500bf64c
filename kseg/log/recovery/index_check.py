"""Whether an index fits its log: the check for verify and for a reindexing.

Entries differ from release to release: first offset of the append, last offset of the batch, the
exact record of the largest timestamp, one entry for several batches. They also differ with the
settings and with each restart of the broker. All of them lead to the right place. So the check asks
only for what a lookup relies on:

    offset index (o, p)    a batch starts at p; every batch before p has offsets below o only
    time index (t, o)      the batch that holds o has t for its largest time, no batch before it a
                           later one; the last entry of a closed segment is for the largest time
    transaction index      each aborted transaction whose marker is in the segment, and no other

There must be at least half as many entries as the log makes. A writer that takes room for more
entries and is killed leaves zeros behind those of the last segment, and a time index without the
entry for the end. Neither is a fault.

An entry of a transaction index knows more than a log that has lost its beginning. An entry counts
as right if its marker is in the log and its transaction began in front of the log, or has no
records any more.

`kseg.log.recovery.sanity` checks the ends of the files alone, for a load.

Source: Kafka `OffsetIndex`, `TimeIndex`, `LogSegment.append`, `TransactionIndex`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import compress
from typing import ClassVar, Final

import numpy as np

from kseg.constants import INT32_MAX, INT64_MIN, Bools, ControlType, Int64s, StopReason
from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files import io
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.mapping import Mapping
from kseg.files.names import FileKind
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.txn_index import AbortedTxn, TxnIndex
from kseg.format.header import COLUMN, CONTROL, FIELDS, TRANSACTIONAL, BatchTable
from kseg.log.config import LogConfig
from kseg.log.data_directory import CLUSTER_METADATA
from kseg.log.producers.entry import ProducerBatch, telling_batches
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.findings import PER_CODE_MAX, Finding, Severity, Sink
from kseg.log.recovery.sweep import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    DerivedEntries,
    pass_over,
)

#: Counts the entries that a log makes for both indexes, with the one at the end.
Due = Callable[[], tuple[int, int]]

_DEFAULTS: Final = LogConfig()
_END_MARKERS: Final = (ControlType.ABORT, ControlType.COMMIT)
_NONE: Final = np.empty(0, np.int64)
#: Ends of a walk that a crash leaves at the end of a partition.
TAILS: Final = (StopReason.TORN_TAIL, StopReason.ZERO_TAIL)
#: The least size of a batch.
_BATCH_BYTES_MIN: Final = 26


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """Which index file, of which segment.

    Attributes:
        path: the file; the log's, where the segment lacks the index.
        base_offset: of the segment.
        is_last: no segment of the partition follows.
        size: bytes of the file; -1 without one.
        log_bytes: of the segment's log; None where that is not at hand.
        mapping: see `kseg.files.mapping`.
        live: another process may be writing both.
        believed: a broker uses the index unchanged when it starts.
        interval: `index.interval.bytes` of the log; Kafka's default where it is not known.
    """

    path: str
    base_offset: int
    is_last: bool
    size: int = -1
    log_bytes: int | None = None
    mapping: Mapping = "auto"
    live: bool = False
    believed: bool = False
    interval: int = _DEFAULTS.index_interval_bytes


def bytes_max(log_bytes: int, entry_bytes: int) -> int:
    """The most entries that an index needs: one a batch, and one that closes a time index."""
    return (log_bytes // _BATCH_BYTES_MIN + 1) * entry_bytes


class _Check:
    """The check of one file, with its first fault."""

    def __init__(self, place: IndexPlace, found: Sink | None) -> None:
        self.fault: Finding | None = None
        self._place, self._found = place, found

    def note(
        self,
        code: str,
        message: str,
        *,
        position: int | None = None,
        offset: int | None = None,
        severity: Severity | None = None,
        why: str = "",
    ) -> None:
        """Report a fault."""
        path = self._place.path
        finding = Finding(code, path, message, position, offset, severity, why)
        self.fault = self.fault or finding
        if self._found is not None:
            self._found.note(finding)


#: Of the offset and the time index: the word in codes, the class, bytes of an entry, the name of
#: the number beside an offset, the index's name, the first words of a finding, and its words for
#: entries beyond the end.
_ENTRIES: Final[
    dict[FileKind, tuple[str, type[OffsetIndex | TimeIndex], int, str, str, str, tuple[str, str]]]
] = {
    FileKind.INDEX: (
        "index",
        OffsetIndex,
        OFFSET_ENTRY.size,
        "position",
        "offset index",
        "offset {} to position {},",
        ("beyond the end of the log", "points past the last batch"),
    ),
    FileKind.TIMEINDEX: (
        "time-index",
        TimeIndex,
        TIME_ENTRY.size,
        "timestamp",
        "time index",
        "time {1} to offset {0}, which",
        ("lies beyond the end of the log", "lies past the last batch"),
    ),
}


class _EntriesCheck(_Check):
    """The entries of an offset index or a time index that no batch has been compared with yet."""

    kind: ClassVar[FileKind]

    def __init__(self, place: IndexPlace, found: Sink | None) -> None:
        """Read the entries and check their order; unordered ones are not compared with the log."""
        super().__init__(place, found)
        self.word, self.index, self.entry_bytes, self.other, name, self.sentence, self.beyond = (
            _ENTRIES[self.kind]
        )
        self._offsets, self._others, self.count = _NONE, _NONE, 0
        self._next, self._last_offset = 0, INT64_MIN
        if place.size < 0:
            if place.log_bytes:
                self.note(
                    f"{self.word}-missing",
                    f"there is no {name} beside the log",
                    severity="warning" if place.is_last else None,
                    why="missing",
                )
            return
        try:
            offsets, others = self._read()
        except CorruptIndexError as error:
            self._note_order(error.reason, error.position)
            return
        self.count = len(offsets)
        if self._check_order(offsets, others):
            self._offsets, self._others = offsets, others

    def _read(self) -> tuple[Int64s, Int64s]:
        size, entry, place = self._place.size, self.entry_bytes, self._place
        if size % entry:
            self.note(
                f"{self.word}-length",
                f"{size} bytes are not a multiple of {entry}, the size of an entry",
                position=size // entry * entry,
                why=f"ends within an entry: {size} bytes are not a multiple of {entry}",
            )
        with self.index.open(place.path, place.base_offset, mapping=place.mapping) as index:
            used, slots = index.entry_count, index.slots
            # Two entries may lead to one batch. More than that would only take memory.
            if place.log_bytes is not None and used * entry > 2 * bytes_max(place.log_bytes, entry):
                self._note_order(f"{used} entries are more than the log can need", 0)
                return _NONE, _NONE
            stray, columns = index.stray_slot(), index.entries()
        # Zeros may follow the used entries only where a start rebuilds the index.
        if stray is not None:
            self.note(
                f"{self.word}-tail",
                f"entry {stray} is in use behind entry {used}, which is empty",
                position=stray * entry,
                why="has entries that are not in order",
            )
        elif slots > used and place.believed and not _is_of_kraft(place.path):
            self._note_unused(used, slots)
        return columns.offsets, getattr(columns, f"{self.other}s")

    def _note_order(self, message: str, position: int | None, offset: int | None = None) -> None:
        self.note(
            f"{self.word}-order",
            message,
            position=position,
            offset=offset,
            why="has entries that are not in order",
        )

    def _note_unused(self, used: int, slots: int) -> None:
        self.note(
            "index-unused",
            f"{used} entries are in use, {slots - used} are empty",
            position=used * self.entry_bytes,
            why="has room for entries that were never written",
        )

    def _falls(self, offsets: Int64s, others: Int64s) -> Bools:
        """bool[n]: entries that may not follow those before, or lie below the base."""
        raise NotImplementedError

    def _check_order(self, offsets: Int64s, others: Int64s) -> bool:
        falls = self._falls(offsets, others)
        if not falls.any():
            return True
        number = int(falls.argmax())
        before = f", behind offset {offsets[number - 1]}, {self.other} {others[number - 1]}"
        self._note_order(
            f"entry {number} has offset {offsets[number]}, {self.other} {others[number]}"
            f"{before if number else ''}; {int(falls.sum())} such entries",
            number * self.entry_bytes,
            int(offsets[number]),
        )
        return False

    def finish(self, stop: StopReason, due: Due) -> None:
        """Judge entries that point beyond the last batch, and missing ones; not behind damage.

        Logs are written before their indexes, so an entry for nothing says that the log was longer
        once; or that its writer has gone on since we looked.

        Args:
            stop: why the walk over the log ended.
            due: counts the entries that the log makes; called where there may be too few.
        """
        if stop is not StopReason.END and not (self._place.is_last and stop in TAILS):
            return
        text, why = self.beyond
        live = self._place.live and self._place.is_last
        left = np.arange(self._next, len(self._offsets))
        self._report("points-nowhere", left, text, mild=live, why=why)
        if self.fault is None and self._place.size >= 0:
            self._check_complete(due)

    def _check_complete(self, due: Due) -> None:
        raise NotImplementedError

    def _check_count(self, count: int, due: Due, column: int) -> None:
        place = self._place
        most = (place.log_bytes or 0) // (place.interval + 1) + 1
        wanted = most if count * 2 >= most else due()[column]
        if count * 2 < wanted:
            self.note(
                f"{self.word}-length",
                f"{self.count} entries are few for a log that makes {wanted}",
                severity="warning",
            )

    def _report(
        self, code: str, numbers: Int64s, text: str, *, mild: bool, why: str = "is wrong"
    ) -> None:
        """One finding for each entry."""
        code = f"{self.word}-{code}"
        if self._found is not None:
            self._found.count_more(code, self._place.path, len(numbers) - PER_CODE_MAX)
        for number in numbers[:PER_CODE_MAX].tolist():
            offset, other = int(self._offsets[number]), int(self._others[number])
            self.note(
                code,
                f"entry {number} sends {self.sentence.format(offset, other)} {text}",
                position=number * self.entry_bytes,
                offset=offset,
                severity="warning" if mild else None,
                why=f"entry {number} {why}",
            )


class OffsetIndexCheck(_EntriesCheck):
    """The entries of one `.index`."""

    kind = FileKind.INDEX

    def _falls(self, offsets: Int64s, others: Int64s) -> Bools:
        falls = (offsets < self._place.base_offset) | (others < 0)
        falls[1:] |= (np.diff(offsets) <= 0) | (np.diff(others) < 0)
        return falls

    def feed(self, table: BatchTable) -> None:
        """Compare the entries that point below the end of the batches with these."""
        end = int(np.searchsorted(self._others, table.end_position))
        running = np.maximum.accumulate(_ends(table))
        if end > self._next:
            self._compare(table, running, slice(self._next, end))
            self._next = end
        if len(running):
            self._last_offset = max(self._last_offset, int(running[-1]))

    def _compare(self, table: BatchTable, running: Int64s, chosen: slice) -> None:
        positions, offsets = self._others[chosen], self._offsets[chosen]
        numbers = np.arange(chosen.start, chosen.stop)
        at = np.searchsorted(table.position, positions)
        hit = at < len(table)
        hit[hit] = table.position[at[hit]] == positions[hit]
        live = self._place.live and self._place.is_last
        self._report("points-nowhere", numbers[~hit], "where no batch starts", mild=live)
        at, offsets, numbers = at[hit], offsets[hit], numbers[hit]
        before = np.concatenate(([self._last_offset], np.maximum(running, self._last_offset)))[at]
        past = (offsets <= before) | (offsets < table.base_offset[at])
        self._report("offset", numbers[past], "behind batches that hold it", mild=live)

    def _check_complete(self, due: Due) -> None:
        self._check_count(self.count, due, 0)


class TimeIndexCheck(_EntriesCheck):
    """The entries of one `.timeindex`."""

    kind = FileKind.TIMEINDEX
    _latest = INT64_MIN

    def _falls(self, offsets: Int64s, others: Int64s) -> Bools:
        falls = offsets < self._place.base_offset
        # Compared, not subtracted: the difference of two timestamps may not fit.
        falls[1:] |= (others[1:] <= others[:-1]) | (np.diff(offsets) < 0)
        return falls

    def feed(self, table: BatchTable) -> None:
        """Compare the entries whose offsets the batches reach."""
        if not len(table):
            return
        running = np.maximum(np.maximum.accumulate(_ends(table)), self._last_offset)
        sound = np.where(table.crc_ok != 0, table.max_timestamp, self._latest)
        latest = np.maximum(np.maximum.accumulate(sound), self._latest)
        end = int(np.searchsorted(self._offsets, running[-1], "right"))
        if end > self._next:
            self._compare(table, running, latest, slice(self._next, end))
            self._next = end
        self._last_offset, self._latest = int(running[-1]), int(latest[-1])

    def _compare(self, table: BatchTable, running: Int64s, latest: Int64s, chosen: slice) -> None:
        timestamps, offsets = self._others[chosen], self._offsets[chosen]
        at = np.searchsorted(running, offsets)
        before = np.concatenate(([self._latest], latest))[at]
        late = before > timestamps
        # Beside a damaged batch it is unknown which entries were its own.
        is_sound = table.bad_crc_count == 0
        in_gap = (offsets < table.base_offset[at]) & is_sound
        # Magic 0 has no time, yet Kafka 0.10 indexed its producers' times.
        known = (table.magic[at] > 0) & is_sound & ~late & ~in_gap
        other = (table.max_timestamp[at] != timestamps) & known
        for mask, code, text in (
            (late, "late", "has later records before it"),
            (in_gap, "points-nowhere", "lies between two batches"),
            (other, "timestamp", "is in a batch with another latest time"),
        ):
            numbers = np.flatnonzero(mask) + chosen.start
            self._report(code, numbers, text, mild=mask is in_gap)

    def finish(self, stop: StopReason, due: Due) -> None:
        """See `_EntriesCheck.finish`; the log has to confirm an only entry of zeros."""
        is_zero = self.count == len(self._others) == 1 and not self._others[0]
        alone = is_zero and self._offsets[0] == self._place.base_offset
        if alone and self._latest != 0 and self._place.believed and stop is StopReason.END:
            self._note_unused(0, 1)
        super().finish(stop, due)

    def _check_complete(self, due: Due) -> None:
        last = int(self._others[-1]) if self.count else -1
        # Until the last segment is closed its time index lacks the entry for the end.
        if last < self._latest and (self._place.believed or not self._place.is_last):
            self.note(
                "time-index-late",
                f"the last entry is for {last} ms, the log has {self._latest}",
                severity="warning",
                why="does not end with the largest time",
            )
        else:
            self._check_count(self.count + self._place.is_last, due, 1)


def _ends(table: BatchTable) -> Int64s:
    """The last offset of each batch; of a damaged one, the offset that no checksum covers."""
    if not table.bad_crc_count:
        return table.last_offset
    damaged = (table.crc_ok == 0) & (table.magic >= 2)
    return np.where(damaged, table.base_offset, table.last_offset)


# ---- aborted transactions ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TxnTrail:
    """The transactions in a segment's log and in its `.txnindex`. It pickles.

    Attributes:
        place: the index, or the log of a segment without one.
        stored: the entries; faults in the entries alone are reported already.
        usable: whether they could be read.
        marked: which of them have their marker in this segment.
        emptied: last offsets of those whose producers have no records in this segment from where
            the entry begins to where the log begins the transaction.
        batches: those that begin or end transactions with possible entries.
        whole: whether the walk came to the end of the log.
    """

    place: IndexPlace
    stored: tuple[AbortedTxn, ...]
    usable: bool
    marked: tuple[bool, ...]
    emptied: frozenset[int]
    batches: tuple[ProducerBatch, ...]
    whole: bool

    def expected(self, by_log: Iterable[AbortedTxn]) -> tuple[AbortedTxn, ...]:
        """The entries that the index must have, from the log's start on."""
        found = {each.last_offset: each for each in by_log}
        for number, each in enumerate(self.stored):
            if not self.marked[number] or not is_possible(each):
                continue
            known = found.get(each.last_offset)
            if known is None or self._knows_more(each, known):
                found[each.last_offset] = each
        return tuple(found[last] for last in sorted(found))

    def _knows_more(self, stored: AbortedTxn, made: AbortedTxn) -> bool:
        """Whether a difference can come from records that retention or compaction has removed.

        An entry may begin in an earlier segment, which this trail does not read. An entry that is
        stable from an earlier offset on is read by more readers, and misleads none.
        """
        begins = stored.first_offset == made.first_offset or (
            stored.first_offset < made.first_offset and stored.last_offset in self.emptied
        )
        return begins and stored.last_stable_offset <= made.last_stable_offset

    def check(self, expected: tuple[AbortedTxn, ...], found: Sink | None = None) -> Finding | None:
        """Report missing and wrong entries; returns the first finding."""
        check = _Check(self.place, found)
        if not self.usable:
            return None
        stored = {each.last_offset: number for number, each in enumerate(self.stored)}
        positions = {batch.base_offset: batch.position for batch in self.batches}
        for each in expected:
            number = stored.get(each.last_offset)
            if number is None:
                at = each.last_offset
                check.note(
                    "txn-index-incomplete",
                    f"producer {each.producer_id} aborted its records from offset "
                    f"{each.first_offset} on at offset {at}, position {positions[at]}; "
                    "no entry says so",
                    offset=at,
                    severity="warning" if self.place.is_last else "error",
                )
            elif self.whole and self.marked[number] and self.stored[number] != each:
                one = self.stored[number]
                check.note(
                    "txn-index-order",
                    f"entry {number} has offsets {one.first_offset} to {one.last_offset}, stable "
                    f"from {one.last_stable_offset} on; the log says {each.first_offset} to "
                    f"{each.last_offset}, stable from {each.last_stable_offset} on",
                    position=number * TXN_ENTRY.size,
                    offset=one.last_offset,
                )
        return check.fault


#: The classes of a trail and its parts.
TRAIL_CLASSES: Final = (TxnTrail, IndexPlace, AbortedTxn, ProducerBatch)


def _emptied(trail: TxnTrail, read: Callable[[], Iterable[BatchTable]]) -> Iterator[int]:
    """See `TxnTrail.emptied`; the segment is read again, once, where entries begin too early."""
    made = {each.last_offset: each for each in _aborted_by(ProducerState(), trail.batches)}
    before: dict[int, int] = {}
    early: dict[int, list[tuple[int, int, int]]] = {}
    for each in compress(trail.stored, trail.marked):
        known = made.get(each.last_offset)
        end = each.last_offset if known is None else known.first_offset
        # Transactions of a producer follow each other: no log makes others.
        if before.get(each.producer_id, -1) < each.first_offset < end:
            first = max(each.first_offset, trail.place.base_offset)
            early.setdefault(each.producer_id, []).append((first, end, each.last_offset))
        before[each.producer_id] = each.last_offset
    spans = {producer: np.array(each, np.int64) for producer, each in early.items()}
    held = {producer: np.zeros(len(each), np.bool_) for producer, each in early.items()}
    for table in read() if spans else ():
        for producer in spans.keys() & set(np.unique(table.producer_id).tolist()):
            rows = table.producer_id == producer
            firsts, ends = spans[producer][:, 0], spans[producer][:, 1]
            at = np.searchsorted(firsts, table.last_offset[rows], side="right") - 1
            inside = (at >= 0) & (table.base_offset[rows] < ends[at])
            held[producer][at[inside]] = True
    for producer, span in spans.items():
        yield from span[~held[producer], 2].tolist()


def judge_transactions(
    begun: Iterable[ProducerSnapshotEntry],
    segments: Iterable[tuple[int, bool, TxnTrail | None]],
    found: Sink,
) -> None:
    """Report what is wrong with the transaction indexes of a partition.

    Each must name the transactions that its segment aborts. Behind damage the open ones are
    unknown.

    Args:
        begun: producers with a transaction open where the first segment begins.
        segments: of each, in order, its base offset, whether it is whole, and its trail if any.
        found: receives the findings.
    """
    state, known = ProducerState(), False
    for base_offset, is_whole, trail in segments:
        if not known:
            state.load(begun, base_offset)
            begun = ()
        known = is_whole
        if trail is not None:
            trail.check(trail.expected(_aborted_by(state, trail.batches)), found)


def _aborted_by(state: ProducerState, batches: Sequence[ProducerBatch]) -> tuple[AbortedTxn, ...]:
    """The transactions that these batches abort; feeds the batches to the state."""
    rows = np.zeros((len(batches), len(FIELDS)), np.int64)
    if batches:
        rows[:, [COLUMN[name] for name in ProducerBatch._fields]] = batches
    return state.feed(BatchTable(rows, 0, StopReason.END), on_error=pass_over)


def is_possible(entry: AbortedTxn) -> bool:
    """Whether a transaction can have these offsets: of its records, its marker, the stable end."""
    return entry.first_offset <= entry.last_offset >= entry.last_stable_offset - 1


class TxnIndexCheck(_Check):
    """One `.txnindex`, or its absence, and the transactions that go by."""

    def __init__(self, place: IndexPlace, found: Sink | None) -> None:
        """Read the entries, if there is a file, and judge them by themselves."""
        super().__init__(place, found)
        self._stored: tuple[AbortedTxn, ...] = ()
        self._usable = True
        self._aborts: dict[int, int] = {}
        #: Open transactions by producer: how they began, and how many markers of aborts were seen.
        self._open: dict[int, tuple[ProducerBatch, int]] = {}
        self._ended: set[int] = set()
        self._batches: list[ProducerBatch] = []
        if place.size >= 0:
            self._read()

    def _read(self) -> None:
        place, size = self._place, TXN_ENTRY.size
        try:
            index = TxnIndex.open(place.path)
        except (CorruptIndexError, LimitExceededError) as error:
            word = "version" if isinstance(error, CorruptIndexError) else "order"
            self.note(f"txn-index-{word}", error.reason, position=error.position)
            self._usable = False
            return
        self._stored, versions = index.entries(), index.versions.tolist()
        if index.tail_bytes:
            self.note(
                "txn-index-torn",
                f"{index.tail_bytes} bytes after the last whole entry of {size}",
                position=len(index) * size,
                severity="warning" if place.is_last else "error",
            )
        before = place.base_offset - 1
        for number, each in enumerate(self._stored):
            if versions[number]:
                message = f"version {versions[number]} of an aborted transaction"
                self.note("txn-index-version", f"{message} is not known", position=number * size)
            if each.last_offset <= before or not is_possible(each):
                self.note(
                    "txn-index-order",
                    f"entry {number} has offsets {each.first_offset} to {each.last_offset}",
                    position=number * size,
                    offset=each.last_offset,
                )
            before = each.last_offset

    def feed(self, table: BatchTable) -> None:
        """Note the batches that begin and end transactions.

        A transaction that was committed, and open across no marker of an abort, does not count.
        """
        if not table.attributes_seen & (CONTROL | TRANSACTIONAL):
            return
        chosen = (table.is_transactional | table.is_control) & (table.crc_ok != 0)
        for batch in telling_batches(table.take(chosen)):
            producer = batch.producer_id
            if not batch.is_control:
                self._open.setdefault(producer, (batch, len(self._aborts)))
                continue
            if not batch.record_count or batch.control_type not in _END_MARKERS:
                continue
            began = self._open.pop(producer, None)
            if batch.control_type == ControlType.ABORT:
                self._aborts[batch.base_offset] = producer
            elif producer in self._ended and (began is None or began[1] == len(self._aborts)):
                continue
            self._ended.add(producer)
            self._batches += [batch] if began is None else [began[0], batch]

    def finish(self, stop: StopReason, read: Callable[[], Iterable[BatchTable]]) -> TxnTrail | None:
        """The segment's trail, once no batch follows; None if there is nothing in it.

        Args:
            stop: why the walk over the log ended.
            read: gives the headers of the segment once more.
        """
        place = self._place
        whole = stop is StopReason.END or (place.is_last and stop in TAILS)
        marked = tuple(
            self._aborts.get(each.last_offset) == each.producer_id for each in self._stored
        )
        for number in [n for n, known in enumerate(marked) if not known and whole]:
            last = self._stored[number].last_offset
            self.note(
                "txn-index-points-nowhere",
                f"entry {number} ends at offset {last}, which is not an abort marker",
                position=number * TXN_ENTRY.size,
                offset=last,
                severity="warning" if place.is_last else None,
            )
        batches = [*self._batches, *(batch for batch, _ in self._open.values())]
        if not batches and not self._stored:
            return None
        batches.sort(key=lambda batch: batch.base_offset)
        trail = TxnTrail(
            place, self._stored, self._usable, marked, frozenset(), tuple(batches), whole
        )
        return replace(trail, emptied=frozenset(_emptied(trail, read)))


# ---- all indexes of a segment --------------------------------------------------------------------

_CHECKS: Final[dict[FileKind, type[OffsetIndexCheck | TimeIndexCheck | TxnIndexCheck]]] = {
    FileKind.INDEX: OffsetIndexCheck,
    FileKind.TIMEINDEX: TimeIndexCheck,
    FileKind.TXNINDEX: TxnIndexCheck,
}


#: The kinds of index that have a check.
CHECKED: Final = tuple(_CHECKS)


def _due(base_offset: int, tables: Iterable[BatchTable]) -> tuple[int, int]:
    """The entries that a log makes; none where a batch can have none, as in a damaged log."""
    made = DerivedEntries(base_offset, _DEFAULTS, careful=True)
    if not all(_placed(made, base_offset, table) for table in tables):
        return 0, 0
    return _counted(made)


def _placed(made: DerivedEntries, base_offset: int, table: BatchTable) -> bool:
    """Add the entries of batches; whether all can have one."""
    far = (table.last_offset < base_offset) | (table.last_offset - base_offset > INT32_MAX)
    return base_offset >= 0 and not far.any() and made.add(table)[1] is None


def _counted(made: DerivedEntries) -> tuple[int, int]:
    times = len(made.times) + len(made.closing_entry())
    return len(made.offsets) // OFFSET_ENTRY.size, times // TIME_ENTRY.size


class IndexChecks:
    """The indexes of one segment, compared with its batches during one walk."""

    def __init__(self, log: IndexPlace, found: Sink | None = None) -> None:
        """Begin with none.

        Args:
            log: of the segment, as one without indexes.
            found: receives the findings; None if the first fault of each suffices.
        """
        self._log, self._found = log, found
        self._checks: dict[FileKind, OffsetIndexCheck | TimeIndexCheck | TxnIndexCheck] = {}
        self._made: DerivedEntries | None = None

    def add(self, kind: FileKind, path: io.StrPath | None) -> int:
        """Begin the check of an index, or of its absence; returns its size, -1 for none.

        Raises:
            OSError: there is a file, but it cannot be read.
        """
        place = self._log
        if path is not None:
            place = replace(place, path=os.fspath(path), size=io.size_at(path))
        self._checks[kind] = _CHECKS[kind](place, self._found)
        if kind is FileKind.INDEX and path is not None and io.is_elsewhere(path):
            # To read the headers again is to ask a store for the whole segment again.
            self._made = DerivedEntries(place.base_offset, _DEFAULTS, careful=True)
        return place.size

    def feed(self, table: BatchTable) -> None:
        """Compare them with the batches of a table."""
        for check in self._checks.values():
            check.feed(table)
        if self._made is not None:
            joined = replace(table, rows=np.ascontiguousarray(table.rows))
            if not _placed(self._made, self._log.base_offset, joined):
                self._made = None

    def finish(
        self,
        stop: StopReason,
        read: Callable[[], Iterable[BatchTable]],
        due: Due | None = None,
    ) -> TxnTrail | None:
        """Check the rest; see the checks. Returns the known transactions.

        Args:
            stop: why the walk over the log ended.
            read: gives the headers of the segment once more.
            due: counts the entries that the log makes; with Kafka's defaults if None.
        """
        trail = None
        base, made = self._log.base_offset, self._made
        counted = due or cache(lambda: _due(base, read()) if made is None else _counted(made))
        for check in self._checks.values():
            if isinstance(check, TxnIndexCheck):
                trail = check.finish(stop, read)
            else:
                check.finish(stop, counted)
        return trail

    @property
    def faults(self) -> dict[FileKind, Finding | None]:
        """The first thing that is wrong with each index."""
        return {kind: check.fault for kind, check in self._checks.items()}


def _is_of_kraft(path: str) -> bool:
    """Whether a file is of the metadata log, whose indexes Kafka 4.4 leaves at their full size."""
    return os.path.basename(os.path.dirname(path)) == f"{CLUSTER_METADATA}-0"
