"""Who holds a data directory: Kafka's `.lock`, asked about without touching it.

A broker takes a POSIX record lock over the whole of `<data directory>/.lock` and keeps it for as
long as it lives (Java's `FileChannel.tryLock`). `flock` knows nothing of such locks; `fcntl` does.

    F_GETLK, Linux                 macOS
    int16  l_type                  int64  l_start
    int16  l_whence                int64  l_len
    int64  l_start                 int32  l_pid
    int64  l_len                   int16  l_type
    int32  l_pid                   int16  l_whence

Two traps shape this module. A process that closes *any* descriptor of a file drops *all* its POSIX
locks on it, so a directory that this process holds is asked through the descriptor that holds it,
and that descriptor is found in one registry. And the kernel never reports a process's own locks, so
the answer is about others, also in a child after a fork, for which its parent is another.

Source: Kafka `FileLock`, `LogManager.lockLogDirs`; fcntl(2).
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from os import PathLike, fspath

from kseg.files import io

LOCK_NAME = ".lock"

_Inode = tuple[int, int]

#: Descriptors through which this process holds locks; never closed while they are in here.
_held: dict[_Inode, int] = {}


def holder(data_directory: str | PathLike[str]) -> int | None:
    """Ask which other process holds a data directory.

    Nothing is created, written or locked. Code of this process that locked `.lock` by itself, not
    through kseg, would lose its lock.

    Returns:
        The holder's process id; 0 or below where the kernel does not tell it (another container);
        None if no other process holds the directory.

    Raises:
        OSError: there is a `.lock` that cannot be opened, so nobody knows.
    """
    path = os.path.join(fspath(data_directory), LOCK_NAME)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    held = _held.get((status.st_dev, status.st_ino))
    if held is not None:
        return _conflicting_process(held)
    try:
        fd = io.open_read(path)
    except FileNotFoundError:  # an orderly shutdown deleted it just now
        return None
    try:
        return _conflicting_process(fd)
    finally:
        os.close(fd)


def _conflicting_process(fd: int) -> int | None:
    """The process whose lock would refuse us a lock over the whole file."""
    answer = fcntl.fcntl(fd, fcntl.F_GETLK, _pack(fcntl.F_WRLCK))
    kind, process = _unpack(answer)
    return None if kind == fcntl.F_UNLCK else process


if sys.platform == "darwin":

    def _pack(kind: int) -> bytes:
        return struct.pack("@qqihh", 0, 0, 0, kind, os.SEEK_SET)

    def _unpack(answer: bytes) -> tuple[int, int]:
        _start, _length, process, kind, _whence = struct.unpack("@qqihh", answer)
        return kind, process

else:

    def _pack(kind: int) -> bytes:
        return struct.pack("@hhqqi0q", kind, os.SEEK_SET, 0, 0, 0)

    def _unpack(answer: bytes) -> tuple[int, int]:
        kind, _whence, _start, _length, process = struct.unpack("@hhqqi0q", answer)
        return kind, process
