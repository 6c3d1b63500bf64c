"""`kseg explain`: the reasons for a full disk, and until when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.parsing import GivenSettings, Paths, Setting, by_topic
from kseg.cli.paths import tier_of_plans
from kseg.cli.settings import check_settings, data_directories, defaults_lines
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

#: The most partitions, or segments of a list, that are printed; --json has all of them.
_LINES_MAX = 20


def explain(
    directories: Paths,
    supposed: tuple[Setting, ...],
    segments: bool,
    jobs: int,
    given: GivenSettings,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg import explain as run

    directories, given = data_directories(directories, given)
    what_if, topic_what_if = by_topic(supposed)
    with usage_errors(), output.progress("explain", 0) as bar:
        found = run(
            directories,
            **given.arguments,
            what_if=what_if,
            topic_what_if=topic_what_if,
            now=given.now_ms,
            threads=jobs,
            progress=bar.to,
            tier=tier_of_plans(),
        )
    return write_report(
        found, directories, (*given.settings, *supposed), segments=segments, as_json=as_json
    )


def write_report(
    found: ExplainReport,
    directories: Sequence[str],
    settings: Sequence[Setting],
    *,
    segments: bool,
    as_json: bool,
) -> Exit:
    """Print the reason for each byte; returns the exit code.

    Raises:
        UsageError: a setting was given for a topic that is not here.
    """
    check_settings(settings, {one.topic for one in found.partitions})
    if as_json:
        output.write_document("explain/1", {"path": list(directories), **found.to_json()})
    else:
        _write_totals(found)
        _write_partitions(found.partitions, segments=segments)
        output.write_lines(_rest(found, segments=segments))
    return Exit.OK if found.ok else Exit.FOUND


def _write_totals(found: ExplainReport) -> None:
    """Totals by cause."""
    from kseg.analysis.explain import CAUSES

    size = output.human_bytes(found.bytes)
    output.write_line(f"{size} in {output.counted(len(found.partitions), 'partition')}, by cause:")
    output.write_rows(
        ("cause", "bytes", "what it is", "goes from"),
        [
            (one.cause, output.human_bytes(one.bytes), CAUSES[one.cause], iso_text(one.next_ms))
            for one in found.totals
        ],
        _total,
        left=("cause", "what it is", "goes from"),
    )
    output.write_line()


def _total(cause: str, size: str, meaning: str, date: str | None) -> str:
    return f"  {size:>10}  {cause}: {meaning}{'' if date is None else f'; from {date} on'}"


def _rest(found: ExplainReport, *, segments: bool) -> Iterator[str]:
    """Lines about files outside of partitions, and about extra questions."""
    yield from _rows([row for row in found.elsewhere if row.cause != "metadata"], whole=segments)
    yield from (f"unknown: {why}" for why in found.unknown)
    unsettled = _unsettled(found.partitions, "policy-unknown")
    for cause in ("invalid-setting", "policy-unknown"):
        if reasons := _unsettled(found.partitions, cause):
            many = output.counted(len(reasons), "partition")
            yield f"{cause}: {many}, such as {reasons[0]}"
    yield from defaults_lines((one.topic, one.settings) for one in found.partitions)
    if found.what_if is not None:
        yield from _supposed(found.what_if, left_out=len(unsettled))
    if found.codecs:
        yield ""
        yield from map(_codec_line, found.codecs)


def _unsettled(partitions: Sequence[PartitionKeeps], cause: str) -> list[str]:
    """For each partition with files of a cause: its name, and the reason."""
    found: dict[str, str] = {}
    for one in partitions:
        for row in one.rows:
            if row.cause == cause:
                found.setdefault(one.path, f"{one.path}: {row.why}")
    return list(found.values())


def _write_partitions(partitions: Sequence[PartitionKeeps], *, segments: bool) -> None:
    """The largest first."""
    ordered = sorted(partitions, key=lambda one: -one.bytes)
    shown = ordered if segments else ordered[:_LINES_MAX]
    rows, below = [], []
    for one in shown:
        parts = ", ".join(f"{each.cause} {output.human_bytes(each.bytes)}" for each in one.totals)
        rows.append((one.path, output.human_bytes(one.bytes), parts or "empty"))
        notable = one.rows if segments else [row for row in one.rows if _is_odd(row)]
        below.append([*_rows(notable, "  ", whole=segments), *_remote_lines(one)])
    head = ("partition", "bytes", "by cause")
    output.write_rows(head, rows, "{}: {}: {}".format, left=(head[0], head[2]), below=below)
    if len(ordered) > len(shown):
        more = len(ordered) - len(shown)
        output.write_line(f"{more} more partitions; --segments or --json has all of them")


def _remote_lines(one: PartitionKeeps) -> Iterator[str]:
    if one.remote is not None:
        yield from (f"  {line}" for line in one.remote.lines(f"{one.topic}-{one.partition}"))


def _is_odd(row: KeptFile) -> bool:
    return row.cause in ("unknown", "uncleanable", "future-timestamp", "open-transaction")


def _rows(rows: Sequence[KeptFile], indent: str = "", *, whole: bool = True) -> Iterator[str]:
    shown = rows if whole else rows[:_LINES_MAX]
    for row in shown:
        yield f"{indent}{_row(row)}"
    if len(rows) > len(shown):
        yield f"{indent}{len(rows) - len(shown)} more; --segments or --json has all of them"


def _row(row: KeptFile) -> str:
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


def _supposed(found: WhatIf, *, left_out: int) -> Iterator[str]:
    size = output.human_bytes(found.bytes)
    yield ""
    yield f"with {', '.join(found.settings)}: {size} would go at once"
    if left_out:
        many = output.counted(left_out, "partition")
        yield f"  left out, unless a setting names the topic: {many} whose policy is not known"
    for name, topics in found.own.items():
        own = some_of(topics)
        yield f"  {name} is set by {own}: --what-if TOPIC:{name}=VALUE changes it"
    for label, rows in (("goes", found.goes), ("sooner", found.sooner), ("stays", found.stays)):
        for line in _rows(rows, whole=False):
            yield f"  {label}: {line}"


def _codec_line(one: CodecEstimate) -> str:
    size, made, error, sampled = map(
        output.human_bytes, (one.bytes, one.new_bytes, one.error_bytes, one.sampled_bytes)
    )
    how = one.compression.replace("none", "no codec") + (
        "" if one.level is None else f" at level {one.level}"
    )
    return f"{one.topic}: {size} would be {made} +- {error} with {how}; by a sample of {sampled}"
