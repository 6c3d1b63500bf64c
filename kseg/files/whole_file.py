"""New files for other programs, written from front to back: complete under their names, or absent.

A file is written beside its name and renamed once it is lasting. Meanwhile it is called
`.<name>.<16 hex digits>.kseg-part`, which is always new, so nothing is written through a link that
another user put there. Its writer keeps a lock on it (`flock`), which ends with the process; the
next writer of the same file removes those without a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from kseg.constants import StrPath
from kseg.files import io, ownership
from kseg.files.metadata import is_of_broker

_SUFFIX: Final = ".kseg-part"
#: Bytes of a name up to which there is room for more of it.
_NAME_BYTES_MAX: Final = 200


class FileSink:
    """A new file that is written from front to back, by pyarrow too; lasting when it is closed.

    An error inside the `with` removes it.
    """

    def __init__(
        self, path: Path, target: Path | None = None, *, like: io.Model | None = None
    ) -> None:
        """Create the file.

        Args:
            path: the file.
            target: the path in errors; its own if None.
            like: the source of owner, group and permissions; the files around it if None.

        Raises:
            FileExistsError: it is there.
        """
        self._path: Final = path
        self.target: Final = path if target is None else target
        self._file: Final = io.WriteFile.open(path, exclusive=True, like=like)
        self._file.path = os.fspath(self.target)
        self._position = 0
        self._lasting = -1
        self.closed = False

    @property
    def fd(self) -> int:
        """The descriptor; -1 once it is closed."""
        return self._file.fd

    def write(self, data: Any) -> int:
        """Add bytes at the end."""
        view = memoryview(data).cast("B")
        self._file.write_at(self._position, view)
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        """The number of bytes that were written."""
        return self._position

    def flush(self) -> None:
        """Does nothing: `write` buffers no bytes."""

    def settle(self) -> None:
        """Make all that was written lasting."""
        if self._lasting != self._position:
            self._file.flush()
            self._lasting = self._position

    def readable(self) -> bool:
        """Never: it can only be written."""
        return False

    def writable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Never: it is written from front to back."""
        return False

    def close(self) -> None:
        """Flush to the disk, and close."""
        if not self.closed:
            self.closed = True
            try:
                self.settle()
            finally:
                self._file.close()

    def discard(self) -> None:
        """Close and remove the file."""
        if not self.closed:
            self.closed = True
            self._file.close()
        io.unlink(self._path, missing_ok=True)

    def __enter__(self) -> FileSink:
        """Return the file itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Close it; remove it after an error, or if its user stopped early."""
        if kind is None:
            self.close()
        else:
            self.discard()


@contextmanager
def whole_file(target: Path, *, source: StrPath | None = None) -> Iterator[FileSink]:
    """A file that takes its name, replacing an existing file, if the block ends without error.

    A missing directory is made. Files that a killed run left of the same file go.

    Args:
        target: the file; if it is a link, that is replaced and not followed.
        source: a log or a partition directory. The file, and directories that are made, get its
            owner and permissions as `ownership.of_copied_file` has it. Without a source they get
            those of the files around them.

    Raises:
        PermissionError: this process cannot make files with the owner of the others there.
        OSError: the disk refuses, or the target is a device, a pipe or a socket; an existing file
            stays. The error names the target.
    """
    look = None if source is None else _look_of_copy(target, source)
    if look is None or look.must_own:
        io.check_new_files(target.parent)
    above = None if source is None else ownership.of_copied_directory(source)
    io.make_directories(target.parent, like=above)
    check_replaceable(target)
    _remove_leftovers(target)
    path, sink = _begin(target, look)
    try:
        yield sink
        sink.settle()
        io.rename(path, target)
        sink.close()
    except BaseException as error:
        if isinstance(error, OSError) and error.filename in (None, path, os.fspath(path)):
            error.filename = os.fspath(target)
        with suppress(OSError):  # the first error says more
            sink.discard()
        raise
    io.flush_directory(target.parent)


@contextmanager
def claimed(directory: StrPath) -> Iterator[None]:
    """Lock an output directory against other runs while the block lasts.

    Raises:
        FileExistsError: another run writes there.
        OSError: it is no directory.
    """
    with io.opened_directory(directory) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = "another run writes there: wait for its end, or name another place"
            raise FileExistsError(errno.EEXIST, why, os.fspath(directory)) from None
        except OSError:  # a file system without locks
            pass
        yield


