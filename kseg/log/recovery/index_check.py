"""Whether the indexes of a segment fit its log: for verify, a reindexing and a load.

`kseg.log.index_rules` has the rules of the offset index and of the time index. Here is that of the
transaction index: each aborted transaction whose marker is in the segment, and no other. An entry
of a transaction index knows more than a log that has lost its beginning. An entry counts as right
if its marker is in the log and its transaction began before the log, or has no records any
more.

A load looks at the ends of the indexes alone, by the same rules, and at the end of the log. Faults
that only a walk over the whole log finds are for `kseg verify`.

Source: Kafka `TransactionIndex`, `ProducerStateManager`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import compress, takewhile
from typing import Final

import numpy as np

from kseg.constants import (
    END_MARKERS,
    INT32_MAX,
    INT64_MAX,
    TAILS,
    WHOLE_ENDS,
    ControlType,
    StopReason,
    StrPath,
)
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files import io
from kseg.files.names import FileKind
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.txn_index import AbortedTxn, TxnIndex
from kseg.format.header import COLUMN, CONTROL, FIELDS, TRANSACTIONAL, BatchTable, scan, stop_code
from kseg.log.config import DEFAULTS, LogConfig
from kseg.log.findings import Finding, Sink
from kseg.log.index_rules import (
    Due,
    IndexCheck,
    IndexPlace,
    OffsetIndexCheck,
    TimeIndexCheck,
    fault_at_ends,
)
from kseg.log.producers.entry import ProducerBatch, telling_batches
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.load_context import (
    ENTRIES,
    INDEX,
    TIMEINDEX,
    TXNINDEX,
    WHY_CUT,
    LoadContext,
    file_of,
    refuse_unrepaired,
)
from kseg.log.recovery.sweep import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, pass_over, sweep_segment
from kseg.log.segment.index_entries import DerivedEntries
from kseg.log.segment.reader import Segment

# ---- aborted transactions ------------------------------------------------------------------------


class TxnCheck(IndexCheck):
    """The check of a `.txnindex`, with its first fault."""

    word = "txn-index"


@frozen_dataclass
class TxnTrail:
    """The transactions in a segment's log and in its `.txnindex`. It pickles.

    Attributes:
        index_place: the path of the index, or of the log if there is no index.
        stored: the entries; faults that they show without the log are reported already.
        usable: whether they could be read.
        marked: which of them have their marker in this segment.
        emptied: last offsets of those whose producers have no records in this segment from where
            the entry begins to where the log begins the transaction.
        batches: batches that begin or end transactions with possible entries.
        whole: whether the walk came to the end of the log.
    """

    index_place: IndexPlace
    stored: tuple[AbortedTxn, ...]
    usable: bool
    marked: tuple[bool, ...]
    emptied: frozenset[int]
    batches: tuple[ProducerBatch, ...]
    whole: bool

    def expected(self, by_log: Iterable[AbortedTxn]) -> tuple[AbortedTxn, ...]:
        """The entries that the index must have, from the log's start on."""
        by_last_offset = {txn.last_offset: txn for txn in by_log}
        for number, txn in enumerate(self.stored):
            if not self.marked[number] or not _is_possible(txn):
                continue
            logged = by_last_offset.get(txn.last_offset)
            if logged is None or self._knows_more(txn, logged):
                by_last_offset[txn.last_offset] = txn
        return tuple(by_last_offset[last] for last in sorted(by_last_offset))

    def _knows_more(self, stored: AbortedTxn, made: AbortedTxn) -> bool:
        """Whether a difference can come from records that retention or compaction has removed.

        An entry may begin in an earlier segment, which this trail does not read. An entry that is
        stable from an earlier offset on is read by more readers, and misleads none.
        """
        begins = stored.first_offset == made.first_offset or (
            stored.first_offset < made.first_offset and stored.last_offset in self.emptied
        )
        return begins and stored.last_stable_offset <= made.last_stable_offset

    def check(self, expected: tuple[AbortedTxn, ...], sink: Sink | None = None) -> Finding | None:
        """Report missing and wrong entries; returns the first finding."""
        check = TxnCheck(self.index_place, sink)
        if not self.usable:
            return None
        stored = {txn.last_offset: number for number, txn in enumerate(self.stored)}
        positions = {batch.base_offset: batch.position for batch in self.batches}
        for txn in expected:
            number = stored.get(txn.last_offset)
            if number is None:
                check.note(
                    "incomplete",
                    offset=txn.last_offset,
                    severity="warning" if self.index_place.is_last else "error",
                    made=txn,
                    at=positions[txn.last_offset],
                )
            elif self.whole and self.marked[number] and self.stored[number] != txn:
                check.note(
                    "order.log",
                    position=number * TXN_ENTRY.size,
                    offset=self.stored[number].last_offset,
                    number=number,
                    stored=self.stored[number],
                    made=txn,
                )
        return check.fault


