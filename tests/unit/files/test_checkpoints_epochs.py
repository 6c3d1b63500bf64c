"""Leader epochs; the claims are those of Kafka's LeaderEpochFileCacheTest (LEC-01 to LEC-19)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.files.checkpoints import (
    UNDEFINED,
    EpochEntry,
    LeaderEpochs,
    joined_epochs,
    read_leader_epochs,
)
from tests.stopping import refusing

Pairs = list[tuple[int, int]]


def epochs(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*pair) for pair in pairs])


def pairs(found: LeaderEpochs) -> Pairs:
    return [tuple(entry) for entry in found.entries]  # type: ignore[misc]


def test_lec_02_the_latest_epoch_ends_where_the_log_does() -> None:
    found = epochs((2, 10))
    assert found.latest == (2, 10)
    assert found.end_offset_for(2, 11) == (2, 11)


ASSIGNED: dict[str, tuple[Pairs, tuple[int, int], Pairs]] = {
    "lec-03-the-same-epoch-later-is-ignored": ([(2, 11)], (2, 12), [(2, 11)]),
    "lec-10-an-older-epoch-at-a-later-offset-truncates": ([(1, 5), (2, 6)], (1, 7), [(1, 7)]),
}


@pytest.mark.parametrize("case", ASSIGNED.values(), ids=ASSIGNED)
def test_assigning(case: tuple[Pairs, tuple[int, int], Pairs]) -> None:
    start, entry, result = case
    found = epochs(*start)
    assert found.assign(*entry) == (start != result)
    assert pairs(found) == result


def test_lec_10_the_displaced_epoch_is_not_known_any_more() -> None:
    found = epochs((1, 5), (2, 6), (1, 7))
    assert found.end_offset_for(2, 20) == UNDEFINED


def test_negative_numbers_are_no_epochs() -> None:
    for entry in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            epochs().assign(*entry)


ENDS: dict[str, tuple[Pairs, int, int, tuple[int, int]]] = {
    "lec-07-a-displaced-epoch": ([(5, 11), (7, 12)], 6, 20, (5, 12)),
    "lec-07-the-one-before": ([(5, 11), (7, 12)], 5, 20, (5, 12)),
    "lec-12-an-epoch-without-records": ([(0, 0), (1, 0)], 0, 5, (0, 0)),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS)
def test_where_an_epoch_ends(case: tuple[Pairs, int, int, tuple[int, int]]) -> None:
    start, epoch, log_end_offset, result = case
    entries = tuple(EpochEntry(*pair) for pair in start)
    found = LeaderEpochs()
    found.entries = entries
    assert found.end_offset_for(epoch, log_end_offset) == result


def test_lec_12_ends_move_as_the_log_grows() -> None:
    found = epochs((0, 0), (1, 0))
    assert found.end_offset_for(1, 3) == (1, 3)
    found.assign(2, 5)
    assert found.end_offset_for(1, 6) == (1, 5)
    assert found.end_offset_for(2, 6) == (2, 6)


def test_lec_13_a_follower_meets_the_same_epochs_again() -> None:
    found = epochs()
    for epoch, start in ((0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5), (2, 6), (2, 7)):
        found.assign(epoch, start)
    assert pairs(found) == [(0, 0), (1, 3), (2, 6)]


TRUNCATED: dict[str, tuple[str, Pairs, int, Pairs]] = {
    "lec-14-end-minus-1": ("end", [(2, 6), (3, 8)], -1, [(2, 6), (3, 8)]),
    "lec-14-end-of-nothing": ("end", [], 7, []),
    "lec-15-start-8": ("start", [(2, 6), (3, 8), (4, 11)], 8, [(3, 8), (4, 11)]),
    "lec-15-start-1": ("start", [(2, 6), (3, 8)], 1, [(2, 6), (3, 8)]),
    "lec-15-start-minus-1": ("start", [(2, 6), (3, 8)], -1, [(2, 6), (3, 8)]),
    "lec-15-start-11": ("start", [(2, 6), (3, 8), (4, 11)], 11, [(4, 11)]),
    "lec-15-start-inside": ("start", [(0, 0), (1, 7), (2, 10)], 5, [(0, 5), (1, 7), (2, 10)]),
    "lec-15-start-of-nothing": ("start", [], 7, []),
}


@pytest.mark.parametrize("case", TRUNCATED.values(), ids=TRUNCATED)
def test_truncating(case: tuple[str, Pairs, int, Pairs]) -> None:
    side, start, offset, result = case
    found = epochs(*start)
    truncate = found.truncate_from_end if side == "end" else found.truncate_from_start
    assert truncate(offset) == (start != result)
    assert pairs(found) == result


def test_lec_09_chk_03_a_new_object_reads_what_the_old_one_wrote(tmp_path: Path) -> None:
    found = LeaderEpochs.load(tmp_path / "leader-epoch-checkpoint")
    found.assign(2, 6)
    found.assign(3, 8)
    assert pairs(LeaderEpochs.load(tmp_path / "leader-epoch-checkpoint")) == [(2, 6), (3, 8)]


def test_lec_16_clearing_leaves_an_empty_checkpoint(tmp_path: Path) -> None:
    found = LeaderEpochs.load(tmp_path / "leader-epoch-checkpoint")
    found.assign(2, 6)
    assert found.clear()
    found.flush()
    assert found.entries == ()
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n0\n"


def test_lec_19_truncations_reach_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    found = LeaderEpochs.load(path)
    for entry in ((2, 6), (3, 8), (4, 11)):
        found.assign(*entry)
    found.truncate_from_end(9)
    found.truncate_from_start(7)
    assert found.dirty
    found.flush()
    assert not found.dirty
    assert read_leader_epochs(path) == ((2, 7), (3, 8))


def test_entries_within_a_range() -> None:
    found = epochs((0, 0), (1, 7), (2, 10))
    assert found.within(5, 10) == ((0, 5), (1, 7))
    assert found.within(-1, 7) == ((0, 0),)
    assert pairs(found) == [(0, 0), (1, 7), (2, 10)]


@pytest.mark.parametrize(
    ("history", "batches", "joined"),
    [
        ([], [(2, 5)], [(2, 5)]),
        ([(0, 0), (2, 3)], [], [(0, 0), (2, 3)]),
        (
            [(0, 0), (2, 600), (6, 1800)],
            [(6, 2340), (8, 2400)],
            [(0, 0), (2, 600), (6, 1800), (8, 2400)],
        ),
        ([(0, 0), (2, 2500)], [(0, 1380), (2, 2660)], [(0, 0), (2, 2500)]),
        ([(0, 0), (1, 4), (2, 6)], [(0, 0), (2, 8)], [(0, 0), (1, 4), (2, 6)]),
        ([(7, 2)], [(1, 0), (2, 5)], [(1, 0), (2, 5)]),
        ([(3, 0), (4, 9)], [(1, 0), (2, 5)], [(1, 0), (2, 5), (4, 9)]),
    ],
)
def test_batches_decide_and_history_fills_what_they_leave_open(
    history: list[tuple[int, int]],
    batches: list[tuple[int, int]],
    joined: list[tuple[int, int]],
) -> None:
    parts = ([EpochEntry(*pair) for pair in each] for each in (history, batches))
    assert joined_epochs(*parts) == tuple(joined)


def test_an_epoch_that_cannot_be_written_is_not_taken_note_of(tmp_path: Path) -> None:
    found = LeaderEpochs.load(tmp_path / "leader-epoch-checkpoint")
    found.assign(1, 0)
    with refusing("pwritev", code=28), pytest.raises(OSError, match="No space"):
        found.assign(2, 5)
    assert pairs(found) == [(1, 0)]
    assert pairs(LeaderEpochs.load(tmp_path / "leader-epoch-checkpoint")) == [(1, 0)]
