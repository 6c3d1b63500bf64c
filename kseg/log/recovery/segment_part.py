"""Segments that are not there yet: a part of a log that is to be split, and one that is empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.files.grammar import offset_from_file_name
from kseg.files.log_file import LogFile, OnUnreadable, Tile
from kseg.files.offset_index import IndexEntry
from kseg.format.header import COLUMN, scan
from kseg.log.segment.reader import Segment

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping


class SegmentPart(Segment):
    """Some bytes of a log file as a log of their own; positions count from the first of them."""

    __slots__ = ("_base", "_end", "_first")

    def __init__(
        self, log: LogFile, mapping: Mapping, base_offset: int, start: int, end: int
    ) -> None:
        """Take over an open log file; use `part` instead."""
        super().__init__(log, mapping, size=end, is_last=True)
        self._base: Final = base_offset
        self._first: Final = start
        self._end: Final = end

    @classmethod
    def part(cls, path: Path, name: str, start: int, end: int, mapping: Mapping) -> SegmentPart:
        """Open the bytes from `start` to `end` of a log file.

        Args:
            path: the log file.
            name: what the part will be called.
            start, end: which bytes.
            mapping: as for any segment.
        """
        base_offset = offset_from_file_name(name)
        return cls(LogFile.open(path, mapping), mapping, base_offset, start, end)

    @property
    def base_offset(self) -> int:
        """From the name that it will have."""
        return self._base

    @property
    def size(self) -> int:
        """Bytes of the part."""
        return self._end - self._first

    def walk(
        self,
        *,
        start: int = 0,
        limit: int | None = None,
        on_bad_crc: str = "note",
        policy: str = "strict",
        on_unreadable: OnUnreadable | None = None,
    ) -> Iterator[Tile]:
        """As `Segment.walk`."""
        first = self._first
        for tile in self._log.walk(
            start=first + start,
            limit=None if limit is None else first + limit,
            end=self._end,
            on_bad_crc=on_bad_crc,
            policy=policy,
            on_unreadable=on_unreadable,
        ):
            rows = tile.table.rows.copy()
            rows[:, COLUMN["position"]] -= first
            rows.flags.writeable = False
            end = tile.table.end_position - first
            table = replace(tile.table, rows=rows, end_position=end)
            yield Tile(tile.data, tile.base - first, table)

    def start_for_offset(self, offset: int) -> IndexEntry:
        """The start: there is no index yet."""
        del offset
        return IndexEntry(self.base_offset, 0)


class EmptySegment(Segment):
    """A log without a byte, that has no file."""

    __slots__ = ("_base",)

    def __init__(self, path: Path) -> None:
        """It will have this name."""
        self.path = path  # type: ignore[misc]
        self._base: Final = offset_from_file_name(path.name)

    @property
    def base_offset(self) -> int:
        """From the name that it will have."""
        return self._base

    @property
    def kafka07(self) -> bool:
        """No."""
        return False

    @property
    def size(self) -> int:
        """None at all."""
        return 0

    def walk(self, **_how: object) -> Iterator[Tile]:
        """One tile without a batch."""
        yield Tile(memoryview(b""), 0, scan(b""))

    def start_for_offset(self, offset: int) -> IndexEntry:
        """The start."""
        del offset
        return IndexEntry(self.base_offset, 0)

    def close(self) -> None:
        """Nothing is open."""


__all__ = ["EmptySegment", "SegmentPart"]
