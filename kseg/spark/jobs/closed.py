"""Compaction and new indexes for a fleet of closed logs, by Spark's workers: planned, then done.

Any free worker plans a partition, as `kseg compact` and `kseg reindex` do. With `apply` one worker
changes each data directory, since only one process at a time can hold its lock. Damage stops one
partition alone. A run that goes on plans again the partitions that have changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from kseg import plan_reindex
from kseg.analysis.units import run_units
from kseg.catalog import Catalog
from kseg.change.cleanup import (
    CleanupOptions,
    ClosedPartition,
    CompactionOptions,
    closed_partition,
    plan_cleanup,
    run_cleanup,
)
from kseg.change.run import ChangeOptions, has_segments, home_of
from kseg.change.run import run as run_plans
from kseg.constants import Progress, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError
from kseg.files.names import (
    CLUSTER_METADATA,
    FileKind,
)
from kseg.files.selection import StrPaths
from kseg.format.times import Time
from kseg.frames import TableRows
from kseg.log.clock import now_of
from kseg.log.config import LogConfig
from kseg.log.data_directory import refuse_cluster_metadata
from kseg.log.recovery import (
    KINDS,
    Action,
    Finding,
    Report,
    kept_bytes,
    look_at,
)
from kseg.log.settings import SettingSources
from kseg.reports import PartitionSettings, ReindexPlan
from kseg.spark.jobs.analyses import SparkRunner
from kseg.spark.jobs.running import Framed, Item, refusals_named, run
from kseg.spark.plan import local_paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The numbers of a plan of compaction.
_NUMBERS: Final = (
    "bytes kept_bytes saved_bytes room_bytes records kept_records saved_records first_dirty_offset "
    "end_offset"
)


@frozen_dataclass(kw_only=True)
class _ClosedOptions:
    """The settings of closed partitions, which are found as by `kseg.settings`.

    Attributes:
        config: settings for every topic; the broker's override them.
        topic_config: topic -> settings, which override all others.
        broker_config: the broker's `server.properties`.
        metadata_directory: the data directory with `__cluster_metadata-0`, if it is another one.
        now_ms: the present time, as `kseg.times.time_ms` takes it; the clock's if None.
        backup_directory: the directory that keeps replaced files.
    """

    config: Mapping[str, str] | LogConfig = field(default_factory=dict)
    topic_config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_config: str | None = None
    metadata_directory: str | None = None
    now_ms: Time | None = None
    backup_directory: str | None = None


@frozen_dataclass(kw_only=True)
class CompactOptions(_ClosedOptions):
    """The options of compaction; without a backup directory nothing is kept.

    Attributes:
        how: as for `kseg.plan_compaction`. A task takes up to `map_bytes` of memory for keys.
        high_watermark: "end" where these are the only copies.
    """

    how: CompactionOptions = field(default_factory=CompactionOptions)
    high_watermark: Literal["end"] | None = None


@frozen_dataclass(kw_only=True)
class ReindexOptions(_ClosedOptions):
    """The files to rebuild; `config` may be a `LogConfig`, which is used unchanged.

    Attributes:
        kinds: the kinds of files to rebuild, some of `kseg.log.recovery.reindex.KINDS`.
        exact: replace every file whose bytes differ from those that Kafka would write.
        keep: whether to keep replaced files, beside each data directory if no other is named.
    """

    kinds: Collection[FileKind] = KINDS
    exact: bool = False
    keep: bool = True


@frozen_dataclass(kw_only=True, repr=False)
class _ClosedResult(Framed):
    """The outcome of a run.

    Attributes:
        applied: whether the plans were applied.
        backups: the directories that keep replaced files.
        kept_bytes: the bytes of these files.
        tasks: the number of tasks that Spark ran.
        skipped: the number of partitions that an earlier run had planned.
        settings_findings: the settings that could not be understood.
    """

    applied: bool
    backups: tuple[str, ...]
    kept_bytes: int
    tasks: int
    skipped: int
    settings_findings: tuple[KsegError, ...] = ()


@frozen_dataclass(kw_only=True, repr=False)
class CompactResult(_ClosedResult):
    """The effect of compaction, done or planned: a table with a row for each partition.

    Attributes:
        partitions: each with its plan, and its report if `applied`.
    """

    COLUMNS = f"path {_NUMBERS} skipped why finding freed_bytes"

    partitions: tuple[ClosedPartition, ...]

    @property
    def findings(self) -> tuple[KsegError, ...]:
        """The damage because of which partitions were not changed."""
        findings = (partition.finding for partition in self.partitions)
        return tuple(finding for finding in findings if finding is not None)

    @property
    def freed_bytes(self) -> int:
        """Bytes that the disks got back."""
        return sum(partition.freed_bytes for partition in self.partitions)

    def table_rows(self) -> TableRows:
        """The partitions; numbers are None where damage left no plan."""
        return [
            {
                "path": partition.path,
                **{name: getattr(partition.plan, name, None) for name in _NUMBERS.split()},
                "skipped": getattr(partition.plan, "skipped", None),
                "why": getattr(partition.plan, "why", None) or None,
                "finding": partition.finding,
                "freed_bytes": partition.freed_bytes,
            }
            for partition in self.partitions
        ]

    def column_kinds(self) -> Mapping[str, str | None]:
        """The types of columns that their names do not tell."""
        return dict.fromkeys(self.COLUMNS.split()) | dict.fromkeys(("skipped", "finding"), "string")


@frozen_dataclass(kw_only=True, repr=False)
class ReindexResult(_ClosedResult):
    """The files that differ, and whether they were changed: a table with a row for each action.

    Attributes:
        plans: the plan of each partition, sorted by directory.
    """

    COLUMNS = ReindexPlan.COLUMNS

    plans: tuple[ReindexPlan, ...]

    @property
    def actions(self) -> tuple[Action, ...]:
        """The changes, done or planned, in order."""
        return tuple(action for plan in self.plans for action in plan.actions)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The damage in logs because of which something was not changed."""
        return tuple(finding for plan in self.plans for finding in plan.findings)

    def table_rows(self) -> TableRows:
        """The actions."""
        return [asdict(action) for action in self.actions]


