"""The new files of a group in the place of the old ones, so that each kill leaves one or the other.

    1. `.cleaned` becomes `.swap`, the log first. As long as one `.cleaned` is there, a start throws
       all of them away.
    2. What the group had goes, but for what the new files replace by their names.
    3. `.swap` becomes the plain name, the log first. A start does these two where it finds `.swap`.

Names are lasting after each step, and the old files go only when those of the first one are.

Source: Kafka `LocalLog.replaceSegments`; it renames old files to `.deleted` and removes them later.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.errors import StalePlanError
from kseg.files import io
from kseg.log.cleaner.rewrite import names_of
from kseg.log.pending_deletes import files_of_segment
from kseg.log.reader.version import SegmentInfo
from kseg.log.recovery.split import CLEANED, SWAP
from kseg.log.writer.segment_deletion import unlink_segment

if TYPE_CHECKING:
    from kseg.log.recovery.backup import Backup
    from kseg.log.writer.state import LogState


def swap_in(state: LogState, group: Sequence[SegmentInfo], size: int) -> int:
    """Put the `.cleaned` files of a group in its place, lasting when this returns.

    Args:
        state: the log; its lock is held meanwhile.
        group: the old segments, rising.
        size: of the new log.

    Returns:
        What the disk gets back, in bytes.

    Raises:
        StalePlanError: the log has not all of them any more; nothing was done.
        OSError: the disk refuses. The log has failed then; the next opening puts it in order.
    """
    with state.changing():
        if not set(group) <= set(state.sealed):
            raise StalePlanError("segments went while they were compacted", path=state.path)
        before = state.deletions.freed_bytes
        base = group[0].base_offset
        with state.all_or_poison():
            taken = _rename(state.path, base, CLEANED, SWAP)
            state.flush_names()
            new = SegmentInfo(state.files_of(base), size, is_last=False)
            state.replace_segments({info.base_offset for info in group}, (new,))
            _remove_old(state, group)
            state.flush_names()
            _rename(state.path, base, SWAP, "")
            state.flush_names()
        state.publish()
        return state.deletions.freed_bytes - before - taken


def _remove_old(state: LogState, group: Sequence[SegmentInfo]) -> None:
    first, *others = group
    for path in files_of_segment(first.files):
        if path.with_name(path.name + SWAP).exists():
            state.deletions.add_freed(io.bytes_given_back(path))
        else:
            state.deletions.unlink(path)
    for info in others:
        unlink_segment(state, info)


def _rename(directory: Path, base: int, old: str, new: str) -> int:
    """Rename the files of the new segment; answers how many bytes of disk they have."""
    taken = 0
    sources, targets = names_of(directory, base, old), names_of(directory, base, new)
    for source, target in zip(sources, targets, strict=True):
        with suppress(FileNotFoundError):
            taken += os.stat(source).st_blocks * 512
            io.rename(source, target)
    return taken


def keep_group(state: LogState, group: Sequence[SegmentInfo], backup: Backup) -> None:
    """Keep the files of a group, and the snapshots that go with it.

    Raises:
        OSError: the disk refuses.
    """
    for info in group:
        for path in files_of_segment(info.files):
            backup.keep_file(path)
    for info in group[1:]:
        snapshot = state.snapshots.path(info.base_offset)
        if snapshot is not None:
            backup.keep_file(snapshot)


__all__ = ["keep_group", "swap_in"]
