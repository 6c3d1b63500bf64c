"""A writer of a few lines over the seam, to try the harness on: lines in a file, and a note of how
many there are, replaced whole. Each of its mistakes is one that a log could make.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Literal

from kseg.files import atomic, io
from tests.crash.kills import Remarks, Workload
from tests.crash.states import Contents

Mistake = Literal[
    "", "no flush", "no flush of names", "rename first", "acknowledge first", "ignore short writes"
]
LINES, COUNT = "lines", "count"


def line(number: int) -> bytes:
    body = b"%08d" % number * 40
    return body + b"%08x\n" % zlib.crc32(body)


SIZE = len(line(0))


def writer(lines: int, mistake: Mistake = "") -> Workload:
    """A workload that writes so many lines, each flushed; it remarks how many are lasting."""

    def run(root: Path, remark: Remarks) -> None:
        with io.WriteFile.open(root / LINES, exclusive=True) as file:
            io.flush_directory(root)
            for number in range(lines):
                _write(file, number, mistake)
                if mistake == "acknowledge first":
                    remark(number + 1)
                if mistake != "no flush":
                    file.flush()
                _count(root / COUNT, number + 1, mistake)
                remark(number + 1)

    return run


def _write(file: io.WriteFile, number: int, mistake: Mistake) -> None:
    if mistake == "ignore short writes":
        io._calls.pwritev(file.fd, [line(number)], number * SIZE)
    else:
        file.write_at(number * SIZE, line(number))


def _count(path: Path, count: int, mistake: Mistake) -> None:
    data = b"%d\n" % count
    if mistake not in ("rename first", "no flush of names"):
        atomic.replace_file(path, data)
        return
    beside = path.with_name(path.name + ".tmp")
    with io.WriteFile.open(beside, exclusive=True) as file:
        file.write_at(0, data)
        if mistake == "rename first":
            io.rename(beside, path)
            io.flush_directory(path.parent)
        file.flush()
    if mistake == "no flush of names":
        io.rename(beside, path)


def lost(contents: Contents, lasting: int) -> bool:
    """Whether one of so many lines is not there, or the note is not one that was written."""
    data = contents.get(LINES) or b""
    count = contents.get(COUNT, b"0\n")
    if any(data[n * SIZE : (n + 1) * SIZE] != line(n) for n in range(lasting)):
        return True
    return not count or not count.endswith(b"\n") or int(count) < lasting
