"""A cut of many logs at a time: each as it stood then."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import kseg
from tests.adopted import Source, served


@pytest.mark.parametrize("seed", range(12))
def test_each_log_is_as_it_stood(tmp_path: Path, seed: int) -> None:
    source = Source(tmp_path / "data", 2, Random(seed))
    source.write(80)
    at_ms = Random(seed).randint(source.notes[0].time_ms - 2, source.now_ms + 2)
    for number in range(2):
        path = source.home / f"old-{number}"
        kseg.plan_truncation(path, time=at_ms).apply(keep=False)
        wanted = source.expected(number, committed=False, at_ms=at_ms)
        assert served(path, "read_uncommitted") == wanted
    assert kseg.verify(source.home).ok


@pytest.mark.parametrize("how", [{}, {"offset": 3, "time": 4}])
def test_an_offset_or_a_time(tmp_path: Path, how: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at an offset or at a time"):
        kseg.plan_truncation(tmp_path, **how)
