"""What compaction would save: by partition, how many records are not the last of their key.

Each worker finds the last record of each key in its part of a log, by the key's hash, and hands on
hash, offset and size, never a key or a value; Spark finds the last of these. Two keys with equal
hashes would be taken for one: among a billion keys that happens about once in forty times.

A cleaner would keep the last record of each key, tombstones for a while too, and drop records
without a key. It leaves the active segment alone, which is counted here like the others. Sizes are
those of key and value before compression, as in `kseg stats`. What the next compaction of a log
would do, by its settings and checkpoints, is beside that: the plan of `kseg.spark.jobs.compact`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kseg.format import key_hashes as _keymap
from kseg.log.data_directory import CLUSTER_METADATA
from kseg.spark.damage import Damage, passing_over, report
from kseg.spark.jobs.compact import CompactOptions, CompactResult, compact
from kseg.spark.jobs.job_directory import open_job
from kseg.spark.jobs.running import error_of, rows_of, splits_of, watched
from kseg.spark.options import SourceOptions, parse_options
from kseg.spark.reading import read_split
from kseg.spark.remote import is_remote

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

    from kseg import CompactionPlan
    from kseg.format.values import BinaryColumn, RecordColumns
    from kseg.spark.jobs.running import Progress
    from kseg.spark.listing import LogEntry
    from kseg.spark.plan import Split

    Numbers = npt.NDArray[np.int64]

SCHEMA: Final = "kseg.compaction/1"
_AS_SETTINGS_SAY: Final = CompactOptions()
#: Keys that a worker holds before it hands on what it knows of them.
KEYS_MAX: Final = 1 << 19
_ROWS_MAX: Final = 65_536
_NAMES: Final = ("log", "hash", "records", "bytes", "offset", "last", "faults")
_ARROW: Final = pa.schema([pa.field(name, pa.int64()) for name in _NAMES])
_DDL: Final = ", ".join(f"{name} BIGINT" for name in _NAMES)
_REPORT_DDL: Final = (
    "path STRING, topic STRING, partition INT, segments BIGINT, log_bytes BIGINT, records BIGINT, "
    "bytes BIGINT, keys BIGINT, kept_bytes BIGINT, tombstones BIGINT, null_keys BIGINT, "
    "faults BIGINT, next_saved_records BIGINT, next_saved_bytes BIGINT, next_skipped STRING"
)


@dataclass(frozen=True, slots=True)
class PartitionCompaction:
    """One partition.

    Attributes:
        path: its directory.
        topic, partition: as the name says.
        segments, log_bytes: log files, and how long they are.
        records, bytes: of all records that are not control records.
        keys: different ones; so many records would stay.
        kept_bytes: of these records.
        tombstones: those of them that would go, too, after their time.
        null_keys: records that no compacted topic can have.
        faults: batches that could not be read, under `onCorrupt=skip`.
        next_saved_records, next_saved_bytes: what the next compaction saves, as it is planned, of
            records and of log files; None where there is no plan.
        next_skipped: why it leaves the partition alone, in a word of `topic_policy`; None else.
    """

    path: str
    topic: str | None
    partition: int | None
    segments: int
    log_bytes: int
    records: int = 0
    bytes: int = 0
    keys: int = 0
    kept_bytes: int = 0
    tombstones: int = 0
    null_keys: int = 0
    faults: int = 0
    next_saved_records: int | None = None
    next_saved_bytes: int | None = None
    next_skipped: str | None = None

    @property
    def saved_bytes(self) -> int:
        """Of the log files, if what goes is compressed as well as what stays."""
        return self.log_bytes - round(self.log_bytes * self.kept_bytes / max(self.bytes, 1))

    def document(self) -> dict[str, Any]:
        """The fields as they stand in JSON."""
        saved = {"saved_records": self.records - self.keys, "saved_bytes": self.saved_bytes}
        return {**asdict(self), **saved}


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What would be saved.

    Attributes:
        partitions: by topic, number and directory.
        tasks: how many Spark ran over logs.
        skipped: pieces of logs that an earlier run had read.
        planned: what the next compaction would do; None where none was planned.
    """

    partitions: tuple[PartitionCompaction, ...]
    tasks: int
    skipped: int
    planned: CompactResult | None = None

    def frame(self, spark: SparkSession) -> DataFrame:
        """The partitions, a row each."""
        rows = [tuple(asdict(one).values()) for one in self.partitions]
        return spark.createDataFrame(rows, _REPORT_DDL)


