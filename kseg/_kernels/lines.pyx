"""Lines of JSON to columns: what `_kernels.text` writes, read back, a block per call.

The contract is that of `_core`: borrowed input, arrays of the caller's for output, a status instead
of an exception. What is wrong with a line is for the caller to find out: such lines are rare.

A line is one JSON object or blank. Its fields `value`, `key`, `headers`, `timestamp`, `control` and
`valid` are looked at, the last of each name; all others need only be JSON. Strings are taken as
UTF-8 that the caller has checked. In place of any string of bytes, names of headers too, there may
be `{"base64": "..."}`, as `_kernels.text` writes what is not UTF-8.

Sources: RFC 8259 (JSON), RFC 4648 sections 4 and 8 (base64 and hex, nothing else between digits).
"""

from collections import namedtuple

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

# Encodings of keys, values and header values.
BASE64 = 0
HEX = 1
UTF8 = 2

# Rows of the arrays for binary columns.
VALUE = 0
KEY = 1
HEADER_NAME = 2
HEADER_VALUE = 3
BINARY_COLUMNS = 4

#: Lists and objects within each other that are followed.
DEPTH_MAX = 64
#: The same in a value of JSON that is no line.
VALUE_DEPTH_MAX = 512
#: The shortest header, `["",""]`, which bounds how many a text can hold.
HEADER_BYTES_MIN = 7

LinesEnd = namedtuple("LinesEnd", "rows headers controls lines faulty nulls")

cdef enum:
    E_BASE64 = 0
    E_HEX = 1
    E_UTF8 = 2
    C_VALUE = 0
    C_KEY = 1
    C_NAME = 2
    C_HEADER_VALUE = 3
    C_COUNT = 4
    K_ABSENT = 0
    K_NULL = 1
    K_TRUE = 2
    K_FALSE = 3
    K_INTEGER = 4
    K_FRACTION = 5
    K_STRING = 6
    K_ARRAY = 7
    K_OBJECT = 8
    F_VALUE = 0
    F_KEY = 1
    F_HEADERS = 2
    F_TIMESTAMP = 3
    F_CONTROL = 4
    F_VALID = 5
    F_OTHER = 6
    F_COUNT = 7
    MAX_DEPTH = 64
    VALUE_DEPTH = 512
    LEVEL_WORDS = 8           # VALUE_DEPTH bits
    MIN_HEADER_BYTES = 7
    NAME_BYTES_MAX = 64       # every letter of the longest name as an escape fits
    LINE_BLANK = 0
    LINE_RECORD = 1
    LINE_CONTROL = 2
    LINE_FAULTY = 3

cdef struct Token:
    int kind
    const uint8_t *start      # of a string: behind its quote
    Py_ssize_t size           # of a string: without its quotes
    bint escaped

cdef struct Column:
    int32_t *offsets
    uint8_t *data
    uint8_t *validity
    int64_t count
    int64_t nulls

cdef struct Output:
    Column columns[C_COUNT]
    int32_t *header_offsets
    int64_t *timestamps
    int64_t *numbers
    int encoding
    bint keep_timestamps
    int64_t now_ms

cdef uint32_t[4][256] DIGITS  # of base64, in their place; above 24 bits: no digit
cdef uint8_t[256] NIBBLES     # of hex; 255: no digit


cdef void fill_tables() noexcept:
    """Run once at import."""
    cdef int i, place
    cdef const char *digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for i in range(256):
        NIBBLES[i] = 255
        for place in range(4):
            DIGITS[place][i] = 0xFF000000
    for i in range(64):
        for place in range(4):
            DIGITS[place][<uint8_t>digits[i]] = <uint32_t>i << (18 - 6 * place)
    for i in range(10):
        NIBBLES[48 + i] = i
    for i in range(6):
        NIBBLES[65 + i] = NIBBLES[97 + i] = 10 + i


fill_tables()


# ---- JSON ----------------------------------------------------------------------------------------
#
# Each function takes a place and the line's end, and answers the place behind what it read, or
# NULL. Nothing at or behind `end` is read.

