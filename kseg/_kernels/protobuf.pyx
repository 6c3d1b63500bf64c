"""Protobuf messages: which values of a column a library without checks of its own may decode.

A value is *plain* if each reader of Protobuf takes the same from it: lengths that fit, varints as
short as can be, wire types and numbers as declared, text that is UTF-8, no group, no field or
member of a `oneof` twice, no key of a map twice. Serializers write plain values.

The contract is that of `_core`: borrowed input, an array of the caller's for output.

Source: protobuf.dev, "Encoding".
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memset

from kseg._core cimport is_utf8

# Columns of the table of fields.
cdef enum:
    NUMBER    # ascending in a message
    KIND
    SLOT      # of what may be in a message once; -1 for what repeats
    TARGET    # the message of MESSAGE and ENTRY
    LOW       # bounds of VARINT, as int64
    HIGH
    FIRST     # numbers of a closed enum; none if FIRST is END
    END
    COLUMNS

# Kinds of fields.
cdef enum:
    VARINT = 1
    FIXED32
    FIXED64
    STRING
    BYTES
    MESSAGE
    ENTRY     # of a map: field 1 is its key, field 2 the value

cdef enum:
    SLOT_WORDS = 16
    KEYS = 256

# Marks.
cdef enum:
    PLAIN
    ODD
    LARGE

cpdef enum:
    SLOTS_MAX = 1024    # SLOT_WORDS words of 64 bits
    DEPTH_MAX = 64


cdef struct Key:
    const uint8_t *at
    Py_ssize_t size
    uint64_t number


cdef struct Row:
    int64_t left      # values that the rows may still have
    bint is_odd
    int depth
    int keys          # of maps that are being read
    Key[KEYS] key


cdef struct Table:
    const int64_t *fields
    const int64_t *firsts
    const int64_t *widths
    const int64_t *numbers


# What is unusual makes a row odd and does not end its check, since its values are still counted:
# protobuf may take it. Functions return NULL or False where protobuf stops, too.

cdef inline const uint8_t *take_varint(
    const uint8_t *p, const uint8_t *end, uint64_t *value, Row *row
) noexcept nogil:
    """Answers the position after it, or NULL. Nothing at or after `end` is read."""
    cdef int shift = 0
    cdef uint64_t byte
    if p < end and p[0] < 0x80:  # most of them
        value[0] = p[0]
        return p + 1
    value[0] = 0
    while p < end and shift < 64:
        byte = p[0]
        p += 1
        value[0] |= (byte & 0x7F) << shift
        if byte < 0x80:
            row.is_odd |= (byte == 0 and shift > 0) or (shift == 63 and byte > 1)
            return p
        shift += 7
    return NULL


cdef inline const int64_t *find_field(
    const Table *table, int64_t message, int64_t number, int64_t *near
) noexcept nogil:
    """The row of a field, or NULL; `near` is the row before, since most come in order."""
    cdef int64_t low = table.firsts[message], high = table.firsts[message + 1], at
    for at in range(near[0], min(near[0] + 2, high)):
        if table.fields[at * COLUMNS + NUMBER] == number:
            near[0] = at
            return table.fields + at * COLUMNS
    while low < high:
        at = (low + high) >> 1
        if table.fields[at * COLUMNS + NUMBER] < number:
            low = at + 1
        else:
            high = at
    if low == table.firsts[message + 1] or table.fields[low * COLUMNS + NUMBER] != number:
        return NULL
    near[0] = low
    return table.fields + low * COLUMNS


cdef inline bint is_declared(
    const Table *table, const int64_t *field, uint64_t value
) noexcept nogil:
    """Whether a varint is a value of its field."""
    cdef int64_t at, number = <int64_t>value
    if not field[LOW] <= number <= field[HIGH]:
        return False
    if field[FIRST] == field[END]:
        return True
    for at in range(field[FIRST], field[END]):
        if table.numbers[at] == number:
            return True
    return False


cdef void check_packed(
    const Table *table, const int64_t *field, int wire, const uint8_t *p, const uint8_t *end,
    Row *row,
) noexcept nogil:
    """A field whose wire type is not that of one value of its kind."""
    cdef int64_t kind = field[KIND]
    cdef uint64_t value
    if wire != 2 or field[SLOT] >= 0 or kind >= STRING:
        row.is_odd = True
    elif kind == VARINT:
        while p != NULL and p < end:
            p = take_varint(p, end, &value, row)
            row.is_odd |= p == NULL or not is_declared(table, field, value)
    else:
        row.is_odd |= (end - p) & (3 if kind == FIXED32 else 7) != 0


cdef bint is_new_key(Row *row, int first, Key *key) noexcept nogil:
    """Note the key of a map's entry, unless one of this message is the same."""
    cdef int at
    for at in range(first, row.keys):
        if (
            row.key[at].size == key.size
            and row.key[at].number == key.number
            and memcmp(row.key[at].at, key.at, key.size) == 0
        ):
            return False
    if row.keys == KEYS:
        return False
    row.key[row.keys] = key[0]
    row.keys += 1
    return True


