"""Seen in Kafka 4.2.0, one claim a test: what a log does, as it was watched and nowhere written.

These are the lines on appending, rolling, cutting and looking up; those on loading a directory are
in `test_checklist_log_loads.py`.
"""

from __future__ import annotations

import pytest

from kseg.errors import CorruptRecordError, InvalidProducerEpochError, InvalidRecordError
from kseg.log.validate.rules import AppendOrigin
from tests.builders import ABORT, COMMIT, control_batch
from tests.conformance.logs import NOW_MS, Logs, one
from tests.reference_codecs import crc32c

COORDINATOR = AppendOrigin.COORDINATOR
MAX_TIMESTAMP = -3


def follower(offset: int, *, epoch: int = 0, count: int = 1, **fields: int) -> bytes:
    return one(base_offset=offset, leader_epoch=epoch, count=count, **fields)


@pytest.mark.damages("as Kafka, it leaves a snapshot in the gap")
def test_k42_23_a_gap_that_nothing_was_appended_behind_is_gone_after_a_clean_stop(
    logs: Logs,
) -> None:
    log = logs.new()
    for _ in range(8):
        log.append(one(count=3))
    log.truncate_to(16)
    assert logs.after_crash(log).log_end_offset == 15
    assert logs.again(log).log_end_offset == 15


def test_k42_28_batches_from_a_later_epoch_on_are_left_out_in_silence(logs: Logs) -> None:
    log = logs.new()
    data = b"".join(follower(n, epoch=epoch) for n, epoch in enumerate((2, 4, 3)))
    result = log.append_as_follower(data, leader_epoch=3)
    assert (result.first_offset, result.last_offset, log.log_end_offset) == (0, 0, 1)


def test_k42_28_a_batch_without_epoch_is_refused(logs: Logs) -> None:
    log = logs.new()
    with pytest.raises(InvalidRecordError):
        log.append_as_follower(follower(0, epoch=-1))
    assert log.log_end_offset == 0


def test_k42_29_with_a_bad_checksum_nothing_is_appended(logs: Logs) -> None:
    log = logs.new()
    data = bytearray(follower(0) + follower(1))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(bytes(data))
    assert (log.log_end_offset, log.segments[-1].size) == (0, 0)


def opening(sequence: int, **fields: int) -> bytes:
    return one(
        producer_id=1, producer_epoch=3, base_sequence=sequence, transactional=True, **fields
    )


def marker(kind: int, epoch: int) -> bytes:
    """A marker of that producer epoch: its checksum is computed again."""
    data = bytearray(control_batch(kind, producer_id=1))
    data[51:53] = epoch.to_bytes(2, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("version", [0, 1])
def test_k42_30_a_marker_may_have_its_producers_own_epoch(logs: Logs, version: int) -> None:
    log = logs.new()
    log.append(opening(0))
    log.append(marker(COMMIT, 3), origin=COORDINATOR, transaction_version=version)
    assert log.last_stable_offset == 2


def test_k42_30_from_version_2_on_its_epoch_is_one_higher(logs: Logs) -> None:
    log = logs.new()
    log.append(opening(0))
    with pytest.raises(InvalidProducerEpochError):
        log.append(marker(COMMIT, 3), origin=COORDINATOR, transaction_version=2)
    log.append(marker(COMMIT, 4), origin=COORDINATOR, transaction_version=2)
    assert log.last_stable_offset == 2


def test_k42_31_ul_013_what_comes_again_is_answered_with_what_was_there(logs: Logs) -> None:
    log = logs.new()
    data = one(count=2, time=NOW_MS - 5, producer_id=1, producer_epoch=0, base_sequence=0)
    log.append(one())
    log.append(data)
    before = log.segments[-1].size
    again = log.append(data)
    assert (again.first_offset, again.last_offset, again.duplicate) == (1, 2, True)
    assert again.log_append_time == NOW_MS - 5
    assert (log.log_end_offset, log.segments[-1].size) == (3, before)


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_k42_32_the_largest_time_may_be_a_markers(logs: Logs, kind: int) -> None:
    log = logs.new()
    log.append(one(time=-1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.append(control_batch(kind, producer_id=1), origin=COORDINATOR)  # of time 0
    found = log.offset_for_timestamp(MAX_TIMESTAMP)
    assert found is not None
    assert (found.timestamp, found.offset) == (0, 1)
