"""`kseg adopt`: logs of another place come into the empty topics of a stopped broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kseg import plan_adoption
from kseg.cli import output
from kseg.cli.failures import Exit, complain, usage_errors
from kseg.cli.internal import unreset_share, write_resets
from kseg.cli.parsing import Paths
from kseg.cli.paths import tier_of_run
from kseg.files.names import parse_partition_dir
from kseg.format.times import iso_text
from kseg.reports import AdoptionPlan


def adopt(
    sources: Paths,
    into: Paths,
    topics: Sequence[tuple[str, str]],
    groups_csv: str | None,
    metadata_dir: str | None,
    now_ms: int | None,
    apply: bool,
    as_json: bool,
    **how: Any,
) -> int:
    """Run `kseg adopt`; returns the exit code."""
    with usage_errors(), output.progress("read", 0, in_bytes=True) as bar:
        plan = plan_adoption(
            sources,
            into=into,
            topics=dict(topics) or None,
            metadata_directory=metadata_dir,
            tier=tier_of_run(),
            now=now_ms,
            compare_checksums=not apply,
            progress=bar.to,
            **how,
        )
    if groups_csv is not None and not (plan.refused or plan.unfinished):
        plan = _with_groups(plan, Path(groups_csv), how["at"])
    is_applied = apply and not plan.refused
    if is_applied:
        with output.progress("adopt", 0, in_bytes=True) as bar:
            plan.apply(progress=bar.to)
    if as_json:
        document = {"path": output.path_field(sources), "applied": is_applied, **plan.to_json()}
        output.write_document("adopt/1", document)
    else:
        _say(plan)
        if not (is_applied or plan.refused):
            complain("kseg: nothing was changed; --apply does it")
    return Exit.OK if is_applied else Exit.FOUND


def _with_groups(plan: AdoptionPlan, path: Path, at: int | None) -> AdoptionPlan:
    """Write the commits of groups as they belong to the adopted logs; the plan names the file."""
    from kseg.analysis.groups import groups

    if not plan.group_homes:
        complain("kseg: no __consumer_offsets is among the sources: there is no file of groups")
        return plan
    adopted = {
        parse_partition_dir(partition.source.name)[:2]: partition for partition in plan.partitions
    }
    report = groups(plan.group_homes, at=at)
    commits = [
        {
            **row,
            "topic": log.topic,
            "offset": min(max(row["offset"], log.log_start_offset), log.log_end_offset),
        }
        for row in report.commits.rows()
        if row["offset"] is not None
        and (log := adopted.get((row["topic"], row["partition"]))) is not None
    ]
    complain(*unreset_share(report))
    others = (line for line in plan.after if not line.startswith("kseg groups "))
    return replace(plan, after=(*others, *write_resets(report, path, commits)))


def _say(plan: AdoptionPlan) -> None:
    if plan.unfinished:
        output.write_line("an interrupted run has made these logs; they are put in their places:")
        output.write_lines(f"  {path}" for path in plan.unfinished)
    rows = [
        (
            partition.name,
            len(partition.segments),
            partition.records,
            partition.bytes,
            f"{partition.log_start_offset} to {partition.log_end_offset}",
            iso_text(partition.first_timestamp) or "-",
            iso_text(partition.last_timestamp) or "-",
            partition.source,
        )
        for partition in plan.partitions
    ]
    if rows:
        head = ("partition", "segments", "records", "bytes", "offsets", "first", "last", "source")
        output.write_table(head, rows)
    output.write_lines(_details(plan))


def _details(plan: AdoptionPlan) -> Iterator[str]:
    for partition in plan.partitions:
        name = partition.name
        for transaction in partition.transactions:
            end = {None: "undecided", False: "aborted", True: "committed"}[transaction.commits]
            yield (
                f"{name}: the transaction of producer {transaction.producer_id} from offset "
                f"{transaction.first_offset} on is {end}: "
                f"{transaction.why or 'nothing tells its end'}"
            )
        if partition.behind is not None:
            yield (
                f"{name}: {partition.behind['first']} records of no later time lie behind the cut "
                f"'first', {partition.behind['last']} of a later time in front of the cut 'last'"
            )
        yield from (f"{name}: left out: {text}" for text in partition.left_out)
        yield from (f"{name}: {text}" for text in partition.notes)
    yield from (f"left out: {text}" for text in plan.left_out)
    yield from (f"refused: {text}" for text in plan.refused)
    for word, commands in (("before", plan.before), ("after", plan.after)):
        if commands:
            yield f"type {word} the adoption, while the broker runs:"
            yield from (f"    {command}" for command in commands)
