"""Closed segments in another codec: planned by their headers, rewritten, swapped in.

Only batches of magic 2 change, each by itself: the bytes of its records, the codec in its
attributes, its length and its checksum. Offsets, times and their type, sequences, producers,
epochs, delete horizons and the transactional flag stay. A batch stays as it is if it is a control
batch, has no records, has the codec already, or would be larger than `max.message.bytes`. A segment
stays if no batch changes, if it is the active one, or if it is damaged.

The new files are swapped in as those of compaction (`kseg.log.cleaner.rewrite`), so a kill leaves
the old files of a segment or the new ones. Damage stops one segment alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kseg.change.run import DAMAGE
from kseg.constants import Compression, Progress
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, StalePlanError
from kseg.files.log_file import Tile
from kseg.format.convert import Converter, Target
from kseg.log.cleaner.inputs import ACTIVE, UNCHANGED, CleanerInputs, CompactedSegment
from kseg.log.cleaner.rewrite import rewrite_segment
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.plan import Action, Plan, Report
from kseg.log.topic_policy import UNTOUCHED, RetentionRules
from kseg.log.writer import flush
from kseg.log.writer.state import LogState


@frozen_dataclass(repr=False)
class RecodingPlan(Plan[Report]):
    """The segments of a log that get another codec, or have it now.

    Attributes:
        path: the partition directory.
        rules: the rules of its retention: they say whether it is left alone, and have its settings.
        codec: the codec that batches get.
        target: the codec with its level; if a level is named, batches of the codec change, too.
        now_ms: the time that counts.
        segments: rewritten ones, with their new sizes once that is done; the others with the
            reason.
        findings: the damage for which segments stay.
    """

    KEEPS = False

    path: Path
    rules: RetentionRules
    codec: Compression
    target: Target
    now_ms: int
    segments: tuple[CompactedSegment, ...] = ()
    findings: tuple[KsegError, ...] = ()

    @property
    def left_alone(self) -> str:
        """Why no segment is examined; empty if they are."""
        return self.rules.why if self.rules.skipped in UNTOUCHED else ""

    @property
    def going(self) -> list[CompactedSegment]:
        """The segments that are rewritten."""
        return [segment for segment in self.segments if not segment.why]

    def planned(self, path: Path) -> RecodingPlan:
        """Plan again, for the files as they are now.

        Args:
            path: the directory.

        Raises:
            UnsupportedFormatError: the log is one of Kafka 0.7.
            KsegError, OSError: a segment cannot be read.
        """
        if self.left_alone:
            return self
        view, target = LogView.open(path), self.target
        segments = (_plan_segment(view, info, target) for info in view.segments)
        return replace(self, path=path, segments=tuple(segments))

    @property
    def actions(self) -> tuple[Action, ...]:
        """The changed segments."""
        return tuple(map(self._action, self.going))

    def _action(self, segment: CompactedSegment) -> Action:
        codec = self.codec.label
        why = f"its batches of magic 2 become {codec}"
        if segment.kept_bytes is not None:
            why = f"it has {segment.kept_bytes} bytes now, with batches in {codec}"
        return Action("convert", str(segment.path), segment.bytes, why)

    @property
    def backup_bytes(self) -> None:
        """None: the size is only known once segments are rewritten."""

    def do(self, backup: Backup | None, progress: Progress | None) -> Report:
        """Write segments in the codec, each by itself, and put them in their places.

        Args:
            backup: keeps the old files; None for no backup.
            progress: called after each segment with the bytes that are done, and all of them.

        Raises:
            UncleanShutdownError: the log was not closed in good order; nothing was done.
            LogLockedError: another process, or a log of this one, writes there; nothing was done.
            StalePlanError: the log has changed since the plan was made.
            OSError: the disk refuses, or is full; finished segments stay.
        """
        done, findings, freed = list(self.segments), list[KsegError](), 0
        walked, total = 0, sum(segment.bytes for segment in self.going)
        with flush.opened(self.path, self.rules.config, now=self.now_ms) as state:
            for number, segment in enumerate(self.segments):
                if segment.why:
                    continue
                try:
                    done[number], segment_freed = recode(state, segment, self.target, backup)
                except DAMAGE as error:
                    findings.append(error)
                    done[number] = replace(segment, why="damaged")
                    continue
                freed += segment_freed
                walked += segment.bytes
                if progress is not None:
                    progress(walked, total)
        plan = replace(self, segments=tuple(done), findings=tuple(findings))
        return Report(plan, freed_bytes=freed)


def plan_recoding(
    path: Path, rules: RetentionRules, codec: Compression, level: int | None, now_ms: int
) -> RecodingPlan:
    """Say for each segment whether it is rewritten, or why it stays; only headers are read.

    Args:
        path: the partition directory.
        rules: as `PartitionSettings.retention_rules` has them.
        codec: the codec that batches get.
        level: its level; None for Kafka's default.
        now_ms: the time that counts.

    Raises:
        KsegError, OSError: a segment cannot be read.
    """
    target = Target(2, codec, level, recoded_bytes_max=rules.config.max_message_bytes)
    return RecodingPlan(path, rules, codec, target, now_ms).planned(path)


def _plan_segment(view: LogView, info: SegmentInfo, target: Target) -> CompactedSegment:
    """A segment with the reason why it stays; without a reason if it is rewritten.

    A header does not show the level, so with a level batches of the same codec are written again.
    """
    as_it_is = CompactedSegment(info.base_offset, info.path, info.size)
    if info.is_last or info.files.kafka07:
        return replace(as_it_is, why=ACTIVE if info.is_last else UNCHANGED)
    with view.open_segment(info) as segment:
        for table in segment.headers():
            data = (table.magic >= 2) & ~table.is_control & (table.record_count > 0)
            has_level = target.level is not None and target.compression != Compression.NONE
            if (data & ((table.codec != target.compression) | has_level)).any():
                return as_it_is
    return replace(as_it_is, why=UNCHANGED)


def recode(
    state: LogState, planned: CompactedSegment, target: Target, backup: Backup | None
) -> tuple[CompactedSegment, int]:
    """Write a segment in another codec and swap it in.

    Args:
        state: a log open for appending.
        planned: the segment.
        target: the form of its new batches.
        backup: keeps the old files; None for no backup.

    Returns:
        The segment, with its new bytes; and the bytes that the disk gets back.

    Raises:
        StalePlanError: the log has not that segment any more.
        FormatError, LimitExceededError, OSError: as for `rewrite_segment`.
    """
    with state.cleaning:
        infos = [info for info in state.sealed if info.base_offset == planned.base_offset]
        if not infos or infos[0].size != planned.bytes:
            raise StalePlanError("the log is not as the plan saw it", path=planned.path)
        converter, inputs = Converter(target), CleanerInputs.of_state(state)

        def convert(tile: Tile) -> bytes:
            return b"".join(converter.convert(tile.data, tile.table, tile.base))

        size, freed = rewrite_segment(state, inputs, infos[0], convert, backup)
        return replace(planned, kept_bytes=size), freed
