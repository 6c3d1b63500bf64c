"""Through a real Spark: what it makes of the source. All else is tested without it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import kseg
import kseg.spark
from kseg.arrow import to_record_batch
from kseg.records.scan import scan
from tests.builders import batch, record, write_segment
from tests.spark.conftest import PUSHDOWN

pytestmark = pytest.mark.spark

FIELDS = (
    "position", "base_offset", "offset", "timestamp_ms", "key", "value", "headers", "magic",
    "producer_id", "producer_epoch", "sequence", "leader_epoch", "transactional",
    "delete_horizon_ms",
)  # fmt: skip
COLUMNS = (
    "position", "baseOffset", "offset", "timestampMs", "key", "value", "headers", "magic",
    "producerId", "producerEpoch", "sequence", "leaderEpoch", "transactional",
    "deleteHorizonMs",
)  # fmt: skip


def load(spark: SparkSession, path: object, **options: str) -> DataFrame:
    return spark.read.format("kseg").options(**options).load(path)  # type: ignore[arg-type]


def assert_brief(error: Exception, *words: str) -> None:
    """The last line says it; the traceback has one frame of kseg at most."""
    lines = [line for line in str(error).splitlines() if "SQLSTATE" not in line]
    assert all(word in lines[-1] for word in words), lines
    assert sum("/kseg/" in line for line in lines[:-1]) <= 1, lines


def is_log(path: Path) -> bool:
    return (path.is_dir() and any(path.glob("*.log"))) or any(path.glob("*.kafka"))


def expected_rows(log: Path) -> list[dict[str, object]]:
    """What this process reads from a log, under the names and nulls of Spark's columns."""
    rows = []
    for columns in scan(log, columns=FIELDS, on_corrupt="skip"):
        shown = to_record_batch(columns, fields=FIELDS).rename_columns(list(COLUMNS)).to_pylist()
        for row in shown:
            row["path"] = str(columns.source)
            row["headers"] = row["headers"] or None
        rows += shown
    return rows


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (row["path"], row["position"], row["offset"]))


def test_every_fixture_gives_the_rows_of_a_scan(
    spark: SparkSession, fixture_cases: list[Path]
) -> None:
    logs = [path for case in fixture_cases for path in sorted(case.iterdir()) if is_log(path)]
    expected = {str(log): in_order(expected_rows(log)) for log in logs}
    columns = ",".join((*COLUMNS, "path"))
    given = load(spark, [str(log) for log in logs], columns=columns, onCorrupt="skip")
    found: dict[str, list[dict[str, object]]] = {str(log): [] for log in logs}
    for row in given.toArrow().to_pylist():
        found[str(Path(row["path"]).parent)].append(row)
    assert sum(map(len, found.values())) > 5000
    for log in found:
        assert in_order(found[log]) == expected[log], log


def test_a_table_of_the_catalog_is_read_counted_filtered_and_dropped(
    spark: SparkSession, tmp_path: Path, pushdown: str
) -> None:
    data = tmp_path / "it's 100% data"
    shutil.copytree(Path(kseg.__file__).parent / "demo_data", data)
    spark.sql(f"CREATE TABLE every USING kseg LOCATION \"{data}\" TBLPROPERTIES ('a' = 'b')")
    spark.sql(f"CREATE TABLE orders USING kseg OPTIONS (path \"{data}\", topic 'orders')")
    spark.catalog.createTable("clicks", source="kseg", path=str(data), topic="clicks")
    other = spark.newSession()
    other.conf.set(PUSHDOWN, pushdown)
    for session in (spark, other):
        for name in ("orders", "clicks"):
            wanted = scan(data, topics=name)
            table = session.table(name)
            assert {row.topic for row in table.select("topic").collect()} == {name}
            assert session.sql(f"SELECT * FROM {name}").count() == wanted.count()
            late = [n for n in wanted.to_arrow()["offset"].to_pylist() if n > 20]
            assert table.where("offset > 20").count() == len(late)
        assert session.table("every").count() == scan(data).count()
    for name in ("every", "orders", "clicks"):
        spark.sql(f"DROP TABLE {name}")
    assert scan(data).count() > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "OPTIONS (path '{}', topik 'a')",
            "kseg: unknown option 'topik'; did you mean",
        ),
        ("LOCATION '{}/none'", "FileNotFoundError: kseg: file:{}/none: no such file"),
    ],
)
def test_a_mistake_in_a_table_is_named_when_it_is_made(
    spark: SparkSession, tmp_path: Path, words: str, message: str
) -> None:
    with pytest.raises(AnalysisException, match=re.escape(message.format(tmp_path))):
        spark.sql(f"CREATE TABLE wrong USING kseg {words.format(tmp_path)}")


