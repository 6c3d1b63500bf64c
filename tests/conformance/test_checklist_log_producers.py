"""UnifiedLog, one claim a test: what a log knows of its producers, and where committed reads end.

The claims are those of Kafka's UnifiedLogTest on producer state and transactions.
"""

from __future__ import annotations

import pytest

from kseg.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    TransactionCoordinatorFencedError,
)
from kseg.files.txn_index import AbortedTxn
from kseg.log.log import Log
from kseg.log.validate.rules import AppendOrigin
from tests.builders import ABORT, COMMIT, batch, control_batch, record
from tests.conformance.logs import NOW_MS, ONE, Logs, bases, four_producers, one, snapshots

COORDINATOR, CLIENT = AppendOrigin.COORDINATOR, AppendOrigin.CLIENT


def numbered(sequence: int, *, producer: int = 1, epoch: int = 0, **fields: int) -> bytes:
    return one(producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields)


def opening(sequence: int = 0, *, producer: int = 1, count: int = 1, epoch: int = 0) -> bytes:
    return numbered(sequence, producer=producer, epoch=epoch, count=count, transactional=True)


def end(log: Log, kind: int, producer: int = 1, *, coordinator: int = 0) -> int:
    marker = control_batch(kind, producer_id=producer, coordinator_epoch=coordinator)
    return log.append(marker, origin=COORDINATOR).last_offset


def aborted(log: Log) -> list[tuple[int, int, int, int]]:
    """What the transaction indexes say."""
    found: list[AbortedTxn] = []
    for info in log.segments:
        with log.open_segment(info) as segment:
            found += segment.txn_index.entries()
    return [(t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset) for t in found]


def known(log: Log) -> dict[int, int]:
    """Each producer's last sequence."""
    return {key: entry.last_sequence for key, entry in log.state.producers.entries.items()}


# Producer state


