"""Closed segments of partitions that no process has open, in another codec.

`kseg.log.cleaner.recode` describes the changes; the steps are those of `kseg.log.closed`. Damage
stops one segment alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from kseg.constants import Compression
from kseg.errors import FormatError, KsegError, LimitExceededError, OffsetsOutOfOrderError
from kseg.format.convert import Target
from kseg.log.cleaner.recode import plan_recoding, recode
from kseg.log.cleaner.values import CompactedSegment
from kseg.log.closed import Change, home_of
from kseg.log.log import Log
from kseg.log.recovery.backup import Kept
from kseg.log.topic_policy import UNTOUCHED, RetentionRules


@dataclass(slots=True)
class RecodedPartition:
    """A partition, with the plan or the result.

    Attributes:
        path: its directory.
        rules: of its retention: they say whether it is left alone, and have its settings.
        segments: rewritten ones, with their new sizes once that is done; the others with the
            reason.
        findings: the damage for which segments stay.
        kept: the files in the backup.
        freed_bytes: the bytes that the disk got back.
    """

    path: Path
    rules: RetentionRules
    segments: list[CompactedSegment] = field(default_factory=list)
    findings: list[KsegError] = field(default_factory=list)
    kept: tuple[Kept, ...] = ()
    freed_bytes: int = 0

    @property
    def left_alone(self) -> str:
        """Why no segment is looked at; empty if they are."""
        return self.rules.why if self.rules.skipped in UNTOUCHED else ""

    @property
    def going(self) -> list[CompactedSegment]:
        """The segments that are rewritten."""
        return [one for one in self.segments if not one.why]


@dataclass(frozen=True, slots=True)
class Recoding:
    """How one run changes the codec of closed partitions.

    Attributes:
        codec: the codec that batches get.
        level: its level; None for Kafka's default.
        now_ms: the time that counts.
    """

    codec: Compression
    level: int | None
    now_ms: int

    def plan(self, path: Path, rules: RetentionRules) -> RecodedPartition:
        """Plan, and change nothing.

        Args:
            path: the directory.
            rules: as `PartitionSettings.retention_rules` has them.

        Raises:
            KsegError, OSError: a segment cannot be read.
        """
        one = RecodedPartition(path, rules)
        if not one.left_alone:
            one.segments = plan_recoding(Log.open(path).view, self._target(one))
        return one

    def apply_all(
        self,
        ones: Iterable[RecodedPartition],
        change: Change,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Apply the plans that change something, under the locks of the data directories.

        Args:
            ones: planned partitions.
            change: in place, with or without a backup.
            progress: called behind each segment with the bytes that are done, and all of them.

        Raises:
            LogLockedError: a broker, or another process, holds the data directory.
            UncleanShutdownError: a log was not closed in good order.
            StalePlanError: a log has changed since.
            OSError: the disk refuses, or is full; finished segments stay.
        """
        going = [one for one in ones if one.going]
        done, total = 0, sum(each.bytes for one in going for each in one.going)
        with change.holding(one.path for one in going):
            for one in going:
                for size in self._apply(one, change):
                    done += size
                    if progress is not None:
                        progress(done, total)

    def _apply(self, one: RecodedPartition, change: Change) -> Iterator[int]:
        """Change a partition; gives the old bytes of each segment behind it."""
        backup = change.backup_of(home_of(one.path), self.now_ms)
        config = one.rules.config
        with Log.open(one.path, mode="append", config=config, now_ms=lambda: self.now_ms) as log:
            for number, planned in enumerate(one.segments):
                if planned.why:
                    continue
                try:
                    done, freed = recode(log.state, planned, self._target(one), backup)
                except (FormatError, LimitExceededError, OffsetsOutOfOrderError) as error:
                    one.findings.append(error)
                    one.segments[number] = replace(planned, why="damaged")
                    continue
                one.segments[number] = done
                one.freed_bytes += freed
                yield planned.bytes
        one.kept = () if backup is None else tuple(backup.kept)

    def _target(self, one: RecodedPartition) -> Target:
        limit = one.rules.config.max_message_bytes
        return Target(2, self.codec, self.level, recoded_bytes_max=limit)
