"""The room that files take on a disk: by their blocks, and beside the partitions.

A file that is removed meanwhile takes no room. Beside the partitions lie small files, backups, and
deleted files that a process has open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kseg.analysis.explain.values import UNKNOWN, Kept, Space
from kseg.errors import os_reason
from kseg.files.names import list_data_directory
from kseg.log.recovery import backup_root
from kseg.log.sub_directories import DirectoryEntry, EntryKind

#: The unit of `st_blocks`, whatever the file system's blocks are.
_SECTOR_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Disk:
    """What a file takes: bytes on the disk up to its end, its size, and bytes beyond its end."""

    bytes: int
    size: int
    ahead: int = 0

    def up_to(self, used: int, block: int = 4096) -> Disk:
        """The same, where only so much of the file is in use."""
        kept = min(self.bytes, _rounded(used, block))
        return Disk(kept, min(self.size, used), self.ahead + self.bytes - kept)


def disk_of(path: str | os.PathLike[str]) -> Disk:
    """What a file takes.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return Disk(0, 0)
    return disk_of_stat(found)


def disk_of_stat(found: os.stat_result) -> Disk:
    """As `disk_of`, by what the system says of a file."""
    taken = found.st_blocks * _SECTOR_BYTES
    kept = min(taken, _rounded(found.st_size, max(found.st_blksize, 4096)))
    return Disk(kept, found.st_size, taken - kept)


def files_below(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file below a directory; links are not followed.

    Raises:
        OSError: a directory cannot be listed.
    """
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from files_below(Path(entry.path))
                else:
                    yield entry.path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def disk_below(path: Path) -> Disk:
    """What all files below a directory take; one with several names there counts once.

    A file that has a name elsewhere, too, takes nothing here: it stays when this one goes.

    Raises:
        OSError: a directory cannot be listed.
    """
    names: dict[tuple[int, int], int] = {}
    taken = size = 0
    for _, found in files_below(path):
        key = found.st_dev, found.st_ino
        names[key] = names.get(key, 0) + 1
        if names[key] == found.st_nlink:
            one = disk_of_stat(found)
            taken, size = taken + one.bytes + one.ahead, size + one.size
    return Disk(taken, size)


def _rounded(size: int, block: int) -> int:
    return -(-size // block) * block


# ---- spaces --------------------------------------------------------------------------------------

_PROC: Final = Path("/proc")
_GONE: Final = " (deleted)"


def beside(home: Path, entries: Sequence[DirectoryEntry]) -> Iterator[Kept]:
    """What lies in a data directory beside its partitions, and its backups."""
    known = {entry.path for entry in entries if entry.kind is not EntryKind.UNKNOWN}
    for entry in entries:
        if entry.kind is EntryKind.CACHE:
            yield _whole(entry.path, "remote-index-cache")
    listed = list_data_directory(home)
    for each in listed.files:
        yield _whole(each.path, "metadata")
    partitions = {each.path for each in listed.partitions}
    for path in listed.foreign:
        if path not in known and path not in partitions:
            yield _whole(path, "foreign")
    yield from _backups(backup_root(home))


def _backups(root: Path) -> Iterator[Kept]:
    try:
        names = sorted(os.listdir(root))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield Kept(str(root), UNKNOWN, 0, 0, why=os_reason(error))
        return
    for name in names:
        yield _whole(root / name, "backup")


def _whole(path: Path, cause: str) -> Kept:
    try:
        disk = disk_below(path) if path.is_dir() and not path.is_symlink() else disk_of(path)
    except OSError as error:
        return Kept(str(path), UNKNOWN, 0, 0, why=os_reason(error))
    return Kept(str(path), cause, disk.bytes + disk.ahead, disk.size)


def open_deleted(homes: Sequence[Path], proc: Path = _PROC) -> tuple[list[Kept], list[str]]:
    """Deleted files of data directories that a process has open; and what could not be seen."""
    inside = tuple(f"{os.path.realpath(home)}{os.sep}" for home in homes)
    found: dict[tuple[int, int], Kept] = {}
    hidden = 0
    try:
        numbers = [name for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return [], ["which deleted files are still open cannot be told on this system"]
    for number in numbers:
        try:
            names = os.listdir(proc / number / "fd")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            hidden += 1
            continue
        for name in names:
            _note_deleted(proc / number / "fd" / name, number, inside, found)
    why = f"the open files of {hidden} processes cannot be seen: run it as their owner or as root"
    return list(found.values()), [why] if hidden else []


def _note_deleted(
    link: Path, process: str, inside: tuple[str, ...], found: dict[tuple[int, int], Kept]
) -> None:
    try:
        target = os.readlink(link)
        if not (target.endswith(_GONE) and target.startswith(inside)):
            return
        seen = os.stat(link)
    except OSError:
        return
    disk = disk_of_stat(seen)
    why = f"process {process} has it open: its room comes back when that closes it, or ends"
    path = target.removesuffix(_GONE)
    row = Kept(path, "open-deleted", disk.bytes + disk.ahead, disk.size, why=why)
    if not seen.st_nlink:
        found.setdefault((seen.st_dev, seen.st_ino), row)


def spaces_of(homes: Sequence[Path]) -> tuple[Space, ...]:
    """The file systems that directories lie on."""
    found: dict[int, list[Path]] = {}
    for home in homes:
        try:
            found.setdefault(os.stat(home).st_dev, []).append(home)
        except OSError:
            continue
    return tuple(_space(paths) for paths in found.values())


def _space(paths: Sequence[Path]) -> Space:
    disk = os.statvfs(paths[0])
    unit = disk.f_frsize
    reserved = max(disk.f_bfree - disk.f_bavail, 0) * unit
    names = tuple(str(path) for path in paths)
    return Space(names, disk.f_blocks * unit, disk.f_bavail * unit, reserved)


__all__ = [
    "Disk",
    "beside",
    "disk_below",
    "disk_of",
    "disk_of_stat",
    "files_below",
    "open_deleted",
    "spaces_of",
]
