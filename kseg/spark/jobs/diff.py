"""Are the copies of a fleet the same? `kseg diff`, with Spark's workers to share the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from kseg.analysis.diff import DiffUnit, PartitionDiff, examine, plan
from kseg.analysis.diff import report as report_of
from kseg.log.recovery import look_at
from kseg.spark.jobs.job_directory import Item, open_job
from kseg.spark.jobs.running import PACE_OF_HEADERS, refusals_named, run
from kseg.spark.listing import local_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from kseg.analysis.diff import Compared, Diff
    from kseg.spark.jobs.running import Progress

_DDL: Final = (
    "topic STRING, partition INT, first STRING, path STRING, relation STRING, "
    "log_start_offset BIGINT, log_end_offset BIGINT, first_log_start_offset BIGINT, "
    "first_log_end_offset BIGINT, same_batches BIGINT, differs_at BIGINT, leader_epoch INT, "
    "first_leader_epoch INT, lacks_batches BIGINT, first_lacks_batches BIGINT, "
    "unknown_ranges BIGINT, error STRING"
)


@dataclass(frozen=True, slots=True)
class DiffResult:
    """What was found.

    Attributes:
        report: as `kseg.diff` gives it for the same copies.
        tasks: how many Spark ran.
        skipped: partitions that an earlier run had compared.
    """

    report: Diff
    tasks: int
    skipped: int

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each copy but the first one of each partition."""
        rows = [_row(each, one) for each in self.report.partitions for one in each.compared]
        return spark.createDataFrame(rows, _DDL)


def _row(partition: PartitionDiff, one: Compared) -> tuple[Any, ...]:
    first, copy, divergence = partition.first, one.copy, one.divergence
    epochs = [None, None] if divergence is None else _epochs(divergence.batches)
    return (
        partition.topic,
        partition.partition,
        first.path,
        copy.path,
        one.relation,
        copy.log_start_offset,
        copy.log_end_offset,
        first.log_start_offset,
        first.log_end_offset,
        one.same_batches,
        None if divergence is None else divergence.first_offset,
        epochs[1],
        epochs[0],
        one.lacks[0].batches,
        one.lacks[1].batches,
        len(copy.unknown),
        copy.error,
    )


def _epochs(batches: Sequence[Any]) -> list[int]:
    return [batch.header.leader_epoch for batch in batches]


def diff(
    spark: SparkSession,
    copies: Sequence[str | PathLike[str]],
    *,
    records: bool = False,
    chosen: Callable[[str | None, int | None], bool] | None = None,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> DiffResult:
    """Compare copies of a partition, or of whole data directories, with the first one.

    Args:
        spark: the session.
        copies: two or more directories, as every worker sees them.
        records: where batches differ, compare their records.
        chosen: leaves out partitions of data directories, by topic and number; asked here.
        job: a directory to note in what is finished, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: a path is in a store, or as `kseg.diff` has it.
        NotALogError: a path is nothing of Kafka's, or a file; or nothing is chosen.
        OSError: something is missing or cannot be read, here or by a worker.
        KsegError: `job` is of another job.
    """
    with refusals_named():
        units = plan(local_paths(copies), records=records, chosen=chosen)
    directory = None if job is None else open_job(job, "diff", records)
    items = [_item(unit, marked=directory is not None) for unit in units]
    ran = run(spark, items, _examine, job=directory, pace=PACE_OF_HEADERS, progress=progress)
    found = (one for answer in ran.answers for one in answer)
    return DiffResult(report_of(found), ran.tasks, ran.skipped)


def _item(unit: DiffUnit, *, marked: bool) -> Item:
    seen = tuple(_seen(unit)) if marked else ()
    return Item(unit, unit.cost, repr((unit, seen)) if marked else "")


def _seen(unit: DiffUnit) -> Iterator[object]:
    """Names, sizes and times of all files of the copies."""
    for copy in unit.copies:
        if copy.is_readable:
            yield os.path.realpath(copy.path), look_at(copy.path)


def _examine(units: Sequence[DiffUnit]) -> tuple[PartitionDiff, ...]:
    return tuple(examine(unit) for unit in units)


__all__ = ["DiffResult", "diff"]
