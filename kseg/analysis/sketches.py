"""Summaries of records in little memory: sizes, times, distinct keys, the keys with most records.

Each has an exact half (counts, sums, extremes) and an estimated one with a stated error. Joining is
associative and commutative; for `KeyTotals` up to `MERGED_KEYS_MAX` keys, and within the stated
error beyond.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

import numpy as np

from kseg.constants import NO_TIMESTAMP, Bools, Int32s, Int64s, Intps, Uint8s, Uint64s
from kseg.documents import fields_of, frozen_dataclass
from kseg.format.take import KeyTable, hash_values, note_distinct, take_binary
from kseg.format.times import DAY_MS
from kseg.format.values import BinaryColumn

#: Widths of a bin of a timeline, in ms, each a multiple of the width before it: 1 s, 10 s, 1 min,
#: 10 min, 1 h, 6 h, 1 day, 4 weeks, then 13 times that and ten times on.
WIDTHS_MS: Final = (
    1000,
    10_000,
    60_000,
    600_000,
    3_600_000,
    21_600_000,
    DAY_MS,
    28 * DAY_MS,
    *(364 * DAY_MS * 10**power for power in range(8)),
)
#: Bins of a timeline that hold records; with more, bins are joined.
BINS_MAX: Final = 512
#: Values of a segment, the first of it, whose kind is looked at.
_SAMPLED: Final = 1024
#: Sixteen buckets for each power of two: a bucket's bounds lie within a sixteenth of each other.
_STEPS: Final = 16
_BUCKETS: Final = _STEPS * 60
_REGISTERS: Final = 4096
#: By how much estimates may be wrong: quantiles are too large by this share at most; two in three
#: counts of different values are off by less than this share.
QUANTILE_ERROR: Final = 1 / _STEPS
DISTINCT_ERROR: Final = round(1.04 / _REGISTERS**0.5, 3)
#: Keys that a counter adds up before it lets the smaller half go.
COUNTED_KEYS_MAX: Final = 1 << 19
#: Keys that the answer for one file keeps, and that a joined answer does.
KEPT_KEYS_MAX: Final = 1024
MERGED_KEYS_MAX: Final = 1 << 16
_HASH_MAX: Final = np.uint64(2**64 - 1)


@frozen_dataclass(eq=False)
class SizeHistogram:
    """Sizes in bytes: exact count, sum and extremes, quantiles within a sixteenth.

    Attributes:
        count, total: how many sizes, and their sum.
        least, greatest: the extremes; 0 without any sizes.
        buckets: int64[960], sizes in each bucket.
    """

    count: int
    total: int
    least: int
    greatest: int
    buckets: Int64s = field(repr=False)

    @classmethod
    def none(cls) -> SizeHistogram:
        """A histogram without sizes."""
        return cls(0, 0, 0, 0, np.zeros(_BUCKETS, np.int64))

    @classmethod
    def of(cls, sizes: Int64s) -> SizeHistogram:
        """Count sizes, none of them negative."""
        if not len(sizes):
            return cls.none()
        buckets = np.bincount(_bucket(sizes), minlength=_BUCKETS).astype(np.int64)
        return cls(len(sizes), int(sizes.sum()), int(sizes.min()), int(sizes.max()), buckets)

    def merge(self, other: SizeHistogram) -> SizeHistogram:
        """The sums of both."""
        if not self.count or not other.count:
            return self if self.count else other
        return SizeHistogram(
            self.count + other.count,
            self.total + other.total,
            min(self.least, other.least),
            max(self.greatest, other.greatest),
            self.buckets + other.buckets,
        )

    def quantile(self, share: float) -> int:
        """A size that `share` of all sizes do not exceed, at most a sixteenth too large; else 0.

        >>> SizeHistogram.of(np.arange(1, 101)).quantile(0.5)
        51
        """
        if not self.count:
            return 0
        rank = min(max(int(np.ceil(share * self.count)), 1), self.count)
        bucket = int(np.searchsorted(np.cumsum(self.buckets), rank))
        return min(max(_bucket_end(bucket), self.least), self.greatest)

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON."""
        return {
            **fields_of(self, "count total min=least max=greatest"),
            "mean": round(self.total / self.count, 1) if self.count else 0.0,
            "p50": self.quantile(0.50),
            "p90": self.quantile(0.90),
            "p99": self.quantile(0.99),
            "quantile_error": QUANTILE_ERROR,
            "histogram": self.by_power(),
        }

    def by_power(self) -> list[tuple[int, int]]:
        """The numbers of sizes below each power of two, and not below the power before."""
        powers = np.maximum(np.arange(_BUCKETS) // _STEPS - 1, 0) + _STEPS.bit_length() - 1
        small = np.arange(2 * _STEPS)
        powers[: 2 * _STEPS] = np.frexp(small)[1]
        counts = np.bincount(powers, self.buckets).astype(np.int64)
        return [(1 << power, int(counts[power])) for power in np.flatnonzero(counts).tolist()]


def _bucket(sizes: Int64s) -> Int64s:
    """Small sizes have buckets of their own; then come sixteen for each power of two."""
    exponent = np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - 1
    shift = np.maximum(exponent - 4, 0)
    buckets: Int64s = shift * _STEPS + (sizes >> shift)
    return buckets


def _bucket_end(bucket: int) -> int:
    """The largest size of a bucket."""
    if bucket < 2 * _STEPS:
        return bucket
    shift = bucket // _STEPS - 1
    step = bucket % _STEPS + _STEPS
    return ((step + 1) << shift) - 1


@frozen_dataclass(eq=False)
class Timeline:
    """Records and bytes by time, in bins of one width that hold records.

    Attributes:
        width: of a bin, as an index of `WIDTHS_MS`.
        bins: int64[n], rising; bin b holds the times from b times its width on.
        records, sizes: int64[n], records of each bin, and bytes of their keys and values.
        untimed: records without a time.
    """

    width: int
    bins: Int64s = field(repr=False)
    records: Int64s = field(repr=False)
    sizes: Int64s = field(repr=False)
    untimed: int = 0

    @classmethod
    def of(cls, times: Int64s, sizes: Int64s) -> Timeline:
        """Count records by their times in ms; -1 is none."""
        has_time = times != NO_TIMESTAMP
        untimed = len(times) - int(np.count_nonzero(has_time))
        if untimed:
            times = times[has_time]
            sizes = sizes[has_time]
        return _timeline_of_bins(
            0, times // WIDTHS_MS[0], records=None, sizes=sizes, untimed=untimed
        )

    def merge(self, other: Timeline) -> Timeline:
        """The sums of both."""
        width = max(self.width, other.width)
        first = self.widened(width)
        second = other.widened(width)
        return _timeline_of_bins(
            width,
            np.concatenate((first.bins, second.bins)),
            np.concatenate((first.records, second.records)),
            np.concatenate((first.sizes, second.sizes)),
            first.untimed + second.untimed,
        )

    def widened(self, width: int) -> Timeline:
        """The same records in wider bins; `width` is an index of `WIDTHS_MS`."""
        if width == self.width:
            return self
        bins = self.bins // (WIDTHS_MS[width] // WIDTHS_MS[self.width])
        return _timeline_of_bins(width, bins, self.records, self.sizes, self.untimed)

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON; a bin is the time in ms at which it begins."""
        return {
            "bin_ms": WIDTHS_MS[self.width],
            "bins": [bin * WIDTHS_MS[self.width] for bin in self.bins.tolist()],
            "records": self.records.tolist(),
            "bytes": self.sizes.tolist(),
            "untimed": self.untimed,
        }


def _timeline_of_bins(
    width: int, bins: Int64s, records: Int64s | None, sizes: Int64s, untimed: int
) -> Timeline:
    """A timeline of bins that may occur several times; each is one record if `records` is None."""
    starts = np.flatnonzero(np.diff(bins, prepend=bins[:1] - 1))
    if records is None:
        records = np.diff(starts, append=len(bins))
    else:
        records = np.add.reduceat(records, starts) if len(starts) else records
    sizes = np.add.reduceat(sizes, starts) if len(starts) else sizes
    bins = bins[starts]
    if (np.diff(bins) < 0).any():  # no longer in runs of equal bins
        order = np.argsort(bins, kind="stable")
        return _timeline_of_bins(width, bins[order], records[order], sizes[order], untimed)
    timeline = Timeline(width, bins, records, sizes, untimed)
    return timeline if len(bins) <= BINS_MAX else timeline.widened(width + 1)


@frozen_dataclass(eq=False)
class DistinctCount:
    """The number of different values within about 2 %: a HyperLogLog of 4096 registers.

    Source: Flajolet et al., "HyperLogLog", 2007.
    """

    registers: Uint8s = field(repr=False)

    def merge(self, other: DistinctCount) -> DistinctCount:
        """The sums of both."""
        return DistinctCount(np.maximum(self.registers, other.registers))

    def estimate(self) -> int:
        """The number of different values; exact to a few for small ones."""
        weights = np.ldexp(1.0, -self.registers.astype(np.int32))
        raw = 0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS**2 / float(weights.sum())
        unused = int((self.registers == 0).sum())
        if raw <= 2.5 * _REGISTERS and unused:
            return round(_REGISTERS * float(np.log(_REGISTERS / unused)))
        return round(raw)


@frozen_dataclass
class TopKey:
    """One of the keys with most bytes.

    Attributes:
        key: its bytes.
        records: how many records it had, at least.
        bytes: of their keys and values, at least.
        bytes_error: by how much the truth may exceed `bytes`; 0 where it is exact.
    """

    key: bytes
    records: int
    bytes: int
    bytes_error: int


@frozen_dataclass(eq=False)
class KeyTotals:
    """Records and bytes by key, for the keys with most bytes.

    Attributes:
        hashes: uint64[n], of each key, ascending.
        records: int64[n], how many records each had, at least.
        sizes: int64[n], bytes of their keys and values, at least.
        errors: int64[n], by how much `sizes` may be too low.
        names: the bytes of each key, by hash.
        lost: no key that is not listed has more bytes than this.
    """

    hashes: Uint64s = field(repr=False)
    records: Int64s = field(repr=False)
    sizes: Int64s = field(repr=False)
    errors: Int64s = field(repr=False)
    names: dict[int, bytes] = field(repr=False)
    lost: int = 0

    def merge(self, other: KeyTotals) -> KeyTotals:
        """Join two tables; a key missing from one may have had up to its `lost` bytes there."""
        hashes = np.union1d(self.hashes, other.hashes)
        records = np.zeros(len(hashes), np.int64)
        sizes = np.zeros(len(hashes), np.int64)
        errors = np.zeros(len(hashes), np.int64)
        for side in (self, other):
            places = np.searchsorted(hashes, side.hashes)
            missing = np.full(len(hashes), side.lost, np.int64)
            missing[places] = side.errors
            records[places] += side.records
            sizes[places] += side.sizes
            errors += missing
        joined = KeyTotals(
            hashes, records, sizes, errors, {**other.names, **self.names}, self.lost + other.lost
        )
        return joined.keep(MERGED_KEYS_MAX // 2) if len(hashes) > MERGED_KEYS_MAX else joined

    def keep(self, count: int) -> KeyTotals:
        """The `count` keys with most bytes; of equal ones the smaller hash."""
        if len(self.hashes) <= count:
            return self
        top, dropped = _split_by_bytes(self.hashes, self.sizes, count)
        lost = max(self.lost, int((self.sizes[dropped] + self.errors[dropped]).max()))
        hashes = self.hashes[top]
        names = {value: self.names[value] for value in hashes.tolist()}
        return KeyTotals(hashes, self.records[top], self.sizes[top], self.errors[top], names, lost)

    def top(self, count: int) -> tuple[TopKey, ...]:
        """The keys with most bytes, most first; keys with as many in the order of their bytes."""
        table = self.keep(max(count, 0))
        rows = zip(
            table.hashes.tolist(),
            table.records.tolist(),
            table.sizes.tolist(),
            table.errors.tolist(),
            strict=True,
        )
        top_keys = [TopKey(table.names[value], *numbers) for value, *numbers in rows]
        return tuple(sorted(top_keys, key=lambda top_key: (-top_key.bytes, top_key.key)))


class KeyCounter:
    """Adds keys up, column by column, in bounded memory; `totals` is the answer.

    The bytes of a key are kept only while it may be among the first: a key that is among them in
    the end is among them when it comes for the last time.

    When the table is full, the smaller half of its keys goes, and counts from 0 when it comes
    again. So any number of bytes may be too low by those of the largest keys that went: `_lost`.
    """

    def __init__(self, *, keys_max: int = KEPT_KEYS_MAX, counted: int = COUNTED_KEYS_MAX) -> None:
        """Begin with no keys.

        Args:
            keys_max: keys in the answer.
            counted: keys added up at a time, at least twice as many.
        """
        self._keys_max: Final = keys_max
        self._counted: Final = max(counted, 2 * keys_max)
        self._table = KeyTable(self._counted)
        self._registers = np.zeros(_REGISTERS, np.uint8)
        self._names: dict[int, bytes] = {}
        # A key is among the first with more bytes than the bar, or with as many and no larger hash.
        self._bar = 0
        self._bar_hash = _HASH_MAX
        self._lost = 0

    def feed(self, keys: BinaryColumn, sizes: Int64s) -> None:
        """Add the records of a piece; those without a key do not count.

        Args:
            keys: of each record.
            sizes: int64[n], bytes of each record's key and value.
        """
        hashes = np.empty(len(keys), np.uint64)
        hash_values(keys.data, keys.offsets, hashes)
        rows = np.flatnonzero(keys.is_valid())
        hashes = hashes[rows]
        sizes = np.ascontiguousarray(sizes[rows], np.int64)
        note_distinct(hashes, self._registers)
        units = np.ones(len(rows), np.int64)
        numbers = np.empty(len(rows), np.int32)
        done = 0
        while True:
            start = done
            done = self._table.feed(hashes, sizes, units, numbers, done)
            self._name(keys, rows[start:done], hashes[start:done], numbers[start:done])
            if done == len(rows):
                return
            self._shrink()

    def _name(self, keys: BinaryColumn, rows: Int64s, hashes: Uint64s, numbers: Int32s) -> None:
        """Keep the bytes of keys that may be among the first."""
        if not len(rows):
            return
        sizes = np.empty(len(numbers), np.int64)
        self._table.bytes_of(numbers, sizes)
        ties = (sizes == self._bar) & (hashes <= self._bar_hash)
        heavy = np.flatnonzero((sizes > self._bar) | ties)
        values, firsts = np.unique(hashes[heavy], return_index=True)
        unnamed = [value not in self._names for value in values.tolist()]
        names = take_binary(keys, rows[heavy[firsts[unnamed]]])
        for value, name in zip(values[unnamed].tolist(), names, strict=True):
            self._names[value] = name or b""
        if len(self._names) > 4 * self._keys_max:
            self._raise_bar()

    def _raise_bar(self) -> None:
        """Drop the bytes of keys that are no longer among the first `keys_max`."""
        hashes, _records, sizes = self._arrays()
        first, _ = _split_by_bytes(hashes, sizes, self._keys_max)
        hashes = hashes[first]
        sizes = sizes[first]
        if len(first) == self._keys_max:
            self._bar = int(sizes.min())
            self._bar_hash = hashes[sizes == self._bar].max()
        names = self._names
        self._names = {value: names[value] for value in hashes.tolist() if value in names}

    def _arrays(self) -> tuple[Uint64s, Int64s, Int64s]:
        """The hashes, record counts and sizes in the table, uint64[n] and int64[n]."""
        count = self._table.count
        hashes = np.empty(count, np.uint64)
        records = np.empty(count, np.int64)
        sizes = np.empty(count, np.int64)
        self._table.copy_into(hashes, records, sizes)
        return hashes, records, sizes

    def _shrink(self) -> None:
        """Make room in the full table: it goes on with the half of its keys that has most bytes."""
        hashes, records, sizes = self._arrays()
        larger, dropped = _split_by_bytes(hashes, sizes, self._counted // 2)
        # A key may be dropped each time, with as many bytes as the largest one that was.
        self._lost += int(sizes[dropped].max())
        self._table = KeyTable(self._counted)
        self._table.feed(
            hashes[larger], sizes[larger], records[larger], np.empty(len(larger), np.int32)
        )

    def distinct(self) -> DistinctCount:
        """The number of different keys so far."""
        return DistinctCount(self._registers.copy())

    def totals(self) -> KeyTotals:
        """The `keys_max` keys with most bytes, by hash; their numbers are at least right.

        Each may have had `_lost` more bytes before it came into the table for good. A key that is
        not among them may have had those, and besides as many as the largest one in the table that
        is not.
        """
        hashes, records, sizes = self._arrays()
        top, dropped = _split_by_bytes(hashes, sizes, self._keys_max)
        top = top[np.argsort(hashes[top])]
        lost = self._lost + (int(sizes[dropped].max()) if len(dropped) else 0)
        names = {value: self._names[value] for value in hashes[top].tolist()}
        errors = np.full(len(top), self._lost, np.int64)
        return KeyTotals(hashes[top], records[top], sizes[top], errors, names, lost)


def _split_by_bytes(hashes: Uint64s, sizes: Int64s, count: int) -> tuple[Intps, Intps]:
    """The places of the `count` keys with most bytes, by hash where equal, and of the others."""
    first: Bools = np.full(len(sizes), count > 0)
    if 0 < count < len(sizes):
        bar = np.partition(sizes, -count)[-count]
        first = sizes > bar
        ties = np.flatnonzero(sizes == bar)
        left = count - int(np.count_nonzero(first))
        first[ties[np.argpartition(hashes[ties], left - 1)[:left]]] = True
    return np.flatnonzero(first), np.flatnonzero(~first)
