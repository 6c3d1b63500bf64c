"""`kseg salvage`: what can be proved of damaged logs, in a new data directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kseg import SalvagePlan, SalvageReport, apply_salvage, plan_salvage
from kseg.cli import output
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.owners import owner_lines
from kseg.cli.parsing import Selection
from kseg.log.salvage import HARMLESS, REASONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kseg.log.salvage import HurtTransaction, LostOffsets, Mended, SalvagedPartition, Unprovable

#: So many lines of one kind are printed for a partition; --json and the report have all.
_LINES_MAX = 5


def salvage(
    directories: tuple[str, ...],
    out: str,
    abort_open: bool,
    unproven: bool,
    jobs: int,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    with usage_errors(), output.progress("search", 0) as bar:
        plan = plan_salvage(
            *directories,
            out=out,
            abort_open=abort_open,
            unproven=unproven,
            chosen=Selection(topics, partitions).choice,
            jobs=jobs,
            progress=bar.to,
        )
    with output.progress("copy", 0) as bar:
        report = apply_salvage(plan, progress=bar.to)
    if as_json:
        output.write_document("salvage/1", report.to_json())
    else:
        _say(report)
    return Exit.OK if report.ok else Exit.FOUND


def _say(report: SalvageReport) -> None:
    plan = report.plan
    head = ("partition", "kept", "records", "lost", "duplicates", "offsets")
    output.write_table(head, [_row(one) for one in plan.partitions])
    for one in plan.partitions:
        for line in _details(one):
            output.write_line(printable(line))
    for line in _totals(plan, report):
        output.write_line(printable(line))
    first = plan.partitions[0]
    for line in owner_lines(plan.out / first.name, first.path, plan.out):
        output.write_line(printable(line))


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
    """How many records a partition has lost, in words."""
    if one.lost_records is None:
        return "unknown"
    return f"at most {one.lost_records}" if one.at_most else str(one.lost_records)


def _details(one: SalvagedPartition) -> Iterator[str]:
    yield from _some(one, "lost", [_range(each) for each in one.lost])
    reasons = dict.fromkeys(each.reason for each in one.unprovable if each.reason not in HARMLESS)
    for reason in reasons:
        yield from _places(one, reason)
    yield from _some(
        one,
        "mended",
        [_mended(each) for each in one.mended],
    )
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
    """The bytes that are not kept for a reason, which is said in words once."""
    found = [each for each in one.unprovable if each.reason == reason]
    if len(found) == 1:
        yield f"{one.name}: {reason}: {_place(found[0])}: {REASONS[reason]}"
        return
    size = output.human_bytes(sum(each.size for each in found))
    yield f"{one.name}: {reason}: {len(found)} places, {size}: {REASONS[reason]}"
    yield from _some(one, reason, [_place(each) for each in found])


def _place(one: Unprovable) -> str:
    """Bytes that are not kept; the offsets of sound batches among them."""
    place = f"{one.path} @ {one.position}, {output.counted(one.size, 'byte')}"
    if not one.batches:
        return place
    batches = output.counted(one.batches, "sound batch", "sound batches")
    return f"{place}, {batches}, offsets {one.first_offset} to {one.last_offset}"


def _end_of(transaction: HurtTransaction, one: SalvagedPartition) -> str:
    if not transaction.is_open:
        return ""
    return "; aborted" if one.markers else "; --abort-open ends it"


def _mended(one: Mended) -> str:
    """A batch of which only fields without a checksum were wrong, and which they are."""
    fields = (
        ("base offset", one.first_offset, one.said_offset),
        ("leader epoch", one.leader_epoch, one.said_epoch),
        ("size", one.size, one.said_size),
    )
    changed = [f"{what} {now}, it said {said}" for what, now, said in fields if now != said]
    return f"{one.path} @ {one.position}: {'; '.join(changed)}"


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
    yield (
        f"{partitions}, {output.human_bytes(plan.kept_bytes)} of "
        f"{output.human_bytes(plan.bytes)} kept in {plan.out}; {said}"
    )
    if plan.quarantined_bytes:
        yield (
            f"{output.human_bytes(plan.quarantined_bytes)} that are not kept lie in "
            f"{plan.beside / 'quarantine'}"
        )
    if report.unproven_records:
        records = output.counted(report.unproven_records, "record")
        yield f"{records} that may be right lie in {plan.beside / 'unproven'}"
    yield f"the report is {report.path}"
    if not report.ok:
        yield "a replica or a backup may have what is lost: 'kseg merge' takes it from there"


def _all_lost(plan: SalvagePlan) -> str:
    """How many records are lost in all, in words; other losses are those of bytes."""
    counts = [one.lost_records for one in plan.partitions if one.lost]
    known = sum(count or 0 for count in counts)
    most = "at most " if any(one.at_most for one in plan.partitions) else ""
    if None in counts:
        return "how many records are lost is not known"
    if not known:
        return "no record is known to be lost, but some bytes are not kept"
    return f"{most}{output.counted(known, 'record')} lost"


__all__ = ["salvage"]
