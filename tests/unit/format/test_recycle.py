"""Memory is used again only once no view of it is left."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from kseg.format.recycle import BYTES_KEPT_MAX, BYTES_MIN, Recycler

LARGE = 1 << 20


def test_memory_that_nobody_holds_is_used_again() -> None:
    recycler = Recycler()
    first = recycler.empty(LARGE, np.uint8)
    address = first.ctypes.data
    del first
    again = recycler.empty(LARGE // 8, np.int64)
    assert again.dtype == np.int64
    assert len(again) == LARGE // 8
    assert again.ctypes.data == address


@pytest.mark.parametrize(
    "hold",
    [
        lambda array: array,
        lambda array: array[10:20],
        lambda array: array[10:20].view(np.uint8)[::2],
        lambda array: memoryview(array)[5:],
        lambda array: {"column": array[:0]},
    ],
    ids=["the array", "a slice", "a view of a slice", "a memoryview", "an empty slice"],
)
def test_memory_that_somebody_holds_is_left_alone(hold) -> None:  # type: ignore[no-untyped-def]
    recycler = Recycler()
    array = recycler.empty(LARGE, np.int64)
    start, end = array.ctypes.data, array.ctypes.data + array.nbytes
    held = hold(array)
    del array
    gc.collect()
    others = [recycler.empty(LARGE, np.int64) for _ in range(4)]
    assert all(not start <= other.ctypes.data < end for other in others)
    del held


def test_arrays_handed_out_together_are_apart() -> None:
    recycler = Recycler()
    for _ in range(5):
        arrays = [recycler.empty(LARGE, np.uint8) for _ in range(3)]
        for number, array in enumerate(arrays):
            array[:] = number
        assert [int(array[0]) for array in arrays] == [0, 1, 2]
        assert [int(array[-1]) for array in arrays] == [0, 1, 2]


def test_what_is_kept_is_bounded() -> None:
    recycler = Recycler()
    arrays = [recycler.empty(BYTES_KEPT_MAX // 4, np.uint8) for _ in range(8)]
    assert len(arrays) == 8
    assert sum(map(len, recycler._kept)) <= BYTES_KEPT_MAX
    assert len(recycler.empty(3 * BYTES_KEPT_MAX, np.uint8)) == 3 * BYTES_KEPT_MAX


def test_small_arrays_are_not_worth_remembering() -> None:
    recycler = Recycler()
    recycler.empty(BYTES_MIN - 1, np.uint8)
    assert recycler._kept == []
