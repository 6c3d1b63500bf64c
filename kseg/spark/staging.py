"""The options of the sink, and the work of its tasks: whole segments, staged beside the logs.

The options of `write.format("kseg")` are:

    path                the data directory; it is made if it is not there
    topic, partition    the place of rows without such a column, or with null in it; partition is 0
    partitioner         murmur2 or crc32: such rows go to the partition of their key instead; rows
                        without a key take the partitions in turn, one for each Arrow batch
    partitions          with partitioner: how many partitions each topic has
    offsets             assign gives new ones beyond the log's end, preserve keeps the column offset
    codec               none, gzip, snappy, lz4, zstd
    batchBytes          1m: a record batch closes before it would be larger, uncompressed
    batchRecords        nor has it more records than this
    segmentBytes        1g: a log file closes before it would be larger
    leaderEpoch         of the batches; the log's latest if it is not given
    topicIds            JSON, {"orders": "the id of the topic"}: for partition.metadata
    jobId               of a batch write: the same id again changes nothing
    queryId             of a stream, if its checkpoint does not say
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from kseg.arrow import from_arrow
from kseg.constants import INT32_MAX, INT64_MAX, Compression
from kseg.documents import frozen_dataclass
from kseg.errors import OffsetsOutOfOrderError
from kseg.files import io
from kseg.files.metadata import parse_topic_id
from kseg.format.encode import encode_batches
from kseg.format.header import EncodedBatch, scan
from kseg.format.options import BatchOptions
from kseg.log.adopt import StagedSegment
from kseg.log.config import LogConfig
from kseg.log.segment import SegmentWriter
from kseg.records.partitioners import NO_PARTITION, PARTITIONERS, partition_for
from kseg.spark.options import (
    OptionTable,
    check_topic_name,
    parse_integer,
    parse_size,
    parse_table,
    parse_word,
)
from kseg.stores.path import is_remote

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@frozen_dataclass
class SinkOptions:
    """The options of one `save` or `start`."""

    path: str
    topic: str | None = None
    partition: int = 0
    partitioner: str | None = None
    partitions: int | None = None
    offsets: str = "assign"
    codec: Compression = Compression.NONE
    batch_bytes: int = 1 << 20
    batch_records: int | None = None
    segment_bytes: int = 1 << 30
    leader_epoch: int | None = None
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    job_id: str | None = None
    query_id: str | None = None
    checkpoint: str | None = None

    @property
    def keeps_offsets(self) -> bool:
        """Whether rows have their offsets in a column."""
        return self.offsets == "preserve"


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Turn Spark's options into `SinkOptions`.

    Raises:
        ValueError: an unknown name, a value out of its domain, or no path; one line each.
    """
    texts = {name.lower(): value for name, value in options.items()}
    path = texts.pop("path", "")
    if not path or "paths" in texts:
        raise ValueError("kseg: a sink writes to one data directory: say .save('data-dir')")
    if is_remote(path):
        raise ValueError(f"kseg: {path}: segments are written to local files only")
    chosen = {
        name: text
        for name, text in texts.items()
        if name not in _OF_SPARK and not name.startswith("kafka.")
    }
    result = SinkOptions(path, **parse_table(OPTIONS, chosen))
    if (result.partitioner is None) is not (result.partitions is None):
        raise ValueError("kseg: options partitioner and partitions need each other")
    if result.partitioner is not None and "partition" in chosen:
        raise ValueError("kseg: one of partition, partitioner at most")
    return result


def _topic(text: str) -> str:
    return check_topic_name(text.strip())


def _topic_ids(text: str) -> dict[str, UUID]:
    """The topic ids of the option, from its JSON."""
    try:
        id_texts = json.loads(text)
        return {
            check_topic_name(name): parse_topic_id(id_text) for name, id_text in id_texts.items()
        }
    except (TypeError, AttributeError, RecursionError, json.JSONDecodeError):
        raise ValueError('JSON such as {"orders": "vVAkKxRlRnqTPUlbLjTmmQ"} is expected') from None


