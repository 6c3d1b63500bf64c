"""Appending to a log, as a leader who gives offsets or as a follower who keeps them.

Each step hands one value to the next: what is given is validated and producers are asked, before
anything changes. Then its epochs are on the disk before it, the log rolls if it has to, and the
segment takes the bytes whole or not at all. Only then does anything in memory change, and readers
see it last.

What is refused leaves no trace, where Kafka has taken the epoch and rolled before it asks the
producers. An append that a producer repeats is not refused: as in Kafka, it may bring a new epoch
and a new segment.

Source: Kafka `UnifiedLog.append`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kseg.constants import LOG_OVERHEAD
from kseg.errors import (
    InvalidRecordError,
    KsegError,
    OffsetOverflowError,
    RecordBatchTooLargeError,
)
from kseg.files.checkpoints import EpochEntry, assign_epochs
from kseg.files.txn_index import AbortedTxn
from kseg.format.encoded import EncodedBatch
from kseg.format.header import CONTROL, BatchHeader, BatchTable, scan
from kseg.log.producers.entry import BatchDescriptor, OffsetMetadata
from kseg.log.producers.state import NOTHING, ProducerUpdate
from kseg.log.validate.append import validate_append, validate_replica
from kseg.log.validate.batches import check_end, check_rising, walk
from kseg.log.validate.rules import AppendOrigin, ValidatedBatch
from kseg.log.writer.append_result import AppendResult, merged
from kseg.log.writer.flush import base_after, roll
from kseg.log.writer.one_batch import OneBatch, one_batch
from kseg.log.writer.plain_append import flush_if_due, follow_plain, give_up, lead_plain
from kseg.log.writer.replicas import take_replica, take_replicas

if TYPE_CHECKING:
    from kseg.log.producers.verification import VerificationGuard
    from kseg.log.segment.writer import SegmentWriter
    from kseg.log.validate.rules import ValidationMetrics
    from kseg.log.writer.state import LogState

    Buffer = bytes | bytearray | memoryview

_INT32_MAX: Final = 2**31 - 1
#: Where things lie in a batch: the size behind the offset, the magic, the producer id.
_SIZE, _MAGIC, _PRODUCER_ID = slice(8, 12), 16, 43


#: Who brings offsets and epochs.
_KEEPING_OFFSETS: Final = (AppendOrigin.REPLICATION, AppendOrigin.RAFT_LEADER)


class Accepted(NamedTuple):
    """An append that was validated: all that the log itself has to know of it.

    Attributes:
        batch: its bytes and offsets.
        table: its headers, positions counted from wherever; None for one batch without a producer.
        first_offset: -1 where messages would have to be inflated to tell.
        leader_epoch: of the last batch; -1 for a message of magic 0 or 1.
    """

    batch: ValidatedBatch
    table: BatchTable | BatchHeader | None
    first_offset: int
    leader_epoch: int


def append_as_leader(
    state: LogState,
    data: Buffer | EncodedBatch,
    leader_epoch: int | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    guard: VerificationGuard | None = None,
    transaction_version: int = 0,
    *,
    metrics: ValidationMetrics | None = None,
) -> AppendResult:
    """Validate one append, give it offsets, and write it; a Raft leader's keeps its own.

    Args:
        state: the log.
        data: one batch of magic 2, or messages of magic 0 or 1, all of them whole. Nothing is done
            for no bytes. Bytes are numbered from 0, as producers do it; an `EncodedBatch` from
            wherever.
        leader_epoch: of this leader; the log's latest if None, or else 0.
        origin: who appends.
        guard, transaction_version: see `ProducerState.prepare`.
        metrics: counted on.

    Raises:
        ValueError: the epoch is negative, or the origin that of a follower.
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
    view = _given(data, origin)
    with state.lock:
        state.check()
        done = lead_plain(state, view, leader_epoch, origin)
        if done is not None:
            return done
        if leader_epoch is None:
            latest = state.epochs.latest
            leader_epoch = 0 if latest is None else latest.epoch
        if not len(view):
            return nothing_appended(state)
        rules = state.rules_for(origin, leader_epoch)
        now_ms = state.now_ms()
        batch = validate_append(
            view, rules, next_offset=state.log_end.offset, now_ms=now_ms, metrics=metrics
        )
        accepted = _accepted(batch, view, leader_epoch)
        return _append(state, accepted, origin, now_ms, guard, transaction_version)


