"""Keys and values decoded: what each kind takes, what it refuses, and why."""

from __future__ import annotations

import json
import struct
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kseg
from kseg._kernels.json import VALUE_DEPTH_MAX, mark_not_json
from kseg.format.take import take_rows
from kseg.format.typed import KIND_NAMES, decode_column, decoded_fields, kind_of
from kseg.format.values import Kind, RecordColumns, binary_column

A_UUID = "0123abcd-89ef-4567-89ab-cdef01234567"

#: Of each kind: bytes as Kafka's serializers write them, and what they mean.
RIGHT: dict[Kind, list[tuple[bytes, Any]]] = {
    Kind.TEXT: [(b"", ""), (b"a\x00b", "a\x00b"), ("späť €😀".encode(), "späť €😀")],
    Kind.JSON: [
        (b"{}", {}),
        (
            b' [1, 2.5e3, null, true, "\\u00e4\\ud83d\\ude00"]\r\n\t ',
            [1, 2500.0, None, True, "ä😀"],
        ),
        (b'{"a": {"a": [[]]}}', {"a": {"a": [[]]}}),
        (b"-0.5", -0.5),
        (b'"\xc3\xa4"', "ä"),
        (b"null", None),
        (b"1" * 20, int("1" * 20)),
    ],
    Kind.INT16: [(b"\x80\x00", -32768), (b"\x7f\xff", 32767)],
    Kind.INT32: [(b"\x80\0\0\0", -(2**31)), (b"\0\0\0\x01", 1)],
    Kind.INT64: [(b"\x80" + b"\0" * 7, -(2**63)), (b"\xff" * 8, -1)],
    Kind.FLOAT: [(struct.pack(">f", 1.5), 1.5), (struct.pack(">f", float("-inf")), float("-inf"))],
    Kind.DOUBLE: [(struct.pack(">d", 5e-324), 5e-324), (struct.pack(">d", -0.1), -0.1)],
    Kind.UUID: [(A_UUID.encode(), UUID(A_UUID)), (A_UUID.upper().encode(), UUID(A_UUID))],
}
#: Bytes that are not of the kind, and the reason.
WRONG: dict[Kind, list[tuple[bytes, str]]] = {
    Kind.TEXT: [
        (b"ab\xff", "not UTF-8 at byte 2"),
        (b"\xed\xa0\x80", "not UTF-8 at byte 0"),  # half of a surrogate pair
        (b"\xc0\x80", "not UTF-8 at byte 0"),  # zero in two bytes
    ],
    Kind.JSON: [
        (b"", "empty, which is not JSON"),
        (b"NaN", "not JSON: NaN"),
        (b"-Infinity", "not JSON: -Infinity"),
        (b'{"a":1,}', "not JSON at character "),
        (b'{"a":1}{}', "not JSON at character 7: Extra data"),
        (b'"a\nb"', "not JSON at character 2: Invalid control character at"),
        (b"01", "not JSON at character 1: Extra data"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b"\xef\xbb\xbf{}", "not JSON at character 0: Unexpected UTF-8 BOM"),
        (b"[" * 5000 + b"]" * 5000, "JSON that is nested too deeply"),
        (b"x" * (1 << 20) + b"x", "not JSON"),
    ],
    Kind.INT16: [(b"", "int16 is 2 bytes, not 0"), (b"abc", "int16 is 2 bytes, not 3")],
    Kind.INT32: [(b"abc", "int32 is 4 bytes, not 3"), (b"\0" * 8, "int32 is 4 bytes, not 8")],
    Kind.INT64: [(b"1234567", "int64 is 8 bytes, not 7")],
    Kind.FLOAT: [(b"1.5", "float is 4 bytes, not 3")],
    Kind.DOUBLE: [(b"12345678.", "double is 8 bytes, not 9")],
    Kind.UUID: [
        (b"1-2-3-4-5", "not the text of a UUID"),
        (A_UUID.replace("-", "0").encode(), "not the text of a UUID"),
        (A_UUID.replace("a", "g").encode(), "not the text of a UUID"),
        (A_UUID[1:].encode() + b"-", "not the text of a UUID"),
    ],
}


@pytest.mark.parametrize("kind", Kind)
def test_what_is_of_a_kind_is_its_value_and_has_no_reason(kind: Kind) -> None:
    for nulls in ([], [None]):
        stored = [*nulls, *(value for value, _ in RIGHT[kind])]
        values, errors = decode_column(binary_column(stored), kind)
        assert values.to_pylist() == [*nulls, *(meant for _, meant in RIGHT[kind])]
        assert errors.to_pylist() == [None] * len(stored)
        assert (values.null_count, errors.null_count) == (len(nulls), len(stored))


