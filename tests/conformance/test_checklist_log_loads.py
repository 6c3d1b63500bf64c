"""Seen in Kafka 4.2.0, one claim a test: what a load makes of a directory, and what kseg does.

Each situation is asked of a plan for a broker, which has to say what was watched, its silences
included; and where kseg goes another way, of its own plan. Other lines are vectors, which
`test_directory_vectors.py` names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from kseg.errors import CorruptIndexError, CorruptRecordError, KsegError
from kseg.files.checkpoints import read_leader_epochs
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import RecoveryPlan, plan_recovery
from kseg.log.validate.rules import AppendOrigin
from tests.builders import ABORT, batch, record
from tests.conformance.logs import NOW_MS, Logs, bases, offsets, one
from tests.segments import offset_entries, txn_entries

#: Of the batches here: three records, more than the interval, so that all but the first are found.
BATCH = len(one(count=3))
CONFIG = LogConfig(index_interval_bytes=BATCH - 1, retention_ms=-1)
SPLIT = CONFIG.with_changes(segment_bytes=3 * BATCH)
FIRST = f"{0:020d}"
COORDINATOR = AppendOrigin.COORDINATOR


def made(logs: Logs, config: LogConfig = CONFIG, *, count: int = 8) -> Path:
    """A log of so many batches of three records, closed well."""
    log = logs.new(config=config)
    for number in range(count):
        log.append(one(count=3, time=NOW_MS + number))
    log.close()
    return log.path


def broker(path: Path, *, clean: bool, config: LogConfig = CONFIG, **how: int) -> RecoveryPlan:
    """What a broker would do."""
    return ours(path, clean=clean, config=config, as_broker=True, **how)


def ours(path: Path, *, clean: bool, config: LogConfig = CONFIG, **how: int) -> RecoveryPlan:
    """The plan of kseg; nothing counts as flushed unless a recovery point is given."""
    how = {"recovery_point": 0, "log_start_offset": 0, "now_ms": NOW_MS, **how}
    return plan_recovery(path, clean=clean, config=config, **how)


def after_broker(path: Path, *, clean: bool = False, config: LogConfig = CONFIG, **how: int) -> Any:
    """The directory as a broker leaves it."""
    plan = broker(path, clean=clean, config=config, **how)
    plan.apply(keep_cut=False)
    return plan


def kept(plan: RecoveryPlan) -> list[tuple[int, int]]:
    return [(s.base_offset, s.keep_bytes) for s in plan.segments if not s.goes]


def edit(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def log_of(path: Path, base: int = 0) -> Path:
    return path / f"{base:020d}.log"


# After a clean stop


@pytest.mark.parametrize("zeros", [18, 300])
def test_k42_03_a_zero_tail_fails_a_brokers_clean_load(logs: Logs, zeros: int) -> None:
    path = made(logs)
    edit(log_of(path), lambda data: data.extend(bytes(zeros)))
    assert isinstance(broker(path, clean=True).error, CorruptRecordError)
    assert ours(path, clean=True).log_end_offset == 24


def test_k42_04_a_long_garbage_tail_is_passed_over_as_a_flipped_bit_is(logs: Logs) -> None:
    path = made(logs)
    edit(log_of(path), lambda data: data.extend(b"\x7f" * 100))
    plan = broker(path, clean=True)
    assert (plan.error, plan.log_end_offset, kept(plan)) == (None, 24, [(0, 8 * BATCH + 100)])


def test_k42_05_garbage_indexes_are_taken_as_they_are(logs: Logs) -> None:
    path = made(logs)
    for name in ("index", "timeindex"):
        (path / f"{FIRST}.{name}").write_bytes(b"\xff" * 29)
    (segment,) = broker(path, clean=True).segments
    assert (segment.index_entries, segment.time_index_entries) == (3, 2)
    (segment,) = ours(path, clean=True).segments
    assert (segment.index_entries, segment.time_index_entries) == (7, 7)


def test_k42_06_only_the_segment_whose_offset_index_is_missing_is_walked(logs: Logs) -> None:
    path = made(logs, SPLIT)
    (path / f"{9:020d}.index").unlink()
    plan = broker(path, clean=True, config=SPLIT)
    assert [segment.walked for segment in plan.segments] == [False, True, False]
    plan.apply(keep_cut=False)
    assert len(offset_entries(path / f"{9:020d}.index", 9)) == 2


@pytest.mark.parametrize("as_broker", [False, True])
def test_k42_07_a_garbled_snapshot_goes_and_the_log_is_asked(logs: Logs, as_broker: bool) -> None:
    log = logs.new(config=SPLIT)
    for sequence in range(6):
        log.append(one(count=3, producer_id=1, producer_epoch=0, base_sequence=3 * sequence))
    log.close()
    newest = log.path / f"{18:020d}.snapshot"
    edit(newest, lambda data: data.__setitem__(9, data[9] ^ 1))
    ((broker if as_broker else ours)(log.path, clean=True, config=SPLIT)).apply()
    again = logs.open(log.path, config=SPLIT, recover=True)
    assert again.state.producers.entries[1].last_sequence == 17


def marker(kind: int, producer: int = 1) -> bytes:
    """A marker of now, so that its producer is not forgotten."""
    given = record(pack(">hi", 0, 0), key=pack(">hh", 0, kind), timestamp=NOW_MS)
    return batch([given], producer_id=producer, producer_epoch=0, transactional=True, control=True)


@pytest.fixture
def aborted(logs: Logs) -> Path:
    """A log with one aborted transaction, closed well."""
    log = logs.new(config=CONFIG)
    log.append(one(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.append(marker(ABORT), origin=COORDINATOR)
    log.close()
    return log.path


def test_k42_08_a_txn_index_that_ends_below_the_base_is_made_anew(aborted: Path) -> None:
    index = aborted / f"{FIRST}.txnindex"
    edit(index, lambda data: data.__setitem__(slice(18, 26), b"\xff" * 8))
    plan = after_broker(aborted, clean=True)
    assert [segment.walked for segment in plan.segments] == [True]
    assert txn_entries(index) == [(1, 0, 1, 2)]


@pytest.mark.parametrize("clean", [False, True])
def test_k42_08_a_txn_index_of_an_unknown_version_fails_the_load(
    aborted: Path, clean: bool
) -> None:
    edit(aborted / f"{FIRST}.txnindex", lambda data: data.__setitem__(0, 1))
    assert isinstance(broker(aborted, clean=clean).error, KsegError)
    assert ours(aborted, clean=clean).error is None


def test_k42_08_a_txn_index_of_a_strange_size_is_kept(aborted: Path) -> None:
    index = aborted / f"{FIRST}.txnindex"
    edit(index, lambda data: data.extend(bytes(16)))
    plan = broker(aborted, clean=True)
    assert (plan.error, plan.is_noop) == (None, True)
    assert index.stat().st_size == 50


@pytest.mark.parametrize("text", ["0\n2\n0 0\n", "1\n1\n0 0\n", "0\n1\n0\n", "x"])
def test_k42_09_a_malformed_epoch_file_fails_a_brokers_load(logs: Logs, text: str) -> None:
    path = made(logs)
    (path / "leader-epoch-checkpoint").write_text(text)
    assert isinstance(broker(path, clean=True).error, CorruptIndexError)


def test_k42_09_of_epochs_out_of_order_the_later_ones_count(logs: Logs) -> None:
    path = made(logs)
    (path / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n2 10\n1 15\n")
    assert broker(path, clean=True).epochs == ((0, 0), (1, 15))


def test_k42_10_a_log_without_an_offset_in_its_name_fails_a_brokers_load(logs: Logs) -> None:
    path = made(logs)
    (path / "abc.log").write_bytes(b"")
    assert broker(path, clean=True).error is not None


def test_k42_10_a_short_name_counts_and_gets_an_empty_file_beside_it(logs: Logs) -> None:
    path = made(logs, count=2)
    (path / "12.log").write_bytes(b"")
    plan = after_broker(path, clean=False)
    assert (plan.error, [s.base_offset for s in plan.segments]) == (None, [0, 12])
    assert (path / "12.log").exists()
    assert log_of(path, 12).read_bytes() == b""


def test_k42_10_strangers_are_left_alone(logs: Logs) -> None:
    path = made(logs)
    (path / "notes.txt").write_text("x")
    (path / "folder").mkdir()
    for clean in (False, True):
        broker(path, clean=clean).apply(keep_cut=False)
    assert (path / "notes.txt").read_text() == "x"
    assert (path / "folder").is_dir()


def test_k42_11_a_missing_middle_segment_is_not_noticed(logs: Logs) -> None:
    path = made(logs, SPLIT)
    for name in ("log", "index", "timeindex"):
        (path / f"{9:020d}.{name}").unlink()
    plan = broker(path, clean=True, config=SPLIT)
    assert (plan.error, kept(plan)) == (None, [(0, 3 * BATCH), (18, 2 * BATCH)])


# After a crash


@pytest.mark.parametrize("as_broker", [False, True])
def test_k42_13_damage_in_the_middle_takes_all_that_is_behind_it(
    logs: Logs, as_broker: bool
) -> None:
    path = made(logs, SPLIT)
    edit(log_of(path, 9), lambda data: data.__setitem__(-1, data[-1] ^ 1))
    plan = (broker if as_broker else ours)(path, clean=False, config=SPLIT)
    plan.apply(keep_cut=False)
    assert (plan.log_end_offset, kept(plan)) == (15, [(0, 3 * BATCH), (9, 2 * BATCH)])
    assert not log_of(path, 18).exists()
    assert [int(each.stem) for each in sorted(path.glob("*.snapshot"))] == [9, 15]


def test_k42_15_a_base_above_its_offsets_fails_a_brokers_load(logs: Logs) -> None:
    path = made(logs, count=2)
    log_of(path).rename(log_of(path, 100))
    assert isinstance(broker(path, clean=False).error, (KsegError, ValueError))


@pytest.mark.parametrize("transactional", [False, True])
def test_k42_17_producers_silent_for_too_long_are_forgotten_unless_they_are_in_a_transaction(
    logs: Logs, transactional: bool
) -> None:
    log = logs.new(config=CONFIG)
    data = one(producer_id=1, producer_epoch=0, base_sequence=0, transactional=transactional)
    log.append(data)
    logs.clock.sleep(CONFIG.producer_id_expiration_ms)
    again = logs.after_crash(log)
    assert list(again.state.producers.entries) == ([1] if transactional else [])


def test_k42_18_epochs_come_back_from_the_batches(logs: Logs) -> None:
    log = logs.new(config=CONFIG)
    for epoch in (0, 0, 2, 5):
        log.append(one(), leader_epoch=epoch)
    path = logs.as_it_lies(log.path)
    (path / "leader-epoch-checkpoint").write_text("")
    after_broker(path)
    assert read_leader_epochs(path / "leader-epoch-checkpoint") == ((0, 0), (2, 2), (5, 3))


def test_k42_18_epochs_at_the_end_or_beyond_it_go(logs: Logs) -> None:
    path = made(logs)
    (path / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 24\n2 30\n")
    for plan in (broker(path, clean=False), ours(path, clean=False), broker(path, clean=True)):
        assert plan.epochs == ((0, 0),)


@pytest.mark.parametrize("as_broker", [False, True])
def test_k42_21_a_whole_swap_takes_the_place_of_what_it_covers(logs: Logs, as_broker: bool) -> None:
    path = made(logs, SPLIT)
    given = [record(b"v", timestamp=NOW_MS, offset=offset) for offset in (0, 17)]
    (path / f"{FIRST}.log.swap").write_bytes(batch(given, leader_epoch=0))
    plan = (broker if as_broker else ours)(path, clean=False, config=SPLIT)
    plan.apply(keep_cut=False)
    with Log.open(path) as log:
        assert bases(log) == [0, 18]
        assert offsets(log) == [0, 17, *range(18, 24)]
    assert not (path / f"{9:020d}.index").exists()
