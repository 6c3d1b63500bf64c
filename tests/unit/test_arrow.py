"""Record columns as Arrow: types, nulls, shared memory, and streams for whoever takes them."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest

from kseg import Log, Segment, arrow, scan
from kseg.constants import Compression
from kseg.format.columns import FIELDS, FIELDS_DEFAULT
from kseg.log.scan import PLACE_FIELDS
from tests.builders import (
    ABORT,
    COMMIT,
    GZIP,
    ZSTD,
    batch,
    control_batch,
    messages,
    record,
    write_segment,
)
from tests.unit.log.brute import partitions_of

TIME = 1_760_000_000_000
EVERY_FIELD = (*PLACE_FIELDS, *FIELDS, "timestamp_ms")


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """`orders-7`: nulls, empties, headers, a name that is no UTF-8, an old message, markers."""
    given = [
        record(b"one", key=b"k", timestamp=TIME),
        record(None, key=None, timestamp=-1),
        record(b"", key=b"", timestamp=TIME + 2, headers=[(b"a", b"1"), (b"a", None), (b"", b"")]),
        record(b"\xff\x00", timestamp=-5, headers=[(b"b\xffd", b"\xff")]),
    ]
    directory = tmp_path / "orders-7"
    plain = dict(producer_id=9, producer_epoch=1, base_sequence=4, leader_epoch=3)
    write_segment(
        directory,
        0,
        messages([record(b"old")], magic=0),
        batch(given, base_offset=1, **plain, transactional=True),
        control_batch(COMMIT, base_offset=5, producer_id=9),
    )
    write_segment(
        directory,
        6,
        batch([record(b"six", timestamp=TIME)], base_offset=6, codec=ZSTD, log_append=True),
        batch(
            [record(b"7")],
            base_offset=7,
            base_timestamp=77,
            delete_horizon=True,
            codec=GZIP,
            log_append=True,
        ),
        control_batch(ABORT, base_offset=8, producer_id=9),
    )
    return directory


def test_every_field_has_a_type_and_its_values(orders: Path) -> None:
    table = scan(orders, fields=EVERY_FIELD, control=True).to_arrow()
    assert table.schema == arrow.schema(EVERY_FIELD)
    table.validate(full=True)
    rows = table.to_pylist()
    by_offset = {row["offset"]: row for row in rows}
    assert sorted(by_offset) == list(range(9))
    assert {(row["topic"], row["partition"]) for row in rows} == {("orders", 7)}
    assert [by_offset[at]["timestamp_ms"] for at in range(5)] == [-1, TIME, -1, TIME + 2, -5]
    stamps = [by_offset[at]["timestamp"] for at in range(5)]
    assert [stamp is None for stamp in stamps] == [True, False, True, False, False]
    assert stamps[1].isoformat() == "2025-10-09T08:53:20+00:00"
    assert [by_offset[at]["timestamp_type"] for at in (0, 1, 6)] == [
        "NoTimestampType",
        "CreateTime",
        "LogAppendTime",
    ]
    assert [by_offset[at]["key"] for at in range(1, 5)] == [b"k", None, b"", None]
    assert [by_offset[at]["value"] for at in range(1, 5)] == [b"one", None, b"", b"\xff\x00"]
    assert [by_offset[at]["codec"] for at in (0, 6, 7)] == ["none", "zstd", "gzip"]
    assert [by_offset[at]["magic"] for at in (0, 1)] == [0, 2]
    assert [by_offset[at]["sequence"] for at in (0, 1, 4, 6)] == [-1, 4, 7, -1]
    assert [by_offset[at]["control_type"] for at in (5, 8)] == ["COMMIT", "ABORT"]
    assert [by_offset[at]["delete_horizon_ms"] for at in (6, 7)] == [None, 77]
    assert {row["valid"] for row in rows} == {True}
    assert [by_offset[at]["leader_epoch"] for at in (0, 1)] == [-1, 3]


def test_header_names_are_text_and_their_values_bytes(orders: Path) -> None:
    headers = scan(orders, fields=("headers",)).to_arrow()["headers"].to_pylist()
    assert headers[3] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": None},
        {"key": "", "value": b""},
    ]
    assert headers[4] == [{"key": "b\ufffdd", "value": b"\xff"}]
    assert headers[0] == headers[1] == []


def test_fixtures_as_arrow_hold_what_the_columns_hold(fixture_case: Path) -> None:
    for directory in partitions_of(fixture_case)[:2]:
        found = scan(directory, fields=EVERY_FIELD, on_corrupt="skip", max_rows=40, control=True)
        for piece in found:
            taken = arrow.to_record_batch(piece)
            taken.validate(full=True)
            assert taken["key"].to_pylist() == list(piece.key)
            assert taken["value"].to_pylist() == list(piece.value)
            assert taken["offset"].to_pylist() == piece.offset.tolist()
            for headers, pairs in zip(taken["headers"].to_pylist(), piece.headers, strict=True):
                assert [(h["key"], h["value"]) for h in headers] == [
                    (name.decode("utf-8", "replace"), value) for name, value in pairs
                ]


def test_bytes_are_shared_with_the_columns_not_copied(orders: Path) -> None:
    with Segment.open(orders / f"{0:020d}.log") as segment:
        *_, piece = segment.read(start_offset=1)
    taken = arrow.to_record_batch(piece)
    for name, column in (("key", piece.key), ("value", piece.value)):
        validity, offsets, data = taken[name].buffers()
        assert offsets.address == column.offsets.ctypes.data
        assert data.address == column.data.ctypes.data
        assert validity.address == column.validity.ctypes.data
        assert taken[name].null_count == column.null_count
    values = taken["headers"].flatten().field(1)
    assert values.buffers()[2].address == piece.headers.values.data.ctypes.data
    del piece
    assert taken["value"][0].as_py() == b"one"


def test_a_subset_of_fields_keeps_its_order(orders: Path) -> None:
    with Segment.open(orders / f"{6:020d}.log") as segment:
        (piece,) = segment.read()
    taken = arrow.to_record_batch(piece, fields=("value", "offset"))
    assert taken.schema.names == ["value", "offset"]
    assert taken.to_pylist() == [{"value": b"six", "offset": 6}, {"value": b"7", "offset": 7}]
    assert arrow.to_record_batch(piece).schema.names == list(FIELDS_DEFAULT)
    with pytest.raises(KeyError):
        arrow.to_record_batch(piece, fields=("magic",))


def test_unknown_codecs_and_types_are_null_labels() -> None:
    codes = np.array([0, 4, 7, -1], np.int8)
    assert arrow._BUILDERS["codec"](codes).to_pylist() == ["none", "zstd", None, None]
    assert arrow._BUILDERS["timestamp_type"](np.array([-1, 1], np.int8)).to_pylist() == [
        "NoTimestampType",
        "LogAppendTime",
    ]
    kinds = np.array([-1, 0, 6, 7], np.int8)
    assert arrow._BUILDERS["control_type"](kinds).to_pylist() == [
        None,
        "ABORT",
        "KRAFT_VOTERS",
        None,
    ]
    assert {kind.label for kind in Compression} == set(
        arrow._BUILDERS["codec"](np.arange(5, dtype=np.int8)).to_pylist()
    )


def test_times_are_null_where_there_is_none_and_outside_the_years_of_a_datetime() -> None:
    first, last = -62_135_596_800_000, 253_402_300_799_999
    times = np.array([-1, 0, -2, first, last, first - 1, last + 1, 2**63 - 1, -(2**63)], np.int64)
    taken = arrow.timestamp_array(times)
    assert taken.type == pa.timestamp("ms", tz="UTC")
    assert taken.cast(pa.int64()).to_pylist() == [None, 0, -2, first, last, *[None] * 4]
    assert arrow.timestamp_array(times[1:5]).null_count == 0


def test_engines_query_a_scan_with_times_that_they_do_not_hold(tmp_path: Path) -> None:
    times = [2**63 - 1, 1_763_111_222_333_000_000, 1_763_111_222_333]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(batch([record(b"x", timestamp=time) for time in times]))
    found = scan(path, fields=("timestamp", "timestamp_ms"))
    query = "select max(timestamp), max(timestamp_ms), count(timestamp) from found"
    ((latest, number, count),) = duckdb_with(found=found).sql(query).fetchall()
    assert (latest.year, number, count) == (2025, times[0], 1)
    frame = polars.DataFrame(found)
    assert frame["timestamp"].max() == latest
    assert frame["timestamp_ms"].to_list() == times


@pytest.mark.parametrize("missing", [(), (0,), (3, 8)])
def test_times_are_shared_with_the_column_not_copied(missing: tuple[int, ...]) -> None:
    times = np.arange(11, dtype=np.int64) * 1000
    times[list(missing)] = -1
    taken = arrow.timestamp_array(times)
    taken.validate(full=True)
    assert taken.buffers()[1].address == times.ctypes.data
    expected = pa.array(times, pa.int64(), mask=times == -1).cast(arrow.TYPES["timestamp"])
    assert taken.equals(expected)
    assert taken.null_count == len(missing)
    assert arrow.timestamp_array(times[::2]).equals(expected.take(pa.array(range(0, 11, 2))))


def test_readers_are_lazy_and_hold_the_schema(orders: Path) -> None:
    reader = scan(orders, max_rows=1, fields=("offset",)).to_reader()
    assert reader.schema == arrow.schema(("offset",))
    assert reader.read_next_batch().to_pylist() == [{"offset": 0}]
    assert sum(len(taken) for taken in reader) == 6


def test_nothing_found_is_a_table_without_rows(orders: Path, tmp_path: Path) -> None:
    empty = scan(orders, offset=(100, None), fields=EVERY_FIELD)
    table = empty.to_arrow()
    assert (table.num_rows, table.schema) == (0, arrow.schema(EVERY_FIELD))
    path = write_segment(tmp_path, 0)
    with Segment.open(path) as segment:
        assert pa.table(segment).num_rows == 0
        assert polars.DataFrame(segment).shape == (0, 5)


@pytest.fixture(params=["segment", "log", "scan"])
def source(request: pytest.FixtureRequest, orders: Path) -> object:
    """Each of the things that speak the stream; all over offsets 6 and 7."""
    path = orders / f"{6:020d}.log"
    if request.param == "scan":
        return scan(path)
    if request.param == "log":
        (orders / f"{0:020d}.log").unlink()
        return Log.open(orders)
    return Segment.open(path)


def test_arrow_polars_and_duckdb_take_each_source_again_and_again(source: object) -> None:
    for _ in range(2):
        table = pa.table(source)
        assert table.schema == arrow.schema(FIELDS_DEFAULT)
        assert table["offset"].to_pylist() == [6, 7]
        reader = pa.RecordBatchReader.from_stream(source)
        assert reader.read_all() == table
        assert polars.DataFrame(source)["value"].to_list() == [b"six", b"7"]
        assert polars.from_arrow(source).struct.field("offset").to_list() == [6, 7]
        assert polars.DataFrame(source)["timestamp"].dtype == polars.Datetime("ms", "UTC")
        query = duckdb.sql("select count(*), max(a.offset) from source a join source using (value)")
        assert query.fetchall() == [(2, 7)]
        assert duckdb.sql("select value from source where source.offset = 7").fetchall() == [
            (b"7",)
        ]


def test_streams_do_not_share_their_place(source: object) -> None:
    first = pa.RecordBatchReader.from_stream(source)
    assert first.read_next_batch().num_rows == 2
    second = pa.RecordBatchReader.from_stream(source)
    assert second.read_next_batch().num_rows == 2
    with pytest.raises(StopIteration):
        first.read_next_batch()


def test_a_consumer_may_ask_for_another_schema(source: object) -> None:
    wide = pa.schema(
        [
            pa.field(name, pa.large_binary() if name in ("key", "value") else kind)
            for name, kind in ((name, arrow.TYPES[name]) for name in FIELDS_DEFAULT)
        ]
    )
    table = pa.RecordBatchReader.from_stream(source, schema=wide).read_all()
    assert table.schema.field("value").type == pa.large_binary()
    assert table["value"].to_pylist() == [b"six", b"7"]


def test_damage_reaches_whoever_takes_the_stream(orders: Path) -> None:
    path = orders / f"{6:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[:70] + b"?" + data[71:])
    with pytest.raises(Exception, match="does not match its checksum"):
        pa.table(scan(orders))
    with pytest.raises(duckdb.Error, match="does not match its checksum"):
        duckdb.sql("select * from found", connection=duckdb_with(found=scan(orders))).fetchall()
    skipped = scan(orders, on_corrupt="skip")
    assert pa.table(skipped).num_rows == 6
    assert [error.path for error in skipped.errors] == [str(path)]


def duckdb_with(**tables: object) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    return connection


def test_the_package_alone_does_not_load_arrow() -> None:
    assert "pyarrow" in sys.modules  # here; tests/tidy asks a fresh process
    assert arrow.TYPES["headers"] == arrow.HEADERS


def test_a_field_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no field no-such; there are: "):
        arrow.schema(("offset", "no-such"))
