"""Read kernels: checksums, location and gathering of records.

Each is a function over buffers that the caller owns: input is borrowed for the call, output arrays
come allocated, the loop runs without the GIL, and bad bytes end the loop with a status instead of
an exception. Layouts and status codes stand in `_core.pxd`; what they mean to people is said by
`kseg.format`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcpy, memset

cdef extern from "crc.h" nogil:
    uint32_t kseg_crc32c(uint32_t value, const uint8_t *data, size_t size) noexcept
    uint32_t kseg_crc32(uint32_t value, const uint8_t *data, size_t size) noexcept
    uint32_t kseg_crc32c_shifted(uint32_t value, uint32_t size) noexcept
    uint32_t kseg_crc32_shifted(uint32_t value, uint32_t size) noexcept
    int kseg_crc_variant_count() noexcept
    const char *kseg_crc_variant_name(int i) noexcept
    bint kseg_crc_variant_usable(int i) noexcept
    int kseg_crc_select(const char *name) noexcept
    const char *kseg_crc_selected() noexcept
    void kseg_crc_init() noexcept

cdef enum:
    COPY_SLACK = 64  # spare bytes behind a column's data, so that short values go as blocks
    GIL_BYTES = 4096  # below this, giving the GIL up costs more than the checksum

kseg_crc_init()


# ---- checksums -----------------------------------------------------------------------------------

ctypedef uint32_t (*crc_function)(uint32_t, const uint8_t *, size_t) noexcept nogil


cdef uint32_t crc32_of(const uint8_t *data, size_t size) noexcept nogil:
    return kseg_crc32(0, data, size)


cdef uint32_t crc32c_of(const uint8_t *data, size_t size) noexcept nogil:
    return kseg_crc32c(0, data, size)


cdef uint32_t crc32c_on(uint32_t value, const uint8_t *data, size_t size) noexcept nogil:
    """The sum of magic 2, going on from `value`."""
    return kseg_crc32c(value, data, size)


cdef uint32_t crc_on(bint castagnoli, uint32_t value, const uint8_t *data,
                     size_t size) noexcept nogil:
    """Either sum, going on from `value`."""
    return kseg_crc32c(value, data, size) if castagnoli else kseg_crc32(value, data, size)


cdef uint32_t crc_shifted(bint castagnoli, uint32_t value, uint32_t size) noexcept nogil:
    """What to take from the sum of two stretches to have that of the second, of `size` bytes."""
    if castagnoli:
        return kseg_crc32c_shifted(value, size)
    return kseg_crc32_shifted(value, size)


cdef uint32_t _checksum(crc_function function, object data, uint32_t value) except? 0:
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len < GIL_BYTES:
            return function(value, <const uint8_t *>buffer.buf, buffer.len)
        with nogil:
            value = function(value, <const uint8_t *>buffer.buf, buffer.len)
        return value
    finally:
        PyBuffer_Release(&buffer)


def crc32c(data, uint32_t value=0):
    """CRC-32C of `data`, going on from `value`, the checksum of what came before."""
    return _checksum(kseg_crc32c, data, value)


def crc32(data, uint32_t value=0):
    """CRC-32 (zlib's) of `data`, going on from `value`, the checksum of what came before."""
    return _checksum(kseg_crc32, data, value)


def crc_variants():
    """Names of the checksum kernels that this processor can run, slowest first."""
    return tuple(
        kseg_crc_variant_name(i).decode()
        for i in range(kseg_crc_variant_count())
        if kseg_crc_variant_usable(i)
    )


def crc_variant():
    """Name of the checksum kernel in use."""
    return kseg_crc_selected().decode()


def set_crc_variant(str name):
    """Use one checksum kernel by name, or the best one again with "auto"; for tests and
    benchmarks.
    """
    if kseg_crc_select(name.encode()) != 0:
        known = ", ".join(("auto", *crc_variants()))
        raise ValueError(f"no checksum kernel {name!r} on this machine; there are: {known}")


# ---- locating the records of magic 2 batches -----------------------------------------------------

cdef extern from "records.h" nogil:
    ctypedef struct Located "kseg_record":
        int64_t timestamp_delta
        int32_t offset_delta
        const uint8_t *key
        int32_t key_size
        const uint8_t *value
        int32_t value_size
        const uint8_t *headers
        int32_t header_count

    int _parse "kseg_parse_record"(const uint8_t *p, const uint8_t *end, Located *r) noexcept
    const uint8_t *_plain_record "kseg_plain_record"(const uint8_t *p, const uint8_t *end,
                                                     Located *r) noexcept

    ctypedef struct Run "kseg_run":
        const uint8_t *p
        int64_t count
        int64_t key_bytes
        int64_t key_nulls
        int64_t value_bytes
        int64_t value_nulls

    Run _plain_times "kseg_plain_times"(const uint8_t *p, const uint8_t *end, int64_t count,
                                        int64_t base_offset, int64_t base_timestamp,
                                        int64_t *offsets, int64_t *timestamps) noexcept


cdef struct Header:
    const uint8_t *key
    int32_t key_size
    const uint8_t *value
    int32_t value_size
    int status


cdef inline const uint8_t *_header(const uint8_t *p, const uint8_t *end, Header *h) noexcept nogil:
    """One header; the position behind it, or NULL and a status where it breaks a rule."""
    h.status = RECORD_HEADER_KEY
    p = read_varint(p, end, &h.key_size)
    if p == NULL or h.key_size < 0 or h.key_size > end - p:
        return NULL
    h.key = p
    h.status = RECORD_HEADER_VALUE
    p = read_varint(p + h.key_size, end, &h.value_size)
    if p == NULL or h.value_size > end - p:
        return NULL
    h.value = p
    return p + h.value_size if h.value_size > 0 else p


cdef int _walk_headers(const uint8_t *p, const uint8_t *end, int32_t count,
                       int64_t *totals) noexcept nogil:
    """Check `count` headers and add their sizes to `totals`: count, name bytes, value bytes, null
    values.
    """
    cdef Header h
    cdef int32_t _i
    for _i in range(count):
        p = _header(p, end, &h)
        if p == NULL:
            return h.status
        totals[1] += h.key_size
        if h.value_size >= 0:
            totals[2] += h.value_size
        else:
            totals[3] += 1
    totals[0] += count
    return RECORD_OK if p == end else RECORD_SLACK


cdef inline const uint8_t *_record_end(const uint8_t **p, const uint8_t *end, bint last,
                                       int *status) noexcept nogil:
    """Step over a record's length; the record's end, found without parsing it. The body must end
    with the last one.
    """
    cdef int32_t length = 0
    cdef const uint8_t *stop
    if p[0] == end:
        status[0] = RECORD_COUNT_TOO_HIGH
        return NULL
    p[0] = read_varint(p[0], end, &length)
    if p[0] == NULL:
        status[0] = RECORD_VARINT
        return NULL
    if length <= 0 or length > end - p[0]:
        status[0] = RECORD_LENGTH
        return NULL
    stop = p[0] + length
    if last and stop != end:
        status[0] = RECORD_LEFTOVER
        return NULL
    return stop


cdef int _check_records(const uint8_t *p, const uint8_t *end, int64_t record,
                        int64_t count) noexcept nogil:
    """Parse the records from `record` on and keep nothing: is the rest of the body whole?"""
    cdef Located r
    cdef int64_t totals[4]
    cdef int status = RECORD_OK
    cdef const uint8_t *stop
    totals[0] = totals[1] = totals[2] = totals[3] = 0
    while record < count:
        stop = _record_end(&p, end, record == count - 1, &status)
        if stop == NULL:
            return status
        status = _parse(p, stop, &r)
        if status == RECORD_OK and r.header_count:
            status = _walk_headers(r.headers, stop, r.header_count, totals)
        if status != RECORD_OK:
            return status
        p = stop
        record += 1
    return RECORD_OK


cdef const uint8_t *_careful(const uint8_t *p, const uint8_t *end, bint last, Located *r,
                             int64_t *headers, int *status) noexcept nogil:
    """One record of any shape, its headers too; its end, or NULL and what is wrong with it."""
    cdef const uint8_t *stop = _record_end(&p, end, last, status)
    if stop == NULL:
        return NULL
    status[0] = _parse(p, stop, r)
    if status[0] == RECORD_OK and r.header_count:
        headers[0] = headers[1] = headers[2] = headers[3] = 0
        status[0] = _walk_headers(r.headers, stop, r.header_count, headers)
    return stop if status[0] == RECORD_OK else NULL


cdef inline void _write_row(const Sink *out, int64_t row, const uint8_t *start, const Located *r,
                            int64_t offset, int64_t timestamp) noexcept nogil:
    """What is wanted of one record; `row` is below `rows_max`, which each output has room for."""
    cdef int32_t *span
    if out.offsets != NULL:
        out.offsets[row] = offset
    if out.timestamps != NULL:
        out.timestamps[row] = timestamp
    if out.spans != NULL:
        span = out.spans + row * SPAN_FIELDS
        span[SPAN_KEY] = <int32_t>(r.key - start)
        span[SPAN_KEY_SIZE] = r.key_size
        span[SPAN_VALUE] = <int32_t>(r.value - start)
        span[SPAN_VALUE_SIZE] = r.value_size
        span[SPAN_HEADERS] = <int32_t>(r.headers - start)
        span[SPAN_HEADER_COUNT] = r.header_count


cdef inline void _append(Column *column, int64_t row, int64_t used, const uint8_t *data,
                         int64_t size, const uint8_t *end) noexcept nogil:
    """One value behind the `used` bytes of a column, which has room for all bytes of all bodies."""
    if size >= 0:
        copy_bytes(column.data + used, data, size, end - data)
        used += size
        column.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
    column.offsets[row + 1] = <int32_t>used


cdef struct Found:
    int64_t key_bytes
    int64_t key_nulls
    int64_t value_bytes
    int64_t value_nulls
    int64_t headers[4]


cdef inline void _count(Found *found, const Located *r, const int64_t *headers) noexcept nogil:
    if r.key_size >= 0:
        found.key_bytes += r.key_size
    else:
        found.key_nulls += 1
    if r.value_size >= 0:
        found.value_bytes += r.value_size
    else:
        found.value_nulls += 1
    if r.header_count:
        found.headers[0] += headers[0]
        found.headers[1] += headers[1]
        found.headers[2] += headers[2]
        found.headers[3] += headers[3]


cdef void _add_found(int64_t *state, const Found *found) noexcept nogil:
    state[STATE_KEY_BYTES] += found.key_bytes
    state[STATE_KEY_NULLS] += found.key_nulls
    state[STATE_VALUE_BYTES] += found.value_bytes
    state[STATE_VALUE_NULLS] += found.value_nulls
    state[STATE_HEADERS] += found.headers[0]
    state[STATE_HEADER_KEY_BYTES] += found.headers[1]
    state[STATE_HEADER_VALUE_BYTES] += found.headers[2]
    state[STATE_HEADER_VALUE_NULLS] += found.headers[3]


cdef inline int64_t _record_bytes(const Located *r, const int64_t *headers) noexcept nogil:
    """Bytes of key, value and headers that a record brings into a piece."""
    cdef int64_t used = headers[1] + headers[2] if r.header_count else 0
    used += r.key_size if r.key_size > 0 else 0
    used += r.value_size if r.value_size > 0 else 0
    return used


cdef int _locate_body(const uint8_t *start, int64_t body_size, const int64_t *body,
                      const Sink *sink, int64_t *state) noexcept nogil:
    """Locate the records of one body from `state` on; 1 where the sink is full, 0 at the body's end
    or a fault.

    Everything the loop needs is held in locals: the compiler must take any store through an output
    pointer for one that may change what lies behind another.
    """
    cdef Sink out = sink[0]
    cdef Found found
    cdef Located r
    cdef Run run
    cdef int64_t headers[4]
    cdef const uint8_t *p = start + state[STATE_POSITION]
    cdef const uint8_t *end = start + body_size
    cdef const uint8_t *stop
    cdef int64_t record = state[STATE_RECORD], count = body[BODY_COUNT], rows = state[STATE_ROWS]
    cdef int64_t base_offset = body[BODY_BASE_OFFSET]
    cdef int64_t base_timestamp = body[BODY_BASE_TIMESTAMP]
    cdef int64_t append_time = body[BODY_MAX_TIMESTAMP]
    cdef bint log_append = body[BODY_LOG_APPEND] != 0
    cdef int64_t offset, timestamp, room = out.bytes_max - _bytes_found(state)
    # Where neither bound can be reached inside this body, no record is held against them.
    cdef bint bounded = count - record > out.rows_max - rows or end - p > room
    cdef int64_t key_start = state[STATE_KEY_BYTES], value_start = state[STATE_VALUE_BYTES]
    cdef int status = RECORD_OK, full = 0
    memset(&found, 0, sizeof(found))
    memset(headers, 0, sizeof(headers))
    if (out.spans == NULL and out.key.data == NULL and out.value.data == NULL
            and not (bounded or out.filtered or log_append)):
        # The last record is left to the loop below, which knows that the body must end with it.
        run = _plain_times(p, end, count - 1 - record, base_offset, base_timestamp,
                           out.offsets + rows if out.offsets != NULL else NULL,
                           out.timestamps + rows if out.timestamps != NULL else NULL)
        found.key_bytes, found.key_nulls = run.key_bytes, run.key_nulls
        found.value_bytes, found.value_nulls = run.value_bytes, run.value_nulls
        p = run.p
        record += run.count
        rows += run.count
    while record < count:
        stop = _plain_record(p, end, &r)
        if stop == NULL or (stop != end and record == count - 1):
            stop = _careful(p, end, record == count - 1, &r, headers, &status)
            if stop == NULL:
                break
        offset = add64(base_offset, r.offset_delta)
        timestamp = append_time if log_append else add64(base_timestamp, r.timestamp_delta)
        if not out.filtered or (out.offset_min <= offset <= out.offset_max
                                and out.timestamp_min <= timestamp <= out.timestamp_max):
            if bounded:
                room -= _record_bytes(&r, headers)
                if rows == out.rows_max or (room < 0 and rows > 0):
                    full = 1
                    break
            _write_row(&out, rows, start, &r, offset, timestamp)
            if out.key.data != NULL:
                _append(&out.key, rows, key_start + found.key_bytes, r.key, r.key_size, end)
            if out.value.data != NULL:
                _append(&out.value, rows, value_start + found.value_bytes, r.value, r.value_size,
                        end)
            _count(&found, &r, headers)
            rows += 1
        p = stop
        record += 1
    state[STATE_RECORD] = record
    state[STATE_POSITION] = p - start if full else 0
    state[STATE_ROWS] = rows
    state[STATE_STATUS] = status
    _add_found(state, &found)
    return full


cdef int64_t _bytes_found(const int64_t *state) noexcept nogil:
    """Bytes that the rows found so far will fill."""
    return (state[STATE_KEY_BYTES] + state[STATE_VALUE_BYTES] + state[STATE_HEADER_KEY_BYTES]
            + state[STATE_HEADER_VALUE_BYTES])


cdef int _check_batch(const Lent *lent, const int64_t *body, const uint8_t *start,
                      int64_t size) noexcept nogil:
    """Compare the checksum of a plain batch, which covers part of the header before its body."""
    cdef int64_t covered = HEADER_BYTES - CRC_COVERS_FROM
    if body[BODY_SOURCE] or body[BODY_START] < covered:
        return BATCH_CRC
    if size == 0:
        start = lent.view + body[BODY_START]
    if kseg_crc32c(0, start - covered, size + covered) != <uint32_t>body[BODY_CRC]:
        return BATCH_CRC
    return RECORD_OK


cdef int _locate(const Lent *lent, int64_t *first_row, const Sink *out,
                 int64_t *state) noexcept nogil:
    cdef int64_t saved[STATE_FIELDS]
    cdef const uint8_t *start
    cdef const int64_t *body
    cdef int64_t i, size = 0
    cdef int full, status
    for i in range(state[STATE_BODY] + 1):
        first_row[i] = 0
    while state[STATE_BODY] < lent.body_count:
        body = lent.bodies + state[STATE_BODY] * BODY_FIELDS
        start = body_bytes(lent, state[STATE_BODY], &size)
        if start == NULL or not 0 <= state[STATE_POSITION] <= size:
            return -1
        if body[BODY_CRC] >= 0 and not state[STATE_RECORD]:
            # Checked here and not by the walk, the batch is in the cache when it is parsed.
            state[STATE_STATUS] = _check_batch(lent, body, start, size)
            if state[STATE_STATUS] != RECORD_OK:
                break
        if body[BODY_COUNT] < 0:
            state[STATE_STATUS] = RECORD_COUNT_NEGATIVE
            break
        memcpy(saved, state, sizeof(saved))
        full = _locate_body(start, size, body, out, state)
        if full and body[BODY_EAGER] and not state[STATE_CHECKED]:
            # A compressed batch is all or nothing: look at its rest before any record goes out.
            state[STATE_STATUS] = _check_records(start + state[STATE_POSITION], start + size,
                                                 state[STATE_RECORD], body[BODY_COUNT])
            state[STATE_CHECKED] = 1
        if state[STATE_STATUS] != RECORD_OK:
            if body[BODY_EAGER] and not saved[STATE_CHECKED]:
                status = <int>state[STATE_STATUS]
                memcpy(state, saved, sizeof(saved))
                state[STATE_STATUS] = status
            break
        if full:
            break
        state[STATE_BODY] += 1
        state[STATE_RECORD] = state[STATE_POSITION] = state[STATE_CHECKED] = 0
        first_row[state[STATE_BODY]] = state[STATE_ROWS]
    for i in range(state[STATE_BODY] + 1, lent.body_count + 1):
        first_row[i] = state[STATE_ROWS]
    return 0


cdef int _take_column(Column *column, const int64_t[:, ::1] bodies, int64_t rows_max,
                      tuple arrays) except -1:
    """Borrow a column to be filled; the caller holds its arrays for the length of the call.

    Keys and values of all records fit into the bytes of all bodies. That is held against the column
    here, and not once a record.
    """
    cdef int32_t[::1] offsets = arrays[0]
    cdef uint8_t[::1] data = arrays[1]
    cdef uint8_t[::1] validity = arrays[2]
    cdef int64_t i, size, room = data.shape[0] - COPY_SLACK
    for i in range(bodies.shape[0]):
        size = sub64(bodies[i, BODY_END], bodies[i, BODY_START])
        if size < 0 or size > room:
            raise ValueError("a column has no room for the bytes of the bodies")
        room -= size
    if offsets.shape[0] < rows_max + 1 or validity.shape[0] < (rows_max + 7) // 8 or room < 0:
        raise ValueError("a column has no room for rows_max")
    column.offsets, column.data = &offsets[0], &data[0]
    column.validity = &validity[0] if validity.shape[0] else NULL
    offsets[0] = 0
    return 0


def locate_records(const uint8_t[::1] view, const uint8_t[::1] arena, const int64_t[:, ::1] bodies,
                   *, const int64_t[::1] within, int64_t rows_max, int64_t bytes_max,
                   int64_t[::1] offsets, int64_t[::1] timestamps, int32_t[:, ::1] spans,
                   int64_t[::1] first_row, int64_t[::1] state, tuple keys=None,
                   tuple values=None):
    """Parse the records of magic 2 bodies and note offsets, timestamps and where keys, values and
    headers lie; or copy keys and values at once, while they are in the nearest cache.

    Args:
        view: source 0 of the bodies; read only.
        arena: source 1 of the bodies; read only.
        bodies: int64[m, BODY_FIELDS].
        within: int64[4]: least and last offset, least and last timestamp; records outside
            are passed over.
        rows_max: no more rows than this.
        bytes_max: no more key, value and header bytes than this, but at least one row.
        offsets: int64[>= rows_max], written, or int64[0] where not wanted.
        timestamps: the same for timestamps in ms.
        spans: int32[>= rows_max, SPAN_FIELDS], written, or int32[0, SPAN_FIELDS].
        first_row: int64[m + 1], written: the first row of each body, the number of rows behind the
            last.
        state: int64[STATE_FIELDS]: where to go on (body, record, position, checked), and what was
            found: rows, status, byte totals. Clear all but the first four before going on.

        keys, values: None, or offsets int32[rows_max + 1], data uint8[bytes of all bodies + 64] and
            validity uint8[(rows_max + 7) // 8], zeroed by the caller: the column, written.

    A body that carries a checksum is held against it first. The records before a bad one are kept,
    but those of an eager (compressed) body only if all of it is sound.

    Source: Kafka DefaultRecord.readFrom, DefaultRecordBatch.iterator.
    """
    check_request(bodies, within, rows_max, offsets, timestamps, spans, first_row, state)
    cdef Sink out = sink_of(within, rows_max, bytes_max, offsets, timestamps, spans)
    if keys is not None:
        _take_column(&out.key, bodies, rows_max, keys)
    if values is not None:
        _take_column(&out.value, bodies, rows_max, values)
    cdef Lent lent = lend(view, arena, bodies)
    cdef int fault
    with nogil:
        fault = _locate(&lent, &first_row[0], &out, &state[0])
    if fault:
        raise ValueError("a body lies outside its source")


# ---- gathering into Arrow layout -----------------------------------------------------------------

cdef inline void _mark_valid(uint8_t *validity, int64_t row) noexcept nogil:
    validity[row >> 3] |= <uint8_t>(1 << (row & 7))


cdef int _gather(const Lent *lent, const int64_t *first_row, const int32_t *spans, int column,
                 int32_t *offsets, uint8_t *data, int64_t capacity,
                 uint8_t *validity) noexcept nogil:
    cdef const uint8_t *start
    cdef const int32_t *span
    cdef int64_t b, row, size, position, used = 0, body_size = 0
    offsets[0] = 0
    for b in range(lent.body_count):
        if first_row[b] == first_row[b + 1]:
            continue
        start = body_bytes(lent, b, &body_size)
        if start == NULL:
            return -1
        for row in range(first_row[b], first_row[b + 1]):
            span = spans + row * SPAN_FIELDS + column
            position = span[0]
            size = span[1]
            if size > 0:
                # The spans are the caller's; only what stays inside body and output is copied.
                if position < 0 or size > body_size - position or size > capacity - used:
                    return -1
                copy_bytes(data + used, start + position, size, body_size - position)
                used += size
            offsets[row + 1] = <int32_t>used
            if validity != NULL and size >= 0:
                _mark_valid(validity, row)
    return 0


cdef int _check_located(const int64_t[:, ::1] bodies, const int64_t[::1] first_row,
                        const int32_t[:, ::1] spans) except -1:
    """What `locate_records` wrote must fit together, and rows must not go backwards."""
    cdef int64_t b, bodies_count = bodies.shape[0]
    if bodies.shape[1] != BODY_FIELDS or spans.shape[1] != SPAN_FIELDS:
        raise ValueError("bodies or spans has the wrong width")
    if first_row.shape[0] != bodies_count + 1 or first_row[0] != 0:
        raise ValueError("first_row does not fit the bodies")
    for b in range(bodies_count):
        if first_row[b] > first_row[b + 1]:
            raise ValueError("first_row goes backwards")
    if spans.shape[0] < first_row[bodies_count]:
        raise ValueError("spans do not fit the rows")
    return 0


def gather_bytes(const uint8_t[::1] view, const uint8_t[::1] arena, const int64_t[:, ::1] bodies,
                 const int64_t[::1] first_row, const int32_t[:, ::1] spans, int column,
                 int32_t[::1] offsets, uint8_t[::1] data, uint8_t[::1] validity):
    """Copy one binary column of located records into Arrow's layout.

    Args:
        view, arena, bodies, first_row, spans: as given to and written by `locate_records`.
        column: SPAN_KEY (0) or SPAN_VALUE (2).
        offsets: int32[rows + 1], written.
        data: uint8[at least the column's bytes + 64], written; the 64 spare bytes let short values
            go as one block.
        validity: uint8[(rows + 7) // 8], zeroed by the caller, bits written; uint8[0] where there
            are no nulls.
    """
    cdef int64_t rows = first_row[first_row.shape[0] - 1]
    _check_located(bodies, first_row, spans)
    if column not in (SPAN_KEY, SPAN_VALUE) or offsets.shape[0] != rows + 1:
        raise ValueError("column or offsets does not fit the rows")
    if data.shape[0] < COPY_SLACK or (validity.shape[0] and validity.shape[0] < (rows + 7) // 8):
        raise ValueError("data or validity is too small")
    cdef Lent lent = lend(view, arena, bodies)
    cdef uint8_t *bits = &validity[0] if validity.shape[0] else NULL
    cdef const int32_t *places = &spans[0, 0] if spans.shape[0] else NULL
    cdef int fault
    with nogil:
        fault = _gather(&lent, &first_row[0], places, column, &offsets[0], &data[0],
                        data.shape[0] - COPY_SLACK, bits)
    if fault:
        raise ValueError("spans do not fit bodies or data")


cdef struct HeaderSink:
    int32_t *key_offsets
    uint8_t *keys
    int64_t keys_max
    int32_t *value_offsets
    uint8_t *values
    int64_t values_max
    uint8_t *validity
    int64_t headers_max
    int64_t headers
    int64_t key_bytes
    int64_t value_bytes


cdef int _gather_record(const uint8_t *p, const uint8_t *end, int32_t count,
                        HeaderSink *out) noexcept nogil:
    cdef Header h
    cdef int32_t _i
    for _i in range(count):
        p = _header(p, end, &h)
        if p == NULL or out.headers == out.headers_max or h.key_size > out.keys_max - out.key_bytes:
            return -1
        copy_bytes(out.keys + out.key_bytes, h.key, h.key_size, end - h.key)
        out.key_bytes += h.key_size
        if h.value_size >= 0:
            if h.value_size > out.values_max - out.value_bytes:
                return -1
            copy_bytes(out.values + out.value_bytes, h.value, h.value_size, end - h.value)
            out.value_bytes += h.value_size
            if out.validity != NULL:
                _mark_valid(out.validity, out.headers)
        out.headers += 1
        out.key_offsets[out.headers] = <int32_t>out.key_bytes
        out.value_offsets[out.headers] = <int32_t>out.value_bytes
    return 0


cdef int _gather_headers(const Lent *lent, const int64_t *first_row, const int32_t *spans,
                         int32_t *lists, HeaderSink *out) noexcept nogil:
    cdef const uint8_t *start
    cdef const int32_t *span
    cdef int64_t b, row, body_size = 0
    lists[0] = out.key_offsets[0] = out.value_offsets[0] = 0
    for b in range(lent.body_count):
        if first_row[b] == first_row[b + 1]:
            continue
        start = body_bytes(lent, b, &body_size)
        if start == NULL:
            return -1
        for row in range(first_row[b], first_row[b + 1]):
            span = spans + row * SPAN_FIELDS
            if span[SPAN_HEADER_COUNT]:
                if not 0 <= span[SPAN_HEADERS] <= body_size:
                    return -1
                if _gather_record(start + span[SPAN_HEADERS], start + body_size,
                                  span[SPAN_HEADER_COUNT], out) != 0:
                    return -1
            lists[row + 1] = <int32_t>out.headers
    return 0


def gather_headers(const uint8_t[::1] view, const uint8_t[::1] arena, const int64_t[:, ::1] bodies,
                   const int64_t[::1] first_row, const int32_t[:, ::1] spans, int32_t[::1] lists,
                   int32_t[::1] key_offsets, uint8_t[::1] keys, int32_t[::1] value_offsets,
                   uint8_t[::1] values, uint8_t[::1] validity):
    """Copy the headers of located records into Arrow's layout of a list of (name, value).

    Args:
        view, arena, bodies, first_row, spans: as given to and written by `locate_records`.
        lists: int32[rows + 1], written: the first header of each record.
        key_offsets, value_offsets: int32[headers + 1], written.
        keys, values: uint8[at least the bytes + 64], written.
        validity: uint8[(headers + 7) // 8] of the values, zeroed by the caller; uint8[0] where none
            is null.
    """
    cdef int64_t rows = first_row[first_row.shape[0] - 1]
    _check_located(bodies, first_row, spans)
    if lists.shape[0] != rows + 1 or key_offsets.shape[0] < 1:
        raise ValueError("lists or key_offsets does not fit the rows")
    if key_offsets.shape[0] != value_offsets.shape[0]:
        raise ValueError("key_offsets and value_offsets differ in length")
    if min(keys.shape[0], values.shape[0]) < COPY_SLACK:
        raise ValueError("key and value outputs do not fit each other")
    if validity.shape[0] and validity.shape[0] < (key_offsets.shape[0] + 6) // 8:
        raise ValueError("validity is too small")
    cdef HeaderSink out
    out.key_offsets, out.value_offsets = &key_offsets[0], &value_offsets[0]
    out.keys, out.keys_max = &keys[0], keys.shape[0] - COPY_SLACK
    out.values, out.values_max = &values[0], values.shape[0] - COPY_SLACK
    out.validity = &validity[0] if validity.shape[0] else NULL
    out.headers_max = key_offsets.shape[0] - 1
    out.headers = out.key_bytes = out.value_bytes = 0
    cdef Lent lent = lend(view, arena, bodies)
    cdef const int32_t *places = &spans[0, 0] if spans.shape[0] else NULL
    cdef int fault
    with nogil:
        fault = _gather_headers(&lent, &first_row[0], places, &lists[0], &out)
    if fault:
        raise ValueError("spans do not fit bodies or outputs")
