"""Room on a full disk: what a change needs before it begins, and whole segments that give it.

The checkpoints say where a log starts, where it ends and up to where it is flushed. They are
written before segments go. A full disk has no block for them. There the order is turned round:
whole segments go first, each by its names, and each removal is lasting before the next. The first
and the last name that are left tell where the log starts and ends. The checkpoints follow as soon
as there is room.

    from the start     the oldest first, until there is room      retention, deleting records
    from the end       the newest first, all that go              truncation

A file that has a second name, in a backup for example, gives nothing back and does not count.
Where this gives too little room, the change is refused before anything has changed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kseg.files import io
from kseg.log.disk_room import checkpoint_sizes, of_segments, refuse_less
from kseg.log.writer import flush
from kseg.log.writer.segment_deletion import unlink_segment

if TYPE_CHECKING:
    from pathlib import Path

    from kseg.log.reader.version import SegmentInfo
    from kseg.log.writer.state import LogState

#: A change writes checkpoints, a snapshot, a mark and some names; blocks for all of that.
_BLOCKS: Final = 16
_BLOCK_BYTES_MIN: Final = 4096


def is_there(state: LogState) -> bool:
    """Whether a change has room for all that it writes down."""
    return io.has_room(state.path, _wanted_bytes(state.path))


def free_oldest(state: LogState, candidates: Sequence[SegmentInfo]) -> tuple[SegmentInfo, ...]:
    """Make sure that a new log start can be written down; oldest segments go where it cannot.

    When this returns there is room, or all candidates are gone, and the start that follows from
    that is written down.

    Args:
        state: the log, under its lock.
        candidates: sealed segments that are to go anyway, from the first of the log on.

    Returns:
        Those that went; none where there was room.

    Raises:
        OSError: they would give too little, and nothing was changed; or the disk refuses else. What
            is gone lies before the log's start.
    """
    if is_there(state):
        return ()
    refuse_less(state.path, of_segments(candidates), f"deleting {len(candidates)} whole segments")
    state.deletions.remove_due(2**63)  # what waits for its time
    bases = [info.base_offset for info in (*candidates, *_behind(state, candidates))]
    # What is known of producers is lasting before the records are gone that it came from.
    flush.flush(state, bases[len(candidates)])
    io.flush_directory(state.path)
    gone: list[SegmentInfo] = []
    for info, (_, start) in zip(candidates, pairwise(bases), strict=False):
        _free(state, info, start)
        gone.append(info)
        if is_there(state):
            break
    state.note_offsets(write=True)
    state.epochs.truncate_from_start(state.log_start_offset)
    state.epochs.flush()
    return tuple(gone)


def _behind(state: LogState, candidates: Sequence[SegmentInfo]) -> Sequence[SegmentInfo]:
    """The segment that follows the last of these."""
    return state.segments[len(candidates) :][:1]


def _free(state: LogState, info: SegmentInfo, start: int) -> None:
    """Let the first segment go; the log starts at the next one then, if not later."""
    state.replace_segments({info.base_offset})
    if start > state.log_start_offset:
        state.move_start(start)
        state.snapshots.on_log_start_incremented(state.producers, start)
    state.publish()
    try:
        unlink_segment(state, info)
    except BaseException:
        if info.path.exists():
            # The next load takes it for part of the log.
            state.replace_segments((), (info,))
            state.publish()
        raise
    state.flush_names()


def _wanted_bytes(directory: Path) -> int:
    block = max(os.statvfs(directory).f_frsize, _BLOCK_BYTES_MIN)
    return _BLOCKS * block + sum(checkpoint_sizes(directory))


__all__ = ["free_oldest", "is_there"]
