"""JSON texts into the columns of one type, which `Columns` holds.

  names    the names of columns in their structs, one after the other, UTF-8
  ends     int32[columns + 1]: where each begins in `names`
  order    int32[k]: places among the children of each column, by size and bytes of their names

A column of texts takes strings; with `least` 1 it takes any value, as the text of that value.
What is not asked for is checked to be JSON, and passed over. A name twice in an object is refused
where the name is asked for, since readers of JSON differ in what they make of it.

A payload that does not fit fails as a whole: its row is null. `Columns` bounds the work.

Source: RFC 8259 (JSON).
"""

from libc.math cimport INFINITY, isinf, nextafter
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy

from kseg._core cimport is_utf8, pointer_to
from kseg._kernels.avro cimport (
    K_BOOL, K_BYTES, K_DOUBLE, K_FLOAT, K_INT32, K_INT64, K_LIST, K_NULL, K_STRUCT, Column, Columns,
    State, behind_if, count_one, fail, put, put_end, put_null, put_number, room_for,
)
from kseg._kernels.json cimport skip_white, take_number, take_string, take_value

cdef extern from "float.h":
    int LDBL_MANT_DIG

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *text, char **end, void *error) except? -1

# Reasons why a payload fails, in the numbers of `Columns`.
cpdef enum:
    TRAILING = 2
    SYNTAX = 3
    RANGE = 4
    TEXT = 5
    TWICE = 6
    TYPE = 7
    LIMIT = 9
    NAME_BYTES_MAX = 255        # the longest name that a column may have

cdef enum:
    ESCAPED_NAME_BYTES = 1530   # six for each
    NUMBER_BYTES = 512
    EXACT_DIGITS = 19           # fit into 64 bits
    EXACT_POWER = 27            # 5 ** 27 is the last power of five below 2 ** 64
    EXACT_BITS = 64

cdef uint64_t TENTH_OF_UINT64 = 0xFFFFFFFFFFFFFFFF // 10

cdef long double[EXACT_POWER + 1] POWERS
POWERS[0] = 1
for _power in range(EXACT_POWER):
    POWERS[_power + 1] = POWERS[_power] * 10

cdef struct Walk:
    State *s
    const uint8_t *names
    const int32_t *ends
    const int32_t *order
    int64_t *stamps             # of each column, the number of the last object that had it
    int64_t objects


cdef inline uint32_t hex4(const uint8_t *p) noexcept nogil:
    """Four digits, which are some."""
    cdef uint32_t value = 0
    cdef int i
    for i in range(4):
        value = value << 4 | ((p[i] & 0x0F) + (9 if p[i] & 0x40 else 0))
    return value


cdef inline int put_point(uint8_t *to, uint32_t point) noexcept nogil:
    """A character as UTF-8; answers its bytes."""
    if point < 0x80:
        to[0] = point
        return 1
    if point < 0x800:
        to[0], to[1] = 0xC0 | point >> 6, 0x80 | (point & 0x3F)
        return 2
    if point < 0x10000:
        to[0], to[1] = 0xE0 | point >> 12, 0x80 | (point >> 6 & 0x3F)
        to[2] = 0x80 | (point & 0x3F)
        return 3
    to[0], to[1] = 0xF0 | point >> 18, 0x80 | (point >> 12 & 0x3F)
    to[2], to[3] = 0x80 | (point >> 6 & 0x3F), 0x80 | (point & 0x3F)
    return 4


cdef int64_t unescape(const uint8_t *p, const uint8_t *end, uint8_t *to) noexcept nogil:
    """The body of a string, which `take_string` has taken; never longer than before.

    Answers its bytes, or -1 for half of a surrogate pair.
    """
    cdef const uint8_t *start = to
    cdef uint32_t point, low
    while p < end:
        if p[0] != 0x5C:  # backslash
            to[0] = p[0]
            p += 1
            to += 1
            continue
        if p[1] != 0x75:  # u
            to[0] = (
                0x08 if p[1] == 0x62 else 0x0C if p[1] == 0x66 else 0x0A if p[1] == 0x6E
                else 0x0D if p[1] == 0x72 else 0x09 if p[1] == 0x74 else p[1]
            )
            p += 2
            to += 1
            continue
        point = hex4(p + 2)
        p += 6
        if 0xD800 <= point < 0xE000:
            if point >= 0xDC00 or end - p < 6 or p[0] != 0x5C or p[1] != 0x75:
                return -1
            low = hex4(p + 2)
            if not 0xDC00 <= low < 0xE000:
                return -1
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
            p += 6
        to += put_point(to, point)
    return to - start


