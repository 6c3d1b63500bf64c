"""Indexes and producer snapshots of a fleet, made anew from the logs by Spark's workers.

Any free worker plans a partition. With `apply` one worker changes each data directory, since only
one process at a time can hold its lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg import ReindexPlan, apply_reindex, plan_reindex
from kseg.errors import KsegError
from kseg.files import io
from kseg.files.names import FileKind
from kseg.log import data_directory
from kseg.log.clock import now_of
from kseg.log.config import LogConfig
from kseg.log.recovery import KINDS, Action, Backup, Finding, look_at
from kseg.log.settings import SettingSources
from kseg.spark.jobs.job_directory import Item, open_job
from kseg.spark.jobs.partitions import partitions_in, settings_of
from kseg.spark.jobs.running import mark_of, run
from kseg.spark.listing import local_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kseg.format.times import Time
    from kseg.spark.jobs.running import Progress

_DDL: Final = "partition STRING, action STRING, path STRING, bytes BIGINT, why STRING"


@dataclass(frozen=True, slots=True)
class ReindexOptions:
    """What to make anew, and how.

    Attributes:
        kinds: of files, out of `kseg.log.recovery.reindex.KINDS`.
        exact: leave alone only what has the very bytes that Kafka 4.2 would write.
        config: settings for every topic, weaker than what the broker has; or a `LogConfig`, which
            counts as it is.
        topic_config: settings by topic, stronger than that.
        broker_config: the broker's `server.properties`.
        metadata_directory: the data directory with `__cluster_metadata-0`, if it is another one.
        now_ms: the time to go by, as `kseg.time_ms` takes it; the clock's if None.
        keep: whether to keep what is replaced.
        backup_directory: where; beside each data directory if None.
    """

    kinds: Collection[FileKind] = KINDS
    exact: bool = False
    config: LogConfig | Mapping[str, str] = field(default_factory=dict)
    topic_config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_config: str | None = None
    metadata_directory: str | None = None
    now_ms: Time | None = None
    keep: bool = True
    backup_directory: str | None = None


@dataclass(frozen=True, slots=True)
class ReindexResult:
    """What differs, and whether it was changed.

    Attributes:
        plans: of each partition, by directory.
        applied: whether what differs was made anew.
        backups: where replaced files were kept.
        tasks: how many Spark ran.
        skipped: partitions that an earlier run had looked at.
        settings_findings: what could not be understood of the settings.
    """

    plans: tuple[ReindexPlan, ...]
    applied: bool
    backups: tuple[str, ...]
    tasks: int
    skipped: int
    settings_findings: tuple[KsegError, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """What was done, or would be, in order."""
        return tuple(action for plan in self.plans for action in plan.actions)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Damage in logs, for which something was left as it is."""
        return tuple(finding for plan in self.plans for finding in plan.findings)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The actions, a row each."""
        rows = [
            (str(plan.path), action.action, str(action.path), action.bytes, action.why)
            for plan in self.plans
            for action in plan.actions
        ]
        return spark.createDataFrame(rows, _DDL)


def reindex(
    spark: SparkSession,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    apply: bool = False,
    options: ReindexOptions | None = None,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> ReindexResult:
    """Say which indexes and snapshots are not what their logs say; with `apply`, make them anew.

    Args:
        spark: the session.
        paths: partition directories and data directories, as every worker sees them; settings are
            looked for as by `compact`.
        apply: change what differs, each data directory under its lock.
        options: what to make anew.
        job: a directory to note in what was looked at, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: a path is in a store, or a setting is none.
        NotALogError: a path is no directory of Kafka's, or is the log of KRaft, which is left alone
            in a data directory.
        LogLockedError: a broker, or another process, holds a data directory; others were done.
        OSError: something is missing or cannot be read or written, here or by a worker.
        KsegError: `job` is of another job.
    """
    chosen = options or ReindexOptions()
    places = local_paths(paths)
    partitions = list(dict.fromkeys(path for place in places for path in partitions_in(place)))
    configs, findings = _configs(partitions, chosen)
    directory = None if job is None else open_job(job, "reindex", chosen)
    items = [_item(path, configs[path], marked=directory is not None) for path in partitions]
    ran = run(spark, items, partial(_plan, options=chosen), job=directory, progress=progress)
    found = {plan.path: plan for plans in ran.answers for plan in plans}
    plans = tuple(found[path] for path in partitions)
    backups: set[str] = set()
    tasks = ran.tasks
    if apply:
        done = run(spark, list(_by_home(plans)), partial(_apply, options=chosen), progress=progress)
        backups = {backup for each in done.answers for backup in each}
        tasks += done.tasks
    kept = tuple(sorted(backups))
    return ReindexResult(plans, apply, kept, tasks, ran.skipped, findings)


def _configs(
    partitions: Sequence[Path], options: ReindexOptions
) -> tuple[dict[Path, LogConfig], tuple[KsegError, ...]]:
    """What each log is opened with, and what could not be understood of the settings."""
    if isinstance(options.config, LogConfig):
        return dict.fromkeys(partitions, options.config), ()
    sources = SettingSources(
        options.metadata_directory, options.broker_config, options.config, options.topic_config
    )
    known = settings_of(partitions, sources)
    found = {path: known[path.resolve().parent].of(path) for path in partitions}
    findings = [one for each in dict.fromkeys(known.values()) for one in each.findings]
    findings += [one for each in found.values() for one in each.findings]
    return {path: each.config for path, each in found.items()}, tuple(findings)


def _item(path: Path, config: LogConfig, *, marked: bool) -> Item:
    seen = look_at(path)
    cost = sum(file.size for file in seen if file.name.endswith(".log"))
    mark = mark_of((str(path), str(path.resolve()), config, seen)) if marked else ""
    return Item((path, config), cost, mark)


def _by_home(plans: Iterable[ReindexPlan]) -> Iterator[Item]:
    """What differs, by data directory."""
    homes: dict[Path, list[ReindexPlan]] = {}
    for plan in plans:
        if not plan.is_noop:
            homes.setdefault(plan.path.resolve().parent, []).append(plan)
    for home, differing in sorted(homes.items()):
        yield Item((home, tuple(differing)), sum(seg.size for p in differing for seg in p.segments))


def _plan(
    logs: Sequence[tuple[Path, LogConfig]], *, options: ReindexOptions
) -> tuple[ReindexPlan, ...]:
    return tuple(
        plan_reindex(
            path,
            config=config,
            kinds=options.kinds,
            exact=options.exact,
            now_ms=options.now_ms,
        )
        for path, config in logs
    )


def _apply(
    homes: Sequence[tuple[Path, tuple[ReindexPlan, ...]]], *, options: ReindexOptions
) -> tuple[str, ...]:
    """Do what the plans for some data directories say; answers where old files were kept."""
    kept = []
    now_ms = now_of(options.now_ms)
    for home, plans in homes:
        for plan in plans:
            io.check_new_files(plan.path)
        backup = Backup(home, options.backup_directory, now_ms=now_ms) if options.keep else None
        held = data_directory.enter(home)  # no other process comes in between two partitions
        try:
            for plan in plans:
                apply_reindex(plan, keep=False, backup=backup)
        finally:
            held.leave()
        if backup is not None and backup.kept:
            kept.append(str(backup.directory))
    return tuple(kept)


__all__ = ["ReindexOptions", "ReindexResult", "reindex"]
