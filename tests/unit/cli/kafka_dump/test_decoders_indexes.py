"""The lines of the files beside a log, and what is said of damaged ones."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from tests.unit.cli.conftest import Kseg

FILES = {
    "index": (
        pack(">iiii", 1, 0, 3, 77),
        "offset: 8 position: 0\noffset: 10 position: 77\n",
    ),
    "timeindex": (
        pack(">qiqi", 5, 1, 6, 3),
        "timestamp: 5 offset: 8\ntimestamp: 6 offset: 10\n",
    ),
    "txnindex": (
        pack(">hqqqq", 0, 1, 2, 3, 4),
        "version: 0 producerId: 1 firstOffset: 2 lastOffset: 3 lastStableOffset: 4\n",
    ),
}


@pytest.mark.parametrize("suffix", FILES)
def test_every_entry_has_a_line(kseg: Kseg, tmp_path: Path, suffix: str) -> None:
    data, lines = FILES[suffix]
    path = tmp_path / f"{7:020}.{suffix}"
    path.write_bytes(data)
    ran = kseg("dump", "--kafka", path)
    assert (ran.code, ran.text, ran.err) == (0, f"Dumping {path}\n{lines}", "")


def test_a_damaged_snapshot_is_an_error_of_its_own(kseg: Kseg, tmp_path: Path) -> None:
    path = tmp_path / f"{7:020}.snapshot"
    path.write_bytes(bytes(10))
    ran = kseg("dump", "--kafka", path)
    assert (ran.code, ran.text) == (1, f"Dumping {path}\n")
    assert ran.err.startswith(f"kseg: {path}")


def test_an_index_without_entries_is_empty(kseg: Kseg, tmp_path: Path) -> None:
    path = tmp_path / f"{7:020}.index"
    path.write_bytes(b"")
    assert kseg("dump", "--kafka", path).text == f"Dumping {path}\n{path} is empty.\n"
