"""What a task of the sink does: its rows as whole segments, in a place of its own.

Rows are taken as they come, batch by batch, and shared out by topic and partition; those of one
partition stay in order. Each partition has one segment open at a time, whose offsets count from 0
where the commit is to give them. Nothing of a log is touched. Needs no pyspark.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kseg.arrow import from_arrow
from kseg.errors import OffsetsOutOfOrderError
from kseg.files import io
from kseg.format.encode import encode_batches
from kseg.format.encoded import EncodedBatch
from kseg.format.header import scan
from kseg.format.options import BatchOptions
from kseg.log.adopt import StagedSegment
from kseg.log.config import LogConfig
from kseg.log.segment import SegmentWriter
from kseg.spark.sink_options import SinkOptions
from kseg.spark.topics import PARTITION_MAX, check_topic_name

#: Spark's names of what a record is made of, and Arrow's names in kseg.
_RECORD: Final = {
    "key": "key",
    "value": "value",
    "headers": "headers",
    "timestamp": "timestamp",
    "timestampms": "timestamp_ms",
}
_OFFSETS_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """The segments that one task wrote for one partition, in order."""

    topic: str
    partition: int
    segments: tuple[StagedSegment, ...]


@dataclass(frozen=True, slots=True)
class StagedTask:
    """What one task wrote.

    Attributes:
        number: of the task among those of the job: the order in which offsets are given.
        partitions: by topic and number.
    """

    number: int
    partitions: tuple[StagedPartition, ...] = ()


def stage(
    batches: Iterable[pa.RecordBatch], directory: Path, number: int, options: SinkOptions
) -> StagedTask:
    """Write the rows of a task.

    Args:
        batches: rows with the columns of the sink, under Spark's names.
        directory: of this attempt alone; made if there is a row.
        number: of the task.
        options: how to write them.

    Raises:
        ValueError: a topic or partition that Kafka would not take, or an offset that is null.
        InvalidRecordError: a record that cannot be written.
        OffsetsOutOfOrderError: offsets to be kept do not ascend.
        OSError: the disk refuses.
    """
    writers: dict[tuple[str, int], _PartitionWriter] = {}
    for batch in batches:
        for (topic, partition), rows in _by_partition(_plain(batch), options):
            writer = writers.get((topic, partition))
            if writer is None:
                place = directory / f"{topic}-{partition}"
                writer = writers[topic, partition] = _PartitionWriter(place, options)
            writer.write(rows)
    return StagedTask(
        number,
        tuple(
            StagedPartition(topic, partition, writer.finish())
            for (topic, partition), writer in sorted(writers.items())
        ),
    )


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same columns under lower-case names."""
    return batch.rename_columns([name.lower() for name in batch.schema.names])


