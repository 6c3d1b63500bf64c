"""The owner, group and permissions of new files and directories: those of the files around them.

A process of another user, such as root, that puts files beside those of a broker must leave files
that the broker can write. So a new file in a directory gets the owner, group and permissions of a
log of the partition, else of another file of Kafka's there, else of the files of the data directory
and its partitions. If Kafka has no file there at all, it belongs to the directory's owner, if this
process may give it away, and is readable by all, as far as the process's mask allows.

Copies of a log in another place (`of_copied_file`) get the owner, group and permissions of the log.
Files that belong to this user alone (`private`) are readable by no other user.

This module only looks up; `io` applies the answer to new files. An answer is kept until the next
lock of a data directory is taken, for as long as the directory itself is the same: a log that rolls
asks for one status.

Source: no Kafka class; Kafka always runs as one user.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from os import fspath
from typing import Final, NamedTuple

from kseg.constants import StrPath
from kseg.errors import NotALogError
from kseg.files.grammar import FileKind, parse_partition_dir

#: Files that are models besides logs, the best first. Not `.lock`, which is made and removed.
_MODELS: Final = tuple(
    kind.value
    for kind in (
        FileKind.META_PROPERTIES,
        FileKind.PARTITION_METADATA,
        FileKind.LEADER_EPOCHS,
        FileKind.RECOVERY_POINT,
        FileKind.LOG_START,
        FileKind.REPLICATION,
        FileKind.CLEANER,
        FileKind.BOOTSTRAP,
        FileKind.CLEAN_SHUTDOWN,
        FileKind.QUORUM_STATE,
    )
)
_LOG: Final = re.compile(rf"[0-9]{{20}}\.({FileKind.LOG.value}|{FileKind.KAFKA07.value})")
#: Directories that are kept in mind.
_KNOWN_MAX: Final = 4096


class Look(NamedTuple):
    """The owner, group and permissions of a new file or directory.

    Attributes:
        uid, gid: its owner and group.
        mode: its permissions.
        exact: the permissions come from a file or directory of the same kind, and must be met.
            Otherwise the process's mask applies.
        must_own: it is an error if the file cannot be given to the owner. Otherwise root tries.
    """

    uid: int
    gid: int
    mode: int
    exact: bool = True
    must_own: bool = True

    @classmethod
    def of(cls, status: os.stat_result) -> Look:
        """The owner, group and permissions of an existing file or directory."""
        return cls(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))

    def is_usual_in(self, directory: StrPath) -> bool:
        """Whether this process's files there have this owner and group anyway."""
        if self.uid != os.geteuid():
            return False
        around = os.stat(directory)
        inherits = bool(around.st_mode & stat.S_ISGID) or sys.platform == "darwin"
        return self.gid == (around.st_gid if inherits else os.getegid())


#: Whether this thread makes files that only this user can read.
_private: ContextVar[bool] = ContextVar("_private", default=False)
#: Path of a directory -> its identity, and its owner, group and permissions.
_looks: dict[tuple[str | int, ...], Look] = {}


def forget() -> None:
    """Drop all cached answers."""
    _looks.clear()


def of_files(directory: StrPath) -> Look:
    """Owner, group and permissions for a new file in a directory.

    Raises:
        OSError: the directory is missing, or cannot be listed.
    """
    path = fspath(directory) or "."
    around = os.stat(path)
    if _private.get():
        return Look(os.geteuid(), os.getegid(), 0o600)
    key = (path, around.st_dev, around.st_ino, around.st_uid, around.st_gid, around.st_mode)
    look = _looks.get(key)
    if look is None:
        model = _model_for(path, around)
        if model is None:
            return Look(around.st_uid, around.st_gid, 0o644, exact=False, must_own=False)
        if len(_looks) >= _KNOWN_MAX:
            _looks.clear()
        look = _looks[key] = Look.of(model)
    return look


def of_directories(directory: StrPath) -> Look:
    """Owner and permissions for a new directory: a partition's there, else the directory's.

    Raises:
        OSError: the directory is missing, or cannot be listed.
    """
    path = fspath(directory) or "."
    around = os.stat(path)
    if _private.get():
        return Look(os.geteuid(), os.getegid(), 0o700)
    if not around.st_mode & stat.S_ISVTX:
        for partition in _partitions(path):
            return Look.of(os.stat(partition))
    return Look(around.st_uid, around.st_gid, 0o755, exact=False, must_own=False)


@contextmanager
def private() -> Iterator[None]:
    """Make new files and directories of this thread readable only by this user."""
    token = _private.set(True)
    try:
        yield
    finally:
        _private.reset(token)


