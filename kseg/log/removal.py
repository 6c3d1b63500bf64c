"""Files of segments that go: renamed to `.deleted` first, removed when their time has come.

Whoever has such a file open goes on reading it. Nothing here runs by itself: what is due goes with
the next removal, and the rest when the log is closed. A crash in between leaves `.deleted` files,
which loading removes.

The caller holds the log's lock, has moved the log's start or end already, and has taken the
segments out of what readers see.

Source: Kafka `LocalLog.deleteSegmentFiles`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.files import io
from kseg.log.snapshots import DELETED

if TYPE_CHECKING:
    from kseg.log.published import SegmentInfo
    from kseg.log.state import LogState


def delete_segments(
    state: LogState, segments: Iterable[SegmentInfo], *, snapshots: bool = True
) -> tuple[Path, ...]:
    """Rename the files of segments, to be removed after `file_delete_delay_ms`.

    Args:
        state: the log, which does not have these segments any more.
        segments: any that are not open.
        snapshots: of producers at their base offsets go with them.

    Returns:
        The new names; lasting after a flush of the directory.

    Raises:
        OSError: a rename failed; those before it are done.
    """
    delete_due(state, state.now_ms())
    due = state.now_ms() + state.config.file_delete_delay_ms
    renamed = []
    for info in segments:
        files = info.files
        for path in (files.log, files.index, files.time_index, files.txn_index):
            # The names are those that the files would have; most segments lack the last one.
            if path is None:
                continue
            with suppress(FileNotFoundError):
                renamed.append(_mark(path))
        marked = state.snapshots.mark_for_deletion(info.base_offset) if snapshots else None
        if marked is not None:
            renamed.append(marked)
    state.deleted.extend((due, path) for path in renamed)
    return tuple(renamed)


def _mark(path: Path) -> Path:
    marked = path.with_name(path.name + DELETED)
    io.rename(path, marked)
    return marked


def delete_due(state: LogState, now_ms: int | None = None) -> int:
    """Remove what was renamed long enough ago; answers how many files that were.

    Args:
        state: the log.
        now_ms: the clock; None to remove whatever waits.

    Raises:
        OSError: a file could not be removed; it waits on.
    """
    removed = 0
    while state.deleted and (now_ms is None or state.deleted[0][0] <= now_ms):
        with suppress(FileNotFoundError):
            io.unlink(state.deleted[0][1])
            removed += 1
        del state.deleted[0]
    return removed


__all__ = ["delete_due", "delete_segments"]