def test_a_table_with_columns_of_its_own_has_lost_its_path(
    spark: SparkSession, plain_log: Path
) -> None:
    spark.sql(f"CREATE TABLE own (value BINARY) USING kseg LOCATION '{plain_log}'")
    with pytest.raises(AnalysisException, match="without columns, which keep the path"):
        spark.table("own").collect()
    assert spark.sql(f"SELECT * FROM own WITH (path = '{plain_log}')").count() > 0
    spark.sql("DROP TABLE own")


def test_a_plan_says_in_one_line_how_many_segments_it_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    for base in range(0, 40, 10):
        for topic in ("orders-0", "clicks-0"):
            write_segment(tmp_path / topic, base, batch([record()], base_offset=base))
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    assert load(spark, str(tmp_path), topic="orders", startingOffsets="16").count() == 2
    assert load(spark, str(tmp_path)).count() == 8
    said = [row.msg for row in spark.tvf.python_worker_logs().collect()]
    spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    told = [line for line in said if line.endswith(" segments")]
    assert sorted(told) == ["kseg: 3 of 4 segments", "kseg: 8 of 8 segments"]


CONDITIONS: dict[str, Callable[[dict[str, object]], bool]] = {
    "offset >= 40 AND offset < 90": lambda row: 40 <= row["offset"] < 90,
    "offset IN (3, 50, 77)": lambda row: row["offset"] in (3, 50, 77),
    "offset = 41 OR offset = 60": lambda row: row["offset"] in (41, 60),
    "offset > 5.5 AND partition = 0": lambda row: row["offset"] > 5,
    "partition = 1": lambda row: False,
    "partition >= 0 AND topic = 'plain-ts-shuffled'": lambda row: True,
    "topic IN ('other')": lambda row: False,
    "topic LIKE 'plain%' AND NOT offset = 7": lambda row: row["offset"] != 7,
    "timestamp >= TIMESTAMP_MILLIS(1760000005000)": lambda row: row["ms"] >= 1760000005000,
    "timestamp < TIMESTAMP_MILLIS(1760000005000)": lambda row: row["ms"] < 1760000005000,
    "timestamp = TIMESTAMP_MILLIS(1760000000152)": lambda row: row["ms"] == 1760000000152,
    "timestamp IS NULL": lambda row: False,
    "value IS NOT NULL AND offset <= 3": lambda row: row["value"] is not None and row["offset"] < 4,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_gives_the_same_rows_with_and_without_pushdown(
    spark: SparkSession, plain_log: Path, pushdown: str, condition: str
) -> None:
    rows = [
        {"offset": row["offset"], "ms": row["timestamp_ms"], "value": row["value"]}
        for row in scan(plain_log, columns=("offset", "timestamp_ms", "value"))
        .to_arrow()
        .to_pylist()
    ]
    expected = sorted(row["offset"] for row in rows if CONDITIONS[condition](row))
    frame = load(spark, str(plain_log)).where(condition).select("offset")
    assert sorted(row.offset for row in frame.collect()) == expected


def test_queries_of_one_frame_do_not_filter_each_other(
    spark: SparkSession, tmp_path: Path, pushdown: str
) -> None:
    for topic in ("orders-0", "clicks-0"):
        write_segment(tmp_path / topic, 0, batch([record()] * (2 if "orders" in topic else 3)))
    frame = load(spark, str(tmp_path))
    orders, clicks = (frame.where(f"topic = '{name}'") for name in ("orders", "clicks"))
    assert [one.count() for one in (orders, frame, clicks, frame)] == [2, 5, 3, 5]
    assert orders.union(clicks).union(frame).count() == 10


def test_damage_fails_the_job_with_file_position_and_code(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = batch([record()] * 5)
    path = write_segment(tmp_path / "orders-0", 0, good, batch([record()], base_offset=5, crc=5))
    with pytest.raises(PySparkException) as caught:
        load(spark, str(path)).collect()
    assert_brief(caught.value, f"{path} @ {len(good)}, offset 5", "[batch-crc]")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "offsets"}, "unknown column 'offsets'; did you mean offset"),
        ({"topic": "other"}, "not of topic='other'"),
        ({"pushdown": "on"}, "later queries of the DataFrame would lack rows"),
        ({"partitions": "5"}, "NotALogError"),
    ],
)
def test_a_mistake_in_the_options_is_named(
    spark: SparkSession, plain_log: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        load(spark, str(plain_log), **options).collect()
    assert_brief(caught.value, message)


@pytest.mark.filterwarnings("ignore:.*read_committed ends at offset")
def test_workers_leave_out_what_the_driver_found_aborted(
    spark: SparkSession, fixtures_dir: Path
) -> None:
    log = fixtures_dir / "new" / "4.2.0-txn" / "txn-0"
    committed = scan(log, columns=("offset",), isolation="read_committed").to_arrow()
    every = scan(log, columns=("offset",)).to_arrow()
    frame = load(
        spark, str(log), isolation="read_committed", columns="offset", targetPartitionBytes="2000"
    )
    found = sorted(row.offset for row in frame.collect())
    assert found == committed["offset"].to_pylist()
    assert len(found) < every.num_rows


def test_modes_and_damage_arrive_as_rows(
    spark: SparkSession, tmp_path: Path, pushdown: str
) -> None:
    log = tmp_path / "orders-3"
    good = [batch([record(b"v")], base_offset=base) for base in (0, 2)]
    write_segment(log, 0, good[0], batch([record()], base_offset=1, crc=5), good[1])
    batches = load(spark, str(tmp_path), mode="batches", subscribePattern="ord.*")
    shown = batches.select("baseOffset", "crcOk").where("baseOffset >= 1").toArrow().to_pylist()
    assert shown == [{"baseOffset": 1, "crcOk": False}, {"baseOffset": 2, "crcOk": True}]
    (segment,) = load(spark, str(log), mode="segments").toArrow().to_pylist()
    assert (segment["batches"], segment["codecs"], segment["stop"]) == (3, ["none"], "END")
    rows = load(spark, str(log), onCorrupt="permissive", assign='{"orders": [3]}')
    assert rows.where("corrupt LIKE 'batch-crc: %'").count() == 1
    assert rows.where("offset >= 1 AND corrupt IS NULL").count() == 1


def test_values_decoded_as_json_are_what_spark_parses(spark: SparkSession, tmp_path: Path) -> None:
    values = [b'{"n": 1, "ok": true}', b"{", b'{"n": 2}']
    with kseg.Log.open(tmp_path / "typed-0", mode="append", create=True) as log:
        log.append({"value": values, "key": [b"a", None, b"\xff"]})
    frame = load(spark, str(tmp_path / "typed-0"), decodeValue="json", decodeKey="text")
    (total,) = frame.selectExpr("sum(from_json(value, 'n INT').n) AS n").collect()
    assert total["n"] == 3
    rows = frame.sort("offset").select("key", "keyError", "valueError").collect()
    assert [row["key"] for row in rows] == ["a", None, None]
    assert [row["keyError"] for row in rows] == [None, None, "not UTF-8 at byte 0"]
    assert [row["valueError"] is None for row in rows] == [True, False, True]
