"""Declarations of the inflating kernel for those that read records: memory, and one function."""

from libc.stdint cimport int64_t, uint8_t


# Where a batch is inflated to, and the contexts of the libraries that do it. It belongs to one
# thread at a time; all zeros at first, it grows by what batches really hold, until `drop_scratch`.
cdef struct Scratch:
    uint8_t *bytes
    int64_t size  # bytes of the last batch
    int64_t room  # bytes there are
    uint8_t *packed  # what a library gets in place of bytes that may change
    int64_t packed_room
    void *zstd
    void *deflate

cdef int inflate_records(int codec, int magic, const uint8_t *data, int64_t size,
                         Scratch *scratch, int64_t inflated_max) noexcept nogil
cdef void drop_scratch(Scratch *scratch) noexcept nogil
