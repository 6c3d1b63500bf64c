"""Records that are appended as they are, and what is said of what is none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import kseg

NOW_MS = 1_700_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kseg.Log]:
    path = tmp_path / "orders-0"
    with kseg.Log.open(path, mode="append", create=True, now_ms=lambda: NOW_MS) as log:
        yield log


def records_of(log: kseg.Log) -> list[tuple[Any, ...]]:
    return [(one.offset, one.timestamp, one.key, one.value) for one in log.records()]


FIRST: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "a column of text": ({"value": ["one", "two"]}, [(None, b"one"), (None, b"two")]),
    "columns": ({"key": ["k"], "value": [b"v"]}, [(b"k", b"v")]),
    "text and bytes and none": (
        {"value": ["é", b"\xff", None]},
        [(None, b"\xc3\xa9"), (None, b"\xff"), (None, None)],
    ),
    "pairs": ([("k", "v"), (None, b"w")], [(b"k", b"v"), (None, b"w")]),
    "pairs, one by one": ((pair for pair in [("k", "v")]), [(b"k", b"v")]),
    "nothing": ({"value": []}, []),
    "no pair": ([], []),
}


@pytest.mark.parametrize("name", FIRST)
def test_records_are_appended_with_the_clocks_time(log: kseg.Log, name: str) -> None:
    given, wanted = FIRST[name]
    assert log.append(given).record_count == len(wanted)
    assert records_of(log) == [(n, NOW_MS, *pair) for n, pair in enumerate(wanted)]


def test_records_that_were_read_get_new_offsets_and_keep_their_times(log: kseg.Log) -> None:
    time = datetime(2023, 1, 1, tzinfo=UTC)
    log.append({"value": ["a", "b", "c"], "timestamp": [time] * 3, "headers": [[("h", "x")]] * 3})
    (columns,) = log.read(
        offset=(1, None), columns=(*kseg.format.request.FIELDS_DEFAULT, "position")
    )
    log.append(columns)
    log.append(list(columns.records()))
    found = list(log.records())
    assert [one.offset for one in found] == list(range(7))
    assert {(one.time, one.headers) for one in found} == {(time, ((b"h", b"x"),))}


def test_options_say_how_batches_are_made(log: kseg.Log) -> None:
    log.append({"value": ["text"] * 9}, options=kseg.BatchOptions(compression="zstd"))
    (table,) = kseg.scan(log.path).batches()
    assert table[0].compression is kseg.Compression.ZSTD


def test_several_batches_are_appended_as_before(log: kseg.Log) -> None:
    assert log.append(kseg.encode_batches([("k", "v")] * 3, batch_records=1)).last_offset == 2


REFUSED: dict[str, tuple[Any, str]] = {
    "text": ("text", "append takes batches, or records: a frame"),
    "a list of texts": (["text"], "not a list of texts"),
    "a number": (5, "not int"),
    "one value for a column": (
        {"value": "text"},
        "value is a list with one value a record, not str",
    ),
    "a record of three": ([("k", "v", "w")], "record 0 is tuple of 3"),
    "a number among pairs": ([("k", "v"), 5], "record 1 is int"),
    "a dict for a value": ({"value": [{"a": 1}]}, "json.dumps makes text of other values"),
    "texts behind a record": ([{"value": b"v"}, "text"], "a list of dicts, or of pairs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_neither_batches_nor_records_is_told_what_is_wanted(
    log: kseg.Log, name: str
) -> None:
    given, text = REFUSED[name]
    with pytest.raises(TypeError, match=text):
        log.append(given)
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    "given",
    [
        pa.table({"key": ["a", None], "value": [b"1", b"2"]}),
        pl.DataFrame({"key": ["a", None], "value": ["1", "2"]}),
        [{"key": "a", "value": "1"}, {"value": b"2"}],
        [("a", "1"), (None, "2")],
    ],
    ids=["table", "frame", "dicts", "pairs"],
)
def test_frames_and_rows_become_records(log: kseg.Log, given: Any) -> None:
    log.append(given)
    log.append(kseg.scan(log.path))
    log.append(iter(log.read(offset=(0, 1))), batch_bytes=1)
    found = [(record.key, record.value) for record in log.records()]
    assert found == [(b"a", b"1"), (None, b"2"), (b"a", b"1"), (None, b"2"), (b"a", b"1")]


def test_options_for_a_batch_are_refused(log: kseg.Log) -> None:
    batch = kseg.encode_batch({"value": ["v"]})
    for given in (batch, [batch]):
        with pytest.raises(TypeError, match="options"):
            log.append(given, options=kseg.BatchOptions())
        with pytest.raises(TypeError, match="options"):
            log.append(given, batch_bytes=1)


def test_a_builder_takes_text_and_times_under_the_one_word() -> None:
    builder, other = kseg.BatchBuilder(compression="gzip"), kseg.BatchBuilder(compression=1)
    time = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert builder.has_room_for("k", "v", timestamp=time)
    builder.append("é", value="v", timestamp=time, headers=[("name", "text")])
    other.append("é".encode(), b"v", timestamp_ms=5_000, headers=[(b"name", b"text")])
    assert builder.build().data == other.build().data
    naive, again = datetime(1970, 1, 1, 0, 0, 5), kseg.BatchBuilder(compression="gzip")
    again.append("é", value="v", timestamp=naive, headers=[("name", "text")])
    assert again.build().data == other.build().data