def _codec(text: str) -> Compression:
    return Compression[parse_word(*(codec.label for codec in Compression))(text).upper()]


def _id(text: str) -> str:
    if _ID.fullmatch(text) is None:
        raise ValueError("letters, digits, '.', '_' and '-' make an id, at most 100")
    return text


def _size_below(text: str, most: int, noun: str) -> int:
    """The bytes of a size that is `most` at most; `noun` names it in the error."""
    size = parse_size(text)
    if size > most:
        raise ValueError(f"{noun} is below 2 GiB")
    return size


OPTIONS: Final[OptionTable] = {
    "topic": ("topic", _topic),
    "partition": ("partition", partial(parse_integer, low=0, high=INT32_MAX)),
    "partitioner": ("partitioner", parse_word(*PARTITIONERS)),
    "partitions": ("partitions", partial(parse_integer, low=1, high=INT32_MAX)),
    "offsets": ("offsets", parse_word("assign", "preserve")),
    "codec": ("codec", _codec),
    "batchBytes": ("batch_bytes", partial(_size_below, most=INT32_MAX - 4096, noun="a batch")),
    "batchRecords": ("batch_records", partial(parse_integer, low=1, high=INT64_MAX)),
    "segmentBytes": ("segment_bytes", partial(_size_below, most=INT32_MAX, noun="a segment")),
    "leaderEpoch": ("leader_epoch", partial(parse_integer, low=0, high=INT32_MAX)),
    "topicIds": ("topic_ids", _topic_ids),
    "jobId": ("job_id", _id),
    "queryId": ("query_id", _id),
    "checkpointLocation": ("checkpoint", str),
}
#: Options that Spark adds.
_OF_SPARK: Final = frozenset(("header",))
#: The parts of a record: Spark's names in lower case, and kseg's names.
_RECORD: Final = {
    "key": "key",
    "value": "value",
    "headers": "headers",
    "timestamp": "timestamp",
    "timestampms": "timestamp_ms",
}


@dataclass(frozen=True)
class StagedTask(WriterCommitMessage):
    """The segments that one task wrote; Spark passes it to the commit.

    Attributes:
        number: the number of the task in the job, in whose order offsets are assigned.
        partitions: (topic, partition) -> its segments, in order.
    """

    number: int
    partitions: Mapping[tuple[str, int], tuple[StagedSegment, ...]] = field(default_factory=dict)


def stage(
    batches: Iterable[pa.RecordBatch], directory: Path, number: int, options: SinkOptions
) -> StagedTask:
    """Write the rows of a task.

    Args:
        batches: rows with the columns of the sink, under Spark's names.
        directory: a directory only for this attempt; made if there is a row.
        number: the number of the task.
        options: how to write the rows.

    Raises:
        ValueError: a topic or partition that Kafka would not accept, or an offset that is null.
        InvalidRecordError: a record that cannot be written.
        OffsetsOutOfOrderError: offsets to be kept do not ascend.
        OSError: the disk refuses.
    """
    writers: dict[tuple[str, int], _PartitionWriter] = {}
    for turn, batch in enumerate(batches, number):
        plain = batch.rename_columns([name.lower() for name in batch.schema.names])
        for partition, rows in _by_partition(plain, options, turn):
            if partition not in writers:
                folder = directory / "{}-{}".format(*partition)
                writers[partition] = _PartitionWriter(folder, options)
            writers[partition].write(rows)
    return StagedTask(
        number, {partition: writer.finish() for partition, writer in sorted(writers.items())}
    )


