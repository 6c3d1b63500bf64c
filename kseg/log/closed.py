"""Changes to closed partitions, for the command line and for Spark: planned, then applied.

    choose     the caller names partitions, and their settings
    plan       each partition by itself; nothing changes, and no lock is taken
    hold       the locks of the data directories, so that no other process comes between two
               partitions; then the room on the disk
    apply      in place or to a copy, with a backup of the files that go
    report     each partition has its plan, its report, its backup and the bytes that went

`Cleanup` plans and applies compaction and retention, where damage stops one partition alone;
`Recovery` puts partitions in order after a crash. `kseg.log.changes` and `kseg.log.recovery` change
one log each. `copy_partition` makes the copy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kseg.errors import (
    CorruptIndexError,
    FormatError,
    KsegError,
    LimitExceededError,
    LogLockedError,
    OffsetsOutOfOrderError,
    StalePlanError,
    UncleanShutdownError,
    UnreadableError,
)
from kseg.files import checkpoints, io, lock
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import FileKind, list_partition
from kseg.log import closed_indexes, data_directory, disk_room
from kseg.log.changes import (
    apply_compaction,
    apply_retention,
    files_of,
    plan_compaction,
    plan_retention,
    segments_that_stay,
)
from kseg.log.cleaner.clean import CompactionOptions
from kseg.log.data_directory import EntryKind, entry_of
from kseg.log.log import Log
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.recover import apply_recovery, plan_recovery, recover
from kseg.log.recovery.reindex import apply_reindex, plan_reindex

if TYPE_CHECKING:
    from kseg.log.cleaner.values import CompactionPlan, CompactionReport
    from kseg.log.config import LogConfig
    from kseg.log.reader.version import HighWatermark
    from kseg.log.recovery.backup import Kept
    from kseg.log.recovery.recover import RecoveryPlan, RecoveryReport
    from kseg.log.recovery.reindex import ReindexPlan
    from kseg.log.settings.joined import PartitionSettings
    from kseg.log.topic_policy import RetentionRules
    from kseg.log.writer.retention import RetentionPlan, StayingSegment

#: The damage that stops compaction of one partition, while the others go on.
_DAMAGE: Final = (FormatError, CorruptIndexError, LimitExceededError, OffsetsOutOfOrderError)
#: A recovery writes the checkpoints this often, for a run that goes on later.
_NOTED_SECONDS: Final = 2.0
_COPIED_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Change:
    """Where and how partitions are changed.

    Attributes:
        apply: whether the change is made in place.
        output: a data directory for changed copies, instead; None for none.
        backup_directory: where the backup goes; None for the usual place.
        keep: whether to make a backup.
    """

    apply: bool
    output: str | None = None
    backup_directory: str | None = None
    keep: bool = True

    @property
    def is_plan(self) -> bool:
        """Whether nothing changes at all."""
        return not self.apply and self.output is None

    @property
    def keeps(self) -> bool:
        """Whether to back up; a copy that is made just now needs no backup."""
        return self.keep and self.output is None

    def check_owners(self, partitions: Iterable[Path]) -> None:
        """Refuse, before any change, directories where new files cannot have the old ones' owner.

        Raises:
            PermissionError: in one of these directories.
        """
        for path in partitions if self.apply else ():
            io.check_new_files(path)

    @contextmanager
    def holding(
        self, partitions: Iterable[Path], on_lost_mark: Callable[[Path], object] | None = None
    ) -> Iterator[None]:
        """Keep other processes out of these partitions' data directories between the changes.

        A changed copy needs no lock: no other process knows of it.

        Args:
            partitions: directories that will be changed.
            on_lost_mark: called with each data directory that has lost its mark of a clean stop.

        Raises:
            PermissionError: see `check_owners`.
            LogLockedError: another process holds a data directory.
            OSError: one cannot be locked.
        """
        paths = list(partitions)
        self.check_owners(paths)
        with ExitStack() as stack:
            for home in homes_of(paths) if self.apply else ():
                if on_lost_mark is not None and read_clean_shutdown(home) is not None:
                    stack.callback(_report_lost_mark, home, on_lost_mark)
                stack.callback(data_directory.enter(home).leave)
            yield

    def place_of(self, partition: Path, *, unclean: bool = False) -> Path:
        """The directory to change: the partition itself, or a copy that this makes now.

        Args:
            partition: its directory.
            unclean: whether this change may be made after an unclean shutdown.

        Raises:
            UncleanShutdownError: the partition was not closed in good order; nothing was copied.
            KsegError, OSError: see `copy_partition`.
        """
        if self.output is None:
            return partition
        if not unclean and read_clean_shutdown(partition.resolve().parent) is None:
            raise UncleanShutdownError("the log was not closed in good order", path=partition)
        return copy_partition(partition, self.output)

    def backup_of(self, home: Path, now_ms: int) -> Backup | None:
        """A backup for changes in a data directory; None without one."""
        return Backup(home, self.backup_directory, now_ms=now_ms) if self.keeps else None


def _report_lost_mark(home: Path, report: Callable[[Path], object]) -> None:
    if read_clean_shutdown(home) is None:
        report(home)


def home_of(path: io.StrPath) -> Path:
    """The data directory of a partition."""
    return Path(path).resolve().parent


def homes_of(paths: Iterable[io.StrPath]) -> list[Path]:
    """The data directories of partitions, once each."""
    return sorted({home_of(path) for path in paths})


# ---- compaction and retention --------------------------------------------------------------------


@dataclass(slots=True)
class ClosedPartition:
    """A partition that no process has open, and what compaction or retention makes of it.

    Attributes:
        path: its directory.
        settings: those of the partition.
        rules: what compaction goes by; None where there is retention alone.
        old: what retention goes by; None where segments do not get too old.
        place: the directory that is changed: `path`, or its copy.
        plan, deletion: of compaction, and of retention.
        staying: of retention alone, why segments stay.
        done: the report of compaction.
        finding: the damage for which the partition stays as it is.
        kept: the files in the backup.
        freed_bytes: what the disk gets back.
    """

    path: Path
    settings: PartitionSettings
    rules: RetentionRules | None
    old: RetentionRules | None
    place: Path
    plan: CompactionPlan | None = None
    deletion: RetentionPlan | None = None
    staying: tuple[StayingSegment, ...] = ()
    done: CompactionReport | None = None
    finding: KsegError | None = None
    kept: tuple[Kept, ...] = ()
    freed_bytes: int = 0

    @property
    def is_noop(self) -> bool:
        """Whether nothing changes."""
        compacts = self.plan is not None and not (self.plan.is_noop and not self.plan.advances)
        deletes = self.deletion is not None and not self.deletion.is_noop
        return self.finding is not None or not (compacts or deletes)


@dataclass(frozen=True, slots=True)
class Cleanup:
    """How one run compacts closed partitions and deletes old segments.

    Attributes:
        now_ms: the time that counts.
        high_watermark: as for `Log.open`.
        options: of compaction; None for retention alone.
    """

    now_ms: int
    high_watermark: HighWatermark | None = None
    options: CompactionOptions | None = field(default_factory=CompactionOptions)

    def of(
        self, path: Path, settings: PartitionSettings, *, of_one_log: bool = False
    ) -> ClosedPartition:
        """Take the rules of compaction and retention from the settings.

        Args:
            path: the directory.
            settings: of the partition.
            of_one_log: as for `PartitionSettings.retention_rules`.
        """
        rules = None if self.options is None else settings.compaction_rules()
        old = None
        if rules is None or (rules.skipped is None and rules.config.deletes):
            old = settings.retention_rules(of_one_log=of_one_log)
        return ClosedPartition(path, settings, rules, old, path)

    def plan(self, one: ClosedPartition) -> None:
        """Plan, and change nothing.

        Raises:
            KsegError: of retention alone, the log is damaged.
            UnsupportedFormatError: the log is one of Kafka 0.7.
            OSError: a file cannot be read.
        """
        with Log.open(one.path) as log, _damage_noted(one):
            self._plan(one, log, self.high_watermark)
            if one.rules is None and one.old and one.deletion and one.deletion.skipped is None:
                with suppress(KsegError, OSError):  # the plan stands where a time cannot be read
                    one.staying = segments_that_stay(log, one.deletion, config=one.old.config)

    def apply(
        self,
        one: ClosedPartition,
        change: Change,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Apply the plan in place or to a copy, under the lock of the data directory.

        Args:
            one: a planned partition.
            change: where, and with what backup.
            clock: of the log; `now_ms` always if None.

        Raises:
            LogLockedError: a broker, or another process, holds the data directory.
            UncleanShutdownError: the log was not closed in good order.
            KsegError: of retention alone, the log is damaged.
            OSError: the disk refuses, or is full; finished steps stay.
        """
        one.place = change.place_of(one.path)
        plan, rules = one.plan or one.deletion, one.rules or one.old
        assert plan is not None
        assert rules is not None
        backup = change.backup_of(home_of(one.place), self.now_ms)
        high_watermark = self.high_watermark
        if high_watermark is None and one.place != one.path:
            high_watermark = plan.high_watermark  # a copy has no checkpoint of it
        with (
            Log.open(
                one.place,
                mode="append",
                config=rules.config,
                now_ms=clock or (lambda: self.now_ms),
                high_watermark=high_watermark,
            ) as log,
            _damage_noted(one),
        ):
            try:
                if one.plan is not None:
                    self._compact(one, one.plan, log, backup)
                if one.old is not None:
                    self._delete(one, one.old, log, backup)
            finally:
                one.kept += () if backup is None else tuple(backup.kept)

    def apply_all(
        self,
        ones: Iterable[ClosedPartition],
        change: Change,
        clock: Callable[[], int] | None = None,
        on_lost_mark: Callable[[Path], object] | None = None,
    ) -> None:
        """Apply the plans that change something, under the locks of the data directories.

        For the arguments and errors see `apply` and `Change.holding`.
        """
        going = [one for one in ones if not one.is_noop]
        with change.holding((one.path for one in going), on_lost_mark):
            apply = partial(self.apply, change=change, clock=clock)
            disk_room.in_turn(going, apply, in_place=change.apply)

    def _plan(
        self, one: ClosedPartition, log: Log, high_watermark: HighWatermark | None = None
    ) -> None:
        how: dict[str, Any] = {"now_ms": self.now_ms, "high_watermark": high_watermark}
        if self.options is not None:
            one.plan = plan_compaction(log, config=one.rules, **how, **asdict(self.options))
        if one.old is not None:
            one.deletion = plan_retention(log, config=one.old, **how)

    def _compact(
        self, one: ClosedPartition, plan: CompactionPlan, log: Log, backup: Backup | None
    ) -> None:
        try:
            one.done = apply_compaction(log, plan, backup=backup)
        except StalePlanError:  # the log has changed since then, or this is a copy of it
            self._plan(one, log)
            assert one.plan is not None
            one.done = apply_compaction(log, one.plan, backup=backup)
        one.freed_bytes += one.done.freed_bytes

    def _delete(
        self, one: ClosedPartition, old: RetentionRules, log: Log, backup: Backup | None
    ) -> None:
        one.deletion = plan_retention(log, config=old, now_ms=self.now_ms)
        if backup is not None:
            if one.rules is None:
                backup.check_room(0)
            for path in files_of(one.deletion):
                backup.keep_file(path)
        one.freed_bytes += apply_retention(log, one.deletion).freed_bytes


