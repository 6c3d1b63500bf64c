"""Timekeeping: a subject and its peers in turns, on one core, as ratios of the same round.

On a shared machine absolute speeds drift by a quarter from minute to minute; two measurements a
moment apart drift together. So every round runs the subject and each peer once, a ratio belongs to
a round, and only the median and the spread of these ratios are reported.

The clock is the processor time of the whole process by default: it leaves out what other processes
take and counts every thread, so a second thread cannot flatter anyone. Wall time is the other
choice.
"""

from __future__ import annotations

import gc
import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Clock = Literal["cpu", "wall"]
#: Nanoseconds per unit of work, by the given clock.
Timed = Callable[[Clock], float]

#: A turn repeats its call until this much time has gone by, so that the clock's grain is no matter.
TURN_NS = 40_000_000
ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Turn:
    """One measured turn: nanoseconds per unit of work."""

    cpu_ns: float
    wall_ns: float

    def ns(self, clock: Clock) -> float:
        """By one of the clocks."""
        return self.cpu_ns if clock == "cpu" else self.wall_ns


@dataclass(frozen=True, slots=True)
class Versus:
    """A peer.

    Attributes:
        label: the peer's name in the table.
        call: does the work, answers how many units.
        timed: for a peer that times itself, instead of `call`.
    """

    label: str
    call: Callable[[], int] | None
    timed: Timed | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """A subject and those it runs against; all count work in the same unit."""

    subject: Callable[[], int]
    peers: tuple[Versus, ...]
    #: Units that one call of the subject must report, where that is known.
    expected: int | None = None
    #: For a subject that prepares each turn off the clock, or is a process of its own.
    timed: Timed | None = None


@dataclass(slots=True)
class Result:
    """Ratios against one peer, one per round; above 1 the subject is faster."""

    peer: str
    ratios: list[float] = field(default_factory=list)
    subject_ns: list[float] = field(default_factory=list)
    peer_ns: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The ratio to quote."""
        return statistics.median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The middle half of the rounds: the spread to quote."""
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high


def pin(core: int | None = None) -> int:
    """Keep this process, and what it starts, on one core; answers which."""
    cores = os.sched_getaffinity(0)
    chosen = max(cores) if core is None else core
    os.sched_setaffinity(0, {chosen})
    return chosen


def turn(call: Callable[[], int], turn_ns: int = TURN_NS) -> Turn:
    """Repeat a call until the turn is over; answers time per unit of work."""
    work = 0
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    while True:
        work += call()
        spent = time.process_time_ns() - cpu
        passed = time.perf_counter_ns() - wall
        if spent >= turn_ns or passed >= 10 * turn_ns:
            return Turn(spent / work, passed / work)


def race(
    contest: Contest, *, rounds: int = ROUNDS, clock: Clock = "cpu", turn_ns: int = TURN_NS
) -> list[Result]:
    """Run a contest, one turn per contestant and round, in changing order.

    Raises:
        ValueError: the subject did another amount of work than it should.
    """
    done = contest.subject()
    if contest.expected is not None and done != contest.expected:
        raise ValueError(f"subject did {done} units, not {contest.expected}")
    for peer in contest.peers:
        _once(peer)
    results = [Result(peer.label) for peer in contest.peers]
    for number in range(rounds):
        gc.collect()
        gc.disable()
        try:
            _round(contest, results, number, clock, turn_ns)
        finally:
            gc.enable()
    return results


def _round(
    contest: Contest, results: list[Result], number: int, clock: Clock, turn_ns: int
) -> None:
    """The subject right before or right after each peer, turn about."""
    for peer, result in zip(contest.peers, results, strict=True):
        if number % 2:
            theirs = _peer_ns(peer, clock, turn_ns)
            ours = _subject_ns(contest, clock, turn_ns)
        else:
            ours = _subject_ns(contest, clock, turn_ns)
            theirs = _peer_ns(peer, clock, turn_ns)
        result.subject_ns.append(ours)
        result.peer_ns.append(theirs)
        result.ratios.append(theirs / ours)


def now_ns(clock: Clock) -> int:
    """What a clock shows: of this process and of those that it started and that have ended."""
    if clock == "wall":
        return time.perf_counter_ns()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + round((ended.ru_utime + ended.ru_stime) * 1e9)


def _subject_ns(contest: Contest, clock: Clock, turn_ns: int) -> float:
    if contest.timed is not None:
        return contest.timed(clock)
    return turn(contest.subject, turn_ns).ns(clock)


def _peer_ns(peer: Versus, clock: Clock, turn_ns: int) -> float:
    if peer.timed is not None:
        return peer.timed(clock)
    assert peer.call is not None
    return turn(peer.call, turn_ns).ns(clock)


def _once(peer: Versus) -> None:
    if peer.timed is not None:
        peer.timed("cpu")
    elif peer.call is not None:
        peer.call()


def load() -> tuple[float, float, float]:
    """The machine's load averages: a result taken under load says so."""
    return os.getloadavg()
