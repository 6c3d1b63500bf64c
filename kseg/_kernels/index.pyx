"""Bisect over index files as they lie on disk: one key, or a million at once.

The contract is that of `_core`. Keys are big-endian and signed, entries have one size and ascend.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kseg._core cimport load_i32, load_i64, pointer_to

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *address) noexcept nogil


cdef inline int64_t _key(const uint8_t *entry, int key_bytes) noexcept nogil:
    return load_i64(entry) if key_bytes == 8 else load_i32(entry)


cdef inline int64_t _floor_slot(const uint8_t *first_key, int64_t entry_bytes, int key_bytes,
                                int64_t count, int64_t target) noexcept nogil:
    """Slot of the greatest key <= target, -1 for none: halving without a branch on the
    comparison.
    """
    cdef int64_t low = 0, half, quarter, left = count
    if count == 0 or _key(first_key, key_bytes) > target:
        return -1
    while left > 1:
        half = left >> 1
        # Both places that the next step may look at, since which one hangs on a load under way.
        quarter = (left - half) >> 1
        prefetch(first_key + (low + quarter) * entry_bytes)
        prefetch(first_key + (low + half + quarter) * entry_bytes)
        low += half * (_key(first_key + (low + half) * entry_bytes, key_bytes) <= target)
        left -= half
    return low


cdef int _check_index(Py_ssize_t size, int entry_bytes, int key_at, int key_bytes,
                      int64_t count) except -1:
    if key_bytes not in (4, 8) or key_at < 0 or entry_bytes < key_at + key_bytes:
        raise ValueError("entry_bytes, key_at and key_bytes do not fit each other")
    if count < 0 or count > size // entry_bytes:
        raise ValueError("count is larger than the data")
    return 0


def bisect_entries(data, int entry_bytes, int key_at, int key_bytes, int64_t count, int64_t target):
    """Slot of the greatest entry whose key is at most `target`; -1 where there is none.

    Args:
        data: at least `count * entry_bytes` bytes of entries whose keys ascend.
        entry_bytes: bytes of one entry.
        key_at: position of the key within an entry.
        key_bytes: 4 or 8; keys are signed and big-endian.
        count: how many entries to search.
        target: the key looked for.

    Source: Kafka AbstractIndex.indexSlotRangeFor (its warm section is a matter of cost only).
    """
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        _check_index(buffer.len, entry_bytes, key_at, key_bytes, count)
        return _floor_slot(<const uint8_t *>buffer.buf + key_at, entry_bytes, key_bytes, count,
                           target)
    finally:
        PyBuffer_Release(&buffer)


# ---- many at once --------------------------------------------------------------------------------

cdef enum:
    LANES = 16
    #: Targets that are looked at together: beside the entries, up to the first that falls.
    BLOCK = 4096
    #: Entries ahead that are compared at once, before a search goes on in larger and larger steps.
    NEAR = 4
    #: Many targets: at least one for so many entries.
    BULK_SHARE = 4


cdef struct Entries:
    #: The first key and value, one behind the other by `entry_bytes`; `count` of both.
    const uint8_t *first_key
    const uint8_t *first_value
    int64_t entry_bytes
    int64_t count
    int key_bytes
    #: What is looked for is `target - base`; nothing is found for a target below `least`.
    int64_t least
    int64_t base
    #: `starts[b]`: how many keys lie in buckets below b, for `bucket_count` buckets; 0 for none.
    uint32_t *starts
    int64_t bucket_count
    int shift


cdef inline int64_t _key_at(const Entries *self, int64_t slot) noexcept nogil:
    return _key(self.first_key + slot * self.entry_bytes, self.key_bytes)


cdef inline int64_t _value_at(const Entries *self, int64_t slot) noexcept nogil:
    return load_i32(self.first_value + slot * self.entry_bytes) if slot >= 0 else 0


cdef inline int64_t _wanted(const Entries *self, int64_t target) noexcept nogil:
    return max(target, self.least) - self.base


cdef inline int64_t _within(const Entries *self, int64_t low, int64_t high,
                            int64_t target) noexcept nogil:
    """The slot in `[low, high)` of the greatest key <= target, if that of `low` is, or is -1."""
    cdef int64_t middle
    while high - low > 1:
        middle = (low + high) >> 1
        if _key_at(self, middle) <= target:
            low = middle
        else:
            high = middle
    return low


cdef inline int64_t _from(const Entries *self, int64_t low, int64_t target) noexcept nogil:
    """The same, from the slot of a target that was not greater, or -1, on: the nearest first."""
    cdef int64_t step = NEAR, ahead = 0
    cdef int i
    if low + NEAR < self.count:
        for i in range(1, NEAR + 1):
            ahead += _key_at(self, low + i) <= target
        low += ahead
        if ahead < NEAR:
            return low
    while low + step < self.count and _key_at(self, low + step) <= target:
        low += step
        step <<= 1
    return _within(self, low, min(low + step, self.count), target)


cdef inline int64_t _merge_with(Entries self, int64_t entry_bytes, int key_bytes,
                                const int64_t *targets, int64_t n, int64_t *out) noexcept nogil:
    cdef int64_t i = 0, slot, target, before
    # A copy that no store to `out` can change, with sizes known to the compiler.
    self.entry_bytes, self.key_bytes = entry_bytes, key_bytes
    while i < n and targets[i] < self.least:
        out[i] = 0
        i += 1
    if i == n:
        return n
    before = targets[i]
    slot = _within(&self, -1, self.count, before - self.base)
    while i < n:
        target = targets[i]
        if target < before:
            return i
        before = target
        slot = _from(&self, slot, target - self.base)
        out[i] = _value_at(&self, slot)
        i += 1
    return n


cdef int64_t _merge(const Entries *self, const int64_t *targets, int64_t n,
                    int64_t *out) noexcept nogil:
    """Look targets up beside the entries as long as they ascend; answers how many those were."""
    if self.entry_bytes == 8 and self.key_bytes == 4:
        return _merge_with(self[0], 8, 4, targets, n, out)
    return _merge_with(self[0], self.entry_bytes, self.key_bytes, targets, n, out)


cdef void _lanes(const Entries *self, const int64_t *targets, int64_t n,
                 int64_t *out) noexcept nogil:
    """At most sixteen searches in lockstep, so that their cache misses overlap."""
    cdef int64_t low[LANES]
    cdef int64_t left = self.count, half
    cdef int lane
    for lane in range(n):
        low[lane] = 0
    while left > 1:
        half = left >> 1
        for lane in range(n):
            low[lane] += half * (_key_at(self, low[lane] + half) <= _wanted(self, targets[lane]))
        left -= half
    for lane in range(n):
        if targets[lane] < self.least or _key_at(self, 0) > _wanted(self, targets[lane]):
            low[lane] = -1
        out[lane] = _value_at(self, low[lane])


cdef void _by_bucket(const Entries *self, const int64_t *targets, int64_t n,
                     int64_t *out) noexcept nogil:
    """At most sixteen targets, each in the keys of its bucket; what is needed next is fetched."""
    cdef int64_t low[LANES]
    cdef int64_t high[LANES]
    cdef int64_t bucket[LANES]
    cdef int64_t first = _key_at(self, 0), target
    cdef int lane
    for lane in range(n):
        target = _wanted(self, targets[lane])
        bucket[lane] = 0
        if targets[lane] >= self.least and target > first:
            bucket[lane] = min((<uint64_t>target - <uint64_t>first) >> self.shift,
                               <uint64_t>self.bucket_count - 1)
        prefetch(self.starts + bucket[lane])
    for lane in range(n):
        low[lane] = <int64_t>self.starts[bucket[lane]] - 1
        high[lane] = self.starts[bucket[lane] + 1]
        prefetch(self.first_key + max(low[lane], 0) * self.entry_bytes)
    for lane in range(n):
        target = _wanted(self, targets[lane])
        low[lane] = _within(self, low[lane], high[lane], target)
        if targets[lane] < self.least:
            low[lane] = -1
        out[lane] = _value_at(self, low[lane])


cdef inline bint _ascends_with(const uint8_t *first_key, int64_t entry_bytes, int key_bytes,
                               int64_t count) noexcept nogil:
    cdef int64_t slot, key, before = _key(first_key, key_bytes)
    cdef bint falls = False
    for slot in range(1, count):
        key = _key(first_key + slot * entry_bytes, key_bytes)
        falls |= key < before
        before = key
    return not falls


cdef bint _ascends(const Entries *self) noexcept nogil:
    if self.entry_bytes == 8 and self.key_bytes == 4:
        return _ascends_with(self.first_key, 8, 4, self.count)
    return _ascends_with(self.first_key, self.entry_bytes, self.key_bytes, self.count)


cdef void _fill_buckets(Entries *self, int64_t room) noexcept nogil:
    """Share the span of the keys among buckets of one width, at most `room - 1` of them."""
    cdef uint64_t first = _key_at(self, 0), span = <uint64_t>_key_at(self, self.count - 1) - first
    cdef uint64_t bucket
    cdef int64_t slot, b = 0
    self.shift = 0
    # Not `+ 1` on the left: the span of all 64-bit keys would wrap to no buckets.
    while (span >> self.shift) >= <uint64_t>room - 1:
        self.shift += 1
    self.bucket_count = (span >> self.shift) + 1
    for slot in range(self.count):
        # Should a mapped file change meanwhile, nothing is written behind the last bucket.
        bucket = min((<uint64_t>_key_at(self, slot) - first) >> self.shift,
                     <uint64_t>self.bucket_count - 1)
        while <uint64_t>b <= bucket:
            self.starts[b] = slot
            b += 1
    while b <= self.bucket_count:
        self.starts[b] = self.count
        b += 1


cdef void _lookup_block(Entries *self, const int64_t *targets, int64_t n, int64_t room, bint bulk,
                        int64_t *out) noexcept nogil:
    cdef int64_t some, i = _merge(self, targets, n, out) if bulk else 0
    if i < n and bulk and room > 1 and not self.bucket_count:
        _fill_buckets(self, room)
    while i < n:
        some = min(n - i, LANES)
        if self.bucket_count:
            _by_bucket(self, targets + i, some, out + i)
        else:
            _lanes(self, targets + i, some, out + i)
        i += some


def lookup_entries(const uint8_t[::1] data, int entry_bytes, int key_at, int key_bytes,
                   int value_at, int64_t count, const int64_t[::1] targets, int64_t least,
                   int64_t base, uint32_t[::1] starts, int64_t[::1] out):
    """The values of the entries that `bisect_entries` finds for many targets.

    Targets that ascend are merged with the entries. Others are looked for in buckets of keys, where
    there is room for those, else by halving.

    Args:
        data, entry_bytes, key_at, key_bytes, count: as for `bisect_entries`; not empty.
        value_at: position of the value within an entry, an int32, big-endian.
        targets: int64[n], in any order.
        least: nothing is found for targets below it.
        base: what the keys are less by than the targets; `least - base` does not overflow.
        starts: uint32[m], written: room for buckets; none where there are few targets.
        out: int64[n], written: the values; 0 where nothing is found.
    """
    _check_index(data.shape[0], entry_bytes, key_at, key_bytes, count)
    if not 0 < count <= 0xFFFFFFFF or value_at < 0 or entry_bytes < value_at + 4:
        raise ValueError("count or value_at is out of bounds")
    if out.shape[0] != targets.shape[0]:
        raise ValueError("out and targets differ in length")
    cdef Entries entries
    cdef int64_t i = 0, some, n = targets.shape[0], room = starts.shape[0]
    cdef bint bulk
    entries.first_key = pointer_to(data) + key_at
    entries.first_value = pointer_to(data) + value_at
    entries.entry_bytes, entries.count, entries.key_bytes = entry_bytes, count, key_bytes
    entries.least, entries.base = least, base
    entries.starts, entries.bucket_count, entries.shift = &starts[0] if room else NULL, 0, 0
    with nogil:
        # In bounds: i < n. To look at all entries is worth it for many targets alone.
        bulk = n >= count // BULK_SHARE and _ascends(&entries)
        while i < n:
            some = min(n - i, BLOCK)
            _lookup_block(&entries, &targets[i], some, room, bulk, &out[i])
            i += some
