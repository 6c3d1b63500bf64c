"""Compressed bodies of batches and wrapper messages, inflated without the GIL.

What is unusual, damaged or refused is not told apart here: `kseg.format.codec` takes such a body
by itself and has the words. Until a library is opened here, all of them are unusual.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset


cdef int inflate_records(int codec, int magic, const uint8_t *data, int64_t size,
                         Scratch *scratch, int64_t inflated_max) noexcept nogil:
    """Inflate a body into `scratch`: 0, or 1 where the careful path has to take it.

    Args:
        codec: low three bits of the attributes.
        magic: of the batch or wrapper message.
        data, size: the compressed bytes, all of them and nothing else.
        scratch: this thread's; the last body in it is lost.
        inflated_max: the most bytes the body may become.
    """
    return 1


cdef void drop_scratch(Scratch *scratch) noexcept nogil:
    """Give the memory back; what is left is as good as new."""
    free(scratch.bytes)
    memset(scratch, 0, sizeof(Scratch))
