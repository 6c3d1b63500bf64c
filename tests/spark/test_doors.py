"""Spark gives the same answer as the other doors; see `tests/property/test_doors.py`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.property.test_doors import Row, python, some_directory, some_question
from tests.shares import WHOLE

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", range(100 if WHOLE else 3))
def test_spark_gives_the_same_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    made = some_directory(rng, tmp_path / "data")
    words = ("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp")
    for asked in [some_question(rng, made.rows) for _ in range(2)]:
        bounds = dict(zip(words, (*asked.offset, *asked.time), strict=True))
        given = {word: str(bound) for word, bound in bounds.items() if bound is not None}
        given |= {} if asked.topic is None else {"topic": asked.topic}
        given |= {"columns": "topic,partition,offset,timestampMs,key,value", "onCorrupt": "skip"}
        frame = spark.read.format("kseg").options(**given).load(str(made.path))
        rows: list[Row] = [tuple(row.values()) for row in frame.toArrow().to_pylist()]
        found = [row for row in rows if asked.key is None or row[4] == asked.key]
        assert sorted(found, key=str) == sorted(python(made, asked), key=str), (seed, asked)
