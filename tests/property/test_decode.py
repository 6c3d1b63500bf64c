"""Whatever a log holds, kseg decodes it as the reference does, however it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kseg.constants import StopReason
from kseg.format import columns, header
from kseg.format.request import FIELDS, Request
from kseg.format.values import RecordColumns
from tests import builders, reference
from tests.builders import record
from tests.conformance.readers import Kseg, Reference
from tests.property.oracle import decoded, flat, only, rows_of, same_walk
from tests.property.strategies import logs, logs07, tails

field_sets = st.lists(st.sampled_from(FIELDS), unique=True, min_size=1).map(tuple)
EVERYTHING = Request(columns=FIELDS, control=True)


@given(data=logs, tail=tails)
@example(data=b"", tail=bytes(11))
@example(data=b"", tail=bytes(17))
def test_the_walk_is_the_reference_s(data: bytes, tail: bytes) -> None:
    same_walk(data + tail)


@given(data=logs)
def test_all_fields_of_all_records_are_the_reference_s(data: bytes) -> None:
    assert decoded(data, EVERYTHING) == rows_of(data)


@given(data=logs, fields=field_sets)
def test_a_field_does_not_depend_on_which_others_are_asked_for(
    data: bytes, fields: tuple[str, ...]
) -> None:
    request = Request(columns=fields, control=True)
    assert decoded(data, request) == only(rows_of(data), fields)


@given(data=logs, rows_max=st.integers(1, 12), bytes_max=st.integers(1, 400))
def test_pieces_are_bounded_and_join_to_the_whole(
    data: bytes, rows_max: int, bytes_max: int
) -> None:
    request = Request(columns=FIELDS, control=True, max_rows=rows_max, max_bytes=bytes_max)
    pieces = list(columns.decode(memoryview(data), header.scan(data), request))
    for piece in pieces:
        assert len(piece) <= rows_max
        assert len(piece) == 1 or gathered(piece) <= bytes_max
    assert flat(pieces) == rows_of(data)


def gathered(piece: RecordColumns) -> int:
    """Bytes of keys, values and headers in a piece."""
    binary = [piece.key, piece.value, piece.headers.keys, piece.headers.values]
    return sum(len(column.data) for column in binary)


@given(data=logs, tail=tails, window_bytes=st.integers(17, 500))
def test_windows_give_what_the_whole_gives(data: bytes, tail: bytes, window_bytes: int) -> None:
    whole = header.scan(data + tail)
    rows, table = through_windows(data + tail, window_bytes)
    assert rows == decoded(data + tail, EVERYTHING)
    assert table.end_position == whole.end_position
    # What lies behind a window of zeros is for the one who has the file to see.
    assert table.stop in (whole.stop, StopReason.ZERO_TAIL)


def through_windows(
    data: bytes, window_bytes: int
) -> tuple[list[dict[str, object]], header.BatchTable]:
    """As a file is read that cannot be mapped: a window at a time, a wider one where it must be."""
    rows: list[dict[str, object]] = []
    position, wide = 0, window_bytes
    while True:
        window = data[position : position + wide]
        table = header.scan(window, base=position, file_end=len(data))
        rows += flat(columns.decode(memoryview(window), table, EVERYTHING, base=position))
        if table.stop is not StopReason.LIMIT:
            return rows, table
        wide = window_bytes if len(table) else max(table.needed, wide + 1)
        position = table.end_position


@given(
    data=logs,
    start=st.integers(-1, 1010),
    span=st.integers(0, 30),
    fields=st.sampled_from([("offset",), ("key", "offset"), ("offset", "headers", "value")]),
)
def test_an_offset_range_gives_the_records_inside_it(
    data: bytes, start: int, span: int, fields: tuple[str, ...]
) -> None:
    request = Request(columns=fields, offset=(start, start + span), control=True)
    inside = [row for row in rows_of(data) if start <= row["offset"] < start + span]
    assert decoded(data, request) == only(inside, fields)


@given(data=logs, start=st.integers(1_600_000_000_000, 1_800_000_000_000))
def test_a_time_range_gives_the_records_inside_it(data: bytes, start: int) -> None:
    end = start + 50_000_000_000
    request = Request(columns=("offset", "timestamp"), time=(start, end), control=True)
    inside = [row for row in rows_of(data) if start <= row["timestamp"] < end]
    assert decoded(data, request) == only(inside, ("offset", "timestamp"))


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [builders.NONE, builders.GZIP])
@pytest.mark.parametrize("start", [None, 0])
def test_the_largest_offset_and_time_are_inside_a_range_without_an_end(
    magic: int, codec: int, start: int | None
) -> None:
    largest = 2**63 - 1
    records = [record(b"last", offset=largest, timestamp=largest)]
    data = builders.records_of(records, magic=magic, codec=codec, base_offset=largest)
    request = Request(columns=("offset", "value"), offset=(start, None))
    assert decoded(data, request) == [{"offset": largest, "value": b"last"}]


@given(data=logs)
def test_control_records_are_left_out_unless_asked_for(data: bytes) -> None:
    request = Request(columns=("offset", "value"))
    kept = [row for row in rows_of(data) if not row["control"]]
    assert decoded(data, request) == only(kept, ("offset", "value"))


@given(data=logs07(), start=st.integers(0, 2**40), rows_max=st.integers(1, 9))
def test_kafka_0_7_messages_are_the_reference_s(data: bytes, start: int, rows_max: int) -> None:
    expected = Reference().read07(data, start)
    assert expected.error is None
    table = header.scan(data, kafka07=True, log_start=start)
    request = Request(columns=FIELDS, max_rows=rows_max)
    rows = flat(columns.decode(memoryview(data), table, request))
    for got, record_ in zip(rows, expected.records, strict=True):
        assert {name: got[name] for name in record_} == record_
    assert Kseg().read07(data, start).error is None


@given(value=st.integers(-(2**31), 2**31 - 1), width=st.integers(1, 5))
def test_varints_are_read_back(value: int, width: int) -> None:
    data = builders.varint(value, width)
    assert reference.read_varint(data, 0, len(data)) == (value, len(data))
    one = builders.batch([record(offset=value)], last_offset_delta=0)
    (row,) = decoded(one, Request(columns=("offset",)))
    assert row["offset"] == value


@given(value=st.integers(-(2**63), 2**63 - 1), width=st.integers(1, 10))
def test_varlongs_are_read_back(value: int, width: int) -> None:
    data = builders.varlong(value, width)
    assert reference.read_varlong(data, 0, len(data)) == (value, len(data))
    one = builders.batch([record(timestamp=value)], base_timestamp=0, max_timestamp=value)
    (row,) = decoded(one, Request(columns=("timestamp",)))
    assert row["timestamp"] == value
