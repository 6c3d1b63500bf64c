"""The three standard streams: whether they are open, and whether the reader is still there.

A program may be started with any of them closed, or lose its reader on the way.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from contextlib import suppress


class PipeError(Exception):
    """A pipe without its other end: standard output, or one to a process that shares the work."""


def ready() -> bool:
    """Open missing streams on `/dev/null`; false if standard output was missing.

    Otherwise the next file that is opened gets the number of a stream, and the bytes written there.
    Standard input is opened so that reading from it fails, as from a closed one.
    """
    found = (sys.stdin, sys.stdout, sys.stderr)
    for number in range(3):
        if found[number] is None and not _is_open(number):
            nowhere = os.open(os.devnull, os.O_WRONLY)  # the lowest number that is free
            assert nowhere == number
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if sys.stdout is not None:
        return True
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    return False


def nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader has gone."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


class ReaderGone(threading.Event):
    """An event that is also set once standard output has no reader."""

    def is_set(self) -> bool:
        """Whether to stop writing."""
        return super().is_set() or nobody_reads()


def let_go_of_stdout() -> None:
    """Discard what the interpreter flushes at exit."""
    with suppress(OSError, ValueError):
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


__all__ = ["PipeError", "ReaderGone", "let_go_of_stdout", "nobody_reads", "ready"]
