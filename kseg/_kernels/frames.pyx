"""The frames of compressed bytes, between a batch's header and its records.

The contract is that of `_core`: borrowed input, nothing allocated on its word, a status instead of
an exception. What the blocks hold is a library's job, what a status means is `kseg.format`'s.

Integers are little-endian, but for xerial's. Layouts are in `kseg/format/codec.py`.
Source: Kafka Lz4BlockInputStream, RFC 8878 3.1, SnappyInputStream.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kseg._core cimport *

# ---- frames --------------------------------------------------------------------------------------

# Every read below follows a comparison of its end with the buffer's.


cdef inline uint32_t _u32(const uint8_t *p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


# ---- LZ4 -----------------------------------------------------------------------------------------

cdef enum:
    LZ4_INDEPENDENT = 0x20
    LZ4_CONTENT_SIZE = 0x08
    LZ4_CONTENT_CHECKSUM = 0x04
    LZ4_RESERVED = 0x03
    LZ4_STORED = 0x80000000
    # As many blocks or chunks are listed in one call: a hostile frame has one in every five bytes.
    LISTED_MAX = 256

cdef uint32_t PRIME1 = 0x9E3779B1, PRIME2 = 0x85EBCA77, PRIME3 = 0xC2B2AE3D
cdef uint32_t PRIME4 = 0x27D4EB2F, PRIME5 = 0x165667B1


cdef inline uint32_t _rotated(uint32_t value, int by) noexcept nogil:
    return value << by | value >> (32 - by)


cdef uint32_t _xxh32(const uint8_t *p, int64_t size) noexcept nogil:
    """The xxHash32, seed 0."""
    cdef uint32_t lanes[4]
    cdef uint32_t value = PRIME5
    cdef int64_t left = size
    cdef int lane
    if left >= 16:
        lanes[0], lanes[1], lanes[2], lanes[3] = PRIME1 + PRIME2, PRIME2, 0, 0 - PRIME1
        while left >= 16:
            for lane in range(4):
                lanes[lane] = _rotated(lanes[lane] + _u32(p + 4 * lane) * PRIME2, 13) * PRIME1
            p += 16
            left -= 16
        value = (_rotated(lanes[0], 1) + _rotated(lanes[1], 7)
                 + _rotated(lanes[2], 12) + _rotated(lanes[3], 18))
    value += <uint32_t>size
    while left >= 4:
        value = _rotated(value + _u32(p) * PRIME3, 17) * PRIME4
        p += 4
        left -= 4
    while left:
        value = _rotated(value + p[0] * PRIME5, 11) * PRIME1
        p += 1
        left -= 1
    value = (value ^ value >> 15) * PRIME2
    value = (value ^ value >> 13) * PRIME3
    return value ^ value >> 16


def xxh32(data):
    """The xxHash32, seed 0.

    Source: xxHash specification.
    """
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return _xxh32(<const uint8_t *>buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)


cdef int begin_lz4(const uint8_t *p, int64_t size, bint verify, Walk *walk) noexcept nogil:
    """Check the descriptor of a frame: LZ4_BLOCK, or the status of its fault."""
    cdef int64_t end
    cdef int code
    walk.start = walk.end = walk.next = walk.flags = walk.block_bytes_max = 0
    if size < 7 or memcmp(p, b"\x04\x22\x4d\x18", 4) != 0:
        return LZ4_NO_HEADER
    walk.flags, code = p[4], p[5]
    if walk.flags >> 6 != 1 or walk.flags & LZ4_RESERVED:
        return LZ4_FLAGS
    if not walk.flags & LZ4_INDEPENDENT:
        return LZ4_DEPENDENT
    if code & 0x8F or code >> 4 < 4:
        return LZ4_BLOCK_CODE
    walk.block_bytes_max = <int64_t>1 << ((code >> 3) + 8)
    end = 15 if walk.flags & LZ4_CONTENT_SIZE else 7
    if size < end:
        return LZ4_HEADER_CUT
    # Kafka wrote, and 0.8 and 0.9 clients still send, a wrong checksum in magic 0.
    if verify and p[end - 1] != (_xxh32(p + 4, end - 5) >> 8 & 0xFF):
        return LZ4_HEADER_CHECKSUM
    walk.next = end
    return LZ4_BLOCK


cdef int next_lz4(const uint8_t *p, int64_t size, Walk *walk) noexcept nogil:
    """Find the block whose size is at `walk.next`: LZ4_BLOCK, LZ4_BLOCK_STORED or LZ4_END.

    Anything else is a fault, and `end - start` then the size announced.
    """
    cdef int64_t position = walk.next, announced, trailer_bytes
    cdef uint32_t word
    cdef int status
    walk.start = walk.end = position
    if size - position < 4:
        return LZ4_NO_END
    word = _u32(p + position)
    announced = word & ~<uint32_t>LZ4_STORED
    walk.start = position + 4
    walk.end = walk.start + announced
    status = LZ4_BLOCK_STORED if word & LZ4_STORED else LZ4_BLOCK
    trailer_bytes = 4 if walk.flags & LZ4_BLOCK_CHECKSUM else 0
    if announced == 0:
        status = LZ4_END
        trailer_bytes = 4 if walk.flags & LZ4_CONTENT_CHECKSUM else 0
    if announced > walk.block_bytes_max:
        return LZ4_TOO_LARGE
    walk.next = walk.end + trailer_bytes
    return status if walk.next <= size else LZ4_CUT


def lz4_blocks(data, int64_t position, bint verify):
    """List blocks of the frame that `data` begins with, as many as one call may list.

    Args:
        data: the frame; read only.
        position: 0, then what the last call answered.
        verify: compare the header's checksum.

    Returns:
        (status, number, block_bytes_max, position, blocks): each block as (start, end, stored), its
        bytes inside `data`; status LZ4_BLOCK where more follow at `position`, LZ4_END, or what is
        wrong after the last block listed, `number` being the flags, the byte or the size at fault.
    """
    cdef Py_buffer buffer
    cdef Walk walk
    cdef list blocks = []
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    cdef const uint8_t *p = <const uint8_t *>buffer.buf
    cdef int status = begin_lz4(p, buffer.len, verify, &walk)
    cdef int64_t number = walk.flags
    try:
        if status == LZ4_BLOCK_CODE:
            number = p[5]
        if status == LZ4_BLOCK:
            walk.next = min(max(position, walk.next), <int64_t>buffer.len)
            while len(blocks) < LISTED_MAX:
                status = next_lz4(p, buffer.len, &walk)
                if status > LZ4_BLOCK_STORED:
                    number = walk.end - walk.start
                    break
                blocks.append((walk.start, walk.end, status == LZ4_BLOCK_STORED))
            else:
                status = LZ4_BLOCK
    finally:
        PyBuffer_Release(&buffer)
    return status, number, walk.block_bytes_max, walk.next, blocks


# ---- Zstandard -----------------------------------------------------------------------------------

cdef enum:
    ZSTD_MAGIC = 0xFD2FB528
    ZSTD_SKIPPABLE = 0x184D2A50

cdef int64_t _zstd_header(const uint8_t *p, int64_t left, int flags,
                          int64_t *window) noexcept nogil:
    """Bytes before a frame's blocks, -1 where they are cut; the window it asks for."""
    cdef int64_t size, content_bytes
    cdef uint64_t content = 0
    if left < 6:
        return -1
    content_bytes = (flags >> 5 & 1) if flags < 0x40 else 1 << (flags >> 6)
    size = (5 if flags & 0x20 else 6) + ((1 << (flags & 3)) >> 1)
    if left < size + content_bytes:
        return -1
    if flags & 0x20:  # its window is all of its content
        memcpy(&content, p + size, content_bytes)
        if content_bytes == 2:
            content += 256  # smaller ones have a field of one byte
        window[0] = INT64_MAX if content > <uint64_t>INT64_MAX else <int64_t>content
    else:
        window[0] = (<int64_t>1 << (10 + (p[5] >> 3))) // 8 * (8 + (p[5] & 7))
    return size + content_bytes