#: The classes of a trail and its parts.
TRAIL_CLASSES: Final = (TxnTrail, IndexPlace, AbortedTxn, ProducerBatch)


def _emptied_transactions(
    trail: TxnTrail, read: Callable[[], Iterable[BatchTable]]
) -> Iterator[int]:
    """See `TxnTrail.emptied`; reads the segment once more if entries begin too early."""
    logged_by_end = {txn.last_offset: txn for txn in _aborted_by(ProducerState(), trail.batches)}
    # Producer id -> the last offset of its transaction before.
    before: dict[int, int] = {}
    # Producer id -> its entries that begin too early: the entry's first offset, the offset where
    # the log begins the transaction, and the entry's last offset.
    early: dict[int, list[tuple[int, int, int]]] = {}
    for txn in compress(trail.stored, trail.marked):
        logged = logged_by_end.get(txn.last_offset)
        end = txn.last_offset if logged is None else logged.first_offset
        # Transactions of a producer follow each other: no log makes others.
        if before.get(txn.producer_id, -1) < txn.first_offset < end:
            first = max(txn.first_offset, trail.index_place.base_offset)
            early.setdefault(txn.producer_id, []).append((first, end, txn.last_offset))
        before[txn.producer_id] = txn.last_offset
    spans = {producer: np.array(ranges, np.int64) for producer, ranges in early.items()}
    held = {producer: np.zeros(len(ranges), np.bool_) for producer, ranges in early.items()}
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
    sink: Sink,
) -> None:
    """Report what is wrong with the transaction indexes of a partition.

    Each must name the transactions that its segment aborts. After damage the open ones are
    unknown.

    Args:
        begun: producers with a transaction open where the first segment begins.
        segments: for each, in order, its base offset, whether it is whole, and its trail or None.
        sink: receives the findings.
    """
    state, is_state_known = ProducerState(), False
    for base_offset, is_whole, trail in segments:
        if not is_state_known:
            state.load(begun, base_offset)
            begun = ()
        is_state_known = is_whole
        if trail is not None:
            trail.check(trail.expected(_aborted_by(state, trail.batches)), sink)


def _aborted_by(state: ProducerState, batches: Sequence[ProducerBatch]) -> tuple[AbortedTxn, ...]:
    """The transactions that these batches abort; feeds the batches to the state."""
    rows = np.zeros((len(batches), len(FIELDS)), np.int64)
    if batches:
        rows[:, [COLUMN[name] for name in ProducerBatch._fields]] = batches
    return state.feed(BatchTable(rows, 0, StopReason.END), on_error=pass_over)


def _is_possible(entry: AbortedTxn) -> bool:
    """Whether a transaction can have these offsets: of its records, its marker, the stable end."""
    return entry.first_offset <= entry.last_offset >= entry.last_stable_offset - 1


