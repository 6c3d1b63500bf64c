"""Processes that share the work of an analysis, one for each thread that asks.

The kernels release the GIL, so threads are enough where these do the work. Of thousands of small
segments most of the time goes into the interpreter, and that runs in one thread at a time: there
each thread has a process do its units.

A helper is a fork, since a new interpreter takes longer to start than it saves. So there are none
where the process has threads already: what these hold would be held for ever in a fork.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kseg.errors import KsegError
from kseg.workers import check

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from types import TracebackType

#: So many log files are worth the time that processes take to start.
SEGMENTS_MIN: Final = 1000
#: Seconds after which a thread that waits looks whether its answer is still wanted.
_BEAT: Final = 0.2

_Unit = TypeVar("_Unit")
_Answer = TypeVar("_Answer")


def can_fork() -> bool:
    """Whether helpers can be had: on Linux, in a process of one thread."""
    return sys.platform == "linux" and threading.active_count() == 1


class Helpers(Generic[_Unit, _Answer]):
    """Does units in processes of their own; a context, at whose end they end.

    Where none is free, or one has died, the thread that asks does the unit itself.
    """

    def __init__(self, work: Callable[[_Unit], _Answer], count: int) -> None:
        """Start none yet; the units of `work` and its answers pickle."""
        self._work = work
        self._count = count
        self._all: list[_Helper] = []
        self._free: list[_Helper] = []

    def __enter__(self) -> Helpers[_Unit, _Answer]:
        """Start them, as many as the system gives."""
        with suppress(OSError):
            for _ in range(self._count):
                self._all.append(_Helper(self._work))
        self._free = list(self._all)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """End them, whatever they do."""
        for each in self._all:
            each.end()

    def do(self, unit: _Unit) -> _Answer:
        """The answer of the work to a unit.

        Raises:
            KsegError: that of the work. Whatever else it raises ends the helper, and is raised
                when the unit is done here.
        """
        try:
            helper = self._free.pop()
        except IndexError:
            return self._work(unit)
        try:
            is_done, answer = helper.ask(unit)
        except (OSError, EOFError):  # it has died, and is asked nothing more
            return self._work(unit)
        self._free.append(helper)
        if not is_done:
            raise answer
        done: _Answer = answer
        return done


class _Helper:
    """One process."""

    def __init__(self, work: Callable[[Any], object]) -> None:
        """Start it.

        Raises:
            OSError: the system has no process to give.
        """
        context = get_context("fork")
        self._line, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._line, other, work), daemon=True)
        try:
            with warnings.catch_warnings():
                # Threads of NumPy's libraries, which know about forks, are there in any case.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
        finally:
            other.close()

    def ask(self, unit: object) -> tuple[bool, Any]:
        """Whether the work was done, and its answer, or the error that it raised.

        Raises:
            OSError, EOFError: the process has died.
        """
        self._line.send(unit)
        while not self._line.poll(_BEAT):
            check()
        answer: tuple[bool, Any] = self._line.recv()
        return answer

    def end(self) -> None:
        """End it."""
        self._line.close()
        self._process.kill()
        self._process.join()


def _serve(asking: Connection, line: Connection, work: Callable[[Any], object]) -> None:
    """Answer to all units, until none can come any more; this is the helper's whole life."""
    asking.close()
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            line.send(_done(work, line.recv()))


def _done(work: Callable[[Any], object], unit: object) -> tuple[bool, object]:
    try:
        return True, work(unit)
    except KsegError as error:
        return False, error


__all__ = ["SEGMENTS_MIN", "Helpers", "can_fork"]
