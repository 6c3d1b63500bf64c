"""Processes that share the work of an analysis."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kseg.analysis import units_run
from kseg.analysis.helpers import Helpers, can_fork
from kseg.analysis.units_run import run_units
from kseg.errors import KsegError, NotALogError

MANY = units_run.SEGMENTS_MIN


@dataclass(frozen=True, slots=True)
class Unit:
    path: str
    cost: int = 1


UNITS = [Unit(str(number)) for number in range(4)]


def whose(unit: Unit) -> int:
    return os.getpid()


def refuse(unit: Unit) -> int:
    raise NotALogError("no log", path=unit.path)


def die(unit: Unit) -> int:
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def first_alone(unit: Unit) -> int:
    if unit.path != "first":
        threading.Event().wait()
    return os.getpid()


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of one thread; that of the tests may have some."""
    monkeypatch.setattr(units_run, "can_fork", lambda: True)


@pytest.mark.usefixtures("forking")
def test_many_segments_are_shared_by_processes() -> None:
    found = set(run_units(UNITS, whose, jobs=2, segments=MANY))
    assert found
    assert os.getpid() not in found


@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize(("jobs", "segments"), [(1, MANY), (2, MANY - 1), (2, 0)])
def test_one_job_and_few_segments_start_no_process(jobs: int, segments: int) -> None:
    assert set(run_units(UNITS, whose, jobs=jobs, segments=segments)) == {os.getpid()}


def test_a_process_with_threads_forks_none() -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    assert not can_fork()
    assert set(run_units(UNITS, whose, jobs=2, segments=MANY)) == {os.getpid()}
    done.set()
    other.join()


@pytest.mark.usefixtures("forking")
def test_an_error_comes_back_with_its_path() -> None:
    with pytest.raises(KsegError, match="no log") as caught:
        list(run_units(UNITS, refuse, jobs=2, segments=MANY))
    assert str(caught.value.path) == "0"


@pytest.mark.usefixtures("forking")
def test_what_a_process_dies_of_is_done_here() -> None:
    assert list(run_units(UNITS, die, jobs=2, segments=MANY)) == [os.getpid()] * len(UNITS)


def test_without_processes_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_self: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(multiprocessing.context.ForkProcess, "start", refused)
    with Helpers(whose, 2) as helpers:
        assert helpers.do(UNITS[0]) == os.getpid()


@pytest.mark.usefixtures("forking")
def test_processes_end_in_the_middle_of_their_work() -> None:
    answers = run_units([Unit("first", 2), *UNITS], first_alone, jobs=2, segments=MANY)
    assert next(answers) != os.getpid()
    answers.close()
