"""A line of text for a partition or a segment: what `info` and `stats` have in common."""

from __future__ import annotations

from typing import Any, Final

from kseg.cli import output

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


def partition_row(name: str, document: dict[str, Any]) -> list[object]:
    """The columns of `HEAD` out of a partition's document; what it does not have is a dash."""
    return [
        name,
        *(document.get(field) for field in ("segments", "log_start_offset", "log_end_offset")),
        document["bytes"],
        document["batches"],
        document["records"],
        output.iso_time(document["min_timestamp"]),
        output.iso_time(document["max_timestamp"]),
        ",".join(document["codecs"]),
        ",".join(map(str, document["magics"])),
    ]


__all__ = ["HEAD", "partition_row"]
