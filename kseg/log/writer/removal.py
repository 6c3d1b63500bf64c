"""The files of segments that go, and the order of steps on a full disk.

Retention and truncation decide which segments go, and in which order. The files are renamed to
`.deleted` first, or removed at once; `kseg.log.pending_deletes` keeps the renamed files.

The checkpoints record where a log starts, where it ends and up to where it is flushed, and they are
written before segments go. A full disk has no block for them. There the order is reversed: whole
segments go first, each by its names, and each removal is lasting before the next. The first and the
last name that are left show where the log starts and ends. The checkpoints follow as soon as there
is room.

    from the start     the oldest first, until there is room      retention, deleting records
    from the end       the newest first, all that go              truncation

A file that has a second name, in a backup for example, gives nothing back and does not count. Where
this gives too little room, the change is refused before anything has changed.

Source: Kafka `LocalLog.deleteSegmentFiles`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from kseg.files import io
from kseg.log.pending_deletes import checkpoint_sizes, files_of_segment, freed_by, refuse_less
from kseg.log.reader.version import SegmentInfo
from kseg.log.writer import flush
from kseg.log.writer.state import LogState


def delete_segments(
    state: LogState, segments: Iterable[SegmentInfo], *, snapshots: bool = True
) -> tuple[Path, ...]:
    """Rename the files of segments, and the producer snapshots at their bases.

    Args:
        state: the log; its readers do not see these segments any more, and it has closed them.
        segments: oldest first, so that after a crash the newest ones are left.
        snapshots: false to keep those.

    Returns:
        The new names, of waiting and of removed files.

    Raises:
        OSError: a rename failed; those before it are done, and wait.
    """
    now_ms, delay_ms = state.now_ms(), state.config.file_delete_delay_ms
    renamed: list[Path] = []
    state.note_names_gone()
    for info in segments:
        files = files_of_segment(info.files)
        renamed += state.deletions.mark_for_deletion(files, now_ms=now_ms, delay_ms=delay_ms)
        marked = state.snapshots.mark_for_deletion(info.base_offset) if snapshots else None
        if marked is not None:
            state.deletions.add_freed(io.bytes_given_back(marked))
            state.deletions.await_removal(marked, now_ms=now_ms, delay_ms=delay_ms)
            renamed.append(marked)
    state.deletions.remove_due(now_ms)
    return tuple(renamed)


#: A change writes checkpoints, a snapshot, a mark and some names; blocks for all of that.
_BLOCKS: Final = 16
_BLOCK_BYTES_MIN: Final = 4096


def has_room(state: LogState) -> bool:
    """Whether the disk has room for all that a change writes."""
    block = max(os.statvfs(state.path).f_frsize, _BLOCK_BYTES_MIN)
    return io.has_room(state.path, _BLOCKS * block + sum(checkpoint_sizes(state.path)))


def free_oldest(state: LogState, candidates: Sequence[SegmentInfo]) -> None:
    """Make sure that a new log start can be written down; oldest segments go where it cannot.

    When this returns there is room, or all candidates are gone, and the start that follows from
    that is written down.

    Args:
        state: the log, under its lock.
        candidates: sealed segments that are to go anyway, from the first of the log on.

    Raises:
        OSError: they would free too little, and nothing was changed; or the disk refuses. Removed
            segments lie before the log's start.
    """
    if has_room(state):
        return
    freed_bytes = freed_by(info.files for info in candidates)
    refuse_less(state.path, freed_bytes, f"deleting {len(candidates)} whole segments")
    state.deletions.remove_due(2**63)  # files that wait for their time
    bases = [info.base_offset for info in (*candidates, *state.segments[len(candidates) :][:1])]
    # The state of producers is durable before the records that it came from are removed.
    flush.flush(state, bases[len(candidates)])
    io.flush_directory(state.path)
    for info, (_, start) in zip(candidates, pairwise(bases), strict=False):
        _free(state, info, start)
        if has_room(state):
            break
    state.note_offsets(write=True)
    state.epochs.truncate_from_start(state.log_start_offset)
    state.epochs.flush()


def _free(state: LogState, info: SegmentInfo, start: int) -> None:
    """Remove the first segment; the log then starts at the next one, if not later."""
    state.replace_segments({info.base_offset})
    if start > state.log_start_offset:
        state.move_start(start)
        state.snapshots.on_log_start_incremented(state.producers, start)
    state.publish()
    try:
        state.unlink_segment(info)
    except BaseException:
        if info.path.exists():
            # The next load takes it for part of the log.
            state.replace_segments((), (info,))
            state.publish()
        raise
    state.flush_names()
