"""A broker in small: another process that holds the data directory and appends as it is told.

Run with the data directory and a segment file; then each line it reads is a command:

    append PATH FROM TO    bytes [FROM, TO) of a file go to the end of the segment
    cut SIZE               the segment is shortened
    delete PATH            a file is renamed to .deleted, as retention does it

Each is answered by an empty line. It lets go of the lock when its input ends.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def serve(data_directory: str, segment: str) -> None:
    with open(os.path.join(data_directory, ".lock"), "w") as lock, open(segment, "ab") as log:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        print(flush=True)
        for line in sys.stdin:
            command, *words = line.split()
            if command == "append":
                with open(words[0], "rb") as source:
                    source.seek(int(words[1]))
                    log.write(source.read(int(words[2]) - int(words[1])))
                log.flush()
            elif command == "cut":
                os.truncate(segment, int(words[0]))
            else:
                os.rename(words[0], words[0] + ".deleted")
            print(flush=True)


class Writer:
    """Tells the other process what to do, and waits until it has done it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def _tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"\n"

    def append(self, source: Path, start: int, end: int) -> None:
        self._tell("append", source, start, end)

    def cut(self, size: int) -> None:
        self._tell("cut", size)

    def delete(self, path: Path) -> None:
        self._tell("delete", path)


@contextmanager
def writing(data_directory: Path, segment: Path) -> Iterator[Writer]:
    """Start the other process; it holds the directory while the `with` lasts."""
    command = [sys.executable, __file__, str(data_directory), str(segment)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield Writer(process)
        process.communicate()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
