"""Kernels for the checks of an append: a usual batch as a whole, each record's structure, key
and time in one pass, and the offsets that old messages get.

The contract is that of `_core`; status codes too. What is refused record by record is noted in an
array of the caller's and counted beyond it, so that a sound append costs one call and a refused one
two. Source: Kafka LogValidator.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kseg._core cimport *

cdef extern from "records.h" nogil:
    ctypedef struct Located "kseg_record":
        int64_t timestamp_delta
        int32_t offset_delta
        int32_t key_size
        const uint8_t *headers
        int32_t header_count

    int _parse "kseg_parse_record"(const uint8_t *p, const uint8_t *end, Located *r) noexcept
    const uint8_t *_plain_record "kseg_plain_record"(const uint8_t *p, const uint8_t *end,
                                                     Located *r) noexcept

cdef extern from "encode.h" nogil:
    uint32_t varint_size "kseg_varint_size"(int32_t value) noexcept
    uint8_t *put_u16 "kseg_put_u16"(uint8_t *p, uint16_t value) noexcept
    uint8_t *put_u32 "kseg_put_u32"(uint8_t *p, uint32_t value) noexcept
    uint8_t *put_u64 "kseg_put_u64"(uint8_t *p, uint64_t value) noexcept

cdef enum:
    CLIENT = 2  # kseg.log.validate.rules.AppendOrigin
    HEAD_BYTES = 21  # the bytes that a batch's checksum does not cover, with the checksum itself
    KNOWN_ATTRIBUTES = 0x77  # codec, transactional, control, delete horizon

# Why a record is refused by itself; the order is that of kseg.log.validate.batches.REASONS.
cdef enum:
    FAULT_MAGIC
    FAULT_NO_KEY
    FAULT_TIMESTAMP
    FAULT_TIMESTAMP_TYPE
    FAULT_REASONS

# One row of the faults noted; the order is that of kseg.log.validate.batches.NOTED_FIELDS.
cdef enum:
    NOTED_RECORD
    NOTED_REASON
    NOTED_OFFSET
    NOTED_TIMESTAMP
    NOTED_FIELDS


# The checks of each record.
cdef struct Rules:
    bint compacted
    bint create_time
    int64_t now
    int64_t before_max
    int64_t after_max


# The results of a pass over records.
cdef struct Seen:
    int status
    int64_t records
    int64_t max_timestamp
    int64_t max_record
    int64_t bytes
    bint sequential
    int64_t counts[FAULT_REASONS]
    int64_t *faults
    int64_t noted
    int64_t noted_max


cdef inline Rules rules_of(bint compacted, bint create_time, int64_t now, int64_t before_max,
                           int64_t after_max) noexcept nogil:
    cdef Rules rules
    rules.compacted, rules.create_time = compacted, create_time
    rules.now, rules.before_max, rules.after_max = now, before_max, after_max
    return rules


cdef inline Seen nothing_seen() noexcept nogil:
    cdef Seen seen
    cdef int reason
    seen.status = RECORD_OK
    seen.records = seen.bytes = seen.noted = seen.noted_max = 0
    seen.max_timestamp, seen.max_record = NO_TIMESTAMP, -1
    seen.sequential = True
    for reason in range(FAULT_REASONS):
        seen.counts[reason] = 0
    seen.faults = NULL
    return seen


cdef int _note_into(Seen *seen, int64_t[:, ::1] faults) except -1:
    if faults.shape[1] != NOTED_FIELDS:
        raise ValueError("faults has the wrong width")
    seen.faults = &faults[0, 0] if faults.shape[0] else NULL
    seen.noted_max = faults.shape[0]
    return 0


cdef tuple _answer(const Seen *seen):
    return (seen.status, seen.records, seen.max_timestamp, seen.max_record, seen.bytes,
            bool(seen.sequential), seen.counts[FAULT_MAGIC], seen.counts[FAULT_NO_KEY],
            seen.counts[FAULT_TIMESTAMP], seen.counts[FAULT_TIMESTAMP_TYPE])


cdef inline int _fault(const Rules *rules, bint no_key, bint log_append,
                       int64_t timestamp) noexcept nogil:
    """Why a sound record may not be appended; FAULT_REASONS where it may.

    Differences of times wrap, as Java's do.
    """
    cdef int64_t age
    if rules.compacted and no_key:
        return FAULT_NO_KEY
    if rules.create_time and timestamp != NO_TIMESTAMP:
        age = sub64(rules.now, timestamp)
        if age > rules.before_max or sub64(0, age) > rules.after_max:
            return FAULT_TIMESTAMP
    elif log_append:
        return FAULT_TIMESTAMP_TYPE
    return FAULT_REASONS


cdef void _note(Seen *seen, int reason, int64_t record, int64_t offset,
                int64_t timestamp) noexcept nogil:
    cdef int64_t *row
    seen.counts[reason] += 1
    if seen.noted < seen.noted_max:
        row = seen.faults + seen.noted * NOTED_FIELDS
        row[NOTED_RECORD], row[NOTED_REASON] = record, reason
        row[NOTED_OFFSET], row[NOTED_TIMESTAMP] = offset, timestamp
        seen.noted += 1


# ---- records of magic 2 --------------------------------------------------------------------------

# The records of one batch, and their counts in its header.
cdef struct Body:
    const uint8_t *start
    const uint8_t *end
    int64_t count
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    bint log_append
    bint skip


cdef int _headers(const uint8_t **p, const uint8_t *end, int32_t count) noexcept nogil:
    """Step over so many headers."""
    cdef int32_t _i, size = 0
    for _i in range(count):
        p[0] = read_varint(p[0], end, &size)
        if p[0] == NULL or size < 0 or size > end - p[0]:
            return RECORD_HEADER_KEY
        p[0] = read_varint(p[0] + size, end, &size)
        if p[0] == NULL or size > end - p[0]:
            return RECORD_HEADER_VALUE
        if size > 0:
            p[0] += size
    return RECORD_OK


cdef const uint8_t *_full_record(const uint8_t *p, const uint8_t *end, Located *r, int64_t *size,
                                 int *status) noexcept nogil:
    """Any record, whose fields fill its length. Source: Kafka DefaultRecord.readFrom."""
    cdef int32_t length = 0
    cdef const uint8_t *stop
    cdef const uint8_t *headers
    p = read_varint(p, end, &length)
    if p == NULL:
        status[0] = RECORD_VARINT
        return NULL
    if length <= 0 or length > end - p:
        status[0] = RECORD_LENGTH
        return NULL
    stop = p + length
    size[0] = length + varint_size(length)
    status[0] = _parse(p, stop, r)
    if status[0] == RECORD_OK and r.header_count:
        headers = r.headers
        status[0] = _headers(&headers, stop, r.header_count)
        if status[0] == RECORD_OK and headers != stop:
            status[0] = RECORD_SLACK
    return stop


cdef const uint8_t *_skipped_record(const uint8_t *p, const uint8_t *end, Located *r,
                                    int64_t *size, int *status) noexcept nogil:
    """Any record, where its length is not held against its fields.

    Source: Kafka DefaultRecord.readPartiallyFrom.
    """
    cdef int32_t length = 0, value_size = 0
    status[0] = RECORD_VARINT
    p = read_varint(p, end, &length)
    if p == NULL or p == end:
        return NULL
    size[0] = length + varint_size(length)
    p = read_varlong(p + 1, end, &r.timestamp_delta)
    if p != NULL:
        p = read_varint(p, end, &r.offset_delta)
    if p != NULL:
        p = read_varint(p, end, &r.key_size)
    if p == NULL:
        return NULL
    if r.key_size > end - p:
        status[0] = RECORD_KEY
        return NULL
    p = read_varint(p + (r.key_size if r.key_size > 0 else 0), end, &value_size)
    if p == NULL:
        return NULL
    if value_size > end - p:
        status[0] = RECORD_VALUE
        return NULL
    p = read_varint(p + (value_size if value_size > 0 else 0), end, &r.header_count)
    if p == NULL:
        return NULL
    status[0] = RECORD_HEADER_COUNT if r.header_count < 0 else _headers(&p, end, r.header_count)
    return p


cdef const uint8_t *_careful(const uint8_t *p, const uint8_t *end, bint skip, bint last,
                             Located *r, int64_t *size, int *status) noexcept nogil:
    """One record of any shape; its end, or NULL and its fault."""
    cdef const uint8_t *stop
    if p == end:
        status[0] = RECORD_COUNT_TOO_HIGH
        return NULL
    if skip:
        stop = _skipped_record(p, end, r, size, status)
    else:
        stop = _full_record(p, end, r, size, status)
    if status[0] != RECORD_OK:
        return NULL
    if last and stop != end:
        status[0] = RECORD_LEFTOVER
        return NULL
    return stop


# A run of records of the plain shape that no rule refuses.
cdef struct Run:
    const uint8_t *p
    int64_t record
    int64_t latest
    int64_t misplaced
    int64_t surplus


cdef Run _plain_run(const uint8_t *p, const uint8_t *end, int64_t record, int64_t last,
                    const Body *body, const Rules *rules) noexcept nogil:
    """Records from `record` on and before `last`, up to the first that asks for a closer look.

    A loop that does nothing else, so that all it needs stays in registers. `misplaced` is not 0
    where an offset is not its record's index, `surplus` counts lengths a byte longer than needed.
    """
    cdef Run run
    cdef Located r
    cdef const uint8_t *stop
    cdef int64_t base_offset = body.base_offset, base_timestamp = body.base_timestamp
    cdef int64_t now = rules.now, before_max = rules.before_max, after_max = rules.after_max
    cdef int64_t latest = NO_TIMESTAMP, misplaced = 0, surplus = 0, timestamp, age
    cdef bint compacted = rules.compacted
    # Where no difference can be too large, none is taken.
    cdef bint timed = rules.create_time and (before_max != INT64_MAX or after_max != INT64_MAX)
    while record < last:
        stop = _plain_record(p, end, &r)
        if stop == NULL or (compacted and r.key_size < 0):
            break
        timestamp = add64(base_timestamp, r.timestamp_delta)
        if timed and timestamp != NO_TIMESTAMP:
            age = sub64(now, timestamp)
            if age > before_max or sub64(0, age) > after_max:
                break
        latest = max(latest, timestamp)
        misplaced |= add64(base_offset, r.offset_delta) ^ record
        surplus += (p[0] >> 7) & (p[1] == 0)
        p = stop
        record += 1
    run.p, run.record, run.latest = p, record, latest
    run.misplaced, run.surplus = misplaced, surplus
    return run


cdef void _examine(const Body *body, const Rules *rules, Seen *seen) noexcept nogil:
    """Check each record of a batch against the rules, up to the first that is not a record."""
    cdef Run run
    cdef Located r
    cdef const uint8_t *p = body.start
    cdef const uint8_t *stop
    cdef int64_t record = 0, last = body.count - 1, size = 0, offset, timestamp
    cdef int reason
    if body.count < 0:
        seen.status = RECORD_COUNT_NEGATIVE
        return
    while record <= last:
        if not body.log_append:
            run = _plain_run(p, body.end, record, last, body, rules)
            seen.bytes += run.p - p - run.surplus
            seen.sequential = seen.sequential and run.misplaced == 0
            seen.max_timestamp = max(seen.max_timestamp, run.latest)
            p, record = run.p, run.record
        stop = _careful(p, body.end, body.skip, record == last, &r, &size, &seen.status)
        if stop == NULL:
            break
        offset = add64(body.base_offset, r.offset_delta)
        timestamp = add64(body.base_timestamp, r.timestamp_delta)
        if body.log_append:
            timestamp = body.max_timestamp
        reason = _fault(rules, r.key_size < 0, body.log_append, timestamp)
        if reason != FAULT_REASONS:
            _note(seen, reason, record, offset, timestamp)
        seen.max_timestamp = max(seen.max_timestamp, timestamp)
        seen.sequential = seen.sequential and offset == record
        seen.bytes += size
        p = stop
        record += 1
    seen.records = record


def examine_records(const uint8_t[::1] data, *, int64_t count, int64_t base_offset,
                    int64_t base_timestamp, int64_t max_timestamp, bint log_append, bint skip,
                    bint compacted, bint create_time, int64_t now, int64_t before_max,
                    int64_t after_max, int64_t[:, ::1] faults):
    """Hold the records of one magic 2 batch against a log's rules.

    Args:
        data: the records, inflated; read only.
        count, base_offset, base_timestamp, max_timestamp, log_append: as its header has them.
        skip: parse as a broker parses what it leaves compressed: the length of a record is not held
            against its fields.
        compacted: every record needs a key.
        create_time: the log takes create times, `before_max` ms older than `now` and `after_max` ms
            newer at the most. Else only the log may say when a record was appended.
        faults: int64[n, NOTED_FIELDS], written as far as it goes: record, reason, offset,
            timestamp.

    Returns:
        (status, records, largest timestamp, its first record (of `examine_messages`; else -1),
        bytes, sequential, then how many records were refused for magic, key, timestamp and type of
        timestamp). `records` is also the index of the one that `status` is about; `bytes` counts
        them as Kafka does; `sequential` says whether offsets go 0, 1, 2.

    Source: Kafka LogValidator.validateRecord, DefaultRecordBatch.skipKeyValueIterator.
    """
    cdef Rules rules = rules_of(compacted, create_time, now, before_max, after_max)
    cdef Seen seen = nothing_seen()
    cdef Body body
    _note_into(&seen, faults)
    # An empty view has no address; nothing is read through one that is not NULL.
    body.start = pointer_to(data) if data.shape[0] else <const uint8_t *>&body
    body.end = body.start + data.shape[0]
    body.count, body.base_offset, body.base_timestamp = count, base_offset, base_timestamp
    body.max_timestamp, body.log_append, body.skip = max_timestamp, log_append, skip
    with nogil:
        _examine(&body, &rules, &seen)
    return _answer(&seen)


# ---- one batch of magic 2, all at once -----------------------------------------------------------

cdef bint _header_is_usual(const uint8_t *p, int64_t size, bint client) noexcept nogil:
    """Whether `size` bytes are one batch of records whose header gives no cause to refuse it."""
    cdef int32_t count, delta
    if size < HEADER_BYTES or load_i32(p + 8) != size - LOG_OVERHEAD or p[16] != 2:
        return False
    # In its log it would begin before the last batch's end, or end before it begins.
    delta, count = load_i32(p + 23), load_i32(p + 57)
    if count <= 0 or not 0 <= delta < count:
        return False
    if p[22] & ATTRIBUTE_CODEC > CODEC_MAX or p[22] & ATTRIBUTE_CODEC and p[22] & ATTRIBUTE_CONTROL:
        return False
    if not client:
        return True
    if load_i64(p) != 0 or p[22] & ATTRIBUTE_CONTROL or delta != count - 1:
        return False
    return load_i64(p + 43) < 0 or load_i32(p + 53) >= 0


cdef bint _form_is_kept(rules, int codec, int64_t size) except -1:
    """Whether a log of these rules stores a batch of that codec and size as it is."""
    wanted = rules.compression
    if rules.magic != 2 or not (wanted is None or <int>wanted == codec):
        return False
    if codec == CODEC_ZSTD and not rules.zstd_allowed:
        return False
    for limit in (rules.batch_bytes_max, rules.append_bytes_max):
        if limit is not None and size > <int64_t>limit:
            return False
    return True


cdef Py_ssize_t _new_head(const uint8_t *p, int64_t size, int64_t base_offset, int32_t leader_epoch,
                          bint log_append, int64_t max_timestamp, uint8_t *head) noexcept nogil:
    """The head of a sound batch in its log; the number of bytes that differ from the given ones.

    The rest is summed up already, so a change before it does not ask for it again.
    """
    cdef uint32_t crc = load_u32(p + 17)
    memcpy(head, p, HEAD_TIMED_BYTES)
    put_u64(head, <uint64_t>base_offset)
    put_u32(head + 12, <uint32_t>leader_epoch)
    if log_append == ((p[22] & ATTRIBUTE_LOG_APPEND) != 0) and load_i64(p + 35) == max_timestamp:
        return HEAD_BYTES
    put_u16(head + 21, <uint16_t>(p[22] & KNOWN_ATTRIBUTES
                                  | (ATTRIBUTE_LOG_APPEND if log_append else 0)))
    put_u64(head + 35, <uint64_t>max_timestamp)
    crc ^= crc_shifted(True, crc32c_of(p + 21, 22) ^ crc32c_of(head + 21, 22),
                       <uint32_t>(size - HEAD_TIMED_BYTES))
    put_u32(head + 17, crc)
    return HEAD_TIMED_BYTES


cdef bint _records_are_sound(const uint8_t *p, const uint8_t *records, int64_t size, bint inflated,
                             const Rules *asked, Seen *seen) noexcept nogil:
    """Whether no record of a batch is refused, and nothing about it is unusual."""
    cdef Body body
    cdef int reason
    body.start, body.end, body.count = records, records + size, load_i32(p + 57)
    body.base_offset, body.base_timestamp = load_i64(p), load_i64(p + 27)
    body.max_timestamp, body.skip = load_i64(p + 35), inflated
    body.log_append = (p[22] & ATTRIBUTE_LOG_APPEND) != 0
    _examine(&body, asked, seen)
    for reason in range(FAULT_REASONS):
        if seen.counts[reason]:
            return False
    return seen.status == RECORD_OK and (seen.sequential or not inflated)


cdef bint judge(data, const uint8_t *p, int64_t size, rules, int64_t next_offset, int64_t now,
                inflate, Sound *sound) except -1:
    """Whether a leader takes one batch as it is, and the head that it gets then.

    `p` and `size` are those of `data`; the others are as for `kseg._kernels.placement.Places.lead`.
    False where anything is refused or unusual: `kseg.log.validate.append` finds out which.

    Source: Kafka LogValidator.assignOffsetsNonCompressed, DefaultRecordBatch.setMaxTimestamp.
    """
    cdef bint create_time = rules.timestamp_type == 0, sound_records = False
    cdef Rules asked = rules_of(rules.compacted, create_time, now, rules.timestamp_before_max_ms,
                                rules.timestamp_after_max_ms)
    cdef Seen seen = nothing_seen()
    cdef Py_buffer body
    cdef int codec
    if next_offset > <int64_t>NEAR_OFFSET_MAX:
        return False
    if not _header_is_usual(p, size, rules.origin == CLIENT):
        return False
    codec = p[22] & ATTRIBUTE_CODEC
    if not _form_is_kept(rules, codec, size):
        return False
    with nogil:
        if crc32c_of(p + CRC_COVERS_FROM, size - CRC_COVERS_FROM) != load_u32(p + 17):
            seen.status = BATCH_CRC
        elif not codec:
            sound_records = _records_are_sound(p, p + HEADER_BYTES, size - HEADER_BYTES, False,
                                               &asked, &seen)
    if codec and seen.status == RECORD_OK:
        records = inflate(codec, data[HEADER_BYTES:], rules.inflated_bytes_max)
        if records is None:
            return False
        PyObject_GetBuffer(records, &body, PyBUF_SIMPLE)
        try:
            with nogil:
                sound_records = _records_are_sound(p, <const uint8_t *>body.buf, body.len, True,
                                                   &asked, &seen)
        finally:
            PyBuffer_Release(&body)
    if not sound_records:
        return False
    sound.records, sound.inflated = seen.records, seen.bytes + HEADER_BYTES if codec else 0
    sound.last_offset = next_offset + seen.records - 1
    sound.latest = seen.max_timestamp if create_time else now
    sound.appended = <int64_t>NO_TIMESTAMP if create_time else now
    # Kafka gives it for a compressed batch without any timestamp, too.
    sound.latest_offset = sound.last_offset if codec or sound.latest > NO_TIMESTAMP else -1
    sound.head_bytes = _new_head(p, size, sound.last_offset - load_i32(p + 23), rules.leader_epoch,
                                 not create_time, sound.latest, sound.head)
    return True


cdef tuple judged_of(const Sound *sound):
    """Head, records, last offset, largest timestamp, its offset, the log's time if that is stored
    or -1, and what a compressed batch took inflated."""
    return (PyBytes_FromStringAndSize(<const char *>sound.head, sound.head_bytes), sound.records,
            sound.last_offset, sound.latest, sound.latest_offset, sound.appended, sound.inflated)


# ---- messages of magic 0 and 1 -------------------------------------------------------------------

# A set of messages: the inside of a wrapper, or plain entries.
cdef struct Messages:
    const uint8_t *start
    const uint8_t *end
    bint inner
    int magic
    int64_t offset
    int64_t timestamp
    bint log_append


cdef inline int64_t _entry(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Bytes of the entry at `p`; 0 at the end of the set, -1 for an impossible size."""
    cdef int64_t size
    if end - p < LOG_OVERHEAD:
        return 0
    size = load_i32(p + 8)
    if size < MESSAGE_SIZE_MIN:
        return -1
    return size + LOG_OVERHEAD if size <= end - p - LOG_OVERHEAD else 0


