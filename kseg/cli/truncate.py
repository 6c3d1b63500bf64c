"""`kseg truncate`: cut a log back to an offset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kseg.cli import changing
from kseg.cli.changing import Action, Change
from kseg.cli.options import (
    Selection,
    Setting,
    check_settings,
    clock_of,
    config_of,
    config_options,
    json_option,
    selection_options,
)
from kseg.cli.paths import partitions as partitions_of
from kseg.files.names import list_partition
from kseg.log import data_directory
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.pending_deletes import files_of_segment
from kseg.log.reader.tail import snapshot_of
from kseg.log.recovery.backup import Backup
from kseg.log.sub_directories import refuse_cluster_metadata
from kseg.log.writer import truncate as trim
from kseg.log.writer.truncate import CUT, TruncationAction, TruncationPlan


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=str))
@click.option(
    "--to",
    "offset",
    type=click.IntRange(min=0, max=2**63 - 1),
    required=True,
    metavar="OFFSET",
    help="Where the log is to end: this offset and all behind it go.",
)
@selection_options
@changing.change_options
@config_options
@json_option
def truncate(
    directory: str,
    offset: int,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    settings: tuple[Setting, ...],
    now_ms: int | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Cut the log in DIR back, so that it ends at an offset.

    DIR is a partition directory, or a data directory of which --topic and --partition choose one. A
    batch goes whole, so records in front of OFFSET may go with the one that has it. Cuts nothing
    without --apply.
    """
    change = changing.change_of(**how)
    clock = clock_of(now_ms)
    chosen = list(partitions_of((directory,), Selection(topics, partitions), strict=True))
    if len(chosen) != 1:
        raise click.UsageError(
            f"{len(chosen)} partitions here; choose one with --topic and --partition."
        )
    refuse_cluster_metadata(chosen[0].path)
    check_settings(settings, [chosen[0].topic])
    config = config_of(settings, chosen[0].topic)
    with Log.open(chosen[0].path) as log:
        seen = snapshot_of(log.view).published
        plan = trim.plan_truncation(log.path, seen, offset)
    place, kept, freed = chosen[0].path, None, 0
    if plan.changes and not change.is_plan:
        place = change.place_of(place)
        if trim.is_unfollowed(seen):
            plan, kept = _cut_unfollowed(place, offset, change, config, clock)
        else:
            with Log.open(place, mode="append", config=config, now_ms=clock) as log:
                plan = trim.plan_truncation(log.path, log.published, offset)
                kept = _keep(plan, change.kept_aside(plan.path.parent, clock()))
                trim.truncate_to(log.state, offset)
                freed = log.state.deletions.freed_bytes if change.apply else 0
    return changing.report(
        "truncate",
        directory,
        change,
        [_action(each, place) for each in plan.actions],
        (kept,),
        freed_bytes=freed,
        as_json=as_json,
        log_start_offset=plan.log_start_offset,
        log_end_offset=plan.log_end_offset,
        truncated_bytes=plan.bytes,
    )


def _cut_unfollowed(
    place: Path, offset: int, change: Change, config: LogConfig, clock: Callable[[], int]
) -> tuple[TruncationPlan, Backup | None]:
    """Cut a log that cannot be opened, since its last batch ends at 2^63 - 1."""
    home = data_directory.enter(place.resolve().parent)
    try:
        with Log.open(place) as log:
            seen = snapshot_of(log.view).published
        plan = trim.plan_truncation(place, seen, offset)
        # The last batch first, by itself: what is kept under a second name must not be cut.
        last = trim.plan_truncation(place, seen, trim.last_offset(seen))
        kept = _keep(last, change.kept_aside(place.resolve().parent, clock()))
        trim.cut_unfollowed(last)
        with Log.open(place, mode="append", recover=True, config=config, now_ms=clock) as log:
            _keep(trim.plan_truncation(log.path, log.published, offset), kept)
            trim.truncate_to(log.state, offset)
            start, end = log.log_start_offset, log.log_end_offset
    finally:
        home.leave()
    return replace(plan, log_start_offset=start, log_end_offset=end), kept


def _action(each: TruncationAction, place: Path) -> Action:
    """What is done, to a file of the directory as it was given."""
    return Action(each.action, str(place / each.path.name), each.bytes, each.why)


def _keep(plan: TruncationPlan, kept: Backup | None) -> Backup | None:
    """Keep what is about to go; there is room for all of it, or nothing is done."""
    if kept is None or not plan.changes:
        return kept
    kept.check_room(sum(each.bytes for each in plan.actions if each.action == CUT))
    files = list_partition(plan.path)
    going = {each.path for each in plan.actions if each.action == trim.DELETE}
    for segment in files.segments:
        if segment.log in going:
            for path in files_of_segment(segment):
                kept.keep_file(path)
    for snapshot in files.snapshots:
        offset = snapshot.name.base_offset
        if offset is not None and (plan.whole or offset > plan.log_end_offset):
            kept.keep_file(snapshot.path)
    if files.leader_epochs is not None:
        kept.keep_file(files.leader_epochs)
    for each in plan.actions:
        if each.action == CUT and plan.position is not None:
            kept.keep_tail(each.path, plan.position)
    return kept
