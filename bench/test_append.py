"""Appends, in pieces and alone, beside a bare `pwrite` of the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_appends_run_beside_a_bare_write(contest: Contest, run: Callable[[Contest], None]) -> None:
    run(contest)
