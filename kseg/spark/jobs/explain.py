"""Why are the disks of a fleet full? `kseg explain`, with Spark's workers to share the work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Final

from kseg.analysis.explain import Explained, KeepUnit, PartitionKeeps
from kseg.analysis.explain import examine as examine_one
from kseg.analysis.explain import plan as plan_of
from kseg.analysis.explain import report as report_of
from kseg.log.settings import SettingSources
from kseg.spark.jobs.job_directory import open_job
from kseg.spark.jobs.running import PACE_OF_HEADERS, Ran, partition_items, refusals_named, run
from kseg.spark.listing import local_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kseg.format.times import Time
    from kseg.spark.jobs.running import Progress

_DDL: Final = (
    "topic STRING, partition INT, path STRING, cause STRING, bytes BIGINT, size BIGINT, "
    "base_offset BIGINT, index_bytes BIGINT, until_ms BIGINT, why STRING"
)


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """What was found.

    Attributes:
        report: as `kseg.explain` gives it for the same directories.
        tasks: how many Spark ran.
        skipped: partitions that an earlier run had looked at.
    """

    report: Explained
    tasks: int
    skipped: int

    def frame(self, spark: SparkSession) -> DataFrame:
        """What each cause keeps of each file, a row each."""
        rows = [
            (
                *((whose.topic, whose.partition) if whose else (None, None)),
                *(row.path, row.cause, row.bytes, row.size, row.base_offset, row.index_bytes),
                *(row.until_ms, row.why),
            )
            for whose, row in self.report.rows_by_partition()
        ]
        return spark.createDataFrame(rows, _DDL)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a task found, by which clock."""

    now_ms: int
    partitions: tuple[PartitionKeeps, ...]


def explain(
    spark: SparkSession,
    data_directories: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    metadata_directory: str | PathLike[str] | None = None,
    broker_config: str | PathLike[str] | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
    what_if: Mapping[str, str] | None = None,
    topic_what_if: Mapping[str, Mapping[str, str]] | None = None,
    free_bytes: int | None = None,
    now_ms: Time | None = None,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> ExplainResult:
    """Say what keeps each byte on the disks, until when, and how room could become free.

    Free room, backups and deleted files that are open are those that the driver sees.

    Args:
        spark: the session.
        data_directories: of one broker or of several, or partitions of them, as every worker sees
            them. Where several hold a metadata log, those of a broker share its own.
        metadata_directory: as for `kseg.explain`, like those that follow.
        broker_config: see there.
        config: see there.
        topic_config: see there.
        what_if: see there.
        topic_what_if: see there.
        free_bytes: see there.
        now_ms: see there.
        job: a directory to note in what was looked at, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: a path is in a store, or as `kseg.explain` has it.
        OSError: a directory is not there, or `broker_config` cannot be read.
        KsegError: `job` is of another job.
    """
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    with refusals_named():
        asked = plan_of(
            local_paths(data_directories),
            sources=sources,
            what_if=what_if or {},
            topic_what_if=topic_what_if or {},
            free_bytes=free_bytes,
            now_ms=now_ms,
        )
    directory = None if job is None else open_job(job, "explain", now_ms)
    done: list[Ran] = []

    def look(units: Sequence[KeepUnit]) -> Iterator[PartitionKeeps]:
        items = partition_items(units, marked=directory is not None)
        holds = partial(_holds, now_ms=asked.now_ms)
        ran = run(
            spark,
            items,
            _examine,
            job=directory,
            usable=holds,
            pace=PACE_OF_HEADERS,
            progress=progress,
        )
        done.append(ran)
        return (one for answer in ran.answers for one in answer.partitions)

    report = report_of(asked, look)
    return ExplainResult(report, sum(one.tasks for one in done), done[0].skipped)


def _holds(answer: _Answer, *, now_ms: int) -> bool:
    """Whether an earlier answer still holds: none of its dates lies between then and now."""
    begin, end = sorted((answer.now_ms, now_ms))
    dates = (row.until_ms for one in answer.partitions for row in one.rows)
    return not any(date is not None and begin < date <= end for date in dates)


def _examine(units: Sequence[KeepUnit]) -> _Answer:
    return _Answer(units[0].now_ms, tuple(map(examine_one, units)))


__all__ = ["ExplainResult", "explain"]
