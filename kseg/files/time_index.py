"""The time index: from a timestamp to an offset from which to walk.

    at  size  field
    0   8     int64 timestamp in ms: the largest of the segment up to this entry
    8   4     int32 offset, less the segment's base offset: the earliest batch with that timestamp

Timestamps strictly increase and offsets do not fall. No record before the entry's offset is later
than its timestamp, so a search for that time or a later one can start there. A segment without
timestamps has an empty time index. Which offset of its batch an entry names differs between
releases, as in the offset index.

`index_file` finds the end of the used part in front of a preallocated tail.

Source: Kafka `TimeIndex`, `TimestampOffset`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np

from kseg._kernels.index import bisect_entries
from kseg.constants import INT64_MAX, NO_TIMESTAMP, Int64s
from kseg.files.grammar import OFFSET_MAX
from kseg.files.index_file import EntryFile, values_of

ENTRY_BYTES: Final = 12

LAYOUT: Final = np.dtype([("timestamp", ">i8"), ("relative", ">i4")])
_ENTRY: Final = struct.Struct(">qi")
_unpack: Final = _ENTRY.unpack_from
#: What a named tuple's constructor calls; to go through that costs as much as the search.
_new: Final = tuple.__new__


class TimeIndexEntry(NamedTuple):
    """A timestamp in ms and the offset of the batch that has it; a tuple for `lookup`'s sake."""

    timestamp: int
    offset: int


class TimeEntries(NamedTuple):
    """Entries as columns, int64[n] each, native and owned; timestamps in ms."""

    timestamps: Int64s
    offsets: Int64s


class TimeIndex(EntryFile):
    """One `.timeindex` file, read-only, searched in place. Any thread may look things up."""

    __slots__ = ()
    _layout = LAYOUT

    @property
    def last_entry(self) -> TimeIndexEntry:
        """The last entry; (-1, base offset) if there is none."""
        data, count = self._entries
        if count < 0:
            self._file.check_open()
        if not count:
            return TimeIndexEntry(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = _ENTRY.unpack_from(data, (count - 1) * ENTRY_BYTES)
        return TimeIndexEntry(timestamp, self.base_offset + relative)

    def lookup(self, timestamp: int) -> TimeIndexEntry:
        """The last entry at or below `timestamp` in ms; (-1, base offset) if there is none.

        Raises:
            CorruptIndexError: the entry found has an offset below the base, or above 2^63 - 1.

        Source: Kafka `TimeIndex.lookup`.
        """
        data, count = self._entries
        if count < 0:
            self._file.check_open()
        slot = -1
        if timestamp >= ~INT64_MAX:
            slot = bisect_entries(data, 12, 0, 8, count, min(timestamp, INT64_MAX))
        if slot < 0:
            return TimeIndexEntry(NO_TIMESTAMP, self.base_offset)
        found, relative = _unpack(data, slot * 12)
        if relative < 0:
            raise self._file.error(slot, f"relative offset {relative} is negative")
        offset = self.base_offset + relative
        if offset > OFFSET_MAX:
            raise self._file.error(slot, f"offset {self.base_offset} + {relative} overflows")
        return _new(TimeIndexEntry, (found, offset))

    def lookup_many(self, timestamps: Int64s) -> Int64s:
        """Offsets from which to walk for many timestamps, int64[n]; order does not matter.

        Raises:
            CorruptIndexError: an entry found has an offset below the base, or above 2^63 - 1.
        """
        data, count = self._entries
        if count < 0:
            self._file.check_open()
        targets = np.ascontiguousarray(timestamps, dtype=np.int64)
        found = values_of(data, (12, 0, 8, 8), count, targets, least=~INT64_MAX, base=0)
        if len(found):
            self._check_found(found, targets)
        return found + self.base_offset

    def _check_found(self, found: Int64s, targets: Int64s) -> None:
        """Refuse relative offsets of entries that targets have led to, if any is none."""
        if found.min() < 0:
            at = int(found.argmin())
            reason = f"relative offset {found[at]} is negative"
        elif self.base_offset + int(found.max()) > OFFSET_MAX:
            at = int(found.argmax())
            reason = f"offset {self.base_offset} + {found[at]} overflows"
        else:
            return
        data, count = self._entries
        slot = bisect_entries(data, 12, 0, 8, count, int(targets[at]))
        raise self._file.error(slot, reason)

    def entries(self, *, all_slots: bool = False) -> TimeEntries:
        """The entries in use as columns, or every slot of the file, unused ones as (0, base).

        Raises:
            CorruptIndexError: an offset does not fit in 64 bits.
        """
        raw = self._file.entries(all_slots=all_slots)
        offsets = self._offsets(raw)
        return TimeEntries(raw["timestamp"].astype(np.int64), offsets)

    def check(self) -> None:
        """Check what does not need the log.

        Raises:
            CorruptIndexError: the length is no multiple of 12; an offset is below the base, or
                below the one before; a timestamp is not above the one before; something follows
                the end of the entries.

        Source: Kafka `TimeIndex.sanityCheck` compares the last entry with the first only.
        """
        self._file.check_shape()
        timestamps, offsets = self.entries()
        if not len(offsets):
            return
        if offsets[0] < self.base_offset:
            raise self._file.error(0, f"offset {offsets[0]} is below the base {self.base_offset}")
        # Compared, not subtracted: the difference of two timestamps may not fit.
        falls = (timestamps[1:] <= timestamps[:-1]) | (np.diff(offsets) < 0)
        if falls.any():
            slot = int(falls.argmax()) + 1
            raise self._file.error(
                slot,
                f"entry (timestamp {timestamps[slot]}, offset {offsets[slot]}) does not lie past "
                f"the one before, (timestamp {timestamps[slot - 1]}, offset {offsets[slot - 1]})",
            )
