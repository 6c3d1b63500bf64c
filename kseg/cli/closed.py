"""`kseg recover`, `reindex` and `truncate`: changes to closed logs.

Each verb chooses partitions, has them planned and changed by `kseg.change`, and prints the
plans, or the changes that were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from kseg import plan_reindex, plan_truncation
from kseg.change.recover import recover_all
from kseg.change.run import ChangeOptions, home_of, homes_of, run
from kseg.cli import output
from kseg.cli.failures import Exit, complain, usage_errors
from kseg.cli.options import CommandSettings, Paths
from kseg.cli.paths import (
    catalog_of,
    data_directories,
    known_configs,
    one_partition,
    tier_of_plans,
    tier_of_run,
)
from kseg.commands import command_line, printable
from kseg.constants import Progress
from kseg.documents import fields_of
from kseg.files import io, lock
from kseg.files.metadata import is_of_broker, read_clean_shutdown
from kseg.files.names import (
    FileKind,
    Partition,
    log_bytes,
)
from kseg.files.selection import Selection, some_of
from kseg.files.whole_file import (
    refuse_in_data_directory,
)
from kseg.log import data_directory
from kseg.log.data_directory import EntryKind, entry_of, refuse_cluster_metadata
from kseg.log.recovery import (
    KINDS,
    Action,
    Kept,
    RecoveryOptions,
    Report,
    kept_bytes,
    other_file_system,
)
from kseg.reports import RecoveryPlan, RecoveryReport, ReindexPlan, TruncationPlan
from kseg.workers import At, in_order

#: Fields of a recovery's plan that the document of the verb has itself.
_OF_DOCUMENT: Final = ("path", "applied", "actions")
#: The logs that a start loads, for which the mark of a clean stop speaks; each is recovered.
_LOADED: Final = (EntryKind.LOG, EntryKind.FUTURE, EntryKind.STRAY)
#: Name of an action in plans -> its name in the documents of `truncate`, where they differ.
_TRUNCATE_ACTIONS: Final = {"truncate": "cut"}


def change_of(
    command_settings: CommandSettings,
    *,
    apply: bool,
    backup_dir: str | None,
    no_backup: bool,
    output_dir: str | None = None,
) -> ChangeOptions:
    """The options of `kseg.cli.options.change_options` as one value.

    Raises:
        UsageError: two of them contradict each other.
    """
    if apply and output_dir is not None:
        raise click.UsageError("Give either --apply, in place, or -o DIR, beside.")
    if no_backup and backup_dir is not None:
        raise click.UsageError("Give either --backup-dir or --no-backup.")
    with usage_errors():
        if output_dir is not None:
            refuse_in_data_directory(output_dir, is_data=True)
        if backup_dir is not None:
            refuse_in_data_directory(backup_dir)
    return ChangeOptions(command_settings.clock(), apply, output_dir, backup_dir, not no_backup)


def changeable(partitions: Sequence[Partition]) -> list[Partition]:
    """Leave out the log of KRaft, with a message.

    Raises:
        NotALogError: nothing else is left.
    """
    if len(partitions) == 1:
        refuse_cluster_metadata(partitions[0].path)
    others = []
    for partition in partitions:
        if entry_of(partition.path).kind is EntryKind.CLUSTER_METADATA:
            complain(f"kseg: left alone: {partition.path}: the log of KRaft")
        else:
            others.append(partition)
    return others


def report_lost_mark(directory: Path) -> None:
    """Report that a data directory has lost its clean shutdown mark, and the consequence."""
    complain(
        f"kseg: {directory}: the mark of a clean stop is gone: a broker reads logs "
        "again when it starts, since some indexes are not as after a clean stop; run",
        command_line("kseg", "recover", str(directory), "--apply"),
    )


def share_out(
    paths: Sequence[Path],
    works: Iterable[Callable[..., None]],
    threads: int | None,
    *,
    verb: str,
    jobs: int,
) -> Iterator[Any]:
    """Work on partitions in threads, under one bar; yields the results in order.

    Args:
        paths: the partitions.
        works: the work on each partition, see `kseg.change.run.Share`; they are iterated in this
            thread.
        threads: the number of threads; None for `jobs`.
        verb: the name of the bar.
        jobs: the number of threads that the command line asks for.

    Raises:
        LimitExceededError: a partition ran out of memory; it names the partition.
        KsegError, OSError: the errors of the work.
    """
    if not paths:
        return  # no bar, which would stay above the bar of the next step
    sizes = {path: log_bytes(path) for path in paths}
    total, finished, walked = sum(sizes.values()), 0, dict[Path, int]()
    with ExitStack() as stack:
        bar = stack.enter_context(output.progress(verb, total, in_bytes=True))
        bar.label(f"{verb} 0/{len(paths)} partitions")

        def walk(path: Path, done: int, _all: int) -> None:  # reports progress on one partition
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
    options: ChangeOptions,
    reports: Sequence[Report],
    *,
    actions: Sequence[Action],
    as_json: bool,
    counts_room: bool = True,
    remedy: str = "--apply does it, -o DIR does it in a copy",
    **fields: Any,
) -> Exit:
    """Print the plans, or the changes that were made; returns the exit code.

    Args:
        verb: the verb, which names the schema.
        path: as it was given.
        options: the options of the change.
        reports: the reports of the changes.
        actions: the actions, done or planned, in order.
        as_json: one document instead of a table.
        counts_room: whether the bytes that the disk gets back are shown.
        remedy: how to carry out the plan.
        fields: more fields of the document.
    """
    kept_files = [file for done in reports for file in done.kept]
    if options.output is not None and not is_of_broker(options.output):
        complain(
            f"kseg: {options.output} has logs alone: no broker starts on it without the other "
            "files of a data directory. Move a log from there into the place of the old one"
        )
    if options.keeps and options.backup_directory is None:
        _say_of_other_disks(actions, kept_files)
    # Another codec, or a backup, may take more room than the change gives back.
    freed = max(0, sum(done.freed_bytes for done in reports)) if options.apply else 0
    return say(
        verb,
        path,
        actions=actions,
        applied=not options.is_plan,
        backups=sorted({str(file.backup) for file in kept_files}),
        remedy=remedy,
        room=(freed, kept_bytes(kept_files)) if counts_room else None,
        as_json=as_json,
        **fields,
    )


def _say_of_other_disks(actions: Sequence[Action], kept_files: Sequence[Kept]) -> None:
    """Report backups that are not on the file system of their data, with their size."""
    sizes: dict[Path, int] = {}
    for action in actions:
        path = Path(action.path)
        directory = path.parent if path.is_dir() else path.parent.parent
        size = 0
        if action.action in ("delete", "replace"):
            size = io.bytes_given_back(path)
        elif action.action == "truncate":
            size = action.bytes
        sizes[directory] = sizes.get(directory, 0) + size
    for directory, size in sorted(sizes.items()):
        place = other_file_system(directory)
        if place is not None:
            if kept_files:
                size = kept_bytes(file for file in kept_files if directory in file.path.parents)
            complain(
                f"kseg: backups of {directory} lie in {place}, on another file system, and take "
                f"{output.human_bytes(size)} there; --backup-dir DIR chooses another place"
            )


def say(
    verb: str,
    path: str | list[str],
    *,
    actions: Sequence[Action],
    applied: bool,
    backups: Sequence[str],
    remedy: str,
    room: tuple[int, int] | None = None,
    as_json: bool,
    **fields: Any,
) -> Exit:
    """Print as `report` does, for changes that another process makes.

    Args:
        verb: the verb, which names the schema.
        path: as it was given.
        actions: the actions, done or planned, in order.
        applied: whether they were done.
        backups: the directories of the backups.
        remedy: how to carry out the plan.
        room: the bytes of disk that are free again, and those that become free once the backups are
            removed; None if not counted.
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
            rows = [(action.action, action.bytes, action.path, action.reason) for action in actions]
            output.write_table(("action", "bytes", "path", "why"), rows)
        lines = [] if actions else ["nothing to do"]
        lines += [f"removed bytes are kept in {backup}" for backup in backups]
        if room is not None and applied and actions:
            lines += _room_lines(*room, backups)
        output.write_lines(lines)
        if actions and not applied:
            complain(f"kseg: nothing was changed; {remedy}")
    return Exit.FOUND if actions and not applied else Exit.OK


