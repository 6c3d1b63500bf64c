"""A line of text for a partition or a segment, for `info` and `stats`."""

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
    """The columns of `HEAD` from a partition's document; a dash for a missing one."""
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
