"""Damaged replicas whose union is whole give the original log, byte for byte.

But for batches that only one copy has, behind damage where nothing proves them: these are missing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import kseg
from kseg.log.copies.merge import plan_merge
from kseg.log.salvage.provable import read_provable
from kseg.log.salvage.values import LostOffsets
from tests.replicas import Made, a_triple
from tests.shares import share

CASES = share(range(1_000), 8, "triples")


def _holds(missing: LostOffsets, one: Made) -> bool:
    return missing.first_offset <= one.last and one.first <= (missing.last_offset or one.first)


def _unproved(copy: Path) -> Iterator[bytes]:
    """The readable batches of a copy that nothing proves."""
    for each in read_provable(copy).unprovable:
        if each.reason == "not-anchored":
            yield Path(each.path).read_bytes()[each.position : each.end]


@pytest.mark.parametrize("seed", CASES)
def test_three_damaged_replicas_give_the_original(seed: int, tmp_path: Path) -> None:
    triple = a_triple(random.Random(f"triple {seed}"), tmp_path)
    out = tmp_path / "out"
    plan = plan_merge(*triple.copies, out=out)
    told = (seed, triple.harm)
    assert plan.undecided == 0, told
    plan.apply()
    (merge,) = plan.partitions
    gone = [one for one in triple.original if any(_holds(each, one) for each in merge.missing)]
    unproved = [extent for copy in triple.copies for extent in _unproved(copy)]
    assert {one.data for one in gone} <= {
        one.data for one in gone if one.data in b"".join(unproved)
    }
    found = b"".join(path.read_bytes() for path in sorted((out / "t-0").glob("*.log")))
    assert found == b"".join(one.data for one in triple.original if one not in gone), told
    assert plan.is_whole is not bool(gone), told
    if gone:
        return
    if len({tuple(begins) for begins in triple.begins}) == 1:
        bases = [triple.original[begin].first for begin in triple.begins[0]]
        assert [int(path.stem) for path in sorted((out / "t-0").glob("*.log"))] == bases, told
    if seed % 8 == 0:
        assert kseg.verify(out, deep=True).ok, told
