"""`kseg salvage`: the provable part of damaged logs, in a new data directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from kseg import plan_salvage
from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.options import Paths
from kseg.cli.output import put_back, without_line
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
    """Print a table of partitions, their details, and the totals."""
    plan = report.plan
    output.write_lines(_unproved_lines(plan))
    head = ("partition", "kept", "records", "lost", "duplicates", "offsets")
    output.write_table(head, [_row(partition) for partition in plan.partitions])
    output.write_lines(line for partition in plan.partitions for line in _details(partition))
    output.write_lines(_totals(plan, report))


def _unproved_lines(plan: SalvagePlan) -> Iterator[str]:
    """The number of readable batches that are left out for lack of a proof: the first line."""
    count = sum(partition.unproved_batches for partition in plan.partitions)
    if count:
        indexed = any(
            partition.indexed for partition in plan.partitions if partition.unproved_batches
        )
        batches = output.counted(count, "batch", "batches")
        yield (
            f"{batches} after the damage {'is' if count == 1 else 'are'} readable, but nothing "
            f"proves {'it' if count == 1 else 'them'}: "
            + ("no index entry leads to them" if indexed else "no index")
        )


def _row(partition: SalvagedPartition) -> tuple[object, ...]:
    """The row of a partition in the table of `_say`."""
    start = partition.log_start_offset
    end = partition.log_end_offset
    return (
        partition.name,
        output.counted(partition.batches, "batch", "batches"),
        "unknown" if partition.records is None else partition.records,
        _lost_count(partition),
        partition.duplicate_batches,
        f"{start} to {end - 1}" if end > start else f"none, ends at {end}",
    )


def _lost_count(partition: SalvagedPartition) -> str:
    """The number of records that a partition has lost, in words."""
    if partition.lost_records is None:
        return "unknown"
    return f"at most {partition.lost_records}" if partition.at_most else str(partition.lost_records)


def _details(partition: SalvagedPartition) -> Iterator[str]:
    """Lines about lost ranges, undecodable ranges, bytes without proof, and transactions."""
    yield from _lines(partition, "lost", [_range(lost) for lost in partition.lost])
    yield from _lines(partition, "undecodable", [_range(lost) for lost in partition.undecodable])
    reasons = dict.fromkeys(
        span.reason for span in partition.unprovable if span.reason not in HARMLESS
    )
    for reason in reasons:
        yield from _unprovable_lines(partition, reason)
    yield from _lines(
        partition,
        "transaction",
        [
            f"producer {transaction.producer_id}, offsets {transaction.first_offset} to "
            f"{transaction.last_offset}: "
            + ("its marker is lost" if transaction.is_open else "records of it may be lost")
            + _end_of(transaction, partition)
            for transaction in partition.transactions
        ],
    )


def _unprovable_lines(partition: SalvagedPartition, reason: str) -> Iterator[str]:
    """Lines about the bytes that are not kept for one reason, which is explained once."""
    spans = [span for span in partition.unprovable if span.reason == reason]
    if len(spans) == 1:
        yield f"{partition.name}: {reason}: {_span_line(spans[0])}: {REASONS[reason]}"
        return
    size = output.human_bytes(sum(span.size for span in spans))
    yield f"{partition.name}: {reason}: {len(spans)} places, {size}: {REASONS[reason]}"
    yield from _lines(partition, reason, [_span_line(span) for span in spans])


def _span_line(span: Span) -> str:
    """Bytes that are not kept, and the offsets of the sound batches in them, in words."""
    location = f"{span.path} @ {span.position}, {output.counted(span.size, 'byte')}"
    if not span.batches:
        return location
    batches = output.counted(span.batches, "sound batch", "sound batches")
    offsets = f"offsets {span.first_offset} to {span.last_offset}"
    other_offsets = [f"{first} to {last}" for first, last in span.places[1:]]
    return f"{location}, {batches}, {' or '.join((offsets, *other_offsets))}"


def _end_of(transaction: DamagedTransaction, partition: SalvagedPartition) -> str:
    """How an open transaction was ended, or can be; empty for one that is not open."""
    if not transaction.is_open:
        return ""
    return "; aborted" if partition.markers else "; --abort-open ends it"


def _range(lost: LostOffsets) -> str:
    """Lost offsets and their place, in words."""
    location = f"{lost.path} @ {lost.position}"
    if lost.last_offset is None:
        return f"offsets from {lost.first_offset} on, {location}"
    count = lost.last_offset - lost.first_offset + 1
    most = "at most " if lost.at_most else ""
    records = output.counted(count, "record")
    return f"offsets {lost.first_offset} to {lost.last_offset} ({most}{records}), {location}"


def _lines(partition: SalvagedPartition, label: str, lines: Sequence[str]) -> Iterator[str]:
    """The first of some lines, after the partition and a label; and the number of others."""
    yield from (f"{partition.name}: {label}: {line}" for line in lines[:_LINES_MAX])
    if len(lines) > _LINES_MAX:
        more = len(lines) - _LINES_MAX
        yield f"{partition.name}: {label}: {more} more; the report has all of them"


def _totals(plan: SalvagePlan, report: SalvageReport) -> Iterator[str]:
    """The sums, the places of bytes that are not kept, and how to put the logs back."""
    partitions = output.counted(len(plan.partitions), "partition")
    summary = "nothing is lost" if report.ok else _all_lost(plan)
    undecodable = sum(len(partition.undecodable) for partition in plan.partitions)
    if undecodable:
        summary += (
            f"; no client can read {output.counted(undecodable, 'sound batch', 'sound batches')}: "
            "'kseg read --on-corrupt skip' steps over such batches"
        )
    yield (
        f"{partitions}, {output.human_bytes(plan.kept_bytes)} of "
        f"{output.human_bytes(plan.bytes)} kept in {plan.out}; {summary}"
    )
    if plan.quarantined_bytes:
        yield (
            f"{output.human_bytes(plan.quarantined_bytes)} that are not kept are in "
            f"{plan.beside / 'quarantine'}"
        )
    for partition in plan.partitions:
        if any("/readable/" in file.path for file in partition.quarantined):
            yield f"the readable batches of {partition.name} among them:"
            readable = plan.beside / "quarantine" / partition.name / READABLE
            yield f"  kseg dump {quote(str(readable))}"
    yield f"the report is {report.path}"
    for path in plan.left_alone:
        yield "the log of KRaft is left out; a sole controller's is salvaged by its own name:"
        yield f"  kseg salvage {quote(path)} -o NEW_DIRECTORY"
    if not report.ok:
        yield "a replica or a backup may have the lost records: 'kseg merge' takes them from there"
    changed = [partition for partition in plan.partitions if _is_changed(partition)]
    yield from put_back(
        [(partition.name, Path(partition.path)) for partition in changed], plan.out, plan.beside
    )
    if changed and len(changed) < len(plan.partitions):
        yield "the logs of the other partitions are sound: they stay where they are"
    if any(partition.partition.topic == CLUSTER_METADATA for partition in plan.partitions):
        yield (
            "this log of KRaft is for a sole controller: a repaired copy never goes back into a "
            "quorum of several voters; there move the directory aside, and the node fetches the "
            "log from the leader while a majority of the others is up"
        )
    for partition in plan.partitions:
        if partition.start_beyond_end is not None:
            yield from _start_beyond_end(partition)


def _is_changed(partition: SalvagedPartition) -> bool:
    """Whether the log in OUT differs from the one that was read."""
    return bool(
        partition.lost
        or partition.unprovable
        or partition.markers
        or partition.start_beyond_end is not None
    )


def _start_beyond_end(partition: SalvagedPartition) -> Iterator[str]:
    """Explain a log start beyond the end, and give the command that removes it."""
    path = Path(partition.path).resolve().parent / "log-start-offset-checkpoint"
    yield (
        f"{partition.name}: {path} says that the log starts at offset "
        f"{partition.start_beyond_end}, past its end {partition.log_end_offset}: a broker would "
        f"delete all records. {partition.name} in OUT does not have that start. If the records "
        "before it were deleted on purpose, the broker is right; else remove the line, with the "
        "broker stopped:"
    )
    yield f"  {without_line(path, partition.partition)}"


def _all_lost(plan: SalvagePlan) -> str:
    """The number of records that are lost in all, in words."""
    if not any(partition.lost or partition.quarantined for partition in plan.partitions):
        return "nothing is lost"
    counts = [partition.lost_records for partition in plan.partitions if partition.lost]
    lost_records = sum(count or 0 for count in counts)
    most = "at most " if any(partition.at_most for partition in plan.partitions) else ""
    if None in counts:
        return "how many records are lost is not known"
    if not lost_records:
        return "no record is known to be lost, but some bytes are not kept"
    return f"{most}{output.counted(lost_records, 'record')} lost"
