"""A disk that does not give some bytes of a file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kseg.files import io


@contextmanager
def bad_sectors(path: Path, *ranges: tuple[int, int]) -> Iterator[None]:
    """Let reads of these bytes of a file answer EIO."""
    inode = path.stat().st_ino

    def pread(fd: int, size: int, position: int) -> bytes:
        if os.fstat(fd).st_ino == inode:
            for start, end in ranges:
                if position < end and start < position + size:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.pread(fd, size, position)

    with io.reads_replaced(pread):
        yield
