"""Filters of keys: may a stretch of a log hold a key? Bytes and values; this opens no file.

A file belongs to one segment and has a filter for each stretch of it. Numbers are little-endian:

    offset  size
         0     8  b"KSEGKEY1"
         8     8  base offset of the segment
        16     8  bytes of the segment
        24    16  digest of the headers of its batches
        40    24  the segment's file as it was found: inode, modification and change time in ns
        64     4  number of stretches
        68     4  CRC-32C of the other bytes of the head and of the table
        72  24 n  table: the position of each stretch, its end, and the number of its buckets
       ...  64 m  buckets, those of one stretch after those of another

A stretch without a bucket may hold any key. A key belongs to one bucket of a stretch, by the upper
half of its hash; `PROBES` bits of the bucket's 480 are set for it, by the lower half. The last four
bytes of a bucket are a checksum of the bits, the digest and the place of the bucket, so a damaged
or misplaced bucket is noticed. It counts as one that has the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import numpy as np

from kseg._core import crc32c
from kseg.constants import Array, Bools, Int64s, Uint8s
from kseg.format.key_hashes import hash_values
from kseg.format.values import BinaryColumn

MAGIC: Final = b"KSEGKEY1"
DIGEST_BYTES: Final = 16
_HEAD: Final = Struct("<8sqq16sqqqII")
HEAD_BYTES: Final = _HEAD.size
BUCKET_BYTES: Final = 64
_BITS: Final = 480
PROBES: Final = 7
#: With so many keys a bucket, a filter has a key that it lacks about once in 300 times.
_KEYS_OF_BUCKET: Final = 34
_ROW_BYTES: Final = 24
Uint64s = np.ndarray[Any, np.dtype[np.uint64]]
#: Odd numbers that spread the bits of a hash, and the words of a bucket.
_SPREAD: Final = np.array(
    [0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD3A2646D, 0xFD7046C5], np.uint64
)
_WORDS: Final = np.arange(1, 16, dtype=np.uint64) * np.uint64(0x2545F4914F6CDD1D) | np.uint64(1)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True, eq=False)
class FilterHead:
    """The head of a filter file, which describes its segment.

    Attributes:
        base_offset, size: of the segment.
        digest: of the headers of its batches.
        found: inode, modification and change time in ns of the segment; zeros if they do not tell.
        table: int64[n, 3]: position, end and number of buckets of each stretch.
    """

    base_offset: int
    size: int
    digest: bytes
    found: tuple[int, int, int]
    table: Int64s

    def packed(self) -> bytes:
        """Its bytes."""
        table = self.table.astype("<i8").tobytes()
        fields = (MAGIC, self.base_offset, self.size, self.digest, *self.found, len(self.table))
        head = _HEAD.pack(*fields, 0)
        return _HEAD.pack(*fields, crc32c(head + table)) + table

    @property
    def first_buckets(self) -> Int64s:
        """int64[n]: the number of the first bucket of each stretch."""
        ends: Int64s = np.cumsum(self.table[:, 2])
        return ends - self.table[:, 2]

    def places(self, key: bytes) -> Int64s:
        """int64[n]: where the file has the bucket of a key in each stretch; -1 for none."""
        counts = self.table[:, 2].astype(np.uint64)
        bucket = (_hash_of(key) >> _HALF) * counts >> _HALF
        numbers = self.first_buckets + bucket.astype(np.int64)
        start = HEAD_BYTES + _ROW_BYTES * len(self.table)
        return np.where(self.table[:, 2] > 0, start + BUCKET_BYTES * numbers, -1)

    def may_have(self, key: bytes, buckets: Uint8s, places: Int64s) -> Bools:
        """bool[n]: whether each stretch may hold a key.

        Args:
            key: the key.
            buckets: uint8[n, 64], the buckets at `places`; undefined for stretches without one.
            places: of `places`.
        """
        has_all = np.ones(len(places), np.bool_)
        for bit in _probes(_hash_of(key))[:, 0].tolist():
            has_all &= buckets[:, bit >> 3] >> (7 - (bit & 7)) & 1 > 0
        stored = buckets[:, 60:].copy().view("<u4")[:, 0]
        sound = stored == _checks(buckets, self.digest, places)
        may: Bools = has_all | ~sound | (places < 0)
        return may


def parse_head(head: bytes, file_size: int, table: bytes) -> FilterHead | None:
    """Parse the head of a filter file; None for a damaged file, or one of another kind.

    Args:
        head: its first `HEAD_BYTES`.
        file_size: its size.
        table: the bytes behind the head, at least `table_bytes(head, file_size)`.
    """
    if len(head) < HEAD_BYTES or len(table) < table_bytes(head, file_size):
        return None
    magic, base_offset, size, digest, inode, modified, changed, count, crc = _HEAD.unpack(head)
    if magic != MAGIC or count == 0:
        return None
    packed = table[: count * _ROW_BYTES]
    rows = np.frombuffer(packed, "<i8").reshape(-1, 3).astype(np.int64)
    found = FilterHead(base_offset, size, digest, (inode, modified, changed), rows)
    starts, ends, buckets = rows.T
    if crc != crc32c(head[:-4] + bytes(4) + packed):
        return None
    if (
        starts[0] != 0
        or ends[-1] != size
        or (starts >= ends).any()
        or (starts[1:] != ends[:-1]).any()
    ):
        return None
    room = (file_size - HEAD_BYTES - len(packed)) // BUCKET_BYTES
    if (buckets < 0).any() or (buckets > room).any() or int(buckets.sum()) != room:
        return None
    return found


def table_bytes(head: bytes, file_size: int) -> int:
    """Bytes of the table behind a head, no more than the file has; 0 if it has fewer."""
    if len(head) < HEAD_BYTES:
        return 0
    size: int = _HEAD.unpack(head)[-2] * _ROW_BYTES
    return size if size <= file_size - HEAD_BYTES else 0


def buckets_of(keys: Sequence[BinaryColumn]) -> Uint8s:
    """uint8[m, 64]: the buckets of some keys without their checksums; nulls are not keys."""
    hashes = np.unique(np.concatenate([_hashes(column) for column in keys] or [_NONE]))
    count = -(-len(hashes) // _KEYS_OF_BUCKET) or 1
    bits = np.zeros((count, _BITS), np.bool_)
    bucket = (hashes >> _HALF) * np.uint64(count) >> _HALF
    for probe in _probes(hashes):
        bits[bucket, probe] = True
    buckets = np.zeros((count, BUCKET_BYTES), np.uint8)
    buckets[:, :60] = np.packbits(bits, axis=1)
    return buckets


def seal(buckets: Uint8s, digest: bytes, table_rows: int) -> None:
    """Write the checksums into all buckets of a file."""
    start = HEAD_BYTES + _ROW_BYTES * table_rows
    places = start + BUCKET_BYTES * np.arange(len(buckets), dtype=np.int64)
    buckets[:, 60:] = _checks(buckets, digest, places).astype("<u4")[:, None].view(np.uint8)


_NONE: Final = np.empty(0, np.uint64)


def _hashes(column: BinaryColumn) -> Uint64s:
    found = np.empty(len(column), np.uint64)
    hash_values(column.data, column.offsets, found)
    return found[column.is_valid()]


def _hash_of(key: bytes) -> Uint64s:
    """uint64[1]."""
    found = np.empty(1, np.uint64)
    hash_values(key, np.array([0, len(key)], np.int32), found)
    return found


def _probes(hashes: Uint64s) -> Int64s:
    """int64[PROBES, n]: the bits of a bucket that are set for each hash."""
    mixed = (hashes & _LOW)[None, :] * _SPREAD[:, None] & _LOW
    bits: Int64s = (mixed * np.uint64(_BITS) >> _HALF).astype(np.int64)
    return bits


def _checks(buckets: Uint8s, digest: bytes, places: Int64s) -> Array:
    """uint32[n]: the checksums of buckets at places of their file."""
    words = np.ascontiguousarray(buckets[:, :60]).view("<u4").astype(np.uint64)
    seed = np.uint64(int.from_bytes(digest[:8], "little"))
    total = (words * _WORDS).sum(axis=1, dtype=np.uint64)
    mixed = (total ^ seed) + places.astype(np.uint64) * _WORDS[1]
    mixed = (mixed ^ mixed >> _HALF) * _WORDS[2]
    found: Array = (mixed >> _HALF).astype(np.uint32)
    return found
