"""`kseg info`: the contents of a directory, from headers and indexes alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kseg.analysis.info import info_of
from kseg.cli import output
from kseg.cli.failures import Exit, complain, one_line
from kseg.cli.output import human_bytes, human_count
from kseg.cli.parsing import Paths
from kseg.cli.paths import catalog_of, tier_of_run
from kseg.cli.transactions import mention
from kseg.files.selection import Selection
from kseg.format.times import iso_text

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
#: To the left, as all text but names is not.
LEFT: Final = ("partition", "codecs", "magic", "key", "layout", "source")
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
    complain(*(f"kseg: {one_line(fault)}" for fault in faults))
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
        output.write_fitted_table(_TIER_HEAD, map(_tier_row, documents), shown, LEFT)
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
        *(document["remote"]["segments"], human_bytes(document["remote"]["bytes"])),
        *(document["local"]["segments"], human_bytes(document["local"]["bytes"])),
        human_bytes(document["overlap"]["bytes"]),
    ]


def _print(documents: list[dict[str, Any]], *, per_segment: bool) -> None:
    rows = []
    named = zip(names_of(documents), documents, strict=True)
    for name, document in sorted(named, key=lambda pair: -pair[1]["bytes"]):
        rows.append(partition_row(name, document))
        if per_segment:
            rows += [_segment_row(document) for document in document["segment_files"]]
    output.write_fitted_table(HEAD, rows, (*PRIORITY, *BESIDES), LEFT)


def _segment_row(document: dict[str, Any]) -> list[object]:
    start, last = document["base_offset"], document["last_offset"]
    offsets = {
        "log_start_offset": start,
        "log_end_offset": start if last is None else last + 1,
    }
    return partition_row("  " + document["file"], document | offsets)


# ---- a line for a partition, also of `kseg stats` ------------------------------------------------


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
