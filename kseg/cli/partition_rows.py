"""A line of text for a partition or a segment, for `info` and `stats`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kseg.cli.output import human_bytes, human_count
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
#: What a wider one shows besides, likewise.
BESIDES: Final = ("to", "from", "codecs", "batches", "magic")
#: To the left, as all text but names is not.
LEFT: Final = ("partition", "codecs", "magic", "key")
_MINUTES: Final = len("2026-11-24T17:52")


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
    """What rows are called: by the last part of the path, or all of it where several have that."""
    given = [one["dir"] or os.path.basename(one["path"]) for one in documents]
    counts = Counter(given)
    return [
        name if counts[name] == 1 else one["path"]
        for name, one in zip(given, documents, strict=True)
    ]


__all__ = ["BESIDES", "HEAD", "LEFT", "PRIORITY", "names_of", "partition_row"]
