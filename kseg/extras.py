"""Optional packages, imported where they are used; a missing one is a line with the pip command."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from kseg.errors import MissingExtraError

#: How the loader of shared libraries says that memory is short.
_NO_MEMORY = ("Cannot allocate memory", "failed to map segment", "cannot create shared object")


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional module.

    Args:
        module: its dotted name.
        extra: the extra of kseg that brings it.

    Raises:
        MissingExtraError: it, or a module that it needs, is not installed.
        MemoryError: there is no memory for it.
        ImportError: it is installed, and cannot be loaded.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise MissingExtraError(
            f"{package} is not installed; pip install 'kseg[{extra}]' brings it"
        ) from error
    except ImportError as error:
        check_memory(error)
        raise


def check_memory(error: ImportError) -> None:
    """Raise MemoryError in place of an ImportError for lack of memory.

    Args:
        error: of an import.

    Raises:
        MemoryError: there was no memory to load the module.
    """
    if any(words in str(error) for words in _NO_MEMORY):
        raise MemoryError(str(error)) from error
