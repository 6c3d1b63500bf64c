"""Directories that people met and reported, rebuilt from bytes or left by a broker of Kafka 4.2.

`tests/data/public_reports.tar.xz` holds them:

    nested      magic 1, a compressed set inside a compressed set, which Kafka refuses
    times/*     three hours; a batch without its largest time in the header
    types       Avro with a union of two types, beside a topic that every engine reads
    again       the topic `orders`, 30 records, deleted and made again with 5 records
    stray       the same topic, with a copy that a broker put aside
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

import kseg as library
from kseg.analysis.stats import stats
from kseg.analysis.verify import verify
from kseg.cli.main import run
from kseg.errors import KsegError
from tests.unit.cli.conftest import Kseg, kseg  # noqa: F401

ARCHIVE = Path(__file__).parents[1] / "data" / "public_reports.tar.xz"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("reports")
    with tarfile.open(ARCHIVE) as file:
        file.extractall(target, filter="data")
    return target


def test_a_set_inside_a_set_is_refused_and_stepped_over(kseg: Kseg, reports: Path) -> None:  # noqa: F811
    log = reports / "nested" / "t-0"
    with pytest.raises(KsegError, match="a compressed message inside a compressed message"):
        list(library.scan(log))
    assert kseg("read", log).code == 1
    ran = kseg("read", "--on-corrupt", "skip", "--format", "jsonl", log)
    assert (ran.code, [row["offset"] for row in ran.rows]) == (1, [*range(10), *range(13, 16)])
    assert "offset 12, record 0: a compressed message inside a compressed message" in ran.err


def of_spark(path: Path, bounds: tuple[int, int]) -> int:
    """Counted by the plan and the reading of Spark's source, without Spark."""
    from kseg.spark.options import parse_options
    from kseg.spark.plan import list_logs, make_plan
    from kseg.spark.reading import read_split

    given = dict(zip(("startingTimestamp", "endingTimestamp"), map(str, bounds), strict=True))
    options = parse_options({"path": str(path), **given})
    splits = [split for task in make_plan(list_logs(options), options) for split in task]
    return sum(len(piece) for split in splits for piece in read_split(split, ("offset",), options))


def of_polars(path: Path, bounds: tuple[int, int]) -> int:
    column = pl.col("timestamp_ms")
    frame = library.scan(path, columns=("offset", "timestamp_ms")).lazy()
    return frame.filter(column >= bounds[0], column < bounds[1]).collect().height


def of_duckdb(path: Path, bounds: tuple[int, int]) -> int:
    records = library.scan(path, columns=("offset", "timestamp_ms")).dataset()
    query = "select count(*) from records where timestamp_ms >= ? and timestamp_ms < ?"
    ((count,),) = duckdb.connect().register("records", records).execute(query, bounds).fetchall()
    return int(count)


def of_export(path: Path, bounds: tuple[int, int]) -> int:
    out = path.parent / "out.parquet"
    assert run(["export", str(path), "--time", "{}..{}".format(*bounds), "-o", str(out)]) == 0
    count: int = pq.read_metadata(out).num_rows
    out.unlink()
    return count


TIMED: dict[str, Callable[[Path, tuple[int, int]], int]] = {
    "scan": lambda path, bounds: library.scan(path, time=bounds).count(),
    "grep": lambda path, bounds: library.grep("", path, time=bounds).count(),
    "Polars": of_polars,
    "DuckDB": of_duckdb,
    "Spark": of_spark,
    "kseg export": of_export,
}


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("topic", ["unset", "all", "small"])
@pytest.mark.parametrize("door", [*TIMED, "kseg read", "kseg dump", "kseg grep"])
def test_an_hour_is_found_whatever_the_header_says_of_it(
    kseg: Kseg,  # noqa: F811
    reports: Path,
    codec: str,
    topic: str,
    door: str,
) -> None:
    path = reports / "times" / codec / "data" / f"{topic}-0"
    times = sorted(row["timestamp"] for piece in library.scan(path) for row in piece)
    start = int(times[10].timestamp() * 1000)
    bounds = start, start + HOUR_MS
    if door in TIMED:
        assert TIMED[door](path, bounds) == 10
        return
    verb = door.removeprefix("kseg ")
    words: list[object] = ["--format", "jsonl", path, "--time", f"{bounds[0]}..{bounds[1]}"]
    assert len(kseg(verb, *([""] if verb == "grep" else []), *words).rows) == 10


def test_types_that_engines_lack_are_one_sentence(reports: Path, tmp_path: Path) -> None:
    data = reports / "types" / "data"
    engines: list[Callable[[Any], object]] = [
        lambda scan: scan.to_polars(),
        lambda scan: scan.lazy(),
        lambda scan: scan.to_pandas(),
        lambda scan: scan.dataset(),
        lambda scan: scan.to_parquet(tmp_path / "out"),
        pl.DataFrame,
        lambda scan: duckdb.sql("select * from scan").fetchall(),
    ]
    for topic, word in (("spend", "registry"), ("spend", "registry-json")):
        scan = library.scan(data, topics=topic, decode=word, schemas=library.schemas(data))
        for hand_over in engines:
            if word == "registry":
                with pytest.raises(Exception, match=r"a union of several types, .*registry-json"):
                    hand_over(scan)
            else:
                hand_over(scan)


@pytest.mark.parametrize(("name", "aside"), [("again", "-delete"), ("stray/d1", "-stray")])
def test_a_directory_that_a_broker_set_aside_counts_nowhere(
    kseg: Kseg,  # noqa: F811
    reports: Path,
    name: str,
    aside: str,
) -> None:
    data = reports / name
    (left_out,) = data.glob(f"*{aside}")
    wanted = library.scan(data / "orders-0").count()
    assert library.scan(data, topics="orders").count() == wanted
    counted = stats(data, topics="orders").partitions
    assert sum(one.stats.summary.records or 0 for one in counted) == wanted
    (orders,) = [one for one in library.topics(data) if one.topic == "orders"]
    assert (orders.partitions, orders.offsets) == (1, wanted)
    assert verify(data).ok
    for verb in ("read", "dump"):
        ran = kseg(verb, "--format", "jsonl", "--topic", "orders", data)
        assert (len(ran.rows), ran.code) == (wanted, 0)
        assert f"{left_out}: left out: " in ran.err
    assert len(kseg("read", "--format", "jsonl", left_out).rows) > 0


def test_doctor_finds_nothing_in_a_topic_made_again(kseg: Kseg, reports: Path) -> None:  # noqa: F811
    ran = kseg("doctor", "--json", reports / "again")
    assert ran.code == 0
