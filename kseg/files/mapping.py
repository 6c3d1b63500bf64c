"""Bytes of a file for reading: a map where that is safe, owned copies where it is not.

This is the only module that maps. Touching a page of a map past the end of a file that somebody
shortened kills the process with SIGBUS, which Python cannot catch. So `mapping="auto"` maps only
where nobody else will shorten: while another process holds the data directory's lock (a live
broker), bytes come through `pread`, which merely answers less. `"always"` and `"never"` are for
those who know.

A view of the map is lent, inside a `with`, and never stored. Bytes from `read` are owned.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Literal

from kseg.errors import CorruptRecordError, SegmentInUseError
from kseg.files import io, lock
from kseg.files.closing import Closing

Mapping = Literal["auto", "always", "never"]

_MODES: Final = ("auto", "always", "never")


class MappedFile(Closing):
    """A file open for reading, mapped or not, of the size it had when it was opened.

    `open` acquires; `close`, or leaving a `with`, releases. Any thread may read.
    """

    __slots__ = ("_fd", "_map", "_mapped", "_size", "path")

    def __init__(self, path: str, fd: int, size: int, *, mapped: bool) -> None:
        """Take over `fd`; use `open` instead."""
        self.path: Final = path
        self._fd = fd
        self._size = size
        self._mapped = mapped
        self._map: mmap.mmap | None = None

    @classmethod
    def open(cls, path: str | PathLike[str], mapping: Mapping = "auto") -> MappedFile:
        """Open a regular file read-only.

        Args:
            path: a file of a partition directory.
            mapping: `"auto"` maps unless another process holds the data directory, which is the
                parent of the file's directory; `"always"` and `"never"` do not ask. A file that
                this process has open for writing, or is cutting just now, is not mapped.

        Raises:
            ValueError: `mapping` is none of the three.
            OSError: the file is missing, unreadable, or not a regular file.
        """
        if mapping not in _MODES:
            raise ValueError(f"mapping is one of {', '.join(_MODES)}, not {mapping!r}")
        if isinstance(path, io.Elsewhere):
            elsewhere = path.open_elsewhere()
            assert isinstance(elsewhere, MappedFile)
            return elsewhere
        name = fspath(path)
        fd = io.open_read(name)
        try:
            mapped = mapping == "always" or (mapping == "auto" and not held_by_another(name))
        except BaseException:
            os.close(fd)
            raise
        opened = cls(name, fd, 0, mapped=mapped)
        opened.refresh()
        return opened

    @property
    def mapped(self) -> bool:
        """Whether `view` lends a map; if not, only `read` serves."""
        return self._mapped

    @property
    def size(self) -> int:
        """Bytes at the time of `open` or of the last `refresh`; nothing past it is read."""
        return self._size

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._fd < 0

    @contextmanager
    def view(self) -> Iterator[memoryview]:
        """Lend the whole file as read-only bytes, uint8[size].

        What is made over the view is for the `with` alone. Should it live longer, so does the map.

        Raises:
            ValueError: the file is not mapped, or closed.
        """
        whole = self.pin()
        yield whole
        # Not after an error: its traceback may hold on to buffers over the view, and the complaint
        # of them would hide it.
        whole.release()

    def pin(self) -> memoryview:
        """A view for an object that owns this file, keeps the view and closes both: an index.

        Raises:
            ValueError: the file is not mapped, or closed.
        """
        self._check_open()
        if not self._mapped:
            raise ValueError(f"{self.path} is read through windows, not mapped; use read()")
        return memoryview(self._map if self._map is not None else b"")

    def read(self, position: int, size: int) -> memoryview:
        """Copy `size` bytes from `position`, fewer only where the file ended when it was opened.

        Returns:
            Read-only bytes, uint8[<= size], owned by whoever holds them.

        Raises:
            ValueError: `position` or `size` is negative, or the file is closed.
            CorruptRecordError: the file is shorter now than it was.
            OSError: the disk said no.
        """
        self._check_open()
        if position < 0 or size < 0:
            raise ValueError(f"position {position} and size {size} must not be negative")
        wanted = min(size, max(self._size - position, 0))
        try:
            data = io.read_at(self._fd, position, wanted)
        except OSError as error:
            io.named(error, self.path)
            raise
        if len(data) < wanted:
            raise CorruptRecordError(
                f"the file shrank while it was read: {self._size} bytes when it was opened, "
                f"{position + len(data)} now; open it again",
                path=self.path,
                position=position,
            )
        return memoryview(data)

    def refresh(self) -> int:
        """Take note of the file's present size, mapping anew where it changed; answers the size.

        Views lent before stay as they are.
        """
        self._check_open()
        size = io.file_size(self._fd)
        if self._mapped and size != self._size:
            self._map = self._map_whole(size) if size else None
            self._mapped = self._map is not None or not size
        self._size = size
        return size

    def _map_whole(self, size: int) -> mmap.mmap | None:
        try:
            return _map(self._fd, size)
        except ValueError as error:  # Python compares with the size, which has changed since
            raise CorruptRecordError(
                f"the file shrank below {size} bytes while it was mapped; open it again",
                path=self.path,
            ) from error

    def close(self) -> None:
        """Release the file; a second call does nothing.

        A map that another thread still views goes away with its last view, never under it.
        """
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._map = None

    def __del__(self) -> None:
        """Close what nobody closed, as an abandoned generator leaves it."""
        if self._fd >= 0:
            os.close(self._fd)

    def _check_open(self) -> None:
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")


class _Map(mmap.mmap):
    """A map that says of which file it is; it lives as long as anything looks into it."""

    inode: tuple[int, int]


#: The maps of this process, and the files that it is about to cut.
_maps: weakref.WeakSet[_Map] = weakref.WeakSet()
_being_cut: set[tuple[int, int]] = set()
_registry: Final = threading.Lock()


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _map(fd: int, size: int) -> _Map | None:
    """A map of a file; None while this process writes to it, or cuts it.

    Whoever writes also shortens: what was preallocated goes when a segment is finished.
    """
    inode = _inode(os.fstat(fd))
    with _registry:
        if inode in _being_cut or io.is_written(inode):
            return None
        made = _Map(fd, size, access=mmap.ACCESS_READ)
        made.inode = inode
        _maps.add(made)
        return made


@contextmanager
def cutting(kept_bytes: dict[Path, int]) -> Iterator[None]:
    """Let nobody in this process map files that are cut inside of the `with`.

    Touching a map behind the end of its file kills the process. Other processes that read beside a
    writer do not map.

    Args:
        kept_bytes: the files, and how much of each will stay; those that are missing are no matter.

    Raises:
        SegmentInUseError: one of them is mapped further than that.
    """
    kept = {}
    for path, size in kept_bytes.items():
        with suppress(FileNotFoundError):
            kept[_inode(os.stat(path))] = (path, size)
    with _registry:
        used = _used_beyond(kept)
        if used is not None:
            path, size = used
            raise SegmentInUseError(
                "the file is read through a map, so it cannot be cut: close its readers first",
                path=path,
                position=size,
            )
        _being_cut.update(kept)
    try:
        yield
    finally:
        with _registry:
            _being_cut.difference_update(kept)


def _used_beyond(kept: dict[tuple[int, int], tuple[Path, int]]) -> tuple[Path, int] | None:
    """A file that is mapped further than it is kept; an error from here would keep the map."""
    for each in _maps:
        if each.inode in kept and len(each) > kept[each.inode][1]:
            return kept[each.inode]
    return None


def held_by_another(path: str | PathLike[str]) -> bool:
    """Whether another process holds the data directory that a partition's file lies in.

    A lock that we may not look at counts as held: then nothing is mapped.
    """
    partition_directory = os.path.dirname(os.path.abspath(fspath(path)))
    try:
        return lock.holder(os.path.dirname(partition_directory)) is not None
    except OSError:
        return True
