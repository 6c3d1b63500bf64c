"""One growing buffer for inflated bytes: batch after batch goes into it, a piece's worth.

An arena owns plain memory and knows nothing of codecs. It doubles as bytes are really written, and
keeps its memory between pieces so that its pages stay warm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kseg.errors import LimitExceededError

if TYPE_CHECKING:
    import numpy.typing as npt

NO_CEILING = 2**62
_NOTHING = memoryview(b"")

_CAPACITY_FIRST = 1 << 16
#: A larger buffer is given back on `clear`, so that one huge batch does not hold memory for good.
CAPACITY_KEPT_MAX = 64 << 20


class Arena:
    """A growable byte buffer with a ceiling; not for use by two threads at once.

    Attributes:
        used: bytes written so far; set it back to drop the last ones.
        ceiling: `used` never passes this; `NO_CEILING` by default.

    Example:
        >>> arena = Arena()
        >>> arena.append(b"abc")
        >>> bytes(arena.view()), arena.used
        (b'abc', 3)
    """

    __slots__ = ("_bytes", "_view", "ceiling", "used")

    def __init__(self) -> None:
        """Start empty; memory is taken with the first write."""
        self.used = 0
        self.ceiling = NO_CEILING
        self._adopt(np.empty(0, np.uint8))

    @property
    def capacity(self) -> int:
        """Bytes held, used or not."""
        return len(self._bytes)

    @property
    def room(self) -> int:
        """Bytes that may still be written below the ceiling."""
        return self.ceiling - self.used

    def claim(self, size: int) -> None:
        """Refuse a size that does not fit below the ceiling.

        Raises:
            LimitExceededError: `size` bytes more would pass it.
        """
        if size > self.ceiling - self.used:
            raise LimitExceededError(
                f"inflates beyond the limit, by {size - self.room} bytes or more"
            )

    def reserve(self, size: int) -> None:
        """Make sure that `size` bytes can follow `used` without growing again."""
        if size > len(self._bytes) - self.used:
            capacity = max(_CAPACITY_FIRST, 2 * len(self._bytes), self.used + size)
            grown = np.empty(capacity, np.uint8)
            grown[: self.used] = self._bytes[: self.used]
            self._adopt(grown)

    def free(self, size: int) -> memoryview:
        """Writable space for exactly `size` bytes behind `used`; `commit` says how many it took."""
        end = self.used + size
        if end > len(self._bytes):
            self.reserve(size)
        return self._view[self.used : end]

    def commit(self, size: int) -> None:
        """Count `size` bytes of the space last lent by `free` as used, ceiling permitting."""
        used = self.used + size
        if used > self.ceiling:
            self.claim(size)
        self.used = used

    def append(self, data: bytes | memoryview) -> None:
        """Copy `data` behind what is there, ceiling permitting."""
        size = len(data)
        start, end = self.used, self.used + size
        if end > self.ceiling:
            self.claim(size)
        if end > len(self._bytes):
            self.reserve(size)
        self._view[start:end] = data
        self.used = end

    def view(self) -> memoryview:
        """The used bytes, read only; they stay until `clear`, also when the arena grows."""
        return self._view[: self.used].toreadonly() if self.used else _NOTHING

    def array(self) -> npt.NDArray[np.uint8]:
        """The used bytes as uint8[used], read only, under the same terms as `view`."""
        array = self._bytes[: self.used]
        array.flags.writeable = False
        return array

    def clear(self) -> None:
        """Forget the bytes; ordinary amounts of memory are kept for the next piece."""
        self.used = 0
        if len(self._bytes) > CAPACITY_KEPT_MAX:
            self._adopt(np.empty(0, np.uint8))

    def _adopt(self, array: npt.NDArray[np.uint8]) -> None:
        self._bytes = array
        self._view: memoryview = array.data
