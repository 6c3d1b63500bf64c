"""The offset index and the time index of a segment that is written to.

Entries are hints: they are not flushed with the records, and after a crash they are made anew. Not
for several threads at once. What both share is in `index_slots`.

Source: Kafka `OffsetIndex`, `TimeIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kseg.constants import NO_TIMESTAMP
from kseg.errors import CorruptIndexError, OffsetsOutOfOrderError
from kseg.files import io, offset_index, time_index
from kseg.files.index_slots import IndexSlots
from kseg.files.offset_index import IndexEntry
from kseg.files.time_index import TimeIndexEntry

_Int64Array = npt.NDArray[np.int64]
_Pairs = Sequence[tuple[int, int]]
#: Entries to be added: pairs, or int64[n, 2] where there are many.
Entries = _Pairs | _Int64Array


class OffsetIndexWriter(IndexSlots):
    """The `.index` of a segment that is written to."""

    __slots__ = ("_last_offset",)

    ENTRY = struct.Struct(">ii")
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
        self.append_all(((offset, position),))

    def append_all(self, entries: Entries) -> None:
        """Add entries (offset, position), all or none, in one write; as `append` for each."""
        file = self._load()
        if len(entries) > self._slots - self._count:
            raise ValueError(f"{self.path} has room for {self._slots - self._count} entries")
        if isinstance(entries, np.ndarray):
            if len(entries) and self._append_columns(file, *entries.T):
                return
            entries = [(offset, position) for offset, position in entries.tolist()]
        self._append(file, entries)

    def _append_columns(
        self, file: io.WriteFile, offsets: _Int64Array, positions: _Int64Array
    ) -> bool:
        """Add entries if nothing is wrong with any of them; answer whether that was so."""
        last = self._last_offset if self._count else self.base_offset - 1
        rising = offsets[0] > last and (offsets[1:] > offsets[:-1]).all()
        if not rising or not self._all_fit(offsets):
            return False
        raw = np.empty(len(offsets), dtype=self.LAYOUT)
        raw["relative"], raw["position"] = offsets - self.base_offset, positions
        self._write(file, raw.tobytes())
        self._last_offset = int(offsets[-1])
        return True

    def _append(self, file: io.WriteFile, entries: _Pairs) -> None:
        last = self._last_offset
        packed: list[bytes] = []
        for offset, position in entries:
            if offset <= last and (packed or self._count):
                raise OffsetsOutOfOrderError(
                    f"it is not above {last}, the last one of the index",
                    path=self.path,
                    offset=offset,
                )
            packed.append(self.ENTRY.pack(self._relative(offset), position))
            last = offset
        if packed:
            self._write(file, b"".join(packed))
            self._last_offset = last

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

    ENTRY = struct.Struct(">qi")
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
        before = self.count
        self._append(((timestamp, offset),), self._slots)
        return self._count > before

    def maybe_append_all(self, entries: Entries) -> None:
        """Add entries (timestamp, offset), all or none, in one write; as `maybe_append` for each.

        Those that the slots do not suffice for are left out.
        """
        file = self._load()
        if isinstance(entries, np.ndarray):
            if len(entries) and self._append_columns(file, *entries.T):
                return
            entries = [(timestamp, offset) for timestamp, offset in entries.tolist()]
        self._append(entries, self._slots - 1)

    def _append_columns(self, file: io.WriteFile, times: _Int64Array, offsets: _Int64Array) -> bool:
        """Add entries if nothing is wrong with any of them; answer whether that was so."""
        last = self._last
        if self._count and (offsets[0] < last.offset or times[0] < last.timestamp):
            return False
        rising = (offsets[1:] >= offsets[:-1]).all() and (times[1:] >= times[:-1]).all()
        if not rising or not self._all_fit(offsets):
            return False
        above = times > np.concatenate(((last.timestamp,), times[:-1]))
        room = max(self._slots - 1 - self._count, 0)
        times, offsets = times[above][:room], offsets[above][:room]
        if len(times):
            raw = np.empty(len(times), dtype=self.LAYOUT)
            raw["timestamp"], raw["relative"] = times, offsets - self.base_offset
            self._write(file, raw.tobytes())
            self._last = TimeIndexEntry(int(times[-1]), int(offsets[-1]))
        return True

    def _append(self, entries: _Pairs, slots: int) -> None:
        file = self._load()
        last = self._last
        known = self._count > 0
        packed: list[bytes] = []
        for timestamp, offset in entries:
            if known and offset < last.offset:
                raise OffsetsOutOfOrderError(
                    f"it is below {last.offset}, the last one of the index",
                    path=self.path,
                    offset=offset,
                )
            if known and timestamp < last.timestamp:
                raise ValueError(f"{self.path}: {timestamp} ms is below {last.timestamp}")
            if timestamp <= last.timestamp:
                continue
            if self._count + len(packed) >= slots:
                break
            packed.append(self.ENTRY.pack(timestamp, self._relative(offset)))
            last, known = TimeIndexEntry(timestamp, offset), True
        if packed:
            self._write(file, b"".join(packed))
            self._last = last

    def lookup(self, timestamp: int) -> TimeIndexEntry:
        """The last entry at or below `timestamp` in ms; (-1, base offset) if there is none.

        Raises:
            CorruptIndexError: the entry found has an offset below the base.

        Source: Kafka `TimeIndex.lookup`.
        """
        slot = self._floor(0, 8, timestamp)
        return TimeIndexEntry(NO_TIMESTAMP, self.base_offset) if slot < 0 else self.entry(slot)
