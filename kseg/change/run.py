"""Plans of many partitions, applied: in place or to copies, with or without a backup.

choose     the caller names partitions, and has each planned
hold       the locks and leases of the data directories, so that no other process comes between
two partitions
room       for the backups of all
apply      each plan, in place or to a copy; one that is stale is made once more, and one for
which the disk is too full is tried again when the others have given room
report     the plan, its files in the backup, the bytes that the disk got back
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from kseg.constants import Progress, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import (
    CorruptIndexError,
    FormatError,
    LimitExceededError,
    LogLockedError,
    OffsetsOutOfOrderError,
    StalePlanError,
    UncleanShutdownError,
)
from kseg.files import checkpoints, io, lock
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import FileKind, list_partition
from kseg.log import data_directory, index_rules
from kseg.log.data_directory import EntryKind, entry_of
from kseg.log.recovery.backup import Backup, copy_bytes

#: `share(paths, works, threads)` does the work on each partition, and gives the results in order. A
#: work takes a function for its progress, and one for its result. None is the default number.
Share = Callable[[Sequence[Path], Iterable[Callable[..., None]], "int | None"], Iterator[Any]]

#: The damage that stops the change of one partition or segment, while others continue.
DAMAGE: Final = (FormatError, CorruptIndexError, LimitExceededError, OffsetsOutOfOrderError)


@frozen_dataclass
class ChangeOptions:
    """Where and how partitions are changed.

    Attributes:
        now_ms: the time by which backups are named.
        apply: whether the change is made in place.
        output: a data directory for changed copies; None to change in place.
        backup_directory: the directory of the backup; None for the usual one.
        keep: whether to make a backup.
    """

    now_ms: int
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
        """Whether to back up; a copy that was made just now needs no backup."""
        return self.keep and self.output is None

    def check_owners(self, partitions: Iterable[Path]) -> None:
        """Refuse, before any change, directories where new files cannot have the old ones' owner.

        Raises:
            PermissionError: names such a directory.
        """
        for path in partitions if self.apply else ():
            io.check_new_files(path)

    @contextmanager
    def holding(
        self, partitions: Sequence[Path], on_lost_mark: Callable[[Path], object] | None = None
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
        self.check_owners(partitions)
        with ExitStack() as stack:
            for home in homes_of(partitions) if self.apply else ():
                if on_lost_mark is not None and read_clean_shutdown(home) is not None:
                    stack.callback(_report_lost_mark, home, on_lost_mark)
                stack.callback(data_directory.enter(home).leave)
            yield

    def place_of(self, partition: Path, *, unclean: bool) -> Path:
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
        if not unclean and read_clean_shutdown(home_of(partition)) is None:
            raise UncleanShutdownError("the log was not closed in good order", path=partition)
        return copy_partition(partition, self.output)

    def backup_of(self, home: Path) -> Backup | None:
        """A backup for changes in a data directory; None if no backup is to be made."""
        return Backup(home, self.backup_directory, now_ms=self.now_ms) if self.keeps else None


def run(
    plans: Sequence[Any],
    options: ChangeOptions,
    again: Callable[[Any, Path], Any],
    *,
    share: Share | None = None,
    threads: int | None = None,
    on_lost_mark: Callable[[Path], object] | None = None,
    unclean: bool = False,
    passed_over: Callable[[Any], bool] = attrgetter("is_noop"),
) -> list[Any]:
    """Apply plans, and return a report for each in the same order.

    Args:
        plans: plans for different partitions.
        options: where and how partitions are changed.
        again: makes a plan once more, for the same partition or for its copy.
        share: does the work on partitions; one after the other if None.
        threads: the number of threads, for `share`.
        on_lost_mark: as for `ChangeOptions.holding`.
        unclean: whether these changes may be made after an unclean shutdown.
        passed_over: whether a plan is not applied, and its report has only the plan; without
            changes in place or in copies none is.

    Raises:
        KsegError, OSError: as `Plan.apply` and `ChangeOptions.holding` do; finished steps stay.
    """
    without_room: list[Any] = []  # tried again at the end, when the others have given room

    def change(plan: Any, place: Path, progress: Progress | None = None) -> Any:
        """Apply a plan in a directory; it is made again if it is of another directory, or stale."""
        # A plan of the original does not fit its copy.
        current = plan if place == Path(plan.path) else again(plan, place)
        backup = options.backup_of(home_of(place))
        settings = {"keep": options.keeps, "backup": backup, "progress": progress}
        try:
            return current.apply(**settings)
        except StalePlanError:
            return again(current, place).apply(**settings)

    def place_of(plan: Any) -> Path:
        return options.place_of(Path(plan.path), unclean=unclean)

    def work(plan: Any, place: Path | None, progress: Progress, put: Callable[..., Any]) -> None:
        """Apply a plan and put its report; None, and another try later, if the disk is full."""
        try:
            put(change(plan, place or place_of(plan), progress))
        except OSError as error:
            if not (io.is_full(error) and options.apply):
                raise
            without_room.append(plan)
            put(None)

    to_apply = [plan for plan in plans if not (options.is_plan or passed_over(plan))]
    paths = [Path(plan.path) for plan in to_apply]
    with options.holding(paths, on_lost_mark):
        _check_room(to_apply, options)
        # Copies are made in this order; with one thread, each after the change before it.
        places = (None if threads == 1 else place_of(plan) for plan in to_apply)
        works = (partial(work, plan, place) for plan, place in zip(to_apply, places, strict=True))
        shared = zip(to_apply, (share or one_by_one)(paths, works, threads), strict=True)
        reports = {plan.path: report for plan, report in shared}
        reports |= {plan.path: change(plan, Path(plan.path)) for plan in without_room}
    return [reports.get(plan.path) or plan.REPORT(plan) for plan in plans]


def one_by_one(
    _paths: Sequence[Path], works: Iterable[Callable[..., None]], _threads: int | None
) -> Iterator[Any]:
    """A `Share` without threads, that shows no progress."""
    for work in works:
        results: list[Any] = []
        work(None, results.append)
        yield from results


def _check_room(plans: Sequence[Any], options: ChangeOptions) -> None:
    """Refuse, before the first change, backups for which a disk has no room."""
    sizes: dict[Path, int] = {}
    for plan in plans if options.keeps else ():
        if plan.backup_bytes is not None:
            home = home_of(plan.path)
            sizes[home] = sizes.get(home, 0) + plan.backup_bytes
    for home, size in sizes.items():
        backup = options.backup_of(home)
        assert backup is not None
        backup.check_room(size)


def _report_lost_mark(home: Path, report: Callable[[Path], object]) -> None:
    """Report a data directory that had its mark of a clean stop, and has none after the change."""
    if read_clean_shutdown(home) is None:
        report(home)


def home_of(path: StrPath) -> Path:
    """The data directory of a partition."""
    return Path(path).resolve().parent


def homes_of(paths: Iterable[StrPath]) -> list[Path]:
    """The data directories of partitions, once each."""
    return sorted({home_of(path) for path in paths})


def has_segments(path: Path, kinds: Sequence[EntryKind] = (EntryKind.LOG,)) -> bool:
    """Whether a directory is a log with segments."""
    return entry_of(path).kind in kinds and bool(list_partition(path).segments)


# ---- copies --------------------------------------------------------------------------------------


def copy_partition(source: StrPath, target: StrPath) -> Path:
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
        stats = {entry.name: entry.stat() for entry in entries if entry.is_file()}
    owners = {(owner.st_uid, owner.st_gid): owner for owner in (os.stat(origin), *stats.values())}
    for owner in owners.values():
        io.check_new_files(home, like=owner)
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
            for name in sorted(stats):
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
    """Copy the bytes that a file has now, with its owner, permissions and time of modification."""
    with io.opened(source) as fd:
        status = os.fstat(fd)
        with io.WriteFile.open(target, exclusive=True, like=status) as file:
            copy_bytes(source, fd, (0, status.st_size), file)
            file.flush()
        io.set_modified(target, status.st_mtime_ns)


def _copy_offsets(origin: Path, lease: data_directory.DataDirectoryLease) -> None:
    """Copy the partition's lines from the original's checkpoints; malformed files are ignored."""
    partition = data_directory.partition_of(origin)
    if partition is None:
        return
    offsets: dict[FileKind, int | None] = {}
    for kind in (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION):
        with suppress(FileNotFoundError, CorruptIndexError, LimitExceededError):
            stored = checkpoints.read_offset_checkpoint(origin.parent / kind.value)
            offsets[kind] = stored.get(partition)
    lease.note(
        partition,
        recovery_point=offsets.get(FileKind.RECOVERY_POINT),
        log_start_offset=offsets.get(FileKind.LOG_START),
        high_watermark=offsets.get(FileKind.REPLICATION),
    )
    lease.write_checkpoints()
