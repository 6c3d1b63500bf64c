"""The usual append in few steps: sound batches of no producer, in the epoch that the log has.

What is asked and what is done is what `kseg.log.append` asks and does, whose ways are for all
batches. Where anything is unusual the answer is None, no byte has been written, and whoever asked
goes there, where it is said what is wrong. The lock is held and the log may be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kseg import _validate
from kseg.constants import NO_TIMESTAMP
from kseg.log.append_result import AppendResult
from kseg.log.append_rules import NOTHING_CONVERTED, AppendOrigin
from kseg.log.flushing import flush, roll
from kseg.log.producer_entries import OffsetMetadata
from kseg.log.validation import plain_in_place

if TYPE_CHECKING:
    from kseg.log.segment_writer import SegmentWriter
    from kseg.log.state import LogState

#: The first byte of the producer id of a batch; its highest bit says that there is none.
_PRODUCER_ID, _NONE = 43, 0x80
_OFFSET_MAX: Final = 2**63 - 2**33
#: Makes a named tuple in half the time that its own call takes.
_tuple: Final = tuple.__new__


def follow_plain(
    state: LogState, view: memoryview, leader_epoch: int | None
) -> AppendResult | None:
    """Append whole batches that keep their offsets; see `append_as_follower`."""
    entries = state.epochs.entries
    if not entries:
        return None
    epoch = entries[-1].epoch
    if leader_epoch is not None and leader_epoch < epoch:
        return None
    found = _validate.keep_in_place(view, state.log_end.offset, epoch)
    if found is None:
        return None
    batches, first, last, records, latest, latest_offset, first_timestamp = found
    size, now_ms = len(view), state.now_ms()
    segment = _segment_for(state, size, first, last, latest, now_ms)
    if segment is None:
        return None
    try:
        if batches == 1:
            segment.append_one((view,), size, last, latest)
        elif not segment.append_batches(view, last, first_timestamp):
            return None
        _commit(state, last + 1, size)
    except BaseException as error:
        give_up(state, error)
        raise
    flush_if_due(state, last + 1, now_ms)
    start = state.log_start_offset
    none, cost = NO_TIMESTAMP, NOTHING_CONVERTED
    told = first, last, records, size, latest, latest_offset, none, start, epoch, False, cost
    return _tuple(AppendResult, told)


def lead_plain(
    state: LogState, view: memoryview, leader_epoch: int | None, origin: AppendOrigin
) -> AppendResult | None:
    """Append one plain batch that gets its offsets; see `append_as_leader`."""
    entries, first, size = state.epochs.entries, state.log_end.offset, len(view)
    if size <= _PRODUCER_ID or not view[_PRODUCER_ID] & _NONE or not entries:
        return None
    epoch = entries[-1].epoch
    if leader_epoch is not None and leader_epoch != epoch:
        return None
    if origin is AppendOrigin.RAFT_LEADER or first > _OFFSET_MAX:
        return None
    rules, now_ms = state.rules_for(origin, epoch), state.now_ms()
    found = plain_in_place(view, rules, first, now_ms)
    if found is None:
        return None
    head, records, last, latest = found
    segment = _segment_for(state, size, first, last, latest, now_ms)
    if segment is None:
        return None
    try:
        segment.append_one((head, view[len(head) :]), size, last, latest)
        _commit(state, last + 1, size)
    except BaseException as error:
        give_up(state, error)
        raise
    flush_if_due(state, last + 1, now_ms)
    log_append = rules.is_log_append
    latest_offset = last if log_append or latest > NO_TIMESTAMP else -1
    appended_ms, start = now_ms if log_append else NO_TIMESTAMP, state.log_start_offset
    cost = NOTHING_CONVERTED
    told = first, last, records, size, latest, latest_offset, appended_ms, start, -1, False, cost
    return _tuple(AppendResult, told)


def _segment_for(
    state: LogState, size: int, first: int, last: int, latest: int, now_ms: int
) -> SegmentWriter | None:
    """The active segment, or a new one; None for what is larger than any."""
    if size > state.config.segment_bytes:
        return None
    if state.active.should_roll(
        now_ms=now_ms,
        max_timestamp=latest,
        messages_bytes=size,
        largest_offset=last,
        segment_ms=state.roll_ms,
    ):
        roll(state, first)
    return state.active


def _commit(state: LogState, end: int, size: int) -> None:
    _offset, base, position = state.log_end
    state.producers.map_end_offset = end
    state.advance(_tuple(OffsetMetadata, (end, base, position + size)))


def flush_if_due(state: LogState, end: int, now_ms: int) -> None:
    """Flush where the settings ask for it behind so many messages, or so much time."""
    config = state.config
    if (
        end - state.recovery_point >= config.flush_messages
        or now_ms - state.last_flush_ms >= config.flush_ms
    ):
        flush(state)


def give_up(state: LogState, error: BaseException) -> None:
    """Let the log fail, because of `error`, if it is not as it was before the append.

    Bytes that are there and were not told of are not taken back: loading finds them, and what is
    missing beside them. An interrupt may come when nobody knows how much is there.
    """
    segment, told = state.active, state.published.log_end.position
    if segment.poisoned or segment.size != told or not isinstance(error, Exception):
        state.fail(error)


__all__ = ["flush_if_due", "follow_plain", "give_up", "lead_plain"]
