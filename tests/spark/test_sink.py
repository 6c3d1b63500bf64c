"""Through a real Spark: what it writes is in the logs, once, and a broker takes it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from kseg.analysis.verify import verify
from kseg.log.log import Log
from kseg.records.partitioners import partition_for
from kseg.records.scan import scan
from kseg.spark.sink import check_schema, query_of
from kseg.spark.staging import parse_sink_options, stage
from tests.builders import batch, record, write_segment
from tests.spark.streaming import descendants

pytestmark = pytest.mark.spark

RECORD = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")


def load(spark: SparkSession, path: object, **options: str) -> DataFrame:
    return spark.read.format("kseg").options(**options).load(str(path))


def save(frame: DataFrame, path: object, **options: str) -> None:
    frame.write.format("kseg").mode("append").options(**options).save(str(path))


def records(path: Path, *, offsets: bool = True) -> list[Any]:
    found = [entry for columns in scan(path, columns=RECORD) for entry in columns.records()]
    return found if offsets else [entry[1:] for entry in found]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_is_read_and_written_is_the_same(
    spark: SparkSession, plain_log: Path, tmp_path: Path, codec: str
) -> None:
    frame = load(spark, plain_log, includeHeaders="true", targetPartitionBytes="1k")
    save(frame, tmp_path / "data", codec=codec, offsets="preserve")
    written = tmp_path / "data" / plain_log.name
    assert records(written) == records(plain_log)
    assert verify(tmp_path / "data", deep=True).findings == ()
    save(frame, tmp_path / "data", codec=codec, batchRecords="7")
    assert records(written, offsets=False) == 2 * records(plain_log, offsets=False)
    with Log.open(written, mode="append") as log:
        assert log.recovery_point == log.log_end_offset


def test_the_same_job_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value", "'orders' AS topic")
    for _ in range(2):
        save(frame, tmp_path / "data", jobId="nightly-7")
    assert len(records(tmp_path / "data" / "orders-0")) == 100


def test_a_job_that_fails_leaves_nothing_that_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr(
        "CAST(id AS STRING) AS value", "IF(id = 90, '../x', 'orders') AS topic"
    )
    with pytest.raises(PySparkException, match="not a name that Kafka accepts"):
        save(frame, tmp_path / "data")
    assert not (tmp_path / "data").exists()
    assert not list(tmp_path.rglob("*.log"))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"key": BinaryType()}, {}, "needs the column value"),
        ({"value": LongType()}, {}, "'value' is bigint, not binary or string"),
        ({"value": StringType(), "colour": StringType()}, {}, "'colour' is not a part of a record"),
        ({"value": StringType()}, {"topic": ""}, "not a name that Kafka accepts"),
        ({"value": StringType()}, {"offsets": "preserve"}, "needs the column offset"),
        ({"value": StringType()}, {"codecs": "lz4"}, "did you mean codec"),
        ({"value": StringType()}, {"codec": "lzma"}, "not one of none, gzip"),
        ({"value": StringType()}, {"partitioner": "murmur2"}, "need each other"),
        ({"value": StringType()}, {"partitions": "3"}, "need each other"),
        ({"value": StringType()}, {"partitioner": "fnv", "partitions": "3"}, "not one of murmur2"),
        (
            {"value": StringType()},
            {"partitioner": "crc32", "partitions": "3", "partition": "0"},
            "one of partition, partitioner",
        ),
        ({"value": StringType()}, {"path": ""}, "one data directory"),
        ({"value": StringType()}, {"path": "s3://bucket"}, "local files only"),
    ],
)
def test_a_mistake_is_one_clear_line(
    columns: dict[str, Any], options: dict[str, str], message: str
) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    with pytest.raises(ValueError, match=message) as caught:
        check_schema(schema, parse_sink_options({"path": "data", "topic": "t", **options}))
    assert "\n" not in str(caught.value)


def test_columns_of_the_source_that_are_no_part_of_a_record_are_passed_over() -> None:
    names = {"value": StringType(), "leaderEpoch": LongType(), "timestampType": LongType()}
    schema = StructType([StructField(name, kind) for name, kind in names.items()])
    check_schema(schema, parse_sink_options({"path": "data", "topic": "t"}))


def test_only_appending_is_there(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match="use mode\\('append'\\)"):
        frame.write.format("kseg").mode("overwrite").option("topic", "t").save(str(tmp_path / "d"))


def test_a_query_is_known_by_its_checkpoint_or_by_name(tmp_path: Path) -> None:
    given = {"path": "data", "checkpointLocation": f"file://{tmp_path}"}
    name = "0d1c5d3a-6f6e-4a57-9b0a-2f6f3ad1c0de"
    (tmp_path / "metadata").write_text(f'{{"id":"{name}"}}')
    assert query_of(parse_sink_options(given)) == name
    assert query_of(parse_sink_options({**given, "queryId": "mine"})) == "mine"
    with pytest.raises(ValueError, match="set the option queryId"):
        query_of(parse_sink_options({"path": "data"}))


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_rows_without_a_partition_go_where_a_producer_puts_their_key(
    spark: SparkSession, tmp_path: Path, partitioner: str
) -> None:
    keys = [f"user-{number}" for number in range(200)]
    frame = spark.range(200).selectExpr("'user-' || id AS key", "CAST(id AS STRING) AS value")
    options = {"topic": "t", "partitioner": partitioner, "partitions": "3"}
    save(frame, tmp_path / "d", **options)
    found = {
        row["key"].decode(): row["partition"]
        for columns in scan(tmp_path / "d", columns=("key",))
        for row in columns
    }
    assert found == {key: partition_for(key, 3, partitioner) for key in keys}
    given = frame.selectExpr("key", "value", "IF(INT(value) < 100, 7, NULL) AS partition")
    save(given, tmp_path / "e", **options)
    assert len(records(tmp_path / "e" / "t-7")) == 100
    assert scan(tmp_path / "e").count() == 200


@pytest.mark.parametrize("column", [[], ["key"]])
def test_rows_without_a_key_take_the_partitions_in_turn(tmp_path: Path, column: list[str]) -> None:
    options = parse_sink_options(
        {"path": "d", "topic": "t", "partitioner": "murmur2", "partitions": "3"}
    )
    nulls = pa.nulls(2, pa.binary())
    rows = pa.RecordBatch.from_pydict(
        {"value": pa.array(["a", "b"]), **dict.fromkeys(column, nulls)}
    )
    staged = stage([rows] * 4, tmp_path, 2, options)
    found = {place: sum(one.records for one in of) for place, of in staged.partitions.items()}
    assert found == {("t", 0): 2, ("t", 1): 2, ("t", 2): 4}


# ---- streams -------------------------------------------------------------------------------------


def source_of(tmp_path: Path, count: int, *, start: int = 0) -> Path:
    """Two partitions of single-record batches, each value its place."""
    for partition in (0, 1):
        path = tmp_path / "in" / f"orders-{partition}"
        for base in range(start, count, 500):
            numbers = range(base, min(base + 500, count))
            ones = [
                batch([record(b"%d/%d" % (partition, number))], base_offset=number)
                for number in numbers
            ]
            write_segment(path, base, *ones)
    return tmp_path / "in"


def seen(path: Path) -> dict[int, list[bytes]]:
    return {
        partition: [entry.value for entry in records(path / f"orders-{partition}")]
        for partition in (0, 1)
    }


def test_a_stream_into_the_sink_is_whole(spark: SparkSession, tmp_path: Path) -> None:
    source, count = source_of(tmp_path, 700), 700
    for _ in range(2):
        query = (
            spark.readStream.format("kseg").option("maxOffsetsPerTrigger", "500").load(str(source))
            .writeStream.format("kseg").option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination(120)
        expected = {p: [b"%d/%d" % (p, n) for n in range(count)] for p in (0, 1)}
        assert seen(tmp_path / "out") == expected
        for partition in (0, 1):
            path = source / f"orders-{partition}"
            write_segment(path, count, batch([record(b"%d/%d" % (partition, count))],
                                             base_offset=count))  # fmt: skip
        count += 1
    assert verify(tmp_path / "out", deep=True).ok


# ---- a stream that dies --------------------------------------------------------------------------

#: Records of each partition that a stream has left to do when it starts, lest it end too early.
AHEAD = 1_200
#: What lies beside the data while rows are staged, while they are adopted, and when they are.
STAGED, COMMITTING, COMMITTED = "jobs/*/*", "commits/*.intent.json", "commits/*[0-9].json"


@dataclass(slots=True)
class Stream:
    """A stream as a program of its own, and what its deaths have interrupted."""

    root: Path
    written: int = 0
    starts: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    before: frozenset[Path] = frozenset()

    @property
    def target(self) -> Path:
        return self.root / "out"

    def grow(self) -> None:
        """Put as much into the source as a start needs."""
        done = min(map(len, seen(self.target).values())) if self.target.exists() else 0
        if done + AHEAD > self.written:
            source_of(self.root, done + AHEAD, start=self.written)
            self.written = done + AHEAD

    def start(self) -> subprocess.Popen[bytes]:
        words = ["-m", "tests.spark.streaming", self.root / "in", self.target, self.root / "state"]
        run = subprocess.Popen(
            [sys.executable, *map(str, words)], stdout=subprocess.PIPE, start_new_session=True
        )
        assert run.stdout is not None
        assert run.stdout.readline() == b"started\n"
        self.starts += 1
        return run

    def look(self) -> None:
        """Take note of what lies beside the data."""
        self.before = frozenset()
        self.before = frozenset().union(*map(self.beside, (STAGED, COMMITTING, COMMITTED)))

    def beside(self, pattern: str) -> frozenset[Path]:
        """What has come beside the data since."""
        return frozenset((self.root / "out.kseg-sink").glob(pattern)) - self.before

    def batches(self, which: str) -> int:
        """How many micro-batches have begun (`offsets`), or are done (`commits`)."""
        return sum(path.name.isdecimal() for path in (self.root / "state" / which).glob("*"))

    def wait(self, run: subprocess.Popen[bytes], sign: Callable[[], object]) -> None:
        end = time.monotonic() + 200
        while not sign():
            assert run.poll() is None, "it ended by itself"
            assert time.monotonic() < end, "it makes no progress"
            time.sleep(0.002)

    def kill(self, run: subprocess.Popen[bytes], *, workers: bool) -> None:
        """The program and its JVM; with their workers, or these see by themselves that it ends."""
        doomed = descendants(run.pid) if workers else set()
        assert run.poll() is None, "it ended by itself"
        os.killpg(run.pid, signal.SIGKILL)
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.communicate()
        self.deaths["batch"] += self.batches("offsets") > self.batches("commits")
        self.deaths["staged"] += bool(self.beside(STAGED))
        self.deaths["commit"] += bool(self.beside(COMMITTING) or self.beside(COMMITTED))


@pytest.mark.cluster
@pytest.mark.timeout(2400)
def test_a_stream_that_is_killed_again_and_again_delivers_each_record_once(tmp_path: Path) -> None:
    """Twenty kills with KSEG_KILLS=20, others with another KSEG_SEED."""
    kills, seed = int(os.environ.get("KSEG_KILLS", "3")), int(os.environ.get("KSEG_SEED", "7"))
    chance = random.Random(seed)
    stream = Stream(tmp_path)
    for kill in range(kills):
        stream.grow()
        run, begun = stream.start(), stream.batches("offsets") + chance.randrange(4)
        stream.wait(run, lambda begun=begun: stream.batches("offsets") >= begun)
        # At any time, or while files are being written, or moved, or when Spark is yet to hear that
        # they are; so the first one, as that batch will be repeated.
        stream.look()
        sign = chance.choice(["", STAGED, COMMITTING, COMMITTED]) if kill else COMMITTED
        if sign:
            stream.wait(run, lambda sign=sign: stream.beside(sign))
        else:
            time.sleep(chance.uniform(0, 0.8))
        stream.kill(run, workers=chance.random() < 0.5)
    stream.grow()
    said, _ = stream.start().communicate()
    assert said == b"done\n"
    expected = {p: [b"%d/%d" % (p, n) for n in range(stream.written)] for p in (0, 1)}
    assert seen(stream.target) == expected
    assert verify(stream.target, deep=True).ok
    assert stream.deaths["batch"] or kills == 1  # a single kill may come when the batch has ended
    print(
        f"seed {seed}: {stream.starts} starts, {kills} of them killed: {stream.deaths['batch']} in "
        f"a micro-batch, {stream.deaths['staged']} with rows staged, {stream.deaths['commit']} in "
        f"a commit; {2 * stream.written} records in {stream.batches('commits')} micro-batches, "
        "each once"
    )
