"""Compaction of a fleet by Spark's workers: planned partition by partition, then done.

Any free worker plans a partition, as `kseg compact` does. With `apply` one worker changes each data
directory, since only one process at a time can hold its lock. Damage stops one partition alone. A
run that was ended plans what has changed since anew: what is compacted has nothing dirty then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from kseg.errors import KsegError
from kseg.files import io
from kseg.files.names import FileKind
from kseg.log import data_directory, disk_room
from kseg.log.clock import now_of
from kseg.log.compact_closed import (
    ClosedPartition,
    Compacting,
    CompactionOptions,
    has_segments,
)
from kseg.log.recovery import Backup, kept_bytes, look_at
from kseg.log.settings import SettingSources
from kseg.spark.jobs.job_directory import Item, open_job
from kseg.spark.jobs.partitions import partitions_in, settings_of
from kseg.spark.jobs.running import mark_of, run, state_of
from kseg.spark.listing import local_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kseg.format.times import Time
    from kseg.spark.jobs.running import Progress

_NAMES: Final = (
    "bytes",
    "kept_bytes",
    "saved_bytes",
    "room_bytes",
    "records",
    "kept_records",
    "saved_records",
    "first_dirty_offset",
    "end_offset",
)
_DDL: Final = (
    "path STRING, "
    + ", ".join(f"{name} BIGINT" for name in _NAMES)
    + ", skipped STRING, why STRING, finding STRING, freed_bytes BIGINT"
)
#: Checkpoints that a plan goes by.
_READ: Final = (FileKind.CLEANER, FileKind.REPLICATION)


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """What to compact, and how; settings are looked for as by `kseg.settings`.

    Attributes:
        how: as for `kseg.plan_compaction`. A task takes up to `map_bytes` of memory for keys.
        config: settings for every topic, weaker than what the broker has.
        topic_config: settings by topic, stronger than that.
        broker_config: the broker's `server.properties`.
        metadata_directory: the data directory with `__cluster_metadata-0`, if it is another one.
        high_watermark: "end" where these are the only copies.
        now_ms: the time to go by, as `kseg.time_ms` takes it; the clock's if None.
        backup_directory: keeps what goes; without one nothing of it is kept.
    """

    how: CompactionOptions = field(default_factory=CompactionOptions)
    config: Mapping[str, str] = field(default_factory=dict)
    topic_config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_config: str | None = None
    metadata_directory: str | None = None
    high_watermark: Literal["end"] | None = None
    now_ms: Time | None = None
    backup_directory: str | None = None


@dataclass(frozen=True, slots=True)
class CompactResult:
    """What compaction does, or would do.

    Attributes:
        partitions: each with its plan, and its report if `applied`.
        applied: whether it was done.
        backups: where old segments were kept.
        kept_bytes: of these.
        tasks: how many Spark ran.
        skipped: partitions that an earlier run had planned.
        settings_findings: what could not be understood in the metadata logs.
    """

    partitions: tuple[ClosedPartition, ...]
    applied: bool
    backups: tuple[str, ...]
    kept_bytes: int
    tasks: int
    skipped: int
    settings_findings: tuple[KsegError, ...] = ()

    @property
    def findings(self) -> tuple[KsegError, ...]:
        """Damage, for which partitions were left as they are."""
        return tuple(one.finding for one in self.partitions if one.finding is not None)

    @property
    def freed_bytes(self) -> int:
        """What the disks got back."""
        return sum(one.freed_bytes for one in self.partitions)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The partitions, a row each; numbers are null where damage left no plan."""
        return spark.createDataFrame([_row(one) for one in self.partitions], _DDL)


def _row(one: ClosedPartition) -> tuple[Any, ...]:
    plan = one.plan
    numbers = (None if plan is None else getattr(plan, name) for name in _NAMES)
    why = (None, None) if plan is None else (plan.skipped, plan.why or None)
    finding = None if one.finding is None else str(one.finding)
    return (str(one.path), *numbers, *why, finding, one.freed_bytes)


