"""The owner, group and permissions of new files and directories: those of the files around them.

A process of another user, such as root, that puts files beside those of a broker must leave files
that the broker can write. So a new file in a directory gets the owner, group and permissions of a
log of the partition, else of another file of Kafka's there, else of the files of the data directory
and its partitions. If Kafka has no file there at all, it belongs to the directory's owner, if this
process may give it away, and is readable by all, as far as the process's mask allows.

This module only looks up; `io` applies the answer to new files. An answer is kept until the next
lock of a data directory is taken, for as long as the directory itself is the same: a log that rolls
asks for one status.

Source: nothing of Kafka's, which always runs as one user.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike, fspath
from typing import Final, NamedTuple

from kseg.errors import NotALogError
from kseg.files.grammar import FileKind, parse_partition_dir

#: Files that are models besides logs, the best first. Not `.lock`, which comes and goes.
_MODELS: Final = tuple(
    kind.value
    for kind in (
        *(FileKind.META_PROPERTIES, FileKind.PARTITION_METADATA, FileKind.LEADER_EPOCHS),
        *(FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION, FileKind.CLEANER),
        *(FileKind.BOOTSTRAP, FileKind.CLEAN_SHUTDOWN, FileKind.QUORUM_STATE),
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
        exact: they come from a file or directory of the same kind, and must be met. Otherwise the
            owner is given if possible, and the process's mask applies.
    """

    uid: int
    gid: int
    mode: int
    exact: bool = True

    @classmethod
    def of(cls, status: os.stat_result) -> Look:
        """The look of an existing file or directory."""
        return cls(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))

    def is_usual_in(self, directory: str | PathLike[str]) -> bool:
        """Whether this process's files there have this owner and group anyway."""
        if self.uid != os.geteuid():
            return False
        around = os.stat(directory)
        inherits = bool(around.st_mode & stat.S_ISGID) or sys.platform == "darwin"
        return self.gid == (around.st_gid if inherits else os.getegid())


#: By path, what identifies the directory there, and its look.
_known: dict[tuple[str | int, ...], Look] = {}


def forget() -> None:
    """Drop all answers that are kept."""
    _known.clear()


def of_files(directory: str | PathLike[str]) -> Look:
    """The look of a new file in a directory.

    Raises:
        OSError: the directory is missing, or cannot be listed.
    """
    place = fspath(directory) or "."
    around = os.stat(place)
    key = (place, around.st_dev, around.st_ino, around.st_uid, around.st_gid, around.st_mode)
    look = _known.get(key)
    if look is None:
        model = _model_for(place, around)
        if model is None:
            return Look(around.st_uid, around.st_gid, 0o644, exact=False)
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        look = _known[key] = Look.of(model)
    return look


def of_directories(directory: str | PathLike[str]) -> Look:
    """The look of a new directory in a directory: like a partition there, else like the directory.

    Raises:
        OSError: the directory is missing, or cannot be listed.
    """
    place = fspath(directory) or "."
    around = os.stat(place)
    if not around.st_mode & stat.S_ISVTX:
        for partition in _partitions(place):
            return Look.of(os.stat(partition))
    return Look(around.st_uid, around.st_gid, 0o755, exact=False)


def _model_for(place: str, around: os.stat_result) -> os.stat_result | None:
    """The status of the file that new ones are made like; None if there is none."""
    if around.st_mode & stat.S_ISVTX:
        return None  # shared by users, each with files of their own
    model = _model_in(place)
    if model is not None:
        return model
    home = os.path.dirname(os.path.realpath(place)) if _is_partition(place) else place
    if os.stat(home).st_mode & stat.S_ISVTX:
        return None
    model = _model_in(home)
    for partition in () if model is not None else _partitions(home):
        with suppress(PermissionError, FileNotFoundError):
            model = _model_in(partition)
        if model is not None:
            break
    return model


def _model_in(place: str) -> os.stat_result | None:
    """The status of the first log in a directory, or of another file of Kafka's there."""
    with os.scandir(place) as entries:
        ranked = [rank for entry in entries if (rank := _rank(entry.name)) is not None]
    for _place, name in sorted(ranked):
        with suppress(FileNotFoundError):
            status = os.lstat(os.path.join(place, name))
            if stat.S_ISREG(status.st_mode):
                return status
    return None


def _rank(name: str) -> tuple[int, str] | None:
    """The rank of a file as a model, lower first; None if it is none."""
    if _LOG.fullmatch(name):
        return -1, name
    return (_MODELS.index(name), name) if name in _MODELS else None


def _partitions(home: str) -> Iterator[str]:
    """The partition directories in a directory, by name."""
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


__all__ = ["Look", "forget", "of_directories", "of_files"]
