"""Write kernels for magic 2: columns in, one batch out.

One pass writes the records into a bytes object that no other code has seen yet; then header and
checksum are filled in and the object is cut to what was needed, in the same call. Records that do
not fit into a batch stay for the next one. The loop itself is in `csrc/write.h`.

Source: Kafka MemoryRecordsBuilder, DefaultRecord.writeTo, DefaultRecordBatch.writeHeader.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.number cimport PyNumber_Index
from libc.string cimport memcpy, memset

from kseg._core cimport (
    ATTRIBUTE_HORIZON, ATTRIBUTE_LOG_APPEND, CRC_AT, CRC_COVERS_FROM, HEADER_BYTES, INT64_MAX,
    LOG_OVERHEAD, crc32c_of, sub64,
)

cdef extern from "Python.h" nogil:
    PyObject **_items_of "PySequence_Fast_ITEMS"(object o) noexcept

cdef enum:
    LENGTH_AT = 8
    ATTRIBUTES_AT = 21
    # Spare bytes of a buffer, so that the last record need not be sized first.
    ROOM_SPARE = 64
    # Up to here a buffer is made as large as the batch may become.
    ROOM_ESTIMATED_FROM = 1 << 16
    RECORD_BYTES_USUAL = 12


# ---- borrowed columns ----------------------------------------------------------------------------

cdef const void *_borrow(Rows rows, object column, int itemsize, int64_t *count) except? NULL:
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


cdef int _borrow_field(Rows rows, object column, int64_t length, str name, Field *field) except -1:
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
    field.offsets = <const int32_t *>_borrow(rows, column.offsets, 4, &count)
    if count != length + 1:
        raise _wrong_length(name, count - 1, length)
    field.data = <const uint8_t *>_borrow(rows, column.data, 1, &field.data_bytes)
    if column.validity is not None:
        field.validity = <const uint8_t *>_borrow(rows, column.validity, 1, &count)
        if count < (length + 7) // 8:
            raise ValueError(f"{name} has too short a validity")
    return 0


cdef const int64_t *_borrow_int64(Rows rows, object column, str name) except? NULL:
    cdef int64_t count = 0
    cdef const int64_t *first
    if column is None:
        return NULL
    first = <const int64_t *>_borrow(rows, column, 8, &count)
    if count != rows.length:
        raise _wrong_length(name, count, rows.length)
    return first


def int64s(column):
    """int64[n] of the integers in a sequence: `array` takes ten times as long.

    Raises:
        TypeError: a value is no integer.
        OverflowError: a number is beyond 64 bits.
    """
    cdef list numbers = column if type(column) is list else list(column)
    cdef Py_ssize_t i = 0, count = len(numbers)
    cdef int64_t *to
    data = PyBytes_FromStringAndSize(NULL, 8 * count)
    to = <int64_t *>PyBytes_AS_STRING(data)
    for number in numbers:
        # An index that changes the list finds no more room than there was.
        if i == count:
            break
        to[i] = number if type(number) is int else PyNumber_Index(number)
        i += 1
    if i != len(numbers) or i != count:
        raise ValueError("the numbers changed while they were read")
    return memoryview(data).cast("q")


def has_text(tuple values not None):
    """Whether one of the values is text, which must be encoded first."""
    for value in values:
        if isinstance(value, str):
            return True
    return False


cdef bint _all_equal(const int32_t *numbers, int64_t count) noexcept nogil:
    cdef int64_t i
    for i in range(1, count):
        if numbers[i] != numbers[0]:
            return False
    return True


cdef Py_ssize_t _length(offset, timestamp, key, value, headers) except -1:
    for column in (offset, timestamp, key, value):
        if column is not None:
            return len(column)
    if headers is None or not len(headers):
        raise ValueError("records to be written need one column at least")
    return len(headers) - 1


@cython.auto_pickle(False)
@cython.final
cdef class Rows:
    """Columns of `length` records, borrowed for as long as this lives.

    Args:
        length: how many records; -1 for as many as the first column given has.
        offset, timestamp: int64[length], or None.
        key, value: a tuple of `bytes` and None, or a column in Arrow's layout (int32 `offsets`,
            uint8 `data`, uint8 `validity` or None), or None where all are null.
        headers: int32[length + 1], the first header of each record, or None. Where none has any,
            the rest is not looked at.
        header_keys, header_values: as `key`, one for each header.

    Raises:
        ValueError: lengths that do not fit each other, or another kind of number.
    """

    def __cinit__(self, int64_t length, offset=None, timestamp=None, key=None, value=None,
                  headers=None, header_keys=None, header_values=None):
        """Borrow the buffers; the numbers in them are looked at when they are used."""
        cdef int64_t count = 0
        self.held = []
        if length < 0:
            length = _length(offset, timestamp, key, value, headers)
        self.length = length
        self.columns.offsets = _borrow_int64(self, offset, "offset")
        self.columns.timestamps = _borrow_int64(self, timestamp, "timestamp")
        _borrow_field(self, key, length, "key", &self.columns.key)
        _borrow_field(self, value, length, "value", &self.columns.value)
        if headers is not None:
            self.columns.headers = <const int32_t *>_borrow(self, headers, 4, &count)
            if count != length + 1:
                raise _wrong_length("headers", count - 1, length)
            if _all_equal(self.columns.headers, count):
                self.columns.headers = NULL
            self.columns.header_count = len(header_keys)
            _borrow_field(self, header_keys, self.columns.header_count, "header names",
                          &self.columns.header_key)
            _borrow_field(self, header_values, self.columns.header_count, "header values",
                          &self.columns.header_value)

    @property
    def has_offsets(self):
        """Whether the records bring their offsets."""
        return self.columns.offsets != NULL

    def __dealloc__(self):
        cdef int i
        for i in range(self.buffer_count):
            PyBuffer_Release(&self.buffers[i])


# ---- batches -------------------------------------------------------------------------------------

cdef extern from "write.h" nogil:
    # The request to the loop, its position, and the reason for its end.
    ctypedef struct Job "kseg_job":
        int64_t row
        int64_t end
        int64_t base_offset
        int64_t base_timestamp
        int64_t bytes_max
        int64_t count
        int64_t bytes_ "bytes"
        int64_t room
        int64_t last_offset
        int64_t max_timestamp
        int64_t wanted
        int status

    void _put_records "kseg_put_records"(const Source *rows, Job *job, uint8_t *begin) noexcept
    int64_t _estimate "kseg_estimate"(const Field *field, int64_t first, int64_t end) noexcept
    int _too_much "kseg_too_much"(const Source *rows, Job *job) noexcept

cdef extern from "Python.h":
    PyObject *_new_bytes "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size) except NULL
    int _resize_bytes "_PyBytes_Resize"(PyObject **data, Py_ssize_t size) except -1
    char *_bytes_data "PyBytes_AS_STRING"(PyObject *data) noexcept nogil
    void _release "Py_XDECREF"(PyObject *data) noexcept


cdef void _seal(uint8_t *start, const BatchHeader *header, int64_t size) noexcept nogil:
    """Header and checksum of the records that follow them."""
    put_batch_header(start, header, <uint32_t>size)
    put_u32(start + CRC_AT, crc32c_of(start + CRC_COVERS_FROM, size - CRC_COVERS_FROM))


cdef int _check_range(Rows rows, int64_t first, int64_t end) except -1:
    if not 0 <= first < end <= rows.length:
        raise ValueError(f"rows {first} to {end} of {rows.length} cannot be written")
    return 0


cdef int64_t _room_wanted(const Source *rows, const Job *job) noexcept nogil:
    """About how large a buffer the records need."""
    cdef int64_t first, end, room = (job.end - job.row) * RECORD_BYTES_USUAL
    room += _estimate(&rows.key, job.row, job.end) + _estimate(&rows.value, job.row, job.end)
    if rows.headers != NULL:
        first = max(0, min(rows.headers[job.row], rows.header_count))
        end = max(first, min(rows.headers[job.end], rows.header_count))
        room += _estimate(&rows.header_value, first, end) * 2
    return room


cdef uint8_t *_sized(object scratch, PyObject **made, int64_t size) except NULL:
    """Room for `size` bytes: in the scratch if there is one, else in a bytes object."""
    if scratch is not None:
        PyByteArray_Resize(scratch, size)
        return <uint8_t *>PyByteArray_AS_STRING(scratch)
    if made[0] == NULL:
        made[0] = _new_bytes(NULL, size)
    else:
        _resize_bytes(made, size)
    return <uint8_t *>_bytes_data(made[0])


cdef object _put_all(const Source *rows, Job *job, int64_t start, object scratch):
    """The scratch, or a bytes object: `start` bytes of room, then the records, nothing else.

    No other code sees the object before it is filled. It grows where the records turn out to need
    more, and is cut to what they needed.
    """
    cdef PyObject *made = NULL
    cdef uint8_t *p
    job.room = job.bytes_max
    if job.bytes_max > ROOM_ESTIMATED_FROM:
        job.room = min(_room_wanted(rows, job), job.bytes_max)
        if job.room > INT32_MAX // 2 and job.bytes_max > INT32_MAX:
            job.status = _too_much(rows, job)
            job.room = job.room if job.status == WRITE_OK else 0
    # A record too large for any batch must find no room, so that it is not written first.
    job.room = max(0, min(job.room + ROOM_SPARE, INT32_MAX - HEADER_BYTES))
    try:
        p = _sized(scratch, &made, start + job.room)
        while job.status == WRITE_OK or job.status == WRITE_ROOM:
            with nogil:
                _put_records(rows, job, p + start)
            if job.status != WRITE_ROOM:
                break
            job.room = min(2 * job.room, job.bytes_max, INT32_MAX - HEADER_BYTES)
            job.room = max(job.room, job.wanted)
            p = _sized(scratch, &made, start + job.room)
        _sized(scratch, &made, start + job.bytes_)
        return scratch if scratch is not None else <object>made
    finally:
        _release(made)


def encode_records(Rows rows, int64_t first, int64_t end, base_offset, last_offset,
                   int64_t bytes_max, bytearray scratch, int16_t attributes,
                   int32_t leader_epoch, int64_t base_timestamp, int64_t log_append_time,
                   int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
    """Rows from `first` on as one batch, or as its records only.

    Args:
        rows: the columns.
        first, end: which rows; at least one.
        base_offset: of the batch, and of the first record where the columns have no offsets; None
            for the first record's, or 0.
        last_offset: for the header; None for the last record's.
        bytes_max: no more bytes than this, 61 of the header included, but at least one record.
            Above 2^31 - 1 there is no such limit, and more than a batch can have is refused.
        scratch: None for a whole batch. Else the records go here, without header and checksum, and
            take its place: what is given to a codec. It must be this thread's alone.
        attributes: with the codec, though the codec is not applied here. With the bit for log
            append time, `log_append_time` is the batch's largest timestamp.
        base_timestamp: with the bit for a delete horizon: the horizon; else not looked at.
        leader_epoch, producer_id, producer_epoch, base_sequence: for the header.

    Returns:
        data (the scratch, if given), status, count, base_offset, last_offset, base_timestamp,
        max_timestamp, bytes of the records. `data` is None and `count` the refused row, from
        `first` on, where the status is not 0. A bytes object is filled before other code can see
        it.

    Source: Kafka MemoryRecordsBuilder.appendWithOffset, writeDefaultBatchHeader.
    """
    _check_range(rows, first, end)
    cdef Source columns = rows.columns
    cdef Job job
    cdef BatchHeader header
    cdef uint8_t *p
    cdef int64_t start = HEADER_BYTES if scratch is None else 0
    memset(&job, 0, sizeof(job))
    job.row, job.end, job.max_timestamp = first, end, -1
    job.bytes_max = bytes_max - HEADER_BYTES
    job.base_offset = rows.columns.offsets[first] if rows.columns.offsets != NULL else 0
    if base_offset is not None:
        job.base_offset = base_offset
    job.base_timestamp = base_timestamp
    if not attributes & ATTRIBUTE_HORIZON:
        job.base_timestamp = columns.timestamps[first] if columns.timestamps != NULL else -1
    data = _put_all(&columns, &job, start, scratch)
    if job.status == WRITE_FULL:
        job.status = WRITE_OK
    if attributes & ATTRIBUTE_LOG_APPEND:
        job.max_timestamp = log_append_time
    if last_offset is not None and job.status == WRITE_OK:
        _override_last(&job, last_offset)
    if job.status != WRITE_OK:
        data, job.count = None, job.row - first
    elif scratch is None:
        header.base_offset, header.last_offset = job.base_offset, job.last_offset
        header.base_timestamp, header.max_timestamp = job.base_timestamp, job.max_timestamp
        header.leader_epoch, header.attributes = leader_epoch, attributes
        header.producer_id, header.producer_epoch = producer_id, producer_epoch
        header.base_sequence, header.count = base_sequence, <int32_t>job.count
        p = <uint8_t *>PyBytes_AS_STRING(data)
        with nogil:
            _seal(p, &header, start + job.bytes_)
    return (data, job.status, job.count, job.base_offset, job.last_offset, job.base_timestamp,
            job.max_timestamp, job.bytes_)


# The request for one batch of many, in the order of kseg.format.encode.RUN_FIELDS.
cdef enum:
    RUN_FIRST
    RUN_END
    RUN_BASE_OFFSET
    RUN_LAST_OFFSET
    RUN_ATTRIBUTES
    RUN_LEADER_EPOCH
    RUN_HORIZON
    RUN_PRODUCER_ID
    RUN_PRODUCER_EPOCH
    RUN_BASE_SEQUENCE
    RUN_FIELDS


cdef int64_t _put_run(const Source *rows, const int64_t *run, uint8_t *start, int64_t room,
                      Job *job) noexcept nogil:
    """One batch with its header into `room` bytes; its size, or 0 with the job's status."""
    cdef BatchHeader header
    memset(job, 0, sizeof(job[0]))
    job.row, job.end, job.max_timestamp = run[RUN_FIRST], run[RUN_END], -1
    job.bytes_max = INT64_MAX
    job.base_offset, job.base_timestamp = run[RUN_BASE_OFFSET], run[RUN_HORIZON]
    if not run[RUN_ATTRIBUTES] & ATTRIBUTE_HORIZON:
        job.base_timestamp = rows.timestamps[job.row]
    job.room = room - HEADER_BYTES
    if job.room < ROOM_SPARE:
        job.status, job.wanted = WRITE_ROOM, ROOM_SPARE
        return 0
    _put_records(rows, job, start + HEADER_BYTES)
    if job.status == WRITE_OK:
        _override_last(job, run[RUN_LAST_OFFSET])
    if job.status != WRITE_OK:
        return 0
    header.base_offset, header.last_offset = job.base_offset, job.last_offset
    header.base_timestamp, header.max_timestamp = job.base_timestamp, job.max_timestamp
    header.leader_epoch = <int32_t>run[RUN_LEADER_EPOCH]
    header.attributes = <int16_t>run[RUN_ATTRIBUTES]
    header.producer_id = run[RUN_PRODUCER_ID]
    header.producer_epoch = <int16_t>run[RUN_PRODUCER_EPOCH]
    header.base_sequence = <int32_t>run[RUN_BASE_SEQUENCE]
    header.count = <int32_t>job.count
    _seal(start, &header, HEADER_BYTES + job.bytes_)
    return HEADER_BYTES + job.bytes_


