"""A share of the batches that `make soak` spoils are read in every way each time."""

from __future__ import annotations

import pytest

from tests.fuzz.fuzz_columns import Kept, search

CASES = 1_500


@pytest.fixture(scope="module")
def kept() -> Kept:
    return Kept("suite")


@pytest.mark.parametrize("first", [0, 3_000])
def test_every_way_to_read_spoilt_batches_agrees(kept: Kept, first: int) -> None:
    found = search(kept, CASES, first=first)
    assert len(found.kinds) > 13
    assert found.records > CASES / 2
    assert len(found.faults) > 60
