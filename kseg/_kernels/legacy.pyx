"""Kernels for the message sets before Kafka 0.11: magic 0 and 1, and the two of Kafka 0.7.

The contract is that of `_core`. The walk over magic 0 and 1 is that of `walk`, and `reader` reads
them; here they are written. Here is also the walk over Kafka 0.7's messages, which store neither
offset nor a magic byte where the later formats have theirs.

Kafka 0.7: length 0 4, magic 4 1, then for magic 0: CRC 5 4, payload 9; for magic 1: attributes 5 1,
CRC 6 4, payload 10. The CRC-32 covers the payload only. Source: kafka.message.Message of 0.7.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kseg._core cimport *
from kseg._kernels.encode cimport *


# ---- the walk over Kafka 0.7's messages ----------------------------------------------------------

cdef enum:
    LENGTH_BYTES_07 = 4
    MESSAGE_MIN_07 = 5


cdef int _frame_07(const uint8_t *p, int64_t left, int64_t visible, int64_t *size,
                   int *magic) noexcept nogil:
    """As in `_core`: STOP_END where a whole message starts at `p`, else why the walk ends.

    The magic is read here and not again: the least size of a message depends on it.
    """
    cdef int64_t length
    if visible < min(left, LENGTH_BYTES_07 + 1):
        size[0] = min(left, LENGTH_BYTES_07 + 1)
        return STOP_LIMIT
    if left < LENGTH_BYTES_07:
        return STOP_ZERO_TAIL if all_zero(p, left) else STOP_TORN_TAIL
    length = load_i32(p)
    if length < MESSAGE_MIN_07:
        return STOP_ZERO_TAIL if all_zero(p, visible) else STOP_BAD_LENGTH
    size[0] = length + LENGTH_BYTES_07
    magic[0] = p[4] if left > LENGTH_BYTES_07 else 0
    if magic[0] > 1:
        return STOP_BAD_MAGIC
    if magic[0] == 1 and length == MESSAGE_MIN_07:
        return STOP_BAD_LENGTH
    if size[0] > left:
        return STOP_TORN_TAIL
    return STOP_LIMIT if size[0] > visible else STOP_END


cdef void _fill_07(const uint8_t *p, int64_t size, int magic, int64_t offset, bint verify,
                   int64_t *row) noexcept nogil:
    cdef int64_t header = 10 if magic else 9
    cdef int field
    for field in range(BASE_OFFSET, ROW_FIELDS):
        row[field] = -1
    row[SIZE] = size
    row[MAGIC] = magic
    row[BASE_OFFSET] = row[LAST_OFFSET] = offset
    row[CRC] = load_u32(p + header - 4)
    row[ATTRIBUTES] = p[5] & 3 if magic else 0
    row[RECORD_COUNT] = -1 if row[ATTRIBUTES] else 1
    if verify:
        row[CRC_OK] = crc32_of(p + header, size - header) == <uint32_t>row[CRC]


cdef void _walk_07(const uint8_t *data, int64_t base, int64_t position, int64_t limit,
                   int64_t visible_end, int64_t file_end, int verify, int64_t log_start,
                   int64_t capacity, int64_t *row, int64_t *walk) noexcept nogil:
    cdef int64_t count = 0, size = 0, attributes = 0, magics = 0, bad = 0
    cdef int stop = STOP_END, magic = 0
    cdef const uint8_t *p
    while position < file_end:
        size = 0
        if position >= limit or count == capacity:
            stop = STOP_LIMIT
            break
        p = data + (position - base)
        stop = _frame_07(p, file_end - position, visible_end - position, &size, &magic)
        if stop != STOP_END:
            break
        row[POSITION] = position
        _fill_07(p, size, magic, add64(log_start, position), verify != 0, row)
        if row[CRC_OK] == 0:
            if verify == VERIFY_STOP:
                stop = STOP_BAD_CRC
                break
            bad += 1
        attributes |= row[ATTRIBUTES]
        magics |= 1 << row[MAGIC]
        count += 1
        position += size
        size = 0
        row += ROW_FIELDS
    write_walk(walk, count, position, stop, size, attributes, magics, bad)


def scan_messages_07(const uint8_t[::1] data, *, int64_t base, int64_t start, int64_t limit,
                     int64_t file_end, int verify, int64_t log_start, int64_t[:, ::1] rows,
                     int64_t[::1] walk):
    """`walk.scan_batches` for Kafka 0.7; `log_start` is the offset of the file's first byte.

    Base and last offset of a row are the message's physical start in the log.
    Source: kafka.message.ByteBufferMessageSet and FileMessageSet of 0.7.
    """
    check_walk(data.shape[0], base, start, file_end, rows, walk)
    cdef const uint8_t *bytes_ = pointer_to(data)
    cdef int64_t visible_end = base + data.shape[0]
    cdef int64_t capacity = rows.shape[0]
    # Every index below is in bounds: count < capacity = rows.shape[0], fields are checked above.
    with nogil:
        _walk_07(bytes_, base, start, limit, visible_end, file_end, verify, log_start, capacity,
                 &rows[0, 0] if capacity else NULL, &walk[0])


# ---- writing -------------------------------------------------------------------------------------

cdef enum:
    MESSAGE_HEADER_0 = 26  # offset, size, CRC, magic, attributes, two lengths
    MESSAGE_HEADER_1 = 34  # and a timestamp


# The request to an encoder, and its answer.
cdef struct Job:
    int64_t first
    int64_t end
    int64_t base_offset
    int64_t offset_shift
    int64_t forced_timestamp
    int64_t bytes_max
    bint forced
    uint8_t magic
    uint8_t attributes
    int64_t count
    int64_t bytes_
    int64_t last_offset
    int64_t max_timestamp
    int64_t offset_of_max
    int status


cdef inline int64_t _offset_of(const Source *rows, const Job *job, int64_t row) noexcept nogil:
    if rows.offsets != NULL:
        return rows.offsets[row]
    return add64(job.base_offset, row - job.first)


cdef inline int64_t _present(int64_t size) noexcept nogil:
    return size if size > 0 else 0


cdef inline int _check_message(const Source *rows, const Job *job, int64_t row, int64_t offset,
                               int64_t last, int64_t timestamp) noexcept nogil:
    """The checks of Kafka's builder on a record, in its order."""
    if row > job.first and offset <= last:
        return WRITE_OFFSET_ORDER
    if timestamp < -1:
        return WRITE_TIMESTAMP
    if rows.headers != NULL and rows.headers[row] != rows.headers[row + 1]:
        return WRITE_HEADERS
    if <uint64_t>sub64(offset, job.base_offset) > INT32_MAX:
        return WRITE_OFFSET_RANGE
    return WRITE_OK


