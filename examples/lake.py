"""Kafka's log directories become a lake of Parquet files, and a report for each day.

    python examples/lake.py /var/lib/kafka/data --lake /srv/lake
    python examples/lake.py /var/lib/kafka/data --lake /srv/lake --day 2025-10-09

    LAKE/day=2025-10-09/topic=orders/partition=0/*.parquet
    LAKE/_reports/2025-10-09.json

A day is a directory that appears at once and is replaced at once, so this may run again at any
time: every night for the day before, say. What was written in aborted transactions is left out.
Damaged logs stop it before anything is written; with --skip-damage the rest is taken, and the
report counts what was left out. `spark-submit` runs it on a cluster; the directories must then be
seen by every worker.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kseg.errors import KsegError
from kseg.spark import jobs, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kseg.spark.jobs.export import ExportResult

TOP_KEYS = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """What to take, and where to put it."""

    logs: tuple[str, ...]
    lake: Path
    topics: str | None = None
    skip_damage: bool = False

    def options(self) -> dict[str, str]:
        """Which records, in the words of `format("kseg")`."""
        options = {
            "isolation": "read_committed",
            "onCorrupt": "skip" if self.skip_damage else "fail",
        }
        return options if self.topics is None else {**options, "subscribePattern": self.topics}

    def options_of(self, day: date) -> dict[str, str]:
        """The same, of one day in UTC."""
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return {
            **self.options(),
            "startingTimestamp": begin.isoformat(),
            "endingTimestamp": (begin + timedelta(days=1)).isoformat(),
        }


def connect() -> SparkSession:
    """The session of `spark-submit`, or one on this machine."""
    from pyspark.sql import SparkSession

    # Workers must run the Python that has kseg, which plain `python3` need not be.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("lake").getOrCreate()
    register(spark)
    return spark


def check(spark: SparkSession, settings: Settings) -> None:
    """Stop at damaged logs, while nothing has been written."""
    report = jobs.verify(spark, settings.logs).report
    click.echo(f"{report.files} files, {report.records} records, ok: {report.ok}")
    for finding in report.findings:
        click.echo(f"{finding.path} @ {finding.position}: {finding.message}", err=True)
    if not report.ok and not settings.skip_damage:
        raise click.ClickException("damaged logs; --skip-damage takes the rest")


def days_of(spark: SparkSession, settings: Settings) -> list[date]:
    """Every day of which the logs hold records."""
    # The schema is the projection: nothing but times is decoded.
    records = spark.read.format("kseg").options(**settings.options()).schema("timestamp TIMESTAMP")
    days = records.load(list(settings.logs)).selectExpr("CAST(timestamp AS DATE) AS day")
    return [row.day for row in days.where("day IS NOT NULL").distinct().orderBy("day").collect()]


def write_day(spark: SparkSession, settings: Settings, day: date) -> ExportResult:
    """Let one day of the logs be one directory of the lake."""
    settings.lake.mkdir(parents=True, exist_ok=True)
    return jobs.export(
        spark,
        settings.logs,
        settings.lake / f"day={day}",
        options=settings.options_of(day),
        overwrite=True,
    )


def report_day(spark: SparkSession, settings: Settings, day: date, written: ExportResult) -> Path:
    """Say what a day holds, from the lake itself."""
    topics: list[dict[str, Any]] = []
    if written.records:
        records = spark.read.parquet(str(settings.lake / f"day={day}"))
        lines = by_topic(records).selectExpr("to_json(struct(*)) AS line").collect()
        topics = [json.loads(row.line) for row in lines]
    document = {
        "day": str(day),
        "records": written.records,
        "left_out": written.fault_count,
        "topics": topics,
    }
    path = settings.lake / "_reports" / f"{day}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def by_topic(records: DataFrame) -> DataFrame:
    """A row for each topic: how much, from when to when, and which keys take the most room."""
    from pyspark.sql import functions as fn

    by_key = (
        records.withColumn("key", fn.expr("CAST(key AS STRING)"))
        .withColumn("bytes", fn.expr("coalesce(length(key), 0) + coalesce(length(value), 0)"))
        .groupBy("topic", "key")
        .agg(
            fn.count("*").alias("records"),
            fn.sum("bytes").alias("bytes"),
            fn.min("timestamp").alias("first"),
            fn.max("timestamp").alias("last"),
        )
    )
    largest = f"slice(sort_array(collect_list(struct(bytes, key)), false), 1, {TOP_KEYS})"
    return (
        by_key.groupBy("topic")
        .agg(
            fn.sum("records").alias("records"),
            fn.sum("bytes").alias("bytes"),
            fn.min("first").alias("first"),
            fn.max("last").alias("last"),
            fn.count("key").alias("keys"),
            fn.expr(largest).alias("largest_keys"),
        )
        .orderBy("topic")
    )


@click.command(help=__doc__.splitlines()[0] if __doc__ else None)
@click.argument("logs", nargs=-1, required=True)
@click.option("--lake", type=click.Path(path_type=Path), required=True, help="Where Parquet goes.")
@click.option("--day", type=click.DateTime(["%Y-%m-%d"]), help="One day in UTC; else every day.")
@click.option("--topics", metavar="REGEX", help="Only topics whose names match.")
@click.option("--skip-damage", is_flag=True, help="Take what is left of damaged logs.")
def main(
    logs: tuple[str, ...], lake: Path, day: datetime | None, topics: str | None, skip_damage: bool
) -> None:
    """See the module."""
    settings = Settings(logs, lake, topics, skip_damage)
    try:
        spark = connect()
        check(spark, settings)
        for each in days_of(spark, settings) if day is None else [day.date()]:
            written = write_day(spark, settings, each)
            path = report_day(spark, settings, each, written)
            click.echo(f"{each}: {written.records} records in {len(written.files)} files; {path}")
    except (KsegError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