@contextmanager
def _damage_noted(one: ClosedPartition) -> Iterator[None]:
    """Let damage stop the compaction of one partition alone."""
    try:
        yield
    except _DAMAGE as error:
        if one.rules is None:
            raise
        one.finding = error


def has_segments(path: Path, kinds: Sequence[EntryKind] = (EntryKind.LOG,)) -> bool:
    """Whether a directory is a log with segments."""
    return entry_of(path).kind in kinds and bool(list_partition(path).segments)


# ---- recovery ------------------------------------------------------------------------------------

#: `share(paths, works, threads)` does the work on each partition, and gives the results in order. A
#: work takes a function for its progress, and one for its result. None is the usual number.
Share = Callable[[Sequence[Path], Iterable[Callable[..., None]], "int | None"], Iterator[Any]]


@dataclass(slots=True)
class Recovery:
    """One recovery of chosen partitions.

    In place, the partitions of a data directory without the mark of a clean stop are each planned
    and recovered in one pass. All others are planned first, and then changed.

    Attributes:
        change: where and how.
        options: of `kseg.recover`, but for the settings and the backup.
        configs: by the name of the directory, which a copy has, too.
        share: does the work on partitions.
        note: takes a line for the user.
        reports: of the partitions that were changed.
    """

    change: Change
    options: Mapping[str, Any]
    configs: Mapping[str, LogConfig]
    share: Share
    note: Callable[[str], object]
    reports: list[RecoveryReport] = field(default_factory=list)

    def run(self, found: Sequence[Path]) -> list[RecoveryPlan]:
        """Plan, and apply the plans; a plan says why its log cannot be loaded.

        Raises:
            KsegError: a log cannot be loaded, where nothing is known of a way out.
            LogLockedError: another process holds a data directory.
            PermissionError, OSError: as `Change.check_owners` and the changes have it.
        """
        self.change.check_owners(found)
        homes = homes_of(found)
        with ExitStack() as stack:
            for home in homes if self.change.apply else ():
                stack.enter_context(lock.acquire(home))
            sweeps = self.change.apply and self.options["clean"] is not True
            unclean = {home for home in homes if sweeps and read_clean_shutdown(home) is None}
            swept = [path for path in found if home_of(path) in unclean]
            others = [path for path in found if home_of(path) not in unclean]
            plans = list(self.share(others, (partial(self._plan, path) for path in others), None))
            if not self.change.is_plan:
                _raise_first(plans)
                self._check_room(plans)
                for home in homes_of(plan.path for plan in plans) if self.change.apply else ():
                    if not _in_order(home, plans):
                        # One lease for all: the last one leaves the mark.
                        stack.callback(data_directory.enter(home).leave)
                plans = self._apply(plans)
            return plans + self._sweep(swept)

    def _sweep(self, found: Sequence[Path]) -> list[RecoveryPlan]:
        """Recover partitions, several at a time; an interruption leaves the finished ones."""
        plans: list[RecoveryPlan] = []
        with ExitStack() as stack:
            leases = [data_directory.enter(home) for home in homes_of(found)]
            for lease in leases:
                stack.callback(lease.leave)
            works = (partial(self._recover, path, alone=len(found) == 1) for path in found)
            written = time.monotonic()
            try:
                for plan in self.share(found, works, None):
                    plans.append(plan)
                    if time.monotonic() - written > _NOTED_SECONDS:
                        for lease in leases:
                            lease.write_checkpoints()
                        written = time.monotonic()
            except KeyboardInterrupt:
                self.note(
                    f"interrupted: {len(plans)} of {len(found)} partitions are in order, "
                    "nothing is half done; the same command goes on with the rest"
                )
                raise
        return plans

    def _recover(self, path: Path, progress: Any, put: Any, *, alone: bool) -> None:
        """Recover one partition; puts its plan, which says why, if it cannot be loaded."""
        try:
            if _may_start_behind(path) and (plan := self._plan_of(path)).error is not None:
                put(plan)
                return
            report = recover(
                path,
                config=self._config(path),
                backup_directory=self.change.backup_directory,
                keep_cut=self.change.keeps,
                progress=progress,
                **self.options,
            )
        except KsegError:
            plan = self._plan_of(path)
            if alone or plan.error is None:
                raise
            self.note(f"left as it is: {plan.error}")
            put(plan)
            return
        self.reports.append(report)
        put(report.plan)

    def _plan(self, path: Path, progress: Any, put: Any) -> None:
        put(self._plan_of(path, progress=progress))

    def _plan_of(self, path: Path, **how: Any) -> RecoveryPlan:
        """The plan, refused where a line of a checkpoint makes it delete all records of a log."""
        plan = plan_recovery(path, config=self._config(path), **{**self.options, **how})
        fault = plan.start_fault
        if fault is None or plan.error is not None or self.options["log_start_offset"] is not None:
            return plan
        return replace(plan, error=CorruptIndexError(fault, path=plan.path), actions=())

    def _config(self, path: Path) -> LogConfig:
        return self.configs[path.resolve().name]

    def _check_room(self, plans: Sequence[RecoveryPlan]) -> None:
        """Refuse, before the first change, a backup for which a disk has no room."""
        for home in homes_of(plan.path for plan in plans):
            backup = self.change.backup_of(home, self.options["now_ms"])
            if backup is not None:
                cut = (plan.truncated_bytes for plan in plans if home_of(plan.path) == home)
                backup.check_room(sum(cut))

    def _apply(self, plans: Sequence[RecoveryPlan]) -> list[RecoveryPlan]:
        """Change partitions one after the other, as planned."""
        going = [plan for plan in plans if plan.error is None]
        works = (partial(self._change, plan) for plan in going)
        reports = list(self.share([Path(plan.path) for plan in going], works, 1))
        self.reports += reports
        done = iter(reports)
        return [plan if plan.error is not None else next(done).plan for plan in plans]

    def _change(self, plan: RecoveryPlan, progress: Any, put: Any) -> None:
        if self.change.output is not None:
            place = self.change.place_of(Path(plan.path), unclean=True)
            names = ("clean", "recovery_point", "log_start_offset")
            inputs = {name: getattr(plan.inputs, name) for name in names}
            plan = plan_recovery(place, config=self._config(place), **{**self.options, **inputs})
        put(
            apply_recovery(
                plan,
                backup_directory=self.change.backup_directory,
                keep_cut=self.change.keeps,
                progress=progress,
            )
        )


