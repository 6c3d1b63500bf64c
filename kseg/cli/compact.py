"""`kseg compact`: what compaction would leave of logs, segment by segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from kseg.cli import changing, output
from kseg.cli.changing import Change
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain, one_line
from kseg.cli.parsing import GivenSettings, Selection
from kseg.cli.paths import data_directories, is_one_log, partition_at
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.retain import actions_of
from kseg.cli.settings import have_damage, known_settings, say_of_settings, settings_fields
from kseg.commands import command_line
from kseg.log import disk_room
from kseg.log.compact_closed import (
    ClosedPartition,
    Compacting,
    CompactionOptions,
    has_segments,
)
from kseg.log.recovery import Action

if TYPE_CHECKING:
    from pathlib import Path

    from kseg import CompactionPlan, PartitionSettings
    from kseg.errors import KsegError
    from kseg.log.recovery import Backup

_SIZES: Final = ("kept_bytes", "bytes")


def compact(
    directories: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    high_watermark: Literal["end"] | None,
    apply: bool,
    output_dir: str | None,
    backup_dir: str | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Do what the verb says; returns the exit code."""
    change = Change(apply, output_dir, backup_dir, backup_dir is not None)
    directories, given = data_directories(directories, given)
    found = list(partitions_of(directories, Selection(topics, partitions), strict=True))
    known = known_settings(found, given, directories)
    chosen = [each for each in found if has_segments(each.path)] if len(found) > 1 else found
    clock = given.clock
    run = _Run(
        change,
        clock,
        Compacting(clock(), high_watermark, CompactionOptions(**how)),
        known.findings,
        of_one_log=is_one_log(directories),
    )
    for each in chosen:
        run.look(each.path, known.of(each.path))
    if not change.is_plan:
        run.change_all()
    return run.report(output.path_field(directories), as_json=as_json)


class _Run:
    """One run, partition by partition."""

    def __init__(
        self,
        change: Change,
        clock: Callable[[], int],
        how: Compacting,
        findings: Sequence[KsegError],
        *,
        of_one_log: bool,
    ) -> None:
        self.change, self.clock, self.how, self.of_one_log = change, clock, how, of_one_log
        self.findings = findings
        self.ones: list[ClosedPartition] = []
        self.kept: dict[Path, Backup | None] = {}

    def look(self, path: Path, settings: PartitionSettings) -> None:
        """Plan, and change nothing."""
        one = ClosedPartition.of(path, settings, of_one_log=self.of_one_log)
        self.ones.append(one)
        self.how.look(one)

    def change_all(self) -> None:
        """Change partitions where something goes, under the lock of the data directory."""
        going = [one for one in self.ones if not one.is_noop]
        with self.change.holding(one.place for one in going):
            disk_room.in_turn(going, self._change, in_place=self.change.apply)

    def _change(self, one: ClosedPartition) -> None:
        one.place = self.change.place_of(one.path)
        self.how.change(one, backup=self._backup(one.place.resolve().parent), clock=self.clock)

    def _backup(self, home: Path) -> Backup | None:
        if home not in self.kept:
            self.kept[home] = self.change.backup_of(home, self.how.now_ms)
        return self.kept[home]

    def report(self, path: str | list[str], *, as_json: bool) -> Exit:
        """Print it; answers the exit code."""
        say = partial(
            changing.report,
            "compact",
            path,
            self.change,
            kept=changing.all_kept(self.kept.values()),
            freed_bytes=sum(one.freed_bytes for one in self.ones) if self.change.apply else 0,
        )
        return write_report(self.ones, self.findings, say, as_json=as_json)


# ---- telling -------------------------------------------------------------------------------------


def write_report(
    ones: Sequence[ClosedPartition],
    findings: Sequence[KsegError],
    say: Callable[..., Exit],
    *,
    as_json: bool,
) -> Exit:
    """Print what compaction does, or would do.

    Args:
        ones: the partitions.
        findings: in what their settings come from.
        say: prints `actions`, and with `as_json` fields of the document beside them.
        as_json: one document instead of tables.
    """
    of_settings = [*findings, *(each for one in ones for each in one.settings.findings)]
    if not as_json:
        say_of_settings(of_settings, (one.settings for one in ones))
        say_what_stays(ones)
    code = say(
        actions=[action for one in ones for action in _actions(one)],
        as_json=as_json,
        saved_bytes=sum(one.plan.saved_bytes or 0 for one in ones if one.plan is not None),
        room_bytes=max((one.plan.room_bytes for one in ones if one.plan is not None), default=0),
        partitions=[document(one) for one in ones],
        findings=[
            *map(_finding, of_settings),
            *(_finding(one.finding) for one in ones if one.finding is not None),
        ],
    )
    if not as_json:
        _say_in_all([one.plan for one in ones if one.plan is not None and one.plan.groups])
    damaged = say_findings(ones) or have_damage(of_settings)
    return Exit.FOUND if damaged else code