def of_copied_file(source: StrPath) -> Look:
    """The look of a new file elsewhere that holds the records of a log.

    If root makes it, it gets the owner, group and permissions of the source, if the file system
    lets root give files away. Otherwise it belongs to this user, and its permissions are never
    wider than those of the source.

    Args:
        source: the log, or its partition directory.

    Raises:
        OSError: it is missing, or cannot be listed.
    """
    return _look_of_copy(_look_at(source), 0o600)


def owner_of(source: StrPath) -> tuple[int, int]:
    """User and group of a log, or of the logs of a partition directory."""
    look = _look_at(source)
    return look.uid, look.gid


def _look_at(source: StrPath) -> Look:
    """Owner and permissions of a log, or of the logs of a partition directory."""
    status = os.stat(source)
    return of_files(source) if stat.S_ISDIR(status.st_mode) else Look.of(status)


def of_copied_directory(source: StrPath) -> Look:
    """The owner and permissions of a new directory for such files: as `of_copied_file`.

    Args:
        source: the partition or data directory, or a log in it.

    Raises:
        OSError: it is missing.
    """
    status = os.stat(source)
    if not stat.S_ISDIR(status.st_mode):
        status = os.stat(os.path.dirname(source) or ".")
    return _look_of_copy(Look.of(status), 0o700)


def _look_of_copy(look: Look, needed: int) -> Look:
    """Owner and permissions of a copy: the source's for root, else this user's.

    Args:
        look: owner and permissions of the source.
        needed: permissions that this user's copy has in any case.
    """
    if os.geteuid() == 0:
        return look._replace(must_own=False)
    mode = look.mode & 0o777 | needed
    return Look(os.geteuid(), os.getegid(), mode, exact=False, must_own=False)


def check_safe(path: StrPath) -> None:
    """Refuse a directory in which another user could change what this process writes.

    It has to belong to this user or to root, and others may not write to it. The directory around
    it may be writable for all if it is sticky, as /tmp is. A missing directory is safe if the one
    around it is.

    Raises:
        NotADirectoryError: it is a file or a link.
        PermissionError: it is not safe.
    """
    directory = os.path.abspath(path)
    with suppress(FileNotFoundError):
        around = os.stat(os.path.dirname(directory))
        if around.st_mode & stat.S_IWOTH and not around.st_mode & stat.S_ISVTX:
            parent = os.path.dirname(directory)
            why = f"any user may replace what lies in {parent}, which is not sticky"
            raise _unsafe_error(why, directory)
    try:
        status = os.lstat(directory)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "not a directory", directory)
    if status.st_uid not in (0, os.geteuid()):
        raise _unsafe_error(f"it belongs to user {status.st_uid}", directory)
    if status.st_mode & 0o022:
        raise _unsafe_error(f"its permissions are {stat.S_IMODE(status.st_mode):04o}", directory)


def _unsafe_error(why: str, path: str) -> PermissionError:
    return PermissionError(
        errno.EPERM,
        f"another user could change files here: {why}; nothing was written, name another place ",
        path,
    )


def _model_for(directory: str, around: os.stat_result) -> os.stat_result | None:
    """The status of the file whose owner new files get; None if there is none."""
    if around.st_mode & stat.S_ISVTX:
        return None  # shared by users, each with files of their own
    model = _model_in(directory)
    if model is not None:
        return model
    home = os.path.dirname(os.path.realpath(directory)) if _is_partition(directory) else directory
    if os.stat(home).st_mode & stat.S_ISVTX:
        return None
    model = _model_in(home)
    for partition in () if model is not None else _partitions(home):
        with suppress(PermissionError, FileNotFoundError):
            model = _model_in(partition)
        if model is not None:
            break
    return model


def _model_in(directory: str) -> os.stat_result | None:
    """The status of the oldest log file in a directory, else of another file of Kafka's there."""
    names = os.listdir(directory)
    logs = sorted(filter(_LOG.fullmatch, names))  # logs before other files, the oldest first
    for name in (*logs, *(model for model in _MODELS if model in names)):
        with suppress(FileNotFoundError):
            status = os.lstat(os.path.join(directory, name))
            if stat.S_ISREG(status.st_mode):
                return status
    return None


def _partitions(home: str) -> Iterator[str]:
    """The partition directories in a directory, sorted by name."""
    with os.scandir(home) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in sorted(names):
        if _is_partition(name):
            yield os.path.join(home, name)


def _is_partition(path: str) -> bool:
    try:
        parse_partition_dir(os.path.basename(os.path.realpath(path)))
    except NotALogError:
        return False
    return True
