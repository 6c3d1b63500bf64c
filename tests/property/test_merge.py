"""Damaged replicas whose union is whole give the original log, byte for byte."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kseg
from kseg.log.copies.merge import apply_merge, plan_merge
from tests.replicas import a_triple
from tests.shares import share

CASES = share(range(1_000), 20, "triples")


@pytest.mark.parametrize("seed", CASES)
def test_three_damaged_replicas_give_the_original(seed: int, tmp_path: Path) -> None:
    triple = a_triple(random.Random(f"triple {seed}"), tmp_path)
    out = tmp_path / "out"
    plan = plan_merge(*triple.copies, out=out)
    told = (seed, triple.harm)
    assert plan.undecided == 0, told
    apply_merge(plan)
    found = b"".join(path.read_bytes() for path in sorted((out / "t-0").glob("*.log")))
    assert found == b"".join(one.data for one in triple.original), told
    assert plan.is_whole, told
    if len({tuple(begins) for begins in triple.begins}) == 1:
        bases = [triple.original[begin].first for begin in triple.begins[0]]
        assert [int(path.stem) for path in sorted((out / "t-0").glob("*.log"))] == bases, told
    if seed % 8 == 0:
        assert kseg.verify(out, deep=True).ok, told
