"""The room that a change needs on a full disk, and the room that its deletions give back.

A file that has a second name, in a backup for example, gives nothing back and does not count.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kseg.files import io
from kseg.files.names import FileKind
from kseg.log.pending_deletes import files_of_segment

if TYPE_CHECKING:
    from kseg.log.reader.version import SegmentInfo

_CHECKPOINTS: Final = (
    FileKind.RECOVERY_POINT,
    FileKind.LOG_START,
    FileKind.REPLICATION,
    FileKind.LEADER_EPOCHS,
)


def least_bytes(directory: Path) -> int:
    """Bytes needed to write anything for a partition: one new checkpoint."""
    block = os.statvfs(directory).f_frsize
    largest = max(checkpoint_sizes(directory), default=0)
    return block + -(-largest // block) * block


def of_segments(segments: Iterable[SegmentInfo]) -> int:
    """Bytes that the disk gets back when segments go."""
    return sum(
        io.bytes_given_back(path)
        for segment in segments
        for path in files_of_segment(segment.files)
    )


def refuse_less(directory: Path, free_bytes: int, what: str, *, needed: int | None = None) -> None:
    """Refuse a change on a full disk that gives back too little to be written down.

    Args:
        directory: the partition.
        free_bytes: bytes that the disk would get back first.
        what: the subject, in words.
        needed: bytes to write; `least_bytes` if None.

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
    """Bytes of the checkpoints that there are."""
    places = (directory.parent / kind.value for kind in _CHECKPOINTS[:-1])
    files = [*places, directory / _CHECKPOINTS[-1].value]
    return [os.stat(file).st_size for file in files if file.exists()]
