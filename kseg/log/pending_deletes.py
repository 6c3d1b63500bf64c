"""Files of deleted segments: renamed to `.deleted`, removed some time later; room on a full disk.

A segment's files get their `.deleted` names at once. They are removed after a delay, so that
readers with open files can finish. No thread waits for that time: the next change of the log calls
`remove_due`. A load removes files that are left when a process ends.

Source: Kafka `LocalLog.deleteSegmentFiles`, `LogSegment.changeFileSuffixes`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kseg.files import io
from kseg.files.names import FileKind, SegmentFiles

DELETED: Final = ".deleted"


class Deletions:
    """The deleted files of one log that are not removed yet. One thread at a time may change it.

    Attributes:
        freed_bytes: bytes that the disk has got back so far, or gets back when the waiting files
            are removed; 0 for files that have a second name.
    """

    __slots__ = ("_due", "freed_bytes")

    def __init__(self) -> None:
        """Nothing yet."""
        self._due: dict[Path, int] = {}
        self.freed_bytes = 0

    @property
    def pending(self) -> tuple[Path, ...]:
        """The files that wait, under their `.deleted` names."""
        return tuple(self._due)

    def mark_for_deletion(
        self, paths: Iterable[Path], *, now_ms: int, delay_ms: int
    ) -> tuple[Path, ...]:
        """Rename files to `.deleted`; missing ones are skipped.

        Lasting after the directory is flushed. Without a delay they are removed at once.

        Args:
            paths: under their plain names; a log before its indexes: a load ignores an index
                without a log, but takes a log without an index for a segment.
            now_ms: the clock.
            delay_ms: `file_delete_delay_ms`.

        Returns:
            The new names, in order.

        Raises:
            OSError: a rename failed; those before it are done, and wait.
        """
        renamed = []
        for path in paths:
            marked = path.with_name(path.name + DELETED)
            freed = io.bytes_given_back(path)
            try:
                io.rename(path, marked)
            except FileNotFoundError:
                continue
            self.freed_bytes += freed
            self.await_removal(marked, now_ms=now_ms, delay_ms=delay_ms)
            renamed.append(marked)
        self.remove_due(now_ms)
        return tuple(renamed)

    def await_removal(self, marked: Path, *, now_ms: int, delay_ms: int) -> None:
        """Queue a file that has its `.deleted` name already."""
        self._due[marked] = now_ms + delay_ms

    def unlink(self, path: Path) -> None:
        """Remove a name at once, if it exists."""
        freed = io.bytes_given_back(path)
        io.unlink(path, missing_ok=True)
        self.freed_bytes += freed

    def add_freed(self, count: int) -> None:
        """Count bytes that the disk has got back otherwise."""
        self.freed_bytes += count

    def remove_due(self, now_ms: int) -> tuple[Path, ...]:
        """Remove the files whose time has come; return their paths.

        Raises:
            OSError: the first that could not be removed; it will be tried again, as those after
                it.
        """
        due = [path for path, time_ms in self._due.items() if time_ms <= now_ms]
        for path in due:
            io.unlink(path, missing_ok=True)
            del self._due[path]
        return tuple(due)


def remove_segment(files: SegmentFiles) -> None:
    """Remove at once the files at a base offset where the log has no segment.

    Raises:
        OSError: the disk refuses.
    """
    for path in files_of_segment(files):
        io.unlink(path, missing_ok=True)


def files_of_segment(files: SegmentFiles) -> tuple[Path, ...]:
    """A segment's files in the order in which they are deleted: the log, then its indexes."""
    indexes = (files.index, files.time_index, files.txn_index)
    return (files.log, *(path for path in indexes if path is not None))


# ---- room on a full disk -------------------------------------------------------------------------


#: In the data directory; `FileKind.LEADER_EPOCHS` is in that of the partition.
_CHECKPOINTS: Final = (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION)


def least_bytes(directory: Path) -> int:
    """Bytes needed to write anything for a partition: one new checkpoint."""
    block = os.statvfs(directory).f_frsize
    largest = max(checkpoint_sizes(directory), default=0)
    return block + -(-largest // block) * block


def freed_by(segments: Iterable[SegmentFiles]) -> int:
    """Bytes that the disk gets back when segments are removed.

    A file that has a second name, in a backup for example, frees nothing and does not count.
    """
    return sum(io.bytes_given_back(path) for files in segments for path in files_of_segment(files))


def refuse_less(directory: Path, free_bytes: int, what: str, *, needed: int | None = None) -> None:
    """Refuse a change on a full disk that frees less than it needs to be written down.

    Args:
        directory: the partition.
        free_bytes: bytes that the disk would get back first.
        what: the subject of the error's sentence.
        needed: bytes to write; None for `least_bytes`.

    Raises:
        OSError: it is too little.
    """
    needed = least_bytes(directory) if needed is None else needed
    if free_bytes < needed:
        raise OSError(
            errno.ENOSPC,
            f"no room on the disk: {needed} bytes are needed to write down the change, and {what} "
            f"gives back {free_bytes}; nothing was changed",
            os.fspath(directory),
        )


def checkpoint_sizes(directory: Path) -> list[int]:
    """Bytes of the checkpoints that there are for a partition."""
    of_all = (directory.parent / kind.value for kind in _CHECKPOINTS)
    files = [*of_all, directory / FileKind.LEADER_EPOCHS.value]
    return [os.stat(file).st_size for file in files if file.exists()]
