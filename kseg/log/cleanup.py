"""Compaction and retention of a log: first a plan, then the change.

A plan takes a path or an open `Log`. The rules and the order of the steps stand in
`kseg.log.cleaner` and `kseg.log.writer.retention`. `Cleanup` does both for closed partitions, in
the steps of `kseg.log.closed`. Damage stops one partition alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kseg._door import renamed
from kseg.constants import COMPACTION_MAP_BYTES, COMPACTION_RULES, StopReason
from kseg.errors import (
    CorruptIndexError,
    FormatError,
    KsegError,
    LimitExceededError,
    OffsetsOutOfOrderError,
    StalePlanError,
    UncleanShutdownError,
)
from kseg.files import io
from kseg.files.names import FileKind, segment_name
from kseg.format.times import Time
from kseg.log import disk_room
from kseg.log.cleaner import clean as applying
from kseg.log.cleaner import values
from kseg.log.cleaner.clean import CompactionOptions, plan_inputs
from kseg.log.cleaner.inputs import CleanerInputs
from kseg.log.cleaner.values import CompactionReport
from kseg.log.closed import Change, home_of, values_of
from kseg.log.config import CONFIG_CLASSES, ConfigLike, LogConfig
from kseg.log.data_directory import partition_of
from kseg.log.log import Log
from kseg.log.reader.version import HighWatermark
from kseg.log.recovery.backup import Backup, Kept
from kseg.log.tier.history import RemoteHistory, tiered
from kseg.log.topic_policy import RetentionRules, compaction_rules, known_topics
from kseg.log.writer import retention
from kseg.log.writer.retention import (
    LOG_START,
    SIZE,
    TIME,
    RetentionReport,
    RetiredSegment,
    StayingSegment,
    latest_of,
    staying,
)
from kseg.stores.path import local_path_at

if TYPE_CHECKING:
    from kseg.log.settings.joined import PartitionSettings
    from kseg.log.tier.tier import TierLike, TierLog

#: The damage that stops compaction of one partition, while the others go on.
_DAMAGE: Final = (FormatError, CorruptIndexError, LimitExceededError, OffsetsOutOfOrderError)


@dataclass(frozen=True, slots=True)
class Opening:
    """How a plan opens its log for appending.

    Attributes:
        log: a log that is open for appending, which `opened` gives as it is; or a path.
        config, high_watermark: as for `Log.open`.
        now_ms: the time that the clock of the log shows.
    """

    log: Log | str
    config: LogConfig
    high_watermark: HighWatermark | None
    now_ms: int

    def __reduce__(self) -> tuple[type[Opening], tuple[object, ...]]:
        """In another process the log is not open."""
        return Opening, (os.fspath(self.log), self.config, self.high_watermark, self.now_ms)

    def opened(self) -> AbstractContextManager[Log]:
        """The log, open for appending."""
        if isinstance(self.log, Log):
            return nullcontext(self.log)
        return Log.open(
            self.log,
            mode="append",
            config=self.config,
            now_ms=lambda: self.now_ms,
            high_watermark=self.high_watermark,
        )


def _opening(
    log: Log | io.StrPath, config: LogConfig, high_watermark: HighWatermark | None, now_ms: int
) -> Opening:
    if isinstance(log, Log) and log.mode == "append":
        return Opening(log, config, high_watermark, now_ms)
    return Opening(os.fspath(log), config, high_watermark, now_ms)


def _for_reading(log: Log | io.StrPath) -> AbstractContextManager[Log]:
    return nullcontext(log) if isinstance(log, Log) else Log.open(local_path_at(log))


# ---- retention -----------------------------------------------------------------------------------


class RetentionPlan(retention.RetentionPlan):
    """The plan of `plan_retention`, with `apply`."""

    __slots__ = ()

    def apply(self) -> RetentionReport:
        """Delete the segments that go.

        A plan for a log that is open for appending uses that log. Any other plan opens the log for
        appending, with the settings of the plan, and closes it.

        Files are renamed to `.deleted` and removed after `file_delete_delay_ms`: with a later call
        of this kind, or when the log is closed. If the log was not closed in good order, closed
        segments in front of the recovery point are deleted at once, and the others stay.

        Raises:
            StalePlanError: the log has changed since the plan was made; nothing was done.
            UncleanShutdownError: the log was not closed in good order, and all that expires may
                need a recovery; nothing was done.
            LogLockedError: another process holds the data directory, or a log of this process has
                the partition open; nothing was done.
            KsegError: the log has failed.
            OSError: the disk refuses. Another plan deletes the rest. A full disk that would get too
                little back from whole segments stays as it was.
        """
        try:
            with self.opening.opened() as log:
                return retention.apply_state(log.state, self)
        except UncleanShutdownError:
            if (early := retention.before_recovery(self)).is_noop:
                raise
        return retention.apply_unloaded(early)


@renamed(now_ms="now")
def plan_retention(
    log: Log | io.StrPath,
    *,
    config: ConfigLike | RetentionRules | None = None,
    now: Time | None = None,
    high_watermark: HighWatermark | None = None,
    tier: TierLike | None = None,
) -> RetentionPlan:
    """Plan the retention of a log; changes nothing.

    For a log with segments in a tier, local segments expire by `local.retention.*`, once the tier
    has them, as on a broker. `plan.remote` describes the remote segments, those that a broker
    deletes by `retention.*`, and the expired ones that are not copied yet.

    Args:
        log: a partition directory, or a log that is open for reading or for appending.
        config: the settings, or the answer of `retention_rules` for one log. None means the log's
            own, or no setting for a log that is open for reading.
        now: the time that counts; None for the log's clock, or the machine's.
        high_watermark: as for `Log.open`, which takes it for a log that is open for appending.
        tier: a URL or a directory with older segments; by default `__remote_log_metadata` beside
            the partition decides.

    Raises:
        ValueError: a high watermark for a log that is open for appending.
        TierError: what a tier says of its segments cannot be used.
        CorruptIndexError, FormatError: a segment's times cannot be read.
        UnsupportedFormatError: the log is one of Kafka 0.7.
        OSError: a file cannot be read.
    """
    remote = tiered(log, tier)
    if config is not None and not isinstance(config, RetentionRules):
        config = LogConfig.of(config)
    with _for_reading(log) as seen:
        if seen.mode == "append":
            _refuse_high_watermark(high_watermark)
            plan = retention.plan_state(seen.state, config=config, now_ms=now, tier=remote)
        else:
            plan = retention.plan_view(
                seen.view, config=config, now_ms=now, high_watermark=high_watermark, tier=remote
            )
    settings = config.config if isinstance(config, RetentionRules) else config or LogConfig()
    opening = _opening(log, settings, high_watermark, plan.now_ms)
    return RetentionPlan(**values_of(replace(plan, opening=opening)))


def segments_that_stay(
    log: Log, plan: retention.RetentionPlan, *, config: LogConfig
) -> tuple[StayingSegment, ...]:
    """Say why each segment stays that a plan leaves, oldest first, of a log open for reading.

    Args:
        log: the log of the plan.
        plan: from `plan_retention`.
        config: the settings behind the plan, as `RetentionRules.config` has them.

    Raises:
        CorruptIndexError, FormatError: a segment's times cannot be read.
        OSError: a file cannot be read.
    """
    return staying(log.view.segments, plan, config if plan.remote is None else config.local)


def files_of(plan: retention.RetentionPlan) -> Iterator[Path]:
    """The files that go, whether they exist or not."""
    for segment in plan.segments:
        for kind in (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX):
            yield plan.path / segment_name(segment.base_offset, kind)
        yield plan.path / segment_name(segment.base_offset, FileKind.SNAPSHOT)


def _refuse_high_watermark(given: HighWatermark | None) -> None:
    if given is not None:
        raise ValueError("a log open for appending has the high watermark of its opening")


# ---- compaction ----------------------------------------------------------------------------------


class CompactionPlan(values.CompactionPlan):
    """The plan of `plan_compaction`, with `apply`."""

    __slots__ = ()

    def apply(
        self,
        *,
        backup: Backup | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CompactionReport:
        """Compact the log.

        A plan for a log that is open for appending uses that log: appends and reads go on
        meanwhile, since the log's lock is held only while files are swapped. Any other plan opens
        the log for appending, with the settings of the plan, and closes it. The old files go as
        soon as the new ones are lasting, and only a `backup` keeps them. If the process is killed
        on the way, each segment is as before or compacted.

        Args:
            backup: keeps the old files.
            progress: called after each segment with the bytes of log that are done, and all of
                them.

        Raises:
            StalePlanError: the log has changed since the plan was made, or changed meanwhile.
            UncleanShutdownError: the log was not closed in good order; nothing was done.
            LogLockedError: another process holds the data directory, or a log of this process has
                the partition open; nothing was done.
            FormatError, LimitExceededError: a batch is damaged; its segment is as it was.
            KsegError: the log has failed.
            OSError: the disk refuses, or is full; the segment that was written is as it was.
        """
        with self.opening.opened() as log:
            return applying.apply_state(log.state, self, backup=backup, progress=progress)


@renamed(now_ms="now")
def plan_compaction(
    log: Log | io.StrPath,
    *,
    config: ConfigLike | RetentionRules | None = None,
    now: Time | None = None,
    high_watermark: HighWatermark | None = None,
    from_start: bool = False,
    force: bool = False,
    rules: str = COMPACTION_RULES[-1],
    map_bytes: int = COMPACTION_MAP_BYTES,
    measure: bool = True,
    verify_crc: bool = True,
) -> CompactionPlan:
    """Plan the compaction of a log; changes nothing.

    Args:
        log: a partition directory, or a log that is open for reading or for appending.
        config: the settings, or the answer of `compaction_rules`. None means the log's own, or
            no setting for a log that is open for reading.
        now: the time that counts; None for the log's clock, or the machine's.
        high_watermark: as for `Log.open`, which takes it for a log that is open for appending.
        from_start: compact from the log's start, not from where `cleaner-offset-checkpoint` says.
        force: also compact segments that are too young or have too little to clean. Records that
            are not replicated or not decided stay, and so does the active segment.
        rules: the release whose rules count: "3.9", where magic 0 and 1 stays; "4.0", where it
            becomes magic 2; "4.4", where an emptied batch stays at the high watermark only.
        map_bytes: memory for keys, 24 bytes each; where it is too little, compaction takes several
            passes.
        measure: count the bytes that go, which takes as long as compaction does.
        verify_crc: refuse a log with a batch that does not match its checksum. Kafka's cleaner
            compares no checksums, and gives each batch that it changes a checksum that fits.

    Raises:
        ValueError: a high watermark for a log that is open for appending, or too little memory.
        CorruptIndexError: `cleaner-offset-checkpoint`, or an index, is malformed.
        FormatError, LimitExceededError: a batch is damaged; the log cannot be compacted at all.
        UnsupportedFormatError: the log is one of Kafka 0.7.
        OSError: a file cannot be read.
    """
    options = CompactionOptions(from_start, force, rules, map_bytes, measure)
    with _for_reading(log) as seen:
        known = config if isinstance(config, RetentionRules) else _rules(seen, config)
        if seen.mode == "append":
            _refuse_high_watermark(high_watermark)
            inputs = CleanerInputs.of_state(seen.state, known.config, now)
        else:
            inputs = CleanerInputs.of_view(seen.view, known.config, now, high_watermark)
        inputs = replace(inputs, on_bad_crc="stop" if verify_crc else "ignore")
        plan = plan_inputs(inputs, known, options)
    opening = _opening(log, known.config, high_watermark, plan.now_ms)
    return CompactionPlan(**values_of(replace(plan, opening=opening)))


def _rules(log: Log, config: ConfigLike | None) -> RetentionRules:
    directory = log.path.resolve()
    partition = partition_of(directory)
    if config is None:
        config = log.config if log.mode == "append" else LogConfig()
    topic = partition and partition.topic
    return compaction_rules(known_topics(directory.parent), topic, LogConfig.of(config))


# ---- closed partitions ---------------------------------------------------------------------------


@dataclass(slots=True)
class ClosedPartition:
    """A partition that no process has open, with the plans and results of a cleanup.

    Attributes:
        path: its directory.
        settings: of the partition.
        rules: the rules of compaction; None for retention alone.
        old: the rules of retention; None if segments do not get too old.
        place: the directory that is changed: `path`, or its copy.
        plan, deletion: of compaction, and of retention.
        staying: of retention alone, why segments stay.
        done: the report of compaction.
        remote: the partition with its history in a tier; None for none.
        finding: the damage for which the partition stays as it is.
        kept: the files in the backup.
        freed_bytes: the bytes that the disk gets back.
    """

    path: Path
    settings: PartitionSettings
    rules: RetentionRules | None
    old: RetentionRules | None
    place: Path
    plan: CompactionPlan | None = None
    deletion: RetentionPlan | None = None
    staying: tuple[StayingSegment, ...] = ()
    done: CompactionReport | None = None
    remote: TierLog | None = None
    finding: KsegError | None = None
    kept: tuple[Kept, ...] = ()
    freed_bytes: int = 0

    @property
    def is_noop(self) -> bool:
        """Whether nothing changes."""
        compacts = self.plan is not None and not (self.plan.is_noop and not self.plan.advances)
        deletes = self.deletion is not None and not self.deletion.is_noop
        return self.finding is not None or not (compacts or deletes)


@dataclass(frozen=True, slots=True)
class Cleanup:
    """How one run compacts closed partitions and deletes old segments.

    Attributes:
        now_ms: the time that counts.
        high_watermark: as for `Log.open`.
        options: of compaction; None for retention alone.
        tier: as for `plan_retention`.
    """

    now_ms: int
    high_watermark: HighWatermark | None = None
    options: CompactionOptions | None = field(default_factory=CompactionOptions)
    tier: TierLike | None = None

    def of(
        self, path: Path, settings: PartitionSettings, *, of_one_log: bool = False
    ) -> ClosedPartition:
        """Take the rules of compaction and retention from the settings.

        Args:
            path: the directory.
            settings: of the partition.
            of_one_log: as for `PartitionSettings.retention_rules`.
        """
        rules = None if self.options is None else settings.compaction_rules()
        old = None
        if rules is None or (rules.skipped is None and rules.config.deletes):
            old = settings.retention_rules(of_one_log=of_one_log)
        return ClosedPartition(path, settings, rules, old, path)

    def plan(self, one: ClosedPartition) -> None:
        """Plan, and change nothing.

        Raises:
            KsegError: of retention alone, the log is damaged.
            UnsupportedFormatError: the log is one of Kafka 0.7.
            OSError: a file cannot be read.
        """
        with Log.open(one.path) as log, _damage_noted(one):
            self._plan(one, log, self.high_watermark)
            if one.rules is None and one.old and one.deletion and one.deletion.skipped is None:
                with suppress(KsegError, OSError):  # the plan stands where a time cannot be read
                    one.staying = segments_that_stay(log, one.deletion, config=one.old.config)

    def apply(
        self,
        one: ClosedPartition,
        change: Change,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Apply the plan in place or to a copy, under the lock of the data directory.

        Args:
            one: a planned partition.
            change: the place of the change, and of its backup.
            clock: of the log; always `now_ms` if None.

        Raises:
            LogLockedError: a broker, or another process, holds the data directory.
            UncleanShutdownError: the log was not closed in good order. Retention alone deletes what
                needs no recovery, and raises this if that is nothing.
            KsegError: of retention alone, the log is damaged.
            OSError: the disk refuses, or is full; finished steps stay.
        """
        try:
            self._apply(one, change, clock)
        except UncleanShutdownError:
            if one.rules is not None or one.deletion is None or not change.apply:
                raise
            early = retention.before_recovery(one.deletion)
            one.deletion = replace(one.deletion, **values_of(early))
            if early.is_noop:
                raise
            backup = change.backup_of(home_of(one.path), self.now_ms)
            if backup is not None:
                _keep(one.deletion, backup)
                one.kept += tuple(backup.kept)
            one.freed_bytes += retention.apply_unloaded(early).freed_bytes

    def _apply(self, one: ClosedPartition, change: Change, clock: Callable[[], int] | None) -> None:
        one.place = change.place_of(one.path)
        plan, rules = one.plan or one.deletion, one.rules or one.old
        assert plan is not None
        assert rules is not None
        backup = change.backup_of(home_of(one.place), self.now_ms)
        high_watermark = self.high_watermark
        if high_watermark is None and one.place != one.path:
            high_watermark = plan.high_watermark  # a copy has no checkpoint of it
        with (
            Log.open(
                one.place,
                mode="append",
                config=rules.config,
                now_ms=clock or (lambda: self.now_ms),
                high_watermark=high_watermark,
            ) as log,
            _damage_noted(one),
        ):
            try:
                if one.plan is not None:
                    self._compact(one, one.plan, log, backup)
                if one.old is not None:
                    self._delete(one, one.old, log, backup)
            finally:
                one.kept += () if backup is None else tuple(backup.kept)
                # A plan outlives the log.
                one.plan = one.plan and replace(one.plan, opening=plan.opening)
                one.deletion = one.deletion and replace(one.deletion, opening=plan.opening)

    def apply_all(
        self,
        ones: Iterable[ClosedPartition],
        change: Change,
        clock: Callable[[], int] | None = None,
        on_lost_mark: Callable[[Path], object] | None = None,
    ) -> None:
        """Apply the plans that change something, under the locks of the data directories.

        For the arguments and errors see `apply` and `Change.holding`.
        """
        going = [one for one in ones if not one.is_noop]
        hindered: list[UncleanShutdownError] = []

        def apply(one: ClosedPartition) -> None:
            try:
                self.apply(one, change, clock)
            except UncleanShutdownError as error:
                hindered.append(error)
                if self.options is not None or len(hindered) == len(going):
                    raise

        with change.holding((one.path for one in going), on_lost_mark):
            disk_room.in_turn(going, apply, in_place=change.apply)

    def _plan(
        self, one: ClosedPartition, log: Log, high_watermark: HighWatermark | None = None
    ) -> None:
        how: dict[str, Any] = {"now": self.now_ms, "high_watermark": high_watermark}
        if self.options is not None:
            one.plan = plan_compaction(log, config=one.rules, **how, **asdict(self.options))
        if one.old is not None:
            one.remote = tiered(one.path, self.tier)
            one.deletion = plan_retention(log, config=one.old, tier=one.remote, **how)

    def _compact(
        self, one: ClosedPartition, plan: CompactionPlan, log: Log, backup: Backup | None
    ) -> None:
        try:
            one.done = applying.apply_state(log.state, plan, backup=backup)
        except StalePlanError:  # the log has changed since then, or this is a copy of it
            self._plan(one, log)
            assert one.plan is not None
            one.done = applying.apply_state(log.state, one.plan, backup=backup)
        one.freed_bytes += one.done.freed_bytes

    def _delete(
        self, one: ClosedPartition, old: RetentionRules, log: Log, backup: Backup | None
    ) -> None:
        one.deletion = plan_retention(log, config=old, now=self.now_ms, tier=one.remote)
        if backup is not None:
            _keep(one.deletion, backup, check_room=one.rules is None)
        one.freed_bytes += retention.apply_state(log.state, one.deletion).freed_bytes


def _keep(plan: RetentionPlan, backup: Backup, *, check_room: bool = True) -> None:
    """Back up the files that go."""
    if check_room:
        backup.check_room(0)
    for path in files_of(plan):
        backup.keep_file(path)


@contextmanager
def _damage_noted(one: ClosedPartition) -> Iterator[None]:
    """Let damage stop the compaction of one partition alone."""
    try:
        yield
    except _DAMAGE as error:
        if one.rules is None:
            raise
        one.finding = error


#: The classes of plans and their parts.
PLAN_CLASSES: Final = (
    *(CompactionPlan, values.CompactedGroup, values.CompactedSegment, RetentionPlan),
    *(RetiredSegment, RemoteHistory, Opening, StopReason, *CONFIG_CLASSES),
)

__all__ = [
    "LOG_START",
    "PLAN_CLASSES",
    "SIZE",
    "TIME",
    "Cleanup",
    "ClosedPartition",
    "CompactionOptions",
    "CompactionPlan",
    "RetentionPlan",
    "RetiredSegment",
    "StayingSegment",
    "files_of",
    "latest_of",
    "plan_compaction",
    "plan_retention",
    "segments_that_stay",
]
