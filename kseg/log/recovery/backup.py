"""The backup of a repair: the bytes that it takes out of a log, beside the data directory.

    <data directory>.kseg-backup/<time>/<partition>/
        <file>                      as it was: replaced or removed in the log since
        <file>.from-<position>      the bytes that were cut off, from that position on

A file that is replaced or removed gets a second name here. It is copied only if the file system has
no hard links. A file that is removed for good is moved. The end of a file that is cut is copied,
and the copy is durable before the cut. A file that is written in place is never linked, since its
second name would show the new bytes.

A backup never lies inside the data directory: a broker does not start with an unknown folder there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kseg.constants import StrPath
from kseg.documents import frozen_dataclass
from kseg.files import io
from kseg.files.whole_file import (
    refuse_in_data_directory,
)

_SUFFIX: Final = ".kseg-backup"
#: Bytes of a file that are read at once.
WINDOW_BYTES: Final = 2**20
#: The most files of one name that are kept; a backup with more is never cleared up.
_NAMES_MAX: Final = 1_000
#: The errors of a file system without hard links, or of links across file systems.
_NO_LINKS: Final = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)
)
#: The way out on a full disk, for a repair that can do without a backup.
_OTHERWISE: Final = "keep them elsewhere (--backup-dir), or not at all (--no-backup)"
#: Blocks for names and for the rounding of sizes; the repair's own files come on top.
_ROOM_BYTES: Final = 2**20
#: Room for names, needed even if nothing is copied.
_NAMES_BYTES: Final = 2**16
_CALENDAR_END_MS: Final = 253_402_300_800_000


@frozen_dataclass
class Kept:
    """A file in a backup.

    Attributes:
        path: the file in the log.
        kept: the file in the backup.
        size: its bytes.
    """

    path: Path
    kept: Path
    size: int

    @property
    def backup(self) -> Path:
        """The directory of the backup, which has a folder for each partition."""
        return self.kept.parent.parent


class Backup:
    """The backup of one repair of one data directory. Not for several threads at once.

    No folder is made before the first file. Each file is lasting when a method returns.

    Attributes:
        directory: the place: one folder in it for each partition.
        kept: its files, in the order in which they came.
    """

    __slots__ = ("_made", "_otherwise", "directory", "kept")

    def __init__(
        self,
        data_directory: StrPath,
        directory: StrPath | None = None,
        *,
        now_ms: int,
        otherwise: str = _OTHERWISE,
    ) -> None:
        """Choose the directory of the backup.

        Args:
            data_directory: the directory with the partitions.
            directory: the place of backups; if None, a folder named after the time, in a sibling of
                the data directory.
            now_ms: the time.
            otherwise: says in the error of a full disk what to do instead.

        Raises:
            ValueError: the backup would be in a data directory.
            OSError: the sibling is a symbolic link.
        """
        self.directory: Final = (
            default_place(data_directory, now_ms) if directory is None else Path(directory)
        )
        if directory is not None:
            refuse_in_data_directory(directory, (Path(os.path.realpath(data_directory)),))
        else:
            _refuse_link(self.directory.parent)
            _refuse_link(self.directory)
        self.kept: list[Kept] = []
        self._otherwise: Final = otherwise
        self._made: set[Path] = set()

    def check_room(self, size: int) -> None:
        """Refuse, before anything is changed, if the disk lacks room for bytes or for names.

        Args:
            size: bytes that will be copied, or that stay while new files replace theirs; 0 if
                files only get second names.

        Raises:
            OSError: the disk is full.
        """
        directory = _existing(self.directory)
        status = os.statvfs(directory)
        free = status.f_bavail * status.f_frsize
        needed = size + _ROOM_BYTES if size else _NAMES_BYTES
        if (size and needed > free) or not io.has_room(directory, needed):
            what = f"{size} bytes" if size else "files"
            raise OSError(
                errno.ENOSPC,
                f"no room to back up {what}, {free} are free: nothing was changed; "
                + self._otherwise,
                str(directory),
            )

    def keep_tail(self, path: StrPath, position: int) -> Kept | None:
        """Copy a file's bytes from `position` on.

        Nothing is kept if they are all zeros, as after preallocated logs.

        Returns:
            The copy; None if there was nothing to keep.

        Raises:
            OSError: the disk refuses; the file is as it was.
        """
        source = Path(path)
        with io.opened(source) as fd:
            end = io.file_size(fd)
            span = (position, end)
            if not any(window.strip(b"\0") for window in windows(source, fd, span)):
                return None
            with self._in_room(source, end - position):
                target = self._folder_of(source) / f"{source.name}.from-{position}"
                copy = _copy(source, fd, span, target)
        return self._note(source, copy, end - position)

    def keep_file(self, path: StrPath) -> Kept | None:
        """Back up a file by a second name. It may be replaced or removed then, but not written to.

        Returns:
            The path of the kept file; None if the file does not exist.

        Raises:
            OSError: the disk refuses; the file is as it was.
        """
        source = Path(path)
        try:
            status = os.stat(source)
        except FileNotFoundError:
            return None
        with self._in_room(source, status.st_size):
            return self._note(source, self._second_name(source, status), status.st_size)

    def _second_name(self, source: Path, status: os.stat_result) -> Path:
        """Link a file into the backup, or copy it if that is on another file system."""
        folder = self._folder_of(source)
        for name in _free_names(source.name):
            target = folder / name
            try:
                io.link(source, target)
            except FileExistsError:
                if os.path.samestat(os.stat(target), status):
                    return target
                continue
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                with io.opened(source) as fd:
                    target = _copy(source, fd, (0, io.file_size(fd)), target)
            io.flush_directory(folder)
            return target
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder / source.name))

    def move_file(self, path: StrPath) -> Kept | None:
        """Move a file to the backup; lasting once its directory in the log is flushed.

        Returns:
            The path of the kept file; None if the file does not exist.

        Raises:
            OSError: the disk refuses; the file is where it was, or in both places.
        """
        entry = self.keep_file(path)
        if entry is not None:
            io.unlink(path)
        return entry

    @contextmanager
    def _in_room(self, source: Path, size: int) -> Iterator[None]:
        """Add advice to the error of a disk too full to back up so many bytes of a file."""
        try:
            yield
        except OSError as error:
            if not io.is_full(error):
                raise
            raise OSError(
                error.errno,
                f"no room to back up {size} bytes, so the file stays as it is: " + self._otherwise,
                os.fspath(source),
            ) from error

    # ---- places ----------------------------------------------------------------------------------

    def _folder_of(self, path: Path) -> Path:
        """The folder of the backup for a partition's files; made if it is missing."""
        origin = path.parent.resolve()
        folder = self.directory / origin.name
        if folder not in self._made:
            _refuse_link(folder)
            io.make_directories(folder, like=os.stat(origin))
            self._made.add(folder)
        return folder

    def _note(self, path: Path, copy: Path, size: int) -> Kept:
        entry = Kept(path, copy, size)
        self.kept.append(entry)
        return entry


