"""`kseg salvage`: the provable part of damaged logs, in a new data directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from kseg import plan_salvage
from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.owners import put_back, without_line
from kseg.cli.parsing import Paths
from kseg.cli.paths import tier_of_plans
from kseg.files.names import CLUSTER_METADATA
from kseg.files.selection import Selection
from kseg.log.salvage import (
    HARMLESS,
    READABLE,
    REASONS,
    DamagedTransaction,
    LostOffsets,
    SalvagedPartition,
    Span,
)
from kseg.reports import SalvagePlan, SalvageReport

#: The most lines of one kind for a partition; --json and the report have all.
_LINES_MAX = 5


def salvage(
    directories: Paths,
    out: str,
    abort_open: bool,
    jobs: int,
    selection: Selection,
    as_json: bool,
) -> int:
    """Run `kseg salvage`; returns the exit code."""
    with usage_errors(), output.progress("search", 0) as bar:
        plan = plan_salvage(
            *directories,
            out=out,
            abort_open=abort_open,
            topics=selection.topics,
            partitions=selection.partitions,
            threads=jobs,
            progress=bar.to,
            tier=tier_of_plans(),
        )
    with output.progress("copy", 0) as bar:
        report = plan.apply(progress=bar.to)
    if as_json:
        output.write_document("salvage/1", report.to_json())
    else:
        _say(report)
    return Exit.OK if report.ok else Exit.FOUND


def _say(report: SalvageReport) -> None:
    plan = report.plan
    output.write_lines(_unproved(plan))
    head = ("partition", "kept", "records", "lost", "duplicates", "offsets")
    output.write_table(head, [_row(one) for one in plan.partitions])
    output.write_lines(line for one in plan.partitions for line in _details(one))
    output.write_lines(_totals(plan, report))


def _unproved(plan: SalvagePlan) -> Iterator[str]:
    """The number of readable batches that are left out for lack of a proof: the first line."""
    count = sum(one.unproved_batches for one in plan.partitions)
    if count:
        indexed = any(one.indexed for one in plan.partitions if one.unproved_batches)
        batches = output.counted(count, "batch", "batches")
        yield (
            f"{batches} behind the damage {'is' if count == 1 else 'are'} readable, but nothing "
            f"proves {'it' if count == 1 else 'them'}: "
            + ("no index entry leads to them" if indexed else "no index")
        )


def _row(one: SalvagedPartition) -> tuple[object, ...]:
    start, end = one.log_start_offset, one.log_end_offset
    return (
        one.name,
        output.counted(one.batches, "batch", "batches"),
        "unknown" if one.records is None else one.records,
        _lost(one),
        one.duplicate_batches,
        f"{start} to {end - 1}" if end > start else f"none, ends at {end}",
    )


def _lost(one: SalvagedPartition) -> str:
    """The number of records that a partition has lost, in words."""
    if one.lost_records is None:
        return "unknown"
    return f"at most {one.lost_records}" if one.at_most else str(one.lost_records)


def _details(one: SalvagedPartition) -> Iterator[str]:
    yield from _some(one, "lost", [_range(each) for each in one.lost])
    yield from _some(one, "undecodable", [_range(each) for each in one.undecodable])
    reasons = dict.fromkeys(each.reason for each in one.unprovable if each.reason not in HARMLESS)
    for reason in reasons:
        yield from _places(one, reason)
    yield from _some(
        one,
        "transaction",
        [
            f"producer {each.producer_id}, offsets {each.first_offset} to {each.last_offset}: "
            + ("its marker is lost" if each.is_open else "records of it may be lost")
            + _end_of(each, one)
            for each in one.transactions
        ],
    )


def _places(one: SalvagedPartition, reason: str) -> Iterator[str]:
    """The bytes that are not kept for a reason; the reason is explained once."""
    found = [each for each in one.unprovable if each.reason == reason]
    if len(found) == 1:
        yield f"{one.name}: {reason}: {_place(found[0])}: {REASONS[reason]}"
        return
    size = output.human_bytes(sum(each.size for each in found))
    yield f"{one.name}: {reason}: {len(found)} places, {size}: {REASONS[reason]}"
    yield from _some(one, reason, [_place(each) for each in found])


def _place(one: Span) -> str:
    """Bytes that are not kept; the offsets of sound batches among them."""
    place = f"{one.path} @ {one.position}, {output.counted(one.size, 'byte')}"
    if not one.batches:
        return place
    batches = output.counted(one.batches, "sound batch", "sound batches")
    offsets = f"offsets {one.first_offset} to {one.last_offset}"
    others = [f"{first} to {last}" for first, last in one.places[1:]]
    return f"{place}, {batches}, {' or '.join((offsets, *others))}"


def _end_of(transaction: DamagedTransaction, one: SalvagedPartition) -> str:
    if not transaction.is_open:
        return ""
    return "; aborted" if one.markers else "; --abort-open ends it"


def _range(lost: LostOffsets) -> str:
    place = f"{lost.path} @ {lost.position}"
    if lost.last_offset is None:
        return f"offsets from {lost.first_offset} on, {place}"
    count = lost.last_offset - lost.first_offset + 1
    most = "at most " if lost.at_most else ""
    records = output.counted(count, "record")
    return f"offsets {lost.first_offset} to {lost.last_offset} ({most}{records}), {place}"


def _some(one: SalvagedPartition, label: str, lines: Sequence[str]) -> Iterator[str]:
    yield from (f"{one.name}: {label}: {line}" for line in lines[:_LINES_MAX])
    if len(lines) > _LINES_MAX:
        yield f"{one.name}: {label}: {len(lines) - _LINES_MAX} more; the report has all of them"


def _totals(plan: SalvagePlan, report: SalvageReport) -> Iterator[str]:
    partitions = output.counted(len(plan.partitions), "partition")
    said = "nothing is lost" if report.ok else _all_lost(plan)
    undecodable = sum(len(one.undecodable) for one in plan.partitions)
    if undecodable:
        said += (
            f"; no client can read {output.counted(undecodable, 'sound batch', 'sound batches')}: "
            "'kseg read --on-corrupt skip' steps over such batches"
        )
    yield (
        f"{partitions}, {output.human_bytes(plan.kept_bytes)} of "
        f"{output.human_bytes(plan.bytes)} kept in {plan.out}; {said}"
    )
    if plan.quarantined_bytes:
        yield (
            f"{output.human_bytes(plan.quarantined_bytes)} that are not kept are in "
            f"{plan.beside / 'quarantine'}"
        )
    for one in plan.partitions:
        if any("/readable/" in each.path for each in one.quarantined):
            yield f"the readable batches of {one.name} among them:"
            yield f"  kseg dump {quote(str(plan.beside / 'quarantine' / one.name / READABLE))}"
    yield f"the report is {report.path}"
    for path in plan.left_alone:
        yield "the log of KRaft is left out; a sole controller's is salvaged by its own name:"
        yield f"  kseg salvage {quote(path)} -o NEW_DIRECTORY"
    if not report.ok:
        yield "a replica or a backup may have the lost records: 'kseg merge' takes them from there"
    changed = [one for one in plan.partitions if _is_changed(one)]
    yield from put_back([(one.name, Path(one.path)) for one in changed], plan.out, plan.beside)
    if changed and len(changed) < len(plan.partitions):
        yield "the logs of the other partitions are sound: they stay where they are"
    if any(one.partition.topic == CLUSTER_METADATA for one in plan.partitions):
        yield (
            "this log of KRaft is for a sole controller: a repaired copy never goes back into a "
            "quorum of several voters; there move the directory aside, and the node fetches the "
            "log from the leader while a majority of the others is up"
        )
    for one in plan.partitions:
        if one.start_beyond_end is not None:
            yield from _start_beyond_end(one)


def _is_changed(one: SalvagedPartition) -> bool:
    """Whether OUT contains a log of another partition than the one that was read."""
    return bool(one.lost or one.unprovable or one.markers or one.start_beyond_end is not None)


def _start_beyond_end(one: SalvagedPartition) -> Iterator[str]:
    """Explain a log start behind the end, and give the command that removes it."""
    path = Path(one.path).resolve().parent / "log-start-offset-checkpoint"
    yield (
        f"{one.name}: {path} says that the log starts at offset {one.start_beyond_end}, behind its "
        f"end {one.log_end_offset}: a broker would delete all records. {one.name} in OUT does not "
        "have that start. If the records in front of it were deleted on purpose, the broker is "
        "right; else remove the line, with the broker stopped:"
    )
    yield f"  {without_line(path, one.partition)}"


def _all_lost(plan: SalvagePlan) -> str:
    """The number of records that are lost in all, in words."""
    if not any(one.lost or one.quarantined for one in plan.partitions):
        return "nothing is lost"
    counts = [one.lost_records for one in plan.partitions if one.lost]
    known = sum(count or 0 for count in counts)
    most = "at most " if any(one.at_most for one in plan.partitions) else ""
    if None in counts:
        return "how many records are lost is not known"
    if not known:
        return "no record is known to be lost, but some bytes are not kept"
    return f"{most}{output.counted(known, 'record')} lost"
