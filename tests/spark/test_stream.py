"""Streams through a real Spark: all records once, restarts, limits, what is available now."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from kseg.errors import OffsetOutOfRangeError
from kseg.files.metadata import write_partition_metadata
from kseg.spark import schema
from kseg.spark.options import parse_options
from kseg.spark.source import StreamReader, stream_reader
from kseg.spark.watching import stream_offsets_of
from tests.builders import batch, record, write_segment

pytestmark = pytest.mark.spark


def rows(first: int, count: int = 10) -> bytes:
    records = [record(b"%d" % (first + n)) for n in range(count)]
    return batch(records, base_offset=first)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "orders-0"
    write_segment(path, 0, *(rows(10 * n) for n in range(5)))
    write_segment(path, 50, *(rows(50 + 10 * n) for n in range(5)))
    return path


class Sink:
    """Collects micro-batches by their number, as a sink that is not idempotent would."""

    def __init__(self, spark: SparkSession, source: Path, checkpoint: Path, **options: str) -> None:
        self.spark, self.source, self.checkpoint, self.options = spark, source, checkpoint, options
        self.batches: list[tuple[int, list[int]]] = []
        self.dies_at: int | None = None

    def run(self) -> list[int]:
        """Take what is available now; the sizes of the micro-batches."""
        seen = len(self.batches)
        stream = self.spark.readStream.format("kseg").options(**self.options)
        query = (
            stream.load(str(self.source))
            .select("offset")
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return [len(offsets) for _number, offsets in self.batches[seen:]]

    def _take(self, frame: DataFrame, number: int) -> None:
        offsets = [row["offset"] for row in frame.toArrow().to_pylist()]
        self.batches.append((number, offsets))
        if number == self.dies_at:
            raise RuntimeError("the sink died")

    @property
    def offsets(self) -> list[int]:
        return [offset for _number, offsets in self.batches for offset in offsets]


def test_everything_arrives_once_across_limits_restarts_and_new_files(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    sink = Sink(spark, log.parent, tmp_path / "checkpoint", maxOffsetsPerTrigger="40")
    assert sink.run() == [40, 40, 20]
    assert sink.offsets == list(range(100))
    assert sink.run() == []
    write_segment(log, 100, rows(100), rows(110)[:-1])  # the last one is not finished
    write_segment(log.parent / "orders-1", 7, rows(7, count=3))
    assert sum(sink.run()) == 13
    assert sorted(sink.offsets) == sorted([*range(110), 7, 8, 9])


def test_a_micro_batch_that_was_not_committed_is_read_again_just_so(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    sink = Sink(spark, log, tmp_path / "checkpoint", maxOffsetsPerTrigger="40")
    sink.dies_at = 2
    with pytest.raises(StreamingQueryException, match="the sink died"):
        sink.run()
    sink.dies_at = None
    write_segment(log, 100, rows(100), rows(110))  # there is more by now than there was then
    again = sink.run()
    assert again[0] == 20
    assert sink.batches[3] == sink.batches[2]
    assert sorted(sink.offsets) == sorted([*range(120), *range(80, 100)])


def test_a_stream_fails_where_retention_was_faster(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    sink = Sink(spark, log, tmp_path / "checkpoint", maxOffsetsPerTrigger="40", startingOffsets="5")
    sink.run()
    for path in log.glob("*.log"):
        path.unlink()
    write_segment(log, 200, rows(200))
    with pytest.raises(StreamingQueryException, match="offsets 100 to 199 are gone"):
        sink.run()
    sink.options["failOnDataLoss"] = "false"
    assert sink.run() == [10]


# ---- the reader by itself ------------------------------------------------------------------------


def reader(path: Path, **options: str) -> StreamReader:
    chosen = parse_options({"path": str(path), **options})
    name = "offset" if chosen.mode == "records" else "lastOffset"
    fields = StructType([StructField(name, LongType())])
    chosen.check_stream()
    return stream_reader(chosen, schema.project(fields, chosen))


def read(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        offset
        for task in stream.partitions(start, end)
        for one in stream.read(task)
        for offset in one.column("offset").to_pylist()
    ]


def test_a_range_gives_the_same_rows_whatever_has_come_since(log: Path) -> None:
    stream = reader(log, maxOffsetsPerTrigger="35")
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    first = read(stream, start, end)
    assert first == list(range(30))
    path = max(log.glob("*.log"))
    path.write_bytes(path.read_bytes() + rows(100))
    write_segment(log, 110, rows(110))
    assert read(reader(log), json.loads(json.dumps(start)), json.loads(json.dumps(end))) == first


@pytest.mark.parametrize("count", [1, 10, 20])
def test_a_topic_that_is_made_again_is_a_loss_or_read_from_its_start(log: Path, count: int) -> None:
    write_partition_metadata(log / "partition.metadata", UUID(int=1 << 70))
    streams = [reader(log), reader(log, failOnDataLoss="false")]
    start = streams[0].initialOffset()
    end = streams[0].latestOffset(start)
    assert stream_offsets_of(end)["orders-0"].offset == 100
    log.rename(log.parent.parent / "away")
    write_segment(log, 0, *(rows(10 * at) for at in range(count)))
    write_partition_metadata(log / "partition.metadata", UUID(int=2 << 70))
    for stream in (streams[0], reader(log)):
        with pytest.raises(OffsetOutOfRangeError, match="made again, which was read up to 100"):
            stream.latestOffset(end)
    for stream in (streams[1], reader(log, failOnDataLoss="false")):
        later = stream.latestOffset(end)
        assert read(stream, end, later) == list(range(10 * count))
        assert stream.latestOffset(later) == later


def test_a_new_partition_is_read_from_its_start_even_by_a_latest_stream(log: Path) -> None:
    stream = reader(log.parent, startingOffsets="latest")
    start = stream.initialOffset()
    write_segment(log.parent / "orders-1", 0, rows(0))
    assert read(stream, start, stream.latestOffset(start)) == list(range(10))


def test_ends_that_were_fixed_are_reached_and_not_passed(log: Path) -> None:
    stream = reader(log, maxOffsetsPerTrigger="60")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    write_segment(log, 100, rows(100))
    write_segment(log.parent / "orders-1", 0, rows(0))
    ends = []
    for _ in range(4):
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        ends.append(stream_offsets_of(end)["orders-0"].offset)
        start = end
    assert ends == [60, 100, 100, 100]


def test_a_copied_checkpoint_of_something_else_is_refused(log: Path, tmp_path: Path) -> None:
    shutil.copytree(log, tmp_path / "copy")
    with pytest.raises(ValueError, match="version"):
        reader(log).latestOffset({"orders-0": 5})