cdef int _survey(const Messages *messages, int64_t *shift) noexcept nogil:
    """The shift of the offsets inside a wrapper, by all its messages.

    Source: Kafka AbstractLegacyRecordBatch.DeepRecordsIterator.
    """
    cdef const uint8_t *p = messages.start
    cdef const uint8_t *last = NULL
    cdef int64_t size = _entry(p, messages.end)
    while size > 0:
        last = p
        p += size
        size = _entry(p, messages.end)
    if size < 0:
        return MESSAGE_SIZE
    if last == NULL:
        return MESSAGE_EMPTY_SET
    if messages.magic == 1 and messages.offset != 0:
        if messages.offset < load_i64(last):
            return MESSAGE_OFFSET
        shift[0] = sub64(messages.offset, load_i64(last))
    return RECORD_OK


cdef int _key_and_value(const uint8_t *p, int64_t size, int32_t *key_size) noexcept nogil:
    """Whether the key and value of an entry lie inside it."""
    cdef int64_t at = 30 if p[16] else 22
    cdef int32_t length
    if size < at:
        return RECORD_KEY
    key_size[0] = load_i32(p + at - 4)
    if key_size[0] > size - at:
        return RECORD_KEY
    at += key_size[0] if key_size[0] > 0 else 0
    if size - at < 4:
        return RECORD_VALUE
    length = load_i32(p + at)
    return RECORD_VALUE if length > size - at - 4 else RECORD_OK


