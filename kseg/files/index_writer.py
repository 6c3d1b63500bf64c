"""The offset index and the time index of a segment under a writer.

Slots of one size at the front of a file that has room for more, written in place with `pwrite`. The
bytes are those of Kafka, which maps the file instead. The first use makes a missing file, in its
full size and of zeros. In an existing file it finds the end of the used entries as a reader does.

Zeros replace truncated entries at once, so that a reader beside the writer does not take the old
ones for used.

Entries are hints: they are not flushed with the records, and a recovery rebuilds them. Not for
several threads at once.

Source: Kafka `AbstractIndex`, `LazyIndex`, `OffsetIndex`, `TimeIndex`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from os import fspath
from typing import ClassVar, Final, Self

from kseg.constants import INT32_MAX, NO_TIMESTAMP, Buffer, StrPath
from kseg.errors import CorruptIndexError, OffsetOverflowError, OffsetsOutOfOrderError
from kseg.files import io
from kseg.files.index import (
    INDEX_BYTES_MAX,
    OFFSET_ENTRY,
    TIME_ENTRY,
    IndexFile,
    OffsetIndex,
    TimeIndex,
    TimeIndexEntry,
)
from kseg.files.io import Closing


class IndexSlots(Closing):
    """The used slots of one index file: appending, truncating, lookups.

    Attributes:
        path: the file, whether it exists yet or not.
        base_offset: the base offset of the segment.
        bytes_max: the size of a new file, rounded down to whole slots.
    """

    __slots__ = (
        "_closed",
        "_count",
        "_dirty",
        "_file",
        "_length",
        "_slots",
        "_used",
        "base_offset",
        "bytes_max",
        "path",
    )

    ENTRY: ClassVar[struct.Struct]
    #: Which field of an entry is the relative offset.
    RELATIVE: ClassVar[int]
    READER: ClassVar[type[IndexFile]]

    def __init__(self, path: str, base_offset: int, bytes_max: int, used: int | None) -> None:
        """Take note of a path; use `open` instead, which explains the arguments."""
        self.path = path
        self.base_offset: Final = base_offset
        self.bytes_max = bytes_max
        self._used = used
        self._file: io.WriteFile | None = None
        self._count = self._slots = self._length = 0  # used entries, slots, and bytes of the file
        self._dirty = self._closed = False

    @classmethod
    def open(
        cls,
        path: StrPath,
        base_offset: int,
        *,
        bytes_max: int,
        used: int | None = None,
    ) -> Self:
        """Describe an index; the file is opened, or made, at its first use.

        Args:
            path: the file.
            base_offset: the base offset of the segment.
            bytes_max: the size of a new file, rounded down to whole slots.
            used: the number of entries of an existing file; searched for if None.

        Raises:
            ValueError: `bytes_max` has no room for an entry.
        """
        if not cls.ENTRY.size <= bytes_max <= INDEX_BYTES_MAX:
            raise ValueError(f"{bytes_max} bytes are not a possible size of an index")
        return cls(fspath(path), base_offset, bytes_max, used)

    # ---- state -----------------------------------------------------------------------------------

    @property
    def opened(self) -> bool:
        """Whether the file has been used; until then it may not exist."""
        return self._file is not None

    @property
    def count(self) -> int:
        """The number of entries in use."""
        self._load()
        return self._count

    @property
    def slots(self) -> int:
        """Entries that the file has room for."""
        self._load()
        return self._slots

    @property
    def size(self) -> int:
        """Bytes of the entries in use."""
        return self.count * self.ENTRY.size

    @property
    def is_full(self) -> bool:
        """Whether no slot is left."""
        self._load()
        return self._count >= self._slots

    # ---- the file --------------------------------------------------------------------------------

    def _load(self) -> io.WriteFile:
        """The open file; at the first use it is opened or made, and its last entry read."""
        if self._file is not None:
            return self._file
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        size = self.ENTRY.size
        is_new = False
        try:
            file = io.WriteFile.open(self.path)
        except FileNotFoundError:
            file, is_new = io.WriteFile.open(self.path, exclusive=True), True
        try:
            count, length = 0, self.bytes_max // size * size
            if not is_new:
                count, length = self._count_used(file)
            if file.size != length:
                file.truncate(length)
            self._read_last(file, count)
        except BaseException:
            file.close()
            raise
        self._file = file
        self._count, self._slots, self._length = count, length // size, length
        # The contents of an existing file may be only in the page cache.
        self._dirty = True
        return file

    def _count_used(self, file: io.WriteFile) -> tuple[int, int]:
        """Used entries and length of an existing file, cleared of anything after those entries."""
        length = file.size
        size = self.ENTRY.size
        if self._used is None:
            with self.READER.open(self.path, self.base_offset, mapping="never") as reader:
                return reader.entry_count, length
        count = min(self._used, length // size)
        if count * size < length:
            file.truncate(count * size)
        return count, length

    def _read_last(self, file: io.WriteFile, count: int) -> None:
        """Read and remember the last entry of an index with so many."""
        raise NotImplementedError

    def _entry_at(self, file: io.WriteFile, slot: int) -> tuple[int, int]:
        """The two fields of an entry, as they are in the file; see `RELATIVE` for their order."""
        size = self.ENTRY.size
        data = file.read_at(slot * size, size)
        if len(data) < size:
            raise CorruptIndexError("the file is shorter than its entries", path=self.path)
        first, second = self.ENTRY.unpack(data)
        return first, second

    def _write(self, data: Buffer) -> None:
        """Write packed entries after the used ones."""
        size, file, used = self.ENTRY.size, self._file or self._load(), self._count
        count = len(data) // size
        if used + count > self._slots:
            self._check_room(count)
        if count:
            self._dirty = True
            file.write_parts(used * size, (data,), len(data))
            self._count = used + count

    def _check_room(self, count: int) -> None:
        """Refuse so many more entries if they do not fit."""
        if count > self.slots - self._count:
            raise ValueError(f"{self.path} has room for {self._slots - self._count} entries more")

    def _relative_offset(self, offset: int) -> int:
        """An offset as entries store it: relative to the base, in 32 bits."""
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            raise OffsetOverflowError(
                f"it has no 32-bit form relative to {self.base_offset}",
                path=self.path,
                offset=offset,
            )
        return relative

    # ---- cutting ---------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Remove each entry whose offset is at or past `offset`; return how many were removed.

        Source: Kafka `OffsetIndex.truncateTo`, `TimeIndex.truncateTo`.
        """
        before, file = self.count, self._load()
        below = offset - self.base_offset - 1

        def relative_at(slot: int) -> int:
            return self._entry_at(file, slot)[self.RELATIVE]

        count = bisect_right(range(before), below, key=relative_at) if below >= 0 else 0
        self.truncate_to_count(count)
        return before - self._count

    def truncate_to_count(self, count: int) -> None:
        """Keep the first `count` entries; the file's length stays.

        Source: Kafka `truncateToEntries`.
        """
        file = self._load()
        if count >= self._count:
            return
        # Cut to the entries, and given its length again, so that the slots after are zeros.
        length, self._length = self._length, count * self.ENTRY.size
        self._dirty = True
        file.truncate(self._length)
        self._count = self._slots = count
        self._read_last(file, count)
        file.truncate(length)
        self._length, self._slots = length, length // self.ENTRY.size

    def clear(self) -> None:
        """Remove all entries, and give the file its full size again. Source: Kafka `reset`."""
        self.truncate_to_count(0)
        self.resize(self.bytes_max)

    def resize(self, size: int) -> bool:
        """Set the file's size, rounded down to whole slots; return whether that changes it.

        Raises:
            ValueError: the entries in use need more.
        """
        file = self._load()
        entry = self.ENTRY.size
        slots = size // entry
        if slots * entry == self._length:
            return False
        if slots < self._count or size > INDEX_BYTES_MAX:
            raise ValueError(
                f"{size} bytes are not a possible size of an index of {self._count} entries"
            )
        self._dirty = True
        file.truncate(slots * entry)
        self._slots, self._length = slots, slots * entry
        return True

    def trim(self) -> None:
        """Cut the file after the used entries. Source: Kafka `trimToValidSize`."""
        self.resize(self.size)

    # ---- closing ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Flush the entries; creates a missing file.

        Raises:
            PoisonedFileError: a flush has failed before.
            OSError: the flush failed; the file is poisoned.
        """
        file = self._load()
        if self._dirty or file.poisoned:
            file.flush()
            self._dirty = False

    def close(self, *, trim: bool = True) -> None:
        """Trim, flush and release a file, if it was ever used; a second call does nothing.

        Args:
            trim: false to release only, as after an error.

        Raises:
            OSError: the disk refuses; the file is released all the same.
        """
        self._closed = True
        file = self._file
        if file is None:
            return
        try:
            if trim:
                self.trim()
                self.flush()
        finally:
            file.close()
            self._file = None


class OffsetIndexWriter(IndexSlots):
    """The `.index` of a segment that is written to."""

    __slots__ = ("_last_offset",)

    ENTRY = OFFSET_ENTRY
    RELATIVE = 0
    READER = OffsetIndex

    def _read_last(self, file: io.WriteFile, count: int) -> None:
        relative = self._entry_at(file, count - 1)[0] if count else 0
        self._last_offset = self.base_offset + relative

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset without entries."""
        self._load()
        return self._last_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry: `offset` is the last one of the batch that starts at `position`.

        Raises:
            ValueError: no slot is left.
            OffsetsOutOfOrderError: `offset` is not above that of the last entry.
            OffsetOverflowError: `offset` has no 32-bit form relative to the base.
            OSError: the disk refuses.

        Source: Kafka `OffsetIndex.append`.
        """
        self._check_room(1)
        if self._count and offset <= self._last_offset:
            raise OffsetsOutOfOrderError(
                f"it is not above {self._last_offset}, the last one of the index",
                path=self.path,
                offset=offset,
            )
        self._write(self.ENTRY.pack(self._relative_offset(offset), position))
        self._last_offset = offset

    def stand(self) -> tuple[int, int]:
        """Offset of the last entry, one below the base if there is none; and the free slots."""
        self._load()
        count = self._count
        return self._last_offset if count else self.base_offset - 1, self._slots - count

    def append_packed(self, data: Buffer, last_offset: int) -> None:
        """Add packed entries that the caller has compared with the entries before.

        Args:
            data: whole entries, no more than fit.
            last_offset: the offset in the last of them.
        """
        self._write(data)
        if len(data):
            self._last_offset = last_offset


class TimeIndexWriter(IndexSlots):
    """The `.timeindex` of a segment that is written to.

    One slot is reserved for the entry that is made when the segment is closed.
    """

    __slots__ = ("_last",)

    ENTRY = TIME_ENTRY
    RELATIVE = 1
    READER = TimeIndex

    def _read_last(self, file: io.WriteFile, count: int) -> None:
        timestamp, relative = self._entry_at(file, count - 1) if count else (NO_TIMESTAMP, 0)
        self._last = TimeIndexEntry(timestamp, self.base_offset + relative)

    @property
    def is_full(self) -> bool:
        """Whether no slot is left but the last."""
        self._load()
        return self._count >= self._slots - 1

    @property
    def last_entry(self) -> TimeIndexEntry:
        """The last entry; (-1, base offset) without entries."""
        self._load()
        return self._last

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> bool:
        """Add an entry if `timestamp` (ms) is above the last entry's; return whether it was added.

        Args:
            timestamp: the largest of the segment so far.
            offset: the last offset of the earliest batch that has it.
            skip_full_check: use the slot that is reserved for the end; if that is used too, nothing
                is added.

        Raises:
            ValueError: it is full, or `timestamp` is below that of the last entry.
            OffsetsOutOfOrderError: `offset` is below that of the last entry.
            OffsetOverflowError: `offset` has no 32-bit form relative to the base.
            OSError: the disk refuses.

        Source: Kafka `TimeIndex.maybeAppend`.
        """
        if not skip_full_check and self.is_full:
            raise ValueError(f"{self.path} is full: {self._count} of {self._slots} slots")
        last = self.last_entry
        if self._count and (offset < last.offset or timestamp < last.timestamp):
            if offset < last.offset:
                raise OffsetsOutOfOrderError(
                    f"it is below {last.offset}, the last one of the index",
                    path=self.path,
                    offset=offset,
                )
            raise ValueError(f"{self.path}: {timestamp} ms is below {last.timestamp}")
        if timestamp <= last.timestamp or self._count >= self._slots:
            return False
        self._write(self.ENTRY.pack(timestamp, self._relative_offset(offset)))
        self._last = TimeIndexEntry(timestamp, offset)
        return True

    def stand(self) -> tuple[TimeIndexEntry, int]:
        """The last entry, (-1, base offset) without entries; and the free slots but the last."""
        self._load()
        return self._last, self._slots - 1 - self._count

    def append_packed(self, data: Buffer, last: TimeIndexEntry) -> None:
        """Add packed entries that the caller has compared with the entries before.

        Args:
            data: whole entries, no more than fit.
            last: the last of these entries.
        """
        self._write(data)
        if len(data):
            self._last = last
