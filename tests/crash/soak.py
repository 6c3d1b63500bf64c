"""The long run of the crash tests: made-up stories, each killed, cut off and let fail many times.

    python -m tests.crash.soak --kills 100000 --states 200000 --seed 1

Each story is recorded, then looked at in `STATES` states of a power cut, killed at `KILLS` calls,
killed once more while it is recovered, and given some faults. All cores take part. The last lines
tell how much was looked at; every violation is printed with what it takes to see it again, and the
exit code is 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator

from tests.crash.faults import every_fault
from tests.crash.household import written
from tests.crash.kills import calls_of, every_kill
from tests.crash.runs import (
    Tally,
    faults,
    fresh,
    house_kills,
    house_power_cuts,
    kills,
    power_cuts,
    scratch,
    second_kills,
)
from tests.crash.stories import Author

#: Of one story: states, kills, states whose recovery is killed, kills of each, faults.
STATES, KILLS, RECOVERIES, SECOND_KILLS, FAULTS = 80, 30, 2, 5, 4
#: Of a whole data directory beside it.
HOUSE_STATES, HOUSE_KILLS = 4, 2


def look_at(seed: str) -> Tally:
    """One story, from all sides."""
    tally = Tally(stories=1)
    rng = random.Random(f"soak {seed}")
    story = Author(seed).story(rng.randrange(6, 22))
    with scratch() as root:
        power_cuts(story, root, STATES, seed, tally)
        names = calls_of(story.run, fresh(root / "run"))
        chosen = list(every_kill(names))
        kills(story, root, rng.sample(chosen, min(KILLS, len(chosen))), tally)
        second_kills(story, root, RECOVERIES, SECOND_KILLS, seed, tally)
        some = list(every_fault(names))
        house_power_cuts(written(seed), root, HOUSE_STATES, seed, tally)
        house_kills(written(seed), root, HOUSE_KILLS, seed, tally)
        faults(story, root, rng.sample(some, min(FAULTS, len(some))), seed, tally)
    return tally


def run(seed: str, *, states: int, kills: int, processes: int) -> Tally:
    """As many stories as it takes for so many states and kills."""
    total = Tally()
    started = shown = time.monotonic()
    context = multiprocessing.get_context("fork")
    with context.Pool(processes) as pool:
        for tally in pool.imap(look_at, _seeds(seed, states, kills)):
            for violation in tally.violations:
                print(violation, flush=True)
            total.add(tally)
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"{shown - started:.0f} s: {_figures(total)}", flush=True)
    print(f"{time.monotonic() - started:.0f} s, seed {seed}: {_figures(total)}")
    return total


def _seeds(seed: str, states: int, kills: int) -> Iterator[str]:
    for number in range(max(-(-states // STATES), -(-kills // (KILLS + RECOVERIES * 4)))):
        yield f"{seed}.{number}"


def _figures(tally: Tally) -> str:
    return (
        f"{tally.stories} stories, {tally.states} states ({tally.distinct} different), "
        f"{tally.kills} kills and {tally.second_kills} while recovering, {tally.faults} faults, "
        f"{len(tally.violations)} violations"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--states", type=int, default=4_000)
    parser.add_argument("--kills", type=int, default=2_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    given = parser.parse_args()
    total = run(given.seed, states=given.states, kills=given.kills, processes=given.processes)
    sys.exit(1 if total.violations else 0)


if __name__ == "__main__":
    main()
