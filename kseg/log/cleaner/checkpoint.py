"""`cleaner-offset-checkpoint` of a data directory: up to where each compacted log is clean.

Source: Kafka `LogCleanerManager.updateCheckpoints`.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from kseg.files.checkpoints import (
    TopicPartition,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kseg.files.names import FileKind

#: Held between reading and writing: logs of one directory share the file.
_writing: Final = threading.Lock()


def read_clean_offset(directory: Path, partition: TopicPartition | None) -> int | None:
    """Up to where a log is clean; None where nothing says so.

    Args:
        directory: the partition.
        partition: what checkpoints call it; None for a directory under another name.

    Raises:
        CorruptIndexError, LimitExceededError: the checkpoint is malformed. Without it a log is
            compacted from its start.
        OSError: it cannot be read.
    """
    return None if partition is None else _read(_path(directory)).get(partition)


def write_clean_offset(directory: Path, partition: TopicPartition | None, offset: int) -> None:
    """Note up to where a log is clean, lasting when this returns.

    Raises:
        CorruptIndexError, LimitExceededError, OSError: the checkpoint cannot be read or written;
            the old one is there.
    """
    if partition is None:
        return
    path = _path(directory)
    with _writing:
        offsets = _read(path)
        if offsets.get(partition) != offset:
            write_offset_checkpoint(path, {**offsets, partition: offset})


def _path(directory: Path) -> Path:
    return directory.resolve().parent / FileKind.CLEANER.value


def _read(path: Path) -> dict[TopicPartition, int]:
    try:
        return read_offset_checkpoint(path).offsets
    except FileNotFoundError:
        return {}


__all__ = ["read_clean_offset", "write_clean_offset"]
