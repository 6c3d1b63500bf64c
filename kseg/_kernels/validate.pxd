"""Declarations that the kernel for appends shares with the one that places them."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    HEAD_TIMED_BYTES = 43  # the front of a batch, up to the end of the largest timestamp
    INT32_MAX = 0x7fffffff
    CODEC_MAX = 4
    CODEC_ZSTD = 4
    NO_TIMESTAMP = -1

# No append lies as far as what is left from here on; see kseg.log.validate.rules.
cdef enum: NEAR_OFFSET_MAX = 0x7ffffffe00000000

# A batch that a log takes as it is, with a new head.
cdef struct Sound:
    int64_t records
    int64_t last_offset
    int64_t latest
    int64_t latest_offset
    int64_t appended
    int64_t inflated
    Py_ssize_t head_bytes
    uint8_t head[HEAD_TIMED_BYTES]

cdef bint judge(data, const uint8_t *p, int64_t size, rules, int64_t next_offset, int64_t now,
                inflate, Sound *sound) except -1
cdef tuple judged_of(const Sound *sound)
