"""Columns that grow row by row: what the kernels of typed values share."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    C_NULL, C_BOOL, C_INT32, C_INT64, C_FLOAT, C_DOUBLE, C_BYTES, C_FIXED, C_LIST, C_MAP
    C_STRUCT, C_UNION, C_DECIMAL

cdef enum:
    F_NONE, F_SHORT, F_TRAILING, F_NUMBER, F_RANGE, F_TEXT, F_SYMBOL, F_CHOICE, F_REFUSED, F_LIMIT
    F_MEMORY

cdef enum:
    ITEMS_MAX = 0x7FFFFFFF
    ROW_STEPS = 1 << 20       # for the payload of one row, and 8 for each of its bytes
    CALL_STEPS = 1 << 27      # for all rows of a call, likewise
    STEPS_PER_BYTE = 8

cdef struct Column:
    int64_t kind
    int64_t size
    int64_t nullable
    int64_t first
    int64_t children
    int64_t least
    int64_t largest
    uint8_t *data             # values, or bytes of texts, or type ids of a union
    int64_t data_room
    int32_t *ends             # int32[count + 1], or int32[count] of a union
    int64_t ends_room
    uint8_t *valid
    int64_t valid_room

cdef struct State:
    const int32_t *nodes
    const int32_t *kids
    const int32_t *codes
    Column *columns
    int64_t *counts           # values of each column, then bytes of data of each
    int64_t *used
    int64_t steps
    int why
    int32_t node
    const uint8_t *at


cdef const uint8_t *fail(State *s, int why, int32_t node, const uint8_t *at) noexcept nogil
cdef uint8_t *room_for(State *s, int32_t out, int64_t size) noexcept nogil
cdef bint put_end(State *s, int32_t out, int64_t end) noexcept nogil
cdef bint count_one(State *s, int32_t out, uint8_t valid) noexcept nogil
cdef bint put(State *s, int32_t out, const void *value, int64_t size) noexcept nogil
cdef bint put_null(State *s, int32_t out) noexcept nogil
cdef bint put_number(State *s, int32_t out, int64_t value) noexcept nogil


cdef class Columns:
    cdef const int32_t[:, ::1] nodes
    cdef const int32_t[::1] kids, codes
    cdef State state
    cdef int64_t count
    cdef int64_t *saved
