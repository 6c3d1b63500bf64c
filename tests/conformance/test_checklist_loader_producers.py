"""LogLoader, one claim a test: producers, snapshots and transactions of a log that was loaded.

The claims are those of Kafka's LogLoaderTest. Where it counts calls of a mocked producer state,
what these calls come to is asked here.
"""

from __future__ import annotations

from pathlib import Path
from struct import pack
from typing import Any

import pytest

from kseg.files.checkpoints import write_offset_checkpoint
from kseg.log.log import Log
from kseg.log.recovery.recover import RecoveryPlan, plan_recovery
from kseg.log.validate.rules import AppendOrigin
from tests.builders import COMMIT, batch, record, records_of
from tests.conformance.logs import (
    NOW_MS,
    ONE,
    PARTITION,
    Logs,
    bases,
    four_producers,
    one,
    snapshots,
)
from tests.segments import txn_entries

COORDINATOR = AppendOrigin.COORDINATOR


def numbered(sequence: int, *, producer: int = 1, time: int = NOW_MS, **more: Any) -> bytes:
    return one(producer_id=producer, producer_epoch=0, base_sequence=sequence, time=time, **more)


def known(log: Log) -> list[int]:
    return sorted(log.state.producers.entries)


# Snapshots


def segmented(logs: Logs, *, magic: int = 2) -> Log:
    """Ten segments of one batch each, flushed and as they lie."""
    log = logs.new(segment_bytes=ONE, message_format_magic=magic)
    for offset in range(10):
        if magic == 2:
            log.append(one())
        else:
            given = [record(b"hello" * 7, timestamp=NOW_MS)]
            log.append_as_follower(records_of(given, magic=magic, base_offset=offset))
    assert bases(log) == list(range(10))
    log.flush()
    return log


def planned(log: Log, path: Path, *, recovery_point: int) -> RecoveryPlan:
    """What a broker does after a crash."""
    return plan_recovery(
        path,
        as_broker=True,
        clean=False,
        recovery_point=recovery_point,
        log_start_offset=0,
        config=log.config,
        now_ms=NOW_MS,
    )


def walked(plan: RecoveryPlan) -> list[int]:
    return [segment.base_offset for segment in plan.segments if segment.walked]


def test_ldr_03_of_an_old_format_the_segments_from_the_recovery_point_on_are_walked(
    logs: Logs,
) -> None:
    log = segmented(logs, magic=1)
    path = logs.as_it_lies(log.path)
    for offset in range(1, 8):
        (path / f"{offset:020d}.snapshot").unlink()
    plan = planned(log, path, recovery_point=6)
    assert walked(plan) == [6, 7, 8, 9]
    assert set(plan.snapshots) >= {8, 9, 10}


@pytest.mark.parametrize("kept", [(), (6, 7, 8, 9)])
def test_ldr_04_05_each_walked_segment_has_its_snapshot_again(
    logs: Logs, kept: tuple[int, ...]
) -> None:
    log = segmented(logs)
    path = logs.as_it_lies(log.path)
    for offset in set(range(1, 10)) - set(kept):
        (path / f"{offset:020d}.snapshot").unlink()
    plan = planned(log, path, recovery_point=6)
    assert (walked(plan), plan.snapshots) == ([6, 7, 8, 9], (6, 7, 8, 9, 10))
    again = logs.after_crash(log, recovery_point=6)
    assert again.log_end_offset == 10


def test_ldr_06_an_empty_log_has_no_producers_and_no_snapshots(logs: Logs) -> None:
    path = logs.directory()
    path.mkdir()
    (path / f"{7:020d}.snapshot").write_bytes(b"x")
    log = logs.open(path, recover=True, create=True)
    assert (log.state.producers.map_end_offset, snapshots(log), known(log)) == (0, [], [])


@pytest.mark.parametrize(("magic", "clean"), [(1, False), (1, True), (2, True)])
def test_ldr_09_producers_are_known_up_to_the_end_of_a_loaded_log(
    logs: Logs, magic: int, clean: bool
) -> None:
    log = segmented(logs, magic=magic)
    log.close()
    for each in log.path.glob("*.snapshot"):
        each.unlink()
    again = logs.open(log.path, config=log.config) if clean else logs.after_crash(log)
    assert again.state.producers.map_end_offset == 10
    assert set(snapshots(again)) >= {9, 10}


