"""The harness itself, tried on a writer of a few lines that makes each mistake once."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from kseg.files import io
from tests.crash.faults import Fault, Faulty
from tests.crash.oplog import Name, Op, Recorder, Rename, Resize, Sync, SyncNames, Tree, Write
from tests.crash.states import (
    drawn,
    enumerated,
    materialise,
    points,
    snapshot,
    torn,
)


def test_what_was_there_before_counts_as_lasting(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").write_bytes(b"12345")
    recorder = Recorder(tmp_path)
    with io.calls_replaced(recorder.calls), io.WriteFile.open(tmp_path / "old" / "file") as file:
        file.truncate(2)
    states = [
        s.contents()["old/file"] for s in enumerated(points(recorder.before, recorder.ops)[-1])
    ]
    assert states == [b"12", b"12345"]


def test_a_call_outside_of_the_root_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    recorder = Recorder(tmp_path / "root")
    with io.calls_replaced(recorder.calls), pytest.raises(AssertionError, match="outside"):
        io.make_directory(tmp_path / "elsewhere")


def test_an_unflushed_write_is_there_or_not_or_torn_at_blocks_of_the_file() -> None:
    write = Write(1, 300, bytes(range(256)) * 8)
    rng = random.Random(1)
    fates = {torn(write, rng) for _ in range(2000)}
    edges = {edge for fate in fates if isinstance(fate, tuple) for part in fate for edge in part}
    assert edges == {0, 212, 724, 1236, 1748, 2048}
    assert {"length", False} <= fates


def test_one_block_of_a_write_may_be_all_that_is_missing(tmp_path: Path) -> None:
    ops = [Name(0, "f", 1), SyncNames(0), Write(1, 0, b"x" * 1300)]
    point = points(Recorder(tmp_path).before, ops)[-1]
    rng = random.Random(1)
    found = {drawn(point, rng).contents()["f"] for _ in range(300)}
    for start, end in ((0, 512), (512, 1024), (1024, 1300)):
        assert b"x" * start + bytes(end - start) + b"x" * (1300 - end) in found


def test_bytes_that_a_failed_flush_left_out_are_not_saved_by_the_next(tmp_path: Path) -> None:
    ops = [Name(0, "f", 1), SyncNames(0), Write(1, 0, b"ab"), Sync(1, failed=True)]
    ops += [Sync(1), Write(1, 2, b"cd"), Sync(1)]
    states = {s.contents()["f"] for s in enumerated(points(Recorder(tmp_path).before, ops)[-1])}
    assert states == {b"abcd", b"\0\0cd"}


def test_a_name_waits_for_its_directory_and_the_bytes_for_their_file(tmp_path: Path) -> None:
    before = Recorder(tmp_path).before
    ops = [Name(0, "f", 1), Write(1, 0, b"ab"), Resize(1, 1), Sync(1)]
    contents = [s.contents() for s in enumerated(points(before, ops)[-1])]
    assert contents == [{"f": b"a"}, {}]
    assert points(before, [*ops, SyncNames(0)])[-1].open == ()


#: Two files of one directory, flushed, and another directory beside it.
FILES = [
    *(Name(0, "a", 1, is_directory=True), Name(0, "b", 2, is_directory=True), SyncNames(0)),
    *(Name(1, "f", 3), Name(1, "g", 4), Write(3, 0, b"3"), Write(4, 0, b"4")),
    *(Sync(3), Sync(4), SyncNames(1)),
]


def left_by(before: Tree, *ops: Op) -> set[str]:
    """The states, each as its files in one line: the place and what is in it."""
    point = points(before, [*FILES, *ops])[-1]
    rng = random.Random(1)
    states = [drawn(point, rng).contents() for _ in range(400)]
    return {
        " ".join(path + data.decode() for path, data in sorted(state.items()) if data)
        for state in states
    }


def test_renames_in_a_directory_come_in_either_order_and_may_leave_the_old_name(
    tmp_path: Path,
) -> None:
    found = left_by(Recorder(tmp_path).before, Rename(1, "f", 1, "x", 3), Rename(1, "g", 1, "y", 4))
    first, second = ["a/f3", "a/x3", "a/f3 a/x3"], ["a/g4", "a/y4", "a/g4 a/y4"]
    assert found == {" ".join(sorted(f"{f} {g}".split())) for f in first for g in second}


def test_a_rename_over_another_file_leaves_one_of_both(tmp_path: Path) -> None:
    found = left_by(Recorder(tmp_path).before, Rename(1, "f", 1, "g", 3))
    assert found == {"a/f3 a/g4", "a/g3", "a/f3 a/g3"}


@pytest.mark.parametrize(
    ("flushed", "left"),
    [
        ((), {"a/f3 a/g4", "a/g4 b/f3", "a/f3 a/g4 b/f3", "a/g4"}),
        ((1,), {"a/g4 b/f3", "a/g4"}),
        ((2,), {"a/g4 b/f3", "a/f3 a/g4 b/f3"}),
        ((2, 1), {"a/g4 b/f3"}),
    ],
)
def test_a_file_that_moves_is_lost_unless_its_new_directory_is_flushed(
    tmp_path: Path, flushed: tuple[int, ...], left: set[str]
) -> None:
    syncs = [SyncNames(directory) for directory in flushed]
    assert left_by(Recorder(tmp_path).before, Rename(1, "f", 2, "f", 3), *syncs) == left


def test_a_file_with_a_new_name_may_lack_its_bytes(tmp_path: Path) -> None:
    ops = [Write(3, 0, b"x"), Rename(1, "f", 1, "g", 3), SyncNames(1)]
    assert left_by(Recorder(tmp_path).before, *ops) == {"a/g3", "a/gx"}


def test_a_state_can_be_put_on_disk_and_read_back(tmp_path: Path) -> None:
    contents = {"a": None, "a/b": b"1", "c": b""}
    materialise(contents, tmp_path / "state")
    assert snapshot(tmp_path / "state") == contents


# ---- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forever", "made"), [(False, [True, False, True]), (True, [True, False, False])]
)
def test_a_fault_strikes_once_or_from_there_on(
    tmp_path: Path, forever: bool, made: list[bool]
) -> None:
    faulty = Faulty(Fault(1, "ENOSPC", forever))
    for name in ("a", "b", "c"):
        with suppress(OSError):
            faulty.calls.mkdir(tmp_path / name, 0o755)
    assert [(tmp_path / name).exists() for name in ("a", "b", "c")] == made
