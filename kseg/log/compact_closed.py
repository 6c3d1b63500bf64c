"""Compaction of closed partitions by their settings: looked at, then changed, one by one.

`look` opens a partition for reading and plans; `change` opens it for appending, under the lock of
its data directory, and applies that plan. It plans again if the log has changed, and for a copy.
Damage stops one partition alone, and is its `finding`. Where the policy is compact,delete,
retention deletes old segments after compaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.errors import (
    CorruptIndexError,
    FormatError,
    KsegError,
    LimitExceededError,
    OffsetsOutOfOrderError,
    StalePlanError,
)
from kseg.files.names import list_partition
from kseg.log.cleaner.clean import CompactionOptions
from kseg.log.compact import apply_compaction, plan_compaction
from kseg.log.log import Log
from kseg.log.retain import apply_retention, files_of, plan_retention
from kseg.log.sub_directories import EntryKind, entry_of

if TYPE_CHECKING:
    from kseg.log.cleaner.values import CompactionPlan, CompactionReport
    from kseg.log.reader.version import HighWatermark
    from kseg.log.recovery.backup import Backup
    from kseg.log.settings.joined import PartitionSettings
    from kseg.log.topic_policy import RetentionRules
    from kseg.log.writer.retention import RetentionPlan

#: What is wrong with one partition, while the others go on.
_DAMAGE: Final = (FormatError, CorruptIndexError, LimitExceededError, OffsetsOutOfOrderError)


@dataclass(slots=True)
class ClosedPartition:
    """A partition that no process has open, and what compaction makes of it.

    Attributes:
        path: its directory.
        settings: those of the partition.
        rules: what compaction goes by.
        old: what retention goes by then; None where segments do not get too old.
        place: the directory that is changed: `path`, or its copy.
        plan, deletion, done, finding: what came of it.
        freed_bytes: what the disk gets back.
    """

    path: Path
    settings: PartitionSettings
    rules: RetentionRules
    old: RetentionRules | None
    place: Path
    plan: CompactionPlan | None = None
    deletion: RetentionPlan | None = None
    done: CompactionReport | None = None
    finding: KsegError | None = None
    freed_bytes: int = 0

    @classmethod
    def of(
        cls, path: Path, settings: PartitionSettings, *, of_one_log: bool = False
    ) -> ClosedPartition:
        """Take what compaction and retention go by from the settings.

        Args:
            path: the directory.
            settings: of the partition.
            of_one_log: as for `PartitionSettings.retention_rules`.
        """
        rules = settings.compaction_rules()
        old = None
        if rules.skipped is None and rules.config.deletes:
            old = settings.retention_rules(of_one_log=of_one_log)
        return cls(path, settings, rules, old, path)

    @property
    def is_noop(self) -> bool:
        """Whether nothing changes."""
        if self.finding is not None or self.plan is None:
            return True
        deletes = self.deletion is not None and not self.deletion.is_noop
        return self.plan.is_noop and not self.plan.advances and not deletes


@dataclass(frozen=True, slots=True)
class Compacting:
    """How closed partitions are compacted in one run.

    Attributes:
        now_ms: the time that counts.
        high_watermark: as for `Log.open`.
        options: how.
    """

    now_ms: int
    high_watermark: HighWatermark | None = None
    options: CompactionOptions = field(default_factory=CompactionOptions)

    def look(self, one: ClosedPartition) -> None:
        """Plan, and change nothing.

        Raises:
            UnsupportedFormatError: the log is one of Kafka 0.7.
            OSError: a file cannot be read.
        """
        with Log.open(one.path) as log:
            _guarded(one, lambda: self._plan(one, log, self.high_watermark))

    def change(
        self,
        one: ClosedPartition,
        *,
        backup: Backup | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Apply the plan at `place`, under the lock of its data directory.

        Args:
            one: looked at.
            backup: keeps what goes.
            clock: of the log; `now_ms` always if None.

        Raises:
            LogLockedError: a broker, or another process, holds the data directory.
            UncleanShutdownError: the log was not closed in good order.
            OSError: the disk refuses, or is full; what was done so far stays done.
        """
        assert one.plan is not None
        with Log.open(
            one.place,
            mode="append",
            config=one.rules.config,
            now_ms=clock or (lambda: self.now_ms),
            # The data directory of a copy has no checkpoint of the high watermark.
            high_watermark=(
                self.high_watermark if one.place == one.path else one.plan.high_watermark
            ),
        ) as log:
            _guarded(one, lambda: self._do(one, log, backup))

    def _plan(self, one: ClosedPartition, log: Log, high_watermark: HighWatermark | None) -> None:
        one.plan = plan_compaction(
            log,
            config=one.rules,
            now_ms=self.now_ms,
            high_watermark=high_watermark,
            **asdict(self.options),
        )
        if one.old is not None:
            one.deletion = plan_retention(
                log, config=one.old, now_ms=self.now_ms, high_watermark=high_watermark
            )

    def _do(self, one: ClosedPartition, log: Log, backup: Backup | None) -> None:
        assert one.plan is not None
        try:
            one.done = apply_compaction(log, one.plan, backup=backup)
        except StalePlanError:  # the log has changed since then, or this is a copy of it
            self._plan(one, log, None)
            one.done = apply_compaction(log, one.plan, backup=backup)
        one.freed_bytes += one.done.freed_bytes
        if one.old is not None:
            one.deletion = plan_retention(log, config=one.old, now_ms=self.now_ms)
            if backup is not None:
                for path in files_of(one.deletion):
                    backup.keep_file(path)
            one.freed_bytes += apply_retention(log, one.deletion).freed_bytes


def _guarded(one: ClosedPartition, act: Callable[[], None]) -> None:
    """Let damage stop one partition alone."""
    try:
        act()
    except _DAMAGE as error:
        one.finding = error


def has_segments(path: Path) -> bool:
    """Whether a directory is a log with something to compact in it."""
    return entry_of(path).kind is EntryKind.LOG and bool(list_partition(path).segments)


__all__ = ["ClosedPartition", "Compacting", "CompactionOptions", "has_segments"]
