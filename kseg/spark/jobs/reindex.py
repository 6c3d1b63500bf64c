"""Indexes and producer snapshots of a fleet, made anew from the logs by Spark's workers.

Any free worker plans a partition. With `apply` one worker changes each data directory, since only
one process at a time can hold its lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Final

from kseg import ReindexPlan, apply_reindex, plan_reindex
from kseg.errors import NotALogError
from kseg.files import io
from kseg.files.names import (
    FileKind,
    PathKind,
    classify_path,
    list_data_directory,
)
from kseg.log import data_directory
from kseg.log.config import LogConfig
from kseg.log.recovery import KINDS, Action, Backup, Finding, look_at
from kseg.log.sub_directories import EntryKind, entry_of, refuse_cluster_metadata
from kseg.spark.jobs.job_directory import Item, open_job
from kseg.spark.jobs.running import run
from kseg.spark.listing import local_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kseg.spark.jobs.running import Progress

_DDL: Final = "partition STRING, action STRING, path STRING, bytes BIGINT, why STRING"


@dataclass(frozen=True, slots=True)
class ReindexOptions:
    """What to make anew, and how.

    Attributes:
        kinds: of files, out of `kseg.log.recovery.reindex.KINDS`.
        exact: leave alone only what has the very bytes that Kafka 4.2 would write.
        config: of the logs.
        now_ms: the time to go by; the clock's if None.
        keep: whether to keep what is replaced.
        backup_directory: where; beside each data directory if None.
    """

    kinds: Collection[FileKind] = KINDS
    exact: bool = False
    config: LogConfig = field(default_factory=LogConfig)
    now_ms: int | None = None
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
    """

    plans: tuple[ReindexPlan, ...]
    applied: bool
    backups: tuple[str, ...]
    tasks: int
    skipped: int

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
        paths: partition directories and data directories, as every worker sees them.
        apply: change what differs, each data directory under its lock.
        options: what to make anew.
        job: a directory to note in what was looked at, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: a path is in a store.
        NotALogError: a path is no directory of Kafka's, or is the log of KRaft, which is left alone
            in a data directory.
        LogLockedError: a broker, or another process, holds a data directory; others were done.
        OSError: something is missing or cannot be read or written, here or by a worker.
        KsegError: `job` is of another job.
    """
    chosen = options or ReindexOptions()
    places = local_paths(paths)
    partitions = list(dict.fromkeys(path for place in places for path in partitions_in(place)))
    directory = None if job is None else open_job(job, "reindex", chosen)
    items = [_item(path, marked=directory is not None) for path in partitions]
    ran = run(spark, items, partial(_plan, options=chosen), job=directory, progress=progress)
    found = {plan.path: plan for plans in ran.answers for plan in plans}
    plans = tuple(found[path] for path in partitions)
    backups: set[str] = set()
    tasks = ran.tasks
    if apply:
        done = run(spark, list(_by_home(plans)), partial(_apply, options=chosen), progress=progress)
        backups = {backup for each in done.answers for backup in each}
        tasks += done.tasks
    return ReindexResult(plans, apply, tuple(sorted(backups)), tasks, ran.skipped)


def partitions_in(path: str | PathLike[str]) -> Iterator[Path]:
    """A partition directory itself, or those of a data directory but for the log of KRaft.

    Raises:
        NotALogError: it is neither, or the log of KRaft.
        OSError: it is missing, or cannot be listed.
    """
    known = classify_path(path)
    if known.kind is PathKind.FILE:
        raise NotALogError("a file; this job wants a directory", path=path)
    if known.kind is PathKind.PARTITION:
        refuse_cluster_metadata(known.path)
        yield known.path
    else:
        for entry in list_data_directory(known.path).partitions:
            if entry_of(entry.path).kind is not EntryKind.CLUSTER_METADATA:
                yield entry.path


def _item(path: Path, *, marked: bool) -> Item:
    seen = look_at(path)
    cost = sum(file.size for file in seen if file.name.endswith(".log"))
    return Item(path, cost, repr((str(path), str(path.resolve()), seen)) if marked else "")


def _by_home(plans: Iterable[ReindexPlan]) -> Iterator[Item]:
    """What differs, by data directory."""
    homes: dict[Path, list[ReindexPlan]] = {}
    for plan in plans:
        if not plan.is_noop:
            homes.setdefault(plan.path.resolve().parent, []).append(plan)
    for home, differing in sorted(homes.items()):
        yield Item((home, tuple(differing)), sum(seg.size for p in differing for seg in p.segments))


def _plan(paths: Sequence[Path], *, options: ReindexOptions) -> tuple[ReindexPlan, ...]:
    return tuple(
        plan_reindex(
            path,
            config=options.config,
            kinds=options.kinds,
            exact=options.exact,
            now_ms=options.now_ms,
        )
        for path in paths
    )


def _apply(
    homes: Sequence[tuple[Path, tuple[ReindexPlan, ...]]], *, options: ReindexOptions
) -> tuple[str, ...]:
    """Do what the plans for some data directories say; answers where old files were kept."""
    kept = []
    now_ms = time_ns() // 1_000_000 if options.now_ms is None else options.now_ms
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


__all__ = ["ReindexOptions", "ReindexResult", "partitions_in", "reindex"]
