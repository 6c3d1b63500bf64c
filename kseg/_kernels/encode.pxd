"""Declarations of the writing kernels: borrowed columns, and stores of numbers, inlined.

The loops over records of magic 2 are in `csrc/write.h`, and with them how a value is taken from a
column, whichever form that has.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "Python.h" nogil:
    ctypedef struct PyObject

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

    uint8_t *put_u32 "kseg_put_u32"(uint8_t *p, uint32_t value) noexcept
    uint8_t *put_u64 "kseg_put_u64"(uint8_t *p, uint64_t value) noexcept
    uint8_t *put_bytes "kseg_put_bytes"(uint8_t *p, const uint8_t *source, size_t size) noexcept
    void put_batch_header "kseg_put_batch_header"(uint8_t *p, const BatchHeader *header,
                                                  uint32_t size) noexcept

cdef extern from "write.h" nogil:
    # Reasons why a record is not written; kseg.format.encode has the messages.
    enum:
        WRITE_OK "KSEG_WRITE_OK"
        WRITE_OFFSET_ORDER "KSEG_WRITE_OFFSET_ORDER"
        WRITE_OFFSET_RANGE "KSEG_WRITE_OFFSET_RANGE"
        WRITE_TIMESTAMP "KSEG_WRITE_TIMESTAMP"
        WRITE_HEADERS "KSEG_WRITE_HEADERS"
        WRITE_RECORD_SIZE "KSEG_WRITE_RECORD_SIZE"
        WRITE_BATCH_SIZE "KSEG_WRITE_BATCH_SIZE"
        WRITE_PAYLOAD_NULL "KSEG_WRITE_PAYLOAD_NULL"
        WRITE_LAST_OFFSET "KSEG_WRITE_LAST_OFFSET"
        WRITE_CHANGED "KSEG_WRITE_CHANGED"
        WRITE_FULL "KSEG_WRITE_FULL"
        WRITE_ROOM "KSEG_WRITE_ROOM"

        # Answers of `take` in place of a size.
        NULL_VALUE "KSEG_NULL_VALUE"

        # How a column is given: looked at each time.
        ANY_FORM "KSEG_ANY"

    # A column of byte strings: bytes objects, or Arrow's layout; all null where it has neither.
    ctypedef struct Field "kseg_field":
        PyObject **items
        const int32_t *offsets
        const uint8_t *data
        int64_t data_bytes
        const uint8_t *validity

    # All columns; NULL where one is not given.
    ctypedef struct Source "kseg_columns":
        const int64_t *offsets
        const int64_t *timestamps
        Field key
        Field value
        const int32_t *headers
        int64_t header_count
        Field header_key
        Field header_value

    int64_t take_as "kseg_take"(const Field *field, int64_t row, int form,
                                const uint8_t **at) noexcept
    int refusal "kseg_refusal"(int64_t size) noexcept

cdef enum:
    INT32_MAX = 0x7FFFFFFF
    # Offsets, timestamps, list starts, and three for each of four columns of byte strings.
    BUFFERS_MAX = 15


cdef class Rows:
    """Columns of records, borrowed for as long as this lives."""

    cdef readonly int64_t length
    cdef Source columns
    cdef Py_buffer buffers[BUFFERS_MAX]
    cdef int buffer_count
    cdef list held


cdef inline int64_t take(const Field *field, int64_t row, const uint8_t **at) noexcept nogil:
    """Size and place of a value, or `NULL_VALUE`, or a code that `refusal` turns into a status."""
    return take_as(field, row, ANY_FORM, at)
