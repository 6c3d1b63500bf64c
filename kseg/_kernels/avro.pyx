"""Avro: payloads of one writer's schema into columns of one reader's schema.

A program of nodes, made from both schemas, says what is in a payload and which column takes it.
The tree of nodes is bounded and not recursive, so the walk over a payload is, too.

  nodes    int32[n, 5]: op, column (-1: skip), first of `kids`, count of `kids`, argument
  kids     int32[k]: children of nodes (nodes) and of columns (columns)
  codes    int32[c]: of an enum, from `argument` on, the reader's symbol for each of the writer's,
           or -1; of a decimal column, from `largest` on, its largest number in words of 32 bits
  columns  int64[m, 7]: kind, size of a value, nullable, first of `kids`, count, least, largest

The argument is a size (FIXED), the first code (ENUM, whose count is of symbols), a type id
(BRANCH), or what a text has to be (BYTES, STRING). A column that is not nullable has a value of
zeros where a struct around it is null.

A payload that does not fit fails as a whole: its row is null, and nothing of it stays in a column.
Each step of the walk, also over an item without bytes, takes one from a budget, which the size of
the payloads bounds.

Source: Apache Avro 1.12, "Binary Encoding" and "Schema Resolution".
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from kseg._core cimport is_utf8, pointer_to, read_varlong

# What a payload has; a branch that the reader's schema has no place for; a branch of its union.
cpdef enum:
    NULL_, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, ARRAY, MAP, RECORD, UNION
    REFUSE, BRANCH

# What a text has to be, as bits.
cpdef enum:
    UTF8 = 1
    UUID = 2

# Fields of a node, and of a column before it has values.
cpdef enum:
    NODE_FIELDS = 5
    COLUMN_FIELDS = 7

cdef enum:
    N_OP, N_OUT, N_FIRST, N_COUNT, N_ARG

cdef enum:
    UUID_BYTES = 36
    DECIMAL_BYTES_MAX = 32
    DECIMAL_WORDS = 8

cdef bint grow(void **memory, int64_t *room, int64_t needed, int64_t size) noexcept nogil:
    """Make room for `needed` items of a size."""
    cdef int64_t wanted = needed + (needed >> 1) + 64
    cdef void *found = realloc(memory[0], <size_t> (wanted * size))
    if found == NULL:
        return False
    memory[0], room[0] = found, wanted
    return True


cdef uint8_t *room_for(State *s, int32_t out, int64_t size) noexcept nogil:
    """Where the next `size` bytes of a column's data go; NULL without memory."""
    cdef Column *c = &s.columns[out]
    cdef int64_t used = s.used[out]
    if used + size >= c.data_room:  # also for the first text, if it is empty
        if not grow(<void **> &c.data, &c.data_room, used + size, 1):
            s.why = NO_MEMORY
            return NULL
    s.used[out] = used + size
    return c.data + used


cdef bint put_end(State *s, int32_t out, int64_t end) noexcept nogil:
    """Note where the next value of a column ends: in its bytes, or among its items."""
    cdef Column *c = &s.columns[out]
    cdef int64_t count = s.counts[out]
    if end > ITEMS_MAX:
        s.why = LIMIT
        return False
    if count + 2 > c.ends_room and not grow(<void **> &c.ends, &c.ends_room, count + 2, 4):
        s.why = NO_MEMORY
        return False
    if count == 0 and c.kind != K_UNION:
        c.ends[0] = 0
    c.ends[count if c.kind == K_UNION else count + 1] = <int32_t> end
    return True


cdef bint count_one(State *s, int32_t out, uint8_t valid) noexcept nogil:
    """Count a value whose data is there."""
    cdef Column *c = &s.columns[out]
    cdef int64_t count = s.counts[out]
    if c.nullable:
        if count == c.valid_room and not grow(<void **> &c.valid, &c.valid_room, count + 1, 1):
            s.why = NO_MEMORY
            return False
        c.valid[count] = valid
    s.counts[out] = count + 1
    return True


