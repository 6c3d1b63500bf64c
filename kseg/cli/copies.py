"""`kseg diff`, `merge` and `adopt`: copies compared, merged, and adopted by a stopped broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kseg
from kseg import plan_adoption
from kseg.cli import output
from kseg.cli.failures import Exit, complain, usage_errors
from kseg.cli.internal import unreset_share, write_resets
from kseg.cli.options import Paths
from kseg.cli.output import ITEMS_MAX, more_line, put_back
from kseg.cli.paths import tier_of_plans, tier_of_run
from kseg.files.names import parse_partition_dir
from kseg.files.selection import Selection
from kseg.format.times import iso_text
from kseg.reports import AdoptionPlan

if TYPE_CHECKING:
    from kseg.analysis.diff import Diff, PartitionDiff
    from kseg.analysis.pairs import Compared, CopySeen, Ranges
    from kseg.files.mapping import Mapping
    from kseg.log.copies import BatchSeen, MergedCopy, PartitionMerge
    from kseg.log.salvage import LostOffsets
    from kseg.reports import MergePlan


def _batch_line(seen: BatchSeen) -> str:
    """The place of a batch and the fields of its header, in words."""
    header = seen.header
    count = "" if header.record_count < 0 else f", {output.counted(header.record_count, 'record')}"
    producer = "" if header.producer_id < 0 else f", producer {header.producer_id}"
    return (
        f"{seen.path} @ {header.position}: epoch {header.leader_epoch}, "
        f"offsets {seen.first_offset} to {header.last_offset}{count}{producer}"
    )


# ---- diff ----------------------------------------------------------------------------------------


def diff(
    copies: Paths,
    records: bool,
    jobs: int,
    selection: Selection,
    mapping: Mapping,
    show_all: bool,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.analysis.diff import diff_of

    with usage_errors(), output.progress("diff", 0) as bar:
        report = diff_of(
            copies,
            records=records,
            chosen=selection.choice,
            mapping=mapping,
            threads=jobs,
            progress=bar.to,
        )
    if as_json:
        output.write_document("diff/1", {"path": list(copies), **report.to_json()})
    else:
        output.write_lines(_diff_page(report, show_all=show_all))
    return Exit.OK if report.ok else Exit.FOUND


def _diff_page(report: Diff, *, show_all: bool) -> Iterator[str]:
    """Lines about partitions that differ, with `show_all` about the others as well; then totals."""
    same = [partition for partition in report.partitions if _is_same(partition)]
    different = [partition for partition in report.partitions if not _is_same(partition)]
    for partition in (*different, *(same if show_all else ())):
        name = "" if partition.topic is None else f"{partition.topic}-{partition.partition}: "
        if partition.first.error is not None:
            yield f"{name}{partition.first.path}: {partition.first.error}"
        for pair in partition.compared:
            yield f"{name}{pair.copy.path}: {pair.relation}{_extent(partition, pair)}"
            yield from (f"  {line}" for line in _diff_details(partition, pair))
    if same and not show_all:
        yield f"{output.counted(len(same), 'partition')} the same in all copies; --all lists them"
    totals = ", ".join(f"{count} {word}" for word, count in report.totals.items())
    yield (
        f"{output.counted(len(report.partitions), 'partition')}, "
        f"{output.human_bytes(report.bytes)}, "
        f"{output.counted(report.batches, 'batch', 'batches')}: {totals or 'nothing to compare'}"
    )


def _is_same(partition: PartitionDiff) -> bool:
    """Whether there is nothing to report about a partition."""
    return (
        partition.ok
        and partition.first.error is None
        and not any(line for pair in partition.compared for line in _diff_details(partition, pair))
    )


def _extent(partition: PartitionDiff, pair: Compared) -> str:
    """The offsets of a copy, and those of the first copy if they differ, in words."""
    first = partition.first
    copy = pair.copy
    if copy.error is not None:
        return f": {copy.error}"
    if copy.log_end_offset is None:
        return ""
    if (first.log_start_offset, first.log_end_offset) == (
        copy.log_start_offset,
        copy.log_end_offset,
    ):
        return f": {_offsets(copy)}"
    return f": {_offsets(copy)}; {first.path} has {_offsets(first)}"


def _offsets(copy: CopySeen) -> str:
    """The offsets of a copy, in words."""
    start = copy.log_start_offset or 0
    end = copy.log_end_offset or 0
    return f"offsets {start} to {end - 1}" if end > start else f"no records, its log ends at {end}"


def _diff_details(partition: PartitionDiff, pair: Compared) -> Iterator[str]:
    """Lines about each kind of difference: the first ranges, and the number of the others."""
    first = partition.first.path
    for difference in pair.differences[:ITEMS_MAX]:
        recoded = len({batch.header.codec for batch in difference.batches}) > 1
        more = "; the codecs differ, --records compares the records" if recoded else ""
        yield f"differ in offsets {difference.first_offset} to {difference.last_offset}{more}:"
        yield from (f"  {_batch_line(batch)}" for batch in difference.batches)
    yield from more_line(pair.difference_count, "ranges differ")
    yield from _ranges(f"other leader epochs than {first}", pair.epochs)
    yield from _ranges(f"lacks what {first} has", pair.lacks[0])
    yield from _ranges(f"{first} lacks", pair.lacks[1])
    yield from _ranges("compaction took", pair.compacted[0])
    yield from _ranges(f"compaction took from {first}", pair.compacted[1])
    for copy in (partition.first, pair.copy):
        for lost in copy.unknown[:ITEMS_MAX]:
            last = "on" if lost.last_offset is None else f"to {lost.last_offset}"
            yield f"unknown: offsets {lost.first_offset} {last}, {lost.path} @ {lost.position}"
        yield from more_line(len(copy.unknown), f"unknown ranges in {copy.path}")


def _ranges(label: str, ranges: Ranges) -> Iterator[str]:
    """A line for each of the first ranges, and one for the rest."""
    for listed in ranges.listed[:ITEMS_MAX]:
        yield f"{label}: offsets {listed.first_offset} to {listed.last_offset}"
    yield from more_line(ranges.count, f"ranges: {label}")


# ---- merge ---------------------------------------------------------------------------------------


def merge(
    copies: Paths,
    out: str,
    prefer: str | None,
    jobs: int,
    selection: Selection,
    as_json: bool,
) -> int:
    """Run `kseg merge`; returns the exit code."""
    with usage_errors():
        plan = kseg.plan_merge(
            *copies,
            out=out,
            prefer=prefer,
            topics=selection.topics,
            partitions=selection.partitions,
            threads=jobs,
            tier=tier_of_plans(),
        )
    report: Path | None = None
    if not plan.undecided:
        with output.progress("merge", plan.bytes) as bar:
            report = plan.apply(progress=bar.to)
    _write_merge(plan, copies, report, as_json=as_json)
    return Exit.OK if plan.ok else Exit.FOUND


def _write_merge(plan: MergePlan, paths: Paths, report: Path | None, *, as_json: bool) -> None:
    """Print a merge; `report` is the file about it, None if nothing was written."""
    if as_json:
        written = {"applied": report is not None, "report": None if report is None else str(report)}
        output.write_document("merge/1", {"path": list(paths), **written, **plan.to_dict()})
        return
    output.write_lines(_merge_page(plan, report))


def _merge_page(plan: MergePlan, report: Path | None) -> Iterator[str]:
    """The partitions with their details, and how to put the merged logs in place."""
    for partition in plan.partitions:
        start = partition.log_start_offset
        end = partition.log_end_offset
        offsets = (
            f"offsets {start} to {end - 1}" if end > start else f"no records, it ends at {end}"
        )
        if partition.undecided:
            state = f"{partition.undecided} undecided"
        elif partition.ok:
            state = "whole"
        else:
            state = "not whole" if partition.missing else "differences"
        yield f"{partition.name}: {state}: {offsets}"
        yield from (f"  {line}" for line in _merge_details(partition))
    if plan.left_alone:
        yield (
            f"the log of KRaft is left out ({', '.join(plan.left_alone)}): move a damaged copy "
            "aside, and its controller fetches it from the others"
        )
    if report is None:
        yield (
            f"{output.counted(plan.undecided, 'conflict')}: nothing was written; --prefer DIR "
            "chooses the right copy"
        )
        yield from _compaction_advice(plan)
    else:
        yield (
            f"{plan.out}: {output.counted(len(plan.partitions), 'partition')}, "
            f"{output.human_bytes(plan.bytes)}; what came from where is in {report}"
        )
        changed = [
            (partition.name, Path(partition.copies[0].path))
            for partition in plan.partitions
            if _is_first_changed(partition)
        ]
        yield from put_back(changed, plan.out, report.parent)
        if len(changed) < len(plan.partitions):
            which = " of the other partitions" if changed else ""
            yield f"the first copies{which} are whole: they stay where they are"
        if changed:
            yield (
                "the other brokers of the copies fetch the partitions again: remove them there "
                "while these are stopped, and start the one with the merged log first"
            )


def _is_first_changed(merge: PartitionMerge) -> bool:
    """Whether the merged log differs from that of the first copy."""
    first, *other_copies = merge.copies
    return bool(
        first.damaged_bytes
        or any(copy.batches for copy in other_copies)
        or any(left.path == first.path for left in merge.left_out)
    )


def _compaction_advice(plan: MergePlan) -> Iterator[str]:
    """Advice for copies that may have been compacted separately."""
    if any(
        conflict.is_compacted for partition in plan.partitions for conflict in partition.conflicts
    ):
        yield (
            "some of them have fewer records of the same append: the copies may be compacted "
            "apart. 'kseg diff --records' says whether that is all; if one of them is sound, keep "
            "it whole rather than merge: a record whose tombstone is gone there would come back"
        )


def _merge_details(merge: PartitionMerge) -> Iterator[str]:
    """Lines about copies, missing ranges, ranges that are left out, and conflicts."""
    for copy in merge.copies:
        yield _merged_copy(copy)
    for missing in merge.missing[:ITEMS_MAX]:
        yield _missing_range(missing)
    yield from more_line(len(merge.missing), "ranges are missing")
    for left in merge.left_out:
        batches = output.counted(left.batches, "batch", "batches")
        offsets = f"offsets {left.first_offset} to {left.last_offset}"
        yield f"left out of {left.path}: {left.why}: {batches} in {offsets}"
    for conflict in merge.conflicts[:ITEMS_MAX]:
        decided = "the first is preferred" if conflict.decided else "undecided"
        decided += ", compacted apart?" if conflict.is_compacted else ""
        yield f"conflict at offset {conflict.offset}, {decided}:"
        yield from (f"  {_batch_line(seen)}" for seen in conflict.batches)
    yield from more_line(len(merge.conflicts), "conflicts")


def _merged_copy(copy: MergedCopy) -> str:
    """The part of a merge that came from a copy, in words."""
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


def _missing_range(missing: LostOffsets) -> str:
    """Offsets that no copy has, in words."""
    least = "at most " if missing.at_most else ""
    if missing.last_offset is None:
        return f"missing: {least}what followed offset {missing.first_offset - 1}, where damage is"
    return f"missing: {least}offsets {missing.first_offset} to {missing.last_offset}"


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
        plan = _write_group_offsets(plan, Path(groups_csv), how["at"])
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


def _write_group_offsets(plan: AdoptionPlan, path: Path, at: int | None) -> AdoptionPlan:
    """Write the offsets that groups have committed in the adopted partitions to a file.

    An offset outside of the adopted log moves to its nearest end. The plan that is returned names
    the commands that commit the file.
    """
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
    # The plan has a command that would write such a file, which is here already.
    others = (line for line in plan.after if line != plan.groups_command)
    return replace(plan, after=(*others, *write_resets(report, path, commits)))


def _say(plan: AdoptionPlan) -> None:
    """Print a table of partitions, then all that the plan has to say."""
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
    """Transactions, cuts, what is left out or refused, and the commands before and after."""
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
                f"{name}: {partition.behind['first']} records of no later time lie after the cut "
                f"'first', {partition.behind['last']} of a later time before the cut 'last'"
            )
        yield from (f"{name}: left out: {text}" for text in partition.left_out)
        yield from (f"{name}: {text}" for text in partition.notes)
    yield from (f"left out: {text}" for text in plan.left_out)
    yield from (f"refused: {text}" for text in plan.refused)
    for word, commands in (("before", plan.before), ("after", plan.after)):
        if commands:
            yield f"type {word} the adoption, while the broker runs:"
            yield from (f"    {command}" for command in commands)
