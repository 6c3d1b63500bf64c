"""The search for sound batches where no batch boundary is known.

The contract is that of `_core`. A filter passes over what cannot be a batch at the speed of memory.
The checksum of a candidate follows in constant time from sums of the bytes before its two
ends, so batches that claim each other's bytes cost no more than others: the time is linear in the
bytes, also where they were made to slow it down.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kseg._core cimport *

cdef extern from "search.h" nogil:
    int64_t next_begin "kseg_next_begin"(const uint8_t *data, int64_t position, int64_t end,
                                         uint8_t offset_max, uint8_t length_max) noexcept

cdef enum:
    SUM_BYTES = 512  # of data between two sums that are kept
    DIRECT_BYTES = 1024  # what is no longer is summed up by itself
    CODEC_MAX = 4
    CODEC_MAX_LEGACY = 3
    ATTRIBUTES_KNOWN = 0x7f
    ATTRIBUTES_KNOWN_LEGACY = 0x0f

# One row of runs; the order is that of kseg.format.search.FIELDS.
cdef enum:
    RUN_POSITION
    RUN_END
    RUN_FIRST_OFFSET
    RUN_ORDER
    RUN_LAST_OFFSET
    RUN_BATCHES
    RUN_RECORDS
    RUN_FIELDS

# The state of a search; the order is that of kseg.format.search.STATE_FIELDS.
cdef enum:
    AT_POSITION
    AT_FRONTIER
    AT_LARGE
    AT_COUNT
    AT_SUMS_LEGACY
    AT_SUMS
    AT_FIELDS


cdef struct Window:
    const uint8_t *data
    int64_t size  # bytes that can be read
    int64_t left  # bytes up to the end of the file
    int64_t first_offset
    int64_t last_offset
    uint32_t *sums[2]
    int64_t known[2]


# The fields in the head of a batch.
cdef struct Candidate:
    int64_t size
    int64_t first  # -1 if the body must be inflated to know
    int64_t last
    int64_t records  # -1 if the body must be inflated to know
    int64_t covered_from
    uint32_t crc
    bint castagnoli


cdef uint32_t _sum_before(Window *w, bint castagnoli, int64_t at) noexcept nogil:
    """The checksum of the window's bytes before `at`."""
    cdef uint32_t *sums = w.sums[castagnoli]
    cdef int64_t block = at // SUM_BYTES
    cdef int64_t known
    # In bounds: there is a sum for each whole block of the window, and one in front.
    while w.known[castagnoli] < block:
        known = w.known[castagnoli]
        sums[known + 1] = crc_on(castagnoli, sums[known], w.data + known * SUM_BYTES, SUM_BYTES)
        w.known[castagnoli] = known + 1
    return crc_on(castagnoli, sums[block], w.data + block * SUM_BYTES, at - block * SUM_BYTES)


cdef bint _matches(Window *w, int64_t at, const Candidate *c) noexcept nogil:
    """Whether the candidate at `at`, all of it in the window, has the checksum that it says."""
    cdef int64_t start = at + c.covered_from, end = at + c.size
    cdef uint32_t before
    if end - start <= DIRECT_BYTES:
        return crc_on(c.castagnoli, 0, w.data + start, end - start) == c.crc
    before = crc_shifted(c.castagnoli, _sum_before(w, c.castagnoli, start), <uint32_t>(end - start))
    return _sum_before(w, c.castagnoli, end) ^ before == c.crc


cdef bint _legacy_fills(const uint8_t *p, int64_t size, int64_t readable) noexcept nogil:
    """Whether key and value fill the message, as far as their lengths can be read."""
    cdef int64_t at = 26 if p[16] else 18
    cdef int64_t length
    if size < at + 8 or readable < at + 4:
        return False
    length = load_i32(p + at)
    if length < -1 or length > size - at - 8:
        return False
    at += 4 + (length if length > 0 else 0)
    if readable < at + 4:
        return True
    length = load_i32(p + at)
    return length >= -1 and at + 4 + (length if length > 0 else 0) == size


