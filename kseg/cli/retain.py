"""`kseg retain`: which old segments retention would delete, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kseg import KsegError, PartitionSettings, RetentionPlan
from kseg.cli import changing, output
from kseg.cli.changing import Change
from kseg.cli.failures import Exit
from kseg.cli.parsing import GivenSettings, Selection
from kseg.cli.paths import Partition, data_directories, is_one_log
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.settings import have_damage, known_settings, say_of_settings, settings_fields
from kseg.files.names import list_partition
from kseg.format.times import iso_text
from kseg.log import disk_room
from kseg.log.log import Log
from kseg.log.recovery import Action, Backup
from kseg.log.retain import (
    LOG_START,
    SIZE,
    RetiredSegment,
    StayingSegment,
    apply_retention,
    files_of,
    plan_retention,
    segments_that_stay,
)
from kseg.log.sub_directories import EntryKind, entry_of

if TYPE_CHECKING:
    from kseg.log.reader import HighWatermark
    from kseg.log.topic_policy import RetentionRules


def retain(
    directories: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    high_watermark: Literal["end"] | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Do what the verb says; returns the exit code."""
    change = changing.change_of(**how)
    directories, given = data_directories(directories, given)
    found = list(partitions_of(directories, Selection(topics, partitions), strict=True))
    known = known_settings(found, given, directories)
    # What is empty, deleted, in the making or astray has none, unless it is asked for by name.
    chosen = [each for each in found if _has_retention(each.path)] if len(found) > 1 else found
    of_one_log = is_one_log(directories)
    run = _Run(change, given.clock, high_watermark)
    run.findings.extend(known.findings)
    for each in chosen:
        run.look(each, known.of(each.path), of_one_log=of_one_log)
    if not change.is_plan:
        run.change_all()
    return run.report(output.path_field(directories), as_json=as_json)


def _has_retention(path: Path) -> bool:
    kinds = (EntryKind.LOG, EntryKind.CLUSTER_METADATA)
    return entry_of(path).kind in kinds and bool(list_partition(path).segments)


class _Run:
    """One run, partition by partition, with their results."""

    def __init__(
        self,
        change: Change,
        clock: Callable[[], int],
        high_watermark: Literal["end"] | None,
    ) -> None:
        self.change = change
        self.clock = clock
        self.high_watermark = high_watermark
        self.now_ms = clock()
        self.settings: dict[Partition, PartitionSettings] = {}
        self.findings: list[KsegError] = []
        self.rules: dict[Partition, RetentionRules] = {}
        self.plans: dict[Partition, RetentionPlan] = {}
        #: What stays of each by the plan; nothing where the log is left alone, or too damaged.
        self.stays: dict[Partition, tuple[StayingSegment, ...]] = {}
        #: Where each is changed: as it was given, or its copy.
        self.places: dict[Partition, Path] = {}
        self.kept: dict[Path, Backup | None] = {}
        self.freed_bytes = 0

    def look(self, partition: Partition, settings: PartitionSettings, *, of_one_log: bool) -> None:
        """Plan, and change nothing."""
        rules = settings.retention_rules(of_one_log=of_one_log)
        self.settings[partition], self.rules[partition] = settings, rules
        self.findings.extend(settings.findings)
        with Log.open(partition.path) as log:
            self.plans[partition] = plan_retention(
                log,
                config=rules,
                now_ms=self.now_ms,
                high_watermark=self.high_watermark,
            )
            self.stays[partition] = _stays(log, self.plans[partition], rules)
        self.places[partition] = partition.path

    def change_all(self) -> None:
        """Change partitions where a segment goes, under the lock of the data directory."""
        going = [partition for partition, plan in self.plans.items() if not plan.is_noop]
        with self.change.holding(partition.path for partition in going):
            disk_room.in_turn(going, self._change, in_place=self.change.apply)

    def _change(self, partition: Partition) -> None:
        place, rules = self.change.place_of(partition.path), self.rules[partition]
        high_watermark: HighWatermark | None = self.high_watermark
        if high_watermark is None and place != partition.path:
            high_watermark = self.plans[partition].high_watermark  # a copy has no checkpoint of it
        with Log.open(
            place,
            mode="append",
            config=rules.config,
            now_ms=self.clock,
            high_watermark=high_watermark,
        ) as log:
            plan = plan_retention(log, config=rules, now_ms=self.now_ms)
            self._keep(plan)
            done = apply_retention(log, plan)
            self.freed_bytes += done.freed_bytes if self.change.apply else 0
        self.plans[partition], self.places[partition] = plan, place

    def _keep(self, plan: RetentionPlan) -> None:
        home = plan.path.parent
        if home not in self.kept:
            backup = self.change.backup_of(home, self.now_ms)
            if backup is not None:
                backup.check_room(0)
            self.kept[home] = backup
        kept = self.kept[home]
        if kept is not None:
            for path in files_of(plan):
                kept.keep_file(path)

    def report(self, path: str | list[str], *, as_json: bool) -> int:
        """Print the results; returns the exit code."""
        plans = self.plans.values()
        if not as_json:
            self._say_what_stays()
        code = changing.report(
            "retain",
            path,
            self.change,
            [
                action
                for partition, plan in self.plans.items()
                for action in actions_of(plan, self.places[partition])
            ],
            changing.all_kept(self.kept.values()),
            freed_bytes=self.freed_bytes,
            as_json=as_json,
            deleted_bytes=sum(plan.deleted_bytes for plan in plans),
            findings=[str(each) for each in self.findings],
            partitions=[
                {
                    "path": str(partition.path),
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "log_start_offset": plan.log_start_offset,
                    "new_log_start_offset": plan.new_log_start_offset,
                    "log_end_offset": plan.log_end_offset,
                    "deleted_segments": len(plan.segments),
                    "deleted_bytes": plan.deleted_bytes,
                    "kept_bytes": plan.kept_bytes,
                    "high_watermark": plan.high_watermark,
                    "held_bytes": plan.held_bytes,
                    "skipped": plan.skipped,
                    "why": plan.why or None,
                    "stays": [
                        {
                            "base_offset": one.base_offset,
                            "cause": one.why,
                            "until_ms": one.until_ms,
                        }
                        for one in self.stays[partition]
                    ],
                    **settings_fields(self.settings[partition]),
                }
                for partition, plan in self.plans.items()
            ],
        )
        return Exit.FOUND if have_damage(self.findings) else code

    def _say_what_stays(self) -> None:
        """What is left alone, topic by topic, and what the high watermark holds; what is odd."""
        say_of_settings(self.findings, self.settings.values())
        left = Counter(
            (each.topic or each.path.name, plan.why)
            for each, plan in self.plans.items()
            if plan.why
        )
        for (topic, why), count in left.items():
            partitions = f"{count} partitions" if count > 1 else "1 partition"
            output.write_line(f"left alone: {topic} ({partitions}): {why}")
        if self.change.is_plan:
            for line in _stay_lines(self.stays):
                output.write_line(line)
            output.write_line(self._totals())
        for partition, plan in self.plans.items():
            if plan.held_bytes:
                how = "--high-watermark end says that this is the only copy"
                output.write_line(f"{partition.path}: {plan.why_held}; {how}")

    def _totals(self) -> str:
        plans = self.plans.values()
        segments = output.counted(sum(len(plan.segments) for plan in plans), "segment")
        goes = output.human_bytes(sum(plan.deleted_bytes for plan in plans))
        stays = output.human_bytes(sum(plan.kept_bytes for plan in plans))
        return f"in all: {segments}, {goes} go; {stays} stay"


