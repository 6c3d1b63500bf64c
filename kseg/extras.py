"""Optional packages, imported where they are used; a missing one is a line with the pip command."""

from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType
from typing import Final

from kseg.errors import MissingExtraError

#: How the loader of shared libraries says that memory is short.
_NO_MEMORY = ("Cannot allocate memory", "failed to map segment", "cannot create shared object")


def require(module: str, *, extra: str = "") -> ModuleType:
    """Import an optional module.

    Args:
        module: its dotted name.
        extra: the extra of kseg that installs it; empty if there is none.

    Raises:
        MissingExtraError: it, or a module that it needs, is not installed.
        MemoryError: there is not enough memory to import it.
        ImportError: it is installed, and cannot be loaded.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        requirement = f"'kseg[{extra}]'" if extra else package
        raise MissingExtraError(
            f"{package} is not installed; pip install {requirement} brings it"
        ) from error
    except ImportError as error:
        check_memory(error)
        raise


def check_memory(error: ImportError) -> None:
    """Raise MemoryError in place of an ImportError for lack of memory.

    Args:
        error: the error of an import.

    Raises:
        MemoryError: there was no memory to load the module.
    """
    if any(words in str(error) for words in _NO_MEMORY):
        raise MemoryError(str(error)) from error


#: The first release of Spark that hands filters to Python sources.
_SPARK_MIN: Final = (4, 1)


def check_pyspark() -> None:
    """Make sure that a pyspark is installed with which the source works.

    Raises:
        MissingExtraError: it is missing or too old; the message has the command to run.
    """
    version: str = require("pyspark", extra="spark").__version__
    require("pyarrow", extra="spark")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < _SPARK_MIN:
        least = ".".join(map(str, _SPARK_MIN))
        raise MissingExtraError(
            f"pyspark {version} is too old, kseg needs {least}: pip install -U 'kseg[spark]'"
        )