def compact(
    spark: SparkSession,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    apply: bool = False,
    options: CompactOptions | None = None,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> CompactResult:
    """Say what compaction would leave of logs; with `apply`, compact them.

    Args:
        spark: the session.
        paths: partition directories and data directories, as every worker sees them. Where several
            of these hold a metadata log, those of a broker share its own, by the ids of
            `meta.properties`.
        apply: change what can be compacted, each data directory under its lock.
        options: what to compact, and how.
        job: a directory to note in what was planned, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: a path is in a store, or a setting is none.
        NotALogError: a path is no directory of Kafka's, or is the log of KRaft.
        LogLockedError: a broker, or another process, holds a data directory; others were done.
        UncleanShutdownError: a log was not closed in good order; other directories were done.
        OSError: something is missing or cannot be read or written, here or by a worker.
        KsegError: `job` is of another job.
    """
    chosen = options or CompactOptions()
    now_ms = now_of(chosen.now_ms)
    how = Compacting(now_ms, chosen.high_watermark, chosen.how)
    found, findings = _partitions(local_paths(paths), chosen)
    directory = None if job is None else open_job(job, "compact", chosen)
    items = [_item(one, marked=directory is not None) for one in found]
    ran = run(spark, items, partial(_look, how=how), job=directory, progress=progress)
    known = {one.path: one for ones in ran.answers for one in ones}
    for one in found:  # an earlier run may have found other sources of the same settings
        known[one.path].settings = one.settings
    tasks = ran.tasks
    kept: dict[str, int] = {}
    if apply:
        act = partial(_apply, how=how, backup_directory=chosen.backup_directory)
        done = run(spark, _by_home(known.values()), act, progress=progress)
        for ones, made in done.answers:
            known |= {one.path: one for one in ones}
            for backup, size in made:
                kept[backup] = kept.get(backup, 0) + size
        tasks += done.tasks
    ones = tuple(known[one.path] for one in found)
    backups, kept_size = tuple(sorted(kept)), sum(kept.values())
    return CompactResult(ones, apply, backups, kept_size, tasks, ran.skipped, findings)


def _partitions(
    places: Iterable[str], options: CompactOptions
) -> tuple[list[ClosedPartition], tuple[KsegError, ...]]:
    """The partitions with segments, with what compaction goes by in each; findings beside them.

    Raises:
        ValueError: as `settings_of` raises it.
    """
    paths = list(dict.fromkeys(path for place in places for path in partitions_in(place)))
    sources = SettingSources(
        options.metadata_directory, options.broker_config, options.config, options.topic_config
    )
    settings = settings_of(paths, sources)
    found = [
        ClosedPartition.of(path, settings[path.resolve().parent].of(path))
        for path in paths
        if has_segments(path)
    ]
    different = dict.fromkeys(settings.values())
    return found, tuple(finding for each in different for finding in each.findings)


def _item(one: ClosedPartition, *, marked: bool) -> Item:
    seen = look_at(one.path)
    cost = sum(file.size for file in seen if file.name.endswith(".log"))
    if not marked:
        return Item(one, cost)
    home = one.path.resolve().parent
    beside = [state_of(os.fspath(home / kind.value)) for kind in _READ]
    state = (os.fspath(one.path), os.fspath(one.path.resolve()), one.rules, one.old, seen, beside)
    return Item(one, cost, mark_of(state))


def _by_home(ones: Iterable[ClosedPartition]) -> list[Item]:
    """What changes, by data directory."""
    homes: dict[Path, list[ClosedPartition]] = {}
    for one in ones:
        if not one.is_noop:
            homes.setdefault(one.path.resolve().parent, []).append(one)
    return [
        Item((home, tuple(going)), sum(one.plan.bytes for one in going if one.plan is not None))
        for home, going in sorted(homes.items())
    ]


def _look(ones: Sequence[ClosedPartition], *, how: Compacting) -> tuple[ClosedPartition, ...]:
    for one in ones:
        how.look(one)
    return tuple(ones)


def _apply(
    homes: Sequence[tuple[Path, tuple[ClosedPartition, ...]]],
    *,
    how: Compacting,
    backup_directory: str | None,
) -> tuple[tuple[ClosedPartition, ...], tuple[tuple[str, int], ...]]:
    """Compact in some data directories; answers what was done, and what was kept where."""
    changed: list[ClosedPartition] = []
    kept: list[tuple[str, int]] = []
    failed: list[KsegError | OSError] = []
    for home, ones in homes:
        backup = None
        if backup_directory is not None:
            backup = Backup(home, backup_directory, now_ms=how.now_ms)
        try:
            _apply_in(home, ones, how, backup)
        except (KsegError, OSError) as error:  # the others go on
            failed.append(error)
        changed += ones
        if backup is not None and backup.kept:
            kept.append((str(backup.directory), kept_bytes(backup.kept)))
    if failed:
        raise failed[0]
    return tuple(changed), tuple(kept)


def _apply_in(
    home: Path, ones: Sequence[ClosedPartition], how: Compacting, backup: Backup | None
) -> None:
    for one in ones:
        io.check_new_files(one.path)
    with ExitStack() as stack:  # no other process comes in between two partitions
        stack.callback(data_directory.enter(home).leave)
        disk_room.in_turn(ones, partial(how.change, backup=backup), in_place=True)


__all__ = ["CompactOptions", "CompactResult", "compact"]