cdef bint check_nested(
    const Table *table, const int64_t *field, const uint8_t *p, const uint8_t *end,
    Row *row, int first_key,
) noexcept nogil:
    """A message in a message, or an entry of a map."""
    cdef Key key
    cdef bint is_whole
    row.depth += 1
    is_whole = check_message(
        table, field[TARGET], p, end, row, NULL if field[KIND] == MESSAGE else &key
    )
    row.depth -= 1
    if field[KIND] == ENTRY:
        key.number = field[NUMBER]
        row.is_odd |= key.at == NULL or not is_new_key(row, first_key, &key)
    return is_whole


cdef bint check_message(
    const Table *table, int64_t message, const uint8_t *p, const uint8_t *end, Row *row, Key *key
) noexcept nogil:
    """One message, or with `key` an entry of a map.

    `key` becomes field 1, at NULL unless fields 1 and 2 are there.
    """
    cdef uint64_t[SLOT_WORDS] seen
    cdef uint64_t tag, bit, value = 0
    cdef int64_t kind, slot, near = table.firsts[message]
    cdef const int64_t *field
    cdef const uint8_t *body
    cdef int wire, first_key = row.keys
    cdef bint has_value = False, is_whole = True
    if key != NULL:
        key.at = NULL
    if row.depth > DEPTH_MAX:
        return False
    # Slots are below the number of fields, which is that of rows.
    memset(seen, 0, min(((table.firsts[message + 1] - near) >> 6) + 1, SLOT_WORDS) * 8)
    while p < end and is_whole:
        p = take_varint(p, end, &tag, row)
        if p == NULL or tag > 0xFFFFFFFFULL or tag < 8:
            return False
        wire = <int>(tag & 7)
        body = p
        if wire == 0 or wire == 2:
            p = take_varint(p, end, &value, row)
            if p == NULL or (wire == 2 and value > <uint64_t>(end - p)):
                return False
            if wire == 2:
                body = p
                p += value
        elif wire == 1 and end - p >= 8:
            p += 8
        elif wire == 5 and end - p >= 4:
            p += 4
        elif wire == 3 or wire == 4:  # what a group holds is counted as if it were here
            row.is_odd = True
        else:
            return False
        field = find_field(table, message, tag >> 3, &near)
        if field == NULL:
            row.is_odd |= key != NULL  # protobuf drops such an entry
            continue
        kind, slot = field[KIND], field[SLOT]
        if slot >= 0:
            bit = <uint64_t>1 << (slot & 63)
            row.is_odd |= seen[slot >> 6] & bit != 0
            seen[slot >> 6] |= bit
        elif kind >= MESSAGE:
            row.left -= table.widths[field[TARGET]]
            if row.left < 0:
                return False
        if key != NULL and field[NUMBER] == 1:
            key.at, key.size = body, p - body
        has_value |= field[NUMBER] == 2
        if wire == 2 and kind >= MESSAGE:
            is_whole = check_nested(table, field, body, p, row, first_key)
        elif wire == 2 and kind >= STRING:
            row.is_odd |= kind == STRING and not is_utf8(body, p - body)
        elif wire == 0 and kind == VARINT:
            row.is_odd |= not is_declared(table, field, value)
        elif not (wire == 1 and kind == FIXED64) and not (wire == 5 and kind == FIXED32):
            check_packed(table, field, wire, body, p, row)
    row.keys = first_key
    if key != NULL and not has_value:
        key.at = NULL
    return is_whole


