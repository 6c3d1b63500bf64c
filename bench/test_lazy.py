"""Counts by queries take at most twice what a scan's count takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_counts_of_engines_run_beside_a_scan(
    contest: Contest, run: Callable[[Contest], None]
) -> None:
    run(contest)
