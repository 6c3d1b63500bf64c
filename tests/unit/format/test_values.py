"""Columns, whoever made them, serve whatever takes columns; what was not read is named."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kseg
from kseg import arrow
from kseg.constants import TimestampType
from kseg.errors import KsegError, MissingFieldError
from kseg.format.columns import decode
from kseg.format.encode import encode_batches
from kseg.format.header import scan as walk
from kseg.format.options import BatchOptions
from kseg.format.request import FIELDS_DEFAULT, Request
from kseg.format.take import join_rows, take_rows
from kseg.format.values import RECORD_FIELDS, Record, RecordColumns
from tests.builders import GZIP, batch, messages, record, wrapper

LOG_APPEND = 0x08
GIVEN = [record(b"v%d" % n, key=None, timestamp=5, headers=[(b"h", None)]) for n in range(3)]
#: Create time, log append time, none: batches of every kind of timestamp one behind the other.
MIXED = b"".join(
    [
        batch(GIVEN, base_offset=0),
        batch(GIVEN, base_offset=3, attributes=LOG_APPEND, codec=GZIP),
        messages([record(b"old", offset=6, timestamp=-1)], magic=0),
        wrapper([record(b"w", timestamp=7)] * 2, magic=1, codec=GZIP, base_offset=7),
    ]
)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition of one segment."""
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(MIXED)
    return directory


def _decoded(path: Path) -> Iterator[RecordColumns]:
    data = next(path.glob("*.log")).read_bytes()
    return decode(memoryview(data), walk(data), Request())


def _segment(path: Path) -> Iterator[RecordColumns]:
    with kseg.Segment.open(next(path.glob("*.log"))) as segment:
        yield from segment.read()


def _log(path: Path) -> Iterator[RecordColumns]:
    return kseg.Log.open(path).read()


def _fetched(path: Path) -> Iterator[RecordColumns]:
    return kseg.Log.open(path).fetch(0, max_bytes=2**20).columns()


def _taken(path: Path) -> Iterator[RecordColumns]:
    for columns in kseg.scan(path):
        yield take_rows(columns, np.arange(len(columns)))


def _joined(path: Path) -> Iterator[RecordColumns]:
    yield join_rows(list(kseg.scan(path, max_rows=2)))


def _pickled(path: Path) -> Iterator[RecordColumns]:
    for columns in kseg.scan(path):
        yield pickle.loads(pickle.dumps(columns))


PRODUCERS: dict[str, Callable[[Path], Iterator[RecordColumns]]] = {
    "scan of a partition": lambda path: iter(kseg.scan(path)),
    "scan of a data directory": lambda path: iter(kseg.scan(path.parent)),
    "scan of a file": lambda path: iter(kseg.scan(next(path.glob("*.log")))),
    "scan in small pieces": lambda path: iter(kseg.scan(path, max_rows=2)),
    "Log.read": _log,
    "Segment.read": _segment,
    "Log.fetch": _fetched,
    "decode": _decoded,
    "rows taken": _taken,
    "pieces joined": _joined,
    "out of a pickle": _pickled,
}
producers = pytest.mark.parametrize("produce", PRODUCERS.values(), ids=PRODUCERS)


@producers
def test_the_default_fields_make_records(
    produce: Callable[[Path], Iterator[RecordColumns]], partition: Path
) -> None:
    found = [one for columns in produce(partition) for one in columns.records()]
    assert found == list(kseg.Log.open(partition).records())
    types = [one.timestamp_type for one in found]
    create, append = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
    assert types == [create] * 3 + [append] * 3 + [TimestampType.NO_TIMESTAMP_TYPE] + [create] * 2


CONSUMERS: dict[str, Callable[[RecordColumns], object]] = {
    "each column": lambda columns: [columns[name] for name in columns.fields],
    "each attribute": lambda columns: [getattr(columns, name) for name in columns.fields],
    "len": len,
    "repr": repr,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "records": lambda columns: list(columns.records()),
    "rows taken": lambda columns: take_rows(columns, np.array([0, 0], np.intp)),
    "joined": lambda columns: join_rows([columns, columns]),
    "to Arrow": arrow.to_record_batch,
    "encode_batch": lambda columns: kseg.encode_batch(columns, BatchOptions()),
    "encode_batches": lambda columns: list(encode_batches(columns, BatchOptions())),
}


@producers
@pytest.mark.parametrize("consume", CONSUMERS.values(), ids=CONSUMERS)
def test_the_default_fields_serve_whatever_takes_columns(
    produce: Callable[[Path], Iterator[RecordColumns]],
    consume: Callable[[RecordColumns], object],
    partition: Path,
) -> None:
    for columns in produce(partition):
        consume(columns)


def test_columns_out_of_arrow_say_what_records_lack(partition: Path) -> None:
    for columns in kseg.scan(partition):
        back = arrow.from_record_batch(arrow.to_record_batch(columns))
        with pytest.raises(MissingFieldError, match="'timestamp_type' was not read"):
            back.records()


