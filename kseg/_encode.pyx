"""Write kernels for magic 2: columns in, one batch out.

The sizes of all records come first, which also tells how many fit; then one pass writes them into a
bytes object of exactly that size, which nobody else has seen yet, with header and checksum in the
same call. Columns are numbers that somebody may change while they are read, so what the second
pass writes is held against the sizes of the first.

Source: Kafka MemoryRecordsBuilder, DefaultRecord.writeTo, DefaultRecordBatch.writeHeader.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.string cimport memcpy

from kseg._core cimport (
    ATTRIBUTE_LOG_APPEND, CRC_COVERS_FROM, HEADER_BYTES, crc32c_of, sub64,
)

cdef extern from "Python.h" nogil:
    PyObject **_items_of "PySequence_Fast_ITEMS"(object o) noexcept

cdef enum:
    CRC_AT = 17
    ATTRIBUTE_HORIZON = 0x40
    # The numbers of a record and its length, at their longest, and the attributes.
    NUMBERS_MAX = 36
    # Attributes, two deltas, two lengths, header count and the record's own length.
    RECORD_BYTES_MIN = 7


# ---- columns, lent -------------------------------------------------------------------------------

cdef const void *_lend(Rows rows, object column, int itemsize, int64_t *count) except? NULL:
    """The first of `count` numbers of a contiguous buffer, which stays borrowed as long as `rows`
    lives.
    """
    cdef Py_buffer *buffer = &rows.buffers[rows.buffer_count]
    PyObject_GetBuffer(column, buffer, PyBUF_ND | PyBUF_FORMAT)
    rows.buffer_count += 1
    cdef char kind = buffer.format[0] if buffer.format != NULL else b"B"
    cdef bint fits = buffer.itemsize == itemsize and buffer.ndim == 1
    if not fits or not (itemsize == 1 or kind in (b"i", b"l", b"q")):
        raise ValueError(f"a column wants native signed numbers of {itemsize} bytes each")
    count[0] = buffer.len // itemsize
    return buffer.buf


cdef object _wrong_length(str name, int64_t count, int64_t length):
    return ValueError(f"{name} has {count} values where {length} are wanted")


cdef int _lend_field(Rows rows, object column, int64_t length, str name, Field *field) except -1:
    """A column of byte strings: None, a tuple, or anything with offsets, data and validity."""
    cdef int64_t count = 0
    if column is None:
        return 0
    rows.held.append(column)
    if type(column) is tuple:
        if len(column) != length:
            raise _wrong_length(name, len(column), length)
        field.items = _items_of(column)
        return 0
    field.offsets = <const int32_t *>_lend(rows, column.offsets, 4, &count)
    if count != length + 1:
        raise _wrong_length(name, count - 1, length)
    field.data = <const uint8_t *>_lend(rows, column.data, 1, &field.data_bytes)
    if column.validity is not None:
        field.validity = <const uint8_t *>_lend(rows, column.validity, 1, &count)
        if count < (length + 7) // 8:
            raise ValueError(f"{name} has too short a validity")
    return 0


cdef const int64_t *_lend_int64(Rows rows, object column, str name) except? NULL:
    cdef int64_t count = 0
    cdef const int64_t *first
    if column is None:
        return NULL
    first = <const int64_t *>_lend(rows, column, 8, &count)
    if count != rows.length:
        raise _wrong_length(name, count, rows.length)
    return first


@cython.auto_pickle(False)
@cython.final
cdef class Rows:
    """Columns of `length` records, lent to the encoders for as long as this lives.

    Args:
        length: how many records.
        offset, timestamp: int64[length], or None.
        key, value: a tuple of `bytes` and None, or a column in Arrow's layout (int32 `offsets`,
            uint8 `data`, uint8 `validity` or None), or None where all are null.
        headers: int32[length + 1], the first header of each record, or None.
        header_keys, header_values: as `key`, one for each header.

    Raises:
        ValueError: lengths that do not fit each other, or another kind of number.
    """

    def __cinit__(self, int64_t length, offset=None, timestamp=None, key=None, value=None,
                  headers=None, header_keys=None, header_values=None):
        """Borrow the buffers; the numbers in them are looked at when they are used."""
        cdef int64_t count = 0
        self.held = []
        self.length = length
        if length < 0:
            raise ValueError("length is negative")
        self.lent.offsets = _lend_int64(self, offset, "offset")
        self.lent.timestamps = _lend_int64(self, timestamp, "timestamp")
        _lend_field(self, key, length, "key", &self.lent.key)
        _lend_field(self, value, length, "value", &self.lent.value)
        if headers is not None:
            self.lent.headers = <const int32_t *>_lend(self, headers, 4, &count)
            if count != length + 1:
                raise _wrong_length("headers", count - 1, length)
            self.lent.header_count = len(header_keys)
            _lend_field(self, header_keys, self.lent.header_count, "header names",
                        &self.lent.header_key)
            _lend_field(self, header_values, self.lent.header_count, "header values",
                        &self.lent.header_value)

    @property
    def has_offsets(self):
        """Whether the records bring their offsets."""
        return self.lent.offsets != NULL

    def __dealloc__(self):
        cdef int i
        for i in range(self.buffer_count):
            PyBuffer_Release(&self.buffers[i])


# ---- sizes ---------------------------------------------------------------------------------------

# What is asked of an encoder, and what it answers.
cdef struct Job:
    int64_t first
    int64_t end
    int64_t base_offset
    int64_t base_timestamp
    int64_t bytes_max
    int64_t count
    int64_t bytes_
    int64_t last_offset
    int64_t max_timestamp
    int status


cdef inline int64_t _sized(int64_t size) noexcept nogil:
    """Bytes of a value with its length; null (-1) has a length only."""
    return varint_size(<int32_t>size) + (size if size > 0 else 0)


cdef int _headers_size(const Source *rows, int64_t start, int64_t stop,
                       int64_t *total) noexcept nogil:
    """Bytes of the headers `[start, stop)` of a record, with their count."""
    cdef const uint8_t *at
    cdef int64_t size, value, header
    if not 0 <= start <= stop <= rows.header_count:
        return ENCODE_COLUMN
    total[0] = varint_size(<int32_t>(stop - start))
    for header in range(start, stop):
        size = take(&rows.header_key, header, &at)
        value = take(&rows.header_value, header, &at)
        if size < 0:
            return ENCODE_NAME_NULL if size == NULL_VALUE else refusal(size)
        if value < NULL_VALUE:
            return refusal(value)
        if size > INT32_MAX or value > INT32_MAX:
            return ENCODE_RECORD_SIZE
        total[0] += _sized(size) + _sized(value)
        if total[0] > INT32_MAX:
            return ENCODE_RECORD_SIZE
    return ENCODE_OK


cdef inline int64_t _fields_size(int64_t timestamp_delta, int32_t offset_delta, int64_t key,
                                 int64_t value) noexcept nogil:
    """Bytes of a record between its length and its headers."""
    return (1 + varlong_size(timestamp_delta) + varint_size(offset_delta) + _sized(key)
            + _sized(value))


cdef inline int _body_size(const Source *rows, int64_t row, int64_t timestamp_delta,
                           int32_t offset_delta, int64_t *body) noexcept nogil:
    """Bytes of a record behind its length."""
    cdef const uint8_t *at
    cdef int64_t headers = 1
    cdef int64_t key = take(&rows.key, row, &at)
    cdef int64_t value = take(&rows.value, row, &at)
    cdef int status
    if key < NULL_VALUE or value < NULL_VALUE:
        return refusal(key if key < NULL_VALUE else value)
    if key > INT32_MAX or value > INT32_MAX:
        return ENCODE_RECORD_SIZE
    if rows.headers != NULL:
        status = _headers_size(rows, rows.headers[row], rows.headers[row + 1], &headers)
        if status != ENCODE_OK:
            return status
    body[0] = _fields_size(timestamp_delta, offset_delta, key, value) + headers
    return ENCODE_OK if body[0] <= INT32_MAX else ENCODE_RECORD_SIZE


cdef inline int64_t _timestamp(const Source *rows, int64_t row) noexcept nogil:
    return rows.timestamps[row] if rows.timestamps != NULL else -1


cdef inline int64_t _offset(const Source *rows, const Job *job, int64_t row) noexcept nogil:
    if rows.offsets != NULL:
        return rows.offsets[row]
    return <int64_t>(<uint64_t>job.base_offset + <uint64_t>(row - job.first))


cdef void _measure(const Source *rows, Job *job, int32_t *sizes) noexcept nogil:
    """Sizes of the records that fit, from the first on; a status and how many were well where one
    is refused.
    """
    cdef int64_t row, offset, delta, timestamp, body = 0, total = HEADER_BYTES
    cdef int64_t last = 0, latest = -1
    cdef int status = ENCODE_OK
    for row in range(job.first, job.end):
        offset = _offset(rows, job, row)
        timestamp = _timestamp(rows, row)
        delta = sub64(offset, job.base_offset)
        if row > job.first and offset <= last:
            status = ENCODE_OFFSET_ORDER
        elif timestamp < -1:
            status = ENCODE_TIMESTAMP
        elif <uint64_t>delta > INT32_MAX:
            status = ENCODE_OFFSET_RANGE
        else:
            status = _body_size(rows, row, sub64(timestamp, job.base_timestamp), <int32_t>delta,
                                &body)
        if status != ENCODE_OK:
            break
        total += varint_size(<int32_t>body) + body
        if total > job.bytes_max and row > job.first:
            total -= varint_size(<int32_t>body) + body
            break
        if total > INT32_MAX:
            status = ENCODE_BATCH_SIZE
            break
        sizes[row - job.first] = <int32_t>body
        last = offset
        latest = max(latest, timestamp)
    else:
        row = job.end
    job.count = row - job.first
    job.bytes_ = total - HEADER_BYTES
    job.last_offset = last
    job.max_timestamp = latest
    job.status = status


# ---- records -------------------------------------------------------------------------------------

cdef uint8_t *_write_headers(const Source *rows, int64_t row, uint8_t *p,
                             const uint8_t *stop) noexcept nogil:
    """A record's headers, which must end where the record ends; NULL where they would not."""
    cdef const uint8_t *at = NULL
    cdef int64_t size, header, total = 0
    cdef int64_t start = rows.headers[row], end = rows.headers[row + 1]
    # Sized again, and each held against what is left: the columns may have changed meanwhile.
    if _headers_size(rows, start, end, &total) != ENCODE_OK or total != stop - p:
        return NULL
    p = put_varint(p, <int32_t>(end - start))
    for header in range(start, end):
        size = take(&rows.header_key, header, &at)
        if size < 0 or _sized(size) > stop - p:
            return NULL
        p = put_bytes(put_varint(p, <int32_t>size), at, size)
        size = take(&rows.header_value, header, &at)
        if size < NULL_VALUE or _sized(size) > stop - p:
            return NULL
        p = put_varint(p, <int32_t>size)
        if size > 0:
            p = put_bytes(p, at, size)
    return p


