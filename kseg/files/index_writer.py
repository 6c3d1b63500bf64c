"""The offset index and the time index of a segment that is written to.

Entries are hints: they are not flushed with the records, and a recovery makes them anew. Not for
several threads at once. `index_slots` has the common part.

Source: Kafka `OffsetIndex`, `TimeIndex`.
"""

from __future__ import annotations

import struct
from typing import Final

from kseg.constants import NO_TIMESTAMP
from kseg.errors import CorruptIndexError, OffsetsOutOfOrderError
from kseg.files import io, offset_index, time_index
from kseg.files.index_slots import IndexSlots
from kseg.files.offset_index import IndexEntry
from kseg.files.time_index import TimeIndexEntry

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class OffsetIndexWriter(IndexSlots):
    """The `.index` of a segment that is written to."""

    __slots__ = ("_last_offset",)

    ENTRY = _OFFSET_ENTRY
    LAYOUT = offset_index.LAYOUT
    RELATIVE_AT = 0

    def _read_last(self, file: io.WriteFile, count: int) -> None:
        relative = self._entry_at(file, count - 1)[0] if count else 0
        self._last_offset = self.base_offset + relative

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset if there is none."""
        if self._file is None:
            self._load()
        return self._last_offset

    @property
    def last(self) -> IndexEntry | None:
        """The last entry, if there is one."""
        return self.entry(self.count - 1) if self.count else None

    def entry(self, slot: int) -> IndexEntry:
        """The entry in a slot that is used; IndexError otherwise."""
        file = self._load()
        if not 0 <= slot < self._count:
            raise IndexError(f"{self.path} has {self._count} entries, none at {slot}")
        relative, position = self._entry_at(file, slot)
        if relative < 0 or position < 0:
            raise CorruptIndexError(
                f"relative offset {relative} and position {position} must not be negative",
                path=self.path,
                position=slot * self.ENTRY.size,
            )
        return IndexEntry(self.base_offset + relative, position)

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
        self._write(self.ENTRY.pack(self._relative(offset), position), 1)
        self._last_offset = offset

    def stand(self) -> tuple[int, int]:
        """Offset of the last entry, one below the base if there is none; slots that are left."""
        if self._file is None:
            self._load()
        count = self._count
        return self._last_offset if count else self.base_offset - 1, self._slots - count

    def append_packed(self, data: io.Bytes, last_offset: int) -> None:
        """Add entries as they lie in the file, which someone has compared with those before.

        Args:
            data: whole entries, no more than there is room for.
            last_offset: of the last of them.
        """
        file, count, used = self._file or self._load(), len(data) // 8, self._count
        if used + count > self._slots:
            self._check_room(count)
        if count:
            self._dirty = True
            file.write_parts(used * 8, (data,), len(data))
            self._count = used + count
            self._last_offset = last_offset

    def lookup(self, offset: int) -> IndexEntry:
        """The last entry at or below `offset`; (base offset, 0) if there is none.

        Raises:
            CorruptIndexError: the entry found has a negative offset or position.

        Source: Kafka `OffsetIndex.lookup`.
        """
        slot = self._floor(0, 4, offset - self.base_offset)
        return IndexEntry(self.base_offset, 0) if slot < 0 else self.entry(slot)

    def fetch_upper_bound(self, position: int, size: int) -> IndexEntry | None:
        """The first entry whose position is at or past `position + size`; None if there is none.

        An equal entry in the first slot is passed over, as Kafka does; the bound is only wider.

        Source: Kafka `OffsetIndex.fetchUpperBoundOffset`.
        """
        target = position + size
        slot = self._floor(4, 4, target)
        if slot > 0 and self.entry(slot).position == target:
            return self.entry(slot)
        return self.entry(slot + 1) if slot + 1 < self.count else None


class TimeIndexWriter(IndexSlots):
    """The `.timeindex` of a segment that is written to.

    One slot is kept for the entry that is made when the segment is closed.
    """

    __slots__ = ("_last",)

    ENTRY = _TIME_ENTRY
    LAYOUT = time_index.LAYOUT
    RELATIVE_AT = 8

    def _read_last(self, file: io.WriteFile, count: int) -> None:
        timestamp, relative = self._entry_at(file, count - 1) if count else (NO_TIMESTAMP, 0)
        self._last = TimeIndexEntry(timestamp, self.base_offset + relative)

    @property
    def is_full(self) -> bool:
        """Whether no slot is left but the last."""
        if self._file is None:
            self._load()
        return self._count >= self._slots - 1

    @property
    def last_entry(self) -> TimeIndexEntry:
        """The last entry; (-1, base offset) if there is none."""
        if self._file is None:
            self._load()
        return self._last

    @property
    def last(self) -> TimeIndexEntry | None:
        """The last entry, if there is one."""
        return self.last_entry if self.count else None

    def entry(self, slot: int) -> TimeIndexEntry:
        """The entry in a slot that is used; IndexError otherwise."""
        file = self._load()
        if not 0 <= slot < self._count:
            raise IndexError(f"{self.path} has {self._count} entries, none at {slot}")
        timestamp, relative = self._entry_at(file, slot)
        if relative < 0:
            raise CorruptIndexError(
                f"relative offset {relative} is negative",
                path=self.path,
                position=slot * self.ENTRY.size,
            )
        return TimeIndexEntry(timestamp, self.base_offset + relative)

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> bool:
        """Add an entry if `timestamp` (ms) is above that of the last; answer whether it was.

        Args:
            timestamp: the largest of the segment so far.
            offset: the last offset of the earliest batch that has it.
            skip_full_check: take the slot that is kept for the end; if that is taken, too, nothing
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
            self._refuse(timestamp, offset, last)
        if timestamp <= last.timestamp or self._count >= self._slots:
            return False
        self._write(self.ENTRY.pack(timestamp, self._relative(offset)), 1)
        self._last = TimeIndexEntry(timestamp, offset)
        return True

    def stand(self) -> tuple[TimeIndexEntry, int]:
        """The last entry, (-1, base offset) if there is none; slots that are left but the last."""
        if self._file is None:
            self._load()
        return self._last, self._slots - 1 - self._count

    def append_packed(self, data: io.Bytes, last: TimeIndexEntry) -> None:
        """Add entries as they lie in the file, which someone has compared with those before.

        Args:
            data: whole entries, no more than there is room for.
            last: the last of them.
        """
        file, count, used = self._file or self._load(), len(data) // 12, self._count
        if used + count > self._slots:
            self._check_room(count)
        if count:
            self._dirty = True
            file.write_parts(used * 12, (data,), len(data))
            self._count = used + count
            self._last = last

    def _refuse(self, timestamp: int, offset: int, last: TimeIndexEntry) -> None:
        if offset < last.offset:
            raise OffsetsOutOfOrderError(
                f"it is below {last.offset}, the last one of the index",
                path=self.path,
                offset=offset,
            )
        raise ValueError(f"{self.path}: {timestamp} ms is below {last.timestamp}")

    def lookup(self, timestamp: int) -> TimeIndexEntry:
        """The last entry at or below `timestamp` in ms; (-1, base offset) if there is none.

        Raises:
            CorruptIndexError: the entry found has an offset below the base.

        Source: Kafka `TimeIndex.lookup`.
        """
        slot = self._floor(0, 8, timestamp)
        return TimeIndexEntry(NO_TIMESTAMP, self.base_offset) if slot < 0 else self.entry(slot)
