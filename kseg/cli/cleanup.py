"""`kseg retain`, `compact` and `erase`: deletion of records from closed logs.

They delete old segments, superseded records, and records with some keys or at some offsets.
`kseg.change` plans and changes; this chooses partitions and prints the plans, or the changes.
`erase --check` compares the report of an earlier run with the logs as they are now.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import click

from kseg import KsegError
from kseg.catalog import partition_at
from kseg.change.cleanup import (
    LOG_START,
    SIZE,
    CleanupOptions,
    ClosedPartition,
    CompactionOptions,
    RetiredSegment,
    StayingSegment,
    plan_cleanup,
    run_cleanup,
)
from kseg.change.erase import ErasurePlan, compare_digests, digests, plan_erasure
from kseg.change.run import DAMAGE, ChangeOptions, has_segments, run
from kseg.cli import output
from kseg.cli.closed import change_of, report, report_lost_mark, share_out
from kseg.cli.failures import Exit, complain, one_line, usage_errors
from kseg.cli.options import CommandSettings, Paths
from kseg.cli.paths import (
    catalog_of,
    data_directories,
    have_damage,
    known_configs,
    known_settings,
    say_of_settings,
    settings_fields,
    tier_of_plans,
)
from kseg.commands import command_line, printable
from kseg.constants import Progress
from kseg.documents import fields_of
from kseg.files.names import Partition
from kseg.files.selection import Selection
from kseg.format.times import iso_text
from kseg.log.data_directory import EntryKind
from kseg.log.recovery import Action, Report
from kseg.log.topic_policy import is_internal
from kseg.reports import PartitionSettings, RetentionPlan


def retain(
    directories: Paths,
    selection: Selection,
    command_settings: CommandSettings,
    high_watermark: Literal["end"] | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Run `kseg retain`; returns the exit code."""
    options = change_of(command_settings, **how)
    cleanup = CleanupOptions(options.now_ms, high_watermark, None, tier_of_plans())
    directories, reports, findings = _clean_up(
        cleanup, options, directories, selection, command_settings
    )
    partitions = [done.plan for done in reports]
    deletions = [partition.deletion for partition in partitions]
    if not as_json:
        _say_what_retention_leaves(partitions, findings, is_plan=options.is_plan)
    code = report(
        "retain",
        output.path_field(directories),
        options,
        reports,
        actions=[action for partition in partitions for action in _deletions(partition)],
        as_json=as_json,
        deleted_bytes=sum(deletion.deleted_bytes for deletion in deletions),
        findings=[str(finding) for finding in findings],
        partitions=[
            {
                **_where(partition),
                **fields_of(deletion, "log_start_offset new_log_start_offset log_end_offset"),
                "deleted_segments": len(deletion.segments),
                **fields_of(deletion, "deleted_bytes kept_bytes high_watermark held_bytes skipped"),
                "why": deletion.why or None,
                "remote": deletion.remote and deletion.remote.to_dict(),
                "stays": [
                    fields_of(segment, "base_offset cause=why until_ms")
                    for segment in partition.staying
                ],
                **settings_fields(partition.settings),
            }
            for partition, deletion in zip(partitions, deletions, strict=True)
        ],
    )
    return Exit.FOUND if have_damage(findings) else code


