"""Crash runs of one workload: what a power cut leaves, what a kill leaves, what faults leave.

Each kind of run takes a workload and asks its oracle of every outcome. A violation says what it
takes to see it again.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kseg.errors import KsegError
from kseg.files import io
from kseg.files.metadata import RECOVERED_NAME
from kseg.log import data_directory
from tests import places
from tests.crash.checks import MARK, Checker, differing
from tests.crash.faults import Fault, Faulty, every_fault
from tests.crash.history import History, ViolationError
from tests.crash.household import HouseChecker, HouseStory
from tests.crash.kills import Kill, Outcome, calls_of, every_kill, run_killed
from tests.crash.oplog import Recorder
from tests.crash.reading import settled
from tests.crash.states import Contents, CrashState, Sampler, killed, materialise, snapshot
from tests.crash.steps import Abandon, Reopen
from tests.crash.stories import Story


@dataclass(slots=True)
class Tally:
    """How much was looked at."""

    stories: int = 0
    states: int = 0
    distinct: int = 0
    kills: int = 0
    second_kills: int = 0
    faults: int = 0
    violations: list[str] = field(default_factory=list)
    first: bool = False  # one violation is enough

    @property
    def done(self) -> bool:
        """Whether there is no need to look any further."""
        return self.first and bool(self.violations)

    def add(self, other: Tally) -> None:
        """Take in another's numbers."""
        for name in ("stories", "states", "distinct", "kills", "second_kills", "faults"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.violations += other.violations


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory where there is such a place."""
    with tempfile.TemporaryDirectory(prefix="kseg-crash-", dir=places.in_memory()) as name:
        yield Path(name)


def fresh(root: Path) -> Path:
    """An empty data directory in an empty root."""
    shutil.rmtree(root, ignore_errors=True)
    (root / "data").mkdir(parents=True)
    return root


def record(story: Story | HouseStory, root: Path) -> Recorder:
    """Run a story, noting its calls."""
    recorder = Recorder(fresh(root))
    with io.calls_replaced(recorder.calls):
        story.run(root, recorder.remark)
    return recorder


class Judge:
    """Checks states of one story, each different one once."""

    def __init__(self, story: Story, recorder: Recorder, root: Path, tally: Tally) -> None:
        self.story = story
        self.told = list(recorder.remarks())
        self.checker = Checker(root, story.config)
        self.tally = tally
        self._seen: set[bytes] = set()

    def judge(self, state: CrashState, how: str, *, killed: bool = False) -> None:
        """Look at one state; what is wrong goes to the tally."""
        self.tally.states += 1
        contents = state.contents()
        key = _digest(contents, state.point.remarks, killed)
        if key in self._seen:
            return
        self._seen.add(key)
        self.tally.distinct += 1
        materialise(contents, self.checker.root)
        history = History.of(
            self.told[: state.point.remarks], log=self.checker.partition, killed=killed
        )
        reopen = len(self._seen) % 4 == 0
        note_violation(
            self.tally,
            f"{self.story.name}, {how}, {state}",
            lambda: self.checker.check(history, reopen=reopen),
        )


def note_violation(tally: Tally, what: str, check: Callable[[], object]) -> None:
    """Run a check; an error of kseg's is as bad as a broken promise."""
    try:
        check()
    except Exception as error:
        tally.violations.append(f"{what}: {type(error).__name__}: {error}")


def _digest(contents: Contents, remarks: int, killed: bool) -> bytes:
    digest = hashlib.blake2b(f"{remarks} {killed}".encode(), digest_size=16)
    for path in sorted(contents):
        data = contents[path]
        digest.update(f"\0{path}\0{-1 if data is None else len(data)}\0".encode())
        digest.update(data or b"")
    return digest.digest()


def power_cuts(story: Story, root: Path, count: int, seed: str | int, tally: Tally) -> None:
    """So many states that a power cut may leave, drawn by a seed."""
    recorder = record(story, root / "run")
    sampler = Sampler(recorder.before, recorder.ops, seed)
    judge = Judge(story, recorder, root / "state", tally)
    for number in range(count):
        if tally.done:
            return
        judge.judge(sampler.draw(), f"state {number} of seed {seed}")


def killed_run(story: Story | HouseStory, root: Path, kill: Kill, tally: Tally) -> Outcome | None:
    """Run a story to its kill; None, and a violation, where it was not killed."""
    outcome = run_killed(story.run, fresh(root), kill)
    tally.kills += 1
    if outcome.error or not outcome.killed:
        tally.violations.append(f"{story.name}, {kill}: not killed: {outcome.error}")
        return None
    return outcome


def kills(story: Story, root: Path, which: Sequence[Kill] | None, tally: Tally) -> None:
    """Kill a story at each of these calls, or at every one."""
    names = calls_of(story.run, fresh(root / "run"))
    told = list(record(story, root / "run").remarks())
    checker = Checker(root / "killed", story.config)
    for kill in every_kill(names) if which is None else which:
        if tally.done:
            return
        what, outcome = f"{story.name}, {kill}", killed_run(story, checker.root, kill, tally)
        if outcome is None:
            continue
        history = History.of(told[: outcome.remarks], log=checker.partition, killed=True)
        reopen = tally.kills % 3 == 0
        note_violation(
            tally, what, lambda history=history, r=reopen: checker.check(history, reopen=r)
        )


def kills_in_recovery(
    checker: Checker, contents: Contents, rng: random.Random, count: int, tally: Tally, what: str
) -> None:
    """Kill the recovery of one state, too; the next must come to what one alone comes to.

    One that is killed takes the mark of a clean stop with it, so that the next one looks at more.
    """

    def recovering(_root: Path, _remark: object) -> None:
        checker.recovered()

    wholes = []
    if MARK in contents:
        unmarked = {path: data for path, data in contents.items() if path != MARK}
        materialise(unmarked, checker.root)
        wholes.append(_of_data(checker.recovered()))
    materialise(contents, checker.root)
    names = calls_of(recovering, checker.root)
    wholes.append(_of_data(snapshot(checker.root)))
    for kill in rng.sample(list(every_kill(names)), min(count, len(names))):
        materialise(contents, checker.root)
        outcome = run_killed(recovering, checker.root, kill)
        tally.second_kills += 1
        if outcome.error or not outcome.killed:
            tally.violations.append(f"{what}, then {kill}: not killed: {outcome.error}")
            continue
        note_violation(tally, f"{what}, then {kill}", lambda: _converges(checker, contents, wholes))


def second_kills(
    story: Story, root: Path, states: int, count: int, seed: str | int, tally: Tally
) -> None:
    """Kill the recovery of so many states, each so many times."""
    recorder = record(story, root / "run")
    sampler = Sampler(recorder.before, recorder.ops, f"second {seed}")
    checker = Checker(root / "second", story.config)
    for _ in range(states):
        state = sampler.draw()
        contents = state.contents()
        if checker.below in contents:
            what = f"{story.name}, second {seed}, {state}"
            kills_in_recovery(checker, contents, sampler.rng, count, tally, what)


def _converges(checker: Checker, before: Contents, wholes: Sequence[Contents]) -> None:
    after = checker.recovered()
    if _of_data(after) not in wholes:
        raise ViolationError(f"ends in other bytes: {differing(wholes[-1], _of_data(after))}")
    checker.check_kept(settled(before, checker.below), after)


def _of_data(contents: Contents) -> Contents:
    """What is in the data directory; what was kept aside may be there twice.

    The notes of a recovery hold inodes and times, and may outlive a kill behind the mark.
    """
    return {
        path: data
        for path, data in contents.items()
        if path.startswith("data/") and not path.endswith(RECOVERED_NAME)
    }


def faults(
    story: Story, root: Path, which: Sequence[Fault] | None, seed: str | int, tally: Tally
) -> None:
    """Let each of these calls fail, or every one; then end the process, or cut the power."""
    names = calls_of(story.run, fresh(root / "run"))
    rng = random.Random(f"faults {seed}")
    for fault in every_fault(names) if which is None else which:
        if tally.done:
            return
        tally.faults += 1
        again = bool(fault.call % 2)
        # Whoever opens the log again reads what the disk has: the pages were dropped.
        opened = again or any(isinstance(step, Abandon | Reopen) for step in story.steps)
        drop = opened or bool(fault.call % 3)
        recorder = Recorder(fresh(root / "run"), Faulty(fault).calls, drop=drop)
        with io.calls_replaced(recorder.calls), _others(root / "run", live_on=fault.call % 4 < 2):
            story.run_on(root / "run", recorder.remark, again=again)
        judge = Judge(story, recorder, root / "state", tally)
        sampler = Sampler(recorder.before, recorder.ops, f"{seed} {fault}")
        what = f"{fault} of seed {seed}"
        judge.judge(killed(sampler.points[-1]), what)
        judge.judge(killed(rng.choice(sampler.points)), what)
        for _ in range(2):
            judge.judge(sampler.draw(), what)


@contextmanager
def _others(root: Path, *, live_on: bool) -> Iterator[None]:
    """Whether other logs of the process are open there, so that the life in `data` goes on."""
    home = None
    if live_on:
        with suppress(OSError, KsegError):
            home = data_directory.enter(root / "data")
    try:
        yield
    finally:
        if home is not None:
            with suppress(OSError, KsegError):
                home.leave()


def house_power_cuts(
    story: HouseStory, root: Path, count: int, seed: str | int, tally: Tally
) -> None:
    """As `power_cuts`, for a whole data directory."""
    recorder = record(story, root / "run")
    told = list(recorder.remarks())
    checker = HouseChecker(root / "state", story.config)
    sampler = Sampler(recorder.before, recorder.ops, seed)
    for _ in range(count):
        state = sampler.draw()
        tally.states += 1
        tally.distinct += 1
        materialise(state.contents(), checker.root)
        remarks = told[: state.point.remarks]
        note_violation(
            tally, f"{story.name}, {state}", lambda remarks=remarks: checker.check(remarks)
        )


def house_kills(story: HouseStory, root: Path, count: int, seed: str | int, tally: Tally) -> None:
    """As `kills`, for a whole data directory."""
    told = list(record(story, root / "run").remarks())
    names = calls_of(story.run, fresh(root / "run"))
    checker = HouseChecker(root / "killed", story.config)
    for kill in random.Random(f"house {seed}").sample(list(every_kill(names)), count):
        what, outcome = f"{story.name}, {kill}", killed_run(story, checker.root, kill, tally)
        if outcome is None:
            continue
        remarks = told[: outcome.remarks]
        note_violation(tally, what, lambda remarks=remarks: checker.check(remarks, killed=True))
