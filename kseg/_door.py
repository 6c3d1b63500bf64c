"""The front door of a package: names that are loaded when they are first used (PEP 562).

A package that has one names the modules behind it, and has a stub beside it, `__init__.pyi`, which
says the types of the same names. Modules of the log do not use the doors of its rooms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


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