def compact(
    spark: SparkSession,
    paths: StrPaths,
    *,
    apply: bool = False,
    options: CompactOptions | None = None,
    job: StrPath | None = None,
    progress: Progress | None = None,
) -> CompactResult:
    """Plan the compaction of logs; with `apply`, compact them.

    Args:
        spark: the session.
        paths: partition directories and data directories, as every worker sees them. Where several
            of these hold a metadata log, those of a broker share its own, by the ids of
            `meta.properties`.
        apply: compact the logs, each data directory under its lock.
        options: the options of compaction.
        job: a directory for notes about planned partitions, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: a path is in a store, or a setting is invalid.
        NotALogError: a path is not a directory of Kafka's, or is the log of KRaft.
        LogLockedError: a broker, or another process, holds a data directory; others were done.
        UncleanShutdownError: a log was not closed in good order; other directories were done.
        OSError: something is missing or cannot be read or written, here or by a worker.
        KsegError: `job` is of another job.
    """
    chosen = options or CompactOptions()
    how = CleanupOptions(now_of(chosen.now_ms), chosen.high_watermark, chosen.how)
    all_settings, findings = _settings(_partitions(paths), chosen)
    settings = {
        path: of_partition for path, of_partition in all_settings.items() if has_segments(path)
    }
    runner = SparkRunner(lambda: spark, "compact", now_ms=chosen.now_ms, job=job)
    units = [_ClosedUnit.of(path, of_partition) for path, of_partition in settings.items()]
    answers = run_units(units, partial(_plan_unit, how=how), threads=runner, progress=progress)
    plans = {path: (plan, deletion, finding) for path, plan, deletion, finding in answers}
    planned = []
    for path, of_partition in settings.items():
        plan, deletion, finding = plans[path]
        partition = closed_partition(path, of_partition, how)
        planned.append(replace(partition, plan=plan, deletion=deletion, finding=finding))
    going = [partition for partition in planned if apply and not partition.is_noop]
    sizes = [(partition, partition.plan.bytes if partition.plan else 0) for partition in going]
    change_options = _change_options(chosen, how.now_ms, keep=chosen.backup_directory is not None)
    done, outcome = _change(spark, sizes, partial(run_cleanup, options=change_options), progress)
    return CompactResult(
        partitions=tuple(done.get(partition.path, partition) for partition in planned),
        applied=apply,
        tasks=runner.tasks + outcome.pop("tasks"),
        skipped=runner.skipped,
        settings_findings=findings,
        **outcome,
    )


