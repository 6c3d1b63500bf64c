"""Bytes of a file for reading: a map where that is safe, owned copies where it is not.

This is the only module that maps. Touching a page of a map that the disk cannot bring kills the
process with SIGBUS, which Python cannot catch: a page past the end of a file that was shortened, a
hole for which a full tmpfs has no memory, a bad sector. So `mapping="auto"` maps only

- while no other process holds the data directory's lock: a live broker shortens without asking;
- bytes that it can lock, shared (`system_calls`): before kseg shortens a file it asks for that
  lock, and leaves the bytes in place if it is refused; the lock ends with the last view of the map;
- files without holes, and of indexes those that are large and lie on a disk.

Otherwise bytes come through `pread`, which gives fewer bytes or an error at worst. `"always"` maps
without these checks, for callers who know that no process shortens the file; `"never"` avoids bad
sectors.

A view of the map is valid inside a `with`, and never stored. Bytes from `read` are owned.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from os import fspath
from typing import Final, Literal

import numpy as np

from kseg.constants import INT64_MAX, StrPath, Uint8s
from kseg.errors import CorruptRecordError, UnreadableError
from kseg.files import io, lock, system_calls
from kseg.files.io import Closing

Mapping = Literal["auto", "unheld", "always", "never"]

_MODES: Final = ("auto", "unheld", "always", "never")

#: Up to this size, reading an index is faster than mapping it.
INDEX_BYTES_READ: Final = 1 << 17


#: Of a huge page. Smaller ones are four kilobytes, and the kernel takes longer for each than the
#: columns for their bytes.
HUGE_BYTES: Final = 2 << 20
_PRIVATE: Final = (
    getattr(mmap, "MAP_PRIVATE", 0)
    | getattr(mmap, "MAP_ANONYMOUS", 0)
    | getattr(mmap, "MAP_NORESERVE", 0)
)
_HUGE: Final = getattr(mmap, "MADV_HUGEPAGE", None)
#: The unit in which a disk succeeds or fails: a page of memory.
_BLOCK_BYTES: Final = 4096


def _next_block(position: int) -> int:
    """Where the block after that of a position begins."""
    return (position // _BLOCK_BYTES + 1) * _BLOCK_BYTES


class MappedFile(Closing):
    """A file open for reading, mapped or not, of the size it had when it was opened.

    `open` acquires; `close`, or leaving a `with`, releases. Any thread may read.

    Attributes:
        path: the path of the file.
        size: bytes at the time of `open` or of the last `refresh`; nothing beyond it is read.
        mapped: whether `view` gives a map; if not, only `read` serves.
        wanted_end: the expected end of the reading, if known. A file in a store requests no bytes
            after it in advance.
    """

    __slots__ = ("_fd", "_index", "_map", "_mapping", "mapped", "path", "size", "wanted_end")

    def __init__(self, path: str, fd: int, mapping: Mapping, *, index: bool = False) -> None:
        """Take over `fd`; use `open` instead."""
        self.path: Final = path
        self.wanted_end = INT64_MAX
        self._fd = fd
        self.size = 0
        self._mapping: Final = mapping
        self.mapped = mapping != "never"
        self._index: Final = index
        self._map: mmap.mmap | None = None

    @classmethod
    def open(cls, path: StrPath, mapping: Mapping = "auto", *, index: bool = False) -> MappedFile:
        """Open a regular file read-only.

        Args:
            path: a file of a partition directory.
            mapping: `"auto"` maps if that is safe, see the module; the data directory, which
                another process may hold, is the parent of the file's directory. `"unheld"` is the
                same for a caller who has just checked the directory's holder. `"always"` and
                `"never"` do not check. A file that this process has open for writing, or that
                another process is shortening, is not mapped.
            index: the file is an index, of which a reader touches little.

        Raises:
            ValueError: `mapping` has another value.
            OSError: the file is missing, unreadable, or not a regular file.
        """
        if mapping not in _MODES:
            raise ValueError(f"mapping is one of {', '.join(_MODES)}, not {mapping!r}")
        if io.is_elsewhere(path):
            elsewhere = path.open_elsewhere()
            assert isinstance(elsewhere, MappedFile)
            return elsewhere
        name = fspath(path)
        fd = io.open_read(name)
        opened = cls(name, fd, mapping, index=index)
        opened.mapped = mapping in ("always", "unheld") or (
            mapping == "auto" and not held_by_another(name)
        )
        opened.refresh()
        return opened

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._fd < 0

    @property
    def descriptor(self) -> int | None:
        """The descriptor for a kernel that reads by itself; None if none may be used."""
        return self._fd if self._fd >= 0 and io.reads_directly() else None

    @contextmanager
    def view(self) -> Iterator[memoryview]:
        """The whole file as read-only bytes, uint8[size].

        Use objects over the view inside the `with` only. If one lives longer, so does the map.

        Raises:
            ValueError: the file is not mapped, or closed.
        """
        whole = self.pin()
        yield whole
        # Not after an error: its traceback may hold on to buffers over the view, and the complaint
        # of them would hide it.
        whole.release()

    def pin(self) -> memoryview:
        """A view for an index, which owns this file, keeps the view and closes both.

        Raises:
            ValueError: the file is not mapped, or closed.
        """
        self._check_open()
        if not self.mapped:
            raise ValueError(f"{self.path} is read through windows, not mapped; use read()")
        return memoryview(self._map if self._map is not None else b"")

    def read(self, position: int, size: int) -> memoryview:
        """Copy `size` bytes from `position`, fewer only where the file ended when it was opened.

        Returns:
            Read-only bytes, uint8[<= size], with memory of their own.

        Raises:
            ValueError: `position` or `size` is negative, or the file is closed.
            CorruptRecordError: the file is shorter now than it was.
            UnreadableError: the disk cannot read some of these bytes.
            OSError: any other failure.
        """
        self._check_open()
        if position < 0 or size < 0:
            raise ValueError(f"position {position} and size {size} must not be negative")
        expected_bytes = min(size, max(self.size - position, 0))
        try:
            data = io.read_at(self._fd, position, expected_bytes, self.path)
        except OSError as error:
            if error.errno == errno.EIO:
                raise self._unreadable_range(position, expected_bytes) from error
            raise
        if len(data) < expected_bytes:
            raise CorruptRecordError(
                f"the file shrank while it was read: {self.size} bytes when it was opened, "
                f"{position + len(data)} now; open it again",
                path=self.path,
                position=position,
            )
        return memoryview(data)

    def _unreadable_range(self, position: int, size: int) -> UnreadableError:
        """The range from `position` on that the disk cannot read, and the bytes after it.

        Reads block by block, and after the first bad one in growing steps, so that a disk that
        fails altogether does not cost a read for each block.
        """
        first, end = position, position + size
        while first < end and self._can_read(first):
            first = _next_block(first)
        if first < end:
            # `low` is the last bad block that was tried, `high` the next one to try.
            low, high, step = first, min(_next_block(first), self.size), _BLOCK_BYTES
            while high < self.size and not self._can_read(high):
                low, high, step = high, min(high + step, self.size), 2 * step
            while high - low > _BLOCK_BYTES:
                middle = _next_block((low + high) // 2 - 1)
                low, high = (low, middle) if self._can_read(middle) else (middle, high)
            end = high
        else:
            first = position  # the disk reads them now: which ones failed is not known
        error = UnreadableError(
            f"the disk does not give {end - first} bytes, up to {end}: {os.strerror(errno.EIO)}",
            path=self.path,
            position=first,
        )
        error.end = end
        return error

    def _can_read(self, position: int) -> bool:
        """Whether the disk can read the byte at a position."""
        try:
            io.read_at(self._fd, position, 1, self.path)
        except OSError as error:
            if error.errno == errno.EIO:
                return False
            raise
        return True

    def refresh(self) -> int:
        """Read the file's present size and return it; map again if it changed.

        Earlier views stay as they are.
        """
        self._check_open()
        size = io.file_size(self._fd)
        if self.mapped and size != self.size:
            self._map = self._map_whole(size) if size else None
            self.mapped = self._map is not None or not size
        self.size = size
        return size

    def _map_whole(self, size: int) -> mmap.mmap | None:
        """A map of the file, with a lock on it; None if mapping is not safe."""
        if not self._may_map(size):
            return None
        try:
            with io.naming(self.path):
                mapped = mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
        except ValueError as error:  # Python compares with the size, which has changed since
            raise CorruptRecordError(
                f"the file shrank below {size} bytes while it was mapped; open it again",
                path=self.path,
            ) from error
        if not self._index:
            # Else each missing page brings its neighbours, and nothing is read while those are
            # parsed: 3 to 5 times as slow. This also leaves the pages of others, such as a
            # broker's, in memory.
            mapped.madvise(mmap.MADV_SEQUENTIAL)
        return mapped

    def _may_map(self, size: int) -> bool:
        """Whether a map of so many bytes is safe; if so, they are locked while the map exists.

        A writer also shortens files: it drops preallocated bytes when it finishes a segment.
        """
        status = os.fstat(self._fd)
        if io.is_written((status.st_dev, status.st_ino)):
            return False
        # A page of a map may fail for want of memory: reading a hole through a map makes tmpfs take
        # a page for it. A tmpfs, and a file system over one, has no device of its own (major 0).
        is_small_or_in_memory = status.st_size <= INDEX_BYTES_READ or os.major(status.st_dev) == 0
        if self._mapping != "always" and (
            (self._index and is_small_or_in_memory) or io.has_holes(self._fd, status)
        ):
            return False
        try:
            system_calls.share(self._fd, size)
        except BlockingIOError:
            return False
        except OSError:  # this system lacks such locks
            return self._mapping == "always"
        return True

    def close(self) -> None:
        """Release the file; a second call does nothing.

        A map that another thread still views is removed with its last view, not before.
        """
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._map = None

    def __del__(self) -> None:
        """Close a file that its user left open, as an abandoned generator does.

        In a circle this comes first, and the generator closes the file again after it.
        """
        self.close()

    def _check_open(self) -> None:
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")


def held_by_another(path: StrPath) -> bool:
    """Whether another process holds the data directory that a partition's file is in.

    A lock that this process may not open counts as held: then nothing is mapped.
    """
    partition_directory = os.path.dirname(os.path.abspath(fspath(path)))
    try:
        return lock.holder(os.path.dirname(partition_directory)) is not None
    except OSError:
        return True


def private_memory(size: int, filled: Iterable[tuple[int, int]]) -> Uint8s:
    """Memory without a file, which the system gets back once no array refers to it.

    Pages that are never written take none, so `size` may be a bound.

    Args:
        size: bytes, at least 1.
        filled: the parts that will certainly be written: first byte and end of each. Huge pages are
            used only there, as a partly written one needs all its memory.

    Returns:
        uint8[size], zeros.
    """
    if not _PRIVATE:
        return np.zeros(size, np.uint8)
    try:
        memory = mmap.mmap(-1, size + HUGE_BYTES, flags=_PRIVATE)
    except OSError:
        return np.zeros(size, np.uint8)  # which raises MemoryError
    whole = np.frombuffer(memory, np.uint8)
    first = -whole.ctypes.data % HUGE_BYTES
    for start, end in filled:
        # Of a page at an end of a stretch, at least half will be filled.
        low, high = (min(at + HUGE_BYTES // 2, size) // HUGE_BYTES for at in (start, end))
        if _HUGE is not None and low < high:
            with suppress(OSError):  # the kernel may lack them
                memory.madvise(_HUGE, first + low * HUGE_BYTES, (high - low) * HUGE_BYTES)
    return whole[first : first + size]


def read_window(
    file: MappedFile, position: int, size: int
) -> tuple[memoryview, UnreadableError | None]:
    """A window, or the part of it that the disk can read, and the error that shortened it."""
    try:
        return file.read(position, size), None
    except UnreadableError as error:
        readable_bytes = (error.position or 0) - position
        return file.read(position, readable_bytes) if readable_bytes > 0 else memoryview(b""), error


def readable_parts(
    file: MappedFile, start: int, end: int, step: int
) -> Iterator[tuple[int, memoryview, UnreadableError | None]]:
    """The bytes from `start` to `end` that the disk can read, at most `step` at a time.

    Yields:
        The position of the bytes, the bytes, and the unreadable range after them, if any.
    """
    while start < end:
        window, unreadable = read_window(file, start, min(step, end - start))
        yield start, window, unreadable
        start = start + len(window) if unreadable is None else unreadable.end
