from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kseg import Segment
from kseg.errors import InvalidTxnStateError, KsegError
from kseg.files import producer_snapshot
from kseg.log.producers.snapshots import SnapshotFiles, rebuild
from kseg.log.producers.state import ProducerState
from tests.builders import batch, control_batch, record, write_segment
from tests.producing import append, data
from tests.stopping import refusing


def name(offset: int) -> str:
    return f"{offset:020d}.snapshot"


def put(directory: Path, *offsets: int) -> SnapshotFiles:
    for offset in offsets:
        producer_snapshot.write(directory / name(offset), [], sync=False)
    return SnapshotFiles.scan(directory)


def left(directory: Path) -> list[int]:
    return sorted(int(n.split(".")[0]) for n in os.listdir(directory) if n.endswith(".snapshot"))


def test_a_scan_finds_snapshots_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000007.snapshot.deleted").write_bytes(b"")
    (tmp_path / "00000000000000000008.log").write_bytes(b"")
    (tmp_path / "-3.snapshot").write_bytes(b"")
    (tmp_path / name(6)).mkdir()
    found = put(tmp_path, 9, 3, 12)
    assert (found.offsets, found.newest_offset) == ((3, 9, 12), 12)
    assert found.path(9) == tmp_path / name(9)
    assert found.path(6) is None
    empty = SnapshotFiles(tmp_path)
    assert (empty.offsets, empty.newest_offset) == ((), None)


def test_of_two_names_for_an_offset_that_in_20_digits_counts(tmp_path: Path) -> None:
    for other in ("5.snapshot", "000000000000000000005.snapshot"):
        (tmp_path / other).write_bytes(b"")
    assert put(tmp_path, 5).path(5) == tmp_path / name(5)


def test_the_newest_sound_one_is_found_and_others_stay_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    files = put(tmp_path, 3, 5, 7)
    (tmp_path / name(7)).write_bytes(b"\0\1")
    (tmp_path / name(5)).unlink()
    found = files.newest_sound()
    assert found == (3, ())
    assert files.offsets == (3, 7)
    assert files.newest_sound(at_most=2) is None
    assert files.newest_sound(at_most=3) == found
    files.newest_sound(delete_corrupt=True)
    assert (files.offsets, left(tmp_path)) == ((3,), [3])


@pytest.mark.parametrize(("last", "transaction_from"), [(7, -1), (9, -1), (6, 7), (-1, 8)])
def test_one_that_tells_of_offsets_beyond_its_own_is_believed_by_kafka_alone(
    tmp_path: Path, last: int, transaction_from: int
) -> None:
    before = producer_snapshot.ProducerSnapshotEntry(4, 0, 1, 2, 0, 5, -1, -1)
    beyond = producer_snapshot.ProducerSnapshotEntry(4, 0, 1, last, 0, 5, -1, transaction_from)
    for offset, entry in ((3, before), (7, beyond)):
        producer_snapshot.write(tmp_path / name(offset), [entry], sync=False)
    files = SnapshotFiles.scan(tmp_path)
    found = files.newest_sound()
    assert found == (3, (before,))
    paths = {offset: tmp_path / name(offset) for offset in (3, 7)}
    believed = SnapshotFiles(tmp_path, paths.items(), careful=False).newest_sound()
    assert believed == (7, (beyond,))
    files.newest_sound(delete_corrupt=True)
    assert left(tmp_path) == [3]


def test_a_snapshot_that_cannot_be_opened_is_no_corrupt_one(tmp_path: Path) -> None:
    files = put(tmp_path, 3)
    (tmp_path / name(3)).unlink()
    (tmp_path / name(3)).mkdir()
    with pytest.raises(IsADirectoryError):
        files.newest_sound(delete_corrupt=True)


