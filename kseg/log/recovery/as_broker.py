"""How Kafka 4.2.0 loads a log, step by step, its mistakes included.

Nothing is made better. A torn tail under a clean mark stays, and hides the records before it.
A garbled index leads to a wrong place, as in Kafka. If Kafka fails to load, this raises an error.
Four things are left out:

- a segment whose offsets overflow, which Kafka splits; the load of such a log is refused;
- the room that a broker takes in advance: indexes of full size beside the last segment, and under
  `preallocate` the zeros of a new log; the files are left as after a clean stop;
- a batch that counts as a compressed message because its magic byte was flipped: Kafka inflates it
  to learn its offset, and may fail there; the plan names the checked ones (`inflated`);
- segments of negative offsets.

Every other lookup of this package checks the batch that an index entry leads to. Those here do not,
to predict a broker's behaviour with a garbled index: they search the stored entries with the same
order of comparisons as Kafka, and the walk begins at any place that an entry names.

Source: Kafka `LogLoader`, `LogSegment.sanityCheck`, `UnifiedLog.rebuildProducerState`,
`AbstractIndex.indexSlotRangeFor`, `LogSegment.translateOffset`, `LogSegment.readNextOffset`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

import numpy as np

from kseg.constants import StopReason
from kseg.errors import (
    CorruptIndexError,
    KsegError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    OnError,
    at_path,
)
from kseg.files import checkpoints
from kseg.files.checkpoints import LeaderEpochs
from kseg.files.grammar import offset_from_file_name
from kseg.format.header import BatchTable, stop_error
from kseg.log.producers.snapshots import SnapshotFiles
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.load import Loading, check_has_next_offset
from kseg.log.recovery.load_context import (
    DELETE_SUFFIX,
    EPOCHS,
    INDEX,
    INDEX_SUFFIXES,
    LOG,
    SNAPSHOT,
    TIMEINDEX,
    TXNINDEX,
    LoadContext,
    LoadedLog,
    SegmentOutcome,
    clear,
    file_of,
    refuse_overflow,
)
from kseg.log.recovery.overlay import NOT_SAID
from kseg.log.recovery.sweep import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, Swept
from kseg.log.segment.reader import Segment

_AS_BROKER: Final = "as a broker does"


class AsBroker(Loading):
    """The steps of a load exactly as Kafka does them."""

    careful = False

    def load(self) -> LoadedLog:
        """Do all steps.

        Raises:
            KsegError: Kafka fails to load the log.
            OSError: it cannot be read.
        """
        self.epochs = _read_epochs(self)
        for name in sorted(self.overlay.files):  # `ProducerStateManager.listSnapshotFiles`
            if name.endswith(f".{SNAPSHOT}"):
                offset_from_file_name(name)
        room = self.inputs.config.segment_index_bytes // OFFSET_ENTRY.size * OFFSET_ENTRY.size
        self.temporary_files = clear(self.overlay, end_by_index=next_offset, index_bytes=room)
        self.find()
        if self.overlay.directory.name.endswith(DELETE_SUFFIX):
            if not self.bases:
                self.begin_at(0)
            return self.finish(0, 0)
        end, point = self.recover()
        self._check_room()
        return self.finish(end, point)

    # ---- which segments there are ----------------------------------------------------------------

    def find(self) -> None:
        """Find the segments, and check each in turn.

        Source: Kafka `LogLoader.loadSegmentFiles`.
        """
        overlay = self.overlay
        self.bases.clear()
        for name in sorted(overlay.files):
            if name.endswith(INDEX_SUFFIXES):
                base = offset_from_file_name(name)
                if file_of(base, LOG) not in overlay.files:
                    overlay.remove(name, "an index without its log", keep=True)
            elif name.endswith(f".{LOG}"):
                self._check(offset_from_file_name(name))
        overlay.settle()

    def _check(self, base: int) -> None:
        """Check the files of a segment; recover it if one is missing or corrupt.

        Source: Kafka `LogSegment.sanityCheck`.
        """
        overlay = self.overlay
        if file_of(base, LOG) not in overlay.files:
            overlay.settle()
            overlay.create(file_of(base, LOG), _AS_BROKER)
        times = file_of(base, TIMEINDEX)
        if file_of(base, INDEX) not in overlay.files:
            self._recover_segment(base, "its offset index is missing")
        else:
            if times not in overlay.files:
                overlay.put(times, b"", "an empty one in place of none")
            if file_of(base, TXNINDEX) in overlay.files and not _is_sane(self, base):
                self._recover_segment(base, "its transaction index is corrupt")
        self.add(base)

    # ---- recovery --------------------------------------------------------------------------------

    def _recover_segment(self, base: int, why: str) -> None:
        """Walk a segment, cut it and rebuild its derived files; as long as segments are found.

        Source: Kafka `LogLoader.recoverSegment`.
        """
        self.add_outcome(base)
        state, snapshots = self.state_at(base)
        swept = self.sweep(base, state, self.epochs)
        if swept.error is not None:
            raise swept.error
        if file_of(base, INDEX) in self.overlay.files:
            # It comes back last of all; its absence says until then that the work is not finished.
            self.overlay.remove(file_of(base, INDEX), why, keep=False)
            self.overlay.settle()
        if swept.truncated_bytes:
            self.cut_log(base, swept.valid_bytes, swept.next_offset, why)
        if self.epochs.dirty:
            self.put_epochs(self.epochs.entries, NOT_SAID)
        snapshots.take(state)
        self.overlay.settle()
        self.install(swept, why)

    def sweep(self, base: int, state: ProducerState, epochs: LeaderEpochs) -> Swept:
        """Walk a segment, unless it is empty."""
        if not self.size(base):
            # No byte and no entry; it ends at its base offset, also at a negative one.
            return Swept(base, 0, 0, StopReason.END, None, (), base, b"", b"", ())
        swept = super().sweep(base, state, epochs)
        if isinstance(swept.error, OffsetOverflowError):
            refuse_overflow(self, base, swept.error)
            # Kafka splits a segment only if its last offset overflows.
            swept.error.as_kafka("IllegalArgumentException")
        return swept

    def recover_segments(self) -> int:
        """Recover every segment from the recovery point on after an unclean end.

        Returns:
            The log's end: the offset after the last batch.
        """
        if not self.inputs.clean:
            self._recover_from_point()
        base = self.bases[-1]
        with self.open(base) as segment:
            end = next_offset(segment, self._index(base), self._inflates)
        check_has_next_offset(end, self.path(base))
        return end

    def _recover_from_point(self) -> None:
        """Every segment from the recovery point on, up to the first that loses bytes."""
        why = "it may not have been flushed"
        todo = self.from_offset(self.inputs.recovery_point)
        self.to_walk_bytes += sum(map(self.size, todo))
        for number, base in enumerate(todo):
            state, snapshots = self.state_at(base)
            swept = self.sweep(base, state, self.epochs)
            # It is Kafka's `InvalidOffsetException`, with which a segment is emptied.
            refused = (
                isinstance(swept.error, OffsetsOutOfOrderError)
                and swept.error.kafka_exception is None
            )
            if swept.error is not None and not refused:
                raise swept.error
            removed_bytes = self.size(base) if refused else swept.truncated_bytes
            if refused:
                self._empty_segment(swept)
            else:
                if removed_bytes:
                    why_cut = "no sound batch follows"
                    self.cut_log(base, swept.valid_bytes, swept.next_offset, why_cut)
                snapshots.take(state)
                self.install(swept, why)
            if removed_bytes:
                # The snapshot just written is removed too, if the next segment began there.
                self.drop(todo[number + 1 :], "it follows a segment that was cut")
                return

    def _empty_segment(self, swept: Swept) -> None:
        """A segment whose offsets cannot be indexed is emptied.

        Source: Kafka `LogLoader.recoverLog`, which catches `InvalidOffsetException`.
        """
        base, why = swept.base_offset, "offsets out of order"
        self.cut_log(base, 0, base, why)
        for kind in (TXNINDEX, TIMEINDEX, INDEX):
            name = file_of(base, kind)
            if name in self.overlay.files or kind != TXNINDEX or swept.aborted:
                self.overlay.put(name, b"", why)
        self.held = (base, b"")
        self.outcomes[base] = SegmentOutcome(
            base, self.outcomes[base].size, 0, 0, 0, walked=True, why=why
        )

    def forget_epochs(self, end: int) -> None:
        """The log begins again, without a message."""
        del end
        self.epochs.clear()
        self.epochs.dirty = False

    def begin_at(self, base: int) -> None:
        """Make the first segment, with empty indexes.

        Source: Kafka `LogSegment.open`, `LogSegment.resizeIndexes`.
        """
        super().begin_at(base)
        for kind in (INDEX, TIMEINDEX):
            self.overlay.put(file_of(base, kind), b"", "the first segment")

    def _check_room(self) -> None:
        """The indexes of the last segment get their full size, which they must not exceed.

        Source: Kafka `AbstractIndex.resize`.
        """
        overlay, room = self.overlay, self.inputs.config.segment_index_bytes
        for kind, entry in ((INDEX, OFFSET_ENTRY.size), (TIMEINDEX, TIME_ENTRY.size)):
            name = file_of(self.bases[-1], kind)
            size = overlay.size(name)
            # An index whose bytes are not held is as large as its entries.
            if size != room // entry * entry and size // entry > room // entry:
                raise CorruptIndexError(
                    f"{size} bytes exceed an index of {room}", path=overlay.path(name)
                ).as_kafka("IllegalArgumentException")

    # ---- producers -------------------------------------------------------------------------------

    def snapshots_before(self) -> SnapshotFiles:
        """The snapshots that exist; a load writes some, and deletes others."""
        return self.same_snapshots()

    def feed(
        self, state: ProducerState, segment: Segment, end: int, on_error: OnError | None
    ) -> None:
        """Process a segment from its index entries on, even if they lead to a wrong position."""
        del on_error
        base, bases = segment.base_offset, self.bases
        at = bisect_right(bases, end)
        holds_end = at > 0 and base == bases[at - 1]
        index = self._index(base)
        feed_segment(state, segment, index, end, self._inflates, holds_end=holds_end)

    def _inflates(self, path: str, position: int) -> None:
        if (path, position) not in self.inflated:
            self.inflated.append((path, position))

    def _index(self, base: int) -> bytes:
        """A segment's offset index; empty if its bytes are not held, so that a walk starts at 0."""
        name, held, overlay = file_of(base, INDEX), self.held, self.overlay
        if held is not None and held[0] == base:
            return held[1]
        return overlay.read(name) if name in overlay.files else b""

    # ---- the end ---------------------------------------------------------------------------------

    def finish(self, end: int, point: int) -> LoadedLog:
        """Epochs, snapshots and producers as of the log's end."""
        start = max(self.inputs.log_start_offset, self.bases[0])
        self._truncate_epochs(end)
        snapshots = self.snapshots()
        snapshots.remove_stray(self.bases)
        state = self.new_state()
        self.rebuild(state, snapshots, start, end, clean=self.inputs.clean)
        self.overlay.settle()
        self._look_up_unstable(state, start, end)
        return LoadedLog(start, end, max(point, start), self.epochs, state, snapshots)

    def _look_up_unstable(self, state: ProducerState, start: int, end: int) -> None:
        """Look up the oldest undecided transaction; damage on the way fails the load.

        Source: Kafka `UnifiedLog.maybeIncrementFirstUnstableOffset`, `LocalLog.read`.
        """
        first = state.first_unstable_offset
        if first is None or max(first, start) >= end:
            return
        for base in self.from_offset(max(first, start)):
            with self.open(base) as segment:
                index = self._index(base)
                at = position_of(segment, index, max(first, start), self._inflates)
                if at is not None:
                    return

    def _truncate_epochs(self, end: int) -> None:
        """Every removal of an entry writes the file, even if the entry comes back.

        Source: Kafka `LeaderEpochFileCache.truncateFromStart`.
        """
        epochs, start = self.epochs, self.inputs.log_start_offset
        latest = epochs.latest
        changed = epochs.dirty or (latest is not None and latest.start_offset >= end)
        epochs.truncate_from_end(end)
        earliest = epochs.earliest
        changed = changed or (earliest is not None and earliest.start_offset <= start)
        epochs.truncate_from_start(start)
        if changed:
            self.put_epochs(epochs.entries, NOT_SAID)
        epochs.dirty = False


