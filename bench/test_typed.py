"""Typed values as columns, beside Confluent's deserializers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_typed_values_run_beside_deserializers(
    contest: Contest, run: Callable[[Contest], None]
) -> None:
    run(contest)
