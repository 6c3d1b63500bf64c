"""Lookups in an offset index beside its writer: a few small reads, no map.

A reader beside the writer of a log uses these. A map could lose its end under the reader, and a
copy of the whole index costs more than the read that it is for. A missing, cut or garbled index
only gives a worse place to start, and the reader compares the answer with the log.

Source: Kafka `OffsetIndex.lookup`, `OffsetIndex.fetchUpperBoundOffset`.
"""

from __future__ import annotations

import os
import struct
from typing import Final, NamedTuple

from kseg.files import io
from kseg.files.offset_index import ENTRY_BYTES, IndexEntry

_ENTRY: Final = struct.Struct(">ii")
_unpack: Final = _ENTRY.unpack_from
#: The last steps of the search go through one block of the file.
_BLOCK_SLOTS: Final = 512
_RELATIVE, _POSITION = 0, 1


def probe_offset(path: io.StrPath, base_offset: int, offset: int) -> IndexEntry:
    """The last entry at or below `offset`; (base offset, 0) if there is none, or no such file.

    Raises:
        OSError: there is a file, but it cannot be read.
    """
    try:
        fd = io.open_read(path)
    except FileNotFoundError:
        return IndexEntry(base_offset, 0)
    try:
        found = _floor(fd, _RELATIVE, offset - base_offset, path).entry
    finally:
        os.close(fd)
    if found is None or found[_RELATIVE] < 0 or found[_POSITION] < 0:
        return IndexEntry(base_offset, 0)
    return IndexEntry(base_offset + found[_RELATIVE], found[_POSITION])


def probe_upper_bound(path: io.StrPath, base_offset: int, position: int) -> IndexEntry | None:
    """The first entry whose position is at or past `position`; None if there is none.

    An equal one in the first slot is passed over, as Kafka does; the bound is only wider.

    Raises:
        OSError: there is a file, but it cannot be read.
    """
    try:
        fd = io.open_read(path)
    except FileNotFoundError:
        return None
    try:
        below = _floor(fd, _POSITION, position, path)
        if below.slot > 0 and below.entry is not None and below.entry[_POSITION] == position:
            found: tuple[int, ...] | None = below.entry
        else:
            found = _entry_at(fd, below.slot + 1, path)
    finally:
        os.close(fd)
    if found is None or found[_RELATIVE] <= 0:
        return None
    return IndexEntry(base_offset + found[_RELATIVE], found[_POSITION])


class _Found(NamedTuple):
    """The slot that a search ended at, -1 for none, and what it holds."""

    slot: int
    entry: tuple[int, ...] | None


def _floor(fd: int, key: int, target: int, path: io.StrPath) -> _Found:
    """The last used slot whose key is at most `target`; of slots behind the first 0 is unused."""
    low, high = -1, io.file_size(fd) // ENTRY_BYTES
    found = None
    while high - low > _BLOCK_SLOTS:
        middle = (low + high) // 2
        entry = _entry_at(fd, middle, path)
        if _is_at_most(entry, middle, key, target):
            low, found = middle, entry
        else:
            high = middle
    first = low + 1
    block = io.read_at(fd, first * ENTRY_BYTES, (high - first) * ENTRY_BYTES, path)
    high = min(high, first + len(block) // ENTRY_BYTES)
    while high - low > 1:
        middle = (low + high) // 2
        entry = _unpack(block, (middle - first) * ENTRY_BYTES)
        if _is_at_most(entry, middle, key, target):
            low, found = middle, entry
        else:
            high = middle
    return _Found(low, found)


def _is_at_most(entry: tuple[int, ...] | None, slot: int, key: int, target: int) -> bool:
    return entry is not None and (entry[_RELATIVE] != 0 or slot == 0) and entry[key] <= target


def _entry_at(fd: int, slot: int, path: io.StrPath) -> tuple[int, int] | None:
    data = io.read_at(fd, slot * ENTRY_BYTES, ENTRY_BYTES, path)
    if len(data) < ENTRY_BYTES:
        return None
    relative, position = _unpack(data)
    return relative, position
