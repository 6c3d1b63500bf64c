"""Records as Parquet: the rows are those of a scan, and all of an export is seen or nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kseg.arrow import TYPES
from kseg.errors import CorruptRecordError
from kseg.files.whole_file import (
    HIVE_NULL,
)
from kseg.format.typed import ERRORS, SCHEMA_IDS, SCHEMA_NAMES
from kseg.records import lake
from kseg.records.lake import FileFormat
from kseg.records.scan import scan
from kseg.spark import jobs
from kseg.spark.jobs import running
from kseg.spark.jobs.export import (
    FIELDS,
    ExportedFile,
    ExportResult,
    TaskFiles,
)
from tests.builders import batch, record, write_segment

DEMO = Path(running.__file__).parents[2] / "demo_data"
DAY = 86_400_000


def expected_rows(path: Path, fields: tuple[str, ...] = FIELDS) -> list[dict[str, Any]]:
    return in_order(scan(path, columns=fields).to_arrow().to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def files_of(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*.parquet"))


def check_manifest(out: Path, written: ExportResult) -> None:
    """It is in the export, and says of each file what is in it."""
    told = json.loads((out / "_manifest.json").read_bytes())
    assert told == written.manifest()
    assert [file["path"] for file in told["files"]] == files_of(out)
    for file in told["files"]:
        table = pq.ParquetFile(out / file["path"]).read()
        times = table["timestamp"].cast(pa.int64()).drop_null().to_pylist()
        offsets = table["offset"].to_pylist()
        assert (file["records"], file["bytes"]) == (
            table.num_rows,
            (out / file["path"]).stat().st_size,
        )
        assert (file["first_offset"], file["last_offset"]) == (min(offsets), max(offsets))
        assert file["min_timestamp"] == min(times, default=None)
        assert file["max_timestamp"] == max(times, default=None)


# ---- through Spark -------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("by", ["partition", "date"])
def test_the_rows_are_those_of_a_scan(spark: SparkSession, tmp_path: Path, by: str) -> None:
    out = tmp_path / "out"
    written = jobs.export(spark, DEMO, out, by=by)
    assert written.records == scan(DEMO).count()
    check_manifest(out, written)
    frame = spark.read.parquet(str(out))
    rows = in_order(frame.select(*FIELDS).toArrow().to_pylist())
    assert rows == expected_rows(DEMO)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert written.frame(spark).count() == len(written.files)


@pytest.mark.spark
def test_spark_reads_every_field_that_there_is(spark: SparkSession, tmp_path: Path) -> None:
    beside = (*ERRORS.values(), *SCHEMA_IDS.values(), *SCHEMA_NAMES.values())  # of decoded columns
    fields = tuple(name for name in TYPES if name not in beside)
    jobs.export(spark, DEMO, tmp_path / "out", by="date", columns=fields)
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert in_order(frame.select(*fields).toArrow().to_pylist()) == expected_rows(DEMO, fields)


@pytest.mark.spark
def test_what_the_source_leaves_out_is_not_written(spark: SparkSession, tmp_path: Path) -> None:
    options = {"subscribe": "payments", "isolation": "read_committed", "startingOffsets": "20"}
    written = jobs.export(spark, DEMO, tmp_path / "out", columns=("offset",), options=options)
    with pytest.warns(UserWarning, match="read_committed ends at offset"):
        expected = scan(DEMO / "payments-0", offset=(20, None), isolation="read_committed",
                        columns=("offset",)).to_arrow()  # fmt: skip
    table = pq.ParquetDataset(tmp_path / "out").read()
    assert table["offset"].to_pylist() == expected["offset"].to_pylist()
    assert written.records == expected.num_rows < 173


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    for partition in (0, 1):
        write_segment(
            tmp_path / "data" / f"t-{partition}", 0, batch([record()], crc=5 if partition else None)
        )
    return tmp_path / "data"


@pytest.mark.spark
def test_damage_ends_an_export_and_nothing_is_left(spark: SparkSession, damaged: Path) -> None:
    out = damaged.parent / "out"
    with pytest.raises(CorruptRecordError, match=r"t-1/0{20}\.log @ 0.*\[batch-crc\]"):
        jobs.export(spark, damaged, out)
    assert [path.name for path in damaged.parent.iterdir()] == ["data"]


@pytest.mark.spark
def test_damage_is_passed_over_and_told(spark: SparkSession, damaged: Path) -> None:
    out = damaged.parent / "out"
    written = jobs.export(spark, damaged, out, options={"onCorrupt": "skip"})
    assert (written.records, written.fault_count) == (1, 1)
    assert "batch-crc" in written.faults[0]
    assert json.loads((out / "_manifest.json").read_bytes())["faults"] == 1


@pytest.mark.spark
def test_an_export_goes_on_where_it_ended(
    spark: SparkSession, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "TASK_BYTES_MIN", 1)
    monkeypatch.setattr(running, "TASKS_PER_CORE", 1 << 40)
    out, job = damaged.parent / "out", damaged.parent / "job"
    with pytest.raises(CorruptRecordError):
        jobs.export(spark, damaged, out, job=job)
    assert not out.exists()
    (beside,) = damaged.parent.glob("out.kseg-export-*")
    (done,) = files_of(beside)
    (beside / "topic=t" / "left.parquet").write_text("of an attempt that was killed")
    write_segment(damaged / "t-1", 0, batch([record()]))
    written = jobs.export(spark, damaged, out, job=job)
    assert (written.tasks, written.skipped) == (1, 1)
    assert done in files_of(out)
    check_manifest(out, written)
    assert sorted(path.name for path in damaged.parent.iterdir()) == ["data", "job", "out"]


@pytest.mark.spark
def test_only_an_export_is_replaced_and_only_if_asked(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError):
            jobs.export(spark, DEMO, out, overwrite=overwrite)
    (out / "mine.txt").unlink()
    jobs.export(spark, DEMO / "orders-0", out)
    with pytest.raises(FileExistsError, match="overwrite replaces it"):
        jobs.export(spark, DEMO, out)
    written = jobs.export(spark, DEMO / "clicks-0", out, overwrite=True)
    check_manifest(out, written)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"by": "hour"}, "by is one of partition, date"),
        ({"compression": "lzma"}, "compression is one of zstd"),
        ({"columns": ("offset", "colour")}, "no column colour; there are"),
        ({"columns": ("offset", "offset")}, "must differ"),
        ({"columns": ("topic",)}, "some other column"),
        ({"options": {"topik": "t"}}, "unknown option 'topik'"),
    ],
)
def test_a_mistake_is_one_clear_line(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        jobs.export(spark, DEMO, tmp_path / "out", **how)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# ---- files, without Spark ------------------------------------------------------------------------


def write(
    path: Path, out: Path, *, by: str = "partition", fields: tuple[str, ...] = ()
) -> list[ExportedFile]:
    layout = {"partition": ("topic", "partition"), "date": ("day",)}[by]
    files = TaskFiles(out, FileFormat("parquet", fields or FIELDS, by=layout), "zstd")
    columns_read = tuple(dict.fromkeys((*files.fields, "topic", "partition")))
    with files.opened() as add:
        for columns in scan(path, columns=columns_read, max_rows=70):
            add(columns)
    return files.done


def times_log(directory: Path, times: list[int]) -> Path:
    given = [record(b"%d" % n, key=b"k", timestamp=time) for n, time in enumerate(times)]
    write_segment(directory / "t-0", 0, batch(given))
    return directory


def test_times_in_no_order_are_sorted_out_into_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "OPEN_MAX", 3)
    times = [(n * 7 % 10) * DAY + n for n in range(500)]
    log = times_log(tmp_path / "data", times)
    written = write(log, tmp_path / "out", by="date")
    assert len(written) > 10
    seen = []
    for file in written:
        table = pq.ParquetFile(tmp_path / "out" / file.path).read()
        dates = {f"{datetime.fromtimestamp(times[n] / 1000, UTC):%Y-%m-%d}"
                 for n in table["offset"].to_pylist()}  # fmt: skip
        assert dates == {file.date} == {file.path.split("/")[0].removeprefix("day=")}
        seen += table["offset"].to_pylist()
    assert sorted(seen) == list(range(500))


@pytest.mark.parametrize(
    ("time", "date"),
    [
        (0, "1970-01-01"),
        (-2, "1969-12-31"),
        (DAY - 1, "1970-01-01"),
        (DAY, "1970-01-02"),
        (253_402_300_799_999, "9999-12-31"),
        (253_402_300_800_000, None),
        (-62_135_596_800_000, "0001-01-01"),
        (-62_135_596_800_001, None),
        (-1, None),
        (2**63 - 1, None),
    ],
)
def test_a_time_has_its_date_in_utc_or_none(tmp_path: Path, time: int, date: str | None) -> None:
    log = times_log(tmp_path / "data", [time])
    (written,) = write(log, tmp_path / "out", by="date")
    assert written.date == date
    assert written.path.startswith(f"day={date or HIVE_NULL}/")


def test_numbers_are_stored_as_differences_however_far_apart(tmp_path: Path) -> None:
    times = [2**63 - 1, -(2**63), 0, -1, 2**63 - 1, 5]
    log = times_log(tmp_path / "data", times)
    (written,) = write(log, tmp_path / "out", fields=("offset", "timestamp_ms"))
    file = pq.ParquetFile(tmp_path / "out" / written.path)
    group = file.metadata.row_group(0)
    for number in range(group.num_columns):
        assert "DELTA_BINARY_PACKED" in group.column(number).encodings
    table = file.read()
    assert table["offset"].to_pylist() == list(range(6))
    assert table["timestamp_ms"].to_pylist() == times


def test_after_an_error_no_file_of_the_task_is_left_open(tmp_path: Path) -> None:
    look = FileFormat("parquet", FIELDS, by=("topic", "partition"))

    def attempt() -> None:
        files = TaskFiles(tmp_path, look, "zstd")
        with files.opened() as add:
            for columns in scan(DEMO / "orders-0", columns=(*files.fields, "topic", "partition")):
                add(columns)
                assert len(files_of(tmp_path)) == 1
                raise KeyError

    with pytest.raises(KeyError):
        attempt()
    assert files_of(tmp_path) == []
