"""Every report is a table: short in a terminal, and a frame of pandas, Polars and Arrow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kseg
from kseg.frames import Table
from tests.tidy import tree

DATA = tree.ROOT / "kseg" / "demo_data"

Report = Callable[..., Table]
#: The functions, and columns that their tables have.
REPORTS: dict[str, tuple[Report, set[str]]] = {
    "info": (kseg.info, {"directory", "topic", "partition", "records", "bytes", "codecs"}),
    "stats": (kseg.stats, {"directory", "topic", "partition", "compression_ratio", "top_keys"}),
    "topics of stats": (
        lambda *paths, **how: kseg.stats(*paths, **how).topics,
        {"topic", "partitions", "records", "compression_ratio", "top_keys"},
    ),
    "verify": (kseg.verify, {"code", "severity", "path", "topic", "partition", "position"}),
    "doctor": (kseg.doctor, {"code", "severity", "path", "message", "advice"}),
    "explain": (kseg.explain, {"directory", "topic", "partition", "path", "cause", "until"}),
    "settings": (kseg.settings, {"directory", "partition", "name", "value", "source"}),
    "topics": (kseg.topics, {"topic", "partitions"}),
}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of 50 partitions, and a few findings."""
    home = tmp_path_factory.mktemp("many")
    for number in range(50):
        shutil.copytree(DATA / f"orders-{number % 2}", home / f"{'orders' * 9}{number}-0")
    return home


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_one_short_line(many: Path, name: str) -> None:
    shown = repr(REPORTS[name][0](many))
    assert len(shown) <= 2000
    assert "\n" not in shown


def test_a_comparison_is_one_short_line(many: Path, tmp_path: Path) -> None:
    shutil.copytree(many, tmp_path / "other")
    found = kseg.diff(many, tmp_path / "other")
    assert repr(found) == "Diff(50 partitions: 50 same)"
    assert found.to_arrow().num_rows == 50
    assert set(found.to_pandas()["relation"]) == {"same"}
    assert "differs_at" in found.to_polars().columns


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_a_frame(name: str) -> None:
    report, columns = REPORTS[name]
    found = report(DATA)
    rows = found.table_rows()
    assert set(found.COLUMNS.split()) <= {*columns, *(rows[0] if rows else found.COLUMNS.split())}
    for frame in (found.to_pandas(), found.to_polars()):
        assert columns <= set(frame.columns)
        assert len(frame) == len(rows)
    assert pa.RecordBatchReader.from_stream(found).read_all().equals(found.to_arrow())
    assert found._repr_html_().count("<tr>") == len(rows[:200]) + 1
    assert json.dumps(found.to_json())


def test_a_report_without_rows_has_its_columns(tmp_path: Path) -> None:
    shutil.copytree(DATA / "orders-0", tmp_path / "orders-0")
    found = kseg.verify(tmp_path / "orders-0")
    assert found.to_arrow().num_rows == len(found.findings) == 0
    assert found.to_pandas()[["code", "path", "advice"]].empty


def test_findings_name_their_partition(tmp_path: Path) -> None:
    place = tmp_path / "orders-0"
    shutil.copytree(DATA / "orders-0", place)
    log = sorted(place.glob("*.log"))[0]
    log.write_bytes(b"\xff" * 100 + log.read_bytes()[100:])
    row: Any = kseg.verify(tmp_path).table_rows()[0]
    assert (row["topic"], row["partition"], row["path"]) == ("orders", 0, str(log))


def test_the_records_that_a_node_is_formatted_with_are_not_a_topic() -> None:
    assert {row["topic"] for row in kseg.stats(DATA).table_rows()} == {
        one.topic for one in kseg.topics(DATA)
    }