def _in_order(home: Path, plans: Sequence[RecoveryPlan]) -> bool:
    """Whether there is nothing to do in a data directory, also for its mark."""
    here = [plan for plan in plans if home_of(plan.path) == home]
    return all(plan.is_noop for plan in here) and read_clean_shutdown(home) is not None


def _raise_first(plans: Sequence[RecoveryPlan]) -> None:
    for plan in plans:
        known = plan.start_fault is not None or isinstance(plan.error, UnreadableError)
        if plan.error is not None and not known:
            raise plan.error


def _may_start_behind(path: Path) -> bool:
    """Whether the checkpoint lets a log start behind the base offset of its last segment."""
    segments = list_partition(path).segments
    start = data_directory.told_of(path).log_start_offset
    return bool(segments) and start > segments[-1].base_offset


# ---- indexes -------------------------------------------------------------------------------------


def reindex_at(
    plan: ReindexPlan,
    place: Path,
    change: Change,
    now_ms: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ReindexPlan, list[Kept]]:
    """Apply a plan to a partition, or to a copy of it; gives the plan and the files in the backup.

    Raises:
        StalePlanError: files have changed since the plan was made; nothing was done.
        LogLockedError: another process holds the data directory.
        OSError: the disk refuses.
    """
    if place != plan.path:
        plan = plan_reindex(
            place, config=plan.config, kinds=plan.kinds, exact=plan.exact, now_ms=plan.now_ms
        )
    backup = change.backup_of(home_of(place), now_ms)
    apply_reindex(plan, keep=False, backup=backup, progress=progress)
    return plan, [] if backup is None else backup.kept