cdef inline int compare(
    const Walk *w, int32_t column, const uint8_t *name, int64_t size
) noexcept nogil:
    """The name of a column beside another one: by size, then by bytes."""
    cdef int32_t start = w.ends[column]
    cdef int64_t known = w.ends[column + 1] - start
    if known != size:
        return -1 if known < size else 1
    # memcmp takes no null pointer, which no names, or no name, may be.
    return 0 if size == 0 else memcmp(w.names + start, name, <size_t> size)


cdef int32_t find_name(
    const Walk *w, const Column *c, const uint8_t *name, int64_t size, int64_t *guess
) noexcept nogil:
    """The child of a struct that has the name, or -1; `guess` is the one that may come next."""
    cdef uint8_t plain[ESCAPED_NAME_BYTES]
    cdef int64_t low = c.first, high = c.first + c.children, at
    cdef int32_t child
    cdef int found
    if size > ESCAPED_NAME_BYTES or c.children == 0:
        return -1
    if memchr(name, 0x5C, <size_t> size) != NULL:
        size = unescape(name, name + size, plain)
        name = plain
    if guess[0] < c.children and compare(w, w.s.kids[c.first + guess[0]], name, size) == 0:
        guess[0] += 1
        return w.s.kids[c.first + guess[0] - 1]
    while low < high:
        at = (low + high) >> 1
        child = w.s.kids[c.first + w.order[at]]
        found = compare(w, child, name, size)
        if found == 0:
            guess[0] = w.order[at] + 1
            return child
        if found < 0:
            low = at + 1
        else:
            high = at
    return -1


