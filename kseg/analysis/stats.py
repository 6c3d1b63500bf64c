"""The use of the disk: counts, bytes, times, codecs, sizes and top keys of each partition.

    units = plan(paths)                            the units of work, as for `verify`
    examine(unit, options) -> Stats                one unit, anywhere
    merge_all(answers) -> Stats                    in any order
    report(stats, options) -> StatsReport          rows, a partition each

The functions are the same in one process and on a cluster, so their answers are equal. Nothing is
changed and nothing is locked.

Sizes, distinct keys and top keys are summaries of `kseg.analysis.sketches`.
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
from kseg.analysis.sketches import (
    _SAMPLED,
    DISTINCT_ERROR,
    DistinctCount,
    KeyCounter,
    KeyTotals,
    SizeHistogram,
    Timeline,
    TopKey,
)
from kseg.analysis.units import Threads, Unit, UnitKind, all_files, plan, run_units
from kseg.catalog import Catalog, OnError
from kseg.constants import (
    Progress,
    codec_label,
)
from kseg.documents import fields_of, frozen_dataclass
from kseg.errors import KsegError, NotALogError
from kseg.files.grammar import parse_partition_dir
from kseg.files.mapping import Mapping
from kseg.files.names import FileKind, LeftOut
from kseg.files.selection import StrPaths
from kseg.format.header import BatchTable
from kseg.format.typed import payload_kinds
from kseg.format.values import BinaryColumn, RecordColumns
from kseg.frames import Listed, Table
from kseg.log.log import Log

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
        records: decode records, for their sizes and keys; otherwise only headers are read.
        top: the number of keys with most bytes to name for each partition.
        mapping: see `kseg.files.mapping`.
    """

    records: bool = True
    top: int = TOP_KEYS
    mapping: Mapping = "auto"


@frozen_dataclass(eq=False)
class RecordStats:
    """Numbers that need decoding; control records do not count.

    Attributes:
        sizes: the size of key and value together, before compression.
        null_keys, null_values: the numbers of records without a key, and of tombstones.
        keys: the keys with most bytes.
        distinct: the number of different keys.
        timeline: records and bytes in each bin of time.
        payloads: kind of a value -> number, out of the first values of each segment; see
            `payload_kinds`.
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
        segments, bytes: the number of log files, and their size.
        summary: the numbers that headers have.
        records: the numbers that need decoding; None if records were not decoded.
        log_start_offset, log_end_offset: of the directory; None until it was opened.
        fault_count: the number of batches and tails that could not be read.
        faults: the first of them, as text.
        batch_sizes: the sizes of batches as stored in the files.
        codec_bytes: the number of a codec -> the bytes of its batches.
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
#: The answer of `examine`, keyed by partition directory, or by path for a single named file.
Stats = dict[str, PartitionStats]


@frozen_dataclass
class PartitionReport:
    """One row of the report.

    Attributes:
        path: the directory, or the file.
        dir: the directory's name; None for a file by itself.
        topic, partition: parsed from the directory's name; None if it is not such a name.
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
            key_text: makes text of a key; without it, keys stay bytes.
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


class StatsByTopic(Listed[TopicStats]):
    """The topics, sorted by name; a table with a row for each."""

    __slots__ = ()
    COLUMNS = f"topic partitions {_OF_BATCHES}{_OF_RECORDS}"

    @property
    def title(self) -> str:
        """The names of the topics."""
        return ", ".join(topic.topic for topic in self)

    def table_rows(self) -> Sequence[Cells[str, Any]]:
        """The numbers of each topic; `compression_ratio` is `record_bytes` / `bytes`."""
        return [
            {
                **fields_of(topic, "topic partitions"),
                **topic.stats.cells(topic.top_keys),
            }
            for topic in self
        ]


@frozen_dataclass(repr=False)
class StatsReport(Table):
    """The answer of stats: a table with a row for each partition.

    Attributes:
        partitions: one value each, sorted by topic, number and path.
        skipped: the paths that could not be read, with `on_error="skip"`.
        top: the number of keys that are named for each partition and topic.
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
        """The numbers of each partition; `compression_ratio` is `record_bytes` / `bytes`."""
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
            encoding: how keys are written: "base64", "utf8" or "hex".
        """
        text = _ENCODERS[encoding]
        return {"partitions": [partition.document(text) for partition in self.partitions]}

    @property
    def topics(self) -> StatsByTopic:
        """The sums of each topic, as a table; the top keys are of all its partitions together."""
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
        """The number of batches and tails that could not be read, in all."""
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
        options: what to count.
        threads, progress: as for `stats`.
        skipped: the paths that could not be read so far; receives more. None to raise the error.

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
    """Count one unit; the answer is small, whatever the unit's size, and may be empty.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    if unit.kind not in _COUNTED or unit.path.endswith(FileKind.BOOTSTRAP.value):
        return {}  # the file that a node is formatted with is not a log
    if unit.kind is UnitKind.PARTITION:
        return {unit.path: _bounds(unit.path)}
    try:
        return {unit.partition or unit.path: _segment(unit, options)}
    except FileNotFoundError:
        if unit.partition is None:
            raise
        return {}  # retention has deleted it meanwhile


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
    """The keys with most bytes of a partition; empty if its records were not decoded."""
    return () if partition.records is None else partition.records.keys.top(top)


def _row(path: str, numbers: PartitionStats, top: int) -> PartitionReport:
    """The row of a partition directory, or of a single file, which has neither topic nor partition.

    The log of a single file starts and ends with its batches.

    Args:
        path: the directory or the file.
        numbers: what was counted.
        top: the number of keys with most bytes to name.
    """
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
    """The numbers of a segment: only those of headers, or with `records` also of its records."""
    faults, records, headers = list[KsegError](), None, _Headers()
    with Segment.open(unit.path, mapping=options.mapping, is_last=unit.is_last) as segment:
        if options.records:
            pieces = segment.read(
                columns=("timestamp", "key", "value"), on_corrupt=faults.append, keep=headers.add
            )
            records = _records(pieces)
        else:
            for table in segment.headers():
                headers.add(table)
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
    """Sums over the headers of a file, up to damage that hides where the next batch begins."""

    def __init__(self) -> None:
        self.summary = Summary()
        self.sizes = SizeHistogram.none()
        self.codec_bytes = Counter[int]()
        self._end = 0

    def add(self, table: BatchTable) -> BatchTable:
        """Add the batches of a table that follow those before; returns the table unchanged.

        A reader with `keep` calls this for batches ahead of it, and may call it again for the same
        batches: each counts once. After damage no batch counts, since values may hold batches.
        """
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
    """The numbers of the records of a segment, and the kinds of its first `_SAMPLED` values."""
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