def compact(
    directories: Paths,
    selection: Selection,
    command_settings: CommandSettings,
    high_watermark: Literal["end"] | None,
    apply: bool,
    output_dir: str | None,
    backup_dir: str | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Run `kseg compact`; returns the exit code."""
    options = change_of(
        command_settings,
        apply=apply,
        output_dir=output_dir,
        backup_dir=backup_dir,
        no_backup=backup_dir is None,
    )
    cleanup = CleanupOptions(options.now_ms, high_watermark, CompactionOptions(**how))
    directories, reports, findings = _clean_up(
        cleanup, options, directories, selection, command_settings
    )
    say_it = partial(report, "compact", output.path_field(directories), options, reports)
    return write_compaction([done.plan for done in reports], findings, say_it, as_json=as_json)


def _clean_up(
    cleanup: CleanupOptions,
    options: ChangeOptions,
    directories: Paths,
    selection: Selection,
    command_settings: CommandSettings,
) -> tuple[Paths, list[Report], list[KsegError]]:
    """Plan and apply the changes; returns the data directories, reports and findings.

    The findings are those in the sources of the settings.
    """
    kinds = [EntryKind.LOG] if cleanup.options else [EntryKind.LOG, EntryKind.CLUSTER_METADATA]
    directories, settings, findings, alone = logs_with_settings(
        directories, selection, command_settings, kinds
    )
    plans = [
        plan_cleanup(path, of_partition, cleanup, of_one_log=alone)
        for path, of_partition in settings.items()
    ]
    reports = run_cleanup(plans, options, report_lost_mark)
    of_settings = (finding for plan in plans for finding in plan.settings.findings)
    return directories, reports, [*findings, *of_settings]


def logs_with_settings(
    directories: Paths,
    selection: Selection,
    command_settings: CommandSettings,
    kinds: Sequence[EntryKind] = (EntryKind.LOG,),
) -> tuple[Paths, dict[Path, PartitionSettings], tuple[KsegError, ...], bool]:
    """Choose closed logs to change, and look for their settings.

    Args:
        directories, selection, command_settings: as given on the command line.
        kinds: the kinds of directories that count, if more than one is chosen.

    Returns:
        The data directories; partition -> its settings; the findings in the sources of the
        settings; and whether one partition directory was named.
    """
    directories, command_settings = data_directories(directories, command_settings)
    catalog = catalog_of(directories, selection, strict=True)
    partitions = list(catalog)
    all_settings = known_settings(partitions, command_settings, directories)
    # An empty or deleted log counts only if it is the only one that was named.
    if len(partitions) > 1:
        partitions = [partition for partition in partitions if has_segments(partition.path, kinds)]
    alone = len(catalog) == 1 and not catalog.data_directories
    settings = {partition.path: all_settings.of(partition.path) for partition in partitions}
    return directories, settings, tuple(all_settings.findings), alone


def _topic_of(partition: ClosedPartition) -> str:
    """The topic of a partition; the name of its directory if that is not a partition's name."""
    return partition_at(partition.origin).topic or partition.origin.name


def _where(partition: ClosedPartition) -> dict[str, Any]:
    """The fields path, topic and partition: those of the original log, not of its copy."""
    return fields_of(partition_at(partition.origin), "path topic partition")


def _say_left_alone(left: Iterable[tuple[str, str]]) -> None:
    """Print each topic that is left alone, and why.

    Args:
        left: the topic of each such partition, and the reason.
    """
    for (topic, why), count in Counter(left).items():
        partitions = output.counted(count, "partition")
        output.write_line(f"left alone: {topic} ({partitions}): {why}")


def _say_what_retention_leaves(
    partitions: Sequence[ClosedPartition], findings: Sequence[KsegError], *, is_plan: bool
) -> None:
    """Print the topics that retention leaves alone, the segments that stay, and the tiers.

    The segments that stay are printed only with `is_plan`.
    """
    say_of_settings(findings, (partition.settings for partition in partitions))
    plans = [
        (partition, partition.deletion)
        for partition in partitions
        if partition.deletion is not None
    ]
    _say_left_alone((_topic_of(partition), plan.why) for partition, plan in plans if plan.why)
    if is_plan:
        output.write_lines(_stay_lines(partitions))
        segments = output.counted(sum(len(plan.segments) for _, plan in plans), "segment")
        goes = output.human_bytes(sum(plan.deleted_bytes for _, plan in plans))
        stays = output.human_bytes(sum(plan.kept_bytes for _, plan in plans))
        output.write_line(f"in all: {segments}, {goes} go; {stays} stay")
    for partition, plan in plans:
        if plan.held_bytes:
            how = "--high-watermark end declares this the only copy"
            if plan.is_unclean:
                how = command_line("kseg", "recover", str(partition.origin.parent), "--apply")
            output.write_line(f"{partition.origin}: {plan.why_held}; {how}")
        if plan.remote is not None:
            output.write_lines(
                f"{partition.origin}: {line}" for line in plan.remote.lines(partition.origin.name)
            )


def _stay_lines(partitions: Iterable[ClosedPartition]) -> Iterator[str]:
    """A line for each topic and cause: the segments that stay, and when the first is deleted."""
    segments_by_cause: dict[tuple[str, str], list[StayingSegment]] = {}
    for partition in partitions:
        for segment in partition.staying:
            segments_by_cause.setdefault((_topic_of(partition), segment.why), []).append(segment)
    for (topic, why), segments in segments_by_cause.items():
        count = output.counted(len(segments), "segment")
        size = output.human_bytes(sum(segment.bytes for segment in segments))
        dates = [segment.until_ms for segment in segments if segment.until_ms is not None]
        date = f"; from {iso_text(min(dates))} on" if dates else ""
        yield f"stays: {topic}: {count}, {size}: {why}{date}"


def _deletions(partition: ClosedPartition) -> Iterator[Action]:
    """The actions of retention on a partition."""
    plan = partition.deletion
    directory = partition.path
    if plan is None:
        return
    if plan.rolls:
        why = "every segment expires, and a log keeps one to append to"
        yield Action("roll", str(directory), 0, why)
    if plan.new_log_start_offset != plan.log_start_offset and plan.remote is None:
        why = f"the log starts at {plan.new_log_start_offset} then, not at {plan.log_start_offset}"
        yield Action("log-start", str(directory), 0, why)
    for segment in plan.segments:
        path = directory / segment.path.name
        yield Action("delete", str(path), segment.bytes, _why_deleted(segment, plan))


def _why_deleted(segment: RetiredSegment, plan: RetentionPlan) -> str:
    """The reason why a segment is deleted, in words."""
    if segment.why == LOG_START:
        return f"{LOG_START}: all of it lies before offset {plan.log_start_offset}"
    limit = "retention" if plan.remote is None else "local.retention"
    if segment.why == SIZE:
        return f"{SIZE}: the log has {limit}.bytes without it"
    newest = iso_text(segment.largest_timestamp)
    return f"{segment.why}: its newest record, of {newest}, is older than {limit}.ms"


def write_compaction(
    partitions: Sequence[ClosedPartition],
    findings: Sequence[KsegError],
    say_it: Callable[..., Exit],
    *,
    as_json: bool,
) -> Exit:
    """Print the changes of compaction, made or planned; returns the exit code.

    Args:
        partitions: the partitions of the answer.
        findings: the findings in the sources of their settings.
        say_it: prints `actions`, and with `as_json` further fields of the document.
        as_json: one document instead of tables.
    """
    plans = [partition.plan for partition in partitions if partition.plan is not None]
    if not as_json:
        say_of_settings(findings, (partition.settings for partition in partitions))
        _say_what_stays(partitions)
    code = say_it(
        actions=[action for partition in partitions for action in _compactions(partition)],
        as_json=as_json,
        saved_bytes=sum(plan.saved_bytes or 0 for plan in plans),
        room_bytes=max((plan.room_bytes for plan in plans), default=0),
        partitions=[_compaction_document(partition) for partition in partitions],
        findings=[
            {**fields_of(error, "path position offset"), "message": str(error)}
            for error in (
                *findings,
                *(partition.finding for partition in partitions if partition.finding is not None),
            )
        ],
    )
    compacted = [plan for plan in plans if plan.groups]
    if compacted and not as_json:
        total_kept = sum(plan.kept_bytes or 0 for plan in compacted)
        size = sum(plan.bytes or 0 for plan in compacted)
        output.write_line(f"in all {total_kept} of {size} bytes of compacted logs stay")
    return Exit.FOUND if _say_damage(partitions) or have_damage(findings) else code


def _say_damage(partitions: Iterable[ClosedPartition]) -> bool:
    """Report the damage for which partitions stay as they are; returns whether there is any."""
    damaged = False
    for partition in partitions:
        if partition.finding is not None and partition.rules is not None:
            damaged = True
            policy = f"cleanup.policy={','.join(sorted(partition.rules.config.cleanup_policy))}"
            salvage = command_line("kseg", "salvage", partition.origin, "-o", "OUT")
            again = command_line("kseg", "compact", "OUT", "--config", policy, "--apply")
            complain(
                f"kseg: not compacted: {one_line(partition.finding)}",
                "To compact the salvageable part of this log, in a directory OUT:",
                f"    {salvage}",
                f"    {again}",
            )
    return damaged


def _say_what_stays(partitions: Sequence[ClosedPartition]) -> None:
    """Print the topics that are left alone; then each segment that stays, and why."""
    plans = [(partition, partition.plan) for partition in partitions if partition.plan is not None]
    _say_left_alone(
        (_topic_of(partition), plan.why) for partition, plan in plans if plan.skipped is not None
    )
    for partition, plan in plans:
        for segment in plan.staying:
            path = partition.path / segment.path.name
            output.write_line(f"stays: {path} ({segment.bytes} bytes): {segment.why}")
        if plan.groups:
            room = output.counted(plan.room_bytes, "byte")
            output.write_line(f"{partition.path}: {room} of free room are needed")
        if plan.unkeyed_records:
            count = output.counted(plan.unkeyed_records, "record")
            why = "they go, since a compacted log keeps none"
            output.write_line(f"{partition.path}: {count} without a key: {why}")


def _compactions(partition: ClosedPartition) -> Iterator[Action]:
    """The actions of compaction on a partition, and of the retention after it."""
    plan = partition.plan
    if plan is None or partition.finding is not None:
        return
    for group in plan.groups:
        for segment in group.segments:
            why = f"{segment.kept_bytes} of its {segment.bytes} bytes stay"
            if len(group.segments) > 1:
                why += f", in one segment at {group.base_offset}"
            path = str(partition.path / segment.path.name)
            yield Action("compact", path, segment.saved_bytes or 0, why)
    if plan.advances:
        why = f"clean up to {plan.end_offset} then, not to {plan.first_dirty_offset}"
        if not plan.is_complete:
            why += ", and further with the next pass: the map is full"
        yield Action("checkpoint", str(partition.path), 0, why)
    yield from _deletions(partition)


def _compaction_document(partition: ClosedPartition) -> dict[str, Any]:
    """A partition in the document of `compact`."""
    document = {**_where(partition), **settings_fields(partition.settings)}
    plan = partition.plan
    if plan is None:
        return document
    words = (
        "log_start_offset log_end_offset high_watermark last_stable_offset first_dirty_offset"
        " first_uncleanable_offset end_offset clean_bytes cleanable_bytes dirty_ratio bytes"
        " kept_bytes saved_bytes room_bytes records kept_records saved_records unkeyed_records"
        " complete=is_complete skipped"
    )
    return {
        **document,
        **fields_of(plan, words),
        "why": plan.why or None,
        "segments": [
            {
                **fields_of(segment, "base_offset bytes kept_bytes saved_bytes"),
                "into": group.base_offset,
            }
            for group in plan.groups
            for segment in group.segments
        ],
        "staying": [fields_of(segment, "base_offset bytes why") for segment in plan.staying],
        "report": None
        if partition.done is None
        else fields_of(partition.done, partition.done.COLUMNS),
    }


#: Places that may have the same records, and were not searched.
_ELSEWHERE: Final = (
    "other replicas of these partitions, which bring the records back when they lead",
    "a tier, backups, and snapshots of disks",
    "the stores of consumers, and topics that were made from these",
    "free blocks of the disk",
)
_ENCODINGS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "text": bytes,
    "hex": binascii.unhexlify,
    "base64": partial(base64.b64decode, validate=True),
}


