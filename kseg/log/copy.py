"""A copy of a partition in another data directory, so that the original stays as it is.

Source: nothing of Kafka's; it copies the files that Kafka's loader reads.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from kseg.errors import CorruptIndexError, LimitExceededError, LogLockedError, NotALogError
from kseg.files import checkpoints, io, lock, metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.names import FileKind, parse_partition_dir
from kseg.log import closed_indexes
from kseg.log import data_directory as lease

_COPIED_BYTES: Final = 2**20


def copy_partition(source: io.StrPath, data_directory: io.StrPath) -> Path:
    """Copy a partition directory, its entries in the checkpoints, and the mark if it is clean.

    Keeps owner, permissions and times of modification; copies files only.

    Args:
        source: the partition directory; no other process may write to it.
        data_directory: to hold the copy, under the same name; made if it is missing.

    Returns:
        The copy, lasting.

    Raises:
        LogLockedError: another process holds one of the data directories.
        FileExistsError: there is a partition of that name already.
        PermissionError: this process cannot make files for the owner of the original; there is
            nothing of a copy then.
        OSError: the disk refuses. What was copied is removed again; where that fails, too, it is
            marked as not closed in good order.
    """
    origin = Path(source).resolve()
    holder = lock.holder(origin.parent)
    if holder is not None:
        raise LogLockedError(
            f"{lock.who_holds(holder)}, so a copy would be of no one moment",
            path=origin.parent,
        )
    home_path = Path(data_directory)
    for owned in _looks(origin):
        io.check_new_files(home_path, like=owned)
    if not home_path.is_dir():
        io.make_directory(home_path, like=os.stat(origin.parent))
        io.flush_directory(home_path.parent)
    clean = metadata.read_clean_shutdown(origin.parent) is not None
    home = lease.enter(home_path)
    target, in_order = home_path / origin.name, True
    try:
        home.claim(origin.name)
        io.make_directory(target)
        home.mark_loaded()
        in_order = clean
        try:
            _fill(origin, target, home)
            in_order = clean and closed_indexes.is_as_closed(target)
        except BaseException:
            in_order = _discard(target)
            raise
    finally:
        home.leave(clean=in_order)
    return target


def _looks(origin: Path) -> list[os.stat_result]:
    """The status of a directory and of its files, one for each owner and group."""
    with os.scandir(origin) as entries:
        found = [os.stat(origin), *(entry.stat() for entry in entries if entry.is_file())]
    return list({(status.st_uid, status.st_gid): status for status in found}.values())


def _fill(origin: Path, target: Path, home: lease.DataDirectoryLease) -> None:
    """Copy what is in a partition's directory into a new one, lasting."""
    with os.scandir(origin) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file())
    for name in names:
        _copy_file(origin / name, target / name)
    io.dress_like(target, os.stat(origin))
    io.flush_directory(target)
    io.flush_directory(target.parent)
    _copy_offsets(origin, home)


def _discard(target: Path) -> bool:
    """Remove what was copied; whether nothing of it is left."""
    with suppress(OSError):
        io.remove_tree(target)
    return not target.exists()


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


def _copy_offsets(origin: Path, home: lease.DataDirectoryLease) -> None:
    """Note what the checkpoints beside the original say; malformed ones say nothing."""
    try:
        name = parse_partition_dir(origin.name)
    except NotALogError:
        return
    partition = TopicPartition(name.topic, name.partition)
    said: dict[FileKind, int | None] = {}
    for kind in (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION):
        try:
            offsets = checkpoints.read_offset_checkpoint(origin.parent / kind.value).offsets
        except (FileNotFoundError, CorruptIndexError, LimitExceededError):
            continue
        said[kind] = offsets.get(partition)
    home.note(
        partition,
        recovery_point=said.get(FileKind.RECOVERY_POINT),
        log_start_offset=said.get(FileKind.LOG_START),
        high_watermark=said.get(FileKind.REPLICATION),
    )
    home.write_checkpoints()


__all__ = ["copy_partition"]
