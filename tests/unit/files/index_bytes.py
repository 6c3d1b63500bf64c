"""Index files for tests, in one line each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

OFFSET_ENTRY = np.dtype([("relative", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("relative", ">i4")])
TXN_ENTRY = np.dtype(
    [("version", ">i2"), ("producer", ">i8"), ("first", ">i8"), ("last", ">i8"), ("stable", ">i8")]
)


def offset_index(path: Path, entries: Iterable[tuple[int, int]], *, slots: int = 0) -> Path:
    """(relative offset, position) entries, and zeros up to `slots` of them."""
    return _write(path, np.array(list(entries), dtype=OFFSET_ENTRY), slots)


def time_index(path: Path, entries: Iterable[tuple[int, int]], *, slots: int = 0) -> Path:
    """(timestamp, relative offset) entries, and zeros up to `slots` of them."""
    return _write(path, np.array(list(entries), dtype=TIME_ENTRY), slots)


def txn_index(
    path: Path, entries: Iterable[tuple[int, int, int, int]], *, tail: bytes = b""
) -> Path:
    """(producer, first, last, last stable offset) entries of version 0."""
    rows = [(0, *entry) for entry in entries]
    path.write_bytes(np.array(rows, dtype=TXN_ENTRY).tobytes() + tail)
    return path


def _write(path: Path, entries: np.ndarray, slots: int) -> Path:
    zeros = max(slots - len(entries), 0) * entries.dtype.itemsize
    path.write_bytes(entries.tobytes() + bytes(zeros))
    return path
