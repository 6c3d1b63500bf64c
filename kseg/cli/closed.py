"""`kseg recover`, `reindex`, `retain`, `compact` and `truncate`: changes to closed logs.

Each verb chooses partitions, has them planned and changed by `kseg.log.closed`, and prints the
plans, or the changes that were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from kseg import (
    CompactionPlan,
    KsegError,
    RecoveryPlan,
    ReindexPlan,
    RetentionPlan,
    TruncationReport,
    apply_truncation,
    plan_reindex,
    plan_truncation,
)
from kseg.cli import output
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain, one_line
from kseg.cli.parsing import GivenSettings, Selection, some_of
from kseg.cli.paths import Partition, data_directories, is_one_log, one_partition, partition_at
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.settings import (
    have_damage,
    known_configs,
    known_settings,
    say_of_settings,
    settings_fields,
)
from kseg.commands import command_line
from kseg.files import lock
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import log_bytes
from kseg.format.times import iso_text
from kseg.log import data_directory
from kseg.log.cleanup import (
    LOG_START,
    SIZE,
    Cleanup,
    ClosedPartition,
    CompactionOptions,
    RetiredSegment,
    StayingSegment,
)
from kseg.log.closed import (
    Change,
    Recovery,
    has_segments,
    home_of,
    homes_of,
    reindex_at,
)
from kseg.log.data_directory import EntryKind, entry_of, refuse_cluster_metadata
from kseg.log.recovery import KINDS, Action, kept_bytes, other_file_system
from kseg.workers import At, in_order

if TYPE_CHECKING:
    from kseg.log.recovery import Kept

    Progress = Callable[[int, int], None]

#: Fields of a recovery's plan that the document of the verb has itself.
_OF_DOCUMENT: Final = ("path", "applied", "actions")
#: What a start loads, so that the mark of a clean stop speaks for it; each is recovered.
_LOADED: Final = (EntryKind.LOG, EntryKind.FUTURE, EntryKind.STRAY)
#: The names of actions in the documents of `truncate`, where plans have others.
_TRUNCATE_ACTIONS: Final = {"truncate": "cut"}


def change_of(
    *, apply: bool, output_dir: str | None, backup_dir: str | None, no_backup: bool
) -> Change:
    """The values of `change_options.change_options` as one.

    Raises:
        UsageError: two of them contradict each other.
    """
    if apply and output_dir is not None:
        raise click.UsageError("Give either --apply, in place, or -o DIR, beside.")
    if no_backup and backup_dir is not None:
        raise click.UsageError("Give either --backup-dir or --no-backup.")
    return Change(apply, output_dir, backup_dir, not no_backup)


def changeable(found: Sequence[Partition]) -> list[Partition]:
    """Leave out the log of KRaft, with a message.

    Raises:
        NotALogError: nothing else is left.
    """
    if len(found) == 1:
        refuse_cluster_metadata(found[0].path)
    kept = []
    for each in found:
        if entry_of(each.path).kind is EntryKind.CLUSTER_METADATA:
            complain(f"kseg: left alone: {each.path}: the log of KRaft")
        else:
            kept.append(each)
    return kept


def _say_of_lost_mark(home: Path) -> None:
    complain(
        f"kseg: {home}: the mark of a clean stop is gone: a broker reads logs "
        "again when it starts, since some indexes are not as after a clean stop; run",
        command_line("kseg", "recover", str(home), "--apply"),
    )


def _share(
    paths: Sequence[Path],
    works: Iterable[Callable[..., None]],
    threads: int | None,
    *,
    verb: str,
    jobs: int,
) -> Iterator[Any]:
    """Work on partitions, shared by threads under one bar; gives the results in order.

    Args:
        paths: the partitions.
        works: the work on each, as `kseg.log.closed.Share` has it; the next one is taken in this
            thread.
        threads: how many; None for `jobs`.
        verb: names the bar.
        jobs: the threads of the command line.

    Raises:
        LimitExceededError: a partition ran out of memory; it names the partition.
        KsegError, OSError: those of the work.
    """
    if not paths:
        return  # a bar for nothing would stand above that of the next step
    sizes = {path: log_bytes(path) for path in paths}
    total, finished, walked = sum(sizes.values()), 0, dict[Path, int]()
    with ExitStack() as stack:
        bar = stack.enter_context(output.progress(verb, total, in_bytes=True))
        bar.label(f"{verb} 0/{len(paths)} partitions")

        def walk(path: Path, done: int, _all: int) -> None:
            walked[path] = done
            bar.to(min(finished + sum(list(walked.values())), total), total)

        pieces = (
            At(path, partial(work, partial(walk, path)))
            for path, work in zip(paths, works, strict=True)
        )
        results = stack.enter_context(closing(in_order(pieces, threads=threads or jobs)))
        for count, (path, result) in enumerate(zip(paths, results, strict=True), start=1):
            bar.label(f"{verb} {count}/{len(paths)} partitions")
            walked.pop(path, None)
            finished += sizes[path]
            bar.to(min(finished, total), total)
            yield result


# ---- reports -------------------------------------------------------------------------------------


def report(
    verb: str,
    path: str | list[str],
    change: Change,
    actions: Sequence[Action],
    kept: Iterable[Kept] = (),
    *,
    freed_bytes: int | None = None,
    as_json: bool,
    **fields: Any,
) -> Exit:
    """Print the plan, or the changes that were made; returns the exit code.

    Args:
        verb: names the schema.
        path: as it was given.
        change: how it was made.
        actions: what was or would be done, in order.
        kept: files in the backup.
        freed_bytes: bytes that the disk has got back; None if not counted.
        as_json: one document instead of a table.
        fields: more fields of the document.
    """
    kept = list(kept)
    if change.keeps and change.backup_directory is None:
        _say_of_other_disks(actions)
    return say(
        verb,
        path,
        actions,
        applied=not change.is_plan,
        backups=sorted({str(each.backup) for each in kept}),
        remedy="--apply does it, -o DIR does it in a copy",
        room=None if freed_bytes is None else (freed_bytes, kept_bytes(kept)),
        as_json=as_json,
        **fields,
    )


def _say_of_other_disks(actions: Sequence[Action]) -> None:
    """Announce backups that do not lie on the file system of their data."""
    changed = {Path(each.path) for each in actions}
    for home in sorted({p.parent if p.is_dir() else p.parent.parent for p in changed}):
        place = other_file_system(home)
        if place is not None:
            complain(
                f"kseg: backups of {home} lie in {place}, on another file system, and take room "
                "there; --backup-dir DIR chooses another place"
            )


def say(
    verb: str,
    path: str | list[str],
    actions: Sequence[Action],
    *,
    applied: bool,
    backups: Sequence[str],
    remedy: str,
    room: tuple[int, int] | None = None,
    as_json: bool,
    **fields: Any,
) -> Exit:
    """Print what `report` prints, for changes that are made elsewhere.

    Args:
        verb: names the schema.
        path: as it was given.
        actions: what was or would be done, in order.
        applied: whether it was done.
        backups: directories of the backups.
        remedy: how to carry out the plan.
        room: bytes that the disk has got back, and those it gets back once the backups are removed;
            None if not counted.
        as_json: one document instead of a table.
        fields: more fields of the document.
    """
    if as_json:
        names = ("freed_bytes", "kept_in_backup_bytes")
        document = {
            "path": path,
            "applied": applied,
            **fields,
            **({} if room is None else dict(zip(names, room, strict=True))),
            "actions": [action.to_json() for action in actions],
            "backups": list(backups),
        }
        output.write_document(f"{verb}/1", document)
    else:
        if actions:
            rows = [(each.action, each.bytes, each.path, each.told) for each in actions]
            output.write_table(("action", "bytes", "path", "why"), rows)
        lines = [] if actions else ["nothing to do"]
        lines += [f"what went is kept in {backup}" for backup in backups]
        if room is not None and applied and actions:
            lines += _room_lines(*room, backups)
        output.write_lines(lines)
        if actions and not applied:
            complain(f"kseg: nothing was changed; {remedy}")
    return Exit.FOUND if actions and not applied else Exit.OK


def _room_lines(freed: int, kept: int, backups: Sequence[str]) -> tuple[str, ...]:
    """The last lines of a text report: the bytes that are free, and the command for the rest."""
    line = f"{freed} bytes of disk are free again"
    if not backups:
        return (line,) if freed else ()
    more = f"{line}; {kept} more with:" if freed else f"{kept} bytes of disk become free with:"
    return more, f"    {command_line('rm', '-r', *backups)}"


# ---- retain and compact --------------------------------------------------------------------------


def retain(
    directories: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    high_watermark: Literal["end"] | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Run `kseg retain`; returns the exit code."""
    change, cleanup = change_of(**how), Cleanup(given.clock(), high_watermark, None)
    selection = Selection(topics, partitions)
    directories, ones, findings = _clean_up(cleanup, change, directories, selection, given)
    plans = [one.deletion for one in ones if one.deletion is not None]
    if not as_json:
        _say_what_retention_leaves(ones, findings, is_plan=change.is_plan)
    code = report(
        "retain",
        output.path_field(directories),
        change,
        [action for one in ones for action in _deletions(one)],
        (kept for one in ones for kept in one.kept),
        freed_bytes=sum(one.freed_bytes for one in ones) if change.apply else 0,
        as_json=as_json,
        deleted_bytes=sum(plan.deleted_bytes for plan in plans),
        findings=[str(each) for each in findings],
        partitions=[_retained(one, plan) for one, plan in zip(ones, plans, strict=True)],
    )
    return Exit.FOUND if have_damage(findings) else code


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
    """Run `kseg compact`; returns the exit code."""
    keep = backup_dir is not None
    change = change_of(
        apply=apply, output_dir=output_dir, backup_dir=backup_dir, no_backup=not keep
    )
    cleanup = Cleanup(given.clock(), high_watermark, CompactionOptions(**how))
    selection = Selection(topics, partitions)
    directories, ones, findings = _clean_up(cleanup, change, directories, selection, given)
    say_it = partial(
        report,
        "compact",
        output.path_field(directories),
        change,
        kept=[kept for one in ones for kept in one.kept],
        freed_bytes=sum(one.freed_bytes for one in ones) if change.apply else 0,
    )
    return write_compaction(ones, findings, say_it, as_json=as_json)