def append_all(
    state: LogState,
    batches: Iterable[Buffer | EncodedBatch],
    leader_epoch: int | None,
    origin: AppendOrigin,
    guard: VerificationGuard | None,
    transaction_version: int,
) -> AppendResult:
    """Append batches one by one, with nobody else's between; the answer is that of all.

    The arguments are those of `append_as_leader`; each batch is taken when those before it are in
    the log. What is raised of one leaves those before it there.
    """
    result = None
    with state.lock:
        state.check()
        for batch in batches:
            one = append_as_leader(state, batch, leader_epoch, origin, guard, transaction_version)
            result = one if result is None else merged(result, one)
    return nothing_appended(state) if result is None else result


def append_as_follower(
    state: LogState, data: Buffer | EncodedBatch, leader_epoch: int | None = None
) -> AppendResult:
    """Write batches as a leader has them, with the offsets and epochs that they bring.

    Args:
        state: the log.
        data: batches, rising; an incomplete one at the end, as fetches have it, is left out.
            Nothing is done for nothing.
        leader_epoch: in which they were asked for: batches from the first one of a later epoch on
            are left out. None to take all.

    Returns:
        What became of it; `trimmed_bytes` says how much was left out.

    Raises:
        UnexpectedAppendOffsetError: they begin in front of the log's end.
        OffsetsOutOfOrderError: one of them lies over the one before it, which Kafka takes.
        InvalidRecordError: a batch of magic 2 has no epoch.
        OffsetOverflowError: they lie too far apart for one segment.
        KsegError: as `validate_replica` and `ProducerState.prepare` say; nothing has changed.
        RecordBatchTooLargeError: they are larger than a segment.
        OSError: the disk refuses; the log ends where it did, in the epochs it had, or has failed.
        PoisonedFileError: the log failed before.

    Source: Kafka `UnifiedLog.appendAsFollower`.
    """
    view = _flat(data)
    given_bytes = len(view)
    with state.lock:
        state.check()
        done = follow_plain(state, view, leader_epoch)
        if done is not None:
            return done
        if leader_epoch is not None:
            view = _up_to_epoch(view, leader_epoch)
        accepted = _replica(state, view)
        if accepted is None:
            return nothing_appended(state, given_bytes)
        now_ms = state.now_ms()
        done = _append(state, accepted, AppendOrigin.REPLICATION, now_ms, None, 0)
        left_out = given_bytes - done.valid_bytes
        return done._replace(trimmed_bytes=left_out) if left_out else done


def nothing_appended(state: LogState, trimmed_bytes: int = 0) -> AppendResult:
    """The answer where there was nothing to append, but maybe the beginning of something."""
    return AppendResult(log_start_offset=state.log_start_offset, trimmed_bytes=trimmed_bytes)


# ---- what is given -------------------------------------------------------------------------------


def _given(data: Buffer | EncodedBatch, origin: AppendOrigin) -> memoryview:
    """The bytes; batches that were encoded in a row are each numbered as a producer's."""
    if not isinstance(data, EncodedBatch):
        return _flat(data)
    if origin is AppendOrigin.CLIENT and data.magic >= 2 and data.base_offset:
        return memoryview(bytes(_SIZE.start) + data.data[_SIZE.start :])
    return memoryview(data.data)


def _flat(data: Buffer | EncodedBatch) -> memoryview:
    if type(data) is bytes or type(data) is bytearray:
        return memoryview(data)
    view = memoryview(data.data if isinstance(data, EncodedBatch) else data)
    flat = view.format == "B" and view.ndim == 1 and view.contiguous
    return view if flat else view.cast("B")


def _is_nothing(view: memoryview) -> bool:
    """Whether there is no whole batch, and what there is may be the beginning of one."""
    size = len(view)
    if size > _MAGIC:
        length = int.from_bytes(view[_SIZE], "big", signed=True)
        if length <= size - LOG_OVERHEAD:
            return False
    check_end(walk(view, verify=False), size)
    return True


def _up_to_epoch(view: memoryview, leader_epoch: int) -> memoryview:
    """The batches in front of the first one of a later epoch."""
    table = scan(view, on_bad_crc="ignore")
    later = np.flatnonzero(table.leader_epoch > leader_epoch)
    return view[: int(table.position[later[0]])] if len(later) else view


def _replica(state: LogState, view: memoryview) -> Accepted | None:
    """An append as follower; None for nothing."""
    one = one_batch(view)
    if one is not None and one.leader_epoch >= 0 and not one.attributes & CONTROL:
        taken = take_replica(view, one, state.log_end.offset)
        if taken is not None:
            epoch = one.leader_epoch
            header = None if one.producer_id < 0 else _header_of(one, taken, epoch)
            return Accepted(taken, header, one.base_offset, epoch)
    if _is_nothing(view):
        return None
    end = state.log_end.offset
    batch = take_replicas(view, end)
    if batch is None:
        rules = state.rules_for(AppendOrigin.REPLICATION, 0)
        batch = validate_replica(view, rules, next_offset=end)
        assert batch.table is not None
        check_rising(batch.table, batch.first_offset - 1)
    return _with_table(batch)