def _by_partition(
    batch: pa.RecordBatch, options: SinkOptions, turn: int
) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """Each (topic, partition) with its rows, in order; the batch itself if all rows are of one.

    Args:
        batch: the rows.
        options: the options of the sink.
        turn: the number of the batch, which decides the partition of rows without a key.
    """
    if not len(batch):
        return
    named = _fill_nulls(batch, "topic", pa.scalar(options.topic, pa.string()))
    if named.null_count:
        raise ValueError("kseg: column topic has a null: set the option topic for such rows")
    topics, names = _codes(named)
    partitions, numbers = _codes(_partitions(batch, options, turn))
    for name in names:
        check_topic_name(name)
    for value in numbers:
        if not 0 <= value <= INT32_MAX:
            raise ValueError(f"kseg: {value} is not a partition number")
    # One number for each pair of indexes of `names` and `numbers`.
    groups = topics * len(numbers) + partitions
    used = np.unique(groups)
    for group in used.tolist():
        rows = batch if len(used) == 1 else batch.filter(pa.array(groups == group))
        yield (names[group // len(numbers)], int(numbers[group % len(numbers)])), rows


def _partitions(batch: pa.RecordBatch, options: SinkOptions, turn: int) -> pa.Array:
    """The partition of each row: from its column, else from its key, else from the option."""
    kind = pa.int64()
    if options.partitioner is None or options.partitions is None:
        return _fill_nulls(batch, "partition", pa.scalar(options.partition, kind))
    chosen = np.full(len(batch), NO_PARTITION, np.int64)
    if "key" in batch.schema.names:
        chosen[:] = partition_for(batch.column("key"), options.partitions, options.partitioner)
    chosen[chosen == NO_PARTITION] = turn % options.partitions
    numbers = _fill_nulls(batch, "partition", pa.scalar(None, kind))
    return pc.coalesce(numbers, pa.array(chosen))


def _codes(column: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[Any]]:
    """int64[n], the index of each row's value in the list of distinct values; and that list."""
    encoded = pc.dictionary_encode(column)
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def _fill_nulls(batch: pa.RecordBatch, name: str, default: pa.Scalar) -> pa.Array:
    """A column, with a default in place of nulls, or of a missing column."""
    if name not in batch.schema.names:
        return pa.repeat(default, len(batch))
    column = batch.column(name).cast(default.type)
    return pc.fill_null(column, default) if default.is_valid else column


class _PartitionWriter:
    """Writes the rows of one partition, segment by segment."""

    def __init__(self, directory: Path, options: SinkOptions) -> None:
        """Make the directory for the segments."""
        io.make_directories(directory)
        self._directory: Final = directory
        self._options: Final = options
        self._config: Final = LogConfig(segment_bytes=options.segment_bytes)
        self._batch: Final = BatchOptions(compression=options.codec, leader_epoch=0)
        self._done: list[StagedSegment] = []
        self._writer: SegmentWriter | None = None
        # The first offset of the open segment, the next offset, and the records of the segment.
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
        """Add a batch to the segment, or to a new one if that is full."""
        if batch.base_offset < self._next:
            raise OffsetsOutOfOrderError(
                f"offset {batch.base_offset} comes after {self._next - 1}: sort the rows by "
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
        """Whether a batch does not fit into the open segment."""
        too_large = writer.size + len(batch.data) > self._options.segment_bytes
        return too_large or batch.last_offset - self._first > INT32_MAX

    def _close(self, writer: SegmentWriter) -> None:
        """Close a segment, and note it as ready to be adopted."""
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
        """Close the last segment, and make all durable; returns the segments."""
        if self._writer is not None:
            self._close(self._writer)
        io.flush_directory(self._directory)
        return tuple(self._done)


def _records(rows: pa.RecordBatch, *, keeps_offsets: bool) -> pa.RecordBatch:
    """The columns of records under kseg's names; a missing time is the present."""
    columns = {
        ours: rows.column(name) for name, ours in _RECORD.items() if name in rows.schema.names
    }
    if "timestamp_ms" in columns:
        columns.pop("timestamp", None)
    name = "timestamp" if "timestamp" in columns else "timestamp_ms"
    times = columns.get(name, pa.nulls(len(rows), pa.int64()))
    now = pa.scalar(int(time.time() * 1000), pa.timestamp("ms")).cast(times.type)
    columns[name] = pc.fill_null(times, now)
    if keeps_offsets:
        if "offset" not in rows.schema.names or rows.column("offset").null_count:
            raise ValueError("kseg: offsets=preserve needs a column offset without nulls")
        columns["offset"] = rows.column("offset")
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
