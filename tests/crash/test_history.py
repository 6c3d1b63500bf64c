"""The oracle itself: what may be found after which remarks."""

from __future__ import annotations

import pytest

from tests.crash.flushed import check_flushed
from tests.crash.history import Found, History, Ident, Told, Version, ViolationError

A, B, C, D = (Ident(base, base + 1, 100 + base) for base in (0, 2, 4, 4))
D = Ident(4, 5, 999)
EMPTY = Version()
ONE, TWO = EMPTY.append(A), EMPTY.append(A, B)
THREE, OTHER = TWO.append(C), TWO.append(D)


def found(*batches: Ident, start: int = 0, end: int | None = None) -> Found:
    last = batches[-1].last_offset + 1 if batches else start
    return Found(batches, start, last if end is None else end)


LASTING = [Told("lasting", TWO)]
GROWN = [*LASTING, Told("try", THREE), Told("done", THREE, tries=1)]
CUT = [
    *LASTING,
    Told("try", ONE),
    Told("done", ONE, tries=1),
    Told("try", ONE.append(Ident(2, 3, 7))),
]
STARTED = [*LASTING, Told("try", TWO.started_at(2))]


GONE = [*GROWN, Told("try", ONE), Told("done", ONE, tries=1, cut=2)]
AWAY = [*LASTING, Told("try", TWO.started_at(4)), Told("done", TWO.started_at(2), tries=1, start=2)]


@pytest.mark.parametrize(
    ("told", "held"),
    [
        (LASTING, found(A, B)),
        (GROWN, found(A, B)),
        (GROWN, found(A, B, C)),
        ([*GROWN, Told("try", OTHER)], found(A, B, D)),
        (CUT, found(A)),
        (CUT, found(A, B)),
        (CUT, found(A, Ident(2, 3, 7))),
        (GONE, found(A)),
        (AWAY, found(B, start=2)),
        (STARTED, found(A, B)),
        (STARTED, found(B, start=2)),
        ([], found()),
        ([Told("lasting", EMPTY.emptied_at(9))], found(start=9)),
    ],
)
def test_what_a_crash_may_leave_is_taken(told: list[Told], held: Found) -> None:
    History.of(told).check(held)


@pytest.mark.parametrize(
    ("told", "held", "why"),
    [
        (LASTING, found(A), "is lost"),
        (LASTING, found(), "is lost"),
        (LASTING, found(B, start=0), "is lost"),
        (LASTING, found(A, B, C), "no prefix"),
        (LASTING, found(B, A), "no prefix"),
        (LASTING, found(A, B, end=9), "no prefix"),
        (GROWN, found(A, B, D), "no prefix"),
        (CUT, found(A, B, Ident(4, 5, 7)), "no prefix"),
        (CUT, found(), "is lost"),
        (STARTED, found(B, start=4), "starts at"),
        (GONE, found(A, B), "no prefix"),
        (GONE, found(), "is lost"),
        (AWAY, found(A, B), "starts at"),
        (AWAY, found(start=4), "starts at"),
        ([*STARTED, Told("lasting", TWO.started_at(2), tries=1)], found(A, B), "starts at"),
        ([Told("lasting", EMPTY.emptied_at(9))], found(A), "starts at"),
    ],
)
def test_what_no_crash_may_leave_is_named(told: list[Told], held: Found, why: str) -> None:
    with pytest.raises(ViolationError, match=why):
        History.of(told).check(held)


def test_the_death_of_the_process_alone_takes_nothing_that_was_done() -> None:
    History.of(GROWN, killed=True).check(found(A, B, C))
    with pytest.raises(ViolationError, match="is lost"):
        History.of(GROWN, killed=True).check(found(A, B))


def test_each_log_has_a_history_of_its_own() -> None:
    told = [Told("lasting", TWO, "a-0"), Told("lasting", ONE, "a-1")]
    History.of(told, log="a-0").check(found(A, B))
    History.of(told, log="a-1").check(found(A))


def test_producers_of_what_is_gone_must_last_unless_the_log_begins_anew() -> None:
    file = "data/a-0/00000000000000000004.{}".format
    left = {"data": None, "data/a-0": None, file("log"): b"", file("snapshot"): b"half"}
    gone = [Told("lasting", TWO.started_at(4), "a-0")]
    with pytest.raises(ViolationError, match="the snapshot at 4 is not sound"):
        check_flushed(left, "data/a-0", History.of(gone, log="a-0"))
    anew = [*gone, Told("try", EMPTY.emptied_at(4), "a-0")]
    check_flushed(left, "data/a-0", History.of(anew, log="a-0"))