def _clean_up(
    cleanup: Cleanup,
    change: Change,
    directories: tuple[str, ...],
    selection: Selection,
    given: GivenSettings,
) -> tuple[tuple[str, ...], list[ClosedPartition], list[KsegError]]:
    """Plan, and change what goes; answers the data directories, the partitions, the findings.

    The findings are those in the sources of the settings.
    """
    directories, given = data_directories(directories, given)
    found = list(partitions_of(directories, selection, strict=True))
    known = known_settings(found, given, directories)
    kinds = [EntryKind.LOG] if cleanup.options else [EntryKind.LOG, EntryKind.CLUSTER_METADATA]
    if len(found) > 1:  # an empty or deleted log has no retention, unless it is asked for by name
        found = [each for each in found if has_segments(each.path, kinds)]
    of_one_log = is_one_log(directories)
    ones = [cleanup.of(each.path, known.of(each.path), of_one_log=of_one_log) for each in found]
    for one in ones:
        cleanup.plan(one)
    if not change.is_plan:
        cleanup.apply_all(ones, change, given.clock, _say_of_lost_mark)
    findings = [*known.findings, *(each for one in ones for each in one.settings.findings)]
    return directories, ones, findings


def _topic_of(one: ClosedPartition) -> str:
    return partition_at(one.path).topic or one.path.name


