"""Lines of JSON to batches: what a line may say, how lines become batches, what is refused."""

from __future__ import annotations

import base64
import io
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kseg.cli import append as append_lines
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


UTF8 = AppendOptions(encoding="utf8", keep_timestamps=True)
HEX = AppendOptions(encoding="hex")
PLAIN = AppendOptions()

# ---- what a line may say -------------------------------------------------------------------------

TAKEN: dict[str, tuple[AppendOptions, str, Row]] = {
    "a value alone": (PLAIN, '{"value":"YWI="}', (b"ab", None, NOW_MS, ())),
    "a tombstone": (PLAIN, '{"value":null,"key":"aw=="}', (None, b"k", NOW_MS, ())),
    "empty is not null": (PLAIN, '{"value":"","key":""}', (b"", b"", NOW_MS, ())),
    "base64 of every length": (
        PLAIN,
        '{"value":"AAEC","key":"/+8="}',
        (b"\0\1\2", b"\xff\xef", NOW_MS, ()),
    ),
    "hex in both cases": (HEX, '{"value":"00fFaB"}', (b"\0\xff\xab", None, NOW_MS, ())),
    "text": (
        UTF8,
        '{"value":"h\u00e9 \U0001f600"}',
        ("h\u00e9 \U0001f600".encode(), None, NOW_MS, ()),
    ),
    "text with every escape": (
        UTF8,
        r'{"value":"\"\\\/\b\f\n\r\t\u0000\u00e9\u20AC\ud83d\ude00"}',
        ('"\\/\b\f\n\r\t\0\u00e9\u20ac\U0001f600'.encode(), None, NOW_MS, ()),
    ),
    "headers": (
        PLAIN,
        '{"headers":[["a","MQ=="],["a",null],["",""],["\u00e9\\n",""]],"value":""}',
        (b"", None, NOW_MS, ((b"a", b"1"), (b"a", None), (b"", b""), ("\u00e9\n".encode(), b""))),
    ),
    "headers of text": (
        UTF8,
        r'{"value":"","headers":[["n","\u0041"]]}',
        (b"", None, NOW_MS, ((b"n", b"A"),)),
    ),
    "no headers": (PLAIN, '{"value":"","headers":[]}', (b"", None, NOW_MS, ())),
    "null headers and key": (
        PLAIN,
        '{"value":"","headers":null,"key":null,"timestamp":null,"control":null,"valid":null}',
        (b"", None, NOW_MS, ()),
    ),
    "a time that is kept": (UTF8, '{"value":"","timestamp":5}', (b"", None, 5, ())),
    "no time, kept": (UTF8, '{"value":"","timestamp":-1}', (b"", None, -1, ())),
    "the last time there is": (
        UTF8,
        '{"value":"","timestamp":9223372036854775807}',
        (b"", None, 2**63 - 1, ()),
    ),
    "a time of zero, below zero": (UTF8, '{"value":"","timestamp":-0}', (b"", None, 0, ())),
    "a time that is not asked for": (
        PLAIN,
        '{"value":"","timestamp":"yesterday"}',
        (b"", None, NOW_MS, ()),
    ),
    "white space": (
        PLAIN,
        '\t { "headers" : [ [ "a" , "" ] , [ "b" , null ] ] , "value" : "" } \r',
        (b"", None, NOW_MS, ((b"a", b""), (b"b", None))),
    ),
    "other fields": (
        PLAIN,
        '{"offset":7,"x":[1,-0.5e+3,{"y":[[],{},"\\ud800"]},true,false,null],"value":"","valid":true}',
        (b"", None, NOW_MS, ()),
    ),
    "a field twice": (
        UTF8,
        '{"value":7,"key":"a","value":"b","key":"c"}',
        (b"b", b"c", NOW_MS, ()),
    ),
    "names with escapes": (
        UTF8,
        r'{"\u0076alue":"a","\u0074\u0069\u006d\u0065\u0073\u0074\u0061\u006d\u0070":6}',
        (b"a", None, 6, ()),
    ),
    "a control field that is no marker": (
        PLAIN,
        '{"value":"","control":false}',
        (b"", None, NOW_MS, ()),
    ),
    "thousands of digits in another field": (
        PLAIN,
        '{"value":"","x":' + "1" * 5000 + "}",
        (b"", None, NOW_MS, ()),
    ),
    "brackets in a string": (
        UTF8,
        '{"value":"' + r"\"[" * 70 + '"}',
        (b'"[' * 70, None, NOW_MS, ()),
    ),
    "sixty-four levels": (
        PLAIN,
        '{"value":"","x":' + "[" * 63 + "]" * 63 + "}",
        (b"", None, NOW_MS, ()),
    ),
}


