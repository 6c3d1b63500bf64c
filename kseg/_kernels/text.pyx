"""Text kernels: columns to JSON lines, CSV or plain text, a block of rows per call.

A *template* is a tuple of pieces, written one after another for each row; `write_rows` fills a
buffer of the caller's with as many whole rows as are sure to fit. A piece is a tuple:

  (TEXT,    lead)                                        constant
  (INT,     lead, null, column, sentinel or None)        signed decimal
  (TIME,    lead, null, column)                          milliseconds as ISO 8601 UTC; -1 is null
  (ENUM,    lead, null, column, names, first)            names[value - first]; names[-1] for others
  (BYTES,   lead, null, style, offsets, data, validity)  a binary column in Arrow layout
  (HEADERS, lead, null, style, offsets, key_offsets, key_data,
                               value_offsets, value_data, value_validity)

`lead` is written before the value; `null` stands for an absent value, and where it is None an
absent value (for headers: an empty list) takes its `lead` with it. A `style` is an encoding
(BASE64, HEX, UTF8, RAW), plus CSV where a quote in it is doubled, plus NESTED where the quotes
around it are too, plus EXACT where a value that is not UTF-8 becomes `{"base64":"..."}` whole;
names of headers always do. BARE has no quotes around a value, escapes neither quotes nor
backslashes in it, and of HEADERS writes the names alone, as `[a,b]`; JAVA replaces a surrogate
by one U+FFFD, as Java does, instead of three. UTF8 is the body of a JSON string:
valid UTF-8 stays as it is, invalid becomes U+FFFD, and what could steer a terminal or end a line
(C0, DEL, C1, line and paragraph separators, direction marks) is escaped as \\uXXXX. RAW replaces
invalid UTF-8 only; it is for files.

A row costs what is new in it: consecutive pieces whose columns hardly change are written once, as a
*group*, and copied from the row before until one of them changes. `csrc/text.h` has the vectors.

Sources: RFC 8259 section 7 (strings), RFC 4648 section 4 (base64), RFC 4180 (CSV), Unicode 3.9
table 3-7 (well-formed UTF-8; one U+FFFD for each maximal subpart).
"""

from collections import namedtuple

from cpython.buffer cimport PyBUF_RECORDS_RO, PyBUF_SIMPLE, PyBUF_WRITABLE
from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kseg._core cimport is_utf8, take_utf8

# Kinds of pieces.
cpdef enum:
    TEXT
    INT
    TIME
    ENUM
    BYTES
    HEADERS

# Styles: an encoding, plus CSV, NESTED, EXACT, BARE, JAVA.
cpdef enum:
    BASE64 = 0
    HEX = 1
    UTF8 = 2
    RAW = 3
    CSV = 4
    NESTED = 8
    EXACT = 16
    BARE = 32
    JAVA = 64

RowsEnd = namedtuple("RowsEnd", "next_row written")
BytesEnd = namedtuple("BytesEnd", "used written")

cdef extern from "text.h" nogil:
    int KSEG_TEXT_SLACK
    int KSEG_ASCII
    int KSEG_NO_QUOTE
    int KSEG_PRINTABLE
    int KSEG_JSON_PLAIN
    size_t kseg_copy_run(
        char* out, const uint8_t* data, size_t size, size_t readable, int kind
    ) noexcept
    size_t kseg_ascii_run(const uint8_t* data, size_t size) noexcept
    size_t kseg_json(char** out, const uint8_t* data, size_t size, size_t readable) noexcept
    size_t kseg_base64(char* out, const uint8_t* data, size_t size, size_t readable) noexcept
    char* kseg_put_pair(char* out, uint32_t value) noexcept
    char* kseg_put_uint(char* out, uint64_t value) noexcept
    char* kseg_put_padded(char* out, const char* text, size_t size) noexcept
    int kseg_ones(uint64_t bits) noexcept
    uint64_t kseg_changes(
        const char* base, Py_ssize_t stride, size_t itemsize, size_t rows
    ) noexcept
    bint kseg_text_select(bint vectors) noexcept
    void kseg_text_init() noexcept

cdef enum:
    ENCODING_MASK = 3
    PIECES_MAX = 48
    NAMES_MAX = 16
    VIEWS_MAX = 160
    NUMBER_TEXT_MAX = 24      # 2025-10-09T08:53:20.000Z; -9223372036854775808 is shorter
    EXACT_TEXT_MAX = 18       # {""base64"":""…""}
    HEADER_TEXT_MAX = 52      # ,[""…"",""…""] and a null, with both of them as {""base64"":""…""}
    ENCODE_BYTES_MIN = 64     # so that a call always takes more than one cut character
    BLOCK_ROWS = 64           # rows planned at a time: a bit each
    FEW_ROWS = 8              # where so many do not fit for sure
    LEAD_BYTES = 32           # leads up to this size are copied as a whole
    SELDOM = 8                # a piece that changes in one row of so many, or less, joins a group
    STATUS_OK = 0
    STATUS_BAD_OFFSETS = 1

cdef struct Column:
    const char* base
    Py_ssize_t stride
    Py_ssize_t itemsize
    Py_ssize_t count

