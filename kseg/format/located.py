"""Batches of magic 2 written anew from their own bytes: no record becomes columns.

What the kernel does not take, `kseg.format.retain` reads as columns: a batch that is damaged, that
Kafka would have written in other bytes, or that is larger than usual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg._kernels.located import (
    GROWTH_BYTES,
    RECORD_BYTES_MIN,
    SPARE_BYTES,
    Keep,
    Located,
    rewrite,
)
from kseg.constants import BATCH_HEADER_BYTES
from kseg.format.encode import compressed
from kseg.format.header import CODEC_MASK

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.header import BatchTable

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

#: What became of a batch; the order is that of the kernel.
LEFT, DROPPED, COPIED, WRITTEN = range(4)
#: What is told of a batch; the order is that of the kernel.
TOLD_FIELDS: Final = ("way", "at", "size", "count", "last_offset", "max_timestamp")
_WAY, _AT, _SIZE, _COUNT, _LAST_OFFSET, _MAX_TIMESTAMP = range(len(TOLD_FIELDS))
#: Room for the records of compressed batches, of which many are written before any is compressed.
_ROOM_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True, eq=False)
class Rewritten:
    """What became of the batches of a table, and those that were written.

    Attributes:
        told: int64[n, 6], columns as in `TOLD_FIELDS`; "at" and "size" place a batch in `plain`.
        plain: the batches, if none of them has a codec.
        packed: else each by its number.
    """

    told: Int64s
    plain: memoryview
    packed: dict[int, bytes]

    @property
    def ways(self) -> Int64s:
        """int64[n]: `LEFT` to be read as columns, `DROPPED`, `COPIED` or `WRITTEN`."""
        return self.told[:, _WAY]

    @property
    def counts(self) -> Int64s:
        """int64[n]: records that stay."""
        return self.told[:, _COUNT]

    @property
    def last_offsets(self) -> Int64s:
        """int64[n]: of the last record that stays, in a batch that is written."""
        return self.told[:, _LAST_OFFSET]

    @property
    def max_timestamps(self) -> Int64s:
        """int64[n]: of the records that stay, in a batch that is written."""
        return self.told[:, _MAX_TIMESTAMP]

    def parts(self, first: int, end: int) -> list[bytes | memoryview]:
        """The bytes of batches that are written, all from `first` to `end`."""
        if self.packed:
            return [self.packed[number] for number in range(first, end)]
        last = self.told[end - 1]
        return [self.plain[self.told[first, _AT] : last[_AT] + last[_SIZE]]]


def rewrite_located(
    data: memoryview,
    table: BatchTable,
    asked: Int64s,
    keep: Keep,
    located: Located,
    *,
    base: int,
    horizon_ms: int,
) -> Rewritten:
    """Write batches without the records that go.

    Args:
        data: bytes of the file from `base` on, all batches of `table` inside.
        table: their headers.
        asked: numbers of usual batches of magic 2, rising; see the kernel.
        keep: says which records stay.
        located: memory to use again.
        base: file position of `data[0]`.
        horizon_ms: the time until which tombstones stay that have none yet.
    """
    told = np.zeros((len(table), len(TOLD_FIELDS)), np.int64)
    rows = table.rows
    codecs = table.codec[asked] if table.attributes_seen & CODEC_MASK else np.zeros(0, np.int64)
    has_codecs = bool(codecs.any())
    out = np.empty(_ROOM_BYTES if has_codecs else _room_of(table, asked), np.uint8)
    packed: dict[int, bytes] = {}
    at = 0
    while at < len(asked):
        before = at
        at, wanted = rewrite(keep, located, data, rows, asked, base, before, horizon_ms, out, told)
        if has_codecs:
            _pack(packed, told, asked[before:at], codecs[before:at], out.data)
        if wanted > len(out):
            out = np.empty(wanted, np.uint8)
    return Rewritten(told, out.data, packed)


def _room_of(table: BatchTable, asked: Int64s) -> int:
    """Room for plain batches, as large as they may become, whatever their headers count."""
    sizes = table.size[asked]
    counts = np.clip(table.record_count[asked], 0, sizes // RECORD_BYTES_MIN)
    return int(sizes.sum() + GROWTH_BYTES * counts.sum()) + SPARE_BYTES + BATCH_HEADER_BYTES


def _pack(
    packed: dict[int, bytes], told: Int64s, asked: Int64s, codecs: Int64s, plain: memoryview
) -> None:
    """Keep the batches that were written, each by its codec."""
    written = told[asked, _WAY] == WRITTEN
    numbers = asked[written]
    if len(numbers):
        end = int(told[numbers[-1], _AT] + told[numbers[-1], _SIZE])
        batches = compressed(plain[:end], codecs[written].tolist())
        packed.update(zip(numbers.tolist(), batches, strict=True))


__all__ = [
    "COPIED",
    "DROPPED",
    "LEFT",
    "TOLD_FIELDS",
    "WRITTEN",
    "Keep",
    "Located",
    "Rewritten",
    "rewrite_located",
]
