"""One group of segments written anew, or measured: the same walk, with or without a file.

Memory is that of a stretch of the log and what becomes of it, whatever the size of a segment.

Source: Kafka `Cleaner.cleanSegments`, `Cleaner.cleanInto`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.errors import KsegError, at_path
from kseg.files import io
from kseg.files.names import FileKind, segment_name
from kseg.format.columns import Workspace
from kseg.format.retain import Filtered, filter_walked
from kseg.format.whole import scan_all
from kseg.log.cleaner.inputs import CleanerInputs, walk_sound
from kseg.log.cleaner.values import CompactedGroup, CompactedSegment
from kseg.log.cleaner.verdicts import Judge
from kseg.log.recovery.split import CLEANED
from kseg.log.segment.writer import SegmentWriter

if TYPE_CHECKING:
    from kseg.files.log_file import Tile
    from kseg.log.reader.version import SegmentInfo
    from kseg.log.segment.reader import Segment

#: The files of a segment, in the order in which Kafka renames them.
KINDS: Final = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)


@dataclass(slots=True)
class Rewritten:
    """What a group came to.

    Attributes:
        kept_bytes: of each segment's log, in order.
        records, kept_records: of all of them.
        copied_bytes: of what was kept, those that are there byte for byte.
        removes_tombstones: whether tombstones went that the map has as the last of their keys.
    """

    kept_bytes: list[int]
    records: int = 0
    kept_records: int = 0
    copied_bytes: int = 0
    removes_tombstones: bool = False

    def changes(self, segments: Sequence[SegmentInfo]) -> bool:
        """Whether the new segment is another than the old one."""
        return len(segments) > 1 or self.copied_bytes != segments[0].size

    def described(self, segments: Sequence[SegmentInfo]) -> CompactedGroup:
        """As a plan says it."""
        found = [
            CompactedSegment(info.base_offset, info.path, info.size, kept)
            for info, kept in zip(segments, self.kept_bytes, strict=True)
        ]
        return CompactedGroup(
            tuple(found), self.records, self.kept_records, self.removes_tombstones
        )


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """What all groups of a pass are written by.

    Attributes:
        inputs: the log.
        judge: what becomes of batches and records.
        rules: of which release.
        old_tombstones_since_ns: tombstones of magic 0 and 1 stay in files modified later.
        workspace: memory to use again.
    """

    inputs: CleanerInputs
    judge: Judge
    rules: str
    old_tombstones_since_ns: int
    workspace: Workspace

    def measure(self, segments: Sequence[SegmentInfo]) -> Rewritten:
        """Say what a group would come to; nothing is written.

        Raises:
            FormatError, LimitExceededError: a batch is damaged.
            OSError: a file cannot be read.
        """
        return self._run(segments, None)

    def write(self, segments: Sequence[SegmentInfo]) -> Rewritten:
        """Write the `.cleaned` files of a group, lasting when this returns.

        A segment that does not change is not written; one alone is looked at first.

        Raises:
            FormatError, LimitExceededError: a batch is damaged; no new file is there.
            OSError: a file cannot be read, or the disk refuses; as before.
        """
        directory, base = self.inputs.path, segments[0].base_offset
        remove_cleaned(directory, base)
        if len(segments) == 1:
            done = self._run_unchanged(segments)
            if not done.changes(segments):
                return done
        try:
            writer = SegmentWriter.open(
                directory,
                base,
                self.inputs.config,
                create=True,
                now_ms=self.inputs.now_ms,
                suffix=CLEANED,
                preallocate=False,
            )
            try:
                done = self._run(segments, writer)
                self._finish(segments, writer)
            except BaseException:
                writer.close(trim=False)
                raise
            writer.close()
            _dress(directory, base, segments)
            io.flush_directory(directory)
        except BaseException:
            with suppress(OSError):
                remove_cleaned(directory, base)
            raise
        return done

    def _run_unchanged(self, segments: Sequence[SegmentInfo]) -> Rewritten:
        """What a segment comes to if it does not change; else no more than that it does."""
        counts = self.judge.unkeyed_records, self.judge.removed_tombstones
        done = self._run(segments, None, whole=True)
        if done.changes(segments):
            self.judge.unkeyed_records, self.judge.removed_tombstones = counts
        return done

    def _run(
        self,
        segments: Sequence[SegmentInfo],
        writer: SegmentWriter | None,
        *,
        whole: bool = False,
    ) -> Rewritten:
        """Filter each segment; with `whole`, up to the first stretch that is not copied whole."""
        done = Rewritten([])
        removed = self.judge.removed_tombstones
        for info in segments:
            modified = os.stat(info.path).st_mtime_ns
            self.judge.old_tombstones = modified > self.old_tombstones_since_ns
            kept = 0
            with self.inputs.open_segment(info) as segment:
                for result in self._filtered(segment):
                    kept += result.bytes_retained
                    done.records += result.messages_read
                    done.kept_records += result.messages_retained
                    done.copied_bytes += result.bytes_copied
                    if whole and result.bytes_copied != result.bytes_read:
                        break
                    if writer is not None and result.bytes_retained:
                        _append(writer, result)
            done.kept_bytes.append(kept)
        done.removes_tombstones = self.judge.removed_tombstones > removed
        return done

    def _filtered(self, segment: Segment) -> Iterator[Filtered]:
        for tile in walk_sound(segment, on_bad_crc=self.inputs.on_bad_crc):
            if not len(tile.table):
                continue
            try:
                filtered = self._filter(tile)
            except KsegError as error:
                raise at_path(error, segment.path) from None
            yield filtered

    def _filter(self, tile: Tile) -> Filtered:
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

    def _finish(self, segments: Sequence[SegmentInfo], writer: SegmentWriter) -> None:
        """Give the new segment its indexes, as one has that is not appended to any more."""
        bases = [info.base_offset for info in self.inputs.segments]
        end = bases[bases.index(segments[-1].base_offset) + 1]
        for entry in self.judge.decisions.entries_within(segments[0].base_offset, end):
            writer.txn_index.append(entry)
        writer.become_inactive()
        writer.flush()


def _append(writer: SegmentWriter, result: Filtered) -> None:
    data = result.parts[0] if len(result.parts) == 1 else result.data
    writer.append([data], scan_all(memoryview(data), on_bad_crc="ignore"))


def _dress(directory: Path, base: int, segments: Sequence[SegmentInfo]) -> None:
    """Give new files owner and permissions of the first old log, and the time of the last."""
    model, modified = os.stat(segments[0].path), os.stat(segments[-1].path).st_mtime_ns
    for path in names_of(directory, base, CLEANED):
        with suppress(FileNotFoundError):
            io.dress_like(path, model)
            io.set_modified(path, modified)


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


__all__ = ["Rewrite", "Rewritten", "names_of", "remove_cleaned"]
