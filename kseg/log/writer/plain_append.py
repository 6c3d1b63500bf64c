"""The usual append in few steps: sound batches of no producer, in the epoch that the log has.

What is asked and what is done is what `kseg.log.writer.append` asks and does, whose ways are for
all batches. Where anything is unusual the answer is None, no byte has been written, and whoever
asked goes there, where it is said what is wrong. The lock is held and the log may be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kseg.constants import NO_TIMESTAMP
from kseg.log.config import INT64_MAX
from kseg.log.producers.entry import OffsetMetadata
from kseg.log.validate.append import plain_in_place
from kseg.log.validate.rules import NOTHING_CONVERTED, AppendOrigin
from kseg.log.writer.append_result import AppendResult
from kseg.log.writer.flush import flush

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kseg.files import io
    from kseg.log.segment.appender import SegmentAppender
    from kseg.log.writer.state import LogState

#: The first byte of the producer id of a batch; its highest bit says that there is none.
_PRODUCER_ID, _NONE = 43, 0x80
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
    appender = state.active.appender(state.roll_ms)
    if appender is None:
        return None
    found = appender.places.keep(view, state.log_end.offset, epoch)
    if found is None:
        return None
    first, last, records, latest, latest_offset = found
    size, start = len(view), state.log_start_offset
    none, cost = NO_TIMESTAMP, NOTHING_CONVERTED
    told = first, last, records, size, latest, latest_offset, none, start, epoch, False, cost, 0
    _write(state, appender, (view,), size, last + 1, None)
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
    if origin is AppendOrigin.RAFT_LEADER:
        return None
    appender = state.active.appender(state.roll_ms)
    if appender is None:
        return None
    rules, now_ms = state.rules_for(origin, epoch), state.now_ms()
    found = plain_in_place(view, rules, first, now_ms)
    if found is None:
        return None
    head, records, last, latest = found
    if not appender.places.place(size, last, latest):
        return None
    log_append = rules.is_log_append
    latest_offset = last if log_append or latest > NO_TIMESTAMP else -1
    appended_ms, start = now_ms if log_append else NO_TIMESTAMP, state.log_start_offset
    cost = NOTHING_CONVERTED
    told = first, last, records, size, latest, latest_offset, appended_ms, start, -1, False, cost, 0
    _write(state, appender, (head, view[len(head) :]), size, last + 1, now_ms)
    return _tuple(AppendResult, told)


def _write(
    state: LogState,
    appender: SegmentAppender,
    parts: Sequence[io.Bytes],
    size: int,
    end: int,
    now_ms: int | None,
) -> None:
    """Write, let readers see it, and flush if that is due.

    What can be done in front of the write is: behind it, little is left in the processor's caches.
    """
    _offset, base, position = state.log_end
    place = _tuple(OffsetMetadata, (end, base, position + size))
    foreseen = state.foresee(place)
    producers, due = state.producers, _is_due(state, end, now_ms)
    try:
        appender.write(parts, size)
        producers.map_end_offset = end
        state.advance(place, foreseen)
    except BaseException as error:
        give_up(state, error)
        raise
    if due:
        flush(state)


def flush_if_due(state: LogState, end: int, now_ms: int) -> None:
    """Flush where the settings ask for it behind so many messages, or so much time."""
    if _is_due(state, end, now_ms):
        flush(state)


def _is_due(state: LogState, end: int, now_ms: int | None) -> bool:
    config = state.config
    if end - state.recovery_point >= config.flush_messages:
        return True
    if config.flush_ms == INT64_MAX:
        return False
    now_ms = state.now_ms() if now_ms is None else now_ms
    return now_ms - state.last_flush_ms >= config.flush_ms


def give_up(state: LogState, error: BaseException) -> None:
    """Let the log fail, because of `error`, if it is not as it was before the append.

    Bytes that are there and were not told of are not taken back: loading finds them, and what is
    missing beside them. An interrupt may come when nobody knows how much is there.
    """
    segment, told = state.active, state.published.log_end.position
    if segment.poisoned or segment.size != told or not isinstance(error, Exception):
        state.fail(error)


__all__ = ["flush_if_due", "follow_plain", "give_up", "lead_plain"]