cdef int _check_runs(Rows rows, const int64_t[:, ::1] runs, int64_t[::1] times) except -1:
    cdef int64_t i
    if runs.shape[1] != RUN_FIELDS or times.shape[0] != runs.shape[0]:
        raise ValueError("runs has the wrong width, or times another length")
    if rows.columns.offsets == NULL or rows.columns.timestamps == NULL:
        raise ValueError("batches among many are written of records with offsets and timestamps")
    for i in range(runs.shape[0]):
        _check_range(rows, runs[i, RUN_FIRST], runs[i, RUN_END])
    return 0


def encode_runs(Rows rows, const int64_t[:, ::1] runs not None, int64_t[::1] times not None):
    """Plain batches one after the other, each of its run of rows.

    Args:
        rows: the columns, offsets and timestamps among them.
        runs: int64[m, 10], a row a batch: its first row and the one after its last, base offset,
            last offset, attributes without codec and log append time, leader epoch, delete
            horizon (looked at if the attributes have its bit), producer id, epoch and sequence.
        times: int64[m], written: the largest timestamp of each.

    Returns:
        The bytes, which no other code sees before they are complete; None where a batch is refused:
        `encode_records` says why.

    Source: Kafka MemoryRecords.filterTo.
    """
    cdef Source columns = rows.columns
    cdef Job job
    cdef PyObject *made = NULL
    cdef uint8_t *p
    cdef int64_t i = 0, at = 0, size, room = 0, count = runs.shape[0]
    _check_runs(rows, runs, times)
    job.status = WRITE_OK
    for i in range(count):
        job.row, job.end = runs[i, RUN_FIRST], runs[i, RUN_END]
        room += HEADER_BYTES + ROOM_SPARE + _room_wanted(&columns, &job)
    i = 0
    try:
        p = _sized(None, &made, room)
        while i < count:
            with nogil:
                while i < count:
                    size = _put_run(&columns, &runs[i, 0], p + at, room - at, &job)
                    if size == 0:
                        break
                    times[i] = job.max_timestamp
                    at += size
                    i += 1
            if i < count:
                if job.status != WRITE_ROOM:
                    return None
                room = max(2 * room, at + HEADER_BYTES + job.wanted + ROOM_SPARE)
                p = _sized(None, &made, room)
        _sized(None, &made, at)
        return <object>made
    finally:
        _release(made)


