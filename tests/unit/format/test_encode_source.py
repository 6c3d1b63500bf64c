"""Sources: what counts as columns of records, and what does not."""

from __future__ import annotations

import gc
import sys
from array import array
from typing import Any

import numpy as np
import pytest

from kseg._kernels.encode import Rows
from kseg.errors import InvalidRecordError
from kseg.format.encode import SOURCE_FIELDS, encode_batch, rows_of
from kseg.format.options import BatchOptions
from kseg.format.values import BinaryColumn, HeadersColumn
from tests.builders import batch, record
from tests.property.test_encode import binary

RECORDS = [
    record(b"a", key=b"k", headers=[(b"h", b"1"), (b"", None)], timestamp=5, offset=3),
    record(None, key=None, timestamp=-1, offset=4),
    record(b"", key=b"", headers=[(b"h", b"")], timestamp=7, offset=9),
]
PLAIN = batch(RECORDS, base_offset=3, leader_epoch=-1)
WHOLE: dict[str, Any] = {
    "offset": [3, 4, 9],
    "timestamp": [5, -1, 7],
    "key": [b"k", None, b""],
    "value": [b"a", None, b""],
    "headers": [[(b"h", b"1"), (b"", None)], [], [("h", b"")]],
}


def written(**fields: Any) -> bytes:
    return encode_batch({**WHOLE, **fields}, BatchOptions()).data


NUMBERS = {
    "a list": [3, 4, 9],
    "a tuple": (3, 4, 9),
    "a range of numbers": iter([3, 4, 9]),
    "array.array": array("q", [3, 4, 9]),
    "int64": np.array([3, 4, 9], np.int64),
    "int32": np.array([3, 4, 9], np.int32),
    "uint64": np.array([3, 4, 9], np.uint64),
    "the other byte order": np.array([3, 4, 9], ">i8"),
    "every second number": np.array([3, 0, 4, 0, 9, 0], np.int64)[::2],
}


@pytest.mark.parametrize("form", NUMBERS)
def test_offsets_may_be_any_integers(form: str) -> None:
    assert written(offset=NUMBERS[form]) == PLAIN


@pytest.mark.parametrize("form", [list, tuple, iter, binary])
def test_keys_and_values_may_be_sequences_or_a_column(form: Any) -> None:
    assert written(key=form([b"k", None, b""]), value=form([b"a", None, b""])) == PLAIN


def test_headers_may_be_dicts() -> None:
    assert written(headers=[{b"h": b"1", "": None}, {}, {"h": b""}]) == PLAIN


HEADERS = {
    "lists": WHOLE["headers"],
    "tuples": tuple(tuple(pairs) for pairs in WHOLE["headers"]),
    "a column": HeadersColumn(
        np.array([0, 2, 2, 3], np.int32), binary([b"h", b"", b"h"]), binary([b"1", None, b""])
    ),
    "a slice of a column": HeadersColumn(
        np.array([1, 3, 3, 4], np.int32),
        binary([b"other", b"h", b"", b"h", b"other"]),
        binary([b"", b"1", None, b"", b""]),
    ),
}


@pytest.mark.parametrize("form", HEADERS)
def test_headers_may_be_sequences_or_a_column(form: str) -> None:
    assert written(headers=HEADERS[form]) == PLAIN


MISSING = {
    "offset": [record(b"v", key=b"k", timestamp=9)],
    "timestamp": [record(b"v", key=b"k", timestamp=-1)],
    "key": [record(b"v", timestamp=9)],
    "value": [record(None, key=b"k", timestamp=9)],
    "headers": [record(b"v", key=b"k", timestamp=9)],
}


@pytest.mark.parametrize("name", SOURCE_FIELDS)
def test_a_field_that_is_missing_has_its_default(name: str) -> None:
    whole = {"offset": [0], "timestamp": [9], "key": [b"k"], "value": [b"v"], "headers": [[]]}
    del whole[name]
    plain = batch(MISSING[name], leader_epoch=-1)
    assert encode_batch(whole, BatchOptions()).data == plain
    assert encode_batch({**whole, name: None}, BatchOptions()).data == plain


