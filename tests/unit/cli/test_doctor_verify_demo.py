"""`kseg verify` and `demo`: documents, codes, and a tour that ends well."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.terminal import on_a_terminal
from tests.unit.cli.conftest import Kseg


def test_demo_takes_the_tour_and_repairs_the_log_that_it_breaks(kseg: Kseg) -> None:
    ran = kseg("demo", "--no-spark")
    assert ran.code == 0
    for words in ("$ kseg verify", "0 errors", "$ kseg info", "$ kseg read", "$ kseg export"):
        assert words in ran.text
    assert "Parquet holds the same" in ran.text
    broken = ran.text.index("Break a log")
    torn = ran.text.index("the last batch is incomplete", broken)
    cut = ran.text.index("$ kseg recover clicks-1 --apply", torn)
    assert "0 errors, 0 warnings" in ran.text[cut:]


def test_demo_writes_the_sample_log_to_a_new_directory(kseg: Kseg, tmp_path: Path) -> None:
    ran = kseg("demo", "-o", str(tmp_path / "data"))
    assert (ran.code, ran.err) == (0, "")
    assert kseg("verify", str(tmp_path / "data")).code == 0
    assert kseg("demo", "-o", str(tmp_path / "data")).code == 3


def test_nothing_is_wrong_with_the_sample(kseg: Kseg, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert kseg("demo", "-o", data).code == 0
    assert kseg("doctor", data).text.startswith("Kafka 4.2: the broker starts; 0 errors, 0 warn")
    assert "0 errors, 0 warnings" in kseg("verify", "--deep", data).text
    assert kseg("report", data, "-o", f"{data}.html", "--now", "2026-12-01").code == 0
    assert [row["group"] for row in kseg("groups", data, "--json").document["groups"]] == [
        "billing"
    ]
    subjects = [row["subject"] for row in kseg("schemas", data, "--json").document["schemas"]]
    assert subjects == ["customers-value", "shipments-value"]


def test_the_damaged_sample_needs_what_each_verb_does(kseg: Kseg, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert kseg("demo", "--damaged").code == 2
    assert kseg("demo", "-o", data, "--damaged").code == 0
    codes = {row["code"] for row in kseg("verify", data, "--json").document["findings"]}
    assert {"torn-tail", "batch-crc", "index-missing"} <= codes
    doctor = kseg("doctor", data)
    assert doctor.code == 1
    assert "LOSES records of clicks-1" in doctor.text
    assert kseg("recover", data, "--apply").code == 0
    assert kseg("doctor", data).code == 0
    assert kseg("verify", data, "--topic", "clicks").code == 0


def test_each_step_of_the_demo_fits_a_terminal() -> None:
    shown = on_a_terminal("demo", "--no-spark").decode().replace("\r\n", "\n")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    steps = re.sub(r".*\u2501.* left\n?", "", plain).split("\n\n")  # without progress bars
    assert len(steps) >= 9
    for step in steps:
        lines = step.strip("\n").split("\n")
        assert sum(max(1, -(-len(line) // 80)) for line in lines) <= 24, step


def test_demo_leaves_out_what_is_not_installed(kseg: Kseg, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyspark", "kseg.arrow", "kseg.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    ran = kseg("demo")
    assert (ran.code, "Traceback" in ran.err) == (0, False)
    assert "Arrow and Parquet are left out: pyarrow is not installed; pip install" in ran.text
    assert "Spark is left out: pyspark is not installed; pip install" in ran.text
    assert "0 errors, 0 warnings" in ran.text[ran.text.index("Break a log") :]
