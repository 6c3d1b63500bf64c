"""A URL as a path: it opens itself, lists what lies below it, and takes a whole new object.

What lies below a URL is listed as a directory of Kafka's.

A new object is written from front to back: it is complete under its name, or absent. A small one is
written with one request. A larger one is an upload of parts: the store joins them when the last has
arrived, and no reader sees the object earlier. There is no copy on the disk of this machine. An
error removes the parts. A killed run leaves them; a rule for incomplete uploads lets the store
remove them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from kseg.constants import StrPath
from kseg.errors import KsegError, LimitExceededError, NotALogError
from kseg.files import names
from kseg.files.grammar import is_url
from kseg.files.names import KnownPath, Partition, PartitionFiles, PathKind
from kseg.files.whole_file import FileSink
from kseg.stores.store import (
    MADE_MEANWHILE,
    PART_BYTES,
    SCHEMES,
    Store,
    StoredObject,
    Upload,
    check_url,
)

if TYPE_CHECKING:
    from kseg.stores.ranges import StoredFile


#: The schemes of web servers.
_WEB: Final = ("http", "https")


def _store(url: str) -> Store:
    """The store of a URL; the module of stores is loaded for URLs only."""
    return Store.of(url)


def is_remote(path: str) -> bool:
    """Whether a path is a URL of something outside of this machine's files."""
    return is_url(path) and urlsplit(path).scheme.lower() != "file"


def place(path: str) -> Any:
    """A path for the functions that open files: text, or the name of a file elsewhere.

    Raises:
        ValueError: it is a URL with credentials.
    """
    if isinstance(path, PlaceName):
        return path.path
    if not is_remote(path):
        return unquote(urlsplit(path).path) if is_url(path) else path
    check_url(path)
    # The path is spelled with the scheme that stores know.
    return RemotePath(str(RemotePath(path)))


def path_at(name: StrPath) -> Path:
    """The path of a name: a URL's lists and opens itself."""
    if isinstance(name, Path):
        return name
    where = place(os.fspath(name) if not isinstance(name, PlaceName) else name)
    return where if isinstance(where, Path) else Path(where)


def local_path_at(name: StrPath) -> Path:
    """The local path with a name, for functions that change files or predict such changes.

    Raises:
        ValueError: it is a URL.
    """
    path = path_at(name)
    if isinstance(path, RemotePath):
        raise ValueError(f"{path} is in a store; this is about directories of this machine")
    return path


def out_path(name: StrPath) -> Path:
    """The path of a new file, or of a directory for new files; sends no request to a store.

    Raises:
        MissingExtraError: no package here speaks with the store.
        ValueError: it is a URL with credentials, of no known store, or of a web server.
    """
    path = path_at(name)
    if isinstance(path, RemotePath):
        if urlsplit(str(path)).scheme in _WEB:
            raise ValueError(f"{path} is on a web server, which takes no files")
        _store(str(path))
    return path


class RemotePath(PosixPath):
    """A URL in the form of a path; no disk has a file of this name.

    Attributes:
        stored: the object as a listing described it; absent without a listing.
    """

    __slots__ = ("stored",)
    stored: StoredObject

    @classmethod
    def of(cls, stored: StoredObject) -> RemotePath:
        """The path of an object that a listing has shown."""
        path = cls(stored.url)
        path.stored = stored
        return path

    def __str__(self) -> str:
        """The URL, with both its slashes."""
        scheme, _, rest = super().__str__().partition(":/")
        return f"{SCHEMES.get(scheme.lower(), scheme)}://{rest.lstrip('/')}"

    def __fspath__(self) -> str:
        """The path as text, for messages."""
        return str(self)

    def described(self) -> StoredObject:
        """The store's description of the object: no request if a listing has given it.

        Raises:
            MissingExtraError: no package here speaks with this store.
            OSError: the object does not exist, or the store refuses.
        """
        if not hasattr(self, "stored"):
            self.stored = _store(str(self)).describe(str(self))
        return self.stored

    def exists(self, **_options: object) -> bool:
        """Whether there is an object of this name; OSError if the store does not say."""
        with suppress(FileNotFoundError):
            return hasattr(self, "stored") or bool(_store(str(self)).describe(str(self)))
        return False

    def is_dir(self, **_options: object) -> bool:
        """Whether there are objects below it."""
        return any(stored.url != str(self) for stored in _store(str(self)).listed(str(self)))

    def size_elsewhere(self) -> int:
        """Bytes of the object."""
        return self.described().size

    def open_elsewhere(self) -> StoredFile:
        """Open the object for reading; see `described` for the errors."""
        from kseg.stores.ranges import StoredFile

        return StoredFile(_store(str(self)), self.described())

    def classify_elsewhere(self) -> KnownPath:
        """Classify the URL as `kseg.files.names.classify_path` does; lists it once.

        Raises:
            NotALogError: it is not Kafka's.
            MissingExtraError: no package here speaks with this store.
            OSError: there is nothing, or the store refuses.
        """
        is_web = urlsplit(str(self)).scheme in _WEB
        named = _name_of(self)
        if is_web or named is not None:
            self.described()
            return KnownPath(self, PathKind.FILE, file=names.file_name(self))
        objects = [RemotePath.of(stored) for stored in _store(str(self)).listed(str(self))]
        classified = _classify_objects(self, objects)
        if classified is None:
            if not objects:
                self.described()  # an object, or an error that says that it does not exist
                return KnownPath(self, PathKind.FILE, file=names.file_name(self))
            raise NotALogError("no segment is there: neither .log nor .kafka files", path=self)
        return classified

    def absolute(self) -> RemotePath:
        """The path itself."""
        return self

    def resolve(self, strict: bool = False) -> RemotePath:
        """The path itself."""
        return self


