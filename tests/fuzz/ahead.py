"""Walks over headers with an index that may say anything: they find what a plain walk finds.

A walk that notes checksums looks at nothing ahead, so it is the plain one here. Headers that are
read alone from a file are those of the plain walk, too, as far as that way goes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kseg._kernels import walk
from kseg.format.header import COLUMN, BatchTable, empty_table, scan, table_from

#: Enough for several stretches of a walk, of a size that it looks ahead for.
_BATCHES = (300, 700, 1500)
_HEADER = struct.Struct(">qiibIhiqqqhii")


def _batch(size: int, offset: int) -> bytes:
    """A batch of magic 2 with a header, and zeros for records."""
    fields = (offset, size - 12, 3, 2, offset & 0xFF, 0, 0, offset, offset, -1, -1, -1, 1)
    return _HEADER.pack(*fields) + bytes(size - _HEADER.size)


def log(source: Random) -> tuple[bytearray, list[int]]:
    """Batches of sizes that repeat, vary a little or vary much; and where they begin."""
    middle = source.choice((1030, 1500, 3000))
    spread = source.choice((0, 7, 200, 960))
    data, starts = bytearray(), []
    for offset in range(source.choice(_BATCHES)):
        starts.append(len(data))
        data += _batch(middle + source.randint(-spread, spread), offset)
    return data, starts


def _damaged(data: bytearray, starts: list[int], source: Random) -> None:
    """A few lengths, magics or bytes anywhere are other ones, or the end is cut or zero."""
    for _ in range(source.choice((0, 0, 1, 3))):
        at = source.choice(starts)
        lie = source.choice((0, -1, 13, 14, 48, 49, 5000, 2**20, 2**31 - 1, -(2**31)))
        change: Callable[[], None] = source.choice(
            (
                lambda at=at, lie=lie: struct.pack_into(">i", data, at + 8, lie),  # type: ignore[misc]
                lambda at=at: struct.pack_into(">b", data, at + 16, source.randint(-3, 5)),  # type: ignore[misc]
                lambda at=at: data.__setitem__(at + 61, 7),  # type: ignore[misc]
            )
        )
        change()
    cut = source.choice((0, 0, 1, 50, 990))
    if source.random() < 0.5:
        del data[len(data) - cut :]
    else:
        data += bytes(cut)


def _entries(starts: list[int], size: int, source: Random) -> list[int]:
    """Positions of an index: right ones, or those of another log, an older one, or nonsense."""
    some = starts[1 :: source.choice((1, 2, 7, 20))]
    return source.choice(
        (
            list,
            lambda: some,
            lambda: some[: len(some) // 2],
            lambda: [at + source.choice((-8, 1, 8, 12, 500)) for at in some],
            lambda: [at * 3 // 2 for at in some],
            lambda: sorted(source.choices(range(size + 1), k=len(some))),
            lambda: source.sample(some, len(some)),
            lambda: [source.randint(-(2**31), 2**31 - 1) for _ in some],
            lambda: [source.choice((0, size - 1, size - 12, size, 2**31 - 1)) for _ in some],
        )
    )()


def packed(positions: list[int]) -> bytes:
    """The entries as they lie in a file; offsets do not matter."""
    held = [(number, max(-(2**31), min(at, 2**31 - 1))) for number, at in enumerate(positions)]
    return b"".join(struct.pack(">ii", *entry) for entry in held)


def same(found: BatchTable, plain: BatchTable) -> None:
    """Both walks found the same batches and ended for the same reason; one left checksums alone."""
    rows, others = found.rows.copy(), plain.rows.copy()
    rows[:, COLUMN["crc_ok"]] = others[:, COLUMN["crc_ok"]] = 0
    assert np.array_equal(rows, others)
    for name in ("end_position", "stop", "needed", "attributes_seen", "magics_seen"):
        assert getattr(found, name) == getattr(plain, name), name


def check(source: Random, exact: Callable[[bytes], Any] = memoryview) -> None:
    """One made log, walked with an index and without."""
    data, starts = log(source)
    entries = packed(_entries(starts, len(data), source))
    _damaged(data, starts, source)
    seen = source.choice((len(data), len(data), source.randrange(len(data))))
    view, base = exact(bytes(data[:seen])), source.choice((0, 0, 0, 4096))
    where = {
        "base": base,
        "start": base + source.choice((0, 0, *(at for at in starts if at <= seen))),
        "limit": source.choice((None, None, base + source.randrange(len(data) + 1))),
        "file_end": base + len(data),
        "policy": source.choice(("strict", "file")),
        "batches_max": source.choice((0, 1, 64, 500, 65_536)),
    }
    cut = source.choice((0, 0, 3))
    _check_cached(bytes(data), source)
    found = scan(view, on_bad_crc="ignore", entries=entries[: len(entries) - cut], **where)
    same(found, scan(view, on_bad_crc="note", **where))


def cached(path: Path, *, start: int = 0, limit: int, rows_max: int = 65_536) -> BatchTable:
    """The usual batches of a file from a position on, by their headers alone."""
    rows, told = empty_table(rows_max)
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        walk.scan_cached(fd, start=start, limit=limit, file_end=size, rows=rows, walk=told)
    finally:
        os.close(fd)
    return table_from(rows, told)


def _check_cached(data: bytes, source: Random) -> None:
    """Headers read alone are the first that a plain walk finds, up to where a limit ends that."""
    limit, rows_max = source.randrange(len(data) + 1), source.choice((0, 1, 64, 65_536))
    with TemporaryDirectory() as directory:
        path = Path(directory, "log")
        path.write_bytes(data)
        found = cached(path, limit=limit, rows_max=rows_max)
    plain = {"on_bad_crc": "note", "limit": limit, "batches_max": len(found), "policy": "file"}
    same(found, scan(data, **plain))
