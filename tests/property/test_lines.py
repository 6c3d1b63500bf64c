"""Lines of JSON, sound and spoilt: the kernel takes what Python's own parser takes, and as it does.

The second implementation is in `tests.property.lines`.
"""

from __future__ import annotations

import base64
import json

from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.lines import agree, taken

ENCODINGS = {
    "base64": (lambda data: base64.b64encode(data).decode(), st.binary(max_size=20)),
    "hex": (bytes.hex, st.binary(max_size=20)),
    "utf8": (bytes.decode, st.text(max_size=20).map(str.encode)),
}

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