cdef int _override_last(Job *job, int64_t last_offset) noexcept nogil:
    """A last offset that is given lies at the last record or after it."""
    if last_offset < job.last_offset or <uint64_t>sub64(last_offset, job.base_offset) > INT32_MAX:
        job.status = WRITE_LAST_OFFSET
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


def seal_like(const uint8_t[::1] plain, const uint8_t[::1] body, int codec):
    """The batch `plain` once more, with its records as a codec has made them: `body`.

    Raises:
        ValueError: there is no such batch or codec, or it would pass 2^31 - 1 bytes.

    Source: Kafka DefaultRecordBatch.writeHeader.
    """
    cdef int64_t size = HEADER_BYTES + body.shape[0]
    cdef uint8_t *p
    if plain.shape[0] < HEADER_BYTES or not 0 < codec < 8:
        raise ValueError(f"{plain.shape[0]} bytes with codec {codec} make no compressed batch")
    if size > INT32_MAX:
        raise ValueError(f"a batch of {size} bytes is larger than {INT32_MAX}")
    data = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t *>PyBytes_AS_STRING(data)
    memcpy(p, &plain[0], HEADER_BYTES)
    if size > HEADER_BYTES:
        memcpy(p + HEADER_BYTES, &body[0], size - HEADER_BYTES)
    put_u32(p + LENGTH_AT, <uint32_t>(size - LOG_OVERHEAD))
    p[ATTRIBUTES_AT + 1] |= <uint8_t>codec
    put_u32(p + CRC_AT, crc32c_of(p + CRC_COVERS_FROM, size - CRC_COVERS_FROM))
    return data
