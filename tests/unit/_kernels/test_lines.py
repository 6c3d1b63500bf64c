"""The kernel for lines of JSON: it writes only where it was told that there is room."""

from __future__ import annotations

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