def _read_epochs(context: LoadContext) -> LeaderEpochs:
    """The epochs of the checkpoint, which a broker makes if it is missing."""
    overlay, name = context.overlay, EPOCHS
    if name not in overlay.files:
        overlay.create(name, _AS_BROKER)
        return LeaderEpochs()
    return LeaderEpochs(checkpoints.read_leader_epochs(overlay.files[name].source))


def _is_sane(context: LoadContext, base: int) -> bool:
    """Whether no entry of a transaction index ends before its segment.

    Source: Kafka `TransactionIndex.sanityCheck`, `AbortedTxn.version`.
    """
    data = context.overlay.read(file_of(base, TXNINDEX))
    starts = range(0, len(data) - TXN_ENTRY.size + 1, TXN_ENTRY.size)
    for at in starts:
        if 0 < data[at] < 128:
            raise CorruptIndexError(
                f"version {data[at]} of an aborted transaction is not known",
                path=context.path(base, TXNINDEX),
                position=at,
            ).as_kafka("KafkaException")
    # The last offset follows version, producer id and first offset.
    return all(int.from_bytes(data[at + 18 : at + 26], "big", signed=True) >= base for at in starts)


# ---- finding a place by the offset index, without checks -----------------------------------------


#: Takes the log file and the position of a compressed message of magic 0 or 1.
Inflates = Callable[[str, int], None]

