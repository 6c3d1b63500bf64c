"""Batches of magic 0 to 2 read in one pass, without the GIL, into one block of memory a piece.

The contract is that of `_core`: borrowed input, a block that the caller owns, a status instead of
an exception. The loops stand in `csrc/reader.h`; what is unusual ends a call in front of its batch,
which `count_records` and `copy_records` then take alone, by `csrc/careful.h`.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from kseg._core cimport INT64_MAX, INT64_MIN, crc32_of, crc32c_on, pointer_to
from kseg._kernels.inflate cimport Scratch, drop_scratch, inflate_records

cdef extern from "careful.h" nogil:
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

    ctypedef struct Tally "kseg_tally":
        int64_t rows
        int64_t headers
        int64_t bytes[4]
        int64_t nulls[4]

    ctypedef struct Batch "kseg_batch":
        const uint8_t *start
        const uint8_t *end
        int64_t time_type

    ctypedef struct One "kseg_one":
        Batch batch
        int64_t rows_max
        int64_t bytes_max
        Piece *out
        const Tally *room

    enum:
        KSEG_OF_KEY
        KSEG_OF_VALUE
        KSEG_OF_NAME
        KSEG_OF_HEADER
        KSEG_KEY_BYTES
        KSEG_KEY_NULLS
        KSEG_VALUE_BYTES
        KSEG_VALUE_NULLS
        KSEG_NAME_BYTES
        KSEG_HEADER_BYTES
        KSEG_HEADER_NULLS
        KSEG_HEADER_COUNT
        KSEG_BYTES
        KSEG_BATCHES
        KSEG_TIME_TYPE
        KSEG_ASK_NOTES
        KSEG_MATCHES
        KSEG_ONE_AT
        KSEG_ONE_RECORD
        KSEG_ONE_FIELDS

    int one_of "kseg_one_of"(const Source *source, const int64_t *row, const uint8_t *body,
                             int64_t body_size, One *one) noexcept
    void count_on "kseg_count_records"(const One *one, Tally *tally, int64_t *place) noexcept
    int copy_on "kseg_take_records"(const One *one, Tally *tally, int64_t *place) noexcept
    int64_t room_of "kseg_layout"(int64_t fields, int64_t rows, const int64_t *bytes,
                                  int64_t headers, int64_t *at) noexcept
    int64_t layout "kseg_even_layout"(int64_t fields, int64_t rows, int64_t bytes,
                                      int64_t headers, int64_t *at) noexcept
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
        at: int64[16], written: where each column starts, -1 for those that are not wanted.
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


# ---- one batch -----------------------------------------------------------------------------------

cdef int64_t _fields_of(const int64_t[::1] ask) noexcept:
    """The columns of a batch that is read alone."""
    return ask[KSEG_ASK_FIELDS] | (KSEG_MATCHES if ask[KSEG_ASK_NOTES] else 0)


cdef int _open_one(const uint8_t[::1] data, const int64_t[::1] row, const uint8_t[::1] body,
                   int64_t base, const int64_t[::1] ask, const int64_t[::1] place,
                   const int64_t[::1] state, Source *source, One *one) except -1:
    """The batch of a row, with its body; `source` has to outlive it."""
    cdef int64_t size
    cdef bint inflated = body is not None
    if row.shape[0] != KSEG_ROW_WIDTH or place.shape[0] != KSEG_ONE_FIELDS:
        raise ValueError("row or place has the wrong length")
    if ask.shape[0] != KSEG_ASK_COUNT or state.shape[0] != KSEG_STATE_FIELDS:
        raise ValueError("ask or state has the wrong length")
    memset(source, 0, sizeof(Source))
    memset(one, 0, sizeof(One))
    source.data, source.base, source.size = pointer_to(data), base, data.shape[0]
    source.ask = &ask[0]
    source.sum, source.message_sum = crc32c_on, crc32_of
    # An empty body has no address, so any that is not NULL will do.
    if one_of(source, &row[0], (&body[0] if body.shape[0] else <const uint8_t *>&row[0])
              if inflated else NULL, body.shape[0] if inflated else 0, one):
        raise ValueError("a batch lies outside its source")
    size = one.batch.end - one.batch.start
    if not (0 <= place[KSEG_ONE_AT] <= size and place[KSEG_ONE_RECORD] >= 0):
        raise ValueError("the place lies outside the batch")
    return 0


cdef void _tell(const Tally *tally, int64_t *state) noexcept:
    """What was counted, where a state says what is in a piece."""
    state[KSEG_ROWS_MAX] = state[KSEG_ROWS] = tally.rows
    state[KSEG_HEADERS_MAX] = state[KSEG_HEADER_COUNT] = tally.headers
    state[KSEG_KEY_BYTES] = tally.bytes[KSEG_OF_KEY]
    state[KSEG_KEY_NULLS] = tally.nulls[KSEG_OF_KEY]
    state[KSEG_VALUE_BYTES] = tally.bytes[KSEG_OF_VALUE]
    state[KSEG_VALUE_NULLS] = tally.nulls[KSEG_OF_VALUE]
    state[KSEG_NAME_BYTES] = tally.bytes[KSEG_OF_NAME]
    state[KSEG_HEADER_BYTES] = tally.bytes[KSEG_OF_HEADER]
    state[KSEG_HEADER_NULLS] = tally.nulls[KSEG_OF_HEADER]
    state[KSEG_BYTES] = (tally.bytes[KSEG_OF_KEY] + tally.bytes[KSEG_OF_VALUE]
                         + tally.bytes[KSEG_OF_NAME] + tally.bytes[KSEG_OF_HEADER])


cdef Tally _told(const int64_t[::1] state) except *:
    cdef Tally tally
    memset(&tally, 0, sizeof(Tally))
    tally.rows, tally.headers = state[KSEG_ROWS], state[KSEG_HEADER_COUNT]
    tally.bytes[KSEG_OF_KEY] = state[KSEG_KEY_BYTES]
    tally.bytes[KSEG_OF_VALUE] = state[KSEG_VALUE_BYTES]
    tally.bytes[KSEG_OF_NAME] = state[KSEG_NAME_BYTES]
    tally.bytes[KSEG_OF_HEADER] = state[KSEG_HEADER_BYTES]
    tally.nulls[KSEG_OF_KEY] = state[KSEG_KEY_NULLS]
    tally.nulls[KSEG_OF_VALUE] = state[KSEG_VALUE_NULLS]
    tally.nulls[KSEG_OF_HEADER] = state[KSEG_HEADER_NULLS]
    cdef int of
    cdef bint sound = 0 <= tally.rows <= ROOM_MAX and 0 <= tally.headers <= ROOM_MAX
    for of in range(KSEG_OF_HEADER + 1):
        sound = sound and 0 <= tally.bytes[of] <= ROOM_MAX
    if not sound:
        raise ValueError("a piece has room for fewer than 2^31 rows, bytes and headers")
    return tally


def count_records(const uint8_t[::1] data, const int64_t[::1] row, const uint8_t[::1] body, *,
                  int64_t base, const int64_t[::1] ask, int64_t rows_max, int64_t bytes_max,
                  int64_t[::1] place, int64_t[::1] at, int64_t[::1] state):
    """Count what the next piece of one batch holds, and find what is wrong with the batch.

    Args:
        data: bytes of the file from `base` on; read only.
        row: int64[ROW_FIELDS], the batch's of a table.
        body: what the batch's compressed bytes hold; None for a batch that is read as it is.
        base: position of `data[0]` in the file.
        ask: int64[KSEG_ASK_COUNT], what is wanted.
        rows_max: no more rows than this.
        bytes_max: no more key, value and header bytes than this, but at least one row.
        place: int64[KSEG_ONE_FIELDS], zeros at first: where the piece begins; written: where it
            ends, and why, as `csrc/careful.h` orders it.
        at: int64[16], written: where each column starts in the piece's block, -1 for those that are
            not wanted.
        state: int64[KSEG_STATE_FIELDS], written: what will be in the piece.

    Returns:
        Bytes of a block for the piece.

    Source: Kafka DefaultRecord.readFrom, DefaultRecordBatch.iterator, AbstractLegacyRecordBatch.
    """
    cdef Source source
    cdef One one
    cdef Tally tally
    if at.shape[0] != KSEG_PLACES or not (0 < rows_max <= ROOM_MAX and 0 < bytes_max <= ROOM_MAX):
        raise ValueError("at has the wrong length, or a bound is out of range")
    _open_one(data, row, body, base, ask, place, state, &source, &one)
    one.rows_max, one.bytes_max = rows_max, bytes_max
    with nogil:
        count_on(&one, &tally, &place[0])
    _tell(&tally, &state[0])
    state[KSEG_BATCHES] = 1
    state[KSEG_TIME_TYPE] = one.batch.time_type
    return room_of(_fields_of(ask), tally.rows, tally.bytes, tally.headers, &at[0])


def copy_records(const uint8_t[::1] data, const int64_t[::1] row, const uint8_t[::1] body, *,
                 int64_t base, const int64_t[::1] ask, const int64_t[::1] place,
                 uint8_t[::1] block, const int64_t[::1] state):
    """Copy the records of a piece of one batch, as they were counted.

    Args:
        data, row, body, base, ask: as `count_records` was given.
        place: as it was before that, but with the shift of offsets that it found.
        block: uint8[n], aligned to 8 bytes, with room as that said.
        state: as that left it.

    Raises:
        ValueError: the bytes are others than those that were counted.
    """
    cdef Source source
    cdef One one
    cdef Piece piece
    cdef Tally room = _told(state), tally
    cdef int64_t at[KSEG_PLACES]
    cdef int64_t begin[KSEG_ONE_FIELDS]
    cdef int64_t empty[KSEG_STATE_FIELDS]
    cdef int changed
    _open_one(data, row, body, base, ask, place, state, &source, &one)
    if block.shape[0] < max(room_of(_fields_of(ask), room.rows, room.bytes, room.headers, at), 1):
        raise ValueError("the block has no room for the piece")
    if <size_t>&block[0] % 8:
        raise ValueError("the block is not aligned")
    memset(&tally, 0, sizeof(Tally))
    memset(empty, 0, sizeof(empty))
    memcpy(begin, &place[0], sizeof(begin))
    empty[KSEG_ROWS_MAX], empty[KSEG_HEADERS_MAX] = room.rows, room.headers
    with nogil:
        piece = piece_in(&block[0], at, empty)
        one.out, one.room = &piece, &room
        changed = copy_on(&one, &tally, begin)
    if changed or memcmp(&room, &tally, sizeof(Tally)):
        raise ValueError("the bytes of a batch changed while they were read")
