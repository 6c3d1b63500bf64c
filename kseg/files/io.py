"""The seam to the disk: descriptors, positions, bytes, and nothing else.

Every call that a fault test must see passes here, so no other module opens a file. This one knows
no format. Python repeats calls that a signal interrupts (PEP 475); this module completes short
reads and short writes, which the kernel may return at any time.

Every change of a disk goes through `Calls`, one field a system call. A test replaces them
(`calls_replaced`) by calls that fail, write half, record their arguments, or kill the process.

An error of a call that takes a descriptor has no path; `named` adds that of the file.

A `WriteFile` whose flush failed is poisoned: the kernel has marked its pages clean, so a second
flush would report success for bytes that are lost. Reopen, and read the file again.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from os import fspath
from pathlib import Path
from typing import Final, Protocol, Self, TypeGuard

from kseg.constants import Buffer, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import LimitExceededError, PoisonedFileError, SegmentInUseError
from kseg.files import ownership, system_calls
from kseg.files.ownership import Look
from kseg.files.system_calls import fallocate

#: The source of owner, group and permissions of a new file: another file, or given values.
Model = os.stat_result | Look


class Readable(Protocol):
    """Bytes at positions, of a file of a size."""

    @property
    def size(self) -> int:
        """Bytes that the file had when it was opened."""

    def read(self, position: int, size: int) -> memoryview:
        """Bytes from a position, fewer only where the file ends."""

    def close(self) -> None:
        """Release the file."""


class Elsewhere(Protocol):
    """The path of a file that is not on this machine, with a way to open it."""

    def __fspath__(self) -> str:
        """Its name, for messages."""

    def open_elsewhere(self) -> Readable:
        """Open the file for reading; OSError if it is missing or cannot be read."""

    def size_elsewhere(self) -> int:
        """Bytes of the file; OSError if it is missing or cannot be read."""


def is_elsewhere(path: object) -> TypeGuard[Elsewhere]:
    """Whether a path is of a file that is not on this machine."""
    return hasattr(path, "open_elsewhere")


#: The errors of a full disk, or of a full quota.
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


def is_full(error: BaseException) -> bool:
    """Whether a call failed because the disk, or a quota, is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def named(error: OSError, path: StrPath) -> OSError:
    """Add the path to an error that has none; return the error."""
    if error.filename is None:
        error.filename = fspath(path)
    return error


@contextmanager
def naming(path: StrPath) -> Iterator[None]:
    """Add this path to an OSError of the block that has none."""
    try:
        yield
    except OSError as error:
        named(error, path)
        raise


#: One read call moves no more than this, as Linux itself has it (0x7ffff000 bytes).
_READ_BYTES_MAX = 0x7FFFF000


def open_read(path: StrPath) -> int:
    """Open a regular file for reading; return a descriptor that no child process inherits.

    A pipe or a device is refused rather than waited for.

    Raises:
        OSError: missing, no permission, a directory, or anything else but a regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", fspath(path))
    except OSError:
        os.close(fd)
        raise
    return fd


@contextmanager
def opened(path: StrPath) -> Iterator[int]:
    """Open a regular file for reading, as `open_read` does, only for the block."""
    fd = open_read(path)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_directory(path: StrPath) -> Iterator[int]:
    """Open a directory only for the block."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def file_size(fd: int) -> int:
    """Bytes that the open file has now."""
    return os.fstat(fd).st_size


def size_at(path: StrPath | Elsewhere) -> int:
    """Bytes of the file at a path, on this machine or elsewhere.

    Raises:
        OSError: the file does not exist.
    """
    return path.size_elsewhere() if is_elsewhere(path) else os.stat(path).st_size


def has_holes(fd: int, status: os.stat_result) -> bool:
    """Whether parts of an open file have no blocks, as far as its file system knows.

    Fewer blocks than bytes may also mean that the file system compresses, hence the second look.
    """
    if status.st_blocks * 512 >= status.st_size:
        return False
    return os.lseek(fd, 0, os.SEEK_HOLE) < status.st_size


#: The system call that reads.
_pread: Callable[[int, int, int], bytes] = os.pread


@contextmanager
def reads_replaced(pread: Callable[[int, int, int], bytes]) -> Iterator[None]:
    """Let every read at a position go through `pread` until the `with` block ends; for tests.

    Args:
        pread: is called with a descriptor, a size and a position.
    """
    global _pread
    before, _pread = _pread, pread
    try:
        yield
    finally:
        _pread = before


