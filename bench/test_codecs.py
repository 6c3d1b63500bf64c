"""Compressed records to columns, beside those who iterate records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_inflated_columns_run_beside_record_iteration(
    contest: Contest, run: Callable[[Contest], None]
) -> None:
    run(contest)
