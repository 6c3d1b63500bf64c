"""What an index says of a log changes nothing that a walk over its headers finds."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz import ahead


@pytest.mark.parametrize("part", range(8))
def test_a_walk_finds_the_same_whatever_an_index_says(part: int) -> None:
    for seed in range(part * 100, part * 100 + 100):
        try:
            ahead.check(Random(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
