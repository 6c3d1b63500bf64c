"""`kseg info`: the contents of a directory, from headers and indexes alone; `kseg stats`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from kseg.analysis.info import info_of
from kseg.cli import output
from kseg.cli.failures import Exit, complain, complain_of, pass_over
from kseg.cli.internal import mention
from kseg.cli.output import human_bytes, human_count
from kseg.cli.parsing import Paths
from kseg.cli.paths import catalog_of, tier_of_run
from kseg.commands import printable
from kseg.files.selection import Selection
from kseg.format.times import iso_text

if TYPE_CHECKING:
    from kseg.analysis.stats import StatsReport

HEAD: Final = (
    "partition",
    "segments",
    "start",
    "end",
    "bytes",
    "batches",
    "records",
    "from",
    "to",
    "codecs",
    "magic",
)
#: The columns that a narrow terminal shows, the first ones first.
PRIORITY: Final = ("segments", "start", "end", "bytes", "records")
#: The further columns that a wider one shows, likewise.
BESIDES: Final = ("to", "from", "codecs", "batches", "magic")
_MINUTES: Final = len("2026-11-24T17:52")


def info(
    paths: Paths,
    selection: Selection,
    per_segment: bool,
    jobs: int,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    if tier_of_run() is not None:
        return _info_of_tier(paths, selection, as_json=as_json)
    catalog = catalog_of(paths, selection, files="all")
    partitions = info_of(catalog, threads=jobs)
    documents = [partition.document() for partition in partitions]
    if as_json:
        output.write_document("info/1", {"path": output.path_field(paths), "partitions": documents})
    else:
        _print(documents, per_segment=per_segment)
        output.write_lines(
            f"{partition.path}: {note.replace(', and are not read', '')}"
            for partition in partitions
            for note in partition.notes
        )
        mention(catalog)
    faults = [fault for partition in partitions for fault in partition.faults]
    complain_of(faults)
    return Exit.FOUND if faults else Exit.OK


#: The columns of `--tier`.
_TIER_HEAD: Final = (
    *("partition", "layout", "source", "start", "end", "local start"),
    *("remote", "bytes remote", "local", "bytes local", "overlap"),
)


def _info_of_tier(paths: Paths, selection: Selection, *, as_json: bool) -> int:
    """Print where the segments of each partition are: here, or in the tier."""
    from kseg.analysis.tiers import describe, traffic

    tier = tier_of_run()
    assert tier is not None
    documents = [
        describe(tier, tier.log(partition.path)) for partition in catalog_of(paths, selection)
    ]
    if as_json:
        output.write_document("info/1", {"path": output.path_field(paths), "partitions": documents})
    else:
        shown = (*_TIER_HEAD[3:], *_TIER_HEAD[1:3])
        output.write_fitted_table(_TIER_HEAD, map(_tier_row, documents), shown)
        output.write_lines(
            f"{document['path']}: offsets {first} to {last} are in neither part"
            for document in documents
            for first, last in document["holes"]
        )
        counts = traffic(tier)
        output.write_line(
            f"{counts['requests']} requests, "
            f"{human_bytes(counts['bytes_read'])} read from the store"
        )
    faults = [fault for document in documents for fault in document["faults"]]
    complain(*(f"kseg: {fault}" for fault in faults))
    return Exit.FOUND if faults else Exit.OK


def _tier_row(document: dict[str, Any]) -> list[object]:
    names = ("layout", "source", "log_start_offset", "log_end_offset", "local_start_offset")
    return [
        f"{document['topic']}-{document['partition']}",
        *(document[name] for name in names),
        document["remote"]["segments"],
        human_bytes(document["remote"]["bytes"]),
        document["local"]["segments"],
        human_bytes(document["local"]["bytes"]),
        human_bytes(document["overlap"]["bytes"]),
    ]


def _print(documents: list[dict[str, Any]], *, per_segment: bool) -> None:
    rows = []
    named = zip(names_of(documents), documents, strict=True)
    for name, document in sorted(named, key=lambda pair: -pair[1]["bytes"]):
        rows.append(partition_row(name, document))
        if per_segment:
            rows += [_segment_row(document) for document in document["segment_files"]]
    output.write_fitted_table(HEAD, rows, (*PRIORITY, *BESIDES))


def _segment_row(document: dict[str, Any]) -> list[object]:
    start = document["base_offset"]
    last = document["last_offset"]
    offsets = {
        "log_start_offset": start,
        "log_end_offset": start if last is None else last + 1,
    }
    return partition_row("  " + document["file"], document | offsets)


# ---- a line for a partition ----------------------------------------------------------------------


def partition_row(name: str, document: dict[str, Any]) -> list[object]:
    """The columns of `HEAD` from a partition's document; a dash for a missing one."""
    return [
        name,
        *(document.get(field) for field in ("segments", "log_start_offset", "log_end_offset")),
        human_bytes(document["bytes"]),
        human_count(document["batches"]),
        human_count(document["records"]),
        _minute(document["min_timestamp"]),
        _minute(document["max_timestamp"]),
        ",".join(document["codecs"]),
        ",".join(map(str, document["magics"])),
    ]


