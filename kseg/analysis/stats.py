"""What fills the disk: counts, bytes, times, codecs, sizes and top keys of each partition.

    units = plan(paths)                            what there is to do, as `verify` has it
    examine(unit, options) -> Stats                one unit, anywhere
    merge(a, b) -> Stats                           in any order
    report(stats, options) -> StatsReport          rows, a partition each

The three functions are the same in one process, in many, and on a cluster, so their answers are
equal. Nothing is changed and nothing is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kseg import Segment
from kseg.analysis.sketches import (
    DISTINCT_ERROR,
    DistinctCount,
    KeyCounter,
    KeyTotals,
    SizeHistogram,
    TopKey,
)
from kseg.analysis.summary import Summary
from kseg.analysis.units import Unit, UnitKind, plan
from kseg.analysis.units_run import Jobs, run_units, skipped_of
from kseg.errors import KsegError, NotALogError
from kseg.files.grammar import parse_partition_dir
from kseg.log.log import Log

if TYPE_CHECKING:
    from kseg.analysis.units_run import OnError
    from kseg.files.mapping import Mapping
    from kseg.files.names import Unreadable
    from kseg.format.values import BinaryColumn

SCHEMA: Final = "kseg.stats/1"
TOP_KEYS: Final = 10
#: Faults that the answer for a partition names; more are counted only.
_FAULTS_NAMED_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """How closely to look.

    Attributes:
        records: decode records, for their sizes and keys; else headers alone are read.
        top: keys with most bytes to name for each partition.
        mapping: see `kseg.files.mapping`.
    """

    records: bool = True
    top: int = TOP_KEYS
    mapping: Mapping = "auto"


@dataclass(frozen=True, slots=True, eq=False)
class RecordStats:
    """Numbers that need decoding; control records do not count.

    Attributes:
        sizes: of key and value together, before compression.
        null_keys, null_values: records without a key, and tombstones.
        keys: those with most bytes.
        distinct: how many different ones.
    """

    sizes: SizeHistogram
    null_keys: int
    null_values: int
    keys: KeyTotals
    distinct: DistinctCount

    def merge(self, other: RecordStats) -> RecordStats:
        """Both together."""
        return RecordStats(
            self.sizes.merge(other.sizes),
            self.null_keys + other.null_keys,
            self.null_values + other.null_values,
            self.keys.merge(other.keys),
            self.distinct.merge(other.distinct),
        )


@dataclass(frozen=True, slots=True, eq=False)
class PartitionStats:
    """The numbers of one partition, or of a file by itself.

    Attributes:
        segments, bytes: log files, and how long they are.
        summary: from headers.
        records: from decoded records; None if none was decoded.
        log_start_offset, log_end_offset: of the directory; None until it was looked at.
        fault_count: batches and tails that could not be read.
        faults: the first of them, as text.
    """

    segments: int = 0
    bytes: int = 0
    summary: Summary = field(default_factory=Summary)
    records: RecordStats | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    fault_count: int = 0
    faults: tuple[str, ...] = ()

    def merge(self, other: PartitionStats) -> PartitionStats:
        """Both together."""
        summary = Summary()
        summary.merge(self.summary)
        summary.merge(other.summary)
        records = self.records or other.records
        if self.records is not None and other.records is not None:
            records = self.records.merge(other.records)
        start, end = self.log_start_offset, self.log_end_offset
        return PartitionStats(
            segments=self.segments + other.segments,
            bytes=self.bytes + other.bytes,
            summary=summary,
            records=records,
            log_start_offset=other.log_start_offset if start is None else start,
            log_end_offset=other.log_end_offset if end is None else end,
            fault_count=self.fault_count + other.fault_count,
            faults=tuple(sorted((*self.faults, *other.faults))[:_FAULTS_NAMED_MAX]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Stats:
    """The answer of `examine`: partitions by directory, files without one by their own path."""

    partitions: dict[str, PartitionStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
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

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON, but for the keys' bytes, which stay bytes."""
        stats, records = self.stats, self.stats.records
        found: dict[str, Any] = {
            "path": self.path,
            "dir": self.dir,
            "topic": self.topic,
            "partition": self.partition,
            "log_start_offset": stats.log_start_offset,
            "log_end_offset": stats.log_end_offset,
            "segments": stats.segments,
            "bytes": stats.bytes,
            **stats.summary.document(),
            "faults": stats.fault_count,
        }
        if records is not None:
            found["record_bytes"] = records.sizes.document()
            found["null_keys"] = records.null_keys
            found["null_values"] = records.null_values
            found["distinct_keys"] = records.distinct.estimate()
            found["distinct_keys_error"] = DISTINCT_ERROR
            found["top_keys"] = [
                {
                    "key": one.key,
                    "records": one.records,
                    "bytes": one.bytes,
                    "bytes_error": one.bytes_error,
                }
                for one in self.top_keys
            ]
        return found


@dataclass(frozen=True, slots=True)
class StatsReport:
    """The answer of stats: a row for each partition, by topic, number and path.

    `skipped` names the paths that could not be read, with `on_error="skip"`.
    """

    partitions: tuple[PartitionReport, ...]
    skipped: tuple[Unreadable, ...] = ()

    @property
    def fault_count(self) -> int:
        """Batches and tails that could not be read, in all."""
        return sum(one.stats.fault_count for one in self.partitions)


