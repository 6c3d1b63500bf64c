from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kseg.spark import schema
from kseg.spark.options import parse_options

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)


def ddl(**options: str) -> str:
    return schema.ddl(parse_options({"path": "data", **options}))


def one(name: str, kind: object, nullable: bool = True) -> StructType:
    return StructType([StructField(name, kind, nullable)])


def test_the_default_columns_are_those_of_sparks_kafka_source() -> None:
    assert ddl() == (
        "`key` BINARY, `value` BINARY, `topic` STRING, `partition` INT, `offset` BIGINT, "
        "`timestamp` TIMESTAMP_LTZ, `timestampType` INT"
    )


def test_an_unknown_column_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ValueError, match="unknown column 'offsets'; did you mean offset"):
        ddl(columns="offsets")


def test_arrow_types_are_what_spark_expects_to_the_letter() -> None:
    assert schema.project(KAFKA).schema == to_arrow_schema(KAFKA, timezone="UTC")


def test_timestamps_without_a_zone_are_given_so() -> None:
    projection = schema.project(one("timestamp", TimestampNTZType()))
    assert projection.schema.field(0).type == pa.timestamp("us")


def test_lists_that_hold_no_nulls_may_say_so() -> None:
    wanted = one("headers", ArrayType(HEADER, containsNull=False))
    assert schema.project(wanted).schema == to_arrow_schema(wanted, timezone="UTC")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (one("nothing", LongType()), "unknown column 'nothing'"),
        (one("value", StringType()), r"is BINARY, not string; .*CAST\(value AS STRING\)"),
        (one("offset", IntegerType()), "is BIGINT, not int"),
        (one("key", BinaryType(), nullable=False), "can be null, so NOT NULL is refused"),
        (
            one("headers", ArrayType(StructType([StructField("key", StringType(), False),
                                                 StructField("value", BinaryType())]))),
            "fields of 'headers' can be null",
        ),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_met_is_one_clear_line(wanted: StructType, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        schema.project(wanted)
    assert "\n" not in str(caught.value)


def test_a_projection_means_the_same_in_a_worker() -> None:
    here = schema.project(KAFKA)
    there = pickle.loads(pickle.dumps(here))
    assert there.schema == here.schema
