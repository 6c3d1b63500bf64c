"""Another process that holds a data directory, as a broker does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Answers a line once it holds the lock, and lets go when its input ends.
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(data_directory: Path) -> Iterator[int]:
    """Hold `.lock` of the directory from another process; gives its id."""
    command = [sys.executable, "-c", HOLD, str(data_directory / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield process.pid
        process.communicate()
