"""The common part of offset index and time index: slots of one size, and the end of the used ones.

    offset index, 8 bytes a slot        time index, 12 bytes a slot
    0  int32  offset - base             0  int64  timestamp
    4  int32  position in the log       8  int32  offset - base

Big-endian, no header, no count, no checksum. Kafka preallocates the file of the segment that it
writes to and cuts it when the segment is closed, so after a crash zeros follow the last entry.
Offsets grow from entry to entry, hence a slot past the first whose relative offset is 0 is unused,
and so is everything behind it: the end is found by bisection, not by sweeping 10 MB of zeros.
Kafka itself does not look and takes such zeros for entries until it rebuilds the index.

Source: Kafka `AbstractIndex`, `OffsetIndex`, `TimeIndex`, `DumpLogSegments` (the rule of the tail).
"""

from __future__ import annotations

import struct
from os import PathLike, fspath
from typing import ClassVar, Final, Self

import numpy as np

from kseg._kernels.index import lookup_entries
from kseg.constants import Int64s
from kseg.errors import CorruptIndexError, CorruptRecordError
from kseg.files.closing import Closing
from kseg.files.grammar import OFFSET_MAX
from kseg.files.mapping import MappedFile, Mapping

#: Kafka maps an index through a 32-bit length.
INDEX_BYTES_MAX: Final = 2**31 - 1
#: In place of the number of entries: the index is closed.
CLOSED: Final = -1

#: How often a file may be found trimmed before we give up; a broker does it once.
_TRIMS_MAX: Final = 8

#: What is looked through for zeros at a time.
_WINDOW_BYTES: Final = 2**20

_RELATIVE: Final = struct.Struct(">i")


class IndexFile:
    """The slots of one index file, mapped or copied, and how many of them are used.

    `open` acquires, `close` releases. A missing file is an index without entries.

    Attributes:
        path: the file.
        data: the used entries and perhaps more, read-only bytes.
        count: used entries; CLOSED after `close`.
        slots: whole entries that the file has room for.
        length: bytes of the file, which a whole number of slots need not fill.
    """

    __slots__ = ("_entry", "_file", "_relative_at", "count", "data", "length", "path", "slots")

    def __init__(self, path: str, file: MappedFile | None, entry: np.dtype[np.void]) -> None:
        """Own an open file, or none; callers use `open`."""
        assert entry.fields is not None
        self.path: Final = path
        self._file = file
        self._entry = entry
        self._relative_at = entry.fields["relative"][1]
        self.data = memoryview(b"")
        self.count = self.slots = self.length = 0

    @classmethod
    def open(
        cls, path: str | PathLike[str], entry: np.dtype[np.void], mapping: Mapping
    ) -> IndexFile:
        """Open an index whose slots have the layout `entry`; one field is called `relative`.

        Raises:
            CorruptIndexError: the file is longer than any index.
            OSError: there is a file, but it cannot be read.
        """
        try:
            file = MappedFile.open(path, mapping, index=True)
        except FileNotFoundError:
            return cls(fspath(path), None, entry)
        index = cls(fspath(path), file, entry)
        try:
            index.refresh()
        except BaseException:
            index.close()
            raise
        return index

    @property
    def missing(self) -> bool:
        """Whether there was no file to open."""
        return self._file is None

    def refresh(self) -> None:
        """Read the end anew: another process may have added entries, or truncated the file.

        Raises:
            CorruptIndexError: the file is longer than any index, or keeps shrinking.
        """
        self.check_open()
        if self._file is None:
            return
        for _ in range(_TRIMS_MAX):
            try:
                return self._load(self._file)
            except CorruptRecordError:  # a broker closes a segment by trimming its indexes
                continue
        raise CorruptIndexError("the file shrinks while it is read", path=self.path)

    def _load(self, file: MappedFile) -> None:
        self.length = file.refresh()
        if self.length > INDEX_BYTES_MAX:
            raise CorruptIndexError(
                f"{self.length} bytes are more than the {INDEX_BYTES_MAX} of the largest index",
                path=self.path,
            )
        self.slots = self.length // self._entry.itemsize
        if file.mapped:
            self.data = file.pin()
            self.count = self._used_slots(file)
        else:
            count = self._used_slots(file)
            self.data = file.read(0, count * self._entry.itemsize)
            self.count = count

    def entries(self, *, all_slots: bool = False) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """The used entries, or every slot, as an owned array in the file's own layout.

        Raises:
            CorruptRecordError: slots behind the used ones were asked for and are gone by now.
        """
        self.check_open()
        size = self._entry.itemsize
        used = np.frombuffer(self.data[: self.count * size], dtype=self._entry)
        if not all_slots or self._file is None or self.count == self.slots:
            return used.copy()
        rest = self._file.read(self.count * size, (self.slots - self.count) * size)
        return np.concatenate((used, np.frombuffer(rest, dtype=self._entry)))

    def check_open(self) -> None:
        """Refuse any use of a closed index.

        Raises:
            ValueError: it is closed.
        """
        if self.count < 0:
            raise ValueError(f"{self.path} is closed")

    def check_shape(self) -> None:
        """Check what holds for both kinds: whole slots, and nothing but zeros past the entries.

        Raises:
            CorruptIndexError: the length is no multiple of a slot's, or the tail is not empty.
        """
        size = self._entry.itemsize
        if self.length % size:
            raise CorruptIndexError(
                f"{self.length} bytes are not a multiple of {size}, the size of an entry",
                path=self.path,
                position=self.slots * size,
            )
        slot = self.stray_slot()
        if slot is not None:
            raise CorruptIndexError(
                f"entry {slot} is in use behind entry {self.count}, whose relative offset is 0",
                path=self.path,
                position=slot * size,
            )

    def stray_slot(self) -> int | None:
        """The first slot behind the used ones that is not empty; None if there is none.

        Raises:
            CorruptRecordError: slots behind the used ones are gone by now.
        """
        if self._file is None:
            return None
        end = self.slots * self._entry.itemsize
        for start in range(self.count * self._entry.itemsize, end, _WINDOW_BYTES):
            window = self._file.read(start, min(_WINDOW_BYTES, end - start))
            found = np.flatnonzero(np.frombuffer(window, np.uint8))
            if len(found):
                return (start + int(found[0])) // self._entry.itemsize
        return None

    def error(self, slot: int, reason: str) -> CorruptIndexError:
        """An error about one slot."""
        return CorruptIndexError(reason, path=self.path, position=slot * self._entry.itemsize)

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        if self._file is not None:
            self._file.close()
        self.data = memoryview(b"")
        self.count = CLOSED

    def _used_slots(self, file: MappedFile) -> int:
        """Bisect for the end of the entries, by the rule at the top of the module."""
        if self.slots == 0 or self._relative(file, self.slots - 1):
            return self.slots
        low, high = min(1, self.slots - 1), self.slots - 1
        while low < high:
            middle = (low + high) // 2
            if self._relative(file, middle):
                low = middle + 1
            else:
                high = middle
        # One slot of zeros is an entry for the base offset; several are a preallocated file.
        first_is_empty = self.slots > 1 and low == 1 and not any(self._slot(file, 0))
        return 0 if first_is_empty else max(low, 1)

    def _relative(self, file: MappedFile, slot: int) -> int:
        (relative,) = _RELATIVE.unpack_from(self._slot(file, slot), self._relative_at)
        return int(relative)

    def _slot(self, file: MappedFile, slot: int) -> memoryview:
        position = slot * self._entry.itemsize
        if file.mapped:
            return self.data[position : position + self._entry.itemsize]
        return file.read(position, self._entry.itemsize)