cdef int _zstd_frame(const uint8_t *data, int64_t size, Extent *extent) noexcept nogil:
    """Step over the frame at `extent.position`; a status."""
    cdef int64_t at = extent.position, window = 0, header
    cdef const uint8_t *p = data + at
    cdef uint32_t number, word = 0
    cdef bint checksum
    cdef int flags
    if size - at < 4:
        return ZSTD_NO_FRAME
    number = _u32(p)
    if number & ~<uint32_t>0xF == ZSTD_SKIPPABLE and size - at >= 8:
        extent.position = at + 8 + _u32(p + 4)
        return ZSTD_OK if extent.position <= size else ZSTD_CUT
    if number != ZSTD_MAGIC:
        return ZSTD_NO_FRAME
    flags = p[4] if size - at > 4 else 0
    header = _zstd_header(p, size - at, flags, &window)
    if header < 0:
        return ZSTD_CUT
    checksum = (flags & 0x04) != 0
    at += header
    while not word & 1:
        if size - at < 3:
            return ZSTD_CUT
        p = data + at
        word = p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16
        at += 3 + (1 if word & 6 == 2 else word >> 3)
    extent.position = at + (4 if checksum else 0)
    extent.window_max = max(extent.window_max, window)
    return ZSTD_OK if extent.position <= size else ZSTD_CUT


