"""`cleaner-offset-checkpoint` of a data directory: up to where each compacted log is clean.

A cut of a log lowers it. Otherwise the next records there would count as clean: a tombstone would
be removed at its horizon, and an older value of its key, which no pass has searched for, would
become the last one.

Source: Kafka `LogCleanerManager.updateCheckpoints`, `maybeTruncateCheckpoint`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files.checkpoints import (
    TopicPartition,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kseg.files.names import FileKind

#: Held between reading and writing: logs of one directory share the file.
_writing: Final = threading.Lock()


def read_clean_offset(directory: Path, partition: TopicPartition | None) -> int | None:
    """Up to where a log is clean; None if the checkpoint does not say.

    Args:
        directory: the partition.
        partition: its name in checkpoints; None for a directory under another name.

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
    _change(directory, partition, lambda _clean: offset)


def lower_clean_offset(directory: Path, partition: TopicPartition | None, offset: int) -> None:
    """Let a log that ends at an offset be clean no further; lasting when this returns.

    A malformed checkpoint stays: nothing is compacted by it.

    Raises:
        OSError: the checkpoint cannot be read or written; the old one is there.
    """
    with suppress(CorruptIndexError, LimitExceededError):
        _change(directory, partition, lambda clean: None if clean is None else min(clean, offset))


def forget_clean_offset(directory: Path, partition: TopicPartition) -> None:
    """Take a partition that is deleted, or moved away, out of the checkpoint.

    Raises:
        OSError: as for `lower_clean_offset`.
    """
    with suppress(CorruptIndexError, LimitExceededError):
        _change(directory, partition, lambda _clean: None)


def _change(
    directory: Path,
    partition: TopicPartition | None,
    changed: Callable[[int | None], int | None],
) -> None:
    """Write another offset for a log, or none; skipped if it is the present one."""
    if partition is None:
        return
    path = _path(directory)
    with _writing:
        offsets = _read(path)
        before = offsets.pop(partition, None)
        after = changed(before)
        if after != before:
            write_offset_checkpoint(
                path, offsets if after is None else {**offsets, partition: after}
            )


def _path(directory: Path) -> Path:
    return directory.resolve().parent / FileKind.CLEANER.value


def _read(path: Path) -> dict[TopicPartition, int]:
    try:
        return dict(read_offset_checkpoint(path))
    except FileNotFoundError:
        return {}
