"""Which batches get index entries: the rule of `kseg.log.placement`, over a table of headers.

The contract is that of `_core`. Every row is looked at once, in order. Entries come out as they lie
in the index files: big-endian, 8 bytes and 12.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kseg._core cimport (
    BASE_OFFSET, HEADER_BYTES, LAST_OFFSET, LEADER_EPOCH, LOG_OVERHEAD, MAGIC, MAX_TIMESTAMP,
    PRODUCER_ID, RECORD_COUNT, ROW_FIELDS, SIZE, add64, load_i32, load_i64, pointer_to,
)

cdef enum:
    STATES = 9
    SURVEYED = 5
    INT32_MAX = 0x7fffffff


cdef inline void _store(uint8_t *to, uint64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        to[i] = <uint8_t>(value >> (8 * (size - 1 - i)))


# Where batches and both indexes stand, and where entries go.
cdef struct Places:
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
    uint8_t *offsets
    uint8_t *times


cdef inline int _place_one(Places *s, int64_t last, int64_t timestamp, int64_t size) noexcept nogil:
    # In bounds: no more entries are written than there is room for.
    if timestamp > s.latest:
        s.latest, s.latest_at = timestamp, last
    if s.since > s.interval:
        s.since = 0
        # Ordered as it is, no difference overflows.
        if last < s.base or last - s.base > INT32_MAX or last <= s.indexed:
            return 1
        if s.latest_at < s.indexed_time_at or s.latest < s.indexed_time:
            return 1
        if s.offset_room:
            _store(s.offsets, <uint64_t>(last - s.base), 4)
            _store(s.offsets + 4, <uint64_t>s.position, 4)
            s.offsets += 8
            s.offset_room -= 1
            s.indexed = last
        if s.time_room and s.latest > s.indexed_time:
            if s.latest_at < s.base or s.latest_at - s.base > INT32_MAX:
                return 1
            _store(s.times, <uint64_t>s.latest, 8)
            _store(s.times + 8, <uint64_t>(s.latest_at - s.base), 4)
            s.times += 12
            s.time_room -= 1
            s.indexed_time, s.indexed_time_at = s.latest, s.latest_at
    s.position += size
    s.since += size
    return 0


cdef int _place(const int64_t[:, ::1] rows, int64_t base, int64_t interval, int64_t *state,
                uint8_t *offsets, uint8_t *times) noexcept nogil:
    cdef Places s
    cdef Py_ssize_t i
    s.base, s.interval, s.offsets, s.times = base, interval, offsets, times
    s.position, s.since, s.latest, s.latest_at = state[0], state[1], state[2], state[3]
    s.indexed, s.indexed_time, s.indexed_time_at = state[4], state[5], state[6]
    s.offset_room, s.time_room = state[7], state[8]
    for i in range(rows.shape[0]):
        if _place_one(&s, rows[i, LAST_OFFSET], rows[i, MAX_TIMESTAMP], rows[i, SIZE]):
            return 1
    state[0], state[1], state[2], state[3] = s.position, s.since, s.latest, s.latest_at
    state[4], state[5], state[6] = s.indexed, s.indexed_time, s.indexed_time_at
    state[7], state[8] = s.offset_room, s.time_room
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


def place_batches(const uint8_t[::1] data, int64_t base, int64_t interval, int64_t position,
                  int64_t since, int64_t latest, int64_t latest_at, int64_t indexed,
                  int64_t indexed_time, int64_t indexed_time_at, int64_t offset_room,
                  int64_t time_room):
    """`place_rows` for whole batches of magic 2, from their bytes.

    Args:
        data: the batches; read only.
        base, interval: as for `place_rows`; the others are its state, in that order.

    Returns:
        (entries of the offset index, those of the time index, the state from the position on as it
        is behind them), or None where an entry may not follow those before it, or where the data
        are no whole batches.
    """
    if base < 0 or offset_room < 0 or time_room < 0 or interval < 0:
        raise ValueError("base, interval and room are not negative")
    cdef Places s
    cdef const uint8_t *p = pointer_to(data)
    cdef int64_t left = data.shape[0], size
    # An entry is made behind more than an interval, or a batch at the least.
    cdef int64_t most = 1 + left // max(interval, <int64_t>HEADER_BYTES)
    offset_room, time_room = min(offset_room, most), min(time_room, most)
    offsets = PyBytes_FromStringAndSize(NULL, offset_room * 8)
    times = PyBytes_FromStringAndSize(NULL, time_room * 12)
    s.base, s.interval, s.position, s.since, s.latest = base, interval, position, since, latest
    s.latest_at, s.indexed, s.indexed_time = latest_at, indexed, indexed_time
    s.indexed_time_at, s.offset_room, s.time_room = indexed_time_at, offset_room, time_room
    s.offsets, s.times = <uint8_t *>PyBytes_AS_STRING(offsets), <uint8_t *>PyBytes_AS_STRING(times)
    while left:
        if left < HEADER_BYTES:
            return None
        size = <int64_t>load_i32(p + 8) + LOG_OVERHEAD
        if not HEADER_BYTES <= size <= left:
            return None
        if _place_one(&s, add64(load_i64(p), load_i32(p + 23)), load_i64(p + 35), size):
            return None
        p += size
        left -= size
    return (offsets[:(offset_room - s.offset_room) * 8], times[:(time_room - s.time_room) * 12],
            s.position, s.since, s.latest, s.latest_at, s.indexed, s.indexed_time,
            s.indexed_time_at)


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