cdef int walk_zstd(const uint8_t *p, int64_t size, int64_t *fault, Extent *extent) noexcept nogil:
    """Step over every frame; a status, and where the frame at fault, or else the last, begins."""
    cdef int status = ZSTD_OK
    fault[0] = 0
    extent.position = extent.window_max = 0
    while status == ZSTD_OK and extent.position < size:
        fault[0] = extent.position
        status = _zstd_frame(p, size, extent)
    return status


def zstd_extent(data):
    """Find the end of every frame, block by block.

    Args:
        data: frames, skippable ones among them, and nothing else; read only.

    Returns:
        (status, position, window_max): where the frame at fault begins; the largest window that a
        frame asks for.
    """
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    cdef Extent extent
    cdef int status
    cdef int64_t position
    with nogil:
        status = walk_zstd(<const uint8_t *>buffer.buf, buffer.len, &position, &extent)
    PyBuffer_Release(&buffer)
    return status, position, extent.window_max


# ---- xerial snappy -------------------------------------------------------------------------------

cdef enum:
    XERIAL_HEADER_BYTES = 16


cdef int64_t snappy_size(const uint8_t *p, int64_t left, int64_t *number_bytes) noexcept nogil:
    """The uncompressed size before a block, and how many bytes say it.

    -1 where it is no number of five bytes or less.
    """
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int i
    for i in range(5 if left > 5 else <int>left):
        byte = p[i]
        value |= <uint64_t>(byte & 0x7F) << (7 * i)
        if byte < 0x80:
            number_bytes[0] = i + 1
            return <int64_t>value if value >> 32 == 0 else -1
    return -1


cdef int next_snappy(const uint8_t *p, int64_t size, Walk *walk) noexcept nogil:
    """Find the chunk at `walk.next`; further headers of the stream are passed over.

    Anything but SNAPPY_BLOCK is the end or a fault, and `end - start` then the number at fault.
    """
    cdef int64_t at = walk.next
    walk.start, walk.end = at, size
    if at == 0:
        if size < XERIAL_HEADER_BYTES or memcmp(p, b"\x82SNAPPY\x00", 8) != 0:
            walk.next = size
            return SNAPPY_BLOCK if size else SNAPPY_END
        at = XERIAL_HEADER_BYTES
    # One to three bytes where a chunk length should be are the end of the stream as well.
    while size - at >= 4:
        walk.start = at + 4
        walk.end = walk.next = walk.start + <int32_t>load_u32(p + at)
        if memcmp(p + at, b"\x82SNA", 4) == 0:
            if size - at < XERIAL_HEADER_BYTES:
                return SNAPPY_HEADER_CUT
            if memcmp(p + at, b"\x82SNAPPY\x00", 8) != 0:
                return SNAPPY_END
            walk.end = walk.start + <int32_t>load_u32(p + at + 8)
            if walk.end <= walk.start:
                return SNAPPY_VERSION
            at += XERIAL_HEADER_BYTES
        elif not walk.start <= walk.end <= size:
            return SNAPPY_CHUNK
        else:
            return SNAPPY_BLOCK
    return SNAPPY_END


def snappy_chunks(data, int64_t position):
    """List chunks of a xerial stream; what does not begin as one is one raw block.

    Args:
        data: the stream; read only.
        position: 0, then what the last call answered.

    Returns:
        (status, number, left, position, chunks): each chunk as (start, end, size), its bytes inside
        `data`, and the size it announces, -1 where the library should be asked; status SNAPPY_BLOCK
        where more may follow at `position`, SNAPPY_END, or what is wrong after the last chunk
        listed, `number` being the length or version at fault, with `left` bytes left.
    """
    cdef Py_buffer buffer
    cdef Walk walk
    cdef list chunks = []
    cdef int64_t size, number_bytes = 0
    cdef int status = SNAPPY_END
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    cdef const uint8_t *p = <const uint8_t *>buffer.buf
    # Places outside the bytes are their end.
    walk.next = position if 0 <= position <= buffer.len else buffer.len
    try:
        while len(chunks) < LISTED_MAX:
            status = next_snappy(p, buffer.len, &walk)
            if status != SNAPPY_BLOCK:
                break
            size = snappy_size(p + walk.start, walk.end - walk.start, &number_bytes)
            chunks.append((walk.start, walk.end, size))
        return status, walk.end - walk.start, buffer.len - walk.start, walk.next, chunks
    finally:
        PyBuffer_Release(&buffer)
