"""A line of text for a partition or a segment, for `info` and `stats`."""

from __future__ import annotations

from typing import Any, Final

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


def partition_row(name: str, document: dict[str, Any]) -> list[object]:
    """The columns of `HEAD` from a partition's document; a dash for a missing one."""
    return [
        name,
        *(document.get(field) for field in ("segments", "log_start_offset", "log_end_offset")),
        document["bytes"],
        document["batches"],
        document["records"],
        iso_text(document["min_timestamp"]),
        iso_text(document["max_timestamp"]),
        ",".join(document["codecs"]),
        ",".join(map(str, document["magics"])),
    ]


__all__ = ["HEAD", "partition_row"]
