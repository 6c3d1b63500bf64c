"""The start of a process: imports without garbage collection, and the three standard streams.

Imports leave next to no garbage, so the collector is off until a verb begins, and then passes over
all objects that exist. NumPy is loaded without threads for linear algebra, which kseg does not use:
OpenBLAS starts a thread for each core, and each takes processor time before it sleeps.

A program may be started with any of its three streams closed, or lose its reader on the way.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any, Final

import click

_THREADS: Final = "OPENBLAS_NUM_THREADS"


class Verb(click.Command):
    """A verb that needs NumPy: it is loaded for the verb's work, not for its help."""

    def invoke(self, ctx: click.Context) -> Any:
        """Load NumPy, then do the work."""
        if not gc.isenabled():
            _load_numpy()
            gc.freeze()
            gc.enable()
        return super().invoke(ctx)


def verb(
    *parameters: Callable[[Any], Any], home: str = ""
) -> Callable[[Callable[[], None]], click.Command]:
    """Declare a verb with the name and the docstring of a function that is never called.

    The function of that name in `kseg.cli.HOME` carries out the verb. It is imported when the verb
    runs and takes the values of the parameters by their names.

    Args:
        parameters: click's decorators for the arguments and options, in the order of the help.
        home: the module of that function; the name of the verb if empty.
    """

    def declare(function: Callable[[], None]) -> click.Command:
        @wraps(function)
        def carry_out(**words: Any) -> Any:
            module = import_module(f"kseg.cli.{home or function.__name__}")
            return getattr(module, function.__name__)(**words)

        declared: Callable[..., Any] = carry_out
        for parameter in reversed(parameters):
            declared = parameter(declared)
        return click.command(cls=Verb)(declared)

    return declare


def begin() -> None:
    """Let nothing be collected until a verb begins; for a process that ends with its verb."""
    gc.disable()


def end() -> None:
    """Let the interpreter end without looking through all that is there."""
    gc.freeze()
    gc.enable()  # of a verb's help it is still off


def _load_numpy() -> None:
    """Import NumPy; processes that this one starts get the environment as it was."""
    ours = "numpy" not in sys.modules and _THREADS not in os.environ
    if ours:
        os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        if ours:
            del os.environ[_THREADS]


# ---- the three standard streams ------------------------------------------------------------------


class PipeError(Exception):
    """A pipe without its other end: standard output, or one to a process that shares the work."""


def ready() -> bool:
    """Open missing streams on `/dev/null`; false if standard output was missing.

    Otherwise the next file that is opened gets the number of a stream, and the bytes written there.
    Standard input is opened so that reading from it fails, as from a closed one.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    for number in range(3):
        if streams[number] is None and not _is_open(number):
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
    """Discard output that the interpreter would flush at exit."""
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