#: The slots at the end of an index in which Kafka searches first.
_WARM_SLOTS: Final = 8192 // OFFSET_ENTRY.size
#: Ends of a walk for which Kafka's reader of files raises an error; it passes over a torn end.
RAISED: Final = (StopReason.BAD_LENGTH, StopReason.ZERO_TAIL)


def stored_position(entries: bytes, base_offset: int, offset: int) -> int:
    """The position that an offset index gives for `offset`, of any sign; 0 if no entry is before.

    Args:
        entries: the bytes of the index; those after the last whole entry are ignored.
        base_offset: the segment's base offset.
        offset: the offset to look up.

    Source: Kafka `OffsetIndex.lookup`.
    """
    count = len(entries) // OFFSET_ENTRY.size
    if not count:
        return 0
    relative = offset - base_offset
    low, high = 0, count - 1
    warm = max(0, count - 1 - _WARM_SLOTS)
    if _relative(entries, warm) < relative:
        low = warm
    elif _relative(entries, 0) > relative:
        return 0
    else:
        high = warm
    while low < high:
        middle = (low + high + 1) // 2
        middle_relative = _relative(entries, middle)
        if middle_relative > relative:
            high = middle - 1
        else:
            low = middle
            if middle_relative == relative:
                break
    position: int = OFFSET_ENTRY.unpack_from(entries, low * OFFSET_ENTRY.size)[1]
    return position


