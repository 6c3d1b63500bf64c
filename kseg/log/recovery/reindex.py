"""Rebuilding the indexes and producer snapshots of a partition from its log: planned, then done.

`kseg.log.recovery.sweep` finds the entries that a log makes. An index is left alone where
`kseg.log.recovery.index_check` finds no fault. With `exact` it must have exactly those bytes.

The log itself is never changed. Nothing is made from the bytes after damage: that is for recovery.

A readable snapshot knows more than a log that has lost its beginning. So it stays, unless the log
has a later batch of some producer, or another batch at the same place. Missing snapshots are made
where a broker's load makes them: at the bases of the last two segments and at the end.

Source: Kafka `LogSegment.recover`, `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from kseg._door import renamed
from kseg.constants import TAILS, Progress, StopReason, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import (
    CorruptIndexError,
    KsegError,
    LimitExceededError,
    NotALogError,
)
from kseg.files import io, producer_snapshot
from kseg.files.atomic import replace_file
from kseg.files.mapping import held_by_another
from kseg.files.names import (
    FileKind,
    PathKind,
    SegmentFiles,
    classify_path,
    list_partition,
    segment_name,
)
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.txn_index import pack_entries
from kseg.format.times import Time, time_ms
from kseg.log.config import CONFIG_CLASSES, ConfigLike, LogConfig
from kseg.log.findings import Finding
from kseg.log.index_rules import IndexPlace, bytes_max
from kseg.log.producers.snapshots import SnapshotFiles
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.backup import Backup, windows
from kseg.log.recovery.index_check import IndexChecks
from kseg.log.recovery.load_context import ENTRIES
from kseg.log.recovery.plan import Action, FileSeen, Plan, Report, claimed, look_at
from kseg.log.recovery.sweep import Swept, sweep_segment
from kseg.log.segment.reader import Segment
from kseg.stores.path import local_path_at
from kseg.workers import sum_progress


def difference(path: Path, data: bytes, entry_bytes: int) -> tuple[int, str] | None:
    """The size of a file that does not have these bytes, and a phrase how it differs.

    Args:
        path: the file.
        data: the wanted bytes.
        entry_bytes: the size of an entry.

    Returns:
        -1 and "missing" if there is no file; None if it has these bytes.
    """
    if not path.exists():
        return -1, "missing"
    with io.opened(path) as fd:
        size = io.file_size(fd)
        stored = io.read_at(fd, 0, min(size, len(data)), path)
        new_bytes = np.frombuffer(data, np.uint8, len(stored))
        differing = np.flatnonzero(np.frombuffer(stored, np.uint8) != new_bytes)
        position = int(differing[0]) if len(differing) else len(stored)
        remainder = windows(path, fd, (position, size))
        has_more = position == len(data) and any(window.strip(b"\0") for window in remainder)
    if position == size == len(data):
        return None
    if position == len(data):
        more = "has more entries than the log makes"
        return size, more if has_more else "has unused room after its entries"
    if position == size and size % entry_bytes == 0:
        return size, "lacks the last entries"
    return size, f"differs from entry {position // entry_bytes} on"


# ---- plan and report -----------------------------------------------------------------------------


@frozen_dataclass
class RemadeFile:
    """A file that is made, replaced or removed.

    Attributes:
        action: "create", "replace" or "delete".
        path: the file.
        kind: the kind of the file.
        bytes: the size of the new file; of the old file if it is deleted.
        entries_before: whole entries of the old file; None if there is none or it cannot be read.
        entries_after: entries of the new file.
        why: the fault of the old file.
    """

    action: str
    path: Path
    kind: FileKind
    bytes: int
    entries_before: int | None
    entries_after: int
    why: str

    def as_action(self) -> Action:
        """This file as an `Action`, which all plans have."""
        before = "no" if self.entries_before is None else str(self.entries_before)
        why = f"{self.why} ({before} entries before, {self.entries_after} after)"
        return Action(self.action, str(self.path), self.bytes, why)


@frozen_dataclass
class ReindexedSegment:
    """One segment.

    Attributes:
        base_offset: from the file's name.
        size: bytes of its log.
        index_entries, time_index_entries: entries that its log makes.
        aborted: aborted transactions that end in it; None where that is not known.
        finding: the damage for which its indexes are left unchanged; None if it has none.
        files: its indexes that change.
    """

    base_offset: int
    size: int
    index_entries: int
    time_index_entries: int
    aborted: int | None
    finding: Finding | None
    files: tuple[RemadeFile, ...]


class ReindexReport(Report):
    """The result of a reindexing."""

    __slots__ = ()
    plan: ReindexPlan

    @property
    def files(self) -> tuple[RemadeFile, ...]:
        """The files that have changed."""
        return self.plan.files

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Damage in the log, for which something was left as it was."""
        return self.plan.findings

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions that were done, in order."""
        return self.plan.actions

    @property
    def title(self) -> str:
        """The numbers of changed files, findings and files in the backup."""
        return (
            f"{len(self.files)} files changed, {len(self.findings)} findings, "
            f"{len(self.kept)} files in the backup"
        )


@frozen_dataclass(repr=False)
class ReindexPlan(Plan[ReindexReport]):
    """The changes by which indexes and snapshots are rebuilt.

    Attributes:
        path: the partition directory.
        config: the settings of the log.
        kinds: the kinds of files to check.
        exact: whether indexes without a fault change, too, if Kafka would write other bytes.
        now_ms: the time by which producers of a first snapshot have expired; None for never.
        seen: the files that the plan was made for.
        segments: all segments, sorted by base offset.
        snapshots: the producer snapshots that change.
        findings: damage in the log, for which something is left as it is.
    """

    REPORT = ReindexReport
    #: A mark of a clean stop stays only if indexes are as a clean stop leaves them.
    ALWAYS = True

    path: Path
    config: LogConfig
    kinds: tuple[FileKind, ...]
    exact: bool
    now_ms: int | None
    seen: tuple[FileSeen, ...]
    segments: tuple[ReindexedSegment, ...] = ()
    snapshots: tuple[RemadeFile, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def files(self) -> tuple[RemadeFile, ...]:
        """All files that change."""
        return (*(file for segment in self.segments for file in segment.files), *self.snapshots)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The planned actions, in order."""
        return tuple(file.as_action() for file in self.files)

    @property
    def backup_bytes(self) -> int:
        """The size of the new files, in bytes."""
        return sum(file.bytes for file in self.files)

    @property
    def title(self) -> str:
        """The path, and the size of the change."""
        change = f"{len(self.files)} files change" if self.files else "nothing to do"
        return f"{self.path}: {change}, {len(self.findings)} findings"

    def again(self, path: Path) -> ReindexPlan:
        """Plan again, for the files as they are now.

        Args:
            path: the directory, or that of a copy.

        Raises:
            OSError: something cannot be read.
        """
        return _Reindexing(replace(self, path=path, seen=look_at(path)), None).plan()

    def do(self, backup: Backup | None, progress: Progress | None) -> ReindexReport:
        """Replace each file by a rename; it keeps owner, permissions and time of modification.

        If it is killed on the way, plan and apply again.

        Args:
            backup: keeps the old files; None for no backup.
            progress: called after each segment.

        Raises:
            LogLockedError: another process, or a log of this one, writes there.
            OSError: the disk refuses; each file is the old one or the new one.
        """
        with claimed(self) as lease:
            done = self
            if self.files:
                lease.forget_broker_epoch()
                done = _Reindexing(self, progress, applies=True, backup=backup).plan()
        return ReindexReport(done)

    def __str__(self) -> str:
        """One line for each changed file, and one for each finding."""
        lines = [f"{action.action} {action.path}: {action.why}" for action in self.actions]
        lines += [f"left alone: {finding}" for finding in self.findings]
        return "\n".join(lines) or f"{self.path}: nothing to do"


