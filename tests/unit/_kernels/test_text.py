"""The text kernels: every encoding against Python's own, buffers too small, templates that lie."""

from __future__ import annotations

import base64
import datetime
import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kseg._kernels import text as _text

AWKWARD = [
    b"",
    b"plain",
    b'quote " backslash \\ slash /',
    bytes(range(256)),
    bytes(range(32)) + b"\x7f",
    "Grüße, 世界 𐍈".encode(),
    b"cut \xe4\xb8",
    b"cut \xf0\x90\x8d",
    b"\xc0\x80 overlong \xe0\x80\x80 \xf0\x80\x80\x80",
    b"\xed\xa0\x80 surrogate \xf4\x90\x80\x80 beyond \xf5",
    b"\xe4\xb8A\xf0\x90\x8dB\xf0\x90C\xc2",
    b"\x1b[31mred\x1b[0m\x07",
    "csi \x9b31m nel \x85".encode(),
    "rlo \u202e lri \u2066 ls \u2028 ps \u2029 alm \u061c lrm \u200e".encode(),
    b"12345678" * 4 + b'"' + b"12345678",
]


def binary(values: list[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """A binary column in Arrow layout: offsets, data, validity."""
    offsets = np.zeros(len(values) + 1, np.int32)
    offsets[1:] = np.cumsum([len(value or b"") for value in values])
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    if None not in values:
        return offsets, data, None
    present = np.array([value is not None for value in values])
    return offsets, data, np.packbits(present, bitorder="little")


def rows(
    pieces: tuple, count: int, *, size: int = 1 << 16, mask: np.ndarray | None = None
) -> bytes:
    """All rows of a template, through a buffer of `size` bytes."""
    out = bytearray(size)
    text = b""
    row = 0
    while row < count:
        end = _text.write_rows(pieces, row, count, out, mask)
        assert end.written or end.next_row == count, "the buffer is too small for one row"
        text += out[: end.written]
        row = end.next_row
    return text


def one(style: int, values: list[bytes | None], null: bytes = b"null") -> list[str]:
    """Each value alone on its line."""
    pieces = ((_text.BYTES, b"", null, style, *binary(values)), (_text.TEXT, b"\n"))
    return rows(pieces, len(values)).decode().split("\n")[:-1]


def test_utf8_never_writes_what_could_steer_a_terminal() -> None:
    steering = [chr(point) for point in (*range(32), *range(0x7F, 0xA0))]
    steering += list(
        "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2069"
    )
    for line in one(_text.UTF8, [*AWKWARD, "".join(steering).encode()]):
        assert not set(line) & set(steering)


def test_every_pair_of_bytes_decodes_as_python_does() -> None:
    values = [bytes((first, second)) for first in range(256) for second in range(256)]
    expected = [value.decode("utf-8", "replace") for value in values]
    assert [json.loads(line) for line in one(_text.UTF8, list(values))] == expected


def test_csv_tells_null_from_empty() -> None:
    assert one(_text.BASE64 | _text.CSV, [None, b"", b"x"], b"") == ["", '""', '"eA=="']


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integers_of_every_width_print_as_python_prints_them(dtype: type) -> None:
    info = np.iinfo(dtype)
    values = [info.min, info.min + 1, -101, -100, -10, -1, 0, 1, 9, 10, 99, 100, 101, info.max]
    column = np.array([max(info.min, value) for value in values]).astype(dtype)
    text = rows(((_text.INT, b"", b"", column, None), (_text.TEXT, b"\n")), len(column))
    assert text.decode().split() == [str(value) for value in column.tolist()]


def test_a_sentinel_is_null_or_takes_its_lead_with_it() -> None:
    column = np.array([5, -1], np.int64)
    shown = ((_text.INT, b"h=", b"null", column, -1), (_text.TEXT, b";"))
    hidden = ((_text.INT, b"h=", None, column, -1), (_text.TEXT, b";"))
    assert rows(shown, 2) == b"h=5;h=null;"
    assert rows(hidden, 2) == b"h=5;;"


def test_an_enum_outside_its_names_takes_the_last() -> None:
    column = np.array([-1, 0, 1, 2, -2, 100, 127, -128], np.int8)
    pieces = ((_text.ENUM, b" ", None, column, (b"none", b"zero", b"one", b"other"), -1),)
    assert rows(pieces, 8) == b" none zero one other other other other other"


def test_times_are_iso_8601_as_python_writes_them() -> None:
    generator = np.random.default_rng(7)
    low = -62_135_596_800_000  # year 1, where Python begins
    high = 253_402_300_799_999
    edges = [
        low,
        high,
        0,
        -2,
        1,
        951_782_400_000,
        951_868_799_999,
        951_868_800_000,
        4_107_542_400_000,
    ]
    column = np.concatenate([edges, generator.integers(low, high, 2000)]).astype(np.int64)
    text = rows(((_text.TIME, b"", b"-", column), (_text.TEXT, b"\n")), len(column))
    epoch = datetime.datetime(1970, 1, 1)
    for value, line in zip(column.tolist(), text.decode().split(), strict=True):
        moment = epoch + datetime.timedelta(milliseconds=value)
        assert line == moment.isoformat(timespec="milliseconds") + "Z"


def test_times_outside_four_digit_years_stay_numbers() -> None:
    values = [
        2**63 - 1,
        -(2**63),
        253_402_300_800_000,
        -62_167_219_200_001,
        -1,
        -62_167_219_200_000,
    ]
    text = rows(((_text.TIME, b"", b"-", np.array(values)), (_text.TEXT, b"\n")), len(values))
    expected = [*map(str, values[:4]), "-", "0000-01-01T00:00:00.000Z"]
    assert text.decode().split() == expected


HEADERS = [[], [(b"a", b"1")], [(b"a", None), (b"a", b""), (b'q"\x1b\xff', b'v"')]]


def headers_piece(style: int, null: bytes | None = b"[]") -> tuple:
    """The HEADERS above as a piece."""
    flat = [item for items in HEADERS for item in items]
    offsets = np.cumsum([0, *map(len, HEADERS)]).astype(np.int32)
    key_offsets, key_data, _ = binary([key for key, _ in flat])
    values = binary([value for _, value in flat])
    return (_text.HEADERS, b"", null, style, offsets, key_offsets, key_data, *values)


@example(values=[*AWKWARD, None], style=_text.BASE64, size=1700)
@example(values=[*AWKWARD, None], style=_text.HEX, size=1700)
@example(values=[*AWKWARD, None], style=_text.UTF8, size=1700)
@given(
    values=st.lists(st.none() | st.binary(max_size=80) | st.text(max_size=40).map(str.encode)),
    style=st.sampled_from([_text.BASE64, _text.HEX, _text.UTF8]),
    size=st.integers(600, 3000),
)
def test_any_values_through_any_buffer_read_back(
    values: list[bytes | None], style: int, size: int
) -> None:
    decode = {
        _text.BASE64: lambda value: base64.b64encode(value).decode(),
        _text.HEX: bytes.hex,
        _text.UTF8: lambda value: value.decode("utf-8", "replace"),
    }[style]
    pieces = ((_text.BYTES, b"", b"null", style, *binary(values)), (_text.TEXT, b"\n"))
    lines = rows(pieces, len(values), size=size).split(b"\n")[:-1]
    assert [json.loads(line) for line in lines] == [
        None if value is None else decode(value) for value in values
    ]


#: What ends a run of plain bytes, of one style or another.
ENDS = (b'"', b"\\", b"\n", b"\r", b"\t", b"\x01", b"\x7f", b"\xc3\xa9", b"\xff")
TEXTS = (
    _text.UTF8,
    _text.UTF8 | _text.CSV,
    _text.UTF8 | _text.BARE | _text.JAVA,
    _text.RAW,
    _text.RAW | _text.CSV,
    _text.RAW | _text.BARE | _text.JAVA,
    _text.BASE64,
)


@pytest.mark.parametrize("style", TEXTS)
def test_vectors_write_what_the_portable_forms_write(style: int) -> None:
    plain = b"abcdefghijklmnopqrstuvwxyz" * 3
    values = [plain[:size] for size in range(70)]
    values += [plain[:at] + end + plain[at:40] for end in ENDS for at in range(40)]
    values += [b"".join(ENDS[(at * step) % len(ENDS)] for at in range(30)) for step in range(1, 9)]
    try:
        _text.use_vectors(False)
        portable = one(style, values)
    finally:
        _text.use_vectors(True)
    assert one(style, values) == portable


def test_what_lies_behind_a_value_has_no_part_in_it() -> None:
    values = [bytes([65 + size % 26]) * size for size in range(40)] + [b'"' * 20]
    texts = [f'"{value.decode()}"' for value in values[:-1]] + ['"' + '\\"' * 20 + '"']
    assert one(_text.UTF8, values) == texts


@given(
    runs=st.lists(st.tuples(st.integers(1, 90), st.integers(-2, 2), st.booleans()), max_size=12),
    masked=st.booleans(),
    size=st.integers(600, 3000),
)
def test_rows_that_repeat_are_those_written_one_by_one(
    runs: list[tuple[int, int, bool]], masked: bool, size: int
) -> None:
    seldom = np.array([value for count, value, _ in runs for _ in range(count)], np.int16)
    count = len(seldom)
    steps = np.arange(count, dtype=np.int64) * 7
    kept = np.array([kept for count, _, kept in runs for _ in range(count)], np.bool_)
    mask = kept ^ (steps % 3 == 0) if masked else None
    pieces = (
        (_text.INT, b"a=", b"-", seldom, -1),
        (_text.ENUM, b" b=", b"", kept, (b"no", b"yes"), 0),
        (_text.INT, b" c=", b"", steps, None),
        (_text.TEXT, b" d"),
        (_text.TIME, b" e=", b"never", seldom.astype(np.int64)),
        (_text.TEXT, b"\n"),
    )
    written = rows(pieces, count, size=size, mask=mask)
    chosen = [row for row in range(count) if mask is None or mask[row]]
    whole = [bytearray(600) for _ in chosen]
    ends = [
        _text.write_rows(pieces, row, row + 1, out) for row, out in zip(chosen, whole, strict=True)
    ]
    assert written == b"".join(out[: end.written] for out, end in zip(whole, ends, strict=True))


@example(
    [sign * 10**power + step for sign in (1, -1) for power in range(19) for step in (-1, 0, 1)]
)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_any_integers_read_back(values: list[int]) -> None:
    pieces = ((_text.INT, b" ", b"", np.array(values, np.int64), None),)
    assert rows(pieces, len(values)).decode().split() == [str(value) for value in values]


def test_a_row_that_does_not_fit_is_not_begun() -> None:
    pieces = ((_text.BYTES, b"", b"", _text.HEX, *binary([b"x" * 100])),)
    out = bytearray(b"." * 150)
    assert _text.write_rows(pieces, 0, 1, out) == (0, 0)
    assert out == b"." * 150


@pytest.mark.parametrize("style", [_text.BASE64, _text.HEX, _text.UTF8])
@pytest.mark.parametrize("size", [64, 65, 70, 200])
def test_a_value_encoded_in_parts_equals_it_encoded_at_once(style: int, size: int) -> None:
    for value in AWKWARD:
        out = bytearray(size)
        text = b""
        left = memoryview(value)
        while True:
            end = _text.encode_bytes(left, style, True, out)
            text += out[: end.written]
            left = left[end.used :]
            if not left:
                break
            assert end.used
        assert text.decode() == one(style, [value])[0][1:-1]


def flat(offsets: list[int], data: bytes, validity: np.ndarray | None = None) -> tuple:
    return _text.BYTES, b"", b"", _text.HEX, np.array(offsets, np.int32), data, validity


def numbers(column: np.ndarray) -> tuple:
    return _text.INT, b"", None, column, None


#: A piece, so many rows of it, and the word of the refusal.
LYING = {
    "offsets beyond the data": (flat([0, 9], b"four"), 1, "offsets"),
    "offsets that go back": (flat([3, 1], b"four"), 1, "offsets"),
    "offsets below zero": (flat([-1, 2], b"four"), 1, "offsets"),
    "too few offsets": (flat([0], b""), 1, "rows"),
    "validity too short": (flat([*range(10)], b"x" * 9, np.zeros(1, np.uint8)), 9, "validity"),
    "big-endian numbers": (numbers(np.zeros(3, ">i8")), 3, "column"),
    "floats": (numbers(np.zeros(3)), 3, "column"),
    "two dimensions": (numbers(np.zeros((3, 3), np.int64)), 3, "column"),
    "too few numbers": (numbers(np.zeros(2, np.int64)), 3, "column"),
    "headers past their items": (
        (*headers_piece(_text.HEX)[:4], np.array([0, 99], np.int32), *headers_piece(_text.HEX)[5:]),
        1,
        "offsets",
    ),
}


@pytest.mark.parametrize("name", LYING)
def test_pieces_that_lie_are_refused(name: str) -> None:
    piece, count, word = LYING[name]
    with pytest.raises(ValueError, match=word):
        _text.write_rows((piece,), 0, count, bytearray(100_000))


def test_a_template_has_a_bounded_number_of_pieces() -> None:
    with pytest.raises(ValueError, match="at most"):
        _text.write_rows(((_text.TEXT, b""),) * 49, 0, 1, bytearray(10))