cdef struct Binary:
    const int32_t* offsets
    Py_ssize_t count          # values, so offsets has one more
    const uint8_t* data
    Py_ssize_t data_bytes
    const uint8_t* validity   # NULL where every value is present

cdef struct Bytes:
    const uint8_t* data
    Py_ssize_t count          # -1 for null
    Py_ssize_t readable

cdef struct Piece:
    int kind
    int style
    const char* lead
    Py_ssize_t lead_bytes
    char short_lead[LEAD_BYTES]
    const char* null_text     # NULL: an absent value is left out, lead and all
    Py_ssize_t null_bytes
    Column column
    bint has_sentinel
    int64_t sentinel
    const char* names[NAMES_MAX]
    Py_ssize_t name_bytes[NAMES_MAX]
    Py_ssize_t name_count
    int64_t first
    Binary values
    Binary keys
    const int32_t* header_offsets
    Py_ssize_t header_rows

cdef struct Step:
    int first                 # a group: pieces `first` up to `end`; else the one piece `first`
    int end
    bint grouped
    uint64_t changed          # rows of the block where the text of a group differs
    const char* text          # where it was written last
    Py_ssize_t size

cdef struct Rows:
    Piece pieces[PIECES_MAX]
    int count
    int binary[PIECES_MAX]    # the pieces of bytes and of headers
    int binary_count
    bint masked
    Column select
    Py_ssize_t row            # the next one
    char* begin
    char* at
    char* end

cdef struct Views:
    Py_buffer views[VIEWS_MAX]
    Py_ssize_t count

cdef frozenset COLUMN_FORMATS = frozenset((b"?", b"b", b"h", b"i", b"l", b"q"))
cdef const char* HEX_DIGITS = b"0123456789abcdef"
cdef const char* BASE64_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef const char* REPLACEMENT = b"\xef\xbf\xbd"
cdef const char* QUOTES = b'""'
cdef char[8192] BASE64_PAIRS  # two digits for each 12 bits
cdef uint8_t[256] PLAIN       # 1 for ASCII that a JSON string holds as it is


cdef void fill_tables() noexcept:
    """Digit pairs and the plain ASCII set; run once at import."""
    cdef int i
    kseg_text_init()
    for i in range(4096):
        BASE64_PAIRS[2 * i] = BASE64_DIGITS[i >> 6]
        BASE64_PAIRS[2 * i + 1] = BASE64_DIGITS[i & 63]
    for i in range(256):
        PLAIN[i] = 0x20 <= i < 0x7F and i != 0x22 and i != 0x5C


fill_tables()


# Encoders. Each writes no more than its bound below, which the caller has made sure of.

cdef inline Py_ssize_t content_bound(int style, Py_ssize_t count) noexcept nogil:
    """Most bytes that `count` bytes of data can become, without the quotes around them.

    To this comes `KSEG_TEXT_SLACK`, which may be written but does not count.
    """
    cdef int encoding = style & ENCODING_MASK
    if encoding == BASE64:
        return (count + 2) // 3 * 4
    if encoding == HEX:
        return count * 2
    if encoding == UTF8:
        return count * 6
    return count * 3


cdef inline char* put(char* out, const char* text, Py_ssize_t count) noexcept nogil:
    memcpy(out, text, <size_t> count)
    return out + count


cdef char* put_base64(
    char* out, const uint8_t* data, Py_ssize_t count, Py_ssize_t readable
) noexcept nogil:
    cdef Py_ssize_t i = <Py_ssize_t> kseg_base64(out, data, <size_t> count, <size_t> readable)
    cdef uint32_t group
    if i == count:
        return out + (count + 2) // 3 * 4
    out += i // 3 * 4
    while count - i >= 3:
        group = (<uint32_t> data[i] << 16) | (<uint32_t> data[i + 1] << 8) | data[i + 2]
        memcpy(out, &BASE64_PAIRS[(group >> 12) * 2], 2)
        memcpy(out + 2, &BASE64_PAIRS[(group & 4095) * 2], 2)
        out += 4
        i += 3
    if count - i == 1:
        memcpy(out, &BASE64_PAIRS[(<uint32_t> data[i] << 4) * 2], 2)
        out[2] = 61
        out[3] = 61
        out += 4
    elif count - i == 2:
        group = (<uint32_t> data[i] << 16) | (<uint32_t> data[i + 1] << 8)
        memcpy(out, &BASE64_PAIRS[(group >> 12) * 2], 2)
        out[2] = BASE64_DIGITS[(group >> 6) & 63]
        out[3] = 61
        out += 4
    return out