def _room_lines(freed: int, in_backup: int, backups: Sequence[str]) -> Paths:
    """The last lines of a text report: the bytes that are free again, and how to free the rest."""
    line = f"{freed} bytes of disk are free again"
    if not backups:
        return (line,) if freed else ()
    more = (
        f"{line}; {in_backup} more with:"
        if freed
        else f"{in_backup} bytes of disk become free with:"
    )
    return more, f"    {command_line('rm', '-r', *backups)}"


# ---- reindex and truncate ------------------------------------------------------------------------


def reindex(
    directory: str,
    kinds: tuple[str, ...],
    exact: bool,
    selection: Selection,
    command_settings: CommandSettings,
    jobs: int,
    as_json: bool,
    **how: Any,
) -> int:
    """Run `kseg reindex`; returns the exit code."""
    options = change_of(command_settings, **how)
    partitions = changeable(catalog_of((directory,), selection).partitions)
    configs = known_configs(partitions, command_settings)
    share = partial(share_out, verb="reindex", jobs=jobs)
    named = kinds_named(kinds)

    def plan(path: Path, progress: Progress, put: Callable[[object], None]) -> None:
        config = configs[path]
        now = command_settings.now_ms
        put(plan_reindex(path, config=config, kinds=named, exact=exact, now=now, progress=progress))

    paths = [partition.path for partition in partitions]
    reports = run(
        list(share(paths, (partial(plan, path) for path in paths), None)),
        options,
        ReindexPlan.again,
        share=share,
        on_lost_mark=report_lost_mark,
        unclean=True,
    )
    plans = [(partition, done.plan) for partition, done in zip(partitions, reports, strict=True)]
    say_it = partial(report, "reindex", directory, options, reports, counts_room=False)
    return write_reindex(plans, say_it, as_json=as_json)


