"""Two segments of a log that hold the same offsets: where, and whether their bytes differ.

Rare, hence a walk of its own over both files, after the rest of the log.
"""

from __future__ import annotations

import os
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from kseg.errors import KsegError
from kseg.files.log_file import LogFile
from kseg.files.mapping import MappedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kseg.analysis.values import SegmentSummary

_WINDOW_BYTES = 1 << 20


class Stretch(NamedTuple):
    """The batches of a file that hold offsets of a range: from which byte to which."""

    path: str
    start: int
    end: int


def describe(earlier: SegmentSummary, later: SegmentSummary) -> str:
    """Where two segments hold the same offsets, and whether the bytes differ, for a message."""
    first = max(later.base_offset, later.first_offset or 0)
    last = min(earlier.last_offset or 0, later.last_offset or 0)
    if later.last_offset is None or first > last:
        return ""
    try:
        one, other = (_stretch(segment.path, first, last) for segment in (earlier, later))
        differ = "are the same" if _same(one, other) else "differ"
    except (KsegError, OSError):
        return f"; both hold offsets {first} to {last}, which could not be compared"
    places = " and ".join(f"{os.path.basename(at.path)} @ {at.start}" for at in (one, other))
    return f"; both hold offsets {first} to {last}, {places}, and their bytes {differ}"


def _stretch(path: str, first: int, last: int) -> Stretch:
    start = end = 0
    with LogFile.open(path, "never") as log:
        for table in log.headers():
            touched = (table.last_offset >= first) & (table.base_offset <= last)
            if touched.any():
                held = table.take(touched)
                start = start if end else int(held.position[0])
                end = int(held.position[-1] + held.size[-1])
    return Stretch(path, start, end)


def _same(one: Stretch, other: Stretch) -> bool:
    if one.end - one.start != other.end - other.start:
        return False
    return all(a == b for a, b in zip_longest(_windows(one), _windows(other)))


def _windows(stretch: Stretch) -> Iterator[bytes]:
    with MappedFile.open(stretch.path, "never") as file:
        for at in range(stretch.start, stretch.end, _WINDOW_BYTES):
            yield bytes(file.read(at, min(_WINDOW_BYTES, stretch.end - at)))


__all__ = ["Stretch", "describe"]
