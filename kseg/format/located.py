"""Batches whose records are not read as columns: verdicts, and the rewrite of records in place.

A kernel rewrites usual batches of magic 2 from their own bytes. `kseg.format.retain` reads the
others as columns.

Source: Kafka MemoryRecords.filterTo, of 3.9 and of 4.0.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from kseg._kernels.located import GROWTH_BYTES, RECORD_BYTES_MIN, SPARE_BYTES, Located, rewrite
from kseg._kernels.located import Keep as KeepLocated
from kseg.constants import BATCH_HEADER_BYTES, Bools, Int64s, Uint8s
from kseg.documents import frozen_dataclass
from kseg.format.encode import compressed
from kseg.format.header import CODEC_MASK, BatchTable

#: The results for a batch, in the order of the kernel.
LEFT, DROPPED, COPIED, WRITTEN = range(4)
#: The kernel's answers for a batch, in its order.
FATE_FIELDS: Final = ("way", "at", "size", "count", "last_offset", "max_timestamp")
FATE, _AT, _BYTES, _STAYING, LAST_STAYING, LATEST = range(len(FATE_FIELDS))
#: Room for the records of compressed batches, of which many are written before any is compressed.
_ROOM_BYTES: Final = 256 << 10


@frozen_dataclass(eq=False)
class Rewritten:
    """The result for each batch of a table, and the batches that were written.

    Attributes:
        fates: int64[n, 6], columns as in `FATE_FIELDS`: "way" is `LEFT` to be read as columns,
            `DROPPED`, `COPIED` or `WRITTEN`; "at" and "size" place a batch in `plain`; "count" is
            the number of records that stay; "last_offset" and "max_timestamp" are theirs, in a
            batch that is written.
        plain: the batches, if none of them has a codec.
        packed: else each by its number.
    """

    fates: Int64s
    plain: memoryview
    packed: dict[int, bytes]

    def parts(self, first: int, end: int) -> list[bytes | memoryview]:
        """The bytes of batches that are written, all from `first` to `end`."""
        if self.packed:
            return [self.packed[number] for number in range(first, end)]
        last = self.fates[end - 1]
        return [self.plain[self.fates[first, _AT] : last[_AT] + last[_BYTES]]]


def rewrite_located(
    data: memoryview,
    table: BatchTable,
    usual: Int64s,
    keep: KeepLocated,
    located: Located,
    *,
    base: int,
    horizon_ms: int,
) -> Rewritten:
    """Rewrite batches without some records; the records that stay are copied as bytes.

    Args:
        data: bytes of the file from `base` on, all batches of `table` inside.
        table: their headers.
        usual: int64[m], rising: the numbers in `table` of the batches to rewrite, all of magic 2
            and with usual headers; see the kernel.
        keep: says which records stay.
        located: memory for the places of records, to use again.
        base: file position of `data[0]`.
        horizon_ms: the delete horizon of batches with tombstones that have no horizon yet.

    Returns:
        The result for each batch of `table`. A batch that is not in `usual`, or whose records the
        kernel would not write, is `LEFT`.
    """
    fates = np.zeros((len(table), len(FATE_FIELDS)), np.int64)
    rows = table.rows
    codecs = table.codec[usual] if table.attributes_seen & CODEC_MASK else np.zeros(0, np.int64)
    has_codecs = bool(codecs.any())
    out = np.empty(_ROOM_BYTES if has_codecs else _room_of(table, usual), np.uint8)
    packed: dict[int, bytes] = {}
    at = 0
    # Plain batches all fit into `out`, so one call writes them. Of compressed ones, each call
    # writes as many as fit, plain; `_pack` has compressed these before `out` is used again.
    while at < len(usual):
        before = at
        at, needed = rewrite(keep, located, data, rows, usual, base, before, horizon_ms, out, fates)
        if has_codecs:
            _pack(packed, fates, usual[before:at], codecs[before:at], out.data)
        # The next batch by itself needs more room than there is.
        if needed > len(out):
            out = np.empty(needed, np.uint8)
    return Rewritten(fates, out.data, packed)


def _room_of(table: BatchTable, usual: Int64s) -> int:
    """Room for plain batches, at their largest possible size, whatever their headers claim."""
    sizes = table.size[usual]
    counts = np.clip(table.record_count[usual], 0, sizes // RECORD_BYTES_MIN)
    return int(sizes.sum() + GROWTH_BYTES * counts.sum()) + SPARE_BYTES + BATCH_HEADER_BYTES


def _pack(
    packed: dict[int, bytes], fates: Int64s, usual: Int64s, codecs: Int64s, plain: memoryview
) -> None:
    """Compress the batches that were written, each with its codec, and add them to `packed`."""
    written = fates[usual, FATE] == WRITTEN
    numbers = usual[written]
    if len(numbers):
        end = int(fates[numbers[-1], _AT] + fates[numbers[-1], _BYTES])
        batches = compressed(plain[:end], codecs[written].tolist())
        packed.update(zip(numbers.tolist(), batches, strict=True))


class Retention(IntEnum):
    """The result for a batch."""

    DELETE = 0  #: dropped, its records not read
    DELETE_EMPTY = 1  #: dropped if no record stays
    RETAIN_EMPTY = 2  #: its header stays even if no record does; magic 2 only


class Known(IntEnum):
    """The knowledge about the records of a batch before they are read."""

    NOTHING = 0
    NONE_STAYS = 1
    ALL_STAY = 2  #: magic 2 only, and without tombstones


@frozen_dataclass(eq=False)
class Verdict:
    """The results for batches, one value a batch.

    Attributes:
        retention: uint8[n], each a `Retention`.
        empty_txn: bool[n], the markers of transactions that have no data left; None for no batch.
        known: uint8[n], each a `Known`: records are read where nothing is known of them; None if
            nothing is known of any batch.
        edited: bool[n], batches that are written again even if all their records stay; None for no
            batch.
    """

    retention: Uint8s
    empty_txn: Bools | None = None
    known: Uint8s | None = None
    edited: Bools | None = None

    @classmethod
    def same(cls, retention: Retention, count: int) -> Verdict:
        """The same answer for `count` batches."""
        return cls(np.full(count, retention, np.uint8))


@frozen_dataclass(eq=False)
class Unread:
    """The results for batches whose records are not read as columns, and the other batches.

    Attributes:
        others: int64[k], the batches whose records are read; without records, they are treated as
            batches that are known to keep none.
        stay: bool[n], the batches that are copied, or that lie written in `made`.
        emptied: bool[n], batches of which only the header stays.
        counts: int64[n], records that were dealt with because all was known of them.
        kept: int64[n], how many of these stay.
        made: rewritten batches from records at their places; None if there are none.
    """

    others: Int64s
    stay: Bools
    emptied: Bools
    counts: Int64s
    kept: Int64s
    made: Rewritten | None = None

    @classmethod
    def of(cls, table: BatchTable, verdict: Verdict) -> Unread:
        """The results that follow from verdicts only."""
        emptied = verdict.retention == Retention.RETAIN_EMPTY
        read = verdict.retention != Retention.DELETE
        fates = verdict.known
        if fates is None:
            nothing = np.zeros(len(table), np.int64)
            return cls(np.flatnonzero(read), nothing.astype(np.bool_), emptied, nothing, nothing)
        sure = read & (fates != Known.NOTHING)
        copied = sure & (fates == Known.ALL_STAY)
        counts = np.where(sure, table.record_count, 0)
        retained = np.where(copied, counts, 0)
        return cls(np.flatnonzero(read & ~sure), copied, emptied & ~copied, counts, retained)

    def with_made(self, table: BatchTable, made: Rewritten) -> Unread:
        """The batches still to be read once some of them were rewritten as bytes.

        Args:
            table: all batches.
            made: the results for those batches.
        """
        ways = made.fates[:, FATE]
        done, stay = ways != LEFT, self.stay | (ways >= COPIED)
        return Unread(
            self.others[~done[self.others]],
            stay,
            self.emptied & ~stay,
            np.where(done, table.record_count, self.counts),
            np.where(done, made.fates[:, _STAYING], self.kept),
            made,
        )
