"""Damaged logs, salvaged: what an independent reader finds sound is kept, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.doubted import DOUBTED
from tests.property.salvaging import a_case, check
from tests.shares import share

#: Seeds whose case leaves sound batches out.
LEAVING = sorted({seed for seeds in DOUBTED.values() for seed in seeds})
CASES = sorted({*share(range(2_000), 100, "salvage"), *share(LEAVING, 20, "doubted")})


@pytest.mark.parametrize("seed", CASES)
def test_what_is_sound_is_kept_and_what_is_lost_is_told(tmp_path: Path, seed: int) -> None:
    came = check(a_case(seed), tmp_path)
    known = {reason: seeds[seed] for reason, seeds in DOUBTED.items() if seed in seeds}
    assert came.doubted == known