cdef bint put(State *s, int32_t out, const void *value, int64_t size) noexcept nogil:
    """A value of a fixed size, or a text."""
    cdef uint8_t *to = room_for(s, out, size)
    if to == NULL:
        return False
    memcpy(to, value, <size_t> size)
    if s.columns[out].kind == K_BYTES and not put_end(s, out, s.used[out]):
        return False
    return count_one(s, out, 1)


cdef bint put_null(State *s, int32_t out) noexcept nogil:
    """A null, or zeros within one."""
    cdef Column *c = &s.columns[out]
    cdef uint8_t *to
    cdef int32_t child
    cdef int64_t i
    s.steps -= 1
    if s.steps < 0:
        s.why = LIMIT
        return False
    if c.kind == K_STRUCT:
        for i in range(c.children):
            if not put_null(s, s.kids[c.first + i]):
                return False
    elif c.kind == K_LIST or c.kind == K_MAP:
        if not put_end(s, out, s.counts[s.kids[c.first]]):
            return False
    elif c.kind == K_UNION:
        child = s.kids[c.first]
        to = room_for(s, out, 1)
        if to == NULL or not put_end(s, out, s.counts[child]) or not put_null(s, child):
            return False
        to[0] = 0
    elif c.kind == K_BYTES:
        if not put_end(s, out, s.used[out]):
            return False
    elif c.kind != K_NULL:
        to = room_for(s, out, c.size)
        if to == NULL:
            return False
        memset(to, 0, <size_t> c.size)
    return count_one(s, out, 0)


cdef bint put_number(State *s, int32_t out, int64_t value) noexcept nogil:
    cdef Column *c = &s.columns[out]
    cdef int32_t narrow
    cdef float single
    cdef double wide
    if c.kind == K_FLOAT:
        single = <float> value
        return put(s, out, &single, 4)
    if c.kind == K_DOUBLE:
        wide = <double> value
        return put(s, out, &wide, 8)
    if value < c.least or value > c.largest:
        s.why = RANGE
        return False
    if c.kind == K_INT64:
        return put(s, out, &value, 8)
    narrow = <int32_t> value
    return put(s, out, &narrow, 4)


cdef bint put_decimal(State *s, int32_t out, const uint8_t *p, int64_t size) noexcept nogil:
    """A big-endian number in two's complement, as Arrow has it; not of more digits than it may."""
    cdef uint8_t value[DECIMAL_BYTES_MAX]
    cdef uint32_t words[DECIMAL_WORDS]
    cdef const int32_t *largest = s.codes + s.columns[out].largest
    cdef uint64_t carry = 1
    cdef int64_t i
    cdef uint8_t sign = 0xFF if size and p[0] & 0x80 else 0
    for i in range(DECIMAL_BYTES_MAX):
        value[i] = p[size - 1 - i] if i < size else sign
    for i in range(size - DECIMAL_BYTES_MAX):
        if p[i] != sign:
            s.why = RANGE
            return False
    if size > DECIMAL_BYTES_MAX and (value[DECIMAL_BYTES_MAX - 1] ^ sign) & 0x80:
        s.why = RANGE
        return False
    for i in range(DECIMAL_WORDS):
        words[i] = (
            value[4 * i] | <uint32_t> value[4 * i + 1] << 8 | <uint32_t> value[4 * i + 2] << 16
            | <uint32_t> value[4 * i + 3] << 24
        )
        if sign:
            carry += <uint32_t> ~words[i]
            words[i] = <uint32_t> carry
            carry >>= 32
    for i in range(DECIMAL_WORDS - 1, -1, -1):
        if words[i] != <uint32_t> largest[i]:
            if words[i] > <uint32_t> largest[i]:
                s.why = RANGE
                return False
            break
    return put(s, out, value, s.columns[out].size)


cdef bint is_uuid(const uint8_t *p, int64_t size) noexcept nogil:
    """Is this a UUID as it is written: 32 digits and four dashes?"""
    cdef int i
    if size != UUID_BYTES:
        return False
    for i in range(UUID_BYTES):
        if i == 8 or i == 13 or i == 18 or i == 23:
            if p[i] != 0x2D:
                return False
        elif not (0x30 <= p[i] <= 0x39 or 0x61 <= (p[i] | 0x20) <= 0x66):
            return False
    return True