def kinds_named(names: Sequence[str]) -> tuple[FileKind, ...]:
    """The kinds of files of `--only`, or all."""
    return tuple(kind for kind in KINDS if not names or kind.value in names)


def write_reindex(
    plans: Sequence[tuple[Partition, ReindexPlan]], say_it: Callable[..., Exit], *, as_json: bool
) -> Exit:
    """Print which indexes change, or have changed; returns the exit code.

    Args:
        plans: the partitions, each with its plan.
        say_it: as for `write_compaction`.
        as_json: one document instead of tables.
    """
    findings = [printable(str(finding)) for _, plan in plans for finding in plan.findings]
    code = say_it(
        actions=[action for _, plan in plans for action in plan.actions],
        as_json=as_json,
        findings=findings,
        partitions=[
            {
                "path": str(plan.path),
                **fields_of(partition, "topic partition"),
                "segments": [
                    fields_of(
                        segment,
                        "base_offset size index_entries time_index_entries"
                        " aborted_transactions=aborted",
                    )
                    for segment in plan.segments
                ],
            }
            for partition, plan in plans
        ],
    )
    complain(
        *(f"kseg: left alone: {finding}; 'kseg recover' shows the repair" for finding in findings)
    )
    return Exit.FOUND if findings else code


def truncate(
    directories: Paths,
    offset: int | None,
    time_ms: int | None,
    selection: Selection,
    command_settings: CommandSettings,
    as_json: bool,
    **how: Any,
) -> int:
    """Run `kseg truncate`; returns the exit code."""
    if (offset is None) == (time_ms is None):
        raise click.UsageError("Give either --to or --to-time.")
    options = change_of(command_settings, **how)
    if offset is not None:
        partitions = [one_partition(directories, selection, strict=True)]
    else:
        partitions = changeable(catalog_of(directories, selection, strict=True).partitions)
    configs = known_configs(partitions, command_settings)
    cut = partial(plan_truncation, offset=offset, time=time_ms)

    def again(plan: TruncationPlan, place: Path) -> TruncationPlan:
        return replace(cut(place), config=plan.config, now_ms=command_settings.now_ms)

    plans = [
        replace(
            cut(partition.path, tier=tier_of_run()),
            config=configs[partition.path],
            now_ms=command_settings.now_ms,
        )
        for partition in partitions
    ]
    reports = run(plans, options, again, on_lost_mark=report_lost_mark)
    for plan in plans if not as_json else ():
        where = "" if offset is not None else f"{plan.path}: "
        if offset is not None and plan.log_end_offset < offset and not plan.is_noop:
            output.write_line(
                f"the log will end at offset {plan.log_end_offset}, not {offset}: batches are "
                "removed whole"
            )
        output.write_lines(where + line for line in plan.effects())
    documents = [_truncation_fields(done) for done in reports]
    fields = (
        documents[0]
        if offset is not None
        else {
            "partitions": [
                {**fields_of(partition, "path topic partition"), **fields}
                for partition, fields in zip(partitions, documents, strict=True)
            ]
        }
    )
    return report(
        "truncate",
        output.path_field(directories),
        options,
        reports,
        actions=[
            replace(action, action=_TRUNCATE_ACTIONS.get(action.action, action.action))
            for done in reports
            for action in done.plan.actions
        ],
        as_json=as_json,
        **fields,
    )


