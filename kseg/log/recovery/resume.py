"""Which partitions an interrupted recovery has put in order: the next run does not read them again.

Once all files of a partition are on the disk, `recover` appends a line to `.kseg-recovered` in the
data directory: the partition's name, and a digest of the names, sizes, times of modification and
change, inodes and devices of its files. It counts only while all of these are the same: the
partition then is as after a clean stop. A disk that changes bytes by itself changes none of these.
The lease removes the file when it writes the mark of a clean shutdown. A broker does not look at
the file.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path

from kseg.errors import KsegError
from kseg.files import io
from kseg.files.metadata import RECOVERED_NAME

_NOTES_BYTES_MAX = 1 << 28


def note(directory: Path) -> None:
    """Write down that all files of a partition are recovered, and on the disk.

    Raises:
        OSError: the note could not be written.
    """
    directory = directory.resolve()
    if is_noted(directory):
        return
    with io.WriteFile.open(directory.parent / RECOVERED_NAME, create=True) as file:
        file.write_at(file.size, b"\n" + _line_of(directory) + b"\n")  # the one before may be torn
        file.flush()


def is_noted(directory: Path) -> bool:
    """Whether the last note of a partition describes its files as they are now."""
    directory = directory.resolve()
    try:
        notes = io.read_file(directory.parent / RECOVERED_NAME, bytes_max=_NOTES_BYTES_MAX)
    except (KsegError, OSError):
        return False
    line = _line_of(directory)
    at = notes.rfind(b"\n" + line[: line.index(b" ") + 1])
    return at >= 0 and notes.startswith(line + b"\n", at + 1)


def _line_of(directory: Path) -> bytes:
    """The partition's name, and a digest of what `stat` says of each file."""
    files = []
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            seen = entry.stat(follow_symlinks=False)
            times = (seen.st_mtime_ns, seen.st_ctime_ns)
            files.append([entry.name, seen.st_size, *times, seen.st_ino, seen.st_dev])
    digest = blake2b(json.dumps(files).encode(), digest_size=16).hexdigest()
    return f"{directory.name} {digest}".encode(errors="surrogateescape")


__all__ = ["is_noted", "note"]