def reads_directly() -> bool:
    """Whether `read_at` calls the system directly, so that a kernel may do so as well."""
    return _pread is os.pread


def read_at(fd: int, position: int, size: int, path: StrPath) -> bytes:
    """Read `size` bytes from `position`, fewer only where the file ends.

    The caller takes `size` from the file's length, never from its contents.

    Args:
        fd: open for reading.
        position, size: which bytes.
        path: the path of the file, for errors.

    Raises:
        OSError: the disk refuses.
    """
    try:
        data = _pread(fd, min(size, _READ_BYTES_MAX), position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = _pread(fd, min(missing, _READ_BYTES_MAX), position + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
    except OSError as error:
        named(error, path)
        raise
    return b"".join(parts)


def read_file(path: StrPath, *, bytes_max: int) -> bytes:
    """Read all bytes of a small file.

    Raises:
        LimitExceededError: it has more than `bytes_max` bytes; nothing was read.
        OSError: as `open_read`.
    """
    if is_elsewhere(path):
        with closing(path.open_elsewhere()) as file:
            _check_size(file.size, bytes_max, path)
            return bytes(file.read(0, file.size))
    with opened(path) as fd:
        size = file_size(fd)
        _check_size(size, bytes_max, path)
        return read_at(fd, 0, size, path)


def read_kernel_number(path: StrPath) -> int:
    """Read a number from a file that the kernel makes, as under /proc: it has no size.

    Raises:
        ValueError: it is not a number.
        OSError: as `open_read`.
    """
    with opened(path) as fd:
        return int(os.read(fd, 64))


def _check_size(size: int, bytes_max: int, path: StrPath) -> None:
    """Refuse a file with more bytes than any of its kind."""
    if size > bytes_max:
        raise LimitExceededError(
            f"the file has {size} bytes; no file of its kind has more than {bytes_max}",
            path=path,
        )


# ---- writing -------------------------------------------------------------------------------------

if sys.platform == "darwin":
    import fcntl

    def _flush_disk(fd: int) -> None:
        """Flush to the disk itself: Darwin's fsync leaves bytes in the cache of the drive."""
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
            os.fsync(fd)

    _flush_data = _flush_disk
else:
    _flush_disk, _flush_data = os.fsync, os.fdatasync


def _write_joined(fd: int, parts: Sequence[Buffer], position: int) -> int:
    """As `os.pwritev`, for a system that lacks it."""
    return os.pwrite(fd, b"".join(parts), position)


#: A Python built for macOS 10 lacks this call.
_pwritev: Final[Callable[[int, Sequence[Buffer], int], int]] = getattr(os, "pwritev", _write_joined)
#: Blocks are reserved only if the disk has so many times as much left.
_FREE_TIMES: Final = 256


@frozen_dataclass(eq=False, repr=False)
class Calls:
    """The system calls that change a disk; each takes the arguments of its namesake in `os`.

    `fsync` and `fdatasync` reach the disk itself, also where the system has another call for that.
    `fallocate` takes a descriptor, a position and a size, and leaves the file's size as it is.
    """

    open: Callable[..., int] = os.open
    pwritev: Callable[[int, Sequence[Buffer], int], int] = _pwritev
    ftruncate: Callable[[int, int], None] = os.ftruncate
    fallocate: Callable[[int, int, int], None] = fallocate
    fsync: Callable[[int], None] = _flush_disk
    fdatasync: Callable[[int], None] = _flush_data
    rename: Callable[[StrPath, StrPath], None] = os.replace
    link: Callable[..., None] = os.link
    unlink: Callable[..., None] = os.unlink
    mkdir: Callable[..., None] = os.mkdir
    rmdir: Callable[..., None] = os.rmdir
    utime: Callable[..., None] = os.utime
    chown: Callable[..., None] = os.chown
    chmod: Callable[..., None] = os.chmod


_calls = Calls()


@contextmanager
def calls_replaced(calls: Calls) -> Iterator[None]:
    """Let everything go through `calls` until the `with` block ends; for tests."""
    global _calls
    before, _calls = _calls, calls
    try:
        yield
    finally:
        _calls = before


#: The suffix of a file that is about to replace another one.
_BESIDE: Final = ".tmp"
#: Bytes that are copied at a time.
_COPIED_BYTES: Final = 1 << 20
#: Only Linux has files without a name; elsewhere a directory cannot be opened for writing.
_NAMELESS: Final = getattr(os, "O_TMPFILE", 0)
_WRITING: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
#: The most buffers that one call accepts (IOV_MAX of Linux and Darwin).
_BUFFERS_MAX: Final = 1024


class Closing:
    """A base class, which the style otherwise avoids: eleven classes would repeat these lines."""

    __slots__ = ()

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()


class WriteFile(Closing):
    """A file open for reading and writing at positions. One thread at a time may change it.

    `open` acquires; `close`, or leaving a `with`, releases. Nothing is lasting before `flush`.

    Attributes:
        path: the path of the file, for messages; a rename of an open file sets it.
        fd: the descriptor, for reading; -1 once it is closed.
    """

    __slots__ = ("_failure", "fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        """Take over `fd`; use `open` instead."""
        self.path = path
        self.fd = fd
        self._failure: OSError | None = None  # the error of a flush; nothing is written after it

    @classmethod
    def open(
        cls,
        path: StrPath,
        *,
        create: bool = False,
        exclusive: bool = False,
        like: Model | None = None,
    ) -> WriteFile:
        """Open a regular file, not following a symbolic link.

        Args:
            path: the file.
            create: make it if it is missing.
            exclusive: create it, and refuse an existing file.
            like: the file whose owner, group and permissions a new file gets; those of the files
                around it if None.

        Raises:
            PermissionError: no permission, also to give a new file its owner; the file is removed
            then.
            OSError: missing, there already, or no regular file.
        """
        if create or exclusive:
            try:
                return cls._create(path, like)
            except FileExistsError:
                if exclusive:
                    raise
        return cls._opened(path, _calls.open(path, _WRITING, 0))

    @classmethod
    def _create(cls, path: StrPath, like: Model | None) -> WriteFile:
        """Make a file with the owner and permissions of another, or of the files around it."""
        look = ownership.of_files(_directory_of(path)) if like is None else _look(like)
        fd = _calls.open(path, _WRITING | os.O_CREAT | os.O_EXCL, look.mode & 0o666)
        try:
            _apply_look(fd, look, path)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                _calls.unlink(path)
            raise
        return cls._opened(path, fd)

    @classmethod
    def _opened(cls, path: StrPath, fd: int) -> WriteFile:
        """Wrap a descriptor, if it is of a regular file; no reader of this process maps it."""
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", fspath(path))
        file = cls(fspath(path), fd)
        _written[fd] = (status.st_dev, status.st_ino)
        return file

    @property
    def size(self) -> int:
        """Bytes that the file has now."""
        return file_size(self.fd)

    @property
    def poisoned(self) -> bool:
        """Whether a flush has failed."""
        return self._failure is not None

    def read_at(self, position: int, size: int) -> bytes:
        """Read `size` bytes from `position`, fewer only where the file ends."""
        return read_at(self.fd, position, size, self.path)

    def write_at(self, position: int, *parts: Buffer) -> int:
        """Write all of the parts as `write_parts` does; return their size in bytes."""
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        self.write_parts(position, parts, size)
        return size

    def write_parts(self, position: int, parts: Sequence[Buffer], size: int) -> None:
        """Write all of the parts, one after the other, from `position` on.

        After an error some of the bytes may have been written, from the first one on.

        Args:
            position: the position in the file.
            parts: the bytes to write.
            size: the number of bytes of all parts.

        Raises:
            PoisonedFileError: a flush has failed before.
            OSError: the disk is full, or broken.
        """
        if self._failure is not None:
            self._check()
        if not size:
            return
        some = parts if len(parts) <= _BUFFERS_MAX else parts[:_BUFFERS_MAX]
        try:
            written = _calls.pwritev(self.fd, some, position)
        except InterruptedError:
            written = 0
        except OSError as error:
            named(error, self.path)
            raise
        else:
            if written == size:
                return
            self._check_written(written)
        # One call nearly always suffices; parts are split only if it does not.
        self._write_rest(position, parts, written)

    def _write_rest(self, position: int, parts: Sequence[Buffer], written: int) -> None:
        """Write the bytes after the first `written` of `parts`, in as many calls as it takes."""
        parts_left = [memoryview(part).cast("B") for part in parts if len(part)]
        while True:
            position += written
            parts_left = _unwritten_parts(parts_left, written)
            if not parts_left:
                return
            try:
                written = _calls.pwritev(self.fd, parts_left[:_BUFFERS_MAX], position)
            except InterruptedError:
                written = 0
                continue
            except OSError as error:
                named(error, self.path)
                raise
            self._check_written(written)

    def _check_written(self, written: int) -> None:
        """Refuse a write of no bytes, which would be repeated for ever."""
        if written <= 0:
            raise OSError(errno.EIO, "a write wrote nothing", self.path)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or add zeros up to there.

        If a reader has mapped bytes that go, a new file with the bytes that stay takes the name,
        lasting when this returns; readers keep the old file.

        Raises:
            SegmentInUseError: it is mapped, and the disk has no room for a new file; nothing has
                changed.
            PoisonedFileError: a flush has failed before.
            OSError: the file system refuses.
        """
        self._check()
        with naming(self.path):
            if size >= self.size:
                _calls.ftruncate(self.fd, size)
            else:
                self._shorten(size)

    def _shorten(self, size: int) -> None:
        """Cut the file in place if no reader can map it; if one has mapped it, replace the file.

        Bytes that are cut off under a map would kill the process that reads them.
        """
        try:
            system_calls.exclude(self.fd, size)
        except BlockingIOError:
            self._begin_anew(size)
        except OSError:  # this system lacks such locks, so readers map only where that is safe
            _calls.ftruncate(self.fd, size)
        else:
            try:
                _calls.ftruncate(self.fd, size)
            finally:
                system_calls.release(self.fd)

    def _begin_anew(self, size: int) -> None:
        """Replace the file by a new one with its first `size` bytes, and continue with that."""
        if not os.path.samestat(os.fstat(self.fd), os.lstat(self.path)):
            raise _in_use(self.fd, self.path, size, "the file has lost its name meanwhile")
        _check_room(self.fd, self.path, size, size)
        beside = self.path + _BESIDE
        unlink(beside, missing_ok=True)
        try:
            with WriteFile.open(beside, exclusive=True, like=os.fstat(self.fd)) as copy:
                position = 0
                while position < size:
                    part = self.read_at(position, min(size - position, _COPIED_BYTES))
                    if not part:
                        raise OSError(
                            errno.EIO, "the file ended early while it was copied", self.path
                        )
                    position += copy.write_at(position, part)
                copy.flush()
                rename(beside, self.path)
                os.dup2(copy.fd, self.fd, inheritable=False)
                _written[self.fd] = _written[copy.fd]
        except OSError as error:
            with suppress(OSError):
                unlink(beside, missing_ok=True)
            if is_full(error):
                raise _in_use(self.fd, self.path, size, "the disk is full") from error
            raise
        try:
            flush_directory(os.path.dirname(self.path) or ".")
        except OSError as error:
            self._failure = named(error, self.path)  # either file may have the name after a crash
            raise

    @property
    def blocks_bytes(self) -> int:
        """Bytes of the blocks that the file has; more than its size where some are reserved."""
        return os.fstat(self.fd).st_blocks * 512

    def reserve(self, position: int, size: int) -> bool:
        """Take blocks for bytes to come; neither a byte nor the size changes.

        Returns whether it took them. It does not on a nearly full disk, where others may need the
        blocks, or on a file system without the call; some of the blocks may be taken all the same.
        `release` gives back unused ones.
        """
        try:
            disk = os.fstatvfs(self.fd)
            if disk.f_bavail * disk.f_frsize < _FREE_TIMES * size:
                return False
            _calls.fallocate(self.fd, position, size)
        except OSError:
            return False
        return True

    def release(self, size: int) -> None:
        """Give back blocks beyond the end of a file of `size` bytes, which keeps its times.

        Raises:
            PoisonedFileError: a flush has failed before.
            OSError: the file system refuses.
        """
        self._check()
        status = os.fstat(self.fd)
        with naming(self.path):
            _calls.ftruncate(self.fd, size)
            with suppress(PermissionError):  # a process that may write a file need not own it
                _calls.utime(self.fd, ns=(status.st_atime_ns, status.st_mtime_ns))

    def flush(self) -> None:
        """Make all bytes, and the size, lasting.

        Raises:
            PoisonedFileError: a flush has failed before.
            OSError: the flush failed. It is not known which bytes are lost; the file is poisoned.
        """
        self._check()
        try:
            # The size is among what fdatasync writes; times of modification are not.
            _calls.fdatasync(self.fd)
        except OSError as error:
            self._failure = named(error, self.path)
            # The pages of a failed flush count as written, though the disk lacks them.
            if hasattr(os, "posix_fadvise"):
                with suppress(OSError):
                    os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            raise

    def _check(self) -> None:
        """Refuse to go on after a failed flush."""
        if self._failure is not None:
            raise PoisonedFileError(
                f"a flush failed ({self._failure.strerror}), so the contents of the disk are "
                "unknown: open the log again, which reads them",
                path=self.path,
            ) from self._failure

    def close(self) -> None:
        """Release the descriptor, flushed or not; a second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close_written(fd)


def check_cuts(kept_bytes: Mapping[Path, int]) -> None:
    """Make sure, before anything is changed, that `WriteFile.truncate` will not refuse a cut.

    Args:
        kept_bytes: the files that get shorter, and the least size that each keeps; missing ones are
            ignored.

    Raises:
        SegmentInUseError: a reader has mapped bytes that go, and the disk has no room for a new
            file.
        OSError: one of them cannot be opened.
    """
    for path, size in kept_bytes.items():
        with suppress(FileNotFoundError), opened(path) as fd:
            if system_calls.is_shared(fd, size):
                _check_room(fd, path, size, size)


def _check_room(fd: int, path: StrPath, position: int, size: int) -> None:
    """Refuse a cut of a mapped file at a position where a new file of `size` bytes has no room."""
    disk = os.fstatvfs(fd)
    free = disk.f_bavail * disk.f_frsize
    if free < size:
        raise _in_use(fd, path, position, f"the disk has {free} bytes left")


def _in_use(fd: int, path: StrPath, size: int, why: str) -> SegmentInUseError:
    """The error for a file that cannot be cut to `size` bytes; names processes that map it."""
    # The kernel does not name the holder of such a lock, so every visible descriptor is checked.
    status = os.fstat(fd)
    processes: list[int] = []
    with suppress(OSError):
        processes += [int(name) for name in os.listdir("/proc") if name.isdigit()]
    readers = sorted(process for process in processes if _has_mapped(process, status))
    who = f"process {', '.join(map(str, readers))}" if readers else "a process"
    return SegmentInUseError(
        f"{who} reads the file through a map, so it cannot be cut in place, and a new file of "
        f"{size} bytes cannot take its name ({why}): close its readers first",
        path=path,
        position=size,
    )


def _has_mapped(process: int, file: os.stat_result) -> bool:
    """Whether a process has the lock that says that it maps a file, if /proc shows that."""
    with suppress(OSError):
        for number in os.listdir(f"/proc/{process}/fd"):
            with suppress(OSError):
                if not os.path.samestat(os.stat(f"/proc/{process}/fd/{number}"), file):
                    continue
                with opened(f"/proc/{process}/fdinfo/{number}") as info:
                    if system_calls.OPEN_FILE_LOCK in os.read(info, _COPIED_BYTES):
                        return True
    return False


#: Errors of a file system that cannot allocate blocks ahead.
_NO_BLOCKS_AHEAD: Final = frozenset((errno.ENOTSUP, errno.ENOSYS, errno.EINVAL))
#: Where that is so, no more zeros than this are written to find out.
_TRIED_BYTES_MAX: Final = 2**20


#: The file by which `has_room` finds out; a process that was killed meanwhile leaves it.
ROOM_NAME: Final = ".kseg-room.tmp"


def has_room(directory: StrPath, size: int) -> bool:
    """Whether a new file could have so many bytes; makes one to find out, and removes it.

    The free space of a file system may be for others only (its own reserve, a quota), so that is
    not asked.

    Args:
        directory: where the file would be; several threads and processes may ask at a time, and
            each is tested as if it were the only one.
        size: the number of bytes.

    Raises:
        OSError: anything else but a lack of room.
    """
    beside = os.path.join(directory, ROOM_NAME)
    try:
        with naming(beside), _made_anew(beside) as file:
            try:
                _calls.fallocate(file.fd, 0, size)
            except OSError as error:
                if error.errno not in _NO_BLOCKS_AHEAD:
                    raise
                file.write_at(0, bytes(min(size, _TRIED_BYTES_MAX)))
    except OSError as error:
        if not is_full(error):
            raise
        return False
    finally:
        unlink(beside, missing_ok=True)
    return True


def _made_anew(path: StrPath) -> WriteFile:
    """Make a file; replaces a leftover, or one that another process has just made."""
    while True:
        unlink(path, missing_ok=True)
        with suppress(FileExistsError):
            return WriteFile.open(path, exclusive=True)


def bytes_given_back(path: StrPath, *, cut_at: int | None = None) -> int:
    """Bytes of blocks that the disk frees when a name is removed; 0 if the file has another name.

    Args:
        path: the name; the answer is 0 if there is no such file.
        cut_at: the file keeps its name, and only so many bytes; its other names do not matter
            then.
    """
    with suppress(FileNotFoundError):
        status = os.lstat(path)
        blocks_bytes = status.st_blocks * 512
        if cut_at is not None:
            return max(blocks_bytes - -(-cut_at // status.st_blksize) * status.st_blksize, 0)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return blocks_bytes
    return 0


#: Device and inode of each file that a `WriteFile` has open, by its descriptor.
_written: dict[int, tuple[int, int]] = {}


def close_written(fd: int) -> None:
    """Close a descriptor that was taken from a `WriteFile`."""
    _written.pop(fd, None)
    os.close(fd)


def is_written(inode: tuple[int, int]) -> bool:
    """Whether this process has a file open for writing; `device` and `inode` name the file."""
    return inode in _written.copy().values()


def _unwritten_parts(parts: list[memoryview], written: int) -> list[memoryview]:
    """The rest of the parts when so many bytes of them are written."""
    for index, part in enumerate(parts):
        if written < len(part):
            return [part[written:], *parts[index + 1 :]]
        written -= len(part)
    return []


def rename(source: StrPath, target: StrPath) -> None:
    """Rename a file within its file system; an existing file of that name is replaced.

    Lasting after `flush_directory`.
    """
    _calls.rename(source, target)


def link(source: StrPath, target: StrPath) -> None:
    """Give a file a second name; FileExistsError if that name is in use."""
    _calls.link(source, target)


def unlink(path: StrPath, *, missing_ok: bool = False) -> None:
    """Remove a name; a process that has the file open keeps the bytes.

    Args:
        path: the name.
        missing_ok: do not raise FileNotFoundError if the name does not exist.
    """
    try:
        _calls.unlink(path)
    except FileNotFoundError:
        if not missing_ok:
            raise


def make_directory(path: StrPath, *, like: Model | None = None) -> None:
    """Make a directory; FileExistsError if there is one.

    Args:
        path: the directory.
        like: the source of its owner, group and permissions; if None, the partitions around it, or
            else the owner of the directory around it.
    """
    look = ownership.of_directories(_directory_of(path)) if like is None else _look(like)
    _calls.mkdir(path, look.mode)
    try:
        dress_like(path, look)
    except OSError:
        with suppress(OSError):
            _calls.rmdir(path)
        raise


def make_directories(path: StrPath, *, like: Model | None = None) -> None:
    """Make a directory and missing parents, each durable in its parent.

    Others may do the same meanwhile.

    Args:
        path: the directory.
        like: as `make_directory` takes it, for each that is made.

    Raises:
        NotADirectoryError: something else has the name, or one above it.
        OSError: the disk refuses.
    """
    if os.path.isdir(path):
        return
    above = _directory_of(path)
    make_directories(above, like=like)
    try:
        make_directory(path, like=like)
    except FileExistsError as error:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", fspath(path)) from error
    flush_directory(above)


def remove_directory(path: StrPath) -> None:
    """Remove an empty directory."""
    _calls.rmdir(path)


def remove_tree(path: StrPath) -> None:
    """Remove a directory with all that is in it; names that are gone already are ignored.

    Links are removed and not followed, also those that another user puts in the place of a
    directory meanwhile: everything is removed through descriptors of the directories.

    Raises:
        OSError: `path` is a link or not a directory, or the disk refuses.
    """
    try:
        fd = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return
    _remove_all_in(fd, fspath(path))
    remove_directory(path)


#: Opens a directory, but no link to one.
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _remove_all_in(fd: int, path: str) -> None:
    """Remove everything in an open directory, and close it."""
    try:
        with os.scandir(fd) as scan:
            entries = list(scan)
        for entry in entries:
            try:
                _remove_entry(entry, fd, os.path.join(path, entry.name))
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.filename == entry.name:
                    error.filename = os.path.join(path, entry.name)
                raise
    finally:
        os.close(fd)


def _remove_entry(entry: os.DirEntry[str], fd: int, path: str) -> None:
    """Remove a file, a link or a whole directory in the open directory `fd`."""
    if not entry.is_dir(follow_symlinks=False):
        _calls.unlink(entry.name, dir_fd=fd)
        return
    _remove_all_in(os.open(entry.name, _DIRECTORY, dir_fd=fd), path)
    _calls.rmdir(entry.name, dir_fd=fd)


def flush_directory(path: StrPath) -> None:
    """Make the names in a directory lasting: new ones, changed ones and removals."""
    with opened_directory(path) as fd, naming(path):
        _calls.fsync(fd)


def set_modified(path: StrPath, modified_ns: int) -> None:
    """Set the time of last modification, in ns."""
    _calls.utime(path, ns=(modified_ns, modified_ns))


# ---- whose it is ---------------------------------------------------------------------------------


def check_new_files(directory: StrPath, *, like: os.stat_result | None = None) -> None:
    """Refuse a directory where this process cannot make files with the owner of the others.

    Call it before any change there. For a missing directory it checks the parent.

    Args:
        directory: the place of the new files.
        like: the file whose owner, group and permissions they get; None for the files that are
            there.

    Raises:
        PermissionError: new files cannot be given to the owner of the others.
        OSError: it cannot be listed.
    """
    existing = os.path.abspath(directory)
    while not os.path.isdir(existing) and existing != os.path.dirname(existing):
        existing = os.path.dirname(existing)
    look = ownership.of_files(existing) if like is None else Look.of(like)
    if not look.must_own or look.is_usual_in(existing) or _may_give(existing, look):
        return
    raise PermissionError(
        errno.EPERM,
        f"files here must belong to user {look.uid} and group {look.gid}, and user "
        f"{os.geteuid()} cannot make such files: nothing was changed; run kseg as that user, or "
        "as root",
        existing,
    )


def dress_as_new_in(path: StrPath, directory: StrPath) -> None:
    """Give a file the owner, group and permissions of the files in another directory."""
    dress_like(path, ownership.of_files(directory))


def dress_like(path: StrPath, model: Model) -> None:
    """Give a file or directory the owner, group and permissions of another; follow no link.

    Raises:
        OSError: this process may not.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        _apply_look(fd, _look(model), path)
    finally:
        os.close(fd)


def _look(model: Model) -> Look:
    """The owner, group and permissions of a model, which may be a `Look` itself."""
    return model if isinstance(model, Look) else Look.of(model)


def _directory_of(path: StrPath) -> str:
    """The directory around a path."""
    return os.path.dirname(fspath(path).rstrip(os.sep)) or "."


def _apply_look(fd: int, look: Look, path: StrPath) -> None:
    """Give an open file owner, group and permissions; by descriptor, as its name may change."""
    status = os.fstat(fd)
    with naming(path):
        if look.exact and stat.S_IMODE(status.st_mode) != look.mode:
            _calls.chmod(fd, look.mode)
        if (status.st_uid, status.st_gid) == (look.uid, look.gid):
            return
        if look.must_own:
            _calls.chown(fd, look.uid, look.gid)
        elif os.geteuid() == 0:
            with suppress(PermissionError):  # only a wish; in a container root may lack the right
                _calls.chown(fd, look.uid, look.gid)


def _may_give(directory: str, look: Look) -> bool:
    """Whether a file in a directory can be given to a user: tested on a file without a name."""
    try:
        fd = _calls.open(directory, os.O_RDWR | os.O_CLOEXEC | _NAMELESS, 0o600)
    except OSError:  # no unnamed files here, or no room: then by the rule
        groups = (os.getegid(), *os.getgroups())
        return os.geteuid() == 0 or (look.uid == os.geteuid() and look.gid in groups)
    try:
        _calls.chown(fd, look.uid, look.gid)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
