"""Bisect over index files as they lie on disk.

The contract is that of `_core`. Keys are big-endian and signed, entries have one size and ascend.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from kseg._core cimport load_i32, load_i64

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