cdef int _sound_message(const Messages *messages, const uint8_t *p, int64_t size,
                        int32_t *key_size) noexcept nogil:
    """Whether an entry can be a message of its set; MESSAGE_MAGIC may be the record's own fault."""
    if messages.inner and p[17] & ATTRIBUTE_CODEC:
        return MESSAGE_NESTED
    if p[16] != messages.magic:
        return MESSAGE_MAGIC
    if messages.inner and crc32_of(p + 16, size - 16) != load_u32(p + 12):
        return MESSAGE_CRC
    return _key_and_value(p, size, key_size)


cdef void _examine_messages(const Messages *messages, const Rules *rules,
                            Seen *seen) noexcept nogil:
    cdef const uint8_t *p = messages.start
    cdef int64_t size, offset, timestamp, shift = 0
    cdef int32_t key_size = 0
    cdef bint log_append
    cdef int reason
    if messages.inner:
        seen.status = _survey(messages, &shift)
    while seen.status == RECORD_OK:
        size = _entry(p, messages.end)
        if size <= 0:
            break
        offset = add64(load_i64(p), shift)
        log_append = messages.log_append if messages.inner else p[17] & ATTRIBUTE_LOG_APPEND
        log_append = log_append and messages.magic == 1
        timestamp = messages.timestamp if messages.inner and log_append else load_i64(p + 18)
        timestamp = timestamp if messages.magic == 1 else NO_TIMESTAMP
        seen.status = _sound_message(messages, p, size, &key_size)
        if seen.status == MESSAGE_MAGIC and messages.inner:
            seen.status = RECORD_OK
            reason = FAULT_MAGIC
        else:
            reason = _fault(rules, key_size < 0, log_append, timestamp)
        if seen.status != RECORD_OK:
            break
        if reason != FAULT_REASONS:
            _note(seen, reason, seen.records, offset, timestamp)
            if not messages.inner:
                # A plain message is a batch of its own: those after it are not looked at.
                break
        if timestamp > seen.max_timestamp:
            seen.max_timestamp, seen.max_record = timestamp, seen.records
        seen.sequential = seen.sequential and offset == seen.records
        seen.bytes += size
        seen.records += 1
        p += size


