"""`kseg info`, `stats`, `lookup` and `partition`: what a log holds, and where a record lies."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import click

from kseg.cli import output
from kseg.cli.failures import Exit, complain, complain_of, pass_over
from kseg.cli.internal import mention
from kseg.cli.options import Paths
from kseg.cli.output import human_bytes, human_count
from kseg.cli.paths import catalog_of, one_partition, tier_of_run
from kseg.commands import printable
from kseg.documents import fields_of
from kseg.errors import OffsetOutOfRangeError
from kseg.files.selection import Selection
from kseg.format.times import iso_text
from kseg.log.log import Log
from kseg.log.reader import LogView
from kseg.records.partitioners import partition_for
from kseg.records.query import parse_key

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
    from kseg.analysis.info import info_of  # imported late: a lookup does not need it

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
    "partition",
    "layout",
    "source",
    "start",
    "end",
    "local start",
    "remote",
    "bytes remote",
    "local",
    "bytes local",
    "overlap",
)
#: The columns that a narrow terminal shows, the first ones first.
_TIER_PRIORITY: Final = (*_TIER_HEAD[3:], "layout", "source")


def _info_of_tier(paths: Paths, selection: Selection, *, as_json: bool) -> int:
    """Print where the segments of each partition are: here, or in the tier."""
    from kseg.analysis.info import describe, traffic

    tier = tier_of_run()
    assert tier is not None
    documents = [
        describe(tier, tier.log(partition.path)) for partition in catalog_of(paths, selection)
    ]
    if as_json:
        output.write_document("info/1", {"path": output.path_field(paths), "partitions": documents})
    else:
        output.write_fitted_table(_TIER_HEAD, map(_tier_row, documents), _TIER_PRIORITY)
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
    """The cells of `_TIER_HEAD`."""
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
    """Print partitions, the largest first, each perhaps with its segments."""
    rows = []
    named = zip(names_of(documents), documents, strict=True)
    for name, document in sorted(named, key=lambda pair: -pair[1]["bytes"]):
        rows.append(partition_row(name, document))
        if per_segment:
            rows += [_segment_row(document) for document in document["segment_files"]]
    output.write_fitted_table(HEAD, rows, (*PRIORITY, *BESIDES))


def _segment_row(document: dict[str, Any]) -> list[object]:
    """The row of a segment, below that of its partition, from the segment's document."""
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
    """The names of rows: the last part of each path, or the whole path if several end alike."""
    names = [document["dir"] or os.path.basename(document["path"]) for document in documents]
    counts = Counter(names)
    return [
        name if counts[name] == 1 else document["path"]
        for name, document in zip(names, documents, strict=True)
    ]


# ---- statistics ----------------------------------------------------------------------------------


#: Of a key that is shown as text; JSON has the whole.
_KEY_CHARACTERS_MAX = 32
#: The number of bars of a timeline.
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
    """Print partitions, the largest first; then the keys with most bytes, bars, and the errors."""
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
    from kseg.analysis.sketches import SizeHistogram, Timeline

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
    """Say which numbers are estimates; `with_errors` if bytes of a key are, too."""
    from kseg.analysis.sketches import DISTINCT_ERROR, QUANTILE_ERROR

    yield f"p50 and p99 are estimates, at most {QUANTILE_ERROR:.2%} too large; max is exact"
    yield f"keys, the different ones, are estimated with a standard error of {DISTINCT_ERROR:.1%}"
    if with_errors:
        yield "a key has its records and bytes at least; its bytes are more by its error at most"


def _stats_row(name: str, document: dict[str, Any]) -> list[object]:
    """The cells of a partition: those of `info`, the sizes of records, and the number of keys."""
    sizes = document.get("record_bytes", {})
    return [
        *partition_row(name, document),
        *(None if at not in sizes else human_bytes(sizes[at]) for at in _SIZES),
        human_count(document.get("distinct_keys")),
    ]


def _short(key: bytes) -> str:
    """A key as text, cut to the width of its column."""
    text = printable(key.decode("utf-8", "replace"))
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"


if TYPE_CHECKING:
    from pathlib import Path

    from kseg.log.segment import BatchLocation

    #: The offset and the timestamp of the record, and its batch.
    FoundRecord = tuple[int, int, BatchLocation]
#: The times that ask for a place in a tiered log.
_TIERED = {
    -1: "latest",
    -2: "earliest",
    -3: "max timestamp, of local records",
    -4: "earliest local",
    -5: "latest tiered",
    -6: "earliest pending upload",
}