def kept_bytes(entries: Iterable[Kept]) -> int:
    """Bytes that the disk gets back when the backup is removed; shared files are not counted."""
    return sum(map(io.bytes_given_back, {entry.kept for entry in entries}))


def default_place(data_directory: StrPath, now_ms: int) -> Path:
    """`<data directory>.kseg-backup/<time>`, the time in UTC as `20251009T085320.000Z`."""
    name = f"{now_ms}"  # the clock gives a time that no calendar reaches
    if 0 <= now_ms < _CALENDAR_END_MS:
        moment = datetime.fromtimestamp(now_ms // 1000, UTC)
        name = f"{moment:%Y%m%dT%H%M%S}.{now_ms % 1000:03d}Z"
    return backup_root(data_directory) / name


def backup_root(data_directory: StrPath) -> Path:
    """`<data directory>.kseg-backup`, the usual directory of backups."""
    home = Path(data_directory).resolve()
    return home.with_name((home.name or "root") + _SUFFIX)


def other_file_system(data_directory: StrPath) -> Path | None:
    """The directory of backups if it is not on the data's file system; None if it is.

    That is the case if the data directory is a mount point.
    """
    root = backup_root(data_directory)
    return None if os.stat(_existing(root)).st_dev == os.stat(data_directory).st_dev else root


def _existing(directory: Path) -> Path:
    """The directory, or its nearest parent that exists."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    return directory


def _refuse_link(path: Path) -> None:
    """Refuse a link: another user may have chosen its target, to read or change files there."""
    if path.is_symlink():
        raise OSError(
            errno.ELOOP,
            "a symbolic link, which is not followed: nothing was changed; name the place itself "
            "(--backup-dir)",
            str(path),
        )


def _free_names(name: str) -> Iterator[str]:
    """The name, then others in case it is taken."""
    yield name
    for number in range(2, _NAMES_MAX):
        yield f"{name}.{number}"


def windows(path: StrPath, fd: int, span: tuple[int, int]) -> Iterator[bytes]:
    """The bytes of an open file from one position to another, `WINDOW_BYTES` at a time."""
    start, end = span
    for position in range(start, end, WINDOW_BYTES):
        yield io.read_at(fd, position, min(WINDOW_BYTES, end - position), path)


def copy_bytes(path: StrPath, fd: int, span: tuple[int, int], target: io.WriteFile) -> None:
    """Write the bytes of an open file, from one position to another, into a new one.

    Zeros become holes: a broker makes indexes of 10 MiB that have few entries.
    """
    for number, window in enumerate(windows(path, fd, span)):
        if data := window.rstrip(b"\0"):
            target.write_at(number * WINDOW_BYTES, data)
    target.truncate(span[1] - span[0])


def _copy(source: Path, fd: int, span: tuple[int, int], target: Path) -> Path:
    """Copy bytes of an open file to a new file with its owner; durable, or absent.

    Args:
        source, fd: the path of the file, and the open file.
        span: the positions of the first byte and after the last one.
        target: the new file, if its name is free.
    """
    status = os.fstat(fd)
    for path in map(target.with_name, _free_names(target.name)):
        try:
            file = io.WriteFile.open(path, exclusive=True, like=status)
        except FileExistsError:
            if _has_bytes(path, source, fd, span):
                return path
            continue
        try:
            with file:
                copy_bytes(source, fd, span, file)
                file.flush()
            io.set_modified(path, status.st_mtime_ns)
        except OSError:
            with suppress(OSError):
                io.unlink(path)
            raise
        io.flush_directory(path.parent)
        return path
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))


def _has_bytes(path: Path, source: Path, fd: int, span: tuple[int, int]) -> bool:
    """Whether the backup has these bytes of a source already; if so, makes them lasting."""
    size = span[1] - span[0]
    with io.opened(path) as other:
        if io.file_size(other) != size:
            return False
        pairs = zip(windows(path, other, (0, size)), windows(source, fd, span), strict=True)
        if any(copied != original for copied, original in pairs):
            return False
    with io.WriteFile.open(path) as file:
        file.flush()
    return True
