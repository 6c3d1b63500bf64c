"""A process that changes bytes of files in place, never their size: `python -m tests.fuzz.changer`.

Beside the files lie the places that it changes: lengths, counts, magics and attributes, which
`places_of` finds in sound bytes. Each change is taken back at once, so that what is read is sound
most of the time, and another thing when it is looked at again.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np

from kseg.format.header import scan
from tests import reference

#: Bits that make a number negative, huge, or a little other.
_BITS = (0x80, 0x40, 0x01, 0x02, 0xFF)
#: Places that are changed together, and seconds after which files are opened anew.
_TOGETHER, _TURN_SECONDS = (8, 200, 3000), 0.1
#: In front of the records of a batch: length, magic, attributes, last offset delta, count.
_OF_BATCH = (8, 9, 10, 11, 16, 22, 23, 57, 58, 60)
#: In front of the key of a message: size, magic, attributes.
_OF_MESSAGE = (8, 9, 10, 11, 16, 17)
_PR_SET_PDEATHSIG = 1
_BETWEEN = ","


def places_of(name: str, data: bytes) -> np.ndarray:
    """Positions in a file's bytes that are worth a change."""
    if not name.endswith(".log"):
        return np.arange(min(len(data), 4096), dtype=np.int64)
    return np.array(list(_places_of_log(data)), np.int64)


def _places_of_log(data: bytes) -> Iterator[int]:
    table = scan(data, on_bad_crc="ignore")
    for row in table.rows.tolist():
        start, size, magic, attributes = row[0], row[1], row[2], row[7]
        yield from (start + at for at in (_OF_BATCH if magic >= 2 else _OF_MESSAGE))
        body = start + (61 if magic >= 2 else 18 if magic == 0 else 26)
        if attributes & 7 or magic < 2:
            yield from range(body, min(body + 24, start + size))
        else:
            yield from _places_of_records(data, body, start + size)


def _places_of_records(data: bytes, at: int, end: int) -> Iterator[int]:
    """Where the numbers of each record lie."""
    while at < end:
        first, (length, at) = at, reference.read_varint(data, at, end)
        stop = at + length
        yield from range(first, at)
        first, at = at + 1, reference.read_varlong(data, at + 1, end)[1]  # behind the attributes
        at = reference.read_varint(data, at, end)[1]
        yield from range(first, at)
        for _ in range(2):  # key and value
            first, (size, at) = at, reference.read_varint(data, at, end)
            yield from range(first, at)
            at += max(size, 0)
        first, (_, at) = at, reference.read_varint(data, at, end)  # how many headers
        yield from range(first, at)
        while at < stop:
            first, (size, at) = at, reference.read_varint(data, at, end)
            yield from range(first, at)
            at += max(size, 0)


def write_places(files: Path, places: Path) -> None:
    """Find the places of all files below a directory."""
    places.mkdir(parents=True, exist_ok=True)
    for path in sorted(files.rglob("*")):
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".kafka"):
            np.save(_beside(places, path, files), places_of(path.name, path.read_bytes()))


def _beside(places: Path, path: Path, files: Path) -> Path:
    return places / (_BETWEEN.join(path.relative_to(files).parts) + ".npy")


def change(files: Path, places: Path, seed: int) -> None:
    """Change files until the process that began this one ends, also those that come later."""
    source = Random(seed)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        found = list(_opened(files, places))
        weights = [len(at) for _, at in found]  # so most changes are where most numbers are
        end = time.monotonic() + _TURN_SECONDS
        while found and time.monotonic() < end:
            _change_once(*source.choices(found, weights)[0], source)
        time.sleep(0 if found else _TURN_SECONDS)
        for view, _ in found:
            del view


def _change_once(view: np.ndarray, at: np.ndarray, source: Random) -> None:
    count, bits = source.choice(_TOGETHER), source.choice(_BITS)
    first = source.randrange(max(1, len(at) - count))
    some = at[first : first + count]
    for _ in range(50):
        view[some] ^= bits
        view[some] ^= bits


def _opened(files: Path, places: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The bytes of each file, and the places that lie in them."""
    for known in sorted(places.glob("*.npy")):
        path = files / known.stem.replace(_BETWEEN, os.sep)
        try:
            with path.open("r+b") as file:
                view = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        except (OSError, ValueError):  # absent or empty
            continue
        at = np.load(known)
        at = at[at < len(view)]
        if len(at):
            yield view, at


if __name__ == "__main__":
    change(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