def lookup(
    directory: str,
    offset: int | None,
    time: int | None,
    selection: Selection,
    as_json: bool,
) -> None:
    """Run the verb."""
    if (offset is None) == (time is None):
        raise click.UsageError("Give either --offset or --time.")
    chosen = one_partition((directory,), selection)
    if time in _TIERED and tier_of_run() is not None:
        _print_special(chosen.path, directory, time, as_json=as_json)
        return
    with Log(LogView.at(chosen), "auto") as log:
        record = _by_offset(log, offset) if offset is not None else _by_time(log, time or 0)
    noun = "offset" if offset is not None else "time"
    if as_json:
        output.write_document("lookup/1", {"path": directory, **_place(record)})
    else:
        _print_place(record, noun)


def _print_special(path: Path, directory: str, time: int, *, as_json: bool) -> None:
    """The answer to a negative time that asks where the parts of a tiered log begin and end."""
    tier = tier_of_run()
    assert tier is not None
    point = tier.log(path).special(time)
    if as_json:
        output.write_document("lookup/1", {"path": directory, **_place(None), **point._asdict()})
    else:
        text = iso_text(point.timestamp) if point.timestamp >= 0 else None
        output.write_line(f"{_TIERED[time]}: {point.offset}{f' at {text}' if text else ''}")


def _by_offset(log: Log, offset: int) -> FoundRecord | None:
    """The first record from an offset on; None if the log has lost all that followed.

    Of a batch that cannot be decoded, the place counts, with the largest time of its header.
    """
    try:
        batch = log.lookup(offset)
    except OffsetOutOfRangeError:
        if not log.log_start_offset <= offset < log.log_end_offset:
            raise
        return None  # the log has lost these records
    info = next(info for info in log.segments if info.path == batch.segment)
    with log.open_segment(info) as segment:
        pieces = segment.read(
            start_position=batch.position,
            end_position=batch.position + 1,
            offset=(offset, None),
            columns=("offset", "timestamp"),
            control=True,
            max_rows=1,
            on_corrupt=lambda error: None,  # the batch's place stands, whatever its records are
        )
        for columns in pieces:
            return int(columns["offset"][0]), int(columns["timestamp_ms"][0]), batch
    return max(offset, batch.base_offset), batch.max_timestamp, batch


def _by_time(log: Log, time_ms: int) -> FoundRecord | None:
    """The first record that is not older than a time; None if there is none."""
    record = log.lookup_time(time_ms)
    return None if record is None else (record.offset, record.timestamp, record.batch)


def _place(record: FoundRecord | None) -> dict[str, Any]:
    """The fields of a document about the place of a record; null if there is no record."""
    if record is None:
        names = ("segment", "position", "offset", "timestamp", "index_entry")
        return dict.fromkeys(names)
    offset, timestamp, batch = record
    entry = batch.index_entry
    return {
        "segment": batch.segment.name,
        "position": batch.position,
        "offset": offset,
        "timestamp": timestamp,
        "index_entry": None if entry is None else entry._asdict(),
        "batch": fields_of(batch, "base_offset last_offset size max_timestamp"),
    }


def _print_place(record: FoundRecord | None, noun: str) -> None:
    """Print the place of the first record at or after an offset or a time, as `noun` says."""
    if record is None:
        output.write_line(f"no record at or after this {noun}")
        return
    offset, timestamp, batch = record
    entry = batch.index_entry
    used = "none, walked from the start"
    if entry is not None:
        used = f"offset {entry.offset} at {entry.position}"
    offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
    for name, value in (
        ("segment", batch.segment),
        ("position", f"{batch.position} ({batch.size} bytes, {offsets})"),
        ("offset", offset),
        ("timestamp", iso_text(timestamp) or "-"),
        ("index entry", used),
    ):
        output.write_line(f"{name:12}{value}")


def partition(keys: tuple[str, ...], partitions: int, partitioner: str, as_json: bool) -> None:
    """Run the verb."""
    numbers = [(key, partition_for(parse_key(key), partitions, partitioner)) for key in keys]
    if as_json:
        rows = [{"key": key, "partition": number} for key, number in numbers]
        head = {"partitions": partitions, "partitioner": partitioner}
        output.write_document("partition/1", {**head, "keys": rows})
        return
    for key, number in numbers:
        text = "any partition" if number is None else str(number)
        output.write_line(f"{printable(key)}  {text}")
