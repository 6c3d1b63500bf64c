"""Walks over batch headers, with and without their CRCs, beside reads of the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_walks_run_beside_reads_of_the_same_bytes(
    contest: Contest, run: Callable[[Contest], None]
) -> None:
    run(contest)
