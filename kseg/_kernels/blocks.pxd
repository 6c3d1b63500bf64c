"""Declarations that the kernel of blocks shares with the kernel that fills them."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t, uint8_t


cdef class Block:
    cdef Py_buffer memory
    cdef Blocks home
    cdef int64_t size
    cdef bint kept

    cdef uint8_t *start(self) noexcept nogil


cdef class Blocks:
    cdef object _empty, _fresh
    cdef list _unused
    cdef int64_t _kept_bytes, _used_bytes, _used_count
    cdef int64_t _first_bytes, _again_bytes, _growth, _most, _least_kept
    # Of the piece before, to size the next: rows, headers, and bytes of each column of bytes.
    cdef double rows_a_byte, headers_a_byte
    cdef double[4] data_a_byte
    cdef int64_t large_bytes

    cpdef int64_t piece_bytes(self)
    cpdef Block take(self, int64_t total, int64_t size, filled=*)
    cdef object _again(self, int64_t total)
