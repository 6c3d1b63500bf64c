"""JSON texts at their places: declarations that the kernels for JSON share.

Each `take` function takes a position and the end of the value, and returns the position after what
it read, or NULL. Nothing at or after `end` is read.
"""

from libc.stdint cimport uint8_t

cdef inline const uint8_t *skip_white(const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end and (p[0] == 0x20 or p[0] == 0x09 or p[0] == 0x0D or p[0] == 0x0A):
        p += 1
    return p


# Of a string, the position is after its first quote.
cdef const uint8_t *take_string(const uint8_t *p, const uint8_t *end) noexcept nogil
cdef const uint8_t *take_number(const uint8_t *p, const uint8_t *end) noexcept nogil
cdef const uint8_t *take_value(const uint8_t *p, const uint8_t *end) noexcept nogil
