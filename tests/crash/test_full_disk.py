"""A log that is freed on a full disk, killed at the calls of that, and after power cuts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import COMMIT
from tests.crash.kills import Remarks, calls_of, every_kill
from tests.crash.runs import Tally, fresh, kills, power_cuts, scratch, second_kills
from tests.crash.steps import (
    Abandon,
    Append,
    DeleteRecords,
    FillUp,
    Flush,
    Mend,
    NewEpoch,
    Reopen,
    Restart,
    Retain,
    Step,
    Tear,
    Truncate,
)
from tests.crash.stories import CONFIG, Story, Teller, marker, plain, produced
from tests.shares import WHOLE, share

#: Seven segments, with producers and two epochs in them.
BEGUN: tuple[Step, ...] = (
    *(Append((plain(n), produced(n + 100, 9, n, records=1), plain(n + 50))) for n in range(4)),
    Append((produced(200, 8, 0, transactional=True),)),
    NewEpoch(),
    *(Append((plain(n), produced(n + 100, 9, n, records=1), plain(n + 50))) for n in range(4, 7)),
    marker(COMMIT, 8),
    Flush(),
)
MORE = Append((plain(300), plain(301)))
ALL = replace(CONFIG, retention_bytes=0)
STORIES = {
    "retained": Story("retained", (*BEGUN, FillUp(), Retain(), MORE)),
    "all retained": Story("all retained", (*BEGUN, FillUp(), Retain(), MORE), ALL),
    "deleted": Story("deleted", (*BEGUN, FillUp(), DeleteRecords(8), MORE, Retain())),
    "truncated": Story("truncated", (*BEGUN, FillUp(), Truncate(14), MORE)),
    "truncated inside": Story("inside", (*BEGUN, FillUp(), Truncate(20, inside=True), MORE)),
    "begun again": Story("begun again", (*BEGUN, FillUp(), Restart(7), MORE)),
    "recovered": Story("recovered", (*BEGUN, Tear(), FillUp(), Mend(), MORE)),
    "retained, then recovered": Story(
        "retained dead", (*BEGUN, Reopen(), Tear(), FillUp(), Retain(planned=True), Mend(), MORE)
    ),
    "died, then retained": Story("died", (*BEGUN, FillUp(), Abandon(), Retain(), MORE)),
}


def looked_at(tally: Tally) -> None:
    assert tally.violations[:3] == []


def told_until_full(story: Story, root: Path, remark: Remarks) -> Teller:
    teller = Teller(root, remark, story.config)
    teller.open()
    for step in story.steps[: story.steps.index(FillUp()) + 1]:
        teller.take(step)
    return teller


@pytest.mark.parametrize("name", STORIES)
def test_kills_while_a_full_disk_is_freed_are_survived(name: str) -> None:
    story, tally = STORIES[name], Tally()
    with scratch() as root:
        names = calls_of(story.run, fresh(root / "run"))
        before = calls_of(
            lambda place, remark: told_until_full(story, place, remark) and None,
            fresh(root / "run"),
        )
        # Behind a call is in front of the next one.
        chosen = [one for one in every_kill(names) if one.how != "after"]
        freeing = [one for one in chosen if one.call >= len(before)]
        assert len(freeing) >= len(names) - len(before) > 30
        kills(story, root, share(freeing, 4, name), tally)
    looked_at(tally)
    assert tally.kills >= 4


@pytest.mark.parametrize("name", STORIES)
def test_no_power_cut_while_a_full_disk_is_freed_takes_what_was_flushed(name: str) -> None:
    tally = Tally()
    with scratch() as root:
        power_cuts(STORIES[name], root, 60 if WHOLE else 20, name, tally)
        second_kills(STORIES[name], root, 1, 2, name, tally)
    looked_at(tally)


@pytest.mark.parametrize("name", STORIES)
def test_the_disk_was_full(name: str, tmp_path: Path) -> None:
    """Where there is no room, no story has a call of a checkpoint before something is gone."""
    story = STORIES[name]
    teller = told_until_full(story, fresh(tmp_path / "run"), lambda _told: None)
    for step in story.steps[story.steps.index(FillUp()) + 1 :]:
        teller.take(step)
    assert teller.disk is not None
    assert teller.disk.refused > 0
    assert teller.disk.free > 0
    teller.close()
