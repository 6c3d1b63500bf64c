"""A file that is read by ranges, several of them ahead of its reader.

Reading one batch costs one small request. A reader that continues gets blocks that double up to
`BLOCK_BYTES`, and the more it has read, the more blocks are requested ahead: at most `AHEAD_BYTES`.
A few bytes behind the furthest reader stay in memory. If threads read side by side, and one of them
needs dropped bytes, more bytes stay from then on: at most `BEHIND_BYTES`. A jump starts a new walk.
A file has at most `_WALKS` of them, which share `AHEAD_BYTES`; a walk without a reader is given up.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from threading import Lock
from typing import Final, NamedTuple

from kseg.errors import KsegError
from kseg.files.mapping import MappedFile
from kseg.stores.store import Store, StoredObject

#: The first request for a place: a batch or two.
FIRST_BYTES: Final = 256 << 10
#: Requests of a long walk.
BLOCK_BYTES: Final = 8 << 20
#: The most bytes that are requested ahead of a reader: four requests of a long walk.
AHEAD_BYTES: Final = 32 << 20
#: Bytes behind the furthest reader that stay in memory: at first, and for many threads.
_BEHIND_FIRST: Final = 1 << 20
BEHIND_BYTES: Final = 64 << 20
#: A read further behind the bytes in memory is a jump.
_GAP_BYTES: Final = 24 << 20
_AHEAD_TIMES: Final = 4
_WALKS: Final = 2
#: Blocks that a walk asks for while another is not read, until that one is given up.
_IDLE_BLOCKS: Final = 8
_THREADS: Final = 5


#: Bytes of a block, and why those after them cannot be had; None if they are all of it.
Fetched = tuple[memoryview, KsegError | None]


class _Block(NamedTuple):
    """Bytes from `start` to `end` of a file, here or on their way."""

    start: int
    end: int
    data: Future[Fetched]

    def lacks(self, position: int) -> bool:
        """Whether a fault has ended the block before a position; False while it is being read."""
        if not self.data.done() or self.data.cancelled() or self.data.exception() is not None:
            return False
        data, fault = self.data.result()
        return fault is not None and position - self.start >= len(data)

    def part(self, position: int, end: int) -> memoryview:
        """Its bytes from `position` to `end`, without those outside of it."""
        data, fault = self.data.result()
        if fault is not None and min(end, self.end) - self.start > len(data):
            raise fault
        return data[max(position - self.start, 0) : end - self.start]


class _Walk:
    """The blocks of one reader, one after the other.

    From `begin` to `end`; `first` and `furthest` are its first and its furthest position so far.
    So many bytes behind `furthest` as `behind` says stay in memory. `step` is the size of the next
    block. `idle` counts the blocks that other walks have asked for since the last read.
    """

    __slots__ = ("begin", "behind", "blocks", "end", "first", "furthest", "idle", "step")

    def __init__(self, begin: int, first: int) -> None:
        self.blocks: deque[_Block] = deque()
        self.begin = self.end = begin
        self.first = self.furthest = first
        self.step = FIRST_BYTES
        self.behind = _BEHIND_FIRST
        self.idle = 0

    def covers(self, position: int) -> bool:
        """Whether a read at a position continues this walk, or is a little behind it."""
        first = self.blocks[0].start - _GAP_BYTES if self.blocks else self.begin
        if not max(first, self.begin) <= position <= self.end:
            return False
        here = (block for block in self.blocks if block.start <= position < block.end)
        return not any(block.lacks(position) for block in here)


class RangedFile(MappedFile):
    """A file of a known size, read by ranges; never mapped. Subclasses fetch."""

    __slots__ = ("_closed", "_lock", "_pool", "_walks")

    def __init__(self, path: str, size: int) -> None:
        """Ask for nothing yet."""
        super().__init__(path, -1, "never")
        self.size = size
        self._lock: Final = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._walks: list[_Walk] = []
        self._closed = False

    def _fetch(self, start: int, end: int) -> Fetched:
        """Read the bytes of a block that `_bounds` has computed.

        Raises:
            KsegError, OSError: they cannot be had.
        """
        raise NotImplementedError

    def _bounds(self, start: int, end: int) -> tuple[int, int]:
        """The block to request for these bytes; it may be larger."""
        return start, end

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed

    @property
    def descriptor(self) -> None:
        """No kernel reads it by a descriptor."""
        return

    def refresh(self) -> int:
        """The size, which does not change."""
        return self.size

    def read(self, position: int, size: int) -> memoryview:
        """Bytes from a position, fewer only where the file ends.

        Raises:
            ValueError: `position` or `size` is negative, or the file is closed.
            KsegError, OSError: the bytes cannot be had.
        """
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if position < 0 or size < 0:
            raise ValueError(f"position {position} and size {size} must not be negative")
        end = min(position + size, self.size)
        if position >= end:
            return memoryview(b"")
        with self._lock:
            walk, blocks = self._request_blocks(position, end)
        try:
            parts = [block.part(position, end) for block in blocks]
        except CancelledError:  # the walk was given up meanwhile
            return self.read(position, size)
        except BaseException:
            with self._lock:  # the next read requests it again
                self._walks = [other for other in self._walks if other is not walk]
            raise
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _request_blocks(self, position: int, end: int) -> tuple[_Walk, list[_Block]]:
        """The walk for a read, and its blocks with the bytes; requests blocks ahead of it."""
        walk = next((open_walk for open_walk in self._walks if open_walk.covers(position)), None)
        if walk is None:
            walk = _Walk(self._bounds(position, end)[0], position)
            for old_walk in self._walks[_WALKS - 1 :]:
                _cancel(old_walk)
            self._walks = [walk, *self._walks[: _WALKS - 1]]
        walk.idle, walk.furthest, blocks = 0, max(walk.furthest, position), walk.blocks
        if not blocks:  # nothing else is requested meanwhile, so no thread is needed
            self._request_block(walk, end - walk.end, here=True)
        while position < blocks[0].start:  # a thread is further behind than any was before
            walk.behind = min(walk.furthest - position + BLOCK_BYTES, BEHIND_BYTES)
            end_before = blocks[0].start
            blocks.appendleft(self._block(max(position, end_before - BLOCK_BYTES), end_before))
        while walk.end < end:
            self._request_block(walk, 0)
        ahead = min(AHEAD_BYTES // len(self._walks), _AHEAD_TIMES * (position - walk.first))
        while walk.end < min(self.size, self.wanted_end) and walk.end - end < ahead:
            self._request_block(walk, 0)
        while len(blocks) > 1 and blocks[0].end <= walk.furthest - walk.behind:
            blocks.popleft()
        return walk, [block for block in blocks if block.end > position and block.start < end]

    def _request_block(self, walk: _Walk, least: int, *, here: bool = False) -> None:
        """Request the next block of a walk, of at least so many bytes; `here`: in this thread.

        Up to `wanted_end`, which a reader has announced, blocks get larger, then they stay small.
        """
        is_ahead = walk.end < self.wanted_end
        end = min(walk.end + max(walk.step if is_ahead else FIRST_BYTES, least), self.size)
        if is_ahead:
            end = min(end, max(self.wanted_end, walk.end + least))
        walk.blocks.append(self._block(walk.end, end, here=here))
        walk.end, walk.step = walk.blocks[-1].end, min(2 * walk.step, BLOCK_BYTES)
        for other in self._walks:
            if other is not walk:
                other.idle += 1
            if other.idle > _IDLE_BLOCKS:
                _cancel(other)
        self._walks = [open_walk for open_walk in self._walks if open_walk.idle <= _IDLE_BLOCKS]

    def _block(self, start: int, end: int, *, here: bool = False) -> _Block:
        """Request some bytes, in a thread of the pool or in this one."""
        start, end = self._bounds(start, end)
        if here:
            data: Future[Fetched] = Future()
            data.set_result(self._fetch(start, end))
        else:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "kseg-read-ahead")
            data = self._pool.submit(self._fetch, start, end)
        return _Block(start, end, data)

    def close(self) -> None:
        """Release the threads; a second call does nothing."""
        self._closed = True
        for walk in self._walks:
            _cancel(walk)
        self._walks = []
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def __del__(self) -> None:
        """Close a file that its user left open, as an abandoned generator does."""
        if not getattr(self, "_closed", True):
            self.close()


def _cancel(walk: _Walk) -> None:
    for block in walk.blocks:
        block.data.cancel()


class StoredFile(RangedFile):
    """An object of a store, as it was when it was described."""

    __slots__ = ("_store", "_stored")

    def __init__(self, store: Store, stored: StoredObject) -> None:
        """Ask for nothing yet."""
        super().__init__(stored.url, stored.size)
        self._store: Final = store
        self._stored: Final = stored

    def _fetch(self, start: int, end: int) -> Fetched:
        return self._store.read(self._stored, start, end), None