# ---- planning and applying -----------------------------------------------------------------------


#: The kinds of files that can be rebuilt.
KINDS: Final = (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX, FileKind.SNAPSHOT)
#: The classes of a plan and its parts.
REINDEX_CLASSES: Final = (
    ReindexPlan,
    ReindexedSegment,
    RemadeFile,
    FileSeen,
    FileKind,
    Finding,
    *CONFIG_CLASSES,
)


@renamed(now_ms="now")
def plan_reindex(
    path: StrPath,
    *,
    config: ConfigLike | None = None,
    kinds: Collection[FileKind] = KINDS,
    exact: bool = False,
    now: Time | None = None,
    progress: Progress | None = None,
) -> ReindexPlan:
    """Find the indexes and snapshots that do not fit the log; changes nothing.

    Args:
        path: a partition directory, or a `Log`.
        config: the log's settings, of which the interval of index entries counts; None for Kafka's
        defaults.
        kinds: the kinds of files to check, from `KINDS`.
        exact: leave alone only files with exactly the bytes that Kafka would write.
        now: leave out producers that have expired at this time, if the first snapshot has them.
        progress: called after each segment.

    Raises:
        ValueError: a kind that cannot be made from a log.
        NotALogError: the path is not a partition directory.
        OSError: something cannot be read.

    Example:
        >>> plan_reindex("orders-0").is_noop  # doctest: +SKIP
        True
    """
    unknown_kinds = [kind for kind in kinds if kind not in KINDS]
    if unknown_kinds:
        raise ValueError(f"{unknown_kinds[0]} is not made from a log")
    directory = local_path_at(path)
    if classify_path(directory).kind is not PathKind.PARTITION:
        raise NotALogError("this is not a partition directory", path=path)
    chosen = tuple(kind for kind in KINDS if kind in kinds)
    by = None if now is None else time_ms(now)
    plan = ReindexPlan(directory, LogConfig.of(config), chosen, exact, by, look_at(directory))
    return _Reindexing(plan, progress).plan()


