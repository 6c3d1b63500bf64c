"""`kseg diff`: `kseg.analysis.diff` on a command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kseg.cli import output
from kseg.cli.copies import ITEMS_MAX, batch_line, more_line
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.parsing import Selection

if TYPE_CHECKING:
    from kseg.analysis.diff import Compared, CopySeen, Diff, PartitionDiff, Ranges
    from kseg.files.mapping import Mapping


def diff(
    copies: tuple[str, ...],
    records: bool,
    jobs: int,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    mapping: Mapping,
    show_all: bool,
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    from kseg import diff as run

    with usage_errors(), output.progress("diff", 0) as bar:
        found = run(
            *copies,
            records=records,
            chosen=Selection(topics, partitions).choice,
            mapping=mapping,
            jobs=jobs,
            progress=bar.to,
        )
    return write_report(found, copies, as_json=as_json, show_all=show_all)


def write_report(
    found: Diff, paths: Sequence[str], *, as_json: bool, show_all: bool = False
) -> Exit:
    """Print how the copies compare; returns the exit code.

    Args:
        found: how they do.
        paths: as they were given.
        as_json: one document instead of text; it has all partitions in their order.
        show_all: also the partitions whose copies are the same, behind those that differ.
    """
    if as_json:
        output.write_document("diff/1", {"path": list(paths), **found.to_json()})
    else:
        output.write_lines(_page(found, show_all=show_all))
    return Exit.OK if found.ok else Exit.FOUND


def _page(found: Diff, *, show_all: bool) -> Iterator[str]:
    same = [one for one in found.partitions if _is_same(one)]
    different = [one for one in found.partitions if not _is_same(one)]
    for partition in (*different, *(same if show_all else ())):
        name = "" if partition.topic is None else f"{partition.topic}-{partition.partition}: "
        if partition.first.error is not None:
            yield f"{name}{partition.first.path}: {partition.first.error}"
        for one in partition.compared:
            yield f"{name}{one.copy.path}: {one.relation}{_extent(partition, one)}"
            yield from (f"  {line}" for line in _details(partition, one))
    if same and not show_all:
        yield f"{output.counted(len(same), 'partition')} the same in all copies; --all lists them"
    totals = ", ".join(f"{count} {word}" for word, count in found.totals.items())
    yield (
        f"{output.counted(len(found.partitions), 'partition')}, "
        f"{output.human_bytes(found.bytes)}, "
        f"{output.counted(found.batches, 'batch', 'batches')}: {totals or 'nothing to compare'}"
    )


def _is_same(partition: PartitionDiff) -> bool:
    """Whether nothing is to be said of a partition."""
    return (
        partition.ok
        and partition.first.error is None
        and not any(line for one in partition.compared for line in _details(partition, one))
    )


def _extent(partition: PartitionDiff, one: Compared) -> str:
    first, copy = partition.first, one.copy
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
    start, end = copy.log_start_offset or 0, copy.log_end_offset or 0
    return f"offsets {start} to {end - 1}" if end > start else f"no records, its log ends at {end}"


def _details(partition: PartitionDiff, one: Compared) -> Iterator[str]:
    first = partition.first.path
    for each in one.differences[:ITEMS_MAX]:
        yield f"differ in offsets {each.first_offset} to {each.last_offset}:"
        yield from (f"  {batch_line(batch)}" for batch in each.batches)
    yield from more_line(one.difference_count, "ranges differ")
    yield from _ranges(f"other leader epochs than {first}", one.epochs)
    yield from _ranges(f"lacks what {first} has", one.lacks[0])
    yield from _ranges(f"{first} lacks", one.lacks[1])
    yield from _ranges("compaction took", one.compacted[0])
    yield from _ranges(f"compaction took from {first}", one.compacted[1])
    for copy in (partition.first, one.copy):
        for lost in copy.unknown[:ITEMS_MAX]:
            last = "on" if lost.last_offset is None else f"to {lost.last_offset}"
            yield f"unknown: offsets {lost.first_offset} {last}, {lost.path} @ {lost.position}"
        yield from more_line(len(copy.unknown), f"unknown ranges in {copy.path}")


def _ranges(label: str, ranges: Ranges) -> Iterator[str]:
    for each in ranges.listed[:ITEMS_MAX]:
        yield f"{label}: offsets {each.first_offset} to {each.last_offset}"
    yield from more_line(ranges.count, f"ranges: {label}")
