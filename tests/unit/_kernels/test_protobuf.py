"""The kernel that looks at Protobuf messages; `tests/unit/decode` has what it finds in them."""

from __future__ import annotations

import numpy as np
import pytest

from kseg._kernels.protobuf import mark_messages


def test_plain_messages_are_told_from_others_and_from_large_ones() -> None:
    # One message: field 1 is a number from 0 to 9, field 2 such a message, repeated.
    fields = np.array([[1, 1, 0, 0, 0, 9, 0, 0], [2, 6, -1, 0, 0, 0, 0, 0]], np.int64)
    firsts, widths, numbers = np.array([0, 2]), np.array([3]), np.zeros(0, np.int64)
    rows = [
        b"",
        b"\x08\x09",
        b"\x08\x0a",
        b"\x08",
        b"\x12\x02\x08\x01",
        b"\x12\x00" * 9,
        b"\x18\x05",
    ]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    marks = np.full(len(rows), 9, np.uint8)
    table = (fields, firsts, widths, numbers)
    assert mark_messages(offsets, b"".join(rows), *table, 1000, marks) == len(rows)
    assert marks.tolist() == [0, 0, 1, 1, 0, 0, 0]
    # Too many values beside the others, then alone.
    assert mark_messages(offsets, b"".join(rows), *table, 24, marks) == 5
    assert mark_messages(offsets[5:], b"".join(rows), *table, 24, marks[5:]) == 2
    assert marks.tolist() == [0, 0, 1, 1, 0, 2, 0]


def test_the_kernel_refuses_arrays_that_do_not_fit() -> None:
    offsets, data, marks = np.zeros(2, np.int32), b"", np.zeros(1, np.uint8)
    fields = np.array([[1, 5, 0, 0, 0, 0, 0, 0]], np.int64)
    firsts, widths, numbers = np.array([0, 1]), np.array([1]), np.zeros(0, np.int64)
    mark_messages(offsets, data, fields, firsts, widths, numbers, 8, marks)
    with pytest.raises(ValueError, match="offsets are not those of"):
        mark_messages(offsets[:1], data, fields, firsts, widths, numbers, 8, marks)
    far = np.array([0, 1], np.int32)
    with pytest.raises(ValueError, match="outside their data"):
        mark_messages(far, data, fields, firsts, widths, numbers, 8, marks)
    for column, value in ((2, 1024), (3, 1), (3, -1), (6, -1), (7, 1)):
        wrong = fields.copy()
        wrong[0, column] = value
        with pytest.raises(ValueError, match="does not hold together"):
            mark_messages(offsets, data, wrong, firsts, widths, numbers, 8, marks)
    for wrong in (np.array([0, 2]), np.array([1, 1]), np.array([0])):
        with pytest.raises(ValueError, match="does not hold together"):
            mark_messages(offsets, data, fields, wrong, widths, numbers, 8, marks)