def _relative(entries: bytes, slot: int) -> int:
    relative: int = OFFSET_ENTRY.unpack_from(entries, slot * OFFSET_ENTRY.size)[0]
    return relative


def position_of(
    segment: Segment, entries: bytes, offset: int, inflates: Inflates | None = None
) -> int | None:
    """The position of the batch with `offset` or the next one, found from the index entry before.

    The first batch that begins at or past `offset` ends the walk, and only the one right before
    it may hold `offset`. Where offsets are out of order this is not the first that ends past it.

    Args:
        segment: the segment to read.
        entries: its offset index.
        offset: the offset to look up.
        inflates: receives each compressed message that is passed, which Kafka inflates to learn
            where its offsets begin.

    Raises:
        CorruptRecordError: a size before it is not that of a batch.

    Source: Kafka `LogSegment.translateOffset`, `FileRecords.searchForOffsetFromPosition`.
    """
    start = max(stored_position(entries, segment.base_offset, offset), 0)
    before: tuple[int, int] | None = None  # where the batch before begins, and its last offset
    for table in segment.headers(start=start, policy="file"):
        not_before = np.flatnonzero(table.base_offset >= offset)
        count = int(not_before[0]) if len(not_before) else len(table)
        if inflates is not None:
            for position in _compressed_messages(table, count + 1):
                inflates(str(segment.path), position)
        if count:
            before = int(table.position[count - 1]), int(table.last_offset[count - 1])
        if len(not_before):
            is_exact = int(table.base_offset[count]) == offset
            held = None if is_exact else _holding(before, offset)
            return int(table.position[count]) if held is None else held
    _check(table, segment)
    return _holding(before, offset)


