"""Compaction of one log, planned and applied: what stays, what goes, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.errors import (
    CorruptIndexError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    StalePlanError,
)
from kseg.files import io
from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kseg.log.cleaner import clean as applying
from kseg.log.cleaner.inputs import group_segments
from kseg.log.log import Log
from tests import reference
from tests.builders import ABORT, COMMIT, GZIP, LZ4, NONE, SNAPPY, ZSTD, batch, messages, record
from tests.shares import WHOLE, share
from tests.stopping import UNSYNCED, Stopped, stopping_at
from tests.unit.log.cleaner.compacting import (
    COMPACT,
    Opened,
    bases,
    batches_of,
    compact,
    fill,
    kept,
    keyed,
    names,
    sent,
)
from tests.unit.log.logs import NOW_MS, Clock, marker, open_log

HERE = TopicPartition("t", 0)


# What stays


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_cln_02_19_the_last_record_of_each_key_stays(opened: Opened, codec: int) -> None:
    log = opened()
    for number in range(10):
        fill(log, keyed(b"%d" % (number % 3), b"%d" % number, b"once", codec=codec), roll=False)
    log.roll()
    wanted = reference.compacted(batches_of(log), end_offset=20)
    plan = kseg.plan_compaction(log)
    report = plan.apply()
    assert kept(log) == wanted
    assert [row[0] for row in wanted] == [14, 16, 18, 19]
    assert (report.records, report.kept_records, report.passes) == (20, 4, 1)
    assert report.bytes_after == plan.kept_bytes == log.segments[0].size
    assert report.bytes_before == plan.bytes
    assert read_offset_checkpoint(log.path.parent / "cleaner-offset-checkpoint") == {HERE: 20}


def test_cln_25_records_without_a_key_go_and_are_counted(opened: Opened) -> None:
    log = opened(cleanup_policy=frozenset({"delete"}))
    fill(log, keyed(None), keyed(b"a"), keyed(None), keyed(b"b"))
    log.update_config(log.config.with_changes(cleanup_policy=COMPACT))
    assert kseg.plan_compaction(log, force=True).unkeyed_records == 2
    assert compact(log).unkeyed_records == 2
    assert [row[0] for row in kept(log)] == [1, 3]


def test_cln_27_where_everything_is_superseded_the_end_of_the_range_is_seen(
    opened: Opened, clock: Clock
) -> None:
    log = fill(opened(delete_retention_ms=0), keyed(b"a"), keyed(b"a", None))
    compact(log)
    compact(log, from_start=True)
    assert kept(log) == []
    assert [(one.last_offset, one.record_count) for one in batches_of(log)] == [(1, 0)]
    compact(log, from_start=True)
    assert log.log_end_offset == 2


def test_k42_33_cln_18_a_tombstone_gets_a_horizon_first_and_goes_at_it(
    opened: Opened, clock: Clock
) -> None:
    log = fill(opened(delete_retention_ms=1000), keyed(b"a"), keyed(b"a", None), keyed(b"b"))
    compact(log)
    assert kept(log) == [(1, b"a", None), (2, b"b", b"v")]
    assert batches_of(log)[0].delete_horizon_ms == NOW_MS + 1000
    clock.ms += 999
    compact(log, from_start=True)
    assert kept(log) == [(1, b"a", None), (2, b"b", b"v")]
    clock.ms += 1
    compact(log, from_start=True)
    assert kept(log) == [(2, b"b", b"v")]


def test_k42_34_cln_14_aborted_data_goes_and_its_marker_later(opened: Opened, clock: Clock) -> None:
    log = opened(delete_retention_ms=1000)
    fill(log, sent(b"a", 0), sent(b"b", 1), roll=False)
    log.append(marker(ABORT), origin=kseg.broker.AppendOrigin.COORDINATOR)
    fill(log, keyed(b"c"))
    compact(log)
    assert [row[0] for row in kept(log)] == [3]
    left = [(one.base_offset, one.record_count, one.is_control) for one in batches_of(log)]
    assert left == [(1, 0, False), (2, 1, True), (3, 1, False)]  # the producer's last batch
    log.append(sent(b"d", 2))
    log.append(marker(COMMIT), origin=kseg.broker.AppendOrigin.COORDINATOR)
    fill(log)
    compact(log)
    assert [one.base_offset for one in batches_of(log)] == [2, 3, 4, 5]
    compact(log, from_start=True)
    clock.ms += 1000
    compact(log, from_start=True)
    assert [one.base_offset for one in batches_of(log)] == [3, 4, 5]


def test_the_active_segment_and_what_is_behind_the_bounds_stays(opened: Opened) -> None:
    log = opened()
    fill(log, keyed(b"a"), keyed(b"a"))
    fill(log, keyed(b"a"), sent(b"x", 0))
    fill(log, keyed(b"a"), roll=False)
    plan = kseg.plan_compaction(log, force=True)
    assert (plan.first_uncleanable_offset, plan.last_stable_offset) == (2, 3)
    assert [(one.base_offset, one.why) for one in plan.staying] == [
        (2, "last-stable-offset"),
        (4, "active"),
    ]
    plan.apply()
    assert [row[0] for row in kept(log)] == [1, 2, 3, 4]


def test_nothing_at_or_above_the_high_watermark_goes(opened: Opened) -> None:
    log = opened()
    fill(log, keyed(b"a"), keyed(b"a"))
    fill(log, keyed(b"a"), keyed(b"a"))
    log.close()
    log = opened(high_watermark=3)
    plan = kseg.plan_compaction(log, force=True)
    assert (plan.first_uncleanable_offset, plan.staying[0].why) == (2, "high-watermark")


# When it is time


def test_the_dirty_ratio_is_asked_for_unless_forced(opened: Opened) -> None:
    log = opened(min_cleanable_dirty_ratio=0.5)
    fill(log, *(keyed(b"%d" % number) for number in range(9)))
    compact(log)
    fill(log, keyed(b"0"))
    plan = kseg.plan_compaction(log)
    assert (plan.skipped, plan.is_noop) == ("not-dirty-enough", True)
    assert plan.dirty_ratio == pytest.approx(0.1)
    assert kseg.plan_compaction(log, force=True).skipped is None
    aged = log.config.with_changes(max_compaction_lag_ms=1000)
    assert kseg.plan_compaction(log, config=aged, now_ms=NOW_MS + 999).skipped is not None
    assert kseg.plan_compaction(log, config=aged, now_ms=NOW_MS + 1001).skipped is None


def test_what_the_checkpoint_says_is_clean_supersedes_nothing_by_itself(opened: Opened) -> None:
    log = opened()
    fill(log, keyed(b"a"), keyed(b"a"))
    fill(log, keyed(b"b"), keyed(b"b"))
    path = log.path.parent / "cleaner-offset-checkpoint"
    write_offset_checkpoint(path, {HERE: 2, TopicPartition("u", 1): 7})
    compact(log)
    assert [row[0] for row in kept(log)] == [0, 1, 3]
    assert read_offset_checkpoint(path) == {HERE: 4, TopicPartition("u", 1): 7}
    assert kseg.plan_compaction(log).skipped == "nothing-dirty"
    compact(log, from_start=True)
    assert [row[0] for row in kept(log)] == [1, 3]


def cut(log: Log, offset: int) -> None:
    log.truncate_to(offset)
    log.close()


def cut_closed(log: Log, offset: int) -> None:
    log.close()
    kseg.plan_truncation(log.path, offset).apply(keep_cut=False)


def begin_anew(log: Log, offset: int) -> None:
    log.truncate_fully_and_start_at(offset)
    log.close()


def damage(log: Log, offset: int) -> None:
    """Let a recovery cut the log."""
    path = log.segments[0].path
    log.close()
    path.write_bytes(path.read_bytes()[: offset * len(keyed(b"a"))])
    for segment in path.parent.glob("*.log"):
        if segment != path:
            segment.unlink()
    (path.parent.parent / ".kafka_cleanshutdown").unlink()


def recovered(log: Log, offset: int) -> None:
    damage(log, offset)
    kseg.recover(log.path, keep_cut=False)


@pytest.mark.parametrize("end", [cut, cut_closed, begin_anew, damage, recovered])
def test_clm_06_what_comes_behind_a_cut_is_not_taken_for_clean(
    opened: Opened, clock: Clock, end: Callable[[Log, int], None]
) -> None:
    """Else the tombstone went at its horizon, and the value in front of it stayed."""
    log = fill(opened(delete_retention_ms=0), *(keyed(key) for key in (b"a", b"b", b"c")))
    compact(log)
    checkpoint = log.path.parent / "cleaner-offset-checkpoint"
    write_offset_checkpoint(checkpoint, {HERE: 3, TopicPartition("u", 1): 7})
    end(log, 1)
    log = opened(recover=True, delete_retention_ms=0)
    assert read_offset_checkpoint(checkpoint) == {HERE: 1, TopicPartition("u", 1): 7}
    fill(log, keyed(b"a", None), keyed(b"d"), keyed(b"e"))
    compact(log)
    clock.ms += 1
    fill(log, keyed(b"f"))
    compact(log)
    assert [row[1] for row in kept(log)] == [b"d", b"e", b"f"]


@pytest.mark.parametrize("to", share([0, 1, 2], 1, "cuts"))
def test_a_log_that_a_cut_was_killed_in_counts_as_clean_no_further_than_it_ends(
    tmp_path: Path, clock: Clock, to: int
) -> None:
    checkpoint = "cleaner-offset-checkpoint"
    seen = set()
    for made in count(step=1 if WHOLE else 3):
        data = tmp_path / str(made)
        left = tmp_path / f"{made}-left"
        with io.calls_replaced(UNSYNCED):
            with open_log(data / "t-0", clock, cleanup_policy=COMPACT) as log:
                fill(log, keyed(b"a"), keyed(b"b"))
                compact(fill(log, keyed(b"c")), force=True)
                with suppress(Stopped), stopping_at(made, UNSYNCED) as asked:
                    log.truncate_to(to)
                shutil.copytree(data, left)
            with open_log(left / "t-0", clock, recover=True) as log:
                clean = read_offset_checkpoint(left / checkpoint)[HERE]
                assert clean <= log.log_end_offset, made
                seen.add((clean, log.log_end_offset))
        if len(asked) <= made:
            break
    assert {(3, 3), (to, to)} <= seen


def test_a_malformed_checkpoint_does_not_keep_a_log_from_being_cut(opened: Opened) -> None:
    log = fill(opened(), keyed(b"a"), keyed(b"b"))
    checkpoint = log.path.parent / "cleaner-offset-checkpoint"
    checkpoint.write_bytes(b"noise")
    assert log.truncate_to(1)
    assert checkpoint.read_bytes() == b"noise"


# Files


def test_ul_86_segments_become_one_and_the_snapshots_of_those_that_went_go(opened: Opened) -> None:
    log = opened(segment_bytes=10_000)
    for number in range(4):
        fill(log, keyed(b"a", b"%d" % number))
    assert bases(log) == [0, 1, 2, 3, 4]
    compact(log)
    assert bases(log) == [0, 4]
    stems = {name.partition(".")[0].lstrip("0") for name in names(log) if name[0] == "0"}
    assert stems == {"", "4"}
    assert kept(log) == [(3, b"a", b"3")]
    log.close()
    assert kseg.plan_reindex(log.path, config=log.config, now_ms=NOW_MS).files == ()


def test_a_segment_that_does_not_change_is_not_written(opened: Opened) -> None:
    log = opened(segment_bytes=80)
    fill(log, keyed(b"a"))
    fill(log, keyed(b"b"), keyed(b"c"))
    plan = kseg.plan_compaction(log)
    before = {path: path.stat().st_ino for path in log.path.glob("*.log")}
    assert {one.why for one in plan.staying} == {"unchanged", "active"}
    assert plan.apply().segments_before == 0
    assert {path: path.stat().st_ino for path in log.path.glob("*.log")} == before
    unmeasured = kseg.plan_compaction(log, from_start=True, measure=False)
    assert unmeasured.kept_bytes is None
    assert unmeasured.apply().segments_before == 0
    assert not [name for name in names(log) if name.endswith(".cleaned")]


# What is refused


@pytest.mark.damages("a segment is damaged under the log")
def test_clm_01_damage_stops_the_log_and_names_it(opened: Opened) -> None:
    log = opened(segment_bytes=10_000)
    fill(log, keyed(b"a"), keyed(b"b"))
    plan = kseg.plan_compaction(fill(log, keyed(b"a"), keyed(b"b")))
    path = log.segments[1].path
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    before = {one.name: one.read_bytes() for one in log.path.glob("*.log")}
    for act in (lambda: kseg.plan_compaction(log), plan.apply):
        with pytest.raises(CorruptRecordError) as caught:
            act()
        assert (str(caught.value.path), caught.value.position) == (str(path), 70)
    assert {one.name: one.read_bytes() for one in log.path.glob("*.log")} == before
    assert not log.state.failed


@pytest.mark.damages("bytes are behind the end of a closed log")
def test_damage_behind_the_last_snapshot_stops_the_log(opened: Opened) -> None:
    log = opened(segment_bytes=10_000)
    fill(log, keyed(b"a"), keyed(b"b"))
    log.close()
    path = log.segments[-1].path
    with path.open("ab") as file:
        file.write(struct.pack(">qiib", log.log_end_offset, 60, 0, 9) + bytes(60))
    with pytest.raises(CorruptRecordError) as caught:
        kseg.plan_compaction(log.path, config={"cleanup.policy": "compact"})
    assert str(caught.value.path) == str(path)


def test_cln_03_26_segments_that_go_meanwhile_are_noticed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(opened(), keyed(b"a"), keyed(b"a"))
    plan = kseg.plan_compaction(log)
    swap = applying.swap_in

    def late(*given: Any) -> int:
        log.truncate_fully_and_start_at(9)
        return swap(*given)

    monkeypatch.setattr(applying, "swap_in", late)
    with pytest.raises(StalePlanError):
        plan.apply()
    assert not [name for name in names(log) if "cleaned" in name or "swap" in name]
    assert (log.log_end_offset, log.state.failed) == (9, False)


def test_a_checkpoint_that_cannot_be_read_is_told(opened: Opened) -> None:
    log = fill(opened(), keyed(b"a"), keyed(b"a"))
    plan = kseg.plan_compaction(log)
    (log.path.parent / "cleaner-offset-checkpoint").write_bytes(b"noise")
    with pytest.raises(CorruptIndexError):
        kseg.plan_compaction(log, config=log.config)
    with pytest.raises(CorruptIndexError):
        plan.apply()
    assert [row[0] for row in kept(log)] == [0, 1]


def test_a_disk_that_is_full_leaves_the_log_as_it_was(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(opened(), keyed(b"a"), keyed(b"a"))
    plan = kseg.plan_compaction(log)
    before = names(log)
    with monkeypatch.context() as patched:
        patched.setattr(io, "has_room", lambda *_: False)
        with pytest.raises(OSError, match="no room on the disk") as caught:
            plan.apply()
        assert caught.value.errno == errno.ENOSPC
    calls = io.Calls()

    def full(fd: int, parts: Any, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    replaced = io.Calls(pwritev=full, unlink=calls.unlink)
    with io.calls_replaced(replaced), pytest.raises(OSError, match="No space"):
        plan.apply()
    assert names(log) == before
    assert [row[0] for row in kept(log)] == [0, 1]
    assert not log.state.failed
    plan.apply()
    assert [row[0] for row in kept(log)] == [1]


def test_the_group_that_needs_least_room_goes_first_but_no_tombstone_does(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(segment_bytes=220, delete_retention_ms=0)
    fill(log, keyed(b"a", b"x" * 90), keyed(b"b", b"x" * 20))
    fill(log, keyed(b"a"), keyed(b"c", b"y"))
    fill(log, keyed(b"c"), keyed(b"d"), keyed(b"b", None))
    plan = kseg.plan_compaction(log)
    assert len(plan.groups) > 1
    order: list[int] = []
    write = applying._rewrite_group

    def noted(state: Any, one: Any, group: Any, report: Any) -> Any:
        order.append(group[0].base_offset)
        return write(state, one, group, report)

    room = min(group.kept_bytes or 0 for group in plan.groups)
    monkeypatch.setattr(applying, "_rewrite_group", noted)
    monkeypatch.setattr(io, "has_room", lambda _path, size: size <= room or len(order) > 0)
    plan.apply()
    least = min(plan.groups, key=lambda group: group.kept_bytes or 0)
    assert order[0] == least.base_offset


# Formats


@pytest.mark.parametrize(("rules", "magics"), [("4.0", {2}), ("3.9", {1, 2})])
def test_k42_35_messages_of_old_formats_become_magic_2_or_stay_by_the_rules(
    opened: Opened, rules: str, magics: set[int]
) -> None:
    log = opened()
    old = [record(b"%d" % n, key=b"%d" % (n % 2), timestamp=NOW_MS) for n in range(4)]
    log.append_as_follower(messages(old, magic=1), leader_epoch=0)
    log.append_as_follower(
        batch([record(b"x", key=b"x", timestamp=NOW_MS)], base_offset=4), leader_epoch=0
    )
    log.roll()
    compact(log, rules=rules)
    assert [row[0] for row in kept(log)] == [2, 3, 4]
    assert {one.magic for one in batches_of(log)} == magics


def test_a_range_that_ends_with_an_old_message_shows_its_end(opened: Opened) -> None:
    """Kafka fails there: a message of magic 0 or 1 cannot be kept empty."""
    log = opened()
    old = [record(b"v", key=b"a", timestamp=NOW_MS), record(b"v", key=None, timestamp=NOW_MS)]
    log.append_as_follower(messages(old, magic=1), leader_epoch=0)
    log.roll()
    compact(log)
    assert [row[0] for row in kept(log)] == [0, 1]


# Producers


def test_cln_05_20_the_last_batch_of_each_producer_stays_and_duplicates_are_known(
    opened: Opened,
) -> None:
    log = opened()
    for producer, sequence in ((1, 0), (2, 0), (3, 0), (1, 1)):
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        fill(log, keyed(b"k", **fields), roll=False)
    fill(log, keyed(b"k"))
    compact(log)
    left = [(one.last_offset, one.producer_id, one.record_count) for one in batches_of(log)]
    assert left == [(1, 2, 0), (2, 3, 0), (3, 1, 0), (4, -1, 1)]
    log.close()
    log = opened()
    again = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 1}
    assert log.append(keyed(b"k", **again)).first_offset == 3
    assert log.log_end_offset == 5
    fill(log, keyed(b"k", **{**again, "base_sequence": 2}))
    compact(log)
    assert [one.producer_id for one in batches_of(log)] == [2, 3, 1]


# Groups


def test_cln_28_segments_are_grouped_by_what_one_may_have(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened()
    for number in range(6):
        fill(log, keyed(b"%d" % number))
    infos = log.segments[:-1]
    size = infos[0].size

    def groups(**limits: int) -> list[list[int]]:
        config = log.config.with_changes(**limits)
        return [[one.base_offset for one in group] for group in group_segments(infos, config, 6)]

    assert groups(segment_bytes=2**30) == [[0, 1, 2, 3, 4, 5]]
    assert groups(segment_bytes=size) == [[0], [1], [2], [3], [4], [5]]
    assert groups(segment_bytes=3 * size) == [[0, 1, 2], [3, 4, 5]]
    assert groups(segment_index_bytes=12) == [[0], [1], [2], [3], [4], [5]]


@pytest.mark.parametrize(("far", "count"), [(2**31 - 1, 1), (2**31, 2)])
def test_cln_29_30_a_group_has_no_more_offsets_than_32_bits_tell(
    opened: Opened, far: int, count: int
) -> None:
    log = opened()
    log.append_as_follower(keyed(b"a", leader_epoch=0), leader_epoch=0)
    log.roll()
    log.append_as_follower(keyed(b"b", base_offset=far, leader_epoch=0), leader_epoch=0)
    log.roll()
    plan = kseg.plan_compaction(log, measure=False)
    assert len(plan.groups) == count
    compact(log, measure=False)
    assert [row[0] for row in kept(log)] == [0, far]
    compact(log, from_start=True)
    assert [row[0] for row in kept(log)] == [0, far]


# Beside appends and readers


def test_a_log_is_cleaned_beside_appends_and_readers(opened: Opened) -> None:
    log = opened(segment_bytes=2000)
    stop = threading.Event()
    seen: list[bytes | None] = []

    def read() -> None:
        while not stop.is_set():
            with suppress(FileNotFoundError, OffsetOutOfRangeError):
                seen.append([one.value for one in log.records()][-1])

    fill(log, keyed(b"a", b"-1"))
    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        fill(log, keyed(b"%d" % (number % 5), b"%d" % number), roll=False)
        if number % 20 == 19:
            log.roll()
            log.clean()
    stop.set()
    reader.join()
    log.roll()
    log.clean()
    assert {row[1]: row[2] for row in kept(log)} == {
        b"a": b"-1",
        **{b"%d" % (number % 5): b"%d" % number for number in range(95, 100)},
    }
    assert seen
    assert log.clean() is None
    log.update_config(log.config.with_changes(cleanup_policy=frozenset({"delete"})))
    assert log.clean(force=True) is None


def test_clm_04_cleaning_deletes_old_segments_too_where_the_policy_says_so(opened: Opened) -> None:
    log = opened(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    fill(log, keyed(b"a"), keyed(b"b"))
    log.clean(now_ms=NOW_MS + 1001)
    assert (kept(log), log.log_start_offset) == ([], 2)
