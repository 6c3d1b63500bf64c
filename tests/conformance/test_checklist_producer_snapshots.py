"""Snapshots of producer state, one claim a test: Kafka's ProducerStateManagerTest on files.

Its claims on appending are in `test_checklist_producers`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kseg.errors import TransactionCoordinatorFencedError
from kseg.files import producer_snapshot
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.log.producers.snapshots import SnapshotFiles
from kseg.log.producers.state import ProducerState
from kseg.log.validate.rules import AppendOrigin
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
)

DAY_MS = 86_400_000


@pytest.fixture
def state() -> ProducerState:
    return ProducerState()


@pytest.fixture
def files(tmp_path: Path) -> SnapshotFiles:
    return SnapshotFiles(tmp_path)


def left(files: SnapshotFiles) -> list[int]:
    names = os.listdir(files.directory)
    on_disk = sorted(int(name.split(".")[0]) for name in names if name.endswith(".snapshot"))
    assert list(files.offsets) == on_disk
    return on_disk


def reloaded(
    files: SnapshotFiles, start: int, end: int, *, now_ms: int = 0, expiration_ms: int = DAY_MS
) -> ProducerState:
    state = ProducerState(expiration_ms=expiration_ms)
    SnapshotFiles.scan(files.directory).truncate_and_reload(state, start, end, now_ms=now_ms)
    return state


def test_psm_12_a_truncation_takes_the_snapshots_outside(
    state: ProducerState, files: SnapshotFiles
) -> None:
    for offset in range(5):
        append(state, data(offset, offset))
        files.take(state)
    assert left(files) == [1, 2, 3, 4, 5]
    files.truncate_and_reload(state, 1, 3, now_ms=0)
    assert left(files) == [2, 3]
    assert (state.map_end_offset, state.entries[1].last_offset) == (3, 2)


def test_psm_13_a_snapshot_is_written_where_there_is_something_new(
    state: ProducerState, files: SnapshotFiles
) -> None:
    append(state, data(0))
    append(state, data(1, 1))
    path = files.take(state)
    assert path is not None
    assert path.stat().st_size > 0
    assert left(files) == [2]
    assert files.path(2) == path
    assert files.take(state) is None
    assert left(files) == [2]
    assert files.path(1) is None


@pytest.mark.parametrize("is_open", [True, False])
def test_psm_14_a_reload_knows_the_last_batch_and_whether_a_transaction_is_open(
    state: ProducerState, files: SnapshotFiles, is_open: bool
) -> None:
    append(state, data(0, 0, transactional=True))
    append(state, data(1, 1, transactional=True))
    if not is_open:
        append(state, marker(ABORT, 2), origin=COORDINATOR)
    files.take(state)
    again = reloaded(files, 0, 3)
    entry = again.entries[1]
    assert (entry.first_sequence, entry.last_sequence) == (1, 1)
    assert (entry.first_offset, entry.last_offset) == (1, 1)
    first = 0 if is_open else None
    assert entry.current_txn_first_offset == first_undecided(again) == first
    append(again, data(2, 3, transactional=is_open))


def test_psm_14_a_reload_of_a_marker_alone_keeps_its_time(
    state: ProducerState, files: SnapshotFiles
) -> None:
    append(state, marker(ABORT, 0, time=1234), origin=COORDINATOR)
    files.take(state)
    again = reloaded(files, 0, 1)
    assert (again.entries[1].last_timestamp, again.entries[1].last_sequence) == (1234, -1)


def test_psm_15_a_marker_that_fences_a_producer_does_not_expire_with_it(
    files: SnapshotFiles,
) -> None:
    state = ProducerState(expiration_ms=DAY_MS)
    append(state, marker(ABORT, 0, epoch=2, time=DAY_MS), origin=COORDINATOR)
    assert (state.entries[1].last_offset, state.entries[1].first_offset) == (-1, -1)
    state.expire(DAY_MS)
    files.take(state)
    assert set(reloaded(files, 0, 1, now_ms=DAY_MS).entries) == {1}


@pytest.mark.parametrize("origin", [CLIENT, REPLICATION])
def test_psm_16_a_reload_leaves_expired_producers_out_and_their_next_batch_fits(
    state: ProducerState, files: SnapshotFiles, origin: AppendOrigin
) -> None:
    append(state, data(0, 0))
    append(state, data(1, 1, time=1))
    files.take(state)
    again = reloaded(files, 0, 1, now_ms=70_000, expiration_ms=60_000)
    assert again.is_empty
    append(again, data(2, 2, time=70_001), origin=origin)
    entry = again.entries[1]
    assert (len(entry.batches), entry.first_sequence, entry.last_sequence) == (1, 2, 2)
    assert (entry.first_offset, entry.last_offset) == (2, 2)


def test_psm_18_snapshots_before_an_offset_are_deleted(
    state: ProducerState, files: SnapshotFiles
) -> None:
    for offset in range(3):
        append(state, data(offset, offset))
        files.take(state)
    assert files.delete_outside(2, 3) == (1, 2)
    assert left(files) == [3]
    assert files.delete_outside(3, 3) == (3,)
    assert left(files) == []


def test_psm_20_a_scan_sees_what_was_put_back_by_hand(
    state: ProducerState, files: SnapshotFiles
) -> None:
    for offset in range(3):
        append(state, data(offset, offset))
        files.take(state)
    files.delete_all()
    assert files.newest_offset is None
    for offset in (1, 2, 3):
        producer_snapshot.write(files.directory / f"{offset:020d}.snapshot", [])
    assert SnapshotFiles.scan(files.directory).newest_offset == 3


def test_psm_21_a_truncation_tells_the_first_unstable_offset_anew(
    state: ProducerState, files: SnapshotFiles
) -> None:
    append(state, data(0, 99, transactional=True))
    assert state.first_unstable_offset == 99
    files.take(state)
    append(state, marker(COMMIT, 105), origin=COORDINATOR)
    state.high_watermark_updated(106)
    assert state.first_unstable_offset is None
    files.take(state)
    append(state, data(1, 106))
    files.truncate_and_reload(state, 0, 106, now_ms=0)
    assert state.first_unstable_offset is None
    files.truncate_and_reload(state, 0, 100, now_ms=0)
    assert state.first_unstable_offset == 99


def test_psm_22_producers_that_have_not_expired_survive_a_reload(
    state: ProducerState, files: SnapshotFiles
) -> None:
    append(state, data(0, 0, producer=1))
    append(state, data(0, 1, producer=2))
    files.take(state)
    files.truncate_and_reload(state, 1, 2, now_ms=0)
    assert set(state.entries) == {1, 2}
    assert set(reloaded(files, 1, 2).entries) == {1, 2}


def test_psm_25_no_producer_expires_within_its_transaction(
    state: ProducerState, files: SnapshotFiles
) -> None:
    append(state, data(0, 99, transactional=True))
    assert state.expire(10 * DAY_MS) == ()
    assert (set(state.entries), first_undecided(state)) == ({1}, 99)
    files.take(state)
    assert set(reloaded(files, 0, 100, now_ms=10 * DAY_MS).entries) == {1}


def test_psm_28_a_coordinator_that_was_replaced_is_fenced(
    state: ProducerState, files: SnapshotFiles
) -> None:
    for offset, coordinator in enumerate([1, 1, 2]):
        append(state, marker(COMMIT, offset, coordinator=coordinator), origin=COORDINATOR)
    assert state.entries[1].coordinator_epoch == 2
    files.take(state)
    for known in (state, reloaded(files, 0, 3)):
        with pytest.raises(TransactionCoordinatorFencedError):
            append(known, marker(COMMIT, 3, coordinator=1), origin=COORDINATOR)


SPOILT = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "overwritten": lambda data: data[: len(data) // 2] + bytes([37]) * (len(data) // 2),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_psm_29_a_corrupt_snapshot_is_deleted_and_the_one_before_used(
    state: ProducerState, files: SnapshotFiles, spoil: object
) -> None:
    append(state, data(0, 0))
    files.take(state)
    append(state, data(1, 1))
    newest = files.take(state)
    assert newest is not None
    assert callable(spoil)
    newest.write_bytes(spoil(newest.read_bytes()))
    again = ProducerState()
    scanned = SnapshotFiles.scan(files.directory)
    scanned.truncate_and_reload(again, 0, 3, now_ms=0)
    assert not newest.exists()
    assert left(scanned) == [1]
    assert (again.entries[1].last_offset, again.map_end_offset) == (0, 1)


@pytest.mark.parametrize(
    ("bases", "kept"),
    [({5}, [5, 42]), ({42}, [42]), ({2, 5, 42}, [2, 5, 42]), (set(), [42]), ({2, 50}, [2])],
)
def test_psm_31_stray_snapshots_go_but_the_one_behind_the_last_segment(
    tmp_path: Path, bases: set[int], kept: list[int]
) -> None:
    for offset in (2, 5, 42):
        (tmp_path / f"{offset:020d}.snapshot").write_bytes(b"")
    files = SnapshotFiles.scan(tmp_path)
    files.remove_stray(bases)
    assert left(files) == kept


def test_psm_32_marking_for_deletion_renames_and_forgets(
    state: ProducerState, files: SnapshotFiles
) -> None:
    append(state, data(0, 0))
    path = files.take(state)
    assert path is not None
    marked = files.mark_for_deletion(1)
    assert marked is not None
    assert marked.name == "00000000000000000001.snapshot.deleted"
    assert (marked.exists(), path.exists(), files.newest_offset) == (True, False, None)
    assert files.mark_for_deletion(1) is None


def test_psm_32_marking_one_that_is_gone_forgets_it(
    state: ProducerState, files: SnapshotFiles
) -> None:
    append(state, data(0, 0))
    path = files.take(state)
    assert path is not None
    path.unlink()
    assert files.newest_offset == 1
    assert files.mark_for_deletion(1) is None
    assert files.newest_offset is None


def test_psm_38_snapshot_entries_come_back(files: SnapshotFiles) -> None:
    made = [
        ProducerSnapshotEntry(1, 2, 1, 2, 3, -1, 3, 100),
        ProducerSnapshotEntry(11, 12, -1, -1, 0, 123456, 13, -1),
    ]
    state = ProducerState()
    state.load(made, 0)
    state.map_end_offset = 200
    path = files.take(state)
    assert path is not None
    assert list(producer_snapshot.read(path)) == made
