"""Batches of magic 0 to 2 read in one pass, without the GIL, into one block of memory a piece.

The contract is that of `_core`: borrowed input, a status instead of an exception. `BatchReader` has
state, as many calls fill one piece. The loops are in `csrc/reader.h`; what is unusual ends a call
before its batch, which `read_one` then takes alone, by `csrc/careful.h`.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from kseg._core cimport INT64_MAX, INT64_MIN, add64, crc32_of, crc32c_on, sub64
from kseg._kernels.blocks cimport Block, Blocks
from kseg._kernels.inflate cimport Scratch, drop_scratch, inflate_records
from kseg._kernels.needle cimport Needle, needle_of

cdef extern from "careful.h" nogil:
    ctypedef struct Filling "kseg_piece":
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
        const Needle *needle
        int filtered
        sum_function sum
        message_sum_function message_sum
        inflate_function inflate
        Held *inflated
        int64_t *counts
        int64_t *firsts
        int64_t counts_max

    enum:
        KSEG_OFFSET
        KSEG_TIMESTAMP
        KSEG_KEY
        KSEG_VALUE
        KSEG_HEADERS
        KSEG_HAS_VALUE
        KSEG_MATCHES
        KSEG_END
        KSEG_FULL
        KSEG_NO_ROOM
        KSEG_MORE
        KSEG_ODD
        KSEG_OTHER
        KSEG_PAST
        KSEG_AT
        KSEG_ROWS_MAX
        KSEG_BYTES_MAX
        KSEG_HEADERS_MAX
        KSEG_ROWS
        KSEG_BYTES
        KSEG_HEADER_COUNT
        KSEG_KEY_BYTES
        KSEG_KEY_NULLS
        KSEG_VALUE_BYTES
        KSEG_VALUE_NULLS
        KSEG_NAME_BYTES
        KSEG_HEADER_BYTES
        KSEG_HEADER_NULLS
        KSEG_BATCHES
        KSEG_TIME_TYPE
        KSEG_LAST
        KSEG_PAST_FROM
        KSEG_LAST_OFFSET
        KSEG_NEED_ROWS
        KSEG_NEED_BYTES
        KSEG_NEED_HEADERS
        KSEG_STATE_FIELDS
        KSEG_ASK_FIELDS
        KSEG_ASK_CONTROL
        KSEG_ASK_VERIFY
        KSEG_ASK_ONE_TYPE
        KSEG_ASK_NOTES
        KSEG_ASK_OFFSET_MIN
        KSEG_ASK_OFFSET_MAX
        KSEG_ASK_TIME_MIN
        KSEG_ASK_TIME_MAX
        KSEG_ASK_INFLATED_MAX
        KSEG_ASK_COUNT
        KSEG_ROW_POSITION
        KSEG_ROW_SIZE
        KSEG_ROW_RECORD_COUNT
        KSEG_ROW_WIDTH
        KSEG_RECORD_MIN
        KSEG_AT_OFFSETS
        KSEG_AT_TIMESTAMPS
        KSEG_AT_KEY_ENDS
        KSEG_AT_VALUE_ENDS
        KSEG_AT_LISTS
        KSEG_AT_NAME_ENDS
        KSEG_AT_HEADER_ENDS
        KSEG_AT_KEY_VALID
        KSEG_AT_VALUE_VALID
        KSEG_AT_HEADER_VALID
        KSEG_AT_KEY
        KSEG_AT_VALUE
        KSEG_AT_NAME
        KSEG_AT_HEADER
        KSEG_AT_HAS_VALUE
        KSEG_AT_MATCHES
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
        Filling *out
        const Tally *room

    enum:
        KSEG_OF_KEY
        KSEG_OF_VALUE
        KSEG_OF_NAME
        KSEG_OF_HEADER
        KSEG_OF
        KSEG_ONE_AT
        KSEG_ONE_RECORD
        KSEG_ONE_SHIFT
        KSEG_ONE_FIRST
        KSEG_ONE_STATUS
        KSEG_ONE_FULL
        KSEG_ONE_FIELDS

    int one_of "kseg_one_of"(const Source *source, const int64_t *row, const uint8_t *body,
                             int64_t body_size, One *one) noexcept
    void count_on "kseg_count_records"(const One *one, Tally *tally, int64_t *place) noexcept
    int copy_on "kseg_take_records"(const One *one, Tally *tally, int64_t *place) noexcept
    int64_t room_of "kseg_layout"(int64_t fields, int64_t rows, const int64_t *bytes,
                                  int64_t headers, int64_t *at) noexcept
    int64_t layout "kseg_even_layout"(int64_t fields, int64_t rows, int64_t bytes,
                                      int64_t headers, int64_t *at) noexcept
    Filling piece_in "kseg_piece_in"(uint8_t *block, const int64_t *at,
                                     const int64_t *state) noexcept
    void keep_piece "kseg_keep_piece"(const Filling *piece, int64_t *state) noexcept
    int read_on "kseg_read"(const Source *source, Filling *piece, int64_t *state) noexcept

cdef enum:
    ROOM_MAX = 0x7fffffff
    ROWS_SPARE = 64
    EXPANSION_MAX = 8
    # Bytes of bodies up to which a piece grows with them where only the bytes at hand bound it.
    INFLATED_USUAL = 1 << 20

cdef uint8_t[1] NO_BYTES


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
        """Begin other batches, even if positions are the same."""
        self.held.position = -1


cdef int _inflate(Held *held, int codec, int magic, const uint8_t *data, int64_t size,
                  int64_t inflated_max) noexcept nogil:
    cdef Scratch *scratch = <Scratch *>held.scratch
    cdef int status = inflate_records(codec, magic, data, size, scratch, inflated_max)
    held.bytes, held.size = scratch.bytes, scratch.size
    return status


# ---- rows in a piece -----------------------------------------------------------------------------

@cython.final
@cython.auto_pickle(False)
cdef class Piece:
    """Columns in one block, and where each lies in it; it keeps the block. See `BatchReader.take`.

    Of numbers: how many, and the first byte. Of byte strings: how many; the first bytes of the ends
    and of the data; the bytes of the data; how many are null, and the first byte of the bits that
    tell which are not.

    Attributes:
        block: the memory.
        rows: how many records.
        batches: how many batches were read or passed over.
        time_type: the type of all timestamps, -1 none, 0 create time, 1 log append time, if it was
            asked for.
    """

    cdef readonly Block block
    cdef readonly int64_t rows, batches, time_type
    cdef int64_t headers_count
    cdef int64_t[KSEG_PLACES] places
    cdef Tally tally

    def numbers(self, str field):
        """Where the numbers of a field lie: offset, timestamp, lists, has_value or matches.

        Lists are the ends of each record's headers, one more than there are records.
        """
        cdef int64_t place = self.places[_NUMBERS[field]]
        if place < 0:
            return 0, 0
        return self.rows + (1 if field == "lists" else 0), place

    def strings(self, str field):
        """Where the byte strings of a field lie: key, value, or names or values of headers."""
        cdef int of = _STRINGS[field]
        cdef int64_t count = self.rows if of < KSEG_OF_NAME else self.headers_count
        return (count, self.places[ENDS[of]], self.places[DATA[of]], self.tally.bytes[of],
                self.tally.nulls[of], self.places[VALID[of]])

    @property
    def has_matches(self):
        """Whether a batch's messages were each held against their checksums."""
        return self.places[KSEG_AT_MATCHES] >= 0


