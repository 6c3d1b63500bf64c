"""Columns, whoever made them, serve whatever takes columns; what was not read is named."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
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
from kseg.format.join import join_rows
from kseg.format.options import BatchOptions
from kseg.format.request import FIELDS_DEFAULT, Request
from kseg.format.take import take_rows
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
    (columns, *_rest) = kseg.scan(partition, fields=("offset", "key"))
    for error in (KsegError, KeyError, AttributeError):
        with pytest.raises(error, match=r"'value'.* was not read; name it in `fields`"):
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