class TxnIndexCheck(TxnCheck):
    """One `.txnindex`, or its absence, compared with the transactions in the log."""

    def __init__(
        self, index_place: IndexPlace, sink: Sink | None = None, *, data: bytes | None = None
    ) -> None:
        """Read the entries, if there is a file, and check them without the log.

        Args:
            index_place: the index to check.
            sink: receives the findings; None if the first fault suffices.
            data: the bytes of the file, if it is not on the disk.
        """
        super().__init__(index_place, sink)
        self._stored: tuple[AbortedTxn, ...] = ()
        self._usable = True
        #: The producers of markers that abort, by the markers' offsets.
        self._aborts: dict[int, int] = {}
        #: Producer id -> how its open transaction began, and how many abort markers were seen.
        self._open: dict[int, tuple[ProducerBatch, int]] = {}
        self._ended: set[int] = set()
        self._batches: list[ProducerBatch] = []
        if index_place.size >= 0:
            self._read(data)

    def _read(self, data: bytes | None) -> None:
        """Read the entries; report entries that no transaction index can have in this order."""
        index_place, size = self._place, TXN_ENTRY.size
        try:
            index = (
                TxnIndex.open(index_place.path)
                if data is None
                else TxnIndex.of(data, index_place.path)
            )
        except (CorruptIndexError, LimitExceededError) as error:
            word = "version" if isinstance(error, CorruptIndexError) else "order"
            self.note(f"{word}.unreadable", position=error.position, reason=error.reason)
            self._usable = False
            return
        self._stored, versions = index.entries(), index.versions.tolist()
        if index.tail_bytes:
            self.note(
                "torn",
                position=len(index) * size,
                severity="warning" if index_place.is_last else "error",
                tail=index.tail_bytes,
                entry=size,
            )
        before = index_place.base_offset - 1
        for number, txn in enumerate(self._stored):
            if versions[number]:
                self.note("version", position=number * size, version=versions[number])
            is_far = txn.last_offset - index_place.base_offset > INT32_MAX
            if txn.last_offset <= before or is_far or not _is_possible(txn):
                at = number * size
                self.note("order", position=at, offset=txn.last_offset, number=number, stored=txn)
            before = txn.last_offset

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
            if not batch.record_count or batch.control_type not in END_MARKERS:
                continue
            began = self._open.pop(producer, None)
            if batch.control_type == ControlType.ABORT:
                self._aborts[batch.base_offset] = producer
            elif producer in self._ended and (began is None or began[1] == len(self._aborts)):
                continue  # no abort since it began
            self._ended.add(producer)
            self._batches += [batch] if began is None else [began[0], batch]

    def finish(self, stop: StopReason, read: Callable[[], Iterable[BatchTable]]) -> TxnTrail | None:
        """The segment's trail, after the last batch; None if there is nothing in it.

        Args:
            stop: why the walk over the log ended.
            read: returns the headers of the segment once more.
        """
        index_place = self._place
        whole = stop is StopReason.END or (index_place.is_last and stop in TAILS)
        marked = tuple(self._aborts.get(txn.last_offset) == txn.producer_id for txn in self._stored)
        for number in [n for n, has_marker in enumerate(marked) if not has_marker and whole]:
            self.note(
                "points-nowhere",
                position=number * TXN_ENTRY.size,
                offset=self._stored[number].last_offset,
                severity="warning" if index_place.is_last else None,
                number=number,
            )
        batches = [*self._batches, *(batch for batch, _ in self._open.values())]
        if not batches and not self._stored:
            return None
        batches.sort(key=lambda batch: batch.base_offset)
        trail = TxnTrail(
            index_place, self._stored, self._usable, marked, frozenset(), tuple(batches), whole
        )
        return replace(trail, emptied=frozenset(_emptied_transactions(trail, read)))


# ---- all indexes of a segment --------------------------------------------------------------------

_CHECKS: Final[dict[FileKind, type[OffsetIndexCheck | TimeIndexCheck | TxnIndexCheck]]] = {
    FileKind.INDEX: OffsetIndexCheck,
    FileKind.TIMEINDEX: TimeIndexCheck,
    FileKind.TXNINDEX: TxnIndexCheck,
}


#: The kinds of index that have a check.
CHECKED: Final = tuple(_CHECKS)


def due_entries(
    base_offset: int, tables: Iterable[BatchTable], config: LogConfig = DEFAULTS
) -> tuple[int, int]:
    """The numbers of entries that both indexes of a log should have; 0 for both if it is damaged.

    Args:
        base_offset: the segment's base offset.
        tables: the headers of all its batches.
        config: the settings of the log.
    """
    derived = DerivedEntries(base_offset, config, careful=True)
    if not all(_add_entries(derived, base_offset, table) for table in tables):
        return 0, 0
    return _entry_counts(derived)


def _add_entries(made: DerivedEntries, base_offset: int, table: BatchTable) -> bool:
    """Add the entries of batches; False if a batch cannot have its entry, as in a damaged log."""
    far = (table.last_offset < base_offset) | (table.last_offset - base_offset > INT32_MAX)
    return base_offset >= 0 and not far.any() and made.add(table)[1] is None


def _entry_counts(made: DerivedEntries) -> tuple[int, int]:
    times = len(made.times) + len(made.closing_entry())
    return len(made.offsets) // OFFSET_ENTRY.size, times // TIME_ENTRY.size