def examine_messages(const uint8_t[::1] data, *, bint inner, int magic, int64_t offset,
                     int64_t timestamp, bint log_append, bint compacted, bint create_time,
                     int64_t now, int64_t before_max, int64_t after_max, int64_t[:, ::1] faults):
    """Hold messages of magic 0 and 1 against a log's rules.

    Args:
        data: the inflated set of a wrapper, or whole plain entries; read only.
        inner: which of the two. Messages in a wrapper are held against their checksums, and one of
            another magic is a refused record. Each plain one is a batch of its own, so the first
            that is refused ends the pass, and one of another magic does so with a status.
        magic: of the wrapper, or of the first entry.
        offset, timestamp, log_append: as the wrapper has them; no matter for plain entries, which
            have their own.

    The others, and the answer, are as for `examine_records`. Source: Kafka
    LogValidator.validateRecord, AbstractLegacyRecordBatch.
    """
    cdef Rules rules = rules_of(compacted, create_time, now, before_max, after_max)
    cdef Seen seen = nothing_seen()
    cdef Messages messages
    _note_into(&seen, faults)
    messages.start = pointer_to(data) if data.shape[0] else <const uint8_t *>&messages
    messages.end = messages.start + data.shape[0]
    messages.inner, messages.magic, messages.offset = inner, magic, offset
    messages.timestamp, messages.log_append = timestamp, log_append
    with nogil:
        _examine_messages(&messages, &rules, &seen)
    return _answer(&seen)


