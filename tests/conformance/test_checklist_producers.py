"""Producer state, one claim a test: those of Kafka's ProducerStateManagerTest on appending.

Producer 1 has epoch 0 here unless a test says otherwise. Its claims on snapshots and on reloading
are in `test_checklist_producer_snapshots`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kseg.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    ProducerError,
)
from kseg.log.producers.state import CompletedTxn, OffsetMetadata, ProducerState, ProducerUpdate
from tests.producing import (
    ABORT,
    CLIENT,
    COMMIT,
    COORDINATOR,
    REPLICATION,
    SEQUENCE_MAX,
    append,
    data,
    first_undecided,
    marker,
    table,
)


@pytest.fixture
def state() -> ProducerState:
    return ProducerState()


def test_psm_01_ul_017_sequences_and_epochs_go_on(state: ProducerState) -> None:
    append(state, data(0))
    append(state, data(1, 0, time=1))
    assert state.prepare(table([data(1)]), origin=CLIENT).duplicate == (1, 0, 0, 1)
    # The same sequence in a batch that is none of those before.
    for wrong in (data(1, 0, count=2), data(5)):
        with pytest.raises(OutOfOrderSequenceError):
            append(state, wrong)
    append(state, data(0, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        append(state, data(0))


def test_psm_02_a_marker_makes_an_unknown_producer_known(state: ProducerState) -> None:
    append(state, marker(COMMIT, 0, epoch=2), origin=COORDINATOR)
    entry = state.entries[1]
    assert (entry.producer_epoch, entry.last_sequence, entry.batches) == (2, -1, ())
    with pytest.raises(InvalidProducerEpochError):
        append(state, data(0, epoch=0))
    with pytest.raises(OutOfOrderSequenceError):
        append(state, data(17, epoch=2))
    append(state, data(0, 39, epoch=2, time=4))
    entry = state.entries[1]
    assert (entry.producer_epoch, entry.first_sequence, entry.last_sequence) == (2, 0, 0)
    assert (entry.first_offset, entry.last_offset) == (39, 39)


def test_psm_03_the_largest_sequence_is_followed_by_0(state: ProducerState) -> None:
    append(state, data(SEQUENCE_MAX, 735))
    append(state, data(0, 736))
    entry = state.entries[1]
    assert (entry.first_sequence, entry.last_sequence) == (SEQUENCE_MAX, 0)
    assert entry.last_offset == 736


def test_psm_03_the_largest_sequence_is_not_followed_by_1(state: ProducerState) -> None:
    append(state, data(SEQUENCE_MAX, 735))
    with pytest.raises(OutOfOrderSequenceError):
        append(state, data(1, 736))


def test_psm_04_a_batch_whose_sequences_wrap_is_kept_as_such(state: ProducerState) -> None:
    update = state.prepare(
        table([data(SEQUENCE_MAX - 10, 2000, count=21, time=7)]), origin=REPLICATION
    )
    assert state.is_empty
    state.commit(update)
    (known,) = state.entries[1].batches
    assert (known.first_sequence, known.last_sequence) == (SEQUENCE_MAX - 10, 9)
    assert (known.first_offset, known.last_offset) == (2000, 2020)
    entry = state.entries[1]
    assert (entry.first_sequence, entry.last_sequence) == (SEQUENCE_MAX - 10, 9)


def test_psm_05_of_a_replica_the_first_batch_may_have_any_sequence(state: ProducerState) -> None:
    append(state, data(16, 0, epoch=2), origin=REPLICATION)
    entry = state.entries[1]
    assert (entry.first_sequence, entry.last_sequence) == (16, 16)


def test_psm_06_a_marker_of_a_higher_epoch_raises_it(state: ProducerState) -> None:
    append(state, data(0, 99, transactional=True))
    (ended,) = append(state, marker(COMMIT, 100, epoch=1), origin=COORDINATOR)
    assert ended == CompletedTxn(1, 99, 100, aborted=False)
    entry = state.entries[1]
    assert (entry.producer_epoch, entry.last_sequence) == (1, -1)
    assert entry.current_txn_first_offset is None
    for epoch in (1, 2):
        with pytest.raises(OutOfOrderSequenceError):
            append(state, data(2, 106, epoch=epoch))
    append(state, data(0, 105, epoch=1, transactional=True))
    assert state.entries[1].current_txn_first_offset == 105


def test_psm_07_where_a_transaction_begins_is_kept_with_segment_and_position(
    state: ProducerState,
) -> None:
    begun = [data(0, 105, transactional=True)]
    update = state.prepare(table(begun), origin=CLIENT, segment_base_offset=99, position=935)
    assert list(update.started) == [(1, OffsetMetadata(105, 99, 935))]
    state.commit(update)
    assert state.first_unstable == OffsetMetadata(105, 99, 935)


def test_psm_09_preparing_changes_nothing_and_five_batches_are_kept(state: ProducerState) -> None:
    append(state, data(0, 9, transactional=True))
    batches = [data(1, 16, count=5), data(6, 26, count=5)]
    batches = [replace(one, attributes=0x10) for one in batches]
    update = state.prepare(table(batches), origin=CLIENT)
    assert [known.last_sequence for known in state.entries[1].batches] == [0]
    assert state.entries[1].last_sequence == 0
    state.commit(update)
    entry = state.entries[1]
    assert (entry.first_sequence, entry.last_sequence, entry.last_offset) == (0, 10, 30)
    assert (entry.first_offset, entry.current_txn_first_offset) == (9, 9)
    for number in range(4):
        append(state, data(11 + number, 31 + number, transactional=True))
    assert [known.last_sequence for known in state.entries[1].batches] == [10, 11, 12, 13, 14]


def test_psm_10_a_transaction_begins_and_ends_in_one_append(state: ProducerState) -> None:
    append(state, data(0, 9, epoch=5))
    both = {"epoch": 5, "count": 5, "transactional": True}
    batches = [data(1, 16, **both), data(6, 26, **both), marker(COMMIT, 40, epoch=5, coordinator=7)]
    update = state.prepare(table(batches), origin=COORDINATOR)
    assert update.completed == (CompletedTxn(1, 16, 40, aborted=False),)
    assert list(update.started) == [(1, OffsetMetadata(16))]
    after = update.entries[1]
    assert (after.last_sequence, after.last_offset, after.coordinator_epoch) == (10, 30, 7)
    assert after.current_txn_first_offset is None
    assert [known.first_sequence for known in after.batches] == [0, 1, 6]


def test_psm_11_all_data_of_a_transaction_is_transactional(state: ProducerState) -> None:
    append(state, data(0, 9, transactional=True))
    with pytest.raises(InvalidTxnStateError):
        append(state, data(1, 10))


def test_psm_17_ul_012_a_gap_is_refused_to_a_client_and_taken_from_a_leader(
    state: ProducerState,
) -> None:
    append(state, data(0, 0))
    with pytest.raises(OutOfOrderSequenceError):
        append(state, data(3, 1))
    assert state.entries[1].last_sequence == 0
    append(state, data(3, 1), origin=REPLICATION)
    assert state.entries[1].last_sequence == 3


def test_psm_23_ul_088_an_expired_producer_goes_on_where_it_was() -> None:
    state = ProducerState(expiration_ms=60_000)
    append(state, data(0, 0))
    append(state, data(0, 1, producer=2, time=60_001))
    assert state.expire(59_999) == ()
    assert state.expire(60_000) == (1,)
    append(state, data(1, 2, time=60_000))
    assert set(state.entries) == {1, 2}
    assert state.entries[1].last_sequence == 1
    assert state.map_end_offset == 3


def test_psm_24_what_is_decided_is_stable_once_it_is_replicated(state: ProducerState) -> None:
    append(state, data(0, 99, transactional=True))
    assert (first_undecided(state), state.first_unstable_offset) == (99, 99)
    append(state, data(0, 105, producer=2, transactional=True))
    assert (first_undecided(state), state.first_unstable_offset) == (99, 99)
    append(state, marker(COMMIT, 109), origin=COORDINATOR)
    assert (first_undecided(state), state.first_unstable_offset) == (105, 99)
    state.high_watermark_updated(109)
    assert state.first_unstable_offset == 99
    state.high_watermark_updated(110)
    assert state.first_unstable_offset == 105
    append(state, marker(ABORT, 112, producer=2), origin=COORDINATOR)
    assert (first_undecided(state), state.first_unstable_offset) == (None, 105)
    state.high_watermark_updated(112)
    assert state.first_unstable_offset == 105
    state.high_watermark_updated(113)
    assert state.first_unstable_offset is None


def test_psm_26_a_coordinator_writes_without_sequences(state: ProducerState) -> None:
    for offset in (0, 1, 2):
        append(state, data(-1, offset, transactional=True), origin=COORDINATOR)
    assert state.entries[1].last_sequence == -1


def test_psm_30_an_emptied_control_batch_leaves_an_entry_and_no_transaction(
    state: ProducerState,
) -> None:
    emptied = replace(marker(-1, 15), record_count=0)
    assert append(state, emptied, origin=REPLICATION) == ()
    assert state.entries[1].current_txn_first_offset is None
    assert (state.entries[1].producer_epoch, state.ongoing) == (-1, ())


class TestPsm33AnnouncedTransactions:
    def announce(self, state: ProducerState, sequence: int, epoch: int) -> object:
        return state.start_verification(1, sequence, epoch, now_ms=0)

    def fits(self, state: ProducerState, sequence: int) -> bool:
        try:
            state.prepare(table([data(sequence, transactional=True)]), origin=CLIENT)
        except ProducerError:
            return False
        return True

    def test_an_entry_serves_again_and_a_lower_sequence_lowers_it(
        self, state: ProducerState
    ) -> None:
        guard = self.announce(state, 5, 1)
        assert (self.fits(state, 5), self.fits(state, 6)) == (True, False)
        assert self.announce(state, 7, 1) is guard
        assert not self.fits(state, 7)
        assert self.announce(state, 3, 1) is guard
        assert (self.fits(state, 3), self.fits(state, 4)) == (True, False)

    def test_a_higher_epoch_replaces_and_a_lower_one_is_ignored(self, state: ProducerState) -> None:
        guard = self.announce(state, 3, 1)
        assert self.announce(state, 9, 2) is guard
        assert (self.fits(state, 9), self.fits(state, 10)) == (True, False)
        assert self.announce(state, 0, 1) is guard
        assert self.fits(state, 9)

    def test_it_is_cleared_when_asked(self, state: ProducerState) -> None:
        guard = self.announce(state, 0, 0)
        state.commit(ProducerUpdate(verified=[1]))
        assert self.fits(state, 7)
        assert self.announce(state, 0, 0) is not guard


def test_psm_34_a_sequence_above_the_announced_is_refused_without_verification_too() -> None:
    state = ProducerState(verification_enabled=True)
    guard = state.start_verification(1, 0, 0, now_ms=0)
    state.verification_enabled = False
    with pytest.raises(OutOfOrderSequenceError):
        state.prepare(table([data(4, transactional=True)]), origin=CLIENT, guard=guard)
    assert state.prepare(table([data(0, transactional=True)]), origin=CLIENT, guard=guard).entries


def test_psm_35_an_announcement_expires_by_the_time_it_was_made() -> None:
    state = ProducerState(expiration_ms=1000)
    guard = state.start_verification(1, 0, 0, now_ms=500)
    state.start_verification(1, 0, 0, now_ms=1400)
    state.expire(1499)
    assert state.start_verification(1, 0, 0, now_ms=1499) is guard
    state.expire(1500)
    assert state.start_verification(1, 0, 0, now_ms=1500) is not guard


def test_psm_36_up_to_where_all_is_stable_with_a_transaction_decided(state: ProducerState) -> None:
    begins = {1: 990, 2: 1000, 3: 1005}
    for producer, first in begins.items():
        append(state, data(0, first, producer=producer, transactional=True))
    seen = []
    for producer, last in {2: 1010, 1: 1015, 3: 1020}.items():
        ending = [marker(COMMIT, last, producer=producer)]
        (ended,) = state.commit(state.prepare(table(ending), origin=COORDINATOR))
        stable = state.last_stable_offset(ended)
        state.complete(ended)
        state.high_watermark_updated(last + 1)
        seen.append((stable, state.first_unstable_offset))
    assert seen == [(990, 990), (1005, 1005), (1021, None)]


def test_psm_37_empty_transactions_complete_nothing(state: ProducerState) -> None:
    append(state, data(0, 0))
    empty = [marker(COMMIT, offset) for offset in (1, 2)]
    update = state.prepare(table(empty), origin=COORDINATOR)
    assert (update.completed, list(update.started)) == ((), [])
    batches = [
        data(1, 16, transactional=True),
        marker(COMMIT, 20),
        marker(ABORT, 22),
        data(2, 30, transactional=True),
    ]
    update = state.prepare(table(batches), origin=COORDINATOR)
    assert update.completed == (CompletedTxn(1, 16, 20, aborted=False),)
    assert [place.offset for _, place in update.started] == [16, 30]
    for completed in state.commit(update):
        state.complete(completed)
    state.high_watermark_updated(31)
    assert state.first_unstable_offset == 30