@pytest.mark.parametrize("sync", [True, False])
def test_a_snapshot_that_is_not_written_is_taken_again(tmp_path: Path, sync: bool) -> None:
    state, files = ProducerState(), SnapshotFiles(tmp_path)
    append(state, data(0, 4))
    with refusing("pwritev", code=28), pytest.raises(OSError, match="space"):
        files.take(state, sync=sync)
    assert (files.offsets, state.last_snapshot_offset) == ((), 0)
    assert files.take(state, sync=sync) == tmp_path / name(5)
    assert producer_snapshot.read(tmp_path / name(5))[0].last_offset == 4


# ---- from the log --------------------------------------------------------------------------------


def written(offset: int, producer: int = 1, *, transactional: bool = False) -> bytes:
    return batch(
        [record(timestamp=50)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=offset,
        transactional=transactional,
    )


class Directory:
    """Three segments of four offsets each, and which of them was opened."""

    def __init__(self, path: Path) -> None:
        self.path, self.opened = path, list[int]()
        self.logs = {}
        for base in (0, 4, 8):
            parts = [written(offset, offset % 3) for offset in range(base, base + 4)]
            self.logs[base] = write_segment(path, base, *parts)

    def _open(self, base: int) -> Segment:
        self.opened.append(base)
        return Segment.open(self.logs[base])

    def rebuilt(self, end: int = 12, start: int = 0, **how: Any) -> ProducerState:
        state = ProducerState(expiration_ms=100)
        how = {"now_ms": 0, "clean": False, **how}
        rebuild(
            state,
            SnapshotFiles.scan(self.path),
            [*self.logs],
            self._open,
            log_start_offset=start,
            end_offset=end,
            **how,
        )
        return state


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


@pytest.mark.parametrize("end", range(13))
def test_nothing_from_the_end_on_counts(directory: Directory, end: int) -> None:
    state = directory.rebuilt(end)
    known = {key: one.last_offset for key, one in state.entries.items()}
    assert known == {offset % 3: offset for offset in range(end)}
    assert state.map_end_offset == end
    assert max(left(directory.path), default=0) == end


@pytest.mark.parametrize("start", range(12))
def test_nothing_in_front_of_the_logs_start_counts(directory: Directory, start: int) -> None:
    state = directory.rebuilt(start=start)
    known = {offset for one in state.entries.values() for _, offset, _, _ in one.batches}
    assert known == set(range(start, 12))


@pytest.mark.parametrize("how", [{"clean": True}, {"magic": 1}])
def test_a_log_without_producers_is_not_read(directory: Directory, how: dict[str, Any]) -> None:
    state = directory.rebuilt(**how)
    assert (state.is_empty, state.map_end_offset, directory.opened) == (True, 12, [])
    assert left(directory.path) == [4, 8, 12]


def test_producers_of_old_records_go_with_their_snapshot(directory: Directory) -> None:
    directory.rebuilt()
    (directory.path / name(12)).unlink()
    assert set(directory.rebuilt(now_ms=149).entries) == {0, 1, 2}
    (directory.path / name(12)).unlink()
    state = directory.rebuilt(now_ms=150)
    # What is read after the snapshot is known whatever its age.
    assert {k: [b.last_offset for b in e.batches] for k, e in state.entries.items()} == {
        2: [8, 11],
        0: [9],
        1: [10],
    }


def test_what_no_leader_would_have_taken_is_told_or_raised(tmp_path: Path) -> None:
    log = write_segment(
        tmp_path, 0, written(0, transactional=True), written(1), control_batch(0, base_offset=2)
    )
    segments = ([0], lambda _base: Segment.open(log))
    how: Any = {"log_start_offset": 0, "end_offset": 3, "now_ms": 0, "clean": False}
    with pytest.raises(InvalidTxnStateError):
        rebuild(ProducerState(), SnapshotFiles(tmp_path), *segments, **how)
    told: list[KsegError] = []
    state = ProducerState()
    rebuild(state, SnapshotFiles(tmp_path), *segments, **how, on_error=told.append)
    assert [error.offset for error in told] == [1]
    assert state.entries[1].current_txn_first_offset is None
