"""Bisect over index files as they lie on disk: one key, or a million at once.

The contract is that of `_core`. Keys are big-endian and signed, entries have one size and ascend.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

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


cdef enum:
    LANES = 16


cdef void _floor_lanes(const uint8_t *first_key, int64_t entry_bytes, int key_bytes, int64_t count,
                       const int64_t *targets, int64_t *out) noexcept nogil:
    """Sixteen searches in lockstep, so that their cache misses overlap."""
    cdef int64_t low[LANES]
    cdef int64_t left = count, half, key
    cdef int lane
    for lane in range(LANES):
        low[lane] = 0
    while left > 1:
        half = left >> 1
        for lane in range(LANES):
            key = _key(first_key + (low[lane] + half) * entry_bytes, key_bytes)
            low[lane] += half * (key <= targets[lane])
        left -= half
    for lane in range(LANES):
        out[lane] = low[lane] if _key(first_key, key_bytes) <= targets[lane] else -1


def bisect_entries_many(const uint8_t[::1] data, int entry_bytes, int key_at, int key_bytes,
                        int64_t count, const int64_t[::1] targets, int64_t[::1] out):
    """`bisect_entries` for many targets at once.

    Args:
        data, entry_bytes, key_at, key_bytes, count: as for `bisect_entries`.
        targets: int64[n], in any order.
        out: int64[n], written: a slot for each target, -1 for none.
    """
    _check_index(data.shape[0], entry_bytes, key_at, key_bytes, count)
    if out.shape[0] != targets.shape[0]:
        raise ValueError("out and targets differ in length")
    cdef int64_t i = 0, n = targets.shape[0]
    cdef const uint8_t *first_key = pointer_to(data) + key_at
    with nogil:
        # In bounds: i + LANES <= n in the first loop, i < n in the second; slots stay below count.
        while count and i + LANES <= n:
            _floor_lanes(first_key, entry_bytes, key_bytes, count, &targets[i], &out[i])
            i += LANES
        while i < n:
            out[i] = _floor_slot(first_key, entry_bytes, key_bytes, count, targets[i])
            i += 1
