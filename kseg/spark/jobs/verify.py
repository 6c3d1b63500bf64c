"""Is every byte of a fleet right? `kseg verify`, with Spark's workers to share the work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Final

from kseg.analysis.units import plan
from kseg.analysis.values import Report
from kseg.analysis.verify import VerifyOptions, examine, merge_all
from kseg.analysis.verify import report as report_of
from kseg.spark.jobs import running
from kseg.spark.listing import local_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kseg.spark.jobs.running import Progress

_DDL: Final = (
    "code STRING, severity STRING, path STRING, position BIGINT, offset BIGINT, "
    "message STRING, advice STRING"
)


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What was found.

    Attributes:
        report: as `kseg.analysis.verify` gives it for the same paths.
        tasks: how many Spark ran.
        skipped: files and directories that an earlier run had examined.
    """

    report: Report
    tasks: int
    skipped: int

    def frame(self, spark: SparkSession) -> DataFrame:
        """The findings, a row each."""
        rows = [tuple(one.to_dict().values()) for one in self.report.findings]
        return spark.createDataFrame(rows, _DDL)


def verify(
    spark: SparkSession,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    options: VerifyOptions | None = None,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> VerifyResult:
    """Examine files, partition directories and data directories.

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
    chosen = options or VerifyOptions()
    found, ran = running.examine(
        spark,
        plan(local_paths(paths)),
        examine,
        merge_all,
        chosen,
        name="verify",
        job=job,
        pace=running.PACE_OF_PARSING if chosen.deep else running.PACE_OF_HEADERS,
        progress=progress,
    )
    return VerifyResult(report_of(found), ran.tasks, ran.skipped)


__all__ = ["VerifyResult", "verify"]
