"""Damaged logs, salvaged: nothing is invented, each omission is listed, and no more is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.property.salvaging import a_case, check
from tests.shares import share

#: How many batches each case keeps at least.
KEPT = json.loads(Path(__file__).with_name("salvage_kept.json").read_text())


@pytest.mark.parametrize("seed", share(range(5_000), 40, "salvage"))
def test_nothing_is_invented_and_what_is_left_out_is_listed(tmp_path: Path, seed: int) -> None:
    assert check(a_case(seed), tmp_path).kept >= KEPT[seed]


@pytest.mark.parametrize("seed", [4_221, 4_894])
def test_no_batch_has_an_offset_that_something_contradicts(tmp_path: Path, seed: int) -> None:
    """An index entry behind a batch has a lower offset; a gap follows compressed messages."""
    assert check(a_case(seed), tmp_path).displaced == 0