def erase(
    directories: Paths,
    report_file: str | None,
    secret_file: str | None,
    selection: Selection,
    command_settings: CommandSettings,
    jobs: int,
    apply: bool,
    backup_dir: str | None,
    as_json: bool,
    **asked: Any,
) -> int:
    """Run `kseg erase`; returns the exit code."""
    options = change_of(
        command_settings, apply=apply, backup_dir=backup_dir, no_backup=backup_dir is None
    )
    with usage_errors():
        targets = _targets(**asked)
    secret = None if secret_file is None else Path(secret_file).read_bytes()
    directories, command_settings = data_directories(directories, command_settings)
    catalog = catalog_of(directories, selection, strict=True)
    partitions = _with_set_aside(_of_producers(catalog.partitions))
    if report_file is not None and not (targets["keys"] or targets["null_key"]):
        return _check(Path(report_file), partitions, as_json=as_json)
    if targets["offsets"] is not None and len(partitions) > 1:
        raise click.UsageError("An offset belongs to one partition: name it, or give --partition.")
    configs = known_configs(partitions, command_settings, directories)
    plan_at: Any = partial(plan_erasure, **targets, now=options.now_ms, threads=jobs)
    with usage_errors():
        plans, damage = _plan_each(
            partitions, lambda path, bar: plan_at(path, config=configs[path], progress=bar)
        )
    if report_file is not None:
        return _check(Path(report_file), partitions, plans, as_json=as_json)
    before = {plan.path: digests(plan.path) for plan in plans} if as_json else {}
    going = [plan for plan in plans if plan.refused is None]
    reports = run(
        going,
        options,
        lambda plan, path: plan_at(path, config=plan.config),
        share=partial(share_out, verb="erase", jobs=1),
        on_lost_mark=report_lost_mark,
    )
    _say_refusals(plans, damage)
    is_found = any(plan.segments for plan in going)
    if not (as_json or is_found):
        output.write_line("no such record, nothing to do")
        return Exit.FOUND
    if not as_json:
        output.write_lines(plan.title for plan in going if plan.segments)
        output.write_lines(("not searched:", *(f"    {place}" for place in _ELSEWHERE)))
    code = report(
        "erase",
        output.path_field(directories),
        options,
        reports,
        actions=[action for done in reports for action in done.plan.actions],
        remedy="--apply does it",
        as_json=as_json,
        null_key=targets["null_key"],
        offsets=None if asked["offset"] is None else list(asked["offset"]),
        tombstones=targets["tombstones"],
        keys=[] if secret is None else _digests(targets["keys"], secret),
        records=sum(plan.records for plan in going),
        partitions=[_document(plan, before.get(plan.path, {}), apply) for plan in plans],
        findings=[one_line(error) for error in damage],
        not_searched=list(_ELSEWHERE),
    )
    if any(done.kept for done in reports):
        complain(f"kseg: {backup_dir} is a copy of what was erased: remove it, too")
    return Exit.FOUND if damage or len(going) < len(plans) or not is_found else code


