"""A process that ends at any of its calls to the disk, and what it leaves is looked at.

    with suppress(Stopped), stopping_at(7) as asked:
        ...  # seven calls are made; the eighth is not, nor any after it

Nobody cleans up after `Stopped`: whoever tries runs into it again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from typing import Any

from kseg.files import io

#: For those who look at what a process leaves, and not at what a power cut does.
UNSYNCED = io.Calls(fsync=lambda fd: None, fdatasync=lambda fd: None)


class Stopped(BaseException):
    """The process ends here."""


@contextmanager
def stopping_at(made: int | None, real: io.Calls | None = None) -> Iterator[list[str]]:
    """Make so many calls and no more; all of them if None.

    Args:
        made: how many.
        real: what makes them.

    Yields:
        The names of the calls that were asked for, longer than `made` if it came to an end.
    """
    asked: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def do(*given: Any, **named: Any) -> Any:
            asked.append(name)
            if made is not None and len(asked) > made:
                raise Stopped
            return call(*given, **named)

        return do

    source = real or io.Calls()
    names = [field.name for field in fields(io.Calls)]
    with io.calls_replaced(io.Calls(**{n: counted(n, getattr(source, n)) for n in names})):
        yield asked


def failing_at(number: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wraps calls, of which that one fails once, counted from 1 over all of them."""
    made = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def do(*given: Any, **named: Any) -> Any:
            nonlocal made
            made += 1
            if made == number:
                raise OSError(5, "Input/output error")
            return call(*given, **named)

        return do

    return counted


def refusing(*names: str, code: int = errno.EIO) -> AbstractContextManager[None]:
    """Calls of these names are refused, as the system refuses: without a path."""

    def refuse(*_given: Any, **_named: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return io.calls_replaced(io.Calls(**dict.fromkeys(names, refuse)))
