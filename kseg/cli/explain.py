"""`kseg explain`: the reasons for a full disk, and until when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.options import CommandSettings, Paths, Setting, by_topic
from kseg.cli.paths import check_settings, data_directories, defaults_lines, tier_of_plans
from kseg.files.selection import some_of
from kseg.format.times import iso_text

if TYPE_CHECKING:
    from kseg.analysis.explain import (
        CodecEstimate,
        ExplainReport,
        KeptFile,
        PartitionKeeps,
        WhatIf,
    )

#: The causes of the files that are shown also without `--segments`.
_ODD_CAUSES = ("unknown", "uncleanable", "future-timestamp", "open-transaction")
#: The most partitions, or segments of a list, that are printed; --json has all of them.
_LINES_MAX = 20


def explain(
    directories: Paths,
    supposed: tuple[Setting, ...],
    segments: bool,
    jobs: int,
    command_settings: CommandSettings,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg import explain as run

    directories, command_settings = data_directories(directories, command_settings)
    what_if, topic_what_if = by_topic(supposed)
    with usage_errors(), output.progress("explain", 0) as bar:
        report = run(
            directories,
            **command_settings.arguments,
            what_if=what_if,
            topic_what_if=topic_what_if,
            now=command_settings.now_ms,
            threads=jobs,
            progress=bar.to,
            tier=tier_of_plans(),
        )
    topics = {partition.topic for partition in report.partitions}
    check_settings((*command_settings.settings, *supposed), topics)
    if as_json:
        output.write_document("explain/1", {"path": list(directories), **report.to_json()})
    else:
        _write_totals(report)
        _write_partitions(report.partitions, segments=segments)
        output.write_lines(_lines_of_other_files(report, segments=segments))
    return Exit.OK if report.ok else Exit.FOUND


def _write_totals(report: ExplainReport) -> None:
    """Write the totals by cause."""
    size = output.human_bytes(report.bytes)
    output.write_line(f"{size} in {output.counted(len(report.partitions), 'partition')}, by cause:")
    output.write_rows(
        ("cause", "bytes", "what it is", "goes from"),
        [
            (
                total.cause,
                output.human_bytes(total.bytes),
                total.meaning,
                iso_text(total.next_ms),
            )
            for total in report.totals
        ],
        _total,
        left=("cause", "what it is", "goes from"),
    )
    output.write_line()


def _total(cause: str, size: str, meaning: str, date: str | None) -> str:
    """The line of a cause, where there is no table."""
    return f"  {size:>10}  {cause}: {meaning}{'' if date is None else f'; from {date} on'}"


def _lines_of_other_files(report: ExplainReport, *, segments: bool) -> Iterator[str]:
    """Lines about files outside of partitions, and about extra questions."""
    yield from _rows([row for row in report.elsewhere if row.cause != "metadata"], whole=segments)
    yield from (f"unknown: {why}" for why in report.unknown)
    unsettled = _reasons_by_partition(report.partitions, "policy-unknown")
    for cause in ("invalid-setting", "policy-unknown"):
        if reasons := _reasons_by_partition(report.partitions, cause):
            many = output.counted(len(reasons), "partition")
            yield f"{cause}: {many}, such as {reasons[0]}"
    yield from defaults_lines(
        (partition.topic, partition.settings) for partition in report.partitions
    )
    if report.what_if is not None:
        yield from _what_if_lines(report.what_if, left_out=len(unsettled))
    if report.codecs:
        yield ""
        yield from map(_codec_line, report.codecs)


def _reasons_by_partition(partitions: Sequence[PartitionKeeps], cause: str) -> list[str]:
    """A line for each partition with files of a cause: its path, and the reason."""
    reasons: dict[str, str] = {}
    for partition in partitions:
        for row in partition.rows:
            if row.cause == cause:
                reasons.setdefault(partition.path, f"{partition.path}: {row.why}")
    return list(reasons.values())


def _write_partitions(partitions: Sequence[PartitionKeeps], *, segments: bool) -> None:
    """Write the partitions, the largest first."""
    ordered = sorted(partitions, key=lambda partition: -partition.bytes)
    shown = ordered if segments else ordered[:_LINES_MAX]
    rows = []
    below = []
    for partition in shown:
        parts = ", ".join(
            f"{total.cause} {output.human_bytes(total.bytes)}" for total in partition.totals
        )
        rows.append((partition.path, output.human_bytes(partition.bytes), parts or "empty"))
        notable = [row for row in partition.rows if segments or row.cause in _ODD_CAUSES]
        below.append(
            [
                *_rows(notable, "  ", whole=segments),
                *_roll_lines(partition),
                *_remote_lines(partition),
            ]
        )
    head = ("partition", "bytes", "by cause")
    output.write_rows(head, rows, "{}: {}: {}".format, left=(head[0], head[2]), below=below)
    if len(ordered) > len(shown):
        more = len(ordered) - len(shown)
        output.write_line(f"{more} more partitions; --segments or --json has all of them")


def _roll_lines(partition: PartitionKeeps) -> Iterator[str]:
    """Lines about why a partition has many small segments."""
    from kseg.analysis.explain import ROLLS

    if partition.rolls:
        count = output.counted(sum(partition.rolls.values()), "segment")
        yield f"  {count} ended below half of segment.bytes:"
        yield from (f"    {number} {ROLLS[name]}" for name, number in partition.rolls.items())


def _remote_lines(partition: PartitionKeeps) -> Iterator[str]:
    """Lines about the segments of a partition in a tier; nothing if it has no tier."""
    if partition.remote is not None:
        yield from (
            f"  {line}"
            for line in partition.remote.lines(f"{partition.topic}-{partition.partition}")
        )


def _rows(rows: Sequence[KeptFile], indent: str = "", *, whole: bool = True) -> Iterator[str]:
    """A line for each file; unless `whole`, only for the first ones, and one about the rest."""
    shown = rows if whole else rows[:_LINES_MAX]
    for row in shown:
        yield f"{indent}{_row(row)}"
    if len(rows) > len(shown):
        yield f"{indent}{len(rows) - len(shown)} more; --segments or --json has all of them"


def _row(row: KeptFile) -> str:
    """The line of a file: its path, its size, its cause, and when it is deleted."""
    size = output.human_bytes(row.bytes + row.index_bytes)
    parts = [f"{row.path}: {size}: {row.cause}"]
    if row.why:
        parts.append(row.why)
    if row.cause == "future-timestamp" and row.holder is not None:
        time = iso_text(row.holder.timestamp) or str(row.holder.timestamp)
        parts.append(f"offset {row.holder.offset} of {row.holder.path} has the time {time}")
    if row.until_ms is not None:
        parts.append(f"goes at {iso_text(row.until_ms) or row.until_ms}")
    if row.grows_bytes is not None and row.grows_bytes > 0:
        parts.append(f"expires when the log has {row.grows_bytes} bytes more")
    return "; ".join(parts)


def _what_if_lines(what_if: WhatIf, *, left_out: int) -> Iterator[str]:
    """Lines with the answer to `--what-if`.

    Args:
        what_if: the answer.
        left_out: the number of partitions left out of it, as their policy is not known.
    """
    size = output.human_bytes(what_if.bytes)
    yield ""
    yield f"with {', '.join(what_if.settings)}: {size} would go at once"
    if left_out:
        many = output.counted(left_out, "partition")
        yield f"  left out, unless a setting names the topic: {many} whose policy is not known"
    for name, topics in what_if.own.items():
        topic_list = some_of(topics)
        yield f"  {name} is set by {topic_list}: --what-if TOPIC:{name}=VALUE changes it"
    for label, rows in (
        ("goes", what_if.goes),
        ("sooner", what_if.sooner),
        ("stays", what_if.stays),
    ):
        for line in _rows(rows, whole=False):
            yield f"  {label}: {line}"


def _codec_line(estimate: CodecEstimate) -> str:
    """The size of a topic in another codec, with the error of the estimate."""
    size, new_size, error, sampled = map(
        output.human_bytes,
        (estimate.bytes, estimate.new_bytes, estimate.error_bytes, estimate.sampled_bytes),
    )
    how = estimate.compression.replace("none", "no codec") + (
        "" if estimate.level is None else f" at level {estimate.level}"
    )
    return (
        f"{estimate.topic}: {size} would be {new_size} +- {error} with {how}; by a sample of"
        f" {sampled}"
    )
