"""The front door of a package: names that are loaded when they are first used (PEP 562).

A package that has one names the modules behind it, and has a stub beside it, `__init__.pyi`, which
says the types of the same names. Modules of the log do not use the doors of its rooms.
`renamed` keeps the old names of keywords.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def door(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], Any]]:
    """Make the `__all__` and the `__getattr__` of a package.

    Args:
        package: its name.
        homes: the names that the package offers, by the modules that define them.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(home_of), load


def renamed(
    **names: str,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """A decorator of a function whose keywords have other names now; it takes the old ones, too.

    Args:
        names: the new name of each old one.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @wraps(function)
        def call(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
            for old in keywords.keys() & names.keys():
                keywords[names[old]] = keywords.pop(old)
            return function(*arguments, **keywords)

        return call

    return decorate