def test_stats_of_topics_are_sums() -> None:
    found = kseg.stats(DATA, topics="[!_a]*")
    for one in found.topics:
        parts = [row for row in found.table_rows() if row["topic"] == one.topic]
        row = one.stats.cells(one.top_keys)
        assert one.partitions == len(parts)
        for name in ("records", "bytes", "record_bytes", "null_keys", "segments"):
            assert row[name] == sum(part[name] for part in parts)
        assert row["compression_ratio"] == row["record_bytes"] / row["bytes"]
        best: dict[bytes, int] = {}
        for key in (key for part in parts for key in part["top_keys"]):
            best[key["key"]] = best.get(key["key"], 0) + key["bytes"]
        top = row["top_keys"][0]
        assert top["bytes"] >= max(best.values())


#: Each function, and the topics and partitions of an answer.
CHOOSING: dict[str, tuple[Callable[..., Any], Callable[[Any], set[tuple[str, int]]]]] = {
    "info": (kseg.info, lambda found: {(one.topic, one.partition) for one in found}),
    "stats": (kseg.stats, lambda found: {(one.topic, one.partition) for one in found.partitions}),
    "explain": (
        kseg.explain,
        lambda found: {(one["topic"], one["partition"]) for one in found.table_rows()},
    ),
    "doctor": (
        kseg.doctor,
        lambda found: {
            (one.topic, one.partition) for each in found.directories for one in each.partitions
        },
    ),
    "settings": (
        kseg.settings,
        lambda found: {(one["topic"], one["partition"]) for one in found.table_rows()},
    ),
    "diff": (
        lambda data, **how: kseg.diff(data, data.parent / "other", **how),
        lambda found: {(one.topic, one.partition) for one in found.partitions},
    ),
}
ORDERS = {("orders", 0), ("orders", 1)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The demo data as a data directory, with a copy beside it."""
    for name in ("data", "other"):
        shutil.copytree(DATA, tmp_path / name)
    return tmp_path / "data"


@pytest.mark.parametrize("name", CHOOSING)
def test_topics_and_partitions_choose(data: Path, name: str) -> None:
    call, places = CHOOSING[name]
    assert places(call(data, topics="ord*")) == ORDERS
    assert places(call(data, topics=["orders"], partitions=1)) == {("orders", 1)}
    assert places(call(data, partitions=[0])) >= {("orders", 0), ("payments", 0)}
    with pytest.raises(ValueError, match="no topic here is order; did you mean orders"):
        call(data, topics="order")
    with pytest.raises(ValueError, match="there are 0, 1"):
        call(data, partitions=7)
    with pytest.raises(TypeError, match="partitions is a number"):
        call(data, partitions="0")


def test_what_cannot_be_read_is_skipped_among_the_chosen(data: Path) -> None:
    (data / "orders-7").symlink_to("nowhere")
    found = kseg.stats(data, topics="orders", on_error="skip")
    assert [one.partition for one in found.partitions] == [0, 1]
    assert [one.path for one in found.skipped] == [data / "orders-7"]
    infos = kseg.info(data, topics="orders", on_error="skip")
    assert [one.partition for one in infos] == [0, 1]
    assert [one.path for one in infos.skipped] == [data / "orders-7"]
    with pytest.raises(OSError, match="orders-7"):
        kseg.info(data)


def test_topics_report_their_progress(data: Path) -> None:
    seen: list[tuple[int, int]] = []
    kseg.topics(data, progress=lambda *at: seen.append(at))
    count = len(kseg.info(data))
    assert seen == [(done, count) for done in range(1, count + 1)]


@pytest.mark.parametrize("name", REPORTS)
def test_a_table_has_one_schema_with_and_without_rows(many: Path, name: str) -> None:
    report = REPORTS[name][0](many)
    schema = report.to_arrow().schema
    assert pa.null() not in schema.types
    assert REPORTS[name][0](DATA).to_arrow().schema == schema
    kinds = report.column_kinds()
    without_rows = {"column_kinds": lambda _self: kinds, "table_rows": lambda _self: []}
    empty = type("Empty", (Table,), without_rows)
    assert empty().to_arrow().schema == schema


def test_old_names_of_keywords_still_work() -> None:
    old = {"data_directories": DATA, "now_ms": 5}
    assert kseg.explain(**old) == kseg.explain(DATA, now=5)
