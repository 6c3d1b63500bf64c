"""The offset index and the time index of a segment, for readers.

    offset index, 8 bytes an entry                time index, 12 bytes an entry
    0  int32  offset - base                       0  int64  timestamp in ms
    4  int32  position of the start of a batch    8  int32  offset - base

Big-endian, no header, no count, no checksum. Both are sparse: about one entry for each
`index.interval.bytes` of log.

**Offset index.** For an entry (o, p) every batch before p holds only offsets below o, so p is a
safe place to start for any offset from o on. Which offset of its batch an entry names differs from
release to release (up to 1.1 the first, since 2.0 the last), and one entry may stand for an append
of several batches. So compare what entries promise, not the entries.

**Time index.** The timestamp is the largest of the segment up to the entry, the offset is that of
the earliest batch that has it. Timestamps strictly increase and offsets do not fall. No record
before the entry's offset is later than its timestamp, so a search for that time or a later one can
start there. A segment without timestamps has an empty time index.

**The unused part.** Kafka preallocates the file of the segment that it writes to and cuts it when
the segment is closed, so after a crash zeros follow the last entry. Offsets grow from entry to
entry, hence a slot past the first whose relative offset is 0 is unused, and so is everything after
it: a bisection finds the end, without reading 10 MB of zeros. Kafka itself does not look and takes
such zeros for entries until it rebuilds the index.

A reader beside the writer of a log takes the functions `probe_offset` and `probe_upper_bound`: a
few small reads and no map, since a map could lose its end under the reader, and a copy of the whole
index costs more than the read that it is for. A missing, cut or garbled index only gives them a
worse place to start, and the reader compares the answer with the log.

Source: Kafka `AbstractIndex`, `OffsetIndex`, `TimeIndex`, `DumpLogSegments` (the unused part).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from os import fspath
from typing import ClassVar, Final, NamedTuple, Self

import numpy as np

from kseg._kernels.index import bisect_entries
from kseg.constants import INT32_MAX, INT64_MAX, NO_TIMESTAMP, Int64s, StrPath
from kseg.errors import CorruptIndexError, CorruptRecordError
from kseg.files import io
from kseg.files.grammar import OFFSET_MAX
from kseg.files.io import Closing
from kseg.files.mapping import MappedFile, Mapping

#: Kafka maps an index through a 32-bit length.
INDEX_BYTES_MAX: Final = INT32_MAX
OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
OFFSET_LAYOUT: Final = np.dtype([("relative", ">i4"), ("position", ">i4")])
TIME_LAYOUT: Final = np.dtype([("timestamp", ">i8"), ("relative", ">i4")])
OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")

#: In place of the number of entries: the index is closed.
_CLOSED: Final = -1
#: How often a file may be found trimmed before the reader gives up; a broker does it once.
_TRIMS_MAX: Final = 8
#: How many bytes are searched for zeros at a time.
_WINDOW_BYTES: Final = 2**20
_RELATIVE: Final = struct.Struct(">i")
_unpack_offset: Final = OFFSET_ENTRY.unpack_from
_unpack_time: Final = TIME_ENTRY.unpack_from
#: The function that a named tuple's constructor calls; the constructor costs as much as the search.
_named_tuple: Final = tuple.__new__


class IndexEntry(NamedTuple):
    """A place to start a walk: `position` is a byte in the log, `offset` the entry's offset.

    A named tuple: any other class costs more than the search itself.
    """

    offset: int
    position: int


class OffsetEntries(NamedTuple):
    """Entries of an offset index as columns, int64[n] each, native and owned."""

    offsets: Int64s
    positions: Int64s


class TimeIndexEntry(NamedTuple):
    """A timestamp in ms, and the last offset of the earliest batch that has it."""

    timestamp: int
    offset: int


class TimeEntries(NamedTuple):
    """Entries of a time index as columns, int64[n] each, native and owned; timestamps in ms."""

    timestamps: Int64s
    offsets: Int64s


class IndexFile(Closing):
    """An open index of either kind, mapped or copied, and how many of its slots are used.

    `open` acquires, `close` releases. A missing file is an index without entries.

    Attributes:
        path: the file, whether it exists or not.
        base_offset: the base offset of the segment; stored offsets are relative to it.
        slots: whole entries that the file has room for; Kafka uses this as their number when it
            opens the file.
        length: bytes of the file; slots need not fill them.
    """

    __slots__ = ("_entries", "_file", "base_offset", "length", "path", "slots")
    LAYOUT: ClassVar[np.dtype[np.void]]

    def __init__(self, path: str, file: MappedFile | None, base_offset: int) -> None:
        """Own an open file, or none; use `open` instead."""
        self.path: Final = path
        self.base_offset: Final = base_offset
        self._file = file
        # The bytes of used entries and perhaps more, and how many entries are used; `_CLOSED` in
        # the end. One value, since a thread may look an entry up while another calls `refresh`.
        self._entries = (memoryview(b""), 0)
        self.slots = self.length = 0

    @classmethod
    def open(cls, path: StrPath, base_offset: int, *, mapping: Mapping = "auto") -> Self:
        """Open the index of the segment at `base_offset`; a missing file has no entries.

        Raises:
            CorruptIndexError: the file is longer than any index.
            OSError: there is a file, but it cannot be read.
        """
        try:
            file = MappedFile.open(path, mapping, index=True)
        except FileNotFoundError:
            return cls(fspath(path), None, base_offset)
        index = cls(fspath(path), file, base_offset)
        try:
            index.refresh()
        except BaseException:
            index.close()
            raise
        return index

    @property
    def missing(self) -> bool:
        """Whether the file does not exist."""
        return self._file is None

    @property
    def entry_count(self) -> int:
        """The number of entries in use."""
        self._check_open()
        return self._entries[1]

    def refresh(self) -> int:
        """Read the end again: another process may have added entries, or truncated the file.

        Returns:
            The entries in use.

        Raises:
            CorruptIndexError: the file is longer than any index, or keeps shrinking.
        """
        self._check_open()
        if self._file is None:
            return 0
        for _ in range(_TRIMS_MAX):
            try:
                return self._load(self._file)
            except CorruptRecordError:  # a broker closes a segment by trimming its indexes
                continue
        raise CorruptIndexError("the file shrinks while it is read", path=self.path)

    def _load(self, file: MappedFile) -> int:
        """Read the present size of the file and its used entries; return their number."""
        self.length = file.refresh()
        if self.length > INDEX_BYTES_MAX:
            raise CorruptIndexError(
                f"{self.length} bytes are more than the {INDEX_BYTES_MAX} of the largest index",
                path=self.path,
            )
        size = self.LAYOUT.itemsize
        self.slots = self.length // size
        whole = file.pin() if file.mapped else None
        count = self._used_slots(file, whole)
        self._entries = (file.read(0, count * size) if whole is None else whole, count)
        return count

    def _used_slots(self, file: MappedFile, whole: memoryview | None) -> int:
        """The number of entries in use, by the rule at the top of the module.

        Args:
            file: the index.
            whole: its map; None to read single entries.
        """
        assert self.LAYOUT.fields is not None
        size, relative_at = self.LAYOUT.itemsize, self.LAYOUT.fields["relative"][1]

        def slot_at(slot: int) -> memoryview:
            start = slot * size
            return file.read(start, size) if whole is None else whole[start : start + size]

        def is_unused(slot: int) -> bool:
            (relative,) = _RELATIVE.unpack_from(slot_at(slot), relative_at)
            return not relative

        if self.slots == 0 or not is_unused(self.slots - 1):
            return self.slots
        used = bisect_left(range(self.slots), True, 1, self.slots, key=is_unused)
        # One slot of zeros is an entry for the base offset; several are a preallocated file.
        first_is_empty = self.slots > 1 and used == 1 and not any(slot_at(0))
        return 0 if first_is_empty else used

    def _check_open(self) -> None:
        """Refuse any use of a closed index."""
        if self._entries[1] == _CLOSED:
            raise ValueError(f"{self.path} is closed")

    def _raw_entries(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.void]], Int64s]:
        """The used entries in the file's own layout, and their offsets.

        Raises:
            CorruptIndexError: an offset does not fit in 64 bits.
        """
        self._check_open()
        data, count = self._entries
        raw = np.frombuffer(data[: count * self.LAYOUT.itemsize], dtype=self.LAYOUT)
        relative = raw["relative"].astype(np.int64)
        if len(relative) and self.base_offset + int(relative.max()) > OFFSET_MAX:
            slot = int(relative.argmax())
            raise self._error(slot, f"offset {self.base_offset} + {relative[slot]} overflows")
        return raw, relative + self.base_offset

    def stray_slot(self) -> int | None:
        """The first slot after the used ones that is not empty; None if all are.

        Raises:
            CorruptRecordError: the file has become shorter.
        """
        if self._file is None:
            return None
        size = self.LAYOUT.itemsize
        end = self.slots * size
        for start in range(self._entries[1] * size, end, _WINDOW_BYTES):
            window = self._file.read(start, min(_WINDOW_BYTES, end - start))
            used = np.flatnonzero(np.frombuffer(window, np.uint8))
            if len(used):
                return (start + int(used[0])) // size
        return None

    def _error(self, slot: int, reason: str) -> CorruptIndexError:
        """An error about one slot."""
        return CorruptIndexError(reason, path=self.path, position=slot * self.LAYOUT.itemsize)

    def close(self) -> None:
        """Release the file; a second call does nothing, any other use is a ValueError."""
        if self._file is not None:
            self._file.close()
        self._entries = (memoryview(b""), _CLOSED)


class OffsetIndex(IndexFile):
    """One `.index` file, read-only, searched in place. Any thread may look up entries."""

    __slots__ = ()
    LAYOUT = OFFSET_LAYOUT

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset without entries."""
        data, count = self._entries
        if count < 0:
            self._check_open()
        if not count:
            return self.base_offset
        return self.base_offset + int(_unpack_offset(data, (count - 1) * OFFSET_ENTRY_BYTES)[0])

    @property
    def packed(self) -> memoryview:
        """The entries in use as in the file, 8 bytes each; empty after `close`."""
        data, count = self._entries
        return data[: max(count, 0) * OFFSET_ENTRY_BYTES]

    def lookup(self, offset: int) -> IndexEntry:
        """The last entry at or below `offset`; (base offset, 0) if there is none.

        Raises:
            CorruptIndexError: the entry found has a negative offset or position.

        Source: Kafka `OffsetIndex.lookup`. Its warm section is a matter of cost, not of results.
        """
        data, count = self._entries
        if count < 0:
            self._check_open()
        base_offset = self.base_offset
        if offset < base_offset:
            return IndexEntry(base_offset, 0)
        relative_offset = offset - base_offset
        slot = bisect_entries(data, 8, 0, 4, count, min(relative_offset, INT64_MAX))
        if slot < 0:
            return IndexEntry(base_offset, 0)
        relative, position = _unpack_offset(data, slot * 8)
        if relative < 0 or position < 0:
            reason = f"relative offset {relative} or position {position} is negative"
            raise self._error(slot, reason)
        return _named_tuple(IndexEntry, (base_offset + relative, position))

    def fetch_upper_bound(self, position: int, size: int) -> IndexEntry | None:
        """The first entry whose position is at or past `position + size`; None if there is none.

        An equal entry in the first slot is passed over, as Kafka does; the bound is only wider.

        Source: Kafka `OffsetIndex.fetchUpperBoundOffset`.
        """
        data, count = self._entries
        if count < 0:
            self._check_open()
        target = position + size
        slot = bisect_entries(data, 8, 4, 4, count, min(max(target, ~INT64_MAX), INT64_MAX))
        is_equal = slot > 0 and _unpack_offset(data, slot * 8)[1] == target
        answer = slot if is_equal else slot + 1
        if answer >= count:
            return None
        relative, entry_position = _unpack_offset(data, answer * 8)
        return IndexEntry(self.base_offset + relative, entry_position)

    def entries(self) -> OffsetEntries:
        """The entries in use as columns.

        Raises:
            CorruptIndexError: an offset does not fit in 64 bits.
        """
        raw, offsets = self._raw_entries()
        return OffsetEntries(offsets, raw["position"].astype(np.int64))


