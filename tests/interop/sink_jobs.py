"""What a user's jobs write through Spark's sink, and what should then be in the logs.

    python -m tests.interop.sink_jobs HOME

Three data directories in HOME: `assigned`, to which several jobs append, each with another codec;
`preserved`, whose records keep their offsets; and `streamed`, into which a stream carries the first
in several micro-batches. A process of its own: the Spark of other tests is none of its business.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kseg.cli.demo import quiet_spark
from tests.spark.streaming import JAVA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ("none", "gzip", "snappy")
PARTITIONS = 3
#: Of each job, over all partitions.
RECORDS = 900
FIRST_KEPT = 5_000_000_000
EPOCH_KEPT = 4
BEGIN_MS = 1_760_000_000_000
SMALL = {"segmentBytes": "30k", "batchBytes": "4k", "batchRecords": "40"}
_DDL = (
    "topic STRING, partition INT, offset BIGINT, timestampMs BIGINT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)

Headers = tuple[tuple[str, bytes | None], ...]


class Written(NamedTuple):
    """One record, as a row of the DataFrame."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def written(number: int, *, offset: int = 0, topic: str = "orders") -> Written:
    """The record of a number: nulls, empty ones, times that go back, headers of the same name."""
    headers: Headers = (("h", b"%d" % number), ("h", None), ("ü", b"")) if number % 3 == 0 else ()
    return Written(
        topic,
        number % PARTITIONS,
        offset,
        BEGIN_MS + number * 7 % 1_000,
        None if number % 4 == 0 else b"key-%d" % (number % 17),
        None if number % 29 == 0 else b"%d" % number * (number % 50),
        headers,
    )


def jobs_assigned() -> list[list[Written]]:
    """Rows of the jobs that append to `assigned`, one for each codec."""
    return [
        [written(number) for number in range(job * RECORDS, (job + 1) * RECORDS)]
        for job in range(len(CODECS))
    ]


def jobs_kept() -> list[list[Written]]:
    """Rows of two jobs whose offsets leave gaps: within batches, between them, at the start."""
    numbers = [number + number // 100 * 50 + number // 7 for number in range(2 * RECORDS)]
    rows = [
        written(number, offset=FIRST_KEPT + place, topic="kept-1.x")
        for number, place in enumerate(numbers)
    ]
    return [rows[:RECORDS], rows[RECORDS:]]


def expected(name: str) -> dict[str, list[Written]]:
    """What each log of a data directory should hold, in order, with its offsets."""
    jobs = jobs_kept() if name == "preserved" else jobs_assigned()
    logs: dict[str, list[Written]] = {}
    for row in (row for rows in jobs for row in rows):
        log = logs.setdefault(f"{row.topic}-{row.partition}", [])
        log.append(row if name == "preserved" else row._replace(offset=len(log)))
    return logs


def main(home: Path) -> None:
    """Run all jobs in one Spark."""
    with quiet_spark(2, java_options=JAVA) as spark:
        write(spark, home)


def write(spark: SparkSession, home: Path) -> None:
    """Write the three data directories."""
    for codec, rows in zip(CODECS, jobs_assigned(), strict=True):
        _save(_frame(spark, rows).drop("offset"), home / "assigned", codec=codec)
    for codec, rows in zip(("lz4", "zstd"), jobs_kept(), strict=True):
        options = {"offsets": "preserve", "codec": codec, "leaderEpoch": str(EPOCH_KEPT)}
        _save(_frame(spark, rows), home / "preserved", **options)
    query = (
        spark.readStream.format("kseg")
        .options(includeHeaders="true", maxOffsetsPerTrigger="1000")
        .load(str(home / "assigned"))
        .writeStream.format("kseg")
        .options(path=str(home / "streamed"), codec="zstd", **SMALL)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _frame(spark: SparkSession, rows: list[Written]) -> DataFrame:
    return spark.createDataFrame(rows, _DDL)


def _save(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("kseg").mode("append").options(**SMALL, **options).save(str(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