def compaction(
    spark: SparkSession,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    options: Mapping[str, str] | None = None,
    plan: CompactOptions | None = _AS_SETTINGS_SAY,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> CompactionResult:
    """Count what compaction would leave of logs; changes nothing.

    Args:
        spark: the session.
        paths: one path or several, as every worker sees them.
        options: of the source, such as `subscribe`, `partitions`, `onCorrupt`; with
            `isolation=read_committed` aborted records do not count, as for a cleaner.
        plan: what the next compaction would go by; None for no plan. Logs in a store, and those of
            Kafka 0.7, have none.
        job: a directory to note in what is finished, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: an option is unknown or out of its domain, or a setting is none.
        NotALogError: a path is nothing of Kafka's.
        OSError: something is missing or cannot be read here.
        KsegError: something could not be read by a worker, or `job` is of another job.
    """
    found, logs = _counted(spark, paths, options, job, progress)
    places = [] if plan is None else [log.directory for log in logs if _can_be_planned(log)]
    if not places:
        return found
    planned = compact(spark, places, options=plan)
    plans = {str(one.path): one.plan for one in planned.partitions}
    partitions = tuple(_with_plan(one, plans.get(one.path)) for one in found.partitions)
    return replace(found, partitions=partitions, planned=planned)


def _can_be_planned(log: LogEntry) -> bool:
    here = not is_remote(log.directory) and log.topic != CLUSTER_METADATA
    return here and all(each.path.endswith(".log") for each in log.segments)


def _with_plan(one: PartitionCompaction, plan: CompactionPlan | None) -> PartitionCompaction:
    if plan is None:
        return one
    return replace(
        one,
        next_saved_records=plan.saved_records,
        next_saved_bytes=plan.saved_bytes,
        next_skipped=plan.skipped,
    )


def _counted(
    spark: SparkSession,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    options: Mapping[str, str] | None,
    job: str | PathLike[str] | None,
    progress: Progress | None,
) -> tuple[CompactionResult, Sequence[LogEntry]]:
    from pyspark.errors import PySparkException

    chosen = source_options(paths, options)
    directory = None if job is None else open_job(job, "compaction", options)
    logs, items = splits_of(chosen, marked=directory is not None)
    if not items:
        return CompactionResult(_partitions(logs, {}), 0, 0), logs
    work = partial(_latest, options=chosen)
    frame, ran = rows_of(spark, items, work, _ARROW, ddl=_DDL, job=directory)
    try:
        with watched(spark, ran.tasks, progress):
            found = {row.log: row for row in _by_log(frame).collect()}
    except PySparkException as error:
        raise error_of(str(error)) from None
    return CompactionResult(_partitions(logs, found), ran.tasks, ran.skipped), logs


def source_options(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]], options: Mapping[str, str] | None
) -> SourceOptions:
    """Options of the source for paths of this machine.

    Raises:
        ValueError: an option is unknown or out of its domain.
    """
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    places = json.dumps([fspath(path) for path in given])
    return parse_options({**(options or {}), "paths": places})


