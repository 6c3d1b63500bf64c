"""The plan and the report of a reindexing, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.files.names import FileKind
from kseg.log.config import LogConfig
from kseg.log.recovery.findings import Finding
from kseg.log.recovery.overlay import Action, FileSeen

if TYPE_CHECKING:
    from kseg.log.recovery.backup import Kept


@dataclass(frozen=True, slots=True)
class RemadeFile:
    """A file that is made, replaced or removed.

    Attributes:
        action: "create", "replace" or "delete".
        path: the file.
        kind: what it holds.
        bytes: of the new file; of the old one, if it is deleted.
        entries_before: whole entries of the old file; None without one, or where it cannot be read.
        entries_after: entries of the new one.
        why: what is wrong with the old one.
    """

    action: str
    path: Path
    kind: FileKind
    bytes: int
    entries_before: int | None
    entries_after: int
    why: str

    def as_action(self) -> Action:
        """The same in the terms of all plans."""
        before = "no" if self.entries_before is None else str(self.entries_before)
        why = f"{self.why} ({before} entries before, {self.entries_after} after)"
        return Action(self.action, str(self.path), self.bytes, why)


@dataclass(frozen=True, slots=True)
class ReindexedSegment:
    """One segment.

    Attributes:
        base_offset: from the file's name.
        size: bytes of its log.
        index_entries, time_index_entries: entries that its log makes.
        aborted: aborted transactions that end in it; None where that is not known.
        finding: the damage for which its indexes are left as they are; None if there is none.
        files: of its indexes, those that change.
    """

    base_offset: int
    size: int
    index_entries: int
    time_index_entries: int
    aborted: int | None
    finding: Finding | None
    files: tuple[RemadeFile, ...]


@dataclass(frozen=True, slots=True)
class ReindexPlan:
    """What making the indexes anew would change.

    Attributes:
        path: the partition directory.
        config: of the log.
        kinds: what is looked at.
        exact: whether indexes without a fault change, too, if Kafka 4.2 would write other bytes.
        now_ms: the time by which producers of a first snapshot have expired; None for never.
        segments: all of them, by base offset.
        snapshots: the producer snapshots that change.
        findings: damage in the log, for which something is left as it is.
        seen: the files that the plan was made for.
    """

    path: Path
    config: LogConfig
    kinds: tuple[FileKind, ...]
    exact: bool
    now_ms: int | None
    segments: tuple[ReindexedSegment, ...]
    snapshots: tuple[RemadeFile, ...]
    findings: tuple[Finding, ...]
    seen: tuple[FileSeen, ...]

    @property
    def files(self) -> tuple[RemadeFile, ...]:
        """All files that change."""
        return (*(file for each in self.segments for file in each.files), *self.snapshots)

    @property
    def actions(self) -> tuple[Action, ...]:
        """What is to be done, in order."""
        return tuple(file.as_action() for file in self.files)

    @property
    def is_noop(self) -> bool:
        """Whether all files are as they should be."""
        return not self.files

    def __repr__(self) -> str:
        """One line; `print` gives them all."""
        return f"{type(self).__name__}({str(self.path)!r}, is_noop={self.is_noop})"

    def __str__(self) -> str:
        """One line a file, and one for each finding."""
        lines = [f"{each.action} {each.path}: {each.why}" for each in self.actions]
        lines += [f"left alone: {finding}" for finding in self.findings]
        return "\n".join(lines) or f"{self.path}: nothing to do"


@dataclass(frozen=True, slots=True)
class ReindexReport:
    """What was done.

    Attributes:
        files: that have changed.
        findings: damage in the log, for which something was left as it was.
        kept: what was kept of the old files.
    """

    files: tuple[RemadeFile, ...]
    findings: tuple[Finding, ...]
    kept: tuple[Kept, ...]

    @property
    def actions(self) -> tuple[Action, ...]:
        """What was done, in order."""
        return tuple(file.as_action() for file in self.files)


__all__ = ["ReindexPlan", "ReindexReport", "ReindexedSegment", "RemadeFile"]
