"""The C layer that kernels share: layouts as enums, status codes, loads and varints, inlined into
each user.

Header of a magic 2 batch (position, width): base offset 0 8, length 8 4, leader epoch 12 4, magic
16 1, CRC 17 4, attributes 21 2, last offset delta 23 4, base timestamp 27 8, max timestamp 35 8,
producer id 43 8, producer epoch 51 2, base sequence 53 4, record count 57 4, records 61. Magic 0
and 1: CRC 12 4, magic 16 1, attributes 17 1, magic 1 only: timestamp 18 8; then key and value, each
after an int32 length. Source: spec of the record formats, Kafka DefaultRecordBatch and
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

cdef extern from "utf8.h" nogil:
    Py_ssize_t take_utf8 "kseg_take_utf8"(const uint8_t *data, Py_ssize_t count,
                                          uint32_t *point) noexcept
    bint is_utf8 "kseg_is_utf8"(const uint8_t *data, Py_ssize_t count) noexcept

cdef enum:
    LOG_OVERHEAD = 12
    HEADER_TO_MAGIC = 17
    MESSAGE_SIZE_MIN = 14
    HEADER_BYTES = 61
    CRC_AT = 17
    CRC_COVERS_FROM = 21

    ATTRIBUTE_CODEC = 0x07
    ATTRIBUTE_LOG_APPEND = 0x08
    ATTRIBUTE_TRANSACTIONAL = 0x10
    ATTRIBUTE_CONTROL = 0x20
    ATTRIBUTE_HORIZON = 0x40

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

# Results of a walk besides rows, in the order of kseg.format.header.WALK_FIELDS.
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

# Why a record was refused, as csrc/records.h has it; the messages are in kseg.format.bodies.
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


# What a walk does with checksums: leave them alone, or stop at a wrong one.
cdef enum:
    VERIFY_NONE
    VERIFY_STOP

# An entry of an offset index.
cdef enum:
    INDEX_ENTRY_BYTES = 8
    INDEX_POSITION_AT = 4

# How strict a walk is: by the format's own rules, or by those of Kafka's file reader.
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


# Checks and results that both walks share.
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


cdef uint32_t crc32_of(const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc32c_of(const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc32c_on(uint32_t value, const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc_on(bint castagnoli, uint32_t value,
                     const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc_shifted(bint castagnoli, uint32_t value, uint32_t size) noexcept nogil
