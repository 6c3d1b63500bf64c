"""Memory for the columns of pieces, used again once no column refers to it.

A reader gives away megabytes with every piece. Fresh pages cost more than the copying that fills
them, and the allocator hands such sizes back to the system as soon as a piece is dropped. So a
block that no column refers to any more goes back to where it came from, and the next piece gets it.
A column that the caller keeps keeps its block: the next piece then gets another one.

The memory itself is made by the caller's functions; none is allocated here.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport INT64_MAX

cpdef enum:
    # Smaller memory comes from the heap without new pages.
    BYTES_MIN = 64 << 10
    # Larger memory, and more than so much in all, is not kept.
    BYTES_KEPT_MAX = 24 << 20


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class Block:
    """The memory of one piece: a buffer of bytes, contents undefined; its views keep it alive.

    It comes from `Blocks.take`.
    """

    def __dealloc__(self):
        if self.home is None:  # it was never filled in
            return
        cdef object memory = <object>self.memory.obj
        PyBuffer_Release(&self.memory)
        self.home._used_count -= 1
        self.home._used_bytes -= self.size
        if self.kept:
            self.home._unused.append(memory)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.memory.buf, self.memory.len, 0, flags)

    def __len__(self):
        """Its bytes."""
        return self.memory.len

    cdef uint8_t *start(self) noexcept nogil:
        return <uint8_t *>self.memory.buf


@cython.final
@cython.auto_pickle(False)
cdef class Blocks:
    """Hands out blocks; belongs to one reader in one thread at a time.

    It counts the bytes in use, so it can distinguish a caller that keeps all from one that lets go.
    """

    def __cinit__(self):
        self._unused = []
        self.rows_a_byte = 1 / 64.0
        self.headers_a_byte = 1 / 256.0

    def __init__(self, empty, *, int64_t first_bytes, fresh=None, int64_t large_bytes=INT64_MAX,
                 int64_t again_bytes=0, int64_t growth=0, int64_t most=0, int64_t least_kept=0):
        """Start with nothing.

        Args:
            empty: gives an array of so many bytes, contents undefined, to be used again.
            first_bytes: bytes of bodies in a piece.
            fresh: gives memory for large pieces, used once; takes bytes, and stretches of them that
                will be filled for sure.
            large_bytes: a piece of more bytes of bodies is large.
            again_bytes: bytes of bodies in a piece that may grow, where memory has come back; 0
                where that does not matter.
            growth: bytes of bodies in the next piece, as a multiple of those in use; 0 for pieces
                of one size.
            most: and at the most.
            least_kept: fewer pieces in use do not tell yet that a caller keeps all.
        """
        self._empty, self._fresh = empty, fresh
        self.large_bytes = large_bytes
        self._first_bytes, self._again_bytes = first_bytes, again_bytes
        self._growth, self._most, self._least_kept = growth, most, least_kept

    @property
    def kept_bytes(self):
        """Bytes of the memory that is used again, in use now or not."""
        return self._kept_bytes

    cpdef int64_t piece_bytes(self):
        """Bytes of bodies for the next piece: more, the more of the pieces before are still in use.

        So memory is taken in the measure of what was read, whatever a file says of itself; and who
        lets go what it got gets pieces that stay in the cache.
        """
        if not self._growth:
            return self._first_bytes
        if self._again_bytes and self._unused:
            return self._again_bytes
        if self._used_count < self._least_kept:
            return self._first_bytes
        if self._used_bytes > self._most // self._growth:
            return self._most
        return min(max(self._first_bytes, self._used_bytes * self._growth), self._most)

    cpdef Block take(self, int64_t total, int64_t size, filled=None):
        """A block for a piece.

        Args:
            total: its bytes.
            size: bytes of bodies that it has room for.
            filled: stretches of it that will be filled for sure, for memory that is used once.

        Returns:
            `total` bytes or more, contents undefined, aligned to 8 bytes.
        """
        cdef Block block = Block.__new__(Block)
        cdef object memory
        if filled is not None:
            memory = self._fresh(total, filled)
        elif total < BYTES_MIN:
            memory = self._empty(total)
        else:
            memory = self._again(total)
            block.kept = memory is not None
            if memory is None:
                memory = self._empty((total + total // 8) & ~<int64_t>7)
        PyObject_GetBuffer(memory, &block.memory, PyBUF_SIMPLE | PyBUF_WRITABLE)
        block.home, block.size = self, size
        self._used_count += 1
        self._used_bytes += size
        if block.memory.len < total or <size_t>block.memory.buf % 8:
            raise ValueError("the memory for a block is too small, or not aligned")
        if total >= BYTES_MIN and filled is None and not block.kept:
            block.kept = self._kept_bytes + block.memory.len <= BYTES_KEPT_MAX
            self._kept_bytes += block.memory.len if block.kept else 0
        return block

    cdef object _again(self, int64_t total):
        """Memory that came back; where all of that is too small, it makes way, and None."""
        cdef Py_ssize_t at
        for at in range(len(self._unused)):
            if len(self._unused[at]) >= total:
                return self._unused.pop(at)
        for memory in self._unused:
            self._kept_bytes -= len(memory)
        self._unused.clear()
        return None
