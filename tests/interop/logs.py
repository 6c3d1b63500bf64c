"""Let kseg's log and Kafka's do the same, and print every difference.

    python -m tests.interop.logs --cases 2000 --seed 7
    python -m tests.interop.logs --seed 7 --kinds damaged --only 123 --keep look

Each case has a number; the seed and the number repeat it. Exit status 1 says that there was a
difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.interop import compacted, damaged, erased, interrupted, lives, salvaged
from tests.interop.damaged import Outcome
from tests.interop.kafka import RELEASE, Kafka
from tests.interop.stories import story


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the two do not agree."""

    name: str
    case: object
    harm: list[str]
    what: str
    kafka: object
    kseg: object

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.what}\n    {self.case}; {'; '.join(self.harm) or 'no harm'}\n"
            f"    kafka {self.kafka!r:.900}\n    kseg  {self.kseg!r:.900}"
        )


@dataclass(slots=True)
class Figures:
    """What a run came to."""

    cases: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    harm: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    seconds: float = 0.0


def _lived(
    begun_by: str, kafka: Kafka, seed: str, number: int, home: Path
) -> tuple[object, Outcome]:
    told = story(seed, number)
    case = f"{told.close}, {told.config}"
    return case, Outcome([], False, lives.compared(kafka, told, home, begun_by=begun_by))


def _damaged(
    made_by: str, kafka: Kafka, seed: str, number: int, home: Path
) -> tuple[object, Outcome]:
    case = damaged.case(seed, number)
    return case, damaged.compared(kafka, case, home, made_by=made_by)


def _compacted(
    begun_by: str, kafka: Kafka, seed: str, number: int, home: Path
) -> tuple[object, Outcome]:
    told = compacted.story(seed, number)
    case = f"{told.close}, {told.config}"
    return case, Outcome([], False, compacted.compared(kafka, told, home, begun_by=begun_by))


def _interrupted(
    killed: str, kafka: Kafka, seed: str, number: int, home: Path
) -> tuple[object, Outcome]:
    given = interrupted.case(seed, number)
    return given, Outcome([], False, interrupted.compared(kafka, given, home, killed=killed))


def _salvaged(kafka: Kafka, seed: str, number: int, home: Path) -> tuple[object, Outcome]:
    return salvaged.of_kafka(kafka, damaged.case(seed, number), home)


def _salvaged_of_chance(
    kafka: Kafka, _seed: str, number: int, home: Path
) -> tuple[object, Outcome]:
    return salvaged.of_chance(kafka, number, home)


#: Logs that both write from the first step on, or that one goes on with; cleanings that one of both
#: does not end; and damaged logs of both.
KINDS: dict[str, Callable[[Kafka, str, int, Path], tuple[object, Outcome]]] = {
    "both": partial(_lived, "nobody"),
    "kafka-first": partial(_lived, "kafka"),
    "kseg-first": partial(_lived, "kseg"),
    "compacted": partial(_compacted, "nobody"),
    "kafka-compacted": partial(_compacted, "kafka"),
    "kseg-compacted": partial(_compacted, "kseg"),
    "kafka-interrupted": partial(_interrupted, "kafka"),
    "kseg-interrupted": partial(_interrupted, "kseg"),
    "damaged": partial(_damaged, "kafka"),
    "kseg-damaged": partial(_damaged, "kseg"),
    "erased": erased.compared,
    "salvaged": _salvaged,
    "salvaged-of-chance": _salvaged_of_chance,
}


def run(kafka: Kafka, kind: str, seed: str, numbers: Iterable[int], home: Path) -> Figures:
    """Cases of one kind."""
    figures = Figures()
    started = time.monotonic()
    for number in numbers:
        try:
            case, outcome = KINDS[kind](kafka, seed, number, home)
        except Exception:
            case = "exception"
            outcome = Outcome([], False, [("exception", None, traceback.format_exc(limit=-4))])
        figures.cases[kind] += 1
        figures.refused += outcome.refused
        figures.harm.update(one.partition(":")[0] for one in outcome.harm)
        name = f"{kind} {seed}:{number}"
        figures.differences += [
            Difference(name, case, outcome.harm, *found) for found in outcome.found
        ]
    figures.seconds = time.monotonic() - started
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=200, help="how many of each kind")
    parser.add_argument("--seed", default="1", help="text; each gives other cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="just the case of this number")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=tuple(KINDS))
    parser.add_argument("--keep", type=Path, help="leave the directories of the last case here")
    options = parser.parse_args(arguments)
    first, count = options.first, options.cases
    if options.only is not None:
        first, count = options.only, 1
    status = 0
    with tempfile.TemporaryDirectory() as folder, Kafka(RELEASE, "logs") as kafka:
        for kind in options.kinds:
            home = options.keep or Path(folder)
            figures = run(kafka, kind, options.seed, range(first, first + count), home)
            status |= bool(figures.differences)
            _print(figures, kind, options.seed)
    return status


def _print(figures: Figures, kind: str, seed: str) -> None:
    for difference in figures.differences:
        print(difference)
    for harm, times in sorted(figures.harm.items()):
        print(f"{harm:20} {times:6}")
    print(f"{kind}: {figures.cases[kind]} logs beside Kafka {RELEASE}, seed {seed}; ", end="")
    print(f"{figures.refused} that it does not load; ", end="")
    print(f"{len(figures.differences)} differences, {figures.seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