cdef void _measure(const Source *rows, Job *job) noexcept nogil:
    """Bytes of the messages that fit, from the first on; a status where one is refused."""
    cdef const uint8_t *at
    cdef int64_t header = MESSAGE_HEADER_1 if job.magic else MESSAGE_HEADER_0
    cdef int64_t row, offset, timestamp, key, value, size, total = 0
    cdef int status = WRITE_OK
    job.last_offset = 0
    job.max_timestamp = job.offset_of_max = -1
    for row in range(job.first, job.end):
        offset = _offset_of(rows, job, row)
        timestamp = rows.timestamps[row] if rows.timestamps != NULL else -1
        status = _check_message(rows, job, row, offset, job.last_offset, timestamp)
        if status != WRITE_OK:
            break
        key, value = take(&rows.key, row, &at), take(&rows.value, row, &at)
        if key < NULL_VALUE or value < NULL_VALUE:
            status = refusal(key if key < NULL_VALUE else value)
            break
        if key > INT32_MAX or value > INT32_MAX:
            status = WRITE_RECORD_SIZE
            break
        size = header + _present(key) + _present(value)
        if size - LOG_OVERHEAD > INT32_MAX:
            status = WRITE_RECORD_SIZE
            break
        if total + size > job.bytes_max and row > job.first:
            break
        if total + size > INT32_MAX:
            status = WRITE_BATCH_SIZE
            break
        total += size
        job.last_offset = offset
        timestamp = job.forced_timestamp if job.forced else timestamp
        if job.magic and timestamp > job.max_timestamp:
            job.max_timestamp, job.offset_of_max = timestamp, offset
    else:
        row = job.end
    job.count, job.bytes_, job.status = row - job.first, total, status


cdef inline uint8_t *_put_value(uint8_t *p, const uint8_t *at, int64_t size) noexcept nogil:
    p = put_u32(p, <uint32_t><int32_t>size)
    return put_bytes(p, at, size) if size > 0 else p


cdef bint _write(const Source *rows, const Job *job, uint8_t *p, uint8_t *end) noexcept nogil:
    """The messages that were measured, up to `end`; false where a column has changed since."""
    cdef const uint8_t *key_at = NULL
    cdef const uint8_t *value_at = NULL
    cdef uint8_t *start
    cdef int64_t header = MESSAGE_HEADER_1 if job.magic else MESSAGE_HEADER_0
    cdef int64_t row, key, value, timestamp, room
    for row in range(job.first, job.first + job.count):
        key, value = take(&rows.key, row, &key_at), take(&rows.value, row, &value_at)
        room = end - p - header
        if key < NULL_VALUE or value < NULL_VALUE or key > room:
            return False
        if room < 0 or value > room - _present(key):
            return False
        start = p
        p = put_u64(p, <uint64_t>sub64(_offset_of(rows, job, row), job.offset_shift))
        p = put_u32(p, <uint32_t>(header + _present(key) + _present(value) - LOG_OVERHEAD)) + 4
        p[0], p[1] = job.magic, job.attributes
        p += 2
        if job.magic:
            timestamp = rows.timestamps[row] if rows.timestamps != NULL else -1
            p = put_u64(p, <uint64_t>(job.forced_timestamp if job.forced else timestamp))
        p = _put_value(_put_value(p, key_at, key), value_at, value)
        put_u32(start + LOG_OVERHEAD, crc32_of(start + 16, p - start - 16))
    return p == end


