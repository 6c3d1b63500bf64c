"""Replace a small file whole: readers see the old bytes or the new ones, also after a crash.

Write beside, flush, rename, flush the directory. An attempt that does not reach the rename leaves
`<name>.tmp`, which Kafka's loaders and ours ignore.

Source: Kafka `CheckpointFile.write`, `Utils.atomicMoveWithFallback`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kseg.constants import Buffer, StrPath
from kseg.files import io

SUFFIX = ".tmp"


def replace_file(
    path: StrPath,
    data: Buffer,
    *,
    keep_modified: bool = False,
    flush_directory: bool = True,
) -> None:
    """Give `path` the bytes `data`, lasting when this returns.

    A replaced file passes its owner and permissions on; a new file has those of the files around
    it.

    Args:
        path: the file, there or not.
        data: all of it.
        keep_modified: the new file also has the modification time of the replaced file.
        flush_directory: make the name lasting, too; if false, the caller must do it.

    Raises:
        OSError: nothing has changed; or, if the very last step failed (the flush of the directory),
            either file may be there after a crash.
    """
    target = Path(path)
    beside = target.with_name(target.name + SUFFIX)
    io.unlink(beside, missing_ok=True)
    replaced: os.stat_result | None = None
    with suppress(FileNotFoundError):
        replaced = os.stat(target)
    try:
        with io.WriteFile.open(beside, exclusive=True, like=replaced) as file:
            file.write_at(0, data)
            if keep_modified and replaced is not None:
                io.set_modified(beside, replaced.st_mtime_ns)
            file.flush()
        io.rename(beside, target)
    except OSError:
        with suppress(OSError):
            io.unlink(beside)
        raise
    if flush_directory:
        io.flush_directory(target.parent)
