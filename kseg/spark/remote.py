"""Segments in an object store, through fsspec: `s3://bucket/data-dir/orders-0`.

A path of a store opens itself (`kseg.files.io.Elsewhere`), so that everything above reads it as it
reads a file. Bytes come by ranged requests. A look at one batch costs a small one; a walk that goes
on doubles them up to `WINDOW_BYTES_MAX`, and the next is under way while this one is decoded. Two
of the largest are in memory at most, or one batch if that is larger.

Credentials come from the environment, as for any program of the store (for S3
`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_ENDPOINT_URL`, or the machine's role): options
show in plans and logs. On a cluster each executor's environment counts. Tested with S3; other
stores of fsspec have the same doors. Nothing here imports pyspark.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PosixPath
from threading import Lock
from typing import Any, Final
from urllib.parse import urlsplit

from kseg.errors import CorruptRecordError, MissingExtraError, NotALogError, os_reason
from kseg.extras import check_memory, require
from kseg.files import names
from kseg.files.mapping import MappedFile

#: The first request for a place: a batch or two.
WINDOW_BYTES_MIN: Final = 256 << 10
#: Requests of a long walk; more would only delay the first rows.
WINDOW_BYTES_MAX: Final = 8 << 20

#: Hadoop's names for s3.
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
_PACKAGES: Final = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}


def is_remote(path: str) -> bool:
    """Whether a path is a URL of something that is no file of this machine."""
    return names.is_url(path) and urlsplit(path).scheme != "file"


def place(path: str) -> str | RemotePath:
    """A path for the functions that open files."""
    return RemotePath(path) if is_remote(path) else path


class RemotePath(PosixPath):
    """A URL with the type of a path; no disk has a file of this name."""

    __slots__ = ()

    def __str__(self) -> str:
        """The URL, with both its slashes."""
        scheme, _, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest.lstrip('/')}"

    def __fspath__(self) -> str:
        """The same, for messages."""
        return str(self)

    def open_elsewhere(self) -> RemoteFile:
        """Open the object for reading.

        Raises:
            MissingExtraError: no package here speaks with this store.
            OSError: there is no such object, or the store refuses.
        """
        store = Store.of(str(self))
        return RemoteFile(str(self), store, store.size(str(self)))


@dataclass(frozen=True, slots=True)
class Store:
    """One store, as fsspec has it."""

    system: Any

    @classmethod
    def of(cls, url: str) -> Store:
        """The store of a URL.

        Raises:
            MissingExtraError: the package for this store is not installed.
            ValueError: no package knows such a store.
        """
        require("fsspec", extra="cloud")
        from fsspec.core import url_to_fs

        scheme = urlsplit(url).scheme
        try:
            # What others have listed before may be out of date.
            system, _path = url_to_fs(_known(url), use_listings_cache=False)
        except ImportError as error:
            check_memory(error)
            if scheme in ("s3", *_SCHEMES):
                package, extra = "s3fs", "'kseg[cloud]'"
            else:
                package = extra = _PACKAGES.get(scheme, error.name or scheme)
            raise MissingExtraError(
                f"{package} is not installed; pip install {extra} brings it"
            ) from error
        except ValueError as error:
            raise ValueError(f"kseg: {url}: neither a file nor in a store: {error}") from None
        return cls(system)

    def size(self, url: str) -> int:
        """Bytes of an object."""
        with _named(url):
            return int(self.system.info(_known(url))["size"])

    def read(self, url: str, start: int, end: int) -> bytes:
        """A range of an object; fewer bytes where it ends before."""
        with _named(url):
            return bytes(self.system.cat_file(_known(url), start=start, end=end))

    def matches(self, url: str) -> list[str]:
        """The URLs that a pattern matches, in order."""
        with _named(url):
            return sorted(map(self._url, self.system.glob(_known(url))))

    def sizes(self, url: str) -> dict[str, int]:
        """Every object under a URL, or at it, and how large it is: a request for a thousand."""
        with _named(url):
            found = self.system.find(_known(url), detail=True)
        return {
            self._url(path): int(info["size"])
            for path, info in found.items()
            if info.get("type") == "file"
        }

    def _url(self, path: str) -> str:
        return str(RemotePath(self.system.unstrip_protocol(path)))


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Add the URL to the errors of a store."""
    try:
        yield
    except OSError as error:
        kinds = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES}
        number = error.errno or kinds.get(type(error), errno.EIO)
        raise OSError(number, os_reason(error), url) from error


def _known(url: str) -> str:
    """The URL under the scheme that fsspec knows."""
    scheme, mark, rest = url.partition("://")
    return f"{_SCHEMES.get(scheme.lower(), scheme)}{mark}{rest}"


