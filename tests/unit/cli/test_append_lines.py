"""Lines of JSON to batches: what a line may say, how lines become batches, what is refused."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kseg.cli.append import AppendOptions, encode_lines, read_lines
from kseg.errors import InvalidRecordError, LimitExceededError
from kseg.format.options import BatchOptions
from kseg.format.values import RecordColumns
from tests import reference

NOW_MS = 1_760_000_000_123
Row = tuple[bytes | None, bytes | None, int, tuple[tuple[bytes, bytes | None], ...]]


def rows_of(pieces: Iterator[RecordColumns]) -> list[Row]:
    """Value, key, time and headers of each record."""
    return [
        row
        for piece in pieces
        for row in zip(
            piece.value, piece.key, piece.timestamp_ms.tolist(), piece.headers, strict=True
        )
    ]


def read(text: bytes, options: AppendOptions | None = None, **given: Any) -> list[Row]:
    given.setdefault("clock", lambda: NOW_MS)
    return rows_of(read_lines(io.BytesIO(text), options or AppendOptions(), **given))


HEX = AppendOptions(encoding="hex")
PLAIN = AppendOptions()

# ---- what is refused -----------------------------------------------------------------------------

#: What the standard library says of them differs between its releases.
REFUSED: dict[str, tuple[AppendOptions, str, str]] = {
    "no JSON": (PLAIN, "value", "not JSON: Expecting value at column 1"),
    "a byte order mark": (PLAIN, '\ufeff{"value":""}', "not JSON"),
    "cut short": (PLAIN, '{"value":"', "not JSON: Unterminated string"),
    "one on two lines": (PLAIN, '{"value":\n""}', "not JSON: Expecting value"),
    "base64 without its end": (PLAIN, '{"value":"YQ"}', "value is not base64"),
    "base64 with too much": (PLAIN, '{"value":"YQ==YQ=="}', "value is not base64"),
    "base64 above ASCII": (PLAIN, '{"value":"YWI\u00e9"}', "value is not base64"),
    "half a byte of hex": (HEX, '{"value":"abc"}', "value is not hex"),
    "a header of no base64": (
        PLAIN,
        '{"value":"","headers":[["a","b"]]}',
        "a header's value is not base64",
    ),
    "levels without end": (PLAIN, "[" * 100_000, "not a JSON object|nested deeper than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_line_that_is_no_record_is_refused_by_its_number(name: str) -> None:
    options, line, said = REFUSED[name]
    good = '{"value":""}\n\n'
    with pytest.raises(InvalidRecordError, match=f"^line 3: .*({said})"):
        read((good + line + "\n" + good).encode(), options)


@pytest.mark.parametrize("longest", [13, 14])
@pytest.mark.parametrize(
    "tail", [b"", b"\n", b'\n{"value":""}\n'], ids=["cut", "ended", "followed"]
)
def test_lines_are_bounded_to_the_byte(longest: int, tail: bytes) -> None:
    line = '{"value":"\u00e9"}'.encode()  # 14 bytes
    options = AppendOptions(encoding="utf8", line_bytes_max=longest)
    if longest == 14:
        assert read(line + tail, options)[0][0] == "\u00e9".encode()
    else:
        with pytest.raises(LimitExceededError, match=r"^line 1 is longer than 13 bytes"):
            read(line + tail, options)


class Endless:
    """One empty line, then blanks for ever."""

    given = 0

    def read(self, size: int) -> bytes:
        self.given += size
        return b"\n" if self.given == size else b" " * size


def test_a_line_without_end_is_not_taken_into_memory() -> None:
    stream: Any = Endless()
    with pytest.raises(LimitExceededError, match="line 2 is longer than"):
        list(read_lines(stream, PLAIN, clock=lambda: NOW_MS))
    assert stream.given < 2 * AppendOptions().line_bytes_max


# ---- lines to batches ----------------------------------------------------------------------------


def line_of(number: int, **more: Any) -> bytes:
    value = base64.b64encode(b"value %d" % number).decode()
    return json.dumps({"value": value, "key": "aw==", **more}).encode() + b"\n"


class Trickle(io.BytesIO):
    """Gives a few bytes at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, 37))


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("limit", [{"batch_bytes": 300}, {"batch_records": 7}, {}])
def test_batches_depend_on_the_lines_not_on_how_they_arrive(limit: Any, headers: bool) -> None:
    some = {"headers": [["h", "dg=="]]}
    text = b"".join(line_of(n, **(some if headers and n % 9 == 8 else {})) for n in range(100))
    options = AppendOptions(**limit)
    given = dict(base_offset=40, clock=lambda: NOW_MS)
    whole = list(encode_lines(io.BytesIO(text), options, **given))
    assert list(encode_lines(Trickle(text), options, **given)) == whole
    assert [batch.base_offset for batch in whole[1:]] == [
        batch.last_offset + 1 for batch in whole[:-1]
    ]
    assert (whole[0].base_offset, whole[-1].last_offset) == (40, 139)
    if "batch_bytes" in limit:
        assert all(len(batch) <= 300 for batch in whole)
    if "batch_records" in limit:
        assert [batch.record_count for batch in whole] == [7] * 14 + [2]
    records = [
        record
        for batch in reference.walk(b"".join(batch.data for batch in whole)).batches
        for record in reference.records(batch)
    ]
    assert [record.value for record in records] == [b"value %d" % n for n in range(100)]
    assert [record.offset for record in records] == list(range(40, 140))
    assert {record.timestamp for record in records} == {NOW_MS}


def test_what_only_the_format_refuses_is_told_by_its_line() -> None:
    text = line_of(0) + b"\n" + line_of(1) + line_of(2, headers=[["h", None]])
    old = AppendOptions(batch=BatchOptions(magic=1), batch_records=1)
    found = encode_lines(Trickle(text), old, base_offset=0, clock=lambda: NOW_MS)
    assert next(found).record_count == 1
    with pytest.raises(InvalidRecordError, match=r"^line 4: .* headers") as caught:
        list(found)
    assert caught.value.record_index is None
