"""A log of a thousand segments, opened and closed, beside the listing of its directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import open_cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_opening_runs_beside_a_listing(contest: Contest, run: Callable[[Contest], None]) -> None:
    run(contest)


def test_the_log_has_as_many_segments_as_it_is_said_to_have() -> None:
    from kseg.log.log import Log

    with Log.open(open_cases.partition(open_cases.COUNT)) as log:
        assert len(log.segments) == open_cases.COUNT
