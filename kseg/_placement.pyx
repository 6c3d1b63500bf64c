"""Which batches get index entries: the rule of `kseg.log.placement`, over a table of headers.

The contract is that of `_core`. Every row is looked at once, in order.
"""

from libc.stdint cimport int64_t


cdef int64_t _place(const int64_t[:, ::1] rows, int offset_at, int timestamp_at, int size_at,
                    int64_t interval, int64_t *state, int64_t[:, ::1] out) noexcept nogil:
    # In bounds: a row makes one entry at the most, and `out` has as many rows as `rows`.
    cdef int64_t position = state[0], since = state[1], timestamp = state[2], offset = state[3]
    cdef int64_t count = 0
    cdef Py_ssize_t i
    for i in range(rows.shape[0]):
        if rows[i, timestamp_at] > timestamp:
            timestamp = rows[i, timestamp_at]
            offset = rows[i, offset_at]
        if since > interval:
            out[count, 0] = rows[i, offset_at]
            out[count, 1] = position
            out[count, 2] = timestamp
            out[count, 3] = offset
            count += 1
            since = 0
        position += rows[i, size_at]
        since += rows[i, size_at]
    state[0], state[1], state[2], state[3] = position, since, timestamp, offset
    return count


def place_rows(const int64_t[:, ::1] rows, int offset_at, int timestamp_at, int size_at,
               int64_t interval, int64_t[::1] state, int64_t[:, ::1] out):
    """Write the entries that batches get, and answer how many those are.

    Args:
        rows: int64[n, m], the headers.
        offset_at, timestamp_at, size_at: columns of last offset, largest timestamp and size.
        interval: bytes in front of a batch that gets an entry, at the least, less one.
        state: int64[4], read and written: the position of the next batch, bytes since the last
            entry, largest timestamp so far, its offset.
        out: int64[n, 4], written: last offset, position, largest timestamp so far, its offset.
    """
    cdef int column
    for column in (offset_at, timestamp_at, size_at):
        if not 0 <= column < rows.shape[1]:
            raise ValueError("a column is not in the table")
    if state.shape[0] != 4 or out.shape[1] != 4 or out.shape[0] < rows.shape[0]:
        raise ValueError("state or out is too small")
    cdef int64_t count
    with nogil:
        count = _place(rows, offset_at, timestamp_at, size_at, interval, &state[0], out)
    return count