def _truncation_fields(done: Any) -> dict[str, Any]:
    """The fields of a partition's document, from the report of its truncation."""
    plan = done.plan
    return {
        **fields_of(done, "log_start_offset log_end_offset truncated_bytes"),
        "left_open": [
            {"producer_id": producer_id, "first_offset": first}
            for producer_id, first in plan.left_open
        ],
        "remote": plan.remote and plan.remote.to_dict(),
    }


# ---- recover -------------------------------------------------------------------------------------


def recover(
    directories: Paths,
    selection: Selection,
    command_settings: CommandSettings,
    jobs: int,
    as_json: bool,
    as_broker: bool,
    clean: bool | None,
    recovery_point: int | None,
    log_start_offset: int | None,
    **how: Any,
) -> int:
    """Run `kseg recover`; returns the exit code."""
    options = change_of(command_settings, **how)
    directories, command_settings = data_directories(directories, command_settings)
    partitions = changeable(catalog_of(directories, selection, set_aside=True).partitions)
    known_by_path = known_configs(partitions, command_settings, directories)
    if len(partitions) > 1:
        partitions = [
            partition for partition in partitions if entry_of(partition.path).kind in _LOADED
        ]
        if recovery_point is not None or log_start_offset is not None:
            raise click.UsageError("An offset belongs to one partition, and DIR holds more.")
    configs = {
        partition.path.resolve().name: known_by_path[partition.path] for partition in partitions
    }

    def how_at(path: Path) -> RecoveryOptions:
        return {
            "as_broker": as_broker,
            "clean": clean,
            "recovery_point": recovery_point,
            "log_start_offset": log_start_offset,
            "config": configs[path.resolve().name],
            "now": options.now_ms,
            "tier": tier_of_plans(),
        }

    places = [partition.path for partition in partitions]
    unmarked = [path for path in homes_of(places) if read_clean_shutdown(path) is None]
    share = partial(share_out, verb="recover", jobs=jobs)
    reports = recover_all(
        places, options, how_at, share=share, note=lambda line: complain(f"kseg: {line}")
    )
    code = _report_recovery(output.path_field(directories), options, reports, as_json=as_json)
    plans = [done.plan for done in reports]
    if options.apply and not as_json:
        for directory in unmarked:
            if read_clean_shutdown(directory) is not None:
                count = sum(home_of(plan.path) == directory for plan in plans)
                output.write_line(
                    f"{directory}: {count} partitions in order, mark of a clean stop written: "
                    "a start reads no log again"
                )
    return Exit.FOUND if any(plan.error is not None for plan in plans) else code


def _report_recovery(
    path: str | list[str],
    options: ChangeOptions,
    reports: Sequence[RecoveryReport],
    *,
    as_json: bool,
) -> Exit:
    """Print the plans, or the repairs that were made; returns the exit code.

    The document of one partition has its fields beside those of all.
    """
    plans = [done.plan for done in reports]
    documents = [plan.to_json(applied=not options.is_plan) for plan in plans]
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
        options,
        reports,
        actions=[action for plan in plans for action in plan.actions],
        as_json=as_json,
        **fields,
    )
    if options.output is None:
        _report_data_directories(plans, is_plan=options.is_plan)
    return code


def _report_data_directories(plans: Sequence[RecoveryPlan], *, is_plan: bool) -> None:
    """Report facts that no action shows: another writer, and a missing mark of a clean stop."""
    for directory in homes_of(plan.path for plan in plans):
        holder = lock.holder(directory) if is_plan else None
        if holder is not None:
            complain(f"kseg: {directory}: {lock.who_holds(holder)} and may be writing to it")
        elif read_clean_shutdown(directory) is None:
            _report_missing_mark(directory, plans, is_plan=is_plan)


def _report_missing_mark(directory: Path, plans: Sequence[RecoveryPlan], *, is_plan: bool) -> None:
    """Report why a data directory has no mark of a clean stop, or what writes it.

    The mark is about all partitions of the directory, not only about the chosen ones.
    """
    planned = {Path(plan.path).resolve().name for plan in plans if home_of(plan.path) == directory}
    others = sorted(set(data_directory.marked_for(str(directory))) - planned)
    is_noop = all(plan.is_noop for plan in plans)
    if others and (is_noop or not is_plan):
        names = some_of(others)
        complain(
            f"kseg: {directory}: no mark of a clean stop: it takes all in one run, {names} too"
        )
    elif is_plan and is_noop:
        complain(f"kseg: {directory}: no mark of a clean stop; --apply writes it")


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
