"""The common part of the offset index and the time index of a segment under a writer.

Slots of one size at the front of a file that has room for more, written in place with `pwrite`. The
bytes are those of Kafka, which maps the file instead. The first use makes a missing file, in its
full size and of zeros. In an existing file it finds the end of the used entries as a reader does
(`index_file`).

Zeros replace truncated entries at once, so that a reader beside the writer does not take the old
ones for used. Lookups go to the file, so that memory stays flat.

Source: Kafka `AbstractIndex`, `LazyIndex`.
"""

from __future__ import annotations

import struct
from os import fspath
from typing import ClassVar, Final, Self

import numpy as np

from kseg._kernels.index import bisect_entries
from kseg.constants import INT32_MAX
from kseg.errors import CorruptIndexError, OffsetOverflowError
from kseg.files import io
from kseg.files.closing import Closing
from kseg.files.index_file import INDEX_BYTES_MAX, IndexFile

#: What a lookup reads at a time: the end of the index first, where most answers are.
_WARM_BYTES: Final = 8192


class IndexSlots(Closing):
    """The used slots of one index file: appending, truncating, lookups.

    Attributes:
        path: the file, whether it exists yet or not.
        base_offset: of the segment.
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
    LAYOUT: ClassVar[np.dtype[np.void]]
    RELATIVE_AT: ClassVar[int]

    def __init__(self, path: str, base_offset: int, bytes_max: int, used: int | None) -> None:
        """Take note of a path; use `open` instead."""
        self.path = path
        self.base_offset: Final = base_offset
        self.bytes_max = bytes_max
        self._used = used
        self._file: io.WriteFile | None = None
        self._count = self._slots = self._length = 0
        self._dirty = self._closed = False

    @classmethod
    def open(
        cls,
        path: io.StrPath,
        base_offset: int,
        *,
        bytes_max: int,
        used: int | None = None,
    ) -> Self:
        """Take note of an index; the file is opened, or made, at its first use.

        Args:
            path: the file.
            base_offset: of the segment.
            bytes_max: the size of a new file, rounded down to whole slots.
            used: how many entries of an existing file count; found out if None.

        Raises:
            ValueError: `bytes_max` has no room for an entry.
        """
        if not cls.ENTRY.size <= bytes_max <= INDEX_BYTES_MAX:
            raise ValueError(f"{bytes_max} bytes are no size for an index")
        return cls(fspath(path), base_offset, bytes_max, used)

    # ---- state -----------------------------------------------------------------------------------

    @property
    def opened(self) -> bool:
        """Whether the file has been used; until then it may not exist."""
        return self._file is not None

    @property
    def count(self) -> int:
        """Entries in use."""
        if self._file is None:
            self._load()
        return self._count

    @property
    def slots(self) -> int:
        """Entries that the file has room for."""
        if self._file is None:
            self._load()
        return self._slots

    @property
    def size(self) -> int:
        """Bytes of the entries in use."""
        return self.count * self.ENTRY.size

    @property
    def is_full(self) -> bool:
        """Whether no slot is left."""
        if self._file is None:
            self._load()
        return self._count >= self._slots

    # ---- the file --------------------------------------------------------------------------------

    def _load(self) -> io.WriteFile:
        """Open or make the file, at the first use."""
        if self._file is not None:
            return self._file
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        size = self.ENTRY.size
        try:
            file = io.WriteFile.open(self.path)
        except FileNotFoundError:
            file = io.WriteFile.open(self.path, exclusive=True)
            count, length = 0, self.bytes_max // size * size
        else:
            try:
                count, length = self._look_into(file)
            except BaseException:
                file.close()
                raise
        try:
            if file.size != length:
                file.truncate(length)
            self._read_last(file, count)
        except BaseException:
            file.close()
            raise
        self._file = file
        self._count, self._slots, self._length = count, length // size, length
        # What is in an existing file may be in the page cache alone.
        self._dirty = True
        return file

    def _look_into(self, file: io.WriteFile) -> tuple[int, int]:
        """Used entries and length of an existing file, cleared of anything behind those entries."""
        length = file.size
        size = self.ENTRY.size
        if self._used is None:
            found = IndexFile.open(self.path, self.LAYOUT, "never")
            count = found.count
            found.close()
            return count, length
        count = min(self._used, length // size)
        if count * size < length:
            file.truncate(count * size)
        return count, length

    def _read_last(self, file: io.WriteFile, count: int) -> None:
        """Remember the last of so many entries."""
        raise NotImplementedError

    def _entry_at(self, file: io.WriteFile, slot: int) -> tuple[int, int]:
        size = self.ENTRY.size
        data = file.read_at(slot * size, size)
        if len(data) < size:
            raise self._shorter()
        first, second = self.ENTRY.unpack(data)
        return first, second

    def _write(self, data: io.Bytes, count: int) -> None:
        """Put so many entries behind the used ones of the open file."""
        assert self._file is not None
        self._dirty = True
        self._file.write_at(self._count * self.ENTRY.size, data)
        self._count += count

    def _check_room(self, count: int) -> None:
        if count > self.slots - self._count:
            raise ValueError(f"{self.path} has room for {self._slots - self._count} entries more")

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            raise OffsetOverflowError(
                f"it has no 32-bit form relative to {self.base_offset}",
                path=self.path,
                offset=offset,
            )
        return relative

    # ---- finding ---------------------------------------------------------------------------------

    def _floor(self, key_at: int, key_bytes: int, target: int) -> int:
        """Slot of the last entry whose key is at most `target`; -1 if there is none.

        The end of the index first, as in Kafka's warm section: one read then does.
        """
        file = self._load()
        size = self.ENTRY.size
        block = _WARM_BYTES // size
        low, high = max(self._count - block, 0), self._count
        slot = self._floor_within(file, low, high, key_at, key_bytes, target)
        if slot >= 0 or low == 0:
            return slot
        low, high = 0, low
        while high - low > block:
            middle = (low + high) // 2
            data = file.read_at(middle * size + key_at, key_bytes)
            if len(data) < key_bytes:
                raise self._shorter()
            if int.from_bytes(data, "big", signed=True) <= target:
                low = middle
            else:
                high = middle
        return self._floor_within(file, low, high, key_at, key_bytes, target)

    def _floor_within(
        self, file: io.WriteFile, low: int, high: int, key_at: int, key_bytes: int, target: int
    ) -> int:
        size = self.ENTRY.size
        data = file.read_at(low * size, (high - low) * size)
        if len(data) < (high - low) * size:
            raise self._shorter()
        slot = bisect_entries(data, size, key_at, key_bytes, high - low, target)
        return -1 if slot < 0 else low + slot

    def _shorter(self) -> CorruptIndexError:
        return CorruptIndexError("the file is shorter than its entries", path=self.path)

    # ---- cutting ---------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Remove each entry whose offset is at or past `offset`, and answer how many went.

        Source: Kafka `OffsetIndex.truncateTo`, `TimeIndex.truncateTo`.
        """
        before = self.count
        below = min(offset - self.base_offset - 1, INT32_MAX)
        if below < 0:
            self.truncate_to_count(0)
        else:
            self.truncate_to_count(self._floor(self.RELATIVE_AT, 4, below) + 1)
        return before - self._count

    def truncate_to_count(self, count: int) -> None:
        """Keep the first `count` entries; the file's length stays.

        Source: Kafka `truncateToEntries`.
        """
        file = self._load()
        if count >= self._count:
            return
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
        """Give the file `size` bytes, rounded down to whole slots; answer whether that differs.

        Raises:
            ValueError: the entries in use need more.
        """
        file = self._load()
        entry = self.ENTRY.size
        slots = size // entry
        if slots * entry == self._length:
            return False
        if slots < self._count or size > INDEX_BYTES_MAX:
            raise ValueError(f"{size} bytes are no size for an index of {self._count} entries")
        self._dirty = True
        file.truncate(slots * entry)
        self._slots, self._length = slots, slots * entry
        return True

    def trim(self) -> None:
        """Cut the file behind the used entries. Source: Kafka `trimToValidSize`."""
        self.resize(self.size)

    # ---- closing ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make the entries lasting; makes the file if there is none yet.

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
            trim: false to release alone, as after an error.

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

    def renamed(self, path: str) -> None:
        """Note that the file has, or will have, another name."""
        self.path = path
        if self._file is not None:
            self._file.path = path
