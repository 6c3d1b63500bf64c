"""Other processes: one that holds a data directory, as a broker does; one of another user."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


def as_user(uid: int, work: Callable[[], object], gid: int | None = None) -> str:
    """Do something in a child process of another user; what it failed of, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.setgroups([])
            os.setgid(uid if gid is None else gid)
            os.setuid(uid)
            work()
        except BaseException:
            os.write(writing, traceback.format_exc()[-4000:].encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        error = pipe.read().decode()
    os.waitpid(child, 0)
    return error
