"""Fetches, from anywhere and from end to end, beside a bare read of the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_fetches_run_beside_a_bare_read(contest: Contest, run: Callable[[Contest], None]) -> None:
    run(contest)