cdef bint _legacy(const Window *w, const uint8_t *p, int64_t readable, Candidate *c) noexcept nogil:
    cdef bint plain = not p[17] & ATTRIBUTE_CODEC
    c.last = load_i64(p)
    c.first = c.last if plain else -1
    c.records = 1 if plain else -1
    c.crc = load_u32(p + 12)
    c.covered_from, c.castagnoli = 16, False
    if p[17] & ~ATTRIBUTES_KNOWN_LEGACY or p[17] & ATTRIBUTE_CODEC > CODEC_MAX_LEGACY:
        return False
    if c.last < w.first_offset or c.last > w.last_offset:
        return False
    return _legacy_fills(p, c.size, readable)


cdef bint _current(const Window *w, const uint8_t *p, Candidate *c) noexcept nogil:
    cdef int64_t delta = load_i32(p + 23)
    cdef int32_t attributes = load_i16(p + 21)
    c.first = load_i64(p)
    c.records = load_i32(p + 57)
    c.crc = load_u32(p + 17)
    c.covered_from, c.castagnoli = CRC_COVERS_FROM, True
    if attributes & ~ATTRIBUTES_KNOWN or attributes & ATTRIBUTE_CODEC > CODEC_MAX:
        return False
    if delta < 0 or not 0 <= c.records <= delta + 1:
        return False
    if c.first < w.first_offset or c.first > w.last_offset or delta > w.last_offset - c.first:
        return False
    c.last = c.first + delta
    return True


cdef bint _candidate(const Window *w, int64_t at, Candidate *c) noexcept nogil:
    """Whether the bytes at `at` read as the head of a batch that lies in the file."""
    cdef const uint8_t *p = w.data + at
    cdef int64_t readable = w.size - at
    cdef int64_t body
    if readable < LOG_OVERHEAD + MESSAGE_SIZE_MIN or p[16] > 2:
        return False
    body = load_i32(p + 8)
    if body < MESSAGE_SIZE_MIN or body > w.left - at - LOG_OVERHEAD:
        return False
    c.size = body + LOG_OVERHEAD
    if p[16] < 2:
        return _legacy(w, p, readable, c)
    return c.size >= HEADER_BYTES and readable >= HEADER_BYTES and _current(w, p, c)


cdef bint _is_confirmed(Window *w, int64_t at, const Candidate *c) noexcept nogil:
    """Whether a sound batch that may follow begins where a damaged one says that it ends."""
    cdef Candidate behind
    cdef int64_t end = at + c.size
    if end >= w.size or not _candidate(w, end, &behind) or behind.size > w.size - end:
        return False
    return _order(&behind) > c.last and _matches(w, end, &behind)


cdef inline int64_t _order(const Candidate *c) noexcept nogil:
    """The offset that decides whether a batch follows another."""
    return c.last if c.first < 0 else c.first


cdef bint _follows(const int64_t *run, int64_t position, const Candidate *c) noexcept nogil:
    return run[RUN_END] == position and _order(c) > run[RUN_LAST_OFFSET]


cdef void _begin(int64_t *run, int64_t position, const Candidate *c) noexcept nogil:
    run[RUN_POSITION] = run[RUN_END] = position
    run[RUN_FIRST_OFFSET] = c.first
    run[RUN_ORDER] = _order(c)
    run[RUN_BATCHES] = run[RUN_RECORDS] = 0


cdef void _extend(int64_t *run, const Candidate *c) noexcept nogil:
    run[RUN_END] += c.size
    run[RUN_LAST_OFFSET] = c.last
    run[RUN_BATCHES] += 1
    if c.records < 0 or run[RUN_RECORDS] < 0:
        run[RUN_RECORDS] = -1
    else:
        run[RUN_RECORDS] += c.records