class TimeIndex(IndexFile):
    """One `.timeindex` file, read-only, searched in place. Any thread may look up entries."""

    __slots__ = ()
    LAYOUT = TIME_LAYOUT

    @property
    def last_entry(self) -> TimeIndexEntry:
        """The last entry; (-1, base offset) without entries."""
        data, count = self._entries
        if count < 0:
            self._check_open()
        if not count:
            return TimeIndexEntry(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = _unpack_time(data, (count - 1) * TIME_ENTRY_BYTES)
        return TimeIndexEntry(timestamp, self.base_offset + relative)

    def lookup(self, timestamp: int) -> TimeIndexEntry:
        """The last entry at or below `timestamp` in ms; (-1, base offset) if there is none.

        Raises:
            CorruptIndexError: the entry found has an offset below the base, or above 2^63 - 1.

        Source: Kafka `TimeIndex.lookup`.
        """
        data, count = self._entries
        if count < 0:
            self._check_open()
        slot = -1
        if timestamp >= ~INT64_MAX:
            slot = bisect_entries(data, 12, 0, 8, count, min(timestamp, INT64_MAX))
        if slot < 0:
            return TimeIndexEntry(NO_TIMESTAMP, self.base_offset)
        entry_time, relative = _unpack_time(data, slot * 12)
        if relative < 0:
            raise self._error(slot, f"relative offset {relative} is negative")
        offset = self.base_offset + relative
        if offset > OFFSET_MAX:
            raise self._error(slot, f"offset {self.base_offset} + {relative} overflows")
        return _named_tuple(TimeIndexEntry, (entry_time, offset))

    def entries(self) -> TimeEntries:
        """The entries in use as columns.

        Raises:
            CorruptIndexError: an offset does not fit in 64 bits.
        """
        raw, offsets = self._raw_entries()
        return TimeEntries(raw["timestamp"].astype(np.int64), offsets)


# ---- beside the writer ---------------------------------------------------------------------------

#: The last steps of the search go through one block of the file.
_BLOCK_SLOTS: Final = 512
#: Fields of an entry of the offset index: the offset, relative to the base, and the position.
_OFFSET, _POSITION = 0, 1


def probe_offset(path: StrPath, base_offset: int, offset: int) -> IndexEntry:
    """The last entry at or below `offset`; (base offset, 0) if there is no entry or no file.

    Raises:
        OSError: the file exists, but cannot be read.

    Source: Kafka `OffsetIndex.lookup`.
    """
    try:
        with io.opened(path) as fd:
            slot = _last_slot(fd, _OFFSET, offset - base_offset, path)
            entry = None if slot < 0 else _entry_at(fd, slot, path)
    except FileNotFoundError:
        return IndexEntry(base_offset, 0)
    if entry is None or min(entry) < 0:  # a negative number is of no entry: begin at the front
        return IndexEntry(base_offset, 0)
    return IndexEntry(base_offset + entry[_OFFSET], entry[_POSITION])


def probe_upper_bound(path: StrPath, base_offset: int, position: int) -> IndexEntry | None:
    """The first entry whose position is at or past `position`; None if there is none.

    An equal one in the first slot is passed over, as Kafka does; the bound is only wider.

    Raises:
        OSError: there is a file, but it cannot be read.

    Source: Kafka `OffsetIndex.fetchUpperBoundOffset`.
    """
    try:
        with io.opened(path) as fd:
            slot = _last_slot(fd, _POSITION, position, path)
            entry = _entry_at(fd, slot, path) if slot > 0 else None
            if entry is None or entry[_POSITION] != position:
                entry = _entry_at(fd, slot + 1, path)
    except FileNotFoundError:
        return None
    if entry is None or entry[_OFFSET] <= 0:  # an unused slot
        return None
    return IndexEntry(base_offset + entry[_OFFSET], entry[_POSITION])


def _last_slot(fd: int, field: int, target: int, path: StrPath) -> int:
    """The last used slot whose field, `_OFFSET` or `_POSITION`, is at most `target`; -1 if none.

    It reads the same slots as the search of the fetch kernel, so both lead to the same place in an
    index that is out of order.
    """
    low, high = -1, io.file_size(fd) // OFFSET_ENTRY_BYTES
    first, block = 0, b""  # the slots from the first one on that were read at once
    while high - low > 1:
        if not block and high - low <= _BLOCK_SLOTS:  # the last steps need one read
            first, size = low + 1, (high - low - 1) * OFFSET_ENTRY_BYTES
            block = io.read_at(fd, first * OFFSET_ENTRY_BYTES, size, path)
            high = min(high, first + len(block) // OFFSET_ENTRY_BYTES)
            if high - low <= 1:
                break
        middle = (low + high) // 2
        entry: tuple[int, ...] | None
        if block:
            entry = _unpack_offset(block, (middle - first) * OFFSET_ENTRY_BYTES)
        else:
            entry = _entry_at(fd, middle, path)
        is_used = entry is not None and (entry[_OFFSET] != 0 or middle == 0)
        if is_used and entry is not None and entry[field] <= target:
            low = middle
        else:
            high = middle
    return low


def _entry_at(fd: int, slot: int, path: StrPath) -> tuple[int, int] | None:
    """Relative offset and position of an entry; None beyond the end of the file."""
    data = io.read_at(fd, slot * OFFSET_ENTRY_BYTES, OFFSET_ENTRY_BYTES, path)
    if len(data) < OFFSET_ENTRY_BYTES:
        return None
    relative, position = _unpack_offset(data)
    return relative, position
