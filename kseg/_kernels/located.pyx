"""Batches of magic 2 rewritten from their own bytes: records that stay are copied.

The contract is that of `_core`, but for `Located`, which owns memory that grows with what batches
really hold. Records are found where they lie, or inflated first; who decides about them is asked
once a batch (`Keep`), and what stays is written in the same call. The loops are in
`csrc/locate.h`.

A batch is written only if all of it is as Kafka writes it. Any other is left as it is to who reads
columns, which either says what is wrong with it, or writes it.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kseg._core cimport *
from kseg._kernels.encode cimport BatchHeader, put_batch_header, put_u32
from kseg._kernels.inflate cimport drop_scratch, inflate_records

cdef extern from "locate.h" nogil:
    bint locate "kseg_locate"(const uint8_t *p, const uint8_t *end, int64_t count,
                              Record *out) noexcept
    bint locate_exact "kseg_locate_exact"(const uint8_t *p, const uint8_t *end, int64_t count,
                                          Record *out) noexcept
    uint8_t *put_located "kseg_put_located"(const Record *records, int64_t count,
                                            const uint8_t *kept, int64_t shift,
                                            uint8_t *p) noexcept
    enum:
        GROWTH_MAX "KSEG_GROWTH_MAX"
        SPARE "KSEG_LOCATE_SPARE"
        RECORD_MIN "KSEG_RECORD_MIN"

cdef enum:
    # Batches with more records, or that inflate to more bytes, are left to who reads columns.
    RECORDS_MAX = 1 << 17
    INFLATED_MAX = 16 << 20
    ROOM_FIRST = 1 << 10
    INT32_MAX = 0x7fffffff

#: By so much a record may grow; the bytes needed after a batch; the least bytes of a record.
GROWTH_BYTES, SPARE_BYTES, RECORD_BYTES_MIN = GROWTH_MAX, SPARE, RECORD_MIN

# The results for a batch, in the order of kseg.format.located.
cdef enum:
    LEFT
    DROPPED
    COPIED
    WRITTEN

# The columns of `fates`; the order is that of kseg.format.located.FATE_FIELDS.
cdef enum:
    FATE_WAY
    FATE_AT
    FATE_SIZE
    FATE_COUNT
    FATE_LAST_OFFSET
    FATE_MAX_TIMESTAMP
    FATE_FIELDS


@cython.final
@cython.auto_pickle(False)
cdef class Located:
    """The records of one batch at a time; belongs to one thread."""

    def __cinit__(self):
        memset(&self.found, 0, sizeof(Found))
        memset(&self.scratch, 0, sizeof(Scratch))
        self.room = self.body_bytes = 0
        self.forget()

    def __dealloc__(self):
        free(self.found.records)
        free(self.found.kept)
        drop_scratch(&self.scratch)

    cdef bint _make_room(self, int64_t count) noexcept nogil:
        """Room for so many records, one start after them, and a byte for each."""
        cdef int64_t room
        cdef void *records
        cdef void *kept
        if count <= self.room:
            return True
        room = max(<int64_t>ROOM_FIRST, count)
        records = realloc(self.found.records, <size_t>(room + 1) * sizeof(Record))
        if records != NULL:
            self.found.records = <Record *>records
        kept = realloc(self.found.kept, <size_t>room)
        if kept != NULL:
            self.found.kept = <uint8_t *>kept
        if records == NULL or kept == NULL:
            return False
        self.room = room
        return True

    cdef bint _inflate(self, const uint8_t *p, const int64_t *row) noexcept nogil:
        """Let the scratch have the records of a compressed batch, unless it has them."""
        cdef int64_t *held = self.inflated
        if (held[0] == row[POSITION] and held[1] == row[SIZE] and held[2] == row[CRC]
                and held[3] == row[ATTRIBUTES]):
            return True
        held[0] = -1
        if inflate_records(row[ATTRIBUTES] & ATTRIBUTE_CODEC, 2, p + HEADER_BYTES,
                           row[SIZE] - HEADER_BYTES, &self.scratch, INFLATED_MAX):
            return False
        held[0], held[1], held[2], held[3] = row[POSITION], row[SIZE], row[CRC], row[ATTRIBUTES]
        return True

    cdef void forget(self) noexcept nogil:
        """Begin another batch, even if its header is the same."""
        self.inflated[0] = -1

    cdef bint find(self, const uint8_t *data, int64_t size, int64_t base, const int64_t *row,
                   bint exact) noexcept nogil:
        """Find the records of a batch: whether all are sound, and exact if that is asked.

        Args:
            data, size: bytes of the file from `base` on.
            row: of the batch in a table; its fields count.
        """
        cdef int64_t place = sub64(row[POSITION], base), count = row[RECORD_COUNT]
        cdef const uint8_t *p
        if row[MAGIC] != 2 or place < 0 or place > size or row[BASE_OFFSET] < 0:
            return False
        if row[SIZE] < HEADER_BYTES or row[SIZE] > size - place:
            return False
        p = data + place + HEADER_BYTES
        self.body_bytes = row[SIZE] - HEADER_BYTES
        if row[ATTRIBUTES] & ATTRIBUTE_CODEC:
            if not self._inflate(data + place, row):
                return False
            p, self.body_bytes = self.scratch.bytes, self.scratch.size
        if not 0 < count <= RECORDS_MAX or count > self.body_bytes // RECORD_MIN:
            return False
        if not self._make_room(count):
            return False
        self.found.count, self.found.base_offset = count, row[BASE_OFFSET]
        if exact:
            return locate_exact(p, p + self.body_bytes, count, self.found.records)
        return locate(p, p + self.body_bytes, count, self.found.records)


@cython.auto_pickle(False)
cdef class Keep:
    """Says which records stay; by itself, that none does."""

    cdef void ask(self, const Found *found, int64_t number) noexcept nogil:
        """Fill in `found.kept` for the batch with that number in its table."""
        memset(found.kept, 0, <size_t>found.count)


# The part of a batch that stays.
cdef struct Left:
    int64_t count
    int64_t first  # the first record that stays, and the last
    int64_t last
    int64_t max_timestamp
    bint tombstones


cdef bint _is_usual(const Found *found, const int64_t *row) noexcept nogil:
    """Whether the writer would refuse no record."""
    cdef int64_t i, base = row[BASE_TIMESTAMP]
    cdef int64_t reach = sub64(row[LAST_OFFSET], row[BASE_OFFSET])
    if not found.records[found.count - 1].offset_delta <= reach <= INT32_MAX:
        return False
    for i in range(found.count):
        if add64(base, found.records[i].timestamp_delta) < -1:
            return False
    return True


cdef Left _left(const Found *found, const int64_t *row) noexcept nogil:
    cdef Left left
    cdef int64_t i, timestamp
    left.count, left.first, left.last, left.tombstones = 0, 0, 0, False
    left.max_timestamp = -1
    for i in range(found.count):
        if found.kept[i]:
            if not left.count:
                left.first = i
            left.last = i
            left.count += 1
            left.tombstones |= found.records[i].value_size < 0
            timestamp = add64(row[BASE_TIMESTAMP], found.records[i].timestamp_delta)
            left.max_timestamp = max(left.max_timestamp, timestamp)
    return left


cdef int64_t _write(const Found *found, const Left *left, const int64_t *row, int64_t horizon,
                    uint8_t *start) noexcept nogil:
    """The batch without the records that go, plain; its size. A compressed one gets no checksum.

    Args:
        horizon: the time until which its tombstones stay; -1 for none.
    """
    cdef BatchHeader header
    cdef int64_t shift, size
    header.base_offset, header.last_offset = row[BASE_OFFSET], row[LAST_OFFSET]
    header.attributes = <int16_t>(row[ATTRIBUTES] & ATTRIBUTE_TRANSACTIONAL)
    header.base_timestamp = horizon
    if horizon >= 0:
        header.attributes |= ATTRIBUTE_HORIZON
    else:
        header.base_timestamp = add64(row[BASE_TIMESTAMP],
                                      found.records[left.first].timestamp_delta)
    header.max_timestamp, header.leader_epoch = left.max_timestamp, <int32_t>row[LEADER_EPOCH]
    header.producer_id, header.producer_epoch = row[PRODUCER_ID], <int16_t>row[PRODUCER_EPOCH]
    header.base_sequence, header.count = <int32_t>row[BASE_SEQUENCE], <int32_t>left.count
    shift = sub64(row[BASE_TIMESTAMP], header.base_timestamp)
    size = put_located(found.records, found.count, found.kept, shift,
                       start + HEADER_BYTES) - start
    put_batch_header(start, &header, <uint32_t>size)
    if not row[ATTRIBUTES] & ATTRIBUTE_CODEC:
        put_u32(start + CRC_AT, crc32c_of(start + CRC_COVERS_FROM, size - CRC_COVERS_FROM))
    return size


cdef int64_t _horizon(const int64_t *row, const Left *left, int64_t horizon) noexcept nogil:
    """The time until which the tombstones of a batch stay; -1 for none."""
    if row[ATTRIBUTES] & ATTRIBUTE_HORIZON:
        return row[BASE_TIMESTAMP]
    return horizon if left.tombstones else -1


cdef int64_t _rewrite(Keep keep, Located located, int64_t number, const int64_t *row,
                      int64_t horizon_ms, uint8_t *out, int64_t room, int64_t *fate) noexcept nogil:
    """One batch whose records were found: bytes written; negative where it wants so much room."""
    cdef const Found *found = &located.found
    cdef int64_t wanted = HEADER_BYTES + located.body_bytes + GROWTH_MAX * found.count + SPARE
    cdef Left left
    if wanted > INT32_MAX:
        return 0
    if wanted > room:
        return -wanted
    keep.ask(found, number)
    left = _left(found, row)
    fate[FATE_COUNT], fate[FATE_SIZE] = left.count, 0
    fate[FATE_LAST_OFFSET], fate[FATE_MAX_TIMESTAMP] = row[LAST_OFFSET], row[MAX_TIMESTAMP]
    if not left.count:
        fate[FATE_WAY] = DROPPED
    elif left.count == found.count and not (left.tombstones
                                            and not row[ATTRIBUTES] & ATTRIBUTE_HORIZON):
        fate[FATE_WAY] = COPIED
    else:
        fate[FATE_WAY] = WRITTEN
        fate[FATE_SIZE] = _write(found, &left, row, _horizon(row, &left, horizon_ms), out)
        fate[FATE_LAST_OFFSET] = add64(row[BASE_OFFSET], found.records[left.last].offset_delta)
        fate[FATE_MAX_TIMESTAMP] = left.max_timestamp
    return fate[FATE_SIZE]


cdef int _check(const int64_t[:, ::1] rows, const int64_t[::1] asked, int64_t at, int64_t room,
                int64_t[:, ::1] fates) except -1:
    cdef Py_ssize_t i
    cdef bint sound = (rows.shape[1] == ROW_FIELDS and fates.shape[1] == FATE_FIELDS
                       and fates.shape[0] == rows.shape[0] and at >= 0 and room > 0)
    if sound:
        for i in range(asked.shape[0]):
            sound = sound and 0 <= asked[i] < rows.shape[0]
    if not sound:
        raise ValueError("rows, asked and fates do not fit each other")
    return 0


def rewrite(Keep keep not None, Located located not None, const uint8_t[::1] data not None,
            const int64_t[:, ::1] rows not None, const int64_t[::1] asked not None, int64_t base,
            int64_t at, int64_t horizon_ms, uint8_t[::1] out not None,
            int64_t[:, ::1] fates not None):
    """Write batches without the records that go, as far as there is room.

    Args:
        keep: says which records stay.
        located: memory to use again.
        data: bytes of the file from `base` on.
        rows: int64[n, 17], the headers.
        asked: int64[m], the numbers of the batches asked for. Producer fields are not looked at;
            those with the bits for log append time or control are not asked for.
        base: position of `data[0]`.
        at: which of `asked` is next.
        horizon_ms: the time until which tombstones stay that have none yet.
        out: written. A batch with a codec gets its records plain here, and no checksum.
        fates: int64[n, 6], written for the batches dealt with: what became of it (0 left to others,
            1 dropped, 2 copied, 3 written), where it lies in `out`, its size there; how many
            records stay, the offset of the last of them (that of the batch where it is copied), and
            the largest timestamp.

    Returns:
        Which of `asked` is next, and how many bytes of room it wants; 0 where all are done.

    Raises:
        ValueError: the arrays do not fit each other.

    Source: Kafka MemoryRecords.filterTo.
    """
    cdef const uint8_t *bytes_ = pointer_to(data)
    cdef const int64_t *row
    cdef int64_t count = asked.shape[0], used = 0, number, written = 0
    _check(rows, asked, at, out.shape[0], fates)
    if at == 0:
        located.forget()
    with nogil:
        while at < count:
            number, row = asked[at], &rows[asked[at], 0]
            fates[number, FATE_WAY], fates[number, FATE_AT] = LEFT, used
            if (located.find(bytes_, data.shape[0], base, row, True)
                    and _is_usual(&located.found, row)):
                written = _rewrite(keep, located, number, row, horizon_ms,
                                   &out[0] + used, out.shape[0] - used, &fates[number, 0])
                if written < 0:
                    break
                used += written
            located.forget()
            at += 1
    return at, -written if at < count else 0