def _where(one: ClosedPartition) -> dict[str, Any]:
    partition = partition_at(one.path)
    return {
        "path": str(one.path),
        "topic": partition.topic,
        "partition": partition.partition,
    }


def _retained(one: ClosedPartition, plan: RetentionPlan) -> dict[str, Any]:
    """A partition in the document of `retain`."""
    return {
        **_where(one),
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
            {"base_offset": each.base_offset, "cause": each.why, "until_ms": each.until_ms}
            for each in one.staying
        ],
        **settings_fields(one.settings),
    }


def _say_left_alone(left: Iterable[tuple[str, str]]) -> None:
    """Name each topic that is left alone, and why."""
    for (topic, why), count in Counter(left).items():
        partitions = output.counted(count, "partition")
        output.write_line(f"left alone: {topic} ({partitions}): {why}")


def _say_what_retention_leaves(
    ones: Sequence[ClosedPartition], findings: Sequence[KsegError], *, is_plan: bool
) -> None:
    say_of_settings(findings, (one.settings for one in ones))
    plans = [(one, one.deletion) for one in ones if one.deletion is not None]
    _say_left_alone((_topic_of(one), plan.why) for one, plan in plans if plan.why)
    if is_plan:
        output.write_lines(_stay_lines(ones))
        segments = output.counted(sum(len(plan.segments) for _, plan in plans), "segment")
        goes = output.human_bytes(sum(plan.deleted_bytes for _, plan in plans))
        stays = output.human_bytes(sum(plan.kept_bytes for _, plan in plans))
        output.write_line(f"in all: {segments}, {goes} go; {stays} stay")
    for one, plan in plans:
        if plan.held_bytes:
            how = "--high-watermark end says that this is the only copy"
            output.write_line(f"{one.path}: {plan.why_held}; {how}")


