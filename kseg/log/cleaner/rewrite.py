"""Segments written anew, in one pass of a compaction or each by itself, and swapped in.

Memory holds a stretch of the log and its filtered form, for segments of any size. The swap leaves
the old files or the new ones at each kill:

    1. `.cleaned` becomes `.swap`, the log first. As long as one `.cleaned` is there, a start throws
       all of them away.
    2. The old files of the group go, except those that the new files replace by their names.
    3. `.swap` becomes the plain name, the log first. A start does steps 2 and 3 where it finds
       `.swap`.

Names are lasting after each step, and the old files go only when the names of step 1 are lasting.

Source: Kafka `Cleaner.cleanSegments`, `Cleaner.cleanInto`, `LocalLog.replaceSegments`; Kafka
renames old files to `.deleted` and removes them later.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

from kseg.constants import COMPACTION_RULES, SEGMENT_BYTES_MAX, Buffer
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, LimitExceededError, StalePlanError, at_path
from kseg.files import io
from kseg.files.log_file import Tile
from kseg.files.names import segment_name
from kseg.format.header import scan_all
from kseg.format.reader import Workspace
from kseg.format.retain import Filtered, filter_walked
from kseg.log.cleaner.inputs import (
    CleanerInputs,
    CompactedGroup,
    CompactedSegment,
    Group,
    group_segments,
    walk_sound,
)
from kseg.log.cleaner.judge import Judge, LastBatches, read_decisions, read_keys
from kseg.log.pending_deletes import files_of_segment
from kseg.log.reader.version import SegmentInfo
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.load_context import CLEANED, SWAP
from kseg.log.segment.reader import Segment
from kseg.log.segment.writer import KINDS, SegmentWriter
from kseg.log.writer.state import LogState

_T = TypeVar("_T")


@frozen_dataclass(eq=False)
class Pass:
    """One pass: its end, its groups, and the rules by which each is written.

    Attributes:
        inputs: the log.
        judge: decides about batches and records.
        rules: the release.
        end_offset: where the pass ends.
        groups: sorted by base offset.
        old_tombstones_since_ns: tombstones of magic 0 and 1 stay in files modified after this.
        workspace: memory to use again.
    """

    inputs: CleanerInputs
    judge: Judge
    rules: str
    end_offset: int
    groups: list[Group]
    old_tombstones_since_ns: int
    workspace: Workspace

    @classmethod
    def of(cls, inputs: CleanerInputs, dirty: range, *, rules: str, map_bytes: int) -> Pass:
        """Read the keys of the dirty part, as many as there is memory for.

        Args:
            inputs: the log.
            dirty: the offsets from the first dirty one up to the first that must not be cleaned.
            rules: the release.
            map_bytes: memory for keys.

        Raises:
            ValueError: there is no memory for one key.
            FormatError, LimitExceededError: a batch is damaged.
            OSError: a file cannot be read.
        """
        decisions = read_decisions(inputs, dirty)
        last_offsets = read_keys(inputs, dirty, decisions, map_bytes)
        producers = LastBatches.of(inputs.producers.values())
        # The batch before it stays, at least its header, to show where the range ends.
        range_end = dirty.stop if rules in COMPACTION_RULES[:2] else inputs.high_watermark
        judge = Judge(last_offsets, decisions, producers, range_end, inputs.now_ms)
        end = last_offsets.latest_offset + 1
        clean = inputs.between(0, dirty.start)
        since = 0
        if clean:  # when the last clean segment was written, less the time that tombstones stay
            modified = os.stat(clean[-1].path).st_mtime_ns
            since = modified - inputs.config.delete_retention_ms * 1_000_000
        groups = group_segments(inputs.between(0, end), inputs.config, dirty.stop)
        return cls(inputs, judge, rules, end, groups, since, Workspace())

    def write(self, group: Group) -> CompactedGroup:
        """Write the `.cleaned` files of a group, lasting when this returns.

        A segment that does not change is not written; if it is the only one, it is measured first.

        Raises:
            FormatError, LimitExceededError: a batch is damaged; no new file is there.
            OSError: a file cannot be read, or the disk refuses; as before.
        """
        remove_cleaned(self.inputs.view.path, group[0].base_offset)
        if len(group) == 1:
            counts = self.judge.unkeyed_records, self.judge.removed_tombstones
            done = self.filter(group, whole=True)
            if not done.changes:
                return done
            # The writing counts the same records again.
            self.judge.unkeyed_records, self.judge.removed_tombstones = counts

        def fill(writer: SegmentWriter) -> CompactedGroup:
            """Write the records that stay, and the aborted transactions that end here."""
            done = self.filter(group, writer)
            bases = [info.base_offset for info in self.inputs.view.segments]
            end = bases[bases.index(group[-1].base_offset) + 1]
            for entry in self.judge.decisions.entries:
                if group[0].base_offset <= entry.last_offset < end:
                    writer.txn_index.append(entry)
            return done

        return write_cleaned(self.inputs, group, fill)

    def filter(
        self, group: Group, writer: SegmentWriter | None = None, *, whole: bool = False
    ) -> CompactedGroup:
        """Filter each segment; only measures a group if `writer` is None.

        Args:
            group: the segments.
            writer: receives the batches that stay.
            whole: stop at the first batches that are not copied whole: the segment changes.

        Raises:
            FormatError, LimitExceededError: a batch is damaged.
            OSError: a file cannot be read, or the disk refuses.
        """
        segments: list[CompactedSegment] = []
        records = kept_records = copied = 0
        removed = self.judge.removed_tombstones
        for info in group:
            modified = os.stat(info.path).st_mtime_ns
            self.judge.old_tombstones = modified > self.old_tombstones_since_ns
            retained = 0
            with self.inputs.view.open_segment(info) as segment:
                for result in rewritten(segment, self._filter, self.inputs.on_bad_crc):
                    retained += result.bytes_retained
                    records += result.messages_read
                    kept_records += result.messages_retained
                    copied += result.bytes_copied
                    if whole and result.bytes_copied != result.bytes_read:
                        break
                    if writer is not None and result.bytes_retained:
                        parts = result.parts
                        _append(writer, parts[0] if len(parts) == 1 else result.data)
            segments.append(CompactedSegment(info.base_offset, info.path, info.size, retained))
        removes = self.judge.removed_tombstones > removed
        changes = len(group) > 1 or copied != group[0].size
        return CompactedGroup(tuple(segments), records, kept_records, removes, changes)

    def _filter(self, tile: Tile) -> Filtered:
        """A tile without the records that compaction removes; adds to the judge's counts."""
        verdict = self.judge.judge(tile.table)
        located = self.judge.located
        filtered = filter_walked(
            tile.data,
            tile.table,
            verdict,
            self.judge.keep,
            located=located,
            base=tile.base,
            horizon_ms=self.inputs.now_ms + self.inputs.config.delete_retention_ms,
            rules=self.rules,
            workspace=self.workspace,
        )
        self.judge.count(located)
        return filtered