@pytest.mark.parametrize("kind", Kind)
def test_what_is_not_of_a_kind_is_null_and_says_why(kind: Kind) -> None:
    stored = [RIGHT[kind][0][0], None, *(value for value, _ in WRONG[kind]), RIGHT[kind][1][0]]
    values, errors = decode_column(binary_column(stored), kind)
    nulls = [None] * (len(WRONG[kind]) + 1)
    assert values.to_pylist() == [RIGHT[kind][0][1], *nulls, RIGHT[kind][1][1]]
    found = errors.to_pylist()
    assert (found[:2], found[-1]) == ([None, None], None)
    for reason, (_, begin) in zip(found[2:-1], WRONG[kind], strict=True):
        assert reason.startswith(begin), reason
    array = values_array(values, errors)
    array.validate(full=True)  # no bytes that are not text are left anywhere
    assert array.field("v").null_count == len(nulls)


def values_array(values: Any, errors: Any) -> pa.StructArray:
    columns = RecordColumns(len(values), {"value": values, "value_error": errors})
    batch = columns.to_arrow()
    return pa.StructArray.from_arrays(batch.columns, ["v", "e"])


def strictly(value: bytes) -> bool:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(value.decode(), parse_constant=refuse)
    except ValueError:
        return False
    return True


PIECES = st.sampled_from(
    [
        *'{}[]:,"\\01-.e+ \n\ta\x1fä',
        *("null", "true", "false", "NaN", '"a"', '"\\u00e4"', "\\u12", "[1]", '{"a":0}'),
    ]
)


@given(st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=20))
def test_json_is_what_a_strict_reading_takes_it_for(texts: list[str]) -> None:
    stored = [text.encode() for text in texts]
    values, errors = decode_column(binary_column(stored), Kind.JSON)
    wanted = [strictly(value) for value in stored]
    assert [reason is None for reason in errors] == wanted
    assert list(values) == [
        json.loads(v) if ok else None for v, ok in zip(stored, wanted, strict=True)
    ]


def test_lists_within_each_other_are_followed_as_deep_as_is_said() -> None:
    deep = [b"[" * n + b"]" * n for n in (VALUE_DEPTH_MAX, VALUE_DEPTH_MAX + 1)]
    _, errors = decode_column(binary_column(deep), Kind.JSON)
    assert errors.to_pylist() == [None, "JSON that is nested too deeply"]


def test_a_number_of_more_digits_than_int_takes_is_still_a_number() -> None:
    values, errors = decode_column(binary_column([b"9" * 5000]), Kind.JSON)
    assert errors.to_pylist() == [None]
    assert str(values[0]) == "9" * 5000


def test_the_kernel_refuses_offsets_that_lead_outside_the_data() -> None:
    marks = np.zeros(1, np.uint8)
    for ends in ([0, 5], [-1, 2], [2, 1]):
        with pytest.raises(ValueError, match="lie outside"):
            mark_not_json(np.array(ends, np.int32), b"[]", marks)
    with pytest.raises(ValueError, match="not those of"):
        mark_not_json(np.zeros(3, np.int32), b"[]", marks)


def test_names_of_kinds_are_those_of_kafka_too() -> None:
    assert [kind_of(name) for name in ("String", "short", "integer", "long", "double")] == [
        Kind.TEXT,
        Kind.INT16,
        Kind.INT32,
        Kind.INT64,
        Kind.DOUBLE,
    ]
    with pytest.raises(ValueError, match=f"there are: {', '.join(KIND_NAMES)}"):
        kind_of("avro")


def test_reasons_stand_behind_what_they_are_about_unless_named() -> None:
    kinds = {"key": Kind.TEXT, "value": Kind.JSON}
    assert decoded_fields(("offset", "key", "value"), kinds) == (
        *("offset", "key", "key_error"),
        *("value", "value_error"),
    )
    named = ("value_error", "offset", "key_error", "value")
    assert decoded_fields(named, kinds) == named
    with pytest.raises(ValueError, match="'key', which is not among the fields"):
        decoded_fields(("value",), kinds)
    with pytest.raises(ValueError, match="'key_error' is there where decode names 'key'"):
        decoded_fields(("key", "key_error"), {})


def test_decoded_columns_have_rows_slices_and_one_line() -> None:
    columns = RecordColumns(3, {"value": binary_column([b"\0\1", None, b"\0\0\0"])})
    found = kseg.decode_columns(columns, {"value": "short"})
    rows = [
        {"value": 1, "value_error": None},
        {"value": None, "value_error": None},
        {"value": None, "value_error": "int16 is 2 bytes, not 3"},
    ]
    assert found.to_pylist() == rows
    assert (found[0], found[-1], found[1:].to_pylist()) == (rows[0], rows[2], rows[1:])
    assert repr(found.value) == "TypedColumn(int16, 3 values, 2 null)"
    assert take_rows(found, np.array([2, 0])).to_pylist() == [rows[2], rows[0]]
    assert "int16 is 2 bytes" in found._repr_html_()
    assert found.to_arrow().schema.field("value").type == pa.int16()
    assert found.to_pandas()["value_error"].tolist()[2] == rows[2]["value_error"]
    assert not found.value.values.flags.writeable