class IndexChecks:
    """The indexes of one segment, compared with its batches during one walk."""

    def __init__(self, log: IndexPlace, sink: Sink | None = None) -> None:
        """Start without indexes.

        Args:
            log: the log file of the segment, as one without indexes.
            sink: receives the findings; None if the first fault of each suffices.
        """
        self._log, self._sink = log, sink
        self._checks: dict[FileKind, OffsetIndexCheck | TimeIndexCheck | TxnIndexCheck] = {}
        self._made: DerivedEntries | None = None

    def add(self, kind: FileKind, path: StrPath | None) -> int:
        """Begin the check of an index, or of its absence; return its size, -1 if there is none.

        Raises:
            OSError: there is a file, but it cannot be read.
        """
        index_place = self._log
        if path is not None:
            index_place = replace(index_place, path=os.fspath(path), size=io.size_at(path))
        self._checks[kind] = _CHECKS[kind](index_place, self._sink)
        if kind is FileKind.INDEX and path is not None and io.is_elsewhere(path):
            # Reading the headers again would request the whole segment from a store again.
            self._made = DerivedEntries(index_place.base_offset, DEFAULTS, careful=True)
        return index_place.size

    def feed(self, table: BatchTable) -> None:
        """Compare the indexes with the batches of a table."""
        for check in self._checks.values():
            check.feed(table)
        if self._made is not None:
            joined = replace(table, rows=np.ascontiguousarray(table.rows))
            if not _add_entries(self._made, self._log.base_offset, joined):
                self._made = None

    def finish(
        self,
        stop: StopReason,
        read: Callable[[], Iterable[BatchTable]],
        due: Due | None = None,
    ) -> TxnTrail | None:
        """Check what only the whole walk shows; return the trail of transactions, if there is one.

        Args:
            stop: why the walk over the log ended.
            read: returns the headers of the segment once more.
            due: counts the entries that the log should have; None to use Kafka's defaults.
        """
        trail = None
        base, made = self._log.base_offset, self._made
        counted = due or cache(
            lambda: due_entries(base, read()) if made is None else _entry_counts(made)
        )
        for check in self._checks.values():
            if isinstance(check, TxnIndexCheck):
                trail = check.finish(stop, read)
            else:
                check.finish(stop, due or counted)
        return trail

    @property
    def faults(self) -> dict[FileKind, Finding | None]:
        """The first thing that is wrong with each index."""
        return {kind: check.fault for kind, check in self._checks.items()}


# ---- the ends of a closed log --------------------------------------------------------------------


#: Entries of a torn-off part, one in 4 KiB: 16 MiB.
_ENTRIES_TRIED_MAX: Final = 4096
#: The end of a log that is read at once, rather than walked.
_TAIL_BYTES: Final = 1 << 17


@frozen_dataclass
class LogEnd:
    """The end of a log.

    Attributes:
        base_offset: the base offset of the last segment.
        next_offset: the offset after the last whole batch.
        position: where that ends.
        cut_reason: why the bytes after it are not a batch; None if nothing follows.
        start: where the walk began: 0, or where an entry of the offset index leads.
    """

    base_offset: int
    next_offset: int
    position: int
    cut_reason: StopReason | None
    start: int = 0


def index_fault_of(context: LoadContext, base: int) -> Finding | None:
    """The first fault of a segment's indexes; None if the check finds nothing."""
    overlay = context.overlay
    names = {kind: file_of(base, kind.value) for kind in (FileKind.LOG, *CHECKED)}
    log_bytes = context.size(base)
    log = IndexPlace(context.path(base), base, is_last=False, log_bytes=log_bytes, believed=True)

    def read(kind: FileKind, position: int, size: int) -> bytes:
        return overlay.read(names[kind], position=position, size=size)

    def headers(start: int) -> Iterator[BatchTable]:
        """Headers of the log from a batch on; near the log's end all bytes are read at once."""
        bytes_left = log_bytes - start
        if bytes_left <= _TAIL_BYTES:
            yield scan(read(FileKind.LOG, start, bytes_left), base=start, on_bad_crc="ignore")
            return
        with context.open(base) as segment:
            yield from segment.headers(start=start)

    sizes = {kind: overlay.size(name) for kind, name in names.items() if name in overlay.files}
    due = cache(lambda: due_entries(base, headers(0), context.inputs.config))
    fault = fault_at_ends(log, sizes, read, headers, due)
    if fault is not None or not log_bytes or FileKind.TXNINDEX not in sizes:
        return fault
    data = overlay.read(names[FileKind.TXNINDEX])
    path = overlay.path(names[FileKind.TXNINDEX])
    return TxnIndexCheck(replace(log, path=path, size=len(data)), data=data).fault


def has_abort_marker(context: LoadContext, base: int) -> bool:
    """Whether a transaction was aborted in a segment, by the headers of all its batches."""
    with context.open(base) as segment:
        return any(
            table.attributes_seen & CONTROL and (table.control_type == ControlType.ABORT).any()
            for table in segment.headers()
        )


def end_of(context: LoadContext, base: int) -> LogEnd:
    """Where the last segment of a log that was closed cleanly ends.

    From the last index entry that leads to a sound batch; batches whose checksums are wrong are
    walked over.
    """
    with context.open(base) as segment:
        start = _last_start(context, base, segment)
        end = base
        for table in segment.headers(start=start):
            if len(table):
                end = table.end_offset
        stop = None if table.stop in WHOLE_ENDS else table.stop
        return LogEnd(base, end, table.end_position, stop, start)