def _compressed_messages(table: BatchTable, count: int) -> list[int]:
    """Positions of the compressed messages among the first `count` batches.

    Kafka takes a negative magic for an old one.
    """
    is_compressed = (table.magic < 2) & (table.codec != 0)
    positions: list[int] = table.position[:count][is_compressed[:count]].tolist()
    return positions


def _holding(batch: tuple[int, int] | None, offset: int) -> int | None:
    """The position of a batch (position, last offset) that ends at or past `offset`; else None."""
    return None if batch is None or batch[1] < offset else batch[0]


def next_offset(segment: Segment, entries: bytes, inflates: Inflates | None = None) -> int:
    """The offset after the last batch, as far as the index lets it be found.

    If the last entry points at a torn batch this is the base offset, whatever comes before it.

    Raises:
        CorruptRecordError: a size in between is not that of a batch.

    Source: Kafka `LogSegment.readNextOffset`.
    """
    count = len(entries) // OFFSET_ENTRY.size
    last = segment.base_offset + (_relative(entries, count - 1) if count else 0)
    start = position_of(segment, entries, last, inflates)
    end = segment.base_offset
    if start is None:
        return end
    for table in segment.headers(start=start, policy="file"):
        if len(table):
            end = table.end_offset
    _check(table, segment)
    return end


def feed_segment(
    state: ProducerState,
    segment: Segment,
    entries: bytes,
    end_offset: int,
    inflates: Inflates | None = None,
    *,
    holds_end: bool,
) -> None:
    """Process a segment's batches from `map_end_offset` on, up to `end_offset`.

    Args:
        state: changed in place, but for its `map_end_offset`.
        segment: the segment to read.
        entries: its offset index.
        end_offset: where to end.
        inflates: as for `position_of`.
        holds_end: whether `end_offset` belongs to this segment; if not, all batches are processed.

    Raises:
        InvalidTxnStateError, InvalidRecordError: a batch that no leader would have taken.
        KsegError: according to the index the end is before the start.
        CorruptRecordError: a size on the way is not that of a batch.

    Source: Kafka `UnifiedLog.rebuildProducerState`.
    """
    start = state.map_end_offset
    limit = position_of(segment, entries, end_offset, inflates) if holds_end else None
    position = position_of(segment, entries, start, inflates)
    if position is None:
        return
    limit = segment.size if limit is None else limit
    if limit < position:
        raise KsegError(
            f"its index leads to {limit} for the end at {end_offset}, before {position}",
            path=segment.path,
        )
    for table in segment.headers(start=position, limit=limit, policy="file"):
        state.feed(table)
        state.map_end_offset = start  # a feed moves it; that is left to the caller here
    _check(table, segment)


def _check(table: BatchTable, segment: Segment) -> None:
    if table.stop in RAISED:
        raise at_path(stop_error(table), segment.path)
