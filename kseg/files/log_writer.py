"""The log file of a segment, open for appending.

Owns the end of the log, which differs from the end of a preallocated file. An append is written
whole or not at all: after an error the file is cut back to its end before. If that fails too, the
bytes beyond the end are unknown, and the writer refuses to go on.

A large log reserves blocks of the file system in large pieces, ahead of the writes: one at a time
they cost a third of an append. They are beyond the end of the file, where no reader sees them, and
are released when the segment is finished, or after a kill when the log is closed the next time.

Source: Kafka `FileRecords`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kseg.constants import SEGMENT_BYTES_MAX, Buffer, StrPath
from kseg.errors import LimitExceededError, PoisonedFileError
from kseg.files import io
from kseg.files.io import Closing

#: A log of this size reserves blocks for as many bytes again.
RESERVED_BYTES: Final = 4 * 2**20
#: If a file has more bytes of blocks than this beyond its end, a killed process left them.
_LEFT_BYTES: Final = 2**16


class LogWriter(Closing):
    """A `.log` file under one writer. Not for several threads at once.

    `open` acquires, `close` or leaving a `with` releases.

    Attributes:
        file: the open file, for reading at positions.
        size: the bytes of the log, which is the position of the next append.
        file_bytes: the bytes of the file; more than `size` only if zeros were preallocated.
    """

    __slots__ = (
        "_dirty",
        "_failure",
        "_has_reserved",
        "_reserve_after",
        "file",
        "file_bytes",
        "size",
    )

    def __init__(self, file: io.WriteFile, size: int, file_bytes: int) -> None:
        """Take over an open file; use `open` instead."""
        self.file: Final = file
        self.size = size
        self.file_bytes = file_bytes
        self._failure: BaseException | None = None
        # The contents of an existing file may be only in the page cache.
        self._dirty = True
        # Whether the file may have blocks beyond its end.
        self._has_reserved = file.blocks_bytes - file_bytes > _LEFT_BYTES
        # Only an append that ends after this position reserves blocks; `SEGMENT_BYTES_MAX`
        # switches that off.
        self._reserve_after = max(file_bytes, RESERVED_BYTES)

    @classmethod
    def open(cls, path: StrPath, *, create: bool = False, preallocate_bytes: int = 0) -> LogWriter:
        """Open an existing log file, or make one.

        Args:
            path: the file.
            create: make the file, which must not exist yet.
            preallocate_bytes: the size of a new file, all zeros; its log is empty all the same.

        Raises:
            LimitExceededError: the file is longer than any segment.
            OSError: the file is missing, or exists already, or the disk refuses.
        """
        file = io.WriteFile.open(path, exclusive=create)
        try:
            if create and preallocate_bytes:
                file.truncate(preallocate_bytes)
                return cls(file, 0, preallocate_bytes)
            size = 0 if create else file.size
            if size > SEGMENT_BYTES_MAX:
                raise LimitExceededError(
                    f"the file has {size} bytes; no segment has more than {SEGMENT_BYTES_MAX}",
                    path=path,
                )
        except BaseException:
            file.close()
            raise
        return cls(file, size, size)

    @property
    def path(self) -> str:
        """The file."""
        return self.file.path

    @property
    def poisoned(self) -> bool:
        """Whether the file's contents are unknown, since an error could not be undone."""
        return self._failure is not None or self.file.poisoned

    def append(self, *parts: Buffer) -> int:
        """Append all of the parts as `append_parts` does; the items of a memoryview are bytes."""
        return self.append_parts(parts, sum(map(len, parts)))

    def append_parts(self, parts: Sequence[Buffer], size: int) -> int:
        """Write all of the parts at the end, one after the other, or nothing.

        Args:
            parts: the bytes to write.
            size: the number of bytes of all parts.

        Returns:
            The position of the first byte.

        Raises:
            LimitExceededError: no file may become so long; nothing was written.
            PoisonedFileError: an error before could not be undone.
            OSError: the disk is full, or broken; the log ends where it ended before.
        """
        if self._failure is not None:
            self._refuse()
        position = self.size
        end = position + size
        if end > SEGMENT_BYTES_MAX:
            raise LimitExceededError(
                f"{size} bytes after {position} exceed the {SEGMENT_BYTES_MAX} bytes of a file",
                path=self.path,
                position=position,
            )
        self._dirty = True
        if end > self._reserve_after:
            # Blocks for this append, and for some that follow.
            self._has_reserved = True
            reserved_end = end + RESERVED_BYTES
            is_reserved = self.file.reserve(position, reserved_end - position)
            self._reserve_after = reserved_end if is_reserved else SEGMENT_BYTES_MAX
        try:
            self.file.write_parts(position, parts, size)
        except PoisonedFileError:
            raise
        except BaseException as error:
            self.cut_back(position, error)
            raise
        self.size = end
        if end > self.file_bytes:
            self.file_bytes = end
        return position

    def cut_back(self, size: int, cause: BaseException) -> None:
        """Cut off the bytes after `size` because of `cause`; if that fails, never write again.

        Preallocated bytes are cut off too, since they may be data now. Blocks are not reserved
        any more: the disk may have no room.
        """
        self._dirty = True
        self._reserve_after = SEGMENT_BYTES_MAX
        try:
            self.file.truncate(size)
        except BaseException:
            self._failure = cause
            raise
        self.size = self.file_bytes = size
        self._has_reserved = False

    def truncate(self, size: int) -> int:
        """Cut the log to `size` bytes; a shorter file is not changed.

        Returns:
            How many bytes of the log were cut off.

        Raises:
            ValueError: `size` is negative, or past the end of the log.
            PoisonedFileError: an error before could not be undone.
            OSError: the disk refuses.

        Source: Kafka `FileRecords.truncateTo`.
        """
        if self._failure is not None:
            self._refuse()
        removed = self.size - size
        if size < 0 or removed < 0:
            raise ValueError(f"cannot cut {self.size} bytes to {size}")
        if size < self.file_bytes:
            self._dirty = True
            self.file.truncate(size)
            self.size = self.file_bytes = size
            self._has_reserved, self._reserve_after = False, max(size, RESERVED_BYTES)
        return removed

    def trim(self) -> None:
        """Cut off unused preallocated bytes, and release blocks.

        Raises:
            PoisonedFileError: an error before could not be undone.
            OSError: the disk refuses.
        """
        self.truncate(self.size)
        if self._has_reserved:
            self.file.release(self.size)
            self._has_reserved, self._reserve_after = False, max(self.size, RESERVED_BYTES)

    def flush(self) -> None:
        """Make all bytes lasting; does nothing if nothing has changed since the last time.

        Raises:
            PoisonedFileError: an earlier flush failed, or an undoing.
            OSError: the flush failed; the file is poisoned.
        """
        if self._failure is not None:
            self._refuse()
        if self._dirty or self.file.poisoned:
            self.file.flush()
            self._dirty = False

    def close(self, *, trim: bool = True) -> None:
        """Trim, flush and release; a second call does nothing.

        Args:
            trim: false to release only, as after an error.

        Raises:
            OSError: the disk refuses, or a flush failed before; the file is released all the same.

        Source: Kafka `FileRecords.close`, `closeHandlers`.
        """
        if self.file.fd < 0:
            return
        try:
            if trim:
                self.trim()
                self.flush()
        finally:
            self.file.close()

    def _refuse(self) -> None:
        """Raise the error of a file that may not be written any more."""
        raise PoisonedFileError(
            f"an append failed ({self._failure}) and could not be undone: open the log again, "
            "which reads its end",
            path=self.path,
        ) from self._failure
