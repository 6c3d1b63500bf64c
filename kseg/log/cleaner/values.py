"""Segments and groups of segments that a compaction rewrites, or leaves as they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kseg.log.reader.version import SegmentInfo

#: Why a segment stays as it is.
ACTIVE: Final = "active"
HIGH_WATERMARK: Final = "high-watermark"
LAST_STABLE: Final = "last-stable-offset"
MIN_LAG: Final = "min-compaction-lag"
BEYOND_MAP: Final = "map-full"
UNCHANGED: Final = "unchanged"


def sum_of(parts: Iterable[int | None]) -> int | None:
    """None where one of them is not known."""
    known = list(parts)
    return None if None in known else sum(part or 0 for part in known)


@dataclass(frozen=True, slots=True)
class CompactedSegment:
    """A segment that is rewritten, or that stays as it is.

    Attributes:
        base_offset: from the file's name.
        path: the log file.
        bytes: of the log file.
        kept_bytes: the bytes of these that will be left; None if they were not measured.
        why: why it stays, a word of this module; empty if it is rewritten.
    """

    base_offset: int
    path: Path
    bytes: int
    kept_bytes: int | None = None
    why: str = ""

    @property
    def saved_bytes(self) -> int | None:
        """The bytes that go; below 0 where tombstones need more room for their delete horizon."""
        return None if self.kept_bytes is None else self.bytes - self.kept_bytes


@dataclass(frozen=True, slots=True)
class CompactedGroup:
    """Segments that become one.

    Attributes:
        segments: rising; the new one has the base offset of the first.
        records: that were read; None if they were not measured, as in the next one.
        kept_records: the records of these that are left.
        removes_tombstones: whether tombstones may go; older values of their keys must not outlive
            them.
        changes: whether the new segment may differ from the old one.
    """

    segments: tuple[CompactedSegment, ...]
    records: int | None = None
    kept_records: int | None = None
    removes_tombstones: bool = True
    changes: bool = True

    @classmethod
    def unmeasured(cls, group: Iterable[SegmentInfo]) -> CompactedGroup:
        """A group that was not read."""
        return cls(tuple(CompactedSegment(one.base_offset, one.path, one.size) for one in group))

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """Of the old segments."""
        return tuple(segment.base_offset for segment in self.segments)

    @property
    def base_offset(self) -> int:
        """Of the new segment."""
        return self.segments[0].base_offset

    @property
    def bytes(self) -> int:
        """Of the old log files."""
        return sum(segment.bytes for segment in self.segments)

    @property
    def kept_bytes(self) -> int | None:
        """Of the new log file; None if it was not measured."""
        return sum_of(segment.kept_bytes for segment in self.segments)

    @property
    def room_bytes(self) -> int:
        """The free room for the new log file, beside the old ones."""
        if not self.changes:
            return 0
        return self.bytes if self.kept_bytes is None else self.kept_bytes
