"""How many bytes files take on a disk; a file that is gone meanwhile takes none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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


__all__ = ["Disk", "disk_below", "disk_of", "disk_of_stat", "files_below"]