cdef void _set_time(uint8_t *p, int64_t size, bint log_append, int64_t timestamp) noexcept nogil:
    """Type and time of a magic 1 entry; its checksum only where something changes."""
    if (p[17] & ATTRIBUTE_LOG_APPEND != 0) == log_append and load_i64(p + 18) == timestamp:
        return
    p[17] = (p[17] & ATTRIBUTE_CODEC) | (ATTRIBUTE_LOG_APPEND if log_append else 0)
    put_u64(p + 18, <uint64_t>timestamp)
    put_u32(p + 12, crc32_of(p + 16, size - 16))


def assign_messages(uint8_t[::1] data, *, int64_t next_offset, bint create_time, int64_t now):
    """Give plain entries of magic 0 or 1 their offsets and, where the log says when, their times.

    Args:
        data: whole entries, written.
        next_offset: offset of the first.
        create_time: keep each message's own time, as create time; else it becomes `now`.

    Source: Kafka AbstractLegacyRecordBatch.ByteBufferLegacyRecordBatch.
    """
    cdef uint8_t *p = &data[0] if data.shape[0] else NULL
    cdef const uint8_t *end = p + data.shape[0]
    cdef int64_t size, timestamp
    with nogil:
        while p != NULL:
            size = _entry(p, end)
            if size <= 0:
                break
            put_u64(p, <uint64_t>next_offset)
            if p[16] == 1:
                timestamp = max(load_i64(p + 18), <int64_t>NO_TIMESTAMP)
                _set_time(p, size, not create_time, timestamp if create_time else now)
            next_offset = add64(next_offset, 1)
            p += size
