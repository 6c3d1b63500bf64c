"""A new object of a store, written from front to back: complete under its name, or absent.

A small object is written with one request. A larger one is an upload of parts: the store joins them
when the last has arrived, and no reader sees the object earlier. There is no copy on the disk of
this machine. An error removes the parts. A killed run leaves them; a rule for incomplete uploads
lets the store remove them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from typing import TYPE_CHECKING, Any, Final

from kseg.errors import KsegError, LimitExceededError
from kseg.files.whole_file import FileSink
from kseg.stores.store import MADE_MEANWHILE, PART_BYTES, Store, StoredObject, Upload

if TYPE_CHECKING:
    from kseg.stores.path import RemotePath

#: Parts of an object, as S3 and Google's store have it.
_PARTS_MAX: Final = 10_000


class ObjectSink(RawIOBase):
    """The object while it is written, by pyarrow too.

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