def rewritten(
    segment: Segment, rewrite: Callable[[Tile], _T], on_bad_crc: Literal["stop", "ignore"] = "stop"
) -> Iterator[_T]:
    """The results of a function for the batches of a segment that must be whole, tile by tile.

    Raises:
        FormatError, LimitExceededError: a batch is damaged; with path and position.
        OSError: the file cannot be read.
    """
    for tile in walk_sound(segment, on_bad_crc=on_bad_crc):
        if len(tile.table):
            try:
                yield rewrite(tile)
            except KsegError as error:
                raise at_path(error, segment.path) from None


def rewrite_segment(
    state: LogState,
    inputs: CleanerInputs,
    info: SegmentInfo,
    rewrite: Callable[[Tile], Buffer],
    backup: Backup | None,
) -> tuple[int, int]:
    """Rewrite one sealed segment and swap the new files in.

    Args:
        state: a log open for appending.
        inputs: the same log.
        info: the segment.
        rewrite: returns the bytes of batches in their new form.
        backup: keeps the old files once the new ones are written; None for no backup.

    Returns:
        The bytes of the new log, and those that the disk gets back.

    Raises:
        FormatError, LimitExceededError: a batch is damaged, or the segment would be too large; it
            is as it was.
        OSError: the disk refuses, or is full; likewise.
    """
    if not io.has_room(state.path, info.size):
        raise no_room(info.path, info.size)

    def fill(writer: SegmentWriter) -> int:
        """Write the rewritten batches and the transaction index; then back up the old files."""
        size = 0
        with inputs.view.open_segment(info) as segment:
            for data in rewritten(segment, rewrite):
                size += len(data)
                if size > SEGMENT_BYTES_MAX:
                    reason = f"it would pass the {SEGMENT_BYTES_MAX} bytes of a segment"
                    raise LimitExceededError(reason, path=info.path)
                if data:
                    _append(writer, data)
            for entry in segment.txn_index.entries():
                writer.txn_index.append(entry)
        if backup is not None:
            keep_group(state, (info,), backup)
        return size

    size = write_cleaned(inputs, (info,), fill)
    return size, swap_in(state, (info,), size)


