"""The walk over the batches of magic 0, 1 and 2: a row of header fields for each.

The contract is that of `_core`. A walk that leaves checksums alone touches one or two lines of
memory in each batch, and would wait for each: the position of the next batch is in the one before.
So such a walk has headers fetched before it comes there:

* where the next ones lie if sizes repeat;
* where an offset index has an entry for about every batch: those that its entries lead to;
* where it has fewer: those that cursors come to. A cursor begins at an entry, and goes from batch
  to batch up to the beginning of the next cursor. Many go in turn, so that their waits overlap.

**None of this decides anything.** The walk goes over each batch itself, in order, and finds the
same whatever the index says. A wrong index only costs time: for a stretch of batches, cursors make
a bounded number of steps.

`scan_cached` reads nothing of a file but headers, where batches are large: pages that are not in a
map yet, and bytes that are copied, take longer than a small read for each batch. It takes usual
batches that the system has in memory, and leaves the rest to the walk over bytes.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kseg._core cimport *

cdef extern from "bytes.h" nogil:
    void prefetch "kseg_prefetch_header"(const uint8_t *p) noexcept
    void prefetch_short "kseg_prefetch_short"(const uint8_t *p, int64_t size) noexcept

cdef extern from "cached.h" nogil:
    int64_t read_cached "kseg_read_cached"(int fd, uint8_t *to, size_t size,
                                           int64_t position) noexcept

cdef enum:
    STRETCH_BATCHES = 256  # the lines and pages of so many headers stay at hand
    BATCH_BYTES_MIN = 1024  # the processor itself fetches lines that follow so closely
    GUESSED_AHEAD = 3  # batches, if sizes repeat
    ENTRIES_AHEAD = 24  # batches, where entries stand for most of them
    ENTRIES_A_STEP = 8
    CURSORS = 16  # that go in turn
    CURSORS_MIN = 4  # fewer are not worth it

    # The bytes read of a batch: its header, and all of a control batch as brokers write it.
    CACHED_BYTES = 128
    # Of smaller batches the bytes take no longer than a read for each.
    CACHED_BATCH_MIN = 8192
    # So many small ones, after as many large ones, are read each by itself.
    CACHED_SMALL_MAX = 16


# ---- one row -------------------------------------------------------------------------------------

cdef void _note_control(const uint8_t *p, const uint8_t *end, int64_t *row) noexcept nogil:
    """Type and coordinator epoch from the first record of an uncompressed control batch, where
    they can be read.
    """
    cdef int32_t length = 0, delta = 0, size = 0
    cdef int64_t timestamp = 0
    p = read_varint(p, end, &length)
    if p == NULL or length < 1 or length > end - p:
        return
    end = p + length
    p = read_varlong(p + 1, end, &timestamp)
    if p != NULL:
        p = read_varint(p, end, &delta)
    if p != NULL:
        p = read_varint(p, end, &size)
    if p == NULL or size < 4 or size > end - p or load_i16(p) < 0:
        return
    row[CONTROL_TYPE] = load_i16(p + 2)
    p = read_varint(p + size, end, &size)
    if row[CONTROL_TYPE] > 1 or p == NULL or size < 6 or size > end - p or load_i16(p) < 0:
        return
    row[COORDINATOR_EPOCH] = load_i32(p + 2)


cdef void _fill_batch(const uint8_t *p, int64_t size, bint verify, int64_t *row) noexcept nogil:
    """One row from a magic 2 batch of `size` bytes, all of which are there; short ones read as if
    padded with zeros.
    """
    cdef uint8_t padded[HEADER_BYTES]
    cdef const uint8_t *h = p
    cdef int i
    if size < HEADER_BYTES:
        for i in range(HEADER_BYTES):
            padded[i] = p[i] if i < size else 0
        h = padded
    row[BASE_OFFSET] = load_i64(h)
    row[LAST_OFFSET] = add64(row[BASE_OFFSET], load_i32(h + 23))
    row[LEADER_EPOCH] = load_i32(h + 12)
    row[CRC] = load_u32(h + 17)
    row[ATTRIBUTES] = load_i16(h + 21)
    row[BASE_TIMESTAMP] = load_i64(h + 27)
    row[MAX_TIMESTAMP] = load_i64(h + 35)
    row[PRODUCER_ID] = load_i64(h + 43)
    row[PRODUCER_EPOCH] = load_i16(h + 51)
    row[BASE_SEQUENCE] = load_i32(h + 53)
    row[RECORD_COUNT] = load_i32(h + 57)
    row[CONTROL_TYPE] = -1
    row[COORDINATOR_EPOCH] = -1
    row[CRC_OK] = -1
    if size < HEADER_BYTES:
        row[CRC_OK] = 0
    elif verify:
        row[CRC_OK] = crc32c_of(p + CRC_COVERS_FROM, size - CRC_COVERS_FROM) == <uint32_t>row[CRC]
    cdef int64_t kind = row[ATTRIBUTES] & (ATTRIBUTE_CONTROL | ATTRIBUTE_CODEC)
    if kind == ATTRIBUTE_CONTROL and row[RECORD_COUNT] > 0 and size >= HEADER_BYTES:
        _note_control(p + HEADER_BYTES, p + size, row)


cdef void _fill_message(const uint8_t *p, int64_t size, bint verify, int64_t *row) noexcept nogil:
    """One row from a magic 0 or 1 message of `size` >= 26 bytes, its 12 of offset and size among
    them.
    """
    row[ATTRIBUTES] = p[17]
    cdef bint plain = not row[ATTRIBUTES] & ATTRIBUTE_CODEC
    row[LAST_OFFSET] = load_i64(p)
    row[BASE_OFFSET] = row[LAST_OFFSET] if plain else -1
    row[LEADER_EPOCH] = -1
    row[CRC] = load_u32(p + 12)
    row[BASE_TIMESTAMP] = load_i64(p + 18) if row[MAGIC] == 1 else -1
    row[MAX_TIMESTAMP] = row[BASE_TIMESTAMP]
    row[PRODUCER_ID] = -1
    row[PRODUCER_EPOCH] = -1
    row[BASE_SEQUENCE] = -1
    row[RECORD_COUNT] = 1 if plain else -1
    row[CONTROL_TYPE] = -1
    row[COORDINATOR_EPOCH] = -1
    row[CRC_OK] = crc32_of(p + 16, size - 16) == <uint32_t>row[CRC] if verify else -1


# ---- ahead of a walk -----------------------------------------------------------------------------

# The file ahead of a walk that leaves checksums alone, a stretch of some batches at a time.
# `entries` are those of an offset index, as they lie in its file; `next_entry` is the first that
# may lie ahead. No header begins at `end` or after it. In a stretch with a `window`, there is an
# entry for about every batch, and those within so many bytes ahead are fetched.
cdef struct Ahead:
    const uint8_t *data
    int64_t base
    int64_t end
    const uint8_t *entries
    int64_t entry_count
    int64_t next_entry
    int64_t stretch
    int64_t stretch_end
    int64_t stretch_first
    int64_t window


cdef struct Cursor:
    int64_t at
    int64_t end


cdef inline int64_t _entry_position(const Ahead *ahead, int64_t entry) noexcept nogil:
    return load_i32(ahead.entries + entry * INDEX_ENTRY_BYTES + INDEX_POSITION_AT)


cdef int64_t _entry_behind(const Ahead *ahead, int64_t position) noexcept nogil:
    """The first entry that leads past a position; where entries do not ascend, any."""
    cdef int64_t low = 0, high = ahead.entry_count, middle
    while low < high:
        middle = (low + high) // 2
        if _entry_position(ahead, middle) <= position:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline void _fetch(const Ahead *ahead, int64_t position) noexcept nogil:
    prefetch(ahead.data + (position - ahead.base))


cdef inline bint _step(const Ahead *ahead, Cursor *cursor) noexcept nogil:
    """Go to the next batch and have its header fetched; False where the part has ended."""
    cdef int64_t size = load_i32(ahead.data + (cursor.at - ahead.base) + 8)
    cursor.at += size + LOG_OVERHEAD
    if size < MESSAGE_SIZE_MIN or cursor.at >= cursor.end:
        return False
    _fetch(ahead, cursor.at)
    return True


cdef int _place(Ahead *ahead, Cursor *cursors, int64_t position, int64_t last) noexcept nogil:
    """Cut the stretch at entries before `last` into parts about alike, with a cursor for each."""
    cdef int64_t least = (ahead.stretch_end - position) // CURSORS, found
    cdef int64_t entry = ahead.next_entry
    cdef int count = 1
    cursors[0].at = position
    while entry < last and count < CURSORS:
        found = _entry_position(ahead, entry)
        if cursors[count - 1].at + least <= found < ahead.stretch_end:
            cursors[count - 1].end = cursors[count].at = found
            count += 1
        entry += 1
    cursors[count - 1].end = ahead.stretch_end
    return count


cdef void _run_cursors(Ahead *ahead, int64_t position, int64_t last) noexcept nogil:
    """Have all headers of the stretch fetched. Each step reads 4 bytes before `ahead.end`."""
    cdef Cursor cursors[CURSORS]
    cdef int active = _place(ahead, cursors, position, last), i
    cdef int64_t steps = 2 * STRETCH_BATCHES
    if active < CURSORS_MIN:
        return
    for i in range(active):
        _fetch(ahead, cursors[i].at)
    while active > 0 and steps > 0:
        i = 0
        while i < active:
            steps -= 1
            if _step(ahead, &cursors[i]):
                i += 1
            else:
                active -= 1
                cursors[i] = cursors[active]


cdef void _begin_stretch(Ahead *ahead, int64_t position, int64_t size,
                         int64_t count) noexcept nogil:
    """Read the entries ahead; the batches of the last stretch tell how many to expect."""
    cdef int64_t walked = count - ahead.stretch_first, last
    if walked > 0:
        size = (position - ahead.stretch) // walked
    ahead.stretch, ahead.stretch_first = position, count
    ahead.stretch_end = min(position + size * STRETCH_BATCHES, ahead.end)
    ahead.window = 0
    if size < BATCH_BYTES_MIN or position >= ahead.end or not ahead.entry_count:
        return
    ahead.next_entry = _entry_behind(ahead, position)
    last = _entry_behind(ahead, ahead.stretch_end)
    if last - ahead.next_entry >= STRETCH_BATCHES // 2:
        ahead.window = size * ENTRIES_AHEAD
    else:
        _run_cursors(ahead, position, last)


cdef inline void _look_ahead(Ahead *ahead, int64_t position, int64_t size,
                             int64_t count) noexcept nogil:
    """Have headers fetched that come after the batch at `position`, of `size` bytes."""
    cdef int64_t found
    cdef int _x
    if position >= ahead.stretch_end or count - ahead.stretch_first >= 2 * STRETCH_BATCHES:
        _begin_stretch(ahead, position, size, count)
    if ahead.window:
        for _x in range(ENTRIES_A_STEP):
            if ahead.next_entry >= ahead.entry_count:
                return
            found = _entry_position(ahead, ahead.next_entry)
            if found > position + ahead.window:
                return
            ahead.next_entry += 1
            if position < found < ahead.end:
                _fetch(ahead, found)
    elif size < (ahead.end - position) // GUESSED_AHEAD:
        _fetch(ahead, position + GUESSED_AHEAD * size)


# ---- the walk ------------------------------------------------------------------------------------

def scan_batches(const uint8_t[::1] data, *, int64_t base, int64_t start, int64_t limit,
                 int64_t file_end, int verify, int policy, const uint8_t[::1] entries,
                 int64_t[:, ::1] rows, int64_t[::1] walk):
    """Walk the batches that start in `[start, limit)` and write a row for each.

    Args:
        data: bytes `[base, base + len)` of the file; read only.
        base: position of `data[0]` in the file.
        start: position of a batch, at or after `base`.
        limit: no batch that starts here or later is read.
        file_end: the file's size; a batch beyond `data` but inside the file ends the walk with
            LIMIT and its size in `walk[NEEDED]`.
        verify: 0 leaves checksums alone, 1 stops before a batch whose checksum is wrong, 2
            notes it and goes on.
        policy: 0 strict, 1 what Kafka's file reader accepts (any magic; end of file within 17
            bytes).
        entries: entries of an offset index of this file, 8 bytes each, for the cursors of a walk
            that leaves checksums alone; none, or wrong ones, change nothing but the time it takes.
        rows: int64[n, ROW_FIELDS], written; n bounds how many batches are read.
        walk: int64[WALK_FIELDS], written: count, end of the last whole batch, StopReason, bytes
            that the batch there announces (0 unknown), OR of all attributes, bit per magic seen,
            number of wrong checksums.

    Source: Kafka ByteBufferLogInputStream, FileLogInputStream, DefaultRecordBatch.ensureValid.
    """
    check_walk(data.shape[0], base, start, file_end, rows, walk)
    cdef const uint8_t *bytes_ = pointer_to(data)
    cdef int64_t visible_end = base + data.shape[0]
    cdef int64_t capacity = rows.shape[0]
    cdef Ahead ahead
    ahead.data, ahead.base = bytes_, base
    ahead.end = min(limit, visible_end - HEADER_TO_MAGIC)
    ahead.entries, ahead.entry_count = pointer_to(entries), entries.shape[0] // INDEX_ENTRY_BYTES
    ahead.stretch = ahead.stretch_end = start
    ahead.stretch_first = ahead.next_entry = ahead.window = 0
    # Every index below is in bounds: count < capacity = rows.shape[0], fields are checked above.
    with nogil:
        _walk(&ahead, start, limit, visible_end, file_end, verify, policy, capacity,
              &rows[0, 0] if capacity else NULL, &walk[0])


cdef void _walk(Ahead *ahead, int64_t position, int64_t limit, int64_t visible_end,
                int64_t file_end, int verify, int policy, int64_t capacity, int64_t *row,
                int64_t *walk) noexcept nogil:
    cdef int64_t count = 0, size = 0, attributes = 0, magics = 0, bad = 0
    cdef int stop = STOP_END
    cdef const uint8_t *p
    while position < file_end:
        size = 0
        if position >= limit or count == capacity:
            stop = STOP_LIMIT
            break
        p = ahead.data + (position - ahead.base)
        stop = frame_at(p, file_end - position, visible_end - position, policy, &size)
        if stop != STOP_END:
            break
        if verify == VERIFY_NONE:
            _look_ahead(ahead, position, size, count)
        else:
            prefetch_short(p, size)
        row[POSITION] = position
        row[SIZE] = size
        row[MAGIC] = <int8_t>p[16]
        if row[MAGIC] < 2:
            _fill_message(p, size, verify != 0, row)
        else:
            _fill_batch(p, size, verify != 0, row)
        if row[CRC_OK] == 0:
            if verify == VERIFY_STOP:
                stop = STOP_BAD_LENGTH if row[MAGIC] >= 2 and size < HEADER_BYTES else STOP_BAD_CRC
                break
            bad += 1
        attributes |= row[ATTRIBUTES]
        magics |= 1 << (row[MAGIC] & 7 if row[MAGIC] < 8 else 7)
        count += 1
        position += size
        size = 0
        row += ROW_FIELDS
    write_walk(walk, count, position, stop, size, attributes, magics, bad)


# ---- headers alone -------------------------------------------------------------------------------

cdef int64_t _framed(const uint8_t *p, int64_t left) noexcept nogil:
    """The size of a usual batch, of which 128 bytes or all `left` are there; 0 for any other."""
    cdef int64_t size
    if left < HEADER_BYTES:
        return 0
    size = <int64_t>load_i32(p + 8) + LOG_OVERHEAD
    if p[16] > 2 or size > left:
        return 0
    if size < (HEADER_BYTES if p[16] == 2 else MESSAGE_SIZE_MIN + LOG_OVERHEAD):
        return 0
    if p[16] == 2 and load_i16(p + 21) & ATTRIBUTE_CONTROL and size > CACHED_BYTES:
        return 0  # what it says may lie past the bytes that are there
    return size


def scan_cached(int fd, *, int64_t start, int64_t limit, int64_t file_end, int64_t[:, ::1] rows,
                int64_t[::1] walk):
    """Walk the batches that start in `[start, limit)` by small reads of their headers.

    It ends with LIMIT before a batch that is unusual, or whose header is not in memory; where
    batches get small; and at the limit. `scan_batches` goes on there, and finds the same rows.

    Args:
        fd: the file, open for reading.
        start: position of a batch.
        limit: no batch that starts here or later is read.
        file_end: the file's size.
        rows, walk: as for `scan_batches`.
    """
    check_walk(0, start, start, file_end, rows, walk)
    cdef int64_t capacity = rows.shape[0]
    with nogil:
        _walk_cached(fd, start, min(limit, file_end), file_end, capacity,
                     &rows[0, 0] if capacity else NULL, &walk[0])


cdef void _walk_cached(int fd, int64_t position, int64_t limit, int64_t file_end, int64_t capacity,
                       int64_t *row, int64_t *walk) noexcept nogil:
    cdef uint8_t head[CACHED_BYTES]
    cdef int64_t count = 0, attributes = 0, magics = 0, size, wanted
    cdef int64_t credit = CACHED_SMALL_MAX * CACHED_BATCH_MIN
    while position < limit and count < capacity and credit > 0:
        wanted = min(CACHED_BYTES, file_end - position)
        if read_cached(fd, head, <size_t>wanted, position) != wanted:
            break
        size = _framed(head, file_end - position)
        if size == 0:
            break
        credit = min(credit + size - CACHED_BATCH_MIN, CACHED_SMALL_MAX * CACHED_BATCH_MIN)
        row[POSITION] = position
        row[SIZE] = size
        row[MAGIC] = head[16]
        if row[MAGIC] < 2:
            _fill_message(head, size, False, row)
        else:
            _fill_batch(head, size, False, row)
        attributes |= row[ATTRIBUTES]
        magics |= 1 << row[MAGIC]
        count += 1
        position += size
        row += ROW_FIELDS
    cdef int stop = STOP_END if position == file_end else STOP_LIMIT
    write_walk(walk, count, position, stop, 0, attributes, magics, 0)
