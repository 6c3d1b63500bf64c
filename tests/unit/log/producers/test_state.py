from __future__ import annotations

from dataclasses import replace

import pytest

from kseg.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    KsegError,
    OutOfOrderSequenceError,
)
from kseg.format.header import BatchHeader
from kseg.log.producers.entry import telling_batches
from kseg.log.producers.state import ProducerState
from tests.producing import (
    ABORT,
    CLIENT,
    COMMIT,
    COORDINATOR,
    REPLICATION,
    append,
    data,
    first_undecided,
    marker,
    table,
)

# ---- preparing -----------------------------------------------------------------------------------


def test_a_batch_that_is_refused_takes_those_before_it_along() -> None:
    state = ProducerState()
    append(state, data(0, 6))
    with pytest.raises(OutOfOrderSequenceError) as caught:
        append(state, data(1, 7), data(3, 8))
    assert caught.value.offset == 8
    assert state.entries[1].last_sequence == 0


def test_sequences_go_on_within_one_append_in_a_new_epoch_too() -> None:
    state = ProducerState()
    append(state, data(0), data(1, 1))
    append(state, data(2, 2), data(0, 3, epoch=1), data(1, 4, epoch=1))
    entry = state.entries[1]
    assert (entry.producer_epoch, [tuple(known)[:2] for known in entry.batches]) == (
        1,
        [(0, 3), (1, 4)],
    )
    with pytest.raises(OutOfOrderSequenceError):
        append(state, data(0, 5, epoch=2), data(2, 6, epoch=2))


def test_a_follower_takes_older_epochs_and_coordinators() -> None:
    state = ProducerState()
    append(state, data(0, epoch=4), origin=REPLICATION)
    append(state, marker(COMMIT, 1, epoch=4, coordinator=7), origin=REPLICATION)
    append(state, data(9, 2, epoch=3), origin=REPLICATION)
    append(state, marker(COMMIT, 3, epoch=3, coordinator=6), origin=REPLICATION)
    entry = state.entries[1]
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_sequence) == (3, 6, 9)


def test_a_marker_of_newer_transactions_may_come_again_once_it_has_no_effect() -> None:
    state = ProducerState()
    append(state, data(0, epoch=1, transactional=True))
    for offset in (1, 2):
        ending = [marker(COMMIT, offset, epoch=2, coordinator=offset)]
        update = state.prepare(table(ending), origin=COORDINATOR, transaction_version=2)
        for completed in state.commit(update):
            state.complete(completed)
    assert (state.entries[1].coordinator_epoch, state.ongoing) == (2, ())
    with pytest.raises(InvalidProducerEpochError):
        state.prepare(
            table([marker(COMMIT, 3, epoch=1)]), origin=COORDINATOR, transaction_version=2
        )


def test_an_epoch_that_comes_and_goes_counts_where_batches_are_taken_in_singly() -> None:
    back_and_forth = [data(1, 1, epoch=1), data(2, 2)]
    together, singly = ProducerState(), ProducerState()
    for state in (together, singly):
        append(state, data(0, 0))
    append(together, *back_and_forth, origin=REPLICATION)
    singly.feed(table(back_and_forth))
    known = [[b.last_offset for b in state.entries[1].batches] for state in (together, singly)]
    assert known == [[0, 2], [2]]


# ---- transactions --------------------------------------------------------------------------------


def test_completing_what_is_not_open_is_refused() -> None:
    state = ProducerState()
    (ended,) = append(state, data(0, transactional=True), marker(ABORT, 1))
    assert ended == (1, 0, 1, True)
    with pytest.raises(ValueError, match="open at offset 0"):
        state.complete(ended)


def test_many_transactions_open_and_close_in_little_time() -> None:
    state = ProducerState()
    many = 4_000
    state.feed(table(data(0, n, producer=n, transactional=True) for n in range(many)))
    assert len(state.ongoing) == many
    ended = state.feed(table(marker(ABORT, many + n, producer=n) for n in range(many)))
    assert [found.last_stable_offset for found in ended[:2]] == [1, 2]
    assert ended[-1].last_stable_offset == 2 * many
    assert first_undecided(state) is None
    state.high_watermark_updated(2 * many)
    assert state.first_unstable_offset is None


# ---- feeding -------------------------------------------------------------------------------------


def test_a_long_run_of_one_producer_costs_five_looks() -> None:
    run = table(data(n, n, producer=5) for n in range(5000))
    assert [one.base_offset for one in telling_batches(run)] == [0, *range(4995, 5000)]
    assert len(telling_batches(run, all_known=True)) == 5000
    nobody = table(data(n, n, producer=-1) for n in range(5000))
    assert telling_batches(nobody) == []


@pytest.mark.parametrize(
    ("bad", "kind"),
    [(data(1, 1), InvalidTxnStateError), (marker(2, 1), InvalidRecordError)],
)
def test_without_anyone_to_tell_a_fault_in_the_log_is_raised(
    bad: BatchHeader, kind: type[KsegError]
) -> None:
    with pytest.raises(kind) as caught:
        ProducerState().feed(table([data(0, transactional=True), replace(bad, position=77)]))
    assert (caught.value.offset, caught.value.position) == (1, 77)


# ---- loading, expiring ---------------------------------------------------------------------------


OPENS = [data(0, 0, transactional=True)]


def test_an_open_transaction_of_an_older_epoch_is_no_leave_for_a_newer_one() -> None:
    state = ProducerState(verification_enabled=True)
    append(state, *OPENS, origin=REPLICATION)
    assert state.start_verification(1, 0, 0, now_ms=0) is None
    assert state.start_verification(1, 0, 1, now_ms=0) is not None
    with pytest.raises(InvalidTxnStateError):
        state.prepare(table([data(0, 1, epoch=1, transactional=True)]), origin=CLIENT)


def test_guards_expire_one_by_one() -> None:
    state = ProducerState(verification_enabled=True, expiration_ms=100)
    guards = [state.start_verification(n, 0, 0, now_ms=10 * n) for n in range(3)]
    state.expire(now_ms=110)
    again = [state.start_verification(n, 0, 0, now_ms=110) for n in range(3)]
    assert [one is other for one, other in zip(guards, again, strict=True)] == [False, False, True]
