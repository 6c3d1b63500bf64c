"""Summaries of records in little memory: sizes, times, distinct keys, the keys with most records.

Each summary has exact numbers (counts, sums, extremes) and estimates with a stated error. Merging
is associative and commutative: for `KeyTotals` exactly up to `MERGED_KEYS_MAX` keys, and within the
stated error beyond that.
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
#: The most bins of a timeline that hold records; with more, the bins are made wider.
BINS_MAX: Final = 512
#: The number of first values of a segment whose kind is determined.
_SAMPLED: Final = 1024
#: Sixteen buckets for each power of two: the sizes of a bucket differ by a sixteenth at most.
_STEPS: Final = 16
_BUCKETS: Final = _STEPS * 60
_REGISTERS: Final = 4096
#: By how much estimates may be wrong: quantiles are too large by this share at most; two in three
#: counts of different values are off by less than this share.
QUANTILE_ERROR: Final = 1 / _STEPS
DISTINCT_ERROR: Final = round(1.04 / _REGISTERS**0.5, 3)
#: The number of keys that a counter adds up before it drops the smaller half of them.
COUNTED_KEYS_MAX: Final = 1 << 19
#: The numbers of keys that the answer for one file has, and that a merged answer has.
KEPT_KEYS_MAX: Final = 1024
MERGED_KEYS_MAX: Final = 1 << 16
_HASH_MAX: Final = np.uint64(2**64 - 1)


@frozen_dataclass(eq=False)
class SizeHistogram:
    """Sizes in bytes: exact count, sum and extremes, quantiles within a sixteenth.

    Attributes:
        count, total: the number of sizes, and their sum.
        least, greatest: the extremes; 0 if there are no sizes.
        buckets: int64[960], the number of sizes in each bucket.
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
        """A size that `share` of all sizes do not exceed, at most a sixteenth too large.

        0 if there are no sizes.

        >>> SizeHistogram.of(np.arange(1, 101)).quantile(0.5)
        51
        """
        if not self.count:
            return 0
        rank = min(max(int(np.ceil(share * self.count)), 1), self.count)
        bucket = int(np.searchsorted(np.cumsum(self.buckets), rank))
        return min(max(_bucket_end(bucket), self.least), self.greatest)

    def document(self) -> dict[str, Any]:
        """The fields as in JSON."""
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
        """(power of two, number of sizes below it and not below the power before), if not 0."""
        powers = np.maximum(np.arange(_BUCKETS) // _STEPS - 1, 0) + _STEPS.bit_length() - 1
        small = np.arange(2 * _STEPS)
        powers[: 2 * _STEPS] = np.frexp(small)[1]
        counts = np.bincount(powers, self.buckets).astype(np.int64)
        return [(1 << power, int(counts[power])) for power in np.flatnonzero(counts).tolist()]


def _bucket(sizes: Int64s) -> Int64s:
    """The bucket of each size: below 32 each size has its own, then each power of two has 16."""
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
    """The records and bytes of each bin of time; only bins that hold records are listed.

    Attributes:
        width: the width of every bin, as an index of `WIDTHS_MS`.
        bins: int64[n], ascending; bin b begins at the time b * width.
        records, sizes: int64[n], records of each bin, and bytes of their keys and values.
        untimed: the number of records without a time.
    """

    width: int
    bins: Int64s = field(repr=False)
    records: Int64s = field(repr=False)
    sizes: Int64s = field(repr=False)
    untimed: int = 0

    @classmethod
    def of(cls, times: Int64s, sizes: Int64s) -> Timeline:
        """Count records according to their times.

        Args:
            times: int64[n], in ms; -1 for a record without a time.
            sizes: int64[n], the bytes of each record's key and value.
        """
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
    """A timeline from bins that may occur several times, in any order.

    Args:
        width: the width of the bins, as an index of `WIDTHS_MS`.
        bins: int64[n].
        records, sizes: int64[n], the numbers for each bin; None if each stands for one record.
        untimed: the number of records without a time.
    """
    starts = np.flatnonzero(np.diff(bins, prepend=bins[:1] - 1))
    if records is None:
        records = np.diff(starts, append=len(bins))
    else:
        records = np.add.reduceat(records, starts) if len(starts) else records
    sizes = np.add.reduceat(sizes, starts) if len(starts) else sizes
    bins = bins[starts]
    if (np.diff(bins) < 0).any():  # equal bins may still be apart: sort them, and sum up again
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
        """The number of different values; a small number is right to within a few."""
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
        key: the bytes of the key.
        records: the number of its records, at least.
        bytes: the bytes of their keys and values, at least.
        bytes_error: by how much the truth may exceed `bytes`; 0 where it is exact.
    """

    key: bytes
    records: int
    bytes: int
    bytes_error: int


@frozen_dataclass(eq=False)
class KeyTotals:
    """The records and bytes of each of the keys with most bytes.

    Attributes:
        hashes: uint64[n], the hash of each key, ascending.
        records: int64[n], the number of records of each key, at least.
        sizes: int64[n], the bytes of their keys and values, at least.
        errors: int64[n], by how much `sizes` may be too low.
        names: the bytes of each key, keyed by its hash.
        lost: no key that is not listed has more bytes than this.
    """

    hashes: Uint64s = field(repr=False)
    records: Int64s = field(repr=False)
    sizes: Int64s = field(repr=False)
    errors: Int64s = field(repr=False)
    names: dict[int, bytes] = field(repr=False)
    lost: int = 0

    def merge(self, other: KeyTotals) -> KeyTotals:
        """Join two tables; a key missing from one table may have had its `lost` bytes there."""
        hashes = np.union1d(self.hashes, other.hashes)
        records = np.zeros(len(hashes), np.int64)
        sizes = np.zeros(len(hashes), np.int64)
        errors = np.zeros(len(hashes), np.int64)
        for side in (self, other):
            rows = np.searchsorted(hashes, side.hashes)
            side_errors = np.full(len(hashes), side.lost, np.int64)
            side_errors[rows] = side.errors
            records[rows] += side.records
            sizes[rows] += side.sizes
            errors += side_errors
        joined = KeyTotals(
            hashes, records, sizes, errors, {**other.names, **self.names}, self.lost + other.lost
        )
        return joined.keep(MERGED_KEYS_MAX // 2) if len(hashes) > MERGED_KEYS_MAX else joined

    def keep(self, count: int) -> KeyTotals:
        """The `count` keys with most bytes; of keys with equal bytes, those of smaller hashes."""
        if len(self.hashes) <= count:
            return self
        top, dropped = _split_by_bytes(self.hashes, self.sizes, count)
        lost = max(self.lost, int((self.sizes[dropped] + self.errors[dropped]).max()))
        hashes = self.hashes[top]
        names = {value: self.names[value] for value in hashes.tolist()}
        return KeyTotals(hashes, self.records[top], self.sizes[top], self.errors[top], names, lost)

    def top(self, count: int) -> tuple[TopKey, ...]:
        """The `count` keys with most bytes, most first; equal numbers are sorted by the key."""
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
    """Sums up the records and bytes of keys, column by column, in bounded memory.

    The bytes of a key itself (its name) are kept only while it may be among the first `keys_max`:
    a key that is among them in the end is among them when it occurs for the last time.

    When the table is full, the smaller half of its keys is dropped, and such a key counts from 0
    when it occurs again. So the sum of a key may be too low, by `_lost` at most: each time that
    keys are dropped, it grows by the sum of the largest of them.
    """

    def __init__(self, *, keys_max: int = KEPT_KEYS_MAX, counted: int = COUNTED_KEYS_MAX) -> None:
        """Begin with no keys.

        Args:
            keys_max: the number of keys in the answer.
            counted: the number of keys that are summed up at a time; at least twice `keys_max`.
        """
        self._keys_max: Final = keys_max
        self._counted: Final = max(counted, 2 * keys_max)
        self._table = KeyTable(self._counted)
        self._registers = np.zeros(_REGISTERS, np.uint8)
        self._names: dict[int, bytes] = {}
        # The least bytes, and the largest hash with as many bytes, of a key among the first.
        self._bar = 0
        self._bar_hash = _HASH_MAX
        self._lost = 0

    def feed(self, keys: BinaryColumn, sizes: Int64s) -> None:
        """Add the records of a piece; those without a key do not count.

        Args:
            keys: the key of each record.
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
        """Keep the bytes of keys that may be among the first.

        Args:
            keys: the keys of a column.
            rows, hashes: the rows of the keys that were added, and their hashes.
            numbers: the entry of each of these keys in the table.
        """
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
        """Replace the full table by one with the half of its keys that has most bytes."""
        hashes, records, sizes = self._arrays()
        larger, dropped = _split_by_bytes(hashes, sizes, self._counted // 2)
        # The same key may be dropped every time, and each time be the largest one that is dropped.
        self._lost += int(sizes[dropped].max())
        self._table = KeyTable(self._counted)
        self._table.feed(
            hashes[larger], sizes[larger], records[larger], np.empty(len(larger), np.int32)
        )

    def distinct(self) -> DistinctCount:
        """The number of different keys so far."""
        return DistinctCount(self._registers.copy())

    def totals(self) -> KeyTotals:
        """The `keys_max` keys with most bytes, sorted by hash; their numbers may be too low.

        Each key may have had `_lost` more bytes before it came into the table for good. A key that
        is not in the answer may have had `_lost` bytes too, and besides as many as the largest key
        of the table that is not in the answer.
        """
        hashes, records, sizes = self._arrays()
        top, dropped = _split_by_bytes(hashes, sizes, self._keys_max)
        top = top[np.argsort(hashes[top])]
        lost = self._lost + (int(sizes[dropped].max()) if len(dropped) else 0)
        names = {value: self._names[value] for value in hashes[top].tolist()}
        errors = np.full(len(top), self._lost, np.int64)
        return KeyTotals(hashes[top], records[top], sizes[top], errors, names, lost)


def _split_by_bytes(hashes: Uint64s, sizes: Int64s, count: int) -> tuple[Intps, Intps]:
    """The rows of the `count` keys with most bytes, and the rows of the other keys.

    Of keys with equally many bytes, those of smaller hashes come first.
    """
    is_top: Bools = np.full(len(sizes), count > 0)
    if 0 < count < len(sizes):
        bar = np.partition(sizes, -count)[-count]
        is_top = sizes > bar
        ties = np.flatnonzero(sizes == bar)
        left = count - int(np.count_nonzero(is_top))
        is_top[ties[np.argpartition(hashes[ties], left - 1)[:left]]] = True
    return np.flatnonzero(is_top), np.flatnonzero(~is_top)
