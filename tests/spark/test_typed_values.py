"""Values of a registry as columns of Spark, with the type of the latest version."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from tests.registries import Registry, write_log
from tests.unit.decode.test_registry import Orders


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "data")


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


#: Avro's types of time and money, a value, and what Spark makes of it.
FIELDS: dict[str, tuple[Any, bytes, Any]] = {
    "at": (logical("long", "timestamp-millis"), b"\x02", datetime(1970, 1, 1, 0, 0, 0, 1_000)),
    "us": (logical("long", "timestamp-micros"), b"\x02", datetime(1970, 1, 1, 0, 0, 0, 1)),
    "local": (
        logical("long", "local-timestamp-millis"),
        b"\x02",
        datetime(1970, 1, 1, 0, 0, 0, 1_000),
    ),
    "day": (logical("int", "date"), b"\x02", date(1970, 1, 2)),
    "price": (logical("bytes", "decimal", precision=10, scale=2), b"\x02\x05", Decimal("0.05")),
    "inner": (
        {
            "type": "record",
            "name": "Inner",
            "fields": [{"name": "at", "type": logical("long", "timestamp-millis")}],
        },
        b"\x02",
        {"at": datetime(1970, 1, 1, 0, 0, 0, 1_000)},
    ),
    "list": (
        {"type": "array", "items": logical("long", "timestamp-millis")},
        b"\x02\x02\x00",
        [datetime(1970, 1, 1, 0, 0, 0, 1_000)],
    ),
}


def written(directory: Path, fields: dict[str, Any], value: bytes) -> Path:
    registry = Registry()
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    number = registry.register("t-value", {"type": "record", "name": "R", "fields": named})
    registry.write(directory)
    write_log(directory / "t-0", [bytes([0, *number.to_bytes(4, "big")]) + value], None)
    return directory


@pytest.mark.spark
def test_times_and_decimals_of_a_registry_are_those_of_spark(spark: Any, tmp_path: Path) -> None:
    kinds = {name: kind for name, (kind, _, _) in FIELDS.items()}
    data = written(tmp_path, kinds, b"".join(value for _, value, _ in FIELDS.values()))
    reader = spark.read.format("kseg").option("topic", "t").option("decodeValue", "registry")
    (row,) = reader.load(str(data)).select("value").collect()
    assert row.value.asDict(True) == {name: wanted for name, (_, _, wanted) in FIELDS.items()}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (["string", "long"], "value has a union of several types, which Spark does not have"),
        (
            logical("bytes", "decimal", precision=50, scale=2),
            "value has a decimal of more than 38 digits, which Spark does not have",
        ),
        (logical("int", "time-millis"), "has no type in Spark"),
    ],
)
def test_types_that_spark_lacks_are_refused_with_the_way_out(
    spark: Any, tmp_path: Path, kind: Any, words: str
) -> None:
    data = written(tmp_path, {"x": kind}, b"\x00")
    reader = spark.read.format("kseg").option("topic", "t").option("decodeValue", "registry")
    with pytest.raises(AnalysisException, match=f"{words}; decode as registry-json"):
        reader.load(str(data))


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
