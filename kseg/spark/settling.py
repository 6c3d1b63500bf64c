"""A worker of Spark's that does not look at its modules again after every task."""

from __future__ import annotations

import gc

_settled = False


def settle() -> None:
    """Freeze the imported objects for the garbage collector, once in a worker process.

    Spark's worker collects garbage after every task, and most of a short task's time goes into
    looking at modules that will never be garbage.
    """
    global _settled
    if not _settled:
        gc.collect()
        gc.freeze()
        _settled = True
