"""The first cases of one seed are read in one pass and step by step each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import fuzz_columns

CASES = 200
STEP = 50


@pytest.fixture(scope="module")
def kept() -> list[bytes]:
    return fuzz_columns.seeds_of("suite")


@pytest.mark.parametrize("first", range(0, CASES, STEP))
def test_one_pass_and_step_by_step_agree(kept: list[bytes], first: int, tmp_path: Path) -> None:
    for number in range(first, first + STEP):
        fuzz_columns.run("suite", number, kept, tmp_path)