def _stay_lines(ones: Iterable[ClosedPartition]) -> Iterator[str]:
    """The segments of each topic that stay, by cause, and when the first of them goes."""
    found: dict[tuple[str, str], list[StayingSegment]] = {}
    for one in ones:
        for segment in one.staying:
            found.setdefault((_topic_of(one), segment.why), []).append(segment)
    for (topic, why), segments in found.items():
        count = output.counted(len(segments), "segment")
        size = output.human_bytes(sum(each.bytes for each in segments))
        dates = [each.until_ms for each in segments if each.until_ms is not None]
        date = f"; from {iso_text(min(dates))} on" if dates else ""
        yield f"stays: {topic}: {count}, {size}: {why}{date}"


def _deletions(one: ClosedPartition) -> Iterator[Action]:
    """The actions of retention."""
    plan, place = one.deletion, one.place
    if plan is None:
        return
    if plan.rolls:
        why = "every segment goes, and a log has one to append to"
        yield Action("roll", str(place), 0, why)
    if plan.new_log_start_offset != plan.log_start_offset:
        why = f"the log starts at {plan.new_log_start_offset} then, not at {plan.log_start_offset}"
        yield Action("log-start", str(place), 0, why)
    for segment in plan.segments:
        path = place / segment.path.name
        yield Action("delete", str(path), segment.bytes, _why_deleted(segment, plan))


def _why_deleted(segment: RetiredSegment, plan: RetentionPlan) -> str:
    if segment.why == LOG_START:
        return f"{LOG_START}: all of it lies before offset {plan.log_start_offset}"
    if segment.why == SIZE:
        return f"{SIZE}: the log has retention.bytes without it"
    newest = iso_text(segment.largest_timestamp)
    return f"{segment.why}: what is newest in it, of {newest}, is older than retention.ms"


