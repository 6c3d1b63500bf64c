"""The rows of a load, made in this process as the tasks of Spark make them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kseg.spark import schema
from kseg.spark.options import SourceOptions, parse_options
from kseg.spark.plan import list_logs, make_plan
from kseg.spark.reading import read_task
from kseg.spark.schema import Projection

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: dict[str, DataType] = {
    "BIGINT": LongType(),
    "BINARY": BinaryType(),
    "BOOLEAN": BooleanType(),
    "INT": IntegerType(),
    "STRING": StringType(),
    "TIMESTAMP_LTZ": TimestampType(),
    "ARRAY<STRING>": ArrayType(StringType()),
    "ARRAY<INT>": ArrayType(IntegerType()),
    "ARRAY<STRUCT<key: STRING, value: BINARY>>": ArrayType(HEADER),
}


def projection(options: SourceOptions) -> Projection:
    """The columns that a load offers."""
    columns = [column.split(" ", 1) for column in schema.ddl(options).split(", `")]
    fields = [StructField(name.strip("`"), TYPES[kind]) for name, kind in columns]
    return schema.project(StructType(fields), options)


def read(path: Path, *names: str, **given: str) -> pa.Table:
    """The rows of a load with these columns, or with those that it offers."""
    columns = {"columns": ",".join(names)} if names else {}
    options = parse_options({"path": str(path), **columns, **given})
    wanted = projection(options)
    table = pa.Table.from_batches(
        [
            piece
            for task in make_plan(list_logs(options), options)
            for piece in read_task(task, wanted, options)
        ],
        wanted.schema,
    )
    table.validate(full=True)
    return table
