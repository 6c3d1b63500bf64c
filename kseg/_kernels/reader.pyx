"""Batches of magic 0 to 2 read in one pass, without the GIL, into one block of memory a piece.

The contract is that of `_core`: borrowed input, a block that the caller owns, a status instead of
an exception. The loops stand in `csrc/reader.h`; what is unusual ends a call in front of its batch.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

from kseg._core cimport INT64_MAX, INT64_MIN, crc32_of, crc32c_on, pointer_to
from kseg._kernels.inflate cimport Scratch, drop_scratch, inflate_records

cdef extern from "reader.h" nogil:
    ctypedef struct Piece "kseg_piece":
        pass

    ctypedef uint32_t (*sum_function "kseg_sum_fn")(uint32_t, const uint8_t *, size_t) noexcept

    ctypedef uint32_t (*message_sum_function "kseg_message_sum_fn")(const uint8_t *,
                                                                    size_t) noexcept

    ctypedef struct Held "kseg_inflated":
        const uint8_t *bytes
        int64_t size
        int64_t position
        int64_t packed
        void *scratch

    ctypedef int (*inflate_function "kseg_inflate_fn")(Held *, int, int, const uint8_t *, int64_t,
                                                       int64_t) noexcept

    ctypedef struct Source "kseg_source":
        const uint8_t *data
        int64_t base
        int64_t size
        int64_t limit
        int64_t file_end
        const int64_t *table
        int64_t table_count
        const int64_t *ask
        int filtered
        sum_function sum
        message_sum_function message_sum
        inflate_function inflate
        Held *inflated
        int64_t *counts
        int64_t *firsts
        int64_t counts_max

    enum:
        KSEG_AT
        KSEG_ROWS_MAX
        KSEG_BYTES_MAX
        KSEG_HEADERS_MAX
        KSEG_STATE_FIELDS
        KSEG_ROWS
        KSEG_ASK_FIELDS
        KSEG_ASK_OFFSET_MIN
        KSEG_ASK_OFFSET_MAX
        KSEG_ASK_TIME_MIN
        KSEG_ASK_TIME_MAX
        KSEG_ASK_COUNT
        KSEG_ROW_WIDTH
        KSEG_PLACES

    int64_t layout "kseg_layout"(int64_t fields, int64_t rows, int64_t bytes, int64_t headers,
                                 int64_t *at) noexcept
    Piece piece_in "kseg_piece_in"(uint8_t *block, const int64_t *at,
                                   const int64_t *state) noexcept
    void keep_piece "kseg_keep_piece"(const Piece *piece, int64_t *state) noexcept
    int filled "kseg_filled"(const int64_t *state) noexcept
    int read_on "kseg_read"(const Source *source, Piece *piece, int64_t *state) noexcept

cdef enum:
    ROOM_MAX = 0x7fffffff


@cython.auto_pickle(False)
cdef class Inflated:
    """Memory and contexts to inflate batches with, for one reader in one thread.

    The batch inflated last stays in it while the piece is too full for its records.
    """

    cdef Scratch scratch
    cdef Held held

    def __cinit__(self):
        memset(&self.scratch, 0, sizeof(Scratch))
        memset(&self.held, 0, sizeof(Held))
        self.held.scratch = &self.scratch
        self.held.position = -1

    def __dealloc__(self):
        drop_scratch(&self.scratch)

    def forget(self):
        """What comes next are other batches, also where positions are the same."""
        self.held.position = -1

    @property
    def holds(self):
        """Whether a batch lies here that was not read yet."""
        return self.held.position >= 0

    @property
    def expansion(self):
        """How many times its compressed bytes the batch inflated last holds; 1 before any."""
        return self.held.size / self.held.packed if self.held.packed > 0 else 1.0


cdef int _inflate(Held *held, int codec, int magic, const uint8_t *data, int64_t size,
                  int64_t inflated_max) noexcept nogil:
    cdef Scratch *scratch = <Scratch *>held.scratch
    cdef int status = inflate_records(codec, magic, data, size, scratch, inflated_max)
    held.bytes, held.size = scratch.bytes, scratch.size
    return status


def block_layout(int64_t fields, int64_t rows, int64_t bytes_, int64_t headers, int64_t[::1] at):
    """Bytes of a block that has room for a piece.

    Args:
        fields: bits of the columns wanted: offset 1, timestamp 2, key 4, value 8, headers 16.
        rows, bytes_, headers: the room, each below 2^31; `bytes_` holds for each of the columns of
            keys, values, and names and values of headers.
        at: int64[14], written: where each column starts, -1 for those that are not wanted.
    """
    if at.shape[0] != KSEG_PLACES:
        raise ValueError("at has the wrong length")
    if not (0 <= rows <= ROOM_MAX and 0 <= bytes_ <= ROOM_MAX and 0 <= headers <= ROOM_MAX):
        raise ValueError("a piece has room for fewer than 2^31 rows, bytes and headers")
    return layout(fields, rows, bytes_, headers, &at[0])


def read_batches(const uint8_t[::1] data, const int64_t[:, ::1] table, *, int64_t base,
                 int64_t limit, int64_t file_end, const int64_t[::1] ask,
                 Inflated inflated not None, uint8_t[::1] block, int64_t[:, ::1] counts,
                 int64_t[::1] state):
    """Read batches behind what is in a piece, until one does not fit, is unusual, or they end.

    Args:
        data: bytes `[base, base + len)` of the file; read only.
        table: int64[n, ROW_FIELDS], the batches to read, or None to find them by their lengths.
        base: position of `data[0]` in the file.
        limit: no batch that starts here or later is read; of no meaning with a table.
        file_end: the file's size; likewise.
        ask: int64[KSEG_ASK_COUNT], what is wanted.
        inflated: what compressed batches are inflated into; lent for this call.
        block: uint8[n], aligned to 8 bytes, with room for the piece as `block_layout` says.
        counts: int64[2, m], written: of each batch read or passed over its records, and its base
            offset, which is that of the first message inside a compressed one; int64[2, 0] where
            not wanted.
        state: int64[KSEG_STATE_FIELDS]: the place to read on from, the room, and what is in the
            piece; written.

    Returns:
        Why it ended: END, FULL, NO_ROOM, MORE, ODD, OTHER or PAST, as `csrc/reader.h` numbers them.

    Source: Kafka DefaultRecordBatch, DefaultRecord.readFrom, AbstractLegacyRecordBatch.
    """
    cdef int64_t at[KSEG_PLACES]
    cdef Source source
    cdef Piece piece
    cdef int why
    cdef bint listed = table is not None
    if ask.shape[0] != KSEG_ASK_COUNT or state.shape[0] != KSEG_STATE_FIELDS:
        raise ValueError("ask or state has the wrong length")
    if listed and table.shape[1] != KSEG_ROW_WIDTH:
        raise ValueError("the table has the wrong width")
    if counts.shape[0] != 2:
        raise ValueError("counts has the wrong width")
    cdef int64_t place = state[KSEG_AT]
    if listed and place < 0:
        raise ValueError("the state leads outside the table")
    if not listed and (place < base or place > base + data.shape[0]
                       or file_end < base + data.shape[0]):
        raise ValueError("state, base and file_end do not fit the data")
    _check_room(ask, block, state, at)
    source.data, source.base, source.size = pointer_to(data), base, data.shape[0]
    source.limit, source.file_end = limit, file_end
    source.table, source.table_count = NULL, 0
    if listed:
        source.table = &table[0, 0] if table.shape[0] else &ask[0]
        source.table_count = table.shape[0]
    source.ask = &ask[0]
    source.filtered = not (ask[KSEG_ASK_OFFSET_MIN] == INT64_MIN
                           and ask[KSEG_ASK_OFFSET_MAX] == INT64_MAX
                           and ask[KSEG_ASK_TIME_MIN] == INT64_MIN
                           and ask[KSEG_ASK_TIME_MAX] == INT64_MAX)
    source.sum, source.message_sum = crc32c_on, crc32_of
    source.inflate, source.inflated = _inflate, &inflated.held
    source.counts, source.firsts, source.counts_max = NULL, NULL, counts.shape[1]
    if counts.shape[1]:
        source.counts, source.firsts = &counts[0, 0], &counts[1, 0]
    with nogil:
        piece = piece_in(&block[0], at, &state[0])
        why = read_on(&source, &piece, &state[0])
        keep_piece(&piece, &state[0])
    return why


cdef int _check_room(const int64_t[::1] ask, uint8_t[::1] block, const int64_t[::1] state,
                     int64_t *at) except -1:
    """Hold the block against the room that the state says it has, and what fills it already."""
    cdef int64_t rows = state[KSEG_ROWS_MAX], bytes_ = state[KSEG_BYTES_MAX]
    cdef int64_t headers = state[KSEG_HEADERS_MAX]
    if not (0 <= rows <= ROOM_MAX and 0 <= bytes_ <= ROOM_MAX and 0 <= headers <= ROOM_MAX):
        raise ValueError("a piece has room for fewer than 2^31 rows, bytes and headers")
    if block.shape[0] < max(layout(ask[KSEG_ASK_FIELDS], rows, bytes_, headers, at), 1):
        raise ValueError("the block has no room for the piece")
    if <size_t>&block[0] % 8:
        raise ValueError("the block is not aligned")
    if not filled(&state[0]):
        raise ValueError("the state says that more is in the piece than it has room for")
    return 0
