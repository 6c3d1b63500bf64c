"""The zstandard library, loaded on first use, and the objects of it that a thread keeps."""

from __future__ import annotations

import os
import threading
from functools import cache
from types import ModuleType

#: A thread's own compressors and decompressor: one shared by two threads crashes the process. A
#: child after a fork makes its own, since its parent may have been changing the memory of these.
kept = threading.local()


def _forget() -> None:
    kept.__dict__.clear()


if hasattr(os, "register_at_fork"):
    # A child has one thread only, the one that forked.
    os.register_at_fork(after_in_child=_forget)


@cache
def library() -> ModuleType:
    """The library.

    Raises:
        ImportError: it is not installed.
    """
    import zstandard

    return zstandard


__all__ = ["kept", "library"]