def reindex(
    spark: SparkSession,
    paths: StrPaths,
    *,
    apply: bool = False,
    options: ReindexOptions | None = None,
    job: StrPath | None = None,
    progress: Progress | None = None,
) -> ReindexResult:
    """Plan new indexes and snapshots where they do not fit their logs; with `apply`, write them.

    Args:
        spark: the session.
        paths: partition directories and data directories, as every worker sees them; settings are
            looked for as by `compact`.
        apply: write the files that differ, each data directory under its lock.
        options: the files to rebuild.
        job: a directory for notes about planned partitions, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: a path is in a store, or a setting is invalid.
        NotALogError: a path is not a directory of Kafka's, or is the log of KRaft, which is left
            alone in a data directory.
        LogLockedError: a broker, or another process, holds a data directory; others were done.
        OSError: something is missing or cannot be read or written, here or by a worker.
        KsegError: `job` is of another job.
    """
    chosen = options or ReindexOptions()
    partitions = _partitions(paths)
    configs, findings = _configs(partitions, chosen)
    runner = SparkRunner(lambda: spark, "reindex", now_ms=chosen.now_ms, job=job)
    units = [_ClosedUnit.of(path, configs[path]) for path in partitions]
    work = partial(_plan, kinds=chosen.kinds, exact=chosen.exact, now=chosen.now_ms)
    answers = run_units(units, work, threads=runner, progress=progress)
    plans_by_path = {plan.path: plan for plan in answers}
    plans = tuple(plans_by_path[path] for path in partitions)
    going = [plan for plan in plans if apply and not plan.is_noop]
    sizes = [(plan, sum(segment.size for segment in plan.segments)) for plan in going]
    change_options = _change_options(chosen, now_of(chosen.now_ms), keep=chosen.keep)
    _done, outcome = _change(spark, sizes, partial(_reindex, options=change_options), progress)
    return ReindexResult(
        plans=plans,
        applied=apply,
        tasks=runner.tasks + outcome.pop("tasks"),
        skipped=runner.skipped,
        settings_findings=findings,
        **outcome,
    )


# ---- the partitions and their settings -----------------------------------------------------------


def _partitions(paths: StrPaths) -> list[Path]:
    """Partition directories, and those of data directories without the log of KRaft, once each."""
    catalog = Catalog.of(local_paths(paths), replicas="all", files="refuse")
    for partition in catalog:
        if partition.path in catalog.named:
            refuse_cluster_metadata(partition.path)
    return [partition.path for partition in catalog if partition.topic != CLUSTER_METADATA]


def _settings(
    partitions: Sequence[Path], options: _ClosedOptions
) -> tuple[dict[Path, PartitionSettings], tuple[KsegError, ...]]:
    """Partition -> its settings; and the findings in their sources."""
    assert not isinstance(options.config, LogConfig)
    sources = SettingSources(
        options.metadata_directory, options.broker_config, options.config, options.topic_config
    )
    with refusals_named():
        sources.check()
        by_home = sources.by_home(path.resolve().parent for path in partitions)
    of_partitions = {path: by_home[path.resolve().parent].of(path) for path in partitions}
    return of_partitions, tuple(
        finding for of_home in dict.fromkeys(by_home.values()) for finding in of_home.findings
    )


