# cython: auto_pickle=False
"""A batch that grows record by record, in one buffer of its own.

Records of magic 2 are written once, behind the room for the batch's header, which is filled in when
the batch is made; so are the inner messages of a wrapper, and plain messages without such room. All
that a record may break is checked here, before anything is written: a refused record leaves the
batch as it was. What a refusal says to people stands in `kseg.format.builder`.

Unlike other kernels this one has state: `BatchBuffer` owns its memory. Source: Kafka
MemoryRecordsBuilder, DefaultRecord.writeTo, LegacyRecord.write.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kseg._core cimport (
    ATTRIBUTE_LOG_APPEND, HEADER_BYTES, INT64_MAX, LOG_OVERHEAD, crc32_of, sub64,
)

cdef extern from "stdint.h" nogil:
    int32_t INT32_MAX

cdef extern from "Python.h":
    int64_t PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from "encode.h" nogil:
    uint32_t uvarint_size "kseg_uvarint_size"(uint64_t value) noexcept
    uint32_t varint_size "kseg_varint_size"(int32_t value) noexcept
    uint32_t varlong_size "kseg_varlong_size"(int64_t value) noexcept
    uint8_t *put_varint "kseg_put_varint"(uint8_t *p, int32_t value) noexcept
    uint8_t *put_varlong "kseg_put_varlong"(uint8_t *p, int64_t value) noexcept
    uint8_t *put_u32 "kseg_put_u32"(uint8_t *p, uint32_t value) noexcept
    uint8_t *put_u64 "kseg_put_u64"(uint8_t *p, uint64_t value) noexcept
    uint8_t *put_bytes "kseg_put_bytes"(uint8_t *p, const uint8_t *source, size_t size) noexcept

cdef enum:
    FIRST_BYTES = 512
    FIRST_BYTES_MAX = 65536
    TOO_LARGE = -2

# Why a record is refused; the texts stand in kseg.format.builder, in this order.
cdef enum:
    PLACED
    REFUSED_CLOSED
    REFUSED_CONTROL
    REFUSED_DATA
    REFUSED_OFFSET
    REFUSED_DELTA
    REFUSED_TIMESTAMP
    REFUSED_HEADERS
    REFUSED_HEADER_NAME
    REFUSED_RECORD_BYTES
    REFUSED_BATCH_BYTES
    REFUSED_COUNT
    REFUSED_NUMBER


# ---- what is borrowed from the caller for the time of one append ---------------------------------

# Bytes of a key or value; a negative size is null.
cdef struct Piece:
    const uint8_t *data
    int64_t size
    bint held
    Py_buffer buffer


cdef inline int _borrow(object given, Piece *piece) except -1:
    cdef Py_ssize_t size = 0
    if given is None:
        piece.data, piece.size = NULL, -1
    elif type(given) is bytes:
        piece.data = <const uint8_t *>PyBytes_AS_STRING(given)
        piece.size = PyBytes_GET_SIZE(given)
    elif isinstance(given, str):
        # The text keeps its UTF-8, and the caller the text.
        piece.data = <const uint8_t *>PyUnicode_AsUTF8AndSize(given, &size)
        piece.size = size
    else:
        PyObject_GetBuffer(given, &piece.buffer, PyBUF_SIMPLE)
        piece.held = True
        piece.data, piece.size = <const uint8_t *>piece.buffer.buf, piece.buffer.len
    return 0


cdef inline void _give_back(Piece *piece) noexcept:
    if piece.held:
        piece.held = False
        PyBuffer_Release(&piece.buffer)


cdef int _room(bytearray data, int64_t used, int64_t wanted) except -1:
    """See to `wanted` bytes behind `used`; growing costs little for each byte ever written."""
    cdef int64_t size = len(data)
    if wanted > size - used:
        PyByteArray_Resize(data, max(used + wanted, size + (size >> 1)))
    return 0


cdef int64_t _add_piece(bytearray out, int64_t used, const Piece *piece) except -1:
    """Write a length and bytes at `used`; answers the position behind them, or TOO_LARGE."""
    cdef uint8_t *start
    cdef uint8_t *p
    if piece.size > INT32_MAX - used:
        return TOO_LARGE
    _room(out, used, 5 + max(piece.size, 0))
    start = <uint8_t *>PyByteArray_AS_STRING(out)
    p = put_varint(start + used, <int32_t>piece.size)
    if piece.size > 0:
        p = put_bytes(p, piece.data, piece.size)
    return p - start


cdef int64_t _add_header(bytearray out, int64_t used, object name, object value) except -1:
    """Write one header at `used`; answers as `_add_piece`."""
    cdef Piece piece
    piece.held = False
    try:
        _borrow(name, &piece)
        used = _add_piece(out, used, &piece)
    finally:
        _give_back(&piece)
    if used == TOO_LARGE:
        return TOO_LARGE
    try:
        _borrow(value, &piece)
        return _add_piece(out, used, &piece)
    finally:
        _give_back(&piece)


# The headers of one record without their count, encoded ahead of it: reading them may run code of
# the caller's.
cdef class _Headers:
    cdef bytearray data
    cdef int64_t size
    cdef int64_t count
    cdef int refused

    def __cinit__(self):
        self.size = self.count = 0
        self.refused = PLACED


cdef _Headers _no_headers = _Headers()


cdef _Headers _encode_headers(object headers):
    """Names and values of `headers` as a record holds them behind their count, which is bounded as
    their bytes are: none takes less than two.
    """
    cdef _Headers out = _Headers()
    out.data = PyByteArray_FromStringAndSize(NULL, 64)
    if headers is None:
        out.refused = REFUSED_HEADER_NAME
        return out
    for name, value in headers:
        if name is None:
            out.refused = REFUSED_HEADER_NAME
            break
        out.size = _add_header(out.data, out.size, name, value)
        if out.size == TOO_LARGE:
            out.refused = REFUSED_RECORD_BYTES
            break
        out.count += 1
    return out


cdef inline _Headers _headers_of(object headers):
    if type(headers) is tuple and not <tuple>headers:
        return _no_headers
    return _encode_headers(headers)


cdef inline int _number(object given, int64_t *out) except -1:
    """Read a 64-bit integer; answers whether it fits."""
    cdef int overflow = 0
    out[0] = PyLong_AsLongLongAndOverflow(given, &overflow)
    return not overflow


# ---- sizes ---------------------------------------------------------------------------------------

cdef inline int64_t _filled(int64_t size) noexcept nogil:
    return size if size > 0 else 0


cdef inline int64_t _sized(int64_t size) noexcept nogil:
    """Bytes of a length and what follows it."""
    return varint_size(<int32_t>size) + _filled(size)


cdef inline int64_t _fields_bytes(const Piece *key, const Piece *value,
                                  _Headers headers) noexcept:
    """Key, value and headers of a magic 2 record."""
    return (_sized(key.size) + _sized(value.size) + varint_size(<int32_t>headers.count)
            + headers.size)


cdef inline int64_t _body_bytes(int64_t fields, int64_t timestamp_delta,
                                int32_t offset_delta) noexcept:
    """A magic 2 record without its length: attributes and deltas are in front of its fields."""
    return 1 + varlong_size(timestamp_delta) + varint_size(offset_delta) + fields


cdef inline int64_t _record_bytes(int64_t body) noexcept:
    """A magic 2 record with its length; lengths beyond 32 bits are counted as they would be."""
    return uvarint_size(<uint64_t>body << 1) + body


cdef inline int64_t _message_bytes(int magic, const Piece *key, const Piece *value) noexcept:
    """A message of magic 0 or 1 without its 12 bytes of offset and size."""
    return (22 if magic else 14) + _filled(key.size) + _filled(value.size)


def record_bytes(int magic, key, value, headers=(), *, int64_t timestamp_delta=0,
                 int32_t offset_delta=0):
    """Size of one record as it is written: for magic 0 and 1 a message with its offset and size,
    headers ignored.

    Source: Kafka DefaultRecord.sizeInBytes, LegacyRecord.recordSize.
    """
    cdef int64_t size = fields_bytes(magic, key, value, headers)
    if magic < 2:
        return size
    return _record_bytes(1 + varlong_size(timestamp_delta) + varint_size(offset_delta) + size)


cpdef int64_t fields_bytes(int magic, object key, object value, object headers) except -1:
    """Size of what a caller gives of a record: key, value and headers with their lengths; for magic
    0 and 1 the whole message with its offset and size.
    """
    cdef Piece k, v
    cdef _Headers encoded
    k.held = v.held = False
    encoded = _headers_of(headers)
    if encoded.refused:
        raise ValueError("headers have names and fit into 2147483647 bytes")
    try:
        _borrow(key, &k)
        _borrow(value, &v)
        if magic < 2:
            return LOG_OVERHEAD + _message_bytes(magic, &k, &v)
        return _fields_bytes(&k, &v, encoded)
    finally:
        _give_back(&k)
        _give_back(&v)


# ---- the batch -----------------------------------------------------------------------------------

cdef class BatchBuffer:
    """The records of one batch that is being built, and their checks. `kseg.format.builder` makes
    it a builder; by itself it knows no codec, no producer and no words for its refusals.

    One thread at a time may use it; each call holds the GIL while it changes anything.
    """

    cdef bytearray _data
    cdef uint8_t *_bytes
    cdef int64_t _capacity
    cdef int64_t _used
    cdef int64_t _head_bytes
    cdef int64_t _limit
    cdef float _ratio
    cdef int _magic
    cdef int _attributes
    cdef bint _compressed
    cdef bint _relative
    cdef bint _control
    cdef bint _open
    cdef bint _has_offset
    cdef bint _has_base
    cdef int64_t _log_append_time
    cdef int64_t _base_offset
    cdef int64_t _last_offset
    cdef int64_t _record_offset
    cdef int64_t _base
    cdef int64_t _max_timestamp
    cdef int64_t _max_timestamp_offset
    cdef int64_t _count

    def __cinit__(self):
        # A builder that was never told anything is closed: nothing reads what is not there.
        self._open = False
        self._bytes = NULL
        self._capacity = self._used = self._head_bytes = self._count = 0
        self._max_timestamp = self._max_timestamp_offset = -1

    def __init__(self, *, int magic, int attributes, bint control, int64_t log_append_time,
                 int64_t base_offset, int64_t delete_horizon_ms, int64_t limit, float ratio):
        """Begin.

        Args:
            magic: 0, 1 or 2.
            attributes: as the batch or its messages carry them; codec and timestamp type are used.
            control: the records are markers.
            log_append_time: what all records report, if the attributes say so; in ms.
            base_offset: of the batch.
            delete_horizon_ms: what timestamps are relative to; -1 for the first one.
            limit: the batch is full from here on, in bytes.
            ratio: compressed by uncompressed size to expect.
        """
        if magic not in (0, 1, 2):
            raise ValueError(f"magic is 0, 1 or 2, not {magic}")
        self._magic = magic
        self._attributes = attributes
        self._compressed = attributes & 7 != 0
        self._relative = magic == 1 and self._compressed
        self._control = control
        self._log_append_time = log_append_time
        self._base_offset = base_offset
        self._base = delete_horizon_ms
        self._has_base = magic == 2 and delete_horizon_ms >= 0
        self._head_bytes = HEADER_BYTES if magic == 2 else 0
        if magic < 2 and self._compressed:
            self._head_bytes = LOG_OVERHEAD + (22 if magic else 14)
        self._limit, self._ratio = limit, ratio
        self._start_empty()

    cdef int _start_empty(self) except -1:
        cdef int64_t first = min(max(self._limit, 0), FIRST_BYTES_MAX) + FIRST_BYTES
        self._data = PyByteArray_FromStringAndSize(NULL, first)
        self._bytes = <uint8_t *>PyByteArray_AS_STRING(self._data)
        self._capacity = first
        self._used = self._head_bytes
        self._count = 0
        self._has_offset = False
        self._max_timestamp = self._max_timestamp_offset = -1
        self._open = True
        return 0

    # -- records

    def append(self, key=None, value=None, *, timestamp=-1, headers=(), offset=None,
               timestamp_ms=None):
        """Add a record.

        A record that is refused leaves the builder as it was: the next one can be appended.

        Args:
            key: bytes, text (as UTF-8), or None for null.
            value: bytes, text (as UTF-8), or None for null.
            timestamp: of the record, as `kseg.time_ms` takes it; -1 for none. Without meaning for
                magic 0.
            headers: pairs of a name (text or bytes) and a value (likewise, or None); magic 2 only.
            offset: of the record; the one behind the last record if None.
            timestamp_ms: the former name of `timestamp`.

        Returns:
            The record's offset.

        Raises:
            InvalidRecordError: the record cannot be written; the text names the limit.
            BuilderStateError: the builder takes no more records.

        Source: Kafka MemoryRecordsBuilder.appendWithOffset.
        """
        if timestamp_ms is not None:
            timestamp = timestamp_ms
        if type(timestamp) is not int:
            timestamp = self._time_ms(timestamp)
        return self._append(False, key, value, timestamp, headers, offset)

    def _time_ms(self, given):
        """A time that is no int in ms; overridden by those who know others."""
        raise TypeError(f"a time in ms is an integer, not {given!r}")

    def _append_control(self, bytes key, bytes value, timestamp_ms):
        """Add a marker, at the next offset."""
        return self._append(True, key, value, timestamp_ms, (), None)

    cdef object _append(self, bint control, object key, object value, object timestamp_ms,
                        object headers, object offset):
        cdef Piece k, v
        cdef _Headers encoded
        cdef int64_t timestamp = -1, place = 0
        cdef int status = PLACED
        k.held = v.held = False
        # All that may run code of the caller's comes first; nothing of this object is known before.
        encoded = _headers_of(headers)
        if not _number(timestamp_ms, &timestamp):
            status = REFUSED_NUMBER
        if offset is not None and not _number(offset, &place):
            status = REFUSED_NUMBER
        try:
            _borrow(key, &k)
            _borrow(value, &v)
            if offset is None and status == PLACED:
                status = self._next_offset(&place)
            if status == PLACED:
                status = self._check(control, timestamp, place, encoded)
            if status == PLACED:
                status = self._place(timestamp, place, &k, &v, encoded)
        finally:
            _give_back(&k)
            _give_back(&v)
        if status != PLACED:
            return self._refuse(status, timestamp_ms if status == REFUSED_TIMESTAMP else place)
        return place

    def _refuse(self, int status, number):
        """Say why a record is not taken; overridden by those who have words for it."""
        raise ValueError(f"record refused: status {status}, {number}")

    cdef inline int _next_offset(self, int64_t *place) noexcept:
        place[0] = self._base_offset
        if self._has_offset:
            if self._last_offset == INT64_MAX:
                return REFUSED_NUMBER
            place[0] = self._last_offset + 1
        return PLACED

    cdef inline int _check(self, bint control, int64_t timestamp, int64_t offset,
                           _Headers headers) noexcept:
        """What can be told before sizes are known, in Kafka's order."""
        if not self._open:
            return REFUSED_CLOSED
        if control != self._control:
            return REFUSED_CONTROL if control else REFUSED_DATA
        if self._has_offset and offset <= self._last_offset:
            return REFUSED_OFFSET
        if timestamp < -1:
            return REFUSED_TIMESTAMP
        if headers.refused:
            return headers.refused
        if self._magic < 2 and headers.count:
            return REFUSED_HEADERS
        # The difference is taken without a sign: what lies below the base is far above it.
        if <uint64_t>sub64(offset, self._base_offset) > <uint64_t>INT32_MAX:
            return REFUSED_DELTA
        if self._count == INT32_MAX:
            return REFUSED_COUNT
        return PLACED

    cdef inline int _place(self, int64_t timestamp, int64_t offset, const Piece *key,
                           const Piece *value, _Headers headers) except -1:
        """Write a record that passed the checks, unless it is too large."""
        cdef int64_t size, total, base = timestamp
        if key.size > INT32_MAX or value.size > INT32_MAX:
            return REFUSED_RECORD_BYTES
        if self._magic == 2:
            if self._has_base:
                base = self._base
            size = _body_bytes(_fields_bytes(key, value, headers), sub64(timestamp, base),
                               <int32_t>(offset - self._base_offset))
        else:
            if self._attributes & ATTRIBUTE_LOG_APPEND:
                timestamp = self._log_append_time
            size = _message_bytes(self._magic, key, value)
        if size > INT32_MAX:
            return REFUSED_RECORD_BYTES
        total = _record_bytes(size) if self._magic == 2 else LOG_OVERHEAD + size
        if total > INT32_MAX - self._used:
            return REFUSED_BATCH_BYTES
        if total > self._capacity - self._used:
            self._grow(total)
        if self._magic == 2:
            self._put_record(size, sub64(timestamp, base),
                             <int32_t>(offset - self._base_offset), key, value, headers)
            if not self._has_base:
                self._base, self._has_base = base, True
        else:
            self._put_message(size, timestamp, offset, key, value)
        self._note(timestamp, offset)
        return PLACED

    cdef int _grow(self, int64_t wanted) except -1:
        _room(self._data, self._used, wanted)
        self._bytes = <uint8_t *>PyByteArray_AS_STRING(self._data)
        self._capacity = len(self._data)
        return 0

    cdef inline void _put_record(self, int64_t size, int64_t timestamp_delta, int32_t offset_delta,
                                 const Piece *key, const Piece *value, _Headers headers) noexcept:
        cdef uint8_t *p = put_varint(self._bytes + self._used, <int32_t>size)
        p[0] = 0
        p = put_varint(put_varlong(p + 1, timestamp_delta), offset_delta)
        p = put_varint(p, <int32_t>key.size)
        if key.size > 0:
            p = put_bytes(p, key.data, key.size)
        p = put_varint(p, <int32_t>value.size)
        if value.size > 0:
            p = put_bytes(p, value.data, value.size)
        p = put_varint(p, <int32_t>headers.count)
        if headers.size > 0:
            p = put_bytes(p, <const uint8_t *>PyByteArray_AS_STRING(headers.data), headers.size)
        self._used = p - self._bytes

    cdef inline void _put_message(self, int64_t size, int64_t timestamp, int64_t offset,
                                  const Piece *key, const Piece *value) noexcept:
        cdef uint8_t *start = self._bytes + self._used
        cdef uint8_t *p
        put_u64(start, <uint64_t>(offset - self._base_offset if self._relative else offset))
        put_u32(start + 8, <uint32_t>size)
        # An inner message has no codec, and the timestamp type of its wrapper.
        p = _put_message_head(start, self._magic, self._attributes & ~7, timestamp)
        p = put_u32(p, <uint32_t>key.size)
        if key.size > 0:
            p = put_bytes(p, key.data, key.size)
        p = put_u32(p, <uint32_t>value.size)
        if value.size > 0:
            put_bytes(p, value.data, value.size)
        put_u32(start + LOG_OVERHEAD, crc32_of(start + 16, size - 4))
        self._used += LOG_OVERHEAD + size

    cdef inline void _note(self, int64_t timestamp, int64_t offset) noexcept:
        self._count += 1
        self._last_offset = self._record_offset = offset
        self._has_offset = True
        if self._magic and timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    # -- room

    cdef inline int64_t _estimate(self) noexcept:
        cdef int64_t written = self._used - self._head_bytes
        cdef float compressed
        if not self._compressed:
            return self._used
        # In single precision and in this order, as Kafka has it; Java's cast stops at 2^31 - 1.
        compressed = <float><int32_t>written * self._ratio * <float>1.05
        return self._head_bytes + (<int64_t>compressed if compressed < <float>INT32_MAX
                                   else INT32_MAX)

    cdef inline bint _is_full(self) noexcept:
        return not self._open or (self._count > 0 and self._limit <= self._estimate())

    def has_room_for(self, key=None, value=None, headers=(), timestamp=-1, *, timestamp_ms=None):
        """Whether a record fits below the limit, as far as that can be told before compressing.

        The first record always fits. Headers are not counted for magic 0 and 1.

        Source: Kafka MemoryRecordsBuilder.hasRoomFor.
        """
        cdef int64_t time = 0, size, delta
        if timestamp_ms is not None:
            timestamp = timestamp_ms
        if type(timestamp) is not int:
            timestamp = self._time_ms(timestamp)
        if self._is_full():
            return False
        if self._count == 0:
            return True
        if not _number(timestamp, &time):
            return False
        size = fields_bytes(self._magic, key, value, headers if self._magic == 2 else ())
        if self._magic == 2:
            # The delta is cut to 32 bits, as in Java; a record so far off is refused anyway.
            delta = self._last_offset - self._base_offset + 1
            size = _record_bytes(_body_bytes(size, sub64(time, self._base),
                                             <int32_t><uint32_t>delta))
        return self._limit >= self._estimate() + size

    @property
    def is_full(self):
        """Whether no more records should come: the limit is reached, or the builder is closed."""
        return self._is_full()

    @property
    def is_open(self):
        """Whether records are still taken."""
        return self._open

    @property
    def record_count(self):
        """How many records there are."""
        return self._count

    @property
    def uncompressed_bytes(self):
        """Size of the records so far, with the 12 bytes of offset and size of each message for
        magic 0 and 1, without the header of the batch or wrapper.
        """
        return self._used - self._head_bytes

    @property
    def base_offset(self):
        """What the offsets of the batch are relative to."""
        return self._base_offset

    @property
    def last_offset(self):
        """Offset of the last record, or what was said instead; one below the batch's where there is
        none yet.
        """
        return self._last_offset if self._has_offset else sub64(self._base_offset, 1)

    @property
    def _last_record_offset(self):
        """Offset of the last record, of the batch where there is none yet."""
        return self._record_offset if self._count else self._base_offset

    @property
    def max_timestamp(self):
        """The largest timestamp of a record, in ms; -1 where there is none."""
        return self._max_timestamp

    @property
    def max_timestamp_offset(self):
        """Offset of the first record with the largest timestamp; -1 where there is none."""
        return self._max_timestamp_offset

    @property
    def _base_timestamp(self):
        """What the batch's timestamps are relative to: the delete horizon, or the first one."""
        return self._base

    @property
    def _estimated(self):
        """How many bytes the batch will have, as far as can be told now."""
        return self._estimate()

    # -- the end

    def _override(self, int64_t last_offset):
        """Let the batch end at another offset than its last record's."""
        self._last_offset, self._has_offset = last_offset, True

    def _close(self):
        """Take no more records."""
        self._open = False

    def _records(self):
        """The records, to be compressed; a view that keeps its memory alive."""
        return memoryview(self._data)[self._head_bytes:self._used].toreadonly()

    def _drop(self, bint forget):
        """Give the records' memory back: they are kept elsewhere, or nowhere if to `forget`."""
        self._open = False
        self._data = None
        self._bytes = NULL
        self._capacity = 0
        if forget:
            self._used, self._count, self._has_offset = self._head_bytes, 0, False


cdef inline uint8_t *_put_message_head(uint8_t *start, int magic, int attributes,
                                       int64_t timestamp) noexcept:
    """Magic, attributes and timestamp of the entry at `start`; answers the place of the key."""
    start[16] = <uint8_t>magic
    start[17] = <uint8_t>attributes
    if magic == 0:
        return start + 18
    return put_u64(start + 18, <uint64_t>timestamp)
