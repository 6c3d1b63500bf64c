"""Changes to closed partitions, for the command line and for Spark: planned, then applied.

    choose     the caller names partitions, and their settings
    plan       each partition by itself; nothing changes, and no lock is taken
    hold       the locks of the data directories, so that no other process comes between two
               partitions; then the room on the disk
    apply      in place or to a copy, with a backup of the files that go
    report     each partition has its plan, its report, its backup and the bytes that went

`Recovery` puts partitions in order after a crash. `kseg.log.cleanup` compacts partitions and
deletes old segments. `plan_truncation` and `kseg.log.recovery` change one log each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kseg.errors import (
    CorruptIndexError,
    KsegError,
    LimitExceededError,
    LogLockedError,
    UncleanShutdownError,
    UnreadableError,
)
from kseg.files import checkpoints, io, lock
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import FileKind, list_partition
from kseg.log import data_directory, index_rules
from kseg.log.config import LogConfig
from kseg.log.data_directory import EntryKind, entry_of
from kseg.log.recovery.backup import Backup, Kept, copy_bytes
from kseg.log.recovery.recover import RecoveryPlan, RecoveryReport, plan_recovery, recover
from kseg.log.recovery.reindex import ReindexPlan, plan_reindex
from kseg.log.tier.history import tiered

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


#: A recovery writes the checkpoints this often, for a run that goes on later.
_NOTED_SECONDS: Final = 2.0


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


def has_segments(path: Path, kinds: Sequence[EntryKind] = (EntryKind.LOG,)) -> bool:
    """Whether a directory is a log with segments."""
    return entry_of(path).kind in kinds and bool(list_partition(path).segments)


# ---- recovery ------------------------------------------------------------------------------------

#: `share(paths, works, threads)` does the work on each partition, and gives the results in order. A
#: work takes a function for its progress, and one for its result. None is the default number.
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
        left = list(found)
        with ExitStack() as stack:
            leases = [data_directory.enter(home) for home in homes_of(found)]
            for lease in leases:
                stack.callback(lease.leave)
            written = time.monotonic()
            try:
                while left:
                    refused: dict[Path, OSError] = {}
                    recover = partial(self._recover, refused, alone=len(found) == 1)
                    for plan in self.share(left, (partial(recover, path) for path in left), None):
                        plans += [] if plan is None else [plan]
                        if time.monotonic() - written > _NOTED_SECONDS:
                            for lease in leases:
                                lease.write_checkpoints()
                            written = time.monotonic()
                    if len(refused) == len(left):
                        raise _with_way_out(refused[left[0]])
                    left = [path for path in left if path in refused]  # others have given room
            except KeyboardInterrupt:
                self.note(
                    f"interrupted: {len(plans)} of {len(found)} partitions are in order, "
                    "nothing is half done; the same command continues with the rest"
                )
                raise
        order = {str(path): number for number, path in enumerate(found)}
        return sorted(plans, key=lambda plan: order[plan.path])

    def _recover(
        self, refused: dict[Path, OSError], path: Path, progress: Any, put: Any, *, alone: bool
    ) -> None:
        """Recover one partition; puts its plan, which says why, if it cannot be loaded.

        If the disk is too full for it, its error is noted, and None stands for the plan.
        """
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
        except OSError as error:
            if not io.is_full(error):
                raise
            refused[path] = error
            put(None)
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
            backup = self.change.backup_of(home, self.options["now"])
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
            inputs["tier"] = tiered(plan.path, plan.inputs.tier) or plan.inputs.tier
            plan = plan_recovery(place, config=self._config(place), **{**self.options, **inputs})
        put(
            plan.apply(
                backup=self.change.backup_directory,
                keep=self.change.keeps,
                progress=progress,
            )
        )


def _with_way_out(error: OSError) -> OSError:
    """The error of a disk too full for any recovery, with the step that works."""
    if "--no-backup" in str(error):
        return error
    why = (
        f"{error.strerror}; 'kseg retain --no-backup --apply' deletes expired segments in front of "
        "the recovery point without a recovery"
    )
    return OSError(error.errno, why, error.filename)


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
    start = data_directory.offsets_beside(path).log_start_offset
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
            place, config=plan.config, kinds=plan.kinds, exact=plan.exact, now=plan.now_ms
        )
    backup = change.backup_of(home_of(place), now_ms)
    plan.apply(keep=backup is not None, backup=backup, progress=progress)
    return plan, [] if backup is None else backup.kept


def values_of(plan: DataclassInstance) -> dict[str, Any]:
    """The fields of a plan by name, for a subclass of its class."""
    return {each.name: getattr(plan, each.name) for each in fields(plan)}


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
        PermissionError: this process cannot make files for the owner of the original; the copy is
            removed then.
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
            in_order = clean and index_rules.is_as_closed(copy)
        except BaseException:
            with suppress(OSError):
                io.remove_tree(copy)
            in_order = not copy.exists()
            raise
    finally:
        lease.leave(clean=in_order)
    return copy


def _copy_file(source: Path, target: Path) -> None:
    with io.opened(source) as fd:
        status = os.fstat(fd)
        with io.WriteFile.open(target, exclusive=True, like=status) as file:
            copy_bytes(source, fd, (0, status.st_size), file)
            file.flush()
        io.set_modified(target, status.st_mtime_ns)


def _copy_offsets(origin: Path, lease: data_directory.DataDirectoryLease) -> None:
    """Note the offsets of the checkpoints beside the original; malformed ones are left out."""
    partition = data_directory.partition_of(origin)
    if partition is None:
        return
    offsets: dict[FileKind, int | None] = {}
    for kind in (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION):
        with suppress(FileNotFoundError, CorruptIndexError, LimitExceededError):
            found = checkpoints.read_offset_checkpoint(origin.parent / kind.value)
            offsets[kind] = found.get(partition)
    lease.note(
        partition,
        recovery_point=offsets.get(FileKind.RECOVERY_POINT),
        log_start_offset=offsets.get(FileKind.LOG_START),
        high_watermark=offsets.get(FileKind.REPLICATION),
    )
    lease.write_checkpoints()
