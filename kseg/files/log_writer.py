"""The log file of a segment, open for appending.

Owns the end of the log, which differs from the end of a preallocated file. An append is written
whole or not at all: after an error the file is cut back to its end before. If that fails too, the
bytes beyond the end are unknown, and the writer refuses to go on.

A large log takes blocks from the file system in large pieces, ahead of the writes: one by one they
cost a third of an append. They lie beyond the end of the file, where no reader sees them, and are
released when the segment is finished, or after a kill when the log is closed the next time.

Source: Kafka `FileRecords`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kseg.constants import SEGMENT_BYTES_MAX, Buffer, StrPath
from kseg.errors import LimitExceededError, PoisonedFileError
from kseg.files import io
from kseg.files.io import Closing

#: A log that is so large takes blocks for as much again.
RESERVED_BYTES: Final = 4 * 2**20
#: More of a file's blocks than that beyond its end were left by a killed process.
_LEFT_BYTES: Final = 2**16


class LogWriter(Closing):
    """A `.log` file under one writer. Not for several threads at once.

    `open` acquires, `close` or leaving a `with` releases.

    Attributes:
        file: the open file, for reading at positions.
        size: bytes of log: the position of the next append.
        file_bytes: bytes of the file; more than `size` only where it is preallocated.
    """

    __slots__ = ("_dirty", "_failure", "_reserves", "_room", "file", "file_bytes", "size")

    def __init__(self, file: io.WriteFile, size: int, file_bytes: int) -> None:
        """Take over an open file; use `open` instead."""
        self.file: Final = file
        self.size = size
        self.file_bytes = file_bytes
        self._failure: BaseException | None = None
        # The contents of an existing file may be in the page cache alone.
        self._dirty = True
        # Whether blocks may lie beyond the end of the file.
        self._reserves = file.blocks_bytes - file_bytes > _LEFT_BYTES
        # An append up to here allocates no blocks ahead; `SEGMENT_BYTES_MAX` if none does any more.
        self._room = max(file_bytes, RESERVED_BYTES)

    @classmethod
    def open(cls, path: StrPath, *, create: bool = False, preallocate_bytes: int = 0) -> LogWriter:
        """Open a log file that is there, or make one.

        Args:
            path: the file.
            create: it must not be there yet.
            preallocate_bytes: the size of a new file, all zeros; its log is empty all the same.

        Raises:
            LimitExceededError: the file is longer than any segment.
            OSError: it is missing, or there already, or the disk refuses.
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
            parts: bytes.
            size: how many that is.

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
        if end > self._room:
            # Blocks for this append, and for some that follow.
            self._reserves = True
            room = end + RESERVED_BYTES
            taken = self.file.reserve(position, room - position)
            self._room = room if taken else SEGMENT_BYTES_MAX
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

        Preallocated bytes are cut off too, since data may lie there now. Blocks are not reserved
        any more: the disk may have none for others.
        """
        self._dirty = True
        self._room = SEGMENT_BYTES_MAX
        try:
            self.file.truncate(size)
        except BaseException:
            self._failure = cause
            raise
        self.size = self.file_bytes = size
        self._reserves = False

    def truncate(self, size: int) -> int:
        """Cut the log to `size` bytes; a shorter file is not changed.

        Returns:
            How many bytes of log went.

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
            self._reserves, self._room = False, max(size, RESERVED_BYTES)
        return removed

    def trim(self) -> None:
        """Cut off unused preallocated bytes, and release blocks.

        Raises:
            PoisonedFileError: an error before could not be undone.
            OSError: the disk refuses.
        """
        self.truncate(self.size)
        if self._reserves:
            self.file.release(self.size)
            self._reserves, self._room = False, max(self.size, RESERVED_BYTES)

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
            trim: false to release alone, as after an error.

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