cdef uint8_t *_write(const Source *lent, const Job *job, const int32_t *sizes, uint8_t *p,
                     const uint8_t *end) noexcept nogil:
    """The records that were measured, up to `end`; NULL where a column has changed since."""
    # Copies that nothing written through `p` can reach, so that the compiler need not read anew.
    cdef Source rows = lent[0]
    cdef Job asked = job[0]
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef const uint8_t *stop
    cdef int64_t i, row, fields, key_size, value_size, timestamp_delta
    cdef int32_t offset_delta
    for i in range(asked.count):
        row = asked.first + i
        timestamp_delta = sub64(_timestamp(&rows, row), asked.base_timestamp)
        offset_delta = <int32_t>sub64(_offset(&rows, &asked, row), asked.base_offset)
        key_size = take(&rows.key, row, &key)
        value_size = take(&rows.value, row, &value)
        if key_size < NULL_VALUE or value_size < NULL_VALUE:
            return NULL
        # With room for the longest numbers, what has grown is noticed behind the record and before
        # the end; without it, in front of the record.
        if (end - p - NUMBERS_MAX < key_size
                or end - p - NUMBERS_MAX - key_size < value_size):
            fields = _fields_size(timestamp_delta, offset_delta, key_size, value_size)
            if fields >= sizes[i]:
                return NULL
        p = put_varint(p, sizes[i])
        stop = p + sizes[i]
        p[0] = 0
        p = put_varlong(p + 1, timestamp_delta)
        p = put_varint(p, offset_delta)
        p = put_varint(p, <int32_t>key_size)
        if key_size > 0:
            p = put_bytes(p, key, key_size)
        p = put_varint(p, <int32_t>value_size)
        if value_size > 0:
            p = put_bytes(p, value, value_size)
        if rows.headers == NULL:
            p[0] = 0
            p += 1
        elif p < stop:
            p = _write_headers(lent, row, p, stop)
        if p != stop:
            return NULL
    return p if p == end else NULL


