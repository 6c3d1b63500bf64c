"""A log after a power cut, a kill, a second kill while it is recovered, and calls that fail.

One part in fifty of `python -m tests.crash.soak`, and of small stories a share (`tests.shares`); a
violation prints the story and the moment.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from tests.crash import household
from tests.crash.faults import every_fault
from tests.crash.kills import calls_of, every_kill
from tests.crash.runs import (
    Judge,
    Tally,
    faults,
    fresh,
    house_kills,
    house_power_cuts,
    kills,
    power_cuts,
    record,
    scratch,
    second_kills,
)
from tests.crash.states import enumerated, points
from tests.crash.stories import (
    Abandon,
    Append,
    Author,
    Compact,
    DeleteRecords,
    Erase,
    Flush,
    Mend,
    NewEpoch,
    Recode,
    Reopen,
    Restart,
    Retain,
    Roll,
    Story,
    Tear,
    Truncate,
    keyed,
    plain,
)
from tests.shares import WHOLE, share

#: Of one story: states after a power cut, kills.
STATES, KILLS = (150, 40) if WHOLE else (60, 14)
SEEDS = share((f"ci.{number}" for number in range(12)), 2, "seeds")


def story_of(seed: str) -> Story:
    return Author(seed).story(random.Random(seed).randrange(5, 12))


def looked_at(run: Callable[[Path, Tally], None]) -> Tally:
    tally = Tally()
    with scratch() as root:
        run(root, tally)
    assert tally.violations == []
    return tally


@pytest.mark.parametrize("seed", SEEDS)
def test_no_power_cut_takes_what_was_flushed(seed: str) -> None:
    looked_at(lambda root, tally: power_cuts(story_of(seed), root, STATES, seed, tally))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_kill_takes_what_was_appended(seed: str) -> None:
    story = story_of(seed)

    def run(root: Path, tally: Tally) -> None:
        chosen = list(every_kill(calls_of(story.run, fresh(root / "run"))))
        kills(story, root, random.Random(seed).sample(chosen, min(KILLS, len(chosen))), tally)

    looked_at(run)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kill_in_recovery_changes_nothing_in_what_it_comes_to(seed: str) -> None:
    story = story_of(seed)
    looked_at(lambda root, tally: second_kills(story, root, 2, KILLS // 3, seed, tally))


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_that_fail_take_nothing_that_was_flushed(seed: str) -> None:
    story = story_of(seed)

    def run(root: Path, tally: Tally) -> None:
        chosen = list(every_fault(calls_of(story.run, fresh(root / "run"))))
        faults(story, root, random.Random(seed).sample(chosen, KILLS // 2), seed, tally)

    looked_at(run)


@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 2])
def test_a_data_directory_keeps_all_of_its_logs(seed: str) -> None:
    story = household.written(seed)

    def run(root: Path, tally: Tally) -> None:
        house_power_cuts(story, root, STATES // 3, seed, tally)
        house_kills(story, root, KILLS // 2, seed, tally)

    looked_at(run)


# Small enough that every choice of what reached the disk can be gone through.
SMALL = {
    "append and flush": (Append((plain(1),)), Flush(), Append((plain(2),)), Flush()),
    "roll": (Append((plain(1),)), Roll(), Append((plain(2),), durable=True)),
    "an epoch": (Append((plain(1),)), Flush(), NewEpoch(), Append((plain(2),)), Flush()),
    "truncate": (Append((plain(1), plain(2))), Flush(), Truncate(1), Append((plain(3),)), Flush()),
    "truncate over a roll": (
        Append((plain(1),)),
        Roll(),
        Append((plain(2),)),
        Flush(),
        Truncate(2),
        Append((plain(3),)),
        Flush(),
    ),
    "truncate a closed log": (
        Append((plain(1), plain(2))),
        Truncate(1, planned=True),
        Append((plain(3),)),
        Flush(),
    ),
    "truncate a closed log over a roll": (
        Append((plain(1),)),
        Roll(),
        Append((plain(2),)),
        Truncate(2, planned=True),
        Append((plain(3),)),
    ),
    "begin again earlier": (
        Append((plain(1), plain(2))),
        Flush(),
        Restart(-3),
        Append((plain(3),)),
    ),
    "begin again where it stands": (Append((plain(1),)), Restart(7), Flush(), Restart(0)),
    "retain": (Append((plain(1),)), Roll(), Append((plain(2),)), DeleteRecords(1), Retain()),
    "retain without a recovery": (
        *(Append((plain(n, size=500),)) for n in range(4)),
        Append((plain(4), plain(5))),
        DeleteRecords(1),
        Reopen(),
        Append((plain(6),)),
        Tear(),
        Retain(planned=True),
        Mend(),
        Append((plain(7),)),
    ),
    "die and go on": (
        Append((plain(1),)),
        Abandon(loose=True),
        Append((plain(2),)),
        Roll(),
        Append((plain(3),)),
    ),
    "compact": (
        Append((keyed(1, b"a", b"b"),)),
        Roll(),
        Append((keyed(2, b"a"),)),
        Append((keyed(3, b"b", value=False),)),
        Roll(),
        Compact(),
        Append((keyed(4, b"a"),)),
        Flush(),
    ),
    "compact, and again": (
        Append((keyed(1, b"a", size=700),)),
        Append((keyed(2, b"b", value=False),)),
        Roll(),
        Append((keyed(3, b"a", size=700), keyed(4, b"c"))),
        Roll(),
        Flush(),
        Compact(),
        Compact(later_ms=90_000_000),
    ),
    "another codec": (
        Append((plain(1), keyed(2, b"a", size=700))),
        Roll(),
        Append((keyed(3, b"b", size=700),)),
        Roll(),
        Flush(),
        Recode(),
        Append((plain(4),)),
        Flush(),
    ),
    "erase": (
        Append((keyed(1, b"a", b"b"),)),
        Roll(),
        Append((keyed(2, b"a"), keyed(3, b"c", b"a"))),
        Flush(),
        Erase(b"a"),
        Append((keyed(4, b"a"),)),
        Flush(),
    ),
    "close and open": (Append((plain(1),)), Reopen(), Append((plain(2),)), Flush()),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_state_of_a_small_story_is_sound(name: str) -> None:
    story = Story(name, SMALL[name])

    def run(root: Path, tally: Tally) -> None:
        recorder = record(story, root / "run")
        judge = Judge(story, recorder, root / "state", tally)
        few = (one for one in points(recorder.before, recorder.ops) if len(one.open) <= 6)
        for state in share(chain.from_iterable(map(enumerated, few)), 60, name):
            judge.judge(state, "all of them")

    assert looked_at(run).distinct > 20


@pytest.mark.parametrize("name", ["compact", "compact, and again", "erase"])
def test_no_power_cut_while_segments_are_replaced_loses_a_record(name: str) -> None:
    story = Story(name, SMALL[name])
    looked_at(lambda root, tally: power_cuts(story, root, 2 * STATES, name, tally))


@pytest.mark.parametrize("name", SMALL)
def test_kills_of_a_small_story_are_survived(name: str) -> None:
    story = Story(name, SMALL[name])

    def run(root: Path, tally: Tally) -> None:
        every = every_kill(calls_of(story.run, fresh(root / "run")))
        kills(story, root, share(every, 5, name), tally)

    looked_at(run)
