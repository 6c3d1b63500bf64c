"""Records of a batch at their places: declarations of the kernels that decide about them."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kseg._kernels.inflate cimport Scratch

cdef extern from "locate.h" nogil:
    # A record ends where the next one starts; a key size is negative for null.
    ctypedef struct Record "kseg_located":
        const uint8_t *start
        const uint8_t *key
        int64_t timestamp_delta
        int32_t offset_delta
        int32_t key_size
        int32_t value_size


# Records of a batch, and the facts about them.
cdef struct Found:
    Record *records
    int64_t count
    int64_t base_offset
    uint8_t *kept  # a byte a record, to be filled in


cdef class Located:
    """The records of one batch at a time; belongs to one thread."""

    cdef Found found
    cdef Scratch scratch
    cdef int64_t room
    cdef int64_t inflated[4]
    cdef int64_t body_bytes

    cdef bint _make_room(self, int64_t count) noexcept nogil
    cdef bint _inflate(self, const uint8_t *p, const int64_t *row) noexcept nogil
    cdef void forget(self) noexcept nogil
    cdef bint find(self, const uint8_t *data, int64_t size, int64_t base, const int64_t *row,
                   bint exact) noexcept nogil


cdef class Keep:
    """Says which records stay."""

    cdef void ask(self, const Found *found, int64_t number) noexcept nogil
