"""The room that files take on the disk, and deleted files that a process has open.

Bytes are the blocks of a file; a file that is removed meanwhile has none.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kseg.analysis.explain.values import GAPS, UNKNOWN, WHY, KeptFile
from kseg.errors import KsegError, text_of
from kseg.files.io import StrPath

#: The unit of `st_blocks`, independent of the file system's block size.
_SECTOR_BYTES: Final = 512
_BLOCK_BYTES: Final = 4096
_PROC: Final = Path("/proc")
_GONE: Final = " (deleted)"


@dataclass(frozen=True, slots=True)
class Disk:
    """The room of a file: bytes on the disk up to its end, its size, and bytes beyond its end."""

    bytes: int = 0
    size: int = 0
    ahead: int = 0

    @classmethod
    def of(cls, status: os.stat_result) -> Disk:
        """The room of a file, by its status."""
        taken = status.st_blocks * _SECTOR_BYTES
        used = min(taken, _rounded(status.st_size, max(status.st_blksize, _BLOCK_BYTES)))
        return cls(used, status.st_size, taken - used)

    def up_to(self, used: int) -> Disk:
        """The same, where only so much of the file is in use."""
        used_bytes = min(self.bytes, _rounded(used, _BLOCK_BYTES))
        return Disk(used_bytes, min(self.size, used), self.ahead + self.bytes - used_bytes)


def _rounded(size: int, block: int) -> int:
    return -(-size // block) * block


def disk_of(path: StrPath) -> Disk:
    """The room of a file.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        return Disk.of(os.lstat(path))
    except FileNotFoundError:
        return Disk()


def disk_below(path: Path) -> Disk:
    """The room of all files below a directory; a file with several names there counts once.

    A file with a name elsewhere, too, does not count: its bytes stay when this name goes.

    Raises:
        OSError: a directory cannot be listed.
    """
    names: Counter[tuple[int, int]] = Counter()
    taken = size = 0
    for status in _files_below(path):
        file = status.st_dev, status.st_ino
        names[file] += 1
        if names[file] == status.st_nlink:
            disk = Disk.of(status)
            taken, size = taken + disk.bytes + disk.ahead, size + disk.size
    return Disk(taken, size)


def _files_below(path: StrPath) -> Iterator[os.stat_result]:
    """The status of every file below a directory; links are not followed."""
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files_below(entry.path)
                else:
                    yield entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def whole(path: Path, cause: str) -> KeptFile:
    """A file, or a directory with all files below it, that one cause keeps."""
    try:
        disk = disk_below(path) if path.is_dir() and not path.is_symlink() else disk_of(path)
    except OSError as error:
        return unknown(path, error)
    return KeptFile(str(path), cause, disk.bytes + disk.ahead, disk.size)


def unknown(path: StrPath, error: KsegError | OSError) -> KeptFile:
    """A file or directory that cannot be read."""
    return KeptFile(str(path), UNKNOWN, 0, 0, why=text_of(error))


def open_deleted(homes: Sequence[Path], proc: Path = _PROC) -> tuple[list[KeptFile], list[str]]:
    """Deleted files of data directories that a process has open; and the gaps in this answer."""
    inside = tuple(f"{os.path.realpath(home)}{os.sep}" for home in homes)
    rows: dict[tuple[int, int], KeptFile] = {}
    hidden = 0
    try:
        processes = [name for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return [], [GAPS["no-processes"]]
    for process in processes:
        try:
            links = os.listdir(proc / process / "fd")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            hidden += 1
            continue
        for link in links:
            _note_deleted(proc / process / "fd" / link, process, inside, rows)
    return list(rows.values()), [GAPS["hidden"].format(count=hidden)] if hidden else []


def _note_deleted(
    link: Path, process: str, inside: tuple[str, ...], rows: dict[tuple[int, int], KeptFile]
) -> None:
    try:
        target = os.readlink(link)
        if not (target.endswith(_GONE) and target.startswith(inside)):
            return
        status = os.stat(link)
    except OSError:
        return
    disk, why = Disk.of(status), WHY["open-deleted"].format(process=process)
    path, taken = target.removesuffix(_GONE), disk.bytes + disk.ahead
    if not status.st_nlink:
        row = KeptFile(path, "open-deleted", taken, disk.size, why=why)
        rows.setdefault((status.st_dev, status.st_ino), row)
