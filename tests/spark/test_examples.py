"""The examples, run as a user would, on the log that comes with kseg."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import kseg
from kseg.records.scan import scan
from tests.tidy.test_docs_examples import blocks

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = Path(kseg.__file__).parent / "demo_data"
DAY = "2025-10-09"


@pytest.fixture(scope="module")
def lake(spark: SparkSession) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("example_lake", EXAMPLES / "lake.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def committed(data: Path, fields: tuple[str, ...] = ("offset", "value")) -> dict[str, list[object]]:
    """By topic, what a reader of committed records sees in this process."""
    found: dict[str, list[object]] = {}
    for log in sorted(path for path in data.iterdir() if path.is_dir()):
        topic, _, number = log.name.rpartition("-")
        for columns in scan(log, columns=fields, isolation="read_committed"):
            rows = zip(*(columns[field] for field in fields), strict=True)
            found.setdefault(topic, []).extend((int(number), int(o), v) for o, v in rows)
    return {topic: sorted(rows) for topic, rows in found.items()}


@pytest.mark.filterwarnings("ignore:.*read_committed ends at offset")
def test_the_lake_holds_each_committed_record_and_the_report_agrees(
    spark: SparkSession, lake: ModuleType, tmp_path: Path
) -> None:
    target, data = tmp_path / "lake", tmp_path / "data"
    shutil.copytree(DEMO, data, ignore=shutil.ignore_patterns("_*"))  # these are of another day
    expected = committed(data)
    run = CliRunner().invoke(lake.main, [str(data), "--lake", str(target)])
    assert run.exit_code == 0, run.output
    rows = spark.read.parquet(str(target)).select("topic", "partition", "offset", "value", "day")
    found: dict[str, list[object]] = {}
    for row in rows.collect():
        found.setdefault(row.topic, []).append((row.partition, row.offset, row.value))
        assert str(row.day) == DAY
    assert {topic: sorted(part) for topic, part in found.items()} == expected
    report = json.loads((target / "_reports" / f"{DAY}.json").read_text())
    counts = {topic["topic"]: topic["records"] for topic in report["topics"]}
    assert counts == {topic: len(part) for topic, part in expected.items()}
    assert report["records"] == sum(counts.values())
    assert report["left_out"] == 0


def test_a_day_can_be_written_again_from_damaged_logs_if_that_is_wanted(
    spark: SparkSession, lake: ModuleType, tmp_path: Path
) -> None:
    data, target = tmp_path / "data", tmp_path / "lake"
    shutil.copytree(DEMO, data)
    words = [str(data), "--lake", str(target), "--day", DAY, "--topics", "orders"]
    assert CliRunner().invoke(lake.main, words).exit_code == 0
    whole = spark.read.parquet(str(target)).count()
    log = sorted((data / "orders-1").glob("*.log"))[0]
    unclean = bytearray(log.read_bytes())
    unclean[-1] ^= 1
    log.write_bytes(unclean)

    refused = CliRunner().invoke(lake.main, words)
    assert refused.exit_code == 1
    assert "damaged logs; --skip-damage takes the rest" in refused.output
    assert spark.read.parquet(str(target)).count() == whole

    taken = CliRunner().invoke(lake.main, [*words, "--skip-damage"])
    assert taken.exit_code == 0, taken.output
    report = json.loads((target / "_reports" / f"{DAY}.json").read_text())
    assert 0 < report["records"] < whole
    assert report["left_out"] == 1
    assert [topic["topic"] for topic in report["topics"]] == ["orders"]


def test_a_path_that_holds_no_logs_is_one_line(
    spark: SparkSession, lake: ModuleType, tmp_path: Path
) -> None:
    run = CliRunner().invoke(lake.main, [str(tmp_path), "--lake", str(tmp_path / "lake")])
    assert run.exit_code == 1
    assert run.output.splitlines() == [run.output.strip()]
    assert str(tmp_path) in run.output


ROOT = EXAMPLES.parent
#: What the pages call a place, and where it is here.
PLACES = {"/var/kafka/data": "logs", "/srv/kafka/data": "srv", "/data/": "", "/shared/": "shared/"}


def pages() -> list[str]:
    """Every block of Python that the pages show for Spark."""
    texts = (path.read_text("utf-8") for path in (ROOT / "README.md", ROOT / "docs" / "spark.md"))
    return [block for text in texts for block in re.findall(r"```py\n(.*?)```", text, re.DOTALL)]


@pytest.mark.parametrize("number", range(len(pages())))
def test_what_the_pages_show_of_spark_runs(
    number: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("logs", "a", "b"):
        shutil.copytree(DEMO, tmp_path / name)
    (tmp_path / "shared").mkdir()
    (tmp_path / "srv").mkdir()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    block = pages()[number]
    for shown, place in PLACES.items():
        block = block.replace(shown, f"{tmp_path}/{place}")
    rows = spark.range(3).selectExpr("id", "'t' AS topic", "0 AS partition", "id AS offset")
    names = {"spark": spark, "frame": rows, "os": os, "sys": sys}
    exec(compile(block, "a page", "exec"), names)


@pytest.mark.parametrize(("page", "block"), list(blocks("python", in_spark=True)))
def test_the_recipes_with_spark_run(
    page: str, block: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory with `data`; paths are absolute here, since Spark has its own directory."""
    shutil.copytree(DEMO, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    block = re.sub(r'(load\(|"checkpointLocation", |"path", )"', rf'\1"{tmp_path}/', block)
    exec(compile(block, page, "exec"), {"kseg": kseg, "spark": spark})
    written = spark.read.parquet(str(tmp_path / "orders"))
    assert written.count() == scan(tmp_path / "data", topics="orders").count()
