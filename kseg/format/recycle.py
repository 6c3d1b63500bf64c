"""Memory for columns that is used again once no column refers to it.

A reader gives away megabytes with every piece. Fresh pages cost more than the copying that fills
them, and the allocator hands such sizes back to the system as soon as a piece is dropped. So this
module remembers the arrays that columns are views of, and uses one again for the next piece once no
column refers to it. A column that the caller keeps keeps its memory: the next piece then gets a new
array.

A caller that keeps all pieces is told by that no memory comes back; see `kseg.format.workspace`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: Smaller arrays come from the heap without new pages.
BYTES_MIN: Final = 64 << 10
#: Larger ones, and more than so many in all, are not kept.
BYTES_KEPT_MAX: Final = 24 << 20


def _references_in_a_list() -> int:
    """What `sys.getrefcount` says in a loop over a list that alone holds its items."""
    for item in [np.empty(0, np.uint8)]:
        return sys.getrefcount(item)
    raise AssertionError("the list has an item")


#: It differs between interpreters: some lend references that others count.
_UNUSED: Final = _references_in_a_list()


class Recycler:
    """Hands out uninitialised arrays; belongs to one reader in one thread.

    Example:
        >>> recycler = Recycler()
        >>> first = recycler.empty(1 << 20, np.uint8)
        >>> address = first.ctypes.data
        >>> del first
        >>> recycler.empty(1 << 20, np.uint8).ctypes.data == address
        True
    """

    __slots__ = ("_kept", "_kept_bytes")

    def __init__(self) -> None:
        """Start with nothing."""
        self._kept: list[npt.NDArray[np.uint8]] = []
        self._kept_bytes = 0

    def empty(self, count: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
        """An array of `count` values, contents undefined, that shares memory with no other."""
        size = count * np.dtype(dtype).itemsize
        if size < BYTES_MIN:
            return np.empty(count, dtype)
        for memory in self._kept:
            if len(memory) >= size and sys.getrefcount(memory) == _UNUSED:
                return memory[:size].view(dtype)
        return self._fresh(size)[:size].view(dtype)

    @property
    def has_unused(self) -> bool:
        """Whether memory has come back that `empty` may use again."""
        return any(sys.getrefcount(memory) == _UNUSED for memory in self._kept)

    def _fresh(self, size: int) -> npt.NDArray[np.uint8]:
        """New memory, remembered if not too much; unused memory that is too small makes way."""
        memory = np.empty(size + size // 8 & ~7, np.uint8)
        self._kept = [kept for kept in self._kept if sys.getrefcount(kept) != _UNUSED]
        self._kept_bytes = sum(map(len, self._kept))
        if self._kept_bytes + len(memory) <= BYTES_KEPT_MAX:
            self._kept.append(memory)
        return memory
