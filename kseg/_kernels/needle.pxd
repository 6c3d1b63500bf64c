"""What the search for bytes shares with the reader."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "needle.h" nogil:
    ctypedef struct Needle "kseg_needle":
        int64_t size

    Needle needle_of "kseg_needle_of"(const uint8_t *data, int64_t size, int folds) noexcept