# ---- batches -------------------------------------------------------------------------------------

cdef void _seal(uint8_t *start, const BatchHeader *header, int64_t size) noexcept nogil:
    """Header and checksum around the records that lie behind them."""
    put_batch_header(start, header, <uint32_t>size)
    put_u32(start + CRC_AT, crc32c_of(start + CRC_COVERS_FROM, size - CRC_COVERS_FROM))


cdef int _check_range(Rows rows, int64_t first, int64_t end) except -1:
    if not 0 <= first < end <= rows.length:
        raise ValueError(f"rows {first} to {end} of {rows.length} cannot be written")
    return 0


cdef int64_t _first_offset(Rows rows, int64_t first, object base_offset) except? -1:
    """The base offset asked for, else that of the first record, else 0."""
    if base_offset is not None:
        return base_offset
    return rows.lent.offsets[first] if rows.lent.offsets != NULL else 0


cdef Source _without_empty_headers(const Source *lent, int64_t first, int64_t end) noexcept nogil:
    """The columns; without that of headers where it says that there are none in these rows."""
    cdef Source rows = lent[0]
    cdef int64_t row
    if rows.headers != NULL:
        for row in range(first, end):
            if rows.headers[row] != rows.headers[row + 1]:
                return rows
        rows.headers = NULL
    return rows