class RemoteFile(MappedFile):
    """An object of a store, of the size that it had when it was opened; never mapped."""

    __slots__ = ("_ahead", "_at", "_closed", "_data", "_lock", "_pool", "_step", "_store")

    def __init__(self, url: str, store: Store, size: int) -> None:
        """Look at nothing yet; use `RemotePath.open_elsewhere`."""
        super().__init__(url, -1, "never")
        self._size = size
        self._store: Final = store
        self._lock: Final = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: Future[bytes] | None = None
        self._at, self._data, self._step = 0, memoryview(b""), WINDOW_BYTES_MIN
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed

    def read(self, position: int, size: int) -> memoryview:
        """Bytes from a position, fewer only where the object ended when it was opened.

        Raises:
            ValueError: `position` or `size` is negative, or the file is closed.
            CorruptRecordError: the object is shorter now than it was.
            OSError: the store refused.
        """
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if position < 0 or size < 0:
            raise ValueError(f"position {position} and size {size} must not be negative")
        end = min(position + size, self._size)
        if position >= end:
            return memoryview(b"")
        with self._lock:
            if not self._at <= position <= self._window_end:
                self._forget()
                self._at, self._step = position, WINDOW_BYTES_MIN
            if end > self._window_end:
                self._go_on(position, end)
            return self._data[position - self._at : end - self._at]

    @property
    def _window_end(self) -> int:
        return self._at + len(self._data)

    def _go_on(self, position: int, end: int) -> None:
        """Let the window begin at `position` and reach to `end` or further."""
        is_walk = len(self._data) > 0
        parts = [self._data[position - self._at :]]
        known = self._window_end
        if self._ahead is not None:
            parts.append(memoryview(self._ahead.result()))
            known, self._ahead = known + len(parts[-1]), None
        if known < end:
            stop = min(max(end, known + self._step), self._size)
            parts.append(memoryview(self._fetch(known, stop)))
            known = stop
        self._at, self._data = position, memoryview(b"".join(parts))
        if is_walk:
            self._step = min(2 * self._step, WINDOW_BYTES_MAX)
        if is_walk and known < self._size:
            self._ahead = self._worker().submit(
                self._fetch, known, min(known + self._step, self._size)
            )

    def _fetch(self, start: int, end: int) -> bytes:
        data = self._store.read(self.path, start, end)
        if len(data) < end - start:
            raise CorruptRecordError(
                f"the object shrank while it was read: {self._size} bytes when it was opened, "
                f"{start + len(data)} now; open it again",
                path=self.path,
                position=start,
            )
        return data

    def _worker(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "kseg-read-ahead")
        return self._pool

    def refresh(self) -> int:
        """Ask the store for the present size and answer it."""
        with self._lock:
            self._size = self._store.size(self.path)
        return self._size

    def _forget(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and not ahead.cancel():
            with suppress(OSError, CorruptRecordError):
                ahead.result()  # under way: its bytes and its error are not needed
        self._data = memoryview(b"")

    def close(self) -> None:
        """Release the connection's thread; a second call does nothing."""
        self._closed = True
        self._data = memoryview(b"")
        if self._ahead is not None:
            self._ahead.cancel()
        self._ahead = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def __del__(self) -> None:
        """Close a file that its user left open, as an abandoned generator does."""
        if not getattr(self, "_closed", True):
            self.close()


# ---- listing -------------------------------------------------------------------------------------


#: A directory of a store that may be a log: its objects as the files of a partition, bytes of each
#: object by its URL, and the segments that were named one by one, none where the directory was.
Found = tuple[names.PartitionFiles, dict[str, int], tuple[str, ...]]


def find_logs(given: str) -> Iterator[Found]:
    """The logs under a URL or a pattern: of a segment, a partition or a data directory.

    Raises:
        NotALogError: nothing is there.
        MissingExtraError: no package here speaks with the store.
        OSError: the store refuses.
    """
    store = Store.of(given)
    is_pattern = any(mark in given for mark in "*?[")
    urls = store.matches(given) if is_pattern else [str(RemotePath(_known(given)))]
    found = [log for url in urls for log in _under(store, url)]
    if not found:
        raise NotALogError("no segment is there: neither .log nor .kafka files", path=given)
    yield from found


def _under(store: Store, url: str) -> Iterator[Found]:
    sizes = store.sizes(url)
    if url in sizes:
        beside = store.sizes(str(RemotePath(url).parent))
        yield _sorted(RemotePath(url).parent, beside), beside, (url,)
        return
    directories: dict[RemotePath, dict[str, int]] = {}
    for path, size in sizes.items():
        directories.setdefault(RemotePath(path).parent, {})[path] = size
    top = RemotePath(url)
    own = _sorted(top, directories.get(top, {}))
    if own.segments:
        yield own, directories[top], ()
        return
    for directory, inside in sorted(directories.items()):
        files = _sorted(directory, inside)
        suffix = files.name.suffix if files.name is not None else None
        if directory.parent == top and suffix is None and files.segments:
            yield files, inside, ()


def _sorted(directory: Path, sizes: dict[str, int]) -> names.PartitionFiles:
    """The objects of one directory as the files of a partition."""
    known, foreign = [], []
    for path in map(RemotePath, sorted(sizes)):
        if path.parent != directory:
            continue
        try:
            name = names.parse_name(path.name)
        except NotALogError:
            name = None
        if name is None:
            foreign.append(path)
        else:
            known.append(names.NamedFile(name, path))
    return names.sort_partition(directory, known, foreign)


__all__ = ["RemoteFile", "RemotePath", "find_logs", "is_remote", "place"]
