"""Lazy frames and datasets: answers equal to those of all records, and what each query reads."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import polars as pl
import polars.exceptions
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import kseg
from kseg.files import io
from kseg.lazy import Condition, Nanoseconds, arrow_conditions, polars_conditions
from tests.builders import batch, record, write_segment
from tests.shares import WHOLE

#: Whether this Polars hands filters and limits to frames; older ones hand over columns alone.
TAKES_FILTERS = tuple(map(int, pl.__version__.split(".")[:2])) >= (1, 22)
Row = dict[str, Any]
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
#: The time of offset 0; each offset is a second later.
BASE_MS = 1_700_000_000_000
SEGMENTS, BATCHES, RECORDS = 4, 5, 10
#: No time, and a time that engines do not hold.
ODD_TIMES = {17: -1, 23: 300_000_000_000_000}


def at(offset: int) -> datetime:
    return datetime.fromtimestamp(BASE_MS / 1000 + offset, UTC)


def made(
    directory: Path, segments: int = SEGMENTS, batches: int = BATCHES, padding: int = 0
) -> None:
    odd = {} if padding else ODD_TIMES
    for segment in range(segments):
        first = segment * batches * RECORDS
        write_segment(
            directory,
            first,
            *(
                batch(
                    [
                        record(
                            None if offset % 11 == 0 else b"v%d" % offset + bytes(padding),
                            key=None if offset % 7 == 0 else b"k%d" % (offset % 5),
                            timestamp=odd.get(offset, BASE_MS + 1000 * offset),
                        )
                        for offset in range(base, base + RECORDS)
                    ],
                    base_offset=base,
                )
                for base in range(first, first + batches * RECORDS, RECORDS)
            ),
        )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`a` with two partitions, `b` with one, and a file in a directory of another name."""
    for name in ("a-0", "a-1", "b-0", "loose"):
        made(tmp_path / "data" / name, segments=1 if name == "loose" else SEGMENTS)
    return tmp_path / "data"


def paths(data: Path) -> list[Path]:
    return [*(data / name for name in ("a-0", "a-1", "b-0")), *(data / "loose").glob("*.log")]


def sql(query: str, **tables: Any) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        return cast("list[tuple[Any, ...]]", connection.execute(query).fetchall())


def collected(frame: pl.LazyFrame, engine: Any) -> pl.DataFrame:
    if "engine" in inspect.signature(pl.LazyFrame.collect).parameters and TAKES_FILTERS:
        return frame.collect(engine=engine)
    collect: Any = frame.collect
    return cast("pl.DataFrame", collect(streaming=engine == "streaming"))


def known(row: Row, *names: str) -> bool:
    return all(row[name] is not None for name in names)