def encode_records(Rows rows, int64_t first, int64_t end, base_offset, last_offset,
                   int64_t bytes_max, bint bare, int16_t attributes, int32_t leader_epoch,
                   int64_t base_timestamp, int64_t log_append_time, int64_t producer_id,
                   int16_t producer_epoch, int32_t base_sequence):
    """Rows from `first` on as one batch, or as its records only.

    Args:
        rows: the columns.
        first, end: which rows; at least one.
        base_offset: of the batch, and of the first record where the columns have no offsets; None
            for the first record's, or 0.
        last_offset: what the header shall say; None for the last record's.
        bytes_max: no more bytes than this, 61 of the header included, but at least one record.
        bare: leave out header and checksum: what goes to a codec.
        attributes: with the codec, though the codec is not applied here. With the bit for log
            append time, `log_append_time` is the batch's largest timestamp.
        base_timestamp: with the bit for a delete horizon: the horizon; else not looked at.
        leader_epoch, producer_id, producer_epoch, base_sequence: for the header.

    Returns:
        data, status, count, base_offset, last_offset, base_timestamp, max_timestamp, bytes of the
        records. `data` is None and `count` the refused row, from `first` on, where the status is
        not 0. The object is made by this function and filled before anybody else can see it.

    Source: Kafka MemoryRecordsBuilder.appendWithOffset, writeDefaultBatchHeader.
    """
    _check_range(rows, first, end)
    cdef Job job
    cdef BatchHeader header
    cdef Source lent = _without_empty_headers(&rows.lent, first, end)
    cdef int64_t start = 0 if bare else HEADER_BYTES
    cdef int64_t count_max = min(end - first, max(bytes_max, 0) // RECORD_BYTES_MIN + 1)
    cdef uint8_t *p
    cdef bint whole = True
    job.first, job.end = first, end
    job.base_offset = _first_offset(rows, first, base_offset)
    job.base_timestamp = base_timestamp
    if not attributes & ATTRIBUTE_HORIZON:
        job.base_timestamp = _timestamp(&lent, first)
    job.bytes_max = bytes_max
    cdef int32_t *sizes = <int32_t *>PyMem_RawMalloc(count_max * sizeof(int32_t))
    if sizes == NULL:
        raise MemoryError
    try:
        with nogil:
            _measure(&lent, &job, sizes)
        if attributes & ATTRIBUTE_LOG_APPEND:
            job.max_timestamp = log_append_time
        if last_offset is not None and job.status == ENCODE_OK:
            _override_last(&job, last_offset)
        if job.status != ENCODE_OK:
            return (None, job.status, job.count, job.base_offset, job.last_offset,
                    job.base_timestamp, job.max_timestamp, job.bytes_)
        header.base_offset, header.last_offset = job.base_offset, job.last_offset
        header.base_timestamp, header.max_timestamp = job.base_timestamp, job.max_timestamp
        header.leader_epoch, header.attributes = leader_epoch, attributes
        header.producer_id, header.producer_epoch = producer_id, producer_epoch
        header.base_sequence, header.count = base_sequence, <int32_t>job.count
        data = PyBytes_FromStringAndSize(NULL, start + job.bytes_)
        p = <uint8_t *>PyBytes_AS_STRING(data)
        with nogil:
            whole = _write(&lent, &job, sizes, p + start, p + start + job.bytes_) != NULL
            if whole and not bare:
                _seal(p, &header, start + job.bytes_)
        if not whole:
            data, job.status = None, ENCODE_CHANGED
        return (data, job.status, job.count, job.base_offset, job.last_offset, job.base_timestamp,
                job.max_timestamp, job.bytes_)
    finally:
        PyMem_RawFree(sizes)


cdef int _override_last(Job *job, int64_t last_offset) except -1:
    """A last offset that is given lies at the last record or behind it."""
    if last_offset < job.last_offset or <uint64_t>sub64(last_offset, job.base_offset) > INT32_MAX:
        job.status = ENCODE_LAST_OFFSET
    else:
        job.last_offset = last_offset
    return 0


def seal_batch(const uint8_t[::1] body, int64_t base_offset, int64_t last_offset,
               int32_t leader_epoch, int16_t attributes, int64_t base_timestamp,
               int64_t max_timestamp, int64_t producer_id, int16_t producer_epoch,
               int32_t base_sequence, int32_t count):
    """A batch around `body`, its records as they are to be stored: header, checksum and a copy.

    Raises:
        ValueError: the batch would pass 2^31 - 1 bytes, or the offsets do not fit each other.

    Source: Kafka DefaultRecordBatch.writeHeader.
    """
    cdef BatchHeader header
    cdef int64_t size = HEADER_BYTES + body.shape[0]
    cdef uint8_t *p
    if size > INT32_MAX:
        raise ValueError(f"a batch of {size} bytes is larger than {INT32_MAX}")
    if last_offset < base_offset or <uint64_t>sub64(last_offset, base_offset) > INT32_MAX:
        raise ValueError(f"last offset {last_offset} does not fit base offset {base_offset}")
    header.base_offset, header.last_offset = base_offset, last_offset
    header.base_timestamp, header.max_timestamp = base_timestamp, max_timestamp
    header.leader_epoch, header.attributes = leader_epoch, attributes
    header.producer_id, header.producer_epoch = producer_id, producer_epoch
    header.base_sequence, header.count = base_sequence, count
    data = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t *>PyBytes_AS_STRING(data)
    with nogil:
        if size > HEADER_BYTES:
            memcpy(p + HEADER_BYTES, &body[0], size - HEADER_BYTES)
        _seal(p, &header, size)
    return data
