"""The C layer that kernels share: layouts as enums, status codes, loads and varints, inlined into
each user.

Header of a magic 2 batch (position, width): base offset 0 8, length 8 4, leader epoch 12 4, magic
16 1, CRC 17 4, attributes 21 2, last offset delta 23 4, base timestamp 27 8, max timestamp 35 8,
producer id 43 8, producer epoch 51 2, base sequence 53 4, record count 57 4, records 61. Magic 0
and 1: CRC 12 4, magic 16 1, attributes 17 1, magic 1 only: timestamp 18 8; then key and value, each
behind an int32 length. Source: spec of the record formats, Kafka DefaultRecordBatch and
LegacyRecord.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "stdint.h" nogil:
    int64_t INT64_MIN
    int64_t INT64_MAX

cdef extern from "bytes.h" nogil:
    int16_t load_i16 "kseg_i16"(const uint8_t *p) noexcept
    int32_t load_i32 "kseg_i32"(const uint8_t *p) noexcept
    uint32_t load_u32 "kseg_u32"(const uint8_t *p) noexcept
    int64_t load_i64 "kseg_i64"(const uint8_t *p) noexcept
    int64_t add64 "kseg_add64"(int64_t a, int64_t b) noexcept
    int64_t sub64 "kseg_sub64"(int64_t a, int64_t b) noexcept
    const uint8_t *read_varint "kseg_varint"(const uint8_t *p, const uint8_t *end,
                                             int32_t *out) noexcept
    const uint8_t *read_varlong "kseg_varlong"(const uint8_t *p, const uint8_t *end,
                                               int64_t *out) noexcept
    void copy_bytes "kseg_copy"(uint8_t *to, const uint8_t *source, size_t size,
                                size_t readable) noexcept
    bint all_zero "kseg_all_zero"(const uint8_t *p, size_t size) noexcept

cdef enum:
    LOG_OVERHEAD = 12
    HEADER_TO_MAGIC = 17
    MESSAGE_SIZE_MIN = 14
    HEADER_BYTES = 61
    CRC_COVERS_FROM = 21

    ATTRIBUTE_CODEC = 0x07
    ATTRIBUTE_LOG_APPEND = 0x08
    ATTRIBUTE_TRANSACTIONAL = 0x10
    ATTRIBUTE_CONTROL = 0x20

# One row of a batch table; the order is that of kseg.format.header.FIELDS.
cdef enum:
    POSITION
    SIZE
    MAGIC
    BASE_OFFSET
    LAST_OFFSET
    LEADER_EPOCH
    CRC
    ATTRIBUTES
    BASE_TIMESTAMP
    MAX_TIMESTAMP
    PRODUCER_ID
    PRODUCER_EPOCH
    BASE_SEQUENCE
    RECORD_COUNT
    CRC_OK
    CONTROL_TYPE
    COORDINATOR_EPOCH
    ROW_FIELDS

# What a walk answers besides rows; the order is that of kseg.format.header.WALK_FIELDS.
cdef enum:
    WALK_COUNT
    WALK_END
    WALK_STOP
    WALK_NEEDED
    WALK_ATTRIBUTES
    WALK_MAGICS
    WALK_BAD_CRC
    WALK_FIELDS

# kseg.constants.StopReason.
cdef enum:
    STOP_END
    STOP_LIMIT
    STOP_TORN_TAIL
    STOP_ZERO_TAIL
    STOP_BAD_LENGTH
    STOP_BAD_MAGIC
    STOP_BAD_CRC

# Where the records of one batch lie; the order is that of kseg.format.bodies.FIELDS.
cdef enum:
    BODY_SOURCE
    BODY_START
    BODY_END
    BODY_BASE_OFFSET
    BODY_BASE_TIMESTAMP
    BODY_MAX_TIMESTAMP
    BODY_LOG_APPEND
    BODY_COUNT
    BODY_EAGER
    BODY_MAGIC
    BODY_CRC
    BODY_FIELDS

# State of a locate that may stop in the middle of a batch; the order is that of
# kseg.format.bodies.STATE_FIELDS.
cdef enum:
    STATE_BODY
    STATE_RECORD
    STATE_POSITION
    STATE_CHECKED
    STATE_SHIFT
    STATE_ROWS
    STATE_STATUS
    STATE_KEY_BYTES
    STATE_KEY_NULLS
    STATE_VALUE_BYTES
    STATE_VALUE_NULLS
    STATE_HEADERS
    STATE_HEADER_KEY_BYTES
    STATE_HEADER_VALUE_BYTES
    STATE_HEADER_VALUE_NULLS
    STATE_FIELDS

# Columns of the spans that locate writes, one row a record, positions relative to the body's start.
cdef enum:
    SPAN_KEY
    SPAN_KEY_SIZE
    SPAN_VALUE
    SPAN_VALUE_SIZE
    SPAN_HEADERS
    SPAN_HEADER_COUNT
    SPAN_FIELDS

# Why a record was refused; the messages stand in kseg.format.bodies.
cdef enum:
    RECORD_OK
    RECORD_COUNT_NEGATIVE
    RECORD_COUNT_TOO_HIGH
    RECORD_LEFTOVER
    RECORD_LENGTH
    RECORD_VARINT
    RECORD_KEY
    RECORD_VALUE
    RECORD_HEADER_COUNT
    RECORD_HEADER_KEY
    RECORD_HEADER_VALUE
    RECORD_SLACK
    MESSAGE_SIZE
    MESSAGE_CRC
    MESSAGE_EMPTY_SET
    MESSAGE_OFFSET
    MESSAGE_NESTED
    MESSAGE_MAGIC
    BATCH_CRC

cdef inline const uint8_t *pointer_to(const uint8_t[::1] data) noexcept nogil:
    # An empty view has no first byte to point at; nothing is read through the result then.
    return &data[0] if data.shape[0] else NULL


# The bytes that bodies lie in, and the bodies, lent for the time of one call.
cdef struct Lent:
    const uint8_t *view
    int64_t view_size
    const uint8_t *arena
    int64_t arena_size
    const int64_t *bodies
    int64_t body_count


cdef inline Lent lend(const uint8_t[::1] view, const uint8_t[::1] arena,
                      const int64_t[:, ::1] bodies) noexcept nogil:
    """The two sources and the bodies in them, for the time of one call."""
    cdef Lent lent
    lent.view, lent.view_size = pointer_to(view), view.shape[0]
    lent.arena, lent.arena_size = pointer_to(arena), arena.shape[0]
    lent.bodies = &bodies[0, 0] if bodies.shape[0] else NULL
    lent.body_count = bodies.shape[0]
    return lent


cdef inline const uint8_t *body_bytes(const Lent *lent, int64_t index,
                                      int64_t *size) noexcept nogil:
    """Where a body's bytes start, and how many they are; NULL where they lie outside their source.

    An empty body of an empty source has no address, so any that is not NULL will do.
    """
    cdef const int64_t *body = lent.bodies + index * BODY_FIELDS
    cdef int64_t source_size = lent.arena_size if body[BODY_SOURCE] else lent.view_size
    if not 0 <= body[BODY_START] <= body[BODY_END] <= source_size:
        return NULL
    size[0] = body[BODY_END] - body[BODY_START]
    if size[0] == 0:
        return <const uint8_t *>body
    return (lent.arena if body[BODY_SOURCE] else lent.view) + body[BODY_START]


# How strict a walk is: by the format's own rules, or what Kafka's file reader accepts.
cdef enum:
    POLICY_STRICT
    POLICY_FILE


cdef inline int frame_at(const uint8_t *p, int64_t left, int64_t visible, int policy,
                         int64_t *size) noexcept nogil:
    """Whether a whole batch starts at `p`: STOP_END for yes, else why the walk ends there.

    `left` bytes remain in the file, `visible` of them can be read. `size` becomes the bytes that
    the batch announces.
    """
    cdef int64_t body
    cdef bint file = policy == POLICY_FILE
    if visible < min(left, HEADER_TO_MAGIC):
        size[0] = min(left, HEADER_TO_MAGIC)
        return STOP_LIMIT
    if left < LOG_OVERHEAD or (file and left <= HEADER_TO_MAGIC):
        return STOP_ZERO_TAIL if all_zero(p, left) and not file else STOP_TORN_TAIL
    body = load_i32(p + 8)
    if body < MESSAGE_SIZE_MIN:
        return STOP_ZERO_TAIL if all_zero(p, visible) and not file else STOP_BAD_LENGTH
    size[0] = body + LOG_OVERHEAD
    if left < HEADER_TO_MAGIC:
        return STOP_TORN_TAIL
    if not file and p[16] > 2:
        return STOP_BAD_MAGIC
    if size[0] > left:
        return STOP_TORN_TAIL
    return STOP_LIMIT if size[0] > visible else STOP_END


# What both walks ask of their arguments, and what both answer.
cdef inline int check_walk(int64_t data_bytes, int64_t base, int64_t start, int64_t file_end,
                           int64_t[:, ::1] rows, int64_t[::1] walk) except -1:
    if rows.shape[1] != ROW_FIELDS or walk.shape[0] != WALK_FIELDS:
        raise ValueError("rows or walk has the wrong width")
    if not 0 <= base <= start or start > base + data_bytes or file_end < base + data_bytes:
        raise ValueError("start, base and file_end do not fit the data")
    return 0


cdef inline void write_walk(int64_t *walk, int64_t count, int64_t end, int stop, int64_t needed,
                            int64_t attributes, int64_t magics, int64_t bad) noexcept nogil:
    walk[WALK_COUNT] = count
    walk[WALK_END] = end
    walk[WALK_STOP] = stop
    walk[WALK_NEEDED] = needed
    walk[WALK_ATTRIBUTES] = attributes
    walk[WALK_MAGICS] = magics
    walk[WALK_BAD_CRC] = bad


# A binary column that is filled while its records are located: bytes behind what `offsets` says.
cdef struct Column:
    int32_t *offsets
    uint8_t *data
    uint8_t *validity


# Where located records go, and which of them: NULL where a column is not wanted.
cdef struct Sink:
    Column key
    Column value
    int64_t *offsets
    int64_t *timestamps
    int32_t *spans
    uint8_t *valid
    int64_t rows_max
    int64_t bytes_max
    int64_t offset_min
    int64_t offset_max
    int64_t timestamp_min
    int64_t timestamp_max
    bint filtered
    bint check_crc


cdef inline Sink sink_of(const int64_t[::1] within, int64_t rows_max, int64_t bytes_max,
                         int64_t[::1] offsets, int64_t[::1] timestamps,
                         int32_t[:, ::1] spans) noexcept:
    cdef Sink out
    out.key.offsets, out.key.data, out.key.validity = NULL, NULL, NULL
    out.value = out.key
    out.offsets = &offsets[0] if offsets.shape[0] else NULL
    out.timestamps = &timestamps[0] if timestamps.shape[0] else NULL
    out.spans = &spans[0, 0] if spans.shape[0] else NULL
    out.valid = NULL
    out.rows_max, out.bytes_max = rows_max, bytes_max
    out.offset_min, out.offset_max = within[0], within[1]
    out.timestamp_min, out.timestamp_max = within[2], within[3]
    out.filtered = not (within[0] == INT64_MIN and within[1] == INT64_MAX
                        and within[2] == INT64_MIN and within[3] == INT64_MAX)
    out.check_crc = False
    return out


cdef inline int check_request(const int64_t[:, ::1] bodies, const int64_t[::1] within,
                              int64_t rows_max, int64_t[::1] offsets, int64_t[::1] timestamps,
                              int32_t[:, ::1] spans, int64_t[::1] first_row,
                              int64_t[::1] state) except -1:
    """Refuse arguments of a locating kernel that do not fit each other."""
    if bodies.shape[1] != BODY_FIELDS or spans.shape[1] != SPAN_FIELDS or within.shape[0] != 4:
        raise ValueError("bodies, spans or within has the wrong width")
    if state.shape[0] != STATE_FIELDS or first_row.shape[0] != bodies.shape[0] + 1:
        raise ValueError("state or first_row has the wrong length")
    if not 0 <= state[STATE_BODY] <= bodies.shape[0] or rows_max < 0:
        raise ValueError("state or rows_max out of range")
    for wanted in (offsets.shape[0], timestamps.shape[0], spans.shape[0]):
        if wanted and wanted < rows_max:
            raise ValueError("an output is shorter than rows_max")
    return 0


cdef uint32_t crc32_of(const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc32c_of(const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc32c_on(uint32_t value, const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc_on(bint castagnoli, uint32_t value,
                     const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc_shifted(bint castagnoli, uint32_t value, uint32_t size) noexcept nogil
