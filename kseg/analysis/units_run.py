"""Run the units of an analysis, in this thread or shared by several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from kseg.analysis.helpers import SEGMENTS_MIN, Helpers, can_fork
from kseg.files.names import Unreadable
from kseg.workers import At, at_file, in_order

if TYPE_CHECKING:
    from kseg.workers import Put

#: `progress(done, total)`: bytes examined so far, and in all; called after each unit.
Progress = Callable[[int, int], None]

#: What becomes of what cannot be read.
OnError = Literal["raise", "skip"]


class Costed(Protocol):
    """A unit of work: what it is about, and bytes to read, roughly."""

    @property
    def path(self) -> str:
        """The file or directory."""

    @property
    def cost(self) -> int:
        """Bytes to read, roughly; 0 if not known."""


_Unit = TypeVar("_Unit", bound=Costed)
_Answer = TypeVar("_Answer")


class Runner(Protocol):
    """Examines units elsewhere, as Spark's workers do."""

    def run(
        self,
        units: Sequence[Any],
        work: Callable[[Any], Any],
        merge: Callable[[Iterable[Any]], Any] | None,
        progress: Progress | None,
    ) -> Iterable[Any]:
        """The answers to units, in any order; an `Unreadable` for each that cannot be read.

        Args:
            units: they pickle, as the work does.
            work: takes one unit.
            merge: joins answers to one; None if each is wanted.
            progress: called now and then.
        """


#: Who does the work: so many threads, or a runner.
Jobs = int | Runner


def skipped_of(on_error: OnError) -> list[Unreadable] | None:
    """The list for paths that cannot be read; None to raise instead.

    Raises:
        ValueError: neither of the values.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is raise or skip, not {on_error!r}")
    return None if on_error == "raise" else []


def run_units(
    units: Sequence[_Unit],
    work: Callable[[_Unit], _Answer],
    *,
    jobs: Jobs = 1,
    progress: Progress | None = None,
    skipped: list[Unreadable] | None = None,
    segments: int = 0,
    merge: Callable[[Iterable[_Answer]], _Answer] | None = None,
) -> Iterator[_Answer]:
    """Do some work on each unit; the answers come in any order, the same one for any `jobs` > 1.

    Args:
        units: of `kseg.analysis.units.plan`, or others that pickle.
        work: takes one unit; several threads call it if `jobs` is above 1.
        jobs: threads to share the work; 1 does all of it in this one. Or what runs it elsewhere.
        progress: called after each unit.
        skipped: takes units whose files cannot be read; None to raise the fault.
        segments: of all units, where `work` takes long over each, however small it is: with
            `SEGMENTS_MIN` of them each thread has a process do its units.
        merge: joins answers, where a runner may do so.

    Raises:
        ValueError: `jobs` is below 1.
        LimitExceededError: a unit ran out of memory; it names the file.
    """
    if not isinstance(jobs, int):
        for found in jobs.run(units, work, merge, progress):
            yield from _taken(found, skipped)
        return
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}, not 1 or more")
    total, done = sum(unit.cost for unit in units), 0
    careful = partial(_attempt, work=work)
    count = min(jobs, len(units))
    apart = count > 1 and segments >= SEGMENTS_MIN and can_fork()
    with Helpers(careful, count) if apart else nullcontext() as helpers:
        do = careful if helpers is None else helpers.do
        for unit, answer in _answers(units, do, jobs):
            done += unit.cost
            if progress is not None:
                progress(min(done, total), total)
            yield from _taken(answer, skipped)


def _taken(answer: _Answer | Unreadable, skipped: list[Unreadable] | None) -> Iterator[_Answer]:
    """An answer; what cannot be read is raised, or noted in `skipped`."""
    if not isinstance(answer, Unreadable):
        yield answer
    elif skipped is None:
        raise answer.error
    else:
        skipped.append(answer)


def _attempt(unit: _Unit, *, work: Callable[[_Unit], _Answer]) -> _Answer | Unreadable:
    """The answer of `work`, or the file system's error, which may be skipped."""
    try:
        with at_file(unit.path):
            return work(unit)
    except OSError as error:
        return Unreadable(Path(unit.path), error)


def _answers(
    units: Sequence[_Unit], work: Callable[[_Unit], _Answer], jobs: int
) -> Iterator[tuple[_Unit, _Answer]]:
    if jobs == 1 or len(units) < 2:
        yield from zip(units, map(work, units), strict=True)
        return
    # The largest first, so that no thread is left with one at the end. Answers are small.
    ordered = sorted(units, key=lambda unit: unit.cost, reverse=True)
    pieces = (At(unit.path, partial(_put_answer, unit, work)) for unit in ordered)
    threads = min(jobs, len(units))
    with closing(in_order(pieces, threads=threads, window=len(units))) as answers:
        yield from zip(ordered, answers, strict=True)


def _put_answer(unit: _Unit, work: Callable[[_Unit], _Answer], put: Put) -> None:
    put(work(unit))
