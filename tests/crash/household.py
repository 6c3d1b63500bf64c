"""Stories of a whole data directory: several logs, made, written to, deleted, closed together."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from tests.crash.checks import differing
from tests.crash.history import Found, History, Told, Version, ViolationError
from tests.crash.kills import Remarks
from tests.crash.reading import found_in
from tests.crash.states import Contents, snapshot
from tests.crash.stories import (
    CONFIG,
    NOW_MS,
    STEP_MS,
    Abandon,
    Author,
    Reopen,
    Step,
    Teller,
    now_ms,
)

TOPICS = ("orders", "clicks")
#: Steps of one log that a directory takes with all of its logs, or not at all.
OF_ALL = Reopen | Abandon


@dataclass(frozen=True, slots=True)
class Make:
    """A new partition."""

    topic: str


@dataclass(frozen=True, slots=True)
class Drop:
    """A partition that is not wanted any more."""

    topic: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the logs have flushed is written down."""


@dataclass(frozen=True, slots=True)
class Within:
    """A step with one of the logs."""

    topic: str
    step: Step


@dataclass(frozen=True, slots=True)
class Gone:
    """A remark: a partition is about to be deleted, or is."""

    log: str
    done: bool


HouseStep = Make | Drop | Checkpoint | Within | Reopen


@dataclass(slots=True)
class House:
    """Takes steps with a data directory."""

    root: Path
    remark: Remarks
    config: LogConfig = CONFIG
    clock: int = NOW_MS
    tellers: dict[str, Teller] = field(default_factory=dict)
    directory: LogDirectory | None = None

    def now_ms(self) -> int:
        return self.clock

    def open(self) -> None:
        """Open all there is."""
        self.directory = LogDirectory.open(
            self.root / "data", mode="append", config=self.config, threads=1, now_ms=self.now_ms
        )
        for key, log in self.directory.logs.items():
            self.tellers[key.topic].log = log
            self.tellers[key.topic].settle_end()

    def close(self) -> None:
        """Close it; all logs are lasting then."""
        directory, self.directory = self.directory, None
        if directory is not None:
            directory.close()
            for teller in self.tellers.values():
                self.remark(Told("lasting", teller.version, teller.name))

    def take(self, step: HouseStep) -> None:
        """Take one step."""
        assert self.directory is not None
        self.clock += STEP_MS
        match step:
            case Make(topic) if topic not in self.tellers:
                teller = Teller(self.root, self.remark, self.config, f"{topic}-0")
                self.tellers[topic] = teller
                teller.log = self.directory.create(topic, 0)
            case Drop(topic) if topic in self.tellers:
                self.remark(Gone(f"{topic}-0", done=False))
                self.directory.delete(topic, 0)
                del self.tellers[topic]
                self.remark(Gone(f"{topic}-0", done=True))
            case Checkpoint():
                self.directory.flush_checkpoints()
            case Reopen():
                self.close()
                self.open()
            case Within(topic, inner) if topic in self.tellers and not isinstance(inner, OF_ALL):
                self.tellers[topic].take(inner)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class HouseStory:
    """Steps with one data directory."""

    name: str
    steps: tuple[HouseStep, ...]
    config: LogConfig = CONFIG

    def run(self, root: Path, remark: Remarks) -> None:
        """The workload."""
        house = House(root, remark, self.config)
        house.open()
        for step in self.steps:
            house.take(step)
        house.close()


def written(seed: str | int, length: int = 24) -> HouseStory:
    """A story by a seed."""
    rng = random.Random(f"house {seed}")
    authors = {topic: Author(f"{seed} {topic}") for topic in TOPICS}
    steps: list[HouseStep] = [Make(topic) for topic in TOPICS]
    while len(steps) < length:
        way = rng.randrange(12)
        if way == 0:
            steps.append(Checkpoint())
        elif way == 1:
            steps.append(Reopen())
        else:
            topic = rng.choice(TOPICS)
            steps += [Within(topic, step) for step in authors[topic].next()]
    steps.append(Drop(rng.choice(TOPICS)))
    config = replace(CONFIG, segment_bytes=1200)
    return HouseStory(f"house {seed}", tuple(steps), config)


@dataclass(frozen=True, slots=True)
class HouseChecker:
    """Opens a whole data directory that a crash left, and looks."""

    root: Path
    config: LogConfig = CONFIG

    def check(self, remarks: list[object], *, killed: bool = False) -> None:
        """Recover all logs, compare each with its history, and open them once more.

        Raises:
            ViolationError: a promise is broken.
        """
        after = self._opened(recover=True)
        for topic in TOPICS:
            self._check_log(after, f"{topic}-0", remarks, killed=killed)
        again = self._opened(recover=False)
        # Snapshots that the one at the end has made useless go with the next start, as in Kafka.
        changed = [path for path in differing(after, again) if not path.endswith(".snapshot")]
        if changed:
            raise ViolationError(f"opening again changes {changed}")

    def _opened(self, *, recover: bool) -> Contents:
        directory = LogDirectory.open(
            self.root / "data",
            mode="append",
            config=self.config,
            recover=recover,
            threads=1,
            now_ms=now_ms,
        )
        directory.close()
        return snapshot(self.root)

    def _check_log(
        self, contents: Contents, log: str, remarks: list[object], *, killed: bool
    ) -> None:
        gone = [one.done for one in remarks if isinstance(one, Gone) and one.log == log]
        if f"data/{log}" in contents:
            if gone[-1:] == [True]:
                raise ViolationError(f"{log} was deleted, and is there again")
            history = History.of(remarks, log=log, killed=killed)
            history.check(found_in(contents, f"data/{log}"))
        elif not gone:
            History.of(remarks, log=log, killed=killed).check(Found((), 0, 0))


__all__ = ["HouseChecker", "HouseStory", "Version", "written"]
