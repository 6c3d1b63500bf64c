"""Damaged logs, salvaged: nothing is invented, and each omission is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.salvaging import a_case, check
from tests.shares import share


@pytest.mark.parametrize("seed", share(range(5_000), 100, "salvage"))
def test_nothing_is_invented_and_what_is_left_out_is_told(tmp_path: Path, seed: int) -> None:
    check(a_case(seed), tmp_path)
