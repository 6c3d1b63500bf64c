"""A log as Kafka 4.2.0 loads it, step by step, its silence and its mistakes included.

Nothing is added and nothing is made better: a torn tail under a clean mark stays and hides what
lies in front of it, a garbled index leads to wherever it points, and what a load fails on is
raised. Left out is what nothing stored depends on, and what no look at the headers tells:

- the room that a broker takes in advance: indexes of full size beside the last segment, and under
  `preallocate` the zeros of a new log; what is left here is as after a clean stop;
- a batch that counts as a compressed message because its magic byte was flipped: Kafka inflates it
  to learn its offset, and may fail over that;
- segments of negative offsets.

Source: Kafka `LogLoader`, `LogSegment.sanityCheck`, `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from kseg.constants import NO_TIMESTAMP, StopReason
from kseg.errors import (
    CorruptIndexError,
    OffsetsOutOfOrderError,
)
from kseg.files import checkpoints
from kseg.files.grammar import offset_from_file_name
from kseg.files.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from kseg.files.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from kseg.files.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from kseg.log import epochs as leader_epochs
from kseg.log.epochs import LeaderEpochs
from kseg.log.producers.snapshots import rebuild
from kseg.log.recovery import raw_lookups, split
from kseg.log.recovery.load_context import (
    DELETE_SUFFIX,
    INDEX,
    INDEX_SUFFIXES,
    LOG,
    TIMEINDEX,
    TXNINDEX,
    LoadContext,
    LoadedLog,
    file_of,
)
from kseg.log.recovery.plan import CutPlace
from kseg.log.recovery.sweep import Swept, check_followed, sweep_segment
from kseg.log.recovery.temporary_files import clear
from kseg.log.segment.index_entries import Latest

if TYPE_CHECKING:
    from kseg.log.producers.snapshots import SnapshotFiles
    from kseg.log.producers.state import ProducerState
    from kseg.log.segment.reader import Segment

_AS_BROKER: Final = "as a broker does"


def load(context: LoadContext) -> tuple[LoadedLog, tuple[str, ...]]:
    """Take all steps; answers the log and the names of leftovers.

    Raises:
        KsegError: Kafka fails to load the log.
        OSError: the disk refuses.
    """
    context.epochs = _read_epochs(context)
    room = context.inputs.config.segment_index_bytes // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES
    leftovers = clear(context.overlay, as_broker=True, index_bytes=room)
    split.retried(context, lambda: _find(context))
    if context.overlay.directory.name.endswith(DELETE_SUFFIX):
        if not context.bases:
            _begin_at(context, 0)
        end, point = 0, 0
    else:
        end, point = split.retried(context, lambda: _recover(context))
        _check_room(context)
    return _finish(context, end, point), leftovers


def _read_epochs(context: LoadContext) -> LeaderEpochs:
    overlay, name = context.overlay, leader_epochs.FILE_NAME
    if name not in overlay.files:
        overlay.create(name, _AS_BROKER)
        return LeaderEpochs(None)
    return LeaderEpochs(None, checkpoints.read_leader_epochs(overlay.files[name].source).effective)


# ---- which segments there are --------------------------------------------------------------------


def _find(context: LoadContext) -> None:
    """Source: Kafka `LogLoader.loadSegmentFiles`."""
    context.bases.clear()
    overlay = context.overlay
    for name in overlay.names():
        if name.endswith(INDEX_SUFFIXES):
            base = offset_from_file_name(name)
            if file_of(base, LOG) not in overlay.files:
                overlay.remove(name, "an index without its log", keep=True)
        elif name.endswith(f".{LOG}"):
            _check(context, offset_from_file_name(name))
    overlay.settle()


def _check(context: LoadContext, base: int) -> None:
    """Source: Kafka `LogSegment.sanityCheck`."""
    overlay = context.overlay
    if file_of(base, LOG) not in overlay.files:
        overlay.settle()
        overlay.create(file_of(base, LOG), _AS_BROKER)
    times = file_of(base, TIMEINDEX)
    if file_of(base, INDEX) not in overlay.files:
        _recover_segment(context, base, "its offset index is missing")
    else:
        if times not in overlay.files:
            overlay.put(times, b"", "an empty one in place of none")
        if file_of(base, TXNINDEX) in overlay.files and not _is_sane(context, base):
            _recover_segment(context, base, "its transaction index is corrupt")
    context.add(base)


def _is_sane(context: LoadContext, base: int) -> bool:
    """Source: Kafka `TransactionIndex.sanityCheck`, `AbortedTxn.version`."""
    data = context.overlay.read(file_of(base, TXNINDEX))
    starts = range(0, len(data) - TXN_ENTRY_BYTES + 1, TXN_ENTRY_BYTES)
    for at in starts:
        if 0 < data[at] < 128:
            raise CorruptIndexError(
                f"version {data[at]} of an aborted transaction is not known",
                path=context.path(base, TXNINDEX),
                position=at,
            )
    return all(int.from_bytes(data[at + 18 : at + 26], "big", signed=True) >= base for at in starts)


# ---- recovery ------------------------------------------------------------------------------------


def _recover_segment(context: LoadContext, base: int, why: str) -> Swept:
    """Walk a segment, cut it and make what follows from it anew; while segments are being found.

    Source: Kafka `LogLoader.recoverSegment`.
    """
    context.note(base)
    state, snapshots = _state_at(context, base)
    swept = _swept(context, base, state)
    if swept.error is not None:
        raise swept.error
    if file_of(base, INDEX) in context.overlay.files:
        # It comes back last of all, and says until then that there is work to be done.
        context.overlay.remove(file_of(base, INDEX), why, keep=False)
        context.overlay.settle()
    _cut(context, swept, why)
    if context.epochs.dirty:
        context.put_epochs(context.epochs.entries, "not what the log says")
    snapshots.take(state)
    context.overlay.settle()
    context.install(swept, why)
    return swept


def _swept(context: LoadContext, base: int, state: ProducerState) -> Swept:
    if not context.size(base):
        # Also that beside a log of a negative offset, of which nothing else wants to know.
        latest = Latest(NO_TIMESTAMP, base)
        return Swept(base, 0, 0, StopReason.END, None, (), base, latest, b"", b"", (), 0, 0)
    with context.open(base) as segment:
        swept = sweep_segment(
            segment,
            config=context.inputs.config,
            producers=state,
            epochs=context.epochs,
            as_broker=True,
        )
    context.walked(base, swept.size)
    return swept


def _state_at(context: LoadContext, base: int) -> tuple[ProducerState, SnapshotFiles]:
    """Producers as of a segment's base offset, from the segments found so far."""
    state, snapshots = context.new_state(), context.same_snapshots()
    _rebuild(context, state, snapshots, context.inputs.log_start_offset, base, clean=False)
    return state, snapshots