def values_of(
    data: memoryview,
    layout: tuple[int, int, int, int],
    count: int,
    targets: Int64s,
    *,
    least: int,
    base: int,
) -> Int64s:
    """The values of the last entries at or below many targets, int64[n]; 0 where there is none.

    Args:
        data: the entries.
        layout: bytes of an entry; where its key lies, and its bytes; where its value lies.
        count: how many entries.
        targets: int64[n], contiguous.
        least: nothing is found for those below it.
        base: what keys are less by than targets.
    """
    if not count:
        return np.zeros(len(targets), np.int64)
    found = np.empty(len(targets), np.int64)
    # Room for buckets of two keys each, used only where there are many targets, in no order.
    starts = np.empty(count // 2 + 2 if len(targets) >= count // 4 else 0, np.uint32)
    lookup_entries(data, *layout, count, targets, least, base, starts, found)
    return found


class EntryFile(Closing):
    """The common part of an open offset index and time index.

    Attributes:
        base_offset: of the segment; stored offsets are relative to it.
    """

    __slots__ = ("_entries", "_file", "base_offset")
    _layout: ClassVar[np.dtype[np.void]]

    def __init__(self, file: IndexFile, base_offset: int) -> None:
        """Take over an open file; use `open` instead."""
        self._file = file
        self.base_offset: Final = base_offset
        self._entries = (file.data, file.count)

    @classmethod
    def open(
        cls, path: str | PathLike[str], base_offset: int, *, mapping: Mapping = "auto"
    ) -> Self:
        """Open the index of the segment at `base_offset`; a missing file has no entries.

        Raises:
            CorruptIndexError: the file is longer than any index.
            OSError: there is a file, but it cannot be read.
        """
        return cls(IndexFile.open(path, cls._layout, mapping), base_offset)

    @property
    def path(self) -> str:
        """The file, whether it exists or not."""
        return self._file.path

    @property
    def missing(self) -> bool:
        """Whether there is no such file."""
        return self._file.missing

    @property
    def entry_count(self) -> int:
        """Entries in use."""
        self._file.check_open()
        return self._file.count

    @property
    def slots(self) -> int:
        """Entries that the file has room for; Kafka takes this for their number when it opens."""
        return self._file.slots

    def stray_slot(self) -> int | None:
        """The first slot behind the used ones that is not empty; None if there is none."""
        return self._file.stray_slot()

    def refresh(self) -> int:
        """Look again at a file that another process writes; answers the entries in use."""
        self._file.refresh()
        self._entries = (self._file.data, self._file.count)
        return self._file.count

    def close(self) -> None:
        """Release the file; a second call does nothing, any other use is a ValueError."""
        self._file.close()
        self._entries = (self._file.data, CLOSED)

    def _offsets(self, raw: np.ndarray[tuple[int], np.dtype[np.void]]) -> Int64s:
        """The offsets of entries, int64[n].

        Raises:
            CorruptIndexError: one does not fit in 64 bits.
        """
        relative = raw["relative"].astype(np.int64)
        if len(relative) and self.base_offset + int(relative.max()) > OFFSET_MAX:
            slot = int(relative.argmax())
            raise self._file.error(slot, f"offset {self.base_offset} + {relative[slot]} overflows")
        offsets: Int64s = relative + self.base_offset
        return offsets