cdef char* put_hex(char* out, const uint8_t* data, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        out[0] = HEX_DIGITS[data[i] >> 4]
        out[1] = HEX_DIGITS[data[i] & 15]
        out += 2
    return out


cdef inline char* put_unicode_escape(char* out, uint32_t point) noexcept nogil:
    out[0] = 0x5C
    out[1] = 0x75
    out[2] = HEX_DIGITS[(point >> 12) & 15]
    out[3] = HEX_DIGITS[(point >> 8) & 15]
    out[4] = HEX_DIGITS[(point >> 4) & 15]
    out[5] = HEX_DIGITS[point & 15]
    return out + 6


cdef inline char* put_ascii(char* out, uint8_t byte, int style) noexcept nogil:
    """One ASCII byte; a quote as the style wants it, control bytes escaped unless RAW."""
    cdef bint raw = (style & ENCODING_MASK) == RAW
    cdef char letter = 0
    if style & BARE and (byte == 0x22 or byte == 0x5C):
        out[0] = <char> byte
        return out + 1
    if byte == 0x22:
        if not raw:
            out[0] = 0x5C
            out += 1
        return put(out, QUOTES, 2 if style & CSV else 1)
    if raw or PLAIN[byte]:
        out[0] = <char> byte
        return out + 1
    if byte == 0x5C:
        letter = 0x5C
    elif byte == 0x0A:
        letter = 0x6E
    elif byte == 0x0D:
        letter = 0x72
    elif byte == 0x09:
        letter = 0x74
    if letter == 0:
        return put_unicode_escape(out, byte)
    out[0] = 0x5C
    out[1] = letter
    return out + 2


cdef inline bint steers(uint32_t point) noexcept nogil:
    """May this character move a cursor, end a line or turn the reading direction?"""
    return (
        point < 0xA0
        or point == 0x061C
        or 0x200E <= point <= 0x200F
        or 0x2028 <= point <= 0x202E
        or 0x2066 <= point <= 0x2069
    )


cdef Py_ssize_t take_surrogate(const uint8_t* data, Py_ssize_t count) noexcept nogil:
    """Bytes after a lead byte of ED that Java replaces as one, as `take_utf8` answers them."""
    if count < 2 or not 0x80 <= data[1] <= 0xBF:
        return -1
    if count == 2:
        return 0
    return -3 if 0x80 <= data[2] <= 0xBF else -2


cdef inline int run_kind(int style) noexcept nogil:
    """Which bytes a style leaves as they are."""
    if (style & ENCODING_MASK) == RAW:
        return KSEG_NO_QUOTE if (style & (CSV | BARE)) == CSV else KSEG_ASCII
    return KSEG_PRINTABLE if style & BARE else KSEG_JSON_PLAIN


cdef char* put_utf8(
    char* out,
    const uint8_t* data,
    Py_ssize_t count,
    Py_ssize_t readable,
    int style,
    bint final,
    Py_ssize_t* used,
) noexcept nogil:
    """Text escaped as the style wants; without `final`, a character cut at the end is left over."""
    cdef int kind = run_kind(style)
    cdef bint letters = kind == KSEG_JSON_PLAIN and not style & CSV
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t taken
    cdef uint32_t point
    while i < count:
        if data[i] < 0x80:
            if letters:
                i += <Py_ssize_t> kseg_json(
                    &out, data + i, <size_t> (count - i), <size_t> (readable - i)
                )
            else:
                taken = <Py_ssize_t> kseg_copy_run(
                    out, data + i, <size_t> (count - i), <size_t> (readable - i), kind
                )
                out += taken
                i += taken
            if i == count:
                break
            if data[i] < 0x80:
                out = put_ascii(out, data[i], style)
                i += 1
                continue
        taken = take_utf8(data + i, count - i, &point)
        if style & JAVA and data[i] == 0xED and taken == -1:
            taken = take_surrogate(data + i, count - i)
        if taken > 0:
            if (style & ENCODING_MASK) != RAW and steers(point):
                out = put_unicode_escape(out, point)
            else:
                out = put(out, <const char*> data + i, taken)
            i += taken
            continue
        if taken == 0:
            if not final:
                break
            taken = i - count  # one U+FFFD for the whole cut character
        out = put(out, REPLACEMENT, 3)
        i -= taken
    used[0] = i
    return out


cdef inline char* put_content(
    char* out, const uint8_t* data, Py_ssize_t count, Py_ssize_t readable, int style
) noexcept nogil:
    """A value without quotes; `readable` bytes lie there, of which `count` are the value's."""
    cdef int encoding = style & ENCODING_MASK
    cdef Py_ssize_t used
    if count == 0:
        return out
    if encoding == BASE64:
        return put_base64(out, data, count, readable)
    if encoding == HEX:
        return put_hex(out, data, count)
    return put_utf8(out, data, count, readable, style, True, &used)


cdef inline char* put_quotes(char* out, Py_ssize_t quote) noexcept nogil:
    """One quote or two."""
    memcpy(out, QUOTES, 2)
    return out + quote


cdef char* put_bytes(
    char* out,
    const uint8_t* data,
    Py_ssize_t count,
    Py_ssize_t readable,
    int style,
    Py_ssize_t quote,
) noexcept nogil:
    """A value with its quotes; an object of base64 if it must be exact and is not UTF-8."""
    if style & BARE:
        return put_content(out, data, count, readable, style)
    if not style & EXACT or is_utf8(data, count):
        out = put_quotes(out, quote)
        out = put_content(out, data, count, readable, style)
        return put_quotes(out, quote)
    out = put(out, b"{", 1)
    out = put(put_quotes(out, quote), b"base64", 6)
    out = put(put_quotes(out, quote), b":", 1)
    out = put_base64(put_quotes(out, quote), data, count, readable)
    return put(put_quotes(out, quote), b"}", 1)


cdef inline char* put_int(char* out, int64_t value) noexcept nogil:
    if value >= 0:
        return kseg_put_uint(out, <uint64_t> value)
    out[0] = 45
    return kseg_put_uint(out + 1, 0 - <uint64_t> value)


cdef inline char* put_pair(char* out, uint64_t value, char after) noexcept nogil:
    out = kseg_put_pair(out, <uint32_t> value)
    out[0] = after
    return out + 1


cdef char* put_time(char* out, int64_t time_ms) noexcept nogil:
    """`2025-10-09T08:53:20.000Z`, 24 bytes; a plain number where the year has no four digits.

    Days to civil date in eras of 400 years that begin in March (Howard Hinnant, `civil_from_days`).
    """
    # From the first millisecond of the year 0 to the last of 9999.
    if time_ms < -62167219200000LL or time_ms > 253402300799999LL:
        return put_int(out, time_ms)
    # Counted from -0400-03-01, so that nothing here is negative.
    cdef uint64_t since = <uint64_t> (time_ms + 74784816000000LL)
    cdef uint64_t days = since // 86400000
    cdef uint64_t day_ms = since % 86400000
    cdef uint64_t in_era = days % 146097
    cdef uint64_t year_of_era = (
        in_era - in_era // 1460 + in_era // 36524 - in_era // 146096
    ) // 365
    cdef uint64_t day_of_year = in_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef uint64_t shifted_month = (5 * day_of_year + 2) // 153
    cdef uint64_t month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    cdef uint64_t year = days // 146097 * 400 + year_of_era + (1 if month <= 2 else 0) - 400
    out = put_pair(kseg_put_pair(out, <uint32_t> (year // 100)), year % 100, 45)
    out = put_pair(out, month, 45)
    out = put_pair(out, day_of_year - (153 * shifted_month + 2) // 5 + 1, 84)
    out = put_pair(out, day_ms // 3600000, 58)
    out = put_pair(out, day_ms // 60000 % 60, 58)
    out = put_pair(out, day_ms // 1000 % 60, 46)
    out[0] = <char> (48 + day_ms % 1000 // 100)
    out = kseg_put_pair(out + 1, <uint32_t> (day_ms % 100))
    out[0] = 90
    return out + 1


# Rows.

cdef inline int64_t load(const Column* column, Py_ssize_t row) noexcept nogil:
    """Element `row`, which `open_column` has checked to be there."""
    cdef const char* at = column.base + row * column.stride
    cdef int64_t wide
    cdef int32_t word
    cdef int16_t half
    if column.itemsize == 8:
        memcpy(&wide, at, 8)
        return wide
    if column.itemsize == 4:
        memcpy(&word, at, 4)
        return word
    if column.itemsize == 2:
        memcpy(&half, at, 2)
        return half
    return <int8_t> at[0]


cdef inline bint is_null(const Binary* values, Py_ssize_t row) noexcept nogil:
    return values.validity != NULL and not (values.validity[row >> 3] >> (row & 7)) & 1


cdef inline Bytes bytes_of(const Binary* values, Py_ssize_t row) noexcept nogil:
    """A value; its count is -1 where its offsets do not lie in order inside the data."""
    cdef int32_t start = values.offsets[row]
    cdef int32_t end = values.offsets[row + 1]
    if start < 0 or end < start or end > values.data_bytes:
        return Bytes(values.data, -1, 0)
    return Bytes(values.data + start, end - start, values.data_bytes - start)


cdef inline Py_ssize_t value_bytes(const Binary* values, Py_ssize_t row) noexcept nogil:
    return bytes_of(values, row).count


cdef Py_ssize_t row_bound(
    const Piece* pieces, const int* binary, int count, Py_ssize_t row
) noexcept nogil:
    """Most bytes this row can take beyond what `fixed_bound` counts; -1 where offsets are wrong.

    Every value of the row is checked here, which is what makes the writing below safe. `binary`
    names the pieces of bytes and of headers.
    """
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t size, header
    cdef const Piece* piece
    cdef int i
    for i in range(count):
        piece = &pieces[binary[i]]
        if piece.kind == BYTES:
            size = value_bytes(&piece.values, row)
            if size < 0:
                return -1
            total += content_bound(piece.style, size)
        else:
            if (
                piece.header_offsets[row] < 0
                or piece.header_offsets[row + 1] < piece.header_offsets[row]
                or piece.header_offsets[row + 1] > piece.values.count
            ):
                return -1
            for header in range(piece.header_offsets[row], piece.header_offsets[row + 1]):
                size = value_bytes(&piece.keys, header)
                if size < 0:
                    return -1
                total += content_bound(UTF8, size) + HEADER_TEXT_MAX
                size = value_bytes(&piece.values, header)
                if size < 0:
                    return -1
                total += content_bound(piece.style, size)
    return total


cdef inline Py_ssize_t span(
    const int32_t* offsets, Py_ssize_t first, Py_ssize_t count, Py_ssize_t end
) noexcept nogil:
    """How far offsets reach; -1 where they fall, or do not lie in `[0, end]`."""
    cdef Py_ssize_t i
    cdef bint falls = offsets[first] < 0 or offsets[first + count] > end
    for i in range(first, first + count):
        falls |= offsets[i + 1] < offsets[i]
    return -1 if falls else offsets[first + count] - offsets[first]


cdef Py_ssize_t block_bound(
    const Piece* pieces, const int* binary, int count, Py_ssize_t first, Py_ssize_t rows
) noexcept nogil:
    """As `row_bound`, of some rows together; -1 also where they have headers.

    So the offsets of all rows are in order: a row's lie between those of the first and the last.
    """
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t size
    cdef const Piece* piece
    cdef int i
    for i in range(count):
        piece = &pieces[binary[i]]
        if piece.kind == HEADERS:
            if span(piece.header_offsets, first, rows, piece.values.count) != 0:
                return -1
            continue
        size = span(piece.values.offsets, first, rows, piece.values.data_bytes)
        if size < 0:
            return -1
        # Each value may take a group of base64 that is not full.
        total += content_bound(piece.style, size) + 4 * rows
    return total


cdef Py_ssize_t fixed_bound(const Piece* pieces, int count) noexcept nogil:
    """Most bytes of a row but for the contents of its bytes and headers."""
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t name
    cdef Py_ssize_t longest
    cdef int i
    for i in range(count):
        longest = NUMBER_TEXT_MAX
        if pieces[i].kind == TEXT:
            longest = 0
        elif pieces[i].kind == BYTES or pieces[i].kind == HEADERS:
            longest = EXACT_TEXT_MAX
        longest = max(longest, pieces[i].null_bytes)
        for name in range(pieces[i].name_count):
            longest = max(longest, pieces[i].name_bytes[name])
        total += pieces[i].lead_bytes + longest
    return total


cdef inline char* put_lead(char* out, const Piece* piece) noexcept nogil:
    if piece.lead_bytes <= LEAD_BYTES:
        return kseg_put_padded(out, piece.short_lead, <size_t> piece.lead_bytes)
    return put(out, piece.lead, piece.lead_bytes)


cdef inline char* put_null(char* out, const Piece* piece) noexcept nogil:
    if piece.null_text == NULL:
        return out
    out = put_lead(out, piece)
    return put(out, piece.null_text, piece.null_bytes)


cdef inline Bytes value_of(const Binary* values, Py_ssize_t row) noexcept nogil:
    cdef Bytes found = bytes_of(values, row)
    if is_null(values, row):
        found.count = -1
    return found


cdef char* put_names(char* out, const Piece* piece, Py_ssize_t row) noexcept nogil:
    """`[name,...]` without quotes."""
    cdef Bytes name
    cdef Py_ssize_t header
    out = put(out, b"[", 1)
    for header in range(piece.header_offsets[row], piece.header_offsets[row + 1]):
        if header > piece.header_offsets[row]:
            out = put(out, b",", 1)
        name = bytes_of(&piece.keys, header)
        out = put_content(out, name.data, name.count, name.readable, piece.style)
    return put(out, b"]", 1)


cdef char* put_headers(char* out, const Piece* piece, Py_ssize_t row) noexcept nogil:
    """`[["name",value],...]`; in CSV one quoted field of it; bare `[name,...]`."""
    cdef int csv = piece.style & CSV
    cdef Py_ssize_t quote = 2 if csv else 1
    cdef Py_ssize_t header
    cdef Bytes name, value
    if piece.style & BARE:
        return put_names(out, piece, row)
    if csv:
        out = put(out, QUOTES, 1)
    out = put(out, b"[", 1)
    for header in range(piece.header_offsets[row], piece.header_offsets[row + 1]):
        name = bytes_of(&piece.keys, header)
        value = value_of(&piece.values, header)
        if header > piece.header_offsets[row]:
            out = put(out, b",", 1)
        out = put(out, b"[", 1)
        out = put_bytes(out, name.data, name.count, name.readable, UTF8 | EXACT | csv, quote)
        if value.count < 0:
            out = put(out, b",null]", 6)
            continue
        out = put(out, b",", 1)
        out = put_bytes(out, value.data, value.count, value.readable, piece.style, quote)
        out = put(out, b"]", 1)
    out = put(out, b"]", 1)
    if csv:
        out = put(out, QUOTES, 1)
    return out


cdef inline char* put_value(char* out, const Piece* piece, Bytes value) noexcept nogil:
    """A value after its lead."""
    if value.count < 0:
        return put_null(out, piece)
    out = put_lead(out, piece)
    return put_bytes(
        out, value.data, value.count, value.readable, piece.style,
        2 if piece.style & NESTED else 1,
    )


cdef char* put_number(char* out, const Piece* piece, int64_t value) noexcept nogil:
    """A number, time or name after its lead."""
    cdef Py_ssize_t name
    if piece.has_sentinel and value == piece.sentinel:
        return put_null(out, piece)
    out = put_lead(out, piece)
    if piece.kind == ENUM:
        name = piece.name_count - 1
        # Compared before the subtraction, which could overflow.
        if value >= piece.first and value < piece.first + piece.name_count:
            name = <Py_ssize_t> (value - piece.first)
        return put(out, piece.names[name], piece.name_bytes[name])
    if piece.kind == TIME:
        return put_time(out, value)
    return put_int(out, value)


cdef char* put_piece(char* out, const Piece* piece, Py_ssize_t row) noexcept nogil:
    if piece.kind == TEXT:
        return put_lead(out, piece)
    if piece.kind == BYTES:
        return put_value(out, piece, value_of(&piece.values, row))
    if piece.kind == HEADERS:
        # Without headers an empty list may be left out.
        if piece.null_text == NULL and piece.header_offsets[row] == piece.header_offsets[row + 1]:
            return out
        return put_headers(put_lead(out, piece), piece, row)
    return put_number(out, piece, load(&piece.column, row))


# Blocks of rows.

cdef uint64_t changes_of(const Piece* piece, Py_ssize_t row, size_t rows) noexcept nogil:
    """Rows of a block in which a piece differs from the row before.

    For bytes and headers all rows, or just the first where there are none at all.
    """
    cdef Py_ssize_t end = row + <Py_ssize_t> rows
    if piece.kind == BYTES:
        if piece.values.validity == NULL and piece.values.offsets[row] == piece.values.offsets[end]:
            return 1
        return ~<uint64_t> 0
    if piece.kind == HEADERS:
        return 1 if piece.header_offsets[row] == piece.header_offsets[end] else ~<uint64_t> 0
    if piece.kind == TEXT or piece.column.stride == 0:
        return 1
    return kseg_changes(
        piece.column.base + row * piece.column.stride,
        piece.column.stride,
        <size_t> piece.column.itemsize,
        rows,
    )


cdef int plan_steps(
    const Piece* pieces, int count, Py_ssize_t row, size_t rows, Step* steps
) noexcept nogil:
    """How to write the next rows, 1 to 64; answers the number of steps.

    Neighbours of which each changes seldom become one group.
    """
    cdef int i, done = 0
    cdef uint64_t changed
    cdef Step* step = NULL
    for i in range(count):
        changed = changes_of(&pieces[i], row, rows)
        if <size_t> kseg_ones(changed) * SELDOM > rows + SELDOM:
            steps[done] = Step(i, i + 1, False, changed, NULL, 0)
            step = NULL
            done += 1
        elif step == NULL:
            steps[done] = Step(i, i + 1, True, changed, NULL, 0)
            step = &steps[done]
            done += 1
        else:
            step.end = i + 1
            step.changed |= changed
    return done


cdef char* put_row(
    char* out, const Piece* pieces, Step* steps, int count, Py_ssize_t row, uint64_t since
) noexcept nogil:
    """One row; `since` has the bits of it and of rows that were passed over before it."""
    cdef Step* step
    cdef int i, number
    cdef char* begin
    for number in range(count):
        step = &steps[number]
        if not step.grouped:
            out = put_piece(out, &pieces[step.first], row)
            continue
        begin = out
        if step.changed & since:
            for i in range(step.first, step.end):
                out = put_piece(out, &pieces[i], row)
            step.size = out - begin
        else:
            out = kseg_put_padded(out, step.text, <size_t> step.size)
        step.text = begin
    return out


cdef inline bint fit(
    const Rows* rows, Py_ssize_t block, Py_ssize_t fixed, const char* end
) noexcept nogil:
    """Are the next rows sure to fit, all of them?"""
    cdef Py_ssize_t bound = block_bound(
        rows.pieces, rows.binary, rows.binary_count, rows.row, block
    )
    return bound >= 0 and fixed * block + bound <= end - rows.at


cdef int put_rows(Rows* rows, Py_ssize_t stop) noexcept nogil:
    """Write rows until one may not fit; answers a status."""
    cdef Step[PIECES_MAX] steps
    cdef Py_ssize_t fixed = fixed_bound(rows.pieces, rows.count)
    cdef Py_ssize_t bound, first, block
    cdef uint64_t since
    cdef int count
    cdef bint fits
    # Bytes after the last row do not count.
    cdef const char* end = rows.end - KSEG_TEXT_SLACK
    while rows.row < stop:
        first = rows.row
        block = min(stop - first, BLOCK_ROWS)
        fits = fit(rows, block, fixed, end)
        if not fits:
            block = min(block, FEW_ROWS)
            fits = fit(rows, block, fixed, end)
        count = plan_steps(rows.pieces, rows.count, first, <size_t> block, steps)
        since = 0
        while rows.row < first + block:
            since |= <uint64_t> 1 << (rows.row - first)
            if rows.masked and load(&rows.select, rows.row) == 0:
                rows.row += 1
                continue
            if not fits:
                bound = row_bound(rows.pieces, rows.binary, rows.binary_count, rows.row)
                if bound < 0:
                    return STATUS_BAD_OFFSETS
                if fixed + bound > end - rows.at:
                    return STATUS_OK
            rows.at = put_row(rows.at, rows.pieces, steps, count, rows.row, since)
            since = 0
            rows.row += 1
    return STATUS_OK


# Python's side: buffers in, buffers out.

cdef Py_buffer* open_view(Views* views, object source, int flags) except NULL:
    """Borrow one more buffer; `close_views` gives all of them back."""
    if views.count == VIEWS_MAX:
        raise ValueError(f"a template borrows at most {VIEWS_MAX} buffers")
    cdef Py_buffer* view = &views.views[views.count]
    PyObject_GetBuffer(source, view, flags)
    views.count += 1
    return view


cdef void close_views(Views* views) noexcept:
    cdef Py_ssize_t i
    for i in range(views.count):
        PyBuffer_Release(&views.views[i])
    views.count = 0


cdef int open_column(Views* views, Column* column, object source, Py_ssize_t stop) except -1:
    cdef Py_buffer* view = open_view(views, source, PyBUF_RECORDS_RO)
    if view.ndim != 1 or view.format == NULL or view.format not in COLUMN_FORMATS:
        raise ValueError("a column is one-dimensional, of native signed integers or booleans")
    if view.shape[0] < stop:
        raise ValueError(f"a column has {view.shape[0]} rows, {stop} are wanted")
    column.base = <const char*> view.buf
    column.stride = view.strides[0]
    column.itemsize = view.itemsize
    column.count = view.shape[0]
    return 0


cdef Py_ssize_t open_offsets(Views* views, const int32_t** offsets, object source) except -1:
    """Borrow int32 offsets; answers how many values they delimit."""
    cdef Py_buffer* view = open_view(views, source, PyBUF_SIMPLE)
    if view.len % 4 or view.len < 4:
        raise ValueError("offsets are int32, one more than there are values")
    offsets[0] = <const int32_t*> view.buf
    return view.len // 4 - 1


cdef int open_binary(
    Views* views, Binary* values, object offsets, object data, object validity, Py_ssize_t stop
) except -1:
    cdef Py_buffer* view
    values.count = open_offsets(views, &values.offsets, offsets)
    if values.count < stop:
        raise ValueError(f"a column has {values.count} rows, {stop} are wanted")
    view = open_view(views, data, PyBUF_SIMPLE)
    values.data = <const uint8_t*> view.buf
    values.data_bytes = view.len
    values.validity = NULL
    if validity is not None:
        view = open_view(views, validity, PyBUF_SIMPLE)
        if view.len < (values.count + 7) // 8:
            raise ValueError("the validity bits are fewer than the values")
        values.validity = <const uint8_t*> view.buf
    return 0


cdef int open_names(Piece* piece, tuple names) except -1:
    cdef Py_ssize_t i
    if not 0 < len(names) <= NAMES_MAX:
        raise ValueError(f"an ENUM has 1 to {NAMES_MAX} names")
    for i in range(len(names)):
        name = <bytes?> names[i]
        piece.names[i] = PyBytes_AS_STRING(name)
        piece.name_bytes[i] = PyBytes_GET_SIZE(name)
    piece.name_count = len(names)
    return 0


cdef int open_piece(Views* views, Piece* piece, tuple source, Py_ssize_t stop) except -1:
    """Read one piece's tuple into C; the caller keeps the tuple alive meanwhile."""
    open_texts(piece, source)
    if piece.kind == TEXT:
        return 0
    if piece.kind == BYTES:
        return open_binary(views, &piece.values, source[4], source[5], source[6], stop)
    if piece.kind == HEADERS:
        piece.header_rows = open_offsets(views, &piece.header_offsets, source[4])
        if piece.header_rows < stop:
            raise ValueError(f"headers have {piece.header_rows} rows, {stop} are wanted")
        open_binary(views, &piece.keys, source[5], source[6], None, 0)
        open_binary(views, &piece.values, source[7], source[8], source[9], 0)
        if piece.keys.count != piece.values.count:
            raise ValueError("headers have as many keys as values")
        return 0
    if piece.kind not in (INT, TIME, ENUM):
        raise ValueError(f"no kind of piece is numbered {piece.kind}")
    open_column(views, &piece.column, source[3], stop)
    if piece.kind == ENUM:
        piece.first = source[5]
        return open_names(piece, source[4])
    return open_sentinel(piece, source)


cdef int open_texts(Piece* piece, tuple source) except -1:
    """The parts of every piece: its lead, and the text for an absent value."""
    piece.kind = source[0]
    lead = <bytes?> source[1]
    piece.lead = PyBytes_AS_STRING(lead)
    piece.lead_bytes = PyBytes_GET_SIZE(lead)
    if piece.lead_bytes <= LEAD_BYTES:
        memset(piece.short_lead, 0, LEAD_BYTES)
        memcpy(piece.short_lead, piece.lead, <size_t> piece.lead_bytes)
    piece.null_text = NULL
    piece.null_bytes = 0
    piece.name_count = 0
    piece.has_sentinel = False
    piece.style = 0
    if piece.kind == TEXT:
        return 0
    null = source[2]
    if null is not None:
        piece.null_text = PyBytes_AS_STRING(<bytes?> null)
        piece.null_bytes = PyBytes_GET_SIZE(null)
    if piece.kind == BYTES or piece.kind == HEADERS:
        piece.style = source[3]
    return 0


cdef int open_sentinel(Piece* piece, tuple source) except -1:
    piece.has_sentinel = piece.kind == TIME or source[4] is not None
    if piece.has_sentinel:
        piece.sentinel = -1 if piece.kind == TIME else source[4]
    return 0


cdef int open_pieces(Views* views, Rows* rows, tuple pieces, Py_ssize_t stop) except -1:
    """Read a template into C; the caller keeps it alive meanwhile."""
    cdef int i
    rows.count = len(pieces)
    rows.binary_count = 0
    for i in range(rows.count):
        open_piece(views, &rows.pieces[i], pieces[i], stop)
        if rows.pieces[i].kind == BYTES or rows.pieces[i].kind == HEADERS:
            rows.binary[rows.binary_count] = i
            rows.binary_count += 1
    return 0


def write_rows(tuple pieces, Py_ssize_t start, Py_ssize_t stop, out, mask=None):
    """Write whole rows into `out`, as many as are sure to fit.

    Args:
        pieces: the template (module docstring); up to 48 pieces.
        start: first row.
        stop: row to end before; every column holds at least as many.
        out: writable bytes of the caller's. A row is written only if the most that it could
            take fits: six bytes for one under UTF8, so 1 MiB holds any row below 170 KiB. What
            lies after the rows written may have changed too.
        mask: bool[stop] or None; rows where it is 0 are passed over.

    Returns:
        RowsEnd(next_row, written): go on with `next_row`. If nothing was written and `next_row`
        is not `stop`, that row needs a larger buffer or `encode_bytes`.

    Raises:
        ValueError: a column is too short or not what its piece wants, or offsets lie outside
            their data.
    """
    cdef Views views
    cdef Rows rows
    cdef Py_buffer* target
    if len(pieces) > PIECES_MAX:
        raise ValueError(f"a template has at most {PIECES_MAX} pieces")
    if not 0 <= start <= stop:
        raise ValueError(f"rows {start} to {stop} are no range")
    views.count = 0
    try:
        target = open_view(&views, out, PyBUF_WRITABLE)
        rows.begin = rows.at = <char*> target.buf
        rows.end = rows.at + target.len
        open_pieces(&views, &rows, pieces, stop)
        rows.masked = mask is not None
        if rows.masked:
            open_column(&views, &rows.select, mask, stop)
        rows.row = start
        with nogil:
            status = put_rows(&rows, stop)
    finally:
        close_views(&views)
    if status == STATUS_BAD_OFFSETS:
        raise ValueError(f"offsets of row {rows.row} lie outside their data")
    return RowsEnd(rows.row, rows.at - rows.begin)


def count_not_utf8(offsets, data, Py_ssize_t start, Py_ssize_t stop, mask=None):
    """How many values of a binary column are not well-formed UTF-8; null ones are empty.

    Args:
        offsets: int32, one more than there are values.
        data: bytes.
        start: first value.
        stop: value to end before.
        mask: bool[stop] or None; values where it is 0 are passed over.

    Raises:
        ValueError: the offsets are too few, or lie outside the data.
    """
    cdef Views views
    cdef Binary values
    cdef Column select
    cdef Bytes value
    cdef bint masked = mask is not None
    cdef Py_ssize_t row, count = 0
    if not 0 <= start <= stop:
        raise ValueError(f"values {start} to {stop} are no range")
    views.count = 0
    try:
        open_binary(&views, &values, offsets, data, None, stop)
        if masked:
            open_column(&views, &select, mask, stop)
        with nogil:
            for row in range(start, stop):
                if masked and load(&select, row) == 0:
                    continue
                value = bytes_of(&values, row)
                if value.count < 0:
                    count = -1
                    break
                if not is_utf8(value.data, value.count):
                    count += 1
    finally:
        close_views(&views)
    if count < 0:
        raise ValueError(f"offsets of value {row} lie outside their data")
    return count


def encode_bytes(data, int style, bint final, out):
    """Encode one value, or a part of it, without quotes around it.

    For values too large for a row buffer: call again with what is left, `final` on the last part.

    Args:
        data: contiguous bytes.
        style: an encoding, plus CSV.
        final: nothing follows, so take a cut group or character as it is.
        out: writable bytes of the caller's, at least 64.

    Returns:
        BytesEnd(used, written): both may be less than all; without `final` up to three bytes are
        left over.

    Raises:
        ValueError: `out` is shorter than 64 bytes.
    """
    cdef Views views
    cdef Py_buffer* source
    cdef Py_buffer* target
    cdef Py_ssize_t count, used, room
    cdef char* at
    cdef char* begin
    cdef bint last
    cdef int encoding = style & ENCODING_MASK
    views.count = 0
    try:
        source = open_view(&views, data, PyBUF_SIMPLE)
        target = open_view(&views, out, PyBUF_WRITABLE)
        if target.len < ENCODE_BYTES_MIN:
            raise ValueError(f"the buffer is shorter than {ENCODE_BYTES_MIN} bytes")
        begin = at = <char*> target.buf
        # As many bytes as are sure to fit, in whole groups of three for base64.
        room = target.len - 4 - KSEG_TEXT_SLACK
        count = min(source.len, room // content_bound(style, 3) * 3)
        last = final and count == source.len
        if encoding == BASE64 and not last:
            count -= count % 3
        with nogil:
            if encoding == BASE64 or encoding == HEX:
                at = put_content(at, <const uint8_t*> source.buf, count, count, style)
                used = count
            else:
                at = put_utf8(
                    at, <const uint8_t*> source.buf, count, source.len, style, last, &used
                )
    finally:
        close_views(&views)
    return BytesEnd(used, at - begin)


def use_vectors(bint wanted):
    """Take the vector forms, or the portable ones, for the whole process; for tests.

    Returns:
        False where this CPU lacks them: then nothing changes.
    """
    return kseg_text_select(wanted)
