"""kseg in Spark beside what Spark itself costs: `pytest bench/test_spark.py` prints the ratios.

    planning        of ten thousand segments, and of a tebibyte: seconds, and of twice as many
    records         beside a source that yields the same Arrow batches ready made: what kseg may add
                    is its own decoding, measured alone too, and a little
    queries         an empty plan, a count, three columns and all of 300 MB, beside Parquet
    verify          the job's rate on one core beside one process's, its fixed cost left out
    export          Parquet from the workers beside Spark's own writer behind the same source
    small segments  a thousand of 1 MiB beside one of the same bytes
    two cores       beside one, on work that takes a while

All run in one warm session, in turns; see `bench.spark_pairs` for the clock and the settings. On a
machine with other work to do, only the ratios of CPU time mean something.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from bench import datagen
from bench.spark_pairs import (
    cpu_seconds,
    cut,
    dummy_source,
    fleet,
    fleet_of,
    many,
    noop,
    own_seconds,
    rounds_of,
    setting,
    spread_over,
    summary,
    wall_seconds,
)
from kseg.analysis.units import plan as plan_units
from kseg.analysis.verify import verify as verify_here
from kseg.catalog import Catalog
from kseg.spark import jobs
from kseg.spark.options import parse_options
from kseg.spark.plan import list_logs, make_plan
from kseg.spark.reading import read_task
from kseg.spark.schema import project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Tell = Callable[[dict[str, Any]], None]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

CORPUS = "v2-plain-100-16k"
COLUMNS = {
    "all columns": "key,value,topic,partition,offset,timestamp,timestampType,headers",
    "offset, timestamp, partition": "offset,timestamp,partition",
}
#: What kseg may add to the dummy's cost besides its own decoding.
OVERHEAD_MAX = 0.15
TASKS_MAX = 16


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from kseg.cli.demo import quiet_spark

    with quiet_spark(2) as session:
        session.dataSource.register(dummy_source())
        yield session


@pytest.fixture
def tell(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Tell:
    """Print the figures."""

    def say(figures: dict[str, Any]) -> None:
        with capsys.disabled():
            print(f"\n{request.node.name}")
            for name, value in figures.items():
                print(f"    {name:28} {value}")

    return say


def load(
    spark: SparkSession, paths: str | list[str], columns: str = COLUMNS["all columns"]
) -> DataFrame:
    return spark.read.format("kseg").option("columns", columns).load(paths)


def tasks_of(frame: DataFrame, path: str, columns: str) -> Iterator[Iterator[pa.RecordBatch]]:
    """What each of kseg's tasks yields for a frame, here in this process."""
    options = parse_options({"path": path, "columns": columns})
    projection = project(frame.schema)
    for task in make_plan(list_logs(options), options):
        yield read_task(task, projection, options)


