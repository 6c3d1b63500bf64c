"""Lines that the tool writes are exact: read back they give the bytes that were written."""

from __future__ import annotations

import csv
import io
import json
from binascii import a2b_base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg._kernels import text as _text
from kseg.cli.append import AppendOptions, read_lines
from kseg.cli.rows import RECORD_FIELDS, RowWriter, Style, csv_head, record_rows
from kseg.format.columns import decode
from kseg.format.encode import encode_batch
from kseg.format.header import scan
from kseg.format.options import BatchOptions
from kseg.format.request import Request

NASTY = (b'say "hi"', b"\xff\xfe\x00", b"\xed\xa0\x80", b"\x1b[31m\n\r\t", b"\0", b'"', b"\\", b"")
PARTS = st.sampled_from(NASTY) | st.binary(max_size=12) | st.text(max_size=6).map(str.encode)
BYTES = st.lists(PARTS, max_size=3).map(b"".join)
VALUES = st.none() | BYTES
Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]
HEADERS = st.lists(st.tuples(BYTES, VALUES), max_size=3)
ROWS = st.lists(st.tuples(VALUES, VALUES, HEADERS), min_size=1, max_size=5)
NAMES = ("offset", "timestamp", "key", "value", "headers")


def columns_of(rows: list[Row]) -> Any:
    """The columns of a batch with these records."""
    names = ("key", "value", "headers")
    data = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    data["timestamp"] = [0] * len(rows)
    batch = encode_batch(data, BatchOptions(), base_offset=0)
    data = memoryview(batch.data)
    (columns,) = decode(data, scan(data), Request(columns=NAMES))
    return columns


def written(rows: list[Row], style: Style, buffer_bytes: int) -> tuple[bytes, int]:
    columns = columns_of(rows)
    out = bytearray()
    fields = tuple(field for field in RECORD_FIELDS if field.name in NAMES)
    if style.form == "csv":
        out += csv_head(fields, style)
    writer = RowWriter(out.extend, buffer_bytes)
    writer.rows(record_rows(columns, style, fields), len(columns))
    return bytes(out), writer.replaced


def read_back(text: bytes, encoding: str) -> list[Row]:
    found: list[Row] = []
    options = AppendOptions(encoding=encoding)
    for piece in read_lines(io.BytesIO(text), options, clock=lambda: 0):
        for row in range(len(piece)):
            column = piece["headers"]
            span = range(int(column.offsets[row]), int(column.offsets[row + 1]))
            headers = [(column.keys[at] or b"", column.values[at]) for at in span]
            found.append((piece["key"][row], piece["value"][row], headers))
    return found


@pytest.mark.parametrize("encoding", ["base64", "hex", "utf8"])
@given(rows=ROWS, buffer_bytes=st.sampled_from([256, 1 << 16]))
def test_json_lines_give_the_same_bytes_when_they_are_read_back(
    encoding: str, rows: list[Row], buffer_bytes: int
) -> None:
    text, replaced = written(rows, Style("jsonl", encoding), buffer_bytes)
    assert read_back(text, encoding) == rows
    assert replaced == 0
    for line in text.splitlines():
        json.loads(line)


def is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("encoding", ["raw", "utf8"])
@given(rows=ROWS, buffer_bytes=st.sampled_from([256, 1 << 16]))
def test_headers_in_csv_are_json_and_what_is_no_text_is_counted(
    encoding: str, rows: list[Row], buffer_bytes: int
) -> None:
    text, replaced = written(rows, Style("csv", encoding), buffer_bytes)
    found = list(csv.DictReader(io.StringIO(text.decode(), newline="")))
    for row, line in zip(rows, found, strict=True):
        pairs = json.loads(line["headers"])
        names = [a2b_base64(n["base64"]) if isinstance(n, dict) else n.encode() for n, _ in pairs]
        assert names == [name for name, _ in row[2]]
        values = [None if value is None else value.decode(errors="replace") for _, value in row[2]]
        assert [value for _, value in pairs] == values
    everything = [v for key, value, headers in rows for v in (key, value, *(h for _, h in headers))]
    assert replaced == sum(not is_text(value) for value in everything)


def test_offsets_outside_their_data_are_refused() -> None:
    import numpy as np

    with pytest.raises(ValueError, match="outside their data"):
        _text.count_not_utf8(np.array([0, 9], np.int32), b"abc", 0, 1)