_NUMBERS = {"offset": KSEG_AT_OFFSETS, "timestamp": KSEG_AT_TIMESTAMPS, "lists": KSEG_AT_LISTS,
            "has_value": KSEG_AT_HAS_VALUE, "matches": KSEG_AT_MATCHES}
_STRINGS = {"key": KSEG_OF_KEY, "value": KSEG_OF_VALUE, "header_name": KSEG_OF_NAME,
            "header_value": KSEG_OF_HEADER}

# The places in a layout of the ends, the data and the bits of each column of byte strings.
cdef int[KSEG_OF] ENDS = [
    KSEG_AT_KEY_ENDS, KSEG_AT_VALUE_ENDS, KSEG_AT_NAME_ENDS, KSEG_AT_HEADER_ENDS,
]
cdef int[KSEG_OF] DATA = [KSEG_AT_KEY, KSEG_AT_VALUE, KSEG_AT_NAME, KSEG_AT_HEADER]
# A name is never null.
cdef int[KSEG_OF] VALID = [KSEG_AT_KEY_VALID, KSEG_AT_VALUE_VALID, 0, KSEG_AT_HEADER_VALID]


cdef void _end_bits(uint8_t *block, int64_t place, int64_t count) noexcept:
    """No bit is set after that of the last value."""
    if place >= 0 and count & 7:
        block[place + count // 8] &= <uint8_t>((1 << (count & 7)) - 1)


# ---- the room of a piece -------------------------------------------------------------------------

cdef int64_t _guess(double a_byte, int64_t size) noexcept:
    """Room for the contents of a piece of so many bytes, by the piece before."""
    return ROWS_SPARE + <int64_t>(a_byte * size * 9 / 8)


cdef int64_t _stretch(const Source *source, int64_t at) noexcept:
    """Bytes from a row of a table to the end of its last; without a table as many as one likes."""
    cdef const int64_t *first
    cdef const int64_t *last
    if at >= source.table_count:
        return INT64_MAX
    first = source.table + at * KSEG_ROW_WIDTH
    last = source.table + (source.table_count - 1) * KSEG_ROW_WIDTH
    return sub64(add64(last[KSEG_ROW_POSITION], last[KSEG_ROW_SIZE]), first[KSEG_ROW_POSITION])


cdef int64_t _rows_in(const Source *source, int64_t at, int64_t most) noexcept:
    """The records that rows of a table count; `most` where compressed messages count none."""
    cdef int64_t total = 0, count
    if source.table == NULL:
        return most
    for row in range(at, source.table_count):
        count = source.table[row * KSEG_ROW_WIDTH + KSEG_ROW_RECORD_COUNT]
        if count < 0 or count > most - total:
            return most
        total += count
    return total


cdef void _count(const Tally *tally, int64_t *state) noexcept:
    """The counts of a state that describes a piece."""
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


cdef void _tally_of(const int64_t *state, Tally *tally) noexcept:
    """The same back."""
    memset(tally, 0, sizeof(Tally))
    tally.rows, tally.headers = state[KSEG_ROWS], state[KSEG_HEADER_COUNT]
    tally.bytes[KSEG_OF_KEY] = state[KSEG_KEY_BYTES]
    tally.bytes[KSEG_OF_VALUE] = state[KSEG_VALUE_BYTES]
    tally.bytes[KSEG_OF_NAME] = state[KSEG_NAME_BYTES]
    tally.bytes[KSEG_OF_HEADER] = state[KSEG_HEADER_BYTES]
    tally.nulls[KSEG_OF_KEY] = state[KSEG_KEY_NULLS]
    tally.nulls[KSEG_OF_VALUE] = state[KSEG_VALUE_NULLS]
    tally.nulls[KSEG_OF_HEADER] = state[KSEG_HEADER_NULLS]


# ---- a reading -----------------------------------------------------------------------------------

#: The bits of the columns that records have of their own.
FIELD_BITS = {"offset": KSEG_OFFSET, "timestamp": KSEG_TIMESTAMP, "key": KSEG_KEY,
              "value": KSEG_VALUE, "headers": KSEG_HEADERS, "has_value": KSEG_HAS_VALUE}
#: Why a reading ends.
END, FULL, NO_ROOM, MORE, ODD, OTHER, PAST = (
    KSEG_END, KSEG_FULL, KSEG_NO_ROOM, KSEG_MORE, KSEG_ODD, KSEG_OTHER, KSEG_PAST)


@cython.final
@cython.auto_pickle(False)
cdef class BatchReader:
    """Fills one piece after another with records; belongs to one reading in one thread.

    Attributes:
        at: file position, or row of a table, of the next batch.
        last: file position of the batch that was read last, None for none.
    """

    cdef Inflated inflated
    cdef Blocks blocks
    cdef Block block
    cdef int64_t[:, ::1] counts
    cdef int64_t rows_max, bytes_max, rows_usual, body_max
    cdef bint sized, as_large_as_possible
    cdef int64_t[KSEG_ASK_COUNT] ask
    cdef int64_t[KSEG_STATE_FIELDS] state
    cdef int64_t[KSEG_PLACES] places
    cdef int64_t[KSEG_ONE_FIELDS] one
    cdef bytes needle_bytes
    cdef Needle needle

    def __init__(self, Blocks blocks not None, Inflated inflated not None,
                 int64_t[:, ::1] counts=None, *, int64_t fields, bint control, bint verify_crc,
                 bint one_type, bint notes, const int64_t[::1] within, int64_t inflated_max,
                 int64_t rows_max, int64_t bytes_max, int64_t rows_usual, int64_t body_max,
                 bint sized, bint as_large_as_possible, bytes needle=b"", bint folds=False):
        """Begin at 0 without a piece.

        Args:
            blocks: memory for pieces.
            inflated: memory for inflated batches.
            counts: int64[2, m], written: of each batch of a piece its records, and its base offset,
                which is that of the first message inside a compressed one; None if not wanted.
            fields: bits of the columns wanted, as `FIELD_BITS` says.
            control: give control records too.
            verify_crc: compare checksums.
            one_type: a piece holds timestamps of one type.
            notes: wrong checksums of messages inside others are noted, by `read_one` alone.
            within: int64[4]: least and last offset, least and last timestamp.
            inflated_max: batches that inflate to more go elsewhere.
            rows_max, bytes_max: bounds of a piece.
            rows_usual: a smaller bound, unless one batch alone has more.
            body_max: a larger body does not make a piece larger.
            sized: the piece before says how large the next one is.
            as_large_as_possible: only the bytes at hand do.
            needle: batches of magic 2 whose records lack these bytes are passed over; empty for
                none.
            folds: the case of ASCII letters does not count; those of the needle are small.
        """
        if within.shape[0] != 4:
            raise ValueError("within has the wrong length")
        if not (0 < rows_max <= ROOM_MAX and 0 < bytes_max <= ROOM_MAX and rows_usual > 0):
            raise ValueError("a piece has room for fewer than 2^31 rows and bytes")
        if counts is not None and counts.shape[0] != 2:
            raise ValueError("counts has the wrong width")
        self.blocks, self.inflated, self.counts = blocks, inflated, counts
        self.rows_max, self.bytes_max = rows_max, bytes_max
        self.rows_usual, self.body_max = min(rows_usual, rows_max), min(body_max, bytes_max)
        self.sized, self.as_large_as_possible = sized, as_large_as_possible
        self.ask[KSEG_ASK_FIELDS], self.ask[KSEG_ASK_CONTROL] = fields, control
        self.ask[KSEG_ASK_VERIFY], self.ask[KSEG_ASK_ONE_TYPE] = verify_crc, one_type
        self.ask[KSEG_ASK_NOTES], self.ask[KSEG_ASK_INFLATED_MAX] = notes, inflated_max
        self.ask[KSEG_ASK_OFFSET_MIN], self.ask[KSEG_ASK_OFFSET_MAX] = within[0], within[1]
        self.ask[KSEG_ASK_TIME_MIN], self.ask[KSEG_ASK_TIME_MAX] = within[2], within[3]
        memset(self.state, 0, sizeof(self.state))
        memset(self.one, 0, sizeof(self.one))
        self.needle_bytes = needle
        self.needle = needle_of(needle, len(needle), folds)
        self.state[KSEG_LAST] = self.state[KSEG_PAST_FROM] = self.state[KSEG_LAST_OFFSET] = -1

    @property
    def at(self):
        return self.state[KSEG_AT]

    @property
    def last(self):
        return self.state[KSEG_LAST] if self.state[KSEG_LAST] >= 0 else None

    @property
    def last_offset(self):
        """The largest last offset of the batches read or passed over; -1 for none."""
        return self.state[KSEG_LAST_OFFSET]

    @property
    def needed(self):
        """Behind `MORE`: bytes that the next batch announces, or that its header takes."""
        return self.state[KSEG_NEED_BYTES]

    def move(self, int64_t at, last=None):
        """Go on elsewhere, after batches that another has read, the last of them at `last`."""
        self.state[KSEG_AT] = at
        if last is not None:
            self.state[KSEG_LAST] = last

    def read(self, data, int64_t base, int64_t limit, int64_t file_end, int64_t wanted_end):
        """Read batches into the piece, until one does not fit, or is unusual.

        Args:
            data: bytes `[base, base + len)` of the file; borrowed for this call, read only.
            base: position of `data[0]` in the file.
            limit: no batch that starts here or later is read.
            file_end: the file's size.
            wanted_end: where later calls for the same piece may end; it only sizes the piece.

        Returns:
            Why it ended: END, FULL, NO_ROOM, MORE, ODD, OTHER or PAST, as `csrc/reader.h` has them.

        Source: Kafka DefaultRecordBatch, DefaultRecord.readFrom, AbstractLegacyRecordBatch.
        """
        cdef Source source
        cdef Py_buffer buffer
        cdef int64_t at = self.state[KSEG_AT]
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            # No sum of two of them is made, so none overflows.
            if not (0 <= base <= at and at - base <= buffer.len and base <= file_end
                    and buffer.len <= file_end - base):
                raise ValueError("the place, base and file_end do not fit the data")
            self._source(&source, <const uint8_t *>buffer.buf, buffer.len, base)
            source.limit, source.file_end = limit, file_end
            return self._fill(&source, min(wanted_end, file_end) - at if wanted_end > at else 0)
        finally:
            PyBuffer_Release(&buffer)

    def read_table(self, data, const int64_t[:, ::1] table not None, int64_t base):
        """The same of the batches of a table, from row `at` on.

        Args:
            data, base: as for `read`.
            table: int64[n, ROW_FIELDS].
        """
        cdef Source source
        cdef Py_buffer buffer
        if table.shape[1] != KSEG_ROW_WIDTH:
            raise ValueError("the table has the wrong width")
        if self.state[KSEG_AT] < 0:
            raise ValueError("the place lies outside the table")
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            self._source(&source, <const uint8_t *>buffer.buf, buffer.len, base)
            source.table = &table[0, 0] if table.shape[0] else self.ask
            source.table_count = table.shape[0]
            return self._fill(&source, buffer.len)
        finally:
            PyBuffer_Release(&buffer)

    def take(self):
        """The piece so far, None where no row is in it; the next one starts again."""
        cdef Piece piece
        cdef int of
        cdef int64_t size = max(self.state[KSEG_BYTES], 1)
        if self.state[KSEG_ROWS] == 0:  # batches without a row are counted, too
            self._begin_anew()
            return None
        piece = Piece.__new__(Piece)
        piece.block, piece.rows = self.block, self.state[KSEG_ROWS]
        piece.headers_count = self.state[KSEG_HEADER_COUNT]
        piece.batches = self.state[KSEG_BATCHES]
        piece.time_type = self.state[KSEG_TIME_TYPE]
        _tally_of(self.state, &piece.tally)
        memcpy(piece.places, self.places, sizeof(self.places))
        self.blocks.rows_a_byte = <double>piece.rows / size
        self.blocks.headers_a_byte = <double>piece.headers_count / size
        for of in range(KSEG_OF):
            self.blocks.data_a_byte[of] = <double>piece.tally.bytes[of] / size
            if piece.tally.nulls[of]:
                _end_bits(self.block.start(), piece.places[VALID[of]],
                          piece.headers_count if of == KSEG_OF_HEADER else piece.rows)
        self._begin_anew()
        return piece

    cdef void _begin_anew(self):
        memset(&self.state[KSEG_ROWS], 0, (KSEG_LAST - KSEG_ROWS) * sizeof(int64_t))
        self.block = None

    cdef void _source(self, Source *source, const uint8_t *data, int64_t size, int64_t base):
        memset(source, 0, sizeof(Source))
        source.data, source.base, source.size = data if data != NULL else NO_BYTES, base, size
        source.ask = self.ask
        source.needle = &self.needle if self.needle.size else NULL
        source.filtered = not (self.ask[KSEG_ASK_OFFSET_MIN] == INT64_MIN
                               and self.ask[KSEG_ASK_OFFSET_MAX] == INT64_MAX
                               and self.ask[KSEG_ASK_TIME_MIN] == INT64_MIN
                               and self.ask[KSEG_ASK_TIME_MAX] == INT64_MAX)
        source.sum, source.message_sum = crc32c_on, crc32_of
        source.inflate, source.inflated = _inflate, &self.inflated.held
        if self.counts is not None and self.counts.shape[1]:
            source.counts, source.firsts = &self.counts[0, 0], &self.counts[1, 0]
            source.counts_max = self.counts.shape[1]

    cdef int _fill(self, Source *source, int64_t left) except -1:
        """Read on; into a larger block where one batch does not fit into any other."""
        cdef Filling piece
        cdef int why = KSEG_NO_ROOM
        while why == KSEG_NO_ROOM:
            if self.block is None:
                self._reserve(source, left)
            with nogil:
                piece = piece_in(self.block.start(), self.places, self.state)
                why = read_on(source, &piece, self.state)
                keep_piece(&piece, self.state)
            if why == KSEG_NO_ROOM and not self._enlarge():
                # Of compressed batches that are too large, all go elsewhere: none is inflated
                # twice.
                return KSEG_OTHER if self.inflated.held.position >= 0 else KSEG_NO_ROOM
        return why

    # ---- room ------------------------------------------------------------------------------------

    cdef int _reserve(self, const Source *source, int64_t left) except -1:
        """A block for a new piece: sized by the piece before, and no larger than what is left."""
        cdef int64_t size, rows, headers = 0
        left = max(0, min(left, _stretch(source, self.state[KSEG_AT])))
        size = <int64_t>(min(<double>left, <double>ROOM_MAX) * self._expansion())
        if self.as_large_as_possible:
            size = max(left, min(size, INFLATED_USUAL))
        size = min(self.bytes_max, size)
        rows = size // KSEG_RECORD_MIN
        if self.as_large_as_possible:
            rows = _rows_in(source, self.state[KSEG_AT], rows)
        elif self.sized:
            size = min(size, self.blocks.piece_bytes())
            rows = min(rows, _guess(self.blocks.rows_a_byte, size))
        if self.ask[KSEG_ASK_FIELDS] & KSEG_HEADERS:
            headers = min(size // 2, _guess(self.blocks.headers_a_byte, size))
        return self._set_room(min(rows, self.rows_usual), size, headers)

    cdef double _expansion(self):
        """Make room for so many times the bytes that are left to read."""
        cdef const Held *held = &self.inflated.held
        if held.packed <= 0:
            return 1
        return max(1.0, min(<double>held.size / held.packed, <double>EXPANSION_MAX))

    cdef int _set_room(self, int64_t rows, int64_t size, int64_t headers) except -1:
        cdef int64_t total = layout(self.ask[KSEG_ASK_FIELDS], rows, size, headers, self.places)
        cdef object filled = self._filled(size, total) if size > self.blocks.large_bytes else None
        self.block = self.blocks.take(max(total, 1), size, filled)
        self.state[KSEG_ROWS_MAX], self.state[KSEG_BYTES_MAX] = rows, size
        self.state[KSEG_HEADERS_MAX] = headers
        return 0

    cdef list _filled(self, int64_t size, int64_t total):
        """Stretches of a block that a piece like the one before fills: numbers, then bytes."""
        cdef int of
        cdef int64_t numbers = total
        cdef list stretches = []
        for of in range(KSEG_OF):
            if self.places[DATA[of]] >= 0:
                start = self.places[DATA[of]]
                numbers = min(numbers, start)
                stretches.append((start, start + <int64_t>(self.blocks.data_a_byte[of] * size)))
        return [(0, numbers), *stretches]

    cdef bint _enlarge(self) except -1:
        """A larger block for one batch that does not fit; False where no piece may hold it."""
        cdef int64_t rows = self.state[KSEG_NEED_ROWS], size = self.state[KSEG_NEED_BYTES]
        cdef int64_t headers = self.state[KSEG_NEED_HEADERS]
        if rows > self.rows_max or size > self.body_max or headers > ROOM_MAX:
            return False
        rows, size = max(rows, self.state[KSEG_ROWS_MAX]), max(size, self.state[KSEG_BYTES_MAX])
        headers = max(headers, self.state[KSEG_HEADERS_MAX])
        if (rows == self.state[KSEG_ROWS_MAX] and size == self.state[KSEG_BYTES_MAX]
                and headers == self.state[KSEG_HEADERS_MAX]):
            return False
        self.block = None
        self._set_room(rows, size, headers)
        return True

    # ---- one batch -------------------------------------------------------------------------------

    def begin_one(self):
        """Let `read_one` begin with the first record of its next batch."""
        memset(self.one, 0, sizeof(self.one))

    def read_one(self, const uint8_t[::1] data, const int64_t[::1] row, const uint8_t[::1] body, *,
                 int64_t base, int64_t rows_max, int64_t bytes_max):
        """Read on in one batch alone, into a piece of its own; see `take`.

        What the piece holds is counted first, so that it has the exact room, and then copied.

        Args:
            data: bytes of the file from `base` on; read only.
            row: int64[ROW_FIELDS], the batch's of a table.
            body: the batch's inflated records; None for a batch that needs no inflating.
            base: position of `data[0]` in the file.
            rows_max: no more rows than this.
            bytes_max: no more key, value and header bytes than this, but at least one row.

        Returns:
            Whether the batch goes on after the piece; what is wrong with it, 0 for nothing; and
            with which record.

        Raises:
            ValueError: the bytes have changed between the two.

        Source: Kafka DefaultRecord.readFrom, DefaultRecordBatch.iterator,
        AbstractLegacyRecordBatch.
        """
        cdef Source source
        cdef One one
        cdef Tally tally
        cdef int64_t[KSEG_ONE_FIELDS] begin
        if not (0 < rows_max <= ROOM_MAX and 0 < bytes_max <= ROOM_MAX):
            raise ValueError("a bound is out of range")
        self._begin_anew()
        self._open_one(data, row, body, base, &source, &one)
        one.rows_max, one.bytes_max = rows_max, bytes_max
        memcpy(begin, self.one, sizeof(begin))
        with nogil:
            count_on(&one, &tally, self.one)
        if tally.rows:
            begin[KSEG_ONE_SHIFT] = self.one[KSEG_ONE_SHIFT]  # the first call of a batch finds it
            self._open_one(data, row, body, base, &source, &one)
            self._copy_one(&one, &tally, begin)
        return (self.one[KSEG_ONE_FULL] != 0, self.one[KSEG_ONE_STATUS],
                self.one[KSEG_ONE_RECORD])

    cdef int _copy_one(self, One *one, const Tally *room, int64_t *begin) except -1:
        """Copy the counted records into a block of their own."""
        cdef Filling piece
        cdef Tally tally
        cdef int64_t[KSEG_STATE_FIELDS] empty
        cdef int changed
        cdef int64_t total = room_of(self._fields_of_one(), room.rows, room.bytes, room.headers,
                                     self.places)
        _count(room, self.state)
        self.block = self.blocks.take(max(total, 1), self.state[KSEG_BYTES])
        memset(&tally, 0, sizeof(Tally))
        memset(empty, 0, sizeof(empty))
        empty[KSEG_ROWS_MAX], empty[KSEG_HEADERS_MAX] = room.rows, room.headers
        with nogil:
            piece = piece_in(self.block.start(), self.places, empty)
            one.out, one.room = &piece, room
            changed = copy_on(one, &tally, begin)
        if changed or memcmp(room, &tally, sizeof(Tally)):
            self._begin_anew()
            raise ValueError("the bytes of a batch changed while they were read")
        self.state[KSEG_BATCHES] = 1
        self.state[KSEG_TIME_TYPE] = one.batch.time_type
        if self.counts is not None and self.counts.shape[1]:
            self.counts[0, 0], self.counts[1, 0] = room.rows, self.one[KSEG_ONE_FIRST]
        return 0

    cdef int64_t _fields_of_one(self) noexcept:
        """The columns of a batch that is read alone."""
        return self.ask[KSEG_ASK_FIELDS] | (KSEG_MATCHES if self.ask[KSEG_ASK_NOTES] else 0)

    cdef int _open_one(self, const uint8_t[::1] data, const int64_t[::1] row,
                       const uint8_t[::1] body, int64_t base, Source *source, One *one) except -1:
        """The batch of a row, with its body; `source` has to outlive it."""
        cdef int64_t size
        cdef const uint8_t *inflated = NULL
        if row.shape[0] != KSEG_ROW_WIDTH:
            raise ValueError("row has the wrong length")
        memset(one, 0, sizeof(One))
        self._source(source, &data[0] if data.shape[0] else NULL, data.shape[0], base)
        if body is not None:
            # An empty body has no address, so any that is not NULL will do.
            inflated = &body[0] if body.shape[0] else NO_BYTES
        if one_of(source, &row[0], inflated, body.shape[0] if body is not None else 0, one):
            raise ValueError("a batch lies outside its source")
        size = one.batch.end - one.batch.start
        if self.one[KSEG_ONE_AT] > size:
            raise ValueError("the place lies outside the batch")
        return 0