@pytest.mark.parametrize("reader", ["source", "verify"])
def test_ten_thousand_segments_are_planned_in_a_second(tell: Tell, reader: str) -> None:
    corpus = datagen.corpus(CORPUS, mib=1)

    def planning(count: int) -> Callable[[], object]:
        data = many(corpus, count // 100, 100)
        if reader == "verify":
            return lambda: plan_units(Catalog.of(data, files="all"))
        options = parse_options({"path": data})
        return lambda: make_plan(list_logs(options), options)

    figures = summary(
        rounds_of({"10,000": planning(10_000), "20,000": planning(20_000)}, own_seconds),
        "t(2n)/t(n)",
        lambda each: each["20,000"] / each["10,000"],
        "at most 2.1, and 10,000 in less than a second",
    )
    tell(figures)


def test_a_tebibyte_is_planned_in_three_seconds(tell: Tell) -> None:
    corpus = datagen.corpus(CORPUS, mib=int(setting("SEGMENTS", 1000)))
    options = parse_options({"path": corpus.directory})
    (log,) = list_logs(options)

    def planning(size: int) -> Callable[[], object]:
        count = math.ceil(size / corpus.file_bytes)
        logs = [log] * count
        return lambda: make_plan(logs, options)

    turns = {"1 TiB": planning(1 << 40), "2 TiB": planning(2 << 40)}
    figures = summary(
        rounds_of(turns, own_seconds),
        "t(2n)/t(n)",
        lambda each: each["2 TiB"] / each["1 TiB"],
        "at most 2.1, and 1 TiB in less than three seconds",
        segments=math.ceil((1 << 40) / corpus.file_bytes),
    )
    tell(figures)


@pytest.mark.parametrize("name", COLUMNS)
def test_records_cost_what_spark_itself_costs_and_decoding(
    spark: SparkSession, tell: Tell, tmp_path: Path, name: str
) -> None:
    corpus, columns = datagen.corpus(CORPUS, mib=4 * datagen.mebibytes()), COLUMNS[name]
    ours = load(spark, corpus.directory, columns)
    records = 0
    for number, batches in enumerate(tasks_of(ours, corpus.directory, columns)):
        records += write_ready(batches, tmp_path / f"{number:04}.arrow")
    assert records == corpus.records
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in ours.schema)
    theirs = spark.read.format("ready").option("ddl", ddl).load(str(tmp_path))
    assert theirs.rdd.getNumPartitions() == ours.rdd.getNumPartitions()

    def decode_all() -> None:
        rows = 0
        for batches in tasks_of(ours, corpus.directory, columns):
            rows += sum(batch.num_rows for batch in batches)
        assert rows == corpus.records

    turns = {"kseg": noop(ours), "dummy": noop(theirs), "decode": decode_all}
    figures = summary(
        rounds_of(turns, cpu_seconds, own={"decode"}),
        "kseg / (dummy + decode)",
        lambda each: each["kseg"] / (each["dummy"] + each["decode"]),
        f"at most {1 + OVERHEAD_MAX}",
        records=corpus.records,
        tasks=ours.rdd.getNumPartitions(),
    )
    tell(figures)


def write_ready(batches: Iterator[pa.RecordBatch], path: Path) -> int:
    """Put a task's record batches into an Arrow file; answers how many rows there are."""
    first = next(batches)
    rows = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def test_queries_beside_parquet_of_the_same_records(
    spark: SparkSession, tell: Tell, tmp_path: Path
) -> None:
    corpus = datagen.corpus(CORPUS, mib=300)
    kept, some = str(tmp_path / "parquet"), COLUMNS["offset, timestamp, partition"].split(",")
    theirs = COLUMNS["all columns"].removesuffix(",headers")
    load(spark, corpus.directory, theirs).write.parquet(kept)

    def ours(**options: str) -> DataFrame:
        return spark.read.format("kseg").options(**options).load(corpus.directory)

    def parquet() -> DataFrame:
        return spark.read.parquet(kept)

    turns = {
        "empty": lambda: ours(endingOffsets="0").count(),
        "empty, Parquet": lambda: parquet().where("1 = 0").count(),
        "count": lambda: ours().count(),
        "count of one column": lambda: ours(columns="offset").count(),
        "count of headers": lambda: (
            ours(mode="batches", columns="count").agg({"count": "sum"}).collect()
        ),
        "count, Parquet": lambda: parquet().count(),
        "three columns": noop(ours(columns=",".join(some))),
        "three columns, Parquet": noop(parquet().select(*some)),
        "all": noop(ours()),
        "all, Parquet": noop(parquet()),
    }
    figures = summary(
        rounds_of(turns, cpu_seconds),
        "all / all, Parquet",
        lambda each: each["all"] / each["all, Parquet"],
        "none: Spark takes rows, not columns, from Python",
        records=corpus.records,
    )
    tell(figures)


