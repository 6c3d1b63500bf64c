"""UnifiedLog, one claim a test: what may be shown of a log, and what it takes.

The claims are those of Kafka's UnifiedLogTest on the high watermark and on appending.
"""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest

from kseg.errors import (
    InvalidRecordError,
    OutOfOrderSequenceError,
    PoisonedFileError,
    RecordTooLargeError,
    UnexpectedAppendOffsetError,
)
from kseg.format.encode import encode_batches
from kseg.format.header import BatchHeader, scan
from kseg.format.options import BatchOptions
from kseg.log.log import Log
from kseg.log.validate.rules import AppendOrigin
from tests.builders import ABORT, COMMIT, LZ4, NONE, control_batch, record, records_of
from tests.conformance.logs import ONE, Logs, bases, offsets, one
from tests.unit.log.logs import failing

COORDINATOR, RAFT_LEADER = AppendOrigin.COORDINATOR, AppendOrigin.RAFT_LEADER


def shown(log: Log, offset: int, isolation: str = "read_uncommitted") -> int:
    """How many bytes a read from `offset` gives."""
    return len(log.fetch(offset, max_bytes=10_000, isolation=isolation).data)


def end_transaction(log: Log, kind: int, producer_id: int, coordinator_epoch: int = 0) -> int:
    marker = control_batch(kind, producer_id=producer_id, coordinator_epoch=coordinator_epoch)
    return log.append(marker, origin=COORDINATOR).last_offset


# High watermark, fetch limits


def test_ul_002_006_the_high_watermark_moves_when_told_and_not_past_the_end(logs: Logs) -> None:
    log = logs.new()
    log.update_high_watermark(0)
    log.append(one(count=3))
    assert log.high_watermark == 0
    log.update_high_watermark(1)
    assert log.high_watermark == 1
    log.update_high_watermark(5)
    assert log.high_watermark == 3
    log.append_as_follower(one(count=3, base_offset=3, leader_epoch=0))
    for told in (6, 7):
        log.update_high_watermark(told)
        assert log.high_watermark == 6


def test_ul_002_a_high_watermark_that_nobody_tells_is_the_end(logs: Logs) -> None:
    log = logs.new()
    for end in (3, 6):
        log.append(one(count=3))
        assert (log.high_watermark, log.log_end_offset) == (end, end)


def test_ul_003_cutting_brings_the_high_watermark_down(logs: Logs) -> None:
    log = logs.new()
    log.update_high_watermark(0)
    for _ in range(6):
        log.append(one())
    log.update_high_watermark(6)
    log.truncate_to(3)
    assert log.high_watermark == 3
    log.append(one())
    assert (log.high_watermark, log.log_end_offset) == (3, 4)
    log.truncate_fully_and_start_at(4)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (4, 4, 4)


@pytest.mark.parametrize("mark", [0, 3, 5])
def test_ul_001_004_reads_are_empty_from_their_limit_on(logs: Logs, mark: int) -> None:
    log = logs.new(segment_bytes=2 * ONE)
    log.update_high_watermark(0)
    for _ in range(5):
        log.append(one())
    log.update_high_watermark(mark)
    assert [shown(log, offset, "log_end") > 0 for offset in range(6)] == [True] * 5 + [False]
    assert [shown(log, offset) > 0 for offset in range(6)] == [o < mark for o in range(6)]


def test_ul_005_100_101_committed_reads_end_where_a_transaction_is_open(logs: Logs) -> None:
    def stable() -> int:
        found = [shown(log, offset, "read_committed") > 0 for offset in range(log.log_end_offset)]
        assert found == [offset < log.last_stable_offset for offset in range(len(found))]
        return log.last_stable_offset

    log = logs.new()
    log.update_high_watermark(0)
    log.append(one(count=3))
    for producer in (1, 2):
        for sequence in (0, 5):
            log.append(opening(producer, sequence, count=5))
    log.update_high_watermark(log.log_end_offset)
    assert stable() == 3
    end_transaction(log, COMMIT, 1)
    assert stable() == 3
    log.update_high_watermark(log.log_end_offset)
    assert stable() == 13
    end_transaction(log, ABORT, 2)
    assert stable() == 13
    log.update_high_watermark(log.log_end_offset)
    assert stable() == log.log_end_offset == 25