def _by_partition(
    batch: pa.RecordBatch, options: SinkOptions
) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """The rows of each partition, in order; one slice where all are of the same."""
    if not len(batch):
        return
    topics, names = _codes(_topics(batch, options))
    partitions, numbers = _codes(_partitions(batch, options))
    for name in names:
        check_topic_name(name)
    for value in numbers:
        if not 0 <= value <= PARTITION_MAX:
            raise ValueError(f"kseg: {value} is no number of a partition")
    groups = topics * len(numbers) + partitions
    found = np.unique(groups)
    for group in found.tolist():
        place = (names[group // len(numbers)], int(numbers[group % len(numbers)]))
        rows = batch if len(found) == 1 else batch.filter(pa.array(groups == group))
        yield place, rows


def _codes(column: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[Any]]:
    """Each row's place in the list of different values."""
    encoded = pc.dictionary_encode(column)
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def _topics(batch: pa.RecordBatch, options: SinkOptions) -> pa.Array:
    default = pa.scalar(options.topic, pa.string())
    if "topic" not in batch.schema.names:
        if options.topic is None:
            raise ValueError("kseg: there is no column topic: set the option topic")
        return pa.repeat(default, len(batch))
    column = batch.column("topic").cast(pa.string())
    if column.null_count and options.topic is None:
        raise ValueError("kseg: column topic has a null: set the option topic for such rows")
    return pc.fill_null(column, default) if column.null_count else column


def _partitions(batch: pa.RecordBatch, options: SinkOptions) -> pa.Array:
    default = pa.scalar(options.partition, pa.int64())
    if "partition" not in batch.schema.names:
        return pa.repeat(default, len(batch))
    return pc.fill_null(batch.column("partition").cast(pa.int64()), default)


class _PartitionWriter:
    """Writes the rows of one partition, segment by segment."""

    def __init__(self, directory: Path, options: SinkOptions) -> None:
        """Make a place for them."""
        io.make_directories(directory)
        self._directory: Final = directory
        self._options: Final = options
        self._config: Final = LogConfig(segment_bytes=options.segment_bytes)
        self._batch: Final = BatchOptions(compression=options.codec, leader_epoch=0)
        self._done: list[StagedSegment] = []
        self._writer: SegmentWriter | None = None
        self._first = self._next = self._records = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows at the end."""
        options = self._options
        for columns in from_arrow(_records(rows, keeps_offsets=options.keeps_offsets)):
            for batch in encode_batches(
                columns,
                self._batch,
                base_offset=self._next,
                batch_bytes=options.batch_bytes,
                batch_records=options.batch_records,
            ):
                self._append(batch)

    def _append(self, batch: EncodedBatch) -> None:
        if batch.base_offset < self._next:
            raise OffsetsOutOfOrderError(
                f"offset {batch.base_offset} comes behind {self._next - 1}: sort the rows by "
                "topic, partition and offset within each task",
                path=self._directory.name,
                offset=batch.base_offset,
            )
        writer = self._writer
        if writer is not None and self._is_full(writer, batch):
            self._close(writer)
            writer = None
        if writer is None:
            self._first, self._records = batch.base_offset, 0
            writer = self._writer = SegmentWriter.open(
                self._directory, self._first, self._config, create=True, now_ms=0, preallocate=False
            )
        writer.append([batch.data], scan(batch.data, on_bad_crc="ignore"))
        self._next = batch.last_offset + 1
        self._records += batch.record_count

    def _is_full(self, writer: SegmentWriter, batch: EncodedBatch) -> bool:
        too_large = writer.size + len(batch.data) > self._options.segment_bytes
        return too_large or batch.last_offset - self._first > _OFFSETS_MAX

    def _close(self, writer: SegmentWriter) -> None:
        size = writer.size
        writer.become_inactive()
        writer.flush()
        writer.close()
        self._writer = None
        self._done.append(
            StagedSegment(
                directory=str(self._directory),
                base_offset=self._first,
                first_offset=self._first,
                last_offset=self._next - 1,
                bytes=size,
                records=self._records,
            )
        )

    def finish(self) -> tuple[StagedSegment, ...]:
        """The segments, lasting."""
        if self._writer is not None:
            self._close(self._writer)
        io.flush_directory(self._directory)
        return tuple(self._done)


def _records(rows: pa.RecordBatch, *, keeps_offsets: bool) -> pa.RecordBatch:
    """The columns of records, under the names that kseg knows; now, where no time is given."""
    columns = {
        ours: rows.column(name) for name, ours in _RECORD.items() if name in rows.schema.names
    }
    if "timestamp_ms" in columns:
        columns.pop("timestamp", None)
    now = int(time.time() * 1000)
    time_name = "timestamp_ms" if "timestamp_ms" in columns else "timestamp"
    if time_name not in columns:
        columns["timestamp_ms"] = pa.repeat(pa.scalar(now, pa.int64()), len(rows))
    elif columns[time_name].null_count:
        kind = columns[time_name].type
        scalar = pa.scalar(now, pa.int64() if time_name == "timestamp_ms" else pa.timestamp("ms"))
        columns[time_name] = pc.fill_null(columns[time_name], scalar.cast(kind))
    if keeps_offsets:
        if "offset" not in rows.schema.names or rows.column("offset").null_count:
            raise ValueError("kseg: offsets=preserve needs a column offset without nulls")
        columns["offset"] = rows.column("offset")
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