def encode_messages(Rows rows, int64_t first, int64_t end, base_offset, int64_t bytes_max,
                    bytearray scratch, uint8_t magic, uint8_t attributes, bint relative,
                    timestamp):
    """Rows from `first` on as messages of magic 0 or 1, each with its offset and size.

    Args:
        rows: the columns.
        first, end: which rows; at least one.
        base_offset: of the first record where the columns have no offsets; None for the first
            record's, or 0.
        bytes_max: no more bytes than this, but at least one message.
        scratch: None, or where the messages go: what is given to a codec. It must be this thread's
            alone.
        attributes: of every message.
        relative: store offsets relative to `base_offset`.
        timestamp: what every message carries instead of its own; None for its own.

    Returns:
        data (the scratch, if given), status, count, base_offset, last_offset, max_timestamp, its
        first offset (-1 for none). `data` is None and `count` the refused row, from `first` on,
        where the status is not 0.

    Source: Kafka MemoryRecordsBuilder.appendLegacyRecord, LegacyRecord.write.
    """
    if not 0 <= first < end <= rows.length:
        raise ValueError(f"rows {first} to {end} of {rows.length} cannot be written")
    if magic > 1:
        raise ValueError(f"a message has magic 0 or 1, not {magic}")
    cdef Job job
    cdef uint8_t *p
    cdef bint whole = True
    job.first, job.end, job.bytes_max = first, end, bytes_max
    job.base_offset = rows.columns.offsets[first] if rows.columns.offsets != NULL else 0
    if base_offset is not None:
        job.base_offset = base_offset
    job.offset_shift = job.base_offset if relative else 0
    job.forced = timestamp is not None
    job.forced_timestamp = timestamp if timestamp is not None else -1
    job.magic, job.attributes = magic, attributes
    with nogil:
        _measure(&rows.columns, &job)
    data = None
    if job.status == WRITE_OK:
        if scratch is None:
            data = PyBytes_FromStringAndSize(NULL, job.bytes_)
            p = <uint8_t *>PyBytes_AS_STRING(data)
        else:
            data = scratch
            PyByteArray_Resize(scratch, job.bytes_)
            p = <uint8_t *>PyByteArray_AS_STRING(scratch)
        with nogil:
            whole = _write(&rows.columns, &job, p, p + job.bytes_)
        if not whole:
            data, job.status = None, WRITE_CHANGED
    return (data, job.status, job.count, job.base_offset, job.last_offset, job.max_timestamp,
            job.offset_of_max)


def encode_messages_07(Rows rows, uint8_t magic, uint8_t attributes):
    """The values of all rows as messages of Kafka 0.7: no offsets, no keys, no null.

    Returns:
        data, status, the refused row; `data` is None where the status is not 0.

    Source: kafka.message.Message and ByteBufferMessageSet of 0.7.
    """
    cdef const Field *field = &rows.columns.value
    cdef const uint8_t *at = NULL
    cdef int64_t header = 10 if magic else 9
    cdef int64_t row = 0, size = 0, total = 0, count = rows.length
    cdef int status = WRITE_OK
    cdef bint whole = True
    cdef uint8_t *p
    with nogil:
        for row in range(count):
            size = take(field, row, &at)
            if size < 0:
                status = WRITE_PAYLOAD_NULL if size == NULL_VALUE else refusal(size)
            elif size > INT32_MAX - header:
                status = WRITE_RECORD_SIZE
            elif total + header + size > INT32_MAX:
                status = WRITE_BATCH_SIZE
            if status != WRITE_OK:
                break
            total += header + size
    if status != WRITE_OK:
        return None, status, row
    data = PyBytes_FromStringAndSize(NULL, total)
    p = <uint8_t *>PyBytes_AS_STRING(data)
    with nogil:
        whole = _write_07(field, count, magic, attributes, p, p + total)
    return (data, WRITE_OK, 0) if whole else (None, WRITE_CHANGED, 0)


cdef bint _write_07(const Field *field, int64_t count, uint8_t magic, uint8_t attributes,
                    uint8_t *p, uint8_t *end) noexcept nogil:
    cdef const uint8_t *at = NULL
    cdef int64_t row, size, header = 10 if magic else 9
    for row in range(count):
        size = take(field, row, &at)
        if size < 0 or size > end - p - header:
            return False
        p = put_u32(p, <uint32_t>(header - LENGTH_BYTES_07 + size))
        p[0] = magic
        p += 1
        if magic:
            p[0] = attributes
            p += 1
        p = put_u32(p, crc32_of(at, size))
        p = put_bytes(p, at, size)
    return p == end