#: The same filter for DuckDB, for Polars, and for a row.
FILTERS: dict[str, tuple[str, pl.Expr, Callable[[Row], bool]]] = {
    "offsets": (
        '"offset" between 45 and 61',
        pl.col("offset").is_between(45, 61),
        lambda row: 45 <= row["offset"] <= 61,
    ),
    "open offsets of a partition": (
        '"offset" > 45 and "offset" < 52 and partition = 1',
        (pl.col("offset") > 45) & (pl.lit(52) > pl.col("offset")) & (pl.col("partition") == 1),
        lambda row: 45 < row["offset"] < 52 and row["partition"] == 1,
    ),
    "times": (
        f"timestamp >= '{at(60)}' and timestamp < '{at(70)}'",
        (pl.col("timestamp") >= at(60)) & (pl.col("timestamp") < at(70)),
        lambda row: known(row, "timestamp") and at(60) <= row["timestamp"] < at(70),
    ),
    "times between milliseconds": (
        f"timestamp > '{at(60)}'::timestamptz - interval 500 microsecond"
        f" and timestamp <= '{at(62)}'::timestamptz + interval 500 microsecond",
        (pl.col("timestamp") > at(60).replace(microsecond=0) - pl.duration(microseconds=500))
        & (pl.col("timestamp") <= at(62) + pl.duration(microseconds=500)),
        lambda row: known(row, "timestamp") and at(60) <= row["timestamp"] <= at(62),
    ),
    "a topic": ("topic = 'a'", pl.col("topic") == "a", lambda row: row["topic"] == "a"),
    "not a topic": (
        "topic <> 'a'",
        pl.col("topic") != "a",
        lambda row: row["topic"] is not None and row["topic"] != "a",
    ),
    "some topics and offsets": (
        "topic in ('b', 'c') and \"offset\" in (3, 180, 9000)",
        pl.col("topic").is_in(["b", "c"]) & pl.col("offset").is_in([3, 180, 9000]),
        lambda row: row["topic"] == "b" and row["offset"] in (3, 180),
    ),
    "a key": ("key = 'k3'::blob", pl.col("key") == b"k3", lambda row: row["key"] == b"k3"),
    "not a key": (
        "key <> 'k3'::blob and \"offset\" >= 190",
        (pl.col("key") != b"k3") & (pl.col("offset") >= 190),
        lambda row: row["key"] not in (None, b"k3") and row["offset"] >= 190,
    ),
    "null keys or an offset": (
        'key is null or "offset" = 9',
        pl.col("key").is_null() | (pl.col("offset") == 9),
        lambda row: row["key"] is None or row["offset"] == 9,
    ),
    "no time": (
        'timestamp is null and not ("offset" > 20 and partition = 0)',
        pl.col("timestamp").is_null() & ~((pl.col("offset") > 20) & (pl.col("partition") == 0)),
        lambda row: (
            row["timestamp"] is None
            and not (row["offset"] > 20 and row["partition"] == 0)
            and not (row["offset"] > 20 and row["partition"] is None)
        ),
    ),
    "arithmetic and a value": (
        "\"offset\" % 50 = 1 and value >= 'v1'::blob",
        (pl.col("offset") % 50 == 1) & (pl.col("value") >= b"v1"),
        lambda row: row["offset"] % 50 == 1 and row["value"] is not None and row["value"] >= b"v1",
    ),
    "nothing": (
        '"offset" > 5 and "offset" < 5',
        (pl.col("offset") > 5) & (pl.col("offset") < 5),
        lambda row: False,
    ),
    "all numbers": (
        '"offset" between -9223372036854775808 and 9223372036854775807',
        pl.col("offset").is_between(-(2**63), 2**63 - 1),
        lambda row: True,
    ),
}


@pytest.fixture
def rows(data: Path) -> list[Row]:
    found = kseg.scan(paths(data), columns=COLUMNS).to_arrow().to_pylist()
    assert len(found) == 3 * 200 + 50
    return found


def tuples(found: list[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in COLUMNS) for row in found]


@pytest.mark.parametrize("name", FILTERS)
def test_duckdb_gets_the_records_that_a_filter_takes(
    data: Path, rows: list[Row], name: str
) -> None:
    where, _expression, takes = FILTERS[name]
    records = kseg.dataset(paths(data), columns=COLUMNS)
    wanted = tuples([row for row in rows if takes(row)])
    assert Counter(sql(f"select * from r where {where}", r=records)) == Counter(wanted)
    assert sql(f"select count(*) from r where {where}", r=records) == [(len(wanted),)]


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_gets_the_records_that_a_filter_takes(
    data: Path, rows: list[Row], name: str, engine: Any
) -> None:
    _where, expression, takes = FILTERS[name]
    frame = kseg.scan(paths(data), columns=COLUMNS).lazy().filter(expression)
    wanted = tuples([row for row in rows if takes(row)])
    assert Counter(collected(frame, engine).rows()) == Counter(wanted)
    assert frame.select(pl.len()).collect().item() == len(wanted)
    places = [row[:3] for row in wanted]
    assert Counter(frame.select(COLUMNS[:3]).collect().rows()) == Counter(places)
    dataset = pl.scan_pyarrow_dataset(kseg.dataset(paths(data), columns=COLUMNS))
    assert Counter(dataset.filter(expression).collect().rows()) == Counter(wanted)


