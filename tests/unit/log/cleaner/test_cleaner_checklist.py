"""The cleaner's lines of the checklist that `test_compaction.py` does not name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import kseg
from kseg.errors import CorruptRecordError
from kseg.files.txn_index import AbortedTxn, TxnIndex
from kseg.format.values import BinaryColumn
from kseg.log.cleaner.inputs import CleanerInputs, group_segments
from kseg.log.cleaner.judge import LastOffsets, read_decisions, read_keys
from kseg.log.cleaner.rewrite import Pass
from kseg.log.log import Log
from kseg.log.writer import flush
from tests import reference
from tests.builders import batch, control_batch, record
from tests.unit.log.cleaner.compacting import (
    Opened,
    Producer,
    batches_of,
    compact,
    fill,
    kept,
    keyed,
)
from tests.unit.log.logs import NOW_MS, Clock

DAY_MS = 86_400_000


def offsets(log: Log) -> list[int]:
    """Offsets of all records, markers too."""
    return [one.offset for each in batches_of(log) for one in reference.records(each)]


def keys(log: Log) -> list[bytes | None]:
    return [row[1] for row in kept(log)]


def last_offsets(log: Log) -> list[int]:
    """The last offset of each batch."""
    return [one.last_offset for one in batches_of(log)]


def aborted(log: Log) -> list[AbortedTxn]:
    """What the transaction indexes say."""
    paths = sorted(log.path.glob("*.txnindex"))
    return [entry for path in paths for entry in TxnIndex.open(path).entries()]


def again(log: Log) -> None:
    """One more pass over all of it."""
    compact(log, from_start=True, force=True)


# Files


def test_cln_04_a_new_log_takes_no_room_in_advance(opened: Opened) -> None:
    log = fill(opened(preallocate=True, segment_bytes=4096), keyed(b"a"), keyed(b"a"))
    compact(log)
    assert log.segments[0].path.stat().st_size == log.segments[0].size == len(keyed(b"a"))


def test_cln_23_what_is_behind_the_range_keeps_its_content(opened: Opened) -> None:
    log = fill(opened(min_compaction_lag_ms=1000), keyed(b"a"), keyed(b"a"))
    young = batch([record(key=b"a", timestamp=NOW_MS + 5000)], leader_epoch=-1)
    fill(log, young, young)
    before = log.segments[1].path.read_bytes()
    kseg.plan_compaction(log, now_ms=NOW_MS + 2000).apply()
    assert (offsets(log), log.segments[1].path.read_bytes()) == ([1, 2, 3], before)


def test_cln_24_the_active_segment_counts_neither_as_clean_nor_as_dirty(opened: Opened) -> None:
    log = opened()
    for _ in range(3):
        fill(log, keyed(b"a"), keyed(b"b"))
    fill(log, keyed(b"c"), roll=False)
    size = log.segments[1].size
    (log.path.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    plan = kseg.plan_compaction(log)
    assert (plan.clean_bytes, plan.cleanable_bytes) == (size, 2 * size)
    assert plan.dirty_ratio == pytest.approx(2 / 3)


# Which record stays


def test_cln_10_a_stretch_of_which_nothing_stays_does_not_end_the_pass(opened: Opened) -> None:
    log = opened()
    one = Producer(log)
    for _ in range(300):
        one.send(b"a")
    one.abort()
    fill(log, keyed(b"b"))
    compact(log)
    assert (keys(log), last_offsets(log)) == ([b"b"], [299, 300, 301])


def test_cln_17_messages_larger_than_is_allowed_now_are_compacted(opened: Opened) -> None:
    big = b"x" * 3_000_000
    log = opened(max_message_bytes=4_000_000)
    for key, codec in ((b"a", "none"), (b"b", "gzip"), (b"a", "none")):
        log.append({"key": [key], "value": [big]}, options=kseg.BatchOptions(compression=codec))
    log.roll()
    log.update_config(log.config.with_changes(max_message_bytes=100))
    compact(log)
    assert [(row[0], row[2] == big) for row in kept(log)] == [(1, True), (2, True)]


@pytest.mark.damages("a segment is damaged under the log")
@pytest.mark.parametrize("harm", ["magic", "cut"])
def test_cln_17_a_wrong_magic_or_a_cut_file_stops_the_log(opened: Opened, harm: str) -> None:
    log = fill(opened(), keyed(b"a"), keyed(b"a"))
    path = log.segments[0].path
    data = path.read_bytes()
    at = len(keyed(b"a")) + 16
    noise = data[:-3] if harm == "cut" else data[:at] + b"\x7f" + data[at + 1 :]
    path.write_bytes(noise)
    with pytest.raises(CorruptRecordError) as caught:
        kseg.plan_compaction(log)
    assert (str(caught.value.path), path.read_bytes()) == (str(path), noise)


def test_cln_38_an_old_tombstone_stays_for_its_time_all_the_same(
    opened: Opened, clock: Clock
) -> None:
    log = opened(delete_retention_ms=1000)
    old = batch([record(None, key=b"a", timestamp=NOW_MS - 10 * DAY_MS)], leader_epoch=-1)
    fill(log, old, keyed(b"b"))
    for _ in range(2):
        again(log)
        assert keys(log) == [b"a", b"b"]
    clock.ms += 1000
    again(log)
    assert keys(log) == [b"b"]


def test_cln_39_missing_offsets_at_the_end_of_segments_are_clean_too(opened: Opened) -> None:
    log = opened()
    for base, following in ((0, 10), (10, 30), (30, 31)):
        log.append_as_follower(keyed(b"a", base_offset=base, leader_epoch=0), leader_epoch=0)
        flush.roll(log.state, following)
    report = compact(log)
    assert report.end_offset == log.segments[-1].base_offset == 31
    assert kseg.plan_compaction(log).skipped == "nothing-dirty"


# The map


def map_of(log: Log, start: int, end: int, map_bytes: int = 1 << 16) -> LastOffsets:
    inputs, dirty = CleanerInputs.of_state(log.state), range(start, end)
    return read_keys(inputs, dirty, read_decisions(inputs, dirty), map_bytes)


def known(found: LastOffsets, count: int) -> set[int]:
    """Which numbers are keys of a map, each at the offset that is that number."""
    names, numbers = [b"%d" % number for number in range(count)], np.arange(count)
    ends = np.cumsum([0, *map(len, names)], dtype=np.int32)
    keys = BinaryColumn(ends, np.frombuffer(b"".join(names), np.uint8), None, 0)
    # Only a key that the map does not have is the last one below all offsets.
    there = ~found.latest(keys, np.full(count, -1))
    return set(numbers[there & found.latest(keys, numbers)].tolist())


def test_cln_32_the_map_has_the_keys_of_the_range_and_its_end(opened: Opened) -> None:
    log = opened()
    for first in range(0, 12, 3):
        fill(log, *(keyed(b"%d" % number) for number in range(first, first + 3)))
    for start, end in ((0, 6), (3, 9), (6, 12)):
        found = map_of(log, start, end)
        assert known(found, 12) == set(range(start, end))
        assert (found.latest_offset + 1, found.count, found.full) == (end, end - start, False)


def test_cln_36_a_full_map_has_the_first_keys_of_the_range(opened: Opened) -> None:
    log = fill(opened(), *(keyed(b"%d" % number) for number in range(5)))
    found = map_of(log, 2, 5, map_bytes=3 * 24)
    assert known(found, 5) == {2, 3}
    assert (found.latest_offset, found.full) == (3, True)


def test_cln_35_very_sparse_offsets_have_their_end(opened: Opened) -> None:
    log = opened()
    far = (0, 2**31 - 3, 2**33)
    for offset in far:
        log.append_as_follower(keyed(b"a", base_offset=offset, leader_epoch=0), leader_epoch=0)
    log.roll()
    end = log.segments[-1].base_offset
    assert map_of(log, 0, end).latest_offset + 1 == end == far[-1] + 1
    compact(log)
    assert offsets(log) == [far[-1]]


def test_cln_31_an_index_without_entries_does_not_mislead_grouping(opened: Opened) -> None:
    log = opened(index_interval_bytes=0)
    for number in range(4):
        fill(log, keyed(b"%d" % number), keyed(b"%d" % number))
    infos = log.segments[:-1]
    for info in infos[1:3]:
        assert info.files.index is not None
        info.files.index.write_bytes(b"")
    assert infos[0].files.time_index is not None
    narrow = infos[0].files.time_index.stat().st_size
    config = log.config.with_changes(segment_index_bytes=narrow)
    found = [[one.base_offset for one in group] for group in group_segments(infos, config, 8)]
    assert found == [[0], [2], [4], [6]]
    wide = [[one.base_offset for one in g] for g in group_segments(infos, log.config, 8)]
    assert wide == [[0, 2, 4, 6]]


# Transactions


def two_transactions(log: Log) -> tuple[Producer, Producer]:
    """Two producers whose transactions are open, the data of one around that of the other."""
    one, other = Producer(log, 1), Producer(log, 2)
    one.send(b"1", b"2")
    other.send(b"2", b"3")
    one.send(b"3", b"4")
    return one, other


def test_cln_07_committed_and_aborted_data_beside_each_other(opened: Opened) -> None:
    log = opened()
    one, other = two_transactions(log)
    one.abort()
    other.commit()
    one.send(b"2")
    one.commit()
    log.roll()
    before = aborted(log)
    compact(log)
    assert (keys(log), offsets(log)) == ([b"3", b"2"], [3, 6, 7, 8, 9])
    assert aborted(log) == before


def test_cln_06_a_small_map_takes_aborted_data_markers_and_entries_out_in_order(
    opened: Opened, clock: Clock
) -> None:
    log = opened(delete_retention_ms=1000)
    for number in range(5):
        one = Producer(log, number)
        one.send(b"%d" % number, b"%d" % (number + 1))
        one.abort()
        Producer(log, number, 2).send(b"c%d" % number, transactional=False)
    log.roll()
    report = compact(log, map_bytes=4 * 24)
    assert (report.passes > 1, report.end_offset) == (True, 20)
    markers = list(range(2, 20, 4))
    assert offsets(log) == sorted([*markers, *range(3, 20, 4)])
    again(log)
    assert (offsets(log), aborted(log)) == (sorted([*markers, *range(3, 20, 4)]), [])
    clock.ms += 1000
    again(log)
    assert offsets(log) == list(range(3, 20, 4))


def test_cln_08_transactions_that_span_segments(opened: Opened) -> None:
    log = opened()
    one, other = two_transactions(log)
    log.roll()
    other.send(b"5")
    fill(log, keyed(b"9"))
    assert kseg.plan_compaction(log, force=True).skipped == "nothing-dirty"
    other.commit()
    one.abort()
    log.roll()
    compact(log)
    assert keys(log) == [b"2", b"3", b"5", b"9"]


def test_cln_09_a_commit_marker_stays_as_long_as_data_and_one_horizon_more(
    opened: Opened, clock: Clock
) -> None:
    log = opened(delete_retention_ms=1000)
    one = Producer(log)
    one.send(b"1")
    one.send(b"2", b"3")
    one.commit()
    one.send(b"2")
    one.commit()
    log.roll()
    compact(log)
    assert (keys(log), offsets(log)) == ([b"1", b"3", b"2"], [0, 2, 3, 4, 5])
    one.send(b"1", b"3")
    one.commit()
    log.roll()
    left = [3, 4, 5, 6, 7, 8]
    for _ in range(3):
        again(log)
        assert (keys(log), offsets(log)) == ([b"2", b"1", b"3"], left)
    clock.ms += 1000
    again(log)
    assert offsets(log) == left[1:]


def test_cln_11_a_marker_stays_while_the_producer_s_empty_batch_does(
    opened: Opened, clock: Clock
) -> None:
    log = opened(delete_retention_ms=1000)
    one = Producer(log, 1)
    one.send(b"2")
    one.commit()
    fill(log, keyed(b"2"))
    for _ in range(3):
        again(log)
        clock.ms += 1000
        assert [(b.last_offset, b.record_count) for b in batches_of(log)] == [
            (0, 0),
            (1, 1),
            (2, 1),
        ]
    one.send(b"3")
    one.commit()
    log.roll()
    again(log)
    assert last_offsets(log) == [1, 2, 3, 4]
    again(log)
    assert batches_of(log)[0].delete_horizon_ms == clock.ms + 1000
    clock.ms += 1000
    again(log)
    assert last_offsets(log) == [2, 3, 4]


def test_cln_12_a_marker_that_is_all_a_producer_has_becomes_an_empty_batch(
    opened: Opened, clock: Clock
) -> None:
    log = opened(delete_retention_ms=1000)
    Producer(log).commit()
    fill(log, keyed(b"2"), keyed(b"3"))
    again(log)
    assert (offsets(log), last_offsets(log)) == ([0, 1, 2], [0, 1, 2])
    for _ in range(2):
        clock.ms += 1000
        again(log)
        assert (offsets(log), last_offsets(log)) == ([1, 2], [0, 1, 2])
        assert batches_of(log)[0].is_control


@pytest.mark.parametrize(("ending", "left"), [(Producer.commit, [0, 1]), (Producer.abort, [1])])
def test_cln_13_data_in_one_segment_and_its_marker_in_the_next(
    opened: Opened, clock: Clock, ending: Callable[[Producer], None], left: list[int]
) -> None:
    log = opened(segment_bytes=150)
    one = Producer(log)
    one.send(b"1")
    log.roll()
    ending(one)
    log.roll()
    for _ in range(2):
        again(log)
        assert (offsets(log), last_offsets(log)) == (left, [0, 1])
        clock.ms += 100 * DAY_MS if ending is Producer.abort else 0


def test_cln_15_sequences_that_begin_at_0_again_keep_the_last_batch(
    opened: Opened, clock: Clock
) -> None:
    """As group coordinators write, whose sequences nobody compares."""
    log = opened(delete_retention_ms=1000)
    fields = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    for offset in range(0, 6, 2):
        data = keyed(b"k", base_offset=offset, leader_epoch=0, **fields)
        mark = control_batch(1, base_offset=offset + 1, producer_id=9)
        log.append_as_follower(data + mark, leader_epoch=0)
    log.append_as_follower(keyed(b"k", base_offset=6, leader_epoch=0), leader_epoch=0)
    log.roll()
    for _ in range(3):
        again(log)
        clock.ms += 1000
    found = [(one.last_offset, one.record_count) for one in batches_of(log)]
    assert found == [(4, 0), (5, 1), (6, 1)]


def test_cln_16_an_entry_of_the_index_goes_with_the_last_batch_of_its_transaction(
    opened: Opened, clock: Clock
) -> None:
    log = opened(delete_retention_ms=1000)
    one = Producer(log)
    one.send(b"1")
    one.abort()
    fill(log, keyed(b"2"))
    for _ in range(2):
        again(log)
        assert (last_offsets(log), len(aborted(log))) == ([0, 1, 2], 1)
    one.send(b"3")
    one.commit()
    log.roll()
    again(log)
    assert last_offsets(log) == [1, 2, 3, 4]
    again(log)
    assert aborted(log) == []
    clock.ms += 1000
    again(log)
    assert (last_offsets(log), aborted(log)) == ([2, 3, 4], [])


def test_cln_21_keys_equal_to_those_of_markers_supersede_none(opened: Opened) -> None:
    log = opened()
    one = Producer(log)
    abort, commit = b"\0\0\0\0", b"\0\0\0\1"
    for key, ending in ((abort, Producer.commit), (commit, Producer.abort)):
        one.send(key)
        ending(one)
    fill(log, keyed(abort), keyed(commit))
    compact(log)
    assert offsets(log) == [1, 3, 4, 5]


# The manager


def test_clm_03_a_checkpoint_in_the_active_segment_leaves_nothing_to_do(opened: Opened) -> None:
    log = fill(opened(), keyed(b"a"), keyed(b"a"))
    fill(log, keyed(b"a"), keyed(b"a"), roll=False)
    checkpoint = log.path.parent / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 3\n")
    assert kseg.plan_compaction(log, force=True).skipped == "nothing-dirty"
    checkpoint.unlink()
    log.delete_records_before(3)
    assert kseg.plan_compaction(log, force=True).skipped == "nothing-dirty"


def test_clm_08_the_range_ends_at_the_first_bound(opened: Opened) -> None:
    log = opened(min_compaction_lag_ms=1000)
    fill(log, keyed(b"a"), keyed(b"a"))
    late = batch([record(key=b"b", timestamp=NOW_MS + 500)], leader_epoch=-1)
    fill(log, late, roll=False)
    Producer(log).send(b"c")
    log.roll()

    def end(after_ms: int) -> int:
        return kseg.plan_compaction(log, now_ms=NOW_MS + after_ms).first_uncleanable_offset

    assert [end(999), end(1000), end(1499), end(1500)] == [0, 2, 2, 2]
    Producer(log).abort()
    log.roll()
    assert [end(1000), end(1500)] == [2, 5]
    pass_ = Pass.of(CleanerInputs.of_state(log.state), range(5), rules="4.0", map_bytes=1 << 16)
    assert pass_.end_offset == 5
