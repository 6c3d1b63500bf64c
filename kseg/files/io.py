"""The seam to the disk: descriptors, positions, bytes, and nothing else.

Every call that must be seen by a fault test passes here, so nothing above opens a file by itself.
It knows no format. Calls interrupted by a signal go on by themselves (PEP 475); short reads, which
the kernel may answer at any time, are completed here.
"""

from __future__ import annotations

import errno
import os
import stat
from os import PathLike, fspath

from kseg.errors import LimitExceededError

#: One read call moves no more than this, as Linux itself has it (0x7ffff000 bytes).
_READ_BYTES_MAX = 0x7FFFF000


def open_read(path: str | PathLike[str]) -> int:
    """Open a regular file for reading; answers a descriptor that no child process inherits.

    A pipe or a device is refused rather than waited for.

    Raises:
        OSError: missing, no permission, a directory, or anything else but a regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", fspath(path))
    except OSError:
        os.close(fd)
        raise
    return fd


def file_size(fd: int) -> int:
    """Bytes that the open file has now."""
    return os.fstat(fd).st_size


def read_at(fd: int, position: int, size: int) -> bytes:
    """Read `size` bytes from `position`, fewer only where the file ends.

    The caller takes `size` from the file's length, never from what the file says.
    """
    data = os.pread(fd, min(size, _READ_BYTES_MAX), position)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing:
        data = os.pread(fd, min(missing, _READ_BYTES_MAX), position + size - missing)
        if not data:
            break
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def read_file(path: str | PathLike[str], *, bytes_max: int) -> bytes:
    """Read a small file whole.

    Raises:
        LimitExceededError: it has more than `bytes_max` bytes; nothing was read.
        OSError: as `open_read`.
    """
    fd = open_read(path)
    try:
        size = file_size(fd)
        if size > bytes_max:
            raise LimitExceededError(
                f"the file has {size} bytes; no file of its kind has more than {bytes_max}",
                path=path,
            )
        return read_at(fd, 0, size)
    finally:
        os.close(fd)