def write_compaction(
    ones: Sequence[ClosedPartition],
    findings: Sequence[KsegError],
    say_it: Callable[..., Exit],
    *,
    as_json: bool,
) -> Exit:
    """Print what compaction does, or would do; returns the exit code.

    Args:
        ones: the partitions.
        findings: in the sources of their settings.
        say_it: prints `actions`, and with `as_json` fields of the document beside them.
        as_json: one document instead of tables.
    """
    plans = [one.plan for one in ones if one.plan is not None]
    if not as_json:
        say_of_settings(findings, (one.settings for one in ones))
        say_what_stays(ones)
    code = say_it(
        actions=[action for one in ones for action in _compactions(one)],
        as_json=as_json,
        saved_bytes=sum(plan.saved_bytes or 0 for plan in plans),
        room_bytes=max((plan.room_bytes for plan in plans), default=0),
        partitions=[compaction_document(one) for one in ones],
        findings=[
            {
                "path": None if each.path is None else str(each.path),
                "position": each.position,
                "offset": each.offset,
                "message": str(each),
            }
            for each in (*findings, *(one.finding for one in ones if one.finding is not None))
        ],
    )
    compacted = [plan for plan in plans if plan.groups]
    if compacted and not as_json:
        kept = sum(plan.kept_bytes or 0 for plan in compacted)
        size = sum(plan.bytes or 0 for plan in compacted)
        output.write_line(f"in all {kept} of {size} bytes stay of what is compacted")
    return Exit.FOUND if say_damage(ones) or have_damage(findings) else code


def say_damage(ones: Iterable[ClosedPartition]) -> bool:
    """Name the damage for which partitions stay as they are; answers whether there is any."""
    damaged = False
    for one in ones:
        if one.finding is not None and one.rules is not None:
            damaged = True
            policy = f"cleanup.policy={','.join(sorted(one.rules.config.cleanup_policy))}"
            salvage = command_line("kseg", "salvage", one.path, "-o", "OUT")
            again = command_line("kseg", "compact", "OUT", "--config", policy, "--apply")
            complain(
                f"kseg: not compacted: {one_line(one.finding)}",
                "To compact what can be saved of this log, in a directory OUT:",
                f"    {salvage}",
                f"    {again}",
            )
    return damaged


def say_what_stays(ones: Sequence[ClosedPartition]) -> None:
    """Name the topics that are left alone; then each segment that stays, and why."""
    plans = [(one, one.plan) for one in ones if one.plan is not None]
    _say_left_alone((_topic_of(one), plan.why) for one, plan in plans if plan.skipped is not None)
    for one, plan in plans:
        for segment in plan.staying:
            path = one.place / segment.path.name
            output.write_line(f"stays: {path} ({segment.bytes} bytes): {segment.why}")
        if plan.groups:
            room = output.counted(plan.room_bytes, "byte")
            output.write_line(f"{one.place}: {room} of free room are needed")


def _compactions(one: ClosedPartition) -> Iterator[Action]:
    """The actions of compaction, and of the retention after it."""
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
    yield from _deletions(one)


def compaction_document(one: ClosedPartition) -> dict[str, Any]:
    """A partition in the document of `compact`."""
    document = {**_where(one), **settings_fields(one.settings)}
    return document if one.plan is None else document | _plan_fields(one, one.plan)


