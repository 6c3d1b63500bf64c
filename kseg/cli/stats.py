"""`kseg stats`: `kseg.analysis.stats` on a command line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from kseg.cli import output
from kseg.cli.failures import Exit, complain, pass_over
from kseg.cli.info import BESIDES, HEAD, LEFT, PRIORITY, names_of, partition_row
from kseg.cli.parsing import Paths
from kseg.cli.paths import catalog_of
from kseg.commands import printable
from kseg.files.selection import Selection
from kseg.format.times import iso_text

if TYPE_CHECKING:
    from kseg.analysis.stats import StatsReport

#: Of a key that is shown as text; JSON has the whole.
_KEY_CHARACTERS_MAX = 32
#: Bars of a timeline.
_BARS_MAX = 24


def stats(
    paths: Paths,
    top: int,
    headers: bool,
    encoding: str,
    jobs: int,
    selection: Selection,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.analysis.stats import StatsOptions, stats_of

    options = StatsOptions(records=not headers, top=top)
    with output.progress("stats", 0) as bar:
        catalog = catalog_of(paths, selection, files="all")
        report = stats_of(catalog, options, threads=jobs, progress=bar.to, on_error="skip")
    for _path, _reason, error in report.skipped[len(catalog.skipped) :]:
        assert error is not None
        pass_over(error)
    if as_json:
        document = report.to_json(encoding=encoding)
        output.write_document("stats/1", {"path": output.path_field(paths), **document})
    else:
        _print(report)
    complain(
        *(f"kseg: {fault}" for partition in report.partitions for fault in partition.stats.faults)
    )
    return Exit.FOUND if report.fault_count else Exit.OK


_SIZES = ("p50", "p99", "max")


def _print(report: StatsReport) -> None:
    documents = [partition.document() for partition in report.partitions]
    named_rows = sorted(
        zip(names_of(documents), report.partitions, documents, strict=True),
        key=lambda named: -named[2]["bytes"],
    )
    output.write_fitted_table(
        (*HEAD, *_SIZES, "keys"),
        [_row(name, document) for name, _partition, document in named_rows],
        (*PRIORITY, *reversed(_SIZES[1:]), "keys", *BESIDES, _SIZES[0]),
        LEFT,
    )
    keys = [
        (
            name,
            _short(key.key),
            output.human_count(key.records),
            output.human_bytes(key.bytes),
            output.human_bytes(key.bytes_error) if key.bytes_error else None,
        )
        for name, partition, _document in named_rows
        for key in partition.top_keys
    ]
    if keys:
        output.write_line()
        head = ("partition", "key", "records", "bytes", "error")
        output.write_fitted_table(head, keys, ("key", "bytes", "records", "error"), LEFT)
    if any(partition.stats.records is not None for partition in report.partitions):
        _draw(report)
        output.write_line()
        output.write_lines(_estimates(with_errors=any(key[-1] for key in keys)))


def _draw(report: StatsReport) -> None:
    """Bars of records by time, and by size."""
    counted = [
        partition.stats.records
        for partition in report.partitions
        if partition.stats.records is not None
    ]
    line = reduce(
        lambda earlier, other: earlier.merge(other), (records.timeline for records in counted)
    )
    while len(line.bins) > _BARS_MAX:
        line = line.widened(line.width + 1)
    times = line.document()
    rows = zip(times["bins"], times["records"], strict=True)
    output.write_bars(
        "Records by time",
        [(iso_text(bin) or f"{bin} ms", count, f"{count}") for bin, count in rows],
    )
    sizes = reduce(
        lambda earlier, other: earlier.merge(other), (records.sizes for records in counted)
    )
    output.write_bars(
        "Records by size of key and value",
        [(f"< {output.human_bytes(end)}", count, f"{count}") for end, count in sizes.by_power()],
    )


def _estimates(*, with_errors: bool) -> Iterator[str]:
    from kseg.analysis.stats import DISTINCT_ERROR, QUANTILE_ERROR

    yield f"p50 and p99 are estimates, at most {QUANTILE_ERROR:.2%} too large; max is exact"
    yield f"keys, the different ones, are estimated with a standard error of {DISTINCT_ERROR:.1%}"
    if with_errors:
        yield "a key has its records and bytes at least; its bytes are more by its error at most"


def _row(name: str, document: dict[str, Any]) -> list[object]:
    sizes = document.get("record_bytes", {})
    return [
        *partition_row(name, document),
        *(None if at not in sizes else output.human_bytes(sizes[at]) for at in _SIZES),
        output.human_count(document.get("distinct_keys")),
    ]


def _short(key: bytes) -> str:
    text = printable(key.decode("utf-8", "replace"))
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"
