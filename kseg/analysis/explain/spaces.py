"""What takes room beside the partitions: small files, backups, deleted files that are open."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kseg.analysis.explain.causes import UNKNOWN
from kseg.analysis.explain.disk import disk_below, disk_of, disk_of_stat
from kseg.analysis.explain.values import Kept, Space
from kseg.errors import os_reason
from kseg.files.names import list_data_directory
from kseg.log.recovery import backup_root
from kseg.log.sub_directories import DirectoryEntry, EntryKind

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


__all__ = ["beside", "open_deleted", "spaces_of"]
