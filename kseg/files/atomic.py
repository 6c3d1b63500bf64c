"""Replace a small file whole: readers see the old bytes or the new ones, also after a crash.

Write beside, flush, rename, flush the directory. What is left of an attempt that did not get to the
rename is `<name>.tmp`, which Kafka's loaders and ours pass over.

Source: Kafka `CheckpointFile.write`, `Utils.atomicMoveWithFallback`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kseg.files import io

SUFFIX = ".tmp"


def replace_file(path: io.StrPath, data: io.Bytes) -> None:
    """Give `path` the bytes `data`, lasting when this returns.

    A file that is replaced leaves its owner and permissions to the new one.

    Raises:
        OSError: nothing has changed; or, if the very last step failed (the flush of the directory),
            either file may be there after a crash.
    """
    target = Path(path)
    beside = target.with_name(target.name + SUFFIX)
    with suppress(FileNotFoundError):
        io.unlink(beside)
    try:
        with io.WriteFile.open(beside, exclusive=True) as file:
            file.write_at(0, data)
            with suppress(FileNotFoundError):
                io.dress_like(beside, os.stat(target))
            file.flush()
        io.rename(beside, target)
    except OSError:
        with suppress(OSError):
            io.unlink(beside)
        raise
    io.flush_directory(target.parent)
