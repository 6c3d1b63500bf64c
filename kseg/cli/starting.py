"""What a process of this program's own does while it loads, so that its start is quick.

Loading leaves next to no garbage, so no collection looks for any until a verb begins; what is there
then is left out of those to come. NumPy comes without threads for linear algebra, of which kseg has
none: OpenBLAS starts one for each core, and each takes processor time before it sleeps.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
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
        def carry_out(**given: Any) -> Any:
            module = import_module(f"kseg.cli.{home or function.__name__}")
            return getattr(module, function.__name__)(**given)

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


__all__ = ["Verb", "begin", "end", "verb"]