def _plan_fields(one: ClosedPartition, plan: CompactionPlan) -> dict[str, Any]:
    names = (
        *("log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset"),
        *("first_dirty_offset", "first_uncleanable_offset", "end_offset"),
        *("clean_bytes", "cleanable_bytes", "dirty_ratio", "bytes", "kept_bytes", "saved_bytes"),
        *("room_bytes", "records", "kept_records", "saved_records"),
    )
    return {
        **{name: getattr(plan, name) for name in names},
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


# ---- reindex and truncate ------------------------------------------------------------------------


def reindex(
    directory: str,
    kinds: tuple[str, ...],
    exact: bool,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    jobs: int,
    as_json: bool,
    **how: Any,
) -> int:
    """Run `kseg reindex`; returns the exit code."""
    change, now_ms = change_of(**how), given.clock()
    found = changeable(list(partitions_of((directory,), Selection(topics, partitions))))
    configs, share = known_configs(found, given), partial(_share, verb="reindex", jobs=jobs)
    named = tuple(kind for kind in KINDS if not kinds or kind.value in kinds)
    planned_at = partial(plan_reindex, kinds=named, exact=exact, now_ms=given.now_ms)

    def plan(path: Path, progress: Progress, put: Callable[[object], None]) -> None:
        put(planned_at(path, config=configs[path], progress=progress))

    def change_at(
        plan: ReindexPlan, place: Path, progress: Progress, put: Callable[[object], None]
    ) -> None:
        put(reindex_at(plan, place, change, now_ms, progress))

    paths = [each.path for each in found]
    planned = share(paths, (partial(plan, path) for path in paths), None)
    plans = dict(zip(paths, planned, strict=True))
    kept: list[Kept] = []
    if not change.is_plan:
        going = [path for path in paths if not plans[path].is_noop]
        with change.holding(going, _say_of_lost_mark):
            places = ((path, change.place_of(path, unclean=True)) for path in going)
            works = (partial(change_at, plans[path], place) for path, place in places)
            for path, (done, backed_up) in zip(going, share(going, works, None), strict=True):
                plans[path] = done
                kept += backed_up
    return write_reindex(
        [(each, plans[each.path]) for each in found],
        partial(report, "reindex", directory, change, kept=kept),
        as_json=as_json,
    )


def write_reindex(
    plans: Sequence[tuple[Partition, ReindexPlan]], say_it: Callable[..., Exit], *, as_json: bool
) -> Exit:
    """Print which indexes change, or have changed; returns the exit code.

    Args:
        plans: the partitions, each with its plan.
        say_it: as for `write_compaction`.
        as_json: one document instead of tables.
    """
    findings = [printable(str(each)) for _, plan in plans for each in plan.findings]
    code = say_it(
        actions=[each for _, plan in plans for each in plan.actions],
        as_json=as_json,
        findings=findings,
        partitions=[
            {
                "path": str(plan.path),
                "topic": partition.topic,
                "partition": partition.partition,
                "segments": [
                    {
                        "base_offset": each.base_offset,
                        "size": each.size,
                        "index_entries": each.index_entries,
                        "time_index_entries": each.time_index_entries,
                        "aborted_transactions": each.aborted,
                    }
                    for each in plan.segments
                ],
            }
            for partition, plan in plans
        ],
    )
    complain(*(f"kseg: left alone: {each}; 'kseg recover' tells what to do" for each in findings))
    return Exit.FOUND if findings else code


def truncate(
    directory: str,
    offset: int,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    as_json: bool,
    **how: Any,
) -> int:
    """Run `kseg truncate`; returns the exit code."""
    change = change_of(**how)
    partition = one_partition((directory,), Selection(topics, partitions), strict=True)
    configs = known_configs([partition], given)
    plan = plan_truncation(partition.path, offset)
    done = TruncationReport(plan)
    if not (plan.is_noop or change.is_plan):
        place = change.place_of(partition.path)
        with change.holding([partition.path], _say_of_lost_mark):
            done = apply_truncation(
                plan if place == partition.path else plan_truncation(place, offset),
                config=configs[partition.path],
                now_ms=given.now_ms,
                backup_directory=change.backup_directory,
                keep_cut=change.keeps,
            )
    return report(
        "truncate",
        directory,
        change,
        [
            replace(each, action=_TRUNCATE_ACTIONS.get(each.action, each.action))
            for each in done.plan.actions
        ],
        done.kept,
        freed_bytes=done.freed_bytes if change.apply else 0,
        as_json=as_json,
        log_start_offset=done.log_start_offset,
        log_end_offset=done.log_end_offset,
        truncated_bytes=done.truncated_bytes,
    )


# ---- recover -------------------------------------------------------------------------------------


def recover(
    directories: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    jobs: int,
    as_json: bool,
    as_broker: bool,
    clean: bool | None,
    recovery_point: int | None,
    log_start_offset: int | None,
    **how: Any,
) -> int:
    """Run `kseg recover`; returns the exit code."""
    change = change_of(**how)
    directories, given = data_directories(directories, given)
    found = changeable(list(partitions_of(directories, Selection(topics, partitions))))
    known = known_configs(found, given, directories)
    if len(found) > 1:
        found = [each for each in found if entry_of(each.path).kind in _LOADED]
        if recovery_point is not None or log_start_offset is not None:
            raise click.UsageError("Offsets are those of one partition, and DIR holds more.")
    options = {
        "as_broker": as_broker,
        "clean": clean,
        "recovery_point": recovery_point,
        "log_start_offset": log_start_offset,
        "now_ms": given.clock(),
    }
    configs = {each.path.resolve().name: known[each.path] for each in found}
    places = [each.path for each in found]
    unmarked = [home for home in homes_of(places) if read_clean_shutdown(home) is None]
    share = partial(_share, verb="recover", jobs=jobs)
    run = Recovery(change, options, configs, share, lambda line: complain(f"kseg: {line}"))
    plans = run.run(places)
    code = _report_recovery(output.path_field(directories), run, plans, as_json=as_json)
    if change.apply and not as_json:
        for home in unmarked:
            if read_clean_shutdown(home) is not None:
                count = sum(home_of(plan.path) == home for plan in plans)
                output.write_line(
                    f"{home}: {count} partitions in order, mark of a clean stop written: "
                    "a start reads no log again"
                )
    return Exit.FOUND if any(plan.error is not None for plan in plans) else code


def _report_recovery(
    path: str | list[str], run: Recovery, plans: Sequence[RecoveryPlan], *, as_json: bool
) -> Exit:
    change = run.change
    documents = [plan.to_json(applied=not change.is_plan) for plan in plans]
    fields: dict[str, Any] = {
        "partitions": documents,
        "log_start_offset": None,
        "log_end_offset": None,
        "clean": all(plan.clean for plan in plans),
        "lost": [lost for document in documents for lost in document["lost"]],
        "truncated_bytes": sum(plan.truncated_bytes for plan in plans),
    }
    if len(documents) == 1:
        (only,) = documents
        fields = {name: only[name] for name in only if name not in _OF_DOCUMENT}
    for plan in () if as_json else plans:
        _print(plan)
    code = report(
        "recover",
        path,
        change,
        [action for plan in plans for action in plan.actions],
        (kept for one in run.reports for kept in one.kept),
        freed_bytes=sum(one.freed_bytes for one in run.reports) if change.apply else 0,
        as_json=as_json,
        **fields,
    )
    if change.output is None:
        _say_of_homes(plans, is_plan=change.is_plan)
    return code


def _say_of_homes(plans: Sequence[RecoveryPlan], *, is_plan: bool) -> None:
    """Report what no action shows: another writer, and what becomes of the mark."""
    for home in homes_of(plan.path for plan in plans):
        holder = lock.holder(home) if is_plan else None
        if holder is not None:
            complain(f"kseg: {home}: {lock.who_holds(holder)} and may be writing to it")
        elif read_clean_shutdown(home) is None:
            _say_of_mark(home, plans, is_plan=is_plan)


def _say_of_mark(home: Path, plans: Sequence[RecoveryPlan], *, is_plan: bool) -> None:
    """The mark is about the whole data directory, not only about the chosen partitions."""
    here = {Path(plan.path).resolve().name for plan in plans if home_of(plan.path) == home}
    others = sorted(set(data_directory.marked_for(str(home))) - here)
    is_noop = all(plan.is_noop for plan in plans)
    if others and (is_noop or not is_plan):
        names = some_of(others)
        complain(f"kseg: {home}: no mark of a clean stop: it takes all in one run, {names} too")
    elif is_plan and is_noop:
        complain(f"kseg: {home}: no mark of a clean stop; --apply writes it")


def _print(plan: RecoveryPlan) -> None:
    """Print the findings and the offsets; the files follow in one table."""
    if plan.start_fault is not None:
        output.write_line(f"{plan.path}: {plan.start_fault}")
        output.write_lines(plan.start_advice.splitlines())
        if plan.error is not None:
            start = plan.inputs.log_start_offset
            output.write_line(f"{plan.path}: left as it is without --log-start-offset {start}")
            return
    if plan.error is None:
        output.write_lines(map(str, plan.findings))  # each names its file
    for row in replace(plan, actions=(), findings=()).rows():
        output.write_line(row if plan.path in row else f"{plan.path}: {row}")