cdef const uint8_t *take_text(
    Walk *w, int32_t out, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    cdef State *s = w.s
    cdef const uint8_t *behind
    cdef int64_t size, plain
    cdef uint8_t *to
    cdef bint is_put
    if p[0] != 0x22:
        return fail(s, TYPE, out, p)
    behind = take_string(p + 1, end)
    if behind == NULL:
        return fail(s, SYNTAX, out, p)
    size = behind - p - 2
    if memchr(p + 1, 0x5C, <size_t> size) == NULL:
        return behind_if(put(s, out, p + 1, size), s, out, p, behind)
    to = room_for(s, out, size)
    if to == NULL:
        return fail(s, s.why, out, p)
    plain = unescape(p + 1, behind - 1, to)
    if plain < 0:
        return fail(s, TEXT, out, p)
    s.used[out] -= size - plain
    is_put = put_end(s, out, s.used[out]) and count_one(s, out, 1)
    return behind_if(is_put, s, out, p, behind)


cdef inline bint round_once(uint64_t digits, int64_t power, double *wide) noexcept nogil:
    """The double nearest to digits times a power of ten, unless that is not sure.

    Both are exact in 64 bits, so their product is the nearest one of 64 bits. What is then nearest
    of 53 bits is right, but where it lies in the middle between two.
    """
    cdef long double product = digits, rest
    if LDBL_MANT_DIG < EXACT_BITS or not -EXACT_POWER <= power <= EXACT_POWER:
        return False
    product = product / POWERS[-power] if power < 0 else product * POWERS[power]
    wide[0] = <double> product
    rest = product - wide[0]
    return rest == 0 or nextafter(wide[0], INFINITY if rest > 0 else 0) - product != rest


cdef double double_of(const uint8_t *p, const uint8_t *behind) noexcept with gil:
    """The double that is nearest to a number of at most NUMBER_BYTES."""
    cdef char text[NUMBER_BYTES + 1]
    memcpy(text, p, behind - p)
    text[behind - p] = 0
    return PyOS_string_to_double(text, NULL, NULL)


cdef const uint8_t *put_parsed(
    State *s, int32_t out, const uint8_t *p, const uint8_t *behind, bint is_negative,
    uint64_t digits, int64_t power, bint is_exact,
) noexcept nogil:
    """A number that is digits, the last of which is not 0, times a power of ten.

    They are exact unless there are too many digits, which is too many for a whole number.
    """
    cdef int64_t kind = s.columns[out].kind
    cdef double wide = 0
    cdef float single
    if kind == K_INT32 or kind == K_INT64:
        while digits and power > 0 and digits <= TENTH_OF_UINT64:
            digits *= 10
            power -= 1
        # Digits end in no zero, so that a power of ten leaves a fraction, or is too large.
        is_exact = is_exact and (not digits or power == 0)
        if not is_exact or digits > <uint64_t> 0x7FFFFFFFFFFFFFFF + is_negative:
            return fail(s, RANGE, out, p)
        digits = 0 - digits if is_negative else digits
        return behind_if(put_number(s, out, <int64_t> digits), s, out, p, behind)
    if is_exact and round_once(digits, power, &wide):
        wide = -wide if is_negative else wide
    elif behind - p > NUMBER_BYTES:
        return fail(s, LIMIT, out, p)
    else:
        wide = double_of(p, behind)
    single = <float> wide
    if isinf(single if kind == K_FLOAT else wide):
        return fail(s, RANGE, out, p)
    if kind == K_DOUBLE:
        return behind_if(put(s, out, &wide, 8), s, out, p, behind)
    return behind_if(put(s, out, &single, 4), s, out, p, behind)


cdef const uint8_t *take_numeral(
    State *s, int32_t out, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    cdef const uint8_t *at = p
    cdef const uint8_t *behind
    cdef bint is_negative = p[0] == 0x2D, is_fraction = False, below = False
    cdef uint64_t digits = 0
    cdef int64_t power = 0, count = 0, exponent = 0, zeros = 0
    if not (is_negative or 0x30 <= p[0] <= 0x39):
        return fail(s, TYPE, out, p)
    behind = take_number(p, end)
    if behind == NULL:
        return fail(s, SYNTAX, out, p)
    at += is_negative
    while at < behind and (at[0] | 0x20) != 0x65:  # e
        if at[0] == 0x2E:
            is_fraction = True
        else:
            power -= is_fraction
            zeros += 1
            if at[0] != 0x30:
                count += zeros if digits else 1
                if count <= EXACT_DIGITS:
                    while digits and zeros > 1:
                        digits *= 10
                        zeros -= 1
                    digits = digits * 10 + (at[0] & 0x0F)
                zeros = 0
        at += 1
    power += zeros if digits else 0
    if at < behind:
        at += 1
        below = at[0] == 0x2D
        at += below or at[0] == 0x2B
        while at < behind:
            exponent = exponent * 10 + (at[0] & 0x0F) if exponent < 100_000 else exponent
            at += 1
        power += -exponent if below else exponent
    return put_parsed(s, out, p, behind, is_negative, digits, power, count <= EXACT_DIGITS)


cdef const uint8_t *take_list(
    Walk *w, int32_t out, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    cdef State *s = w.s
    cdef int32_t child = s.kids[s.columns[out].first]
    cdef bint is_put
    if p[0] != 0x5B:
        return fail(s, TYPE, out, p)
    p = skip_white(p + 1, end)
    if p < end and p[0] == 0x5D:
        p += 1
    else:
        while True:
            p = take_json(w, child, p, end)
            if p == NULL:
                return NULL
            p = skip_white(p, end)
            if p == end or (p[0] != 0x2C and p[0] != 0x5D):
                return fail(s, SYNTAX, out, p)
            if p[0] == 0x5D:
                p += 1
                break
            p = skip_white(p + 1, end)
    is_put = put_end(s, out, s.counts[child]) and count_one(s, out, 1)
    return behind_if(is_put, s, out, p, p)


cdef const uint8_t *take_member(
    Walk *w, int32_t out, int64_t number, int64_t *guess, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    """A name of an object, which has a number, and its value."""
    cdef State *s = w.s
    cdef const uint8_t *name = p + 1
    cdef int32_t child
    cdef int64_t size
    if p == end or p[0] != 0x22:
        return fail(s, SYNTAX, out, p)
    p = take_string(name, end)
    if p == NULL:
        return fail(s, SYNTAX, out, name)
    size = p - 1 - name
    p = skip_white(p, end)
    if p == end or p[0] != 0x3A:
        return fail(s, SYNTAX, out, p)
    p = skip_white(p + 1, end)
    child = find_name(w, &s.columns[out], name, size, guess)
    if child < 0:
        name = p
        p = take_value(p, end)
        return p if p != NULL else fail(s, SYNTAX, out, name)
    if w.stamps[child] == number:
        return fail(s, TWICE, child, name)
    w.stamps[child] = number
    return take_json(w, child, p, end)


cdef const uint8_t *take_object(
    Walk *w, int32_t out, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    cdef State *s = w.s
    cdef Column *c = &s.columns[out]
    cdef int64_t i, number, guess = 0
    cdef int32_t child
    if p[0] != 0x7B:
        return fail(s, TYPE, out, p)
    w.objects += 1
    number = w.objects
    p = skip_white(p + 1, end)
    if p < end and p[0] == 0x7D:
        p += 1
    else:
        while True:
            p = take_member(w, out, number, &guess, p, end)
            if p == NULL:
                return NULL
            p = skip_white(p, end)
            if p == end or (p[0] != 0x2C and p[0] != 0x7D):
                return fail(s, SYNTAX, out, p)
            if p[0] == 0x7D:
                p += 1
                break
            p = skip_white(p + 1, end)
    for i in range(c.children):
        child = s.kids[c.first + i]
        if w.stamps[child] != number and not put_null(s, child):
            return fail(s, s.why, out, p)
    return behind_if(count_one(s, out, 1), s, out, p, p)


cdef const uint8_t *take_json(
    Walk *w, int32_t out, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    """A value for a column; returns the place after it, or NULL with the reason in the state."""
    cdef State *s = w.s
    cdef Column *c = &s.columns[out]
    cdef const uint8_t *behind = p
    cdef uint8_t truth
    s.steps -= 1
    if s.steps < 0:
        return fail(s, LIMIT, out, p)
    if p == end:
        return fail(s, SYNTAX, out, p)
    if p[0] == 0x6E:  # n
        if end - p < 4 or memcmp(p, b"null", 4) != 0:
            return fail(s, SYNTAX, out, p)
        return behind_if(put_null(s, out), s, out, p, p + 4)
    if c.kind == K_STRUCT:
        return take_object(w, out, p, end)
    if c.kind == K_LIST:
        return take_list(w, out, p, end)
    if c.kind == K_BYTES and c.least != 1:
        return take_text(w, out, p, end)
    if c.kind == K_BYTES:
        behind = take_value(p, end)
        if behind == NULL:
            return fail(s, SYNTAX, out, p)
        return behind_if(put(s, out, p, behind - p), s, out, p, behind)
    if c.kind == K_BOOL:
        truth = p[0] == 0x74  # t
        if truth and end - p >= 4 and memcmp(p, b"true", 4) == 0:
            behind = p + 4
        elif end - p >= 5 and memcmp(p, b"false", 5) == 0:
            behind = p + 5
        if behind == p:
            return fail(s, TYPE, out, p)
        return behind_if(put(s, out, &truth, 1), s, out, p, behind)
    if c.kind == K_NULL:
        return fail(s, TYPE, out, p)
    return take_numeral(s, out, p, end)


cdef bint take_row(void *walk, const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef Walk *w = <Walk *> walk
    if not is_utf8(p, end - p):
        fail(w.s, TEXT, 0, p)
        return False
    p = take_json(w, 0, skip_white(p, end), end)
    if p == NULL:
        return False
    p = skip_white(p, end)
    if p != end:
        fail(w.s, TRAILING, 0, p)
    return p == end


def decode_json(
    Columns columns not None,
    const int64_t[::1] offsets not None,
    const uint8_t[::1] data not None,
    const uint8_t[::1] wanted not None,
    const uint8_t[::1] names not None,
    const int32_t[::1] ends not None,
    const int32_t[::1] order not None,
    dict faults not None,
):
    """Add a row for each payload.

    Args:
        columns: structs, lists, texts, numbers and booleans, all of which may be null.
        offsets: int64[n + 1], of the payloads within `data`.
        data: the bytes.
        wanted: uint8[n], 0 for payloads that are null.
        names, ends, order: see above; the caller has checked them.
        faults: takes (why, column, position in the payload) by row.

    Raises:
        ValueError: the offsets do not ascend within `data`, or arrays differ in size.
        MemoryError: there is no memory for the columns.
    """
    cdef Walk w
    if ends.shape[0] != columns.count + 1:
        raise ValueError("columns and names differ in number")
    if order.shape[0] != columns.kids.shape[0]:
        raise ValueError("the order of names is not that of the columns")
    w.s, w.names, w.ends = &columns.state, pointer_to(names), &ends[0]
    w.order, w.objects = &order[0] if order.shape[0] else NULL, 0
    w.stamps = <int64_t *> calloc(<size_t> columns.count, sizeof(int64_t))
    if w.stamps == NULL:
        raise MemoryError
    try:
        columns.add_rows(take_row, &w, offsets, data, wanted, faults, 0)
    finally:
        free(w.stamps)