def _last_start(context: LoadContext, base: int, segment: Segment) -> int:
    """The position in the last entry that points to a sound batch; 0 if there is none.

    The last entries may be for batches that were never written, or only in part.
    """
    start = segment.start_for_offset(INT64_MAX).position
    if start:
        return start
    entries = context.entries(base, INDEX)
    used = [relative for relative, position in entries if relative >= 0 < position]
    for relative in used[: -_ENTRIES_TRIED_MAX - 1 : -1]:
        start = segment.start_for_offset(base + relative).position
        if start:
            break
    return start


# ---- the end of a log that was closed cleanly ----------------------------------------------------
# The cut removes what follows the last whole batch. The last segment's index leads there, past
# everything before. So the whole segment is walked:
#
#     all of it is sound       the indexes are rebuilt
#     the index misled         the end is where the walk over all of the segment ends
#     damage comes before      stays, and so does everything after it up to the cut: the indexes
#                              keep their entries, since without them the log would seem to end at
#                              the damage


def cut_clean_end(context: LoadContext, index_end: LogEnd) -> tuple[int, bool]:
    """After a clean stop, cut what follows the last whole batch of the last segment.

    If the log is damaged before the end that its indexes name, that end counts: the log keeps
    its bytes up to there, and the indexes are trimmed to it.

    Args:
        context: the load.
        index_end: the end of the log by its indexes.

    Returns:
        The offset after the last batch, and whether the indexes of the segment are to be rebuilt.

    Raises:
        KsegError: the segment cannot be walked; nothing is changed.
        OSError: the disk refuses.
    """
    base, end = index_end.base_offset, index_end
    with context.open(base) as segment:
        swept = sweep_segment(segment, config=context.inputs.config)
    refuse_unrepaired(context, swept)
    sound = swept.valid_bytes >= index_end.position
    if not sound:
        sound_end = (swept.valid_bytes, swept.next_offset)
        _note_end(context, base, swept.stop, "; left as it is", *sound_end)
        _trim_indexes(context, index_end)
    elif swept.valid_bytes > index_end.position:
        end = LogEnd(base, swept.next_offset, swept.valid_bytes, swept.stop)
    reason = end.cut_reason
    if reason is not None and end.position < context.size(base):
        done = ", though the log was closed in good order; cut"
        _note_end(context, base, reason, done, end.position, end.next_offset)
        if sound and file_of(base, INDEX) in context.overlay.files:
            # Its absence says, after an interruption, that indexes are to be rebuilt.
            context.overlay.remove(file_of(base, INDEX), WHY_CUT[reason], keep=False)
            context.overlay.settle()
        context.cut_log(base, end.position, end.next_offset, WHY_CUT[reason])
    return end.next_offset, sound


def _note_end(
    context: LoadContext, base: int, stop: StopReason, done: str, position: int, offset: int
) -> None:
    code, message = stop_code(stop), WHY_CUT[stop] + done
    context.note_fault(code, context.path(base), message, position, offset)


def _trim_indexes(context: LoadContext, index_end: LogEnd) -> None:
    """Trim the indexes so that no entry leads beyond the cut.

    The last offset entry is then the one by which the end was found. An entry of zeros is unused.

    The second number of an entry is the offset relative to the base in a time index, and the
    position in an offset index; the fourth one is the last offset in a transaction index.
    """
    base, end = index_end.base_offset, index_end.next_offset
    aborted, times, offsets = (context.entries(base, kind) for kind in (TXNINDEX, TIMEINDEX, INDEX))
    below = (entry[3] < end for entry in aborted)
    before_end = (any(entry) and 0 <= entry[1] < end - base for entry in times)
    leading = [number for number, entry in enumerate(offsets) if 0 < entry[1] == index_end.start]
    keep_entries(context, base, TXNINDEX, sum(takewhile(bool, below)))
    keep_entries(context, base, TIMEINDEX, sum(takewhile(bool, before_end)))
    keep_entries(context, base, INDEX, leading[-1] + 1 if leading else 0)


def keep_entries(context: LoadContext, base: int, kind: str, count: int) -> None:
    """Shorten an index to so many of its entries."""
    name, why = file_of(base, kind), "entries lead past the log's end"
    if name in context.overlay.files:
        data = context.overlay.read(name, size=count * ENTRIES[kind].size)
        if not context.has(name, data):
            context.overlay.put(name, data, why, held=kind == INDEX)