class _Reindexing:
    """One pass over a partition; if `applies` is true, it also changes the files that are wrong."""

    def __init__(
        self,
        plan: ReindexPlan,
        progress: Progress | None,
        *,
        applies: bool = False,
        backup: Backup | None = None,
    ) -> None:
        """Begin with nothing read.

        Args:
            plan: the partition, and the kinds of files that are compared.
            progress: called with the bytes that are walked.
            applies: see the class.
            backup: keeps the files that are replaced; None for no backup.
        """
        self._plan, self._progress = plan, progress
        self._applies, self._backup = applies, backup
        self._snapshots = SnapshotFiles(plan.path)
        self._first_offset = 0

    def plan(self) -> ReindexPlan:
        """Check all segments, and report the differences."""
        listing = list_partition(self._plan.path)
        files = [segment_files for segment_files in listing.segments if not segment_files.kafka07]
        self._snapshots = SnapshotFiles.of(listing)
        log_bytes = sum(os.path.getsize(segment_files.log) for segment_files in files)
        note = sum_progress(self._progress, log_bytes)
        state = self._first_producers(files)
        segments: list[ReindexedSegment] = []
        snapshots: list[RemadeFile] = []
        end_offset = -1
        for number, segment_files in enumerate(files):
            last = number == len(files) - 1
            if state is not None:
                state.map_end_offset = segment_files.base_offset
                # Kafka writes snapshots at the last two segments, and at the end.
                snapshots += self._snapshot_at(
                    segment_files.base_offset, state, is_required=len(files) - number <= 2
                )
            swept, segment = self._segment(segment_files, state, is_last=last)
            segments.append(segment)
            if segment.finding is not None:
                state = None
            end_offset = swept.next_offset
            note(segment.size)
        if state is not None and files and end_offset > files[-1].base_offset:
            snapshots += self._snapshot_at(end_offset, state, is_required=True)
        offsets_with_state = {segment_files.base_offset for segment_files in files} | {end_offset}
        snapshots += self._unreadable_snapshots(offsets_with_state)
        self._flush_names(snapshots)
        return replace(
            self._plan,
            segments=tuple(segments),
            snapshots=tuple(snapshots),
            findings=tuple(segment.finding for segment in segments if segment.finding is not None),
        )

    def _flush_names(self, files: Collection[RemadeFile]) -> None:
        """Make the names of changed files lasting."""
        if files and self._applies:
            io.flush_directory(self._plan.path)

    # ---- indexes ---------------------------------------------------------------------------------

    def _segment(
        self, files: SegmentFiles, state: ProducerState | None, *, is_last: bool
    ) -> tuple[Swept, ReindexedSegment]:
        """Walk a segment and remake its indexes if they do not fit.

        A segment with damage is left as it is, and has a finding.

        Args:
            files: the files of the segment.
            state: the producers' state before it; None if transactions are not known.
            is_last: whether it is the last segment, which may end in a torn batch.
        """
        with Segment.open(files.log, is_last=is_last) as segment:
            index_place = IndexPlace(
                str(files.log),
                files.base_offset,
                is_last,
                log_bytes=segment.size,
                believed=not held_by_another(files.log),
                interval=self._plan.config.index_interval_bytes,
            )
            checks = IndexChecks(index_place)
            for kind, path in {
                FileKind.INDEX: files.index,
                FileKind.TIMEINDEX: files.time_index,
                FileKind.TXNINDEX: files.txn_index,
            }.items():
                if kind is FileKind.TXNINDEX or (kind in self._plan.kinds and not self._plan.exact):
                    checks.add(kind, path)
            swept = sweep_segment(
                segment, config=self._plan.config, producers=state, watch=checks.feed
            )
            fault, finding = swept.end_fault, None
            is_tail = is_last and swept.error is None and swept.stop in TAILS
            if fault is not None and not is_tail:
                finding = Finding("", files.log, fault.reason, fault.position, fault.offset)
            changes: list[RemadeFile] = []
            if finding is None:
                swept, faults = self._judge_indexes(segment, swept, checks)
                changes = list(self._changes(files, swept, faults))
        self._flush_names(changes)
        return swept, ReindexedSegment(
            base_offset=files.base_offset,
            size=swept.size,
            index_entries=swept.offset_entry_count,
            time_index_entries=swept.time_entry_count,
            aborted=None if swept.aborted is None else len(swept.aborted),
            finding=finding,
            files=tuple(changes),
        )

    def _judge_indexes(
        self, segment: Segment, swept: Swept, checks: IndexChecks
    ) -> tuple[Swept, dict[FileKind, Finding | None]]:
        """The walk, with entries that the log no longer accounts for, and the indexes' faults."""
        due = (swept.offset_entry_count, swept.time_entry_count)
        trail = checks.finish(
            StopReason.END,
            segment.headers,
            lambda: due,
        )
        faults = checks.faults
        if trail is not None and swept.aborted is not None:
            aborted = trail.expected(swept.aborted)
            swept = replace(swept, aborted=aborted)
            faults[FileKind.TXNINDEX] = faults[FileKind.TXNINDEX] or trail.check(aborted)
        return swept, faults

    def _changes(
        self, files: SegmentFiles, swept: Swept, faults: dict[FileKind, Finding | None]
    ) -> Iterator[RemadeFile]:
        """The indexes to write again: those with a fault; with `exact` all that differ."""
        new_bytes = {FileKind.INDEX: swept.offset_entries, FileKind.TIMEINDEX: swept.time_entries}
        if swept.aborted is not None:
            new_bytes[FileKind.TXNINDEX] = pack_entries(swept.aborted)
        stem = files.log.name.partition(".")[0]
        for kind, data in new_bytes.items():
            if kind not in self._plan.kinds:
                continue
            fault = None if self._plan.exact else faults[kind]
            if fault is None and not self._plan.exact:
                continue
            path = files.log.with_name(f"{stem}.{kind.value}")
            size = ENTRIES[kind.value].size
            differs = difference(path, data, size)
            if differs is None:
                continue
            before, text = differs
            if before < 0 and kind is FileKind.TXNINDEX and not data:
                continue
            why = text if fault is None else fault.why or text
            if fault is not None and fault.why and before > bytes_max(swept.size, size):
                why = "is longer than its log can need"
            entries_before = None if before < 0 else before // size
            yield self._remake(path, kind, data, entries_before, len(data) // size, why)

    def _remake(
        self,
        path: Path,
        kind: FileKind,
        data: bytes,
        entries_before: int | None,
        entries_after: int,
        why: str,
    ) -> RemadeFile:
        """The report of a file with other bytes than follow from the log; writes it if applied."""
        action = "create" if why == "missing" else "replace"
        if self._applies:
            if self._backup is not None:
                self._backup.keep_file(path)
            replace_file(path, data, keep_modified=True, flush_directory=False)
        return RemadeFile(action, path, kind, len(data), entries_before, entries_after, why)

    # ---- snapshots -------------------------------------------------------------------------------

    def _first_producers(self, files: list[SegmentFiles]) -> ProducerState | None:
        """The producers' state before the first segment; None if no kind to check needs it."""
        if not files or not {FileKind.TXNINDEX, FileKind.SNAPSHOT} & set(self._plan.kinds):
            return None
        state = ProducerState(
            expiration_ms=self._plan.config.producer_id_expiration_ms,
            transaction_max_timeout_ms=self._plan.config.transaction_max_timeout_ms,
        )
        self._first_offset = files[0].base_offset
        path = self._snapshots.path(self._first_offset)
        stored = None if path is None else _read_snapshot(path)
        if isinstance(stored, tuple):
            state.load(stored, self._first_offset, now_ms=self._plan.now_ms)
        return state

    def _snapshot_at(
        self, offset: int, state: ProducerState, *, is_required: bool
    ) -> Iterator[RemadeFile]:
        """Yields the rebuilt snapshot at an offset if it is missing or wrong; otherwise nothing.

        Args:
            offset: the offset after the records that the snapshot covers.
            state: the producers' state at `offset`.
            is_required: whether a missing snapshot is made.
        """
        if FileKind.SNAPSHOT not in self._plan.kinds or offset <= self._first_offset:
            return
        path = self._snapshots.path(offset)
        if path is None and not is_required:
            return
        entries = state.snapshot_entries()
        before, why = None, "missing"
        if path is None:
            path = self._plan.path / segment_name(offset, FileKind.SNAPSHOT)
        else:
            stored = _read_snapshot(path)
            if isinstance(stored, KsegError):
                why = stored.reason
            else:
                before, why = len(stored), self._contradiction(stored, entries, offset)
                if not why:
                    return
        data = producer_snapshot.to_bytes(entries)
        yield self._remake(path, FileKind.SNAPSHOT, data, before, len(entries), why)

    def _contradiction(
        self,
        stored: tuple[ProducerSnapshotEntry, ...],
        entries: list[ProducerSnapshotEntry],
        offset: int,
    ) -> str:
        """How the log contradicts a snapshot, as a phrase; empty if it does not."""
        entry_of = {entry.producer_id: entry for entry in entries}
        for stored_entry in stored:
            producer = f"producer {stored_entry.producer_id}"
            if stored_entry.last_offset >= offset:
                return f"{producer} cannot have written offset {stored_entry.last_offset} by then"
            entry = entry_of.get(stored_entry.producer_id)
            if entry is None or not entry.has_batch or entry.last_offset < stored_entry.last_offset:
                continue
            if entry.last_offset > stored_entry.last_offset:
                return f"{producer} has written offset {entry.last_offset}"
            if entry.last_sequence != stored_entry.last_sequence:
                return f"the last sequence of {producer} is {entry.last_sequence}"
        return ""

    def _unreadable_snapshots(self, offsets_with_state: Collection[int]) -> Iterator[RemadeFile]:
        """Remove snapshots that cannot be read, at offsets where no state was computed."""
        if FileKind.SNAPSHOT not in self._plan.kinds:
            return
        for offset in self._snapshots.offsets:
            path = self._snapshots.path(offset)
            if offset in offsets_with_state or path is None:
                continue
            stored = _read_snapshot(path)
            if isinstance(stored, KsegError):
                size = os.path.getsize(path)
                if self._applies and self._backup is not None:
                    self._backup.move_file(path)
                elif self._applies:
                    io.unlink(path)
                why = f"{stored.reason}, and no segment begins there"
                yield RemadeFile("delete", path, FileKind.SNAPSHOT, size, None, 0, why)


def _read_snapshot(path: Path) -> tuple[ProducerSnapshotEntry, ...] | KsegError:
    try:
        return producer_snapshot.read(path)
    except (CorruptIndexError, LimitExceededError) as error:
        return error
