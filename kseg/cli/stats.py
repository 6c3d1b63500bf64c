"""`kseg stats`: `kseg.analysis.stats` on a command line."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kseg.cli import output
from kseg.cli.failures import Exit, complain, pass_over
from kseg.cli.options import (
    Selection,
    jobs_option,
    json_option,
    paths_argument,
    selection_options,
    stats_options,
)
from kseg.cli.partition_rows import HEAD, partition_row
from kseg.cli.paths import places

if TYPE_CHECKING:
    from kseg.analysis.stats import PartitionReport, StatsReport

#: Of a key that is shown as text; JSON has the whole.
_KEY_CHARACTERS_MAX = 60


@click.command()
@paths_argument
@stats_options
@jobs_option
@selection_options
@json_option
def stats(
    paths: tuple[str, ...],
    top: int,
    headers: bool,
    encoding: str,
    jobs: int,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
) -> int:
    """Count what fills the disk: batches, records, sizes, times, codecs and top keys.

    Sizes of records are those of key and value before compression. Quantiles are at most a
    sixteenth too large, numbers of different keys are within about 2 %, and the bytes of a top key
    are exact unless an error is shown. Counts are of the files: an offset that two segments hold
    counts twice.
    """
    from kseg.analysis.stats import StatsOptions
    from kseg.analysis.stats import stats as run

    options = StatsOptions(records=not headers, top=top)
    with output.progress("stats", 0) as bar:
        report = run(
            list(places(paths, Selection(topics, partitions))),
            options=options,
            jobs=jobs,
            progress=bar.to,
            on_error="skip",
        )
    for skipped in report.skipped:
        pass_over(skipped.error)
    return write_report(report, paths, encoding, as_json=as_json)


def write_report(
    report: StatsReport, paths: Sequence[str], encoding: str, *, as_json: bool
) -> Exit:
    """Print the counts, and faults on standard error; returns the exit code."""
    if as_json:
        write = _ENCODERS[encoding]
        rows = [_document(one, write) for one in report.partitions]
        output.write_document("stats/1", {"path": output.path_field(paths), "partitions": rows})
    else:
        _print(report)
    for one in report.partitions:
        for fault in one.stats.faults:
            complain(f"kseg: {fault}")
    return Exit.FOUND if report.fault_count else Exit.OK


def _utf8(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_ENCODERS: dict[str, Callable[[bytes], str]] = {
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "utf8": _utf8,
    "hex": bytes.hex,
}


def _document(one: PartitionReport, write: Callable[[bytes], str]) -> dict[str, Any]:
    document = one.document()
    for key in document.get("top_keys", ()):
        key["key"] = write(key["key"])
    return document


_SIZES = ("p50", "p99", "max")


def _print(report: StatsReport) -> None:
    output.write_table((*HEAD, *_SIZES, "keys"), [_row(one) for one in report.partitions])
    keys = [
        (one.dir or one.path, _short(key.key), key.records, key.bytes, key.bytes_error or None)
        for one in report.partitions
        for key in one.top_keys
    ]
    if keys:
        output.write_line()
        output.write_table(("partition", "key", "records", "bytes", "error"), keys)


def _row(one: PartitionReport) -> list[object]:
    document = one.document()
    sizes = document.get("record_bytes", {})
    return [
        *partition_row(one.dir or one.path, document),
        *(sizes.get(name) for name in _SIZES),
        document.get("distinct_keys"),
    ]


def _short(key: bytes) -> str:
    text = _utf8(key)
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"