def _by_log(frame: DataFrame) -> DataFrame:
    """The last record of each key, then sums by log; only numbers are shuffled."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

    by_key = frame.groupBy("log", "hash").agg(
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.max_by("last", "offset").alias("last"),
        F.sum("faults").alias("faults"),
    )
    is_key, last = F.col("hash").isNotNull(), F.col("last")
    return by_key.groupBy("log").agg(
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.count("hash").alias("keys"),
        F.sum(F.when(is_key, F.greatest(last, -last - 1)).otherwise(0)).alias("kept_bytes"),
        F.count_if(is_key & (last < 0)).alias("tombstones"),
        F.sum(F.when(is_key, 0).otherwise(F.col("records"))).alias("null_keys"),
        F.sum("faults").alias("faults"),
    )


def _partitions(
    logs: Iterable[LogEntry], found: Mapping[int, Any]
) -> tuple[PartitionCompaction, ...]:
    rows = []
    for log in logs:
        row = found.get(_number(log.directory))
        counted = {} if row is None else row.asDict()
        counted.pop("log", None)
        rows.append(
            PartitionCompaction(
                path=log.directory,
                topic=log.topic,
                partition=log.partition,
                segments=len(log.segments),
                log_bytes=sum(segment.size for segment in log.segments),
                **counted,
            )
        )
    return tuple(rows)


def _number(directory: str) -> int:
    """A log as a number, the same in each run."""
    return int.from_bytes(hashlib.sha256(directory.encode()).digest()[:8], "big", signed=True)


# ---- in a worker ---------------------------------------------------------------------------------


def _latest(splits: Sequence[Split], *, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """What is known of each key, piece by piece of each log."""
    damages: list[Damage] = []
    for directory, pieces in groupby(splits, key=lambda split: os.path.dirname(split.path)):
        keys = _Keys(_number(directory))
        before = len(damages)
        for split in pieces:
            on_error = passing_over(options, split, damages)
            for columns in read_split(split, ("offset", "key", "value"), options, on_error):
                yield from keys.feed(columns)
        yield from keys.rest(len(damages) - before)
    if options.on_corrupt != "fail":
        report(damages, tuple(splits), options.report_path)


class _Keys:
    """The last record of each key of one log, a bounded number of keys at a time."""

    def __init__(self, log: int) -> None:
        self._log: Final = log
        self._null_keys = self._null_bytes = 0
        self._begin()

    def _begin(self) -> None:
        self._table = _keymap.KeyTable(KEYS_MAX)
        self._offset = np.zeros(KEYS_MAX, np.int64)
        self._last = np.zeros(KEYS_MAX, np.int64)

    def feed(self, columns: RecordColumns) -> Iterator[pa.RecordBatch]:
        """Take a piece; rows come where there is no room for more keys."""
        key: BinaryColumn = columns["key"]
        value: BinaryColumn = columns["value"]
        sizes = np.diff(key.offsets).astype(np.int64) + np.diff(value.offsets)
        hashes = np.empty(len(columns), np.uint64)
        _keymap.hash_values(key.data, key.offsets, hashes)
        rows = np.flatnonzero(key.is_valid())
        self._null_keys += key.null_count
        self._null_bytes += int(sizes.sum() - sizes[rows].sum())
        # A tombstone's size is the complement, and so below zero.
        last = np.where(value.is_valid(), sizes, ~sizes)[rows]
        hashes, sizes, offsets = hashes[rows], sizes[rows], columns["offset"][rows]
        ones, numbers = np.ones(len(rows), np.int64), np.empty(len(rows), np.int32)
        start = 0
        while True:
            done = self._table.feed(hashes, sizes, ones, numbers, start)
            places = numbers[start:done]
            # Offsets ascend, and of several values for one place the last one stays.
            self._offset[places] = offsets[start:done]
            self._last[places] = last[start:done]
            if done == len(rows):
                return
            start = done
            yield from self._rows()
            self._begin()

    def rest(self, faults: int) -> Iterator[pa.RecordBatch]:
        """The rows that are left, and one for what has no key."""
        yield from self._rows()
        if self._null_keys or faults:
            yield pa.RecordBatch.from_pylist(
                [
                    {
                        "log": self._log,
                        "records": self._null_keys,
                        "bytes": self._null_bytes,
                        "offset": 0,
                        "last": 0,
                        "faults": faults,
                    }
                ],
                schema=_ARROW,
            )

    def _rows(self) -> Iterator[pa.RecordBatch]:
        count = self._table.count
        hashes = np.empty(count, np.uint64)
        records, sizes = np.empty(count, np.int64), np.empty(count, np.int64)
        self._table.copy_into(hashes, records, sizes)
        columns: list[Numbers] = [
            np.full(count, self._log, np.int64),
            hashes.view(np.int64),
            records,
            sizes,
            self._offset[:count],
            self._last[:count],
            np.zeros(count, np.int64),
        ]
        batch = pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=_ARROW)
        for start in range(0, count, _ROWS_MAX):
            yield batch.slice(start, _ROWS_MAX)


__all__ = ["SCHEMA", "CompactionResult", "PartitionCompaction", "compaction", "source_options"]