def _targets(
    keys: tuple[bytes, ...],
    keys_file: str | None,
    encoding: str,
    offset: tuple[int | None, int | None] | None,
    **targets: Any,
) -> dict[str, Any]:
    """The records that are erased, as arguments of `plan_erasure`.

    Raises:
        UsageError: the file of keys is empty, or malformed.
        ValueError: the range of offsets lacks an end.
    """
    from_file = [] if keys_file is None else _keys_of(Path(keys_file), encoding)
    offsets = None
    if offset is not None:
        first, end = offset
        if first is None or end is None:
            raise ValueError("--offset names both ends here: A..B, or one offset")
        offsets = range(first, end)
    return {"keys": [*keys, *from_file], "offsets": offsets, **targets}


def _digests(keys: Sequence[bytes], secret: bytes) -> list[str]:
    """The keyed digests of keys, by which a report can be compared without naming them."""
    return [hmac.digest(secret, key, sha256).hex() for key in keys]


def _keys_of(path: Path, encoding: str) -> list[bytes]:
    """The keys in a file, one a line.

    Raises:
        UsageError: it has none, or a line is not in the encoding.
    """
    decoded = _ENCODINGS[encoding]
    lines = path.read_bytes().split(b"\n")
    keys = []
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\r")
        if not text:
            continue
        with usage_errors(f"{path}, line {number}: not {encoding}"):
            keys.append(decoded(text))
    if not keys:
        raise click.UsageError(f"{path} has no keys: nothing would be erased.")
    return keys