def test_ldr_11_of_stray_snapshots_the_newest_stays(logs: Logs) -> None:
    log = logs.new()
    for base in (1, 2):
        log.append(numbered(base - 1))
        log.roll()
    log.append(numbered(2))
    stray = log.state.snapshots.take(log.state.producers)
    assert stray is not None
    log.append(numbered(3))
    log.close()
    assert snapshots(log) == [1, 2, 3, 4]
    again = logs.after_crash(log, recovery_point=4)
    assert snapshots(again) == [1, 2, 4]


# Producers


def test_ldr_08_of_a_forgotten_producer_an_older_coordinator_is_taken(logs: Logs) -> None:
    log = logs.new(producer_id_expiration_ms=1000)
    times = (NOW_MS, NOW_MS + 5000)
    for sequence, (epoch, time) in enumerate(zip((2, 1), times, strict=True)):
        log.append(numbered(sequence, time=time, transactional=True))
        log.append(committed(epoch, time), origin=COORDINATOR)
        logs.clock.ms = time + 5000
        log.state.producers.expire(logs.clock())
    logs.clock.ms = times[1]
    again = logs.after_crash(log)
    assert (again.log_end_offset, again.last_stable_offset) == (4, 4)
    entry = again.state.producers.entries[1]
    assert (entry.coordinator_epoch, entry.last_timestamp) == (1, times[1])


def committed(coordinator_epoch: int, time: int) -> bytes:
    """A marker of that time."""
    key, value = pack(">hh", 0, COMMIT), pack(">hi", 0, coordinator_epoch)
    given = record(value, key=key, timestamp=time)
    return batch([given], producer_id=1, producer_epoch=0, transactional=True, control=True)


def test_ldr_10_a_start_inside_of_a_segment_forgets_no_producer(logs: Logs) -> None:
    log = logs.new()
    for producer in (1, 2):
        log.append(numbered(0, producer=producer))
    assert log.delete_records_before(1)
    assert (known(log), log.log_start_offset) == ([1, 2], 1)
    again = logs.after_crash(log, start=1)
    assert (known(again), again.log_start_offset) == ([1, 2], 1)


def test_ldr_12_a_start_behind_a_segment_forgets_its_producers_with_the_next_load(
    logs: Logs,
) -> None:
    log = logs.new()
    log.append(numbered(0, producer=1))
    log.roll()
    log.append(numbered(0, producer=2))
    log.delete_records_before(1)
    log.delete_old_segments()
    assert (bases(log), known(log)) == ([1], [1, 2])
    again = logs.as_it_lies(log.path)
    for each in again.glob("*.snapshot"):
        each.unlink()
    assert known(logs.open(again, recover=True)) == [2]


# Transactions


def transactions(logs: Logs) -> Log:
    """The transactions of four producers, over three segments."""
    log = logs.new()
    for number, data in enumerate(four_producers()):
        if number in (6, 13):
            log.roll()
        log.append(data, origin=COORDINATOR if data[22] & 0x20 else AppendOrigin.CLIENT)
    log.flush()
    return log


def aborted(path: Path) -> list[tuple[int, ...]]:
    return [entry for each in sorted(path.glob("*.txnindex")) for entry in txn_entries(each)]


WANTED = [(1, 0, 29, 8), (2, 8, 74, 36)]


def test_ldr_35_ul_106_transaction_indexes_come_back_with_the_offset_indexes(logs: Logs) -> None:
    log = transactions(logs)
    assert aborted(log.path) == WANTED
    path = logs.as_it_lies(log.path)
    for each in [*path.glob("*.index"), *path.glob("*.txnindex")]:
        each.unlink()
    again = logs.open(path, recover=True)
    assert (aborted(path), again.last_stable_offset) == (WANTED, again.log_end_offset)


@pytest.mark.parametrize("with_snapshots", [False, True])
def test_ldr_36_the_last_one_comes_back_from_what_its_snapshot_or_the_log_says(
    logs: Logs, with_snapshots: bool
) -> None:
    log = transactions(logs)
    last = bases(log)[-1]
    path = logs.as_it_lies(log.path)
    for kind in ("index", "txnindex"):
        (path / f"{last:020d}.{kind}").unlink()
    if not with_snapshots:
        for each in path.glob("*.snapshot"):
            each.unlink()
    checkpoint = path.parent / "recovery-point-offset-checkpoint"
    write_offset_checkpoint(checkpoint, {PARTITION: last})
    logs.open(path, recover=True)
    assert aborted(path) == WANTED