def _say_in_all(plans: Sequence[CompactionPlan]) -> None:
    if plans:
        kept, size = (sum(getattr(each, name) or 0 for each in plans) for name in _SIZES)
        output.write_line(f"in all {kept} of {size} bytes stay of what is compacted")


def say_findings(ones: Iterable[ClosedPartition]) -> bool:
    """Name the damage for which partitions stay as they are; answers whether there is any."""
    damaged = [one for one in ones if one.finding is not None]
    for one in damaged:
        assert one.finding is not None
        complain(f"kseg: not compacted: {one_line(one.finding)}")
        complain("To compact what can be saved of this log, in a directory OUT:")
        for command in _way_out(one):
            complain(f"    {command}")
    return bool(damaged)


def _way_out(one: ClosedPartition) -> tuple[str, str]:
    """Commands for a damaged log: what they lose stands in the report of the first one."""
    policy = f"cleanup.policy={','.join(sorted(one.rules.config.cleanup_policy))}"
    return (
        command_line("kseg", "salvage", one.path, "-o", "OUT"),
        command_line("kseg", "compact", "OUT", "--config", policy, "--apply"),
    )


def say_what_stays(ones: Iterable[ClosedPartition]) -> None:
    """What is left alone, topic by topic; then each segment that stays, and why."""
    left: Counter[tuple[str, str]] = Counter()
    for one in ones:
        if one.plan is not None and one.plan.skipped is not None:
            left[partition_at(one.path).topic or one.path.name, one.plan.why] += 1
    for (topic, why), count in left.items():
        partitions = output.counted(count, "partition")
        output.write_line(f"left alone: {printable(topic)} ({partitions}): {why}")
    for one in ones:
        for segment in () if one.plan is None else one.plan.staying:
            path = printable(str(one.place / segment.path.name))
            output.write_line(f"stays: {path} ({segment.bytes} bytes): {segment.why}")
        if one.plan is not None and one.plan.groups:
            room = output.counted(one.plan.room_bytes, "byte")
            output.write_line(f"{printable(str(one.place))}: {room} of free room are needed")


def _actions(one: ClosedPartition) -> Iterator[Action]:
    plan = one.plan
    if plan is None or one.finding is not None:
        return
    for group in plan.groups:
        for segment in group.segments:
            why = f"{segment.kept_bytes} of its {segment.bytes} bytes stay"
            if len(group.segments) > 1:
                why += f", in one segment at {group.base_offset}"
            path = str(one.place / segment.path.name)
            yield Action("compact", path, segment.saved_bytes or 0, why)
    if plan.advances:
        why = f"clean up to {plan.end_offset} then, not to {plan.first_dirty_offset}"
        if not plan.is_complete:
            why += ", and further with the next pass: the map is full"
        yield Action("checkpoint", str(one.place), 0, why)
    if one.deletion is not None:
        yield from actions_of(one.deletion, one.place)


def document(one: ClosedPartition) -> dict[str, Any]:
    """A partition as it stands in JSON."""
    plan, partition = one.plan, partition_at(one.path)
    where = {
        "path": str(one.path),
        "topic": partition.topic,
        "partition": partition.partition,
        **settings_fields(one.settings),
    }
    if plan is None:
        return where
    return {
        **where,
        "log_start_offset": plan.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "high_watermark": plan.high_watermark,
        "last_stable_offset": plan.last_stable_offset,
        "first_dirty_offset": plan.first_dirty_offset,
        "first_uncleanable_offset": plan.first_uncleanable_offset,
        "end_offset": plan.end_offset,
        "clean_bytes": plan.clean_bytes,
        "cleanable_bytes": plan.cleanable_bytes,
        "dirty_ratio": plan.dirty_ratio,
        "bytes": plan.bytes,
        "kept_bytes": plan.kept_bytes,
        "saved_bytes": plan.saved_bytes,
        "room_bytes": plan.room_bytes,
        "records": plan.records,
        "kept_records": plan.kept_records,
        "saved_records": plan.saved_records,
        "complete": plan.is_complete,
        "skipped": plan.skipped,
        "why": plan.why or None,
        "segments": [
            {
                "base_offset": segment.base_offset,
                "bytes": segment.bytes,
                "kept_bytes": segment.kept_bytes,
                "saved_bytes": segment.saved_bytes,
                "into": group.base_offset,
            }
            for group in plan.groups
            for segment in group.segments
        ],
        "staying": [
            {"base_offset": each.base_offset, "bytes": each.bytes, "why": each.why}
            for each in plan.staying
        ],
        "report": None if one.done is None else asdict(one.done),
    }


def _finding(error: KsegError) -> dict[str, Any]:
    return {
        "path": None if error.path is None else str(error.path),
        "position": error.position,
        "offset": error.offset,
        "message": str(error),
    }