cdef inline const uint8_t *skip_white(const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end and (p[0] == 0x20 or p[0] == 0x09 or p[0] == 0x0D or p[0] == 0x0A):
        p += 1
    return p


cdef inline bint special8(uint64_t word) noexcept nogil:
    """Is one of these eight bytes a quote, a backslash or a control character?"""
    cdef uint64_t ones = 0x0101010101010101ULL
    cdef uint64_t quote = word ^ (ones * 0x22)
    cdef uint64_t slash = word ^ (ones * 0x5C)
    return (
        ((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)
    ) & 0x8080808080808080ULL != 0


cdef const uint8_t *take_escape(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """What follows a backslash."""
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
        if NIBBLES[p[i]] == 255:
            return NULL
    return p + 5


cdef const uint8_t *take_string(
    const uint8_t *p, const uint8_t *end, Token *token
) noexcept nogil:
    """A string, from behind its first quote on."""
    cdef uint64_t word
    token.kind = K_STRING
    token.start = p
    token.escaped = False
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
            token.size = p - token.start
            return p + 1
        token.escaped = True
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


cdef const uint8_t *take_number(
    const uint8_t *p, const uint8_t *end, Token *token
) noexcept nogil:
    cdef const uint8_t *digits
    token.kind = K_INTEGER
    token.start = p
    if p[0] == 0x2D:  # -
        p += 1
    digits = p
    p = take_digits(p, end)
    if p == NULL or (digits[0] == 0x30 and p - digits > 1):
        return NULL
    if p < end and p[0] == 0x2E:  # .
        token.kind = K_FRACTION
        p = take_digits(p + 1, end)
        if p == NULL:
            return NULL
    if p < end and (p[0] | 0x20) == 0x65:  # e
        token.kind = K_FRACTION
        p += 1
        if p < end and (p[0] == 0x2B or p[0] == 0x2D):  # + -
            p += 1
        p = take_digits(p, end)
        if p == NULL:
            return NULL
    token.size = p - token.start
    return p


cdef const uint8_t *take_word(
    const uint8_t *p, const uint8_t *end, Token *token
) noexcept nogil:
    if end - p >= 4 and memcmp(p, b"null", 4) == 0:
        token.kind = K_NULL
        return p + 4
    if end - p >= 4 and memcmp(p, b"true", 4) == 0:
        token.kind = K_TRUE
        return p + 4
    if end - p >= 5 and memcmp(p, b"false", 5) == 0:
        token.kind = K_FALSE
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


cdef const uint8_t *take_name(const uint8_t *p, const uint8_t *end, Token *name) noexcept nogil:
    """A name and the colon behind it; answers where the value begins."""
    if p == end or p[0] != 0x22:
        return NULL
    p = take_string(p + 1, end, name)
    if p == NULL:
        return NULL
    p = skip_white(p, end)
    if p == end or p[0] != 0x3A:  # :
        return NULL
    return skip_white(p + 1, end)


cdef const uint8_t *take_plain(
    const uint8_t *p, const uint8_t *end, Token *token
) noexcept nogil:
    """A value that is no list and no object."""
    if p == end:
        return NULL
    if p[0] == 0x22:
        return take_string(p + 1, end, token)
    if p[0] == 0x2D or 0x30 <= p[0] <= 0x39:
        return take_number(p, end, token)
    return take_word(p, end, token)


cdef const uint8_t *take_value(
    const uint8_t *p, const uint8_t *end, Token *token, int depth
) noexcept nogil:
    """Any value; of lists and objects only where they lie.

    A level of these takes a bit and no call, since the stack of a thread may be small.
    """
    cdef uint64_t[LEVEL_WORDS] objects  # a bit a level: set for an object
    cdef Token inner
    cdef Token *found = token
    cdef int levels = 0
    cdef bint is_object = False
    while True:
        if p < end and (p[0] == 0x5B or p[0] == 0x7B):  # [ {
            if depth + levels == MAX_DEPTH:
                return NULL
            is_object = p[0] == 0x7B
            if levels == 0:
                token.kind = K_OBJECT if is_object else K_ARRAY
                token.start = p
            put_bit(objects, levels, is_object)
            levels += 1
            found = &inner
            p = skip_white(p + 1, end)
            if p == end or p[0] != (0x7D if is_object else 0x5D):
                p = take_name(p, end, &inner) if is_object else p
                if p == NULL:
                    return NULL
                continue
        else:
            p = take_plain(p, end, found)
            if p == NULL or levels == 0:
                return p
        # A value has ended, or an empty list or object ends: up to where the next value begins.
        while True:
            p = skip_white(p, end)
            if p == end:
                return NULL
            if p[0] == 0x2C:  # ,
                p = skip_white(p + 1, end)
                p = take_name(p, end, &inner) if is_object else p
                if p == NULL:
                    return NULL
                break
            if p[0] != (0x7D if is_object else 0x5D):
                return NULL
            p += 1
            levels -= 1
            if levels == 0:
                token.size = p - token.start
                return p
            is_object = has_bit(objects, levels - 1)


# ---- text to bytes -------------------------------------------------------------------------------

cdef uint32_t escaped_unit(const uint8_t *digits) noexcept nogil:
    """The 16 bits that four hex digits say."""
    cdef uint32_t unit = 0
    cdef int i
    for i in range(4):
        unit = (unit << 4) | NIBBLES[digits[i]]
    return unit


cdef uint8_t *put_point(uint8_t *out, uint32_t point) noexcept nogil:
    """One character in UTF-8."""
    if point < 0x80:
        out[0] = <uint8_t>point
        return out + 1
    if point < 0x800:
        out[0] = <uint8_t>(0xC0 | point >> 6)
        out[1] = <uint8_t>(0x80 | point & 0x3F)
        return out + 2
    if point < 0x10000:
        out[0] = <uint8_t>(0xE0 | point >> 12)
        out[1] = <uint8_t>(0x80 | point >> 6 & 0x3F)
        out[2] = <uint8_t>(0x80 | point & 0x3F)
        return out + 3
    out[0] = <uint8_t>(0xF0 | point >> 18)
    out[1] = <uint8_t>(0x80 | point >> 12 & 0x3F)
    out[2] = <uint8_t>(0x80 | point >> 6 & 0x3F)
    out[3] = <uint8_t>(0x80 | point & 0x3F)
    return out + 4


cdef inline uint8_t plain_escape(uint8_t letter) noexcept nogil:
    """The character that a letter behind a backslash stands for."""
    if letter == 0x62:
        return 0x08
    if letter == 0x66:
        return 0x0C
    if letter == 0x6E:
        return 0x0A
    if letter == 0x72:
        return 0x0D
    return 0x09 if letter == 0x74 else letter


cdef Py_ssize_t unescape(uint8_t *out, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """A string without its escapes, never longer than it was; -1 for half a surrogate pair."""
    cdef const uint8_t *end = p + size
    cdef uint8_t *start = out
    cdef uint32_t point, low
    while p < end:
        if p[0] != 0x5C:
            out[0] = p[0]
            out += 1
            p += 1
            continue
        if p[1] != 0x75:
            out[0] = plain_escape(p[1])
            out += 1
            p += 2
            continue
        point = escaped_unit(p + 2)
        p += 6
        if 0xD800 <= point < 0xE000:
            if point >= 0xDC00 or end - p < 6 or p[0] != 0x5C or p[1] != 0x75:
                return -1
            low = escaped_unit(p + 2)
            if not 0xDC00 <= low < 0xE000:
                return -1
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
            p += 6
        out = put_point(out, point)
    return out - start


cdef Py_ssize_t put_base64(uint8_t *out, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """Bytes of base64, in place if need be; -1 where it is none."""
    cdef uint8_t *start = out
    cdef uint32_t group
    cdef Py_ssize_t whole = size
    if size % 4:
        return -1
    if size and p[size - 1] == 0x3D:
        whole -= 4
    cdef const uint8_t *end = p + whole
    while p < end:
        group = DIGITS[0][p[0]] | DIGITS[1][p[1]] | DIGITS[2][p[2]] | DIGITS[3][p[3]]
        if group >> 24:
            return -1
        out[0] = <uint8_t>(group >> 16)
        out[1] = <uint8_t>(group >> 8)
        out[2] = <uint8_t>group
        out += 3
        p += 4
    if whole < size:
        group = DIGITS[0][p[0]] | DIGITS[1][p[1]]
        if p[2] != 0x3D:
            group |= DIGITS[2][p[2]]
        if group >> 24:
            return -1
        size = 1 if p[2] == 0x3D else 2
        out[0] = <uint8_t>(group >> 16)
        if size == 2:
            out[1] = <uint8_t>(group >> 8)
        out += size
    return out - start


cdef Py_ssize_t put_hex(uint8_t *out, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """Bytes of hex digits, in place if need be; -1 where they are none."""
    cdef Py_ssize_t i
    cdef uint8_t high, low
    if size % 2:
        return -1
    for i in range(size // 2):
        high, low = NIBBLES[p[2 * i]], NIBBLES[p[2 * i + 1]]
        if (high | low) == 255:
            return -1
        out[i] = <uint8_t>(high << 4 | low)
    return size // 2


cdef Py_ssize_t put_text(uint8_t *out, const Token *token, int encoding) noexcept nogil:
    """What a string says; never more bytes than it has itself. -1 where it says nothing."""
    cdef const uint8_t *source = token.start
    cdef Py_ssize_t size = token.size
    if token.escaped:
        size = unescape(out, source, size)
        source = out
        if size < 0:
            return -1
    if encoding == E_BASE64:
        return put_base64(out, source, size)
    if encoding == E_HEX:
        return put_hex(out, source, size)
    if not token.escaped:
        memcpy(out, source, <size_t>size)
    return size


# ---- lines to rows -------------------------------------------------------------------------------

cdef bint find_base64(const Token *token, Token *text) noexcept nogil:
    """The string of `{"base64": "..."}`; False where the object, which is JSON, is another."""
    cdef const uint8_t *end = token.start + token.size - 1
    cdef const uint8_t *p = skip_white(token.start + 1, end)
    cdef Token name
    p = take_name(p, end, &name)
    if p == NULL or name.escaped or name.size != 6 or memcmp(name.start, b"base64", 6) != 0:
        return False
    p = take_value(p, end, text, 0)
    return text.kind == K_STRING and skip_white(p, end) == end


cdef bint add_bytes(Column *column, const Token *token, int encoding) noexcept nogil:
    """One more value; False where the token is none. In bounds: see `parse_lines`."""
    cdef int32_t at = column.offsets[column.count]
    cdef Py_ssize_t size = 0
    cdef Token text
    if token.kind == K_OBJECT:
        return find_base64(token, &text) and add_bytes(column, &text, E_BASE64)
    if token.kind == K_STRING:
        size = put_text(column.data + at, token, encoding)
        if size < 0:
            return False
        column.validity[column.count >> 3] |= <uint8_t>(1 << (column.count & 7))
    elif token.kind > K_NULL:
        return False
    else:
        column.nulls += 1
    column.count += 1
    column.offsets[column.count] = at + <int32_t>size
    return True


cdef bint add_headers(Output *out, const Token *token) noexcept nogil:
    """The pairs of a list that is known to be JSON."""
    cdef const uint8_t *p
    cdef const uint8_t *end = token.start + token.size - 1
    cdef Token name, value
    if token.kind <= K_NULL:
        return True
    if token.kind != K_ARRAY:
        return False
    p = skip_white(token.start + 1, end)
    while p < end:
        if p[0] != 0x5B:  # [
            return False
        p = skip_white(p + 1, end)
        if p[0] != 0x22 and p[0] != 0x7B:  # a string, or an object
            return False
        p = skip_white(take_value(p, end, &name, 0), end)
        if p[0] != 0x2C:  # ,
            return False
        p = skip_white(take_value(skip_white(p + 1, end), end, &value, 0), end)
        if p[0] != 0x5D:  # ]
            return False
        if not add_bytes(&out.columns[C_NAME], &name, E_UTF8):
            return False
        if not add_bytes(&out.columns[C_HEADER_VALUE], &value, out.encoding):
            return False
        p = skip_white(p + 1, end)
        if p < end:  # a comma
            p = skip_white(p + 1, end)
    return True


cdef bint read_time(const Token *token, int64_t now_ms, int64_t *time) noexcept nogil:
    """A number of ms from -1 on; now where there is none."""
    cdef Py_ssize_t i
    cdef int64_t digit
    time[0] = now_ms
    if token.kind <= K_NULL:
        return True
    if token.kind != K_INTEGER:
        return False
    time[0] = 0
    cdef bint negative = token.start[0] == 0x2D
    for i in range(negative, token.size):
        digit = token.start[i] - 0x30
        if time[0] > (INT64_MAX - digit) // 10:
            return False
        time[0] = time[0] * 10 + digit
    if negative:
        time[0] = -time[0]
    return time[0] >= -1


cdef int field_of(const Token *name) noexcept nogil:
    """Which field a name stands for."""
    cdef uint8_t plain[NAME_BYTES_MAX]
    cdef const uint8_t *text = name.start
    cdef Py_ssize_t size = name.size
    if name.escaped:
        size = unescape(plain, text, size) if size <= NAME_BYTES_MAX else -1
        text = plain
    if size == 5 and memcmp(text, b"value", 5) == 0:
        return F_VALUE
    if size == 3 and memcmp(text, b"key", 3) == 0:
        return F_KEY
    if size == 7 and memcmp(text, b"headers", 7) == 0:
        return F_HEADERS
    if size == 9 and memcmp(text, b"timestamp", 9) == 0:
        return F_TIMESTAMP
    if size == 7 and memcmp(text, b"control", 7) == 0:
        return F_CONTROL
    if size == 5 and memcmp(text, b"valid", 5) == 0:
        return F_VALID
    return F_OTHER


cdef int parse_line(const uint8_t *p, const uint8_t *end, Token *fields) noexcept nogil:
    """Where the fields of a line lie."""
    cdef Token name
    cdef int i
    for i in range(F_COUNT):
        fields[i].kind = K_ABSENT
    p = skip_white(p, end)
    if p == end:
        return LINE_BLANK
    if p[0] != 0x7B:  # {
        return LINE_FAULTY
    p = skip_white(p + 1, end)
    if p < end and p[0] == 0x7D:  # an object without fields, so without a value
        return LINE_FAULTY
    while True:
        p = take_name(p, end, &name)
        if p == NULL:
            return LINE_FAULTY
        p = take_value(p, end, &fields[field_of(&name)], 1)
        if p == NULL:
            return LINE_FAULTY
        p = skip_white(p, end)
        if p == end:
            return LINE_FAULTY
        if p[0] == 0x7D:
            break
        if p[0] != 0x2C:
            return LINE_FAULTY
        p = skip_white(p + 1, end)
    if skip_white(p + 1, end) != end:
        return LINE_FAULTY
    return LINE_CONTROL if fields[F_CONTROL].kind == K_TRUE else LINE_RECORD


cdef int add_line(
    Output *out, const uint8_t *p, const uint8_t *end, int64_t number
) noexcept nogil:
    """Parse one line and add its row; answers what the line was."""
    cdef Token fields[F_COUNT]
    cdef int64_t row = out.columns[C_VALUE].count
    cdef int kind = parse_line(p, end, fields)
    if kind != LINE_RECORD:
        return kind
    if fields[F_VALUE].kind == K_ABSENT or fields[F_VALID].kind == K_FALSE:
        return LINE_FAULTY
    if out.keep_timestamps:
        if not read_time(&fields[F_TIMESTAMP], out.now_ms, &out.timestamps[row]):
            return LINE_FAULTY
    else:
        out.timestamps[row] = out.now_ms
    if not add_headers(out, &fields[F_HEADERS]):
        return LINE_FAULTY
    if not add_bytes(&out.columns[C_KEY], &fields[F_KEY], out.encoding):
        return LINE_FAULTY
    if not add_bytes(&out.columns[C_VALUE], &fields[F_VALUE], out.encoding):
        return LINE_FAULTY
    out.header_offsets[row + 1] = <int32_t>out.columns[C_NAME].count
    out.numbers[row] = number
    return LINE_RECORD


def parse_lines(
    bytes text not None,
    int encoding,
    bint keep_timestamps,
    int64_t now_ms,
    int32_t[:, ::1] offsets,
    uint8_t[:, ::1] bytes_out,
    uint8_t[:, ::1] validity,
    int32_t[::1] header_offsets,
    int64_t[::1] timestamps,
    int64_t[::1] numbers,
    int64_t[::1] controls,
):
    """Take the records of whole lines, up to the first line that is none.

    Args:
        text: UTF-8, each line with its end, less than 2 GiB. It is looked at more than once, so
            that it is an object that never changes.
        encoding: of keys, values and header values: BASE64, HEX or UTF8.
        keep_timestamps: take times from the lines.
        now_ms: the time of lines that have none, or of all.
        offsets: int32[BINARY_COLUMNS, m + 1], zeros; m is at least the number of lines, and
            `len(text) // HEADER_BYTES_MIN`.
        bytes_out: uint8[BINARY_COLUMNS, len(text) or more]; no text becomes longer bytes.
        validity: uint8[BINARY_COLUMNS, (m + 7) // 8], zeros.
        header_offsets: int32[lines + 1], zeros.
        timestamps: int64[lines], of each row.
        numbers: int64[lines], the zero-based number of each row's line.
        controls: int64[lines], the zero-based numbers of lines that hold control records.

    Returns:
        LinesEnd(rows, headers, controls, lines, faulty, nulls): lines read; if `faulty`, the next
        one is no record. `nulls` are those of each binary column; the bits of a column without
        any are to be passed over.
    """
    cdef int64_t size = len(text), line = 0, control_count = 0
    if size > 0x7FFFFFFF:
        raise ValueError("the text has 2 GiB or more")
    if encoding not in (E_BASE64, E_HEX, E_UTF8):
        raise ValueError(f"no encoding is numbered {encoding}")
    if offsets.shape[0] != C_COUNT or bytes_out.shape[0] != C_COUNT or validity.shape[0] != C_COUNT:
        raise ValueError(f"there are {C_COUNT} binary columns")
    cdef int64_t room = offsets.shape[1] - 1, rows_max = timestamps.shape[0]
    if room < rows_max or room < size // MIN_HEADER_BYTES or validity.shape[1] * 8 < room:
        raise ValueError("offsets or validity bits have too few columns")
    if bytes_out.shape[1] < size:
        raise ValueError("the bytes have less room than the text")
    if header_offsets.shape[0] <= rows_max or min(numbers.shape[0], controls.shape[0]) < rows_max:
        raise ValueError("header offsets, numbers or controls are fewer than timestamps")
    if size == 0:
        return LinesEnd(0, 0, 0, 0, False, (0, 0, 0, 0))
    cdef Output out
    cdef int i, kind = LINE_BLANK
    for i in range(C_COUNT):
        out.columns[i].offsets = &offsets[i, 0]
        out.columns[i].data = &bytes_out[i, 0]
        out.columns[i].validity = &validity[i, 0] if validity.shape[1] else NULL
        out.columns[i].count = out.columns[i].nulls = 0
    out.header_offsets = &header_offsets[0]
    out.timestamps = &timestamps[0] if rows_max else NULL
    out.numbers = &numbers[0] if rows_max else NULL
    out.encoding, out.keep_timestamps, out.now_ms = encoding, keep_timestamps, now_ms
    cdef const uint8_t *p = text
    cdef const uint8_t *end = p + size
    cdef const uint8_t *line_end
    # In bounds: a line adds one row at most, and a header takes HEADER_BYTES_MIN of text.
    with nogil:
        while p < end and line < rows_max:
            line_end = <const uint8_t *>memchr(p, 0x0A, <size_t>(end - p))
            if line_end == NULL:
                line_end = end
            kind = add_line(&out, p, line_end, line)
            if kind == LINE_FAULTY:
                break
            if kind == LINE_CONTROL:
                controls[control_count] = line
                control_count += 1
            line += 1
            p = line_end + 1
    cdef tuple nulls = tuple([out.columns[i].nulls for i in range(C_COUNT)])
    cdef int64_t rows = out.columns[C_VALUE].count, headers = out.columns[C_NAME].count
    return LinesEnd(rows, headers, control_count, line, kind == LINE_FAULTY, nulls)


# ---- values --------------------------------------------------------------------------------------

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
    cdef Token token
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
            p = take_value(p, end, &token, MAX_DEPTH - VALUE_DEPTH)
            if p != NULL and skip_white(p, end) == end:
                marks[row] = 0
        else:
            row = count
    if row < count:
        raise ValueError(f"offsets of value {row} lie outside their data")
