"""Bytes that once mattered, and the first cases of one seed, go through every reader each time."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kseg import _core
from tests.fuzz import seeds, targets
from tests.fuzz.fuzz_read import Cases

WAYS = 6
CASES = 120
STEP = 60


@pytest.fixture(autouse=True)
def _best_kernel_afterwards() -> object:
    yield
    _core.set_crc_variant("auto")


@pytest.mark.parametrize("seed", seeds.corpus(), ids=lambda seed: seed.name)
def test_kept_bytes_are_read_or_refused(seed: seeds.Seed, tmp_path: Path) -> None:
    for way in range(WAYS):
        targets.run(seed.kind, seed.data, Random(way), tmp_path)


@pytest.fixture(scope="module")
def cases() -> Cases:
    return Cases("suite", seeds.KINDS)


@pytest.mark.parametrize("first", range(0, CASES, STEP))
def test_mutated_bytes_are_read_or_refused(cases: Cases, first: int, tmp_path: Path) -> None:
    for number in range(first, first + STEP):
        kind, data, source = cases.make(number)
        targets.run(kind, data, source, tmp_path)


def test_same_number_same_case(cases: Cases) -> None:
    again = Cases("suite", seeds.KINDS)
    assert [cases.make(n)[:2] for n in range(50)] == [again.make(n)[:2] for n in range(50)]


def test_corpus_has_every_kind() -> None:
    assert {seed.kind for seed in seeds.corpus()} == set(seeds.KINDS)
