"""Damaged logs, salvaged: what an independent reader finds sound is kept, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.salvaging import a_case, check
from tests.shares import share


@pytest.mark.parametrize("seed", share(range(2_000), 100, "salvage"))
def test_what_is_sound_is_kept_and_what_is_lost_is_told(tmp_path: Path, seed: int) -> None:
    check(a_case(seed), tmp_path)
