"""Optional packages, imported where they are used; a missing one is a line with the pip command."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from kseg.errors import MissingExtraError


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional module.

    Args:
        module: its dotted name.
        extra: the extra of kseg that brings it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{package} is not installed; pip install 'kseg[{extra}]' brings it"
        ) from error