# ---- copies --------------------------------------------------------------------------------------


def copy_partition(source: io.StrPath, target: io.StrPath) -> Path:
    """Copy a partition directory, its entries in the checkpoints, and the mark if it is clean.

    Keeps owner, permissions and times of modification; copies files only.

    Args:
        source: the partition directory; no other process may write to it.
        target: the data directory for the copy, which keeps its name; made if it is missing.

    Returns:
        The copy, lasting.

    Raises:
        LogLockedError: another process holds one of the data directories.
        FileExistsError: there is a partition of that name already.
        PermissionError: this process cannot make files for the owner of the original; there is
            nothing of a copy then.
        OSError: the disk refuses. The partial copy is removed; if that fails, too, it is marked as
            not closed in good order.
    """
    origin, home = Path(source).resolve(), Path(target)
    holder = lock.holder(origin.parent)
    if holder is not None:
        raise LogLockedError(
            f"{lock.who_holds(holder)}, so a copy would be of no one moment",
            path=origin.parent,
        )
    with os.scandir(origin) as entries:
        found = {entry.name: entry.stat() for entry in entries if entry.is_file()}
    owners = {(each.st_uid, each.st_gid): each for each in (os.stat(origin), *found.values())}
    for each in owners.values():
        io.check_new_files(home, like=each)
    if not home.is_dir():
        io.make_directory(home, like=os.stat(origin.parent))
        io.flush_directory(home.parent)
    clean = read_clean_shutdown(origin.parent) is not None
    lease = data_directory.enter(home)
    copy, in_order = home / origin.name, True
    try:
        lease.claim(origin.name)
        io.make_directory(copy)
        lease.mark_loaded()
        in_order = clean
        try:
            for name in sorted(found):
                _copy_file(origin / name, copy / name)
            io.dress_like(copy, os.stat(origin))
            io.flush_directory(copy)
            io.flush_directory(home)
            _copy_offsets(origin, lease)
            in_order = clean and closed_indexes.is_as_closed(copy)
        except BaseException:
            with suppress(OSError):
                io.remove_tree(copy)
            in_order = not copy.exists()
            raise
    finally:
        lease.leave(clean=in_order)
    return copy


