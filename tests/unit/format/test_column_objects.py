"""Columns as objects that people look at: rows, slices, lists, frames, one line each."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from kseg.format.values import RecordColumns

ROWS = [
    {"offset": n, "timestamp": 1_000 + n, "key": key, "value": b"<v%d>" % n, "headers": pairs}
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
    (found,) = kseg.scan(log)
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


def test_slices_can_be_written_and_handed_on(columns: RecordColumns) -> None:
    again = columns[3:6]
    assert kseg.encode_batch(again).record_count == 3
    assert again.to_arrow()["key"].to_pylist() == [row["key"] for row in ROWS[3:6]]
    assert not again.key.data.flags.writeable


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
    assert repr(kseg.scan(log, fields=("key",))) == f"Scan({str(log)!r}, fields=key)"


def test_notebooks_show_the_first_rows_escaped(log: Path, columns: RecordColumns) -> None:
    for one in (columns, kseg.scan(log)):
        html = one._repr_html_()
        assert html.count("<tr>") == 11
        assert "&lt;v0&gt;" in html
        assert "<v0>" not in html
