"""The use of the disk: counts, bytes, times, codecs, sizes and top keys of each partition.

    units = plan(paths)                            the units of work, as for `verify`
    examine(unit, options) -> Stats                one unit, anywhere
    merge_all(answers) -> Stats                    in any order
    report(stats, options) -> StatsReport          rows, a partition each

The functions are the same in one process and on a cluster, so their answers are equal. Nothing is
changed and nothing is locked.

Sizes, distinct keys and top keys are summaries in little memory. Each has an exact half (counts,
sums, extremes) and an estimated one with a stated error. Joining is associative and commutative;
for `KeyTotals` up to `MERGED_KEYS_MAX` keys, and within the stated error beyond.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as Cells
from dataclasses import asdict, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

import numpy as np

from kseg import Segment
from kseg.analysis.info import Summary
from kseg.analysis.units import Threads, Unit, UnitKind, all_files, plan, run_units
from kseg.catalog.catalog import Catalog, OnError
from kseg.constants import (
    NO_TIMESTAMP,
    Bools,
    Int32s,
    Int64s,
    Intps,
    Progress,
    Uint8s,
    Uint64s,
    codec_label,
)
from kseg.documents import fields_of
from kseg.errors import KsegError, NotALogError
from kseg.files.grammar import parse_partition_dir
from kseg.files.mapping import Mapping
from kseg.files.names import FileKind, LeftOut
from kseg.files.selection import StrPaths
from kseg.format.header import BatchTable
from kseg.format.take import KeyTable, hash_values, note_distinct, take_binary
from kseg.format.times import DAY_MS
from kseg.format.typed import payload_kinds
from kseg.format.values import BinaryColumn, RecordColumns
from kseg.frames import Listed, Table
from kseg.frozen import frozen_dataclass
from kseg.log.log import Log

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
        return _binned(0, times // WIDTHS_MS[0], None, sizes, untimed)

    def merge(self, other: Timeline) -> Timeline:
        """The sums of both."""
        width = max(self.width, other.width)
        first = self.widened(width)
        second = other.widened(width)
        return _binned(
            width,
            np.concatenate((first.bins, second.bins)),
            np.concatenate((first.records, second.records)),
            np.concatenate((first.sizes, second.sizes)),
            first.untimed + second.untimed,
        )

    def widened(self, width: int) -> Timeline:
        """The same in wider bins."""
        if width == self.width:
            return self
        bins = self.bins // (WIDTHS_MS[width] // WIDTHS_MS[self.width])
        return _binned(width, bins, self.records, self.sizes, self.untimed)

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON; a bin is the time in ms at which it begins."""
        return {
            "bin_ms": WIDTHS_MS[self.width],
            "bins": [bin * WIDTHS_MS[self.width] for bin in self.bins.tolist()],
            "records": self.records.tolist(),
            "bytes": self.sizes.tolist(),
            "untimed": self.untimed,
        }