@pytest.mark.parametrize("ask", [lambda c: c["value"], lambda c: c.value, lambda c: c.records()])
def test_a_field_that_was_not_read_is_named_with_the_way_to_read_it(
    ask: Callable[[RecordColumns], Any], partition: Path
) -> None:
    (columns, *_rest) = kseg.scan(partition, columns=("offset", "key"))
    for error in (KsegError, KeyError, AttributeError):
        with pytest.raises(error, match=r"'value'.* was not read; name it in `columns`"):
            ask(columns)
    assert not hasattr(columns, "value")
    error = pickle.loads(pickle.dumps(_raised(ask, columns)))
    assert type(error) is MissingFieldError
    assert "(read: 'offset', 'key')" in str(error)


def _raised(ask: Callable[[RecordColumns], Any], columns: RecordColumns) -> BaseException:
    with pytest.raises(MissingFieldError) as caught:
        ask(columns)
    return caught.value


def test_records_need_the_default_fields_and_the_type() -> None:
    assert set(RECORD_FIELDS) - set(FIELDS_DEFAULT) == {"timestamp_type"}
    assert Record._fields == RECORD_FIELDS


ROWS = [
    {
        "offset": n,
        "timestamp": datetime.fromtimestamp(1 + n / 1_000, UTC),
        "key": key,
        "value": b"<v%d>" % n,
        "headers": pairs,
    }
    for n, (key, pairs) in enumerate(
        [(b"a", ()), (None, ((b"h", b"x"), (b"h", None))), (b"", ()), (b"d", ((b"i", b""),))] * 3
    )
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "t-0"
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0] if name != "offset"}
    with kseg.Log.open(path, mode="append", create=True) as opened:
        opened.append(columns)
    return path


@pytest.fixture
def columns(log: Path) -> RecordColumns:
    (found,) = kseg.Log.open(log).read()
    return found


def test_rows_are_dicts_by_place_by_slice_and_one_by_one(columns: RecordColumns) -> None:
    assert len(columns) == len(ROWS)
    assert columns.to_pylist() == list(columns) == ROWS
    assert [columns[0], columns[-1]] == [ROWS[0], ROWS[-1]]
    for part in (slice(1, 3), slice(None, 2), slice(-3, None), slice(5, 2), slice(9, 99)):
        assert columns[part].to_pylist() == ROWS[part]
        for name in ("key", "value", "headers"):
            assert columns[name][part].to_pylist() == [row[name] for row in ROWS[part]]
    assert [one.value for one in columns[1:3].records()] == [b"<v1>", b"<v2>"]
    assert columns.headers[-1] == ROWS[-1]["headers"]
    place = {"topic": "t", "partition": 3, "directory": "d"}
    assert columns.placed(**place)[1:2].to_pylist() == [place | ROWS[1]]


def test_bytes_are_those_of_the_block_or_of_each_column(columns: RecordColumns) -> None:
    part = columns[2:4]
    keys, values, headers = part.key, part.value, part.headers
    numbers = part.offset.nbytes + part.timestamp.nbytes
    strings = sum(
        array.nbytes
        for column in (keys, values, headers.keys, headers.values)
        for array in (column.offsets, column.data, column.validity)
        if array is not None
    )
    assert part.nbytes == numbers + strings + headers.offsets.nbytes
    assert columns.nbytes >= columns[:].nbytes > part.nbytes


def test_a_row_that_is_not_there_and_a_step_are_refused(columns: RecordColumns) -> None:
    for one in (columns, columns.key, columns.headers):
        for index in (len(ROWS), -len(ROWS) - 1):
            with pytest.raises(IndexError):
                one[index]
        with pytest.raises(ValueError, match="no step"):
            one[::2]


def test_columns_and_scans_become_frames(log: Path, columns: RecordColumns) -> None:
    wanted = [row["value"] for row in ROWS]
    for name in ("pandas", "polars"):
        pytest.importorskip(name)
        for source in (columns, kseg.scan(log)):
            assert list(getattr(source, f"to_{name}")()["value"]) == wanted


def test_each_shows_itself_in_one_line(log: Path, columns: RecordColumns) -> None:
    with kseg.Log.open(log) as opened:
        retention = kseg.plan_retention(opened)
    shown = [columns, columns.key, columns.headers, kseg.scan(log), retention]
    shown += [kseg.plan_recovery(log), kseg.plan_reindex(log), kseg.plan_truncation(log, 3)]
    for one in shown:
        assert repr(one).count("\n") == 0
        assert len(repr(one)) < 120 + len(str(log))
    assert repr(columns.key) == "BinaryColumn(12 values, 3 null, 6 bytes)"
    assert repr(kseg.scan(log, columns=("key",))) == f"Scan({str(log)!r}, columns=key)"


def test_notebooks_show_the_first_rows_escaped(log: Path, columns: RecordColumns) -> None:
    for one in (columns, kseg.scan(log)):
        html = one._repr_html_()
        assert html.count("<tr>") == 11
        assert "&lt;v0&gt;" in html
        assert "<v0>" not in html