def _look_of_copy(target: Path, source: StrPath) -> ownership.Look:
    """Owner, group and permissions of a new file with records of a log.

    They are those of the log, see `ownership.of_copied_file`. Only in a directory where Kafka has
    files, the new file gets the owner of these, so that its broker can use it; then it has the
    permissions that both the log and Kafka's files have.
    """
    of_source = ownership.of_copied_file(source)
    with suppress(FileNotFoundError, NotADirectoryError):
        of_neighbours = ownership.of_files(target.parent)
        if of_neighbours.must_own:  # so it comes from a file of Kafka's
            return of_neighbours._replace(mode=of_neighbours.mode & of_source.mode)
    return of_source


def check_replaceable(target: Path) -> None:
    """Refuse a device, a pipe or a socket: a file in its place would be no output of it.

    Args:
        target: the path; a link stands for its target.

    Raises:
        OSError: it is one of these, or its kind cannot be read.
    """
    with suppress(FileNotFoundError):
        mode = os.stat(target).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "not a regular file; nothing replaces it", str(target))


def _begin(target: Path, look: io.Model | None) -> tuple[Path, FileSink]:
    """Make and lock a temporary file beside a target; return it and its path.

    Another writer may remove it before it is locked: then there is a further attempt.
    """
    while True:
        path = target.with_name(f".{_stem(target)}.{uuid4().hex[:16]}{_SUFFIX}")
        try:
            sink = FileSink(path, target, like=look)
        except OSError as error:
            error.filename = os.fspath(target)
            raise
        with suppress(OSError):
            fcntl.flock(sink.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(path), os.fstat(sink.fd)):
                return path, sink
        sink.close()  # it was removed just before it was locked


def _remove_leftovers(target: Path) -> None:
    """Remove leftovers of killed runs beside a target: only unused, own files, never links."""
    ours = re.compile(re.escape(f".{_stem(target)}.") + "[0-9a-f]{16}" + re.escape(_SUFFIX))
    with os.scandir(target.parent) as entries:
        leftovers = [entry.path for entry in entries if ours.fullmatch(entry.name)]
    for path in leftovers:
        with suppress(OSError), io.WriteFile.open(path) as file:
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            io.unlink(path)


def _stem(target: Path) -> str:
    """The target's name as part of its temporary file's, cut to leave room for the rest."""
    return fitting_name(target.name, bytes_max=_NAME_BYTES_MAX)


#: The most bytes of a name that file systems accept.
NAME_BYTES_MAX: Final = 255
#: The value in a directory's name for records without a value, as Hive and Spark have it.
HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
#: The most files of such directories that are open at a time, each with a few MiB of buffer.
OPEN_MAX: Final = 8
_DIGEST_CHARACTERS: Final = 16
_ESCAPED: Final = re.compile(r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]""")


def refuse_in_data_directory(
    out: StrPath, homes: Collection[Path] = (), *, is_data: bool = False
) -> None:
    """Refuse a path beside the logs of a data directory: no broker starts beside another folder.

    Args:
        out: the place.
        homes: directories that are data directories, whatever is in them.
        is_data: whether the place may be a data directory itself.

    Raises:
        ValueError: it is in a data directory.
    """
    output = Path(os.path.realpath(out))
    for directory in output.parents if is_data else (output, *output.parents):
        if directory in homes or is_of_broker(directory):
            raise ValueError(
                f"{os.fspath(out)} lies in a data directory, {directory}, where it would keep a "
                "broker from a start: name a place outside"
            )


def fitting_name(stem: str, end: str = "", *, bytes_max: int = NAME_BYTES_MAX) -> str:
    """A file name from a stem and an end; a digest replaces the end of a long stem.

    >>> fitting_name("orders-0", ".parquet")
    'orders-0.parquet'
    >>> len(fitting_name("t" * 249 + "-0", ".parquet"))
    255
    """
    name, room = os.fsencode(stem), bytes_max - len(os.fsencode(end))
    if len(name) <= room:
        return stem + end
    digest = sha256(name).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: room - len(digest) - 1].decode(errors='ignore')}-{digest}{end}"


def hive_directory(key: str, value: str) -> str:
    """The name of a directory for a value of a partition column.

    >>> hive_directory("topic", "a=b/c")
    'topic=a%3Db%2Fc'
    """
    return f"{key}={_ESCAPED.sub(lambda match: f'%{ord(match[0]):02X}', value)}"
