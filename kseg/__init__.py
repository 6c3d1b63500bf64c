"""kseg: Apache Kafka log segments from Python, with no broker and no JVM.

    with kseg.Segment.open("orders-0/00000000000000000000.log") as segment:
        for columns in segment.read(offset=(1_200, None), columns=("offset", "key", "value")):
            ...
    table = kseg.scan("orders-0", offset=(1_200, None)).to_arrow()

    options = kseg.BatchOptions(compression=kseg.Compression.ZSTD)
    for batch in kseg.encode_batches({"key": [b"42"], "value": [b"paid"]}, options):
        ...

Names are loaded when they are first used, so `import kseg` itself costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from kseg._door import door

if sys.platform == "win32":
    raise ImportError(
        "kseg runs on Linux and macOS, not on Windows; "
        "the Windows Subsystem for Linux (WSL) runs it"
    )

if sys.version_info < (3, 11):  # noqa: UP036  (a checkout: pip refuses to install)
    _FOUND = ".".join(map(str, sys.version_info[:3]))
    raise ImportError(f"kseg needs Python 3.11 or newer, and this is {_FOUND} ({sys.executable})")

__version__ = "0.1.0"

_MODULES = (
    *("analysis", "arrow", "broker", "control", "errors", "internal", "legacy", "reports", "spark"),
    "times",
)

_names, _load = door(__name__, __file__)
__all__ = [*_names, "__version__"]


def __getattr__(name: str) -> Any:
    """Load a public name, or one of the public modules, on first use."""
    return import_module(f"kseg.{name}") if name in _MODULES else _load(name)


def __dir__() -> list[str]:
    """Every public name."""
    return sorted([*__all__, *_MODULES])
