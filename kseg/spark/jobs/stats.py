"""What fills the disks of a fleet: `kseg stats`, with Spark's workers to share the work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, cast

from kseg.analysis.stats import (
    StatsOptions,
    StatsReport,
    countable,
    examine,
    merge_all,
)
from kseg.analysis.stats import report as report_of
from kseg.analysis.units import plan
from kseg.spark.jobs import running
from kseg.spark.listing import local_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kseg.spark.jobs.running import Progress

_DDL: Final = (
    "path STRING, dir STRING, topic STRING, partition INT, log_start_offset BIGINT, "
    "log_end_offset BIGINT, segments BIGINT, bytes BIGINT, batches BIGINT, records BIGINT, "
    "min_timestamp BIGINT, max_timestamp BIGINT, codecs ARRAY<STRING>, magics ARRAY<INT>, "
    "faults BIGINT, record_bytes STRUCT<count: BIGINT, total: BIGINT, min: BIGINT, max: BIGINT, "
    "mean: DOUBLE, p50: BIGINT, p90: BIGINT, p99: BIGINT, quantile_error: DOUBLE>, "
    "null_keys BIGINT, null_values BIGINT, "
    "distinct_keys BIGINT, top_keys ARRAY<STRUCT<key: BINARY, records: BIGINT, bytes: BIGINT, "
    "bytes_error: BIGINT>>"
)


@dataclass(frozen=True, slots=True)
class StatsResult:
    """What was counted.

    Attributes:
        report: as `kseg.analysis.stats` gives it for the same paths.
        tasks: how many Spark ran.
        skipped: files and directories that an earlier run had counted.
    """

    report: StatsReport
    tasks: int
    skipped: int

    def frame(self, spark: SparkSession) -> DataFrame:
        """The partitions, a row each, under the names of `kseg stats --json`."""
        from pyspark.sql.types import StructType

        schema = cast("StructType", StructType.fromDDL(_DDL))
        documents = [one.document() for one in self.report.partitions]
        rows: list[Any] = [[one.get(name) for name in schema.names] for one in documents]
        return spark.createDataFrame(rows, schema)


def stats(
    spark: SparkSession,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    options: StatsOptions | None = None,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> StatsResult:
    """Count what lies in files, partition directories and data directories.

    Args:
        spark: the session.
        paths: one path or several, as every worker sees them.
        options: how closely to look.
        job: a directory to note in what is finished, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: a path is in a store.
        NotALogError: a path is nothing of Kafka's.
        OSError: something is missing or cannot be read, here or by a worker.
        KsegError: `job` is of another job.
    """
    chosen = options or StatsOptions()
    found, ran = running.examine(
        spark,
        countable(plan(local_paths(paths))),
        examine,
        merge_all,
        chosen,
        name="stats",
        job=job,
        pace=1 if chosen.records else running.PACE_OF_HEADERS,
        progress=progress,
    )
    return StatsResult(report_of(found, chosen), ran.tasks, ran.skipped)


__all__ = ["StatsResult", "stats"]
