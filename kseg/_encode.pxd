"""What writing kernels share: columns lent to them, and stores of numbers, inlined into each user.

A column of byte strings comes in one of two forms, told apart here and nowhere else: Arrow's layout
(`offsets`, `data`, `validity`), or a tuple of `bytes` and None, which cannot change while it is
held, so it may be read without the GIL.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "Python.h" nogil:
    char *_bytes_data "PyBytes_AS_STRING"(PyObject *o) noexcept
    Py_ssize_t _bytes_size "PyBytes_GET_SIZE"(PyObject *o) noexcept
    bint _is_bytes "PyBytes_Check"(PyObject *o) noexcept
    PyObject *_none "Py_None"

cdef extern from "encode.h" nogil:
    ctypedef struct BatchHeader "kseg_batch_header":
        int64_t base_offset
        int64_t last_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int32_t leader_epoch
        int32_t base_sequence
        int32_t count
        int16_t attributes
        int16_t producer_epoch

    uint32_t varint_size "kseg_varint_size"(int32_t value) noexcept
    uint32_t varlong_size "kseg_varlong_size"(int64_t value) noexcept
    uint8_t *put_varint "kseg_put_varint"(uint8_t *p, int32_t value) noexcept
    uint8_t *put_varlong "kseg_put_varlong"(uint8_t *p, int64_t value) noexcept
    uint8_t *put_u32 "kseg_put_u32"(uint8_t *p, uint32_t value) noexcept
    uint8_t *put_u64 "kseg_put_u64"(uint8_t *p, uint64_t value) noexcept
    uint8_t *put_bytes "kseg_put_bytes"(uint8_t *p, const uint8_t *source, size_t size) noexcept
    void put_batch_header "kseg_put_batch_header"(uint8_t *p, const BatchHeader *header,
                                                  uint32_t size) noexcept

# Why a record is not written; what is said about it stands in kseg.format.encode.
cdef enum:
    ENCODE_OK
    ENCODE_OFFSET_ORDER
    ENCODE_OFFSET_RANGE
    ENCODE_TIMESTAMP
    ENCODE_HEADERS
    ENCODE_RECORD_SIZE
    ENCODE_BATCH_SIZE
    ENCODE_NAME_NULL
    ENCODE_PAYLOAD_NULL
    ENCODE_LAST_OFFSET
    ENCODE_COLUMN
    ENCODE_TYPE
    ENCODE_CHANGED

# What `take` answers instead of a size.
cdef enum:
    NULL_VALUE = -1
    BAD_COLUMN = -2
    BAD_TYPE = -3

cdef enum:
    INT32_MAX = 0x7FFFFFFF
    BUFFERS_MAX = 12


# A column of byte strings in either form; all null where it has neither.
cdef struct Field:
    PyObject **items
    const int32_t *offsets
    const uint8_t *data
    int64_t data_bytes
    const uint8_t *validity


# All columns; NULL where one is not given.
cdef struct Source:
    const int64_t *offsets
    const int64_t *timestamps
    Field key
    Field value
    const int32_t *headers
    int64_t header_count
    Field header_key
    Field header_value


cdef class Rows:
    """Columns of records, lent for as long as this lives."""

    cdef readonly int64_t length
    cdef Source lent
    cdef Py_buffer buffers[BUFFERS_MAX]
    cdef int buffer_count
    cdef list held


cdef inline int64_t take(const Field *field, int64_t row, const uint8_t **at) noexcept nogil:
    """Size and place of a value; every number of a column is held against its data before use."""
    cdef int64_t start, size
    cdef PyObject *item
    if field.offsets != NULL:
        start = field.offsets[row]
        size = <int64_t>field.offsets[row + 1] - start
        if start < 0 or size < 0 or size > field.data_bytes - start:
            return BAD_COLUMN
        if field.validity != NULL and not field.validity[row >> 3] >> (row & 7) & 1:
            return NULL_VALUE
        at[0] = field.data + start
        return size
    if field.items == NULL:
        return NULL_VALUE
    item = field.items[row]
    if item == _none:
        return NULL_VALUE
    if not _is_bytes(item):
        return BAD_TYPE
    at[0] = <const uint8_t *>_bytes_data(item)
    return _bytes_size(item)


cdef inline int refusal(int64_t size) noexcept nogil:
    """The status for what `take` answered, if it is no size."""
    if size >= NULL_VALUE:
        return ENCODE_OK
    return ENCODE_COLUMN if size == BAD_COLUMN else ENCODE_TYPE
