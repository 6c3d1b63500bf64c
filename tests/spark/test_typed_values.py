"""Values of a registry as columns of Spark, with the type of the latest version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.decode.test_registry import Orders


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "data")


@pytest.mark.spark
def test_values_of_a_registry_are_structs(spark: Any, orders: Orders) -> None:
    reader = spark.read.format("kseg").option("topic", "orders").option("decodeValue", "registry")
    frame = reader.load(str(orders.directory))
    kind = frame.schema["value"].dataType.simpleString()
    assert kind == (
        "struct<user:string,note:string,state:string,id:double,"
        "to:struct<city:string>,tags:array<string>>"
    )
    rows = frame.orderBy("offset").select("value", "valueError").collect()
    assert [row["value"] and row["value"].asDict(True) for row in rows] == orders.wanted()
    assert {row["valueError"] for row in rows} == {None}
    assert frame.where("value.to.city = 'Ulm'").count() == 2
    older = reader.option("schemaVersion", 2).option("schemas", str(orders.directory))
    columns = older.load(str(orders.directory / "orders-0")).select("value.*").columns
    assert columns == ["id", "who", "note", "state"]
