"""The lock of a data directory: Kafka's `.lock`, taken as a broker takes it, or only queried.

A broker takes a POSIX record lock over the whole of `<data directory>/.lock` and keeps it until it
ends (Java's `FileChannel.tryLock`). `flock` does not see such locks; `fcntl` does.

Two traps shape this module. A process that closes *any* descriptor of a file drops *all* its POSIX
locks on it. So one registry keeps the descriptor that holds a directory, and every query goes
through it. And the kernel never reports a process's own locks, so the answer is about other
processes, also in a child after a fork, for which its parent is another.

Several logs of one directory share this process's lock; the last release deletes the file, as an
orderly shutdown of a broker does.

Source: Kafka `FileLock`, `LogManager.lockLogDirs`; fcntl(2).
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from os import fspath
from types import TracebackType

from kseg.constants import StrPath
from kseg.errors import LogLockedError
from kseg.files import io, ownership
from kseg.files.system_calls import conflicting_process

LOCK_NAME = ".lock"

_Inode = tuple[int, int]


@dataclass(slots=True)
class _Held:
    """A lock of this process: its descriptor, which stays open meanwhile, and its holders."""

    fd: int
    path: str
    process: int
    holders: int = 1


#: Locks of this process, keyed by file.
_held: dict[_Inode, _Held] = {}
_registry = threading.Lock()


def holder(data_directory: StrPath) -> int | None:
    """Ask which other process holds a data directory.

    It creates, writes and locks nothing. If other code of this process locked `.lock` without kseg,
    this call drops that lock.

    Returns:
        The holder's process id; 0 or below if the kernel hides it (another container); None if no
        other process holds the directory.

    Raises:
        OSError: there is a `.lock` that cannot be opened.
    """
    path = os.path.join(fspath(data_directory), LOCK_NAME)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    held = _held.get((status.st_dev, status.st_ino))
    if held is not None:
        return conflicting_process(held.fd)
    try:
        with io.opened(path) as fd:
            return conflicting_process(fd)
    except FileNotFoundError:  # an orderly shutdown deleted it just now
        return None


class DirectoryLock:
    """This process's part in the lock of a data directory, until `release` or the `with` ends."""

    __slots__ = ("_inode", "path")

    def __init__(self, path: str, inode: _Inode) -> None:
        """Hold one share of the lock; callers use `acquire`."""
        self.path = path
        self._inode: _Inode | None = inode

    def release(self) -> None:
        """Release the share; a second call does nothing. A forked child has no share."""
        inode, self._inode = self._inode, None
        if inode is None:
            return
        with _registry:
            held = _held.get(inode)
            if held is None:
                return
            held.holders -= 1
            if held.holders:
                return
            del _held[inode]
            if held.process == os.getpid():
                # Deleted while it is still locked: no process can lock a file that is about to go.
                with suppress(OSError):
                    io.unlink(held.path)
            io.close_written(held.fd)

    def __enter__(self) -> DirectoryLock:
        """Return the lock itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the lock."""
        self.release()


def acquire(data_directory: StrPath) -> DirectoryLock:
    """Take the lock of a data directory, or share this process's lock.

    Raises:
        LogLockedError: another process holds it.
        PermissionError: this process cannot make files with the owner of the others there.
        OSError: `.lock` cannot be made or opened.

    Source: Kafka `LogManager.lockLogDirs`.
    """
    path = os.path.join(fspath(data_directory), LOCK_NAME)
    with _registry:
        shared = _share(path)
        if shared is not None:
            return shared
        ownership.forget()
        io.check_new_files(data_directory)
        while True:
            file = io.WriteFile.open(path, create=True)
            try:
                fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                process = conflicting_process(file.fd)
                file.close()
                raise LogLockedError(
                    f"{who_holds(process)}: a running broker, or another kseg", path=path
                ) from None
            # Its holder may have deleted the file while we opened it.
            status = os.fstat(file.fd)
            inode = (status.st_dev, status.st_ino)
            with suppress(FileNotFoundError):
                if os.path.samestat(status, os.stat(path)):
                    _held[inode] = _Held(file.fd, path, os.getpid())
                    return DirectoryLock(path, inode)
            file.close()


def who_holds(process: int | None) -> str:
    """The answer of `holder` as the beginning of a sentence; None if the holder is unknown."""
    who = f"process {process}" if process is not None and process > 0 else "another process"
    return f"{who} holds the directory"


def _share(path: str) -> DirectoryLock | None:
    """One more user of a lock that this process has; None if it has none."""
    with suppress(FileNotFoundError, NotADirectoryError):
        status = os.stat(path)
        inode = (status.st_dev, status.st_ino)
        held = _held.get(inode)
        if held is not None and held.process == os.getpid():
            held.holders += 1
            return DirectoryLock(path, inode)
    return None
