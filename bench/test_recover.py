"""All that a segment says, found and installed, beside a walk that only checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_sweeps_run_beside_verifying_the_same_bytes(
    contest: Contest, run: Callable[[Contest], None]
) -> None:
    run(contest)
