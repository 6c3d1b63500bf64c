"""A disk that is full to its last block: a real one where the machine lets it be made, and a shim.

The shim stands at the seam (`io.Calls`) and counts blocks: what takes one that is not there is
answered ENOSPC, as by the kernel without a path; what goes gives its blocks back. Names and
descriptors take none, folders one. It needs no rights and runs everywhere.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kseg.files import io

BLOCK_BYTES = 4096


class FullDisk:
    """The calls of the seam on a disk with so many free blocks.

    Attributes:
        calls: for `io.calls_replaced`.
        free: blocks that are left.
        refused: calls that found none.
    """

    def __init__(self, inner: io.Calls | None = None, *, free: int = 0) -> None:
        self.free = free
        self.refused = 0
        self._inner = inner or io.Calls()
        self._blocks: dict[int, set[int]] = {}
        mine = ("pwritev", "fallocate", "ftruncate", "rename", "unlink", "mkdir", "rmdir")
        self.calls = io.Calls(
            **{
                name: getattr(self, f"_{name}") if name in mine else getattr(self._inner, name)
                for name in io.Calls.__dataclass_fields__
            }
        )

    def _known(self, status: os.stat_result) -> set[int]:
        """Blocks of a file; one that was there before has those that the system counts."""
        count = -(-status.st_blocks * 512 // BLOCK_BYTES)
        return self._blocks.setdefault(status.st_ino, set(range(count)))

    def _take(self, fd: int, position: int, size: int) -> None:
        known = self._known(os.fstat(fd))
        new = set(range(position // BLOCK_BYTES, -(-(position + size) // BLOCK_BYTES))) - known
        self._spend(len(new))
        known |= new

    def _spend(self, count: int) -> None:
        if count > self.free:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free -= count

    def _pwritev(self, fd: int, parts: Sequence[io.Buffer], position: int) -> int:
        self._take(fd, position, sum(map(len, parts)))
        return self._inner.pwritev(fd, parts, position)

    def _fallocate(self, fd: int, position: int, size: int) -> None:
        self._take(fd, position, size)  # which is all that anybody sees of it

    def _ftruncate(self, fd: int, size: int) -> None:
        known = self._known(os.fstat(fd))
        self._inner.ftruncate(fd, size)
        kept = {block for block in known if block * BLOCK_BYTES < size}
        self.free += len(known) - len(kept)
        known &= kept

    def _rename(self, source: io.StrPath, target: io.StrPath) -> None:
        gone = self._of(target)
        self._inner.rename(source, target)
        self._give_back(gone)

    def _unlink(self, path: io.StrPath, *, dir_fd: int | None = None) -> None:
        gone = self._of(path, dir_fd)
        self._inner.unlink(path, dir_fd=dir_fd)
        self._give_back(gone)

    def _mkdir(self, path: io.StrPath, mode: int = 0o777) -> None:
        self._spend(1)
        self._inner.mkdir(path, mode)

    def _rmdir(self, path: io.StrPath, *, dir_fd: int | None = None) -> None:
        self._inner.rmdir(path, dir_fd=dir_fd)
        self.free += 1

    def _of(self, path: io.StrPath, dir_fd: int | None = None) -> os.stat_result | None:
        with suppress(FileNotFoundError):
            return os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        return None

    def _give_back(self, gone: os.stat_result | None) -> None:
        if gone is not None and gone.st_nlink == 1:
            self.free += len(self._known(gone))
            del self._blocks[gone.st_ino]


@contextmanager
def full(*, free: int = 0) -> Iterator[FullDisk]:
    """Let everything happen on a full disk, on top of what stands at the seam already."""
    disk = FullDisk(io._calls, free=free)
    with io.calls_replaced(disk.calls):
        yield disk


# ---- a real one ----------------------------------------------------------------------------------


def mounted(place: Path, *, size: int = 2**24) -> Path | None:
    """A small ext4 of its own, mounted; None where this process may not. `unmount` it."""
    if not shutil.which("mkfs.ext4") or os.geteuid():
        return None
    image, directory = place / "disk.img", place / "disk"
    directory.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    for words in (("mkfs.ext4", "-qF", image), ("mount", "-o", "loop", image, directory)):
        if subprocess.run(words, capture_output=True, check=False).returncode:
            return None
    return directory


def unmount(directory: Path) -> None:
    subprocess.run(("umount", directory), check=True)


def fill(directory: Path) -> None:
    """Take every block that is left."""
    with tempfile.NamedTemporaryFile(dir=directory, prefix="fill", delete=False) as file:
        for size in (2**20, 2**12, 1):
            with suppress(OSError):
                while True:
                    _write(file.fileno(), bytes(size))


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def unfilled(directory: Path) -> None:
    for path in directory.glob("fill*"):
        path.unlink()
