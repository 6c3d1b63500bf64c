"""Which partitions an interrupted recovery has put in order: the next run does not read them again.

Once all files of a partition are on the disk, `recover` appends a line to `.kseg-recovered` in the
data directory. The line names each file of the partition with its size, time of modification, inode
and device. It counts only while all of these are the same: the partition then is as after a clean
stop. The lease removes the file when it writes the mark of a clean shutdown. A broker does not look
at the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kseg.files import io
from kseg.files.metadata import RECOVERED_NAME

_NOTES_BYTES_MAX = 1 << 28


def note(directory: Path) -> None:
    """Write down that all files of a partition are recovered, and on the disk.

    Raises:
        OSError: the note could not be written.
    """
    directory = directory.resolve()
    line = json.dumps([directory.name, _files_of(directory)]).encode()
    with io.WriteFile.open(directory.parent / RECOVERED_NAME, create=True) as file:
        file.write_at(file.size, b"\n" + line + b"\n")  # the line before may be torn
        file.flush()


def is_noted(directory: Path) -> bool:
    """Whether the last note of a partition describes its files as they are now."""
    directory = directory.resolve()
    try:
        notes = io.read_file(directory.parent / RECOVERED_NAME, bytes_max=_NOTES_BYTES_MAX)
    except OSError:
        return False
    start = json.dumps([directory.name, []])[:-3].encode()
    at = notes.rfind(b"\n" + start)
    end = notes.find(b"\n", at + 1)
    if at < 0 or end < 0:
        return False
    try:
        return bool(json.loads(notes[at:end]) == [directory.name, _files_of(directory)])
    except ValueError:  # torn
        return False


def _files_of(directory: Path) -> list[list[Any]]:
    files = []
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            seen = entry.stat(follow_symlinks=False)
            files.append([entry.name, seen.st_size, seen.st_mtime_ns, seen.st_ino, seen.st_dev])
    return files


__all__ = ["is_noted", "note"]
