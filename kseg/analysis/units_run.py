"""Units examined in this process or in several: what every analysis does with its units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from kseg.analysis.units import Unit

#: `progress(done, total)`: bytes examined so far, and in all; called after each unit.
Progress = Callable[[int, int], None]

_Answer = TypeVar("_Answer")


def run_units(
    units: Sequence[Unit],
    work: Callable[[Unit], _Answer],
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Iterator[_Answer]:
    """Do some work on each unit, the answers in no order that matters.

    Args:
        units: what there is to do.
        work: takes one unit; pickles if `jobs` is above 1.
        jobs: processes to share the work; 1 stays in this one.
        progress: called after each unit.

    Raises:
        ValueError: `jobs` is below 1.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}, not 1 or more")
    total, done = sum(unit.cost for unit in units), 0
    for unit, answer in _answers(units, work, jobs):
        done += unit.cost
        if progress is not None:
            progress(min(done, total), total)
        yield answer


def _answers(
    units: Sequence[Unit], work: Callable[[Unit], _Answer], jobs: int
) -> Iterator[tuple[Unit, _Answer]]:
    if jobs == 1 or len(units) < 2:
        yield from zip(units, map(work, units), strict=True)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # The largest first, so that no process is left with one at the end.
    ordered = sorted(units, key=lambda unit: unit.cost, reverse=True)
    workers = min(jobs, len(units))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from zip(ordered, pool.map(work, ordered), strict=True)
