"""Logs compacted, beside Kafka's own cleaner where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_logs_are_compacted_beside_kafkas_cleaner(
    contest: Contest, run: Callable[[Contest], None]
) -> None:
    run(contest)
