"""The programs of docs/how-to/lake-tables.md, killed at any moment: each record comes once."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import kseg
from tests.shares import share
from tests.tidy import tree

PAGE = tree.ROOT / "docs" / "how-to" / "lake-tables.md"
PROGRAMS = ("to_delta.py", "to_iceberg.py")


def _programs() -> dict[str, str]:
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    return dict(blocks)


def _append(place: Path, chance: random.Random) -> None:
    for number in (0, 1):
        with kseg.Log.open(place / "data" / f"orders-{number}", mode="append", create=True) as log:
            log.append({"value": [b"record"] * chance.randint(1, 50)})


def _offsets(program: str) -> list[tuple[int, int]]:
    if program == "to_delta.py":
        from deltalake import DeltaTable

        table = DeltaTable("delta").to_pyarrow_table(columns=["partition", "offset"])
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("lake", type="sql", uri="sqlite:///lake.db", warehouse="iceberg")
        scanned = catalog.load_table("kafka.orders").scan(selected_fields=("partition", "offset"))
        table = scanned.to_arrow()
    assert table.num_rows
    return duckdb.sql('select "partition", "offset" from "table" order by all').fetchall()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_is_killed_brings_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(program)
    (tmp_path / program).write_text(_programs()[program], encoding="utf-8")
    run = [sys.executable, program]
    environment = os.environ | {"PYTHONPATH": str(tree.ROOT)}
    how = {"env": environment, "stdout": subprocess.DEVNULL}
    _append(tmp_path, chance)
    subprocess.run(run, check=True, **how)
    for _ in share(range(50), 2, program):
        _append(tmp_path, chance)
        with subprocess.Popen(run, stderr=subprocess.DEVNULL, **how) as process:
            try:
                process.wait(chance.uniform(0.3, 3))
            except subprocess.TimeoutExpired:
                process.kill()
    subprocess.run(run, check=True, **how)
    expected = []
    for number in (0, 1):
        with kseg.Log.open(tmp_path / "data" / f"orders-{number}") as log:
            expected += [(number, offset) for offset in range(log.log_end_offset)]
    assert _offsets(program) == expected
