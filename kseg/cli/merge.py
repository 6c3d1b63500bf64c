"""`kseg merge`: `kseg.plan_merge` and `kseg.apply_merge` on a command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.cli import output
from kseg.cli.copies import ITEMS_MAX, batch_line, more_line, put_back
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.parsing import Selection

if TYPE_CHECKING:
    from kseg import MergePlan
    from kseg.log.copies import MergedCopy, PartitionMerge
    from kseg.log.salvage import LostOffsets


def merge(
    copies: tuple[str, ...],
    out: str,
    prefer: str | None,
    jobs: int,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
) -> int:
    """Run `kseg merge`; returns the exit code."""
    from kseg import apply_merge, plan_merge

    with usage_errors():
        plan = plan_merge(
            *copies, out=out, prefer=prefer, chosen=Selection(topics, partitions).choice, jobs=jobs
        )
    report: Path | None = None
    if not plan.undecided:
        with output.progress("merge", plan.bytes) as bar:
            report = apply_merge(plan, progress=bar.to)
    _write(plan, copies, report, as_json=as_json)
    return Exit.OK if plan.ok else Exit.FOUND


def _write(plan: MergePlan, paths: tuple[str, ...], report: Path | None, *, as_json: bool) -> None:
    if as_json:
        written = {"applied": report is not None, "report": None if report is None else str(report)}
        output.write_document("merge/1", {"path": list(paths), **written, **plan.to_dict()})
        return
    output.write_lines(_page(plan, report))


def _page(plan: MergePlan, report: Path | None) -> Iterator[str]:
    for each in plan.partitions:
        yield _heading(each)
        yield from (f"  {line}" for line in _details(each))
    if plan.left_alone:
        yield (
            f"the log of KRaft is left out ({', '.join(plan.left_alone)}): move a damaged copy "
            "aside, and its controller fetches it from the others"
        )
    if report is None:
        yield (
            f"{output.counted(plan.undecided, 'conflict')}: nothing was written; --prefer DIR says "
            "which copy is right"
        )
        yield from _compacted(plan)
    else:
        yield (
            f"{plan.out}: {output.counted(len(plan.partitions), 'partition')}, "
            f"{output.human_bytes(plan.bytes)}; what came from where is in {report}"
        )
        readable = [(each.name, Path(each.copies[0].path)) for each in plan.partitions]
        yield from put_back(readable, plan.out, report.parent)
        yield (
            "the other brokers of the copies fetch the partitions anew: remove them there while "
            "these are stopped, and start the one with the merged log first"
        )


def _compacted(plan: MergePlan) -> Iterator[str]:
    """What to do if the copies may be compacted apart."""
    if any(one.is_compacted for each in plan.partitions for one in each.conflicts):
        yield (
            "some of them have fewer records of the same append: the copies may be compacted "
            "apart. 'kseg diff --records' says whether that is all; if one of them is sound, keep "
            "it whole rather than merge: a record whose tombstone is gone there would come back"
        )


def _heading(merge: PartitionMerge) -> str:
    start, end = merge.log_start_offset, merge.log_end_offset
    offsets = f"offsets {start} to {end - 1}" if end > start else f"no records, it ends at {end}"
    state = "whole" if merge.ok else "differences" if not merge.missing else "not whole"
    state = f"{merge.undecided} undecided" if merge.undecided else state
    return f"{merge.name}: {state}: {offsets}"


def _details(merge: PartitionMerge) -> Iterator[str]:
    for copy in merge.copies:
        yield _copy(copy)
    for each in merge.missing[:ITEMS_MAX]:
        yield _missing(each)
    yield from more_line(len(merge.missing), "ranges are missing")
    for left in merge.left_out:
        batches = output.counted(left.batches, "batch", "batches")
        offsets = f"offsets {left.first_offset} to {left.last_offset}"
        yield f"left out of {left.path}: {left.why}: {batches} in {offsets}"
    for conflict in merge.conflicts[:ITEMS_MAX]:
        decided = "the first is preferred" if conflict.decided else "undecided"
        decided += ", compacted apart?" if conflict.is_compacted else ""
        yield f"conflict at offset {conflict.offset}, {decided}:"
        yield from (f"  {batch_line(seen)}" for seen in conflict.batches)
    yield from more_line(len(merge.conflicts), "conflicts")


def _copy(copy: MergedCopy) -> str:
    if copy.error is not None:
        return f"{copy.path}: cannot be read: {copy.error}"
    parts = [
        f"epoch {copy.leader_epoch}",
        f"gives {output.counted(copy.batches, 'batch', 'batches')}, "
        f"{output.human_bytes(copy.bytes)}",
    ]
    if copy.damaged_bytes:
        parts.append(f"{copy.damaged_bytes} bytes damaged")
    if copy.diverges_at is not None:
        parts.append(f"diverges at offset {copy.diverges_at}")
    return f"{copy.path}: {', '.join(parts)}"


def _missing(missing: LostOffsets) -> str:
    least = "at most " if missing.at_most else ""
    if missing.last_offset is None:
        return f"missing: {least}what followed offset {missing.first_offset - 1}, where damage is"
    return f"missing: {least}offsets {missing.first_offset} to {missing.last_offset}"
