"""Lines of JSON, sound and spoilt: the kernel takes what Python's own parser takes, and as it does.

The second implementation is `plain_row`, over the standard library.
"""

from __future__ import annotations

import base64
import io
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kseg.cli.append_lines import AppendOptions, read_lines
from kseg.errors import InvalidRecordError

NOW_MS = 77
ENCODINGS = {
    "base64": (lambda data: base64.b64encode(data).decode(), st.binary(max_size=20)),
    "hex": (bytes.hex, st.binary(max_size=20)),
    "utf8": (bytes.decode, st.text(max_size=20).map(str.encode)),
}


class NoRecordError(Exception):
    """What the plain parser says of a line."""


def plain_row(line: str, encoding: str) -> Any:
    """The record of a line, None for none; by the rules, one after another."""
    if not line.strip(" \t\r"):
        return None
    try:
        row = json.loads(line.strip(" \t\r"), parse_constant=refuse)
    except ValueError as error:
        raise NoRecordError from error
    need(type(row) is dict)
    if row.get("control") is True:
        return None
    need("value" in row and row.get("valid") is not False)
    time = row.get("timestamp")
    need(time is None or (type(time) is int and -1 <= time < 2**63))
    headers = row.get("headers")
    need(headers is None or type(headers) is list)
    pairs = []
    for pair in headers or ():
        need(type(pair) is list and len(pair) == 2 and pair[0] is not None)
        pairs.append((plain_bytes(pair[0], "utf8"), plain_bytes(pair[1], encoding)))
    values = plain_bytes(row["value"], encoding), plain_bytes(row.get("key"), encoding)
    return (*values, NOW_MS if time is None else time, tuple(pairs))


def refuse(name: str) -> None:
    raise ValueError(name)


def need(holds: bool) -> None:
    if not holds:
        raise NoRecordError


def plain_bytes(text: Any, encoding: str) -> bytes | None:
    if text is None:
        return None
    need(type(text) is str)
    try:
        if encoding == "utf8":
            return text.encode()
        if encoding == "hex":
            need(not text or (text.isascii() and text.isalnum()))
            return bytes.fromhex(text)
        need(len(text) % 4 == 0)
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise NoRecordError from error


def taken(text: bytes, encoding: str) -> list[Any] | str:
    """The rows, or what is said of the line that is none."""
    options = AppendOptions(encoding=encoding, keep_timestamps=True)
    pieces = read_lines(io.BytesIO(text), options, clock=lambda: NOW_MS)
    try:
        return [
            row
            for piece in pieces
            for row in zip(
                piece.value, piece.key, piece.timestamp.tolist(), piece.headers, strict=True
            )
        ]
    except InvalidRecordError as error:
        return str(error)


def agree(text: str, encoding: str) -> None:
    """Both take the lines alike, or refuse the same one for a reason that Python's parser knows."""
    rows, refused = [], None
    for number, line in enumerate(text.split("\n"), 1):
        try:
            rows.append(plain_row(line, encoding))
        except NoRecordError:
            refused = number
            break
    found = taken(text.encode(), encoding)
    if refused is None:
        assert found == [row for row in rows if row is not None]
    else:
        assert isinstance(found, str)
        assert found.startswith(f"line {refused}: ")
        assert "nested" not in found


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str]:
    """Lines with every field, or few, or fields of any type; and the encoding they are in."""
    encoding = draw(st.sampled_from(sorted(ENCODINGS)))
    encode, given_bytes = ENCODINGS[encoding]
    values = st.none() | given_bytes.map(encode)
    wild = st.one_of(values, values, values, junk)
    row = st.fixed_dictionaries(
        {},
        optional={
            "value": wild,
            "key": wild,
            "timestamp": st.none() | st.integers(-2, 2**63) | junk,
            "headers": st.none() | st.lists(st.tuples(st.text(max_size=5), wild), max_size=3),
            "control": st.sampled_from([False, None, True]),
            "valid": st.sampled_from([True, None, False]),
            "other": junk,
        },
    )
    rows = draw(st.lists(row, max_size=4))
    ascii_only, gap = draw(st.booleans()), draw(st.sampled_from([",", " , "]))
    lines = [json.dumps(row, ensure_ascii=ascii_only, separators=(gap, ":")) for row in rows]
    return draw(st.sampled_from(["\n", "\r\n", "\n\n"])).join(lines), encoding


@given(drawn=texts())
@example(drawn=('{"value":"YQ==","headers":[["",""]]}', "base64"))
def test_lines_are_taken_as_python_s_own_parser_takes_them(drawn: tuple[str, str]) -> None:
    agree(*drawn)


@given(
    drawn=texts(),
    at=st.integers(0, 400),
    cut=st.integers(0, 3),
    put=st.sampled_from(
        ["", " ", '"', "\\", "[", "]", "{", "}", ",", ":", "0", "-", "=", "\\u", "\t"]
    ),
)
@example(drawn=('{"value":"\\ud83d\\ude00"}', "utf8"), at=16, cut=1, put="")
@example(drawn=('{"value":"", "value":"YQ=="}', "base64"), at=27, cut=1, put="")
def test_spoilt_lines_are_refused_as_python_s_own_parser_refuses_them(
    drawn: tuple[str, str], at: int, cut: int, put: str
) -> None:
    text, encoding = drawn
    at %= len(text) + 1
    agree(text[:at] + put + text[at + cut :], encoding)


@given(text=st.binary(max_size=60))
def test_any_bytes_at_all_are_rows_or_one_error(text: bytes) -> None:
    found = taken(b'{"value":"' + text + b'"}', "utf8")
    assert isinstance(found, list) or found.startswith("line ")
