"""Which segments become one: as many in a row as one segment may have of bytes and of offsets.

Source: Kafka `Cleaner.groupSegmentsBySize`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.constants import INT32_MAX
from kseg.files.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from kseg.files.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES

if TYPE_CHECKING:
    from kseg.log.config import LogConfig
    from kseg.log.reader.version import SegmentInfo

    Group = tuple[SegmentInfo, ...]


def group_segments(
    segments: Sequence[SegmentInfo], config: LogConfig, first_uncleanable_offset: int
) -> list[Group]:
    """Group segments, rising, by their sizes before compaction.

    Args:
        segments: rising.
        config: of the log; sizes of log and indexes.
        first_uncleanable_offset: behind the last segment.

    Raises:
        OSError: an index cannot be looked at.
    """
    groups: list[list[SegmentInfo]] = []
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    used = (0, 0, 0)
    for number, info in enumerate(segments):
        sizes = (info.size, *_index_sizes(info))
        grown = tuple(map(sum, zip(used, sizes, strict=True)))
        behind = segments[number + 1 :]
        end = behind[0].base_offset if behind else first_uncleanable_offset
        fits = groups and all(map(int.__le__, grown, limits))
        if fits and (not info.size or end - 1 - groups[-1][0].base_offset <= INT32_MAX):
            groups[-1].append(info)
            used = grown  # type: ignore[assignment]
        else:
            groups.append([info])
            used = sizes
    return [tuple(group) for group in groups]


def _index_sizes(info: SegmentInfo) -> tuple[int, int]:
    """Bytes of the entries of both indexes."""
    files = info.files
    return (
        _whole_entries(files.index, OFFSET_ENTRY_BYTES),
        _whole_entries(files.time_index, TIME_ENTRY_BYTES),
    )


def _whole_entries(path: Path | None, entry_bytes: int) -> int:
    if path is None:
        return 0
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return 0
    return size - size % entry_bytes


__all__ = ["group_segments"]
