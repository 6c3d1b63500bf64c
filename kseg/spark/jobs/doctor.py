"""Do the brokers of a fleet start? `kseg doctor`, with Spark's workers to load the partitions.

The driver looks at what lies beside the partitions; any free worker loads one, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.analysis.doctor import RELEASES, Doctored, PartitionOutlook, PartitionUnit
from kseg.analysis.doctor import examine as examine_one
from kseg.analysis.doctor import plan as plan_of
from kseg.analysis.doctor import report as report_of
from kseg.log.settings import SettingSources, group_by_broker
from kseg.spark.jobs.job_directory import open_job
from kseg.spark.jobs.running import PACE_OF_HEADERS, partition_items, refusals_named, run
from kseg.spark.listing import local_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kseg.format.times import Time
    from kseg.spark.jobs.running import Progress

_DDL: Final = (
    "cluster_id STRING, node_id INT, directory STRING, code STRING, severity STRING, path STRING, "
    "message STRING, outcome STRING, exception STRING, mend STRING, records BIGINT, "
    "partitions ARRAY<STRING>"
)


@dataclass(frozen=True, slots=True)
class DoctorResult:
    """What was found.

    Attributes:
        reports: one for each broker, as `kseg.doctor` gives it for the same directories; one in
            all without `fleet`.
        tasks: how many Spark ran.
        skipped: partitions that an earlier run had loaded.
    """

    reports: tuple[Doctored, ...]
    tasks: int
    skipped: int

    @property
    def report(self) -> Doctored:
        """That of the one broker, or of the first."""
        return self.reports[0]

    @property
    def ok(self) -> bool:
        """Whether each broker starts with all directories, and loses nothing."""
        return all(one.ok for one in self.reports)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The findings, a row each; `directory` is null for one that is about the whole broker."""
        rows = [
            (one.cluster_id, one.node_id, place, *noticed.to_dict().values())
            for one in self.reports
            for place, noticed in one.noticed_by_directory()
        ]
        return spark.createDataFrame(rows, _DDL)


def doctor(
    spark: SparkSession,
    data_directories: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    fleet: bool = False,
    release: str = RELEASES[0],
    metadata_directory: str | PathLike[str] | None = None,
    broker_config: str | PathLike[str] | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
    now_ms: Time | None = None,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> DoctorResult:
    """Say whether brokers start on their data directories, what they do, and what they lose.

    Args:
        spark: the session.
        data_directories: all those of one broker, or of several, as every worker sees them.
        fleet: they are those of several brokers: one for each pair of ids of cluster and node. A
            directory whose ids are not known is by itself.
        release: as for `kseg.doctor`, like those that follow.
        metadata_directory: see there.
        broker_config: see there; of one broker.
        config: see there.
        topic_config: see there.
        now_ms: see there.
        job: a directory to note in what was loaded, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: a path is in a store, or as `kseg.doctor` has it.
        OSError: `broker_config` cannot be read.
        KsegError: `job` is of another job.
    """
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    with refusals_named():
        if fleet and broker_config is not None:
            raise ValueError("a server.properties is of one broker, and these are of a fleet")
        homes = [Path(each) for each in local_paths(data_directories)]
        brokers = group_by_broker(homes) if fleet else [homes]
        plans = [plan_of(one, release=release, sources=sources, now_ms=now_ms) for one in brokers]
    directory = None if job is None else open_job(job, "doctor", now_ms)
    units = {unit.path: unit for plan in plans for unit in plan.units}
    items = partition_items(units.values(), marked=directory is not None)
    ran = run(spark, items, _examine, job=directory, pace=PACE_OF_HEADERS, progress=progress)
    found = {one.path: one for answer in ran.answers for one in answer}
    reports = [report_of(plan, (found[unit.path] for unit in plan.units)) for plan in plans]
    return DoctorResult(tuple(reports), ran.tasks, ran.skipped)


def _examine(units: Sequence[PartitionUnit]) -> tuple[PartitionOutlook, ...]:
    return tuple(map(examine_one, units))


__all__ = ["DoctorResult", "doctor"]
