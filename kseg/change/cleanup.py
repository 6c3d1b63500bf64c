"""Plans of compaction and retention; `kseg.log.cleaner` and `kseg.log.writer.retention` do them.

`plan_cleanup` plans compaction and retention of a partition that no process has open, as one
change: a broker's cleaner does both for a topic with the policy `compact,delete`. Damage stops the
compaction of one partition alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kseg._door import renamed
from kseg.change.run import DAMAGE, ChangeOptions, run
from kseg.constants import COMPACTION_MAP_BYTES, COMPACTION_RULES, Progress, StopReason, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, UncleanShutdownError
from kseg.files.index import TimeIndexEntry
from kseg.format.times import Time
from kseg.log.cleaner.clean import CompactionOptions, CompactionPlan, CompactionReport, plan_inputs
from kseg.log.cleaner.inputs import CleanerInputs, CompactedGroup, CompactedSegment
from kseg.log.config import CONFIG_CLASSES, ConfigLike, LogConfig
from kseg.log.log import Log
from kseg.log.reader.version import HighWatermark, SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.plan import Plan, Report
from kseg.log.tier.history import RemoteHistory, tiered
from kseg.log.topic_policy import RetentionRules, compaction_rules, rules_beside
from kseg.log.writer.flush import Opening
from kseg.log.writer.retention import (
    LOG_START,
    SIZE,
    TIME,
    RetentionPlan,
    RetiredSegment,
    before_recovery,
    latest_of,
    plan_state,
    plan_view,
    with_ends,
)
from kseg.log.writer.state import LogState
from kseg.stores.path import local_path_at

if TYPE_CHECKING:
    from kseg.log.settings.joined import PartitionSettings
    from kseg.log.tier.tier import TierLike, TierLog


@renamed(now_ms="now")
def plan_compaction(
    log: Log | StrPath,
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
    source = state_or_view(log, high_watermark)
    if config is None and isinstance(source, LogState):
        config = source.config
    if not isinstance(config, RetentionRules):
        config = LogConfig.of(config)
    topic_rules = rules_beside(source.path, compaction_rules, config)
    if isinstance(source, LogState):
        inputs = CleanerInputs.of_state(source, topic_rules.config, now)
    else:
        inputs = CleanerInputs.of_view(source, topic_rules.config, now, high_watermark)
    inputs = replace(inputs, on_bad_crc="stop" if verify_crc else "ignore")
    plan = plan_inputs(inputs, topic_rules, options)
    return replace(plan, opening=opening_of(source, topic_rules.config, high_watermark))


@renamed(now_ms="now")
def plan_retention(
    log: Log | StrPath,
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
        tier: a URL or a directory with older segments; None for what `__remote_log_metadata` beside
            the partition says.

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
    source = state_or_view(log, high_watermark)
    if isinstance(source, LogState):
        plan = plan_state(source, config=config, now_ms=now, tier=remote)
    else:
        plan = plan_view(
            source, config=config, now_ms=now, high_watermark=high_watermark, tier=remote
        )
    settings = config.config if isinstance(config, RetentionRules) else config or LogConfig()
    return replace(plan, opening=opening_of(source, settings, high_watermark))


#: The reasons why a segment stays, in the words of plans and documents.
ACTIVE: Final = "active"
YOUNG: Final = "younger-than-retention"
FUTURE: Final = "future-timestamp"
UNDER_SIZE: Final = "under-size-limit"
HIGH_WATERMARK: Final = "high-watermark"
NO_LIMIT: Final = "no-limit"
UNCOPIED: Final = "not-copied"


@frozen_dataclass
class StayingSegment:
    """A segment that stays.

    Attributes:
        base_offset: from the file's name.
        path: the log file.
        bytes: the size of the log file.
        why: a code of this module.
        until_ms: when it expires by time, if nothing changes; None for never by time.
        holder: the newest record up to it, and the log file that has it.
        grows_bytes: how much the log must grow before it expires by size; None if there is no
            limit.
        is_held: whether a segment reaches above the high watermark, or is not in its tier, and so
            could not go anyway.
    """

    base_offset: int
    path: Path
    bytes: int
    why: str
    until_ms: int | None = None
    holder: tuple[TimeIndexEntry, Path] | None = None
    grows_bytes: int | None = None
    is_held: bool = False


def segments_that_stay(
    log: Log, plan: RetentionPlan, *, config: LogConfig
) -> tuple[StayingSegment, ...]:
    """Say why each segment stays that a plan leaves, oldest first; for a log open for reading.

    Args:
        log: the log of the plan.
        plan: made by `plan_retention`.
        config: the settings of the plan, as `RetentionRules.config` has them.

    Raises:
        CorruptIndexError, FormatError: a segment's times cannot be read.
        OSError: a file cannot be read.
    """
    if plan.remote is not None:
        config = config.local
    going = {segment.base_offset for segment in plan.segments}
    pairs = with_ends(log.view.segments, plan.log_end_offset)
    staying = [pair for pair in pairs if pair[0].base_offset not in going]
    if not config.deletes:
        return tuple(
            StayingSegment(
                segment.base_offset,
                segment.path,
                segment.size,
                ACTIVE if segment.is_last else NO_LIMIT,
            )
            for segment, _ in staying
        )
    later_bytes = sum(segment.size for segment, _ in staying)  # of the segments that follow
    holder: tuple[TimeIndexEntry, Path] | None = None
    answer = []
    for info, end in staying:
        later_bytes -= info.size
        newest = latest_of(info)
        if holder is None or newest.timestamp > holder[0].timestamp:
            holder = newest, info.path
        until = holder[0].timestamp + config.retention_ms + 1 if config.retention_ms >= 0 else None
        grows = config.retention_bytes - later_bytes if config.retention_bytes >= 0 else None
        lacks = plan.remote is not None and end - 1 > plan.remote.highest_offset
        is_held = plan.high_watermark < end or lacks
        why = _why(info, plan, until, grows, is_held=is_held, lacks=lacks)
        if why == YOUNG and holder[0].timestamp > plan.now_ms:
            why = FUTURE
        answer.append(
            StayingSegment(
                info.base_offset, info.path, info.size, why, until, holder, grows, is_held
            )
        )
    return tuple(answer)


def _why(
    info: SegmentInfo,
    plan: RetentionPlan,
    until: int | None,
    grows: int | None,
    *,
    is_held: bool,
    lacks: bool,
) -> str:
    """The reason why a segment stays, as a code.

    Args:
        info: the segment.
        plan: leaves it.
        until: when it expires by time, in ms; None for never.
        grows: how much the log must grow before the segment expires by size; None if it never does.
        is_held: as for `StayingSegment`.
        lacks: whether its tier does not have it.
    """
    is_due = (until is not None and until <= plan.now_ms) or (grows is not None and grows <= 0)
    if is_due and lacks and info.size:
        return UNCOPIED
    if is_due and is_held and info.size:
        return HIGH_WATERMARK
    if info.is_last:
        return ACTIVE
    if until is not None:
        return HIGH_WATERMARK if is_due else YOUNG
    return NO_LIMIT if grows is None else UNDER_SIZE


def state_or_view(log: Log | StrPath, high_watermark: HighWatermark | None) -> LogState | LogView:
    """The state of a log that is open for appending; the view of any other log, or of a path.

    Args:
        log: as for `plan_retention`.
        high_watermark: the caller's high watermark.

    Raises:
        ValueError: a high watermark for a log that is open for appending.
        NotALogError, OSError: as for `Log.open`.
    """
    if not isinstance(log, Log):
        return LogView.open(local_path_at(log))
    if log.mode != "append":
        return log.view
    if high_watermark is not None:
        raise ValueError("a log open for appending has the high watermark of its opening")
    return log.state


def opening_of(
    source: LogState | LogView, config: LogConfig, high_watermark: HighWatermark | None
) -> Opening:
    """How a plan opens its log.

    Args:
        source: the state of an open log, or a view of closed files.
        config, high_watermark: as for `Log.open`.
    """
    state = source if isinstance(source, LogState) else None
    return Opening(source.path, config, high_watermark, state)


# ---- compaction and retention of closed partitions -----------------------------------------------


@frozen_dataclass
class CleanupOptions:
    """How one run compacts closed partitions and deletes old segments.

    Attributes:
        now_ms: the time that counts.
        high_watermark: as for `Log.open`.
        options: the options of compaction; None to only delete old segments.
        tier: as for `plan_retention`.
    """

    now_ms: int
    high_watermark: HighWatermark | None = None
    options: CompactionOptions | None = field(default_factory=CompactionOptions)
    tier: TierLike | None = None


@frozen_dataclass(repr=False)
class ClosedPartition(Plan[Report]):
    """A partition that no process has open, with the plans and results of a cleanup.

    Attributes:
        path: the directory that is changed: its own, or that of its copy.
        origin: its directory.
        settings: the settings of the partition.
        how: the options of the run.
        rules: the rules of compaction; None to only delete old segments.
        old: the rules of retention; None if segments do not get too old.
        remote: the partition with its history in a tier; None if it has none.
        plan, deletion: the plan of compaction, and the plan of retention.
        staying: if only retention runs, why segments stay.
        done: the report of compaction.
        finding: the damage for which the partition stays as it is; or, without compaction, that the
            log was not closed in good order.
        freed_bytes: the bytes that the disk gets back.
    """

    KEEPS = False

    path: Path
    origin: Path
    settings: PartitionSettings
    how: CleanupOptions
    rules: RetentionRules | None = None
    old: RetentionRules | None = None
    remote: TierLog | None = None
    plan: CompactionPlan | None = None
    deletion: RetentionPlan | None = None
    staying: tuple[StayingSegment, ...] = ()
    done: CompactionReport | None = None
    finding: KsegError | None = None
    freed_bytes: int = 0

    @property
    def is_noop(self) -> bool:
        """Whether nothing changes."""
        compacts = self.plan is not None and not self.plan.is_idle
        deletes = self.deletion is not None and not self.deletion.is_noop
        return self.finding is not None or not (compacts or deletes)

    @property
    def backup_bytes(self) -> int | None:
        """The size of the first plan's backup."""
        return 0 if self.plan is None else self.plan.backup_bytes

    def planned(self) -> ClosedPartition:
        """Make the plans of this partition; nothing is changed on the disk.

        Raises:
            KsegError: the log is damaged, and only retention runs.
            UnsupportedFormatError: the log is one of Kafka 0.7.
            OSError: a file cannot be read.
        """
        shared_options: dict[str, Any] = {
            "now": self.how.now_ms,
            "high_watermark": self.how.high_watermark,
        }
        plan, deletion, remote = None, None, None
        stays: tuple[StayingSegment, ...] = ()
        try:
            with Log.open(self.path) as log:
                if self.how.options is not None:
                    options = asdict(self.how.options)
                    plan = plan_compaction(log, config=self.rules, **shared_options, **options)
                if self.old is not None:
                    remote = tiered(self.path, self.how.tier)
                    deletion = plan_retention(log, config=self.old, tier=remote, **shared_options)
                    if plan is None and deletion.skipped is None:
                        with suppress(KsegError, OSError):  # where a time cannot be read
                            stays = segments_that_stay(log, deletion, config=self.old.config)
        except DAMAGE as error:
            if self.rules is None:
                raise
            return replace(self, finding=error)
        return replace(self, plan=plan, deletion=deletion, staying=stays, remote=remote)

    def at(self, place: Path) -> ClosedPartition:
        """These plans for a copy, which has no checkpoint with a high watermark beside it.

        Args:
            place: the copy.
        """
        plan, deletion, mark = self.plan, self.deletion, self.how.high_watermark
        if plan is not None:
            mark = plan.high_watermark if mark is None else mark
            plan = replace(plan, opening=Opening(place, plan.config, mark))
        if deletion is not None and self.old is not None:
            mark = deletion.high_watermark if mark is None else mark
            deletion = replace(deletion, opening=Opening(place, self.old.config, mark))
        return replace(self, path=place, plan=plan, deletion=deletion)

    def do(self, backup: Backup | None, progress: Progress | None) -> Report:
        """Compact the log, then delete old segments of the result.

        Args:
            backup, progress: as for `Plan.do`.

        Raises:
            UncleanShutdownError: the log was not closed in good order. Retention alone deletes what
                needs no recovery; if that is nothing, it notes this as the finding.
            KsegError: the log is damaged, and only retention runs.
            OSError: the disk refuses, or is full; finished steps stay.
        """
        freed, plan, done, deletion = 0, self.plan, None, self.deletion
        finding: KsegError | None = None
        in_place = self.path == self.origin
        try:
            if plan is not None:
                done = plan.do(backup, progress, again=self._compaction)
                plan, freed = replace(done.plan, opening=plan.opening), done.freed_bytes
            if deletion is not None:
                # Without compaction, retention may go before the recovery of a log not closed well.
                unclean = done is None and in_place
                report = deletion.do(backup, progress, again=self._retention, unclean=unclean)
                deletion = replace(report.plan, opening=deletion.opening)
                freed += report.freed_bytes
        except DAMAGE as error:
            if self.rules is None:
                raise
            finding = error
        except UncleanShutdownError as error:
            if self.rules is not None or deletion is None or not in_place:
                raise
            finding, deletion = error, before_recovery(deletion)
        partition = replace(
            self,
            plan=plan,
            deletion=deletion,
            done=done,
            finding=finding,
            freed_bytes=freed,
        )
        return Report(partition, freed_bytes=freed)

    def _compaction(self, state: LogState) -> CompactionPlan:
        """The plan of compaction, made again for a log that is open."""
        assert self.rules is not None
        assert self.how.options is not None
        inputs = CleanerInputs.of_state(state, self.rules.config, self.how.now_ms)
        return plan_inputs(inputs, self.rules, self.how.options)

    def _retention(self, state: LogState) -> RetentionPlan:
        """The plan of retention, made again for a log that is open, as compaction has left it."""
        now, tier = self.how.now_ms, self.remote
        return plan_state(state, config=self.old, now_ms=now, tier=tier)


