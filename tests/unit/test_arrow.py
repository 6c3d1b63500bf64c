"""Record columns as Arrow: types, nulls, shared memory, and streams for whoever takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from kseg import Log, Segment, arrow, arrow_columns, scan
from kseg.errors import InvalidRecordError
from kseg.format.request import FIELDS, FIELDS_DEFAULT
from kseg.format.values import BinaryColumn, RecordColumns
from kseg.records.stream import PLACE_FIELDS
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
    table = scan(orders, columns=EVERY_FIELD, control=True).to_arrow()
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
    headers = scan(orders, columns=("headers",)).to_arrow()["headers"].to_pylist()
    assert headers[3] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": None},
        {"key": "", "value": b""},
    ]
    assert headers[4] == [{"key": "b\ufffdd", "value": b"\xff"}]
    assert headers[0] == headers[1] == []


def test_bytes_are_shared_with_the_columns_not_copied(orders: Path) -> None:
    with Segment.open(orders / f"{0:020d}.log") as segment:
        *_, piece = segment.read(offset=(1, None))
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
    found = scan(path, columns=("timestamp", "timestamp_ms"))
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


def test_nothing_found_is_a_table_without_rows(orders: Path, tmp_path: Path) -> None:
    empty = scan(orders, offset=(100, None), columns=EVERY_FIELD)
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
        return scan(path, columns=FIELDS_DEFAULT)
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


def test_a_field_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no field no-such; there are: "):
        arrow.schema(("offset", "no-such"))


HEADERS = [[("a", b"1"), ("a", None)], None, [], [("", b"")], None, [("z", b"last")], []]


def pairs(rows: list[Any]) -> list[Any]:
    return [
        None if row is None else [{"key": key, "value": value} for key, value in row]
        for row in rows
    ]


def only(name: str, array: pa.Array) -> Any:
    """The one column of a batch that has one."""
    columns = arrow.from_record_batch(pa.record_batch({name: array}))
    assert columns.fields == ("timestamp" if name == "timestamp_ms" else name,)
    assert len(columns) == len(array)
    return columns.arrays[columns.fields[0]]


def check_layout(column: BinaryColumn) -> None:
    """What the rest of kseg takes for granted of a binary column."""
    assert (column.offsets.dtype, column.data.dtype) == (np.int32, np.uint8)
    assert (column.offsets[0], column.offsets[-1]) == (0, len(column.data))
    assert (column.validity is None) == (column.null_count == 0)
    if column.validity is not None:
        assert len(column.validity) == (len(column) + 7) // 8
    for array in (column.offsets, column.data, column.validity):
        assert array is None or not array.flags.writeable


def test_dictionaries_fixed_sizes_and_nothing_but_nulls_are_bytes_too() -> None:
    coded = pa.array([b"a", None, b"b", b"a"], pa.binary()).dictionary_encode()
    assert list(only("value", coded[1:])) == [None, b"b", b"a"]
    assert list(only("value", pa.array([b"ab", None], pa.binary(2)))) == [b"ab", None]
    nothing = only("value", pa.nulls(9))
    check_layout(nothing)
    assert list(nothing) == [None] * 9


@pytest.mark.parametrize("length", [1, 7, 8, 9, 64, 65])
@pytest.mark.parametrize("first", [0, 1, 7, 8, 9])
def test_validity_begins_with_the_first_value(first: int, length: int) -> None:
    given = [b"x" if n % 3 else None for n in range(first + length + 1)]
    column = only("value", pa.array(given, pa.binary())[first : first + length])
    check_layout(column)
    assert column.is_valid().tolist() == [v is not None for v in given[first : first + length]]


def test_headers_of_nothing_but_nulls_are_none() -> None:
    column = only("headers", pa.nulls(2))
    assert list(column) == [(), ()]


@pytest.mark.parametrize("row", [{"key": None, "value": b"1"}, None])
def test_a_header_without_a_name_is_refused_with_its_record(row: object) -> None:
    rows = [[{"key": "a", "value": b"1"}], [], [{"key": "b", "value": None}, row]]
    with pytest.raises(InvalidRecordError, match="name of a header is null") as caught:
        only("headers", pa.array(rows, arrow.HEADERS))
    assert caught.value.record_index == 2


MOMENTS = {
    "s": ([-2, 0, 1_760_000_000], [-2000, 0, 1_760_000_000_000]),
    "ms": ([-2, 0, 1_760_000_000_001], [-2, 0, 1_760_000_000_001]),
    "us": ([-2_500, 999, 1_000, 2**63 - 1], [-3, 0, 1, (2**63 - 1) // 1000]),
    "ns": ([-1, 999_999, 1_000_000, -(2**63)], [-1, 0, 1, -(2**63) // 1_000_000]),
}


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Vienna"])
@pytest.mark.parametrize("unit", MOMENTS)
def test_timestamps_are_rounded_down_to_milliseconds(unit: str, zone: str | None) -> None:
    given, expected = MOMENTS[unit]
    times = only("timestamp", pa.array([*given, None], pa.timestamp(unit, tz=zone))[1:])
    assert times.dtype == np.int64
    assert times.tolist() == [*expected[1:], -1]


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint64(), pa.float64()])
@pytest.mark.parametrize("name", ["timestamp", "timestamp_ms"])
def test_whole_numbers_are_milliseconds(name: str, kind: pa.DataType) -> None:
    assert only(name, pa.array([5, None, 0], kind)).tolist() == [5, -1, 0]


def test_the_raw_time_goes_before_the_typed_one() -> None:
    both = pa.record_batch({"timestamp": pa.array([7]), "timestamp_ms": pa.array([-1])})
    assert arrow.from_record_batch(both).timestamp_ms.tolist() == [-1]


@pytest.mark.parametrize("seconds", [(2**63 - 1) // 1000, -((2**63 - 1) // 1000)])
def test_seconds_are_held_to_64_bits_of_milliseconds(seconds: int) -> None:
    away = 1 if seconds > 0 else -1
    kind = pa.timestamp("s")
    assert only("timestamp", pa.array([seconds], kind)).tolist() == [seconds * 1000]
    for beyond in (seconds + away, away * 2**62, -(2**63)):
        with pytest.raises(ValueError, match="64 bits"):
            only("timestamp", pa.array([beyond], kind))


def test_columns_nobody_writes_are_left_alone() -> None:
    columns = arrow.from_record_batch(
        pa.record_batch({"topic": ["t"], "offset": [7], "partition": [3], "value": ["v"]})
    )
    assert columns.fields == ("offset", "value")
    assert (columns.offset.tolist(), list(columns.value)) == ([7], [b"v"])


REFUSED: dict[str, tuple[dict[str, pa.Array], str]] = {
    "nothing to write": ({"topic": pa.array(["t"])}, "none of the columns .* is among: topic"),
    "numbers as values": ({"value": pa.array([1])}, "'value' is int64, not bytes or text"),
    "a list as key": ({"key": pa.array([[b"k"]])}, "'key' is list.*, not bytes or text"),
    "numbers by name": (
        {"key": pa.array([1, 1]).dictionary_encode()},
        "'key' is dictionary.*, not bytes or text",
    ),
    "a text as time": ({"timestamp": pa.array(["now"])}, "'timestamp' is string"),
    "a date as time": ({"timestamp": pa.array([1], pa.date32())}, "'timestamp' is date32"),
    "half a millisecond": ({"timestamp": pa.array([0.5])}, "truncated"),
    "no number as time": ({"timestamp": pa.array([float("nan")])}, "truncated"),
    "more than 64 bits": ({"offset": pa.array([2**63], pa.uint64())}, "not in range"),
    "an offset that is null": ({"offset": pa.array([1, None])}, "'offset' has nulls"),
    "headers of bytes": ({"headers": pa.array([b"h"])}, "'headers' is binary"),
    "headers without names": (
        {"headers": pa.array([[{"name": "a", "value": b""}]])},
        "without the fields key and value",
    ),
    "headers of numbers": (
        {"headers": pa.array([[{"key": "a", "value": 1}]])},
        r"'headers.value' is int64",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_columns_are_refused_by_name(name: str) -> None:
    arrays, said = REFUSED[name]
    with pytest.raises(ValueError, match=said):
        arrow.from_record_batch(pa.record_batch(arrays))
    with pytest.raises(ValueError, match=said):
        list(arrow.from_arrow(pa.table(arrays)))


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["offset", "offset"])
    with pytest.raises(ValueError, match="several columns are called 'offset'"):
        arrow.from_record_batch(twice)


OFFSETS_THAT_LIE = {
    "falling": [0, 4, 2, 6],
    "negative": [-1, 2, 4, 6],
    "beyond the data": [0, 2, 4, 7],
}


@pytest.mark.parametrize("name", OFFSETS_THAT_LIE)
@pytest.mark.parametrize("wide", [False, True])
def test_offsets_that_lie_are_refused(name: str, wide: bool) -> None:
    dtype, kind = (np.int64, pa.large_binary()) if wide else (np.int32, pa.binary())
    ends = np.array([0, 2, 4, 6], dtype)
    array = pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(ends), pa.py_buffer(b"abcdef")])
    taken = pa.record_batch({"value": array})
    ends[:] = OFFSETS_THAT_LIE[name]  # pyarrow itself looked at both ends, and only once
    with pytest.raises(ValueError, match="outside its data"):
        arrow.from_record_batch(taken)


# ---- what comes in chunks, and what speaks the stream -------------------------------------------


def test_a_table_of_chunks_becomes_one_piece_or_one_each() -> None:
    parts = [pa.table({"value": [b"a", None], "offset": [1, 2]})]
    parts += [pa.table({"value": [b"c"], "offset": [7]}), parts[0].slice(0, 0)]
    table = pa.concat_tables(parts)
    one = arrow.from_record_batch(table)
    assert (list(one.value), one.offset.tolist()) == ([b"a", None, b"c"], [1, 2, 7])
    pieces = list(arrow.from_arrow(table))
    assert [list(piece.value) for piece in pieces if len(piece)] == [[b"a", None], [b"c"]]


SPEAKERS = {
    "a record batch": lambda data: pa.record_batch(data),
    "a table": pa.table,
    "a reader": lambda data: pa.table(data).to_reader(),
    "polars": polars.DataFrame,
    "pandas": pandas.DataFrame,
}


@pytest.mark.parametrize("take", ["from_record_batch", "from_arrow"])
@pytest.mark.parametrize("name", SPEAKERS)
def test_whatever_speaks_arrow_is_taken(name: str, take: str) -> None:
    source = SPEAKERS[name]({"offset": [3, 4], "key": ["k", None], "value": [b"a", b"b"]})
    taken = getattr(arrow, take)(source)
    (piece,) = (taken,) if isinstance(taken, RecordColumns) else taken
    assert piece.offset.tolist() == [3, 4]
    assert (list(piece.key), list(piece.value)) == ([b"k", None], [b"a", b"b"])


def test_a_stream_is_taken_as_it_comes() -> None:
    schema = pa.schema([("value", pa.binary())])
    asked: list[int] = []

    def batches() -> Any:
        for number in range(3):
            asked.append(number)
            yield pa.record_batch({"value": [b"%d" % number]}, schema=schema)

    pieces = arrow.from_arrow(pa.RecordBatchReader.from_batches(schema, batches()))
    assert asked == []
    assert list(next(pieces).value) == [b"0"]
    assert asked == [0]


TALL = {
    "one large value": {"value": pa.array([b"x" * 60, b"y" * 60, b"z" * 60], pa.large_binary())},
    "many small ones": {"value": pa.array([b"abcdefghij"] * 25, pa.binary_view())},
    "header values": {"headers": pa.array(pairs([[("a", b"x" * 40)] * 2] * 3), arrow.HEADERS)},
    "header names": {"headers": pa.array(pairs([[("a" * 25, b"")] * 2] * 3), arrow.HEADERS)},
    "headers by number": {"headers": pa.array(pairs([[("", b"")] * 90] * 3), arrow.HEADERS)},
}


@pytest.mark.parametrize("name", TALL)
def test_more_bytes_than_a_piece_holds_are_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = arrow.from_record_batch(pa.record_batch(TALL[name]))
    ((field, column),) = whole.arrays.items()
    monkeypatch.setattr(arrow_columns, "_BYTES_MAX", 100)
    pieces = list(arrow.from_arrow(pa.table(TALL[name])))
    assert len(pieces) > 1
    assert [value for piece in pieces for value in piece[field]] == list(column)
    with pytest.raises(ValueError, match=r"from_arrow\(\) cuts it"):
        arrow.from_record_batch(pa.record_batch(TALL[name]))


def test_a_record_that_no_piece_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_columns, "_BYTES_MAX", 100)
    table = pa.table({"value": [b"a", b"x" * 100, b"y" * 101]})
    pieces = arrow.from_arrow(table)
    assert [value for _ in range(2) for value in next(pieces).value] == [b"a", b"x" * 100]
    with pytest.raises(ValueError, match="one record has more than 100 bytes"):
        next(pieces)