def _of_producers(partitions: Sequence[Partition]) -> list[Partition]:
    """The partitions without those of Kafka's own topics, which are reported; one is returned."""
    if len(partitions) == 1:
        return list(partitions)
    of_kafka = dict.fromkeys(
        str(partition.topic) for partition in partitions if is_internal(str(partition.topic))
    )
    if of_kafka:
        complain(f"kseg: left as they are: {', '.join(of_kafka)}: topics of Kafka itself")
    return [partition for partition in partitions if partition.topic not in of_kafka]


def _with_set_aside(partitions: Sequence[Partition]) -> list[Partition]:
    """The partitions, and after each its directories that a broker has put aside."""
    # Path of a partition -> paths whose names are its name, a dot and more.
    set_aside: dict[Path, list[Path]] = {}
    directories = {partition.path.parent for partition in partitions if partition.name is not None}
    for directory in directories:
        for path in sorted(directory.iterdir()):
            set_aside.setdefault(directory / path.name.rpartition(".")[0], []).append(path)
    by_path: dict[Path, Partition] = {}
    for partition in partitions:
        by_path[partition.path] = partition
        for other in map(partition_at, set_aside.get(partition.path, ())):
            if other.kind is not None:
                by_path.setdefault(other.path, other)
    return list(by_path.values())