def test_a_limit_is_taken_before_a_filter(data: Path) -> None:
    first = kseg.scan(data / "a-0", limit=30)
    assert first.lazy().filter(pl.col("offset") >= 20).select(pl.len()).collect().item() == 10
    assert sql('select count(*) from r where "offset" >= 20', r=first.dataset()) == [(10,)]
    assert first.lazy().head(50).collect().height == 30
    head = kseg.scan(data / "a-0").lazy().head(30)
    assert head.filter(pl.col("offset") >= 20).collect().height == 10


@pytest.mark.parametrize("threads", [1, 3])
def test_decoded_columns_are_filtered(data: Path, threads: int) -> None:
    scan = kseg.scan(data / "b-0", decode={"key": "text", "value": "text"}, threads=threads)
    wanted = [row for row in scan.to_arrow().to_pylist() if row["key"] == "k3"]
    frame = scan.lazy().filter(pl.col("key") == "k3")
    assert frame.collect().to_dicts() == wanted
    assert scan.pushed is not None
    assert ("key=b'k3'" in repr(scan.pushed)) is TAKES_FILTERS
    assert frame.select("value_error", "offset").collect().height == len(wanted)
    assert sql("select count(*) from r where key = 'k3'", r=scan.dataset()) == [(len(wanted),)]


def test_engines_compare_nan_as_they_do(tmp_path: Path) -> None:
    numbers = [1.0, -0.0, 0.0, float("nan"), float("inf"), 2.0]
    parts = [record(struct.pack(">d", number), key=struct.pack(">d", number)) for number in numbers]
    write_segment(tmp_path / "n-0", 0, batch([*parts, record(None)]))
    scan = kseg.scan(tmp_path / "n-0", decode={"key": "double", "value": "double"})
    eager, table = scan.to_polars(), scan.to_arrow()
    for number in (0.0, 1.0, float("nan")):
        for compare in (pl.Expr.eq, pl.Expr.gt, pl.Expr.le):
            wanted = eager.filter(compare(pl.col("key"), number)).height
            assert scan.lazy().filter(compare(pl.col("key"), number)).collect().height == wanted
        for word in ("=", ">", "<="):
            query = f"select count(*) from r where key {word} '{number}'::double"
            assert sql(query, r=scan.dataset()) == sql(query, r=table)


# ---- bytes that are read -------------------------------------------------------------------------


@contextmanager
def bytes_read() -> Iterator[Counter[str]]:
    """The bytes that are read of each file, by its name."""
    found: Counter[str] = Counter()

    def pread(descriptor: int, size: int, position: int) -> bytes:
        got = os.pread(descriptor, size, position)
        found[os.path.basename(os.readlink(f"/dev/fd/{descriptor}"))] += len(got)
        return got

    with io.reads_replaced(pread):
        yield found


