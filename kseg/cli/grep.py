"""`kseg grep`: the records that hold a text, bytes, or a match of a regular expression."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from kseg.catalog.sources import sources
from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.parsing import Paths
from kseg.cli.paths import partition_at, refuse_replicas, tier_of_run
from kseg.cli.records import RecordLines, Source, decoding, record_fields, row_style
from kseg.files.selection import Selection
from kseg.format.request import Request
from kseg.records.patterns import Pattern
from kseg.records.query import Range, parse_key
from kseg.records.scan import Scan
from kseg.stores.path import path_at


def grep(
    pattern: str,
    paths: Paths,
    regex: bool,
    is_hex: bool,
    fields: tuple[str, ...],
    ignore_case: bool,
    whole: bool,
    invert: bool,
    with_count: bool,
    list_only: bool,
    context: int,
    limit: int | None,
    form: str,
    encoding: str | None,
    isolation: str,
    open_transactions: str,
    on_corrupt: str,
    selection: Selection,
    offsets: Range,
    times: Range,
    decode_as: str | None,
    raw: bool,
    jobs: int,
) -> int:
    """Run the verb; returns the exit code."""
    only = with_count or list_only
    with usage_errors("--hex" if is_hex else ""):
        data = parse_key(f"hex:{pattern}") if is_hex else os.fsencode(pattern)
        wanted = Pattern(data, fields, regex, ignore_case, whole, invert)
    _check_options(with_count, list_only, bool(context) or form == "csv")
    request = Request(
        columns=("offset",) if only else record_fields(kafka07=False),
        offset=offsets,
        time=times,
        isolation=isolation,
        open_transactions=open_transactions,
        threads=jobs,
    )
    refuse_replicas(paths, selection)
    with usage_errors():
        places = sources([path_at(path) for path in paths], selection, tier=tier_of_run())
    lines = RecordLines(
        row_style(form, encoding),
        output.binary_stdout(),
        request,
        limit=limit,
        **decoding(decode_as, raw=raw),
    )
    lines.is_of_many = len(places) > 1
    if on_corrupt == "skip":
        take = output.taker(lines.out.write)
        request = replace(
            request, on_corrupt=lambda error: lines.find(error, error.path or "", take)
        )
    with output.progress("grep", 0, in_bytes=True) as bar:
        found = Scan(
            *(places, request.columns, request, "auto"),
            _limit=limit,
            _progress=bar.to,
        )
        found = found.holding(wanted, context)
        count = _write_places(found, form, list_only) if only else _write_records(found, lines)
    return lines.end() or (Exit.OK if count else Exit.FOUND)


def _check_options(with_count: bool, list_only: bool, has_rows: bool) -> None:
    """Refuse options that exclude each other.

    Raises:
        UsageError: they do.
    """
    if with_count + list_only + has_rows > 1:
        raise click.UsageError(
            "--count and -l exclude each other, --context and --format csv: they write no records."
        )


def _write_records(found: Scan, lines: RecordLines) -> int:
    """Write the records that were found; returns their number."""
    count, take = 0, output.taker(lines.out.write)
    with lines.sinks.sink(take) as sink:
        for columns in found:
            path = path_at(columns.source or "")
            directory = path.absolute().parent
            if tier_of_run() is not None:  # the names of objects say other things
                directory = path_at(f"{columns.topic}-{columns.partition}")
            partition = partition_at(directory)
            style = lines.style_of(partition.path.resolve().name, path.name)
            source = Source(path, style, lines.topic_of(partition.topic, None, None))
            lines.write_head(source)
            lines.write_columns(columns, source, sink, take)
            lines.out.flush()  # the first hits are printed before the search ends
            count += len(columns)
    return count


def _write_places(found: Scan, form: str, list_only: bool) -> int:
    """Write each partition or file with matching records, or all with counts; return the sum."""
    total = 0
    for source in found.sources:
        one = replace(found.head(1) if list_only else found, sources=(source,))
        path, count = str(source.path), sum(map(len, one))
        total += count
        if list_only and not count:
            continue
        if form == "jsonl":
            output.write_json({"path": path} if list_only else {"path": path, "count": count})
        else:
            output.write_line(path if list_only else f"{path}: {count}")
    return total
