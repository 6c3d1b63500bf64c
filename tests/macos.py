"""A process that finds what Python has on macOS, and lacks what only Linux has.

`begin` is for a process of its own, before kseg is imported. Locks and flushes are translated for
the Linux below. Nothing here says how Darwin itself behaves: a Mac has to show that.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import sys
from typing import Any

#: Names that Python on macOS lacks; `pwritev` and `preadv` where it was built for macOS 10.
LACKING = {
    os: """O_DIRECT O_NOATIME O_PATH O_TMPFILE POSIX_FADV_DONTNEED copy_file_range eventfd
        fdatasync getrandom memfd_create pidfd_open posix_fadvise posix_fallocate preadv pwritev
        sched_getaffinity splice""",
    fcntl: "F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW",
    mmap: "MADV_HUGEPAGE MAP_POPULATE",
}
FULLFSYNC = 51
_OURS, _DARWINS = struct.Struct("@hhqqi0q"), struct.Struct("@qqihh")
#: How many flushes went to the disk itself.
flushed: list[int] = []
#: Whether the file system knows that flush; network ones do not.
knows_full_flush = True


def begin() -> None:
    """Become such a process."""
    import ctypes  # noqa: F401  # these ask for the system when they are loaded
    import importlib.metadata  # noqa: F401

    import click  # noqa: F401
    import numpy as np  # noqa: F401

    for module, names in LACKING.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    real = fcntl.fcntl
    fcntl.F_FULLFSYNC = FULLFSYNC  # type: ignore[attr-defined]
    fcntl.fcntl = lambda fd, command, argument=0: _fcntl(real, fd, command, argument)  # type: ignore[assignment]
    for name in ("open", "listdir", "stat", "readlink"):
        setattr(os, name, _without_proc(getattr(os, name)))
    sys.platform = "darwin"


def _fcntl(real: Any, fd: int, command: int, argument: Any) -> Any:
    if command == FULLFSYNC:
        if not knows_full_flush:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        flushed.append(fd)
        os.fsync(fd)
        return 0
    if command == fcntl.F_GETLK:
        start, length, process, kind, whence = _DARWINS.unpack(argument)
        answer = real(fd, command, _OURS.pack(kind, whence, start, length, process))
        kind, whence, start, length, process = _OURS.unpack(answer)
        return _DARWINS.pack(start, length, process, kind, whence)
    return real(fd, command, argument)


def _without_proc(call: Any) -> Any:
    def without(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        if not isinstance(path, int) and str(path).startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return call(path, *arguments, **options)

    return without
