"""Memory is used again only once no view of it is left."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from kseg._kernels.blocks import BYTES_KEPT_MAX, Blocks

LARGE = 1 << 20


def blocks(**how: Any) -> Blocks:
    """Blocks of memory from the heap, for pieces of one size."""
    return Blocks(lambda size: np.empty(size, np.uint8), **{"first_bytes": LARGE, **how})


def array(memory: Blocks, size: int = LARGE) -> np.ndarray[Any, Any]:
    """All of a block of so many bytes as numbers."""
    return np.ndarray(size // 8, np.int64, memory.take(size, size))


def test_memory_that_nobody_holds_is_used_again() -> None:
    memory = blocks()
    first = array(memory)
    address = first.ctypes.data
    del first
    assert array(memory, LARGE // 8).ctypes.data == address


@pytest.mark.parametrize(
    "hold",
    [
        lambda array: array,
        lambda array: array[10:20],
        lambda array: array[10:20].view(np.uint8)[::2],
        lambda array: memoryview(array)[5:],
        lambda array: {"column": array[:0]},
        lambda array: array.base,
    ],
    ids=[
        "the array",
        "a slice",
        "a view of a slice",
        "a memoryview",
        "an empty slice",
        "the block",
    ],
)
def test_memory_that_somebody_holds_is_left_alone(hold) -> None:  # type: ignore[no-untyped-def]
    memory = blocks()
    first = array(memory)
    start, end = first.ctypes.data, first.ctypes.data + first.nbytes
    held = hold(first)
    del first
    gc.collect()
    others = [array(memory) for _ in range(4)]
    assert all(not start <= other.ctypes.data < end for other in others)
    del held


def test_what_is_kept_is_bounded() -> None:
    memory = blocks()
    held = [array(memory, BYTES_KEPT_MAX // 4) for _ in range(8)]
    assert len(held) == 8
    assert LARGE < memory.kept_bytes <= BYTES_KEPT_MAX
    assert len(memory.take(3 * BYTES_KEPT_MAX, 1)) >= 3 * BYTES_KEPT_MAX
    assert memory.kept_bytes == 0 or held


def test_memory_that_is_used_once_goes_back_to_where_it_came_from() -> None:
    asked: list[Any] = []

    def fresh(size: int, filled: Any) -> Any:
        asked.append((size, filled))
        return np.empty(size, np.uint8)

    memory = blocks(fresh=fresh, growth=2, most=9 * LARGE)
    held = memory.take(5 * LARGE, 3 * LARGE, [(0, 7)])
    assert asked == [(5 * LARGE, [(0, 7)])]
    assert (memory.piece_bytes(), memory.kept_bytes) == (6 * LARGE, 0)
    del held
    assert memory.piece_bytes() == LARGE


def test_blocks_outlive_what_handed_them_out() -> None:
    held = array(blocks())
    gc.collect()
    held[:] = 7
    assert int(held.sum()) == 7 * len(held)


@pytest.mark.parametrize("given", [np.empty(7, np.uint8), np.empty(108, np.uint8)[1:101]])
def test_memory_that_does_not_fit_is_refused(given: Any) -> None:
    memory = Blocks(lambda _size: given, first_bytes=LARGE, growth=1, most=LARGE)
    with pytest.raises(ValueError, match="too small, or not aligned"):
        memory.take(100, 100)
    assert memory.piece_bytes() == LARGE


def test_memory_that_cannot_be_written_is_refused() -> None:
    with pytest.raises((BufferError, ValueError)):
        Blocks(lambda size: bytes(size), first_bytes=LARGE).take(100, 100)
