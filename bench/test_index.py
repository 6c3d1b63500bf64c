"""Lookups in an offset index, one at a time, beside bisect and NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_lookups_run_beside_bisect_and_numpy(
    contest: Contest, run: Callable[[Contest], None]
) -> None:
    run(contest)
