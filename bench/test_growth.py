"""The same work on twice as much, beside that on half of it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench import growth_cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_growth_runs(contest: Contest, run: Callable[[Contest], None]) -> None:
    run(contest)


def test_each_does_twice_as_much() -> None:
    for make in (growth_cases.appending, growth_cases.recovering, growth_cases.reading):
        with ExitStack() as stack:
            assert make(stack, 64)() == 2 * make(stack, 32)()
