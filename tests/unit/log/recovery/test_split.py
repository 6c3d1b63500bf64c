from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from kseg.errors import OffsetOverflowError, OffsetsOutOfOrderError
from kseg.files.names import list_partition
from kseg.files.txn_index import AbortedTxn, TxnIndex
from kseg.log.config import LogConfig
from kseg.log.recovery.recover import recover
from kseg.log.recovery.split import SplitPiece, plan_split, split_log
from kseg.log.recovery.sweep import sweep_segment
from kseg.log.segment.reader import Segment
from tests.builders import ABORT, batch, control_batch, record, wrapper, write_segment
from tests.segments import batch_of
from tests.stopping import Stopped, stopping_at

INT_MAX = 2**31 - 1
FAR = 10 + 2**31
CONFIG = LogConfig(index_interval_bytes=100)


@cache
def one(offset: int) -> bytes:
    return batch_of(90, base_offset=offset, timestamp=offset % 1000)


def overflowing(directory: Path, *, base: int = 10) -> Path:
    """Two runs of three batches, the second too far for the first one's base."""
    parts = [one(base + i) for i in range(3)] + [one(base + 2**31 + i) for i in range(3)]
    return write_segment(directory, base, *parts)


def logs(directory: Path) -> dict[int, bytes]:
    return {
        files.base_offset: files.log.read_bytes() for files in list_partition(directory).segments
    }


# ---- planning ------------------------------------------------------------------------------------


def test_a_plan_says_where_new_segments_begin_and_changes_nothing(tmp_path: Path) -> None:
    path = overflowing(tmp_path)
    assert plan_split(path, CONFIG) == (SplitPiece(10, 0, 270), SplitPiece(FAR, 270, 540))
    assert os.listdir(tmp_path) == [path.name]


def test_there_may_be_many_pieces_of_one_batch_each(tmp_path: Path) -> None:
    offsets = [i * 2**31 for i in range(5)]
    pieces = plan_split(write_segment(tmp_path, 0, *(one(offset) for offset in offsets)), CONFIG)
    assert [piece.base_offset for piece in pieces] == offsets
    assert [piece.start for piece in pieces] == [0, 90, 180, 270, 360]


@pytest.mark.parametrize("parts", [(), (one(10),), (one(10), one(10 + INT_MAX))])
def test_a_segment_without_overflow_cannot_be_split(
    tmp_path: Path, parts: tuple[bytes, ...]
) -> None:
    assert plan_split(write_segment(tmp_path, 10, *parts), CONFIG) == ()


def test_offsets_that_go_back_begin_no_segment(tmp_path: Path) -> None:
    far = [one(2**31 + 5), one(2**31 + 6)]
    path = write_segment(tmp_path, 0, one(5), *far, one(6), one(2**33))
    assert plan_split(path, CONFIG) == (SplitPiece(5, 0, 90), SplitPiece(2**31 + 5, 90, 450))


def test_an_offset_that_the_next_batch_does_not_follow_is_wrong_rather_than_far(
    tmp_path: Path,
) -> None:
    path = write_segment(tmp_path, 0, one(5), one(2**50), one(6), one(7))
    with Segment.open(path) as segment:
        swept = sweep_segment(segment, config=CONFIG)
    assert isinstance(swept.error, OffsetsOutOfOrderError)
    assert (swept.error.position, swept.valid_bytes) == (90, 90)
    assert plan_split(path, CONFIG) == ()


def test_compressed_messages_begin_with_the_first_one_inside(tmp_path: Path) -> None:
    far = [record(b"v", offset=2**31 + 7), record(b"v", offset=2**31 + 8)]
    path = write_segment(tmp_path, 0, one(0), wrapper(far, magic=1, codec=1))
    assert [piece.base_offset for piece in plan_split(path, CONFIG)] == [0, 2**31 + 7]


# ---- splitting -----------------------------------------------------------------------------------


def test_aborted_transactions_are_found_again_in_the_segment_of_their_marker(
    tmp_path: Path,
) -> None:
    def begun(offset: int, producer: int) -> bytes:
        return batch(
            [record(b"v")],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
        )

    path = write_segment(
        tmp_path,
        0,
        begun(0, 5),
        begun(1, 6),
        control_batch(ABORT, base_offset=2, producer_id=5),
        control_batch(ABORT, base_offset=2**31, producer_id=6),
    )
    path.with_suffix(".txnindex").write_bytes(b"whatever")
    recover(tmp_path, clean=False, recovery_point=0, config=CONFIG, keep_cut=False)
    near, far = (tmp_path / f"{base:020d}.txnindex" for base in (0, 2**31))
    assert TxnIndex.open(near).entries() == (AbortedTxn(5, 0, 2, 1),)
    assert TxnIndex.open(far).entries() == (AbortedTxn(6, 1, 2**31, 2**31 + 1),)