def _stays(log: Log, plan: RetentionPlan, rules: RetentionRules) -> tuple[StayingSegment, ...]:
    """Why segments stay; what a damaged log does not tell keeps none of the others from going."""
    if plan.skipped is not None:
        return ()
    with suppress(KsegError, OSError):
        return segments_that_stay(log, plan, config=rules.config)
    return ()


def _stay_lines(stays: Mapping[Partition, Sequence[StayingSegment]]) -> Iterator[str]:
    """What stays of each topic, by cause, and when the first of it goes."""
    found: dict[tuple[str, str], list[StayingSegment]] = {}
    for partition, segments in stays.items():
        for one in segments:
            found.setdefault((partition.topic or partition.path.name, one.why), []).append(one)
    for (topic, why), segments in found.items():
        count = output.counted(len(segments), "segment")
        size = output.human_bytes(sum(one.bytes for one in segments))
        dates = [one.until_ms for one in segments if one.until_ms is not None]
        date = f"; from {iso_text(min(dates))} on" if dates else ""
        yield f"stays: {topic}: {count}, {size}: {why}{date}"


def actions_of(plan: RetentionPlan, place: Path) -> Iterator[Action]:
    """What a plan does, or would do, to the partition at a place."""
    if plan.rolls:
        why = "every segment goes, and a log has one to append to"
        yield Action("roll", str(place), 0, why)
    if plan.new_log_start_offset != plan.log_start_offset:
        why = f"the log starts at {plan.new_log_start_offset} then, not at {plan.log_start_offset}"
        yield Action("log-start", str(place), 0, why)
    for segment in plan.segments:
        path = place / segment.path.name
        yield Action("delete", str(path), segment.bytes, _why(segment, plan))


def _why(segment: RetiredSegment, plan: RetentionPlan) -> str:
    if segment.why == LOG_START:
        return f"{LOG_START}: all of it lies before offset {plan.log_start_offset}"
    if segment.why == SIZE:
        return f"{SIZE}: the log has retention.bytes without it"
    newest = iso_text(segment.largest_timestamp)
    return f"{segment.why}: what is newest in it, of {newest}, is older than retention.ms"