def _plan_each(
    partitions: Sequence[Partition], plan_at: Callable[[Path, Progress], ErasurePlan]
) -> tuple[list[ErasurePlan], list[KsegError]]:
    """The plans of the partitions, and the damage for which other partitions have no plan."""
    plans = list[ErasurePlan]()
    damage = list[KsegError]()
    for partition in partitions:
        with output.progress(f"erase {partition.path.name}", 0, in_bytes=True) as bar:
            try:
                plans.append(plan_at(partition.path, bar.to))
            except DAMAGE as error:
                damage.append(error)
    return plans, damage


def _say_refusals(plans: Sequence[ErasurePlan], damage: Sequence[KsegError]) -> None:
    """Report the partitions from which nothing is erased, with the reason."""
    for plan in plans:
        if plan.refused is not None:
            complain(f"kseg: left as it is: {plan.path}: {plan.refused}")
    for error in damage:
        salvage = command_line("kseg", "salvage", str(Path(error.path or "").parent), "-o", "OUT")
        complain(
            f"kseg: left as it is: {one_line(error)}; first make a sound copy:", f"    {salvage}"
        )


def _document(
    plan: ErasurePlan, before: Mapping[str, tuple[int, str]], applied: bool
) -> dict[str, Any]:
    """A partition in the document of `erase`.

    Args:
        plan: the plan of the partition.
        before: name of a file -> its size and SHA-256 before the change; empty if not wanted.
        applied: whether the change was made.
    """
    after = digests(plan.path) if applied and before else before
    return {
        **fields_of(partition_at(plan.path), "path topic partition"),
        **fields_of(plan, "refused records rolls"),
        "segments": [
            fields_of(
                segment,
                "base_offset bytes=size records record_bytes first_offset last_offset",
            )
            for segment in plan.segments
        ],
        "files": [
            {
                "name": name,
                **_digest("before", before.get(name)),
                **_digest("after", after.get(name)),
            }
            for name in sorted(before.keys() | after.keys())
        ],
    }


def _digest(when: str, state: tuple[int, str] | None) -> dict[str, Any]:
    """The fields about a file "before" or "after": size and SHA-256, null if it does not exist."""
    size, digest = state or (None, None)
    return {f"bytes_{when}": size, f"sha256_{when}": digest}


def _check(
    path: Path,
    partitions: Sequence[Partition],
    plans: Sequence[ErasurePlan] = (),
    *,
    as_json: bool,
) -> int:
    """Compare segments with a report; with `plans`, also report whether the records are back."""
    then = _read_report(path)
    rows = [
        {"path": str(partition.path), "segment": name, "state": state}
        for partition in partitions
        if partition.path.name in then
        for name, state in compare_digests(then[partition.path.name], partition.path)
    ]
    unknown = [partition.path for partition in partitions if partition.path.name not in then]
    back = [plan for plan in plans if plan.segments]
    if as_json:
        document = {
            "report": str(path),
            "segments": rows,
            "unknown": [str(path) for path in unknown],
            "records_back": sum(plan.records for plan in back) if plans else None,
        }
        output.write_document("erase-check/1", document)
    else:
        output.write_columns(("state", "segment", "path"), rows)
        output.write_lines(f"not in the report: {printable(str(path))}" for path in unknown)
        output.write_lines(f"the records are back: {plan.title}" for plan in back)
    return Exit.FOUND if back or unknown else Exit.OK


def _read_report(path: Path) -> dict[str, dict[str, tuple[int, str]]]:
    """Name of a partition directory -> name of a segment -> size and digest after the erasure.

    Raises:
        UsageError: the file is not a report of `kseg erase --apply --json`.
    """
    by_directory = dict[str, dict[str, tuple[int, str]]]()
    with suppress(KeyError, TypeError, RecursionError, json.JSONDecodeError, UnicodeDecodeError):
        document = json.loads(path.read_bytes())
        for partition in document["partitions"] if document["schema"] == "kseg.erase/1" else ():
            files = by_directory[os.path.basename(partition["path"])] = {}
            for file in partition["files"]:
                if isinstance(file["bytes_after"], int):
                    files[str(file["name"])] = (file["bytes_after"], str(file["sha256_after"]))
    if not any(by_directory.values()):
        raise click.UsageError(
            f"{path} is not a report that 'kseg erase --apply --json' has written."
        )
    return by_directory