def _minute(time: int | None) -> str | None:
    text = iso_text(time)
    return text if text is None or "T" not in text else f"{text[:_MINUTES]}Z"


def names_of(documents: Sequence[dict[str, Any]]) -> list[str]:
    """Names of rows: the last part of each path, or the whole path if several end so."""
    names = [document["dir"] or os.path.basename(document["path"]) for document in documents]
    counts = Counter(names)
    return [
        name if counts[name] == 1 else document["path"]
        for name, document in zip(names, documents, strict=True)
    ]


# ---- statistics ----------------------------------------------------------------------------------


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
        report = stats_of(catalog, options, threads=jobs, progress=bar.to, skipped=[])
    for _path, _reason, error in report.skipped:
        assert error is not None
        pass_over(error)
    if as_json:
        document = report.to_json(encoding=encoding)
        output.write_document("stats/1", {"path": output.path_field(paths), **document})
    else:
        _print_stats(report)
    complain(
        *(f"kseg: {fault}" for partition in report.partitions for fault in partition.stats.faults)
    )
    return Exit.FOUND if report.fault_count else Exit.OK


_SIZES = ("p50", "p99", "max")


def _print_stats(report: StatsReport) -> None:
    documents = [partition.document() for partition in report.partitions]
    named_rows = sorted(
        zip(names_of(documents), report.partitions, documents, strict=True),
        key=lambda named: -named[2]["bytes"],
    )
    output.write_fitted_table(
        (*HEAD, *_SIZES, "keys"),
        [_stats_row(name, document) for name, _partition, document in named_rows],
        (*PRIORITY, *reversed(_SIZES[1:]), "keys", *BESIDES, _SIZES[0]),
    )
    keys = [
        (
            name,
            _short(key.key),
            human_count(key.records),
            human_bytes(key.bytes),
            human_bytes(key.bytes_error) if key.bytes_error else None,
        )
        for name, partition, _document in named_rows
        for key in partition.top_keys
    ]
    if keys:
        output.write_line()
        head = ("partition", "key", "records", "bytes", "error")
        output.write_fitted_table(head, keys, ("key", "bytes", "records", "error"))
    if any(partition.stats.records is not None for partition in report.partitions):
        _draw(report)
        output.write_line()
        output.write_lines(_estimates(with_errors=any(key[-1] for key in keys)))


def _draw(report: StatsReport) -> None:
    """Bars of records by time, and by size."""
    from kseg.analysis.stats import SizeHistogram, Timeline

    counted = [
        partition.stats.records
        for partition in report.partitions
        if partition.stats.records is not None
    ]
    line = reduce(Timeline.merge, (records.timeline for records in counted))
    while len(line.bins) > _BARS_MAX:
        line = line.widened(line.width + 1)
    times = line.document()
    rows = zip(times["bins"], times["records"], strict=True)
    output.write_bars(
        "Records by time",
        [(iso_text(bin) or f"{bin} ms", count, f"{count}") for bin, count in rows],
    )
    sizes = reduce(SizeHistogram.merge, (records.sizes for records in counted))
    output.write_bars(
        "Records by size of key and value",
        [(f"< {human_bytes(end)}", count, f"{count}") for end, count in sizes.by_power()],
    )


def _estimates(*, with_errors: bool) -> Iterator[str]:
    from kseg.analysis.stats import DISTINCT_ERROR, QUANTILE_ERROR

    yield f"p50 and p99 are estimates, at most {QUANTILE_ERROR:.2%} too large; max is exact"
    yield f"keys, the different ones, are estimated with a standard error of {DISTINCT_ERROR:.1%}"
    if with_errors:
        yield "a key has its records and bytes at least; its bytes are more by its error at most"


def _stats_row(name: str, document: dict[str, Any]) -> list[object]:
    sizes = document.get("record_bytes", {})
    return [
        *partition_row(name, document),
        *(None if at not in sizes else human_bytes(sizes[at]) for at in _SIZES),
        human_count(document.get("distinct_keys")),
    ]


def _short(key: bytes) -> str:
    text = printable(key.decode("utf-8", "replace"))
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"
