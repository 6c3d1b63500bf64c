"""The front door of a package: names that are loaded when they are first used (PEP 562).

The stub beside such a package, `__init__.pyi`, names them with the modules that they live in, for
type checkers and for the package itself. Modules of the log do not use the doors of its rooms.
`renamed` keeps the old names of keywords.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, Final, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
#: The lines of a stub by which a package offers a name of another module.
_OFFERED: Final = re.compile(r"^from (kseg\.\S+) import (\w+) as \2$", re.MULTILINE)


def door(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """Make the `__all__` and the `__getattr__` of a package.

    Args:
        package: the package's name.
        file: its source; the stub beside it has a line for each name that the package offers.
    """
    with open(file.removesuffix("py") + "pyi", encoding="utf-8") as stub:
        home_of = {name: module for module, name in _OFFERED.findall(stub.read())}

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
    """A decorator for a function whose keywords were renamed; it accepts the old names too.

    Args:
        names: old name -> new name.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @wraps(function)
        def call(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
            for old in keywords.keys() & names.keys():
                if names[old] in keywords:
                    raise TypeError(f"{old} is the old name of {names[old]}: give one of them")
                keywords[names[old]] = keywords.pop(old)
            return function(*arguments, **keywords)

        return call

    return decorate