def closed_partition(
    path: Path, settings: PartitionSettings, how: CleanupOptions, *, of_one_log: bool = False
) -> ClosedPartition:
    """A partition with its rules of compaction and retention, and no plans yet.

    Args:
        path: the directory.
        settings: the settings of the partition.
        how: the options of the run.
        of_one_log: as for `PartitionSettings.retention_rules`.
    """
    rules = None if how.options is None else settings.compaction_rules()
    old = None
    if rules is None or (rules.skipped is None and rules.config.deletes):
        old = settings.retention_rules(of_one_log=of_one_log)
    return ClosedPartition(path, path, settings, how, rules, old)


def plan_cleanup(
    path: Path, settings: PartitionSettings, how: CleanupOptions, *, of_one_log: bool = False
) -> ClosedPartition:
    """Plan compaction and retention as the settings of a partition say; changes nothing.

    For the arguments see `closed_partition`, for the errors `ClosedPartition.planned`.
    """
    return closed_partition(path, settings, how, of_one_log=of_one_log).planned()


def run_cleanup(
    plans: Sequence[ClosedPartition],
    options: ChangeOptions,
    on_lost_mark: Callable[[Path], object] | None = None,
) -> list[Report]:
    """Apply cleanups, and return their reports in the same order.

    Args:
        plans: made by `plan_cleanup`.
        options, on_lost_mark: as for `kseg.change.run.run`.

    Raises:
        UncleanShutdownError: no log could be changed, since none was closed in good order; or that
            is so of one to be compacted.
        KsegError, OSError: as `kseg.change.run.run` does.
    """
    reports = run(plans, options, ClosedPartition.at, on_lost_mark=on_lost_mark)
    pairs = zip(plans, reports, strict=True)
    faults = [done.plan.finding for plan, done in pairs if not (options.is_plan or plan.is_noop)]
    hindered = [fault for fault in faults if isinstance(fault, UncleanShutdownError)]
    if hindered and len(hindered) == len(faults):
        raise hindered[-1]
    return reports


#: The classes of plans and their parts.
PLAN_CLASSES: Final = (
    CompactionPlan,
    CompactedGroup,
    CompactedSegment,
    RetentionPlan,
    RetiredSegment,
    RemoteHistory,
    Opening,
    StopReason,
    *CONFIG_CLASSES,
)


__all__ = [
    "LOG_START",
    "PLAN_CLASSES",
    "SIZE",
    "TIME",
    "CleanupOptions",
    "ClosedPartition",
    "CompactionOptions",
    "CompactionPlan",
    "RetentionPlan",
    "RetiredSegment",
    "StayingSegment",
    "closed_partition",
    "latest_of",
    "plan_cleanup",
    "plan_compaction",
    "plan_retention",
    "run_cleanup",
    "segments_that_stay",
]
