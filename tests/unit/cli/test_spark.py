"""`kseg spark`: the answers of the verbs that are shared out, their exit codes, their mistakes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kseg as package
from kseg.cli.verbs.spark import parse_master
from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEMO = Path(package.__file__).parent / "demo_data"


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    from kseg.cli.demo import quiet_spark

    with quiet_spark(2, java_options="-XX:TieredStopAtLevel=1") as spark:
        yield spark


@pytest.fixture
def started(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every `kseg spark` gets the one Spark; answers with how many cores it was asked for."""
    asked: list[int] = []

    @contextmanager
    def quiet_spark(cores: int, **_how: Any) -> Iterator[SparkSession]:
        asked.append(cores)
        yield session

    monkeypatch.setattr("kseg.cli.spark.quiet_spark", quiet_spark)
    return asked


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The demo log, one batch of it damaged and one index lost."""
    shutil.copytree(DEMO, tmp_path / "data")
    log = next((tmp_path / "data" / "clicks-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    next((tmp_path / "data" / "orders-1").glob("*.index")).unlink()
    return tmp_path / "data"


# ---- the same answers ----------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["verify", "--json"],
        ["verify", "--json", "--deep", "--topic", "clicks"],
        ["stats"],
        ["stats", "--json", "--top", "2", "--bytes", "hex"],
        ["stats", "--json", "--headers", "--partition", "0"],
        ["reindex"],
        ["reindex", "--json", "--only", "index", "--exact"],
        ["reindex", "--json", "--config", "orders:index.interval.bytes=100"],
        ["doctor"],
        ["doctor", "--json", "--for", "3.9"],
        ["explain", "--segments", "--what-if", "retention.ms=1"],
        ["explain", "--json", "--now", "2025-10-09", "--config", "retention.ms=5"],
    ],
)
def test_the_answer_is_that_of_the_verb(
    kseg: Kseg, started: list[int], data: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other processes change what these say from one call to the next.
    monkeypatch.setattr("kseg.analysis.explain.answer.open_deleted", lambda _homes: ([], []))
    here = kseg(*words, data)
    there = kseg("spark", *words, "--master", "local[3]", data)
    assert (there.code, there.out) == (here.code, here.out)
    is_fine = {"--headers", "explain"} & set(words) or words == ["doctor"]
    assert here.code == (0 if is_fine else 1)
    assert started == [3]


@pytest.mark.spark
@pytest.mark.parametrize("words", [[], ["--json"], ["--json", "--all", "--force"]])
def test_compact_plans_as_the_verb_does_and_does_it(
    kseg: Kseg, started: list[int], tmp_path: Path, words: list[str]
) -> None:
    for partition in (0, 1):
        for base in (0, 2, 4):
            given = [record(b"v%d" % base, key=b"%d" % n) for n in range(2)]
            segment = batch(given, base_offset=base)
            write_segment(tmp_path / "data" / f"users-{partition}", base, segment)
    words = ["--config", "users:cleanup.policy=compact", "--now", "2025-10-09T08:53:20Z", *words]
    here = kseg("compact", *words, tmp_path / "data")
    there = kseg("spark", "compact", *words, tmp_path / "data")
    assert (there.code, there.out) == (here.code, here.out) == (1, here.out)
    recovered = kseg("recover", "--apply", tmp_path / "data")
    assert recovered.code == 0
    kept = tmp_path / "kept"
    ran = kseg("spark", "compact", *words, "--apply", "--backup-dir", kept, tmp_path / "data")
    assert ran.code == 0
    assert len(list(kept.rglob("*.log"))) == 4
    again = kseg("spark", "compact", "--json", tmp_path / "data")
    assert again.document["actions"] == []
    assert kseg("verify", tmp_path / "data").code == 0


@pytest.mark.spark
def test_a_fleet_has_an_answer_for_each_broker(
    kseg: Kseg, started: list[int], data: Path, tmp_path: Path
) -> None:
    shutil.copytree(DEMO, tmp_path / "other")
    told = (tmp_path / "other" / "meta.properties").read_text().replace("node.id=1", "node.id=2")
    (tmp_path / "other" / "meta.properties").write_text(told)
    (data / ".kafka_cleanshutdown").unlink()
    homes = (data, tmp_path / "other")
    assert "node.id is 2, and 1 elsewhere" in kseg("spark", "doctor", *homes).text
    ran = kseg("spark", "doctor", "--fleet", "--json", *homes)
    document = ran.document
    assert (ran.code, document["schema"], document["ok"]) == (1, "kseg.doctor-fleet/1", False)
    assert [one["node_id"] for one in document["brokers"]] == [1, 2]
    assert [one["path"] for one in document["brokers"]] == [[str(home)] for home in homes]
    for one, home in zip(document["brokers"], homes, strict=True):
        alone = kseg("doctor", "--json", home).document
        assert one["directories"] == alone["directories"]
    text = kseg("spark", "doctor", "--fleet", *homes).text
    assert [line for line in text.splitlines() if line.startswith("broker ")] == [
        f"broker {number} of {document['brokers'][0]['cluster_id']}:" for number in (1, 2)
    ]


@pytest.mark.spark
@pytest.mark.parametrize("verb", ["doctor", "explain", "reindex", "compact"])
def test_a_misspelt_topic_is_refused(kseg: Kseg, started: list[int], data: Path, verb: str) -> None:
    words = ["--config", "odrers:retention.ms=5", data]
    for ran in (kseg(verb, *words), kseg("spark", verb, *words)):
        assert (ran.code, ran.out) == (2, b"")
        assert "odrers:retention.ms: no topic here is odrers; " in ran.err


@pytest.mark.spark
def test_stats_is_a_table_and_a_document(kseg: Kseg, started: list[int]) -> None:
    ran = kseg("spark", "stats", "--json", "--topic", "orders", DEMO)
    assert ran.code == 0
    here = kseg("stats", "--json", "--topic", "orders", DEMO)
    assert (ran.out, ran.document["schema"]) == (here.out, "kseg.stats/1")
    table = kseg("spark", "stats", "--topic", "orders", DEMO.resolve().as_uri())
    assert table.text == kseg("stats", "--topic", "orders", DEMO).text
    twin = kseg("stats", "--spark", "--topic", "orders", DEMO)
    assert (twin.code, twin.text) == (0, kseg("stats", "--topic", "orders", DEMO).text)


@pytest.mark.spark
def test_export_writes_what_was_chosen(kseg: Kseg, started: list[int], tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    words = ["--by", "date", "--fields", "topic,offset", "--codec", "snappy", "--offset", "10..20"]
    ran = kseg("spark", "export", DEMO, "-o", tmp_path / "out", *words, "--json")
    assert ran.code == 0
    assert ran.document["records"] == sum(file["records"] for file in ran.document["files"])
    table = pq.ParquetDataset(tmp_path / "out").read()
    assert set(table["offset"].to_pylist()) == set(range(10, 20))
    assert table.schema.names == ["topic", "offset", "day"]
    again = kseg("spark", "export", DEMO, "-o", tmp_path / "out")
    assert again.code == 3
    assert again.err == f"kseg: {tmp_path}/out: exists already; overwrite replaces it\n"


@pytest.mark.spark
def test_an_earlier_run_is_gone_on_with_and_told(
    kseg: Kseg, started: list[int], tmp_path: Path
) -> None:
    words = ["spark", "verify", "--json", "--job", tmp_path / "job", DEMO]
    first, again = kseg(*words), kseg(*words)
    assert (first.err, again.out) == ("", first.out)
    assert again.err == "kseg: 36 files and directories were finished by an earlier run\n"
    other = kseg("spark", "verify", "--deep", "--job", tmp_path / "job", DEMO)
    assert other.code == 3
    assert "take another" in other.err


@pytest.mark.spark
@pytest.mark.parametrize(
    ("words", "told"),
    [(["--fields", "colour"], "no field colour"), (["--offset", "-5.."], "startingOffsets")],
)
def test_a_mistake_is_one_line_and_usage(
    kseg: Kseg, started: list[int], tmp_path: Path, words: list[str], told: str
) -> None:
    ran = kseg("spark", "export", DEMO, "-o", tmp_path / "out", *words)
    assert ran.code == 2
    assert told in ran.err
    assert ran.err.count("\n") == 1


# ---- before Spark is there -----------------------------------------------------------------------


def test_a_path_of_nothing_is_told_before_spark_starts(kseg: Kseg, tmp_path: Path) -> None:
    for verb in ("verify", "stats", "compact", "reindex"):
        assert kseg("spark", verb, tmp_path / "nowhere").code == 3
    assert kseg("spark", "verify").code == 2


def test_no_java_is_one_clear_line(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(tmp_path / "t-0", 0, batch([record()]))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ran = kseg("spark", "verify", tmp_path / "t-0")
    assert ran.code == 3
    assert ran.err.startswith("kseg: Spark needs Java 17 or newer")
    assert ran.err.count("\n") == 1


def test_a_spark_that_is_too_old_is_one_clear_line(
    kseg: Kseg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.6")
    ran = kseg("spark", "stats", DEMO)
    assert ran.code == 2
    assert ran.err == (
        "kseg: pyspark 3.5.6 is too old, kseg needs 4.1: pip install -U 'kseg[spark]'\n"
    )


@pytest.mark.parametrize(
    ("text", "cores"), [("local", 1), ("local[7]", 7), ("local[*]", len(os.sched_getaffinity(0)))]
)
def test_a_master_is_so_many_cores(text: str, cores: int) -> None:
    assert parse_master(text) == cores


@pytest.mark.parametrize("text", ["", "local[0]", "yarn", "spark://host:7077", "local[x]"])
def test_another_master_is_for_programs(kseg: Kseg, text: str) -> None:
    ran = kseg("spark", "verify", "--master", text, DEMO)
    assert ran.code == 2
    assert "call kseg.spark.jobs from your own program" in ran.err


def test_both_ways_of_keeping_contradict_each_other(kseg: Kseg, tmp_path: Path) -> None:
    ran = kseg("spark", "reindex", "--no-backup", "--backup-dir", tmp_path, DEMO)
    assert ran.code == 2
    assert "--backup-dir or --no-backup" in ran.err


@pytest.mark.spark
@pytest.mark.usefixtures("started")
def test_demo_gives_equal_results_here_and_through_spark(kseg: Kseg) -> None:
    ran = kseg("demo")
    assert ran.code == 0
    assert "Equal." in ran.text