class PlaceName(str):
    """The name of a file elsewhere as text, which opens as its path does.

    Attributes:
        path: the path of the file.
    """

    __slots__ = ("path",)
    path: Any

    def __reduce__(self) -> tuple[Any, ...]:
        """With the path."""
        return name_of, (self.path,)

    def open_elsewhere(self) -> Any:
        """As for the path."""
        return self.path.open_elsewhere()

    def size_elsewhere(self) -> int:
        """As for the path."""
        size: int = self.path.size_elsewhere()
        return size

    def classify_elsewhere(self) -> KnownPath:
        """As for the path."""
        classified: KnownPath = self.path.classify_elsewhere()
        return classified


def name_of(path: StrPath) -> str:
    """A path as text; that of a file elsewhere can still be opened."""
    if isinstance(path, PlaceName) or not hasattr(path, "open_elsewhere"):
        return os.fspath(path)
    name = PlaceName(os.fspath(path))
    name.path = path
    return name


def _name_of(path: Path) -> names.FileName | None:
    """Parse the name of a file; None for a name that is not Kafka's."""
    try:
        return names.parse_name(path.name)
    except NotALogError:
        return None


def _classify_objects(top: RemotePath, objects: Iterable[RemotePath]) -> KnownPath | None:
    """Classify the objects below a URL: a partition, a data directory, or None."""
    inside: dict[RemotePath, list[RemotePath]] = {}
    for path in objects:
        inside.setdefault(path.parent, []).append(path)
    top_files = _files(top, inside.get(top, ()))
    if top_files.segments or top_files.snapshots or top_files.leader_epochs:
        return KnownPath(top, PathKind.PARTITION, partition=top_files.name, listing=top_files)
    partitions = []
    for directory, paths in sorted(inside.items()):
        files = _files(directory, paths)
        if directory.parent == top and files.segments:
            partitions.append(Partition(directory, files.name, files))
    beside = tuple(
        names.NamedFile(name, path)
        for path in inside.get(top, ())
        if (name := _name_of(path)) is not None
    )
    if not partitions:
        return None
    listing = names.DataDirectory(top, tuple(partitions), beside)
    return KnownPath(top, PathKind.DATA_DIRECTORY, listing=listing)


def _files(directory: Path, paths: Iterable[RemotePath]) -> PartitionFiles:
    """Sort the objects of one directory as the files of a partition."""
    named_files, foreign = [], []
    for path in sorted(paths):
        name = _name_of(path)
        if name is None:
            foreign.append(path)
        else:
            named_files.append(names.NamedFile(name, path))
    return names.sort_partition(directory, named_files, foreign)


#: Parts of an object, as S3 and Google's store have it.
_PARTS_MAX: Final = 10_000


class ObjectSink(RawIOBase):
    """An object while it is written, by pyarrow too.

    Attributes:
        target: its path.
    """

    def __init__(self, target: RemotePath) -> None:
        """Ask for nothing yet."""
        self.target: Final = target
        self._url: Final = str(target)
        self._store: Final = Store.of(self._url)
        self._upload: Upload | None = None
        self._held = bytearray()
        self._size = 0

    def writable(self) -> bool:
        """Always true: bytes are written in order, and cannot be read."""
        return True

    def tell(self) -> int:
        """How many bytes there are."""
        return self._size

    def write(self, data: Any, /) -> int:
        """Add bytes at the end.

        Raises:
            LimitExceededError: no store takes so large an object.
            OSError: the store refuses a part.
        """
        view = memoryview(data).cast("B")
        self._size += len(view)
        if self._size > PART_BYTES * _PARTS_MAX:
            reason = f"more than {_PARTS_MAX} parts of {PART_BYTES >> 20} MiB; write several files"
            raise LimitExceededError(reason, path=self._url)
        self._held += view
        while len(self._held) >= PART_BYTES:
            self._upload = self._upload or self._store.upload(self._url)
            part = self._held[:PART_BYTES]  # the upload keeps it until it is sent
            del self._held[:PART_BYTES]
            self._upload.write(part)
        return len(view)

    def complete(self, *, new: bool) -> None:
        """Make the object appear; see `whole_object` for the errors."""
        if self._upload is None:
            self._store.put(self._url, self._held, new=new)
            return
        if self._held:
            self._upload.write(self._held)
        if new and self.target.exists():  # an upload has no condition
            raise FileExistsError(errno.EEXIST, MADE_MEANWHILE, self._url)
        self._upload.complete()

    def abort(self) -> None:
        """Remove what was written; a failure of that is ignored."""
        if self._upload is not None:
            with suppress(OSError, KsegError):
                self._upload.abort()


#: A new file, of this machine or of a store.
Sink = FileSink | ObjectSink


@contextmanager
def whole_object(target: RemotePath, *, new: bool) -> Iterator[ObjectSink]:
    """An object that appears, replacing an existing one, when the block ends without error.

    Args:
        target: its path.
        new: refuse an object that another program made meanwhile.

    Raises:
        FileExistsError: it exists.
        LimitExceededError: the object is larger than stores allow.
        OSError: the store refuses; an existing object stays.
    """
    sink = ObjectSink(target)
    try:
        yield sink
        sink.complete(new=new)
    except BaseException:
        sink.abort()
        raise
    target.stored = StoredObject(str(target), sink.tell())
