"""LogLoader, one claim a test: segments that overflow, and splits that a crash broke off.

The claims are those of Kafka's LogLoaderTest. Each state of a split is made of the files that a
whole one leaves.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery
from kseg.log.recovery.split import split_log
from tests.conformance.logs import INT_MAX, NOW_MS, Logs, bases
from tests.conformance.overflows import STRIDE, has_overflow, overflowing

CONFIG = LogConfig(retention_ms=-1)
OLD, NEW = STRIDE, 2 * STRIDE
KINDS = ("log", "index", "timeindex")
#: What is left after any of these: one segment more.
BASES = [0, OLD, NEW, 3 * STRIDE]


@dataclass
class Broken:
    """A directory whose middle segment is to be split, and the files that the split makes."""

    path: Path
    values: list[bytes | None]
    split: Path

    def add(self, base: int, suffix: str) -> None:
        """Put the files of a new segment there, under a temporary name or their own."""
        for kind in KINDS:
            name = f"{base:020d}.{kind}"
            shutil.copy(self.split / name, self.path / (name + suffix))

    def drop_old(self) -> None:
        """The old segment has been given up already."""
        for kind in KINDS:
            path = self.path / f"{OLD:020d}.{kind}"
            path.rename(path.with_name(path.name + ".deleted"))


#: Puts the files of a split into a directory as a crash left them.
State = Callable[[Broken], None]


@pytest.fixture
def broken(logs: Logs) -> Broken:
    path = logs.directory()
    values = overflowing(path)
    split = logs.as_it_lies(path)
    split_log(split / f"{OLD:020d}.log", CONFIG)
    return Broken(path, values, split)


def cleaned(given: Broken) -> None:
    for base in (OLD, NEW):
        given.add(base, ".cleaned")


def one_swapped(given: Broken) -> None:
    given.add(NEW, ".swap")
    given.add(OLD, ".cleaned")


def swapped(given: Broken) -> None:
    for base in (OLD, NEW):
        given.add(base, ".swap")


def swapped_and_deleted(given: Broken) -> None:
    swapped(given)
    given.drop_old()


def renamed_but_the_last(given: Broken) -> None:
    given.drop_old()
    given.add(OLD, "")
    given.add(NEW, ".swap")


def check(path: Path, values: list[bytes | None]) -> None:
    """All records are there, nothing overflows, and nothing temporary is left."""
    with Log.open(path) as log:
        assert bases(log) == BASES
        assert [found.value for found in log.records()] == values
    assert not any(has_overflow(each) for each in path.glob("*.log"))
    assert [each.name for each in path.iterdir() if each.name.count(".") > 1] == []


@pytest.mark.parametrize("as_broker", [False, True])
def test_ldr_26_a_segment_that_overflows_is_split_by_loading_it(
    broken: Broken, as_broker: bool
) -> None:
    mend(broken.path, as_broker=as_broker)
    check(broken.path, broken.values)


def mend(path: Path, *, as_broker: bool) -> None:
    plan = plan_recovery(
        path,
        as_broker=as_broker,
        clean=False,
        recovery_point=0,
        log_start_offset=0,
        config=CONFIG,
        now_ms=NOW_MS,
    )
    assert plan.error is None
    plan.apply(keep_cut=False)


@pytest.mark.parametrize("as_broker", [False, True])
@pytest.mark.parametrize("state", [cleaned, one_swapped])
def test_ldr_27_28_a_split_that_is_not_all_swapped_is_done_again(
    broken: Broken, state: State, as_broker: bool
) -> None:
    state(broken)
    mend(broken.path, as_broker=as_broker)
    check(broken.path, broken.values)


@pytest.mark.parametrize("as_broker", [False, True])
@pytest.mark.parametrize("state", [swapped, swapped_and_deleted, renamed_but_the_last])
def test_ldr_29_30_31_a_split_that_is_all_swapped_is_completed(
    broken: Broken, state: State, as_broker: bool
) -> None:
    state(broken)
    mend(broken.path, as_broker=as_broker)
    check(broken.path, broken.values)


@pytest.mark.parametrize(
    "state", [cleaned, one_swapped, swapped, swapped_and_deleted, renamed_but_the_last]
)
def test_ldr_32_opened_for_appending_nothing_temporary_is_left_of_a_split(
    logs: Logs, broken: Broken, state: State
) -> None:
    state(broken)
    log = logs.open(broken.path, recover=True, config=CONFIG)
    logs.clock.sleep(CONFIG.file_delete_delay_ms)
    log.delete_old_segments()
    check(broken.path, broken.values)
    assert log.log_end_offset == 3 * STRIDE + INT_MAX