def opening(producer: int, sequence: int, *, count: int = 1, epoch: int = 0) -> bytes:
    """Data of a transaction."""
    return one(
        count=count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def test_ul_009_committed_reads_beside_a_moving_watermark_show_nothing_undecided(
    logs: Logs,
) -> None:
    log = logs.new(segment_bytes=2000)
    log.update_high_watermark(0)
    ended = threading.Event()

    def read() -> list[int]:
        faults: list[int] = []
        while not ended.is_set():
            limit = log.log_start_offset
            data = log.fetch(limit, max_bytes=10**6, isolation="read_committed").data
            # What was decided when the read ended was decided, at the latest, by then.
            stable = log.last_stable_offset
            faults.extend(
                found.base_offset for found in batches_of(data) if found.last_offset >= stable
            )

        return faults

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            for sequence in range(150):
                log.append(opening(1, sequence))
                log.update_high_watermark(log.log_end_offset)
                end_transaction(log, ABORT if sequence % 2 else COMMIT, 1)
                log.update_high_watermark(log.log_end_offset)
        finally:
            ended.set()
    assert reading.result() == []
    assert log.last_stable_offset == log.log_end_offset == 300


def batches_of(data: memoryview) -> list[BatchHeader]:
    table = scan(data)
    return [table[row] for row in range(len(table))]


# Append


def test_ul_010_a_raft_leader_brings_its_offsets(logs: Logs) -> None:
    log = logs.new()

    def append(base_offset: int) -> int:
        data = one(count=3, base_offset=base_offset, leader_epoch=0)
        return log.append(data, leader_epoch=0, origin=RAFT_LEADER).first_offset

    assert (append(0), log.log_end_offset) == (0, 3)
    with pytest.raises(UnexpectedAppendOffsetError):
        append(1)
    assert (append(3), log.log_end_offset) == (3, 6)


def test_ul_011_the_first_offset_is_the_end_before(logs: Logs) -> None:
    log = logs.new()
    assert log.append(one(count=3)).first_offset == 0
    assert log.append(one(count=3)).first_offset == 3
    log.roll()
    assert log.append(one(count=3)).first_offset == 6


def numbered(sequence: int, *, count: int = 1, epoch: int = 0, **fields: int) -> bytes:
    """Data of an idempotent producer."""
    return one(count=count, producer_id=1, producer_epoch=epoch, base_sequence=sequence, **fields)


def test_ul_011_batches_that_were_encoded_in_a_row_follow_each_other_wherever_they_begin(
    logs: Logs,
) -> None:
    log = logs.new()
    log.append(one())
    values = [b"%d" % number for number in range(10)]
    result = log.append(encode_batches({"value": values}, BatchOptions(), batch_records=3))
    assert (result.first_offset, result.last_offset, result.record_count) == (1, 10, 10)
    assert [found.value for found in log.records()] == [b"hello", *values]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_ul_011_any_buffer_is_one_batch(logs: Logs, kind: type) -> None:
    log = logs.new()
    assert log.append(kind(one(count=2))).last_offset == 1


def test_ul_014_only_whole_batches_and_the_last_five_are_known_again(logs: Logs) -> None:
    log = logs.new()
    for sequence in range(0, 12, 2):
        log.append(numbered(sequence, count=2))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(numbered(11))
    assert log.append(numbered(4, count=2)).first_offset == 4
    with pytest.raises(OutOfOrderSequenceError):
        log.append(numbered(0, count=2))
    log.append(numbered(12))
    assert log.append(numbered(12)).first_offset == 12
    assert log.log_end_offset == 13


def test_ul_015_a_follower_takes_the_batches_of_many_producers_as_they_are(logs: Logs) -> None:
    log = logs.new()
    given = [
        one(base_offset=offset, producer_id=offset + 7, producer_epoch=0, base_sequence=0)
        for offset in range(4)
    ]
    log.append_as_follower(b"".join(numbered_epoch(data) for data in given))
    found = batches_of(log.fetch(0, max_bytes=10_000, isolation="log_end").data)
    rows = [(b.base_offset, b.producer_id, b.base_sequence) for b in found]
    assert rows == [(offset, offset + 7, 0) for offset in range(4)]


def numbered_epoch(data: bytes, epoch: int = 0) -> bytes:
    """The same batch with a leader epoch, which no checksum covers."""
    return data[:12] + epoch.to_bytes(4, "big") + data[16:]


def test_ul_016_a_follower_takes_what_its_leader_took(logs: Logs) -> None:
    log = logs.new()
    for offset in range(4):
        sequence = offset if offset < 3 else 2
        log.append_as_follower(numbered(sequence, base_offset=offset, leader_epoch=0))
    assert log.log_end_offset == 4
    other = logs.new()
    sequences = (0, 1, 1, 2, 3)
    other.append_as_follower(
        b"".join(
            numbered(sequence, base_offset=offset, leader_epoch=0)
            for offset, sequence in enumerate(sequences)
        )
    )
    assert other.log_end_offset == 5


def test_ul_019_a_batch_larger_than_a_message_may_be_is_refused_to_producers(logs: Logs) -> None:
    log = logs.new(max_message_bytes=ONE)
    log.append(one())
    with pytest.raises(RecordTooLargeError):
        log.append(one(b"hello!"))
    log.append_as_follower(one(b"hello!", base_offset=1, leader_epoch=0))
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_ul_020_a_compacted_log_wants_keys(logs: Logs, codec: int) -> None:
    log = logs.new(cleanup_policy=frozenset({"compact"}))
    for count in (1, 2):
        with pytest.raises(InvalidRecordError, match=r"[Cc]ompacted") as caught:
            log.append(one(count=count, codec=codec))
        assert [fault.record_index for fault in caught.value.record_errors] == list(range(count))
    assert log.append(one(key=b"k", count=2, codec=codec)).last_offset == 1


def test_ul_021_null_values_and_no_time_are_taken(logs: Logs) -> None:
    log = logs.new()
    data = records_of([record(None, key=b"k", timestamp=-1)], magic=2)
    log.append(data)
    (found,) = log.records()
    assert (found.value, found.timestamp) == (None, -1)


@pytest.mark.parametrize("codec", [NONE, LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_ul_023_a_follower_does_not_go_back(logs: Logs, magic: int, codec: int) -> None:
    log = logs.new(message_format_magic=magic)
    for _ in range(10):
        log.append(one())
    stale = records_of([record(b"v", timestamp=1)], magic=magic, codec=codec, base_offset=5)
    with pytest.raises(UnexpectedAppendOffsetError):
        log.append_as_follower(stale)
    assert log.log_end_offset == 10


@pytest.mark.parametrize("codec", [NONE, LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_ul_024_what_lies_before_the_end_is_named(logs: Logs, magic: int, codec: int) -> None:
    log = logs.new()
    log.truncate_fully_and_start_at(7)
    given = [record(b"v", timestamp=1) for _ in range(3)]
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        log.append_as_follower(records_of(given, magic=magic, codec=codec, base_offset=4))
    assert (caught.value.first_offset, caught.value.last_offset) == (4, 6)


def test_ul_025_the_leaders_epoch_is_stamped_and_a_followers_kept(logs: Logs) -> None:
    log = logs.new()
    for _ in range(2):
        log.append(one(leader_epoch=-1), leader_epoch=72)
    found = batches_of(log.fetch(0, max_bytes=10_000, isolation="log_end").data)
    assert [batch.leader_epoch for batch in found] == [72, 72]
    other = logs.new()
    other.append_as_follower(one(leader_epoch=42))
    assert [(e.epoch, e.start_offset) for e in other.leader_epochs] == [(42, 0)]


# A transaction index that cannot be written


def failing_txn_index() -> AbstractContextManager[None]:
    """Calls that write to every file but transaction indexes."""
    return failing("pwritev", error=OSError(errno.EIO, "made to fail"), ends=".txnindex")


def test_ul_027_a_log_whose_txn_index_failed_takes_nothing_more(logs: Logs) -> None:
    log = logs.new()
    log.append(opening(1, 0, count=10))
    with failing_txn_index(), pytest.raises(OSError, match="made to fail"):
        end_transaction(log, ABORT, 1)
    with pytest.raises(PoisonedFileError):
        log.append(one())
    assert bases(log) == [0]


def test_ul_028_the_next_start_writes_the_entry_that_failed(logs: Logs) -> None:
    log = logs.new()
    log.append(opening(1, 0, count=10))
    with failing_txn_index(), pytest.raises(OSError, match="made to fail"):
        end_transaction(log, ABORT, 1)
    assert log.last_stable_offset == 0
    again = logs.after_crash(log)
    assert (again.log_end_offset, again.last_stable_offset) == (11, 11)
    with again.open_segment(again.segments[0]) as segment:
        (entry,) = segment.txn_index.entries()
    assert (entry.producer_id, entry.first_offset, entry.last_offset) == (1, 0, 10)


def test_ul_028_closing_a_failed_log_leaves_no_mark_of_a_clean_stop(logs: Logs) -> None:
    log = logs.new()
    log.append(opening(1, 0))
    with failing_txn_index(), pytest.raises(OSError, match="made to fail"):
        end_transaction(log, ABORT, 1)
    log.close()
    assert not (log.path.parent / ".kafka_cleanshutdown").exists()
    assert offsets(logs.open(log.path, recover=True)) == [0]
