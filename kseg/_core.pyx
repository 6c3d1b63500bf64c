"""Checksums, and values gathered into one column.

Each is a function over buffers that the caller owns: input is borrowed for the call, output arrays
come allocated, the loop runs without the GIL, and bad bytes end the loop with a status instead of
an exception. Layouts and status codes are in `_core.pxd`; what they mean to people is said by
`kseg.format`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from "crc.h" nogil:
    uint32_t kseg_crc32c(uint32_t value, const uint8_t *data, size_t size) noexcept
    uint32_t kseg_crc32(uint32_t value, const uint8_t *data, size_t size) noexcept
    uint32_t kseg_crc32c_shifted(uint32_t value, uint32_t size) noexcept
    uint32_t kseg_crc32_shifted(uint32_t value, uint32_t size) noexcept
    int kseg_crc_variant_count() noexcept
    const char *kseg_crc_variant_name(int i) noexcept
    bint kseg_crc_variant_usable(int i) noexcept
    int kseg_crc_select(const char *name) noexcept
    const char *kseg_crc_selected() noexcept
    size_t kseg_crc_prefetch() noexcept
    void kseg_crc_set_prefetch(size_t distance) noexcept
    void kseg_crc_init() noexcept

cdef enum:
    SPAN_SOURCE
    SPAN_START
    SPAN_SIZE
    SPAN_FIELDS

cdef enum:
    INT32_MAX = 0x7fffffff
    COPY_SLACK = 64  # spare bytes after a column's data, so that short values go as blocks
    GIL_BYTES = 4096  # below this, giving the GIL up costs more than the checksum

kseg_crc_init()


# ---- checksums -----------------------------------------------------------------------------------

ctypedef uint32_t (*crc_function)(uint32_t, const uint8_t *, size_t) noexcept nogil


cdef uint32_t crc32_of(const uint8_t *data, size_t size) noexcept nogil:
    return kseg_crc32(0, data, size)


cdef uint32_t crc32c_of(const uint8_t *data, size_t size) noexcept nogil:
    return kseg_crc32c(0, data, size)


cdef uint32_t crc32c_on(uint32_t value, const uint8_t *data, size_t size) noexcept nogil:
    """The sum of magic 2, going on from `value`."""
    return kseg_crc32c(value, data, size)


cdef uint32_t crc_on(bint castagnoli, uint32_t value, const uint8_t *data,
                     size_t size) noexcept nogil:
    """Either sum, going on from `value`."""
    return kseg_crc32c(value, data, size) if castagnoli else kseg_crc32(value, data, size)


cdef uint32_t crc_shifted(bint castagnoli, uint32_t value, uint32_t size) noexcept nogil:
    """The part of the sum of two stretches that leaves the sum of the second, of `size` bytes."""
    if castagnoli:
        return kseg_crc32c_shifted(value, size)
    return kseg_crc32_shifted(value, size)


cdef uint32_t _checksum(crc_function function, object data, uint32_t value) except? 0:
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len < GIL_BYTES:
            return function(value, <const uint8_t *>buffer.buf, buffer.len)
        with nogil:
            value = function(value, <const uint8_t *>buffer.buf, buffer.len)
        return value
    finally:
        PyBuffer_Release(&buffer)


def crc32c(data, uint32_t value=0):
    """CRC-32C of `data`, going on from `value`, the checksum of what came before."""
    return _checksum(kseg_crc32c, data, value)


def crc32(data, uint32_t value=0):
    """CRC-32 (zlib's) of `data`, going on from `value`, the checksum of what came before."""
    return _checksum(kseg_crc32, data, value)


def crc_variants():
    """Names of the checksum kernels that this processor can run, slowest first."""
    return tuple(
        kseg_crc_variant_name(i).decode()
        for i in range(kseg_crc_variant_count())
        if kseg_crc_variant_usable(i)
    )


def crc_variant():
    """Name of the checksum kernel in use."""
    return kseg_crc_selected().decode()


def set_crc_variant(str name):
    """Use one checksum kernel by name, or the best one again with "auto"; for tests and
    benchmarks.
    """
    if kseg_crc_select(name.encode()) != 0:
        known = ", ".join(("auto", *crc_variants()))
        raise ValueError(f"no checksum kernel {name!r} on this machine; there are: {known}")


def prefetch_bytes():
    """How many bytes ahead of a checksum memory is requested; 0 where the processor does better
    by itself. Chosen by processor, from measurements.
    """
    return kseg_crc_prefetch()


def set_prefetch_bytes(size_t distance):
    """Request memory so many bytes ahead of a checksum; for benchmarks."""
    kseg_crc_set_prefetch(distance)


# ---- gathering into Arrow layout -----------------------------------------------------------------

cdef int _gather(const uint8_t[::1] first, const uint8_t[::1] second, const int64_t[:, ::1] spans,
                 int32_t *ends, uint8_t *data, int64_t room, uint8_t *valid) noexcept nogil:
    """-1 where a span lies outside its source, or the spans outside of the room."""
    cdef int64_t row, start, size, source_size, used = 0
    cdef const uint8_t *source
    ends[0] = 0
    for row in range(spans.shape[0]):
        start, size = spans[row, SPAN_START], spans[row, SPAN_SIZE]
        if size > 0:
            source = pointer_to(second if spans[row, SPAN_SOURCE] else first)
            source_size = second.shape[0] if spans[row, SPAN_SOURCE] else first.shape[0]
            if not 0 <= start <= source_size or size > source_size - start or size > room - used:
                return -1
            copy_bytes(data + used, source + start, size, source_size - start)
            used += size
        ends[row + 1] = <int32_t>used
        if valid != NULL and size >= 0:
            valid[row >> 3] |= <uint8_t>(1 << (row & 7))
    return 0


def gather(const uint8_t[::1] first, const uint8_t[::1] second, const int64_t[:, ::1] spans,
           int32_t[::1] ends, uint8_t[::1] data, uint8_t[::1] valid):
    """Copy values that lie in two sources into one column in Arrow's layout.

    Args:
        first, second: the sources, read only.
        spans: int64[n, 3]: for each value 0 for the first source or 1 for the second, its place
            there, and its size, negative for null.
        ends: int32[n + 1], written.
        data: uint8[at least the column's bytes + 64, fewer than 2^31], written; the 64 spare bytes
            let short values go as one block.
        valid: uint8[(n + 7) // 8], zeroed by the caller, bits written; uint8[0] where there are no
            nulls.
    """
    cdef int64_t rows = spans.shape[0], room = data.shape[0] - COPY_SLACK
    if spans.shape[1] != SPAN_FIELDS or ends.shape[0] != rows + 1:
        raise ValueError("spans or ends has the wrong shape")
    if not 0 <= room <= INT32_MAX or (valid.shape[0] and valid.shape[0] < (rows + 7) // 8):
        raise ValueError("data or valid has the wrong length")
    cdef int fault
    with nogil:
        fault = _gather(first, second, spans, &ends[0], &data[0], room,
                        &valid[0] if valid.shape[0] else NULL)
    if fault:
        raise ValueError("a span lies outside its source, or data has no room for it")
