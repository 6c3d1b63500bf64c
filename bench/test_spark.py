"""Records through Spark, beside a source that yields the same Arrow batches ready made.

The dummy's cost is Spark's own: moving rows into the JVM. What kseg may add is its decoding, which
is measured alone too. Both run in one warm session, in turns, on one core; the clock is the CPU
time of Spark and all its workers. KSEG_BENCH_MIB makes the log smaller. The figures are in
`extra_info`.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from bench import datagen, pairs
from kseg.spark.listing import list_logs
from kseg.spark.options import parse_options
from kseg.spark.plan import make_plan
from kseg.spark.reading import read_task
from kseg.spark.schema import project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pytest_benchmark.fixture import BenchmarkFixture

pytestmark = pytest.mark.spark

CORPUS = "v2-plain-100-16k"
COLUMNS = {
    "all columns": "key,value,topic,partition,offset,timestamp,timestampType,headers",
    "offset, timestamp, partition": "offset,timestamp,partition",
}
#: What kseg may add to the dummy's cost besides its own decoding.
OVERHEAD_MAX = 0.15


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from kseg.spark.demo import quiet_spark

    with quiet_spark(1) as session:
        session.dataSource.register(dummy_source())
        yield session


def dummy_source() -> type:
    """A source of the record batches in an Arrow file; a local class, so Spark carries it along."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class ReadyReader(DataSourceReader):
        def __init__(self, path: str) -> None:
            self.path = path

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(self.path)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            import pyarrow

            with pyarrow.memory_map(partition.value) as source:
                reader = pyarrow.ipc.open_file(source)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)

    class ReadySource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self) -> str:
            return str(self.options["ddl"])

        def reader(self, schema: Any) -> DataSourceReader:
            return ReadyReader(self.options["path"])

    return ReadySource


def decode(frame: DataFrame, corpus: datagen.Corpus, columns: str) -> Iterator[pa.RecordBatch]:
    """What kseg's tasks yield for a frame, here in this process."""
    options = parse_options({"path": corpus.directory, "columns": columns})
    projection = project(frame.schema)
    for task in make_plan(list_logs(options), options).tasks:
        yield from read_task(task, projection, options)


@pytest.mark.parametrize("name", COLUMNS)
def test_records_cost_what_spark_itself_costs_and_decoding(
    spark: SparkSession, benchmark: BenchmarkFixture, tmp_path: Path, name: str
) -> None:
    corpus, columns = datagen.corpus(CORPUS), COLUMNS[name]
    ours = spark.read.format("kseg").option("columns", columns).load(corpus.directory)
    ready = tmp_path / "ready.arrow"
    batches = list(decode(ours, corpus, columns))
    with pa.OSFile(str(ready), "wb") as sink, pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert sum(batch.num_rows for batch in batches) == corpus.records
    del batches
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in ours.schema)
    theirs = spark.read.format("ready").option("ddl", ddl).load(str(ready))

    jvm = spark_process()
    rounds = []
    for number in range(pairs.ROUNDS + 1):
        turns = [(ours, "kseg"), (theirs, "dummy")]
        spent = {
            label: cpu_seconds(jvm, noop(frame)) for frame, label in turns[:: 1 - 2 * (number % 2)]
        }
        begun = time.process_time()
        assert sum(batch.num_rows for batch in decode(ours, corpus, columns)) == corpus.records
        spent["decode"] = time.process_time() - begun
        rounds.append(spent)
    rounds = rounds[1:]  # the first compiles
    ratios = [r["kseg"] / (r["dummy"] + r["decode"]) for r in rounds]
    medians = {label: statistics.median(r[label] for r in rounds) for label in rounds[0]}
    benchmark.extra_info |= {
        "records": corpus.records,
        "cpu seconds": medians,
        "kseg / (dummy + decode)": statistics.median(ratios),
        "quartiles": statistics.quantiles(ratios, n=4, method="inclusive"),
        "goal": f"at most {1 + OVERHEAD_MAX}",
    }
    benchmark.pedantic(noop(ours), rounds=3)


def noop(frame: DataFrame) -> Callable[[], None]:
    """Read everything and drop it."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def spark_process() -> int:
    """The JVM: this process's child that is called java."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    (jvm,) = [pid for pid in children if "java" in Path(f"/proc/{pid}/comm").read_text()]
    return int(jvm)


def cpu_seconds(process: int, job: Callable[[], None]) -> float:
    """The CPU time of a process and everything below it that a job takes."""
    before = tree_seconds(process)
    job()
    return tree_seconds(process) - before


def tree_seconds(process: int) -> float:
    """CPU time so far, of ended children too."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except FileNotFoundError:  # it ended while we looked
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(tree_seconds, children))
