"""System calls that the `os` of Python lacks: record locks, and blocks for bytes to come.

Record locks of fcntl(2) are queried for a process, and taken for an open file.

A broker's lock on `.lock` belongs to its process. The other kind, the open file description lock,
says that a file is mapped: it belongs to one opening, a map with its own descriptor keeps it alive,
a child after a fork shares it, and it ends with the last of them. A map holds it shared over the
mapped bytes; a writer that shortens the file asks for it exclusively over the bytes that go.
Neither waits.

    struct flock, Linux            macOS
    int16  l_type                  int64  l_start
    int16  l_whence                int64  l_len
    int64  l_start                 int32  l_pid
    int64  l_len                   int16  l_type
    int32  l_pid                   int16  l_whence

Source: fcntl(2), `F_GETLK` and `F_OFD_SETLK`; fallocate(2), with FALLOC_FL_KEEP_SIZE.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

if sys.platform == "darwin":
    _FLOCK: Final = struct.Struct("@qqihh")

    def _pack(kind: int, start: int = 0, size: int = 0) -> bytes:
        return _FLOCK.pack(start, size, 0, kind, os.SEEK_SET)

    def _unpack(answer: bytes) -> tuple[int, int]:
        _start, _length, process, kind, _whence = _FLOCK.unpack(answer)
        return kind, process

else:
    _FLOCK: Final = struct.Struct("@hhqqi0q")

    def _pack(kind: int, start: int = 0, size: int = 0) -> bytes:
        return _FLOCK.pack(kind, os.SEEK_SET, start, size, 0)

    def _unpack(answer: bytes) -> tuple[int, int]:
        kind, _whence, _start, _length, process = _FLOCK.unpack(answer)
        return kind, process


def conflicting_process(fd: int) -> int | None:
    """The process whose lock would refuse us a lock over the whole file; None if there is none."""
    answer = fcntl.fcntl(fd, fcntl.F_GETLK, _pack(fcntl.F_WRLCK))
    kind, process = _unpack(answer)
    return None if kind == fcntl.F_UNLCK else process


# ---- locks of an open file description -----------------------------------------------------------


def share(fd: int, size: int) -> None:
    """Lock the first `size` bytes of an open file, shared, which says that they are mapped.

    Raises:
        BlockingIOError: another process is about to cut some of them off.
        OSError: the system, or the file system, lacks such locks.
    """
    _set(fd, fcntl.F_RDLCK, 0, size)


def exclude(fd: int, position: int) -> None:
    """Lock the bytes from `position` on, so that no other process maps them, until `release`.

    It is an exclusive lock of an open file description; `fd` must be open for writing.

    Raises:
        BlockingIOError: some of them are mapped.
        OSError: the system, or the file system, lacks such locks.
    """
    _set(fd, fcntl.F_WRLCK, position, 0)


def release(fd: int) -> None:
    """Release the locks of this opening of the file."""
    _set(fd, fcntl.F_UNLCK, 0, 0)


#: The line of the kernel's `fdinfo` for an opening that holds such a lock.
OPEN_FILE_LOCK: Final = b"OFDLCK"


def is_shared(fd: int, position: int) -> bool:
    """Whether bytes from `position` on are mapped, as far as the system knows."""
    if not hasattr(fcntl, "F_OFD_GETLK"):
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _pack(fcntl.F_WRLCK, position))
    except OSError:
        return False
    return _unpack(answer)[0] != fcntl.F_UNLCK


def _set(fd: int, kind: int, start: int, size: int) -> None:
    """Set a lock on `size` bytes, 0 for all bytes from `start` on; raises instead of waiting."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _pack(kind, start, size))


# ---- blocks ahead --------------------------------------------------------------------------------


_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h


def fallocate(fd: int, position: int, size: int) -> None:
    """Let an open file have its blocks from `position` on; neither bytes nor its size change.

    Args:
        fd: the file, open for writing.
        position: the first byte; may be beyond the end.
        size: the number of bytes.

    Raises:
        OSError: the disk lacks the blocks, or the system or file system lacks the call.
    """
    number = _fallocate_of_libc()(fd, position, size)
    if number:
        raise OSError(number, os.strerror(number))


@cache
def _fallocate_of_libc() -> Callable[[int, int, int], int]:
    """The function of the C library; it returns 0, or the number of an error."""
    if sys.platform != "linux":
        return _lacking
    import ctypes  # imported late: it is slow, and few processes need it

    libc = ctypes.CDLL(None, use_errno=True)
    # `fallocate64` has 64-bit offsets everywhere, `fallocate` on 64-bit systems.
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        return _lacking
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def call(fd: int, position: int, size: int) -> int:
        return ctypes.get_errno() if fallocate(fd, _KEEP_SIZE, position, size) else 0

    return call


def _lacking(_fd: int, _position: int, _size: int) -> int:
    return errno.ENOSYS