cdef void _search(Window *w, int64_t base, int64_t limit, bint tells_large, bint believes,
                  int64_t *runs, int64_t capacity, int64_t *state) noexcept nogil:
    cdef int64_t at = state[AT_POSITION] - base
    cdef int64_t frontier = state[AT_FRONTIER] - base
    cdef int64_t last = w.last_offset
    cdef uint8_t offset_max = last >> 56
    cdef uint8_t length_max = (w.left if w.left < 0x7fffffff else 0x7fffffff) >> 24
    cdef int64_t count = 0
    cdef Candidate c
    # The filter reads 17 bytes, and no batch has fewer than 26.
    limit = min(limit, w.size - (LOG_OVERHEAD + MESSAGE_SIZE_MIN) + 1)
    while at < limit:
        if _candidate(w, at, &c):
            if c.size > w.size - at:
                if tells_large:
                    state[AT_LARGE] = c.size
                    break
            elif _matches(w, at, &c):
                if count == 0 or not _follows(runs - RUN_FIELDS, base + at, &c):
                    if count == capacity:
                        break
                    _begin(runs, base + at, &c)
                    runs += RUN_FIELDS
                    count += 1
                _extend(runs - RUN_FIELDS, &c)
                at += c.size
                frontier = at
                continue
            elif believes and at == frontier and _is_confirmed(w, at, &c):
                at += c.size
                continue
        at = next_begin(w.data, at + 1, limit, offset_max, length_max)
    state[AT_POSITION], state[AT_FRONTIER], state[AT_COUNT] = base + at, base + frontier, count


def search_batches(const uint8_t[::1] data, *, int64_t base, int64_t limit, int64_t file_end,
                   int64_t first_offset, int64_t last_offset, bint tells_large, bint believes,
                   uint32_t[:, ::1] sums, int64_t[:, ::1] runs, int64_t[::1] state):
    """Find sound batches that begin from the position in `state` up to `limit`, as runs.

    A batch counts if all that its head says can be, its offsets lie within the bounds and its
    checksum is right. Batches that follow each other, with offsets that grow, are one run.

    Args:
        data: bytes `[base, base + len)` of the file; read only.
        base: position of `data[0]` in the file.
        limit: no batch that begins here or later is looked for.
        file_end: the file's size; no batch reaches further.
        first_offset, last_offset: the least and the largest offset that a batch may have.
        tells_large: end before a candidate that lies in the file but not in `data`.
        believes: pass over a damaged batch where one is to begin, if a sound one follows it.
        sums: uint32[2, n], n above the blocks of 512 bytes in the data; what is known of checksums,
            kept between calls for the same data.
        runs: int64[m, RUN_FIELDS], written; m bounds how many are found.
        state: int64[AT_FIELDS], gone on from: position; the position where a batch is to begin,
            whose length is believed if a sound one follows it, even if its own checksum is wrong;
            bytes of the candidate that does not lie in the data, 0 for none; runs written; how many
            sums are known, of CRC-32 and of CRC-32C.
    """
    cdef int64_t size = data.shape[0]
    if runs.shape[1] != RUN_FIELDS or state.shape[0] != AT_FIELDS or sums.shape[0] != 2:
        raise ValueError("runs, state or sums has the wrong width")
    if sums.shape[1] <= size // SUM_BYTES or not 0 <= base <= state[AT_POSITION]:
        raise ValueError("sums or state does not fit the data")
    if file_end < base + size or first_offset < 0 or last_offset < first_offset:
        raise ValueError("the file or the offsets do not fit")
    cdef int64_t blocks = size // SUM_BYTES
    if not (0 <= state[AT_SUMS] <= blocks and 0 <= state[AT_SUMS_LEGACY] <= blocks):
        raise ValueError("more sums are known than there are")
    cdef Window w
    w.data, w.size, w.left = pointer_to(data), size, file_end - base
    w.first_offset, w.last_offset = first_offset, last_offset
    w.sums[0], w.sums[1] = &sums[0, 0], &sums[1, 0]
    w.known[0], w.known[1] = state[AT_SUMS_LEGACY], state[AT_SUMS]
    w.sums[0][0] = w.sums[1][0] = 0
    state[AT_LARGE] = 0
    with nogil:
        _search(&w, base, limit - base, tells_large, believes,
                &runs[0, 0] if runs.shape[0] else NULL, runs.shape[0], &state[0])
    state[AT_SUMS_LEGACY], state[AT_SUMS] = w.known[0], w.known[1]
