"""Checksums, the kernel alone, beside the packages a Python program could use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_checksums_run_beside_packages(contest: Contest, run: Callable[[Contest], None]) -> None:
    run(contest)
