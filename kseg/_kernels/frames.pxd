"""Declarations that the kernel that walks frames shares with the one that inflates them.

Bytes are borrowed, and every read follows a comparison with their end.
"""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    LZ4_BLOCK_CHECKSUM = 0x10

cdef enum:
    LZ4_BLOCK
    LZ4_BLOCK_STORED
    LZ4_END
    LZ4_NO_END
    LZ4_TOO_LARGE
    LZ4_CUT
    LZ4_NO_HEADER
    LZ4_FLAGS
    LZ4_DEPENDENT
    LZ4_BLOCK_CODE
    LZ4_HEADER_CUT
    LZ4_HEADER_CHECKSUM

cdef enum:
    ZSTD_OK
    ZSTD_CUT
    ZSTD_NO_FRAME

cdef enum:
    SNAPPY_BLOCK
    SNAPPY_END
    SNAPPY_CHUNK
    SNAPPY_HEADER_CUT
    SNAPPY_VERSION

# A walk over the blocks of an LZ4 frame, or the chunks of a snappy stream: where the last one found
# lies, and what the frame's header allows.
cdef struct Walk:
    int64_t start
    int64_t end
    int64_t next
    int64_t block_bytes_max
    int flags

# Where the frame of zstd that was walked last ends, and what the frames ask for.
cdef struct Extent:
    int64_t position
    int64_t window_max

cdef int begin_lz4(const uint8_t *p, int64_t size, bint verify, Walk *walk) noexcept nogil
cdef int next_lz4(const uint8_t *p, int64_t size, Walk *walk) noexcept nogil
cdef int walk_zstd(const uint8_t *p, int64_t size, int64_t *fault, Extent *extent) noexcept nogil
cdef int next_snappy(const uint8_t *p, int64_t size, Walk *walk) noexcept nogil
cdef int64_t snappy_size(const uint8_t *p, int64_t left, int64_t *number_bytes) noexcept nogil
