"""Arrow to record columns: every layout, shared memory, slices, nulls, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from kseg import InvalidRecordError, Segment, arrow
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns
from tests.builders import batch, record, write_segment

VALUES = [b"one", None, b"", b"\xff\x00", b"longer than any view keeps inline", None, b"end"]
TEXTS = ["one", None, "", "\u00e9", "longer than any view keeps inline", None, "end"]
HEADERS = [[("a", b"1"), ("a", None)], None, [], [("", b"")], None, [("z", b"last")], []]


def pairs(rows: list[Any]) -> list[Any]:
    return [
        None if row is None else [{"key": key, "value": value} for key, value in row]
        for row in rows
    ]


def header_bytes(rows: list[Any]) -> list[tuple[tuple[bytes, bytes | None], ...]]:
    return [tuple((key.encode(), value) for key, value in row or ()) for row in rows]


def only(name: str, array: pa.Array) -> Any:
    """The one column of a batch that has one."""
    columns = arrow.from_record_batch(pa.record_batch({name: array}))
    assert columns.fields == ("timestamp" if name == "timestamp_ms" else name,)
    assert len(columns) == len(array)
    return columns[columns.fields[0]]


def check_layout(column: BinaryColumn) -> None:
    """What the rest of kseg takes for granted of a binary column."""
    assert (column.offsets.dtype, column.data.dtype) == (np.int32, np.uint8)
    assert (column.offsets[0], column.offsets[-1]) == (0, len(column.data))
    assert (column.validity is None) == (column.null_count == 0)
    if column.validity is not None:
        assert len(column.validity) == (len(column) + 7) // 8
    for array in (column.offsets, column.data, column.validity):
        assert array is None or not array.flags.writeable


LAYOUTS = {
    "binary": pa.binary(),
    "large binary": pa.large_binary(),
    "views": pa.binary_view(),
}
TEXT_LAYOUTS = {
    "string": pa.string(),
    "large string": pa.large_string(),
    "string views": pa.string_view(),
}


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_come_in_every_layout_and_slice(layout: str, first: int) -> None:
    column = only("value", pa.array(VALUES, LAYOUTS[layout])[first:6])
    check_layout(column)
    assert list(column) == VALUES[first:6]
    assert column.null_count == VALUES[first:6].count(None)


@pytest.mark.parametrize("layout", TEXT_LAYOUTS)
def test_text_comes_as_its_utf8(layout: str) -> None:
    column = only("key", pa.array(TEXTS, TEXT_LAYOUTS[layout])[1:])
    check_layout(column)
    assert list(column) == [None if text is None else text.encode() for text in TEXTS[1:]]


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


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string()])
def test_bytes_are_shared_not_copied(kind: pa.DataType) -> None:
    array = pa.array(["long enough", "to be found"], kind)
    column = only("value", array[1:])
    start = array.buffers()[2].address
    assert column.data.ctypes.data == start + len("long enough")
    whole = only("value", array)
    assert whole.data.ctypes.data == start
    if kind != pa.large_binary():
        assert whole.offsets.ctypes.data == array.buffers()[1].address
    del array
    assert list(column) == [b"to be found"]


def test_what_one_reads_can_be_taken_back_without_a_copy(tmp_path: Path) -> None:
    given = [
        record(b"v", key=b"k", timestamp=5, headers=[(b"h", None)]),
        record(None, timestamp=-1),
    ]
    with Segment.open(write_segment(tmp_path / "orders-0", 0, batch(given))) as segment:
        (columns,) = segment.read(fields=("offset", "timestamp", "key", "value", "headers"))
    back = arrow.from_record_batch(arrow.to_record_batch(columns))
    assert back.fields == ("offset", "timestamp", "key", "value", "headers")
    for name in ("key", "value"):
        assert back[name].data.ctypes.data == columns[name].data.ctypes.data
        assert list(back[name]) == list(columns[name])
    assert back.offset.tolist() == columns.offset.tolist()
    assert back.timestamp.tolist() == columns.timestamp.tolist() == [5, -1]
    assert list(back.headers) == list(columns.headers) == [((b"h", None),), ()]


HEADER_LAYOUTS = {
    "a list": lambda rows: pa.array(pairs(rows), arrow.HEADERS),
    "a long list": lambda rows: pa.array(
        pairs(rows),
        pa.large_list(
            pa.struct([("value", pa.large_binary()), ("key", pa.large_string()), ("x", pa.int8())])
        ),
    ),
    "a list of views": lambda rows: pa.array(
        pairs(rows), pa.list_view(pa.struct([("key", pa.string_view()), ("value", pa.binary())]))
    ),
    "a map": lambda rows: pa.array(rows, pa.map_(pa.string(), pa.binary())),
}


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("layout", HEADER_LAYOUTS)
def test_headers_come_in_every_layout_and_slice(layout: str, first: int) -> None:
    column = only("headers", HEADER_LAYOUTS[layout](HEADERS)[first:6])
    assert isinstance(column, HeadersColumn)
    assert column.offsets.dtype == np.int32
    assert (column.offsets[0], column.offsets[-1]) == (0, len(column.keys))
    check_layout(column.keys)
    check_layout(column.values)
    assert list(column) == header_bytes(HEADERS[first:6])


def test_headers_under_a_null_list_are_no_ones() -> None:
    pair = pa.array(pairs([[("a", b"1"), ("b", b"2"), ("c", b"3")]]), arrow.HEADERS).flatten()
    ends, mask = pa.array([0, 1, 2, 3], pa.int32()), pa.array([False, True, False])
    array = pa.ListArray.from_arrays(ends, pair, mask=mask)
    assert list(only("headers", array)) == [((b"a", b"1"),), (), ((b"c", b"3"),)]
    assert list(only("headers", array[1:])) == [(), ((b"c", b"3"),)]


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
    assert arrow.from_record_batch(both).timestamp.tolist() == [-1]


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


@pytest.mark.parametrize("name", ["offset", "timestamp", "key", "value", "headers"])
def test_nothing_is_a_piece_of_no_records(name: str) -> None:
    empty = pa.schema([pa.field(name, arrow.TYPES[name])]).empty_table()
    piece = arrow.from_record_batch(empty)
    assert (len(piece), len(piece[name])) == (0, 0)
    assert sum(len(piece) for piece in arrow.from_arrow(empty)) == 0


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
    monkeypatch.setattr(arrow, "_BYTES_MAX", 100)
    pieces = list(arrow.from_arrow(pa.table(TALL[name])))
    assert len(pieces) > 1
    assert [value for piece in pieces for value in piece[field]] == list(column)
    with pytest.raises(ValueError, match=r"from_arrow\(\) cuts it"):
        arrow.from_record_batch(pa.record_batch(TALL[name]))


def test_a_record_that_no_piece_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_BYTES_MAX", 100)
    table = pa.table({"value": [b"a", b"x" * 100, b"y" * 101]})
    pieces = arrow.from_arrow(table)
    assert [value for _ in range(2) for value in next(pieces).value] == [b"a", b"x" * 100]
    with pytest.raises(ValueError, match="one record has more than 100 bytes"):
        next(pieces)