@pytest.mark.parametrize("deep", [False, True], ids=["checksums", "deep"])
def test_a_verify_job_is_as_fast_as_one_process(
    spark: SparkSession, tell: Tell, deep: bool
) -> None:
    data = fleet_of(datagen.corpus(CORPUS), 8 if deep else 16)
    tiny = fleet(datagen.corpus(CORPUS, mib=1), 1)
    expected = verify_here(data, deep=deep)
    found = jobs.verify(spark, data, deep=deep)
    assert found.report == expected
    turns = {
        "job": lambda: jobs.verify(spark, data, deep=deep),
        "fixed": lambda: jobs.verify(spark, tiny, deep=deep),
        "process": lambda: verify_here(data, deep=deep),
    }
    figures = summary(
        rounds_of(turns, cpu_seconds, own={"process"}),
        "job's rate / process's",
        lambda each: each["process"] / max(each["job"] - each["fixed"], 1e-9),
        "at least 0.8",
        bytes=expected.bytes,
        tasks=found.tasks,
    )
    tell(figures)


def test_export_is_faster_than_sparks_own_writer(
    spark: SparkSession, tell: Tell, tmp_path: Path
) -> None:
    corpus = datagen.corpus(CORPUS)
    data, out = fleet_of(corpus, 1), tmp_path / "out"
    # Without dictionaries, which would only cost where no value comes twice, and without checksums
    # of pages, which pyarrow does not make.
    settings = {
        "compression": "snappy",
        "parquet.enable.dictionary": "false",
        "parquet.page.write-checksum.enabled": "false",
    }
    writer = load(spark, data).write.options(**settings)
    turns = {
        "export": lambda: jobs.export(spark, data, out, compression="snappy"),
        "spark": lambda: writer.parquet(str(out)),
    }
    rounds = rounds_of(turns, cpu_seconds, before=lambda _: shutil.rmtree(out, ignore_errors=True))
    figures = summary(
        rounds,
        "export's rate / Spark's",
        lambda each: each["spark"] / each["export"],
        "at least 3",
        records=len(data) * corpus.records,
    )
    tell(figures)


def test_a_thousand_small_segments_are_a_few_tasks(
    spark: SparkSession, tell: Tell, tmp_path: Path
) -> None:
    count = int(setting("SEGMENTS", 1000))
    corpus = datagen.corpus(CORPUS, mib=count)
    small = load(spark, str(cut(corpus, count, tmp_path / "orders-0")))
    large = load(spark, corpus.directory)
    assert small.rdd.getNumPartitions() <= TASKS_MAX
    assert small.count() == large.count() == corpus.records
    figures = summary(
        rounds_of({"small": noop(small), "large": noop(large)}, wall_seconds),
        "small / large",
        lambda each: each["small"] / each["large"],
        "at most 3",
        tasks=small.rdd.getNumPartitions(),
        segments=len(list((tmp_path / "orders-0").iterdir())),
    )
    tell(figures)


@pytest.mark.parametrize("work", ["records", "deep verify"])
def test_two_cores_are_worth_more_than_one(spark: SparkSession, tell: Tell, work: str) -> None:
    corpus = datagen.corpus(CORPUS)
    cores = sorted(range(os.cpu_count() or 1))[:2]
    assert len(cores) == 2, "this machine has one core"

    def job(copies: int) -> Callable[[], object]:
        data = fleet(corpus, copies)
        if work == "records":
            return noop(load(spark, data))
        return lambda: jobs.verify(spark, data, deep=True)

    own, wanted = os.sched_getaffinity(0), setting("SECONDS", 10)
    copies, seconds = 4, 0.0
    wall_seconds(job(copies))
    spread_over(set(cores[:1]), os.getpid())
    while seconds < wanted / 4:
        copies *= 2
        seconds = wall_seconds(job(copies))
    copies = math.ceil(copies * wanted / seconds)
    whole = job(copies)
    try:
        rounds = rounds_of(
            {"one core": whole, "two cores": whole},
            wall_seconds,
            before=lambda label: spread_over(set(cores[: 1 + (label == "two cores")]), os.getpid()),
        )
    finally:
        spread_over(own, os.getpid())
    figures = summary(
        rounds,
        "speed of two / one",
        lambda each: each["one core"] / each["two cores"],
        "at least 1.4",
        copies=copies,
    )
    tell(figures)
