"""The system call that takes blocks for bytes to come, which the `os` of Python lacks.

Source: fallocate(2), with FALLOC_FL_KEEP_SIZE.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h


def fallocate(fd: int, position: int, size: int) -> None:
    """Let an open file have its blocks from `position` on; neither bytes nor its size change.

    Args:
        fd: open for writing.
        position: of the first byte; may lie behind the end.
        size: how many bytes.

    Raises:
        OSError: the disk lacks the blocks, or the system or file system lacks the call.
    """
    number = _call()(fd, position, size)
    if number:
        raise OSError(number, os.strerror(number))


@cache
def _call() -> Callable[[int, int, int], int]:
    """The call of the C library; answers 0, or the number of an error."""
    if sys.platform != "linux":
        return _lacking
    import ctypes  # takes its time, and few processes need it

    libc = ctypes.CDLL(None, use_errno=True)
    # Of the two functions, the one with 64 bits everywhere.
    made = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if made is None:
        return _lacking
    made.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def call(fd: int, position: int, size: int) -> int:
        return ctypes.get_errno() if made(fd, _KEEP_SIZE, position, size) else 0

    return call


def _lacking(_fd: int, _position: int, _size: int) -> int:
    return errno.ENOSYS
