"""Deleting the files of segments: renamed to `.deleted` first, or removed at once.

Retention and truncation decide which segments go, and in which order; what waits under
`.deleted` is `kseg.log.pending_deletes`.

Source: Kafka `LocalLog.deleteSegmentFiles`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.files import io
from kseg.log.pending_deletes import files_of_segment

if TYPE_CHECKING:
    from kseg.log.reader.version import SegmentInfo
    from kseg.log.writer.state import LogState


def delete_segments(
    state: LogState, segments: Iterable[SegmentInfo], *, snapshots: bool = True
) -> tuple[Path, ...]:
    """Rename the files of segments, and the producer snapshots at their bases.

    Args:
        state: the log; its readers do not see these segments any more, and it has none of them
            open.
        segments: oldest first, so that whatever a crash leaves is the end of the row.
        snapshots: false to keep those.

    Returns:
        The new names, of those that still wait and those that are removed already.

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


def unlink_segment(state: LogState, info: SegmentInfo, *, snapshot: bool = True) -> None:
    """Take the names of a segment's files away at once, and of the snapshot at its base.

    For a full disk: a file that waits under another name would free nothing.

    Args:
        state, info: as for `delete_segments`.
        snapshot: false to keep that.

    Raises:
        OSError: the disk refuses; what went before is gone.
    """
    state.note_names_gone()
    for path in files_of_segment(info.files):
        state.deletions.unlink(path)
    known = state.snapshots.path(info.base_offset) if snapshot else None
    if known is not None:
        freed = io.bytes_given_back(known)
        state.snapshots.delete(info.base_offset)
        state.deletions.add_freed(freed)


__all__ = ["delete_segments", "unlink_segment"]