def _configs(
    partitions: Sequence[Path], options: ReindexOptions
) -> tuple[dict[Path, LogConfig], tuple[KsegError, ...]]:
    """Partition -> the configuration of its log; and the findings in the settings."""
    if isinstance(options.config, LogConfig):
        return dict.fromkeys(partitions, options.config), ()
    of_partitions, findings = _settings(partitions, options)
    more = tuple(
        finding for of_partition in of_partitions.values() for finding in of_partition.findings
    )
    return {path: of_partition.config for path, of_partition in of_partitions.items()}, (
        *findings,
        *more,
    )


@frozen_dataclass
class _ClosedUnit:
    """A partition to plan.

    Attributes:
        path: the directory of the partition.
        subject: its settings for a compaction, or its configuration for a reindex.
        cost: the bytes of log.
    """

    path: str
    subject: Any
    cost: int

    @classmethod
    def of(cls, path: Path, subject: object) -> _ClosedUnit:
        sizes = (file.size for file in look_at(path) if file.name.endswith(".log"))
        return cls(str(path), subject, sum(sizes))


# ---- in a worker ---------------------------------------------------------------------------------


def _plan_unit(unit: _ClosedUnit, *, how: CleanupOptions) -> tuple[Any, ...]:
    """Plan a partition; returns its path, the plans of compaction and deletion, and the damage."""
    planned = plan_cleanup(Path(unit.path), unit.subject, how)
    return planned.path, planned.plan, planned.deletion, planned.finding


def _plan(unit: _ClosedUnit, **how: Any) -> ReindexPlan:
    """Plan the reindex of a partition."""
    return plan_reindex(Path(unit.path), config=unit.subject, **how)


def _reindex(plans: Sequence[ReindexPlan], *, options: ChangeOptions) -> list[Report]:
    return run_plans(plans, options, ReindexPlan.again)


# ---- changes -------------------------------------------------------------------------------------


def _change_options(options: _ClosedOptions, now_ms: int, *, keep: bool) -> ChangeOptions:
    return ChangeOptions(now_ms, apply=True, backup_directory=options.backup_directory, keep=keep)


def _change(
    spark: SparkSession,
    sizes: Iterable[tuple[Any, int]],
    act: Callable[[Sequence[Any]], list[Report]],
    progress: Progress | None,
) -> tuple[dict[Path, Any], dict[str, Any]]:
    """Change partitions, those of a data directory in one task.

    Args:
        spark: the session.
        sizes: each plan, with the size of its partition.
        act: applies the plans of one data directory.
        progress: called now and then with tasks done and tasks in all.

    Returns:
        The plans that were carried out, by path; and the `tasks`, `backups` and `kept_bytes` of the
        result.
    """
    plans_by_directory: dict[Path, list[tuple[Any, int]]] = {}
    for plan, size in sizes:
        plans_by_directory.setdefault(home_of(plan.path), []).append((plan, size))
    items = [
        Item(tuple(plan for plan, _size in plans), sum(size for _plan, size in plans))
        for _home, plans in sorted(plans_by_directory.items())
    ]
    ran = run(spark, items, partial(_apply, act=act), progress=progress)
    reports = [done for answer, _size in ran.answers for done in answer]
    return {done.plan.path: done.plan for done in reports}, {
        "tasks": ran.tasks,
        "backups": tuple(sorted({str(change.backup) for done in reports for change in done.kept})),
        "kept_bytes": sum(size for _answer, size in ran.answers),
    }


def _apply(
    plans_by_directory: Sequence[Sequence[Any]], *, act: Callable[[Sequence[Any]], list[Report]]
) -> tuple[list[Report], int]:
    """Change some data directories, in a worker; an error in one does not stop the others.

    Args:
        plans_by_directory: the plans for each data directory.
        act: carries out the plans for one data directory.

    Returns:
        The reports, and the bytes of the backups.
    """
    reports: list[Report] = []
    failed: list[KsegError | OSError] = []
    for plans in plans_by_directory:
        try:
            reports += act(plans)
        except (KsegError, OSError) as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return reports, kept_bytes(change for done in reports for change in done.kept)