def log_bytes(found: Counter[str]) -> dict[int, int]:
    """The bytes that are read of each segment, by its base offset."""
    return {int(name[:20]): size for name, size in found.items() if name.endswith(".log")}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of eight segments of 400 records and 1.6 MB, with indexes."""
    place = tmp_path_factory.mktemp("data") / "large-0"
    made(place, segments=8, batches=40, padding=4_000)
    kseg.plan_reindex(place).apply()
    return place


def test_a_filter_of_offsets_reads_the_segment_concerned(large: Path) -> None:
    scan = kseg.scan(large, mapping="never")
    with bytes_read() as found:
        frame = scan.lazy().filter(pl.col("offset").is_between(2100, 2109))
        assert frame.collect().height == 10
    assert set(log_bytes(found)) == ({2000} if TAKES_FILTERS else {*range(0, 3200, 400)})
    assert (
        not TAKES_FILTERS or log_bytes(found)[2000] <= (large / f"{2000:020d}.log").stat().st_size
    )
    query = 'select count(topic) from r where "offset" between 2100 and 2109'
    with bytes_read() as found:
        assert sql(query, r=kseg.dataset(large, mapping="never")) == [(10,)]
    assert set(log_bytes(found)) == {2000}


def test_a_filter_of_times_passes_over_older_segments(large: Path) -> None:
    with bytes_read() as found:
        frame = kseg.scan(large, mapping="never").lazy()
        assert frame.filter(pl.col("timestamp") >= at(3180)).select("value").collect().height == 20
    read = log_bytes(found)
    query = f"select count(value) from r where timestamp >= '{at(3180)}'"
    with bytes_read() as found:
        assert sql(query, r=kseg.dataset(large, mapping="never")) == [(19,)]
    assert max(log_bytes(found).values()) < 600_000, found
    assert (log_bytes(found) == read) is TAKES_FILTERS


def sources_of(scan: kseg.Scan | None) -> list[str]:
    assert scan is not None
    return [source.directory.name for source in scan.sources]


def test_topics_and_partitions_choose_the_directories(data: Path) -> None:
    scan = kseg.scan(data)
    records: Any = scan.dataset()
    one, none = ds.field("topic") == "a", ds.field("topic") == "nothing"
    assert records.count_rows(filter=one & (ds.field("partition") == 1)) == 200
    assert sources_of(records.pushed) == ["a-1"]
    assert records.count_rows(filter=none) == 0
    assert repr(records.pushed).startswith("Scan(nothing, ")
    frame = scan.lazy().filter(pl.col("topic") == "a", pl.col("partition") == 1)
    assert frame.collect().height == 200
    assert sources_of(scan.pushed) == (["a-1"] if TAKES_FILTERS else sources_of(scan))


def test_the_first_records_take_one_piece(large: Path) -> None:
    scan = kseg.scan(large, max_rows=20)
    assert scan.lazy().head(10).collect().height == 10
    assert scan.pushed is not None
    assert (scan.pushed.pieces == 1) is TAKES_FILTERS
    records = scan.dataset()
    with duckdb.connect() as connection:
        connection.execute("set threads = 1")
        connection.register("r", records)
        assert len(connection.execute("select * from r limit 10").fetchall()) == 10
    assert cast("kseg.Scan", cast("Any", records).pushed).pieces < 20


def test_a_count_reads_headers(data: Path) -> None:
    scan = kseg.scan(data, topics=("a", "b"))
    assert scan.lazy().select(pl.len()).collect().item() == 600
    assert scan.pushed is not None
    assert not TAKES_FILTERS or scan.pushed.pieces == 0
    counts = scan.lazy().group_by("topic", "partition").len().sort("topic", "partition").collect()
    assert counts.rows() == [("a", 0, 200), ("a", 1, 200), ("b", 0, 200)]
    assert scan.pushed.pieces == 0
    records = scan.dataset()
    assert sql("select count(*) from r", r=records) == [(600,)]
    assert sql("select count(*) from r where topic = 'b'", r=records) == [(200,)]
    assert scan.pushed.pieces == 0
    assert records.count_rows() == 600


def test_explain_names_the_scan(data: Path) -> None:
    scan = kseg.scan(data / "a-0", offset=(5, None))
    assert "offset=(5, None)" in scan.lazy().explain()
    assert repr(scan.dataset()).startswith("Dataset(Scan(")


@pytest.mark.parametrize(("place", "is_pure"), [(-2, True), (-1, False)], ids=["closed", "last"])
def test_polars_may_read_closed_segments_once(
    data: Path, monkeypatch: pytest.MonkeyPatch, place: int, is_pure: bool
) -> None:
    given: list[bool] = []

    def register(_pieces: object, *, schema: object, is_pure: bool) -> None:
        given.append(is_pure)

    monkeypatch.setattr("polars.io.plugins.register_io_source", register)
    kseg.scan(sorted((data / "a-0").glob("*.log"))[place]).lazy()
    kseg.scan(data / "a-0").lazy()
    assert given == [is_pure, False]


@pytest.mark.parametrize("version", ["1.20.0", "1.21.0"])
def test_a_polars_that_loses_filters_gets_none(
    data: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(pl, "__version__", version)
    scan = kseg.scan(data / "a-0")
    late = scan.lazy().filter(pl.col("timestamp") >= at(190), pl.col("offset") > 195)
    assert late.select("offset").collect()["offset"].to_list() == [196, 197, 198, 199]
    assert scan.pushed is not None
    assert {*scan.pushed.columns} >= {"offset", "timestamp"}
    assert "time=" not in repr(scan.pushed)
    assert "offset=" not in repr(scan.pushed)
    assert scan.lazy().head(3).filter(pl.col("offset") > 0).collect().height == 2
    counts = scan.lazy().group_by("topic", "partition").len()
    assert counts.collect().rows() == [("a", 0, 200)]


# ---- Arrow's dataset -----------------------------------------------------------------------------


def test_a_scanner_gives_tables(data: Path) -> None:
    records = kseg.dataset(data / "a-0")
    offset = ds.field("offset")
    assert records.to_table(columns=["offset"], filter=offset < 3).to_pydict() == {
        "offset": [0, 1, 2]
    }
    twice = records.to_table(columns={"twice": offset * 2}, filter=offset < 3)
    assert twice.to_pydict() == {"twice": [0, 2, 4]}
    assert records.head(7, columns=["value"]).num_rows == 7
    assert records.head(7, filter=offset > 100)["offset"].to_pylist() == list(range(101, 108))
    assert records.scanner(columns=[]).to_reader().schema.names == []
    assert records.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert records.schema.names == kseg.scan(data / "a-0").schema.names
    assert records.count_rows(filter=ds.field("key").is_null()) == 29


REFUSED: dict[str, Callable[[Any], object]] = {
    "fragments": lambda records: records.get_fragments(),
    "a filter": lambda records: records.filter(ds.field("offset") > 3),
    "a join": lambda records: records.join(records, "offset"),
    "an order": lambda records: records.sort_by("offset"),
    "a schema": lambda records: records.replace_schema(records.schema),
    "a pickle": pickle.dumps,
}


@pytest.mark.parametrize("name", REFUSED)
def test_operations_that_would_give_no_records_are_refused(data: Path, name: str) -> None:
    with pytest.raises(TypeError, match="scanner"):
        REFUSED[name](kseg.dataset(data / "a-0"))


def test_wrong_arguments_are_typed_errors(data: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        kseg.dataset("nowhere")
    with pytest.raises(ValueError, match="no column ofset"):
        kseg.dataset(data, columns="ofset")
    with pytest.raises(TypeError, match="limit"):
        kseg.dataset(data, limits=3)  # type: ignore[call-arg]
    with pytest.raises(KeyError, match="ofset"):
        kseg.dataset(data / "a-0").to_table(columns=["ofset"])
    with pytest.raises(polars.exceptions.ColumnNotFoundError):
        kseg.scan(data / "a-0").lazy().select("ofset").collect()
    with pytest.raises(duckdb.BinderException):
        sql("select ofset from r", r=kseg.dataset(data / "a-0"))


# ---- conditions ----------------------------------------------------------------------------------

MOMENT = Nanoseconds(1_577_836_800 * 10**9)
YEAR = datetime(2020, 1, 1, tzinfo=UTC)

ARROW: dict[str, tuple[ds.Expression, list[Condition]]] = {
    "a comparison": (ds.field("offset") > 3, [Condition("offset", ">", 3)]),
    "the other way round": (pc.scalar(3) > ds.field("offset"), [Condition("offset", "<", 3)]),
    "both": (
        (ds.field("offset") >= 3) & (ds.field("timestamp") < pa.scalar(YEAR)),
        [Condition("offset", ">=", 3), Condition("timestamp", "<", MOMENT)],
    ),
    "hostile bytes": (
        ds.field("key") == b"x'\nend: 'and'",
        [Condition("key", "==", b"x'\nend: 'and'")],
    ),
    "a list": (ds.field("topic").isin(["a"]), [Condition("topic", "in", ["a"])]),
    "a list with null": (ds.field("topic").isin(["a", None]), []),
    "null": (ds.field("offset") == pa.scalar(None, pa.int64()), []),
    "not": (~(ds.field("offset") > 3), []),
    "or": ((ds.field("offset") > 3) | (ds.field("partition") == 1), []),
    "a sum": (ds.field("offset") + 1 > 3, []),
    "a field in a field": (ds.field("headers", "key") == "x", []),
    "a place": (pc.field(0) == "x", []),
    "a true value": (pc.scalar(True), []),
}


@pytest.mark.parametrize("name", ARROW)
def test_conditions_of_arrow(name: str) -> None:
    expression, wanted = ARROW[name]
    assert list(arrow_conditions(expression)) == wanted


POLARS: dict[str, tuple[pl.Expr, list[Condition]]] = {
    "the other way round": (pl.lit(3) > pl.col("offset"), [Condition("offset", "<", 3)]),
    "between": (
        pl.col("offset").is_between(3, 5, closed="right"),
        [Condition("offset", ">", 3), Condition("offset", "<=", 5)],
    ),
    "a time": (pl.col("timestamp") >= YEAR, [Condition("timestamp", ">=", MOMENT)]),
    "a time without a zone": (pl.col("timestamp") >= datetime(2020, 1, 1), []),
    "a list": (pl.col("partition").is_in([1, 2]), [Condition("partition", "in", [1, 2])]),
    "a list with null": (pl.col("topic").is_in(["a", None]), []),
    "half of it": (
        (pl.col("offset") > 2) & pl.col("key").is_null(),
        [Condition("offset", ">", 2)],
    ),
    "a number with a point": (pl.col("offset") > 2.5, []),
    "null": (pl.col("offset") == pl.lit(None), []),
    "or": ((pl.col("offset") > 2) | (pl.col("partition") == 1), []),
    "a function of Python": (
        pl.col("key").map_elements(lambda key: True, return_dtype=pl.Boolean),
        [],
    ),
    "two columns": (pl.col("offset") > pl.col("partition"), []),
}


@pytest.mark.parametrize("name", POLARS)
def test_conditions_of_polars(name: str) -> None:
    expression, wanted = POLARS[name]
    assert list(polars_conditions(expression)) == wanted


def test_forms_of_older_releases_of_polars_are_conditions() -> None:
    def binary(left: Any, word: str, right: Any) -> Any:
        return {"BinaryExpr": {"left": left, "op": word, "right": right}}

    one = binary({"Column": "k"}, "Eq", {"Literal": {"Binary": [97]}})
    written = binary(one, "And", binary({"Literal": {"Int": 3}}, "Gt", {"Column": "offset"}))
    meta = SimpleNamespace(serialize=lambda format: json.dumps(written))
    predicate: Any = SimpleNamespace(meta=meta)
    assert list(polars_conditions(predicate)) == [
        Condition("k", "==", b"a"),
        Condition("offset", "<", 3),
    ]


_ENDS_EARLY = """
import sys
import kseg, polars as pl
orders = kseg.scan(sys.argv[1], topics="orders")
assert orders.lazy().filter(pl.col("offset") > 5).head(3).collect().height == 3
"""


def test_a_program_ends_while_polars_reads_ahead() -> None:
    """It aborted in about every second run."""
    data = Path(kseg.__file__).parent / "demo_data"
    for _ in range(8 if WHOLE else 2):
        ran = subprocess.run(
            [sys.executable, "-c", _ENDS_EARLY, str(data)], capture_output=True, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, b"")
