from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.segments import index_fault
from tests.unit.files.index_bytes import offset_index, time_index


@pytest.mark.parametrize("name", ["x.index", "x.timeindex", "x.txnindex"])
def test_an_empty_index_is_sound(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert index_fault(tmp_path / name, 45) is None


@pytest.mark.parametrize("mapping", ["always", "never"])
@pytest.mark.parametrize(
    ("kind", "entries", "slots", "slot"),
    [
        ("index", [(5, 10), (5, 20)], 0, 1),  # the same offset twice
        ("index", [(5, 10), (4, 20)], 0, 1),
        ("index", [(5, 10), (6, 9)], 0, 1),
        ("index", [(-1, 10), (6, 20)], 0, 0),
        ("index", [(1, -10), (6, 20)], 0, 0),
        ("index", [(1, 10), (-6, 20)], 0, 1),  # the last offset lies below the base
        ("index", [(1, 10), (2, 20), (0, 0), (0, 7), (0, 0)], 0, 3),
        ("index", [(0, 0), (0, 0), (0, 9)], 4, 2),
        ("timeindex", [(1, 7), (1, 8)], 0, 1),
        ("timeindex", [(2, 7), (1, 8)], 0, 1),  # the last timestamp lies below the first
        ("timeindex", [(1, 7), (2, 6)], 0, 1),
        ("timeindex", [(1, -7)], 0, 0),  # the last offset lies below the base
        ("timeindex", [(2**63 - 1, 1), (-(2**63), 2)], 0, 1),
        ("timeindex", [(1, 7), (0, 0), (5, 0)], 4, 2),
    ],
)
def test_what_breaks_the_order_is_found(
    tmp_path: Path, mapping: Any, kind: str, entries: list[tuple[int, int]], slots: int, slot: int
) -> None:
    make, size = (offset_index, 8) if kind == "index" else (time_index, 12)
    path = make(tmp_path / f"x.{kind}", entries, slots=slots)
    fault = index_fault(path, 45, mapping)
    assert fault is not None
    assert (fault.path, fault.position) == (str(path), size * slot)
