"""How a file differs from what it should hold, told without taking the file into memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from kseg.files import io

_WINDOW_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Difference:
    """How a file differs from what it should hold.

    Attributes:
        size: its bytes; -1 if there is no file.
        position: of the first byte that differs, or where the shorter one ends.
        empty: whether only zeros follow from there on.
    """

    size: int
    position: int
    empty: bool

    @property
    def missing(self) -> bool:
        """Whether there is no file."""
        return self.size < 0

    def text(self, entry_bytes: int, wanted: int) -> str:
        """The difference in words, for entries of so many bytes; `wanted` bytes of them."""
        if self.missing:
            return "missing"
        if self.position == wanted and self.empty:
            return "has room behind its entries that nobody cut off"
        if self.position == wanted:
            return "has more entries than the log makes"
        if self.position == self.size and self.size % entry_bytes == 0:
            return "lacks the last entries"
        return f"differs from entry {self.position // entry_bytes} on"


def compare(path: Path, data: bytes) -> Difference | None:
    """How a file differs from `data`; None if it does not."""
    try:
        fd = io.open_read(path)
    except FileNotFoundError:
        return Difference(-1, 0, empty=False)
    try:
        size = io.file_size(fd)
        position, empty = -1, True
        for start in range(0, size, _WINDOW_BYTES):
            window = io.read_at(fd, start, min(_WINDOW_BYTES, size - start), path)
            if position < 0:
                position = _first_difference(window, data, start)
                if position < 0:
                    continue
                window = window[position - start :]
            empty = empty and not np.frombuffer(window, np.uint8).any()
            if not empty:
                break
    finally:
        os.close(fd)
    if position < 0:
        if size == len(data):
            return None
        position = size
    return Difference(size, position, empty)


def _first_difference(window: bytes, data: bytes, start: int) -> int:
    """Position of the first byte of a window that is not that of `data`; -1 for none."""
    wanted = data[start : start + len(window)]
    if window == wanted:
        return -1
    count = min(len(window), len(wanted))
    pair = (np.frombuffer(each, np.uint8, count) for each in (window, wanted))
    differing = np.flatnonzero(np.not_equal(*pair))
    return start + (int(differing[0]) if len(differing) else count)


__all__ = ["Difference", "compare"]
