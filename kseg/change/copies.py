"""A copy of a closed partition, with its lines in the checkpoints."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kseg.errors import CorruptIndexError, LimitExceededError, LogLockedError
from kseg.files import checkpoints, io, lock
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import FileKind
from kseg.log import data_directory, index_rules
from kseg.log.recovery.backup import copy_bytes


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