def no_room(path: Path, size: int) -> OSError:
    """The error where the disk has no room to rewrite a segment."""
    reason = f"no room on the disk: {size} bytes are needed to rewrite a segment"
    return OSError(errno.ENOSPC, reason, os.fspath(path))


def write_cleaned(inputs: CleanerInputs, group: Group, fill: Callable[[SegmentWriter], _T]) -> _T:
    """Write the `.cleaned` files of a group, lasting when this returns.

    Args:
        inputs: the log.
        group: the segments that they are to replace.
        fill: appends to the new segment; its answer is that of this function.

    Raises:
        Exception: `fill` raised it; no new file is there.
        OSError: the disk refuses; likewise.
    """
    directory, base = inputs.view.path, group[0].base_offset
    try:
        with SegmentWriter.open(
            directory,
            base,
            inputs.config,
            create=True,
            now_ms=inputs.now_ms,
            suffix=CLEANED,
            preallocate=False,
        ) as writer:
            done = fill(writer)
            writer.become_inactive()
            writer.flush()
        # Owner and permissions are those of the first old log, the time is that of the last.
        model, modified = os.stat(group[0].path), os.stat(group[-1].path).st_mtime_ns
        for path in names_of(directory, base, CLEANED):
            with suppress(FileNotFoundError):
                io.dress_like(path, model)
                io.set_modified(path, modified)
        io.flush_directory(directory)
    except BaseException:
        with suppress(OSError):
            remove_cleaned(directory, base)
        raise
    return done


def _append(writer: SegmentWriter, data: Buffer) -> None:
    writer.append([data], scan_all(memoryview(data), on_bad_crc="ignore"))


def names_of(directory: Path, base_offset: int, suffix: str) -> list[Path]:
    """The names of a segment's files, whether they are there or not."""
    return [directory / (segment_name(base_offset, kind) + suffix) for kind in KINDS]


def remove_cleaned(directory: Path, base_offset: int) -> None:
    """Remove the `.cleaned` files of a segment, if there are any.

    Raises:
        OSError: the disk refuses.
    """
    for path in names_of(directory, base_offset, CLEANED):
        io.unlink(path, missing_ok=True)


def swap_in(state: LogState, group: Sequence[SegmentInfo], size: int) -> int:
    """Replace the files of a group by its `.cleaned` files, lasting when this returns.

    Args:
        state: the log; its lock is held meanwhile.
        group: the old segments, rising.
        size: the size of the new log.

    Returns:
        The bytes that the disk gets back.

    Raises:
        StalePlanError: the log has not all of them any more; nothing was done.
        OSError: the disk refuses. The log has failed then; the next opening puts it in order.
    """
    with state.changing():
        if not set(group) <= set(state.sealed):
            raise StalePlanError("segments went while they were compacted", path=state.path)
        before = state.deletions.freed_bytes
        base = group[0].base_offset
        with state.all_or_poison():
            new_disk_bytes = _rename(state.path, base, CLEANED, SWAP)
            state.flush_names()
            new = SegmentInfo(state.files_of(base), size, is_last=False)
            state.replace_segments({info.base_offset for info in group}, (new,))
            _remove_old(state, group)
            state.flush_names()
            _rename(state.path, base, SWAP, "")
            state.flush_names()
        state.publish()
        return state.deletions.freed_bytes - before - new_disk_bytes


def _remove_old(state: LogState, group: Sequence[SegmentInfo]) -> None:
    """Remove the files of compacted segments, except those that a new file replaces by name."""
    first, *others = group
    for path in files_of_segment(first.files):
        if path.with_name(path.name + SWAP).exists():
            state.deletions.add_freed(io.bytes_given_back(path))
        else:
            state.deletions.unlink(path)
    for info in others:
        state.unlink_segment(info)


def _rename(directory: Path, base: int, old: str, new: str) -> int:
    """Rename the files of the new segment; return how many bytes of disk they have."""
    disk_bytes = 0
    sources, targets = names_of(directory, base, old), names_of(directory, base, new)
    for source, target in zip(sources, targets, strict=True):
        with suppress(FileNotFoundError):
            disk_bytes += os.stat(source).st_blocks * 512
            io.rename(source, target)
    return disk_bytes


def keep_group(state: LogState, group: Sequence[SegmentInfo], backup: Backup) -> None:
    """Back up the files of a group, and the snapshots that are removed with it.

    Raises:
        OSError: the disk refuses.
    """
    for info in group:
        for path in files_of_segment(info.files):
            backup.keep_file(path)
    for info in group[1:]:
        snapshot = state.snapshots.path(info.base_offset)
        if snapshot is not None:
            backup.keep_file(snapshot)