@pytest.mark.parametrize("name", SOURCE_FIELDS)
@pytest.mark.parametrize("form", ["lists", "columns"])
@pytest.mark.parametrize("more", [-1, 1])
def test_columns_of_different_lengths_are_refused(name: str, form: str, more: int) -> None:
    source = dict(WHOLE)
    if form == "columns":
        source["key"], source["value"] = binary(WHOLE["key"]), binary(WHOLE["value"])
        source["headers"] = HEADERS["a column"]
    longer = {
        "offset": [3, 4, 9, 10],
        "timestamp": [1, 2, 3, 4],
        "key": [b"k"] * 4,
        "value": [b"v"] * 4,
        "headers": [[]] * 3 + [[("h", b"")]],
    }[name]
    wrong = longer if more == 1 else longer[-2:]
    source[name] = binary(wrong) if form == "columns" and name in ("key", "value") else wrong
    with pytest.raises(ValueError, match=r"values where \d are wanted"):
        rows_of(source)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no column": ({}, ValueError, "one column at least"),
    "only None": ({"key": None}, ValueError, "one column at least"),
    "a name that is no field": ({"valu": [b""]}, ValueError, "not valu"),
    "a float": ({"timestamp": [1.5]}, TypeError, "integer"),
    "floats": ({"timestamp": np.array([1.5])}, TypeError, "float64"),
    "narrow numbers in two dimensions": ({"offset": np.zeros((2, 2), np.int8)}, TypeError, "2 dim"),
    "numbers in two dimensions": ({"offset": np.zeros((2, 2), np.int64)}, ValueError, "8 bytes"),
    "text for a number": ({"offset": ["1"]}, TypeError, "integer"),
    "a number above 64 bits": ({"offset": [2**63]}, ValueError, "beyond 64 bits"),
    "a number below 64 bits": ({"offset": [-(2**63) - 1]}, ValueError, "beyond 64 bits"),
    "an unsigned number above 63 bits": (
        {"offset": np.array([2**63], np.uint64)},
        ValueError,
        "beyond 64 bits",
    ),
    "a header that is no pair": ({"headers": [[b"abc"]]}, ValueError, "unpack"),
    "headers that are no sequence": ({"headers": [5]}, TypeError, "iterable"),
    "values that are no sequence": ({"value": 5}, TypeError, "iterable"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_column_is_refused(name: str) -> None:
    source, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        rows_of(source)


WRONG_TYPES = {
    "a number": 7,
    "a bytearray": bytearray(b"x"),
    "a memoryview": memoryview(b"x"),
}


@pytest.mark.parametrize("wrong", WRONG_TYPES)
@pytest.mark.parametrize("field", ["key", "value", "header name", "header value"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_value_that_is_not_bytes_is_refused_with_its_record(
    wrong: str, field: str, magic: int
) -> None:
    bad = WRONG_TYPES[wrong]
    if field in ("key", "value"):
        source = {field: [b"fine", bad]}
    elif magic < 2:
        return
    else:
        pair = (bad, b"") if field == "header name" else (b"h", bad)
        source = {"headers": [[(b"h", b"")], [pair]]}
    with pytest.raises(TypeError, match=r"^record 1: .* neither bytes, text nor None"):
        encode_batch(source, BatchOptions(magic=magic))


@pytest.mark.parametrize("form", ["a list", "a column"])
def test_a_header_without_name_is_refused_with_its_record(form: str) -> None:
    headers: Any = [[(b"h", None)], [(None, b"")]]
    if form == "a column":
        names, values = binary([b"h", None]), binary([None, b""])
        headers = HeadersColumn(np.array([0, 1, 2], np.int32), names, values)
    with pytest.raises(InvalidRecordError, match="record 1: a header has no name"):
        encode_batch({"headers": headers}, BatchOptions())


# Columns that lie

LIES = {
    "begins in front of the data": [-1, 2, 4],
    "goes back": [0, 3, 2],
    "ends behind the data": [0, 2, 5],
    "begins behind the data": [5, 5, 5],
    "goes far": [0, 2, 2**31 - 1],
    "goes far back": [0, 2, -(2**31)],
}


def lying(ends: list[int]) -> BinaryColumn:
    return BinaryColumn(np.array(ends, np.int32), np.zeros(4, np.uint8), None, 0)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("field", ["key", "value", "names", "header values"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_offsets_that_do_not_fit_their_data_are_refused(lie: str, field: str, magic: int) -> None:
    bad, good = lying(LIES[lie]), lying([0, 1, 2])
    source: dict[str, Any] = {field: bad}
    if field in ("names", "header values"):
        if magic < 2:
            return
        pair = (bad, good) if field == "names" else (good, bad)
        source = {"headers": HeadersColumn(np.array([0, 1, 2], np.int32), *pair)}
    with pytest.raises(ValueError, match=r"record [01]: a column's offsets do not fit its data"):
        encode_batch(source, BatchOptions(magic=magic))


@pytest.mark.parametrize("ends", [[-1, 1, 2], [0, 2, 1], [0, 1, 3], [3, 3, 4], [0, 1, 2**31 - 1]])
def test_headers_that_are_not_there_are_refused(ends: list[int]) -> None:
    headers = HeadersColumn(np.array(ends, np.int32), lying([0, 1, 2]), lying([0, 1, 2]))
    with pytest.raises(ValueError, match=r"record [01]: a column's offsets do not fit its data"):
        encode_batch({"headers": headers}, BatchOptions())


BAD_ARRAYS = {
    "offsets of 64 bits": (np.zeros(2, np.int64), np.zeros(4, np.uint8), None),
    "unsigned offsets": (np.zeros(2, np.uint32), np.zeros(4, np.uint8), None),
    "offsets as floats": (np.zeros(2, np.float32), np.zeros(4, np.uint8), None),
    "offsets in the other order": (np.zeros(2, ">i4"), np.zeros(4, np.uint8), None),
    "offsets with gaps": (np.zeros(4, np.int32)[::2], np.zeros(4, np.uint8), None),
    "offsets in two dimensions": (np.zeros((1, 2), np.int32), np.zeros(4, np.uint8), None),
    "wide data": (np.zeros(2, np.int32), np.zeros(4, np.int16), None),
    "no offset at all": (np.zeros(0, np.int32), np.zeros(4, np.uint8), None),
    "too short a validity": (
        np.zeros(10, np.int32),
        np.zeros(4, np.uint8),
        np.zeros(1, np.uint8),
    ),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_arrays_of_another_kind_are_refused(name: str) -> None:
    offsets, data, validity = BAD_ARRAYS[name]
    with pytest.raises(ValueError, match=r"column|contiguous|validity|return >= 0"):
        rows_of({"value": BinaryColumn(offsets, data, validity, 0)})


# What rows keep


def test_rows_keep_what_they_were_made_from() -> None:
    value = bytes(1000)
    before = sys.getrefcount(value)
    values = [value]
    rows = rows_of({"value": values})
    del values
    gc.collect()
    assert sys.getrefcount(value) > before
    assert len(encode_batch(rows, BatchOptions()).data) > 1000
    del rows
    assert sys.getrefcount(value) == before


def test_rows_hold_their_arrays_in_place_and_let_them_go() -> None:
    times = array("q", [1, 2, 3])
    rows = Rows(3, None, times)
    with pytest.raises(BufferError):
        times.append(4)
    assert rows.length == 3
    del rows
    times.append(4)


def test_rows_are_refused_as_a_whole_where_one_column_is() -> None:
    times = array("q", [1, 2, 3])
    with pytest.raises(ValueError, match="values where"):
        Rows(3, None, times, (b"",) * 2)
    times.append(4)  # nothing holds it


def test_numbers_that_change_the_list_they_are_in_are_refused() -> None:
    class Sneaky:
        def __index__(self) -> int:
            numbers.append(7)
            return 1

    numbers: list[object] = [Sneaky(), 2]
    with pytest.raises(ValueError, match="changed while"):
        rows_of({"timestamp": numbers})