@pytest.mark.parametrize(("recovery_point", "left"), [(5, [3, 4, 5]), (0, [1, 2, 3, 4, 5])])
def test_ul_080_snapshots_that_are_gone_come_back_as_far_as_the_log_is_walked(
    logs: Logs, recovery_point: int, left: list[int]
) -> None:
    log = logs.new(segment_bytes=ONE + ONE // 2)
    for _ in range(5):
        log.append(one())
    log.close()
    for path in log.path.glob("*.snapshot"):
        path.unlink()
    again = logs.after_crash(log, recovery_point=recovery_point)
    assert bases(again) == [0, 1, 2, 3, 4]
    assert snapshots(again)[-1] == 5
    if recovery_point == 0:
        assert snapshots(again) == left


def test_ul_080_after_a_clean_stop_the_newest_snapshots_come_back(logs: Logs) -> None:
    log = logs.new(segment_bytes=ONE + ONE // 2)
    for sequence in range(5):
        log.append(numbered(sequence))
    log.close()
    for path in log.path.glob("*.snapshot"):
        path.unlink()
    again = logs.open(log.path, config=log.config)
    assert snapshots(again) == [3, 4, 5]


def test_ul_082_a_compacted_batch_says_how_far_its_sequences_went(logs: Logs) -> None:
    given = [record(b"v", timestamp=NOW_MS, offset=offset) for offset in (0, 2)]
    gappy = batch(
        given,
        leader_epoch=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        last_offset_delta=3,
    )
    log = logs.new()
    log.append_as_follower(gappy)
    assert known(log) == {1: 3}
    assert known(logs.after_crash(log)) == {1: 3}


def test_ul_082_an_emptied_batch_says_so_too(logs: Logs) -> None:
    empty = batch(
        [], leader_epoch=0, producer_id=1, producer_epoch=0, base_sequence=0, last_offset_delta=1
    )
    log = logs.new()
    log.append_as_follower(empty)
    assert (known(log), log.log_end_offset) == ({1: 1}, 2)


def test_ul_090_a_producer_is_known_with_its_epoch_sequence_and_transaction(logs: Logs) -> None:
    log = logs.new()
    log.append(numbered(0, producer=1, epoch=5))
    log.append(opening(3, producer=2))
    end(log, COMMIT, 2, coordinator=7)
    log.append(opening(4, producer=2))
    rows = {
        key: (e.producer_epoch, e.last_sequence, e.current_txn_first_offset, e.coordinator_epoch)
        for key, e in log.state.producers.entries.items()
    }
    assert rows == {1: (5, 0, None, -1), 2: (0, 4, 3, 7)}


# Transactions


def placed(given: list[bytes]) -> list[bytes]:
    """The same batches with the offsets a leader gives them."""
    done, offset = [], 0
    for data in given:
        stamped = offset.to_bytes(8, "big") + data[8:12] + bytes(4) + data[16:]
        done.append(stamped)
        offset += int.from_bytes(data[23:27], "big") + 1
    return done


@pytest.mark.parametrize("way", ["leader", "follower"])
def test_ul_102_aborted_transactions_are_listed_in_the_order_of_their_ends(
    logs: Logs, way: str
) -> None:
    log = logs.new()
    if way == "follower":
        log.append_as_follower(b"".join(placed(four_producers())))
    else:
        for data in four_producers():
            control = bool(data[22] & 0x20)
            log.append(data, origin=COORDINATOR if control else CLIENT)
    assert aborted(log) == [(1, 0, 29, 8), (2, 8, 74, 36)]
    assert log.last_stable_offset == log.log_end_offset == 90


def test_ul_102_the_first_unstable_offset_is_known_with_its_place(logs: Logs) -> None:
    log = logs.new()
    log.update_high_watermark(0)
    given = placed(four_producers())
    log.append_as_follower(b"".join(given))
    positions = {
        int.from_bytes(data[:8], "big"): at for data, at in zip(given, starts(given), strict=True)
    }
    for mark, unstable in ((30, 8), (75, 36)):
        log.update_high_watermark(mark)
        place = log.state.version.last_stable
        assert place == (unstable, 0, positions[unstable])


def starts(given: list[bytes]) -> list[int]:
    return [sum(map(len, given[:row])) for row in range(len(given))]


def test_ul_103_a_transaction_over_two_segments_is_listed_from_its_first(logs: Logs) -> None:
    log = logs.new()
    log.append(opening(0, count=10))
    log.roll()
    log.append(opening(10, count=10))
    end(log, ABORT)
    fetched = log.fetch(0, max_bytes=10_000, isolation="read_committed")
    assert fetched.aborted == ((1, 0),)
    assert log.fetch(0, max_bytes=10_000, isolation="read_uncommitted").aborted is None


@pytest.mark.parametrize("empty", [False, True])
def test_ul_104_a_coordinator_that_was_replaced_is_fenced(logs: Logs, empty: bool) -> None:
    log = logs.new()
    if not empty:
        log.append(opening(0))
    end(log, ABORT, coordinator=1)
    if not empty:
        log.append(opening(1))
    with pytest.raises(TransactionCoordinatorFencedError):
        end(log, ABORT, coordinator=0)


def test_ul_104_psm_27_a_marker_of_an_older_producer_epoch_is_fenced(logs: Logs) -> None:
    log = logs.new()
    log.append(opening(0, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        end(log, ABORT)


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("start", [2, 5, 8])
def test_ul_105_committed_reads_never_end_before_the_log_starts(
    logs: Logs, start: int, delete: bool
) -> None:
    log = logs.new()
    log.append(one(count=2))
    log.append(opening(0, count=3))
    log.append(one(count=3))
    log.roll()
    log.append(one())
    assert log.last_stable_offset == 2
    log.delete_records_before(start)
    if delete:
        log.delete_old_segments()
        assert bases(log) == ([8] if start == 8 else [0, 8])
    assert log.last_stable_offset == start


# Verification


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_ul_107_a_transaction_that_must_be_verified_needs_its_guard(
    logs: Logs, origin: AppendOrigin
) -> None:
    log = logs.new()
    producers = log.state.producers
    producers.verification_enabled = True
    guard = producers.start_verification(1, 1, 0, now_ms=0)
    assert producers.start_verification(1, 1, 0, now_ms=0) is guard
    log.append(numbered(0), origin=origin)
    foreign = logs.new().state.producers.start_verification(1, 1, 0, now_ms=0)
    for other in (None, foreign):
        with pytest.raises(InvalidTxnStateError):
            log.append(opening(1), origin=origin, guard=other)
    log.append(opening(1), origin=origin, guard=guard)
    assert log.last_stable_offset == 1
    assert producers.start_verification(1, 2, 0, now_ms=0) is None
    log.append(opening(2), origin=origin)
    end(log, COMMIT)
    with pytest.raises(InvalidTxnStateError):  # it has served with the first batch
        log.append(opening(3), origin=origin, guard=guard)
    assert producers.start_verification(1, 3, 0, now_ms=0) not in (guard, None)


def test_ul_108_a_marker_or_an_append_without_verification_clears_the_guard(logs: Logs) -> None:
    log = logs.new()
    producers = log.state.producers
    producers.verification_enabled = True
    guard = producers.start_verification(1, 0, 0, now_ms=0)
    end(log, COMMIT)
    with pytest.raises(InvalidTxnStateError):
        log.append(opening(0), guard=guard)
    guard = producers.start_verification(1, 0, 0, now_ms=0)
    producers.verification_enabled = False
    log.append(opening(0))
    end(log, COMMIT)
    producers.verification_enabled = True
    with pytest.raises(InvalidTxnStateError):
        log.append(opening(1), guard=guard)
    log.append(opening(1), guard=producers.start_verification(1, 1, 0, now_ms=0))
    assert log.last_stable_offset == 3


def test_ul_109_a_producer_that_is_not_known_may_begin_anywhere(logs: Logs) -> None:
    log = logs.new()
    log.append(numbered(5, epoch=2))
    assert known(log) == {1: 5}


def test_ul_129_a_start_above_the_high_watermark_is_refused(logs: Logs) -> None:
    log = logs.new()
    log.append(one(count=3))
    log.update_high_watermark(2)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records_before(3)
    assert log.log_start_offset == 0
