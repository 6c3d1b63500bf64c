"""Values of a registry in `read` and `export`: columns, JSON, warnings and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kseg as package
from tests.unit.cli.conftest import Kseg
from tests.unit.decode.test_registry import VALUES, Orders


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "data")


def test_read_shows_values_of_a_registry_as_json(kseg: Kseg, orders: Orders) -> None:
    words = ("--topic", "orders", "--decode-value", "registry", "--format", "jsonl")
    ran = kseg("read", orders.directory, *words)
    assert (ran.code, ran.err) == (0, "")
    assert [row["value"] for row in ran.rows] == orders.wanted()
    named = kseg("read", orders.directory / "orders-0", *words, "--schemas", orders.directory)
    assert named.out == ran.out
    alone = kseg("read", orders.directory / "orders-0", *words)
    assert alone.err.endswith("; name its data directory, or a registry: --schemas DATA\n")
    older = kseg("read", orders.directory, *words, "--schema-version", 2, "--limit", 1)
    assert older.rows[0]["value"].keys() == {"id", "who", "note", "state"}
    mixed = kseg("read", orders.directory, *words[:3], "registry-json", "--format", "jsonl")
    assert [row["value"] for row in mixed.rows[:5]] == [value for _, value in VALUES]


def test_options_that_do_not_go_together_are_refused(kseg: Kseg, orders: Orders) -> None:
    ran = kseg("read", orders.directory, "--topic", "orders", "--subject", "x")
    assert (ran.code, "needs --decode-value" in ran.err) == (2, True)
    words = ("--topic", "orders", "--decode-value", "registry")
    ran = kseg("read", orders.directory, *words, "--subject", "x")
    assert (ran.code, "subjects: address, orders-value" in ran.err) == (2, True)
    ran = kseg("read", orders.directory, *words, "--schemas", orders.directory / "missing")
    assert ran.code == 3


def test_the_name_of_each_schema_is_a_field_and_chooses_records(kseg: Kseg, tmp_path: Path) -> None:
    data = Path(package.__file__).parent / "demo_data"
    words = ("--topic", "customers", "--topic", "shipments", "--decode-value", "registry-json")
    fields = ("--fields", "value,value_schema_id,value_schema_name")
    rows = []
    for form in ("jsonl", "csv", "parquet"):
        out = tmp_path / form
        assert kseg("export", data, *words, *fields, "--format", form, "-o", out).code == 0
    for path in sorted((tmp_path / "jsonl").iterdir()):
        rows += [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["value_schema_id"]: row["value_schema_name"] for row in rows} == {
        1: "demo.Shipment",
        2: "Customer",
    }
    names = pq.read_table(tmp_path / "parquet")["value_schema_name"].to_pylist()
    assert names == [row["value_schema_name"] for row in rows]
    assert '"1","demo.Shipment"' in (tmp_path / "csv" / "shipments-0.csv").read_text()
    chosen = kseg("read", data, *words, "--record", "Shipment", "--format", "jsonl")
    assert {row["dir"] for row in chosen.rows} == {"shipments-0"}
    assert len(chosen.rows) == names.count("demo.Shipment")