def test_the_old_transaction_index_is_gone(tmp_path: Path) -> None:
    path = overflowing(tmp_path)
    path.with_suffix(".txnindex").write_bytes(bytes(34))
    split_log(path, CONFIG)
    assert not list(tmp_path.glob("*.txnindex"))


def test_the_old_files_go_where_the_first_new_segment_has_another_name(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, one(7), one(2**31 + 8))
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        path.with_suffix(suffix).write_bytes(b"")
    split_log(path, CONFIG)
    stems = {name.split(".")[0] for name in os.listdir(tmp_path)}
    assert stems == {f"{base:020d}" for base in (7, 2**31 + 8)}


def test_a_snapshot_at_a_base_that_stays_is_kept(tmp_path: Path) -> None:
    path = overflowing(tmp_path)
    path.with_suffix(".snapshot").write_bytes(b"")
    split_log(path, CONFIG)
    assert path.with_suffix(".snapshot").exists()


@pytest.mark.parametrize("tail", [b"torn", bytes(40), batch([record(b"v")], crc=1) + b"more"])
def test_what_is_not_sound_stays_at_the_end_of_the_last_segment(
    tmp_path: Path, tail: bytes
) -> None:
    path = overflowing(tmp_path)
    with path.open("ab") as file:
        file.write(tail)
    swept = split_log(path, CONFIG)
    assert logs(tmp_path)[FAR].endswith(tail)
    assert [one.truncated_bytes for one in swept] == [0, len(tail)]


def test_damage_in_the_middle_ends_the_splitting_there(tmp_path: Path) -> None:
    wrong = batch([record(b"v")], base_offset=13, crc=1)
    parts = [one(10), one(FAR), wrong, one(2**33)]
    path = write_segment(tmp_path, 10, *parts)
    swept = split_log(path, CONFIG)
    assert logs(tmp_path) == {10: parts[0], FAR: b"".join(parts[1:])}
    assert swept[1].valid_bytes == len(parts[1])


def test_nothing_is_left_to_split_and_offsets_out_of_order_are_found(tmp_path: Path) -> None:
    far = [one(2**31 + 5), one(2**31 + 6)]
    path = write_segment(tmp_path, 0, one(5), *far, one(6), one(2**33))
    with Segment.open(path) as segment:
        before = sweep_segment(segment, config=CONFIG)
    assert isinstance(before.error, OffsetOverflowError)
    swept = split_log(path, CONFIG)
    assert swept[0].error is None
    assert isinstance(swept[1].error, OffsetsOutOfOrderError)
    for files in list_partition(tmp_path).segments:
        assert plan_split(files.log, CONFIG) == ()


# ---- interrupted ---------------------------------------------------------------------------------


def put_in_order(directory: Path) -> None:
    """What a loader does first with temporary files, written again for the test."""

    def offset(name: str) -> int:
        return int(name.split(".")[0])

    names = os.listdir(directory)
    for name in names:
        if name.endswith((".deleted", ".tmp")):
            (directory / name).unlink()
    cleaned = [name for name in names if name.endswith(".cleaned")]
    least = min(map(offset, cleaned), default=2**63)
    swaps = [name for name in names if name.endswith(".swap")]
    for name in [*cleaned, *(name for name in swaps if offset(name) >= least)]:
        (directory / name).unlink()
    swaps = [name for name in swaps if offset(name) < least]
    low, high = 2**63, -1
    for name in swaps:
        if name.endswith(".log.swap"):
            with Segment.open(directory / name) as segment:
                high = max(high, int(segment.batches().last_offset[-1]) + 1)
            low = min(low, offset(name))
    for name in os.listdir(directory):
        if not name.endswith(".swap") and low <= offset(name) < high:
            (directory / name).unlink()
    for name in swaps:
        (directory / name).rename(directory / name.removesuffix(".swap"))


@pytest.mark.parametrize("base", [10, 4])
def test_killed_at_any_call_and_run_again_it_ends_in_the_same_bytes(
    tmp_path: Path, base: int
) -> None:
    def made(name: str) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        source = overflowing(directory)
        path = directory / f"{base:020d}.log"
        os.rename(source, path)
        os.utime(path, ns=(1, 1_500_000_000))
        return path

    whole = made("whole")
    split_log(whole, CONFIG)
    expected = {path.name: path.read_bytes() for path in whole.parent.iterdir()}
    for number in range(1, 200):
        path = made(f"killed-{number}")
        try:
            with stopping_at(number):
                split_log(path, CONFIG)
        except Stopped:
            put_in_order(path.parent)
            if path.exists() and path.stat().st_size == 540:
                split_log(path, CONFIG)
        else:
            break
        found = {path.name: path.read_bytes() for path in path.parent.iterdir()}
        assert found == expected
    assert 30 < number < 199
