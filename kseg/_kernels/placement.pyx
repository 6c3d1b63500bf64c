"""Which batches get index entries: the one place that decides.

A batch gets an entry if more than the interval of bytes lie before it, counted from the batch
with the last entry. So the first batch of a segment has none. An opening starts the count again, so
the first batch after it has none either.

It is asked over a table of headers, or over the batches of an append, which `Places` judges too:
one call says that an append is sound, and where its bytes and entries go.

The contract is that of `_core`. Every batch is looked at once, in order. Entries come out as they
lie in the index files: big-endian, 8 bytes and 12.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kseg._core cimport *
from kseg._kernels.validate cimport CODEC_MAX, INT32_MAX, NEAR_OFFSET_MAX, NO_TIMESTAMP
from kseg._kernels.validate cimport Sound, judge, judged_of

cdef enum:
    STATES = 9
    SURVEYED = 5
    CLIENT = 2  # kseg.log.validate.rules.AppendOrigin
    NOTES_MAX = 5  # kseg.log.producers.entry.BATCHES_KEPT

# The attributes read from kseg.log.producers.entry.ProducerEntry, and from its batches.
cdef enum:
    ENTRY_EPOCH = 1
    ENTRY_TRANSACTION = 4
    ENTRY_BATCHES = 5
    BATCH_LAST_SEQUENCE = 0

# Why a batch cannot have its entry: kseg.log.segment.index_entries.Refused.
cdef enum:
    ACCEPTED = 0
    FULL = 1
    FAR = 2
    OFFSET_NOT_ABOVE = 3
    TIME_BELOW = 4

cdef inline void _store(uint8_t *to, uint64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        to[i] = <uint8_t>(value >> (8 * (size - 1 - i)))


# The ends of the log and of both indexes, and where entries go.
cdef struct Stand:
    int64_t base
    int64_t interval
    int64_t position
    int64_t since
    int64_t latest
    int64_t latest_at
    int64_t indexed
    int64_t indexed_time
    int64_t indexed_time_at
    int64_t offset_room
    int64_t time_room
    bint strict  # an entry that there is no room for is refused, not left out
    uint8_t *offsets
    uint8_t *times


cdef inline int _place_one(Stand *s, int64_t last, int64_t timestamp, int64_t size) noexcept nogil:
    # In bounds: no more entries are written than there is room for.
    if timestamp > s.latest:
        s.latest, s.latest_at = timestamp, last
    if s.since > s.interval:
        if s.strict and not (s.offset_room and s.time_room):
            return FULL
        # Ordered as it is, no difference overflows.
        if last < s.base or last - s.base > INT32_MAX:
            return FAR
        if last <= s.indexed:
            return OFFSET_NOT_ABOVE
        if s.latest_at < s.indexed_time_at or s.latest < s.indexed_time:
            return TIME_BELOW
        if s.latest_at < s.base or s.latest_at - s.base > INT32_MAX:
            return FAR
        s.since = 0
        if s.offset_room:
            _store(s.offsets, <uint64_t>(last - s.base), 4)
            _store(s.offsets + 4, <uint64_t>s.position, 4)
            s.offsets += 8
            s.offset_room -= 1
            s.indexed = last
        if s.time_room and s.latest > s.indexed_time:
            _store(s.times, <uint64_t>s.latest, 8)
            _store(s.times + 8, <uint64_t>(s.latest_at - s.base), 4)
            s.times += 12
            s.time_room -= 1
            s.indexed_time, s.indexed_time_at = s.latest, s.latest_at
    s.position += size
    s.since += size
    return ACCEPTED


cdef Py_ssize_t _place(const int64_t[:, ::1] rows, int64_t base, int64_t interval, bint strict,
                       int64_t *state, uint8_t *offsets, uint8_t *times,
                       int *refused) noexcept nogil:
    cdef Stand s
    cdef Py_ssize_t i, count = rows.shape[0]
    s.base, s.interval, s.offsets, s.times = base, interval, offsets, times
    s.strict = strict
    s.position, s.since, s.latest, s.latest_at = state[0], state[1], state[2], state[3]
    s.indexed, s.indexed_time, s.indexed_time_at = state[4], state[5], state[6]
    s.offset_room, s.time_room = state[7], state[8]
    refused[0] = ACCEPTED
    for i in range(count):
        refused[0] = _place_one(&s, rows[i, LAST_OFFSET], rows[i, MAX_TIMESTAMP], rows[i, SIZE])
        if refused[0] != ACCEPTED:
            count = i
            break
    state[0], state[1], state[2], state[3] = s.position, s.since, s.latest, s.latest_at
    state[4], state[5], state[6] = s.indexed, s.indexed_time, s.indexed_time_at
    state[7], state[8] = s.offset_room, s.time_room
    return count


def place_rows(const int64_t[:, ::1] rows, int64_t base, int64_t interval, bint strict,
               int64_t[::1] state, uint8_t[::1] offsets, uint8_t[::1] times):
    """Write the entries that batches get, up to the first one that cannot have its own.

    Args:
        rows: int64[n, 17], the headers.
        base: the segment's base offset, not negative.
        interval: an entry is made after more than so many bytes.
        strict: whether an entry that there is no room for is refused; else it is left out.
        state: int64[9], read and written: position of the next batch, bytes since the last entry,
            largest timestamp so far, that of a refused batch included, and its offset; offset of
            the last entry of the offset index (less than the base for none); timestamp and offset
            of that of the time index; entries that each index has room for.
        offsets, times: written: entries of the offset index and of the time index.

    Returns:
        How many batches are placed, and why the next one is not, as `index_entries.Refused`.
    """
    if base < 0 or rows.shape[1] != ROW_FIELDS or state.shape[0] != STATES:
        raise ValueError("rows, base or state has not the right shape")
    if not 0 <= state[7] <= offsets.shape[0] // 8 or not 0 <= state[8] <= times.shape[0] // 12:
        raise ValueError("there is less room than the state says")
    cdef int refused
    cdef Py_ssize_t placed
    with nogil:
        placed = _place(rows, base, interval, strict, &state[0], <uint8_t *>pointer_to(offsets),
                        <uint8_t *>pointer_to(times), &refused)
    return placed, refused


# ---- appends that are sound ----------------------------------------------------------------------

# The results of a pass over batches that keep their offsets.
cdef struct Kept:
    int64_t batches
    int64_t first_offset
    int64_t last_offset
    int64_t records
    int64_t latest
    int64_t latest_offset
    bint producers


cdef bint _keep(const uint8_t *p, int64_t size, int64_t next_offset, int32_t leader_epoch,
                Kept *kept, Stand *stand) noexcept nogil:
    # In bounds: a header is read where HEADER_BYTES are left, a body where all of it is.
    cdef int64_t body, offset, last, timestamp
    cdef int32_t delta, count
    kept.batches, kept.records, kept.latest, kept.latest_offset = 0, 0, NO_TIMESTAMP, -1
    kept.first_offset, kept.last_offset, kept.producers = -1, -1, False
    while size:
        if size < HEADER_BYTES:
            return False
        body = load_i32(p + 8)
        if not HEADER_BYTES - LOG_OVERHEAD <= body <= size - LOG_OVERHEAD or p[16] != 2:
            return False
        if p[22] & ATTRIBUTE_CONTROL or p[22] & ATTRIBUTE_CODEC > CODEC_MAX:
            return False
        if load_i32(p + 12) != leader_epoch:
            return False
        kept.producers |= load_i64(p + 43) >= 0
        offset, delta, count = load_i64(p), load_i32(p + 23), load_i32(p + 57)
        if not next_offset <= offset <= <int64_t>NEAR_OFFSET_MAX or delta < 0:
            return False
        body += LOG_OVERHEAD
        if crc32c_of(p + CRC_COVERS_FROM, body - CRC_COVERS_FROM) != load_u32(p + 17):
            return False
        last, timestamp = offset + delta, load_i64(p + 35)
        if _place_one(stand, last, timestamp, body):
            return False
        if not kept.batches:
            kept.first_offset = offset
        if timestamp > kept.latest:
            kept.latest, kept.latest_offset = timestamp, last
        kept.records = -1 if count < 0 or kept.records < 0 else kept.records + count
        kept.batches += 1
        kept.last_offset, next_offset = last, last + 1
        p += body
        size -= body
    return kept.batches > 0


# ---- producers -----------------------------------------------------------------------------------

cdef bint _follows(dict producers, const uint8_t *p, bint leads) except -1:
    """Whether a batch of data goes on as its producer did, as far as is usual.

    A leader asks for the sequence, and for none that came before. Source: Kafka
    ProducerAppendInfo.appendDataBatch, ProducerStateEntry.findDuplicateBatch.
    """
    cdef int64_t first = load_i32(p + 53), last = first + load_i32(p + 23), before = -1
    if first < 0 or last > INT32_MAX or load_i16(p + 51) < 0:
        return False
    entry = producers.get(load_i64(p + 43))
    if entry is None:
        return True
    if <int>entry[ENTRY_EPOCH] != load_i16(p + 51):
        return False
    if entry[ENTRY_TRANSACTION] is not None and not p[22] & ATTRIBUTE_TRANSACTIONAL:
        return False
    if not leads:
        return True
    for known in entry[ENTRY_BATCHES]:
        before = known[BATCH_LAST_SEQUENCE]
        if before == last:
            return False
    return first == before + 1


cdef tuple _note(const uint8_t *p, int64_t last_offset, int64_t latest, int64_t position):
    """The note on one batch that `kseg.log.producers.state.ProducerState.take` reads."""
    cdef int32_t delta = load_i32(p + 23)
    return (load_i64(p + 43), load_i16(p + 51),
            position if p[22] & ATTRIBUTE_TRANSACTIONAL else -1,
            load_i32(p + 53) + delta, last_offset, delta, latest)


cdef tuple _stored_note(const uint8_t *p, int64_t position):
    return _note(p, load_i64(p) + load_i32(p + 23), load_i64(p + 35), position)


# Batches of one producer in a row, all of one epoch and kind, after the first: the last of them.
cdef struct Row:
    int64_t count
    const uint8_t *batches[NOTES_MAX]
    int64_t positions[NOTES_MAX]


cdef int _note_row(list notes, Row *row) except -1:
    cdef int64_t i
    for i in range(max(row.count - NOTES_MAX, 0), row.count):
        notes.append(_stored_note(row.batches[i % NOTES_MAX], row.positions[i % NOTES_MAX]))
    row.count = 0
    return 0


cdef inline bint _goes_on(const uint8_t *before, const uint8_t *p) noexcept nogil:
    """Whether a batch has the producer, epoch and kind of the one before, and may be a sequence."""
    return (load_i64(before + 43) == load_i64(p + 43) and load_i16(before + 51) == load_i16(p + 51)
            and not (before[22] ^ p[22]) & ATTRIBUTE_TRANSACTIONAL
            and load_i32(p + 53) >= 0
            and <int64_t>load_i32(p + 53) + load_i32(p + 23) <= INT32_MAX)


cdef list _notes_of(dict producers, const uint8_t *p, int64_t size, int64_t position):
    """Notes on batches with a producer, the first and the last of a row; None for unusual ones.

    In bounds: each header is read where HEADER_BYTES are left. `_keep` has walked here, but what an
    entry answers may be the caller's code, which can change the bytes.
    """
    cdef const uint8_t *end = p + size
    cdef int64_t body
    cdef const uint8_t *before = NULL
    cdef list notes = []
    cdef dict seen = {}
    cdef Row row
    row.count = 0
    while p < end:
        body = load_i32(p + 8)
        if end - p < HEADER_BYTES or not 0 <= body <= end - p - LOG_OVERHEAD:
            return None
        if load_i64(p + 43) >= 0:
            if before != NULL and _goes_on(before, p):
                row.batches[row.count % NOTES_MAX] = p
                row.positions[row.count % NOTES_MAX] = position
                row.count += 1
            else:
                if not _follows(producers, p, False):
                    return None
                kind = load_i16(p + 51), p[22] & ATTRIBUTE_TRANSACTIONAL
                if seen.setdefault(load_i64(p + 43), kind) != kind:
                    return None
                _note_row(notes, &row)
                notes.append(_stored_note(p, position))
            before = p
        position += body + LOG_OVERHEAD
        p += body + LOG_OVERHEAD
    _note_row(notes, &row)
    return notes


@cython.auto_pickle(False)
cdef class Places:
    """The ends of a segment and its indexes, for appends that are sound and need no roll.

    `lead` and `follow` look at what is to be appended and change nothing; once that is written,
    `settle` goes on after it. Not for several threads at once.

    Attributes:
        offsets, times: entries of both indexes for what was looked at last.
    """

    cdef int64_t _end, _latest_max
    cdef Stand _here, _next
    cdef readonly bytes offsets, times

    def __init__(self, *, int64_t end, int64_t latest_max, int64_t base, int64_t interval,
                 int64_t position, int64_t since, latest, int64_t indexed, int64_t offset_room,
                 indexed_time, int64_t time_room):
        """Begin somewhere.

        Args:
            end: what is larger has to roll.
            latest_max: and what is newer, in ms.
            base: the segment's base offset, not negative.
            interval: an entry is made after more than so many bytes.
            position: the size of the segment.
            since: bytes since the last entry.
            latest: the largest timestamp so far and its offset.
            indexed: offset of the last entry of the offset index, less than the base for none.
            indexed_time: timestamp and offset of that of the time index.
            offset_room, time_room: entries that each index has room for.
        """
        if base < 0 or interval < 0 or position < 0:
            raise ValueError("base, interval and position are not negative")
        self._end, self._latest_max = end, latest_max
        self._here.base, self._here.interval = base, interval
        self._here.position, self._here.since = position, since
        self._here.latest, self._here.latest_at = latest
        self._here.indexed = indexed
        self._here.indexed_time, self._here.indexed_time_at = indexed_time
        self._here.offset_room, self._here.time_room = offset_room, time_room
        self._here.offsets = self._here.times = NULL
        self._here.strict = False
        self._next = self._here
        self.offsets = self.times = b""

    @property
    def position(self):
        """The size of the segment, without the batches checked since."""
        return self._here.position

    @property
    def since(self):
        """Bytes since the last entry, likewise."""
        return self._here.since

    @property
    def latest(self):
        """The largest timestamp and its offset, likewise."""
        return self._here.latest, self._here.latest_at

    @property
    def indexed(self):
        """Offset of the last entry of the offset index, with the checked batches."""
        return self._next.indexed

    @property
    def indexed_time(self):
        """Timestamp and offset of the last entry of the time index, with the checked batches."""
        return self._next.indexed_time, self._next.indexed_time_at

    def lead(self, data, rules, int64_t next_offset, int64_t now, dict producers, inflate):
        """All that a leader asks of one batch, and where it goes.

        Args:
            data: a view of the batch, and nothing else; read only.
            rules: `kseg.log.validate.rules.AppendRules`, not of a Raft leader.
            next_offset: offset of its first record.
            now: the time of the append, in ms.
            producers: their entries by id; None where no batch with one is usual.
            inflate: asked for the records of a compressed batch, with codec, bytes and limit; a
                buffer, or None where they are none.

        Returns:
            ((head, records, last offset, largest timestamp, its offset, the log's time if that is
            stored or -1, what a compressed batch took inflated), the notes for its producer, a list
            or None), or None where anything is refused or unusual, or the segment has to roll. Who
            needs to know why asks step by step.

        Source: Kafka UnifiedLog.append.
        """
        cdef Sound sound
        cdef Py_buffer buffer
        cdef const uint8_t *p
        cdef list notes = None
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            p = <const uint8_t *>buffer.buf
            if buffer.len < HEADER_BYTES or not self._begin(buffer.len):
                return None
            if load_i64(p + 43) >= 0:
                # Cheaper than the records, and refused for more: so it is asked first.
                if producers is None or rules.origin != CLIENT or not _follows(producers, p, True):
                    return None
            if not judge(data, p, buffer.len, rules, next_offset, now, inflate, &sound):
                return None
            if load_i64(p + 43) >= 0:
                notes = [_note(p, sound.last_offset, sound.latest, self._here.position)]
            if _place_one(&self._next, sound.last_offset, sound.latest, buffer.len):
                return None
        finally:
            PyBuffer_Release(&buffer)
        if not self._end_at(sound.last_offset, sound.latest):
            return None
        return judged_of(&sound), notes

    def follow(self, data, int64_t next_offset, int64_t leader_epoch, dict producers):
        """All that a follower asks of batches of magic 2, and where they go.

        Args:
            data: whole batches; read only.
            next_offset: none may begin before it.
            leader_epoch: of each of them.
            producers: as for `lead`.

        Returns:
            (first offset, last offset, records or -1, largest timestamp, the last offset of the
            first batch that has it, the notes for their producers, a list or None), or None
            where anything is refused or unusual, or the segment has to roll.

        Source: Kafka UnifiedLog.analyzeAndValidateRecords.
        """
        cdef Kept kept
        cdef Py_buffer buffer
        cdef const uint8_t *p
        cdef bint sound = False
        cdef list notes = None
        if not 0 <= leader_epoch <= INT32_MAX or next_offset < 0:
            return None
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)  # a typed view takes longer to make
        try:
            p = <const uint8_t *>buffer.buf
            if self._begin(buffer.len):
                with nogil:
                    sound = _keep(p, buffer.len, next_offset, <int32_t>leader_epoch, &kept,
                                  &self._next)
            if sound and kept.producers:
                if producers is not None:
                    notes = _notes_of(producers, p, buffer.len, self._here.position)
                sound = notes is not None
        finally:
            PyBuffer_Release(&buffer)
        if not sound or not self._end_at(kept.last_offset, kept.latest):
            return None
        return (kept.first_offset, kept.last_offset, kept.records, kept.latest,
                kept.latest_offset, notes)

    def settle(self):
        """Continue after the last checked batches, now that they and their entries are written."""
        self._here = self._next

    cdef bint _begin(self, int64_t size) except -1:
        cdef Stand *to = &self._next
        cdef int64_t most = 0
        to[0] = self._here
        # No index is filled here: the append that finds one full is the one that rolls.
        if size > self._end - to.position or to.offset_room <= 0 or to.time_room <= 0:
            return False
        if size > to.interval - to.since:
            # An entry is made after more than an interval, or a batch at the least.
            most = 1 + size // max(to.interval, <int64_t>HEADER_BYTES)
        to.offset_room, to.time_room = min(to.offset_room, most), min(to.time_room, most)
        self.offsets = PyBytes_FromStringAndSize(NULL, to.offset_room * 8)
        self.times = PyBytes_FromStringAndSize(NULL, to.time_room * 12)
        to.offsets = <uint8_t *>PyBytes_AS_STRING(self.offsets)
        to.times = <uint8_t *>PyBytes_AS_STRING(self.times)
        return True

    cdef bint _end_at(self, int64_t last, int64_t latest) except -1:
        # Ordered as it is, no difference overflows.
        if latest > self._latest_max or last < self._here.base:
            return False
        if last - self._here.base > INT32_MAX:
            return False
        cdef Py_ssize_t used = self._next.offsets - <uint8_t *>PyBytes_AS_STRING(self.offsets)
        cdef Py_ssize_t used_times = self._next.times - <uint8_t *>PyBytes_AS_STRING(self.times)
        self.offsets, self.times = self.offsets[:used], self.times[:used_times]
        self._next.offset_room = self._here.offset_room - used // 8
        self._next.time_room = self._here.time_room - used_times // 12
        return True


# ---- whether batches may follow ------------------------------------------------------------------

cdef void _survey(const int64_t[:, ::1] rows, int64_t base, int64_t before, bint strict,
                  int64_t epoch, int64_t *found) noexcept nogil:
    cdef int64_t last, first, records = 0, newer = 0, producers = 0, old = 0
    cdef Py_ssize_t i, count = rows.shape[0]
    for i in range(count):
        last = rows[i, LAST_OFFSET]
        # Ordered as it is, no difference overflows.
        if last < base or last - base > INT32_MAX:
            count = i
            break
        if strict:
            # Compressed messages of magic 0 and 1 do not say where they begin.
            first = rows[i, BASE_OFFSET] if rows[i, MAGIC] >= 2 else last
            if first <= before or last < first:
                count = i
                break
            before = last
        if rows[i, RECORD_COUNT] > 0:
            records += rows[i, RECORD_COUNT]
        if rows[i, MAGIC] < 2:
            old = 1
            continue
        newer |= rows[i, LEADER_EPOCH] > epoch
        producers |= rows[i, PRODUCER_ID] >= 0
    found[0], found[1], found[2], found[3], found[4] = count, records, newer, producers, old


def survey_rows(const int64_t[:, ::1] rows, *, int64_t base, int64_t before, bint strict,
                int64_t epoch, int64_t[::1] found):
    """Check whether batches may follow each other in a segment, and their other needs.

    Args:
        rows: int64[n, 17], the headers.
        base: the segment's base offset, not negative.
        before: the last offset before them.
        strict: whether each has to begin after the one before it; else only its last offset is
            looked at, which must have a 32-bit form.
        epoch: the latest leader epoch that is known.
        found: int64[5], written: how many are in order, from the first on; and of these: the sum of
            their records; whether an epoch is newer, one has a producer, one is of magic 0 or 1.
    """
    if base < 0 or rows.shape[1] != ROW_FIELDS or found.shape[0] != SURVEYED:
        raise ValueError("rows, base or found has not the right shape")
    with nogil:
        _survey(rows, base, before, strict, epoch, &found[0])
