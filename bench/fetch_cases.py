"""What is measured of fetching: stored bytes of a log under a writer, beside a bare read of them.

A fetch of some bytes from any offset opens, looks into the index, walks to the batch and reads; the
peer is told where they lie, opens and reads. A log read from end to end, and one twice as long, is
read by both a mebibyte at a time.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench import datagen
from bench.case import Case, made, scratch
from bench.pairs import Contest, Versus
from bench.records import SEED
from bench.write_cases import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from kseg.log.log import Log
    from kseg.log.reader.fetch import FileRange

CORPUS, CORPUS_MIB = "v2-plain-100-16k", 32
SEGMENT_BYTES = 16 << 20
FETCHES, FETCH_BYTES = 500, 64 << 10


def fetch_cases() -> list[Case]:
    """Every case of the group."""
    return [
        *(
            Case("fetch", f"64 KiB from {name}", "lookup", partial(_prepare_random, times=times))
            for name, times in (("any offset", 1), ("any offset, twice as long", 2))
        ),
        Case("fetch", "end to end", "byte", partial(_prepare_all, times=1)),
        Case("fetch", "end to end, twice as long", "byte", partial(_prepare_all, times=2)),
    ]


def _log(stack: ExitStack, times: int) -> Log:
    """A log of some segments, the corpus so many times over, open for appending."""
    from kseg.log.config import LogConfig
    from kseg.log.log import Log

    root = scratch(stack)
    config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1)
    log = Log.open(root / "t-0", mode="append", create=True, config=config)
    stack.callback(log.close)
    end = 0
    for batch in batches(made(CORPUS, mib=min(CORPUS_MIB, datagen.mebibytes()))) * times:
        data = bytearray(batch)
        data[:8], data[12:16] = end.to_bytes(8, "big"), bytes(4)
        end = log.append_as_follower(data).last_offset + 1
    return log


def _prepare_random(stack: ExitStack, *, times: int) -> Contest:
    log = _log(stack, times)
    chosen = np.random.default_rng(SEED).integers(0, log.log_end_offset, FETCHES).tolist()
    ranges = [_range(log, offset, FETCH_BYTES) for offset in chosen]

    def fetch() -> int:
        for offset in chosen:
            log.fetch(offset, max_bytes=FETCH_BYTES)
        return FETCHES

    return Contest(fetch, (Versus("open and read", partial(_read_each, ranges)),), FETCHES)


def _range(log: Log, offset: int, max_bytes: int) -> FileRange:
    found = log.fetch(offset, max_bytes=max_bytes, with_data=False).file
    assert found is not None
    return found


def _read_each(ranges: Sequence[FileRange]) -> int:
    for path, position, size in ranges:
        _read(path, position, size)
    return len(ranges)


def _read(path: Path, position: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, size, position)
    finally:
        os.close(fd)


def _prepare_all(stack: ExitStack, *, times: int) -> Contest:
    log = _log(stack, times)
    offset, ranges = 0, []
    while offset < log.log_end_offset:
        got = log.fetch(offset, max_bytes=1 << 20)
        assert got.file is not None
        ranges.append((offset, got.file))
        offset = got.next_offset
    work = sum(found.size for _, found in ranges)

    def read() -> int:
        return sum(log.fetch(offset, max_bytes=1 << 20).size for offset, _ in ranges)

    bare: Callable[[], int] = partial(_bytes_of, [found for _, found in ranges])
    return Contest(read, (Versus("open and read", bare),), work)


def _bytes_of(ranges: Sequence[FileRange]) -> int:
    return sum(len(_read(*found)) for found in ranges)
