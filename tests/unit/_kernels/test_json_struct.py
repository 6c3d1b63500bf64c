"""The kernel that reads JSON into columns; `tests/unit/decode` has what it takes and refuses."""

from __future__ import annotations

import numpy as np
import pytest

from kseg._kernels.avro import K_BYTES, K_INT64, K_STRUCT, Columns
from kseg._kernels.json_struct import TWICE, TYPE, decode_json

#: A struct of a number "a" and a text "b": kind, size, nullable, first child, children, bounds.
COLUMNS = np.array(
    [
        [K_STRUCT, 0, 1, 0, 2, 0, 0],
        [K_INT64, 8, 1, 0, 0, -(2**63), 2**63 - 1],
        [K_BYTES, 0, 1, 0, 0, 0, 0],
    ],
    np.int64,
)
KIDS, ENDS, ORDER = np.array([1, 2], np.int32), np.array([0, 0, 1, 2], np.int32), [0, 1]


def run(
    *payloads: bytes | None, **changed: object
) -> tuple[Columns, dict[int, tuple[int, int, int]]]:
    columns = Columns(np.zeros((1, 5), np.int32), KIDS, np.zeros(0, np.int32), COLUMNS)
    faults: dict[int, tuple[int, int, int]] = {}
    given = {
        "offsets": np.cumsum([0, *(len(each or b"") for each in payloads)], dtype=np.int64),
        "wanted": np.array([each is not None for each in payloads], np.uint8),
        "ends": ENDS,
        "order": np.array(ORDER, np.int32),
        **changed,
    }
    data = b"".join(each or b"" for each in payloads)
    offsets, wanted, ends, order = given.values()
    decode_json(columns, offsets, data, wanted, b"ab", ends, order, faults)  # type: ignore[arg-type]
    return columns, faults


def test_rows_lie_in_columns_and_faults_have_their_places() -> None:
    columns, faults = run(b'{"b": "x\\n", "a": 7}', None, b'{"a": "7"}', b'{"a": 1, "a": 1}', b"{}")
    assert faults == {2: (TYPE, 1, 6), 3: (TWICE, 1, 10)}
    assert bytes(columns.column(0)[3]) == bytes([1, 0, 0, 0, 1])
    count, data, _, valid = columns.column(1)
    assert (count, np.frombuffer(data, np.int64).tolist()) == (5, [7, 0, 0, 0, 0])
    assert bytes(valid) == bytes([1, 0, 0, 0, 0])
    text, ends = map(bytes, columns.column(2)[1:3])
    assert (text, np.frombuffer(ends, np.int32).tolist()) == (b"x\n", [0, 2, 2, 2, 2, 2])


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not ascend within the data"):
        run(b"{}", offsets=np.array([0, 3], np.int64))
    with pytest.raises(ValueError, match="differ in number"):
        run(b"{}", wanted=np.zeros(2, np.uint8))
    with pytest.raises(ValueError, match="differ in number"):
        run(b"{}", ends=ENDS[:3])
    with pytest.raises(ValueError, match="the order of names"):
        run(b"{}", order=np.zeros(3, np.int32))
