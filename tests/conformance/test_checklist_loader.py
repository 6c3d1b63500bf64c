"""LogLoader, one claim a test: what a log is after it was loaded, however it was left.

The claims are those of Kafka's LogLoaderTest; those on segments that overflow are
in `test_checklist_overflow.py`, those on producers in `test_checklist_loader_producers.py`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kseg.errors import UncleanShutdownError
from kseg.files import io
from kseg.files.checkpoints import write_offset_checkpoint
from kseg.log.log import Log
from kseg.log.recovery.recover import RecoveryPlan, plan_recovery
from tests.builders import GZIP, record, records_of
from tests.conformance.logs import INT_MAX, NOW_MS, ONE, PARTITION, Logs, bases, named, offsets, one
from tests.segments import offset_entries, time_entries, trimmed

SMALL = {"segment_bytes": 7 * ONE, "index_interval_bytes": 3 * ONE, "segment_index_bytes": 4096}


def filled(logs: Logs, count: int = 100, **settings: Any) -> Log:
    """A log of so many records, one a batch, each one ms later, over several segments."""
    log = logs.new(**{**SMALL, **settings})
    for number in range(count):
        log.append(one(time=NOW_MS + number))
    return log


def entries(path: Path) -> tuple[list[list[tuple[int, int]]], list[list[tuple[int, int]]]]:
    """The entries of all offset indexes, and of all time indexes."""
    by_offset = [
        trimmed(offset_entries(each, int(each.stem)), (int(each.stem), 0))
        for each in sorted(path.glob("*.index"))
    ]
    by_time = [
        trimmed(time_entries(each, int(each.stem)), (0, int(each.stem)))
        for each in sorted(path.glob("*.timeindex"))
    ]
    return by_offset, by_time


def is_whole(log: Log, count: int = 100) -> bool:
    """Whether every offset can be read and every time is found."""
    found = [log.offset_for_timestamp(NOW_MS + number) for number in range(count)]
    places = [None if place is None else place.offset for place in found]
    firsts = [log.lookup(offset).base_offset for offset in range(count)]
    return offsets(log) == places == firsts == list(range(count))


# How it was left


def test_ldr_01_the_mark_of_a_clean_stop_counts_once(logs: Logs) -> None:
    log = filled(logs, 10)
    log.close()
    mark = log.path.parent / ".kafka_cleanshutdown"
    assert mark.exists()
    again = logs.open(log.path)
    assert (offsets(again), mark.exists()) == (list(range(10)), False)
    copy = logs.as_it_lies(again.path)
    with pytest.raises(UncleanShutdownError):
        logs.open(copy)


def test_ldr_02_an_error_while_loading_is_told_and_the_next_load_is_not_clean(logs: Logs) -> None:
    log = filled(logs, 10)
    log.close()

    def refuse(path: Any, flags: int, *rest: int, **more: Any) -> int:
        if flags & os.O_ACCMODE and str(path).endswith(".log"):
            raise OSError(errno.EIO, "made to fail", str(path))
        return os.open(path, flags, *rest, **more)

    with io.calls_replaced(io.Calls(open=refuse)), pytest.raises(OSError, match="made to fail"):
        logs.open(log.path)
    with pytest.raises(UncleanShutdownError):
        logs.open(log.path)
    assert offsets(logs.open(log.path, recover=True)) == list(range(10))


def test_ldr_33_after_a_clean_stop_nothing_is_walked_whatever_the_recovery_point(
    logs: Logs,
) -> None:
    log = filled(logs)
    log.close()
    for as_broker in (False, True):
        plan = plan_recovery(
            log.path, clean=True, recovery_point=0, config=log.config, as_broker=as_broker
        )
        assert (plan.log_end_offset, plan.is_noop) == (100, True)
        assert not any(segment.walked for segment in plan.segments)


# Indexes


@pytest.mark.parametrize("recovery_point", [100, 10])
def test_ldr_13_14_recovered_indexes_are_those_that_a_clean_stop_leaves(
    logs: Logs, recovery_point: int
) -> None:
    log = filled(logs)
    again = logs.after_crash(log, recovery_point=recovery_point)
    assert (again.log_end_offset, again.recovery_point) == (100, recovery_point)
    again.close()
    log.close()
    assert entries(again.path) == entries(log.path)
    assert entries(log.path)[1][-1][-1] == (NOW_MS + 99, 99)


def test_ldr_14_the_recovery_point_moves_with_the_next_flush(logs: Logs) -> None:
    again = logs.after_crash(filled(logs), recovery_point=10)
    assert again.recovery_point == 10
    again.flush()
    assert again.recovery_point == 100


@pytest.mark.parametrize("text", [None, b"  "])
def test_ldr_15_17_indexes_that_are_gone_or_garbage_are_made_anew(
    logs: Logs, text: bytes | None
) -> None:
    log = filled(logs)
    log.close()
    wanted = entries(log.path)
    path = logs.as_it_lies(log.path)
    for each in [*path.glob("*.index"), *path.glob("*.timeindex")]:
        if text is None:
            each.unlink()
        else:
            each.write_bytes(text)
    again = logs.open(path, recover=True, config=log.config)
    assert is_whole(again)
    again.close()
    assert entries(path) == wanted


def test_ldr_16_messages_without_times_have_empty_time_indexes(logs: Logs) -> None:
    log = logs.new(**{**SMALL, "message_format_magic": 0})
    for offset in range(30):
        given = [record(b"v" * 40, timestamp=-1)]
        log.append_as_follower(records_of(given, magic=0, base_offset=offset))
    assert len(bases(log)) > 2
    path = logs.as_it_lies(log.path)
    for each in path.glob("*.timeindex"):
        each.unlink()
    again = logs.open(path, recover=True, config=log.config)
    sealed = [path / f"{base:020d}.timeindex" for base in bases(again)[:-1]]
    assert [each.stat().st_size for each in sealed] == [0] * len(sealed)


def test_ldr_18_indexes_without_a_log_go_and_a_log_gets_its_own(logs: Logs) -> None:
    path = logs.directory()
    path.mkdir()
    orphans = [path / f"{base:020d}.{kind}" for base in (0, 5) for kind in ("index", "timeindex")]
    for each in orphans:
        each.write_bytes(b"x" * 24)
    log = logs.open(path, recover=True, create=True, segment_index_bytes=1000)
    assert [each.exists() for each in orphans[2:]] == [False, False]
    assert log.append(one()).first_offset == 0
    log.flush()
    assert [each.stat().st_size for each in orphans[:2]] == [1000, 996]
    log.truncate_fully_and_start_at(3)
    assert named(log, "*.index") == ["3.index"]


# Segments


def test_ldr_19_a_recovered_log_can_be_cut(logs: Logs) -> None:
    again = logs.after_crash(filled(logs))
    again.truncate_to(3)
    assert (bases(again), again.log_end_offset) == ([0], 3)
    assert again.append(one()).first_offset == 3


def test_ldr_20_what_was_to_be_deleted_is_gone_after_a_restart(logs: Logs) -> None:
    log = filled(logs, 100, retention_ms=1)
    logs.clock.sleep(10_000)
    log.delete_old_segments()
    assert len(list(log.path.glob("*.deleted"))) > 10
    again = logs.after_crash(log)
    assert (list(again.path.glob("*.deleted")), len(bases(again))) == ([], 1)


@pytest.mark.parametrize("seed", range(10))
def test_ldr_21_garbage_behind_the_last_log_and_index_goes(logs: Logs, seed: int) -> None:
    random = Random(seed)
    log = filled(logs)
    log.close()
    path = logs.as_it_lies(log.path)
    last = max(path.glob("*.log"))
    for each in (last, last.with_suffix(".index")):
        with each.open("ab") as file:
            file.write(random.randbytes(random.randrange(1024)))
    again = logs.after_crash(logs.open(path, recover=True, config=log.config), recovery_point=50)
    assert (again.log_end_offset, is_whole(again)) == (100, True)


def far(offset: int, *, magic: int = 2, codec: int = 0, count: int = 1) -> bytes:
    given = [record(b"v", timestamp=NOW_MS) for _ in range(count)]
    data = records_of(given, magic=magic, codec=codec, base_offset=offset)
    return data if magic < 2 else data[:12] + bytes(4) + data[16:]


@pytest.mark.parametrize(("codec", "count"), [(0, 1), (GZIP, 2)])
def test_ldr_22_23_offsets_too_far_apart_begin_another_segment(
    logs: Logs, codec: int, count: int
) -> None:
    log = logs.new(index_interval_bytes=1)
    for offset in (0, INT_MAX + 2, INT_MAX + 2 + count, INT_MAX + 2 + 2 * count):
        log.append_as_follower(far(offset, codec=codec, count=count))
    assert bases(log) == [0, INT_MAX + 2]
    assert named(log, "*.snapshot") == [f"{INT_MAX + 2}.snapshot"]
    log.close()
    assert len(named(log, "*.index")) == 2
    assert offset_entries(log.path / f"{INT_MAX + 2:020d}.index")[-1][0] >= 0


def test_ldr_24_where_only_the_last_offset_is_known_the_base_is_as_low_as_it_may_be(
    logs: Logs,
) -> None:
    log = logs.new(message_format_magic=1)
    for offset in (0, INT_MAX + 2, INT_MAX + 4 + INT_MAX):
        log.append_as_follower(far(offset, magic=1, codec=GZIP, count=2))
    assert bases(log) == [0, 3, INT_MAX + 5]


def test_ldr_39_a_segment_that_was_begun_and_never_flushed_is_there_again(logs: Logs) -> None:
    log = logs.new()
    log.append(one())
    log.roll()
    path = logs.as_it_lies(log.path)
    for each in path.glob(f"{1:020d}.*index"):
        each.unlink()
    again = logs.open(path, recover=True)
    assert (bases(again), again.log_end_offset) == ([0, 1], 1)
    again.close()
    assert named(again, "*.index") == ["0.index", "1.index"]
    assert time_entries(path / f"{1:020d}.timeindex", 1) == []


def test_ldr_40_a_log_starts_with_its_first_segment_at_the_earliest(logs: Logs) -> None:
    log = logs.new(segment_bytes=ONE)
    for _ in range(10):
        log.append(one())
    path = logs.as_it_lies(log.path)
    for base in range(5):
        for each in path.glob(f"{base:020d}.*"):
            each.unlink()
    again = logs.open(path, recover=True, config=log.config)
    assert (again.log_start_offset, offsets(again)) == (5, [5, 6, 7, 8, 9])


# Epochs


def test_ldr_25_a_log_of_an_old_format_has_no_epochs(logs: Logs) -> None:
    log = logs.new()
    log.append(one(), leader_epoch=5)
    again = logs.again(log, config=log.config.with_changes(message_format_magic=1))
    again.append(one())
    assert again.leader_epochs == ()
    assert logs.again(again).leader_epochs == ()


def test_ldr_34_epochs_that_were_lost_come_back_from_the_log(logs: Logs) -> None:
    log = logs.new()
    for epoch in (1, 2, 2, 3):
        log.append(one(), leader_epoch=epoch)
    path = logs.as_it_lies(log.path)
    (path / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 1\n")
    again = logs.open(path, recover=True)
    assert [(e.epoch, e.start_offset) for e in again.leader_epochs] == [(1, 0), (2, 1), (3, 3)]


# A start behind damage


def damaged(logs: Logs, count: int) -> Log:
    """A log of one-record segments; that of the second is garbage."""
    log = logs.new(segment_bytes=ONE)
    for _ in range(count):
        log.append(one())
    log.flush()
    path = log.path / f"{1:020d}.log"
    path.write_bytes(b"\x7f" * ONE)
    return log


def broken(path: Path, log: Log) -> RecoveryPlan:
    """What a broker does to a copy whose start is 4; it is done."""
    plan = plan_recovery(
        path,
        as_broker=True,
        clean=False,
        recovery_point=0,
        log_start_offset=4,
        config=log.config,
        now_ms=NOW_MS,
    )
    plan.apply(keep_cut=False)
    start = path.parent / "log-start-offset-checkpoint"
    write_offset_checkpoint(start, {PARTITION: 4})
    return plan


@pytest.mark.damages("the log is broken while it is open")
def test_ldr_37_a_broker_gives_up_all_that_lies_behind_damage(logs: Logs) -> None:
    log = damaged(logs, 6)
    path = logs.as_it_lies(log.path)
    plan = broken(path, log)
    assert (plan.log_start_offset, plan.log_end_offset) == (4, 4)
    assert [(s.base_offset, s.keep_bytes) for s in plan.segments if not s.goes] == [(4, 0)]
    assert sorted(each.name for each in path.glob(f"{4:020d}.*")) == [
        f"{4:020d}.{kind}" for kind in ("index", "log", "timeindex")
    ]
    again = logs.open(path, recover=True)
    assert (again.log_start_offset, again.log_end_offset, bases(again)) == (4, 4, [4])


@pytest.mark.damages("the log is broken while it is open")
def test_ldr_38_a_log_that_began_anew_takes_snapshots_that_stay(logs: Logs) -> None:
    log = damaged(logs, 10)
    path = logs.as_it_lies(log.path)
    broken(path, log)
    again = logs.open(path, recover=True)
    assert (bases(again), named(again, "*.snapshot")) == ([4], [])
    for _ in range(5):
        again.append(one())
        again.roll()
    logs.clock.sleep(again.config.file_delete_delay_ms)
    again.delete_old_segments()
    assert named(again, "*.snapshot") == [f"{offset}.snapshot" for offset in range(5, 10)]
    assert list(again.path.glob("*.deleted")) == []
