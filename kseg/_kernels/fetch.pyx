"""Stored bytes of a segment from the batch on that holds an offset, in one call: the usual fetch.

The one kernel that opens files, since a fetch is little more than its system calls. They are those
of `kseg.files.io`: open a regular file, read at a position, close. It looks into the index, checks
the batch that the entry leads to, walks on by headers and reads, all without the GIL.

**It answers, or it does not.** Whatever is unusual ends the call without an answer: a call that the
system refuses or that a signal interrupts, a file that is shorter than it should be, an index that
leads to no sound batch, damage, an offset that is further from its entry than `WALK_BYTES_MAX`.
`kseg.log.reader.find` takes these, and has words for errors.

Source: Kafka `LogSegment.read`, `LogSegment.translateOffset`, `OffsetIndex.lookup`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
from posix.stat cimport S_ISREG, fstat, struct_stat
from posix.types cimport off_t
from posix.unistd cimport close, pread

from kseg._core cimport *

cdef extern from "fcntl.h" nogil:
    int O_RDONLY, O_CLOEXEC, O_NONBLOCK
    int open_file "open"(const char *path, int flags) noexcept

cdef enum:
    #: The last steps of a search go through one block of the index.
    BLOCK_SLOTS = 512
    #: The bytes read at a time to find the batch: one as producers fill them by default, which an
    #: entry leads to, and the header of the next.
    WINDOW_BYTES = 17 << 10
    #: How far from its entry a batch is looked for.
    WALK_BYTES_MAX = 1 << 20
    #: The most bytes of one read.
    READ_BYTES_MAX = 0x40000000
    #: A larger batch is checked in windows before it is taken.
    BATCH_BYTES_TRUSTED = 16 << 20


# The search: its target, its start, and its result, as positions in the log.
cdef struct Wanted:
    int64_t base_offset
    int64_t file_end
    int64_t offset
    int64_t start
    int64_t position
    int64_t size

# Bytes of a file from `position` on, of which there are `filled`; none behind `end` are read.
cdef struct Window:
    int fd
    int64_t end
    int64_t position
    int64_t filled
    uint8_t data[WINDOW_BYTES]


cdef object NOTHING = memoryview(b"")

# ---- files ---------------------------------------------------------------------------------------

cdef int _opened(const char *path, int64_t *size) noexcept nogil:
    """A descriptor of a regular file, and its size; -1 without a file."""
    cdef struct_stat status
    cdef int fd = open_file(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    if fd < 0:
        return -1
    if fstat(fd, &status) != 0 or not S_ISREG(status.st_mode):
        close(fd)
        return -1
    size[0] = status.st_size
    return fd


cdef bint _read(int fd, uint8_t *to, int64_t size, int64_t position) noexcept nogil:
    """Whether the file gave all these bytes."""
    cdef Py_ssize_t got
    while size > 0:
        got = pread(fd, to, <size_t>min(size, READ_BYTES_MAX), <off_t>position)
        if got <= 0:
            return False
        to += got
        size -= got
        position += got
    return True


# ---- the offset index ----------------------------------------------------------------------------

cdef inline bint _is_at_most(const uint8_t *entry, int64_t slot, int64_t target) noexcept nogil:
    """Whether a used entry is at or below the target; of slots behind the first 0 is unused."""
    cdef int64_t relative = load_i32(entry)
    return (relative != 0 or slot == 0) and relative <= target


cdef bint _search(int fd, int64_t count, int64_t target, int64_t *position) noexcept nogil:
    """Where the last entry at or below the target leads to, 0 without one; False if not known."""
    cdef uint8_t block[BLOCK_SLOTS * INDEX_ENTRY_BYTES]
    cdef uint8_t *entry
    cdef int64_t low = -1, high = count, middle, first, relative = -1, found = -1
    while high - low > BLOCK_SLOTS:
        middle = (low + high) // 2
        if not _read(fd, block, INDEX_ENTRY_BYTES, middle * INDEX_ENTRY_BYTES):
            return False
        if _is_at_most(block, middle, target):
            low = middle
            relative, found = load_i32(block), load_i32(block + INDEX_POSITION_AT)
        else:
            high = middle
    # In bounds: high - first < BLOCK_SLOTS.
    first = low + 1
    if not _read(fd, block, (high - first) * INDEX_ENTRY_BYTES, first * INDEX_ENTRY_BYTES):
        return False
    while high - low > 1:
        middle = (low + high) // 2
        entry = block + (middle - first) * INDEX_ENTRY_BYTES
        if _is_at_most(entry, middle, target):
            low = middle
            relative, found = load_i32(entry), load_i32(entry + INDEX_POSITION_AT)
        else:
            high = middle
    position[0] = found if relative >= 0 and found >= 0 else 0
    return True


cdef bint _start(const char *index, Wanted *wanted) noexcept nogil:
    """Note where to begin, as the index says; False if it is not known."""
    cdef int64_t size = 0
    cdef int fd
    cdef bint known
    wanted.start = 0
    if index == NULL or wanted.offset <= wanted.base_offset:
        return True
    fd = _opened(index, &size)
    if fd < 0:
        return False
    known = _search(fd, size // INDEX_ENTRY_BYTES, wanted.offset - wanted.base_offset,
                    &wanted.start)
    close(fd)
    if wanted.start >= wanted.file_end:
        wanted.start = 0
    return known


# ---- the walk ------------------------------------------------------------------------------------

cdef const uint8_t *_look(Window *window, int64_t at, int64_t size) noexcept nogil:
    """The bytes at a position, `size` of them or more; NULL where the file does not give so many.

    `size` is at most `WINDOW_BYTES`.
    """
    if at < window.position or at + size > window.position + window.filled:
        window.position, window.filled = at, 0
        if size > window.end - at:
            return NULL
        size = min(WINDOW_BYTES, window.end - at)
        if not _read(window.fd, window.data, size, at):
            return NULL
        window.filled = size
    return window.data + (at - window.position)


cdef bint _is_sound(Window *window, int64_t at, int64_t size) noexcept nogil:
    """Whether the checksum of a whole batch is right; it may be larger than the window."""
    cdef const uint8_t *p = _look(window, at, HEADER_TO_MAGIC + 4)
    cdef bint castagnoli
    cdef uint32_t stored, value = 0
    cdef int64_t end = at + size, some
    if p == NULL:
        return False
    castagnoli = p[16] >= 2
    stored = load_u32(p + (17 if castagnoli else 12))
    at += CRC_COVERS_FROM if castagnoli else 16
    while at < end:
        some = min(end - at, WINDOW_BYTES)
        if some > window.position + window.filled - at > 0:
            some = window.position + window.filled - at
        p = _look(window, at, some)
        if p == NULL:
            return False
        value = crc_on(castagnoli, value, p, some)
        at += some
    return value == stored


cdef bint _leads(Window *window, const Wanted *wanted, int64_t first, int64_t last,
                 int64_t size) noexcept nogil:
    """Whether a batch where an index leads to lies at or before the offset, and is sound."""
    if last > wanted.offset and not 0 <= first <= wanted.offset:
        return False
    return size <= BATCH_BYTES_TRUSTED and _is_sound(window, wanted.start, size)


cdef bint _walk(Window *window, Wanted *wanted) noexcept nogil:
    """Note the first batch from `start` on that ends at the offset or behind it.

    False where there is none nearby, or where it may be damage.
    """
    cdef const uint8_t *p
    cdef int64_t at = wanted.start, size = 0, first, last
    cdef int stop
    while at - wanted.start <= WALK_BYTES_MAX:
        p = _look(window, at, HEADER_BYTES)
        if p == NULL:
            return False
        stop = frame_at(p, window.end - at, HEADER_BYTES, POLICY_STRICT, &size)
        if stop != STOP_END and stop != STOP_LIMIT:
            return False
        if p[16] < 2:
            last = load_i64(p)
            first = -1 if p[17] & ATTRIBUTE_CODEC else last
        elif size < HEADER_BYTES:
            return False
        else:
            first = load_i64(p)
            last = add64(first, load_i32(p + 23))
        if at == wanted.start > 0 and not _leads(window, wanted, first, last, size):
            return False
        if last >= wanted.offset:
            wanted.position, wanted.size = at, size
            return size <= BATCH_BYTES_TRUSTED
        at += size
    return False


cdef bint _fill(const Window *window, uint8_t *to, int64_t at, int64_t size) noexcept nogil:
    """Whether the file gave all these bytes, of which the window may have some."""
    cdef int64_t known = window.position + window.filled - at
    if at >= window.position and known > 0:
        known = min(known, size)
        memcpy(to, window.data + (at - window.position), <size_t>known)
        return _read(window.fd, to + known, size - known, at + known)
    return _read(window.fd, to, size, at)


# ---- the fetch -----------------------------------------------------------------------------------

cdef object _filled(const Window *window, int64_t at, int64_t size):
    """Bytes of the file, with memory of their own; None if it did not give all."""
    cdef object data = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(data)
    cdef bint given
    with nogil:
        given = _fill(window, to, at, size)
    return memoryview(data) if given else None


def fetch_batches(bytes log not None, bytes index, int64_t base_offset, int64_t file_end,
                  int64_t offset, int64_t read_end, int64_t bytes_max, bint whole_first,
                  bint with_data):
    """Stored bytes from the first batch of a segment on that ends at an offset or behind it.

    Args:
        log: path of the log file, encoded.
        index: that of its offset index; None without one.
        base_offset: of the segment.
        file_end: how much of the log file there is, in bytes.
        offset: the offset that the batch must hold.
        read_end: position at which the answer ends at the latest.
        bytes_max: bytes of the answer at the most.
        whole_first: give the first batch whole, however large it is.
        with_data: False to find the batch and read no more.

    Returns:
        (position, bytes of the first batch, bytes of the answer, the answer), the last a memoryview
        over memory of its own, empty without data. None where anything is unusual, see above.
    """
    cdef const char *log_name = log
    cdef const char *index_name = NULL
    cdef int64_t size = 0
    cdef Wanted wanted
    cdef Window window
    cdef bint found
    if index is not None:
        index_name = index
    wanted.base_offset, wanted.file_end, wanted.offset = base_offset, file_end, offset
    window.end, window.position, window.filled = file_end, 0, 0
    with nogil:
        window.fd = _opened(log_name, &size)
        found = (window.fd >= 0 and read_end <= file_end <= size and _start(index_name, &wanted)
                 and _walk(&window, &wanted))
    try:
        if not found:
            return None
        size = max(bytes_max, wanted.size if whole_first else 0)
        size = max(min(read_end - wanted.position, size), 0)
        data = _filled(&window, wanted.position, size) if with_data else NOTHING
        return None if data is None else (wanted.position, wanted.size, size, data)
    finally:
        if window.fd >= 0:
            close(window.fd)