def _rebuild(
    context: LoadContext,
    state: ProducerState,
    snapshots: SnapshotFiles,
    log_start_offset: int,
    end_offset: int,
    *,
    clean: bool,
) -> None:
    at = bisect_right(context.bases, end_offset)
    floor = context.bases[at - 1] if at else None

    def feed(state: ProducerState, segment: Segment, end: int, _on_error: object) -> None:
        base = segment.base_offset
        entries = _index(context, base)
        raw_lookups.feed_segment(state, segment, entries, end, holds_end=base == floor)

    rebuild(
        state,
        snapshots,
        context.sources(),
        log_start_offset=log_start_offset,
        end_offset=end_offset,
        now_ms=context.inputs.now_ms,
        clean=clean,
        magic=context.inputs.config.message_format_magic,
        feed=feed,
    )


def _index(context: LoadContext, base: int) -> bytes:
    """A segment's offset index as it lies; none if nobody has held it, which leads to the start."""
    name = file_of(base, INDEX)
    if context.held is not None and context.held[0] == base:
        return context.held[1]
    return context.overlay.read(name) if name in context.overlay.files else b""


def _cut(context: LoadContext, swept: Swept, why: str) -> None:
    if swept.truncated_bytes:
        context.cut_log(swept.base_offset, swept.valid_bytes, swept.next_offset, why)


def _recover(context: LoadContext) -> tuple[int, int]:
    """The log's end and recovery point.

    Source: Kafka `LogLoader.recoverLog`.
    """
    inputs = context.inputs
    if not inputs.clean:
        _recover_unflushed(context)
    if context.bases:
        end = _next_offset(context)
        if end >= inputs.log_start_offset:
            return end, end if inputs.clean else min(inputs.recovery_point, end)
        _begin_anew(context)
    if not context.bases:
        _begin_at(context, inputs.log_start_offset)
    end = _next_offset(context)
    return end, min(inputs.recovery_point, end)