cdef const uint8_t *take_bytes(
    State *s, int32_t at, const uint8_t *p, const uint8_t *end, int64_t size
) noexcept nogil:
    """Bytes of a known size: of BYTES, STRING or FIXED."""
    cdef const int32_t *node = s.nodes + at * NODE_FIELDS
    cdef int32_t out = node[N_OUT], must = 0 if node[N_OP] == FIXED else node[N_ARG]
    if size < 0:
        return fail(s, NUMBER, at, p)
    if size > end - p:
        return fail(s, SHORT, at, p)
    if must & UTF8 and not is_utf8(p, size) or must & UUID and not is_uuid(p, size):
        return fail(s, TEXT, at, p)
    if out < 0:
        return p + size
    if s.columns[out].kind == K_DECIMAL:
        return behind_if(put_decimal(s, out, p, size), s, at, p, p + size)
    return behind_if(put(s, out, p, size), s, at, p, p + size)


cdef const uint8_t *take_items(
    State *s, int32_t at, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    """The blocks of an array or a map."""
    cdef const int32_t *node = s.nodes + at * NODE_FIELDS
    cdef int32_t out = node[N_OUT], child
    cdef int64_t count, size, _i, part
    cdef const uint8_t *before
    cdef bint is_put
    while True:
        p = read_varlong(p, end, &count)
        if p == NULL:
            return fail(s, SHORT, at, end)
        if count == 0:
            break
        if count < 0:
            p = read_varlong(p, end, &size)
            if p == NULL:
                return fail(s, SHORT, at, end)
            if count < -ITEMS_MAX:
                return fail(s, LIMIT, at, p)
            count = -count
        for _i in range(count):
            before = p
            for part in range(node[N_COUNT]):
                p = take(s, s.kids[node[N_FIRST] + part], p, end)
                if p == NULL:
                    return NULL
            if p == before:  # such items cost no bytes, so that their number is bounded by steps
                s.steps -= EMPTY_ITEM_STEPS
    if out < 0:
        return p
    child = s.kids[s.columns[out].first]
    is_put = put_end(s, out, s.counts[child]) and count_one(s, out, 1)
    return behind_if(is_put, s, at, p, p)


cdef const uint8_t *take_branch(
    State *s, int32_t at, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    """A value of one branch of the reader's union."""
    cdef const int32_t *node = s.nodes + at * NODE_FIELDS
    cdef int32_t out = node[N_OUT]
    cdef int32_t child = s.kids[s.columns[out].first + node[N_ARG]]
    cdef uint8_t *to = room_for(s, out, 1)
    if to == NULL or not put_end(s, out, s.counts[child]):
        return fail(s, s.why, at, p)
    to[0] = <uint8_t> node[N_ARG]
    if not count_one(s, out, 1):
        return fail(s, s.why, at, p)
    return take(s, s.kids[node[N_FIRST]], p, end)


cdef const uint8_t *take_scalar(
    State *s, int32_t at, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    """A value without a tag."""
    cdef const int32_t *node = s.nodes + at * NODE_FIELDS
    cdef int32_t op = node[N_OP], out = node[N_OUT]
    cdef int64_t size = 4 if op == FLOAT else 8
    cdef float single
    cdef double wide
    if op == NULL_:
        return behind_if(out < 0 or put_null(s, out), s, at, p, p)
    if op == BOOLEAN:
        if p == end:
            return fail(s, SHORT, at, p)
        if p[0] > 1:
            return fail(s, RANGE, at, p)
        return behind_if(out < 0 or put(s, out, p, 1), s, at, p, p + 1)
    if end - p < size:
        return fail(s, SHORT, at, p)
    if out >= 0 and op == FLOAT and s.columns[out].kind == K_DOUBLE:
        memcpy(&single, p, 4)
        wide = single
        return behind_if(put(s, out, &wide, 8), s, at, p, p + size)
    return behind_if(out < 0 or put(s, out, p, size), s, at, p, p + size)


cdef const uint8_t *take(
    State *s, int32_t at, const uint8_t *p, const uint8_t *end
) noexcept nogil:
    """The value of a node; returns the place after it, or NULL with the reason in the state."""
    cdef const int32_t *node = s.nodes + at * NODE_FIELDS
    cdef int32_t op = node[N_OP], out = node[N_OUT]
    cdef const uint8_t *start = p
    cdef int64_t number = 0
    cdef int32_t i
    s.steps -= 1
    if s.steps < 0:
        return fail(s, LIMIT, at, p)
    if op == RECORD:
        for i in range(node[N_COUNT]):
            p = take(s, s.kids[node[N_FIRST] + i], p, end)
            if p == NULL:
                return NULL
        return behind_if(out < 0 or count_one(s, out, 1), s, at, p, p)
    if op == ARRAY or op == MAP:
        return take_items(s, at, p, end)
    if op == BRANCH:
        return take_branch(s, at, p, end)
    if op == FIXED:
        return take_bytes(s, at, p, end, node[N_ARG])
    if op == REFUSE:
        return fail(s, REFUSED, at, p)
    if op == NULL_ or op == BOOLEAN or op == FLOAT or op == DOUBLE:
        return take_scalar(s, at, p, end)
    p = read_varlong(p, end, &number)
    if p == NULL:
        return fail(s, SHORT if end - start < 10 else NUMBER, at, start)
    if op == BYTES or op == STRING:
        return take_bytes(s, at, p, end, number)
    if op == UNION:
        if number < 0 or number >= node[N_COUNT]:
            return fail(s, CHOICE, at, start)
        return take(s, s.kids[node[N_FIRST] + number], p, end)
    if op == ENUM:
        if number < 0 or number >= node[N_COUNT]:
            return fail(s, SYMBOL, at, start)
        number = s.codes[node[N_ARG] + number]
        if out >= 0 and number < 0:
            return fail(s, REFUSED, at, start)
    elif op == INT and <int32_t> number != number:
        return fail(s, RANGE, at, start)
    return behind_if(out < 0 or put_number(s, out, number), s, at, start, p)


cdef bint take_row(void *walk, const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef State *s = <State *> walk
    p = take(s, 0, p, end)
    if p == NULL:
        return False
    if p != end:
        fail(s, TRAILING, 0, p)
        return False
    return True


@cython.auto_pickle(False)
@cython.final
cdef class Memory:
    """Memory of a column; its buffers keep it."""

    cdef void *data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)

    def __dealloc__(self):
        free(self.data)


cdef object memory_of(void **data, Py_ssize_t size):
    """The memory of a column, which the column gives up; empty bytes without any."""
    cdef Memory found
    if data[0] == NULL or size == 0:
        return bytes(4)[:size]
    found = Memory()
    found.data, found.size = data[0], size
    data[0] = NULL
    return found


@cython.auto_pickle(False)
@cython.final
cdef class Columns:
    """The columns of a program while rows are added.

    Args:
        nodes, kids, codes, columns: the program, which the caller made and has checked; the root is
            node 0, its column 0.
    """

    def __cinit__(
        self,
        const int32_t[:, ::1] nodes not None,
        const int32_t[::1] kids not None,
        const int32_t[::1] codes not None,
        const int64_t[:, ::1] columns not None,
    ):
        cdef int64_t i
        if nodes.shape[1] != NODE_FIELDS or columns.shape[1] != COLUMN_FIELDS or not nodes.shape[0]:
            raise ValueError("a program of another form")
        self.nodes, self.kids, self.codes, self.count = nodes, kids, codes, columns.shape[0]
        self.state.nodes = &nodes[0, 0]
        self.state.kids = &kids[0] if kids.shape[0] else NULL
        self.state.codes = &codes[0] if codes.shape[0] else NULL
        self.state.columns = <Column *> calloc(<size_t> self.count, sizeof(Column))
        self.state.counts = <int64_t *> calloc(<size_t> self.count * 4, sizeof(int64_t))
        if self.state.columns == NULL or self.state.counts == NULL:
            raise MemoryError
        self.state.used = self.state.counts + self.count
        self.saved = self.state.used + self.count
        for i in range(self.count):
            memcpy(&self.state.columns[i], &columns[i, 0], COLUMN_FIELDS * sizeof(int64_t))

    def __dealloc__(self):
        cdef int64_t i
        if self.state.columns != NULL:
            for i in range(self.count):
                free(self.state.columns[i].data)
                free(self.state.columns[i].ends)
                free(self.state.columns[i].valid)
        free(self.state.columns)
        free(self.state.counts)

    def decode(
        self,
        const int64_t[::1] offsets not None,
        const uint8_t[::1] data not None,
        const uint8_t[::1] wanted not None,
        dict faults not None,
        int64_t prefix=0,
    ):
        """Add a row for each payload.

        Args:
            offsets: int64[n + 1], of the payloads within `data`.
            data: the bytes.
            wanted: uint8[n], 0 for payloads that are null.
            faults: takes (why, node, position in the payload) by row.
            prefix: bytes before each payload.

        Raises:
            ValueError: the offsets do not ascend within `data`.
            MemoryError: there is no memory for the columns.
        """
        self.add_rows(take_row, &self.state, offsets, data, wanted, faults, prefix)

    cdef int add_rows(
        self, TakeRow take, void *walk, const int64_t[::1] offsets, const uint8_t[::1] data,
        const uint8_t[::1] wanted, dict faults, int64_t prefix,
    ) except -1:
        """As `decode`, by any reader of payloads."""
        cdef State *s = &self.state
        cdef Py_ssize_t row, count = offsets.shape[0] - 1
        cdef size_t saved = <size_t> self.count * 2 * sizeof(int64_t)
        cdef int64_t start, end, limit, left = CALL_STEPS + STEPS_PER_BYTE * data.shape[0]
        cdef const uint8_t *base = pointer_to(data)
        cdef uint8_t nothing = 0
        if base == NULL:  # which is also the answer of a reader that fails
            base = &nothing
        if count < 0 or wanted.shape[0] != count or prefix < 0:
            raise ValueError("payloads and their nulls differ in number")
        with nogil:
            for row in range(count):
                start, end = offsets[row], offsets[row + 1]
                if not 0 <= start <= end <= data.shape[0]:
                    with gil:
                        raise ValueError("offsets do not ascend within the data")
                s.why = SOUND
                if wanted[row]:
                    limit = ROW_STEPS + STEPS_PER_BYTE * (end - start)
                    s.steps = limit = limit if limit < left else left
                    memcpy(self.saved, s.counts, saved)
                    if prefix > end - start:
                        fail(s, SHORT, 0, base + start)
                    elif take(walk, base + start + prefix, base + end):
                        left -= limit - s.steps
                        continue
                    left -= limit - (s.steps if s.steps > 0 else 0)
                    memcpy(s.counts, self.saved, saved)
                    if s.why != NO_MEMORY:
                        with gil:
                            faults[row] = s.why, s.node, s.at - (base + start)
                s.steps = ITEMS_MAX
                if s.why == NO_MEMORY or not put_null(s, 0):
                    with gil:
                        raise MemoryError
        return 0

    def column(self, int32_t number):
        """A column: its values, its data, its ends, and uint8[count] of validity, as buffers.

        `data` has a value each, the bytes of texts, or the type ids of a union; validity is None
        for a column that is not nullable. The memory is handed over: it can be taken once.

        Raises:
            IndexError: there is no such column.
        """
        if not 0 <= number < self.count:
            raise IndexError(number)
        cdef Column *c = &self.state.columns[number]
        cdef int64_t count = self.state.counts[number]
        cdef int64_t ends = count if c.kind == K_UNION else count + 1
        return (
            count,
            memory_of(<void **> &c.data, self.state.used[number]),
            memory_of(<void **> &c.ends, ends * 4),
            memory_of(<void **> &c.valid, count) if c.nullable else None,
        )
