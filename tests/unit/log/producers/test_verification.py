from __future__ import annotations

import pytest

from kseg.errors import InvalidTxnStateError
from kseg.log.producers.state import ProducerState
from kseg.log.producers.verification import Verifications
from tests.producing import ABORT, CLIENT, COMMIT, COORDINATOR, REPLICATION, append, data, marker

OPENS = [data(0, 0, transactional=True)]


def test_without_its_guard_no_transaction_is_opened() -> None:
    state = ProducerState(verification_enabled=True)
    for origin in (CLIENT, COORDINATOR):
        with pytest.raises(InvalidTxnStateError):
            state.prepare(OPENS, origin=origin)
    guard = state.start_verification(1, 0, 0, now_ms=0)
    foreign = ProducerState().start_verification(1, 0, 0, now_ms=0)
    with pytest.raises(InvalidTxnStateError):
        state.prepare(OPENS, origin=CLIENT, guard=foreign)
    state.commit(state.prepare(OPENS, origin=CLIENT, guard=guard))
    assert state.start_verification(1, 1, 0, now_ms=0) is None
    append(state, data(1, 1, transactional=True))
    # The guard has served with the first batch.
    append(state, marker(COMMIT, 2), origin=COORDINATOR)
    with pytest.raises(InvalidTxnStateError):
        state.prepare([data(2, 3, transactional=True)], origin=CLIENT, guard=guard)


def test_followers_and_batches_outside_of_transactions_need_no_guard() -> None:
    state = ProducerState(verification_enabled=True)
    append(state, data(0, producer=2))
    append(state, marker(ABORT, 1), origin=COORDINATOR)
    append(state, *OPENS, origin=REPLICATION)
    assert state.first_undecided_offset == 0


def test_an_open_transaction_of_an_older_epoch_is_no_leave_for_a_newer_one() -> None:
    state = ProducerState(verification_enabled=True)
    append(state, *OPENS, origin=REPLICATION)
    assert state.start_verification(1, 0, 0, now_ms=0) is None
    assert state.start_verification(1, 0, 1, now_ms=0) is not None
    with pytest.raises(InvalidTxnStateError):
        state.prepare([data(0, 1, epoch=1, transactional=True)], origin=CLIENT)


def test_a_guard_is_of_its_log_alone_and_cleared_when_asked() -> None:
    state = ProducerState(verification_enabled=True)
    guard = state.start_verification(1, 0, 0, now_ms=0)
    assert state.start_verification(1, 5, 0, now_ms=9) is guard
    state.clear_verification(1)
    with pytest.raises(InvalidTxnStateError):
        state.prepare(OPENS, origin=CLIENT, guard=guard)


def test_entries_are_counted_and_expire_one_by_one() -> None:
    waiting = Verifications()
    for producer in range(3):
        waiting.start(producer, 0, 0, 10 * producer)
    waiting.expire(now_ms=110, after_ms=100)
    assert (len(waiting), waiting.get(1)) == (1, None)
    waiting.clear(2)
    waiting.clear(2)
    assert len(waiting) == 0
