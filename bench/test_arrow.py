"""A segment as an Arrow table, beside one built from iterated records and beside a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_tables_run_beside_iteration_and_a_copy(
    contest: Contest, run: Callable[[Contest], None]
) -> None:
    run(contest)
