"""JSON texts: which values of a column are one each.

The contract is that of `_core`: borrowed input, an array of the caller's for output. A value is
UTF-8 that the caller has checked. Source: RFC 8259 (JSON).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cpdef enum:
    VALUE_DEPTH_MAX = 512     # the deepest nesting of lists and objects that is followed

cdef enum:
    LEVEL_WORDS = 8           # VALUE_DEPTH_MAX bits


# Each `take` function takes a position and the end of the value, and returns the position after
# what it read, or NULL. Nothing at or after `end` is read.

cdef inline bint special8(uint64_t word) noexcept nogil:
    """Is one of these eight bytes a quote, a backslash or a control character?"""
    cdef uint64_t ones = 0x0101010101010101ULL
    cdef uint64_t quote = word ^ (ones * 0x22)
    cdef uint64_t slash = word ^ (ones * 0x5C)
    return (
        ((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)
    ) & 0x8080808080808080ULL != 0


cdef const uint8_t *take_escape(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The escape after a backslash."""
    cdef int i
    if p == end:
        return NULL
    if p[0] != 0x75:  # u
        if memchr(b'"\\/bfnrt', p[0], 8) == NULL:
            return NULL
        return p + 1
    if end - p < 5:
        return NULL
    for i in range(1, 5):
        if not (0x30 <= p[i] <= 0x39 or 0x61 <= (p[i] | 0x20) <= 0x66):
            return NULL
    return p + 5


cdef const uint8_t *take_string(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """A string, from the byte after its first quote on."""
    cdef uint64_t word
    while True:
        while end - p >= 8:
            memcpy(&word, p, 8)
            if special8(word):
                break
            p += 8
        while p < end and p[0] != 0x22 and p[0] != 0x5C:
            if p[0] < 0x20:
                return NULL
            p += 1
        if p == end:
            return NULL
        if p[0] == 0x22:
            return p + 1
        p = take_escape(p + 1, end)
        if p == NULL:
            return NULL


cdef inline const uint8_t *take_digits(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """One digit or more."""
    cdef const uint8_t *start = p
    while p < end and 0x30 <= p[0] <= 0x39:
        p += 1
    if p == start:
        return NULL
    return p


cdef const uint8_t *take_number(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef const uint8_t *digits
    if p[0] == 0x2D:  # -
        p += 1
    digits = p
    p = take_digits(p, end)
    if p == NULL or (digits[0] == 0x30 and p - digits > 1):
        return NULL
    if p < end and p[0] == 0x2E:  # .
        p = take_digits(p + 1, end)
        if p == NULL:
            return NULL
    if p < end and (p[0] | 0x20) == 0x65:  # e
        p += 1
        if p < end and (p[0] == 0x2B or p[0] == 0x2D):  # + -
            p += 1
        p = take_digits(p, end)
        if p == NULL:
            return NULL
    return p


cdef const uint8_t *take_word(const uint8_t *p, const uint8_t *end) noexcept nogil:
    if end - p >= 4 and (memcmp(p, b"null", 4) == 0 or memcmp(p, b"true", 4) == 0):
        return p + 4
    if end - p >= 5 and memcmp(p, b"false", 5) == 0:
        return p + 5
    return NULL


cdef inline void put_bit(uint64_t *bits, int at, bint value) noexcept nogil:
    cdef uint64_t bit = <uint64_t>1 << (at & 63)
    if value:
        bits[at >> 6] |= bit
    else:
        bits[at >> 6] &= ~bit


cdef inline bint has_bit(const uint64_t *bits, int at) noexcept nogil:
    return bits[at >> 6] >> (at & 63) & 1


cdef const uint8_t *take_name(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """A name and the colon after it; answers where the value begins."""
    if p == end or p[0] != 0x22:
        return NULL
    p = take_string(p + 1, end)
    if p == NULL:
        return NULL
    p = skip_white(p, end)
    if p == end or p[0] != 0x3A:  # :
        return NULL
    return skip_white(p + 1, end)


cdef const uint8_t *take_plain(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """A value that is neither a list nor an object."""
    if p == end:
        return NULL
    if p[0] == 0x22:
        return take_string(p + 1, end)
    if p[0] == 0x2D or 0x30 <= p[0] <= 0x39:
        return take_number(p, end)
    return take_word(p, end)


cdef const uint8_t *take_value(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Any value.

    A level of lists and objects takes a bit and no call, since the stack of a thread may be small.
    """
    cdef uint64_t[LEVEL_WORDS] objects  # a bit a level: set for an object
    cdef int levels = 0
    cdef bint is_object = False
    while True:
        if p < end and (p[0] == 0x5B or p[0] == 0x7B):  # [ {
            if levels == VALUE_DEPTH_MAX:
                return NULL
            is_object = p[0] == 0x7B
            put_bit(objects, levels, is_object)
            levels += 1
            p = skip_white(p + 1, end)
            if p == end or p[0] != (0x7D if is_object else 0x5D):
                p = take_name(p, end) if is_object else p
                if p == NULL:
                    return NULL
                continue
        else:
            p = take_plain(p, end)
            if p == NULL or levels == 0:
                return p
        # A value has ended, or an empty list or object ends: up to where the next value begins.
        while True:
            p = skip_white(p, end)
            if p == end:
                return NULL
            if p[0] == 0x2C:  # ,
                p = skip_white(p + 1, end)
                p = take_name(p, end) if is_object else p
                if p == NULL:
                    return NULL
                break
            if p[0] != (0x7D if is_object else 0x5D):
                return NULL
            p += 1
            levels -= 1
            if levels == 0:
                return p
            is_object = has_bit(objects, levels - 1)


def mark_not_json(const int32_t[::1] offsets, const uint8_t[::1] data, uint8_t[::1] marks):
    """Mark the values of a binary column that are not one JSON text each; empty ones are none.

    Lists and objects are followed VALUE_DEPTH_MAX deep; a value with deeper ones is marked, too.

    Args:
        offsets: int32[n + 1].
        data: UTF-8, or bytes whose values that are not are marked by the caller.
        marks: uint8[n], out: 1 or 0 for each value.

    Raises:
        ValueError: the offsets lead outside the data, or are not as many as the marks.
    """
    cdef Py_ssize_t count = marks.shape[0], size = data.shape[0], row
    cdef int64_t first, last = 0
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef const uint8_t *bytes_at = &data[0] if size else NULL
    if offsets.shape[0] != count + 1:
        raise ValueError(f"{offsets.shape[0]} offsets are not those of {count} values")
    with nogil:
        for row in range(count):
            first, last = offsets[row], offsets[row + 1]
            if not 0 <= first <= last <= size:
                break
            marks[row] = 1
            if first == last:
                continue
            # In bounds: first and last were just compared with the size of the data.
            end = bytes_at + last
            p = skip_white(bytes_at + first, end)
            p = take_value(p, end)
            if p != NULL and skip_white(p, end) == end:
                marks[row] = 0
        else:
            row = count
    if row < count:
        raise ValueError(f"offsets of value {row} lie outside their data")
