"""Bytes looked for in the values of a column, one search for all of them; the loop is `needle.h`.

The contract is that of `_core`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kseg._core cimport pointer_to

cdef extern from "needle.h" nogil:
    const uint8_t *find "kseg_find"(const Needle *needle, const uint8_t *p,
                                    const uint8_t *end) noexcept


def mark_holding(const uint8_t[::1] data not None, const int32_t[::1] offsets not None,
                 const uint8_t[::1] needle not None, bint folds, uint8_t[::1] marks not None):
    """Mark the values of a binary column that hold a needle; the others keep their marks.

    Args:
        data: the column's bytes.
        offsets: int32[n + 1], as Arrow has them.
        needle: the bytes, at least one.
        folds: the case of ASCII letters does not count; those of the needle are small.
        marks: uint8[n], 1 where a value holds it.

    Raises:
        ValueError: the offsets do not ascend within `data`, `marks` is too short, or there is no
            needle.
        MemoryError: there is none for a search in linear time.
    """
    cdef Py_ssize_t row = 0, count = offsets.shape[0] - 1
    cdef int64_t end, at
    cdef const uint8_t *base = pointer_to(data)
    cdef const uint8_t *found
    cdef Needle wanted
    cdef bint has_memory = True
    if count < 0 or marks.shape[0] < count or needle.shape[0] == 0:
        raise ValueError("marks are fewer than the values, or there is no needle")
    for row in range(count):
        if not 0 <= offsets[row] <= offsets[row + 1] <= data.shape[0]:
            raise ValueError("offsets do not ascend within the data")
    wanted = needle_of(&needle[0], needle.shape[0], folds)
    with nogil:
        # The offsets were checked: they do not change, since the caller lends them for this call.
        row, at, end = 0, offsets[0], offsets[count]
        while True:
            while row < count and offsets[row + 1] - at < wanted.size:  # too short to hold it
                row += 1
                at = offsets[row]
            if row == count:
                break
            found = find(&wanted, base + at, base + end)
            if found == NULL:
                break
            if found == base + end:
                has_memory = False
                break
            at = found - base
            while offsets[row + 1] <= at:
                row += 1
            if at + wanted.size <= offsets[row + 1]:  # else it goes on into the next value
                marks[row] = 1
            row += 1
            at = offsets[row]
    if not has_memory:
        raise MemoryError("no memory to search in linear time")
