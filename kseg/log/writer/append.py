"""Appending to a log, as a leader that gives offsets or as a follower that keeps them.

There is one lane for usual appends. A kernel judges the batches and says where their bytes and
index entries go. Then the log writes them, updates the producer's entry, and lets readers see the
new end. Sound batches of data take the lane: plain and compressed, with and without a producer, as
long as the segment need not roll. For anything else the kernel answers None before a byte is
written. Then Kafka's steps follow one by one, and a refusal gets its own error.

These steps hand one value on. First the append is validated and compared with earlier batches of
its producers; nothing has changed yet. Then its epochs are made durable, the log rolls if
necessary, and the segment takes the bytes whole or not at all. After that the state in memory
changes, and readers see it last.

A refused append leaves no trace. Kafka takes the epoch and rolls before it checks the producers. An
append that a producer repeats is not refused: as in Kafka, it may bring a new epoch and a new
segment.

Source: Kafka `UnifiedLog.append`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from kseg._kernels.placement import Places
from kseg.constants import BATCH_BYTES, INT32_MAX, LOG_OVERHEAD, NO_TIMESTAMP, AppendOrigin, Buffer
from kseg.errors import InvalidRecordError, KsegError, OffsetOverflowError, RecordBatchTooLargeError
from kseg.files.checkpoints import EpochEntry, assign_epochs
from kseg.files.txn_index import AbortedTxn
from kseg.format.encode import (
    SOURCE_FIELDS,
    RecordSource,
    check_names,
    columns_of,
    encode_batches,
    rows_of,
)
from kseg.format.header import BatchTable, EncodedBatch, scan
from kseg.format.options import OptionsLike
from kseg.format.values import RecordColumns
from kseg.frames import ArrowStream, Frames, has_arrow
from kseg.log.producers.entry import OffsetMetadata, VerificationGuard
from kseg.log.producers.state import NOTHING, ProducerUpdate, WrittenBatch
from kseg.log.validate.append import validate_append, validate_replica
from kseg.log.validate.batches import check_end, check_rising, inflate_records, walk
from kseg.log.validate.rules import NOTHING_CONVERTED, AppendRules, ConversionStats, ValidatedBatch
from kseg.log.writer.flush import base_after, flush, roll
from kseg.log.writer.state import LogState

Batch = Buffer | EncodedBatch

#: Positions in a batch: the size after the offset, the magic.
_SIZE, _MAGIC = slice(8, 12), 16
#: Makes a named tuple in half the time of a normal call.
_tuple: Final = tuple.__new__
#: The origins whose batches come with offsets and epochs.
_KEEPING_OFFSETS: Final = (AppendOrigin.REPLICATION, AppendOrigin.RAFT_LEADER)


class AppendResult(NamedTuple):
    """The result of an append; -1 where a value is unknown. A tuple, since each append makes one.

    Attributes:
        first_offset, last_offset: the records' offsets; for a duplicate those of the first append.
        record_count: the number of records; -1 if only inflating would show it.
        valid_bytes: bytes that were written, or were there already.
        max_timestamp: the largest timestamp in ms.
        offset_of_max_timestamp: the last offset of the earliest batch that has it.
        log_append_time: the time of the append in ms, if records have that instead of their own;
            also the largest timestamp of the batch that a duplicate repeats, as in Kafka.
        log_start_offset: the first offset of the log that may be read.
        last_leader_epoch: the epoch of the last batch, if the batch came with it; else -1.
        duplicate: whether the producer had sent it before, so that nothing was written.
        stats: the cost of validation.
        trimmed_bytes: bytes of a follower's append after the written batches: an incomplete batch,
            or batches of a later epoch. Always 0 for a leader.
    """

    first_offset: int = -1
    last_offset: int = -1
    record_count: int = 0
    valid_bytes: int = 0
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: int = 0
    last_leader_epoch: int = -1
    duplicate: bool = False
    stats: ConversionStats = NOTHING_CONVERTED
    trimmed_bytes: int = 0


def merged(result: AppendResult, next_one: AppendResult) -> AppendResult:
    """Join the results of two appends in a row; a duplicate only if both are."""
    later = next_one.max_timestamp > result.max_timestamp
    counts = result.record_count, next_one.record_count
    return next_one._replace(
        first_offset=result.first_offset if result.first_offset >= 0 else next_one.first_offset,
        last_offset=next_one.last_offset if next_one.last_offset >= 0 else result.last_offset,
        record_count=-1 if min(counts) < 0 else sum(counts),
        valid_bytes=result.valid_bytes + next_one.valid_bytes,
        max_timestamp=next_one.max_timestamp if later else result.max_timestamp,
        offset_of_max_timestamp=(next_one if later else result).offset_of_max_timestamp,
        duplicate=result.duplicate and next_one.duplicate,
        stats=result.stats + next_one.stats,
        trimmed_bytes=result.trimmed_bytes + next_one.trimmed_bytes,
    )


def append_as_leader(
    state: LogState,
    data: Batch,
    leader_epoch: int | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    guard: VerificationGuard | None = None,
    transaction_version: int = 0,
) -> AppendResult:
    """Validate one append, give it offsets, and write it; a Raft leader's append keeps its own.

    Args:
        state: the log.
        data: one batch of magic 2, or messages of magic 0 or 1, all of them whole. Empty data
            appends nothing. Offsets in bytes count from 0, as producers send them; an
            `EncodedBatch` may start at any offset.
        leader_epoch: this leader's epoch; None for the log's latest, or 0 if it has none.
        origin: where the batches come from.
        guard, transaction_version: see `ProducerState.prepare`.

    Raises:
        ValueError: the epoch is negative, or `origin` is a follower.
        KsegError: as `validate_append` and `ProducerState.prepare` say; nothing has changed.
        RecordBatchTooLargeError: it is larger than a segment.
        OSError: the disk refuses; the log ends where it did, in the epochs it had, or has failed.
        PoisonedFileError: the log failed before.

    Source: Kafka `UnifiedLog.appendAsLeader`.
    """
    if origin is AppendOrigin.REPLICATION:
        raise ValueError("a follower appends by append_as_follower")
    if leader_epoch is not None and leader_epoch < 0:
        raise ValueError(f"leader_epoch is 0 or more, not {leader_epoch}")
    view = _caller_bytes(data, origin)
    with state.lock:
        state.check()
        if not len(view):
            return nothing_appended(state)
        if leader_epoch is None:
            entries = state.epochs.entries
            leader_epoch = entries[-1].epoch if entries else 0
        rules, now_ms = state.rules_for(origin, leader_epoch), state.now_ms()
        done = _lead_as_usual(state, view, rules, now_ms)
        if done is not None:
            return done
        batch = validate_append(view, rules, next_offset=state.log_end.offset, now_ms=now_ms)
        return _append(state, batch, leader_epoch, origin, now_ms, guard, transaction_version)


def append_all(
    state: LogState,
    batches: Iterable[Batch],
    leader_epoch: int | None,
    origin: AppendOrigin,
    guard: VerificationGuard | None,
    transaction_version: int,
) -> AppendResult:
    """Append batches one by one, with no other append between; one result for all of them.

    Takes the arguments of `append_as_leader`. Each batch is judged once the batches before it are
    in the log, and they stay there if it is refused.
    """
    result = None
    with state.lock:
        state.check()
        for batch in batches:
            appended = append_as_leader(
                state, batch, leader_epoch, origin, guard, transaction_version
            )
            result = appended if result is None else merged(result, appended)
    return nothing_appended(state) if result is None else result


def append_as_follower(
    state: LogState, data: Batch, leader_epoch: int | None = None
) -> AppendResult:
    """Write batches as a leader has them, with their own offsets and epochs.

    Args:
        state: the log.
        data: batches, rising; an incomplete one at the end, as fetches have it, is left out. Empty
            data appends nothing.
        leader_epoch: the epoch of the fetch that got them; batches from a later epoch on
            are left out. None to write all.

    Returns:
        The result; `trimmed_bytes` counts bytes that were left out.

    Raises:
        UnexpectedAppendOffsetError: they begin before the log's end.
        OffsetsOutOfOrderError: one of them overlaps the one before it, which Kafka accepts.
        InvalidRecordError: a batch of magic 2 has no epoch.
        OffsetOverflowError: they lie too far apart for one segment.
        KsegError: as `validate_replica` and `ProducerState.prepare` say; nothing has changed.
        RecordBatchTooLargeError: they are larger than a segment.
        OSError: the disk refuses; the log ends where it did, in the epochs it had, or has failed.
        PoisonedFileError: the log failed before.

    Source: Kafka `UnifiedLog.appendAsFollower`.
    """
    view = _immutable_bytes(data)
    given_bytes = len(view)
    with state.lock:
        state.check()
        done = _follow_as_usual(state, view, leader_epoch)
        if done is not None:
            return done
        if leader_epoch is not None:
            view = _up_to_epoch(view, leader_epoch)
        if _is_incomplete(view):
            return nothing_appended(state, given_bytes)
        rules = state.rules_for(AppendOrigin.REPLICATION, 0)
        batch = validate_replica(view, rules, next_offset=state.log_end.offset)
        now_ms = state.now_ms()
        done = _append(state, batch, -1, rules.origin, now_ms, None, 0)
        left_out = given_bytes - done.valid_bytes
        return done._replace(trimmed_bytes=left_out) if left_out else done


def nothing_appended(state: LogState, trimmed_bytes: int = 0) -> AppendResult:
    """The result if there is no whole batch; there may be the beginning of one."""
    return AppendResult(log_start_offset=state.log_start_offset, trimmed_bytes=trimmed_bytes)


# ---- the lane ------------------------------------------------------------------------------------


def _lead_as_usual(
    state: LogState, view: memoryview, rules: AppendRules, now_ms: int
) -> AppendResult | None:
    """Append one sound batch that gets its offsets; returns None, nothing done, if unusual."""
    entries, first = state.epochs.entries, state.log_end.offset
    if not entries or entries[-1].epoch != rules.leader_epoch:
        return None
    if rules.origin is AppendOrigin.RAFT_LEADER:
        return None
    places, producers = state.active.places(state.roll_ms), state.producers.unguarded
    if places is None:
        return None
    placement = places.lead(view, rules, first, now_ms, producers, inflate_records)
    if placement is None:
        return None
    (head, records, last, latest, latest_at, appended_ms, inflated_bytes), batches = placement
    size, start = len(view), state.log_start_offset
    cost = ConversionStats(inflated_bytes) if inflated_bytes else NOTHING_CONVERTED
    # The fields of AppendResult, in its order.
    answer = first, last, records, size, latest, latest_at, appended_ms, start, -1, False, cost, 0
    _write(state, places, (head, view[len(head) :]), size, last + 1, batches, now_ms)
    return _tuple(AppendResult, answer)


def _follow_as_usual(
    state: LogState, view: memoryview, leader_epoch: int | None
) -> AppendResult | None:
    """Append sound batches that keep their offsets; returns None, nothing done, if unusual."""
    entries = state.epochs.entries
    if not entries:
        return None
    epoch = entries[-1].epoch
    if leader_epoch is not None and leader_epoch < epoch:
        return None
    places, producers = state.active.places(state.roll_ms), state.producers.unguarded
    if places is None:
        return None
    placement = places.follow(view, state.log_end.offset, epoch, producers)
    if placement is None:
        return None
    first, last, records, latest, latest_at, batches = placement
    size, start, none, cost = len(view), state.log_start_offset, NO_TIMESTAMP, NOTHING_CONVERTED
    # The fields of AppendResult, in its order.
    answer = first, last, records, size, latest, latest_at, none, start, epoch, False, cost, 0
    _write(state, places, (view,), size, last + 1, batches, None)
    return _tuple(AppendResult, answer)


def _write(
    state: LogState,
    places: Places,
    parts: Sequence[Buffer],
    size: int,
    end: int,
    batches: list[WrittenBatch] | None,
    now_ms: int | None,
) -> None:
    """Write, update the producers, let readers see the append, and flush if that is due.

    As much as possible is done before the write: after it, the processor's caches hold little.

    Args:
        state: the log.
        places: the placement in the active segment, from `lead` or `follow`.
        parts: the bytes of the append, to be joined.
        size: their number.
        end: the log's end offset afterwards.
        batches: the producers' batches, as the kernel returns them; None if no producer has any.
        now_ms: the time; None to ask the clock, if it matters.
    """
    _offset, base, position = state.log_end
    log_end = _tuple(OffsetMetadata, (end, base, position + size))
    version, due = state.usual_version(log_end), state.is_flush_due(end, now_ms)
    try:
        state.active.write(places, parts, size)
        if batches is not None and state.producers.take(batches, base):
            version = None  # a transaction began
        state.advance(log_end, version)
    except BaseException as error:
        _give_up(state, error)
        raise
    if due:
        flush(state)


# ---- input ---------------------------------------------------------------------------------------


def _caller_bytes(data: Batch, origin: AppendOrigin) -> memoryview:
    """The bytes; offsets of encoded batches are set to count from 0, as a producer sends them."""
    if not isinstance(data, EncodedBatch):
        return _immutable_bytes(data)
    if origin is AppendOrigin.CLIENT and data.magic >= 2 and data.base_offset:
        return memoryview(bytes(_SIZE.start) + data.data[_SIZE.start :])
    return _immutable_bytes(data)


def _immutable_bytes(data: Batch) -> memoryview:
    """The bytes, copied if their owner may change them: the checked bytes are written."""
    if type(data) is bytes:
        return memoryview(data)
    view = memoryview(data.data if isinstance(data, EncodedBatch) else data)
    return memoryview(bytes(view)) if type(view.obj) is not bytes else view.cast("B")


def _is_incomplete(view: memoryview) -> bool:
    """Whether the bytes are only the beginning of a batch, so that nothing is to be written."""
    size = len(view)
    if size > _MAGIC:
        length = int.from_bytes(view[_SIZE], "big", signed=True)
        if length <= size - LOG_OVERHEAD:
            return False
    check_end(walk(view, verify=False), size)
    return True


def _up_to_epoch(view: memoryview, leader_epoch: int) -> memoryview:
    """The batches before the first one of a later epoch."""
    table = scan(view, on_bad_crc="ignore")
    later = np.flatnonzero(table.leader_epoch > leader_epoch)
    return view[: int(table.position[later[0]])] if len(later) else view


# ---- judging -------------------------------------------------------------------------------------


def headers_and_epochs(
    entries: tuple[EpochEntry, ...], batch: ValidatedBatch, leader_epoch: int
) -> tuple[BatchTable, int, tuple[EpochEntry, ...]]:
    """The headers of a validated append, its first offset, and the log's epochs after it.

    Args:
        entries: the log's epochs.
        batch: the append. A batch that keeps its offsets brings its epochs, and is refused if a
            recovery would cut the log between its batches.
        leader_epoch: the epoch of any other append.

    Returns:
        Positions of the headers count from any start. The first offset is -1 where messages would
        have to be inflated to find it.
    """
    table = batch.table
    if table is None:
        table = walk(batch.to_bytes(), verify=False)
        epoch = leader_epoch if int(table.magic[0]) >= 2 else -1
        return table, batch.first_offset, _with_epoch(entries, epoch, batch.first_offset)
    check_rising(table, batch.first_offset - 1)
    first = batch.first_offset if int(table.magic[0]) >= 2 else -1
    return table, first, epochs_with(entries, table)


def epochs_with(entries: tuple[EpochEntry, ...], table: BatchTable) -> tuple[EpochEntry, ...]:
    """The epochs of a log with those of new batches; magic 0 and 1 remove all of them.

    Raises:
        InvalidRecordError: a batch of magic 2 has none.

    Source: Kafka `UnifiedLog.assignEpochStartOffset`.
    """
    epochs = table.leader_epoch
    if table.magics_seen & 0b11:
        epochs = np.where(table.magic < 2, -1, epochs)
    elif entries and (epochs == entries[-1].epoch).all():
        return entries
    elif (epochs < 0).any():
        raise InvalidRecordError("a batch of magic 2 that has no leader epoch")
    for row in np.flatnonzero(
        np.diff(epochs, prepend=-2)
    ).tolist():  # -2 is below all: row 0 counts
        entries = _with_epoch(entries, int(epochs[row]), int(table.base_offset[row]))
    return entries


def _with_epoch(entries: tuple[EpochEntry, ...], epoch: int, offset: int) -> tuple[EpochEntry, ...]:
    """Add an epoch that begins at an offset; removes all epochs if it is -1, as for magic 0, 1."""
    if epoch < 0:
        return ()
    if entries and entries[-1].epoch == epoch:
        return entries
    return assign_epochs((*entries, EpochEntry(epoch, offset)))


def new_base(
    state: LogState, batch: ValidatedBatch, first: int, size: int, now_ms: int
) -> int | None:
    """The base offset of the segment that the append needs; None if it fits the active one.

    Where the first offset is unknown (-1), the lowest one that the segment can have beside the last
    offset stands for it, as in Kafka.

    Source: Kafka `UnifiedLog.maybeRoll`.
    """
    if not state.active.should_roll(
        now_ms=now_ms,
        max_timestamp=batch.max_timestamp,
        messages_bytes=size,
        largest_offset=batch.last_offset,
        segment_ms=state.roll_ms,
    ):
        return None
    return base_after(state, first if first >= 0 else batch.last_offset - INT32_MAX)


# ---- epochs, rolls, producers, bytes -------------------------------------------------------------


def _append(
    state: LogState,
    batch: ValidatedBatch,
    leader_epoch: int,
    origin: AppendOrigin,
    now_ms: int,
    guard: VerificationGuard | None,
    transaction_version: int,
) -> AppendResult:
    """Check with the producers, roll if the batch does not fit, write, and let readers see it."""
    before, size = state.epochs.entries, len(batch)
    table, first, epochs = headers_and_epochs(before, batch, leader_epoch)
    if size > state.config.segment_bytes:
        reason = f"an append of {size} bytes, a segment holds {state.config.segment_bytes}"
        raise RecordBatchTooLargeError(reason)
    ask = partial(
        state.producers.prepare,
        table,
        origin=origin,
        guard=guard,
        transaction_version=transaction_version,
    )
    update = ask(segment_base_offset=state.active.base_offset, position=state.active.size)
    if first >= 0 and batch.last_offset - first > INT32_MAX:
        reason = f"it has no 32-bit form relative to {first}, with which the append begins"
        raise OffsetOverflowError(reason, path=state.path, offset=batch.last_offset)
    base = new_base(state, batch, first, size, now_ms)
    if base is not None:
        update = ask(segment_base_offset=base, position=0)
    # Nothing is refused any more.
    try:
        if epochs != before:
            state.epochs.replace(epochs)
        if base is not None:
            roll(state, base)
    except (OSError, KsegError):
        _restore_epochs(state, before)
        raise
    answer = AppendResult(
        batch.first_offset,
        batch.last_offset,
        batch.record_count,
        size,
        batch.max_timestamp,
        batch.offset_of_max_timestamp,
        batch.log_append_time,
        state.log_start_offset,
        int(table.leader_epoch[-1]) if origin in _KEEPING_OFFSETS else -1,
        False,
        batch.stats,
    )
    sent = update.duplicate
    if sent is not None:  # its producer has sent it before
        return answer._replace(
            first_offset=sent.first_offset,
            last_offset=sent.last_offset,
            log_append_time=sent.timestamp,
            last_leader_epoch=-1,
            duplicate=True,
        )
    try:
        state.active.append(batch.parts(), table)
        _commit(state, update, batch.next_offset)
    except BaseException as error:
        _give_up(state, error)
        _restore_epochs(state, before)
        raise
    if state.is_flush_due(batch.next_offset, now_ms):
        flush(state)
    return answer


def _restore_epochs(state: LogState, epochs: tuple[EpochEntry, ...]) -> None:
    """Restore the epochs from before a refused append, unless the log has failed with it."""
    if not state.failed and state.epochs.entries is not epochs:
        state.epochs.restore(epochs)


def _commit(state: LogState, update: ProducerUpdate, end: int) -> None:
    """Update the log after written bytes: its end, producers, transactions; readers see it then.

    Source: Kafka `UnifiedLog.updateLogEndOffset`, `ProducerStateManager.update`.
    """
    producers, segment = state.producers, state.active
    log_end = OffsetMetadata(end, segment.base_offset, segment.size)
    for transaction in producers.commit(update):
        if transaction.aborted:
            producer_id, first, last, _aborted = transaction
            stable = producers.last_stable_offset(transaction)
            segment.txn_index.append(AbortedTxn(producer_id, first, last, stable))
        producers.complete(transaction)
    state.advance(log_end, state.usual_version(log_end) if update is NOTHING else None)


def _give_up(state: LogState, error: BaseException) -> None:
    """Mark the log as failed, because of `error`, if it is not as it was before the append.

    Bytes that reached the file without being announced stay there: a load finds them, and rebuilds
    the missing files beside them. After an interrupt their size is unknown.
    """
    segment, announced = state.active, state.version.log_end.position
    if segment.poisoned or segment.size != announced or not isinstance(error, Exception):
        state.fail(error)


_WANTED = (
    'append takes batches, or records: a frame, {"value": ["text"]}, or a list of dicts or pairs'
)


def batches_of(
    source: Batch | Iterable[Batch] | RecordSource | Iterable[RecordColumns] | ArrowStream,
    options: OptionsLike | None,
    batch_bytes: int | None,
    clock: Callable[[], int],
) -> Iterable[Batch]:
    """The batches of `source`, or batches made from its records: without offsets, and with times.

    Args:
        source: the argument of `Log.append`.
        options: options of new batches; None for `BatchOptions()`.
        batch_bytes: the size of new batches, as for `encode_batches`; None for its default.
        clock: gives the time of records that have none.

    Raises:
        TypeError: it is neither; or options are given for batches, which have their own.
        ValueError, InvalidRecordError: as `encode_batches`, some only when their batch is due.
    """
    frame = has_arrow(source) and not isinstance(source, Frames)
    if isinstance(source, (str, bytes, bytearray, memoryview, EncodedBatch)) or not (
        frame or isinstance(source, (Iterable, RecordColumns))
    ):
        raise TypeError(f"{_WANTED}{_but_not(source)}")
    if not frame and not isinstance(source, (RecordColumns, Mapping)):
        assert isinstance(source, Iterable)
        items: Iterator[Any] = iter(source)
        first = next(items, None)
        if first is None:
            return ()
        source = chain((first,), items)
        if isinstance(first, str):
            raise TypeError(f"{_WANTED}, not a list of texts")
        if not isinstance(first, (tuple, list, Mapping, RecordColumns)):
            if options is not None or batch_bytes is not None:
                raise TypeError("options and batch_bytes are for records; batches have their own")
            return source
    encoded = partial(_encode_columns, options=options, batch_bytes=batch_bytes, clock=clock)
    return chain.from_iterable(map(encoded, pieces_of(source)))


def pieces_of(source: Any, names: Mapping[str, str] | None = None) -> Iterator[Mapping[str, Any]]:
    """Records in any form as columns, a piece at a time.

    Args:
        source: a table or frame of another library, columns, a list of records, or columns of kseg.
        names: field -> the name of its column; None if columns have the names of fields.

    Raises:
        TypeError, ValueError: it has none of these forms, or its columns do not match.
    """
    if isinstance(source, RecordColumns):
        arrays = {name: source.arrays[name] for name in SOURCE_FIELDS if name in source.arrays}
        yield arrays if names is None else _rename_columns(arrays, names)
    elif has_arrow(source) and not isinstance(source, Frames):
        from kseg.arrow import from_arrow

        for columns in from_arrow(source, names, check=partial(check_names, names=names)):
            yield from pieces_of(columns)
    elif isinstance(source, Mapping):
        yield source if names is None else _rename_columns(source, names)
    else:
        items: Iterator[Any] = iter(source if isinstance(source, Iterable) else columns_of(source))
        first = next(items, None)
        if isinstance(first, RecordColumns):
            for columns in chain((first,), items):
                yield from pieces_of(columns, names)
        elif first is not None:
            yield from pieces_of(columns_of(chain((first,), items)), names)


def _rename_columns(fields: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    """The columns of a caller, keyed by the names of fields; they must have the same length."""
    renamed = {
        name: fields[column_name] for name, column_name in names.items() if column_name in fields
    }
    if len({len(column) for column in renamed.values()}) != 1:
        sizes = ", ".join(f"{names[name]}: {len(column)}" for name, column in renamed.items())
        choices = ", ".join(names.values())
        raise ValueError(f"columns of one length, out of {choices}, are wanted; not {{{sizes}}}")
    check_names(list(fields), names)
    return renamed


def _but_not(source: object) -> str:
    if isinstance(source, (bytes, bytearray, memoryview, EncodedBatch)):
        return "; options are for records"
    return f", not {type(source).__name__}"


def _encode_columns(
    columns: Mapping[str, Any],
    options: OptionsLike | None,
    batch_bytes: int | None,
    clock: Callable[[], int],
) -> Iterator[EncodedBatch]:
    """Encode columns as batches; their offsets are ignored, since the log assigns new ones."""
    without_offsets = {name: column for name, column in columns.items() if name != "offset"}
    rows = rows_of(without_offsets, timestamp_ms=clock())
    return encode_batches(rows, options, batch_bytes=batch_bytes or BATCH_BYTES)
