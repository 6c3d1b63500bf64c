"""Which batches get index entries: the rule of `kseg.log.placement`, over a table of headers.

The contract is that of `_core`. Every row is looked at once, in order. Entries come out as they lie
in the index files: big-endian, 8 bytes and 12.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from kseg._core cimport (
    BASE_OFFSET, LAST_OFFSET, LEADER_EPOCH, MAGIC, MAX_TIMESTAMP, PRODUCER_ID, RECORD_COUNT,
    ROW_FIELDS, SIZE, pointer_to,
)

cdef enum:
    STATES = 9
    SURVEYED = 5
    INT32_MAX = 0x7fffffff


cdef inline void _store(uint8_t *to, uint64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        to[i] = <uint8_t>(value >> (8 * (size - 1 - i)))


cdef int _place(const int64_t[:, ::1] rows, int64_t base, int64_t interval, int64_t *state,
                uint8_t *offsets, uint8_t *times) noexcept nogil:
    # In bounds: no more entries are written than there is room for.
    cdef int64_t position = state[0], since = state[1], latest = state[2], latest_at = state[3]
    cdef int64_t indexed = state[4], indexed_time = state[5], indexed_time_at = state[6]
    cdef int64_t offset_room = state[7], time_room = state[8], last
    cdef Py_ssize_t i
    for i in range(rows.shape[0]):
        last = rows[i, LAST_OFFSET]
        if rows[i, MAX_TIMESTAMP] > latest:
            latest, latest_at = rows[i, MAX_TIMESTAMP], last
        if since > interval:
            since = 0
            # Ordered as it is, no difference overflows.
            if last < base or last - base > INT32_MAX or last <= indexed:
                return 1
            if latest_at < indexed_time_at or latest < indexed_time:
                return 1
            if offset_room:
                _store(offsets, <uint64_t>(last - base), 4)
                _store(offsets + 4, <uint64_t>position, 4)
                offsets += 8
                offset_room -= 1
                indexed = last
            if time_room and latest > indexed_time:
                if latest_at < base or latest_at - base > INT32_MAX:
                    return 1
                _store(times, <uint64_t>latest, 8)
                _store(times + 8, <uint64_t>(latest_at - base), 4)
                times += 12
                time_room -= 1
                indexed_time, indexed_time_at = latest, latest_at
        position += rows[i, SIZE]
        since += rows[i, SIZE]
    state[0], state[1], state[2], state[3] = position, since, latest, latest_at
    state[4], state[5], state[6] = indexed, indexed_time, indexed_time_at
    state[7], state[8] = offset_room, time_room
    return 0


def place_rows(const int64_t[:, ::1] rows, int64_t base, int64_t interval, int64_t[::1] state,
               uint8_t[::1] offsets, uint8_t[::1] times):
    """Write the entries that batches get; answer whether each of them may follow those before.

    Args:
        rows: int64[n, 17], the headers.
        base: the segment's base offset, not negative.
        interval: an entry is made behind more than so many bytes.
        state: int64[9], read, and written where the answer is true: position of the next batch,
            bytes since the last entry, largest timestamp so far and its offset; offset of the last
            entry of the offset index (less than the base for none); timestamp and offset of that of
            the time index; entries that each index has room for.
        offsets, times: written: entries of the offset index and of the time index.
    """
    if base < 0 or rows.shape[1] != ROW_FIELDS or state.shape[0] != STATES:
        raise ValueError("rows, base or state has not the right shape")
    if not 0 <= state[7] <= offsets.shape[0] // 8 or not 0 <= state[8] <= times.shape[0] // 12:
        raise ValueError("there is less room than the state says")
    cdef int status
    with nogil:
        status = _place(rows, base, interval, &state[0], <uint8_t *>pointer_to(offsets),
                        <uint8_t *>pointer_to(times))
    return status == 0


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
    """Look whether batches may follow each other in a segment, and what else they ask for.

    Args:
        rows: int64[n, 17], the headers.
        base: the segment's base offset, not negative.
        before: the last offset in front of them.
        strict: whether each has to begin behind the one before it; else only its last offset is
            looked at, which must have a 32-bit form.
        epoch: the latest leader epoch that is known.
        found: int64[5], written: how many are in order, from the first on; and of these: the sum of
            their records; whether an epoch is newer, one has a producer, one is of magic 0 or 1.
    """
    if base < 0 or rows.shape[1] != ROW_FIELDS or found.shape[0] != SURVEYED:
        raise ValueError("rows, base or found has not the right shape")
    with nogil:
        _survey(rows, base, before, strict, epoch, &found[0])
