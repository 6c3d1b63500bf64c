"""`kseg info`: the contents of a directory, from headers and indexes alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kseg import Segment
from kseg.analysis.summary import Summary
from kseg.cli import output
from kseg.cli.failures import Exit, complain, one_line
from kseg.cli.options import Selection
from kseg.cli.partition_rows import HEAD, partition_row
from kseg.cli.paths import known_paths
from kseg.cli.paths import partitions as partitions_of
from kseg.errors import KsegError, NotALogError
from kseg.files.names import KnownPath, PathKind
from kseg.log.log import Log


def info(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    per_segment: bool,
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    found: list[dict[str, Any]] = []
    faults: list[KsegError] = []
    for path, known in known_paths(paths):
        found += _of_path(path, known, Selection(topics, partitions), faults)
    if as_json:
        output.write_document("info/1", {"path": output.path_field(paths), "partitions": found})
    else:
        _print(found, per_segment=per_segment)
    for fault in faults:
        complain(f"kseg: {one_line(fault)}")
    return Exit.FOUND if faults else Exit.OK


def _of_path(
    path: str, known: KnownPath, selection: Selection, faults: list[KsegError]
) -> list[dict[str, Any]]:
    if known.kind is not PathKind.FILE:
        found = partitions_of((path,), selection)
        return [_partition(partition.path, faults) for partition in found]
    if known.file is None or not known.file.kind.holds_batches:
        raise NotALogError("a file without batches; 'kseg dump' shows its entries", path=path)
    with Segment.open(path) as segment:
        summary, document = _segment(segment, faults)
    end = document["last_offset"]
    return [
        {
            "dir": None,
            "topic": None,
            "partition": None,
            "log_start_offset": segment.base_offset,
            "log_end_offset": segment.base_offset if end is None else end + 1,
            "segments": 1,
            "bytes": document["bytes"],
            **summary.document(),
            "segment_files": [document],
        }
    ]


def _partition(path: Path, faults: list[KsegError]) -> dict[str, Any]:
    total = Summary()
    documents = []
    with Log.open(path) as log:
        for one in log.segments:
            with log.open_segment(one) as segment:
                summary, document = _segment(segment, faults)
            total.merge(summary)
            documents.append(document)
        return {
            "dir": path.resolve().name,
            "topic": log.topic,
            "partition": log.partition,
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "segments": len(documents),
            "bytes": sum(document["bytes"] for document in documents),
            **total.document(),
            "leader_epochs": _leader_epochs(log, faults),
            "leftovers": [each.path.name for each in log.files.temporary_files],
            "segment_files": documents,
        }


def _leader_epochs(log: Log, faults: list[KsegError]) -> list[dict[str, int]] | None:
    try:
        return [entry._asdict() for entry in log.leader_epochs]
    except KsegError as error:
        faults.append(error)
        return None


def _segment(segment: Segment, faults: list[KsegError]) -> tuple[Summary, dict[str, Any]]:
    summary = Summary()
    for table in segment.headers():
        summary.feed(table)
    fault = segment.stop_fault(table)
    if fault is not None:
        faults.append(fault)
    return summary, {
        "file": segment.path.name,
        "base_offset": segment.base_offset,
        "last_offset": summary.last_offset,
        "bytes": segment.size,
        **summary.document(),
        **_indexes(segment, faults),
        "end_position": table.end_position,
        "stop": table.stop.name,
    }


def _indexes(segment: Segment, faults: list[KsegError]) -> dict[str, int | None]:
    """Entries of each index in use; None where there is no such file, or a broken one."""
    counts: dict[str, int | None] = {}
    counters: dict[str, Callable[[], int | None]] = {
        "index_entries": lambda: _count(segment.offset_index),
        "time_index_entries": lambda: _count(segment.time_index),
        "txn_index_entries": lambda: len(segment.txn_index) or None,
    }
    for name, count in counters.items():
        try:
            counts[name] = count()
        except KsegError as error:
            counts[name] = None
            faults.append(error)
    return counts


def _count(index: Any) -> int | None:
    return None if index.missing else int(index.entry_count)


def _print(found: list[dict[str, Any]], *, per_segment: bool) -> None:
    rows = []
    for one in found:
        rows.append(partition_row(one["dir"] or one["segment_files"][0]["file"], one))
        if per_segment:
            rows += [_segment_row(document) for document in one["segment_files"]]
    output.write_table(HEAD, rows)


def _segment_row(document: dict[str, Any]) -> list[object]:
    start, last = document["base_offset"], document["last_offset"]
    offsets = {
        "log_start_offset": start,
        "log_end_offset": start if last is None else last + 1,
    }
    return partition_row("  " + document["file"], document | offsets)
