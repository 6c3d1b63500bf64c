"""Columns that grow row by row: what the kernels of typed values share."""

from libc.stdint cimport int32_t, int64_t, uint8_t

# The contents of a column.
cpdef enum:
    K_NULL, K_BOOL, K_INT32, K_INT64, K_FLOAT, K_DOUBLE, K_BYTES, K_FIXED, K_LIST, K_MAP
    K_STRUCT, K_UNION, K_DECIMAL

# Why a payload fails.
cpdef enum:
    SOUND, SHORT, TRAILING, NUMBER, RANGE, TEXT, SYMBOL, CHOICE, REFUSED, LIMIT, NO_MEMORY

cdef enum:
    ITEMS_MAX = 0x7FFFFFFF
    ROW_STEPS = 1 << 20       # for the payload of one row, and 8 for each of its bytes
    CALL_STEPS = 1 << 27      # for all rows of a call, likewise
    STEPS_PER_BYTE = 8
    EMPTY_ITEM_STEPS = 15     # more for an item of an array without a byte

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


# Takes the payload of a row, for every reader.
ctypedef bint (*TakeRow)(void *walk, const uint8_t *p, const uint8_t *end) noexcept nogil


cdef inline const uint8_t *fail(State *s, int why, int32_t node, const uint8_t *at) noexcept nogil:
    s.why, s.node, s.at = why, node, at
    return NULL


cdef inline const uint8_t *behind_if(
    bint is_put, State *s, int32_t node, const uint8_t *at, const uint8_t *behind
) noexcept nogil:
    """The position after a value that a column has taken; else NULL, and where the value lies."""
    return behind if is_put else fail(s, s.why, node, at)


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

    cdef int add_rows(
        self, TakeRow take, void *walk, const int64_t[::1] offsets, const uint8_t[::1] data,
        const uint8_t[::1] wanted, dict faults, int64_t prefix,
    ) except -1
