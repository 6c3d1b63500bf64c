"""`kseg read`: the records of a log as a consumer would see them; `kseg grep`: those that match."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.main import ReaderGone
from kseg.cli.options import LOCAL_PATH
from kseg.cli.parsing import Paths
from kseg.cli.paths import one_partition
from kseg.cli.records import ROW_FIELDS, RecordLines, decoding, row_style, within
from kseg.cli.typed import scanned
from kseg.files.selection import Selection
from kseg.format.take import first_rows, take_rows
from kseg.format.values import RecordColumns
from kseg.log.log import Log
from kseg.records.patterns import Pattern
from kseg.records.query import parse_key
from kseg.records.scan import Scan


def read(
    paths: Paths,
    query: dict[str, Any],
    form: str,
    encoding: str | None,
    decode_as: str | None,
    raw: bool,
    follow: bool,
    recreated: str,
) -> int:
    """Run the verb; returns the exit code."""
    if "decode" in query and decode_as is not None:
        raise click.UsageError("--decode and --decode-key or --decode-value exclude each other.")
    if recreated == "start" and not follow:
        raise click.UsageError("--recreated wants --follow.")
    if follow and query["on_corrupt"] == "skip":
        raise click.UsageError("--follow ends at damage: --on-corrupt skip is for other reads.")
    if follow and ("partitioner" in query or query.get("control")):
        raise click.UsageError("--partitioner and --control are for reads without --follow.")
    lines = _lines(query, form, encoding, decode_as, raw)
    jobs = 1 if "limit" in query or "last" in query else query["threads"]
    query |= {"threads": 1, "columns": ROW_FIELDS}
    if follow:
        LOCAL_PATH.convert(paths[0], None, None)  # nothing tells of changes in a store
        selection = Selection.of(query.get("topics"), query.get("partitions"))
        path = one_partition(paths, selection).path
        _follow(lines, path, scanned((str(path),), query), query.get("limit"), recreated)
    else:
        records = scanned(paths, query)
        lines.is_of_many = len(paths) > 1 or [*map(str, paths)] != [str(records.sources[0].path)]
        lines.write(records, jobs)
    return lines.end()


def _lines(
    query: dict[str, Any], form: str, encoding: str | None, decode_as: str | None, raw: bool
) -> RecordLines:
    """The lines on standard output; they note the faults that the query passes over."""
    how = decoding(decode_as, raw=raw or "decode" in query)
    lines = RecordLines(row_style(form, encoding), output.binary_stdout(), **how)
    if query["on_corrupt"] == "skip":
        query["on_corrupt"] = lines.note
    return lines


def _follow(
    lines: RecordLines, path: Path, records: Scan, limit: int | None, recreated: str
) -> None:
    """Write the records of a partition, and then new ones as they come."""
    request = records.request
    committed = request.isolation == "read_committed"
    with Log.open(path) as log:
        log_end = log.last_stable_offset if committed else log.log_end_offset
        begin = max(log.log_start_offset, request.offset_start)
        if log_end >= request.offset_end or records.counts[1] is not None:
            # The tail is shown once; from there on nothing is held back any more.
            lines.write(records.at({records.sources[0].path: log.view}))
            if log_end >= request.offset_end:
                return
            begin = max(log_end, request.offset_start)
        lines.out.flush()
        new = log.follow(
            begin,
            stop=ReaderGone(),
            recreated=recreated,
            isolation=request.isolation,
            columns=request.columns,
        )
        lines.write_pieces(records, first_rows(_within(records, new), limit))


def _within(records: Scan, new: Iterator[RecordColumns]) -> Generator[RecordColumns]:
    """New records within the bounds of a scan; only the isolation was applied before."""
    request = records.request
    source = records.sources[0]
    for columns in new:
        offsets = columns["offset"]
        times = columns["timestamp_ms"]
        keep = within(request, len(columns), (offsets, offsets), (times, times))
        yield records.chosen(source, take_rows(columns, np.flatnonzero(keep)))
        if int(offsets[-1]) >= request.offset_end - 1:
            return


# ---- a search ------------------------------------------------------------------------------------


def grep(
    pattern: str,
    paths: Paths,
    query: dict[str, Any],
    regex: bool,
    is_hex: bool,
    fields: tuple[str, ...],
    ignore_case: bool,
    whole: bool,
    invert: bool,
    with_count: bool,
    list_only: bool,
    context: int,
    form: str,
    encoding: str | None,
    decode_as: str | None,
    raw: bool,
) -> int:
    """Run the verb; returns the exit code."""
    only = with_count or list_only
    with usage_errors("--hex" if is_hex else ""):
        data = parse_key(f"hex:{pattern}") if is_hex else os.fsencode(pattern)
        searched = Pattern(data, fields, regex, ignore_case, whole, invert)
    if with_count + list_only + (context > 0 or form == "csv") > 1:
        raise click.UsageError(
            "--count and -l exclude each other, --context and --format csv: they write no records."
        )
    lines = _lines(query, form, encoding, decode_as, raw)
    with output.progress("grep", 0, in_bytes=True) as bar:
        query |= {"columns": ("offset",) if only else ROW_FIELDS, "progress": bar.to}
        with usage_errors():
            matches = scanned(paths, query).holding(searched, context)
        lines.is_of_many = len(matches.sources) > 1
        if only:
            has_any = _write_places(matches, form, list_only) > 0
        else:
            lines.write(matches)
            has_any = not lines.is_empty
    return lines.end() or (Exit.OK if has_any else Exit.FOUND)


def _write_places(matches: Scan, form: str, list_only: bool) -> int:
    """Write each partition or file with matching records, or all with counts; return the sum."""
    total = 0
    for source in matches.sources:
        of_source = replace(matches.head(1) if list_only else matches, sources=(source,))
        path = str(source.path)
        count = sum(map(len, of_source))
        total += count
        if list_only and not count:
            continue
        if form == "jsonl":
            output.write_json({"path": path} if list_only else {"path": path, "count": count})
        else:
            output.write_line(path if list_only else f"{path}: {count}")
    return total