def mark_messages(
    const int32_t[::1] offsets,
    const uint8_t[::1] data,
    const int64_t[:, ::1] fields,
    const int64_t[::1] firsts,
    const int64_t[::1] widths,
    const int64_t[::1] numbers,
    int64_t values_max,
    uint8_t[::1] marks,
):
    """Mark the values of a binary column that are not plain messages of one type.

    Args:
        offsets: int32[n + 1].
        data: bytes.
        fields: int64[rows, 8]: of each field of each message its number, in order, kind, slot,
            message, least and largest value, and where its numbers begin and end in `numbers`.
        firsts: int64[messages + 1]: the first row of each message. Message 0 is that of the values.
        widths: int64[messages]: how many values one takes in columns, from 1 on.
        numbers: the numbers of closed enums.
        values_max: how many values there may be in all.
        marks: uint8[n], out: 0 for a plain one, 1 for another, 2 for one with too many values.

    Returns:
        How many are marked: fewer than n, at least one, if the next one has too many values beside
        those before it.

    Raises:
        ValueError: arrays of sizes that do not fit, or offsets outside of the data.
    """
    cdef Py_ssize_t count = marks.shape[0], size = data.shape[0], row
    cdef int64_t first, last
    cdef Table table
    cdef Row found
    cdef bint is_whole, is_inside = True
    cdef const uint8_t *at = &data[0] if size else NULL
    if offsets.shape[0] != count + 1:
        raise ValueError(f"{offsets.shape[0]} offsets are not those of {count} values")
    check_table(fields, firsts, widths, numbers.shape[0])
    table.fields = &fields[0, 0] if fields.shape[0] else NULL
    table.firsts, table.widths = &firsts[0], &widths[0]
    table.numbers = &numbers[0] if numbers.shape[0] else NULL
    found.left = values_max
    with nogil:
        for row in range(count):
            first, last = offsets[row], offsets[row + 1]
            is_inside = 0 <= first <= last <= size
            if not is_inside:
                break
            # In bounds: first and last were just compared with the size of the data.
            found.depth = found.keys = 0
            found.left -= table.widths[0]
            found.is_odd = False
            is_whole = check_message(&table, 0, at + first, at + last, &found, NULL)
            marks[row] = ODD if found.is_odd or not is_whole else PLAIN
            if found.left < 0:
                if row > 0:
                    break
                marks[row], found.left = LARGE, values_max
        else:
            row = count
    if not is_inside:
        raise ValueError(f"offsets of value {row} lie outside their data")
    return row


cdef check_table(
    const int64_t[:, ::1] fields,
    const int64_t[::1] firsts,
    const int64_t[::1] widths,
    int64_t numbers,
):
    """Check that all references lie inside: the kernel checks no table while it reads."""
    cdef Py_ssize_t row, field, rows = fields.shape[0], messages = widths.shape[0]
    cdef bint fits = messages > 0 and fields.shape[1] == COLUMNS
    fits = fits and firsts.shape[0] == messages + 1 and firsts[0] == 0 and firsts[messages] == rows
    for row in range(messages if fits else 0):
        fits = fits and firsts[row] <= firsts[row + 1] <= rows and widths[row] > 0
        for field in range(firsts[row], firsts[row + 1] if fits else 0):
            fits = fits and fields[field, SLOT] < firsts[row + 1] - firsts[row]
    for row in range(rows if fits else 0):
        fits = fits and -1 <= fields[row, SLOT] < SLOTS_MAX and 0 <= fields[row, TARGET] < messages
        fits = fits and 0 <= fields[row, FIRST] <= fields[row, END] <= numbers
    if not fits:
        raise ValueError("a table of fields that does not hold together")