@pytest.mark.parametrize("end", ["", "\n"], ids=["cut", "ended"])
@pytest.mark.parametrize("name", TAKEN)
def test_a_line_is_a_record(name: str, end: str) -> None:
    options, line, expected = TAKEN[name]
    assert read((line + end).encode(), options) == [expected]


def test_lines_are_told_apart_and_blank_ones_passed_over() -> None:
    text = b'\n{"value":"YQ=="}\r\n   \n\r\n{"value":"Yg=="}\n\n{"value":"Yw=="}'
    assert [row[0] for row in read(text)] == [b"a", b"b", b"c"]
    assert read(b"") == read(b"\n") == read(b" \t\r\n\n") == []


# ---- what is refused -----------------------------------------------------------------------------

REFUSED: dict[str, tuple[AppendOptions, str, str]] = {
    "no object": (PLAIN, "[]", "not a JSON object"),
    "no JSON": (PLAIN, "value", "not JSON: Expecting value at column 1"),
    "a byte order mark": (PLAIN, '\ufeff{"value":""}', "not JSON"),
    "cut short": (PLAIN, '{"value":"', "not JSON: Unterminated string"),
    "one on two lines": (PLAIN, '{"value":\n""}', "not JSON: Expecting value"),
    "not a number": (PLAIN, '{"value":"","x":NaN}', "NaN is no JSON"),
    "no value": (PLAIN, '{"key":"aw=="}', "no value; a tombstone says null"),
    "no field at all": (PLAIN, "{ }", "no value"),
    "a value of another type": (PLAIN, '{"value":1}', "value is neither a string nor"),
    "a key of another type": (PLAIN, '{"value":"","key":[]}', "key is neither a string"),
    "base64 without its end": (PLAIN, '{"value":"YQ"}', "value is not base64"),
    "base64 with too much": (PLAIN, '{"value":"YQ==YQ=="}', "value is not base64"),
    "base64 above ASCII": (PLAIN, '{"value":"YWI\u00e9"}', "value is not base64"),
    "half a byte of hex": (HEX, '{"value":"abc"}', "value is not hex"),
    "half a pair": (UTF8, r'{"value":"\ud83d"}', "value holds half a surrogate pair"),
    "a half and a letter": (UTF8, r'{"key":"\ud83d\u0041","value":""}', "key holds half"),
    "headers that are no list": (PLAIN, '{"value":"","headers":{}}', "not a list of"),
    "a header that is no pair": (PLAIN, '{"value":"","headers":["ab"]}', "a header is"),
    "a header of one": (PLAIN, '{"value":"","headers":[["a"]]}', "a header is"),
    "a header without a name": (PLAIN, '{"value":"","headers":[[null,""]]}', "its name a"),
    "a header of a number": (
        PLAIN,
        '{"value":"","headers":[["a",1]]}',
        "a header's value is neither a string nor null",
    ),
    "a header of no base64": (
        PLAIN,
        '{"value":"","headers":[["a","b"]]}',
        "a header's value is not base64",
    ),
    "half a name": (
        PLAIN,
        r'{"value":"","headers":[["\ud800",""]]}',
        "a header's name holds half a surrogate pair",
    ),
    "a time before none": (
        UTF8,
        '{"value":"","timestamp":-2}',
        "timestamp must be milliseconds, not below",
    ),
    "a time beyond 64 bits": (
        UTF8,
        '{"value":"","timestamp":9223372036854775808}',
        "timestamp must be",
    ),
    "a time with a fraction": (UTF8, '{"value":"","timestamp":5.0}', "timestamp must be"),
    "a time of text": (UTF8, '{"value":"","timestamp":"5"}', "timestamp must be"),
    "a time that is true": (UTF8, '{"value":"","timestamp":true}', "timestamp must be"),
    "a batch that failed its check": (
        PLAIN,
        '{"value":"","valid":false}',
        "valid is false: its batch did not match its checksum",
    ),
    "sixty-five levels": (
        PLAIN,
        '{"value":"","x":' + "[" * 64 + "]" * 64 + "}",
        "nested deeper than 64",
    ),
    "sixty-five levels in a value that is replaced": (
        PLAIN,
        '{"value":"","x":' + "[" * 64 + "]" * 64 + ',"x":1}',
        "nested deeper than 64",
    ),
    "levels without end": (PLAIN, "[" * 100_000, "not a JSON object|nested deeper than"),
    "digits without end": (
        UTF8,
        '{"value":"","timestamp":' + "1" * 5000 + "}",
        "timestamp must be",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_line_that_is_no_record_is_refused_by_its_number(name: str) -> None:
    options, line, said = REFUSED[name]
    good = '{"value":""}\n\n'
    with pytest.raises(InvalidRecordError, match=f"^line 3: .*({said})"):
        read((good + line + "\n" + good).encode(), options)


def test_bytes_that_are_no_text_are_refused_behind_the_faults_before_them() -> None:
    bad = b'{"value":"\xff"}\n'
    with pytest.raises(InvalidRecordError, match=r"^line 2: not UTF-8: byte 0xff"):
        read(b'{"value":""}\n' + bad + b"[]\n")
    with pytest.raises(InvalidRecordError, match=r"^line 1: not a JSON object"):
        read(b"[]\n" + bad)
    with pytest.raises(InvalidRecordError, match=r"^line 1: not UTF-8: byte 0xed"):
        read('{"value":"\ud800"}'.encode("utf-8", "surrogatepass"), UTF8)


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


@pytest.mark.parametrize("batch_bytes", [0, 2**29 + 1])
def test_a_size_that_no_batch_can_have_is_refused(batch_bytes: int) -> None:
    with pytest.raises(ValueError, match="batch_bytes"):
        AppendOptions(batch_bytes=batch_bytes)


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


def test_the_clock_is_asked_for_each_piece_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_lines, "_PIECE_BYTES", 1)
    monkeypatch.setattr(append_lines, "_PIECE_BATCHES", 0)
    times = iter(range(100, 200))
    text = line_of(0, timestamp=5) + line_of(1)
    found = read(text, replace(UTF8, encoding="base64"), clock=lambda: next(times))
    assert [row[2] for row in found] == [5, 101]


def test_what_only_the_format_refuses_is_told_by_its_line() -> None:
    text = line_of(0) + b"\n" + line_of(1) + line_of(2, headers=[["h", None]])
    old = AppendOptions(batch=BatchOptions(magic=1), batch_records=1)
    found = encode_lines(Trickle(text), old, base_offset=0, clock=lambda: NOW_MS)
    assert next(found).record_count == 1
    with pytest.raises(InvalidRecordError, match=r"^line 4: .* headers") as caught:
        list(found)
    assert caught.value.record_index is None


def test_no_lines_are_no_batches() -> None:
    for text in (b"", b"\n\n", b'{"control":true}\n'):
        assert list(encode_lines(io.BytesIO(text), UTF8, base_offset=0, clock=lambda: 0)) == []


def test_memory_does_not_grow_with_the_lines() -> None:
    def peak(count: int) -> int:
        text = line_of(1, x="y" * 200) * 500
        chunks = iter([text] * count)
        stream: Any = type("Source", (), {"read": lambda self, n: next(chunks, b"")})()
        tracemalloc.start()
        batches = encode_lines(stream, AppendOptions(), base_offset=0, clock=lambda: 0)
        assert sum(batch.record_count for batch in batches) == 500 * count
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    assert peak(40) < 2 * peak(4)
