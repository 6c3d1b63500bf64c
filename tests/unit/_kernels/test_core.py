"""Values from two sources gathered into one column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kseg import _core

FIRST, SECOND = b"abcdef", b"ghi"


def arguments(spans: list[tuple[int, int, int]]) -> dict[str, Any]:
    total = sum(max(size, 0) for *_, size in spans)
    return {
        "spans": np.array(spans, np.int64).reshape(-1, 3),
        "ends": np.empty(len(spans) + 1, np.int32),
        "data": np.empty(total + 64, np.uint8),
        "valid": np.zeros((len(spans) + 7) // 8, np.uint8),
    }


def test_values_come_from_either_source_in_order() -> None:
    given = arguments([(0, 4, 2), (1, 0, 3), (0, 0, -1), (1, 3, 0), (0, 0, 1)])
    _core.gather(FIRST, SECOND, **given)
    assert given["ends"].tolist() == [0, 2, 5, 5, 5, 6]
    assert given["data"][:6].tobytes() == b"efghia"
    assert given["valid"].tolist() == [0b11011]
    _core.gather(b"", b"", **arguments([]))


@pytest.mark.parametrize(
    "span", [(0, 5, 2), (0, -1, 2), (1, 0, 4), (1, 4, 1), (0, 2**63 - 1, 2), (0, 0, 2**62)]
)
def test_a_span_outside_of_its_source_is_refused(span: tuple[int, int, int]) -> None:
    given = arguments([(0, 0, 6)]) | {"spans": np.array([span], np.int64)}
    with pytest.raises(ValueError, match="outside its source"):
        _core.gather(FIRST, SECOND, **given)


@pytest.mark.parametrize(
    "change",
    [
        {"spans": np.zeros((2, 2), np.int64)},
        {"ends": np.zeros(2, np.int32)},
        {"data": np.zeros(63, np.uint8)},
        {"data": np.zeros(65, np.uint8)},
        {"valid": np.zeros(1, np.uint8)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_outputs_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    given = arguments([(0, 0, 2), *[(0, 0, 0)] * 8])
    with pytest.raises(ValueError, match=r"shape|length|room"):
        _core.gather(FIRST, SECOND, **given | change)