def _recover_unflushed(context: LoadContext) -> None:
    """Every segment from the recovery point on, up to the first that loses bytes."""
    why = "it may not have been flushed"
    todo = context.from_offset(context.inputs.recovery_point)
    context.to_walk_bytes += sum(map(context.size, todo))
    for number, base in enumerate(todo):
        state, snapshots = _state_at(context, base)
        swept = _swept(context, base, state)
        refused = isinstance(swept.error, OffsetsOutOfOrderError)
        if swept.error is not None and not refused:
            raise swept.error
        gone = context.size(base) if refused else swept.truncated_bytes
        if gone:
            context.drop(todo[number + 1 :], "it follows a segment that was cut")
        if refused:
            _empty(context, swept)
        else:
            _cut(context, swept, "no sound batch follows")
            snapshots.take(state)
            context.install(swept, why)
        if gone:
            return


def _empty(context: LoadContext, swept: Swept) -> None:
    """A segment whose offsets cannot be indexed is emptied.

    Source: Kafka `LogLoader.recoverLog`, which catches `InvalidOffsetException`.
    """
    base, why = swept.base_offset, "offsets out of order"
    context.cut_log(base, 0, base, why)
    for kind in (TXNINDEX, TIMEINDEX, INDEX):
        name = file_of(base, kind)
        if name in context.overlay.files or kind != TXNINDEX or swept.aborted:
            context.overlay.put(name, b"", why)
    context.held = (base, b"")
    context.outcome(base, 0, 0, 0, why)


def _next_offset(context: LoadContext) -> int:
    base = context.bases[-1]
    with context.open(base) as segment:
        end = raw_lookups.next_offset(segment, _index(context, base))
    check_followed(end, context.path(base))
    return end


def _begin_anew(context: LoadContext) -> None:
    """The log ends in front of its start: nothing of it stays.

    Source: Kafka `LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd`.
    """
    context.epochs.clear()
    context.put_epochs((), "the log begins anew")
    context.epochs.dirty = False
    start = context.inputs.log_start_offset
    if context.cut is None:
        context.cut = CutPlace(context.path(start), 0, start)
    context.drop(list(context.bases), "the log ends in front of its start")
    context.snapshots().truncate_fully_and_start_at(context.new_state(), start)
    context.overlay.settle()


def _begin_at(context: LoadContext, base: int) -> None:
    """Source: Kafka `LogSegment.open`, `LogSegment.resizeIndexes`."""
    context.begin_at(base, "the first segment")
    for kind in (INDEX, TIMEINDEX):
        context.overlay.put(file_of(base, kind), b"", "the first segment")


def _check_room(context: LoadContext) -> None:
    """The indexes of the last segment get their full size, which they must not exceed.

    Source: Kafka `AbstractIndex.resize`.
    """
    base, room = context.bases[-1], context.inputs.config.segment_index_bytes
    for kind, entry in ((INDEX, OFFSET_ENTRY_BYTES), (TIMEINDEX, TIME_ENTRY_BYTES)):
        name = file_of(base, kind)
        size = context.overlay.size(name) if name in context.overlay.files else 0
        # One whose bytes are nobody's is as large as its entries.
        if size != room // entry * entry and size // entry > room // entry:
            raise CorruptIndexError(
                f"{size} bytes do not go into an index of {room}", path=context.overlay.path(name)
            )


# ---- the end -------------------------------------------------------------------------------------


def _finish(context: LoadContext, end: int, point: int) -> LoadedLog:
    """Epochs, snapshots and producers as of the log's end."""
    inputs = context.inputs
    start = max(inputs.log_start_offset, context.bases[0])
    _end_epochs(context, end)
    snapshots = context.snapshots()
    snapshots.remove_stray(context.bases)
    state = context.new_state()
    _rebuild(context, state, snapshots, start, end, clean=inputs.clean)
    context.overlay.settle()
    return LoadedLog(start, end, max(point, start), context.epochs, state, snapshots)


def _end_epochs(context: LoadContext, end: int) -> None:
    """Whatever removes an entry has the file written, even if it comes back.

    Source: Kafka `LeaderEpochFileCache.truncateFromStart`.
    """
    epochs, start = context.epochs, context.inputs.log_start_offset
    latest = epochs.latest
    changed = epochs.dirty or (latest is not None and latest.start_offset >= end)
    epochs.truncate_from_end(end)
    earliest = epochs.earliest
    changed = changed or (earliest is not None and earliest.start_offset <= start)
    epochs.truncate_from_start(start)
    if changed:
        context.put_epochs(epochs.entries, "not what the log says")
    epochs.dirty = False


__all__ = ["load"]