def _copy_file(source: Path, target: Path) -> None:
    fd = io.open_read(source)
    try:
        status = os.fstat(fd)
        with io.WriteFile.open(target, exclusive=True, like=status) as file:
            for position in range(0, status.st_size, _COPIED_BYTES):
                size = min(_COPIED_BYTES, status.st_size - position)
                file.write_at(position, io.read_at(fd, position, size, source))
            file.flush()
        io.set_modified(target, status.st_mtime_ns)
    finally:
        os.close(fd)


def _copy_offsets(origin: Path, lease: data_directory.DataDirectoryLease) -> None:
    """Note the offsets of the checkpoints beside the original; malformed ones are left out."""
    partition = data_directory.partition_of(origin)
    if partition is None:
        return
    offsets: dict[FileKind, int | None] = {}
    for kind in (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION):
        with suppress(FileNotFoundError, CorruptIndexError, LimitExceededError):
            found = checkpoints.read_offset_checkpoint(origin.parent / kind.value).offsets
            offsets[kind] = found.get(partition)
    lease.note(
        partition,
        recovery_point=offsets.get(FileKind.RECOVERY_POINT),
        log_start_offset=offsets.get(FileKind.LOG_START),
        high_watermark=offsets.get(FileKind.REPLICATION),
    )
    lease.write_checkpoints()


__all__ = [
    "Change",
    "Cleanup",
    "ClosedPartition",
    "CompactionOptions",
    "Recovery",
    "copy_partition",
    "has_segments",
    "home_of",
    "homes_of",
    "reindex_at",
]