def stats(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    options: StatsOptions | None = None,
    jobs: Jobs = 1,
    progress: Callable[[int, int], None] | None = None,
    on_error: OnError = "raise",
) -> StatsReport:
    """Count what lies in files, partition directories and data directories.

    Args:
        paths: one path or several; the same file is looked at once.
        options: how closely to look.
        jobs: threads to share the work; 1 does all of it in this one.
        progress: called with bytes done and bytes in all.
        on_error: "raise" the error of a path that cannot be read, or "skip" it and count the rest,
            see `StatsReport.skipped`.

    Raises:
        NotALogError: a path is nothing of Kafka's.
        OSError: something is missing or cannot be read.
        ValueError: `jobs` is below 1, or `on_error` neither of its values.

    Example:
        >>> from kseg.analysis.stats import stats
        >>> stats("orders-0").partitions[0].stats.segments
        5
    """
    chosen = options or StatsOptions()
    skipped = skipped_of(on_error)
    units = countable(plan(paths, skipped))
    work = partial(examine, options=chosen)
    answers = run_units(units, work, jobs=jobs, progress=progress, skipped=skipped)
    found = report(merge_all(answers), chosen)
    return replace(found, skipped=tuple(skipped or ()))


def countable(units: Iterable[Unit]) -> list[Unit]:
    """The units that hold batches, or that describe a directory."""
    wanted = (UnitKind.SEGMENT, UnitKind.BATCHES, UnitKind.PARTITION)
    return [unit for unit in units if unit.kind in wanted]


def examine(unit: Unit, options: StatsOptions) -> Stats:
    """Count one unit; the answer is small, whatever the unit's size.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    if unit.kind is UnitKind.PARTITION:
        return Stats({unit.path: _bounds(unit.path)})
    try:
        return Stats({unit.partition or unit.path: _segment(unit, options)})
    except FileNotFoundError:
        if unit.partition is None:
            raise
        return Stats()  # retention was faster


def merge(first: Stats, second: Stats) -> Stats:
    """Join two answers; in which order does not matter."""
    return merge_all((first, second))


def merge_all(answers: Iterable[Stats]) -> Stats:
    """Join any number of answers."""
    joined: dict[str, PartitionStats] = {}
    for answer in answers:
        for path, one in answer.partitions.items():
            known = joined.get(path)
            joined[path] = one if known is None else known.merge(one)
    return Stats(joined)


def report(found: Stats, options: StatsOptions) -> StatsReport:
    """Turn the counts into rows."""
    rows = [_row(path, one, options.top) for path, one in found.partitions.items()]
    order = sorted(rows, key=lambda row: (row.topic or "", row.partition or 0, row.path))
    return StatsReport(tuple(order))


def _row(path: str, one: PartitionStats, top: int) -> PartitionReport:
    topic = partition = name = None
    if one.log_start_offset is not None:
        name = Path(path).resolve().name
        try:
            parsed = parse_partition_dir(name)
            topic, partition = parsed.topic, parsed.partition
        except NotALogError:
            pass  # a copy under another name
    else:
        first, last = one.summary.first_offset, one.summary.last_offset
        one = replace(
            one, log_start_offset=first, log_end_offset=None if last is None else last + 1
        )
    keys = () if one.records is None else one.records.keys.top(top)
    return PartitionReport(path, name, topic, partition, one, keys)


def _bounds(path: str) -> PartitionStats:
    """Where the log of a directory begins and ends."""
    with Log.open(path) as log:
        return PartitionStats(
            log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset
        )


def _segment(unit: Unit, options: StatsOptions) -> PartitionStats:
    summary, faults = Summary(), list[KsegError]()
    records = None
    with Segment.open(unit.path, mapping=options.mapping, is_last=unit.is_last) as segment:
        for table in segment.headers():
            summary.feed(table)
        if options.records:
            records = _records(segment, faults.append)
        fault = segment.stop_fault(table)
        if fault is not None and not options.records:  # else reading has met it
            faults.append(fault)
        size = segment.size
    texts = tuple(sorted(str(fault) for fault in faults)[:_FAULTS_NAMED_MAX])
    return PartitionStats(
        segments=1,
        bytes=size,
        summary=summary,
        records=records,
        fault_count=len(faults),
        faults=texts,
    )


def _records(segment: Segment, on_error: Callable[[KsegError], None]) -> RecordStats:
    keys, sizes = KeyCounter(), SizeHistogram.of(np.zeros(0, np.int64))
    null_keys = null_values = 0
    for columns in segment.read(fields=("key", "value"), on_error=on_error):
        key: BinaryColumn = columns["key"]
        value: BinaryColumn = columns["value"]
        total = np.diff(key.offsets).astype(np.int64) + np.diff(value.offsets)
        sizes = sizes.merge(SizeHistogram.of(total))
        null_keys += key.null_count
        null_values += value.null_count
        keys.feed(key, total)
    return RecordStats(sizes, null_keys, null_values, keys.totals(), keys.distinct())


__all__ = [
    "PartitionReport",
    "PartitionStats",
    "RecordStats",
    "Stats",
    "StatsOptions",
    "StatsReport",
    "countable",
    "examine",
    "merge",
    "merge_all",
    "plan",
    "report",
    "stats",
]
