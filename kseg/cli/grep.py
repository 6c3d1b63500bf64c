"""`kseg grep`: the records that hold a text, bytes, or a match of a regular expression."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click

from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.parsing import Paths
from kseg.cli.records import ROW_FIELDS, RecordLines, decoding, row_style
from kseg.cli.typed import scanned
from kseg.records.patterns import Pattern
from kseg.records.query import parse_key
from kseg.records.scan import Scan


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
    _check_options(with_count, list_only, bool(context) or form == "csv")
    lines = RecordLines(
        row_style(form, encoding),
        output.binary_stdout(),
        **decoding(decode_as, raw=raw or "decode" in query),
    )
    if query["on_corrupt"] == "skip":
        query["on_corrupt"] = lines.note
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


def _check_options(with_count: bool, list_only: bool, has_rows: bool) -> None:
    """Refuse options that exclude each other.

    Raises:
        UsageError: they do.
    """
    if with_count + list_only + has_rows > 1:
        raise click.UsageError(
            "--count and -l exclude each other, --context and --format csv: they write no records."
        )


def _write_places(matches: Scan, form: str, list_only: bool) -> int:
    """Write each partition or file with matching records, or all with counts; return the sum."""
    total = 0
    for source in matches.sources:
        of_source = replace(matches.head(1) if list_only else matches, sources=(source,))
        path, count = str(source.path), sum(map(len, of_source))
        total += count
        if list_only and not count:
            continue
        if form == "jsonl":
            output.write_json({"path": path} if list_only else {"path": path, "count": count})
        else:
            output.write_line(path if list_only else f"{path}: {count}")
    return total
