"""The kernel for lines of JSON: it writes only where it was told that there is room."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

from kseg._kernels import lines as _lines


def arrays(lines: int, size: int, width: int | None = None) -> dict[str, Any]:
    width = max(lines, size // _lines.HEADER_BYTES_MIN) if width is None else width
    return {
        "offsets": np.zeros((4, width + 1), np.int32),
        "bytes_out": np.empty((4, size), np.uint8),
        "validity": np.zeros((4, (width + 7) // 8), np.uint8),
        "header_offsets": np.zeros(lines + 1, np.int32),
        "timestamps": np.empty(lines, np.int64),
        "numbers": np.empty(lines, np.int64),
        "controls": np.empty(lines, np.int64),
    }


TEXT = b'{"value":"","headers":[["",""],["",""]]}\n'
NARROW: dict[str, dict[str, Any]] = {
    "offsets for the lines": {"offsets": np.zeros((4, 1), np.int32)},
    "offsets for the headers": {"offsets": np.zeros((4, len(TEXT) // 7), np.int32)},
    "columns": {"offsets": np.zeros((3, 100), np.int32)},
    "bits": {"validity": np.zeros((4, 0), np.uint8)},
    "bytes": {"bytes_out": np.zeros((4, len(TEXT) - 1), np.uint8)},
    "header offsets": {"header_offsets": np.zeros(1, np.int32)},
    "controls": {"controls": np.zeros(0, np.int64)},
    "line numbers": {"numbers": np.zeros(0, np.int64)},
    "an encoding": {"encoding": 3},
}


@pytest.mark.parametrize("name", NARROW)
def test_the_kernel_refuses_arrays_too_small(name: str) -> None:
    given = {"encoding": 0, "keep_timestamps": False, "now_ms": 0, **arrays(1, len(TEXT))}
    assert _lines.parse_lines(TEXT, **given).headers == 2
    with pytest.raises(ValueError, match=r"column|room|fewer|encoding"):
        _lines.parse_lines(TEXT, **{**given, **NARROW[name]})


def test_the_kernel_reads_no_more_lines_than_there_is_room_for() -> None:
    given = {"encoding": 0, "keep_timestamps": False, "now_ms": 0}
    end = _lines.parse_lines(TEXT * 3, **given, **arrays(2, 3 * len(TEXT)))
    assert (end.rows, end.lines, end.faulty) == (2, 2, False)
    assert _lines.parse_lines(b"", **given, **arrays(0, 0)).rows == 0


NESTED = {
    "lists": b"[" * 512 + b"]" * 512,
    "objects": b'{"a":' * 512 + b"1" + b"}" * 512,
    "both": b'[{"a":' * 256 + b"0" + b"}]" * 256,
    "one too many": b"[" * 513 + b"]" * 513,
    "an end that is another's": b"[" * 511 + b"{" + b"]" * 512,
    "an end too few": b"[" * 512 + b"]" * 511,
    "an end too many": b"[" * 511 + b"]" * 512,
    "a comma without a value": b"[" * 511 + b"[1,]" + b"]" * 511,
    "a list behind an object": b'[{"a":{}},[{}],[],{"b":[1,{"c":[]}]} , 2]',
    "a name without a value": b'{"a":{"b"}}',
    "a value without a name": b"[{1}]",
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_json_is_followed_on_a_small_stack(name: str) -> None:
    text, marks, before = NESTED[name], np.zeros(1, np.uint8), threading.stack_size()
    ends = np.array([0, len(text)], np.int32)
    threading.stack_size(48 << 10)
    try:
        thread = threading.Thread(target=_lines.mark_not_json, args=(ends, text, marks))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    try:
        json.loads(text)
        sound = name != "one too many"  # deeper than is followed
    except ValueError:
        sound = False
    assert marks[0] == (not sound)