def _with_table(batch: ValidatedBatch) -> Accepted:
    """Batches that keep their offsets, and whose headers were looked at."""
    table = batch.table
    assert table is not None
    told = int(table.magic[0]) >= 2
    return Accepted(batch, table, batch.first_offset if told else -1, int(table.leader_epoch[-1]))


def _header_of(one: OneBatch, taken: ValidatedBatch, leader_epoch: int) -> BatchHeader:
    """The header that a batch of a producer has in the log."""
    return one.header(
        base_offset=taken.first_offset,
        last_offset=taken.last_offset,
        max_timestamp=taken.max_timestamp,
        leader_epoch=leader_epoch,
        log_append=taken.log_append_time >= 0,
    )


def _accepted(batch: ValidatedBatch, view: memoryview, leader_epoch: int) -> Accepted:
    """An append as leader, with its headers as far as they are needed."""
    if batch.table is not None:  # a Raft leader's
        check_rising(batch.table, batch.first_offset - 1)
        return _with_table(batch)
    head, tail = batch.head, batch.tail
    if not tail:
        table = scan(head, on_bad_crc="ignore")
        return Accepted(batch, table, batch.first_offset, int(table.leader_epoch[-1]))
    if head[_MAGIC] < 2:
        return Accepted(batch, None, batch.first_offset, -1)
    if tail[_PRODUCER_ID - len(head)] & 0x80:  # none; what nearly every append has
        return Accepted(batch, None, batch.first_offset, leader_epoch)
    one = one_batch(view[: len(batch)])
    assert one is not None
    header = _header_of(one, batch, leader_epoch)
    if one.attributes & CONTROL:
        # What a marker says is read from the bytes as they were given.
        given = scan(view[: len(batch)], on_bad_crc="ignore")[0]
        header = replace(
            header, control_type=given.control_type, coordinator_epoch=given.coordinator_epoch
        )
    return Accepted(batch, header, batch.first_offset, leader_epoch)


# ---- judging -------------------------------------------------------------------------------------


def epochs_with(state: LogState, accepted: Accepted) -> tuple[EpochEntry, ...]:
    """The log's epochs behind this append; a message of magic 0 or 1 makes an end of all.

    Raises:
        InvalidRecordError: a batch of magic 2 has none.

    Source: Kafka `UnifiedLog.assignEpochStartOffset`.
    """
    table, entries = accepted.table, state.epochs.entries
    if not isinstance(table, BatchTable):
        return _with_epoch(entries, accepted.leader_epoch, accepted.batch.first_offset)
    epochs = table.leader_epoch
    if table.magics_seen & 0b11:
        epochs = np.where(table.magic < 2, -1, epochs)
    elif entries and (epochs == entries[-1].epoch).all():
        return entries
    elif (epochs < 0).any():
        raise InvalidRecordError("a batch of magic 2 that has no leader epoch")
    for row in np.flatnonzero(np.diff(epochs, prepend=-2)).tolist():
        entries = _with_epoch(entries, int(epochs[row]), int(table.base_offset[row]))
    return entries


def _with_epoch(entries: tuple[EpochEntry, ...], epoch: int, offset: int) -> tuple[EpochEntry, ...]:
    """One epoch more; -1 for a message that has none."""
    if epoch < 0:
        return ()
    if entries and entries[-1].epoch == epoch:
        return entries
    return assign_epochs((*entries, EpochEntry(epoch, offset)))


def new_base(state: LogState, accepted: Accepted, size: int, now_ms: int) -> int | None:
    """Where the segment would begin that the append needs; None if the active one takes it.

    Source: Kafka `UnifiedLog.maybeRoll`.
    """
    batch, first = accepted.batch, accepted.first_offset
    if not state.active.should_roll(
        now_ms=now_ms,
        max_timestamp=batch.max_timestamp,
        messages_bytes=size,
        largest_offset=batch.last_offset,
        segment_ms=state.roll_ms,
    ):
        return None
    return base_after(state, first if first >= 0 else batch.last_offset - _INT32_MAX)


def _check_extent(state: LogState, accepted: Accepted) -> None:
    """Refuse batches that no segment can hold together."""
    batch, first = accepted.batch, accepted.first_offset
    if first >= 0 and batch.last_offset - first > _INT32_MAX:
        reason = f"it has no 32-bit form relative to {first}, with which the append begins"
        raise OffsetOverflowError(reason, path=state.path, offset=batch.last_offset)


