"""Each mistake that is put into kseg on purpose is seen by the run that is there for it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.controls import CONTROLS
from tests.crash.faults import every_fault
from tests.crash.kills import calls_of, every_kill
from tests.crash.runs import Tally, faults, fresh, kills, power_cuts, scratch
from tests.crash.stories import (
    CONFIG,
    Abandon,
    Append,
    Author,
    Flush,
    Retain,
    Roll,
    Story,
    plain,
)
from tests.shares import WHOLE

#: Batches that reach over several blocks, so that most cuts tear one.
LARGE = Story("large", tuple(Append((plain(number, records=1, size=900),)) for number in range(4)))

#: One process after another dies, the first without having flushed all.
DYING = Story(
    "dying",
    (
        Append((plain(1),)),
        Abandon(loose=True),
        Append((plain(2),)),
        Roll(),
        Append((plain(3),)),
        Abandon(),
        Append((plain(4),)),
    ),
)
#: Several segments go at once, and their names are not flushed one by one.
RETIRING = Story(
    "retiring",
    (*(Append((plain(number, records=1, size=900),)) for number in range(6)), Flush(), Retain()),
    replace(CONFIG, retention_bytes=1000, file_delete_delay_ms=60_000),
)
MADE = {"large": LARGE, "dying": DYING, "retiring": RETIRING}

#: So many stories are tried until one shows the mistake.
STORIES = 12
TRIED = (*MADE, *(f"control {number}" for number in range(STORIES)))
#: The story that is tried first, where many others show nothing.
FIRST = {
    "short_writes_are_taken_for_whole_ones": "control 2",
    "a_flush_that_fails_is_tried_again": "retiring",
    "a_flush_that_fails_is_passed_over": "retiring",
    "a_cut_leaves_the_recovery_point_where_it_was": "retiring",
    "the_mark_of_a_clean_stop_stays_when_the_log_is_opened": "control 6",
    "old_segments_go_before_the_new_start_is_written": "retiring",
    "a_cut_is_not_flushed": "control 0",
    "what_is_cut_is_not_kept": "control 3",
    "recovery_leaves_what_it_finds_unflushed": "dying",
}


def violations(run: str, root: Path, seed: str, *, part: int = 1) -> list[str]:
    """What one story shows, in one of so many parts of the states, kills or faults."""
    tally = Tally(first=True)
    story = MADE.get(seed) or Author(seed).story(14)
    rng = random.Random(seed)
    if run == "power":
        power_cuts(story, root, 120 // part, seed, tally)
    elif run == "kill":
        chosen = list(every_kill(calls_of(story.run, fresh(root / "run"))))
        kills(story, root, rng.sample(chosen, min(30 // part, len(chosen))), tally)
    else:
        some = list(every_fault(calls_of(story.run, fresh(root / "run"))))
        faults(story, root, rng.sample(some, min(60 // part, len(some))), seed, tally)
    return tally.violations


@pytest.mark.parametrize("name", CONTROLS)
def test_the_crash_runs_see_that(name: str) -> None:
    run, control = CONTROLS[name]
    with scratch() as root, control():
        for seed in (FIRST.get(name, TRIED[0]), *TRIED):
            if violations(run, root, seed):
                return
    pytest.fail(f"{name} is not seen")


@pytest.mark.parametrize("run", ["power", "kill", "fault"])
def test_the_same_runs_see_nothing_in_kseg_as_it_is(run: str) -> None:
    with scratch() as root:
        stories = (*MADE, "control 0")
        found = [
            one for seed in stories for one in violations(run, root, seed, part=1 if WHOLE else 6)
        ]
    assert found == []


def test_there_are_enough_of_them() -> None:
    assert len(CONTROLS) >= 10
    assert FIRST.keys() <= CONTROLS.keys()
    assert {*FIRST.values()} <= {*TRIED}
    assert {run for run, _ in CONTROLS.values()} == {"power", "kill", "fault"}
