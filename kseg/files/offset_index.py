"""The offset index: from a logical offset to a position in the log from which to walk.

    at  size  field
    0   4     int32 offset of the entry, less the segment's base offset
    4   4     int32 position of the start of a batch

Sparse: about one entry per `index.interval.bytes` of log. For an entry (o, p) every batch before p
holds only offsets below o, so p is a safe place to start for any offset from o on. Which offset of
its batch an entry names differs from release to release (up to 1.1 the first, since 2.0 the last),
and one entry may stand for an append of several batches; so compare promises, not entries.

`index_file` finds the end of the used part in front of a preallocated tail.

Source: Kafka `OffsetIndex`, `OffsetPosition`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np

from kseg._kernels.index import bisect_entries
from kseg.constants import INT64_MAX, Int64s
from kseg.files.index_file import EntryFile, values_of

ENTRY_BYTES: Final = 8

LAYOUT: Final = np.dtype([("relative", ">i4"), ("position", ">i4")])
_ENTRY: Final = struct.Struct(">ii")
_unpack: Final = _ENTRY.unpack_from
#: What a named tuple's constructor calls; to go through that costs as much as the search.
_new: Final = tuple.__new__


class IndexEntry(NamedTuple):
    """A place to start a walk: `position` is a byte in the log, `offset` the entry's offset.

    A named tuple: any other class costs more than the search itself.
    """

    offset: int
    position: int


class OffsetEntries(NamedTuple):
    """Entries as columns, int64[n] each, native and owned."""

    offsets: Int64s
    positions: Int64s


class OffsetIndex(EntryFile):
    """One `.index` file, read-only, searched in place. Any thread may look things up."""

    __slots__ = ()
    _layout = LAYOUT

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset if there is none."""
        data, count = self._entries
        if count < 0:
            self._file.check_open()
        if not count:
            return self.base_offset
        return self.base_offset + int(_ENTRY.unpack_from(data, (count - 1) * ENTRY_BYTES)[0])

    @property
    def packed(self) -> memoryview:
        """The entries in use as they lie in the file, 8 bytes each; none after `close`."""
        data, count = self._entries
        return data[: max(count, 0) * ENTRY_BYTES]

    def lookup(self, offset: int) -> IndexEntry:
        """The last entry at or below `offset`; (base offset, 0) if there is none.

        Raises:
            CorruptIndexError: the entry found has a negative offset or position.

        Source: Kafka `OffsetIndex.lookup`. Its warm section is a matter of cost, not of results.
        """
        data, count = self._entries
        if count < 0:
            self._file.check_open()
        base_offset = self.base_offset
        if offset < base_offset:
            return IndexEntry(base_offset, 0)
        wanted = offset - base_offset
        slot = bisect_entries(data, 8, 0, 4, count, min(wanted, INT64_MAX))
        if slot < 0:
            return IndexEntry(base_offset, 0)
        relative, position = _unpack(data, slot * 8)
        if relative < 0 or position < 0:
            raise self._file.error(slot, _negative(relative, position))
        return _new(IndexEntry, (base_offset + relative, position))

    def lookup_many(self, offsets: Int64s) -> Int64s:
        """Positions from which to walk for many offsets, int64[n]; order does not matter.

        Raises:
            CorruptIndexError: an entry found has a negative position.
        """
        data, count = self._entries
        if count < 0:
            self._file.check_open()
        targets = np.ascontiguousarray(offsets, dtype=np.int64)
        base = self.base_offset
        found = values_of(data, (8, 0, 4, 4), count, targets, least=base, base=base)
        if len(found) and found.min() < 0:
            at = int(found.argmin())
            slot = bisect_entries(data, 8, 0, 4, count, int(targets[at]) - base)
            raise self._file.error(slot, f"position {found[at]} is negative")
        return found

    def fetch_upper_bound(self, position: int, size: int) -> IndexEntry | None:
        """The first entry whose position is at or past `position + size`; None if there is none.

        An equal entry in the first slot is passed over, as Kafka does; the bound is only wider.

        Source: Kafka `OffsetIndex.fetchUpperBoundOffset`.
        """
        data, count = self._entries
        if count < 0:
            self._file.check_open()
        target = position + size
        slot = bisect_entries(data, 8, 4, 4, count, min(max(target, ~INT64_MAX), INT64_MAX))
        equal = slot > 0 and _ENTRY.unpack_from(data, slot * 8)[1] == target
        answer = slot if equal else slot + 1
        if answer >= count:
            return None
        relative, found = _ENTRY.unpack_from(data, answer * 8)
        return IndexEntry(self.base_offset + relative, found)

    def entries(self, *, all_slots: bool = False) -> OffsetEntries:
        """The entries in use as columns, or every slot of the file, unused ones as (base, 0).

        Raises:
            CorruptIndexError: an offset does not fit in 64 bits.
        """
        raw = self._file.entries(all_slots=all_slots)
        offsets = self._offsets(raw)
        return OffsetEntries(offsets, raw["position"].astype(np.int64))

    def check(self) -> None:
        """Check what does not need the log.

        Raises:
            CorruptIndexError: the length is no multiple of 8; an offset is below the base, or not
                above the one before; a position is negative, or below the one before; something
                follows the end of the entries.

        Source: Kafka `OffsetIndex.sanityCheck` looks at the length and the last offset only.
        """
        self._file.check_shape()
        offsets, positions = self.entries()
        if not len(offsets):
            return
        if offsets[0] < self.base_offset or positions[0] < 0:
            relative = int(offsets[0]) - self.base_offset
            raise self._file.error(0, _negative(relative, int(positions[0])))
        falls = (np.diff(offsets) <= 0) | (np.diff(positions) < 0)
        if falls.any():
            slot = int(falls.argmax()) + 1
            raise self._file.error(
                slot,
                f"entry (offset {offsets[slot]}, position {positions[slot]}) does not lie past "
                f"the one before, (offset {offsets[slot - 1]}, position {positions[slot - 1]})",
            )


def _negative(relative: int, position: int) -> str:
    return f"relative offset {relative} or position {position} is negative"
