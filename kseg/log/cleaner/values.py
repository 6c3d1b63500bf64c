"""The plan of a compaction, and its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from kseg.constants import COMPACTION_MAP_BYTES, COMPACTION_RULES
from kseg.frames import Table
from kseg.log.config import LogConfig
from kseg.log.reader.version import SegmentInfo

#: Reasons to skip a log, besides those of `kseg.log.topic_policy`.
NOTHING_DIRTY: Final = "nothing-dirty"
NOT_DUE: Final = "not-dirty-enough"

#: Why a segment stays as it is.
ACTIVE: Final = "active"
HIGH_WATERMARK: Final = "high-watermark"
LAST_STABLE: Final = "last-stable-offset"
MIN_LAG: Final = "min-compaction-lag"
BEYOND_MAP: Final = "map-full"
UNCHANGED: Final = "unchanged"


def _sum(parts: Iterable[int | None]) -> int | None:
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
        return _sum(segment.kept_bytes for segment in self.segments)

    @property
    def room_bytes(self) -> int:
        """The free room for the new log file, beside the old ones."""
        if not self.changes:
            return 0
        return self.bytes if self.kept_bytes is None else self.kept_bytes


@dataclass(frozen=True, slots=True, repr=False)
class CompactionPlan(Table):
    """The plan of one pass of compaction.

    Attributes:
        path: the partition directory.
        config: the settings.
        now_ms: the time that counts.
        log_start_offset, log_end_offset: of the log.
        high_watermark, last_stable_offset: nothing at or above them is touched.
        first_dirty_offset: records below it were compacted before.
        first_uncleanable_offset: records at or above it are not changed: a segment's base.
        clean_bytes, cleanable_bytes: of the logs of segments below the first, and from there on.
        end_offset: where the pass ends, and the checkpoint then; below `first_uncleanable_offset`
            where the map has no room for all keys, so that further passes follow.
        groups: the rewritten segments, ascending.
        staying: the others.
        skipped: why the log is left alone, in a word of this module or of `topic_policy`; None if
            it is not.
        why: the reason in words.
        rules: of which release; see `kseg.format.retain`.
        map_bytes: memory of the offset map.
        why_uncleanable: why nothing is touched from `first_uncleanable_offset` on, in a word of
            this module.
        unkeyed_records: records without a key, which go since a compacted log cannot keep them;
            None if they were not counted.
        opening: how the `apply` of `plan_compaction`'s plan opens the log.
    """

    COLUMNS = "base_offset path bytes kept_bytes why into"

    path: Path
    config: LogConfig
    now_ms: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    end_offset: int
    groups: tuple[CompactedGroup, ...] = ()
    staying: tuple[CompactedSegment, ...] = ()
    skipped: str | None = None
    why: str = ""
    rules: str = COMPACTION_RULES[-1]
    map_bytes: int = COMPACTION_MAP_BYTES
    why_uncleanable: str = ACTIVE
    unkeyed_records: int | None = None
    opening: Any = field(default=None, compare=False)

    @property
    def is_noop(self) -> bool:
        """Whether no file changes, but for the checkpoint."""
        return not self.groups

    @property
    def advances(self) -> bool:
        """Whether something is compacted that was not before, if no more than the checkpoint."""
        return self.skipped is None and self.end_offset > self.first_dirty_offset

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes in the cleanable part; 0 for an empty log."""
        return self.cleanable_bytes / max(self.clean_bytes + self.cleanable_bytes, 1)

    @property
    def is_complete(self) -> bool:
        """Whether one pass does all of it."""
        return self.end_offset >= self.first_uncleanable_offset

    @property
    def bytes(self) -> int:
        """Of the logs that are rewritten."""
        return sum(group.bytes for group in self.groups)

    @property
    def kept_bytes(self) -> int | None:
        """Of the new logs; None where it was not measured."""
        return _sum(group.kept_bytes for group in self.groups)

    @property
    def saved_bytes(self) -> int | None:
        """The bytes that go; None if they were not measured."""
        kept = self.kept_bytes
        return None if kept is None else self.bytes - kept

    @property
    def records(self) -> int | None:
        """In the logs that are rewritten; None if it was not measured."""
        return _sum(group.records for group in self.groups)

    @property
    def kept_records(self) -> int | None:
        """The records that stay; None if they were not measured."""
        return _sum(group.kept_records for group in self.groups)

    @property
    def saved_records(self) -> int | None:
        """The records that go; None if they were not measured."""
        records, kept = self.records, self.kept_records
        return None if records is None or kept is None else records - kept

    @property
    def room_bytes(self) -> int:
        """Free room that the largest group needs, while old and new files are both there."""
        return max((group.room_bytes for group in self.groups), default=0)

    @property
    def title(self) -> str:
        """The path, and the size of the pass."""
        if self.skipped is not None or self.is_noop:
            return f"{self.path}: nothing to compact"
        offsets = f"{self.first_dirty_offset} to {self.end_offset}"
        return f"{self.path}: compact from {offsets}, {self.bytes} bytes"

    def table_rows(self) -> Sequence[Mapping[str, Any]]:
        """The segments: `into` is the base offset of the new one, None for a segment that stays."""
        compacted = [(one, group.base_offset) for group in self.groups for one in group.segments]
        return [
            asdict(one) | {"path": str(one.path), "into": into}
            for one, into in (*compacted, *((one, None) for one in self.staying))
        ]

    def __str__(self) -> str:
        """A line a group."""
        if self.skipped is not None or self.is_noop:
            return f"{self.path}: nothing to compact{f': {self.why}' if self.why else ''}"
        lines = [
            f"{self.path}: compact from {self.first_dirty_offset} to {self.end_offset}, "
            f"{self.bytes} bytes"
        ]
        for group in self.groups:
            kept = "" if group.kept_bytes is None else f", of which {group.kept_bytes} stay"
            bases = ", ".join(map(str, group.base_offsets))
            lines.append(f"segments {bases} become one ({group.bytes} bytes{kept})")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, repr=False)
class CompactionReport(Table):
    """The result of a compaction.

    Attributes:
        passes: how many; more than one where the map had no room for all keys.
        end_offset: the checkpoint now.
        segments_before, segments_after: the number of rewritten segments, and of their successors.
        bytes_before, bytes_after: of their logs.
        records, kept_records: in them.
        unkeyed_records: records without a key, which a compacted log cannot keep; they are dropped.
        freed_bytes: the bytes that the disk gets back, once files under `.deleted` are removed.
    """

    passes: int
    end_offset: int
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records: int = 0
    kept_records: int = 0
    unkeyed_records: int = 0
    freed_bytes: int = 0

    @property
    def title(self) -> str:
        """The numbers of segments and bytes, before and after."""
        return (
            f"{self.segments_before} segments became {self.segments_after}, "
            f"{self.bytes_before} bytes became {self.bytes_after}"
        )

    def table_rows(self) -> Sequence[Mapping[str, Any]]:
        """One row with all numbers."""
        return [asdict(self)]