def _binned(
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
        return _binned(width, bins[order], records[order], sizes[order], untimed)
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
        top, dropped = _parted(self.hashes, self.sizes, count)
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
        """Drop the bytes of keys that have fallen behind the first `keys_max`."""
        hashes, _records, sizes = self._arrays()
        first, _ = _parted(hashes, sizes, self._keys_max)
        hashes = hashes[first]
        sizes = sizes[first]
        if len(first) == self._keys_max:
            self._bar = int(sizes.min())
            self._bar_hash = hashes[sizes == self._bar].max()
        names = self._names
        self._names = {value: names[value] for value in hashes.tolist() if value in names}

    def _arrays(self) -> tuple[Uint64s, Int64s, Int64s]:
        count = self._table.count
        hashes = np.empty(count, np.uint64)
        records = np.empty(count, np.int64)
        sizes = np.empty(count, np.int64)
        self._table.copy_into(hashes, records, sizes)
        return hashes, records, sizes

    def _shrink(self) -> None:
        """Start the table again with the larger half of the keys."""
        hashes, records, sizes = self._arrays()
        larger, dropped = _parted(hashes, sizes, self._counted // 2)
        # A key that was dropped twice may have had as much each time.
        self._lost += int(sizes[dropped].max())
        self._table = KeyTable(self._counted)
        self._table.feed(
            hashes[larger], sizes[larger], records[larger], np.empty(len(larger), np.int32)
        )

    def distinct(self) -> DistinctCount:
        """The number of different keys so far."""
        return DistinctCount(self._registers.copy())

    def totals(self) -> KeyTotals:
        """The first `keys_max` keys, and a bound for the others."""
        hashes, records, sizes = self._arrays()
        top, dropped = _parted(hashes, sizes, self._keys_max)
        top = top[np.argsort(hashes[top])]
        lost = self._lost + (int(sizes[dropped].max()) if len(dropped) else 0)
        names = {value: self._names[value] for value in hashes[top].tolist()}
        errors = np.full(len(top), self._lost, np.int64)
        return KeyTotals(hashes[top], records[top], sizes[top], errors, names, lost)


def _parted(hashes: Uint64s, sizes: Int64s, count: int) -> tuple[Intps, Intps]:
    """The places of the `count` keys with most bytes, by hash where equal, and of the others."""
    first: Bools = np.full(len(sizes), count > 0)
    if 0 < count < len(sizes):
        bar = np.partition(sizes, -count)[-count]
        first = sizes > bar
        ties = np.flatnonzero(sizes == bar)
        left = count - int(np.count_nonzero(first))
        first[ties[np.argpartition(hashes[ties], left - 1)[:left]]] = True
    return np.flatnonzero(first), np.flatnonzero(~first)


SCHEMA: Final = "kseg.stats/1"
TOP_KEYS: Final = 10
_OF_BATCHES: Final = "segments bytes batches records min_timestamp max_timestamp codecs magics "
_OF_RECORDS: Final = "record_bytes compression_ratio distinct_keys null_keys null_values top_keys"
#: Faults that the answer for a partition names; more are counted only.
_FAULTS_NAMED_MAX: Final = 8


@frozen_dataclass
class StatsOptions:
    """The options of a count.

    Attributes:
        records: decode records, for their sizes and keys; else headers alone are read.
        top: keys with most bytes to name for each partition.
        mapping: see `kseg.files.mapping`.
    """

    records: bool = True
    top: int = TOP_KEYS
    mapping: Mapping = "auto"


@frozen_dataclass(eq=False)
class RecordStats:
    """Numbers that need decoding; control records do not count.

    Attributes:
        sizes: of key and value together, before compression.
        null_keys, null_values: records without a key, and tombstones.
        keys: those with most bytes.
        distinct: how many different ones.
        timeline: records and bytes by time.
        payloads: values by kind, of the first of each segment; see `payload_kinds`.
    """

    sizes: SizeHistogram
    null_keys: int
    null_values: int
    keys: KeyTotals
    distinct: DistinctCount
    timeline: Timeline
    payloads: dict[str, int]

    def merge(self, other: RecordStats) -> RecordStats:
        """The sums of both."""
        return RecordStats(
            self.sizes.merge(other.sizes),
            self.null_keys + other.null_keys,
            self.null_values + other.null_values,
            self.keys.merge(other.keys),
            self.distinct.merge(other.distinct),
            self.timeline.merge(other.timeline),
            dict(Counter(self.payloads) + Counter(other.payloads)),
        )

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON, without the keys."""
        return {
            "record_bytes": self.sizes.document(),
            "null_keys": self.null_keys,
            "null_values": self.null_values,
            "distinct_keys": self.distinct.estimate(),
            "distinct_keys_error": DISTINCT_ERROR,
            "timeline": self.timeline.document(),
            "payloads": dict(sorted(self.payloads.items())),
        }


@frozen_dataclass(eq=False)
class PartitionStats:
    """The numbers of one partition, or of a file by itself.

    Attributes:
        segments, bytes: log files, and how long they are.
        summary: from headers.
        records: the count from decoded records; None if records were not decoded.
        log_start_offset, log_end_offset: of the directory; None until it was looked at.
        fault_count: batches and tails that could not be read.
        faults: the first of them, as text.
        batch_sizes: of batches as they lie in the files.
        codec_bytes: of the batches of each codec, by its number.
    """

    segments: int = 0
    bytes: int = 0
    summary: Summary = field(default_factory=Summary)
    records: RecordStats | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    fault_count: int = 0
    faults: tuple[str, ...] = ()
    batch_sizes: SizeHistogram = field(default_factory=SizeHistogram.none)
    codec_bytes: dict[int, int] = field(default_factory=dict)

    def merge(self, other: PartitionStats) -> PartitionStats:
        """The sums of both."""
        records = self.records or other.records
        if self.records is not None and other.records is not None:
            records = self.records.merge(other.records)
        start = self.log_start_offset
        end = self.log_end_offset
        return PartitionStats(
            segments=self.segments + other.segments,
            bytes=self.bytes + other.bytes,
            summary=self.summary.merge(other.summary),
            records=records,
            log_start_offset=other.log_start_offset if start is None else start,
            log_end_offset=other.log_end_offset if end is None else end,
            fault_count=self.fault_count + other.fault_count,
            faults=tuple(sorted((*self.faults, *other.faults))[:_FAULTS_NAMED_MAX]),
            batch_sizes=self.batch_sizes.merge(other.batch_sizes),
            codec_bytes=dict(Counter(self.codec_bytes) + Counter(other.codec_bytes)),
        )

    def document(self) -> dict[str, Any]:
        """The numbers as they stand in JSON, without the offsets and the keys."""
        codecs = {codec_label(codec): size for codec, size in sorted(self.codec_bytes.items())}
        return {
            **self.summary.document(),
            "batch_bytes": self.batch_sizes.document(),
            "codec_bytes": codecs,
            "faults": self.fault_count,
            **({} if self.records is None else self.records.document()),
        }

    def cells(self, top_keys: Iterable[TopKey]) -> dict[str, Any]:
        """The numbers for a table; those of records are None if records were not decoded."""
        records = self.records
        cells = {"segments": self.segments, "bytes": self.bytes, **self.summary.cells()}
        if records is None:
            return cells | dict.fromkeys(_OF_RECORDS.split())
        return cells | {
            "record_bytes": records.sizes.total,
            "compression_ratio": records.sizes.total / self.bytes if self.bytes else None,
            "distinct_keys": records.distinct.estimate(),
            "null_keys": records.null_keys,
            "null_values": records.null_values,
            "top_keys": [asdict(top_key) for top_key in top_keys],
        }


#: The units that hold batches, or that describe a directory.
_COUNTED: Final = (UnitKind.SEGMENT, UnitKind.BATCHES, UnitKind.PARTITION)
#: The answer of `examine`: partitions by directory, files without one by their own path.
Stats = dict[str, PartitionStats]


@frozen_dataclass
class PartitionReport:
    """One row of the report.

    Attributes:
        path: the directory, or the file.
        dir: the directory's name; None for a file by itself.
        topic, partition: as the name says.
        stats: the numbers.
        top_keys: keys with most bytes, most first.
    """

    path: str
    dir: str | None
    topic: str | None
    partition: int | None
    stats: PartitionStats
    top_keys: tuple[TopKey, ...]

    def document(self, key_text: Callable[[bytes], Any] = bytes) -> dict[str, Any]:
        """The fields as they stand in JSON.

        Args:
            key_text: makes text of a key, which else stays bytes.
        """
        document = {
            **fields_of(self, "path dir topic partition"),
            **fields_of(self.stats, "log_start_offset log_end_offset segments bytes"),
            **self.stats.document(),
        }
        if self.stats.records is not None:
            document["top_keys"] = [
                {**asdict(top_key), "key": key_text(top_key.key)} for top_key in self.top_keys
            ]
        return document


@frozen_dataclass
class TopicStats:
    """The numbers of all partitions of a topic that are here.

    Attributes:
        topic: its name; the path of a file by itself.
        partitions: the number of its directories.
        stats: the sums of their numbers, without offsets.
        top_keys: keys with most bytes, most first.
    """

    topic: str
    partitions: int
    stats: PartitionStats
    top_keys: tuple[TopKey, ...]


@frozen_dataclass(repr=False)
class StatsByTopic(Listed[TopicStats]):
    """The topics by name; a table with a row for each."""

    COLUMNS = f"topic partitions {_OF_BATCHES}{_OF_RECORDS}"

    @property
    def title(self) -> str:
        """The names of the topics."""
        return ", ".join(topic.topic for topic in self)

    def table_rows(self) -> Sequence[Cells[str, Any]]:
        """The numbers of each topic; `compression_ratio` is `record_bytes` by `bytes`."""
        return [
            {
                **fields_of(topic, "topic partitions"),
                **topic.stats.cells(topic.top_keys),
            }
            for topic in self
        ]


@frozen_dataclass(repr=False)
class StatsReport(Table):
    """The answer of stats: a table with a row for each partition, by topic, number and path.

    Attributes:
        partitions: one value each.
        skipped: the paths that could not be read, with `on_error="skip"`.
        top: keys that are named for each partition and topic.
    """

    COLUMNS = (
        f"directory topic partition log_start_offset log_end_offset {_OF_BATCHES}{_OF_RECORDS}"
    )

    partitions: tuple[PartitionReport, ...]
    skipped: tuple[LeftOut, ...] = ()
    top: int = TOP_KEYS

    @property
    def title(self) -> str:
        """The number of partitions, and their size."""
        size = sum(partition.stats.bytes for partition in self.partitions)
        return f"{len(self.partitions)} partitions, {size} bytes"

    def table_rows(self) -> Sequence[Cells[str, Any]]:
        """The numbers of each; `compression_ratio` is `record_bytes` by `bytes`."""
        return [
            {
                **fields_of(partition, "directory=path topic partition"),
                **fields_of(partition.stats, "log_start_offset log_end_offset"),
                **partition.stats.cells(partition.top_keys),
            }
            for partition in self.partitions
        ]

    def to_json(self, *, encoding: str = "base64") -> dict[str, Any]:
        """The document of `kseg stats --json`.

        Args:
            encoding: of keys: "base64", "utf8" or "hex".
        """
        text = _ENCODERS[encoding]
        return {"partitions": [partition.document(text) for partition in self.partitions]}

    @property
    def topics(self) -> StatsByTopic:
        """The sums by topic: a table too. The top keys are those of all partitions together."""
        groups: dict[str, list[PartitionStats]] = {}
        for partition in self.partitions:
            groups.setdefault(partition.topic or partition.path, []).append(partition.stats)
        sums = {name: reduce(PartitionStats.merge, stats) for name, stats in groups.items()}
        return StatsByTopic(
            tuple(
                TopicStats(name, len(groups[name]), topic_sum, _top_of(topic_sum, self.top))
                for name, topic_sum in sorted(sums.items())
            )
        )

    @property
    def fault_count(self) -> int:
        """Batches and tails that could not be read, in all."""
        return sum(partition.stats.fault_count for partition in self.partitions)


_ENCODERS: Final[Cells[str, Callable[[bytes], str]]] = {
    "base64": lambda data: b64encode(data).decode("ascii"),
    "utf8": lambda data: data.decode("utf-8", "replace"),
    "hex": bytes.hex,
}


def stats(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    records: bool = True,
    top: int = TOP_KEYS,
    mapping: Mapping = "auto",
    threads: Threads = 1,
    progress: Progress | None = None,
    on_error: OnError = "raise",
) -> StatsReport:
    """Count batches, records and bytes of files, partition and data directories.

    Args:
        paths: one path or several, or globs; the same file is looked at once.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
        records: decode records, for their sizes and keys; else headers alone are read.
        top: keys with most bytes to name for each partition and topic.
        mapping: see `kseg.files.mapping`.
        threads: threads to share the work; 1 does all of it in this one.
        progress: called with bytes done and bytes in all.
        on_error: "raise" the error of a path that cannot be read, or "skip" it and count the rest,
            see `StatsReport.skipped`.

    Raises:
        NotALogError: a path is not Kafka's.
        OSError: something is missing or cannot be read.
        ValueError: no partition is chosen, a path is a URL, `threads` is below 1, or `on_error`
            neither of its values.
        TypeError: an argument has a wrong type.

    Example:
        >>> from kseg.analysis.stats import stats
        >>> stats("orders-0").partitions[0].stats.segments
        5
    """
    catalog, skipped = all_files(paths, topics, partitions, on_error)
    options = StatsOptions(records, top, mapping)
    return stats_of(catalog, options, threads=threads, progress=progress, skipped=skipped)


def stats_of(
    catalog: Catalog,
    options: StatsOptions,
    *,
    threads: Threads = 1,
    progress: Progress | None = None,
    skipped: list[LeftOut] | None = None,
) -> StatsReport:
    """As `stats`, for a catalog of files of all kinds.

    Args:
        catalog: the partitions and files.
        options: how closely to look.
        threads, progress: as for `stats`.
        skipped: what could not be read; takes more of it. None to raise the error.

    Raises:
        NotALogError, OSError, ValueError: as for `stats`.
    """
    units = [unit for unit in plan(catalog) if unit.kind in _COUNTED]
    work = partial(examine, options=options)
    answers = run_units(
        units, work, threads=threads, progress=progress, skipped=skipped, merge=merge_all
    )
    answer = report(merge_all(answers), options)
    return replace(answer, skipped=tuple(skipped or ()))


def examine(unit: Unit, options: StatsOptions) -> Stats:
    """Count one unit; the answer is small, whatever the unit's size, and empty without batches.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    if unit.kind not in _COUNTED or unit.path.endswith(FileKind.BOOTSTRAP.value):
        return {}  # what a node is formatted with is not a log
    if unit.kind is UnitKind.PARTITION:
        return {unit.path: _bounds(unit.path)}
    try:
        return {unit.partition or unit.path: _segment(unit, options)}
    except FileNotFoundError:
        if unit.partition is None:
            raise
        return {}  # retention was faster


def merge_all(answers: Iterable[Stats]) -> Stats:
    """Join answers, in any order."""
    joined: Stats = {}
    for answer in answers:
        for path, partition in answer.items():
            before = joined.get(path)
            joined[path] = partition if before is None else before.merge(partition)
    return joined


def report(counts: Stats, options: StatsOptions) -> StatsReport:
    """Turn the counts into rows."""
    rows = [_row(path, partition, options.top) for path, partition in counts.items()]
    order = sorted(rows, key=lambda row: (row.topic or "", row.partition or 0, row.path))
    return StatsReport(tuple(order), top=options.top)


def _top_of(partition: PartitionStats, top: int) -> tuple[TopKey, ...]:
    return () if partition.records is None else partition.records.keys.top(top)


def _row(path: str, numbers: PartitionStats, top: int) -> PartitionReport:
    topic = partition = name = None
    if numbers.log_start_offset is not None:
        name = Path(path).resolve().name
        try:
            parsed = parse_partition_dir(name)
            topic = parsed.topic
            partition = parsed.partition
        except NotALogError:
            pass  # a copy under another name
    else:
        first = numbers.summary.first_offset
        last = numbers.summary.last_offset
        numbers = replace(
            numbers, log_start_offset=first, log_end_offset=None if last is None else last + 1
        )
    return PartitionReport(path, name, topic, partition, numbers, _top_of(numbers, top))


def _bounds(path: str) -> PartitionStats:
    """Where the log of a directory begins and ends."""
    with Log.open(path) as log:
        return PartitionStats(
            log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset
        )


def _segment(unit: Unit, options: StatsOptions) -> PartitionStats:
    faults, records, headers = list[KsegError](), None, _Headers()
    with Segment.open(unit.path, mapping=options.mapping, is_last=unit.is_last) as segment:
        if options.records:
            pieces = segment.read(
                columns=("timestamp", "key", "value"), on_corrupt=faults.append, keep=headers.note
            )
            records = _records(pieces)
        else:
            for table in segment.headers():
                headers.note(table)
            fault = segment.stop_fault(table)
            faults += [] if fault is None else [fault]
        size = segment.size
    texts = tuple(sorted(str(fault) for fault in faults)[:_FAULTS_NAMED_MAX])
    return PartitionStats(
        segments=1,
        bytes=size,
        summary=headers.summary,
        records=records,
        fault_count=len(faults),
        faults=texts,
        batch_sizes=headers.sizes,
        codec_bytes=dict(headers.codec_bytes),
    )


class _Headers:
    """The sums over the headers of a file, up to damage that hides where the next batch begins."""

    def __init__(self) -> None:
        self.summary = Summary()
        self.sizes = SizeHistogram.none()
        self.codec_bytes = Counter[int]()
        self._end = 0

    def note(self, table: BatchTable) -> BatchTable:
        """Add the batches of a table; gives them back."""
        start = int(np.searchsorted(table.position, self._end))
        more = table[start:]
        if len(more) and int(more.position[0]) == self._end:
            self._end = int(more.position[-1] + more.size[-1])
            self.summary.feed(more)
            self.sizes = self.sizes.merge(SizeHistogram.of(more.size.astype(np.int64)))
            for codec in np.unique(more.codec).tolist():
                self.codec_bytes[codec] += int(more.size[more.codec == codec].sum())
        return table


def _records(pieces: Iterable[RecordColumns]) -> RecordStats:
    keys = KeyCounter()
    sizes = SizeHistogram.none()
    timeline = Timeline.of(np.zeros(0, np.int64), np.zeros(0, np.int64))
    payloads = Counter[str]()
    null_keys = null_values = 0
    for columns in pieces:
        key: BinaryColumn = columns["key"]
        value: BinaryColumn = columns["value"]
        total = np.diff(key.offsets).astype(np.int64) + np.diff(value.offsets)
        sizes = sizes.merge(SizeHistogram.of(total))
        timeline = timeline.merge(Timeline.of(columns["timestamp_ms"], total))
        null_keys += key.null_count
        null_values += value.null_count
        keys.feed(key, total)
        if payloads.total() < _SAMPLED:
            payloads += Counter(payload_kinds(value[: _SAMPLED - payloads.total()]))
    distinct = keys.distinct()
    totals = keys.totals()
    return RecordStats(sizes, null_keys, null_values, totals, distinct, timeline, dict(payloads))
