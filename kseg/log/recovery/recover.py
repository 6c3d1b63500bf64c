"""Carrying out what a recovery plan says, on the disk.

The files are looked at again first, and all of it is worked out anew on the way: a plan holds
decisions, not bytes. At whichever call the process dies, another plan and another application come
to the same bytes in the end; to those of a log without the mark of a clean stop, once that is gone.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.errors import StalePlanError
from kseg.files import io, lock, metadata
from kseg.files.names import list_partition
from kseg.log import data_directory, disk_room
from kseg.log.pending_deletes import files_of_segment
from kseg.log.recovery.backup import Backup, Kept, kept_bytes
from kseg.log.recovery.load_context import SNAPSHOT
from kseg.log.recovery.overlay import Applier, Overlay, look_at
from kseg.log.recovery.plan import LoadResult, load_partition, plan_recovery
from kseg.log.recovery.plan_values import RecoveryInputs, RecoveryPlan
from kseg.log.sub_directories import refuse_cluster_metadata

if TYPE_CHECKING:
    from kseg.log.config import LogConfig
    from kseg.log.recovery.load_context import Progress


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What was done.

    Attributes:
        plan: that was carried out.
        kept: what was kept aside.
        freed_bytes: what the disk got back.
    """

    plan: RecoveryPlan
    kept: tuple[Kept, ...] = ()
    freed_bytes: int = 0

    @property
    def log_start_offset(self) -> int:
        """The first offset to be read."""
        return self.plan.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The next offset to be given."""
        return self.plan.log_end_offset

    @property
    def truncated_bytes(self) -> int:
        """Bytes of log that went."""
        return self.plan.truncated_bytes

    @property
    def kept_in_backup_bytes(self) -> int:
        """Bytes that the disk gets back when what was kept aside is removed."""
        return kept_bytes(self.kept)


def apply_recovery(
    plan: RecoveryPlan,
    *,
    backup_directory: io.StrPath | None = None,
    keep_cut: bool = True,
    progress: Progress | None = None,
) -> RecoveryReport:
    """Do what a plan says, under the lock of the data directory.

    The log is as a good end leaves it then, all of it on the disk. The mark of a clean shutdown
    that the directory may have lost comes back when the last of its partitions is in order, in
    one life of a `lease`.

    Args:
        plan: from `plan_recovery`.
        backup_directory: where what is cut, removed or replaced is kept; a sibling of the data
            directory, named after the time of the plan, if None.
        keep_cut: keep it at all.
        progress: told how many bytes of log were walked, and how many there are to walk.

    Raises:
        StalePlanError: files have changed since the plan was made; nothing was done.
        KsegError: `plan.error`, if the log cannot be loaded; nothing was done.
        NotALogError: it is the log of KRaft; nothing was done.
        LogLockedError: another process holds the data directory, or another log of this one has the
            partition open; nothing was done.
        PermissionError: this process cannot make files like those that are there; nothing was
            done.
        OSError: the disk refuses, or is too full to keep what is cut; or it is full, and what goes
            gives too little back for what is to be written. Nothing was done then.
    """
    if plan.error is not None:
        raise plan.error
    directory = Path(plan.path)
    refuse_cluster_metadata(directory)
    home = directory.resolve().parent
    io.check_new_files(directory)
    with lock.acquire(home):
        if look_at(directory) != plan.seen:
            raise StalePlanError("files have changed since the plan was made", path=directory)
        if plan.is_noop and metadata.read_clean_shutdown(home) is not None:
            return RecoveryReport(plan)
        keeper = None
        if keep_cut and not plan.is_noop:
            keeper = Backup(home, backup_directory, now_ms=plan.inputs.now_ms)
            keeper.check_room(plan.truncated_bytes)
        if not plan.is_noop:
            _check_room(plan)
        lease = data_directory.enter(home)
        sound, freed = False, 0
        try:
            lease.claim(directory.resolve().name)
            lease.mark_loaded()
            if not plan.is_noop:
                lease.forget_broker_epoch()
                io.flush_directory(home)  # checkpoints, on whose word files go
                ordered = do(directory, plan.inputs, keeper, derived=True, progress=progress)
                freed = ordered.freed_bytes
            _flush(directory, plan.inputs.recovery_point)
            sound = True
        finally:
            lease.leave(clean=sound)
        kept = () if keeper is None else tuple(keeper.kept)
        return RecoveryReport(plan, kept, freed_bytes=freed)


def _check_room(plan: RecoveryPlan) -> None:
    """Refuse what a full disk has no room for, as far as the plan tells."""
    directory = Path(plan.path)
    block = os.statvfs(directory).f_frsize
    written = [one.bytes for one in plan.actions if one.action in ("create", "replace")]
    needed = sum(-(-size // block) * block for size in written) + disk_room.least_bytes(directory)
    if io.has_room(directory, needed):
        return
    given = 0
    for one in plan.actions:
        if one.action in ("delete", "replace"):
            given += io.bytes_given_back(one.path)
        elif one.action == "truncate":
            size = os.stat(one.path).st_size
            given += io.bytes_given_back(one.path, cut_at=size - one.bytes)
    disk_room.refuse_less(directory, given, "what goes", needed=needed)


def _flush(directory: Path, recovery_point: int) -> None:
    """Make lasting what the process that died may not have: the mark will say that it is.

    What lies in front of the recovery point is on the disk already, but for what sealing took off
    the ends of the segment in front.
    """
    files = list_partition(directory)
    bases = [segment.base_offset for segment in files.segments]
    first = bases[max(bisect_right(bases, recovery_point) - 2, 0)] if bases else 0
    names = [
        path
        for segment in files.segments
        if segment.base_offset >= first
        for path in files_of_segment(segment)
    ]
    names += [snapshot.path for snapshot in files.snapshots]
    for name in names:
        with io.WriteFile.open(name) as file:
            file.flush()
    io.flush_directory(directory)


def do(
    directory: Path,
    inputs: RecoveryInputs,
    keeper: Backup | None,
    *,
    derived: bool,
    progress: Progress | None = None,
) -> LoadResult:
    """Bring a partition into order on the disk; the caller holds the lock.

    Args:
        directory: the partition.
        inputs: by what.
        keeper: keeps what goes; None for nothing.
        derived: whether files that can be had again from the log are kept, too.
        progress: see `apply_recovery`.

    Raises:
        KsegError: the log cannot be loaded.
        OSError: the disk refuses.
    """
    overlay = Overlay(directory, applier=Applier(directory, keeper, derived=derived))
    ordered = load_partition(overlay, inputs, progress=progress)
    if ordered.error is not None:
        raise ordered.error
    overlay.settle()
    # Who appends to the log next has its producers in memory; the next snapshot has them, too.
    missing = overlay.finish(lacking="" if derived else f".{SNAPSHOT}")
    if not inputs.clean:
        io.flush_directory(directory)  # names that nobody had flushed, before others follow them
    return replace(ordered, missing=missing)


def recover(
    path: io.StrPath,
    *,
    as_broker: bool = False,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    config: LogConfig | None = None,
    now_ms: int | None = None,
    backup_directory: io.StrPath | None = None,
    keep_cut: bool = True,
    progress: Progress | None = None,
) -> RecoveryReport:
    """`plan_recovery` and `apply_recovery` in one, under the lock of the data directory."""
    io.check_new_files(path)
    with lock.acquire(Path(path).resolve().parent):
        plan = plan_recovery(
            path,
            as_broker=as_broker,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            config=config,
            now_ms=now_ms,
        )
        return apply_recovery(
            plan, backup_directory=backup_directory, keep_cut=keep_cut, progress=progress
        )


__all__ = ["RecoveryReport", "apply_recovery", "do", "recover"]