# ---- epochs, rolls, producers, bytes -------------------------------------------------------------


def _append(
    state: LogState,
    accepted: Accepted,
    origin: AppendOrigin,
    now_ms: int,
    guard: VerificationGuard | None,
    transaction_version: int,
) -> AppendResult:
    """Ask the producers, roll if need be, write, and let readers see it."""
    batch, table = accepted.batch, accepted.table
    size = len(batch.head) + len(batch.tail)
    epochs, before = epochs_with(state, accepted), state.epochs.entries
    if size > state.config.segment_bytes:
        reason = f"an append of {size} bytes, a segment holds {state.config.segment_bytes}"
        raise RecordBatchTooLargeError(reason)
    ask = partial(_ask, state, table, origin, guard, transaction_version)
    update = ask(state.active.base_offset, state.active.size)
    _check_extent(state, accepted)
    base = new_base(state, accepted, size, now_ms)
    if base is not None:
        update = ask(base, 0)
    # Nothing is refused any more.
    try:
        if epochs != before:
            state.epochs.replace(epochs)
        if base is not None:
            roll(state, base)
    except (OSError, KsegError):
        _take_back(state, before)
        raise
    if update.duplicate is not None:
        return _repeated(state, batch, size, update.duplicate)
    segment = state.active
    try:
        _write(segment, accepted, size)
        _commit(state, segment, update, batch.next_offset)
    except BaseException as error:
        give_up(state, error)
        _take_back(state, before)
        raise
    flush_if_due(state, batch.next_offset, now_ms)
    return AppendResult(
        batch.first_offset,
        batch.last_offset,
        batch.record_count,
        size,
        batch.max_timestamp,
        batch.offset_of_max_timestamp,
        batch.log_append_time,
        state.log_start_offset,
        accepted.leader_epoch if origin in _KEEPING_OFFSETS else -1,
        False,
        batch.stats,
    )


def _ask(
    state: LogState,
    table: BatchTable | BatchHeader | None,
    origin: AppendOrigin,
    guard: VerificationGuard | None,
    transaction_version: int,
    base_offset: int,
    position: int,
) -> ProducerUpdate:
    """What the producers make of an append that lies at `position` of a segment, if told."""
    if table is None:
        return NOTHING
    return state.producers.prepare(
        table if isinstance(table, BatchTable) else (table,),
        origin=origin,
        segment_base_offset=base_offset,
        position=position,
        guard=guard,
        transaction_version=transaction_version,
    )


def _take_back(state: LogState, epochs: tuple[EpochEntry, ...]) -> None:
    """Have the epochs of before again, unless the log has failed with the append."""
    if not state.failed and state.epochs.entries is not epochs:
        state.epochs.restore(epochs)


def _repeated(
    state: LogState, batch: ValidatedBatch, size: int, before: BatchDescriptor
) -> AppendResult:
    """The answer for a batch that its producer has sent before."""
    return AppendResult(
        before.first_offset,
        before.last_offset,
        batch.record_count,
        size,
        batch.max_timestamp,
        batch.offset_of_max_timestamp,
        before.timestamp,
        state.log_start_offset,
        duplicate=True,
        stats=batch.stats,
    )


def _write(segment: SegmentWriter, accepted: Accepted, size: int) -> None:
    batch, table = accepted.batch, accepted.table
    if isinstance(table, BatchTable):
        segment.append_table(batch.parts(), table)
    else:
        parts = batch.parts() if batch.head else (batch.tail,)
        segment.append_one(parts, size, batch.last_offset, batch.max_timestamp)


def _commit(state: LogState, segment: SegmentWriter, update: ProducerUpdate, end: int) -> None:
    """What follows from bytes that are written: the log's end, producers, transactions.

    Source: Kafka `UnifiedLog.updateLogEndOffset`, `ProducerStateManager.update`.
    """
    producers = state.producers
    place = OffsetMetadata(end, segment.base_offset, segment.size)
    if update is NOTHING:
        producers.map_end_offset = end
        state.advance(place, state.foresee(place))
        return
    state.log_end = place
    for decided in producers.commit(update):
        if decided.aborted:
            stable = producers.last_stable_offset(decided)
            segment.txn_index.append(AbortedTxn(*decided[:3], stable))
        producers.complete(decided)
    producers.map_end_offset = end
    state.publish()


__all__ = ["AppendResult", "append_all", "append_as_follower", "append_as_leader", "merged"]
